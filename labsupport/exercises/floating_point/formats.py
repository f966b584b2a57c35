"""Exercises of chapter 9 on the formats: the largest number, rounding to the nearest, a lost update."""

import math
from typing import Any

import numpy as np

from labsupport.grading import Case, Exercise, Formula, Function, Mistake, Number, Tolerance
from labsupport.ops.floats import BF16, FloatFormat


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
        (2049 + 2.0**-30, fp16, "2049 + 2^-30 in FP16, just above a tie"),
        (1 + 2.0**-8 + 2.0**-20, bf16, "1 + 2^-8 + 2^-20 in BF16, just above a tie"),
        (1e30, bf16, "1e30 in BF16"),
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
            name="rounded-twice",
            answer=lambda x, e, m: _rounder()(float(np.float32(x)), e, m),
            message="You rounded to float32 first. A number just above a tie becomes the tie, and the second rounding "
            "goes the wrong way.",
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

EXERCISES: tuple[Exercise, ...] = (
    LARGEST_FINITE,
    FP_ENCODE,
    LOST_UPDATE,
)
