"""Exercises of chapter 10 on the work of a LoRA adapter, and on means over unequal parts."""

import math
from typing import Any

import numpy as np

from labsupport.cost import lora_cost
from labsupport.grading import Case, Choice, Exercise, Function, Mistake, Number, Option, Several, Tolerance

Array = np.ndarray


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

EXERCISES: tuple[Exercise, ...] = (
    LORA_ADAPTER_FLOPS,
    WEIGHTED_MEAN,
    ACCUMULATION_LINE,
)
