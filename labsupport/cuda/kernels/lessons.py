"""The kernels of the exercises, each right, and a way to make the known wrong neighbours of each.

A wrong neighbour is the right kernel with one edit in its source, so that the difference is the
mistake and nothing else. These kernels are written to be read: none uses a trick the book does not explain.
"""

# mypy: disallow-untyped-defs=False

import inspect
import itertools
import linecache
import math
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any

from numpy import float32, float64

from labsupport.cuda.simt import cuda

__all__ = [
    "THREADS", "TILE", "add_guarded", "edited", "flash_block", "layer_norm", "layer_norm_states", "online_softmax",
    "reduce_shuffle", "reduce_tree", "register_tile", "rms_norm", "shared_tile", "silu", "softmax_row", "transpose",
]  # fmt: skip

#: Threads of a block in the sums and the rows.
THREADS, WARPS = 128, 4
ROW_THREADS, ROW_WARPS = 64, 2
#: Elements of a row that a thread keeps in registers, so a block keeps OWN · ROW_THREADS.
OWN = 4
#: Side of a tile of the shared-memory product; the register tile is twice as wide.
TILE, BIG, OUT = 8, 16, 2
FULL = 0xFFFFFFFF
LOWEST = float32(-3.4028235e38)
#: Of attention: queries of a block; keys of a tile, which are also the columns of a head; a row of the padded tile.
QUERIES, WIDE, PADDED = 8, 8, 9
MASKED = float32(-math.inf)

_numbers = itertools.count(1)


def edited(kernel: Callable[..., Any], *edits: tuple[str, str]) -> FunctionType:
    """The kernel with each (old, new) text replaced once in its source, the first place that is left.

    Raises ValueError where a text does not occur, so that no variant is silently the original.
    """
    source = textwrap.dedent(inspect.getsource(kernel))
    for old, new in edits:
        if old not in source:
            raise ValueError(f"{kernel.__name__} has no text {old!r} to edit")
        source = source.replace(old, new, 1)
    name = f"<{kernel.__name__}, variant {next(_numbers)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace = kernel.__globals__ | {"float64": float64}
    exec(compile(source, name, "exec"), namespace)
    made = namespace[kernel.__name__]
    assert isinstance(made, FunctionType)
    return made


# -- one element a thread -------------------------------------------------------------------


def silu(x, y):
    """y[i] = x[i] · sigmoid(x[i]), one thread an element, no thread too many."""
    i = cuda.grid(1)
    y[i] = x[i] / (float32(1.0) + math.exp(-x[i]))


def add_guarded(a, b, c):
    """c = a + b for any length."""
    i = cuda.grid(1)
    if i < c.shape[0]:
        c[i] = a[i] + b[i]


# -- sums -----------------------------------------------------------------------------------


def reduce_tree(x, partial):
    """partial[b]: the sum of block b's THREADS elements, by halving."""
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
    """The same sum with one barrier: shuffles within a warp, shared memory between warps."""
    s = cuda.shared.array(WARPS, float32)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    value = x[i] if i < x.shape[0] else float32(0.0)
    for k in range(5):
        value += cuda.shfl_xor_sync(FULL, value, 1 << k)
    if t % 32 == 0:
        s[t // 32] = value
    cuda.syncthreads()
    if t == 0:
        total = float32(0.0)
        for w in range(WARPS):
            total += s[w]
        partial[cuda.blockIdx.x] = total


# -- matrices -------------------------------------------------------------------------------


def transpose(A, B):
    """B = Aᵀ through a padded tile of shared memory."""
    tile = cuda.shared.array((32, 33), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    i, j = cuda.blockIdx.y * 32 + ty, cuda.blockIdx.x * 32 + tx
    if i < A.shape[0] and j < A.shape[1]:
        tile[ty, tx] = A[i, j]
    cuda.syncthreads()
    i, j = cuda.blockIdx.x * 32 + ty, cuda.blockIdx.y * 32 + tx
    if i < B.shape[0] and j < B.shape[1]:
        B[i, j] = tile[tx, ty]


def shared_tile(A, B, C):
    """C = A @ B for any sizes, with TILE × TILE tiles in shared memory."""
    sA = cuda.shared.array((TILE, TILE), float32)
    sB = cuda.shared.array((TILE, TILE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, col = cuda.blockIdx.y * TILE + ty, cuda.blockIdx.x * TILE + tx
    acc = float32(0.0)
    for k0 in range(0, A.shape[1], TILE):
        sA[ty, tx] = A[row, k0 + tx] if row < A.shape[0] and k0 + tx < A.shape[1] else float32(0.0)
        sB[ty, tx] = B[k0 + ty, col] if k0 + ty < B.shape[0] and col < B.shape[1] else float32(0.0)
        cuda.syncthreads()
        for k in range(TILE):
            acc += sA[ty, k] * sB[k, tx]
        cuda.syncthreads()
    if row < C.shape[0] and col < C.shape[1]:
        C[row, col] = acc


def register_tile(A, B, C):
    """C = A @ B for any sizes: a block makes BIG × BIG outputs, a thread OUT × OUT of them in registers."""
    sA = cuda.shared.array((BIG, TILE), float32)
    sB = cuda.shared.array((TILE, BIG), float32)
    acc = cuda.local.array((OUT, OUT), float32)
    a = cuda.local.array(OUT, float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, col = cuda.blockIdx.y * BIG + ty, cuda.blockIdx.x * BIG + tx
    for m in range(OUT):
        for n in range(OUT):
            acc[m, n] = float32(0.0)
    for k0 in range(0, A.shape[1], TILE):
        for m in range(OUT):
            i, k = row + m * TILE, k0 + tx
            sA[ty + m * TILE, tx] = A[i, k] if i < A.shape[0] and k < A.shape[1] else float32(0.0)
        for n in range(OUT):
            k, j = k0 + ty, col + n * TILE
            sB[ty, tx + n * TILE] = B[k, j] if k < B.shape[0] and j < B.shape[1] else float32(0.0)
        cuda.syncthreads()
        for k in range(TILE):
            for m in range(OUT):
                a[m] = sA[ty + m * TILE, k]
            for n in range(OUT):
                b = sB[k, tx + n * TILE]
                for m in range(OUT):
                    acc[m, n] += a[m] * b
        cuda.syncthreads()
    for m in range(OUT):
        for n in range(OUT):
            i, j = row + m * TILE, col + n * TILE
            if i < C.shape[0] and j < C.shape[1]:
                C[i, j] = acc[m, n]


# -- rows -----------------------------------------------------------------------------------


def softmax_row(x, y):
    """Softmax of a row by one block: maximum, sum, result, each a pass over the row."""
    s = cuda.shared.array(ROW_WARPS, float32)
    row, t = cuda.blockIdx.x, cuda.threadIdx.x
    m = LOWEST
    for j in range(t, x.shape[1], ROW_THREADS):
        m = max(m, x[row, j])
    for k in range(5):
        m = max(m, cuda.shfl_xor_sync(FULL, m, 1 << k))
    if t % 32 == 0:
        s[t // 32] = m
    cuda.syncthreads()
    m = max(s[0], s[1])
    cuda.syncthreads()
    total = float32(0.0)
    for j in range(t, x.shape[1], ROW_THREADS):
        total += math.exp(x[row, j] - m)
    for k in range(5):
        total += cuda.shfl_xor_sync(FULL, total, 1 << k)
    if t % 32 == 0:
        s[t // 32] = total
    cuda.syncthreads()
    total = s[0] + s[1]
    for j in range(t, x.shape[1], ROW_THREADS):
        y[row, j] = math.exp(x[row, j] - m) / total


def online_softmax(x, y):
    """Softmax of a row by one block in two passes: a state (m, l) a thread, merged, then the result."""
    sm = cuda.shared.array(ROW_THREADS, float32)
    sl = cuda.shared.array(ROW_THREADS, float32)
    row, t = cuda.blockIdx.x, cuda.threadIdx.x
    m, l = LOWEST, float32(0.0)
    for j in range(t, x.shape[1], ROW_THREADS):
        value = x[row, j]
        higher = max(m, value)
        l = l * math.exp(m - higher) + math.exp(value - higher)
        m = higher
    sm[t], sl[t] = m, l
    cuda.syncthreads()
    step = ROW_THREADS // 2
    while step > 0:
        if t < step:
            m = max(sm[t], sm[t + step])
            sl[t] = sl[t] * math.exp(sm[t] - m) + sl[t + step] * math.exp(sm[t + step] - m)
            sm[t] = m
        cuda.syncthreads()
        step //= 2
    for j in range(t, x.shape[1], ROW_THREADS):
        y[row, j] = math.exp(x[row, j] - sm[0]) / sl[0]


def layer_norm(x, gamma, beta, y, eps):
    """LayerNorm of a row by one block, kept in registers: at most 256 columns."""
    s = cuda.shared.array((2, ROW_WARPS), float32)  # a row for each sum
    own = cuda.local.array(OWN, float32)
    row, t, width = cuda.blockIdx.x, cuda.threadIdx.x, x.shape[1]
    total = float32(0.0)
    for k in range(OWN):
        j = t + k * ROW_THREADS
        own[k] = x[row, j] if j < width else float32(0.0)
        total += own[k]
    for k in range(5):
        total += cuda.shfl_xor_sync(FULL, total, 1 << k)
    if t % 32 == 0:
        s[0, t // 32] = total
    cuda.syncthreads()
    mean = (s[0, 0] + s[0, 1]) / float32(width)
    total = float32(0.0)
    for k in range(OWN):
        if t + k * ROW_THREADS < width:
            own[k] -= mean
            total += own[k] * own[k]
    for k in range(5):
        total += cuda.shfl_xor_sync(FULL, total, 1 << k)
    if t % 32 == 0:
        s[1, t // 32] = total
    cuda.syncthreads()
    variance = (s[1, 0] + s[1, 1]) / float32(width)
    r = float32(1.0) / math.sqrt(variance + eps)
    for k in range(OWN):
        j = t + k * ROW_THREADS
        if j < width:
            y[row, j] = own[k] * r * gamma[j] + beta[j]


def layer_norm_states(x, gamma, beta, y, eps):
    """LayerNorm of a row of any length by one block: merged states."""
    s = cuda.shared.array((3, ROW_WARPS), float32)
    row, t, width = cuda.blockIdx.x, cuda.threadIdx.x, x.shape[1]
    n, mean, m2 = float32(0.0), float32(0.0), float32(0.0)
    for j in range(t, width, ROW_THREADS):
        value = x[row, j]
        n += float32(1.0)
        delta = value - mean
        mean += delta / n
        m2 += delta * (value - mean)
    for k in range(5):
        more = cuda.shfl_xor_sync(FULL, n, 1 << k)
        delta = cuda.shfl_xor_sync(FULL, mean, 1 << k) - mean
        share = more / max(n + more, float32(1.0))
        m2 += cuda.shfl_xor_sync(FULL, m2, 1 << k) + delta * delta * n * share
        mean += delta * share
        n += more
    if t % 32 == 0:
        s[0, t // 32], s[1, t // 32], s[2, t // 32] = n, mean, m2
    cuda.syncthreads()
    delta = s[1, 1] - s[1, 0]
    share = s[0, 1] / float32(width)
    mean = s[1, 0] + delta * share
    m2 = s[2, 0] + s[2, 1] + delta * delta * s[0, 0] * share
    r = float32(1.0) / math.sqrt(m2 / float32(width) + eps)
    for j in range(t, width, ROW_THREADS):
        y[row, j] = (x[row, j] - mean) * r * gamma[j] + beta[j]


def rms_norm(x, gamma, y, eps):
    """RMSNorm of a row by one block, kept in registers: at most 256 columns."""
    s = cuda.shared.array(ROW_WARPS, float32)
    own = cuda.local.array(OWN, float32)
    row, t, width = cuda.blockIdx.x, cuda.threadIdx.x, x.shape[1]
    total = float32(0.0)
    for k in range(OWN):
        j = t + k * ROW_THREADS
        own[k] = x[row, j] if j < width else float32(0.0)
        total += own[k] * own[k]
    for k in range(5):
        total += cuda.shfl_xor_sync(FULL, total, 1 << k)
    if t % 32 == 0:
        s[t // 32] = total
    cuda.syncthreads()
    r = float32(1.0) / math.sqrt((s[0] + s[1]) / float32(width) + eps)
    for k in range(OWN):
        j = t + k * ROW_THREADS
        if j < width:
            y[row, j] = own[k] * r * gamma[j]


# -- attention ------------------------------------------------------------------------------


def flash_block(Q, K, V, O, causal):
    """Attention of one head: QUERIES queries a block, WIDE keys a tile."""
    sQ = cuda.shared.array((QUERIES, WIDE), float32)
    sK = cuda.shared.array((WIDE, PADDED), float32)
    sV = cuda.shared.array((WIDE, WIDE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    i = cuda.blockIdx.x * QUERIES + y
    end, ahead = K.shape[0], K.shape[0] - Q.shape[0]
    if causal:  # the last row of the block reads up to key i + ahead
        end = min(end, (cuda.blockIdx.x + 1) * QUERIES + ahead)
    root = math.sqrt(float32(WIDE))
    sQ[y, x] = Q[i, x] / root if i < Q.shape[0] else float32(0.0)
    m, l, A = LOWEST, float32(0.0), float32(0.0)
    for j0 in range(0, end, WIDE):
        for r in range(y, WIDE, QUERIES):
            inside = j0 + r < K.shape[0]
            sK[r, x] = K[j0 + r, x] if inside else float32(0.0)
            sV[r, x] = V[j0 + r, x] if inside else float32(0.0)
        cuda.syncthreads()
        s, j = float32(0.0), j0 + x
        for d in range(WIDE):
            s += sQ[y, d] * sK[x, d]
        if j >= K.shape[0] or (causal and j > i + ahead):
            s = MASKED
        new = max(m, s)
        for k in range(3):
            new = max(new, cuda.shfl_xor_sync(FULL, new, 1 << k))
        p, old = math.exp(s - new), math.exp(m - new)
        m, l, A = new, l * old, A * old
        for r in range(WIDE):
            w = cuda.shfl_sync(FULL, p, cuda.laneid - x + r)
            l += w
            A += w * sV[r, x]
        cuda.syncthreads()
    if i < Q.shape[0]:
        O[i, x] = A / l if l > float32(0.0) else float32(0.0)
