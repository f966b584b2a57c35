"""Scaled dot-product attention: explicit, by blocks without the score matrix, and backward.

The explicit form is the definition; the blocked form is FlashAttention's algorithm in NumPy and
gives the same numbers from the merge state (m, ℓ, accumulator). The blocked form must never hold
more than one block of scores.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labsupport.ops.gemm import CountedArray

__all__ = [
    "AttentionTraffic",
    "Saturation",
    "attention",
    "attention_backward",
    "causal_mask",
    "count_traffic",
    "flash_attention",
    "saturation",
    "traffic",
]

Array = npt.NDArray[Any]


def causal_mask(n: int) -> Array:
    """Boolean (n, n): True where query i (row) may read key j (column), which is j ≤ i."""
    if n < 0:
        raise ValueError(f"n is {n}; a mask has 0 or more rows")
    return np.tri(n, dtype=bool)


def attention(Q: Array, K: Array, V: Array, causal: bool = False) -> Array:
    """softmax(Q Kᵀ / √D_h) V with the score matrix written out.

    Args:
        Q: (..., S_q, D_h), K: (..., S_k, D_h), V: (..., S_k, D_v); the leading axes (batch, heads)
            are the same.
        causal: query i reads keys j ≤ i + S_k − S_q: with S_q = S_k the usual triangle; with
            fewer queries than keys (decoding with a cache) the last query reads every key.

    Returns:
        (..., S_q, D_v), in the dtype of Q. A query that may read no key (causal and S_q > S_k, or
        S_k = 0) has no softmax; its output is 0 by convention.

    Raises:
        ValueError: shapes that do not fit.

    Memory for the scores: 1 × (..., S_q, S_k). Source: Vaswani et al. (2017), equation 1.
    """
    Q, K, V = _checked(Q, K, V)
    return _probabilities(Q, K, causal) @ V


def attention_backward(Q: Array, K: Array, V: Array, dO: Array, causal: bool = False) -> tuple[Array, Array, Array]:
    """Gradients of ``attention``: dV = Pᵀ dO, dP = dO Vᵀ, dS = P ⊙ (dP − ⟨dP, P⟩), dQ = dS K/√D_h, dK = dSᵀ Q/√D_h.

    Args:
        Q, K, V, causal: those of the forward pass.
        dO: (..., S_q, D_v), ∂L/∂O.

    Returns:
        dQ, dK, dV in the shapes of Q, K, V. The probabilities P are computed again, not stored.

    Raises:
        ValueError: shapes that do not fit.

    Source: Dao et al. (2022), "FlashAttention", appendix B.
    """
    Q, K, V = _checked(Q, K, V)
    dO = np.asarray(dO)
    if dO.shape != (*Q.shape[:-1], V.shape[-1]):
        raise ValueError(f"dO has shape {dO.shape} but the output has shape {(*Q.shape[:-1], V.shape[-1])}")
    P = _probabilities(Q, K, causal)
    dP = dO @ V.swapaxes(-1, -2)
    dS = P * (dP - np.sum(dP * P, axis=-1, keepdims=True)) / _root(Q)
    return dS @ K, dS.swapaxes(-1, -2) @ Q, P.swapaxes(-1, -2) @ dO


def flash_attention(Q: Array, K: Array, V: Array, block: int | tuple[int, int], causal: bool = False) -> Array:
    """The same output as ``attention``, from blocks of keys and an online softmax.

    For each block of queries a state (m, ℓ, A) runs over the blocks of keys: m the largest score so
    far, ℓ the sum of exponentials relative to m, A the weighted sum of values relative to m. A new
    block rescales the state by e^(m_old − m_new). The output is A / ℓ.

    Args:
        Q, K, V, causal: as in ``attention``.
        block: number of queries and of keys in a block, or the pair (queries, keys).

    Returns:
        (..., S_q, D_v), in the dtype of Q; 0 for a query that may read no key.

    Raises:
        ValueError: shapes that do not fit, or a block below 1.

    Memory for the scores: one block. Source: Dao et al. (2022), "FlashAttention", algorithm 1.
    """
    Q, K, V = _checked(Q, K, V)
    rows, columns = _block(block)
    S_q, S_k = Q.shape[-2], K.shape[-2]
    out = np.zeros((*Q.shape[:-1], V.shape[-1]), Q.dtype)
    for i in range(0, S_q, rows):
        q = Q[..., i : i + rows, :] / _root(Q)
        m = np.full(q.shape[:-1], -np.inf, Q.dtype)
        total = np.zeros_like(m)
        accumulator = np.zeros((*q.shape[:-1], V.shape[-1]), Q.dtype)
        last = min(S_k, i + q.shape[-2] + S_k - S_q) if causal else S_k  # beyond it every key is masked
        for j in range(0, last, columns):
            k, v = K[..., j : j + columns, :], V[..., j : j + columns, :]
            scores = q @ k.swapaxes(-1, -2)
            if causal:
                allowed = _allowed(i, q.shape[-2], j, k.shape[-2], S_k - S_q)
                scores = np.where(allowed, scores, -np.inf)
            m_new = np.maximum(m, scores.max(axis=-1))
            safe = np.where(np.isneginf(m_new), 0, m_new).astype(Q.dtype)  # never −inf − (−inf)
            weights, rescale = np.exp(scores - safe[..., None]), np.exp(m - safe)
            total = total * rescale + weights.sum(axis=-1)
            accumulator = accumulator * rescale[..., None] + weights @ v
            m = m_new
        out[..., i : i + rows, :] = accumulator / np.where(total > 0, total, 1)[..., None]
    return out


@dataclass(frozen=True)
class AttentionTraffic:
    """Elements moved between main memory and the chip for one head, and the scores that stand in main memory."""

    loads: int
    stores: int
    scores_in_memory: int

    @property
    def total(self) -> int:
        """Elements loaded and stored."""
        return self.loads + self.stores


def traffic(
    S_q: int, S_k: int, D_h: int, D_v: int | None = None, block: int | tuple[int, int] | None = None
) -> AttentionTraffic:
    """Elements that attention of one head moves, without a mask; ``block`` None is the explicit form.

    Explicit: Q, K in and S out; S in and P out; P, V in and O out, 4·S_q·S_k elements for scores alone. By blocks of
    b_q queries: Q once, K and V once for each block of queries, O out once; no score leaves the chip. The counts
    do not depend on the number of keys in a block. Source: Dao et al. (2022), section 3.2.
    """
    D_v = D_h if D_v is None else D_v
    if min(S_q, S_k, D_h, D_v) < 1:
        raise ValueError(f"sizes must be at least 1, got S_q={S_q}, S_k={S_k}, D_h={D_h}, D_v={D_v}")
    if block is None:
        loads = S_q * D_h + S_k * D_h + 2 * S_q * S_k + S_k * D_v
        return AttentionTraffic(loads, 2 * S_q * S_k + S_q * D_v, S_q * S_k)
    rows, _ = _block(block)
    passes = -(-S_q // rows)
    return AttentionTraffic(S_q * D_h + passes * S_k * (D_h + D_v), S_q * D_v, 0)


def count_traffic(
    Q: Array, K: Array, V: Array, block: int | tuple[int, int] | None = None
) -> tuple[Array, AttentionTraffic]:
    """Run attention of one head in a memory that counts; return the output and what was really moved.

    Args:
        Q: (S_q, D_h), K: (S_k, D_h), V: (S_k, D_v).
        block: None for the explicit form as three kernels (scores, softmax, product), otherwise the blocks of
            ``flash_attention``.

    Raises:
        ValueError: shapes that do not fit, more than one head, or a block below 1.
    """
    Q, K, V = _checked(Q, K, V)
    if Q.ndim != 2:
        raise ValueError(f"the traffic of one head is counted; Q has {Q.ndim} axes, needs (S_q, D_h)")
    q, k, v = CountedArray(Q), CountedArray(K), CountedArray(V)
    out = CountedArray(np.zeros((Q.shape[0], V.shape[1]), Q.dtype))
    memory = [q, k, v, out]
    in_memory = 0
    if block is None:
        S, P = (CountedArray(np.zeros((Q.shape[0], K.shape[0]), Q.dtype)) for _ in range(2))
        memory += [S, P]
        in_memory = S.read().size
        S[:] = (q[:] / _root(Q)) @ k[:].T
        scores = S[:]
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        P[:] = weights / weights.sum(axis=-1, keepdims=True)
        out[:] = P[:] @ v[:]
    else:
        rows, columns = _block(block)
        for i in range(0, Q.shape[0], rows):
            part = slice(i, i + rows)
            out[part] = _one_block_of_queries(q[part] / _root(Q), k, v, columns)
    moved = AttentionTraffic(sum(a.loads for a in memory), sum(a.stores for a in memory), in_memory)
    return out.read(), moved


def _one_block_of_queries(q: Array, K: CountedArray, V: CountedArray, columns: int) -> Array:
    """Output of one block of scaled queries; K and V are read block by block, and nothing else is touched."""
    m = np.full(len(q), -np.inf, q.dtype)
    total, accumulator = np.zeros_like(m), np.zeros((len(q), V.shape[1]), q.dtype)
    for j in range(0, K.shape[0], columns):
        scores = q @ K[j : j + columns].T
        m_new = np.maximum(m, scores.max(axis=-1))
        weights, rescale = np.exp(scores - m_new[:, None]), np.exp(m - m_new)
        total = total * rescale + weights.sum(axis=-1)
        accumulator = accumulator * rescale[:, None] + weights @ V[j : j + columns]
        m = m_new
    return accumulator / total[:, None]


class Saturation(NamedTuple):
    """Means over random queries: variance of a score, entropy in nats and largest weight of a row, gradient of a row.

    ``gradient`` is the mean norm of the softmax's backward pass for a standard normal cotangent; ``dead`` is the
    share of rows whose norm is below 0.01.
    """

    variance: float
    entropy: float
    largest: float
    gradient: float
    dead: float


def saturation(D_h: int, scaled: bool = True, keys: int = 64, queries: int = 500, seed: int = 0) -> Saturation:
    """Measure how peaked attention is at the start of training, with standard normal q and k of width ``D_h``.

    Each query meets ``keys`` keys of its own. ``scaled`` divides scores by √D_h. Source: Vaswani et al. (2017),
    section 3.2.1, footnote 4, measured.
    """
    if min(D_h, keys, queries) < 1:
        raise ValueError(f"sizes must be at least 1, got D_h={D_h}, keys={keys}, queries={queries}")
    rng = np.random.default_rng([seed, D_h])
    rows = np.empty((queries, 4))
    for i in range(queries):
        q, k = rng.standard_normal(D_h), rng.standard_normal((keys, D_h))
        z = k @ q / (math.sqrt(D_h) if scaled else 1.0)
        e = np.exp(z - z.max())
        p = e / e.sum()
        dp = rng.standard_normal(keys)
        gradient = p * (dp - dp @ p)
        surprise = math.log(e.sum()) - p @ (z - z.max())  # entropy without a logarithm of 0
        rows[i] = z @ z / keys, surprise, p.max(), np.linalg.norm(gradient)
    variance, entropy, largest, gradient = (float(mean) for mean in rows.mean(axis=0))
    return Saturation(variance, entropy, largest, gradient, float((rows[:, 3] < 0.01).mean()))


def _block(block: int | tuple[int, int]) -> tuple[int, int]:
    """Queries and keys in a block, from one number or a pair."""
    rows, columns = (block, block) if isinstance(block, int | np.integer) else block
    if rows < 1 or columns < 1:
        raise ValueError(f"block is {block}; a block holds 1 query and 1 key or more")
    return int(rows), int(columns)


def _probabilities(Q: Array, K: Array, causal: bool) -> Array:
    """Softmax of the masked scores over the keys; a row without any key is all zeros."""
    S_q, S_k = Q.shape[-2], K.shape[-2]
    scores = (Q / _root(Q)) @ K.swapaxes(-1, -2)
    if causal:
        scores = np.where(_allowed(0, S_q, 0, S_k, S_k - S_q), scores, -np.inf)
    m = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isneginf(m), 0, m).astype(Q.dtype))
    total = weights.sum(axis=-1, keepdims=True)
    return weights / np.where(total > 0, total, 1).astype(Q.dtype)


def _allowed(i: int, rows: int, j: int, columns: int, shift: int) -> Array:
    """Part of the causal mask: rows from query i, columns from key j, j ≤ i + shift."""
    return np.arange(j, j + columns)[None, :] <= np.arange(i, i + rows)[:, None] + shift


def _root(Q: Array) -> Any:
    return Q.dtype.type(math.sqrt(Q.shape[-1]))


def _checked(Q: Array, K: Array, V: Array) -> tuple[Array, Array, Array]:
    Q = np.asarray(Q)
    Q = Q if Q.dtype.kind == "f" else Q.astype(np.float64)
    K, V = (np.asarray(a).astype(Q.dtype, copy=False) for a in (K, V))
    if min(Q.ndim, K.ndim, V.ndim) < 2:
        raise ValueError(f"Q, K and V have {Q.ndim}, {K.ndim} and {V.ndim} axes; each needs at least (S, D_h)")
    if Q.shape[-1] != K.shape[-1]:
        raise ValueError(f"the last axis of Q has size {Q.shape[-1]} but that of K has size {K.shape[-1]}")
    if Q.shape[-1] == 0:
        raise ValueError("D_h is 0: a head needs at least one dimension")
    if K.shape[-2] != V.shape[-2]:
        raise ValueError(f"K holds {K.shape[-2]} keys but V holds {V.shape[-2]} values; each key has one value")
    if not Q.shape[:-2] == K.shape[:-2] == V.shape[:-2]:
        raise ValueError(f"leading axes differ: Q {Q.shape[:-2]}, K {K.shape[:-2]}, V {V.shape[:-2]}")
    return Q, K, V
