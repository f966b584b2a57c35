"""Exercises of chapter 11 on comparing a kernel with a reference, and on percentiles of times."""

import math

import numpy as np

from labsupport.grading import Case, Exercise, Function, Mistake, Tolerance

Array = np.ndarray


def _agree(x: Array, reference: Array, factor: float) -> bool:
    scale = float(np.abs(reference).max())
    return bool((np.abs(x.astype(np.float64) - reference) <= factor * np.finfo(x.dtype).eps * scale).all())


def _agree_cases(rng: np.random.Generator) -> list[Case]:
    r = rng.normal(size=(3, 4))
    r[0, 0] = 3.0
    eps32, eps64 = float(np.finfo(np.float32).eps), float(np.finfo(np.float64).eps)
    one_off = r.astype(np.float32)
    one_off[2, 3] += np.float32(200 * eps32 * 3)
    below = r.astype(np.float32)
    below[1, 1] -= np.float32(200 * eps32 * 3)
    with_nan = r.copy()
    with_nan[1, 2] = np.nan
    near_zero = r.copy()
    near_zero[1, 0] = 0.0
    moved = near_zero.copy()
    moved[1, 0] = 10 * eps64
    wide = np.array([[-1000.0, 1.0], [2.0, 3.0]])  # its largest magnitude is that of a negative element
    near = wide.astype(np.float32)
    near[0, 1] += np.float32(4096 * eps32)
    within = r.astype(np.float32)
    within[2, 3] += np.float32(60 * eps32)
    level = np.ones((3, 4))
    apart = level.copy()
    apart[1, 1] += 60 * eps64
    tie = np.array([2.0, 1 + 0.9 * 2.0**-24])
    infinite = r.copy()
    infinite[2, 2] = np.inf
    return [
        Case(args=(r.astype(np.float32), r, 32.0), label="the reference rounded to float32"),
        Case(args=(r.copy(), r, 32.0), label="the reference itself"),
        Case(args=(one_off, r, 32.0), label="float32, one element 200 eps too large"),
        Case(args=(below, r, 32.0), label="float32, one element 200 eps too small"),
        Case(args=(r + 1e-9, r, 32.0), label="float64, all elements off by 1e-9"),
        Case(args=(with_nan, r, 32.0), label="float64, one NaN"),
        Case(args=(moved, near_zero, 32.0), label="float64, 10 eps where the reference is 0"),
        Case(args=(near, wide, 32.0), label="float32, an error of 4096 eps beside an element of -1000"),
        Case(args=(within, r, 32.0), label="float32, an error of 60 eps beside an element of 3"),
        Case(args=(apart, level, 32.0), label="float64, twelve ones, one of them off by 60 eps"),
        Case(
            args=(np.array([1.0, 0.5 + 32 * eps64]), np.array([1.0, 0.5]), 32.0),
            label="float64, an error exactly on the limit",
        ),
        Case(args=(tie.astype(np.float32), tie, 0.2), label="float32, a limit below half a unit in the last place"),
        Case(args=(infinite, r, 32.0), label="float64, one infinity"),
    ]


KERNELS_AGREE = Function(
    id="kernels-agree",
    chapter=11,
    section="11.8",
    title="Do two kernels agree?",
    prompt=(
        "Write `agree(x, reference, factor)`: whether every element of `x` lies within "
        "factor · eps · max|reference| of the reference, with the eps of **x**'s dtype."
    ),
    contract=(
        "`x`: float32 or float64, a kernel's result; `reference`: float64, same shape, at least one element not 0, "
        "finite; "
        "`factor` > 0. A NaN in `x` never agrees. Result: a bool."
    ),
    hints=(
        "`np.finfo(x.dtype).eps` is the relative spacing of x's dtype.",
        "The worst element decides, and the error has no sign.",
        "A comparison with NaN is False. Ask whether all elements are within, not whether any is beyond.",
    ),
    level="medium",
    checklist=(15,),
    oracle=_agree,
    cases=_agree_cases,
    tolerance=Tolerance(c=1, depth=1),
    upcast=False,
    mistakes=(
        Mistake(
            name="eps-of-reference",
            answer=lambda x, r, f: bool((np.abs(x - r) <= f * np.finfo(np.float64).eps * np.abs(r).max()).all()),
            message="You used the eps of the reference's dtype: a correct float32 kernel can never meet that.",
        ),
        Mistake(
            name="float32-always",
            answer=lambda x, r, f: bool((np.abs(x - r) <= f * np.finfo(np.float32).eps * np.abs(r).max()).all()),
            message="You used float32's eps for every dtype: a float64 kernel that is wrong in the tenth digit passes.",
        ),
        Mistake(
            name="mean",
            answer=lambda x, r, f: bool(
                np.abs(x.astype(np.float64) - r).mean() <= f * np.finfo(x.dtype).eps * np.abs(r).max()
            ),
            message="You compared the mean error. One wrong element among many must not pass.",
        ),
        Mistake(
            name="signed",
            answer=lambda x, r, f: bool(
                ((x.astype(np.float64) - r) <= f * np.finfo(x.dtype).eps * np.abs(r).max()).all()
            ),
            message="The error keeps its sign in your comparison, so a result that is too small always passes.",
        ),
        Mistake(
            name="nan-passes",
            answer=lambda x, r, f: not bool((np.abs(x - r) > f * np.finfo(x.dtype).eps * np.abs(r).max()).any()),
            message="A NaN passes: every comparison with it is False, also 'greater'. Ask whether all are within.",
        ),
        Mistake(
            name="no-scale",
            answer=lambda x, r, f: bool((np.abs(x.astype(np.float64) - r) <= f * np.finfo(x.dtype).eps).all()),
            message="Your limit does not grow with the reference. Rounding errors are relative: scale eps by its "
            "largest magnitude.",
        ),
        Mistake(
            name="signed-scale",
            answer=lambda x, r, f: bool(
                (np.abs(x.astype(np.float64) - r) <= f * np.finfo(x.dtype).eps * r.max()).all()
            ),
            message="You took the largest element, sign and all. The scale is the largest magnitude.",
        ),
        Mistake(
            name="norm-as-scale",
            answer=lambda x, r, f: bool(
                (np.abs(x.astype(np.float64) - r) <= f * np.finfo(x.dtype).eps * np.linalg.norm(r)).all()
            ),
            message="You took the norm of the whole reference as scale. It grows with the number of elements.",
        ),
        Mistake(
            name="scale-of-the-result",
            answer=lambda x, r, f: bool(
                (np.abs(x.astype(np.float64) - r) <= f * np.finfo(x.dtype).eps * np.abs(x).max()).all()
            ),
            message="You scaled by the result under test. A result that is infinite then allows itself everything.",
        ),
        Mistake(
            name="compared-in-x-dtype",
            answer=lambda x, r, f: bool(
                (np.abs(x - r.astype(x.dtype)) <= f * np.finfo(x.dtype).eps * np.abs(r).max()).all()
            ),
            message="You rounded the reference to the dtype of x before you compared, and lost what it knew better.",
        ),
        Mistake(
            name="strict",
            answer=lambda x, r, f: bool(
                (np.abs(x.astype(np.float64) - r) < f * np.finfo(x.dtype).eps * np.abs(r).max())[x != r].all()
            ),
            message="An error exactly on the limit lies within it.",
        ),
        Mistake(
            name="relative-each",
            answer=lambda x, r, f: bool(
                (np.abs(x.astype(np.float64) - r) <= f * np.finfo(x.dtype).eps * np.abs(r)).all()
            ),
            message="You took each element's own size as the scale. Where the reference is 0 nothing but 0 would "
            "agree.",
        ),
    ),
    accept=(lambda x, r, f: np.max(np.abs(x.astype(np.float64) - r)) <= f * np.finfo(x.dtype).eps * np.max(np.abs(r)),),
)


def _rank(times: Array, q: float) -> float:
    ordered = np.sort(times)
    return float(ordered[int(np.ceil(q / 100 * len(ordered) - 1e-9)) - 1])


def _rank_cases(rng: np.random.Generator) -> list[Case]:
    hundred = rng.permutation(100) + 1.0
    tail = rng.permutation(np.array([10.0] * 90 + [100.0] * 10))
    drawn = rng.exponential(size=37)
    return [
        Case(args=(hundred, 50), label="100 different times, q = 50"),
        Case(args=(hundred, 95), label="100 different times, q = 95"),
        Case(args=(drawn, 99), label="37 times, q = 99"),
        Case(args=(drawn, 50), label="37 times, q = 50"),
        Case(args=(tail, 95), label="90 fast runs and 10 slow ones, q = 95"),
        Case(args=(np.array([3.0, 1.0]), 50), label="two times, q = 50"),
        Case(args=(np.array([7.0]), 99), label="one time, q = 99"),
        Case(args=(drawn, 100), label="37 times, q = 100"),
        Case(args=(hundred, 7), label="100 different times, q = 7"),
        Case(args=(rng.permutation(1000) + 1.0, 99), label="1000 different times, q = 99"),
    ]


NEAREST_RANK = Function(
    id="nearest-rank",
    chapter=11,
    section="11.9",
    title="A percentile that was measured",
    prompt="Write `percentile(times, q)` by the nearest-rank rule: the $\\lceil qN/100 \\rceil$-th smallest of N "
    "times.",
    contract="`times`: (N,) float64, N ≥ 1, any order, not to be changed; `q`: an integer in 1..100. Result: a float.",
    hints=(
        "Sort a copy. The rank counts from 1, an index from 0.",
        "`math.ceil(q * N / 100)`; with q an integer the product is exact.",
    ),
    level="easy",
    oracle=_rank,
    cases=_rank_cases,
    tolerance=Tolerance(c=2, depth=1),
    mistakes=(
        Mistake(
            name="off-by-one",
            answer=lambda t, q: float(np.sort(t)[min(len(t) - 1, int(np.ceil(q / 100 * len(t) - 1e-9)))]),
            message="The rank counts from 1, an index from 0: you are one place too far.",
        ),
        Mistake(
            name="quotient-rounded",
            answer=lambda t, q: float(np.sort(t)[int(np.ceil(q / 100 * len(t))) - 1]),
            message="`q / 100` is rounded, and the ceiling turns the last bit into a whole rank: 0.07 times 100 is a "
            "little above 7. `np.percentile` does the same. Multiply first, divide then.",
        ),
        Mistake(
            name="unsorted",
            answer=lambda t, q: float(t[int(np.ceil(q / 100 * len(t) - 1e-9)) - 1]),
            message="The times are in the order of measurement. Sort a copy first.",
        ),
        Mistake(
            name="interpolated",
            answer=lambda t, q: float(np.percentile(t, q)),
            message="NumPy's default lies between two measured values. Nearest rank returns a time that occurred.",
        ),
        Mistake(name="mean", answer=lambda t, q: float(t.mean()), message="This is the mean, whatever q is."),
        Mistake(
            name="from-the-top",
            answer=lambda t, q: float(np.sort(t)[::-1][int(np.ceil(q / 100 * len(t) - 1e-9)) - 1]),
            message="You counted from the slowest run. p99 has 99 percent of the runs at or below it.",
        ),
    ),
    accept=(
        lambda t, q: np.sort(t)[math.ceil(q * len(t) / 100) - 1],
        lambda t, q: sorted(t)[-(-q * len(t) // 100) - 1],
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    KERNELS_AGREE,
    NEAREST_RANK,
)
