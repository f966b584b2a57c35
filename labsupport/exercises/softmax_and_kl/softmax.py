"""Exercises of chapter 5 on softmax and log-softmax, and on their temperature."""

from typing import Any

import numpy as np

from labsupport.exercises.softmax_and_kl.logits import ROUNDING, exp_shifted, labelled_rows, row_cases, row_length
from labsupport.grading import Case, Choice, Exercise, Formula, Function, Mistake, Number, Option, Several, Tolerance
from labsupport.grading.shorthand import quiet
from labsupport.ops import softmax as ops

Array = np.ndarray


def _row_sums(case: Case, result: Any) -> str | None:
    """Say what a reader can see at once: rows of probabilities sum to 1."""
    p = np.asarray(result, np.float64)
    if p.shape != np.shape(case.args[0]) or not np.isfinite(p).all():
        return None
    return None if np.allclose(p.sum(-1), 1, atol=1e-3) else "your rows do not sum to 1."


SOFTMAX_STABLE = Function(
    id="softmax-stable",
    chapter=5,
    section="5.2",
    title="Stable softmax",
    prompt="Write `softmax(x)`: softmax over the **last** axis, safe for logits of any size.",
    contract=(
        "`x`: float32 or float64, any number of leading axes, at least one finite logit per row, others may be "
        "-inf. Result: same shape, same dtype, rows sum to 1."
    ),
    hints=(
        "Adding a constant to a whole row changes nothing. Which constant keeps `exp` from overflowing?",
        "Subtract `x.max(axis=-1, keepdims=True)`; the largest exponent is then 0.",
        "With `e = np.exp(x - m)`, divide `e` by its sum over the last axis, again with `keepdims=True`.",
    ),
    checklist=(9,),
    level="easy",
    oracle=ops.softmax,
    cases=row_cases,
    tolerance=ROUNDING,
    dtype="exact",
    diagnose=_row_sums,
    mistakes=(
        Mistake(
            name="naive-overflow",
            answer=ops.softmax_naive,
            message="Your formula is right on paper, and `exp` overflows on large logits: inf/inf is NaN. "
            "Shift each row by its maximum first.",
        ),
        Mistake(
            name="whole-array",
            answer=lambda x: exp_shifted(x, None) / exp_shifted(x, None).sum(),
            message="You normalised over the whole array instead of the last axis: all entries together sum to 1.",
        ),
        Mistake(
            name="axis-0",
            answer=lambda x: ops.softmax(x, axis=0),
            message="You normalised over axis 0: columns sum to 1, rows do not. The vocabulary is the last axis.",
        ),
        Mistake(
            name="no-keepdims",
            answer=lambda x: exp_shifted(x) / exp_shifted(x).sum(axis=-1),
            message="The sum of the last axis has lost that axis, so it is broadcast along the rows: an error for most "
            "shapes, and wrong without one for a square. Use keepdims=True.",
        ),
        Mistake(
            name="ratio",
            answer=lambda x: x / x.sum(axis=-1, keepdims=True),
            message="You divided the logits by their sum. A logit may be negative; exponentiate before you divide.",
            section="5.1",
        ),
        Mistake(
            name="unnormalised",
            answer=exp_shifted,
            message="You exponentiated and did not divide by the sum of the row.",
            section="5.1",
        ),
        Mistake(
            name="global-shift",
            answer=quiet(lambda x: exp_shifted(x, None) / exp_shifted(x, None).sum(-1, keepdims=True)),
            message="You shifted every row by the maximum of the whole array. A row far below that maximum "
            "underflows to 0/0. Each row needs its own maximum.",
        ),
        Mistake(
            name="shift-by-minimum",
            answer=quiet(
                lambda x: (
                    np.exp(x - x.min(axis=-1, keepdims=True))
                    / np.exp(x - x.min(axis=-1, keepdims=True)).sum(-1, keepdims=True)
                )
            ),
            message="You subtracted the minimum of the row, so the largest exponent is as large as the row is wide. "
            "Which entry must become 0?",
        ),
        Mistake(
            name="shift-by-mean",
            answer=quiet(
                lambda x: (
                    np.exp(x - x.mean(axis=-1, keepdims=True))
                    / np.exp(x - x.mean(axis=-1, keepdims=True)).sum(-1, keepdims=True)
                )
            ),
            message="You subtracted the mean of the row. The largest exponent is still positive, and overflows in a "
            "wide row. Which entry must become 0?",
        ),
    ),
    accept=(
        lambda x: np.exp(ops.log_softmax(x)),
        lambda x: np.exp(x - ops.logsumexp(x, keepdims=True)),
    ),
)


def _naive_fails_at(x: Array, shifts: tuple[float, ...]) -> float:
    """First shift at which the naive softmax is no longer finite."""
    return next(c for c in shifts if not np.isfinite(ops.softmax_naive(x + np.float32(c))).all())


_SHIFT_X = np.array([0, 1, 2, 3], np.float32)
_SHIFTS = (0.0, 10.0, 50.0, 80.0, 90.0, 1000.0, 1e8)

SOFTMAX_SHIFT = Several(
    id="softmax-shift",
    chapter=5,
    section="5.2",
    title="The shift experiment",
    prompt=(
        "Add each of the shifts 0, 10, 50, 80, 90, 1000 and $10^8$ to the float32 logits `[0, 1, 2, 3]`, and compare "
        "naive and stable softmax. Answer two parts: `naive_fails_at`, `stable_at_1e8`."
    ),
    contract=(
        "`naive_fails_at`: the smallest of these shifts at which the naive result holds a NaN. `stable_at_1e8`: what "
        "the stable softmax gives at $10^8$: a) the same as at 0; b) NaN; c) 0.25 four times; d) 1 for the last entry."
    ),
    hints=(
        "Run the experiment, in float32 from start to end: `x + np.float32(c)`.",
        "For the second part print the shifted logits before you look at the softmax.",
    ),
    checklist=(9, 15),
    level="medium",
    parts={
        "naive_fails_at": Number(
            expected=_naive_fails_at(_SHIFT_X, _SHIFTS),
            unit="1",
            exact=True,
            prompt="The smallest shift at which the naive softmax holds a NaN.",
            mistakes=(
                Mistake(
                    name="too-late",
                    answer=1000.0,
                    message="The naive softmax has failed before. Compare the largest logit with the largest argument "
                    "that `exp` can take in float32.",
                ),
                Mistake(
                    name="too-early",
                    answer=80.0,
                    message="At this shift the largest logit is 83, and `exp(83)` still fits float32. Did you run in "
                    "float16?",
                ),
                Mistake(
                    name="only-at-the-end",
                    answer=1e8,
                    message="The naive softmax has failed long before. Look for the first NaN, not the last.",
                ),
            ),
        ),
        "stable_at_1e8": Choice(
            prompt="What the stable softmax gives at the largest shift.",
            options={
                "a": Option(
                    "the same as at 0",
                    "In exact arithmetic, yes. In float32 the sum `x + c` is rounded before softmax sees it.",
                ),
                "b": Option("NaN", "The stable form subtracts the maximum, so no exponential can overflow."),
                "c": Option(
                    "0.25 four times",
                    "Near the shift neighbouring float32 numbers are 8 apart, so all four logits become the same "
                    "number. The information is lost in the addition, and no softmax brings it back.",
                    correct=True,
                ),
                "d": Option(
                    "1 for the last entry",
                    "A shift does not widen the gaps between logits; that would be a small temperature.",
                ),
            },
        ),
    },
)

TWO_CLASS_SIGMOID = Formula(
    id="two-class-sigmoid",
    chapter=5,
    section="5.1",
    title="Softmax of two logits",
    prompt=(
        "With two logits softmax is a function of their difference alone. Give the first probability as a function "
        "`f(z1, z2)` of two floats with a single `exp` in it."
    ),
    contract="`z1`, `z2`: floats between -5 and 5. Result: the first probability.",
    hints=(
        "Divide numerator and denominator of $e^{z_1}/(e^{z_1}+e^{z_2})$ by $e^{z_1}$.",
        "One term of the denominator is then 1; the other holds a difference. Which way round?",
    ),
    oracle=lambda z1, z2: 1 / (1 + np.exp(z2 - z1)),
    sample=lambda rng: tuple(float(v) for v in rng.uniform(-5, 5, 2)),
    mistakes=(
        Mistake(
            name="other-class",
            answer=lambda z1, z2: 1 / (1 + np.exp(z1 - z2)),
            message="This is the probability of the second class: the difference in the exponent is the other way "
            "round.",
        ),
        Mistake(
            name="one-logit",
            answer=lambda z1, z2: 1 / (1 + np.exp(-z1)),
            message="You took the sigmoid of the first logit alone. That is right only where the second one is 0.",
        ),
        Mistake(
            name="ratio",
            answer=lambda z1, z2: z1 / (z1 + z2),
            message="You divided logits. A logit may be negative; softmax divides exponentials.",
        ),
        Mistake(
            name="odds",
            answer=lambda z1, z2: np.exp(z1 - z2),
            message="This is the ratio of the two probabilities (the odds), which may exceed 1.",
        ),
    ),
    accept=(
        lambda z1, z2: np.exp(z1) / (np.exp(z1) + np.exp(z2)),
        lambda z1, z2: 0.5 * (1 + np.tanh((z1 - z2) / 2)),
        lambda z1, z2: 1 - 1 / (1 + np.exp(z1 - z2)),
    ),
)

LOG_SOFTMAX = Function(
    id="log-softmax",
    chapter=5,
    section="5.3",
    title="Logarithm of a softmax",
    prompt="Write `log_softmax(x)` over the last axis. It must stay finite where softmax itself underflows to 0.",
    contract="`x`: float32 or float64, finite, any leading axes. Result: same shape and dtype, in nats.",
    hints=(
        "Take the logarithm of the formula on paper before you write code: a quotient becomes a difference.",
        "$\\log p_i = z_i - \\mathrm{LSE}(z)$, and LSE is computed with the maximum taken out.",
        "With `d = x - m`: the result is `d` minus the logarithm of the sum of `exp(d)`.",
    ),
    checklist=(9,),
    level="easy",
    oracle=ops.log_softmax,
    cases=lambda rng: [
        *(Case(args=(z,), label=label) for label, z in labelled_rows(rng) if np.isfinite(z).all()),
        Case(args=(np.array([[1000.0, 0.0, -1000.0]]),), label="float64 (1, 3), gaps of 1000"),
        Case(args=(np.array([[0.0, -200.0], [3.0, 3.0]], np.float32),), label="float32 (2, 2), a gap of 200"),
    ],
    tolerance=ROUNDING,
    dtype="exact",
    mistakes=(
        Mistake(
            name="log-of-softmax",
            answer=quiet(lambda x: np.log(ops.softmax(x))),
            message="You took the logarithm of softmax: where the probability has underflowed to 0 the logarithm is "
            "-inf. Never form the probability.",
        ),
        Mistake(
            name="naive-lse",
            answer=quiet(lambda x: x - np.log(np.exp(x).sum(-1, keepdims=True))),
            message="Your log-sum-exp overflows on large logits (and is the log of 0 on very negative ones). Take the "
            "maximum out of it first.",
        ),
        Mistake(
            name="only-shifted",
            answer=lambda x: x - x.max(-1, keepdims=True),
            message="You subtracted the maximum and stopped: the exponentials of your rows do not sum to 1. The "
            "logarithm of the sum is missing.",
        ),
        Mistake(
            name="forgot-the-shift",
            answer=lambda x: x - np.log(exp_shifted(x).sum(-1, keepdims=True)),
            message="You shifted inside the sum and not outside: the maximum must be taken off the logits, too.",
        ),
        Mistake(
            name="axis-0",
            answer=lambda x: ops.log_softmax(x, axis=0),
            message="You normalised over axis 0. The vocabulary is the last axis.",
        ),
    ),
    accept=(
        lambda x: x - ops.logsumexp(x, keepdims=True),
        lambda x: (x - x.max(-1, keepdims=True)) - np.log(exp_shifted(x).sum(-1, keepdims=True)),
    ),
)


# ---------------------------------------------------------------- temperature


def _temperature_cases(rng: np.random.Generator) -> list[Case]:
    z = rng.normal(0, 2, (3, 5))
    cases = [Case(args=(z, T), label=f"float64 (3, 5), T = {T:g}") for T in (1.0, 0.5, 2.0, 1e-3, 1e3)]
    cases += [
        Case(args=(np.array([1.0, 3.0, -2.0]), 1e-6), label="float64 (3,), T = 1e-6"),
        Case(args=(np.array([2.0, 2.0, -2.0]), 1e-6), label="float64 (3,), T = 1e-6, a tie"),
        Case(args=(np.array([0.0, 1e-6, 3e-6]), 1e-6), label="float64 (3,), T = 1e-6, logits as close"),
        Case(args=(np.array([0.0, 1e-9, 3e-9]), 1e-9), label="float64 (3,), T = 1e-9, logits as close"),
        Case(args=(rng.normal(0, 2, (2, 3, 4)), 0.7), label="float64 (2, 3, 4), T = 0.7"),
        Case(args=(z[0], 0.0), label="T = 0", raises=ValueError),
        Case(args=(z[0], -1.0), label="T = -1", raises=ValueError),
    ]
    return cases


def _with_check(f: Any) -> Any:
    """A wrong formula that at least refuses a temperature of 0 or below."""

    def checked(z: Array, T: float) -> Array:
        if T <= 0:
            raise ValueError("temperature must be positive")
        with np.errstate(all="ignore"):
            return f(z, T)

    return checked


TEMPERATURE_LIMITS = Function(
    id="temperature-limits",
    chapter=5,
    section="5.4",
    title="Temperature and its limits",
    prompt=(
        "Write `softmax_t(z, T)`: softmax of `z / T` over the last axis, right for a temperature of 0.000001 as well "
        "as for 1000. A temperature of 0 or below raises `ValueError`."
    ),
    contract="`z`: float64, finite, any leading axes. `T`: a Python float. Result: same shape, rows sum to 1.",
    hints=(
        "The order matters: first the scaled logits, then the stable softmax of them.",
        "With a small `T` the scaled logits are huge. What made huge logits harmless in section 5.2?",
        "Test `T <= 0` first. The limit is argmax, and a caller who wants it should call argmax.",
    ),
    checklist=(9,),
    level="easy",
    oracle=lambda z, T: ops.softmax(z, temperature=T),
    cases=_temperature_cases,
    tolerance=Tolerance(
        c=4, depth=row_length, scale=lambda z, T: max(1.0, float(np.abs(z).max()) / T if T > 0 else 1.0)
    ),
    diagnose=_row_sums,
    mistakes=(
        Mistake(
            name="multiplied",
            answer=_with_check(lambda z, T: ops.softmax(z * T)),
            message="You multiplied by the temperature. A small temperature must sharpen the distribution; yours "
            "flattens it.",
        ),
        Mistake(
            name="probabilities-scaled",
            answer=_with_check(lambda z, T: ops.softmax(z) / T),
            message="You divided the probabilities. They no longer sum to 1; it is the logits that are divided.",
        ),
        Mistake(
            name="ignored",
            answer=_with_check(lambda z, T: ops.softmax(z)),
            message="The temperature has no effect on your result. Dividing the probabilities and normalising again "
            "takes it out, for example.",
        ),
        Mistake(
            name="naive-overflow",
            answer=_with_check(lambda z, T: ops.softmax_naive(z / T)),
            message="With a small temperature the scaled logits overflow `exp`. Subtract the maximum.",
            section="5.2",
        ),
        Mistake(
            name="no-refusal",
            answer=quiet(lambda z, T: ops.softmax(z / T) if T else ops.softmax(np.full(np.shape(z), np.nan))),
            message="A temperature of 0 or below must raise ValueError: z/0 is NaN or infinite, and a negative "
            "temperature prefers the worst token, both silently.",
        ),
    ),
    accept=(
        _with_check(lambda z, T: ops.softmax(z / T)),
        _with_check(lambda z, T: exp_shifted(z / T) / exp_shifted(z / T).sum(-1, keepdims=True)),
        _with_check(lambda z, T: np.exp(ops.log_softmax(z / T))),
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    SOFTMAX_STABLE,
    SOFTMAX_SHIFT,
    TWO_CLASS_SIGMOID,
    LOG_SOFTMAX,
    TEMPERATURE_LIMITS,
)
