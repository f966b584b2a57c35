"""Exercises of chapter 9 on condition numbers, accumulators and loss scaling."""

import math
from typing import Any

import numpy as np

from labsupport.grading import Case, Choice, Exercise, Function, Mistake, Number, Option, Tolerance
from labsupport.ops.floats import FP16, FP32

CONDITION_DIGITS = Number(
    id="condition-digits",
    chapter=9,
    section="9.7",
    title="What a condition number leaves",
    level="easy",
    prompt="A matrix has a condition number of $10^4$ and its entries are rounded to FP32, with $u = 2^{-24}$. What "
    "relative error of the solution must you expect from the rounding of the entries alone? Two digits.",
    hints=("The expected error is $\\kappa u$.", "$2^{-24}$ is about $6 \\cdot 10^{-8}$."),
    expected=1e4 * FP32.eps / 2,
    rtol=0.02,
    mistakes=(
        Mistake(name="no-condition", answer=2.0**-24, message="That is the rounding itself, not what the problem makes "
                "of it."),
        Mistake(name="divided", answer=2.0**-24 / 1e4, message="A condition number enlarges errors."),
        Mistake(name="float64", answer=1e4 * 2.0**-53, message="That is float64."),
    ),
)  # fmt: skip


def _scaler_step(scale: float, good: int, finite: bool, interval: int) -> tuple[float, int, bool]:
    if not finite:
        return scale / 2, 0, False
    if good + 1 == interval:
        return scale * 2, 0, True
    return scale, good + 1, True


def _scaler_slip(kind: str) -> Any:
    def step(scale: float, good: int, finite: bool, interval: int) -> tuple[float, int, bool]:
        if not finite:
            return (
                scale if kind == "never-falls" else scale / 2,
                good if kind == "count-kept" else 0,
                kind == "applied-anyway",
            )
        good += 1
        if good > interval if kind == "one-late" else good >= interval:
            return scale * 2, good if kind == "count-not-reset" else 0, True
        return scale, good, True

    return step


def _scaler_cases(rng: np.random.Generator) -> list[Case]:
    power = int(rng.integers(5, 20))
    rows = [
        (2.0**16, 5, True, 2000),
        (2.0**16, 1999, True, 2000),
        (2.0**16, 1998, True, 2000),
        (2.0**16, 700, False, 2000),
        (2.0**16, 1999, False, 2000),
        (8.0, 0, True, 1),
        (2.0**power, 3, True, 10),
        (2.0**power, 9, True, 10),
        (2.0**power, 4, False, 10),
        (1.0, 3, False, 10),
    ]
    words = {True: "all finite", False: "not finite"}
    return [Case(args=row, label=f"{words[row[2]]}, interval {row[3]}") for row in rows]


LOSS_SCALER_STEP = Function(
    id="loss-scaler-step",
    chapter=9,
    section="9.9",
    title="One step of dynamic loss scaling",
    level="medium",
    checklist=(16,),
    prompt="Write `step(scale, good, finite, interval)` of dynamic loss scaling: the tuple (new scale, new count of "
    "good steps, whether the update is applied).",
    contract=(
        "`scale`: float; `good`: good steps in a row so far; `finite`: whether all gradients are finite; `interval`: "
        "good steps after which the scale doubles. A bad step halves the scale and sets the count to 0; doubling sets "
        "the count to 0 as well."
    ),
    hints=(
        "Treat the bad step first: three things happen.",
        "A good step counts itself. When the count reaches the interval, double and start again.",
    ),
    oracle=_scaler_step,
    cases=_scaler_cases,
    tolerance=Tolerance(c=1),
    mistakes=(
        Mistake(
            name="applied-anyway",
            answer=_scaler_slip("applied-anyway"),
            message="A step with an infinite gradient is skipped: applied, it would ruin the weights.",
        ),
        Mistake(name="never-falls", answer=_scaler_slip("never-falls"), message="After an overflow the scale falls."),
        Mistake(
            name="count-kept",
            answer=_scaler_slip("count-kept"),
            message="Good steps are counted in a row: an overflow starts the count again.",
        ),
        Mistake(
            name="count-not-reset",
            answer=_scaler_slip("count-not-reset"),
            message="After doubling, the count starts again; otherwise the scale doubles on every step.",
        ),
        Mistake(name="one-late", answer=_scaler_slip("one-late"), message="The present step counts as well."),
    ),
)

LOSS_SCALE_LIMIT = Number(
    id="loss-scale-limit",
    chapter=9,
    section="9.9",
    title="The largest scale that fits",
    level="medium",
    checklist=(16,),
    prompt="The largest unscaled gradient of a step is 3.0. Which is the largest power of two that may be used as loss "
    "scale so that no FP16 gradient overflows?",
    hints=(
        "The largest finite FP16 number is 65504.",
        "65504/3 is about 21,835. Take the power of two below.",
    ),
    expected=2.0 ** math.floor(math.log2(FP16.max / 3)),
    exact=True,
    mistakes=(
        Mistake(name="next", answer=2.0**15, message="Three times your scale is beyond the largest FP16 number."),
        Mistake(name="for-one", answer=2.0**16, message="That is beyond FP16 even for a gradient of 1."),
        Mistake(name="too-careful", answer=2.0**13, message="It fits, but twice as much fits as well."),
        Mistake(name="exponent", answer=14.0, message="You gave the exponent. The scale is two to that power."),
        Mistake(name="no-power", answer=21834.0, message="It fits, but it is no power of two, so scaling would round."),
    ),
)

ACCUMULATOR_CHOICE = Choice(
    id="accumulator-choice",
    chapter=9,
    section="9.8",
    title="Where the digits go",
    level="easy",
    checklist=(15,),
    prompt="A projection with K = 8192 has inputs in BF16. Which configuration costs the most accuracy?",
    hints=(
        "How many roundings does a term pass in each of them?",
        "One rounding of an input costs $u$ once; a running sum rounds K times.",
    ),
    options={
        "a": Option("FP32 accumulator, BF16 output", "One rounding at the end, however long the sum."),
        "b": Option("BF16 accumulator, FP32 output", "Every one of the additions rounds to 8 bits.", correct=True),
        "c": Option("FP32 accumulator, FP32 output", "Only the inputs are rounded, and FP32 sums."),
        "d": Option("FP16 inputs, FP32 accumulator, FP16 output", "Two roundings of 11 bits, and FP32 sums."),
    },
)

EXERCISES: tuple[Exercise, ...] = (
    CONDITION_DIGITS,
    ACCUMULATOR_CHOICE,
    LOSS_SCALE_LIMIT,
    LOSS_SCALER_STEP,
)
