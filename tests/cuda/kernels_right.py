"""Correct kernels, each the neighbour of wrong ones in kernels_wrong.py."""

import math

from numpy import float32, float64, int32

from labsupport.cuda.simt import cuda

T = 8
FULL = 0xFFFFFFFF


@cuda.jit
def add(a, b, c):
    i = cuda.grid(1)
    if i < c.shape[0]:
        c[i] = a[i] + b[i]


@cuda.jit
def matmul_tiled(A, B, C):
    sA = cuda.shared.array((T, T), float32)
    sB = cuda.shared.array((T, T), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, col = cuda.blockIdx.y * T + ty, cuda.blockIdx.x * T + tx
    acc = float32(0.0)
    for t in range((A.shape[1] + T - 1) // T):
        k = t * T + tx
        sA[ty, tx] = A[row, k] if row < A.shape[0] and k < A.shape[1] else float32(0.0)
        k = t * T + ty
        sB[ty, tx] = B[k, col] if k < B.shape[0] and col < B.shape[1] else float32(0.0)
        cuda.syncthreads()
        for k in range(T):
            acc += sA[ty, k] * sB[k, tx]
        cuda.syncthreads()
    if row < C.shape[0] and col < C.shape[1]:
        C[row, col] = acc


@cuda.jit
def block_sum(x, out):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    s[t] = x[i] if i < x.shape[0] else float32(0.0)
    cuda.syncthreads()
    step = 32
    while step > 0:
        if t < step:
            s[t] += s[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        cuda.atomic.add(out, 0, s[0])


@cuda.jit
def warp_sum(x, out):
    value = x[cuda.grid(1)]
    delta = 16
    while delta > 0:
        value += cuda.shfl_down_sync(FULL, value, delta)
        delta //= 2
    if cuda.laneid == 0:
        out[cuda.grid(1) // 32] = value


@cuda.jit
def warp_exchange(x):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncwarp()
    x[t] = s[31 - t]


@cuda.jit
def votes(x, out):
    t = cuda.threadIdx.x
    positive = x[t] > 0
    out[0, t] = cuda.ballot_sync(FULL, positive)
    out[1, t] = cuda.all_sync(FULL, positive)
    out[2, t] = cuda.any_sync(FULL, positive)
    out[3, t] = cuda.syncthreads_count(int(positive))
    out[4, t] = cuda.syncthreads_and(int(positive))
    out[5, t] = cuda.syncthreads_or(int(positive))


@cuda.jit
def shuffles(x, out):
    t = cuda.threadIdx.x
    value = x[t]
    out[0, t] = cuda.shfl_sync(FULL, value, 3)
    out[1, t] = cuda.shfl_up_sync(FULL, value, 1)
    out[2, t] = cuda.shfl_down_sync(FULL, value, 1)
    out[3, t] = cuda.shfl_xor_sync(FULL, value, 1)


@cuda.jit
def histogram(x, bins):
    i = cuda.grid(1)
    if i < x.shape[0]:
        cuda.atomic.add(bins, x[i], 1)


@cuda.jit
def atomics(x, out):
    i = cuda.grid(1)
    cuda.atomic.max(out, 0, x[i])
    cuda.atomic.min(out, 1, x[i])
    cuda.atomic.sub(out, 2, x[i])
    cuda.atomic.cas(out, 3, 0, 7)
    cuda.atomic.exch(out, 4, 9)


@cuda.jit
def transpose(A, B):
    s = cuda.shared.array((32, 33), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    s[ty, tx] = A[ty, tx]
    cuda.syncthreads()
    B[ty, tx] = s[tx, ty]


@cuda.jit
def transpose_conflicts(A, B):
    s = cuda.shared.array((32, 32), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    s[ty, tx] = A[ty, tx]
    cuda.syncthreads()
    B[ty, tx] = s[tx, ty]


@cuda.jit
def copy_rows(A, B):
    j, i = cuda.grid(2)
    B[i, j] = A[i, j]


@cuda.jit
def copy_columns(A, B):
    i, j = cuda.grid(2)
    B[i, j] = A[i, j]


@cuda.jit
def dynamic_reverse(x):
    s = cuda.shared.array(0, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    x[t] = s[cuda.blockDim.x - 1 - t]


@cuda.jit
def local_polynomial(x, out):
    powers = cuda.local.array(4, float32)
    i = cuda.grid(1)
    powers[0] = float32(1.0)
    for k in range(1, 4):
        powers[k] = powers[k - 1] * x[i]
    total = float32(0.0)
    for k in range(4):
        total += powers[k]
    out[i] = total


@cuda.jit(device=True)
def clamp(value, low, high):
    return min(max(value, low), high)


@cuda.jit
def uses_device_function(x):
    i = cuda.grid(1)
    x[i] = clamp(x[i], float32(-1.0), float32(1.0))


@cuda.jit
def grid_of_three(out):
    i, j, k = cuda.grid(3)
    out[i, j, k] = i * 100 + j * 10 + k


@cuda.jit
def grid_stride(x):
    for i in range(cuda.grid(1), x.shape[0], cuda.gridsize(1)):
        x[i] *= 2


@cuda.jit
def two_arrays_at_once(x, y):
    s, r = cuda.shared.array(8, float32), cuda.local.array(1, float32)
    t = cuda.threadIdx.x
    s[t], r[0] = x[t], x[t]
    cuda.syncthreads()
    y[t] = s[7 - t] + r[0]


@cuda.jit
def swap(x):
    i = cuda.grid(1) * 2
    x[i], x[i + 1] = x[i + 1], x[i]


@cuda.jit
def types(f32, i32, out):
    out[0] = f32[0] / 3
    out[1] = i32[0] / 2
    out[2] = i32[0] // 2
    out[3] = -i32[0] // 2
    out[4] = i32[0] % 3
    out[5] = math.exp(f32[0])
    out[6] = float(i32[0]) * 0.1
    i32[1] = 2147483647 + 1


@cuda.jit
def float64_accumulator(x, out):
    total = 0.0
    for k in range(x.shape[0]):
        total += x[k]
    out[0] = total


@cuda.jit
def softmax_row(x, y):
    row = cuda.blockIdx.x
    largest = x[row, 0]
    for k in range(x.shape[1]):
        largest = max(largest, x[row, k])
    total = float32(0.0)
    for k in range(x.shape[1]):
        total += math.exp(x[row, k] - largest)
    for k in range(x.shape[1]):
        y[row, k] = math.exp(x[row, k] - largest) / total


__all__ = ["float64", "int32"]


def arrays_in_turn(x):
    """A name for one of two arrays: by a loop over both, and by a condition."""
    t = cuda.threadIdx.x
    a, b = cuda.shared.array(32, float32), cuda.shared.array(32, float32)
    for c in (a, b):
        c[t] = x[t]
    d = a if t < 16 else b
    d[t] += d[t]
    x[t] = d[t]
