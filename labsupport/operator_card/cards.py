"""The five cards of the book: matrix product, softmax, LayerNorm, attention and cross-entropy, filled in.

Each is judged by the same review as a reader's card. This file must hold answers only: no card may reach into the
review or into the operator it describes.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from labsupport.operator_card.card import OperatorCard
from labsupport.ops import attention, normalization, softmax

Array = np.ndarray
State = tuple[Any, Any, Any]
_TOLERANCE = {"float32": 1e-5, "float16": 2e-3}


def _same(state: Any, **inputs: Array) -> Any:
    """The state is the result."""
    return state


MATMUL = OperatorCard(
    operator="matmul",
    inputs={"A": ("M", "K"), "B": ("K", "N")},
    output=("M", "N"),
    kept=("M", "N"),
    reduced=("K",),
    tile_axis="K",
    state=lambda start, A, B: A @ B,
    merge=lambda a, b: a + b,
    finish=_same,
    state_words="the partial product, one accumulator for each output",
    matmul_flops=lambda M, N, K: 2 * M * N * K,
    other_flops=lambda M, N, K: 0,
    min_bytes=lambda e, M, N, K: e * (M * K + K * N + M * N),
    layout="B is read down its columns; a tile of it is loaded by rows and turned on the chip",
    sensitive="the sum over K",
    risks=("overflow", "long reduction"),
    padding={"A": 0.0, "B": 0.0},
    tail="missing elements of A and B are loaded as 0; stores beyond M or N are masked",
    reference=lambda A, B: A.astype(np.float64) @ B.astype(np.float64),
    tolerance=_TOLERANCE,
    extreme=lambda A, B: {"A": A * 300, "B": B * 300},
)


def _softmax_finish(state: Any, x: Array) -> Array:
    m, total = state
    return np.exp(x - m[..., None]) / total[..., None]


SOFTMAX = OperatorCard(
    operator="softmax",
    inputs={"x": ("N", "V")},
    output=("N", "V"),
    intermediates={"exponentials": ("N", "V"), "total": ("N", "1")},
    kept=("N",),
    reduced=("V",),
    tile_axis="V",
    state=lambda start, x: softmax.online_state(x),
    merge=softmax.online_merge,
    finish=_softmax_finish,
    state_words="maximum m and shifted sum ℓ of each row",
    matmul_flops=lambda N, V: 0,
    other_flops=lambda N, V: 5 * N * V,
    min_bytes=lambda e, N, V: e * (N * V + N * V),
    layout="rows are contiguous; a softmax over another axis strides",
    sensitive="the sum of exponentials, and m and ℓ themselves",
    risks=("overflow", "zero", "long reduction"),
    fused=("exponentials", "total"),
    padding={"x": -np.inf},
    tail="missing logits are loaded as −∞, whose exponential is 0",
    reference=lambda x: softmax.softmax(x.astype(np.float64)),
    tolerance=_TOLERANCE,
    extreme=lambda x: {"x": x * 2000},
)


def _moments(x: Array) -> tuple[int, Array, Array]:
    """Count, mean and sum of squared deviations of each row."""
    mean = x.mean(axis=-1)
    return x.shape[-1], mean, ((x - mean[..., None]) ** 2).sum(axis=-1)


def _merge_moments(a: Any, b: Any) -> tuple[int, Array, Array]:
    """The same of two blocks together. Source: Chan, Golub and LeVeque (1983)."""
    n = a[0] + b[0]
    delta = b[1] - a[1]
    return n, a[1] + delta * b[0] / n, a[2] + b[2] + delta**2 * a[0] * b[0] / n


def _layer_norm_finish(state: Any, x: Array, gamma: Array, beta: Array) -> Array:
    n, mean, squares = state
    return (x - mean[..., None]) / np.sqrt(squares / n + 1e-5)[..., None] * gamma + beta


LAYER_NORM = OperatorCard(
    operator="layer_norm",
    inputs={"x": ("N", "H"), "gamma": ("H",), "beta": ("H",)},
    output=("N", "H"),
    intermediates={"mean": ("N", "1"), "variance": ("N", "1"), "normalised": ("N", "H")},
    kept=("N",),
    reduced=("H",),
    tile_axis="H",
    state=lambda start, x, gamma, beta: _moments(x),
    merge=_merge_moments,
    finish=_layer_norm_finish,
    state_words="count, mean and sum of squared deviations of each row",
    matmul_flops=lambda N, H: 0,
    other_flops=lambda N, H: 8 * N * H,
    min_bytes=lambda e, N, H: e * (N * H + N * H + H + H),
    broadcast={"gamma": ("N",), "beta": ("N",)},
    layout="γ and β have stride 0 along N: one copy serves all rows",
    sensitive="mean and variance",
    risks=("overflow", "cancellation", "long reduction"),
    fused=("mean", "variance", "normalised"),
    padding=None,
    tail="no value is neutral for a mean: masked elements are left out of both sums, and n counts the real ones",
    reference=lambda x, gamma, beta: normalization.layer_norm(*(a.astype(np.float64) for a in (x, gamma, beta))),
    tolerance=_TOLERANCE,
    extreme=lambda x, gamma, beta: {"x": x + 100, "gamma": gamma, "beta": beta},
)


def _attention_state(start: int, Q: Array, K: Array, V: Array) -> State:
    scores = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])
    m = scores.max(axis=-1)
    weights = np.exp(scores - m[..., None])
    return m, weights.sum(axis=-1), weights @ V


def _attention_merge(a: State, b: State) -> State:
    m = np.maximum(a[0], b[0])
    old, new = np.exp(a[0] - m), np.exp(b[0] - m)
    return m, a[1] * old + b[1] * new, a[2] * old[..., None] + b[2] * new[..., None]


ATTENTION = OperatorCard(
    operator="attention",
    inputs={"Q": ("G", "S_q", "D_h"), "K": ("G", "S_k", "D_h"), "V": ("G", "S_k", "D_v")},
    output=("G", "S_q", "D_v"),
    intermediates={
        "scores": ("G", "S_q", "S_k"),
        "exponentials": ("G", "S_q", "S_k"),
        "total": ("G", "S_q", "1"),
        "probabilities": ("G", "S_q", "S_k"),
    },
    kept=("G", "S_q", "D_v"),
    reduced=("S_k", "D_h"),
    tile_axis="S_k",
    state=_attention_state,
    merge=_attention_merge,
    finish=lambda state, Q, K, V: state[2] / state[1][..., None],
    state_words="maximum m, shifted sum ℓ and weighted sum of values A, for each query",
    matmul_flops=lambda G, S_q, S_k, D_h, D_v: 2 * G * S_q * S_k * (D_h + D_v),
    other_flops=lambda G, S_q, S_k, D_h, D_v: 5 * G * S_q * S_k,
    min_bytes=lambda e, G, S_q, S_k, D_h, D_v: e * G * (S_q * D_h + S_k * D_h + S_k * D_v + S_q * D_v),
    layout="K is read as its transpose, a view with exchanged strides",
    sensitive="both products' sums, m, ℓ and the accumulator A",
    risks=("overflow", "zero", "long reduction"),
    fused=("scores", "exponentials", "total", "probabilities"),
    padding=None,
    tail="a key of zeros has score 0, not −∞: missing keys are masked after the first product",
    reference=lambda Q, K, V: attention.attention(*(a.astype(np.float64) for a in (Q, K, V))),
    tolerance=_TOLERANCE,
    extreme=lambda Q, K, V: {"Q": Q * 2000, "K": K, "V": V},
)


def _loss_state(start: int, logits: Array, targets: Array) -> State:
    """Online softmax of a block of classes, and the target's logit where the block holds it."""
    m, total = softmax.online_state(logits)
    place = targets - start
    inside = (place >= 0) & (place < logits.shape[-1])
    picked = np.where(inside, logits[np.arange(len(targets)), np.where(inside, place, 0)], 0)
    return m, total, picked


def _loss_merge(a: State, b: State) -> State:
    m, total = softmax.online_merge(a[:2], b[:2])
    return m, total, a[2] + b[2]


CROSS_ENTROPY = OperatorCard(
    operator="cross_entropy",
    inputs={"logits": ("N", "V"), "targets": ("N",)},
    output=(),
    intermediates={
        "exponentials": ("N", "V"),
        "total": ("N", "1"),
        "log_p": ("N", "V"),
        "losses": ("N",),
    },
    kept=(),
    reduced=("N", "V"),
    tile_axis="V",
    state=_loss_state,
    merge=_loss_merge,
    finish=lambda state, logits, targets: (state[0] + np.log(state[1]) - state[2]).mean(),
    state_words="m and ℓ of each token, and the target's logit (0 until its tile comes)",
    matmul_flops=lambda N, V: 0,
    other_flops=lambda N, V: 4 * N * V,
    min_bytes=lambda e, N, V: e * N * V + 8 * N + e,
    layout="one element of each row is gathered by its index",
    sensitive="ℓ, and the sum over tokens",
    risks=("overflow", "zero", "long reduction"),
    fused=("exponentials", "total", "log_p", "losses"),
    padding={"logits": -np.inf},
    tail="missing classes are loaded as −∞; tokens that do not count are left out of sum and count",
    reference=lambda logits, targets: softmax.cross_entropy(logits.astype(np.float64), targets),
    tolerance=_TOLERANCE,
    extreme=lambda logits, targets: {"logits": logits * 2000, "targets": targets},
)

#: The filled-in cards by operator, in the order of the book.
CARDS: Mapping[str, OperatorCard] = {
    card.operator: card for card in (MATMUL, SOFTMAX, LAYER_NORM, ATTENTION, CROSS_ENTROPY)
}
