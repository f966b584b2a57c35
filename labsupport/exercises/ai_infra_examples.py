"""Exercises of chapter 10: attention shapes and bytes, tiled attention, LoRA, weighted means, whole models, the card.

Each record holds the truth and the wrong answers the field really gives; a message explains a slip, and must never
contain the expected value. The last part holds the questions inside the chapter's text.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from labsupport import model_memory
from labsupport.cost import linear_cost, lora_cost, score_bytes, tensor_bytes
from labsupport.grading import (
    Case,
    Choice,
    Exercise,
    Formula,
    Function,
    Mistake,
    Number,
    Option,
    Several,
    Shape,
    Tolerance,
    Written,
)
from labsupport.operator_card import CARDS, OPERATORS, CardExercise, OperatorCard
from labsupport.ops import attention as ops
from labsupport.ops.softmax import softmax

Array = np.ndarray

# ---------------------------------------------------------------- 10.1: linear layers of a transformer

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
    return [
        Case(args=drawn((), 4, 3), label="float64 (4, 3), one head"),
        Case(args=drawn((2, 3), 5, 4), label="float64 (2, 3, 5, 4)"),
        Case(args=drawn((2,), 6, 8, np.float32), label="float32 (2, 6, 8)"),
        Case(args=drawn((), 4, 4), label="float64 (4, 4), as many tokens as columns"),
        Case(args=drawn((), 5, 4, scale=40), label="float64 (5, 4), scores far apart"),
        Case(args=tuple(a[:, ::-1] for a in reversed_keys), label="float64 (2, 5, 4), reversed views"),
        Case(args=drawn((2,), 1, 3), label="float64 (2, 1, 3), one token"),
    ]


def _largest_value(Q: Array, K: Array, V: Array, *_: Any) -> float:
    """Rounding of a score moves a weight by its absolute error: the largest score times the largest value."""
    scores = float(np.abs(Q).max() * np.abs(K).max()) * Q.shape[-1] ** 0.5
    return max(1.0, scores) * float(np.abs(V).max())


_ATTENTION_ROUNDING = Tolerance(c=4, depth=lambda Q, *_: Q.shape[-1], scale=_largest_value)

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
        "Set forbidden scores to −inf *before* the softmax; `np.tri(S, dtype=bool)` is the triangle that is allowed.",
        "Subtract the maximum of each row of the masked scores; then exponentials, sum and the product with `V`.",
    ),
    checklist=(9, 18),
    level="medium",
    points=2,
    oracle=_causal,
    cases=_attention_cases,
    tolerance=_ATTENTION_ROUNDING,
    mistakes=(
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

# ---------------------------------------------------------------- 10.4: attention by blocks


def _flash(Q: Array, K: Array, V: Array, block: int) -> Array:
    return ops.flash_attention(Q, K, V, block)


def _blocks(
    Q: Array,
    K: Array,
    V: Array,
    block: int,
    *,
    rescale_sum: bool = True,
    rescale_values: bool = True,
    keep_tail: bool = True,
    shift: bool = True,
) -> Array:
    """The running state over blocks of keys with one part left out, for the wrong answers below."""
    q = Q / math.sqrt(Q.shape[-1])
    m, total, acc = np.full(len(q), -np.inf), np.zeros(len(q)), np.zeros((len(q), V.shape[1]))
    if not shift:
        m = np.zeros(len(q))
    end = len(K) if keep_tail else max(len(K) // block * block, min(block, len(K)))
    for j in range(0, end, block):
        scores = q @ K[j : min(j + block, end)].T
        new = np.maximum(m, scores.max(axis=-1)) if shift else m
        weights, old = np.exp(scores - new[:, None]), np.exp(m - new)
        total = total * (old if rescale_sum else 1) + weights.sum(axis=-1)
        acc = acc * (old[:, None] if rescale_values else 1) + weights @ V[j : min(j + block, end)]
        m = new
    return (acc / total[:, None]).astype(Q.dtype)


def _mean_of_blocks(Q: Array, K: Array, V: Array, block: int) -> Array:
    parts = [ops.attention(Q, K[j : j + block], V[j : j + block]) for j in range(0, len(K), block)]
    return np.mean(parts, axis=0).astype(Q.dtype)


def _last_block(Q: Array, K: Array, V: Array, block: int) -> Array:
    start = (len(K) - 1) // block * block
    return ops.attention(Q, K[start:], V[start:])


def _flash_cases(rng: np.random.Generator) -> list[Case]:
    def drawn(S_q: int, S_k: int, D: int, D_v: int, dtype: Any = np.float64) -> list[Array]:
        return [rng.normal(size=shape).astype(dtype) for shape in ((S_q, D), (S_k, D), (S_k, D_v))]

    rising = drawn(3, 6, 4, 2)
    rising[1] = rising[1] * np.linspace(1, 30, 6)[:, None]
    huge = drawn(3, 6, 4, 4)
    huge[0] = huge[0] * 3000
    return [
        Case(args=(*drawn(3, 6, 4, 4), 2), label="float64, 6 keys in blocks of 2"),
        Case(args=(*drawn(4, 7, 3, 5), 3), label="float64, 7 keys in blocks of 3: a tail"),
        Case(args=(*drawn(2, 5, 4, 3), 1), label="float64, blocks of 1"),
        Case(args=(*drawn(2, 5, 4, 3), 8), label="float64, one block larger than the keys"),
        Case(args=(*drawn(4, 6, 4, 4, np.float32), 4), label="float32, 6 keys in blocks of 4"),
        Case(args=(*rising, 2), label="float64, later keys with larger scores"),
        Case(args=(*huge, 2), label="float64, scores in the thousands"),
        Case(args=(*drawn(1, 4, 2, 2), 3), label="float64, one query"),
    ]


FLASH_FORWARD = Function(
    id="flash-forward",
    chapter=10,
    section="10.4",
    title="Attention by blocks of keys",
    prompt=(
        "Write `flash(Q, K, V, block)`: attention without a mask that reads `block` keys and values at a time and "
        "never holds a score matrix of more than that many columns."
    ),
    contract=(
        "`Q`: (S_q, D_h), `K`: (S_k, D_h), `V`: (S_k, D_v), float32 or float64, finite; `block` ≥ 1 may not divide "
        "S_k and may exceed it. Scores may be in the thousands. Result: (S_q, D_v), divided by $\\sqrt{D_h}$ as "
        "usual, "
        "dtype of the inputs."
    ),
    hints=(
        "Keep three things for each query: the largest score $m$, the sum $\\ell$ and the weighted sum of values $A$.",
        "When a block raises the maximum, what was summed before is too large by $e^{m_{new} - m_{old}}$: multiply "
        "$\\ell$ *and* $A$ by $e^{m_{old} - m_{new}}$.",
        "Start with $m = -\\infty$, $\\ell = 0$, $A = 0$; divide $A$ by $\\ell$ once, at the end.",
    ),
    checklist=(9, 18),
    level="hard",
    points=3,
    oracle=_flash,
    cases=_flash_cases,
    tolerance=Tolerance(c=4, depth=lambda Q, K, V, block: len(K) + Q.shape[-1], scale=_largest_value),
    mistakes=(
        Mistake(
            name="sum-not-rescaled",
            answer=lambda *args: _blocks(*args, rescale_sum=False),
            message="The sum $\\ell$ of earlier blocks still refers to the old maximum.",
        ),
        Mistake(
            name="values-not-rescaled",
            answer=lambda *args: _blocks(*args, rescale_values=False),
            message="The accumulator of values still refers to the old maximum: it is rescaled like the sum.",
        ),
        Mistake(
            name="nothing-rescaled",
            answer=lambda *args: _blocks(*args, rescale_sum=False, rescale_values=False),
            message="Nothing is rescaled when the maximum rises, so early blocks weigh too much.",
        ),
        Mistake(
            name="no-shift",
            answer=lambda *args: _blocks(*args, shift=False),
            message="Without the running maximum `exp` overflows on large scores.",
        ),
        Mistake(
            name="tail-lost",
            answer=lambda *args: _blocks(*args, keep_tail=False),
            message="The last, shorter block is left out: a loop over `S_k // block` blocks misses it.",
        ),
        Mistake(
            name="mean-of-blocks",
            answer=_mean_of_blocks,
            message="You averaged a softmax of each block. Blocks weigh by their sums of exponentials, not equally.",
        ),
        Mistake(
            name="last-block",
            answer=_last_block,
            message="Only the last block is left in your result: the state is started anew for each block.",
        ),
        Mistake(
            name="not-scaled",
            answer=lambda Q, K, V, block: ops.attention(Q * math.sqrt(Q.shape[-1]), K, V),
            message="The scores are not divided by $\\sqrt{D_h}$.",
            section="10.3",
        ),
    ),
)

#: One head with S = 4096, D_h = 128, blocks of 128 queries.
_TILED = ops.traffic(4096, 4096, 128, block=128)
_EXPLICIT = ops.traffic(4096, 4096, 128)

ATTENTION_TRAFFIC = Several(
    id="attention-traffic",
    chapter=10,
    section="10.4",
    title="Traffic of explicit and tiled attention",
    prompt=(
        "One head has $S = 4096$ and $D_h = 128$, no mask. How many elements move between main memory and the chip, "
        "first in the explicit form (three kernels), then by blocks of 128 queries?"
    ),
    contract="Two whole numbers of elements, for the forward pass.",
    hints=(
        "Explicit: scores are written, read, written as probabilities and read again; $Q$, $K$, $V$ and $O$ move once.",
        "Tiled: there are $4096 / 128$ blocks of queries, and each of them reads all of $K$ and $V$.",
    ),
    checklist=(18,),
    level="medium",
    points=2,
    parts={
        "explicit": Number(
            prompt="Elements moved by the explicit form.",
            expected=_EXPLICIT.total,
            unit="element",
            default_unit="element",
            exact=True,
            mistakes=(
                Mistake(
                    name="scores-twice",
                    answer=2 * 4096**2 + 4 * 4096 * 128,
                    message="The score matrix is moved more often: the softmax reads it and writes probabilities.",
                ),
                Mistake(
                    name="scores-only",
                    answer=4 * 4096**2,
                    message="$Q$, $K$, $V$ and the output move too.",
                ),
            ),
        ),
        "tiled": Number(
            prompt="Elements moved by blocks of 128 queries.",
            expected=_TILED.total,
            unit="element",
            default_unit="element",
            exact=True,
            mistakes=(
                Mistake(
                    name="each-once",
                    answer=4 * 4096 * 128,
                    message="$K$ and $V$ are read again for every block of queries.",
                ),
                Mistake(
                    name="queries-again",
                    answer=32 * 4 * 4096 * 128,
                    message="A block of queries stays on the chip: $Q$ is read once and $O$ written once.",
                ),
                Mistake(
                    name="no-blocks",
                    answer=4096 * (2 * 4096 * 128) + 2 * 4096 * 128,
                    message="That reads $K$ and $V$ for every single query; a block of queries shares one reading.",
                ),
            ),
        ),
    },
)

EXPLAIN_FLASH = Written(
    id="explain-flash",
    chapter=10,
    section="10.4",
    title="What FlashAttention saves and what it does not",
    prompt=(
        "A colleague says: FlashAttention is an approximation that makes attention linear in $S$. In three to six "
        "sentences, correct what is wrong and keep what is right."
    ),
    hints=(
        "Look at four things in turn: the result, the FLOPs, the stored memory, the traffic.",
        "Which of the four fall from quadratic to linear, and which only get a smaller constant?",
    ),
    checklist=(18,),
    level="medium",
    rubric=(
        "the result is exact up to rounding: the merge of states is algebra, not an approximation",
        "FLOPs stay quadratic in S",
        "memory for scores falls from S² to one block, so stored memory is linear in S",
        "traffic to main memory falls by about the number of queries in a block over the head width, and stays "
        "quadratic",
    ),
    model=(
        "The result is exact: the states of blocks merge by algebra, and only rounding differs. The FLOPs stay "
        "quadratic in S. What becomes linear is stored memory, because no score matrix exists; traffic falls by a "
        "large factor and is still quadratic."
    ),
)

# ---------------------------------------------------------------- 10.5: LoRA

_RANKS = (8, 16, 64)


def _lora_flops(r: int) -> Number:
    extra = lora_cost(4096, 4096, r).extra.flops
    return Number(
        prompt=f"Extra FLOPs for one token at $r = {r}$.",
        expected=extra,
        unit="FLOP",
        default_unit="FLOP",
        rtol=3e-3,
        mistakes=(
            Mistake(
                name="one-factor",
                answer=extra // 2,
                message="There are two small products, $r \\times d_{in}$ and $d_{out} \\times r$, and a "
                "multiply-add is "
                "two FLOPs: one of these factors is missing.",
            ),
            Mistake(
                name="dense-update",
                answer=2 * 4096 * 4096,
                message="That is a product with $BA$ multiplied out. An adapter stays in two factors.",
            ),
        ),
    )


LORA_ADAPTER_FLOPS = Several(
    id="lora-adapter-flops",
    chapter=10,
    section="10.5",
    title="What an unmerged adapter costs",
    prompt=(
        "A layer $4096 \\to 4096$ runs with an unmerged LoRA adapter. How many FLOPs does the adapter add for **one "
        "token**, for $r = 8$, $16$ and $64$?"
    ),
    contract="Three numbers, bare or in FLOP; the scale α/r and the sum of both branches are not counted.",
    hints=("$x$ goes through $A$, $(r, d_{in})$, then through $B$, $(d_{out}, r)$.", "Each costs 2 · rows · columns."),
    checklist=(5,),
    level="easy",
    parts={f"r = {r}": _lora_flops(r) for r in _RANKS},
)

# ---------------------------------------------------------------- 10.6: weighted means


def _global_mean(means: Array, counts: Array) -> Any:
    means, counts = np.asarray(means, np.float64), np.asarray(counts)
    return float(np.where(counts > 0, means, 0) @ counts / counts.sum()) if counts.sum() else math.nan


def _mean_cases(rng: np.random.Generator) -> list[Case]:
    counts = rng.integers(1, 50, size=6)
    means = rng.normal(3, 1, size=6)
    return [
        Case(args=(np.array([1.0, 4.0]), np.array([3, 1])), label="means [1, 4], counts [3, 1]"),
        Case(args=(means, counts), label="6 ranks"),
        Case(args=(np.array([2.5, math.nan, 4.0]), np.array([6, 0, 3])), label="a rank without tokens, its mean NaN"),
        Case(args=(np.array([math.nan, 1.5]), np.array([0, 4])), label="rank 0 without tokens"),
        Case(args=(rng.normal(2, 1, size=3), np.array([5, 5, 5])), label="equal counts"),
        Case(args=(np.array([7.25]), np.array([3])), label="one rank"),
        Case(args=(np.array([math.nan, math.nan]), np.array([0, 0])), label="no tokens anywhere"),
    ]


def _drop_empty(means: Array, counts: Array) -> float:
    return float(np.asarray(means)[np.asarray(counts) > 0].mean()) if np.sum(counts) else math.nan


def _zero_filled(means: Array, counts: Array) -> float:
    return float(np.nan_to_num(means) @ counts / max(int(np.sum(counts)), 1))


WEIGHTED_MEAN = Function(
    id="weighted-mean",
    chapter=10,
    section="10.6",
    title="The mean over ranks",
    prompt=(
        "Rank $i$ reports the mean loss of its `counts[i]` tokens in `means[i]`. Write `global_mean(means, counts)`, "
        "the mean over all tokens."
    ),
    contract=(
        "`means`: (R,) float64; `counts`: (R,) integers ≥ 0. A rank with count 0 has mean NaN and must not matter. "
        "With no token at all the result is NaN. Result: a scalar."
    ),
    hints=(
        "A mean times its count is a sum. Sums may be added.",
        "$0 \\cdot \\mathrm{NaN}$ is NaN: leave empty ranks out before you multiply.",
    ),
    checklist=(8,),
    level="easy",
    oracle=_global_mean,
    cases=_mean_cases,
    tolerance=Tolerance(c=8, depth=lambda means, counts: len(means)),
    mistakes=(
        Mistake(
            name="mean-of-means",
            answer=lambda means, counts: float(np.mean(means)),
            message="You gave every rank the same weight. A rank weighs as much as it has tokens.",
        ),
        Mistake(
            name="mean-of-nonempty",
            answer=_drop_empty,
            message="Empty ranks are left out, but the others still weigh the same whatever they hold.",
        ),
        Mistake(
            name="nan-spreads",
            answer=lambda means, counts: float(np.asarray(means) @ np.asarray(counts) / np.sum(counts)),
            message="An empty rank turned everything into NaN: 0 times NaN is NaN.",
        ),
        Mistake(
            name="divided-by-ranks",
            answer=lambda means, counts: float(np.where(counts > 0, means, 0) @ counts / len(means)),
            message="The sum over tokens is divided by the number of ranks; it needs the number of tokens.",
        ),
        Mistake(
            name="zero-of-nothing",
            answer=_zero_filled,
            message="Where nobody has a token there is no mean. A loss of 0 would look perfect.",
        ),
    ),
)


ACCUMULATION_LINE = Choice(
    id="accumulation-line",
    chapter=10,
    section="10.6",
    title="One line of gradient accumulation",
    prompt=(
        "Micro-batches have different numbers of real tokens; `loss` is the **mean** over the `n` tokens of one "
        "micro-batch, `k` the number of micro-batches and `N` the tokens of all of them together. Which line gives "
        "the gradient of the mean over all tokens?"
    ),
    hints=(
        "Write the mean over all tokens as a sum over micro-batches. What stands before each local mean?",
        "Try it with 3 tokens of loss 2.0 and 1 token of loss 4.0: the four weighted losses must add up to the mean.",
    ),
    checklist=(8,),
    level="easy",
    options={
        "a": Option("`loss.backward()`", "Then the gradients of all micro-batches are added as they are, k "
        "means in one."),
        "b": Option("`(loss / k).backward()`", "This is the mean of means: right only when every micro-batch "
        "has the same n."),
        "c": Option("`(loss * n / N).backward()`", "The local mean times n is the local sum; divided by N it is "
        "its share "
                    "of the global mean.", True),
        "d": Option("`(loss / n).backward()`", "The loss has been divided by its n tokens before; this divides "
        "again."),
    },
)  # fmt: skip

# ---------------------------------------------------------------- 10.7: memory

_LLAMA = model_memory.MODELS["Llama 3 8B"]
_GPT2 = model_memory.MODELS["GPT-2 small"]
_CACHE = int(model_memory.kv_cache_bytes(_LLAMA, 16, 4096))

KV_CACHE_BYTES = Number(
    id="kv-cache-bytes",
    chapter=10,
    section="10.7.3",
    title="KV cache of a batch",
    prompt=(
        "Llama 3 8B has 32 layers, 32 query heads, 8 heads of K and V, and heads of width 128. How many bytes "
        "does its "
        "BF16 cache take for 16 sequences of 4096 tokens?"
    ),
    contract="A number with its unit; a bare number is taken as bytes.",
    hints=(
        "Count one token first: for each layer, one vector of keys and one of values.",
        "The cache holds heads of K and V only. The query heads share them.",
    ),
    checklist=(18,),
    level="medium",
    expected=_CACHE,
    unit="B",
    default_unit="B",
    mistakes=(
        Mistake(
            name="query-heads",
            answer=4 * _CACHE,
            message="You counted a key and a value for every query head. Here four query heads share one.",
        ),
        Mistake(
            name="one-of-two",
            answer=_CACHE // 2,
            message="Keys and values are two tensors: you counted one.",
        ),
        Mistake(
            name="one-layer",
            answer=_CACHE // 32,
            message="That is one layer. Every layer keeps its own.",
        ),
        Mistake(
            name="one-sequence",
            answer=_CACHE // 16,
            message="That is one sequence of the batch.",
        ),
    ),
)


def _count(V: int, H: int, L: int, N_h: int, N_kv: int, m: int) -> int:
    return model_memory.Model(
        name="llama",
        source="exercise",
        vocabulary=V,
        width=H,
        layers=L,
        heads=N_h,
        kv_heads=N_kv,
        hidden=m,
        gated=True,
    ).parameters


def _count_cases(rng: np.random.Generator) -> list[Case]:
    drawn = (int(rng.integers(50, 200)), 48, int(rng.integers(2, 6)), 12, 4, int(rng.integers(60, 90)))
    return [
        Case(args=(100, 8, 1, 2, 1, 16), label="V=100, H=8, L=1, N_h=2, N_kv=1, m=16"),
        Case(args=drawn, label="H=48, N_h=12, N_kv=4, the rest drawn"),
        Case(args=(32_000, 4096, 32, 32, 32, 11_008), label="as many heads of K and V as of Q"),
        Case(args=(128_256, 8192, 80, 64, 8, 28_672), label="V=128256, H=8192, L=80, N_h=64, N_kv=8, m=28672"),
    ]


def _variant(V: int, H: int, L: int, N_h: int, N_kv: int, m: int, **wrong: int) -> int:
    """The count with one part wrong, for the mistakes below."""
    kv = wrong.get("kv", N_kv) * (H // N_h)
    layer = 2 * H * H + 2 * H * kv + wrong.get("matrices", 3) * H * m + wrong.get("norms", 2) * H
    return wrong.get("tables", 2) * V * H + L * layer + wrong.get("final", 1) * H


COUNT_PARAMETERS = Function(
    id="count-parameters",
    chapter=10,
    section="10.7.1",
    title="Count a Llama-like model",
    prompt=(
        "Write `parameters(V, H, L, N_h, N_kv, m)`: the number of parameters of a decoder with `N_kv` heads of "
        "K and V, "
        "a gated MLP of width `m`, RMSNorm and an untied LM head."
    ),
    contract=(
        "All arguments are positive integers, `N_h` divides `H`, `N_kv` divides `N_h`. No biases, no learned "
        "positions; "
        "a layer has two norms, and one more stands before the LM head. Result: an integer."
    ),
    hints=(
        "A layer: Q and the output projection are $H \\times H$; K and V are $H \\times N_{kv} D_h$.",
        "A gated MLP has three matrices: gate, up and down.",
        "Outside the layers: embedding, LM head, and the final norm.",
    ),
    checklist=(5,),
    level="medium",
    points=2,
    oracle=_count,
    cases=_count_cases,
    tolerance=Tolerance(c=1, depth=1),
    mistakes=(
        Mistake(
            name="all-heads",
            answer=lambda *sizes: _variant(*sizes, kv=sizes[3]),
            message="K and V have only `N_kv` heads, so their matrices are narrower than Q's.",
        ),
        Mistake(
            name="two-matrices",
            answer=lambda *sizes: _variant(*sizes, matrices=2),
            message="A gated MLP has a third matrix, the gate.",
        ),
        Mistake(
            name="tied",
            answer=lambda *sizes: _variant(*sizes, tables=1),
            message="The LM head is its own matrix here: embedding and head are counted both.",
        ),
        Mistake(
            name="no-norms",
            answer=lambda *sizes: _variant(*sizes, norms=0, final=0),
            message="The norms have parameters too, one for each column.",
        ),
        Mistake(
            name="no-final-norm",
            answer=lambda *sizes: _variant(*sizes, final=0),
            message="One more norm stands between the last layer and the LM head.",
        ),
        Mistake(
            name="layer-norms",
            answer=lambda *sizes: _variant(*sizes, norms=4, final=2),
            message="RMSNorm has a scale and no shift: one vector for each norm.",
        ),
    ),
)

_ADAM = 16 * _GPT2.parameters

TRAINING_STATE = Number(
    id="training-state-bytes",
    chapter=10,
    section="10.7.2",
    title="State of a training run",
    prompt=(
        "GPT-2 small has 124,439,808 parameters and is trained with AdamW in mixed precision: BF16 weights and "
        "gradients, FP32 master weights, FP32 $m$ and $v$. How many bytes do these five tensors take?"
    ),
    contract="A number with its unit; a bare number is taken as bytes. Activations are not counted.",
    hints=("Add the bytes of one parameter first.", "Two tensors have 2 bytes an element, three have 4."),
    level="easy",
    expected=_ADAM,
    unit="B",
    default_unit="B",
    rtol=3e-3,
    mistakes=(
        Mistake(
            name="no-master",
            answer=12 * _GPT2.parameters,
            message="The FP32 master weights are missing: the update is added there.",
        ),
        Mistake(
            name="no-optimizer",
            answer=8 * _GPT2.parameters,
            message="$m$ and $v$ are missing.",
        ),
        Mistake(
            name="weights-only",
            answer=2 * _GPT2.parameters,
            message="Those are the BF16 weights alone, enough for inference.",
        ),
        Mistake(
            name="no-gradients",
            answer=14 * _GPT2.parameters,
            message="The gradients take memory too, in BF16.",
        ),
    ),
)

# ---------------------------------------------------------------- 10.8: the card


def _squares(start: int, x: Array, gamma: Array) -> tuple[int, Array]:
    """Count and sum of squares of each row of a tile."""
    return x.shape[-1], (x * x).sum(axis=-1)


def _rms_finish(state: Any, x: Array, gamma: Array) -> Array:
    n, squares = state
    return x / np.sqrt(squares / n + 1e-5)[..., None] * gamma


def _rms_reference(x: Array, gamma: Array) -> Array:
    x, gamma = x.astype(np.float64), gamma.astype(np.float64)
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5) * gamma


_RMS_CARD = OperatorCard(
    operator="rms_norm",
    inputs={"x": ("N", "H"), "gamma": ("H",)},
    output=("N", "H"),
    intermediates={"mean_square": ("N", "1"), "normalised": ("N", "H")},
    kept=("N",),
    reduced=("H",),
    tile_axis="H",
    state=_squares,
    merge=lambda a, b: (a[0] + b[0], a[1] + b[1]),
    finish=_rms_finish,
    state_words="count and sum of squares of each row",
    matmul_flops=lambda N, H: 0,
    other_flops=lambda N, H: 4 * N * H,
    min_bytes=lambda e, N, H: e * (2 * N * H + H),
    broadcast={"gamma": ("N",)},
    layout="rows are contiguous",
    sensitive="the sum of squares",
    risks=("overflow", "long reduction"),
    fused=("mean_square", "normalised"),
    padding=None,
    tail="masked elements add 0 to the sum, and n counts the real ones",
    reference=_rms_reference,
    tolerance={"float32": 1e-5, "float16": 2e-3},
    extreme=lambda x, gamma: {"x": x * 300, "gamma": gamma},
)

_CARD_SLIPS: dict[str, tuple[str, dict[str, Any]]] = {
    "shape": (
        "Write the axes in the order in which the array stores them; an axis kept with size 1 is written `1`.",
        {"intermediates": {"mean_square": ("N",), "normalised": ("N", "H")}},
    ),
    "reduced-called-kept": (
        "That an axis appears in the result does not make it kept: here every result of a row needs the whole row.",
        {"kept": ("N", "H"), "reduced": ()},
    ),
    "no-merge": (
        "Think of two halves of a row: which few numbers of each are enough to finish?",
        {"merge": None},
    ),
    "merge-wrong-plain": (
        "Check what each number of the state refers to: a mean needs its count to be merged, a sum does not.",
        {
            "state": lambda start, x, gamma: (x * x).mean(axis=-1),
            "merge": lambda a, b: (a + b) / 2,
            "finish": lambda s, x, gamma: x / np.sqrt(s + 1e-5)[..., None] * gamma,
        },
    ),
    "state-grows": (
        "A state is a summary of fixed size, such as a sum, a maximum or a count.",
        {
            "state": lambda start, x, gamma: x,
            "merge": lambda a, b: np.concatenate([a, b], axis=-1),
            "finish": lambda s, x, gamma: _rms_reference(s, gamma),
        },
    ),
    "matmul-flops": (
        "Elementwise work belongs into `other_flops`; here only matrix products count.",
        {"matmul_flops": lambda N, H: 4 * N * H},
    ),
    "elements": (
        "Multiply by `e`, so that the card holds for FP16 and for FP32.",
        {"min_bytes": lambda e, N, H: 2 * N * H + H},
    ),
    "min-bytes": (
        "Every input is read once and the result is written once; intermediates stay on the chip.",
        {"min_bytes": lambda e, N, H: e * N * H},
    ),
    "broadcast": (
        "An input without an axis of the result is repeated along it, with stride 0.",
        {"broadcast": {}},
    ),
    "accumulator": (
        "A sum of thousands of float16 numbers in float16 stalls, as section 9.4 shows.",
        {"accumulator": "float16"},
    ),
    "no-overflow": (
        "Look at the largest intermediate, not at the result: a square or an exponential leaves float16 early.",
        {"risks": ("long reduction",)},
    ),
    "padding": (
        "Zeros change no sum, but they change a count.",
        {"padding": {"x": 0.0, "gamma": 0.0}},
    ),
    "reference": (
        "The reference is for every finite input: try yours on the extreme ones, and mind ε.",
        {"reference": lambda x, gamma: x / np.sqrt((x * x).mean(-1, keepdims=True)) * gamma},
    ),
    "too-loose": (
        "A tolerance must be tight enough to fail a wrong kernel: a few times the unit roundoff of the dtype.",
        {"tolerance": {"float32": 1e-5, "float16": 0.1}},
    ),
    "too-tight": (
        "Rounding the result alone costs half a unit in the last place; leave room for a few.",
        {"tolerance": {"float32": 1e-9, "float16": 1e-6}},
    ),
    "extreme-harmless": (
        "Choose inputs that a naive kernel cannot survive: large, shifted, or exactly 0.",
        {"extreme": lambda x, gamma: {"x": x, "gamma": gamma}},
    ),
}

OPERATOR_CARD = CardExercise(
    id="operator-card",
    chapter=10,
    section="10.8",
    title="An operator card of your own",
    prompt=(
        "Choose an operator from the list and answer the ten questions for it: write `my_card()` that returns a "
        "filled-in "
        "`OperatorCard`. Every answer that can be run is run."
    ),
    contract=(
        f"The list: {', '.join(f'`{name}`' for name in OPERATORS if name not in CARDS)}. `brief(name)` shows formula, "
        "inputs and intermediates; `help(OperatorCard)` explains the fields."
    ),
    hints=(
        "Take the card nearest to your operator from the page of cards, and change what differs.",
        "For the merge state, ask what two halves of the reduced axis must tell each other, and nothing more.",
        "The review stops at the first question that a run refutes and names the others: mend them in order.",
    ),
    checklist=(7, 17),
    level="hard",
    points=4,
    model=_RMS_CARD,
    explanations={slip: message for slip, (message, _) in _CARD_SLIPS.items()},
    mistakes=tuple(
        Mistake(name=slip, answer=replace(_RMS_CARD, **changes), message=message)
        for slip, (message, changes) in _CARD_SLIPS.items()
    ),
    accept=(lambda: _RMS_CARD, replace(_RMS_CARD, accumulator="float64", risks=("overflow", "zero", "long reduction"))),
)

# ---------------------------------------------------------------- questions inside the chapter

_PROJECTION = linear_cost(8 * 2048, 4096, 4096)

CHAPTER: tuple[Exercise, ...] = (
    Number(
        id="projection-flops",
        chapter=10,
        section="10.1",
        place="chapter",
        title="FLOPs of one projection",
        prompt=(
            "How many FLOPs does one projection $H \\to N$ take forward, with $B = 8$, $S = 2048$, $H = N = 4096$? "
            "Answer with a unit, such as `\"1.2 TFLOP\"`."
        ),
        hints=("There are $B \\cdot S \\cdot N$ outputs, and each sums over $H$.",),
        checklist=(1, 7),
        expected=_PROJECTION.flops,
        unit="FLOP",
        default_unit="FLOP",
        mistakes=(
            Mistake(
                name="one-sequence",
                answer=_PROJECTION.flops // 8,
                message="That is one sequence; the batch holds eight.",
            ),
        ),
    ),
    Shape(
        id="attention-scores-shape",
        chapter=10,
        section="10.2",
        place="chapter",
        title="Shape of the scores",
        prompt="$X$ has shape $(2, 128, 512)$ and there are 8 heads. Which shape do the scores $Q K^\\top$ have?",
        hints=("Heads become a batch axis, and the head width is summed away.",),
        checklist=(18,),
        expected=(2, 8, 128, 128),
        mistakes=(
            Mistake(
                name="no-heads",
                answer=(2, 128, 128),
                message="Each head has its own scores; the head axis is missing.",
            ),
            Mistake(
                name="head-width-kept",
                answer=(2, 8, 128, 64),
                message="That is the shape of $Q$. The head width is the axis that is summed over.",
            ),
            Mistake(
                name="heads-behind",
                answer=(2, 128, 8, 128),
                message="The heads stand before the tokens, so that a matrix product sees them as a batch axis.",
            ),
        ),
    ),
    Choice(
        id="score-growth",
        chapter=10,
        section="10.2.1",
        place="chapter",
        title="Twice the context",
        prompt="The context length doubles and nothing else changes. What happens to the bytes of the explicit "
            "scores?",
        hints=("How often does $S$ occur in the shape of the scores?",),
        checklist=(18,),
        options={
            "a": Option("They double.", "Activations of shape (B, S, H) do; the scores have S twice in their shape."),
            "b": Option("They grow fourfold.", "The scores have shape (B, N_h, S, S): S occurs twice.", True),
            "c": Option("They grow eightfold.", "That would need three axes of length S."),
            "d": Option("They stay, since D_h is summed away.", "D_h is gone, but two token axes remain."),
        },
    ),
    Choice(
        id="row-without-keys",
        chapter=10,
        section="10.2",
        place="chapter",
        title="A query that may read nothing",
        prompt=(
            "A query may read no key at all, because its whole row is masked. What does `attention` of this "
            "book return "
            "for it?"
        ),
        hints=("A softmax of such a row is 0/0. Somebody must decide, and say so.",),
        checklist=(9,),
        options={
            "a": Option("NaN", "A plain softmax does. An attention kernel that pads its batch would then spread NaN."),
            "b": Option("the mean of all values", "That happens with a large negative number instead of −∞: a "
            "silent leak."),
            "c": Option("zeros", "An empty sum of values is 0; the docstring says so and a test holds it.", True),
            "d": Option("its own value", "Its own key is masked too."),
        },
    ),
    Number(
        id="score-spread-at-256",
        chapter=10,
        section="10.3",
        place="chapter",
        title="Spread of a dot product",
        prompt=(
            "$q$ and $k$ have 256 independent entries each, with mean 0 and variance 1. What is the standard "
            "deviation of "
            "$q \\cdot k$?"
        ),
        hints=("Each of the 256 products has variance 1. Variances add, standard deviations do not.",),
        checklist=(8,),
        expected=16,
        mistakes=(
            Mistake(name="variance", answer=256, message="That is the variance; take its square root."),
            Mistake(
                name="already-scaled",
                answer=1,
                message="That is what is left after the division by $\\sqrt{D_h}$.",
            ),
        ),
    ),
    Choice(
        id="block-size-effect",
        chapter=10,
        section="10.4",
        place="chapter",
        title="A larger block",
        prompt="Attention by blocks runs with twice as many queries in a block. What changes?",
        hints=("Who reads K and V, and how often?",),
        checklist=(18,),
        options={
            "a": Option("The result: fewer merges are more exact by a constant.", "The merge is exact algebra; only "
                        "rounding moves in the last digits, in no fixed direction."),
            "b": Option("The FLOPs of the two products halve.", "Each query still meets each key once."),
            "c": Option("K and V are read half as often, and more on-chip memory is needed.", "One reading of K and V "
                        "serves a whole block of queries.", True),
            "d": Option("The memory for the whole score matrix halves.", "There is no such matrix in this form."),
        },
    ),
    Number(
        id="lora-share-64",
        chapter=10,
        section="10.5",
        place="chapter",
        title="Share of a rank-64 adapter",
        prompt=(
            "A weight of $4096 \\times 4096$ gets a LoRA adapter with $r = 64$. How large is the adapter, as a "
            "percentage of the weight's parameters? Answer like `\"1.5 %\"`."
        ),
        hints=("The adapter has $r (d_{in} + d_{out})$ parameters.",),
        checklist=(5,),
        expected=100 * lora_cost(4096, 4096, 64).ratio,
        unit="%",
        default_unit="%",
        rtol=1e-2,
        mistakes=(
            Mistake(
                name="one-factor",
                answer=100 * lora_cost(4096, 4096, 64).ratio / 2,
                message="That is one of the two factors.",
            ),
            Mistake(
                name="rank-8",
                answer=100 * lora_cost(4096, 4096, 8).ratio,
                message="That is the share of a rank-8 adapter.",
            ),
        ),
    ),
    Number(
        id="mean-of-two-ranks",
        chapter=10,
        section="10.6",
        place="chapter",
        title="Seven tokens and five",
        prompt="One rank has 7 tokens with mean loss 2.0, the other 5 tokens with mean loss 3.0. What is the "
            "mean loss over all?",
        hints=("How large is the sum of the losses on each rank?",),
        checklist=(8,),
        expected=29 / 12,
        rtol=2e-3,
        mistakes=(
            Mistake(
                name="mean-of-means",
                answer=2.5,
                message="That gives both ranks the same weight, but they have different numbers of tokens.",
            ),
            Mistake(
                name="weights-swapped",
                answer=(5 * 2.0 + 7 * 3.0) / 12,
                message="The weights are exchanged: the mean of 2.0 belongs to seven tokens.",
            ),
        ),
    ),
    Number(
        id="activation-bytes-bf16",
        chapter=10,
        section="10.7",
        place="chapter",
        title="One activation",
        prompt="How many bytes does a BF16 tensor of shape $(8, 2048, 4096)$ take? Answer with a unit, such as "
            "`\"3 MiB\"`.",
        hints=("Elements times bytes; every size is a power of two.",),
        checklist=(18,),
        expected=int(tensor_bytes((8, 2048, 4096), "bf16")),
        unit="B",
        default_unit="B",
        rtol=3e-3,
        mistakes=(
            Mistake(
                name="one-sequence",
                answer=int(tensor_bytes((2048, 4096), "bf16")),
                message="That is one sequence of the batch.",
            ),
        ),
    ),
    Choice(
        id="train-8b-on-80",
        chapter=10,
        section="10.7.2",
        place="chapter",
        title="Eight billion parameters on one device",
        prompt=(
            "A model of 8 billion parameters is trained with AdamW in mixed precision on **one** device with 80 GB, "
            "without sharding. Does it fit?"
        ),
        hints=("How many bytes does one parameter need, with everything that the optimizer keeps?",),
        options={
            "a": Option("Yes: the weights are 16 GB.", "That is inference. Training keeps gradients and "
            "optimizer state too."),
            "b": Option("Yes, if activations are checkpointed.", "Checkpointing shrinks activations only. Look "
            "at what is "
                        "there before the first token."),
            "c": Option("No: parameters, gradients and optimizer state alone exceed it.", "At 16 bytes a "
            "parameter that "
                        "is about 128 GB, before any activation.", True),
            "d": Option("No, because of the KV cache.", "Training keeps no KV cache; that belongs to generation."),
        },
    ),
    Choice(
        id="neutral-padding",
        chapter=10,
        section="10.8",
        place="chapter",
        title="What a tail is filled with",
        prompt=(
            "A softmax kernel reads tiles of 128 logits, and a row has 1000. With which value are the missing "
            "24 of the "
            "last tile filled, so that the result stays right?"
        ),
        hints=("Which number adds nothing to a sum of exponentials, and never is a maximum?",),
        checklist=(9,),
        options={
            "a": Option("0", "Its exponential is 1 before the shift: the sum grows by up to 24."),
            "b": Option("−∞", "Its exponential is exactly 0, and it never is the maximum.", True),
            "c": Option("the smallest logit of the row", "It adds the smallest term once more for each missing "
            "place."),
            "d": Option("any value, since the stores are masked", "Masked stores protect the output. The sum has been "
                        "spoiled by then."),
        },
    ),
)  # fmt: skip

EXERCISES: tuple[Exercise, ...] = (
    LAYER_LINEAR_FLOPS,
    SPLIT_HEADS,
    SCORE_BYTES,
    CAUSAL_ATTENTION,
    SCORE_STD,
    FLASH_FORWARD,
    ATTENTION_TRAFFIC,
    EXPLAIN_FLASH,
    LORA_ADAPTER_FLOPS,
    WEIGHTED_MEAN,
    ACCUMULATION_LINE,
    KV_CACHE_BYTES,
    COUNT_PARAMETERS,
    TRAINING_STATE,
    OPERATOR_CARD,
    *CHAPTER,
)
