"""Exercises of chapter 9: formats, rounding, sums, variances, condition, mixed precision and loss scaling.

Each record holds the truth and the wrong answers the field really gives; a message explains a slip, and
must never contain the expected value. The last part holds the questions inside the chapter's text.
"""

import math
from typing import Any

import numpy as np

from labsupport.grading import (
    Case,
    Choice,
    Exercise,
    Formula,
    Function,
    Mistake,
    Number,
    Option,
    Tolerance,
    Written,
)
from labsupport.ops import reductions
from labsupport.ops.floats import BF16, FP16, FP32, FloatFormat

Array = np.ndarray


def _quiet(f: Any) -> Any:
    """Run a deliberately bad implementation without NumPy's warnings."""

    def quiet(*args: Any, **kwargs: Any) -> Any:
        with np.errstate(all="ignore"):
            return f(*args, **kwargs)

    return quiet


# ---------------------------------------------------------------- formats


def _largest(exponent_bits: int, mantissa_bits: int) -> float:
    return FloatFormat("format", int(exponent_bits), int(mantissa_bits)).max


def _format_bits(rng: np.random.Generator) -> tuple[int, int]:
    return int(rng.integers(3, 9)), int(rng.integers(2, 24))


LARGEST_FINITE = Formula(
    id="largest-finite",
    chapter=9,
    section="9.1",
    title="The largest number of a format",
    level="easy",
    checklist=(15,),
    prompt="Write `largest(E, M)`: the largest finite number of an IEEE-like format with `E` exponent bits and `M` "
    "mantissa bits.",
    contract="`E` is 3 to 8, `M` is 2 to 23; the exponent field of all ones is set aside for infinity and NaN. "
    "Result: a float.",
    hints=(
        "The bias is $2^{E-1} - 1$. Which exponent field is the largest one that is left for numbers?",
        "The largest field is $2^E - 2$, so the exponent is $2^E - 2 - \\text{bias} = \\text{bias}$.",
        "All mantissa bits set mean $1.11\\dots1_2 = 2 - 2^{-M}$.",
    ),
    oracle=_largest,
    sample=_format_bits,
    mistakes=(
        Mistake(
            name="infinity-counted",
            answer=lambda E, M: (2 - 2.0**-M) * 2.0 ** (2 ** (E - 1)),
            message="You used the exponent field of all ones, which belongs to infinity and NaN.",
        ),
        Mistake(
            name="mantissa-empty",
            answer=lambda E, M: 2.0 ** (2 ** (E - 1) - 1),
            message="The exponent is right, but the mantissa bits are all 0 in your number. Set them.",
        ),
        Mistake(
            name="hidden-bit-missing",
            answer=lambda E, M: (1 - 2.0**-M) * 2.0 ** (2 ** (E - 1) - 1),
            message="You forgot the hidden bit: a normal number is $1.f$, not $0.f$.",
        ),
        Mistake(
            name="next-power",
            answer=lambda E, M: 2.0 ** (2 ** (E - 1)),
            message="That is the first power of two that no longer fits.",
        ),
    ),
    accept=(lambda E, M: (2 ** (M + 1) - 1) * 2.0 ** (2 ** (E - 1) - 1 - M),),
)


def _encode(x: float, exponent_bits: int, mantissa_bits: int) -> float:
    return float(FloatFormat("format", exponent_bits, mantissa_bits).round(x))


def _encode_cases(rng: np.random.Generator) -> list[Case]:
    fp16, bf16 = (5, 10), (8, 7)
    shown = [
        (0.1, fp16, "0.1 in FP16"),
        (-2.7182818, bf16, "-2.718... in BF16"),
        (2049.0, fp16, "2049 in FP16, a tie"),
        (2051.0, fp16, "2051 in FP16, a tie"),
        (257.0, bf16, "257 in BF16, a tie"),
        (65519.0, fp16, "65519 in FP16, below the last tie"),
        (65520.0, fp16, "65520 in FP16, the last tie"),
        (-1e30, fp16, "-1e30 in FP16"),
        (1e-5, fp16, "1e-5 in FP16, a subnormal"),
        (-5.0e-8, fp16, "-5e-8 in FP16, near the smallest subnormal"),
        (2.0**-25, fp16, "2^-25 in FP16, a tie with 0"),
        (6.0e-5, (5, 2), "6e-5 with 5 and 2 bits, a subnormal"),
        (0.0, fp16, "0"),
        (math.inf, bf16, "infinity"),
        (math.nan, fp16, "NaN"),
        (4097.0, (8, 10), "4097 with 8 and 10 bits"),
        (15.7, (3, 2), "15.7 with 3 and 2 bits"),
    ]
    cases = [Case(args=(x, *bits), label=label) for x, bits, label in shown]
    for bits in (fp16, bf16, (4, 3), (6, 5)):
        cases.append(Case(args=(float(rng.normal()), *bits), label=f"a random number in {bits[0]} and {bits[1]} bits"))
    return cases


def _rounder(step: Any = np.rint, subnormals: bool = True, overflow: str = "inf", bias_shift: int = 0) -> Any:
    """An encoder with one part exchanged: the rounding, the subnormals, the overflow or the bias."""

    def encode(x: float, exponent_bits: int, mantissa_bits: int) -> float:
        if x == 0 or not math.isfinite(x):
            return x
        bias = 2 ** (exponent_bits - 1) - 1 + bias_shift
        exponent = math.frexp(x)[1] - 1
        if exponent < 1 - bias:
            if not subnormals:
                return math.copysign(0.0, x)
            exponent = 1 - bias
        spacing = 2.0 ** (exponent - mantissa_bits)
        value = float(step(x / spacing)) * spacing
        largest = (2 - 2.0**-mantissa_bits) * 2.0 ** (2 ** (exponent_bits - 1) - 1)
        if abs(value) > largest:
            return math.copysign(math.inf if overflow == "inf" else largest, x)
        return value

    return encode


def _endless_subnormals(x: float, exponent_bits: int, mantissa_bits: int) -> float:
    """Rounds to the mantissa and lets the exponent run below its range."""
    if x == 0 or not math.isfinite(x):
        return x
    spacing = 2.0 ** (math.frexp(x)[1] - 1 - mantissa_bits)
    value = float(np.rint(x / spacing)) * spacing
    largest = (2 - 2.0**-mantissa_bits) * 2.0 ** (2 ** (exponent_bits - 1) - 1)
    return math.copysign(math.inf, x) if abs(value) > largest else value


def _overflow_too_early(x: float, exponent_bits: int, mantissa_bits: int) -> float:
    largest = (2 - 2.0**-mantissa_bits) * 2.0 ** (2 ** (exponent_bits - 1) - 1)
    return math.copysign(math.inf, x) if abs(x) > largest else float(_rounder()(x, exponent_bits, mantissa_bits))


FP_ENCODE = Function(
    id="fp-encode",
    chapter=9,
    section="9.3",
    title="Any number in any format",
    level="hard",
    points=3,
    checklist=(15,),
    prompt="Write `encode(x, exponent_bits, mantissa_bits)`: the number of the IEEE-like format that is nearest to "
    "`x`.",
    contract=(
        "`x`: a Python float. 3 to 8 exponent bits, 2 to 10 mantissa bits, largest exponent field set aside. Ties go "
        "to the number whose last mantissa bit is 0. Subnormals exist. Where rounding leads beyond the largest "
        "finite number the result is `inf` with the sign of `x`; `inf` and NaN stay. Result: a float; the sign of "
        "zero is not judged."
    ),
    hints=(
        "Find the exponent $k$ with $2^k \\le |x| < 2^{k+1}$ (`math.frexp` helps); below the smallest normal number "
        "it stays at $1 - \\text{bias}$.",
        "The spacing there is $2^{k - M}$. Divide by it, round to a whole number, multiply again: both are exact.",
        "`round` and `np.rint` take ties to even. Decide on overflow after rounding, not before.",
    ),
    oracle=_encode,
    cases=_encode_cases,
    tolerance=Tolerance(c=1, scale="each"),
    mistakes=(
        Mistake(
            name="truncated",
            answer=_rounder(np.trunc),
            message="You cut the extra bits off. Take the nearest number instead.",
        ),
        Mistake(
            name="ties-away",
            answer=_rounder(lambda q: math.copysign(math.floor(abs(q) + 0.5), q)),
            message="Your ties go away from zero. They go to the number whose last mantissa bit is 0.",
        ),
        Mistake(
            name="subnormals-flushed",
            answer=_rounder(subnormals=False),
            message="Below the smallest normal number you return 0; subnormals keep the lowest exponent's spacing.",
            section="9.1",
        ),
        Mistake(
            name="exponent-without-end",
            answer=_endless_subnormals,
            message="Your exponent runs below its range: small numbers keep all their digits. The lowest exponent is "
            "1 minus the bias.",
            section="9.1",
        ),
        Mistake(
            name="saturated",
            answer=_rounder(overflow="max"),
            message="Beyond the largest number you return that number. The contract asks for an infinity.",
        ),
        Mistake(
            name="overflow-before-rounding",
            answer=_overflow_too_early,
            message="You compare with the largest number before rounding. A number slightly above it still rounds down "
            "to it.",
        ),
        Mistake(
            name="no-overflow",
            answer=lambda x, e, m: _without_top(x, e, m),
            message="Your numbers grow without end. An exponent field has a largest value.",
        ),
        Mistake(
            name="bias-off-by-one",
            answer=_rounder(bias_shift=1),
            message="Your subnormals begin at the wrong place. The bias is one less than a power of two.",
            section="9.1",
        ),
    ),
    accept=(_rounder(), lambda x, e, m: np.float64(_encode(x, e, m))),
)


def _without_top(x: float, exponent_bits: int, mantissa_bits: int) -> float:
    """Rounds right at the low end and knows no largest number."""
    if x == 0 or not math.isfinite(x):
        return x
    exponent = max(math.frexp(x)[1] - 1, 2 - 2 ** (exponent_bits - 1))
    spacing = 2.0 ** (exponent - mantissa_bits)
    return float(np.rint(x / spacing)) * spacing


LOST_UPDATE = Number(
    id="lost-update",
    chapter=9,
    section="9.3",
    title="The largest update that is lost",
    level="medium",
    checklist=(15,),
    prompt="A weight of 3.0 is stored in BF16 (7 mantissa bits, ties to even). What is the largest positive update "
    "after which it is still 3.0?",
    hints=(
        "What is the spacing of BF16 between 2 and 4?",
        "An update below half a spacing is lost. What happens to one of exactly half a spacing?",
        "3 is 1.1000000 in binary times 2: its last mantissa bit is 0, so the tie comes back to it.",
    ),
    expected=float(BF16.ulp(3.0)) / 2,
    rtol=1e-6,
    mistakes=(
        Mistake(name="whole-spacing", answer=2.0**-6, message="That is a whole spacing: it gives the next number."),
        Mistake(
            name="spacing-at-one",
            answer=2.0**-8,
            message="That is half the spacing at 1. Between 2 and 4 the numbers are further apart.",
        ),
        Mistake(name="fp16", answer=2.0**-10, message="That is FP16, with 10 mantissa bits."),
        Mistake(name="eighth", answer=2.0**-9, message="The spacing grows with the number; yours shrinks."),
    ),
)

# ---------------------------------------------------------------- sums


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
            answer=_quiet(lambda x: float(_half_loop(x))),
            message="Your running sum is a float16: it stalls when a term is below half its spacing.",
        ),
        Mistake(
            name="small-first",
            answer=_quiet(lambda x: float(_half_loop(x, lambda v: sorted(v, key=abs)))),
            message="Sorting helps, but the running sum is still a float16, and it still stalls.",
        ),
        Mistake(
            name="sorted-by-value",
            answer=_quiet(lambda x: float(_half_loop(x, sorted))),
            message="Sorting by value puts small terms first only where all are positive, and the running sum is "
            "still a float16: it still stalls.",
        ),
        Mistake(
            name="float16-tree",
            answer=_quiet(lambda x: float(reductions.sum_pairwise(np.asarray(x)))),
            message="A tree in float16 loses less than a loop. Each of its additions still rounds to 11 bits.",
        ),
        Mistake(
            name="float16-kahan",
            answer=_quiet(lambda x: float(_half_kahan(np.asarray(x)))),
            message="Kahan's sum in float16 carries the lost parts, but its result is rounded to float16.",
        ),
        Mistake(
            name="rounded-at-the-end",
            answer=_quiet(lambda x: float(np.asarray(x).astype(np.float32).sum().astype(np.float16))),
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
    forbidden_calls=("math.fsum", "np.sum", "np.float64", "np.longdouble", ".astype", ".sum", "sum"),
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

# ---------------------------------------------------------------- non-finite values


def _first_bad(tensors: list[Array]) -> int:
    return next((i for i, x in enumerate(tensors) if not np.isfinite(x).all()), -1)


def _tensor_cases(rng: np.random.Generator) -> list[Case]:
    good = [rng.normal(size=(2, 3)) for _ in range(4)]
    with_nan, with_inf, with_minus = (x.copy() for x in good[:3])
    with_nan[0, 1], with_inf[1, 2], with_minus[0, 0] = np.nan, np.inf, -np.inf
    lists = [
        ("four finite arrays", good),
        ("inf in the second, NaN in the third", [good[0], with_inf, with_nan, good[3]]),
        ("-inf in the first", [with_minus, good[1], with_nan]),
        ("NaN in the last", [good[0], good[1], with_nan]),
        ("float16 with inf", [np.ones(3, np.float16), np.array([1, np.inf], np.float16)]),
        ("large and finite", [np.array([1e300, -1e300]), np.array([65504], np.float16)]),
        ("both signs of infinity", [good[0], np.array([np.inf, -np.inf])]),
        ("an empty list", []),
    ]
    return [Case(args=(tensors,), label=label) for label, tensors in lists]


FIRST_NONFINITE = Function(
    id="first-nonfinite",
    chapter=9,
    section="9.5",
    title="The first bad tensor",
    level="easy",
    prompt="Write `first_bad(tensors)`: the index of the first array that holds an infinity or a NaN, -1 if there is "
    "none.",
    contract="`tensors`: a list of floating arrays of any shapes, in the order in which they were computed; it may be "
    "empty. Result: an int.",
    hints=(
        "`np.isfinite` is False for infinities of both signs and for NaN.",
        "Return at the first one; after the loop, nothing was found.",
    ),
    oracle=_first_bad,
    cases=_tensor_cases,
    mistakes=(
        Mistake(
            name="nan-only",
            answer=lambda ts: next((i for i, x in enumerate(ts) if np.isnan(x).any()), -1),
            message="You look for NaN only. An infinity comes first in most broken models.",
        ),
        Mistake(
            name="plus-inf-only",
            answer=lambda ts: next((i for i, x in enumerate(ts) if np.isnan(x).any() or (x == np.inf).any()), -1),
            message="You miss the infinity with a minus sign.",
        ),
        Mistake(
            name="last",
            answer=lambda ts: max((i for i, x in enumerate(ts) if not np.isfinite(x).all()), default=-1),
            message="That is the last bad array. The cause is the first.",
        ),
        Mistake(
            name="by-the-sum",
            answer=_quiet(lambda ts: next((i for i, x in enumerate(ts) if np.isnan(x.sum())), -1)),
            message="A sum that is NaN tells of NaN or of infinities of both signs, and of no single infinity.",
        ),
        Mistake(
            name="by-size",
            answer=_quiet(lambda ts: next((i for i, x in enumerate(ts) if not (np.abs(x) < 1e100).all()), -1)),
            message="A large number may be finite. Ask for finiteness, not for size.",
        ),
        Mistake(
            name="all-entries",
            answer=lambda ts: next((i for i, x in enumerate(ts) if not np.isfinite(x).any()), -1),
            message="You ask for an array in which nothing is finite. One bad entry is enough.",
        ),
        Mistake(
            name="zero-for-none",
            answer=lambda ts: max(_first_bad(ts), 0),
            message="When nothing is found you name the first array.",
        ),
    ),
)

# ---------------------------------------------------------------- variances


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
            m2 += delta * delta if kind == "old-twice" else (value - mean) ** 2 if kind == "new-twice" else (
                delta * (value - mean)
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

# ---------------------------------------------------------------- condition, mixed precision, loss scaling

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

# ---------------------------------------------------------------- questions inside the chapter


def _chapter(section: str, **rest: Any) -> dict[str, Any]:
    return {"chapter": 9, "section": section, "place": "chapter", **rest}


LARGEST_FP16 = Number(
    **_chapter("9.1"),
    id="fp16-largest",
    title="Predict: the largest FP16 number",
    prompt="FP16 has 5 exponent bits (bias 15) and 10 mantissa bits; field 31 is set aside. What is its largest finite "
    "number?",
    hints=("The largest field is 30, so the exponent is 15.", "All mantissa bits set: $1 + 1023/1024$."),
    checklist=(15,),
    expected=FP16.max,
    exact=True,
    mistakes=(
        Mistake(name="power", answer=65536.0, message="That is the next power of two, which does not fit."),
        Mistake(name="integer", answer=65535.0, message="That is the largest 16-bit integer."),
        Mistake(name="empty-mantissa", answer=32768.0, message="You left the mantissa bits at 0."),
        Mistake(name="field-31", answer=131008.0, message="You used the field that belongs to infinity and NaN."),
    ),
)

FP16_OR_BF16 = Choice(
    **_chapter("9.2"),
    id="bf16-or-fp16",
    title="Predict: 1.001 in two formats",
    prompt="Which of the two formats can tell 1.001 from 1?",
    hints=("The spacing at 1 is $2^{-M}$.", "FP16 has 10 mantissa bits, BF16 has 7."),
    checklist=(15,),
    options={
        "a": Option("FP16 only", "Its spacing at 1 is about 0.00098; that of BF16 is 0.0078.", correct=True),
        "b": Option("BF16 only", "BF16 spends its bits on range. Compare the spacings at 1."),
        "c": Option("both", "One of the two has a spacing of 0.0078 at 1."),
        "d": Option("neither", "One of the two has a spacing below 0.001 at 1."),
    },
)

PREDICT_2049 = Number(
    **_chapter("9.3"),
    id="fp16-2048-plus-one",
    title="Predict: 2048 + 1 in FP16",
    prompt="What is 2048 + 1 in FP16, with 10 mantissa bits and ties to even?",
    hints=("The spacing from 2048 on is 2.", "The exact result lies in the middle; whose last bit is 0?"),
    checklist=(15,),
    expected=float(FP16.round(2049.0)),
    exact=True,
    mistakes=(
        Mistake(name="exact", answer=2049.0, message="This number is not in FP16: it needs 12 significant bits."),
        Mistake(name="up", answer=2050.0, message="The tie does not always go up. Look at the last mantissa bit."),
    ),
)

LOST_UPDATES = Number(
    **_chapter("9.3"),
    id="lost-updates",
    title="Predict: a thousand small updates",
    prompt="A weight of 1.0 in BF16 (7 mantissa bits) receives 1,000 updates of 0.001, one after the other. What is it "
    "afterwards?",
    hints=("What is half the spacing of BF16 at 1?", "What does the very first update do?"),
    checklist=(15,),
    expected=1.0,
    rtol=1e-6,
    mistakes=(
        Mistake(name="exact", answer=2.0, message="That is exact arithmetic. Compare one update with the spacing."),
        Mistake(name="one-step", answer=1.0078125, message="Not even one spacing comes together: each update is "
                "rounded by itself."),
    ),
)  # fmt: skip

ONES_IN_FP16 = Number(
    **_chapter("9.4"),
    id="fp16-sum-of-ones",
    title="Predict: 4,096 ones",
    prompt="What is the serial sum of 4,096 ones in FP16?",
    hints=("At which running sum does adding 1 become a tie?", "Think of the spacing above $2^{11}$."),
    checklist=(17,),
    expected=float(reductions.sum_serial(np.ones(4096), FP16)),
    exact=True,
    mistakes=(
        Mistake(name="exact", answer=4096.0, message="That is exact arithmetic, or a tree."),
        Mistake(name="bf16", answer=256.0, message="That is where BF16 stops."),
        Mistake(name="largest", answer=65504.0, message="The sum does not overflow; it stops earlier."),
        Mistake(name="half", answer=1024.0, message="Up to here every whole number is still a number of FP16."),
    ),
)

WHICH_NOT_NAN = Choice(
    **_chapter("9.5"),
    id="which-is-not-nan",
    title="Predict: which is not NaN?",
    prompt="Three of these are NaN. Which one is not?",
    hints=(
        "NaN is the result of an operation that has no answer.",
        "As the divisor grows, what does a quotient come close to?",
    ),
    checklist=(15,),
    options={
        "a": Option("0/0", "Any number would do as an answer, so there is none."),
        "b": Option("inf - inf", "How much larger the first is, nobody knows."),
        "c": Option("0 * inf", "Zero times more than everything has no answer."),
        "d": Option("1/inf", "It is 0, the limit of a quotient whose divisor grows.", correct=True),
    },
)

NAIVE_SIGN = Choice(
    **_chapter("9.6"),
    id="naive-variance-sign",
    title="Predict: the naive variance",
    prompt="100 numbers near $10^8$ with a true variance of 1, in float64. What may E[x²] − E[x]² return?",
    hints=(
        "How large is $x^2$, and how far apart are float64 numbers there?",
        "At $10^{16}$ the spacing of float64 is 2.",
    ),
    options={
        "a": Option("about 1, within a percent", "That would need digits behind the point of a number near 1e16."),
        "b": Option("a value such as -4, 0 or 2", "The spacing of float64 near 1e16 is 2.", correct=True),
        "c": Option("NaN", "Nothing here is infinite, and nothing is divided by 0."),
        "d": Option("0 or more, never below", "In exact arithmetic. Both terms were rounded before the subtraction."),
    },
)

MERGED_M2 = Number(
    **_chapter("9.6"),
    id="merged-m2",
    title="Predict: a merged state",
    prompt="Two states (n, mean, M2): (2, 1, 2) and (2, 5, 2). What is M2 of the merged state?",
    hints=("The distance of the means is 4.", "The extra term is $\\delta^2 n_a n_b / n$."),
    expected=float(reductions.Welford(2, 1.0, 2.0).merge(reductions.Welford(2, 5.0, 2.0)).M2),
    mistakes=(
        Mistake(name="sum", answer=4.0, message="You added the two M2. The distance of the means is missing."),
        Mistake(name="not-divided", answer=68.0, message="Divide the extra term by the count of both."),
        Mistake(name="not-squared", answer=8.0, message="The distance of the means enters squared."),
        Mistake(name="variance", answer=5.0, message="That is the variance; M2 is not yet divided."),
    ),
)

MORE_BITS = Choice(
    **_chapter("9.7"),
    id="more-bits-or-not",
    title="Predict: does float64 help?",
    prompt="The entries of a matrix were *measured* with a relative error of $10^{-6}$, and its condition number is "
    "$10^8$. You solve in float64 instead of float32. Does the answer get useful?",
    hints=(
        "Which error is larger, that of the measurement or that of the format?",
        "Multiply the error of the data by the condition number.",
    ),
    options={
        "a": Option("yes, 16 digits minus 8 leaves 8", "That counts the format's rounding and forgets the data's own "
                    "error."),
        "b": Option("no, the data's own error is enlarged just the same", "The problem is sensitive, whatever the "
                    "format.", correct=True),
        "c": Option("yes, if a stable algorithm is used", "A stable algorithm adds little error. The error came with "
                    "the data."),
        "d": Option("no, because float64 has no more range", "It has, and range is not the subject here."),
    },
)  # fmt: skip

ACCUMULATOR_STALLS = Number(
    **_chapter("9.8"),
    id="accumulator-stalls",
    title="Predict: where an FP16 accumulator stalls",
    prompt="Inputs are all 1 and K = 8192. What does an FP16 accumulator return for one output?",
    hints=("It is a serial sum of ones.", "From which number on is 1 half a spacing?"),
    checklist=(15,),
    expected=float(reductions.matmul_accumulated(np.ones((1, 8192)), np.ones((8192, 1)), FP16, FP16).item()),
    exact=True,
    mistakes=(
        Mistake(name="exact", answer=8192.0, message="That is what an FP32 accumulator returns."),
        Mistake(name="bf16", answer=256.0, message="That is a BF16 accumulator."),
        Mistake(name="half", answer=4096.0, message="Above the point where it stalls, 1 is half a spacing or less."),
    ),
)

SCALE_THAT_RESCUES = Choice(
    **_chapter("9.9"),
    id="scale-that-rescues",
    title="Predict: a gradient of 1e-8",
    prompt="A gradient of $10^{-8}$ becomes 0 in FP16, whose smallest number is about $6 \\cdot 10^{-8}$. Which loss "
    "scale stores it with all 11 significant bits?",
    hints=(
        "A number with all its bits must be normal: at least $6.1 \\cdot 10^{-5}$.",
        "How many powers of two lie between $10^{-8}$ and $6.1 \\cdot 10^{-5}$?",
    ),
    checklist=(16,),
    options={
        "a": Option("$2^{4}$", "It is no longer 0, but a subnormal with very few bits."),
        "b": Option("$2^{10}$", "About $10^{-5}$: still a subnormal, with fewer bits."),
        "c": Option("$2^{16}$", "About $6.6 \\cdot 10^{-4}$: a normal number.", correct=True),
        "d": Option("$2^{43}$", "About 88,000: beyond the largest number."),
    },
)

SKIPPED_STEP = Choice(
    **_chapter("9.9"),
    id="skipped-step",
    title="Predict: what a skipped step costs",
    prompt="Dynamic scaling meets an infinite gradient and skips the step. What is lost?",
    hints=(
        "Which numbers were changed before the test?",
        "The weights and the optimizer state are touched only after the test.",
    ),
    checklist=(16,),
    options={
        "a": Option("one batch's compute", "Weights and optimizer state stay as they were.", correct=True),
        "b": Option("the weights, which must be reloaded", "They are changed only after the test."),
        "c": Option("nothing: the update is applied with clipped gradients", "A clipped infinity is still no "
                    "gradient."),
        "d": Option("the optimizer's moments, which become 0", "They are not touched by a step that is skipped."),
    },
)  # fmt: skip

HAS_NO_STATE = Choice(
    **_chapter("9.10"),
    id="has-no-state",
    title="Predict: what does not merge?",
    prompt="Which of these cannot be computed from states of a fixed size, one per block?",
    hints=(
        "Which of them needs to see all numbers of both blocks side by side?",
        "Two blocks with the same state must be interchangeable.",
    ),
    checklist=(17,),
    options={
        "a": Option("the maximum", "One number per block is enough."),
        "b": Option("the variance", "A count, a mean and M2 are enough."),
        "c": Option("the exact median", "Any number of a block may turn out to be it.", correct=True),
        "d": Option("LogSumExp", "A maximum and a sum are enough."),
    },
)

EXERCISES: tuple[Exercise, ...] = (
    LARGEST_FINITE,
    FP_ENCODE,
    LOST_UPDATE,
    BEST_SUM,
    KAHAN_SUM,
    WHY_BITS_DIFFER,
    FIRST_NONFINITE,
    WELFORD,
    WELFORD_MERGE,
    CONDITION_DIGITS,
    ACCUMULATOR_CHOICE,
    LOSS_SCALE_LIMIT,
    LOSS_SCALER_STEP,
    LARGEST_FP16,
    FP16_OR_BF16,
    PREDICT_2049,
    LOST_UPDATES,
    ONES_IN_FP16,
    WHICH_NOT_NAN,
    NAIVE_SIGN,
    MERGED_M2,
    MORE_BITS,
    ACCUMULATOR_STALLS,
    SCALE_THAT_RESCUES,
    SKIPPED_STEP,
    HAS_NO_STATE,
)
