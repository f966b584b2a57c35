"""Exercises of chapter 9 on the variance in one pass: Welford's update, and the merge of two states."""

import math
from typing import Any

import numpy as np

from labsupport.grading import Case, Exercise, Function, Mistake, Tolerance
from labsupport.ops import reductions

Array = np.ndarray


def _welford(x: Array) -> tuple[float, float]:
    state = reductions.Welford()
    for value in np.asarray(x):
        state.push(value)
    return state.mean, state.variance


def _exact_moments(x: Array) -> tuple[float, float]:
    """Mean and population variance of the values as they are stored, to float64's last digits."""
    values = np.asarray(x, np.float64)
    mean = math.fsum(values) / values.size
    return mean, math.fsum((values - mean) ** 2) / values.size - (math.fsum(values - mean) / values.size) ** 2


def _variance_cases(rng: np.random.Generator) -> list[Case]:
    return [
        Case(args=(rng.normal(size=12),), label="float64 (12,)"),
        Case(args=(np.array([4.0, 7.0, 13.0, 16.0]),), label="float64 (4,), small whole numbers"),
        Case(args=(1e8 + np.array([4.0, 7.0, 13.0, 16.0]),), label="float64 (4,), mean near 1e8"),
        Case(args=(1e8 + rng.normal(size=40),), label="float64 (40,), mean near 1e8"),
        Case(args=(-1e9 + rng.normal(size=25),), label="float64 (25,), mean near -1e9"),
        Case(args=((100 + rng.normal(size=30)).astype(np.float32),), label="float32 (30,), mean near 100"),
        Case(args=(rng.normal(size=21)[::-2],), label="float64 (11,), reversed, every second element"),
        Case(args=(np.full(9, 0.1),), label="float64 (9,), all equal"),
        Case(args=(np.array([3.5]),), label="float64 (1,)"),
    ]


def _variance_scale(x: Array) -> float:
    """Rounding of the data, seen through the mean: |μ|·max(1, σ), and at least 1 spread squared."""
    values = np.asarray(x, np.float64)
    return max(1.0, float(np.abs(values).max())) * max(1.0, float(values.std()))


def _push_slip(kind: str) -> Any:
    def welford(x: Array) -> tuple[float, float]:
        n, mean, m2 = 0, 0.0, 0.0
        for value in np.asarray(x, np.float64):
            n += 1
            delta = value - mean
            mean += delta / n
            m2 += (
                delta * delta
                if kind == "old-twice"
                else (value - mean) ** 2
                if kind == "new-twice"
                else (delta * (value - mean))
            )
        divisor = {"sample": max(n - 1, 1), "sum": 1}.get(kind, n)
        spread = m2 / divisor
        return mean, math.sqrt(spread) if kind == "deviation" else spread

    return welford


def _naive_moments(x: Array) -> tuple[float, float]:
    values = np.asarray(x, np.float64)
    return float(values.mean()), float((values * values).mean() - values.mean() ** 2)


def _shifted_naive(x: Array) -> tuple[float, float]:
    """Another right way in one pass: shift by the first value, then the naive formula."""
    values = np.asarray(x, np.float64)
    d = values - values[0]
    return float(values[0] + d.mean()), float((d * d).mean() - d.mean() ** 2)


def _two_pass_moments(x: Array) -> tuple[float, float]:
    """Right values by reading twice: the judge sees values, and the prompt says what a pass is."""
    values = np.asarray(x, np.float64)
    mean = float(values.mean())
    return mean, float(((values - mean) ** 2).mean())


WELFORD = Function(
    id="welford",
    chapter=9,
    section="9.6",
    title="Mean and variance in one pass",
    level="medium",
    points=2,
    checklist=(8,),
    prompt="Write `welford(x)`: the tuple (mean, population variance) of a vector, in one pass, also when the mean is "
    "large.",
    contract=(
        "`x`: float32 or float64, shape (n,), n ≥ 1, read once from left to right. The population variance divides by "
        "n. Result: two floats."
    ),
    hints=(
        "Carry three numbers: n, the mean so far and the sum of squared deviations M2.",
        "`delta = x - mean`, then `mean += delta / n`. Which mean belongs into the second factor of M2?",
        "`M2 += delta * (x - mean)` with the new mean. At the end divide M2 by n.",
    ),
    oracle=_welford,
    reference=_exact_moments,
    cases=_variance_cases,
    tolerance=Tolerance(c=4, depth=8, scale=_variance_scale),
    forbidden_calls=("np.var", "np.std", ".var", ".std", "statistics.pvariance", "statistics.variance"),
    mistakes=(
        Mistake(
            name="naive",
            answer=_naive_moments,
            message="The mean of squares minus the squared mean cancels when the mean is large.",
        ),
        Mistake(
            name="sample-variance",
            answer=_push_slip("sample"),
            message="You divided by n - 1, which estimates the variance of a larger population. Here all of it is "
            "given: divide by n.",
        ),
        Mistake(
            name="old-mean-twice",
            answer=_push_slip("old-twice"),
            message="Both of your factors use the old mean. The second one uses the new mean.",
        ),
        Mistake(
            name="new-mean-twice",
            answer=_push_slip("new-twice"),
            message="Both of your factors use the new mean. The first one uses the old mean.",
        ),
        Mistake(name="not-divided", answer=_push_slip("sum"), message="You returned M2, the sum. Divide it by n."),
        Mistake(
            name="standard-deviation",
            answer=_push_slip("deviation"),
            message="You returned the standard deviation, which is the root of the variance.",
        ),
    ),
    accept=(_shifted_naive, _two_pass_moments),
)

State = tuple[int, float, float]


def _merge(a: State, b: State) -> State:
    merged = reductions.Welford(*a).merge(reductions.Welford(*b))
    return merged.n, merged.mean, merged.M2


def _state(x: Array) -> State:
    return len(x), float(np.mean(x)) if len(x) else 0.0, float(((x - np.mean(x)) ** 2).sum()) if len(x) else 0.0


def _state_cases(rng: np.random.Generator) -> list[Case]:
    empty: State = (0, 0.0, 0.0)
    a, b = _state(rng.normal(size=7)), _state(2 + rng.normal(size=12))
    return [
        Case(args=(a, b), label="states of 7 and 12 numbers"),
        Case(args=((2, 1.0, 2.0), (3, 6.0, 8.0)), label="a small one, by hand"),
        Case(args=(_state(rng.normal(size=5)), _state(rng.normal(size=5))), label="states of one size"),
        Case(args=(_state(1e6 + rng.normal(size=9)), _state(1e6 + rng.normal(size=4))), label="means near 1e6"),
        Case(args=(a, empty), label="b is empty"),
        Case(args=(empty, b), label="a is empty"),
        Case(args=(empty, empty), label="both are empty"),
        Case(args=((1, 3.0, 0.0), (1, 5.0, 0.0)), label="two single numbers"),
    ]


def _merge_slip(kind: str) -> Any:
    def merge(a: State, b: State) -> State:
        n = a[0] + b[0]
        if n == 0:
            return 0, 0.0, 0.0
        delta = b[1] - a[1]
        mean = a[1] + delta * b[0] / n
        between = delta * delta * a[0] * b[0] / n
        if kind == "mean-of-means":
            mean = (a[1] + b[1]) / 2
        elif kind == "weights-swapped":
            mean = a[1] + delta * a[0] / n
        elif kind == "no-between":
            between = 0.0
        elif kind == "between-not-divided":
            between *= n
        elif kind == "not-squared":
            between = delta * a[0] * b[0] / n
        return n, mean, a[2] + b[2] + between

    return merge


def _merge_without_guard(a: State, b: State) -> State:
    with np.errstate(all="ignore"):
        n = np.float64(a[0] + b[0])
        delta = b[1] - a[1]
        return int(n), float(a[1] + delta * b[0] / n), float(a[2] + b[2] + delta * delta * a[0] * b[0] / n)


def _merge_weighted(a: State, b: State) -> State:
    """The weighted mean instead of the shifted one."""
    n = a[0] + b[0]
    if n == 0:
        return 0, 0.0, 0.0
    mean = (a[0] * a[1] + b[0] * b[1]) / n
    return n, mean, a[2] + b[2] + a[0] * (a[1] - mean) ** 2 + b[0] * (b[1] - mean) ** 2


def _merge_scale(a: State, b: State) -> float:
    size = max(1.0, abs(a[1]), abs(b[1]))
    return size * max(1.0, abs(b[1] - a[1])) * max(1, a[0] + b[0]) + a[2] + b[2]


WELFORD_MERGE = Function(
    id="welford-merge",
    chapter=9,
    section="9.6",
    title="Merging two Welford states",
    level="medium",
    points=2,
    checklist=(17,),
    prompt="A state `(n, mean, M2)` holds the count of a block, its mean and its sum of squared deviations. Write "
    "`merge(a, b)`: the state of both blocks together.",
    contract=(
        "`a`, `b`: tuples of an int and two floats. Either or both may be the empty state `(0, 0.0, 0.0)`. Result: a "
        "tuple `(n, mean, M2)`; never NaN."
    ),
    hints=(
        "The mean of both is a weighted mean. Which weights?",
        "M2 of both is more than the sum: the two means differ. By how much does that spread the numbers?",
        "The missing term is $\\delta^2 n_a n_b / n$. Two empty states must not divide by 0.",
    ),
    oracle=_merge,
    cases=_state_cases,
    tolerance=Tolerance(c=8, scale=_merge_scale),
    mistakes=(
        Mistake(
            name="mean-of-means",
            answer=_merge_slip("mean-of-means"),
            message="You averaged the two means. Blocks of different sizes weigh differently.",
        ),
        Mistake(
            name="weights-swapped",
            answer=_merge_slip("weights-swapped"),
            message="Your weights are the wrong way round: the step from a's mean is b's share of the numbers.",
        ),
        Mistake(
            name="no-between",
            answer=_merge_slip("no-between"),
            message="You added the two M2 alone. The distance between the two means spreads the numbers too.",
        ),
        Mistake(
            name="between-not-divided",
            answer=_merge_slip("between-not-divided"),
            message="The term between the blocks is divided by the count of both.",
        ),
        Mistake(
            name="not-squared",
            answer=_merge_slip("not-squared"),
            message="The distance of the means enters squared; M2 has the square of the unit.",
        ),
        Mistake(
            name="nan-when-both-empty",
            answer=_merge_without_guard,
            message="Right, except for two empty states: the count is 0 and you divide by it.",
        ),
    ),
    accept=(_merge_weighted, _merge_slip("none")),
)

EXERCISES: tuple[Exercise, ...] = (
    WELFORD,
    WELFORD_MERGE,
)
