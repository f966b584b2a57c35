"""The Triton kernels: what one program of each does with its tile or its row.

Device code only; shapes and dtypes are checked by ``labsupport.cuda.triton_ops``, which launches
them. Sums and exponentials are float32 whatever the arrays hold; no kernel may keep a running sum
in a narrower type, and none may read an element without a mask that keeps it inside its array.
"""

import triton
import triton.language as tl

if triton.knobs.runtime.interpret:

    @triton.jit
    def exp2(x):  # type: ignore[no-untyped-def]
        """Power of 2; the interpreter has no other."""
        return tl.exp2(x)

else:  # one instruction, where tl.exp2 takes three more for results below the normal numbers
    from triton.language.extra.libdevice import exp2  # type: ignore[no-redef]

__all__ = [
    "cross_entropy_kernel",
    "cross_entropy_long_kernel",
    "flash_kernel",
    "layer_norm_kernel",
    "layer_norm_long_kernel",
    "matmul_kernel",
    "matmul_tma_kernel",
    "rms_norm_kernel",
    "rms_norm_long_kernel",
    "softmax_kernel",
    "softmax_long_kernel",
]

#: exp(x) = 2^(x · log2(e)), and powers of 2 are what the hardware has.
LOG2E = tl.constexpr(1.4426950408889634)

# -- products -------------------------------------------------------------------------------


@triton.jit
def tile_of_program(M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):  # type: ignore[no-untyped-def]
    """Row and column of a program's tile: numbered down GROUP rows of tiles before they move one column on.

    The tiles in flight together thus share rows of A and columns of B in the L2 cache.
    """
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    per_group = GROUP * tiles_n
    first = pid // per_group * GROUP
    rows = tl.minimum(tiles_m - first, GROUP)
    return first + pid % per_group % rows, pid % per_group // rows


@triton.jit
def matmul_kernel(  # type: ignore[no-untyped-def]
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    EVEN_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One BM×BN tile of C = A @ B, accumulated in float32 over steps of BK.

    Rows and columns beyond the edge wrap around: they are read inside the arrays and never stored.
    """
    tile_m, tile_n = tile_of_program(M, N, BM, BN, GROUP)
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a = a_ptr + (m % M).to(tl.int64)[:, None] * stride_am + k[None, :] * stride_ak
    b = b_ptr + k[:, None] * stride_bk + (n % N).to(tl.int64)[None, :] * stride_bn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BK)):
        if EVEN_K:
            x = tl.load(a)
            y = tl.load(b)
        else:
            left = K - step * BK
            x = tl.load(a, mask=k[None, :] < left, other=0.0)
            y = tl.load(b, mask=k[:, None] < left, other=0.0)
        acc = tl.dot(x, y, acc, input_precision=PRECISION)
        a += BK * stride_ak
        b += BK * stride_bk
    c = c_ptr + m.to(tl.int64)[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c, acc.to(c_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def matmul_tma_kernel(  # type: ignore[no-untyped-def]
    a_tile,
    b_tile,
    c_ptr,
    M,
    N,
    K,
    stride_cm,
    stride_cn,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    B_ROWS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The same product, its tiles fetched by Hopper's copy engine: one thread asks for a tile, no other computes
    addresses.

    ``a_tile`` and ``b_tile`` are descriptors; what lies beyond an edge arrives as zeros. ``B_ROWS``: B comes
    in rows of k, (K, N); else in rows of n, (N, K), which TF32 tensor cores need.
    """
    tile_m, tile_n = tile_of_program(M, N, BM, BN, GROUP)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = a_tile.load([tile_m * BM, k])
        y = b_tile.load([k, tile_n * BN]) if B_ROWS else b_tile.load([tile_n * BN, k]).T
        acc = tl.dot(x, y, acc, input_precision=PRECISION)
    m = tile_m * BM + tl.arange(0, BM)
    n = tile_n * BN + tl.arange(0, BN)
    c = c_ptr + m.to(tl.int64)[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c, acc.to(c_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


# -- softmax --------------------------------------------------------------------------------


@triton.jit
def softmax_kernel(y_ptr, x_ptr, stride, N, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Softmax of one row held in registers: read once, written once."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < N
    x = tl.load(x_ptr + row * stride + column, mask=inside, other=-float("inf")).to(tl.float32)
    e = exp2((x - tl.max(x, axis=0)) * LOG2E)
    y = e * (1.0 / tl.sum(e, axis=0))  # one division a row; a division an element would take longer than the copy
    tl.store(y_ptr + row * N + column, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def online_state(x_ptr, N, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Maximum m and sum of exp(x − m) of a row, block by block (Milakov & Gimelshein 2018, alg. 3)."""
    m = tl.full((), -float("inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    for start in range(0, N, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + column, mask=column < N, other=-float("inf")).to(tl.float32)
        new = tl.maximum(m, tl.max(x, axis=0))
        # A row that begins with −inf only has no maximum yet: −inf − (−inf) would be NaN.
        shift = tl.where(new == -float("inf"), 0.0, new)
        total = total * exp2((m - shift) * LOG2E) + tl.sum(exp2((x - shift) * LOG2E), axis=0)
        m = new
    return m, total


@triton.jit
def softmax_long_kernel(y_ptr, x_ptr, stride, N, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Softmax of a row longer than a block: read twice (state, result), written once."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride
    m, total = online_state(x_ptr, N, BLOCK)
    inverse = 1.0 / total
    for start in range(0, N, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < N
        x = tl.load(x_ptr + column, mask=inside, other=-float("inf")).to(tl.float32)
        y = exp2((x - m) * LOG2E) * inverse
        tl.store(y_ptr + row * N + column, y.to(y_ptr.dtype.element_ty), mask=inside)


# -- normalisation --------------------------------------------------------------------------
# Every row needs the same weights: they are to stay in the L1 cache, and the rows to pass through it.


@triton.jit
def layer_norm_kernel(y_ptr, x_ptr, w_ptr, b_ptr, stride, N, eps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """LayerNorm of one row held in registers: mean, then the variance of what is left (two passes, one read)."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < N
    x = tl.load(x_ptr + row * stride + column, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
    mean = tl.sum(x, axis=0) / N
    centred = tl.where(inside, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / N
    w = tl.load(w_ptr + column, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
    b = tl.load(b_ptr + column, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
    y = centred * (1.0 / tl.sqrt(variance + eps)) * w + b
    tl.store(y_ptr + row * N + column, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def layer_norm_long_kernel(y_ptr, x_ptr, w_ptr, b_ptr, stride, N, eps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """LayerNorm of a longer row: blocks merged by Welford's update for groups (Chan et al. 1979), then the result."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride
    mean = tl.zeros((), tl.float32)
    squares = tl.zeros((), tl.float32)
    for start in range(0, N, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < N
        x = tl.load(x_ptr + column, mask=inside, other=0.0).to(tl.float32)
        count = tl.minimum(N - start, BLOCK).to(tl.float32)
        block_mean = tl.sum(x, axis=0) / count
        centred = tl.where(inside, x - block_mean, 0.0)
        delta = block_mean - mean
        share = count / (start + count)
        mean += delta * share
        squares += tl.sum(centred * centred, axis=0) + delta * delta * (start * share)
    r = 1.0 / tl.sqrt(squares / N + eps)
    for start in range(0, N, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < N
        x = tl.load(x_ptr + column, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + column, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        b = tl.load(b_ptr + column, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = (x - mean) * r * w + b
        tl.store(y_ptr + row * N + column, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def rms_norm_kernel(y_ptr, x_ptr, w_ptr, stride, N, eps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """RMSNorm of one row held in registers: read once, written once."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < N
    x = tl.load(x_ptr + row * stride + column, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
    r = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / N + eps)
    w = tl.load(w_ptr + column, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
    tl.store(y_ptr + row * N + column, (x * r * w).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def rms_norm_long_kernel(y_ptr, x_ptr, w_ptr, stride, N, eps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """RMSNorm of a longer row: read twice, written once."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride
    squares = tl.zeros((), tl.float32)
    for start in range(0, N, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + column, mask=column < N, other=0.0).to(tl.float32)
        squares += tl.sum(x * x, axis=0)
    r = 1.0 / tl.sqrt(squares / N + eps)
    for start in range(0, N, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < N
        x = tl.load(x_ptr + column, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + column, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        tl.store(y_ptr + row * N + column, (x * r * w).to(y_ptr.dtype.element_ty), mask=inside)


# -- cross-entropy --------------------------------------------------------------------------


@triton.jit
def cross_entropy_kernel(  # type: ignore[no-untyped-def]
    loss_ptr, d_ptr, x_ptr, target_ptr, stride, N, scale, BLOCK: tl.constexpr
):
    """Loss and gradient of one row of logits held in registers: one read of the logits, one write.

    Only the logit of the target is fetched once more, by itself.
    loss = LSE(x) − x[target]; gradient = scale · (softmax(x) − onehot(target)).
    """
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < N
    target = tl.load(target_ptr + row).to(tl.int32)
    x = tl.load(x_ptr + row * stride + column, mask=inside, other=-float("inf")).to(tl.float32)
    m = tl.max(x, axis=0)
    e = exp2((x - m) * LOG2E)  # x is not used after this: its registers are free
    total = tl.sum(e, axis=0)
    right = tl.load(x_ptr + row * stride + target).to(tl.float32) - m
    tl.store(loss_ptr + row, tl.log(total) - right)
    d = e * (scale / total)
    d = tl.where(column == target, d - scale, d)
    tl.store(d_ptr + row * N + column, d.to(d_ptr.dtype.element_ty), mask=inside)


@triton.jit
def cross_entropy_long_kernel(  # type: ignore[no-untyped-def]
    loss_ptr, d_ptr, x_ptr, target_ptr, stride, N, scale, BLOCK: tl.constexpr
):
    """The same for a row longer than a block: two reads of the logits (state, gradient), one write."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride
    target = tl.load(target_ptr + row).to(tl.int32)
    m, total = online_state(x_ptr, N, BLOCK)
    right = tl.load(x_ptr + target).to(tl.float32) - m
    tl.store(loss_ptr + row, tl.log(total) - right)
    factor = scale / total
    for start in range(0, N, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < N
        x = tl.load(x_ptr + column, mask=inside, other=-float("inf")).to(tl.float32)
        d = exp2((x - m) * LOG2E) * factor
        d = tl.where(column == target, d - scale, d)
        tl.store(d_ptr + row * N + column, d.to(d_ptr.dtype.element_ty), mask=inside)


# -- attention ------------------------------------------------------------------------------


@triton.jit
def flash_blocks(  # type: ignore[no-untyped-def]
    acc,
    total,
    m,
    q,
    k_ptr,
    v_ptr,
    row,
    low,
    high,
    keys,
    scale,
    D: tl.constexpr,
    BN: tl.constexpr,
    MASKED: tl.constexpr,
    CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Take the keys from ``low`` to ``high`` into the state (acc, total, m) of a block of queries.

    ``scale`` holds the factor log2(e) too: exp2 is what the hardware has. It is positive, so the largest
    score scaled is the largest scaled score, and scaling and subtracting are one fused multiply-add.
    Without ``MASKED`` every block is whole and visible to every query.
    """
    d = tl.arange(0, D)
    for start in range(low, high, BN):
        n = start + tl.arange(0, BN)
        if MASKED:
            k = tl.load(k_ptr + n[None, :] * D + d[:, None], mask=n[None, :] < keys, other=0.0)
        else:
            k = tl.load(k_ptr + n[None, :] * D + d[:, None])
        s = tl.dot(q, k, input_precision=PRECISION)
        if MASKED:
            allowed = n[None, :] < keys
            if CAUSAL:
                allowed = allowed & (row[:, None] >= n[None, :])
            s = tl.where(allowed, s, -float("inf"))
        new = tl.maximum(m, tl.max(s, axis=1) * scale)
        p = exp2(s * scale - new[:, None])
        decay = exp2(m - new)
        total = total * decay + tl.sum(p, axis=1)
        if MASKED:
            v = tl.load(v_ptr + n[:, None] * D + d[None, :], mask=n[:, None] < keys, other=0.0)
        else:
            v = tl.load(v_ptr + n[:, None] * D + d[None, :])
        acc = tl.dot(p.to(v.dtype), v, acc * decay[:, None], input_precision=PRECISION)
        m = new
    return acc, total, m


@triton.jit
def flash_kernel(  # type: ignore[no-untyped-def]
    o_ptr,
    q_ptr,
    k_ptr,
    v_ptr,
    queries,
    keys,
    scale,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Attention of BM queries of one head over all keys they may see (Dao 2023, alg. 1).

    Key 0 is visible to every query, so the running maximum is finite from the first block on.
    Blocks wholly below the diagonal need no mask; only the last one or few do.
    """
    # The longest rows of a causal mask start first: what is left at the end is short.
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    q_ptr += head * queries * D
    k_ptr += head * keys * D
    v_ptr += head * keys * D
    row = block * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    inside = row[:, None] < queries
    q = tl.load(q_ptr + row[:, None] * D + d[None, :], mask=inside, other=0.0)
    m = tl.full((BM,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, D), dtype=tl.float32)
    if CAUSAL:
        whole = block * BM // BN * BN
        high = tl.minimum((block + 1) * BM, keys)
    else:
        whole = keys // BN * BN
        high = keys
    acc, total, m = flash_blocks(
        acc, total, m, q, k_ptr, v_ptr, row, 0, whole, keys, scale, D, BN, False, False, PRECISION
    )
    acc, total, m = flash_blocks(
        acc, total, m, q, k_ptr, v_ptr, row, whole, high, keys, scale, D, BN, True, CAUSAL, PRECISION
    )
    o = acc / total[:, None]
    o_ptr += head * queries * D
    tl.store(o_ptr + row[:, None] * D + d[None, :], o.to(o_ptr.dtype.element_ty), mask=inside)
