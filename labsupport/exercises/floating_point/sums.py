"""Exercises of chapter 9 on long sums: orders, Kahan's sum, and why bits differ."""

import math
from typing import Any

import numpy as np

from labsupport.grading import Case, Exercise, Function, Mistake, Tolerance, Written
from labsupport.grading.shorthand import quiet
from labsupport.ops import reductions

Array = np.ndarray


def _sum32(x: Array) -> float:
    return float(np.asarray(x).astype(np.float32).sum(dtype=np.float32))


def _half_vectors(rng: np.random.Generator) -> list[tuple[str, Array]]:
    small = np.concatenate([[1.0], np.full(1000, 1e-3)]).astype(np.float16)
    return [
        ("float16 (300,), positive", rng.uniform(0.1, 1, 300).astype(np.float16)),
        ("float16 (1001,), a 1 and then 1e-3", small),
        ("float16 (1001,), 1e-3 and then a 1", small[::-1]),
        ("float16 (4096,), all ones", np.ones(4096, np.float16)),
        ("float16 (4, ), 2048 + 1 + 1 + 1", np.array([2048, 1, 1, 1], np.float16)),
        ("float16 (1000,), all 100: beyond 65504", np.full(1000, 100, np.float16)),
        ("float16 (500,), both signs", rng.normal(size=500).astype(np.float16)),
        ("float16 (258,), large terms that cancel", np.array([4096, *[1] * 256, -4096], np.float16)),
        ("float16 (1,)", np.array([0.1], np.float16)),
        ("float16 (200,), every second element", rng.uniform(0.1, 1, 400).astype(np.float16)[::2]),
    ]


def _half_cases(rng: np.random.Generator) -> list[Case]:
    return [Case(args=(x,), label=label) for label, x in _half_vectors(rng)]


def _fp32_bound(x: Array) -> float:
    """The error allowed, through the eps of float16 that the judge multiplies with: 32 roundings of FP32."""
    return 32 * float(np.abs(np.asarray(x, np.float64)).sum()) * 2.0**-24 / 2.0**-10


def _half_loop(x: Array, order: Any = iter) -> np.float16:
    total = np.float16(0)
    for value in order(list(x)):
        total = np.float16(total + value)
    return total


def _half_kahan(x: Array) -> Any:
    return reductions.sum_kahan(x)


BEST_SUM = Function(
    id="sum-orders",
    chapter=9,
    section="9.4",
    title="A float16 sum that does not stall",
    level="medium",
    points=2,
    checklist=(15, 17),
    prompt="Write `best_sum(x)`: the sum of a float16 vector, with an error as small as that of a float32 accumulator.",
    contract=(
        "`x`: float16, shape (n,), n from 1 to 4096, in any order. Result: a float32, a float64 or a Python float; "
        "float16 could not hold it. The error is at most 32 roundings of float32 against the sum of magnitudes."
    ),
    hints=(
        "In which format is the running sum kept, and in which is the result returned?",
        "`x.sum()` returns float16, whatever it uses inside. Look at `dtype=`.",
        "A wider accumulator: convert, or sum with `dtype=np.float32`. `float(total)` at the end keeps it.",
    ),
    oracle=_sum32,
    reference=lambda x: math.fsum(np.asarray(x, np.float64)),
    cases=_half_cases,
    tolerance=Tolerance(c=1, scale=_fp32_bound),
    upcast=False,
    mistakes=(
        Mistake(
            name="float16-loop",
            answer=quiet(lambda x: float(_half_loop(x))),
            message="Your running sum is a float16: it stalls when a term is below half its spacing.",
        ),
        Mistake(
            name="small-first",
            answer=quiet(lambda x: float(_half_loop(x, lambda v: sorted(v, key=abs)))),
            message="Sorting helps, but the running sum is still a float16, and it still stalls.",
        ),
        Mistake(
            name="sorted-by-value",
            answer=quiet(lambda x: float(_half_loop(x, sorted))),
            message="Sorting by value puts small terms first only where all are positive, and the running sum is "
            "still a float16: it still stalls.",
        ),
        Mistake(
            name="float16-tree",
            answer=quiet(lambda x: float(reductions.sum_pairwise(np.asarray(x)))),
            message="A tree in float16 loses less than a loop. Each of its additions still rounds to 11 bits.",
        ),
        Mistake(
            name="float16-kahan",
            answer=quiet(lambda x: float(_half_kahan(np.asarray(x)))),
            message="Kahan's sum in float16 carries the lost parts, but its result is rounded to float16.",
        ),
        Mistake(
            name="rounded-at-the-end",
            answer=quiet(lambda x: float(np.asarray(x).astype(np.float32).sum().astype(np.float16))),
            message="You summed in a wider format and rounded the result to float16 again.",
        ),
    ),
    accept=(
        lambda x: x.astype(np.float32).sum(),
        lambda x: x.astype(np.float64).sum(),
        lambda x: math.fsum(x.tolist()),
        lambda x: np.sum(x, dtype=np.float32),
        lambda x: reductions.sum_serial(x.astype(np.float32)),
        lambda x: reductions.sum_pairwise(x.astype(np.float32)),
        lambda x: float(sum(float(v) for v in x)),
    ),
)


def _kahan_cases(rng: np.random.Generator) -> list[Case]:
    vectors = [
        ("float32 (2001,), a 1 and then 1e-8", np.concatenate([[1], np.full(2000, 1e-8)])),
        ("float32 (1500,), positive", rng.uniform(0.5, 1, 1500)),
        ("float32 (3,), 2^24 + 1 + 1", np.array([2.0**24, 1, 1])),
        ("float32 (401,), 1000 and then 1e-5", np.concatenate([[1000], np.full(400, 1e-5)])),
        ("float32 (700,), all 0.1", np.full(700, 0.1)),
        ("float32 (1,)", np.array([0.1])),
    ]
    return [Case(args=(x.astype(np.float32),), label=label) for label, x in vectors]


def _magnitude(x: Array) -> float:
    return float(np.abs(np.asarray(x, np.float64)).sum())


def _kahan_slip(kind: str) -> Any:
    def kahan(x: Array) -> Any:
        total = compensation = np.float32(0)
        for value in x:
            y = value + compensation if kind == "sign" else value - compensation
            t = total + y
            compensation = (t - total) - value if kind == "forgotten" else (t - total) - y
            if kind == "late":
                total = t
                compensation = (t - total) - y
            total = t
        return total

    return kahan


KAHAN_SUM = Function(
    id="kahan-sum",
    chapter=9,
    section="9.4",
    title="Kahan's sum in float32",
    level="medium",
    points=2,
    checklist=(17,),
    prompt="Write `kahan(x)`: the compensated sum of a float32 vector, with float32 arithmetic alone.",
    contract="`x`: float32, shape (n,), n ≥ 1, terms added from left to right. Result: a float32.",
    hints=(
        "Keep two numbers: the running sum and what the last addition lost.",
        "With `y = x[i] - c` and `t = s + y`, the lost part is `c = (t - s) - y`.",
        "Start with `np.float32(0)`: a Python 0.0 is fine in NumPy 2, but a float64 array is not.",
    ),
    oracle=reductions.sum_kahan,
    reference=lambda x: math.fsum(np.asarray(x, np.float64)),
    cases=_kahan_cases,
    tolerance=Tolerance(c=1.5, scale=_magnitude),
    dtype="exact",
    forbidden_calls=(
        *("math.fsum", "np.sum", ".sum", "sum"),
        *("np.float64", "np.longdouble", "float", ".astype", ".item", ".tolist"),  # all of them widen
    ),
    mistakes=(
        Mistake(
            name="plain-loop",
            answer=lambda x: reductions.sum_serial(x),
            message="This is the plain running sum: the small terms are rounded away.",
        ),
        Mistake(
            name="wrong-sign",
            answer=_kahan_slip("sign"),
            message="Your correction doubles the error. `c` holds what was added too much, so it is subtracted.",
        ),
        Mistake(
            name="without-the-correction-in-y",
            answer=_kahan_slip("forgotten"),
            message="The lost part must be taken against `y`, the corrected term, not against the term itself.",
        ),
    ),
    accept=(lambda x: reductions.sum_neumaier(x),),
)

WHY_BITS_DIFFER = Written(
    id="why-bits-differ",
    chapter=9,
    section="9.4",
    title="Two runs, other bits",
    level="easy",
    checklist=(17,),
    prompt="In three to six sentences: why may a parallel sum differ in its bits from a serial one, or from itself on "
    "another device, and how do you tell that from a bug?",
    hints=(
        "What does each addition do besides adding? What decides the order of additions?",
        "What is the largest difference that rounding can explain?",
    ),
    rubric=(
        "every addition rounds, so addition is not associative",
        "the tree depends on block size, number of threads and, with atomics, on timing",
        "differences within a bound such as h·u·Σ|x| are expected; beyond it there is a bug",
        "fixing the order makes the bits repeat, at a price",
    ),
    model="Every addition rounds, so the brackets matter. A parallel sum is a tree whose shape depends on block size, "
    "device and, with atomics, on which block ends first. Both results are within h·u·Σ|x| of the exact sum; a larger "
    "difference is a bug. A fixed order gives the same bits each time and costs speed.",
)

EXERCISES: tuple[Exercise, ...] = (
    BEST_SUM,
    KAHAN_SUM,
    WHY_BITS_DIFFER,
)
