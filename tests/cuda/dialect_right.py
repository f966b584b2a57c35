"""Right kernels in less usual words: every idiom here compiles with numba, and the simulator has to take it."""

import math

import numpy as np
from numpy import float32, int32, uint32

from labsupport.cuda.simt import cuda

FULL = 0xFFFFFFFF
T = 8
SHAPE = (T, T)
HALF = float32(0.5)


def grid_stride_in_two_axes(x):
    i0, j0 = cuda.grid(2)
    di, dj = cuda.gridsize(2)
    for i in range(i0, x.shape[0], di):
        for j in range(j0, x.shape[1], dj):
            x[i, j] += 1


def index_as_one_tuple(x):
    p = cuda.grid(2)
    if p[0] < x.shape[0] and p[1] < x.shape[1]:
        x[p] = p[0] * 10 + p[1]


def shape_taken_apart(x):
    rows, cols = x.shape
    i = cuda.grid(1)
    if i < rows * cols:
        r, c = divmod(i, cols)
        x[r, c] = i


def annotated(x: "float32[:]", n: int = 0) -> None:
    i: int = cuda.grid(1)
    s: array = cuda.shared.array(32, float32)  # noqa: F821
    value: float32
    s[i]: float32 = x[i]
    cuda.syncthreads()
    value = s[31 - i]
    x[i] = value + n


def chained_comparison_and_choice(x):
    i = cuda.grid(1)
    if 0 <= i < x.shape[0]:
        x[i] = i if i % 2 == 0 else -i


def early_return_without_a_later_barrier(x):
    i = cuda.grid(1)
    if i >= x.shape[0]:
        return
    x[i] = i


def early_return_of_whole_blocks(x):
    s = cuda.shared.array(32, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    if cuda.blockIdx.x == 1:
        return None
    s[t] = x[i]
    cuda.syncthreads()
    x[i] = s[31 - t]


def early_return_of_whole_warps(x):
    t = cuda.threadIdx.x
    if t >= 32:
        return
    x[t] = cuda.shfl_xor_sync(FULL, x[t], 1)


@cuda.jit(device=True)
def square(value):
    return value * value


@cuda.jit(device=True)
def norm_of(a, b, scale=HALF):
    return scale * math.sqrt(square(a) + square(b)), a - b


def device_functions_within_device_functions(x):
    i = cuda.grid(1)
    length, difference = norm_of(x[i], x[i])
    x[i] = length + difference


def function_within(x):
    def twice(value):
        return value + value

    add = lambda a, b: a + b  # noqa: E731
    i = cuda.grid(1)
    x[i] = add(twice(x[i]), x[i])


def function_within_that_takes_an_array(x):
    def of(a, i):
        return a[i] + a[i]

    i = cuda.grid(1)
    x[i] = of(x, i)


def make_closure(n, factor):
    def closure(x):
        s = cuda.shared.array(n, float32)
        t = cuda.threadIdx.x
        s[t] = x[t] * factor
        cuda.syncthreads()
        x[t] = s[n - 1 - t]

    return closure


closure = make_closure(32, float32(3))


def sizes_by_name(x):
    n = 32
    shape = (2, 16)
    a, b = cuda.shared.array(n, float32), cuda.shared.array(shape=shape, dtype=np.float32)
    c = cuda.shared.array(SHAPE, "float32")
    d = cuda.shared.array(4 * 8, x.dtype)
    t = cuda.threadIdx.x
    a[t] = b[t // 16, t % 16] = c[t // T, t % T] = d[t] = x[t]
    cuda.syncthreads()
    u = 31 - t
    x[t] = a[u] + b[u // 16, u % 16] + c[u // T, u % T] + d[u]


def dynamic_memory_in_parts(x):
    s = cuda.shared.array(0, float32)
    n = cuda.blockDim.x
    a, b = s[:n], s[n : 2 * n]
    t = cuda.threadIdx.x
    a[t] = x[t]
    b[t] = -x[t]
    cuda.syncthreads()
    x[t] = a[n - 1 - t] + 2 * b[n - 1 - t]


@cuda.jit(device=True)
def sum_of(a, n):
    total = float32(0)
    for k in range(n):
        total += a[k]
    return total


def rows_given_to_a_device_function(x, out):
    i = cuda.grid(1)
    if i < x.shape[0]:
        out[i] = sum_of(x[i, :], x.shape[1]) + sum_of(x[i, 1:3], 2)


def double_buffer(x):
    a, b = cuda.shared.array(32, float32), cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    a[t] = x[t]
    cuda.syncthreads()
    step = 1
    while step < 32:
        b[t] = a[t] + a[t - step] if t >= step else a[t]
        cuda.syncthreads()
        a, b = b, a
        step *= 2
    x[t] = a[t]


def warp_synchronous_tree(x):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    lane, first = t % 32, t - t % 32
    s[t] = x[t]
    cuda.syncwarp()
    for step in (16, 8, 4, 2, 1):
        value = s[first + lane + step] if lane < step else float32(0)
        cuda.syncwarp()
        if lane < step:
            s[t] += value
        cuda.syncwarp()
    x[t] = s[first]


def halves_of_a_warp(x):
    t = cuda.threadIdx.x
    value = x[t]
    if t < 16:
        for k in (8, 4, 2, 1):
            value += cuda.shfl_xor_sync(0x0000FFFF, value, k)
    else:
        for k in (8, 4, 2, 1):
            value = max(value, cuda.shfl_xor_sync(-65536, value, k))
    x[t] = value


def ranks_by_ballot(x, count):
    t = cuda.threadIdx.x
    keep = x[t] > 0
    mask = cuda.ballot_sync(FULL, keep)
    value = x[t]
    cuda.syncwarp()
    if keep:
        x[cuda.popc(mask & cuda.lanemask_lt())] = value
    if t == 0:
        count[0], count[1] = cuda.popc(mask), cuda.ffs(mask)


def last_block_finishes(x, partial, counter, out):
    last = cuda.shared.array(1, int32)
    t = cuda.threadIdx.x
    cuda.atomic.add(partial, 0, x[cuda.grid(1)])
    cuda.threadfence()
    cuda.syncthreads()
    if t == 0:
        last[0] = 1 if cuda.atomic.add(counter, 0, 1) == cuda.gridDim.x - 1 else 0
    cuda.syncthreads()
    if t == 0 and last[0] == 1:
        out[0] = cuda.atomic.add(partial, 0, 0)


def bits_and_counters(n, u):
    i = cuda.grid(1)
    cuda.atomic.or_(n, 0, 1 << i)
    cuda.atomic.and_(n, 1, ~(1 << i))
    cuda.atomic.xor(n, 2, 1 << i)
    cuda.atomic.inc(u, 0, uint32(4))
    cuda.atomic.dec(u, 1, uint32(2))
    cuda.atomic.compare_and_swap(n[3:], 0, 5)


def wraps_like_the_hardware(n, u):
    i = cuda.grid(1)
    h = uint32(n[i]) * 2654435761
    u[i] = uint32(h) >> 16
    n[i] = int32(70000) * 70000 % 1000


def fused_and_chosen(x):
    i = cuda.grid(1)
    x[i] = cuda.selp(x[i] > 2, cuda.fma(x[i], x[i], x[i]), -x[i])


def functions_of_math(x, out):
    i = cuda.grid(1)
    m, e = math.frexp(x[i])
    out[0, i] = math.ldexp(m, e + 1)
    out[1, i] = math.atan2(x[i], x[i]) + math.hypot(x[i], x[i])
    out[2, i] = math.remainder(x[i], float32(2)) + math.fmod(x[i], float32(2))
    out[3, i] = math.erf(x[i]) if math.isfinite(x[i]) else float32(0)
    out[4, i] = math.trunc(x[i]) + math.copysign(float32(1), -x[i])


def functions_of_numpy(x, out):
    i = cuda.grid(1)
    out[i] = np.maximum(x[i], np.float32(1)) + np.sin(x[i]) + np.float32(np.pi)


@cuda.jit(device=True)
def joined(pair):
    return pair[0] + 10 * pair[1]


def device_function_of_a_tuple(x):
    p = cuda.grid(2)
    x[p] = joined(p)


def match_statement(x):
    i = cuda.grid(1)
    match i % 3:
        case 0:
            x[i] = 10
        case 1:
            x[i] = 20
        case _:
            x[i] = 30


def loops_with_else_and_enumerate(x):
    i = cuda.grid(1)
    for k, w in enumerate((float32(1), float32(2), float32(4))):
        if k > i:
            break
        x[i] += w
    else:
        x[i] = -x[i]
    for a, b in zip((1, 2), (3, 4)):  # noqa: B905
        if a == 2:
            continue
        x[i] += b


def shared_array_in_a_loop(x):
    t = cuda.threadIdx.x
    for k in range(2):
        s = cuda.shared.array(32, float32)
        s[t] = x[t]
        cuda.syncthreads()
        value = s[31 - t]
        cuda.syncthreads()
        x[t] = value + float32(k)


def three_axes(cube):
    i, j, k = cuda.grid(3)
    t = cuda.threadIdx
    if i < cube.shape[0] and j < cube.shape[1] and k < cube.shape[2]:
        cube[i, j, k] += t.x + 10 * t.y + 100 * t.z


def scales_by_a_shared_integer(x):
    s = cuda.shared.array(32, int32)
    t = cuda.threadIdx.x
    s[t] = t
    x[t] = x[t] * s[t]


@cuda.jit(device=True)
def scaled(factor, value):
    return factor * value


def scales_by_a_lane(x):
    t = cuda.threadIdx.x
    x[t] = scaled(t, x[t])


def scales_by_a_float(x):
    t = cuda.threadIdx.x
    x[t] = scaled(float32(t), x[t])
