"""The exercise of chapter 5 on online softmax: two states of a row merged into one."""

import math
from typing import Any

import numpy as np

from labsupport.grading import Case, Exercise, Function, Mistake, Tolerance
from labsupport.grading.shorthand import quiet
from labsupport.ops import softmax as ops


def _state(z: Any) -> tuple[float, float]:
    m, l = ops.online_state(z)
    return float(m), float(l)


def _merge(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    m, l = ops.online_merge(a, b)
    return float(m), float(l)


def _merge_cases(rng: np.random.Generator) -> list[Case]:
    low, high = _state(rng.normal(-3, 1, 5)), _state(rng.normal(3, 1, 7))
    empty = (-math.inf, 0.0)
    return [
        Case(args=(low, high), label="the larger maximum in b"),
        Case(args=(high, low), label="the larger maximum in a"),
        Case(args=(high, (high[0], 2.5)), label="equal maxima"),
        Case(args=(_state(1000 + rng.normal(size=4)), _state(1001 + rng.normal(size=4))), label="logits near 1000"),
        Case(args=(_state(rng.normal(size=4) - 1000), _state(rng.normal(size=4) - 999)), label="logits near -1000"),
        Case(args=(low, empty), label="b is empty"),
        Case(args=(empty, high), label="a is empty"),
        Case(args=(empty, empty), label="both are empty"),
    ]


def _merge_slip(scale_a: Any, scale_b: Any) -> Any:
    """A merge whose two sums are scaled by given functions of (own maximum, new maximum)."""

    def merge(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
        m = max(a[0], b[0])
        if m == -math.inf:
            return m, 0.0
        with np.errstate(all="ignore"):
            return m, float(a[1] * scale_a(a[0], m) + b[1] * scale_b(b[0], m))

    return merge


def _right_scale(old: float, new: float) -> Any:
    return np.exp(old - new)


def _by_logsumexp(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    """Another right form: the new sum from the two log-sum-exps."""
    m = max(a[0], b[0])
    if m == -math.inf:
        return m, 0.0
    return m, sum(math.exp(s[0] + math.log(s[1]) - m) for s in (a, b) if s[1] > 0)


ONLINE_MERGE = Function(
    id="online-merge",
    chapter=5,
    section="5.10",
    title="Merging two softmax states",
    prompt=(
        "A state `(m, l)` holds the maximum of a block of logits and the sum of `exp(z - m)`. Write `merge(a, b)`: "
        "the state of both blocks together."
    ),
    contract=(
        "`a`, `b`: tuples of two floats. Either or both may be the empty state `(-inf, 0.0)`. Result: a tuple "
        "`(m, l)` of two floats; never NaN."
    ),
    hints=(
        "Both sums must refer to the same maximum before they are added. Which one is safe?",
        "A sum that refers to $m_a$ is brought to $m$ by the factor $e^{m_a-m}$, which is at most 1.",
        "Two empty blocks: $-\\infty - (-\\infty)$ is NaN. Return the empty state before you subtract.",
    ),
    checklist=(9, 17),
    points=2,
    level="medium",
    oracle=_merge,
    cases=_merge_cases,
    tolerance=Tolerance(
        c=4, depth=2, scale=lambda a, b: 1 + max(abs(x) for x in (*a, *b) if math.isfinite(x) or x == 0)
    ),
    mistakes=(
        Mistake(
            name="no-rescaling",
            answer=_merge_slip(lambda old, new: 1.0, lambda old, new: 1.0),
            message="You added two sums that refer to different maxima. Rescale each to the common maximum first.",
        ),
        Mistake(
            name="wrong-way-round",
            answer=_merge_slip(lambda old, new: np.exp(new - old), lambda old, new: np.exp(new - old)),
            message="Your factors are at least 1: the exponent is the old maximum minus the new one, never positive.",
        ),
        Mistake(
            name="only-a-rescaled",
            answer=_merge_slip(_right_scale, lambda old, new: 1.0),
            message="You rescale only the first sum. Whichever block has the smaller maximum needs it.",
        ),
        Mistake(
            name="only-b-rescaled",
            answer=_merge_slip(lambda old, new: 1.0, _right_scale),
            message="You rescale only the second sum. Whichever block has the smaller maximum needs it.",
        ),
        Mistake(
            name="nan-when-both-empty",
            answer=quiet(
                lambda a, b: (
                    max(a[0], b[0]),
                    float(
                        a[1] * np.exp(np.subtract(a[0], max(a[0], b[0])))
                        + b[1] * np.exp(np.subtract(b[0], max(a[0], b[0])))
                    ),
                )
            ),
            message="Right, except for two empty blocks: -inf minus -inf is NaN. Such a merge must stay the empty "
            "state.",
        ),
        Mistake(
            name="unshifted",
            answer=quiet(
                lambda a, b: (
                    max(a[0], b[0]),
                    float((a[1] * np.exp(a[0]) + b[1] * np.exp(b[0])) / np.exp(max(a[0], b[0]))),
                )
            ),
            message="You went back to the full exponentials, which overflow (or vanish) far from 0. Only differences "
            "of maxima may be exponentiated.",
        ),
    ),
    accept=(
        _by_logsumexp,
        lambda a, b: ops.online_merge(a, b),
        _merge_slip(_right_scale, _right_scale),
    ),
)

EXERCISES: tuple[Exercise, ...] = (ONLINE_MERGE,)
