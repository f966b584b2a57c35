"""The SIMT ladder: the same few operations, each rung using the memory better than the one before.

Every kernel is in the numba.cuda dialect and takes C-contiguous arrays of any sizes. Kernels with
a tile are made for a tile by a function, since a compiler wants sizes as constants. None may use a
float64 where its arrays are float32.
"""

# mypy: disallow-untyped-defs=False

import math
from collections.abc import Callable
from types import FunctionType

from numpy import float32, uint32

from labsupport.cuda.simt import cuda

__all__ = [
    "layer_norm",
    "make_matmul_register",
    "make_matmul_shared",
    "matmul_coalesced",
    "matmul_naive",
    "reduce_shuffle",
    "reduce_tree",
    "softmax_online",
    "softmax_row",
    "transpose_naive",
    "transpose_padded",
    "transpose_shared",
    "vector_add",
]

FULL = 0xFFFFFFFF
#: Threads of a block in the reductions; a power of two and a multiple of the warp.
THREADS = 128
WARPS = THREADS // 32
#: Side of a transposed tile: one warp reads one row of it.
SIDE = 32
#: Columns of a tile whose columns do not conflict; a compiler wants the sum ready.
PADDED = SIDE + 1
#: The start of a maximum: finite, since −inf − (−inf) would be NaN for a masked element.
LOWEST = float32(-3.4028235e38)


def vector_add(a, b, c):
    """One thread an element: c[i] = a[i] + b[i]."""
    i = cuda.grid(1)
    if i < c.shape[0]:
        c[i] = a[i] + b[i]


# -- sums -----------------------------------------------------------------------------------


def reduce_tree(x, partial):
    """Sum of a block's THREADS elements in shared memory: log2(THREADS) halvings, a barrier after each."""
    s = cuda.shared.array(THREADS, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    s[t] = x[i] if i < x.shape[0] else float32(0.0)
    cuda.syncthreads()
    step = THREADS // 2
    while step > 0:
        if t < step:
            s[t] += s[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        partial[cuda.blockIdx.x] = s[0]


def reduce_shuffle(x, partial):
    """The same sum by shuffles: within a warp no shared memory and no barrier, one barrier in all."""
    s = cuda.shared.array(WARPS, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    value = x[i] if i < x.shape[0] else float32(0.0)
    value = warp_sum(value)
    if t % 32 == 0:
        s[t // 32] = value
    cuda.syncthreads()
    if t == 0:
        total = float32(0.0)
        for w in range(WARPS):
            total += s[w]
        partial[cuda.blockIdx.x] = total


@cuda.jit(device=True)
def warp_sum(value):
    """Sum over the 32 lanes, known to all of them."""
    for k in range(5):
        value += cuda.shfl_xor_sync(FULL, value, 1 << k)
    return value


@cuda.jit(device=True)
def warp_max(value):
    """Maximum over the 32 lanes, known to all of them."""
    for k in range(5):
        value = max(value, cuda.shfl_xor_sync(FULL, value, 1 << k))
    return value


@cuda.jit(device=True)
def block_sum(value, s):
    """Sum over the block, known to all threads; s has one element a warp and may be used again after."""
    value = warp_sum(value)
    t = cuda.threadIdx.x
    if t % 32 == 0:
        s[t // 32] = value
    cuda.syncthreads()
    total = float32(0.0)
    for w in range(WARPS):
        total += s[w]
    cuda.syncthreads()
    return total


@cuda.jit(device=True)
def block_max(value, s):
    """Maximum over the block, known to all threads; s as in ``block_sum``."""
    value = warp_max(value)
    t = cuda.threadIdx.x
    if t % 32 == 0:
        s[t // 32] = value
    cuda.syncthreads()
    largest = s[0]
    for w in range(1, WARPS):
        largest = max(largest, s[w])
    cuda.syncthreads()
    return largest


# -- transposition --------------------------------------------------------------------------


def transpose_naive(A, B):
    """B = Aᵀ: a warp reads a row of A in one piece and writes a column of B in 32 pieces."""
    j, i = cuda.grid(2)
    if i < A.shape[0] and j < A.shape[1]:
        B[j, i] = A[i, j]


def transpose_shared(A, B):
    """B = Aᵀ through a 32×32 tile: reads and writes in one piece, but the tile's column lies in one bank."""
    tile = cuda.shared.array((SIDE, SIDE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    i, j = cuda.blockIdx.y * SIDE + ty, cuda.blockIdx.x * SIDE + tx
    if i < A.shape[0] and j < A.shape[1]:
        tile[ty, tx] = A[i, j]
    cuda.syncthreads()
    i, j = cuda.blockIdx.x * SIDE + ty, cuda.blockIdx.y * SIDE + tx
    if i < B.shape[0] and j < B.shape[1]:
        B[i, j] = tile[tx, ty]


def transpose_padded(A, B):
    """The same with 33 columns: the 32 elements of a tile's column lie in 32 different banks."""
    tile = cuda.shared.array((SIDE, PADDED), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    i, j = cuda.blockIdx.y * SIDE + ty, cuda.blockIdx.x * SIDE + tx
    if i < A.shape[0] and j < A.shape[1]:
        tile[ty, tx] = A[i, j]
    cuda.syncthreads()
    i, j = cuda.blockIdx.x * SIDE + ty, cuda.blockIdx.y * SIDE + tx
    if i < B.shape[0] and j < B.shape[1]:
        B[i, j] = tile[tx, ty]


# -- products -------------------------------------------------------------------------------


def matmul_naive(A, B, C):
    """C = A @ B, one thread an element, x along the rows: lanes of a warp read 32 rows of A."""
    i, j = cuda.grid(2)
    if i < C.shape[0] and j < C.shape[1]:
        acc = float32(0.0)
        for k in range(A.shape[1]):
            acc += A[i, k] * B[k, j]
        C[i, j] = acc


def matmul_coalesced(A, B, C):
    """The same with x along the columns: lanes read 32 neighbours of B and one common element of A."""
    j, i = cuda.grid(2)
    if i < C.shape[0] and j < C.shape[1]:
        acc = float32(0.0)
        for k in range(A.shape[1]):
            acc += A[i, k] * B[k, j]
        C[i, j] = acc


def make_matmul_shared(T: int) -> FunctionType:
    """C = A @ B with T×T tiles in shared memory: each loaded element is used T times."""

    def matmul_shared(A, B, C):
        sA = cuda.shared.array((T, T), float32)
        sB = cuda.shared.array((T, T), float32)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        row, col = cuda.blockIdx.y * T + ty, cuda.blockIdx.x * T + tx
        acc = float32(0.0)
        for t in range((A.shape[1] + T - 1) // T):
            kA, kB = t * T + tx, t * T + ty
            sA[ty, tx] = A[row, kA] if row < A.shape[0] and kA < A.shape[1] else float32(0.0)
            sB[ty, tx] = B[kB, col] if kB < B.shape[0] and col < B.shape[1] else float32(0.0)
            cuda.syncthreads()
            for k in range(T):
                acc += sA[ty, k] * sB[k, tx]
            cuda.syncthreads()
        if row < C.shape[0] and col < C.shape[1]:
            C[row, col] = acc

    return _plain(matmul_shared)


def make_matmul_register(BM: int, BN: int, BK: int, TM: int, TN: int) -> FunctionType:
    """C = A @ B: a block makes a BM×BN tile, a thread TM×TN of it in registers.

    A thread's outputs lie TY = BM/TM rows and TX = BN/TN columns apart, so that the lanes of a
    warp read neighbouring columns of the shared tile (no bank conflict) and write neighbouring
    elements of C. The block has (TX, TY) threads. While a tile is multiplied, the next one is on
    its way from global memory into registers. Rows and columns beyond the edge are read at the
    edge and never stored; beyond the end of k a zero is taken instead.
    """
    if BM % TM or BN % TN:
        raise ValueError(f"a thread's {TM}×{TN} outputs do not divide the block's {BM}×{BN}")
    TX, TY = BN // TN, BM // TM
    threads = TX * TY
    if threads % BK or threads % BN or BM * BK % threads or BK * BN % threads:
        raise ValueError(f"{threads} threads do not load tiles of {BM}×{BK} and {BK}×{BN} in whole rows each")
    # Elements that a thread loads of each tile, how many rows apart, and a row of sA without bank conflicts.
    LA, LB = BM * BK // threads, BK * BN // threads
    SA, SB = threads // BK, threads // BN
    WIDE = BM + max(1, 32 // BK)

    def matmul_register(A, B, C):
        sA = cuda.shared.array((BK, WIDE), float32)  # transposed, so that a step over k reads one row
        sB = cuda.shared.array((BK, BN), float32)
        acc = cuda.local.array((TM, TN), float32)
        a = cuda.local.array(TM, float32)
        b = cuda.local.array(TN, float32)
        nextA = cuda.local.array(LA, float32)
        nextB = cuda.local.array(LB, float32)
        # Unsigned: else a compiled index costs as much as the products, for it may count from an array's end.
        tx, ty = uint32(cuda.threadIdx.x), uint32(cuda.threadIdx.y)
        number = ty * TX + tx
        iA, kA = number // BK, number % BK
        kB, jB = number // BN, number % BN
        row0, col0 = cuda.blockIdx.y * BM, cuda.blockIdx.x * BN
        M, N, K = C.shape[0], C.shape[1], A.shape[1]
        col = min(col0 + jB, N - 1)
        for m in range(TM):
            for n in range(TN):
                acc[m, n] = float32(0.0)
        for r in range(LA):
            x = A[min(row0 + iA + r * SA, M - 1), min(kA, K - 1)]
            nextA[r] = x if kA < K else float32(0.0)
        for r in range(LB):
            x = B[min(kB + r * SB, K - 1), col]
            nextB[r] = x if kB + r * SB < K else float32(0.0)
        for k0 in range(0, K, BK):
            for r in range(LA):
                sA[kA, iA + r * SA] = nextA[r]
            for r in range(LB):
                sB[kB + r * SB, jB] = nextB[r]
            cuda.syncthreads()
            k1 = k0 + BK
            if k1 < K:
                for r in range(LA):
                    x = A[min(row0 + iA + r * SA, M - 1), min(k1 + kA, K - 1)]
                    nextA[r] = x if k1 + kA < K else float32(0.0)
                for r in range(LB):
                    x = B[min(k1 + kB + r * SB, K - 1), col]
                    nextB[r] = x if k1 + kB + r * SB < K else float32(0.0)
            for k in range(uint32(BK)):
                for m in range(TM):
                    a[m] = sA[k, ty + m * TY]
                for n in range(TN):
                    b[n] = sB[k, tx + n * TX]
                for m in range(TM):
                    for n in range(TN):
                        acc[m, n] += a[m] * b[n]
            cuda.syncthreads()
        for m in range(TM):
            for n in range(TN):
                i, j = row0 + ty + m * TY, col0 + tx + n * TX
                if i < M and j < N:
                    C[i, j] = acc[m, n]

    return _plain(matmul_register)


def _plain(function: Callable[..., None]) -> FunctionType:
    assert isinstance(function, FunctionType)
    return function


# -- rows -----------------------------------------------------------------------------------


def softmax_row(x, y):
    """Softmax of a row by one block in three passes: maximum, sum, result."""
    s = cuda.shared.array(WARPS, float32)
    row, t = cuda.blockIdx.x, cuda.threadIdx.x
    m = LOWEST
    for k in range(t, x.shape[1], THREADS):
        m = max(m, x[row, k])
    m = block_max(m, s)
    total = float32(0.0)
    for k in range(t, x.shape[1], THREADS):
        total += math.exp(x[row, k] - m)
    total = block_sum(total, s)
    for k in range(t, x.shape[1], THREADS):
        y[row, k] = math.exp(x[row, k] - m) / total


def softmax_online(x, y):
    """Softmax of a row by one block in two passes: the state (maximum, sum), then the result."""
    s = cuda.shared.array(WARPS, float32)
    row, t = cuda.blockIdx.x, cuda.threadIdx.x
    m = LOWEST
    total = float32(0.0)
    for k in range(t, x.shape[1], THREADS):
        value = x[row, k]
        if value > m:
            total *= math.exp(m - value)
            m = value
        total += math.exp(value - m)
    largest = block_max(m, s)
    total = block_sum(total * math.exp(m - largest), s)
    for k in range(t, x.shape[1], THREADS):
        y[row, k] = math.exp(x[row, k] - largest) / total


def layer_norm(x, gamma, beta, y, eps):
    """LayerNorm of a row by one block: mean, then the variance of what is left, then the result."""
    s = cuda.shared.array(WARPS, float32)
    row, t = cuda.blockIdx.x, cuda.threadIdx.x
    width = float32(x.shape[1])
    total = float32(0.0)
    for k in range(t, x.shape[1], THREADS):
        total += x[row, k]
    mean = block_sum(total, s) / width
    total = float32(0.0)
    for k in range(t, x.shape[1], THREADS):
        centred = x[row, k] - mean
        total += centred * centred
    r = float32(1.0) / math.sqrt(block_sum(total, s) / width + float32(eps))
    for k in range(t, x.shape[1], THREADS):
        y[row, k] = (x[row, k] - mean) * r * gamma[k] + beta[k]
