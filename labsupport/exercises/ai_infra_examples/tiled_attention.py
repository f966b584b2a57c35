"""Exercises of chapter 10 on attention by blocks of keys: the running state and the traffic."""

import math
from typing import Any

import numpy as np

from labsupport.exercises.ai_infra_examples.attention import largest_value
from labsupport.grading import Case, Exercise, Function, Mistake, Number, Several, Tolerance, Written
from labsupport.ops import attention as ops

Array = np.ndarray


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


#: Keys of the case in which the whole score matrix would be far more than one block.
_LONG = 4096


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
        Case(args=(*drawn(64, _LONG, 4, 4), 16), label="float64, 64 queries, 4096 keys in blocks of 16"),
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
        "$\\ell$ **and** $A$ by $e^{m_{old} - m_{new}}$.",
        "Start with $m = -\\infty$, $\\ell = 0$, $A = 0$; divide $A$ by $\\ell$ once, at the end.",
    ),
    checklist=(9, 18),
    level="hard",
    points=3,
    oracle=_flash,
    cases=_flash_cases,
    tolerance=Tolerance(c=4, depth=lambda Q, K, V, block: len(K) + Q.shape[-1], scale=largest_value),
    dtype="exact",
    held=lambda Q, K, V, block: len(Q) * len(K) * Q.itemsize // 2 if len(K) == _LONG else None,
    mistakes=(
        Mistake(
            name="whole-score-matrix",
            answer=lambda Q, K, V, block: ops.attention(Q, K, V),
            message="You hold the scores of all keys at once: that is explicit attention. Blocks avoid its matrix.",
        ),
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

EXERCISES: tuple[Exercise, ...] = (
    FLASH_FORWARD,
    ATTENTION_TRAFFIC,
    EXPLAIN_FLASH,
)
