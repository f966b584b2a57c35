"""Exercises of chapter 8 on the batch: its noise, and accumulation over unequal micro-batches."""

import math
from typing import Any

import numpy as np

from labsupport.grading import Case, Exercise, Function, Mistake, Number, Tolerance

Array = np.ndarray


_SAMPLE_VARIANCE, _BATCH = 12.0, 48

GRADIENT_VARIANCE = Number(
    id="gradient-variance",
    chapter=8,
    section="8.1",
    title="Variance of a mini-batch gradient",
    prompt=(
        "The gradient of one sample has a variance of 12 (summed over its components). What is the variance of the "
        "mean gradient of a batch of 48, drawn with replacement?"
    ),
    contract="A number without unit.",
    hints=(
        "Draws are independent: variances of a sum add up.",
        "The mean is the sum times $1/B$, and a factor enters a variance squared.",
    ),
    checklist=(8,),
    expected=_SAMPLE_VARIANCE / _BATCH,
    mistakes=(
        Mistake(
            name="standard-deviation",
            answer=math.sqrt(_SAMPLE_VARIANCE / _BATCH),
            message="This is the standard deviation of the batch gradient. The variance is its square.",
        ),
        Mistake(
            name="root-of-the-batch",
            answer=_SAMPLE_VARIANCE / math.sqrt(_BATCH),
            message="The root of the batch size divides the standard deviation. Which power divides the variance?",
        ),
        Mistake(
            name="sum",
            answer=_SAMPLE_VARIANCE * _BATCH,
            message="This is the variance of the summed gradient. The mean carries a factor of one over the batch.",
        ),
        Mistake(
            name="unchanged",
            answer=_SAMPLE_VARIANCE,
            message="This is the variance of a single sample. A mean of many is quieter.",
        ),
        Mistake(
            name="squared",
            answer=_SAMPLE_VARIANCE / _BATCH**2,
            message="You squared the factor and forgot that the variances of all samples in the batch add up.",
        ),
    ),
)


def _combine(means: list[Array], counts: list[int]) -> Array:
    """Mean gradient of all samples from the micro-batches' means and sizes."""
    total = np.sum([m * n for m, n in zip(means, counts, strict=True)], axis=0)
    return np.asarray(total / sum(counts))


def _micro_cases(rng: np.random.Generator) -> list[Case]:
    def parts(shape: tuple[int, ...], number: int, dtype: Any = np.float64) -> list[Array]:
        return [rng.normal(size=shape).astype(dtype) for _ in range(number)]

    return [
        Case(args=(parts((4,), 2), [32, 8]), label="two micro-batches of 32 and 8"),
        Case(args=(parts((2, 3), 3), [1, 5, 2]), label="three of 1, 5 and 2, gradients (2, 3)"),
        Case(args=(parts((3,), 2), [16, 16]), label="two of 16"),
        Case(args=(parts((3,), 1), [7]), label="one micro-batch"),
        Case(args=(parts((5,), 3, np.float32), [64, 64, 1]), label="float32, sizes 64, 64 and 1"),
    ]


MICRO_BATCHES = Function(
    id="micro-batches",
    chapter=8,
    section="8.1",
    title="Gradient accumulation over unequal micro-batches",
    prompt=(
        "Write `combine(means, counts)`: the mean gradient of all samples together, from the mean gradient of each "
        "micro-batch and the number of its samples."
    ),
    contract=(
        "`means`: list of arrays of one shape, float32 or float64; `counts`: list of as many whole numbers, each at "
        "least 1. Result: an array of that shape."
    ),
    hints=(
        "A mean times its count is the sum over that micro-batch.",
        "Add the sums, then divide once by the number of all samples.",
    ),
    checklist=(8,),
    oracle=_combine,
    cases=_micro_cases,
    tolerance=Tolerance(c=4, depth=4, scale=lambda means, counts: max(float(np.abs(m).max()) for m in means)),
    mistakes=(
        Mistake(
            name="mean-of-means",
            answer=lambda means, counts: np.mean(means, axis=0),
            message="You averaged the means: a micro-batch with few samples counts as much as a full one.",
        ),
        Mistake(
            name="sum-of-means",
            answer=lambda means, counts: np.sum(means, axis=0),
            message="You added the means, so the gradient grows with the number of micro-batches.",
        ),
        Mistake(
            name="sum-of-all",
            answer=lambda means, counts: _combine(means, counts) * sum(counts),
            message="This is the summed gradient of all samples. The division by their number is missing.",
        ),
        Mistake(
            name="divided-by-parts",
            answer=lambda means, counts: _combine(means, counts) * sum(counts) / len(counts),
            message="You divided by the number of micro-batches. The number of samples is due.",
        ),
    ),
    accept=(
        lambda means, counts: np.average(means, axis=0, weights=counts),
        lambda means, counts: np.tensordot(np.array(counts) / sum(counts), np.stack(means), axes=1),
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    GRADIENT_VARIANCE,
    MICRO_BATCHES,
)
