"""The Triton kernels: what one program of each does with its tile or its row.

Device code only; shapes and dtypes are checked by ``labsupport.cuda.triton_ops``, which launches
them. Sums and exponentials are float32 whatever the arrays hold; no kernel may keep a running sum
in a narrower type, and none may read an element without a mask that keeps it inside its array.
"""

import triton
import triton.language as tl

__all__ = [
    "cross_entropy_kernel",
    "cross_entropy_long_kernel",
    "flash_kernel",
    "layer_norm_kernel",
    "layer_norm_long_kernel",
    "matmul_kernel",
    "rms_norm_kernel",
    "rms_norm_long_kernel",
    "softmax_kernel",
    "softmax_long_kernel",
]

# -- products -------------------------------------------------------------------------------


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

    Programs are numbered down GROUP rows of tiles before they move one column on, so that the
    tiles in flight together share rows of A and columns of B in the L2 cache. Rows and columns
    beyond the edge wrap around: they are read inside the arrays and never stored.
    """
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    per_group = GROUP * tiles_n
    first = pid // per_group * GROUP
    rows = tl.minimum(tiles_m - first, GROUP)
    tile_m = first + pid % per_group % rows
    tile_n = pid % per_group // rows

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


# -- softmax --------------------------------------------------------------------------------


@triton.jit
def softmax_kernel(y_ptr, x_ptr, stride, N, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Softmax of one row held in registers: read once, written once."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < N
    x = tl.load(x_ptr + row * stride + column, mask=inside, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
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
        total = total * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = new
    return m, total


@triton.jit
def softmax_long_kernel(y_ptr, x_ptr, stride, N, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Softmax of a row longer than a block: read twice (state, result), written once."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride
    m, total = online_state(x_ptr, N, BLOCK)
    for start in range(0, N, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < N
        x = tl.load(x_ptr + column, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / total
        tl.store(y_ptr + row * N + column, y.to(y_ptr.dtype.element_ty), mask=inside)


# -- normalisation --------------------------------------------------------------------------


@triton.jit
def layer_norm_kernel(y_ptr, x_ptr, w_ptr, b_ptr, stride, N, eps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """LayerNorm of one row held in registers: mean, then the variance of what is left (two passes, one read)."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < N
    x = tl.load(x_ptr + row * stride + column, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / N
    centred = tl.where(inside, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / N
    w = tl.load(w_ptr + column, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + column, mask=inside, other=0.0).to(tl.float32)
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
        w = tl.load(w_ptr + column, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + column, mask=inside, other=0.0).to(tl.float32)
        y = (x - mean) * r * w + b
        tl.store(y_ptr + row * N + column, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def rms_norm_kernel(y_ptr, x_ptr, w_ptr, stride, N, eps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """RMSNorm of one row held in registers: read once, written once."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < N
    x = tl.load(x_ptr + row * stride + column, mask=inside, other=0.0).to(tl.float32)
    r = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / N + eps)
    w = tl.load(w_ptr + column, mask=inside, other=0.0).to(tl.float32)
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
        w = tl.load(w_ptr + column, mask=inside, other=0.0).to(tl.float32)
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
    target = tl.load(target_ptr + row)
    x = tl.load(x_ptr + row * stride + column, mask=inside, other=-float("inf")).to(tl.float32)
    m = tl.max(x, axis=0)
    e = tl.exp(x - m)  # x is not used after this: its registers are free
    total = tl.sum(e, axis=0)
    right = tl.load(x_ptr + row * stride + target).to(tl.float32) - m
    tl.store(loss_ptr + row, tl.log(total) - right)
    d = (e / total - tl.where(column == target, 1.0, 0.0)) * scale
    tl.store(d_ptr + row * N + column, d.to(d_ptr.dtype.element_ty), mask=inside)


@triton.jit
def cross_entropy_long_kernel(  # type: ignore[no-untyped-def]
    loss_ptr, d_ptr, x_ptr, target_ptr, stride, N, scale, BLOCK: tl.constexpr
):
    """The same for a row longer than a block: two reads of the logits (state, gradient), one write."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride
    target = tl.load(target_ptr + row)
    m, total = online_state(x_ptr, N, BLOCK)
    right = tl.load(x_ptr + target).to(tl.float32) - m
    tl.store(loss_ptr + row, tl.log(total) - right)
    for start in range(0, N, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < N
        x = tl.load(x_ptr + column, mask=inside, other=-float("inf")).to(tl.float32)
        d = (tl.exp(x - m) / total - tl.where(column == target, 1.0, 0.0)) * scale
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
    CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Take the keys from ``low`` to ``high`` into the state (acc, total, m) of a block of queries.

    ``scale`` holds the factor log2(e) too: exp2 is what the hardware has.
    """
    d = tl.arange(0, D)
    for start in range(low, high, BN):
        n = start + tl.arange(0, BN)
        k = tl.load(k_ptr + n[None, :] * D + d[:, None], mask=n[None, :] < keys, other=0.0)
        s = tl.dot(q, k, input_precision=PRECISION) * scale
        allowed = n[None, :] < keys
        if CAUSAL:
            allowed = allowed & (row[:, None] >= n[None, :])
        s = tl.where(allowed, s, -float("inf"))
        new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp2(s - new[:, None])
        decay = tl.exp2(m - new)
        total = total * decay + tl.sum(p, axis=1)
        v = tl.load(v_ptr + n[:, None] * D + d[None, :], mask=n[:, None] < keys, other=0.0)
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
    Blocks wholly below the diagonal need no causal mask; only the last one or few do.
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
        below = block * BM // BN * BN
        acc, total, m = flash_blocks(
            acc, total, m, q, k_ptr, v_ptr, row, 0, below, keys, scale, D, BN, False, PRECISION
        )
        high = tl.minimum((block + 1) * BM, keys)
        acc, total, m = flash_blocks(
            acc, total, m, q, k_ptr, v_ptr, row, below, high, keys, scale, D, BN, True, PRECISION
        )
    else:
        acc, total, m = flash_blocks(acc, total, m, q, k_ptr, v_ptr, row, 0, keys, keys, scale, D, BN, False, PRECISION)
    o = acc / total[:, None]
    o_ptr += head * queries * D
    tl.store(o_ptr + row[:, None] * D + d[None, :], o.to(o_ptr.dtype.element_ty), mask=inside)
