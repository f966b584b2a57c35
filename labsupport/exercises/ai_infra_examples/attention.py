"""Exercises of chapter 10 on a layer's matrix products, and on the shapes, bytes and scale of attention."""

import math
from typing import Any

import numpy as np

from labsupport.cost import linear_cost, score_bytes, tensor_bytes
from labsupport.grading import Case, Exercise, Formula, Function, Mistake, Number, Tolerance
from labsupport.ops import attention as ops
from labsupport.ops.softmax import softmax

Array = np.ndarray


#: One layer without biases: four projections H → H and an MLP H → 4H → H, on B·S tokens.
_B, _S, _H = 2, 1024, 2048
_LAYER_FLOPS = 4 * linear_cost(_B * _S, _H, _H).flops + 2 * linear_cost(_B * _S, _H, 4 * _H).flops

LAYER_LINEAR_FLOPS = Number(
    id="layer-linear-flops",
    chapter=10,
    section="10.1",
    title="The linear layers of one transformer layer",
    prompt=(
        "One layer has four projections $H \\to H$ and an MLP $H \\to 4H \\to H$, without biases. How many FLOPs do "
        "these six matrix products take forward, for $B = 2$, $S = 1024$, $H = 2048$?"
    ),
    contract='A number with its unit, for example `"1.5 TFLOP"`.',
    hints=(
        "One projection of $B \\cdot S$ tokens takes $2 \\cdot B \\cdot S \\cdot H \\cdot H$ FLOPs.",
        "Each MLP product is as large as four projections. Count everything in units of one projection.",
    ),
    checklist=(7,),
    level="easy",
    expected=_LAYER_FLOPS,
    unit="FLOP",
    default_unit="FLOP",
    mistakes=(
        Mistake(
            name="projections-only",
            answer=4 * linear_cost(_B * _S, _H, _H).flops,
            message="Those are the four projections. The MLP has two more products, and they are larger.",
        ),
        Mistake(
            name="six-equal",
            answer=6 * linear_cost(_B * _S, _H, _H).flops,
            message="That is half: six equal products, though those of the MLP have a side of $4H$, or one FLOP "
            "for a multiply-add.",
        ),
        Mistake(
            name="one-token",
            answer=_LAYER_FLOPS // (_B * _S),
            message="Those are the FLOPs of a single token.",
        ),
    ),
)


# ---------------------------------------------------------------- 10.2: shapes of attention


def _split_heads(X: Array, N_h: int) -> Array:
    B, S, H = X.shape
    return X.reshape(B, S, N_h, H // N_h).transpose(0, 2, 1, 3)


def _split_cases(rng: np.random.Generator) -> list[Case]:
    fortran = np.asfortranarray(rng.normal(size=(2, 4, 6)))
    return [
        Case(args=(rng.normal(size=(2, 5, 12)), 3), label="float64 (2, 5, 12), 3 heads"),
        Case(args=(rng.normal(size=(1, 4, 8)).astype(np.float32), 4), label="float32 (1, 4, 8), 4 heads"),
        Case(args=(rng.normal(size=(2, 4, 16)), 4), label="float64 (2, 4, 16), as many heads as tokens"),
        Case(args=(fortran, 2), label="float64 (2, 4, 6) in Fortran order, 2 heads"),
        Case(args=(rng.normal(size=(3, 1, 4)), 1), label="float64 (3, 1, 4), 1 head"),
        Case(args=(rng.normal(size=(2, 3, 6)), 6), label="float64 (2, 3, 6), heads of width 1"),
    ]


SPLIT_HEADS = Function(
    id="split-heads",
    chapter=10,
    section="10.2",
    title="Split the heads",
    prompt="Write `split_heads(X, N_h)`: it turns $(B, S, H)$ into $(B, N_h, S, D_h)$ with $D_h = H / N_h$.",
    contract=(
        "`X`: (B, S, H), float32 or float64, any memory order; `N_h` divides H. Head `h` holds columns "
        "$h D_h$ to $(h+1) D_h - 1$ of each token. Result: (B, N_h, S, D_h), dtype kept."
    ),
    hints=(
        "The last axis is cut into two, $(N_h, D_h)$. Only then does the head axis move.",
        "`reshape` cuts an axis, `transpose` moves one. You need one of each.",
    ),
    checklist=(18,),
    level="easy",
    oracle=_split_heads,
    cases=_split_cases,
    tolerance=Tolerance(c=1, depth=1),
    dtype="exact",
    mistakes=(
        Mistake(
            name="reshape-only",
            answer=lambda X, N_h: X.reshape(X.shape[0], N_h, X.shape[1], X.shape[2] // N_h),
            message="A reshape alone has the right shape and mixes tokens: it reads the buffer in order, token "
            "by token.",
        ),
        Mistake(
            name="not-moved",
            answer=lambda X, N_h: X.reshape(*X.shape[:2], N_h, -1),
            message="The heads are cut, but they stand behind the tokens. Attention needs them in front, as a "
            "batch axis.",
        ),
        Mistake(
            name="interleaved",
            answer=lambda X, N_h: X.reshape(*X.shape[:2], -1, N_h).transpose(0, 3, 1, 2),
            message="You gave every $N_h$-th column to a head. A head holds neighbouring columns.",
        ),
        Mistake(
            name="keys-transposed",
            answer=lambda X, N_h: X.reshape(*X.shape[:2], N_h, -1).transpose(0, 2, 3, 1),
            message="That is the layout of the transposed keys: tokens and head width are exchanged.",
        ),
    ),
)

_SCORES = score_bytes(1, 32, 8192)

SCORE_BYTES = Number(
    id="score-bytes",
    chapter=10,
    section="10.2",
    title="Bytes of an explicit score matrix",
    prompt=(
        "Attention with $B = 1$, $N_h = 32$ and $S = 8192$ writes its scores to memory in FP16. How many bytes do "
        "they take in one layer?"
    ),
    contract='A number with its unit, for example `"3 MiB"`; a bare number is taken as bytes.',
    hints=(
        "The scores have shape $(B, N_h, S, S)$.",
        "FP16 has 2 bytes an element. $8192 = 2^{13}$, so everything is a power of two.",
    ),
    checklist=(18,),
    level="easy",
    expected=_SCORES,
    unit="B",
    default_unit="B",
    mistakes=(
        Mistake(
            name="one-head",
            answer=_SCORES // 32,
            message="That is the matrix of one head. Every head has its own.",
        ),
        Mistake(
            name="half-length",
            answer=_SCORES // 4,
            message="That belongs to half the sequence: the bytes grow with the square of $S$.",
        ),
        Mistake(
            name="float32",
            answer=_SCORES * 2,
            message="You took four bytes an element; FP16 has two.",
        ),
        Mistake(
            name="elements",
            answer=_SCORES // 2,
            message="That is the number of elements; each takes two bytes.",
        ),
        Mistake(
            name="linear-in-s",
            answer=int(tensor_bytes((1, 32, 8192, 128), "fp16")),
            message="That is the size of $Q$, with heads of width 128. A score belongs to a pair of tokens.",
        ),
    ),
)


def _causal(Q: Array, K: Array, V: Array) -> Array:
    return ops.attention(Q, K, V, causal=True)


def _with_mask(Q: Array, K: Array, V: Array, mask: Any, scale: float | None = None) -> Array:
    """Attention under a boolean mask, for the wrong answers below."""
    scores = Q @ K.swapaxes(-1, -2) * (1 / math.sqrt(Q.shape[-1]) if scale is None else scale)
    n = Q.shape[-2]
    return softmax(np.where(mask(n), scores, -np.inf)) @ V


def _no_maximum(Q: Array, K: Array, V: Array) -> Array:
    scores = Q @ K.swapaxes(-1, -2) / Q.dtype.type(math.sqrt(Q.shape[-1]))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        e = np.exp(np.where(_triangle(Q.shape[-2]), scores, -np.inf))
        return np.asarray(e / e.sum(axis=-1, keepdims=True) @ V)


def _causal_by(Q: Array, K: Array, V: Array, fill: float) -> Array:
    scores = Q @ K.swapaxes(-1, -2) / math.sqrt(Q.shape[-1])
    return softmax(np.where(_triangle(Q.shape[-2]), scores, Q.dtype.type(fill))) @ V


def _global_shift(Q: Array, K: Array, V: Array) -> Array:
    scores = np.where(_triangle(Q.shape[-2]), Q @ K.swapaxes(-1, -2) / math.sqrt(Q.shape[-1]), -np.inf)
    with np.errstate(invalid="ignore"):
        e = np.exp(scores - scores.max())
        return np.asarray(e / e.sum(axis=-1, keepdims=True) @ V)


def _triangle(n: int) -> Array:
    return np.tri(n, dtype=bool)


def _mask_after(Q: Array, K: Array, V: Array) -> Array:
    p = softmax(Q @ K.swapaxes(-1, -2) / math.sqrt(Q.shape[-1]))
    return (p * _triangle(Q.shape[-2])) @ V


def _mask_by_zero(Q: Array, K: Array, V: Array) -> Array:
    scores = Q @ K.swapaxes(-1, -2) / math.sqrt(Q.shape[-1])
    return softmax(scores * _triangle(Q.shape[-2])) @ V


def _attention_cases(rng: np.random.Generator) -> list[Case]:
    def drawn(lead: tuple[int, ...], S: int, D: int, dtype: Any = np.float64, scale: float = 1.0) -> Any:
        return tuple((scale * rng.normal(size=(*lead, S, D))).astype(dtype) for _ in range(3))

    reversed_keys = drawn((2,), 5, 4)
    low_keys = -np.linspace(120, 100, 4)[:, None] * np.ones(2)  # every score lies below the masks that are mere numbers
    return [
        Case(args=drawn((), 4, 3), label="float64 (4, 3), one head"),
        Case(args=drawn((2, 3), 5, 4), label="float64 (2, 3, 5, 4)"),
        Case(args=drawn((2,), 6, 8, np.float32), label="float32 (2, 6, 8)"),
        Case(args=drawn((), 4, 4), label="float64 (4, 4), as many tokens as columns"),
        Case(args=drawn((), 5, 4, scale=40), label="float64 (5, 4), scores far apart"),
        Case(args=tuple(a[:, ::-1] for a in reversed_keys), label="float64 (2, 5, 4), reversed views"),
        Case(args=drawn((2,), 1, 3), label="float64 (2, 1, 3), one token"),
        Case(args=(np.full((4, 2), 200.0), low_keys, rng.normal(size=(4, 2))), label="scores near −30,000"),
    ]


def largest_value(Q: Array, K: Array, V: Array, *_: Any) -> float:
    """Rounding of a score moves a weight by its absolute error: the largest score times the largest value."""
    scores = float(np.abs(Q).max() * np.abs(K).max()) * Q.shape[-1] ** 0.5
    return max(1.0, scores) * float(np.abs(V).max())


_ATTENTION_ROUNDING = Tolerance(c=4, depth=lambda Q, *_: Q.shape[-1], scale=largest_value)

CAUSAL_ATTENTION = Function(
    id="causal-attention",
    chapter=10,
    section="10.2",
    title="Causal attention",
    prompt="Write `attention(Q, K, V)`: scaled dot-product attention in which a token reads itself and earlier tokens.",
    contract=(
        "`Q`, `K`, `V`: (..., S, D_h), one shape, float32 or float64, finite, any leading axes, S ≥ 1. Scores may be "
        "far beyond 700. Result: (..., S, D_h), dtype of the inputs."
    ),
    hints=(
        "`K.swapaxes(-1, -2)` transposes the last two axes and leaves batch and heads alone.",
        "Set forbidden scores to −inf **before** the softmax; `np.tri(S, dtype=bool)` is the triangle that is allowed.",
        "Subtract the maximum of each row of the masked scores; then exponentials, sum and the product with `V`.",
    ),
    checklist=(9, 18),
    level="medium",
    points=2,
    oracle=_causal,
    cases=_attention_cases,
    tolerance=_ATTENTION_ROUNDING,
    dtype="exact",
    mistakes=(
        Mistake(
            name="raised-dtype",
            answer=lambda Q, K, V: _causal(Q, K, V).astype(np.float64),
            message="Your result is float64 whatever came in. A float64 scalar of NumPy, as `np.sqrt(D_h)` is one, "
            "raises float32 arrays; a Python float, as `math.sqrt(D_h)`, does not.",
        ),
        Mistake(
            name="finite-mask",
            answer=lambda Q, K, V: _causal_by(Q, K, V, -1e4),
            message="Your mask is a number such as −10,000, and scores may be lower still: then the forbidden keys "
            "win. Only −inf is below every score.",
        ),
        Mistake(
            name="global-shift",
            answer=_global_shift,
            message="You subtracted the maximum of the whole array. A row far below it becomes 0/0: each row needs its "
            "own maximum.",
            section="5.2",
        ),
        Mistake(
            name="not-causal",
            answer=lambda Q, K, V: ops.attention(Q, K, V),
            message="Your tokens read later tokens: there is no mask.",
        ),
        Mistake(
            name="not-scaled",
            answer=lambda Q, K, V: _with_mask(Q, K, V, _triangle, 1.0),
            message="The scores are not divided by $\\sqrt{D_h}$.",
            section="10.3",
        ),
        Mistake(
            name="scaled-by-width",
            answer=lambda Q, K, V: _with_mask(Q, K, V, _triangle, 1 / Q.shape[-1]),
            message="You divided by $D_h$; the standard deviation of a score is its square root.",
            section="10.3",
        ),
        Mistake(
            name="no-own-token",
            answer=lambda Q, K, V: np.nan_to_num(_with_mask(Q, K, V, lambda n: np.tri(n, k=-1, dtype=bool))),
            message="A token may not read itself in your mask: the diagonal belongs to the allowed part.",
        ),
        Mistake(
            name="one-too-many",
            answer=lambda Q, K, V: _with_mask(Q, K, V, lambda n: np.tri(n, k=1, dtype=bool)),
            message="Each token also reads the next one: the mask is off by one.",
        ),
        Mistake(
            name="future-only",
            answer=lambda Q, K, V: _with_mask(Q, K, V, lambda n: _triangle(n).T),
            message="Your mask is the other triangle: tokens read the future instead of the past.",
        ),
        Mistake(
            name="no-maximum",
            answer=_no_maximum,
            message="Large scores overflow in the exponential: subtract the maximum of each row first.",
            section="5.2",
        ),
        Mistake(
            name="mask-after-softmax",
            answer=_mask_after,
            message="You masked after the softmax, so the weights of a row no longer sum to 1.",
        ),
        Mistake(
            name="mask-by-zero",
            answer=_mask_by_zero,
            message="A masked score of 0 still gets weight $e^0$. Its exponential must be 0.",
        ),
    ),
)

# ---------------------------------------------------------------- 10.3: the scale

SCORE_STD = Formula(
    id="score-std",
    chapter=10,
    section="10.3",
    title="Spread of a score",
    prompt=(
        "Entries of $q$ and $k$ are independent with mean 0 and standard deviations `s_q` and `s_k`. Give "
        "`std(D_h, s_q, s_k)`, the standard deviation of $q \\cdot k$ before any scaling."
    ),
    hints=(
        "The variance of a product of independent variables with mean 0 is the product of their variances.",
        "Variances of independent terms add. There are $D_h$ terms.",
    ),
    checklist=(8,),
    level="easy",
    oracle=lambda D_h, s_q, s_k: math.sqrt(D_h) * s_q * s_k,
    sample=lambda rng: (int(rng.integers(2, 512)), rng.uniform(0.2, 3), rng.uniform(0.2, 3)),
    mistakes=(
        Mistake(
            name="variance",
            answer=lambda D_h, s_q, s_k: D_h * s_q**2 * s_k**2,
            message="That is the variance; the standard deviation is its square root.",
        ),
        Mistake(
            name="added-deviations",
            answer=lambda D_h, s_q, s_k: D_h * s_q * s_k,
            message="You added standard deviations. Variances add.",
            section="10.3",
        ),
        Mistake(
            name="scaled",
            answer=lambda D_h, s_q, s_k: s_q * s_k,
            message="That is the spread after the division by $\\sqrt{D_h}$.",
        ),
        Mistake(
            name="sum-of-spreads",
            answer=lambda D_h, s_q, s_k: math.sqrt(D_h) * (s_q + s_k),
            message="The entries are multiplied, so their standard deviations multiply too.",
        ),
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    LAYER_LINEAR_FLOPS,
    SPLIT_HEADS,
    SCORE_BYTES,
    CAUSAL_ATTENTION,
    SCORE_STD,
)
