"""Wrong kernels, one for each fault; kernels_right.py holds the correct neighbour of each."""

import math

from numpy import float32

from labsupport.cuda.simt import cuda

T = 8
FULL = 0xFFFFFFFF


@cuda.jit
def add_without_guard(a, b, c):
    i = cuda.grid(1)
    c[i] = a[i] + b[i]


@cuda.jit
def negative_index(a, c):
    i = cuda.grid(1)
    c[i] = a[i - 1]


@cuda.jit
def matmul_without_first_barrier(A, B, C):
    sA = cuda.shared.array((T, T), float32)
    sB = cuda.shared.array((T, T), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, col = cuda.blockIdx.y * T + ty, cuda.blockIdx.x * T + tx
    acc = float32(0.0)
    for t in range(A.shape[1] // T):
        sA[ty, tx] = A[row, t * T + tx]
        sB[ty, tx] = B[t * T + ty, col]
        for k in range(T):
            acc += sA[ty, k] * sB[k, tx]
        cuda.syncthreads()
    C[row, col] = acc


@cuda.jit
def matmul_without_second_barrier(A, B, C):
    sA = cuda.shared.array((T, T), float32)
    sB = cuda.shared.array((T, T), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, col = cuda.blockIdx.y * T + ty, cuda.blockIdx.x * T + tx
    acc = float32(0.0)
    for t in range(A.shape[1] // T):
        sA[ty, tx] = A[row, t * T + tx]
        sB[ty, tx] = B[t * T + ty, col]
        cuda.syncthreads()
        for k in range(T):
            acc += sA[ty, k] * sB[k, tx]
    C[row, col] = acc


@cuda.jit
def barrier_in_a_condition(x):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    if t < 32:
        cuda.syncthreads()
        x[t] = s[t]


@cuda.jit
def early_return_before_barrier(x, n):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    if t >= n:
        return
    s[t] = x[t]
    cuda.syncthreads()
    x[t] = s[t]


@cuda.jit
def two_different_barriers(x):
    if cuda.threadIdx.x % 2:
        cuda.syncthreads()
    else:
        cuda.syncthreads()


@cuda.jit
def all_threads_write_one_element(x, out):
    out[0] = x[cuda.grid(1)]


@cuda.jit
def blocks_share_an_element(x, out):
    if cuda.threadIdx.x == 0:
        out[0] = x[cuda.blockIdx.x]


@cuda.jit
def block_reads_what_another_wrote(x, out):
    i = cuda.grid(1)
    x[i] = float32(1.0)
    out[i] = x[x.shape[0] - 1 - i]


@cuda.jit
def block_writes_what_another_read(x):
    i = cuda.grid(1)
    value = x[x.shape[0] - 1 - i]
    cuda.syncthreads()
    x[i] = value


@cuda.jit
def histogram_without_atomic(x, bins):
    i = cuda.grid(1)
    bins[x[i]] += 1


@cuda.jit
def atomic_and_plain(x, out):
    i = cuda.grid(1)
    cuda.atomic.add(out, 0, x[i])
    if i == 5:
        out[0] = float32(0.0)


@cuda.jit
def unwritten_shared(x):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    if t < 60:
        s[t] = x[t]
    cuda.syncthreads()
    x[t] = s[63 - t]


@cuda.jit
def unwritten_local(x):
    s = cuda.local.array(4, float32)
    x[cuda.grid(1)] = s[0]


@cuda.jit
def warp_exchange_without_syncwarp(x):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    x[t] = s[31 - t]


@cuda.jit
def syncwarp_across_warps(x):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncwarp()
    x[t] = s[63 - t]


@cuda.jit
def shuffle_in_a_branch(x):
    t = cuda.threadIdx.x
    if t < 16:
        x[t] = cuda.shfl_down_sync(FULL, x[t], 1)


@cuda.jit
def shuffle_from_an_absent_lane(x):
    t = cuda.threadIdx.x
    x[t] = cuda.shfl_down_sync(FULL, x[t], 1)


@cuda.jit
def caller_not_in_the_mask(x):
    t = cuda.threadIdx.x
    x[t] = cuda.shfl_xor_sync(0x0000FFFF, x[t], 1)


@cuda.jit
def too_much_shared(x):
    s = cuda.shared.array((128, 128), float32)
    s[0, 0] = x[0]


@cuda.jit
def waits_for_a_flag(flag):
    if cuda.threadIdx.x == 0:
        while flag[0] == 0:
            pass
    else:
        flag[0] = 1


@cuda.jit
def takes_a_slice(x):
    x[0:2] = x[2:4]


@cuda.jit
def too_few_indices(x):
    x[0] = 1


@cuda.jit
def float_index(x):
    x[cuda.grid(1) / 2] = 1


@cuda.jit
def divides_by_zero(x):
    x[0] = 1 // (cuda.grid(1) - cuda.grid(1))


@cuda.jit
def counts_a_truth_value(x):
    x[0] = cuda.syncthreads_count(x[0] > 0)


@cuda.jit
def size_that_is_computed(x):
    s = cuda.shared.array(T + 1, float32)
    s[0] = x[0]


@cuda.jit
def size_from_an_argument(x, n):
    s = cuda.local.array(n, float32)
    s[0] = x[0]


def plain_helper(value):
    return value + value


@cuda.jit
def calls_a_plain_function(x):
    x[0] = plain_helper(x[0])


@cuda.jit
def counts_for_ever(x):
    for k in range(10**12):
        x[0] = k


def sized_by_an_argument(x):
    s = cuda.local.array(SIZE, float32)  # noqa: F821
    s[0] = x[cuda.threadIdx.x]


@cuda.jit
def takes_a_name_of_numpy(x):
    x[cuda.grid(1)] = math.maximum(x[0], x[1])


@cuda.jit
def takes_a_name_of_nobody(x):
    x[cuda.grid(1)] = math.rsqrt(x[0])
