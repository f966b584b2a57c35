"""Exercises of chapter 5: softmax, losses and divergences, decoding, online softmax.

Each record holds the truth and the wrong answers the field really gives; a message explains a slip, and
must never contain the expected value. The last part holds the questions inside the chapter's text.
"""

import math
from typing import Any

import numpy as np

from labsupport.cuda.exercise import Counter, Kernel, KernelCase, sectors, total
from labsupport.cuda.kernels import lessons, triton_lessons
from labsupport.cuda.kernels.lessons import edited
from labsupport.cuda.triton_exercise import RowCase, TritonKernel
from labsupport.grading import (
    Case,
    Choice,
    Exercise,
    Formula,
    Function,
    Mistake,
    Number,
    Option,
    Several,
    Shape,
    Tolerance,
    Written,
)
from labsupport.ops import softmax as ops

Array = np.ndarray

# ---------------------------------------------------------------- inputs


def _rows(rng: np.random.Generator) -> list[tuple[str, Array]]:
    """Rows of logits in both dtypes and every layout, each row with a finite entry."""
    masked = rng.normal(size=(3, 4)).astype(np.float32)
    masked[0, 1] = masked[1, 3] = -np.inf
    levels = rng.normal(size=(3, 4)) + np.array([[0.0], [1000.0], [-1000.0]])
    return [
        ("float64 (3, 5)", rng.normal(0, 2, (3, 5))),
        ("float64 (4, 4), square", rng.normal(0, 2, (4, 4))),
        ("float32 (3, 5)", rng.normal(0, 2, (3, 5)).astype(np.float32)),
        ("float64 (2, 3, 4), Fortran order", np.asfortranarray(rng.normal(0, 2, (2, 3, 4)))),
        ("float64 (4, 3), every second column, reversed", rng.normal(0, 2, (4, 6))[:, ::-2]),
        ("float64 (6,), one axis", rng.normal(0, 2, 6)),
        ("float32 (4, 1), a vocabulary of one", rng.normal(size=(4, 1)).astype(np.float32)),
        ("float32 (2, 4), logits near 10,000", (10_000 + rng.normal(size=(2, 4))).astype(np.float32)),
        ("float64 (3, 4), rows near 0, 1000 and -1000", levels),
        ("float32 (3, 4), some logits -inf", masked),
    ]


def _row_cases(rng: np.random.Generator) -> list[Case]:
    return [Case(args=(z,), label=label) for label, z in _rows(rng)]


def _size(z: Any, *_: Any, **__: Any) -> int:
    return int(np.shape(z)[-1])


def _magnitude(z: Any, *_: Any, **__: Any) -> float:
    """Rounding of the logits themselves: 1 or the largest finite logit."""
    z = np.asarray(z, np.float64)
    return max(1.0, float(np.abs(z[np.isfinite(z)]).max(initial=0.0)))


_ROUNDING = Tolerance(c=4, depth=_size, scale=_magnitude)


def _quiet(f: Any) -> Any:
    """Run a deliberately bad implementation without NumPy's warnings."""

    def quiet(*args: Any, **kwargs: Any) -> Any:
        with np.errstate(all="ignore"):
            return f(*args, **kwargs)

    return quiet


def _exp_shifted(z: Array, axis: int | None = -1) -> Array:
    return np.exp(z - np.max(z, axis=axis, keepdims=True))


# ---------------------------------------------------------------- softmax


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
    cases=_row_cases,
    tolerance=_ROUNDING,
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
            answer=lambda x: _exp_shifted(x, None) / _exp_shifted(x, None).sum(),
            message="You normalised over the whole array instead of the last axis: all entries together sum to 1.",
        ),
        Mistake(
            name="axis-0",
            answer=lambda x: ops.softmax(x, axis=0),
            message="You normalised over axis 0: columns sum to 1, rows do not. The vocabulary is the last axis.",
        ),
        Mistake(
            name="no-keepdims",
            answer=lambda x: _exp_shifted(x) / _exp_shifted(x).sum(axis=-1),
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
            answer=_exp_shifted,
            message="You exponentiated and did not divide by the sum of the row.",
            section="5.1",
        ),
        Mistake(
            name="global-shift",
            answer=_quiet(lambda x: _exp_shifted(x, None) / _exp_shifted(x, None).sum(-1, keepdims=True)),
            message="You shifted every row by the maximum of the whole array. A row far below that maximum "
            "underflows to 0/0. Each row needs its own maximum.",
        ),
        Mistake(
            name="shift-by-minimum",
            answer=_quiet(
                lambda x: (
                    np.exp(x - x.min(axis=-1, keepdims=True))
                    / np.exp(x - x.min(axis=-1, keepdims=True)).sum(-1, keepdims=True)
                )
            ),
            message="You subtracted the minimum of the row, so the largest exponent is as large as the row is wide. "
            "Which entry must become 0?",
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
        *(Case(args=(z,), label=label) for label, z in _rows(rng) if np.isfinite(z).all()),
        Case(args=(np.array([[1000.0, 0.0, -1000.0]]),), label="float64 (1, 3), gaps of 1000"),
        Case(args=(np.array([[0.0, -200.0], [3.0, 3.0]], np.float32),), label="float32 (2, 2), a gap of 200"),
    ],
    tolerance=_ROUNDING,
    dtype="exact",
    mistakes=(
        Mistake(
            name="log-of-softmax",
            answer=_quiet(lambda x: np.log(ops.softmax(x))),
            message="You took the logarithm of softmax: where the probability has underflowed to 0 the logarithm is "
            "-inf. Never form the probability.",
        ),
        Mistake(
            name="naive-lse",
            answer=_quiet(lambda x: x - np.log(np.exp(x).sum(-1, keepdims=True))),
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
            answer=lambda x: x - np.log(_exp_shifted(x).sum(-1, keepdims=True)),
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
        lambda x: (x - x.max(-1, keepdims=True)) - np.log(_exp_shifted(x).sum(-1, keepdims=True)),
    ),
)


# ---------------------------------------------------------------- temperature


def _temperature_cases(rng: np.random.Generator) -> list[Case]:
    z = rng.normal(0, 2, (3, 5))
    cases = [Case(args=(z, T), label=f"float64 (3, 5), T = {T:g}") for T in (1.0, 0.5, 2.0, 1e-3, 1e3)]
    cases += [
        Case(args=(np.array([1.0, 3.0, -2.0]), 1e-6), label="float64 (3,), T = 1e-6"),
        Case(args=(np.array([2.0, 2.0, -2.0]), 1e-6), label="float64 (3,), T = 1e-6, a tie"),
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
    tolerance=Tolerance(c=4, depth=_size, scale=lambda z, T: max(1.0, float(np.abs(z).max()) / T if T > 0 else 1.0)),
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
            answer=_quiet(lambda z, T: ops.softmax(z / T) if T else ops.softmax(np.full(np.shape(z), np.nan))),
            message="A temperature of 0 or below must raise ValueError: z/0 is NaN or infinite, and a negative "
            "temperature prefers the worst token, both silently.",
        ),
    ),
    accept=(
        _with_check(lambda z, T: ops.softmax(z / T)),
        _with_check(lambda z, T: _exp_shifted(z / T) / _exp_shifted(z / T).sum(-1, keepdims=True)),
        _with_check(lambda z, T: np.exp(ops.log_softmax(z / T))),
    ),
)


# ---------------------------------------------------------------- cross-entropy


def _ignored_cases(rng: np.random.Generator) -> list[Case]:
    z = rng.normal(0, 2, (6, 5))
    some = np.array([2, -100, 0, 4, -100, 1])
    unknown = z.copy()
    unknown[1] = np.nan
    far = np.array([[0.0, 900.0, 0.0], [5.0, 5.0, 5.0], [1.0, 2.0, 3.0]])
    return [
        Case(args=(z, np.array([2, 1, 0, 4, 3, 1]), -100), label="float64 (6, 5), nothing ignored"),
        Case(args=(z, some, -100), label="float64 (6, 5), two labels ignored"),
        Case(args=(z.astype(np.float32), some, -100), label="float32 (6, 5), two labels ignored"),
        Case(args=(z, np.array([2, 0, 1, 4, 0, 0]), 0), label="float64 (6, 5), the padding label 0 ignored"),
        Case(args=(unknown, some, -100), label="float64 (6, 5), an ignored row holds NaN"),
        Case(args=(far, np.array([0, 1, -100]), -100), label="float64 (3, 3), the right class far behind"),
    ]


def _nll(z: Array, y: Array, ignore: int) -> tuple[Array, Array]:
    counted = y != ignore
    rows = ops.cross_entropy(np.where(counted[:, None], z, 0), np.where(counted, y, 0), reduction="none")
    return rows, counted


def _ce(reduce: Any) -> Any:
    return _quiet(lambda logits, targets, ignore_index: reduce(*_nll(logits, targets, ignore_index)))


CROSS_ENTROPY_IGNORE = Function(
    id="cross-entropy-ignore",
    chapter=5,
    section="5.5",
    title="Cross-entropy with ignored labels",
    prompt=(
        "Write `cross_entropy(logits, targets, ignore_index)`: the mean negative log-likelihood over the rows whose "
        "label is not `ignore_index`, straight from the logits."
    ),
    contract=(
        "`logits`: (N, V), float32 or float64; `targets`: (N,) integers, at least one of them counted. A row that is "
        "ignored may hold anything, NaN included. Result: a scalar, in nats."
    ),
    hints=(
        "Select the rows that count first; everything after that is a plain mean.",
        "Pick one log-probability per row: `log_p[np.arange(len(y)), y]`.",
        "Use log-softmax, not the logarithm of softmax, or a confident wrong row costs infinity.",
    ),
    checklist=(10,),
    level="medium",
    oracle=ops.cross_entropy,
    cases=_ignored_cases,
    tolerance=Tolerance(
        c=4,
        depth=lambda z, y, ignore: int(z.shape[0] + z.shape[1]),
        scale=lambda z, y, ignore: _magnitude(z),
    ),
    mistakes=(
        Mistake(
            name="divided-by-all",
            answer=_ce(lambda rows, counted: np.where(counted, rows, 0).sum() / rows.size),
            message="You divided by all positions. Ignored ones must not count in the denominator either, or padding "
            "makes the loss look small.",
        ),
        Mistake(
            name="nothing-ignored",
            answer=_ce(lambda rows, counted: rows.mean()),
            message="Ignored rows still take part in your mean.",
        ),
        Mistake(
            name="sum",
            answer=_ce(lambda rows, counted: rows[counted].sum()),
            message="You returned the sum. A mean per counted label is asked for.",
        ),
        Mistake(
            name="sign",
            answer=_ce(lambda rows, counted: -rows[counted].mean()),
            message="Your loss is negative: it is the log-likelihood. A loss turns the sign.",
        ),
        Mistake(
            name="bits",
            answer=_ce(lambda rows, counted: rows[counted].mean() / np.log(2)),
            message="You used base 2. The loss is in nats: natural logarithm.",
            section="5.6",
        ),
        Mistake(
            name="log-of-softmax",
            answer=_quiet(
                lambda z, y, ignore: (
                    -np.mean(np.log(ops.softmax(z[y != ignore]))[np.arange((y != ignore).sum()), y[y != ignore]])
                )
            ),
            message="Where the right class is far behind, softmax underflows to 0 and its logarithm is -inf. Use "
            "log-softmax.",
            section="5.3",
        ),
        Mistake(
            name="multiplied-by-mask",
            answer=_quiet(
                lambda z, y, ignore: (
                    -(ops.log_softmax(z)[np.arange(len(y)), np.where(y == ignore, 0, y)] * (y != ignore)).sum()
                    / (y != ignore).sum()
                )
            ),
            message="You multiplied ignored rows by 0, and 0 times NaN is NaN. Select rows instead (a boolean index or "
            "np.where).",
        ),
    ),
    accept=(
        lambda z, y, ignore: float(
            np.mean(ops.logsumexp(z[y != ignore]) - z[y != ignore][np.arange((y != ignore).sum()), y[y != ignore]])
        ),
        _ce(lambda rows, counted: rows[counted].mean()),
    ),
)


def _ce_grad(logits: Array, targets: Array) -> Array:
    """Gradient of the mean cross-entropy with respect to the logits: (softmax − one-hot) / B."""
    return (ops.softmax(logits) - _one_hot(logits, targets)) / len(targets)


def _one_hot(logits: Array, targets: Array) -> Array:
    return (np.arange(logits.shape[1]) == np.asarray(targets)[:, None]).astype(logits.dtype)


def _grad_cases(rng: np.random.Generator) -> list[Case]:
    z = rng.normal(0, 2, (4, 6))
    return [
        Case(args=(z, np.array([5, 0, 2, 2])), label="float64 (4, 6)"),
        Case(args=(z.astype(np.float32), np.array([5, 0, 2, 2])), label="float32 (4, 6)"),
        Case(args=(rng.normal(0, 2, (3, 3)), np.array([1, 0, 1])), label="float64 (3, 3), square"),
        Case(args=(rng.normal(0, 2, (1, 3)), np.array([1])), label="float64 (1, 3), a batch of one"),
        Case(args=(np.zeros((2, 2)), np.array([0, 1])), label="float64 (2, 2), all logits equal"),
        Case(args=(1000 + rng.normal(size=(3, 4)), np.array([0, 3, 1])), label="float64 (3, 4), logits near 1000"),
    ]


SOFTMAX_CE_GRAD = Function(
    id="softmax-ce-grad",
    chapter=5,
    section="5.5",
    title="Gradient of softmax with cross-entropy",
    prompt=(
        "Write `grad(logits, targets)`: the gradient of the **mean** cross-entropy of the batch with respect to the "
        "logits. Derive it from $L = \\mathrm{LSE}(z) - z_y$ on paper first."
    ),
    contract="`logits`: (B, V), float32 or float64; `targets`: (B,) integers in [0, V). Result: (B, V), same dtype.",
    hints=(
        "For one row: what is the derivative of LSE with respect to $z_i$? You have met this fraction before.",
        "The second term, $-z_y$, touches one entry of the row only.",
        "The loss is a mean over B rows, so each row's gradient carries a factor 1/B.",
    ),
    checklist=(13,),
    points=2,
    level="hard",
    oracle=_ce_grad,
    cases=_grad_cases,
    tolerance=Tolerance(c=4, depth=_size, scale=_magnitude),
    dtype="exact",
    mistakes=(
        Mistake(
            name="sum-of-losses",
            answer=lambda z, y: _ce_grad(z, y) * len(y),
            message="This is the gradient of the summed loss. The mean brings a factor of one over the batch size.",
        ),
        Mistake(
            name="mean-over-all",
            answer=lambda z, y: _ce_grad(z, y) / z.shape[1],
            message="You divided by the number of logits. The loss is a mean over rows, not over entries.",
        ),
        Mistake(
            name="sign",
            answer=lambda z, y: -_ce_grad(z, y),
            message="The sign is turned: with this gradient a descent step would lower the right class's logit.",
        ),
        Mistake(
            name="no-one-hot",
            answer=lambda z, y: ops.softmax(z) / len(y),
            message="The right class is missing: the term $-z_y$ of the loss has a derivative, too.",
        ),
        Mistake(
            name="right-class-only",
            answer=lambda z, y: _ce_grad(z, y) * _one_hot(z, y),
            message="Only the right class has a gradient in your result. Every logit is in the LSE, so every logit has "
            "one; a row of the gradient sums to 0.",
        ),
        Mistake(
            name="raw-logits",
            answer=lambda z, y: (z - _one_hot(z, y)) / len(y),
            message="You subtracted the one-hot target from the logits. It is subtracted from the probabilities.",
        ),
        Mistake(
            name="naive-overflow",
            answer=lambda z, y: (ops.softmax_naive(z) - _one_hot(z, y)) / len(y),
            message="Your softmax overflows on large logits. Subtract the row's maximum.",
            section="5.2",
        ),
    ),
    accept=(
        lambda z, y: ((np.exp(ops.log_softmax(z)) - _one_hot(z, y)) / len(y)).astype(z.dtype),
        lambda z, y: np.stack([row - (np.arange(row.size) == i) for row, i in zip(ops.softmax(z), y, strict=True)])
        .astype(z.dtype) / len(y),
    ),
)  # fmt: skip

LOSS_LOGITS_BYTES = Number(
    id="loss-logits-bytes",
    chapter=5,
    section="5.5",
    title="What an unfused loss stores",
    prompt=(
        "Logits of shape (B, S, V) = (8, 2048, 32000) are in float32. A loss that is not fused writes the whole "
        "log-softmax to memory before it picks one entry per token. How many bytes does this intermediate take?"
    ),
    contract="A number with its unit, for example in B, MiB or GiB.",
    hints=(
        "The intermediate has the shape of the logits.",
        "Multiply the number of elements by the bytes of one float32.",
    ),
    checklist=(10,),
    expected=float(math.prod((8, 2048, 32000)) * np.dtype(np.float32).itemsize),
    unit="B",
    mistakes=(
        Mistake(
            name="half-precision",
            answer=(math.prod((8, 2048, 32000)) * 2, "B"),
            message="You took two bytes an element. The logits here are float32.",
        ),
        Mistake(
            name="elements",
            answer=(math.prod((8, 2048, 32000)), "B"),
            message="This is the number of elements. Each of them takes several bytes.",
        ),
        Mistake(
            name="per-sequence",
            answer=(math.prod((2048, 32000)) * 4, "B"),
            message="The batch axis is missing.",
        ),
        Mistake(
            name="after-the-pick",
            answer=(math.prod((8, 2048)) * 4, "B"),
            message="This is what is left after picking one entry per token, which is all that a fused loss writes.",
        ),
    ),
)


# ---------------------------------------------------------------- entropy, KL, perplexity


def _distributions(rng: np.random.Generator) -> list[tuple[str, Array]]:
    with_zeros = np.array([[0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])
    return [
        ("float64 (3, 5)", rng.dirichlet(np.ones(5), 3)),
        ("float64 (6,), one axis", rng.dirichlet(np.ones(6))),
        ("float32 (2, 4)", rng.dirichlet(np.ones(4), 2).astype(np.float32)),
        ("float64 (3, 4), some probabilities 0", with_zeros),
    ]


def _plogp(p: Array, log: Any = np.log2) -> Array:
    with np.errstate(all="ignore"):
        return np.where(p > 0, p * log(p), 0)


ENTROPY_BITS = Function(
    id="entropy-bits",
    chapter=5,
    section="5.6",
    title="Entropy in bits",
    prompt="Write `entropy_bits(p)`: the entropy of each row of `p`, over the last axis, in **bits**.",
    contract="`p`: probabilities, float32 or float64, any leading axes, rows sum to 1, entries may be exactly 0. "
    "Result: `p.shape[:-1]`.",
    hints=(
        "An outcome that never happens adds nothing: $0 \\log 0$ counts as 0, which floats do not know.",
        "`np.where(p > 0, p * np.log2(p), 0)` chooses after computing; the warning is harmless, the value right.",
    ),
    checklist=(10,),
    level="easy",
    oracle=lambda p: ops.entropy(p, base=2),
    cases=lambda rng: [Case(args=(p,), label=label) for label, p in _distributions(rng)],
    tolerance=Tolerance(c=4, depth=_size, scale=lambda p: 1 + math.log2(p.shape[-1])),
    mistakes=(
        Mistake(
            name="nats",
            answer=lambda p: -_plogp(p, np.log).sum(-1),
            message="This is the entropy in nats. Bits take the logarithm to base 2.",
        ),
        Mistake(
            name="zero-times-inf",
            answer=_quiet(lambda p: -(p * np.log2(p)).sum(-1)),
            message="0 times log 0 is 0 times -inf, which floats turn into NaN. Outcomes of probability 0 add nothing.",
        ),
        Mistake(
            name="epsilon",
            answer=lambda p: -(p * np.log2(p + 1e-6)).sum(-1),
            message="Adding a small number inside the logarithm hides the NaN and changes every value. Treat zeros as "
            "a case of their own.",
        ),
        Mistake(
            name="sign",
            answer=lambda p: _plogp(p).sum(-1),
            message="Your entropy is negative. The logarithm of a probability is; entropy turns the sign.",
        ),
        Mistake(
            name="whole-array",
            answer=lambda p: -_plogp(p).sum(),
            message="You summed over the whole array. One entropy per row is due.",
        ),
        Mistake(
            name="mean",
            answer=lambda p: -_plogp(p).mean(-1),
            message="You averaged over the outcomes. The weights $p_i$ already make the sum a mean.",
        ),
    ),
    accept=(
        lambda p: -_plogp(p, np.log).sum(-1) / np.log(2),
        lambda p: ops.entropy(p.astype(np.float64), base=2),
    ),
)


def _pairs(rng: np.random.Generator) -> list[Case]:
    p, q = rng.dirichlet(np.ones(5), (2, 3))
    zero = np.array([0.5, 0.5, 0.0])
    return [
        Case(args=(p, q), label="float64 (3, 5)"),
        Case(args=(p[0], q[0]), label="float64 (5,)"),
        Case(args=(p.astype(np.float32), q.astype(np.float32)), label="float32 (3, 5)"),
        Case(args=(zero, np.array([0.25, 0.25, 0.5])), label="float64 (3,), p is 0 somewhere"),
        Case(args=(np.array([0.25, 0.25, 0.5]), zero), label="float64 (3,), q is 0 where p is not"),
        Case(args=(p, p.copy()), label="float64 (3, 5), equal distributions"),
    ]


def _kl_terms(p: Array, q: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.where(p > 0, p * (np.log(p) - np.log(q)), 0)


KL_DIVERGENCE = Function(
    id="kl-divergence",
    chapter=5,
    section="5.7",
    title="KL divergence, the right way round",
    prompt="Write `kl(p, q)`: $\\mathrm{KL}(p\\|q)$ over the last axis, in nats, `p` first.",
    contract="`p`, `q`: probabilities of one shape, float32 or float64, any leading axes. Where `p` is 0 the term is "
    "0; where `q` is 0 and `p` is not, the result is `inf`. Result: `p.shape[:-1]`.",
    hints=(
        "The expectation is over the first argument: its probabilities are the weights.",
        "Deal with `p == 0` by choosing, not by adding a small number.",
        "The case `q == 0` needs no special treatment: what is `p * (np.log(p) - np.log(q))` there?",
    ),
    checklist=(10,),
    level="medium",
    oracle=ops.kl_divergence,
    cases=_pairs,
    tolerance=Tolerance(
        c=4, depth=_size, scale=lambda p, q: 1 + float(np.abs(np.log(np.concatenate([p[p > 0], q[q > 0]]))).max())
    ),
    mistakes=(
        Mistake(
            name="reversed",
            answer=lambda p, q: _kl_terms(q, p).sum(-1),
            message="This is the divergence the other way round. KL is not symmetric: weights come from the first "
            "argument.",
        ),
        Mistake(
            name="cross-entropy",
            answer=_quiet(lambda p, q: -np.where(p > 0, p * np.log(q), 0).sum(-1)),
            message="This is the cross-entropy H(p, q). It is larger than KL by the entropy of p, and not 0 for equal "
            "distributions.",
        ),
        Mistake(
            name="zero-times-inf",
            answer=_quiet(lambda p, q: (p * np.log(p / q)).sum(-1)),
            message="Where p is 0 your term is NaN (0 times -inf). Such a term counts as 0.",
        ),
        Mistake(
            name="epsilon",
            answer=lambda p, q: (p * (np.log(p + 1e-6) - np.log(q + 1e-6))).sum(-1),
            message="The small number inside your logarithms turns an infinite divergence into a finite one and moves "
            "every other value.",
        ),
        Mistake(
            name="mean",
            answer=lambda p, q: _kl_terms(p, q).mean(-1),
            message="You averaged over the vocabulary. The weights $p_i$ already make the sum a mean; torch's default "
            'reduction="mean" makes the same slip.',
        ),
        Mistake(
            name="bits",
            answer=lambda p, q: _kl_terms(p, q).sum(-1) / np.log(2),
            message="You used base 2. Nats are asked for.",
            section="5.6",
        ),
        Mistake(
            name="absolute",
            answer=lambda p, q: np.abs(_kl_terms(p, q)).sum(-1),
            message="You made every term positive. Single terms may be negative; only the sum never is.",
        ),
    ),
    accept=(
        _quiet(lambda p, q: np.where(p > 0, p * np.log(p / q), 0).sum(-1)),
        lambda p, q: ops.kl_divergence(p.astype(np.float64), q.astype(np.float64)),
    ),
)

KL_TORCH_CALL = Choice(
    id="kl-torch-call",
    chapter=5,
    section="5.7",
    title="Which torch call is KL(p‖q)?",
    prompt=(
        "`p` and `q` are tensors of probabilities of shape (V,) and `F` is `torch.nn.functional`. "
        "Which call gives $\\mathrm{KL}(p\\|q)$ in nats?"
    ),
    hints=(
        "Read the pointwise formula in the documentation: target · (log target − input).",
        "Which of the two does the formula weight with, and which does it expect as a logarithm?",
    ),
    checklist=(10,),
    options={
        "a": Option(
            "`F.kl_div(p, q)`",
            "The first argument must be a logarithm, and this puts the weights on q. It runs, and the number means "
            "nothing.",
        ),
        "b": Option(
            '`F.kl_div(q.log(), p, reduction="sum")`',
            "The input is the logarithm of q, the target p gives the weights, and the terms are summed.",
            correct=True,
        ),
        "c": Option(
            '`F.kl_div(p.log(), q, reduction="sum")`',
            "The weights come from the target, which is q here: this is the divergence the other way round.",
        ),
        "d": Option(
            "`F.kl_div(q.log(), p)`",
            'The order is right, but the default reduction="mean" divides by the number of entries, V.',
        ),
    },
)

PERPLEXITY = Function(
    id="perplexity",
    chapter=5,
    section="5.8",
    title="Perplexity of a text",
    prompt=(
        "Write `perplexity(log_p)`: `log_p` holds the natural log-probability that a model gave to each token of a "
        "text that really came next."
    ),
    contract="`log_p`: (N,) float64, N ≥ 1, entries ≤ 0; N may be several thousand. Result: a scalar, in tokens.",
    hints=(
        "Perplexity is the exponential of one number: the mean negative log-likelihood.",
        "Stay in the logarithm until the very end; a product of thousands of probabilities is 0 in floating point.",
    ),
    checklist=(10,),
    level="easy",
    oracle=lambda log_p: ops.perplexity(-np.mean(log_p)),
    cases=lambda rng: [
        Case(args=(np.log(rng.uniform(0.05, 0.9, 7)),), label="float64 (7,)"),
        Case(args=(np.log(rng.uniform(0.05, 0.9, 5000)),), label="float64 (5000,), a long text"),
        Case(args=(np.log([0.125]),), label="float64 (1,), one token"),
    ],
    tolerance=Tolerance(c=8, depth=16),
    mistakes=(
        Mistake(
            name="total",
            answer=_quiet(lambda log_p: np.exp(-np.sum(log_p))),
            message="You exponentiated the total, not the mean: a longer text would look worse than a short one.",
        ),
        Mistake(
            name="mean-of-inverses",
            answer=lambda log_p: np.mean(np.exp(-log_p)),
            message="You averaged the per-token perplexities. The mean is taken of the NLL, before the exponential; "
            "one very unlikely token would rule your number.",
        ),
        Mistake(
            name="sign",
            answer=lambda log_p: np.exp(np.mean(log_p)),
            message="Your perplexity is below 1. Turn the sign of the log-likelihood first.",
        ),
        Mistake(
            name="base-2",
            answer=lambda log_p: 2.0 ** (-np.mean(log_p)),
            message="You raised 2 to a mean in nats. Natural logarithms go with e.",
        ),
        Mistake(
            name="product",
            answer=_quiet(lambda log_p: np.prod(np.exp(log_p)) ** (-1 / len(log_p))),
            message="Right for a short text. In a long one the product of the probabilities underflows to 0. Stay in "
            "the logarithm.",
        ),
    ),
    accept=(
        lambda log_p: float(np.exp(-log_p.sum() / len(log_p))),
        lambda log_p: math.exp(-sum(log_p) / len(log_p)),
        lambda log_p: 2.0 ** (-np.mean(log_p / np.log(2))),
    ),
)

EXPLAIN_CE_KL = Written(
    id="explain-ce-kl",
    chapter=5,
    section="5.7",
    title="Why training on cross-entropy is fitting by KL",
    prompt=(
        "In three to six sentences: why does minimising the cross-entropy H(p, q) over the model q also minimise "
        "KL(p‖q), and what would change if one minimised KL(q‖p) instead?"
    ),
    hints=(
        "Write H(p, q) as a sum of two terms and ask which of them the model can change.",
        "In KL(p‖q) the weights come from the data. Where does that force q to have mass?",
    ),
    checklist=(10,),
    level="medium",
    rubric=(
        "States H(p, q) = H(p) + KL(p‖q).",
        "Says that H(p) does not depend on the model, so both have the same minimiser and the same gradient.",
        "Says that KL(p‖q) punishes q near 0 where p is not (it must cover); KL(q‖p) lets q pick one mode.",
        "Notes that KL(q‖p) needs samples or probabilities of the model and log p, which data alone do not give.",
    ),
    model=(
        "H(p, q) = H(p) + KL(p‖q), and H(p) is a property of the data that no parameter changes. So both have the "
        "same gradient and the same minimiser. KL(p‖q) is an expectation under the data: it is infinite where p has "
        "mass and q has none, so q must cover all of p. KL(q‖p) is an expectation under the model: q may leave out a "
        "mode of p and concentrate on another, and one needs log p itself, not only samples of p."
    ),
)


# ---------------------------------------------------------------- choosing a token


def _top_p_mask(p: Array, threshold: float) -> Array:
    """Boolean mask of the smallest set of most probable tokens whose mass reaches ``threshold``."""
    return _top_p_mask_of(p, threshold, np.argsort(-p, kind="stable"))


def _top_p_mask_of(p: Array, threshold: float, order: Array) -> Array:
    before = np.concatenate([[0.0], np.cumsum(p[order])[:-1]])
    mask = np.zeros(p.shape, bool)
    mask[order] = before < threshold
    return mask


def _sorted_mask(keep: Any) -> Any:
    """A mask made from the sorted probabilities and their cumulative sums, mapped back to the tokens."""

    def mask(p: Array, threshold: float) -> Array:
        order = np.argsort(-p, kind="stable")
        out = np.zeros(p.shape, bool)
        out[order] = keep(p[order], np.cumsum(p[order]), threshold)
        return out

    return mask


def _top_p_cases(rng: np.random.Generator) -> list[Case]:
    cases = [
        Case(args=(np.array([0.5, 0.25, 0.125, 0.125]), 0.6), label="p = [1/2, 1/4, 1/8, 1/8], 0.6"),
        Case(args=(np.array([0.125, 0.5, 0.125, 0.25]), 0.6), label="the same, unsorted"),
        Case(args=(np.array([0.125, 0.5, 0.125, 0.25]), 0.75), label="a sum that meets 0.75 exactly"),
        Case(args=(np.array([0.25, 0.25, 0.25, 0.25]), 0.5), label="four equal probabilities, 0.5"),
        Case(args=(np.array([0.0625, 0.875, 0.0625]), 0.1), label="a threshold below the largest"),
        Case(args=(np.array([0.25, 0.5, 0.25]), 1.0), label="threshold 1"),
        Case(args=(np.array([1.0]), 0.5), label="a vocabulary of one"),
    ]
    for V in (6, 50):
        p = rng.dirichlet(np.full(V, 0.5))
        sums = np.cumsum(np.sort(p)[::-1])
        n = V // 3
        threshold = float((sums[n] + sums[n + 1]) / 2)  # between two sums, so that no rounding decides
        cases.append(Case(args=(p, threshold), label=f"float64 ({V},), random"))
    return cases


TOP_P = Function(
    id="top-p",
    chapter=5,
    section="5.9",
    title="The nucleus",
    prompt=(
        "Write `top_p_mask(p, threshold)`: a boolean mask of the smallest set of most probable tokens whose "
        "probabilities sum to **at least** `threshold`. The token that crosses the threshold is kept."
    ),
    contract=(
        "`p`: (V,) float64 probabilities, unsorted; `threshold` in (0, 1]. Among equal probabilities the lower index "
        "comes first. Result: (V,) bool, in the order of `p`, with at least one True."
    ),
    hints=(
        "Sort by decreasing probability and keep the permutation; the mask must go back to the original order.",
        "Look at the sum **before** each token: a token is needed as long as that sum is below the threshold.",
        "`order = np.argsort(-p, kind='stable')`, and `mask[order] = before < threshold`.",
    ),
    level="medium",
    oracle=_top_p_mask,
    cases=_top_p_cases,
    mistakes=(
        Mistake(
            name="crossing-token-dropped",
            answer=_sorted_mask(lambda q, sums, t: sums <= t),
            message="You dropped the token that crosses the threshold, so what is left sums to less than asked for, "
            "and may even be empty.",
        ),
        Mistake(
            name="one-too-many",
            answer=_sorted_mask(lambda q, sums, t: np.concatenate([[0.0], sums[:-1]]) <= t),
            message="Where the sum meets the threshold exactly, you kept one more token. At least means that equal is "
            "enough.",
        ),
        Mistake(
            name="sorted-order",
            answer=lambda p, t: np.concatenate([[0.0], np.cumsum(np.sort(p)[::-1])[:-1]]) < t,
            message="Your mask is in sorted order. Carry it back to the order of `p` with the permutation.",
        ),
        Mistake(
            name="each-by-itself",
            answer=lambda p, t: p >= t,
            message="You compared single probabilities with the threshold. It is their running sum that must reach it.",
        ),
        Mistake(
            name="least-likely-first",
            answer=lambda p, t: _top_p_mask_of(p, t, np.argsort(p, kind="stable")),
            message="You summed from the least likely token upwards. The most likely ones come first.",
        ),
    ),
    accept=(
        _sorted_mask(lambda q, sums, t: np.arange(q.size) <= np.searchsorted(sums, t, side="left")),
        _sorted_mask(lambda q, sums, t: sums - q < t),
    ),
)


def _top_k_cases(rng: np.random.Generator) -> list[Case]:
    even = [rng.normal(size=8) for _ in range(4)]
    skewed = [np.array([0.1, 0.2, 0.3]), np.array([9.0, 8.0, 7.0]), np.array([0.4, 0.5, 0.6])]
    uneven = [rng.normal(size=n) for n in (1, 7, 4)]
    ties = [np.array([1.0, 3.0]), np.array([3.0, 2.0]), np.array([3.0, 0.0])]
    return [
        Case(args=(even, 4), label="4 shards of 8, k = 4"),
        Case(args=(skewed, 3), label="3 shards of 3, the largest all on one, k = 3"),
        Case(args=(uneven, 3), label="shards of 1, 7 and 4, k = 3"),
        Case(args=(ties, 2), label="equal logits on several shards, k = 2"),
        Case(args=([even[0]], 1), label="one shard, k = 1"),
        Case(args=(even, 32), label="4 shards of 8, k = 32"),
    ]


def _global_top_k(shards: list[Array], k: int) -> Array:
    """Indices in the whole vocabulary of the k largest logits, largest first, ties to the lower index."""
    return np.argsort(-np.concatenate(shards), kind="stable")[:k]


def _local_winners(shards: list[Array], each: int) -> list[Array]:
    return [np.argsort(-shard, kind="stable")[:each] for shard in shards]


def _offsets(shards: list[Array]) -> list[int]:
    return [sum(len(shard) for shard in shards[:rank]) for rank in range(len(shards))]


def _from_candidates(shards: list[Array], k: int, each: int) -> Array:
    """The k best among ``each`` candidates of every shard."""
    local = _local_winners(shards, each)
    index = np.concatenate([i + offset for i, offset in zip(local, _offsets(shards), strict=True)])
    value = np.concatenate([shard[i] for shard, i in zip(shards, local, strict=True)])
    return index[np.argsort(-value, kind="stable")[:k]]


def _without_offsets(shards: list[Array], k: int) -> Array:
    local = _local_winners(shards, k)
    value = np.concatenate([shard[i] for shard, i in zip(shards, local, strict=True)])
    return np.concatenate(local)[np.argsort(-value, kind="stable")[:k]]


VOCAB_PARALLEL_TOP_K = Function(
    id="vocab-parallel-top-k",
    chapter=5,
    section="5.9",
    title="Top-k over a split vocabulary",
    prompt=(
        "A vocabulary is split over ranks. Write `global_top_k(shards, k)`: the indices, in the whole vocabulary, of "
        "the `k` largest logits, as a rank would find them from the candidates of every shard."
    ),
    contract=(
        "`shards`: a list of 1-D float64 arrays, in vocabulary order, of possibly different lengths, some shorter "
        "than `k`; 1 ≤ k ≤ V. Result: (k,) integers, largest logit first, equal logits by lower index."
    ),
    hints=(
        "How many of the global winners can sit on one shard, at worst?",
        "A local index becomes a global one by adding the lengths of the shards before it.",
        "Concatenate candidates in shard order and use a stable sort: ties then fall to the lower index by themselves.",
    ),
    points=2,
    level="hard",
    oracle=_global_top_k,
    cases=_top_k_cases,
    mistakes=(
        Mistake(
            name="k-over-ranks",
            answer=lambda shards, k: _from_candidates(shards, k, -(-k // len(shards))),
            message="You took only a share of k from each shard. All winners may sit on one shard, so each must offer "
            "up to k.",
        ),
        Mistake(
            name="local-indices",
            answer=_without_offsets,
            message="Your indices are local to their shards. Add the number of logits on the shards before.",
        ),
        Mistake(
            name="ascending",
            answer=lambda shards, k: _global_top_k(shards, k)[::-1],
            message="Your indices go from the smallest winner to the largest. Largest first.",
        ),
        Mistake(
            name="smallest",
            answer=lambda shards, k: np.argsort(np.concatenate(shards), kind="stable")[:k],
            message="You returned the smallest logits: argsort sorts upwards.",
        ),
        Mistake(
            name="ties-to-the-higher-index",
            answer=lambda shards, k: np.argsort(np.concatenate(shards), kind="stable")[::-1][:k],
            message="Among equal logits you prefer the higher index: reversing an upward sort reverses the ties, too. "
            "Sort the negated logits.",
        ),
    ),
    accept=(
        lambda shards, k: _from_candidates(shards, k, k),
        lambda shards, k: np.array(
            sorted(range(sum(map(len, shards))), key=lambda i: (-np.concatenate(shards)[i], i))[:k]
        ),
    ),
)


# ---------------------------------------------------------------- online softmax


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
            answer=_quiet(
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
            answer=_quiet(
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


# ---------------------------------------------------------------- questions inside the chapter


def _chapter(section: str, **rest: Any) -> dict[str, Any]:
    return {"chapter": 5, "section": section, "place": "chapter", **rest}


PREDICT_SHIFT = Choice(
    **_chapter("5.1"),
    id="softmax-of-shifted-logits",
    title="Predict: a shifted row",
    prompt="Every logit of `[1, 2, 3]` grows by 100. What happens to the probabilities?",
    hints=(
        "$e^{z+100} = e^{100} e^z$.",
        "Write one probability as a fraction and see what the factor $e^{100}$ does to it.",
    ),
    options={
        "a": Option("They stay the same", "The factor appears in numerator and denominator.", correct=True),
        "b": Option("They become more equal", "Equal shares need equal logits; the gaps are still 1."),
        "c": Option("The largest comes close to 1", "That needs wider gaps between the logits, not larger logits."),
    },
)

NORMALISER_SHAPE = Shape(
    **_chapter("5.1"),
    id="softmax-normaliser-shape",
    title="Predict: the shape of the normaliser",
    prompt="Logits have shape (B, S, V) = (8, 2048, 32000). Which shape has their sum of exponentials over the "
    "vocabulary, taken with `keepdims=True`?",
    hints=("One number for every token position.", "`keepdims=True` leaves a 1 where the axis was."),
    checklist=(1,),
    expected=np.broadcast_to(0.0, (8, 2048, 32000)).max(axis=-1, keepdims=True).shape,
    mistakes=(
        Mistake(name="dropped", answer=(8, 2048), message="This is the shape without keepdims."),
        Mistake(name="not-reduced", answer=(8, 2048, 32000), message="Nothing is summed in this shape."),
        Mistake(name="over-positions", answer=(8, 1, 32000), message="You summed over the positions."),
    ),
)

PREDICT_OVERFLOW = Choice(
    **_chapter("5.2"),
    id="exp-overflow-dtype",
    title="Predict: which dtype overflows at 20?",
    prompt="The largest logit of a row is 20. In which dtypes does the naive softmax return NaN?",
    hints=(
        "Compare $e^{20}$ with the largest number of each dtype.",
        "The largest float16 is 65504. What is its natural logarithm, roughly?",
    ),
    checklist=(15,),
    options={
        "a": Option("in none of them", "$e^{20}$ is about 485 million. Is that a float16?"),
        "b": Option("in float16 only", "Its largest number is 65504, and $e^{20}$ is far beyond.", correct=True),
        "c": Option("in float16 and float32", "float32 reaches about $3.4 \\cdot 10^{38}$, which is near $e^{88.7}$."),
        "d": Option("in all three", "float64 reaches about $1.8 \\cdot 10^{308}$."),
    },
)

LSE_OF_EQUALS = Number(
    **_chapter("5.3"),
    id="lse-of-two-equal-logits",
    title="Predict: a LogSumExp",
    prompt="What is LSE of `[1000, 1000]`? Give four decimals.",
    hints=(
        "What comes out of the sum when you take the maximum, 1000, out of it?",
        "Take the maximum out: $1000 + \\log(e^0 + e^0)$.",
    ),
    checklist=(9,),
    expected=1000 + math.log(2),
    rtol=1e-7,
    mistakes=(
        Mistake(name="maximum", answer=1000.0, message="This is the maximum. A sum of two equal terms adds to it."),
        Mistake(name="sum", answer=2000.0, message="You added the logits. Their exponentials are added."),
        Mistake(name="log-of-one", answer=1001.0, message="Two terms of 1 sum to 2, and the logarithm of 2 is not 1."),
        Mistake(
            name="base-2",
            answer=1000 + math.log10(2),
            message="You took the logarithm to base 10. Here it is natural.",
        ),
    ),
)

PREDICT_TEMPERATURE = Choice(
    **_chapter("5.4"),
    id="temperature-direction",
    title="Predict: a low temperature",
    prompt="Sampling at temperature 0.5 instead of 1: what happens to the most likely token?",
    hints=(
        "What happens to the gap between two logits?",
        "Dividing by 0.5 doubles every gap between logits.",
    ),
    options={
        "a": Option("It becomes more likely", "Wider gaps between logits, a sharper distribution.", correct=True),
        "b": Option("It becomes less likely", "That is a temperature above 1: narrower gaps."),
        "c": Option("Another token becomes the most likely", "A positive temperature keeps the order of the logits."),
        "d": Option(
            "Nothing: temperature scales all logits alike", "A common shift cancels; a common factor does not."
        ),
    },
)

LOSS_AT_HALF = Number(
    **_chapter("5.5"),
    id="loss-at-half",
    title="Predict: the loss at p = 0.5",
    prompt="The model gives the right token a probability of 0.5. What is the cross-entropy, in nats? Four decimals.",
    hints=("One-hot target: only the right token's term is left.", "$-\\log 0.5 = \\log 2$."),
    checklist=(10,),
    expected=math.log(2),
    rtol=1e-4,
    mistakes=(
        Mistake(
            name="bits", answer=1.0, message="This is the value in bits. Nats use the natural logarithm.", section="5.6"
        ),
        Mistake(name="sign", answer=-math.log(2), message="The loss is the negative of the logarithm."),
        Mistake(name="probability", answer=0.5, message="This is one minus the probability. The loss is a logarithm."),
        Mistake(name="base-10", answer=math.log10(2), message="You took the logarithm to base 10."),
    ),
)

UNIFORM_ENTROPY = Number(
    **_chapter("5.6"),
    id="entropy-of-eight",
    title="Predict: entropy of a fair die with eight faces",
    prompt="Eight outcomes, all equally likely. What is the entropy? Name the unit: bit.",
    hints=(
        "How many yes-or-no questions find one of eight?",
        "All eight terms are equal: the sum is minus the logarithm of one probability, to base 2.",
    ),
    checklist=(10,),
    expected=float(np.log2(8)),
    unit="bit",
    default_unit="bit",
    mistakes=(
        Mistake(name="nats", answer=(math.log(8), "bit"), message="This is the value in nats. Bits use base 2."),
        Mistake(name="outcomes", answer=(8, "bit"), message="This is the number of outcomes, not its logarithm."),
        Mistake(name="one-term", answer=(3 / 8, "bit"), message="This is one outcome's term. Sum over all of them."),
    ),
)

PREDICT_KL = Choice(
    **_chapter("5.7"),
    id="kl-with-a-zero",
    title="Predict: a divergence with a zero",
    prompt="p = [0.5, 0.5] and q = [1, 0]. Which of the two divergences is infinite?",
    hints=(
        "The weights come from the first argument.",
        "Which of the two has a term with weight 0.5 and the logarithm of 0.5/0?",
    ),
    checklist=(10,),
    options={
        "a": Option("KL(p‖q) only", "p expects the second outcome half of the time and q rules it out.", correct=True),
        "b": Option("KL(q‖p) only", "There the second outcome has weight 0 and adds nothing."),
        "c": Option("both", "One of them gives the impossible outcome the weight 0."),
        "d": Option("neither", "An outcome that happens and was given probability 0 costs log of infinity."),
    },
)

UNIFORM_PERPLEXITY = Number(
    **_chapter("5.8"),
    id="perplexity-of-a-uniform-guess",
    title="Predict: perplexity of an untrained model",
    prompt="A model gives each of V = 50,257 tokens the same probability. What is its perplexity? The unit is token.",
    hints=(
        "Its NLL is log V for every token.",
        "Perplexity is the exponential of that.",
    ),
    checklist=(10,),
    expected=50257,
    unit="token",
    default_unit="token",
    mistakes=(
        Mistake(name="log", answer=(math.log(50257), "token"), message="This is the NLL in nats; exponentiate it."),
        Mistake(name="bits", answer=(math.log2(50257), "token"), message="This is the NLL in bits."),
        Mistake(name="inverse", answer=(1 / 50257, "token"), message="This is the probability of one token."),
        Mistake(
            name="half", answer=(50257 / 2, "token"), message="Perplexity counts equally likely tokens, not tries."
        ),
    ),
)

NUCLEUS_SIZE = Number(
    **_chapter("5.9"),
    id="nucleus-size",
    title="Predict: how many tokens does top-p keep?",
    prompt="Probabilities are [0.5, 0.25, 0.15, 0.10] and p = 0.7. How many tokens stay? The unit is token.",
    hints=(
        "Write down the running sums from the most likely token on.",
        "The first running sum that is at least p ends the set; its token belongs in.",
    ),
    expected=float(np.isfinite(ops.top_p(np.log([0.5, 0.25, 0.15, 0.10]), 0.7)).sum()),
    unit="token",
    default_unit="token",
    exact=True,
    mistakes=(
        Mistake(
            name="crossing-token-dropped",
            answer=(1, "token"),
            message="One token alone has less mass than asked for. The token that crosses the threshold belongs in.",
        ),
        Mistake(name="one-too-many", answer=(3, "token"), message="The set was large enough before the last one."),
        Mistake(name="all", answer=(4, "token"), message="That is the whole vocabulary."),
    ),
)

MERGED_SUM = Number(
    **_chapter("5.10"),
    id="merged-sum",
    title="Predict: a merged state",
    prompt="Two states (m, l): (3, 2) and (1, 4). What is the sum l of the merged state? Three decimals.",
    hints=("The new maximum is 3; only the second sum must be rescaled.", "The factor is $e^{1-3}$."),
    checklist=(9, 17),
    expected=float(ops.online_merge((3.0, 2.0), (1.0, 4.0)).l),
    mistakes=(
        Mistake(name="no-rescaling", answer=6.0, message="You added sums that refer to different maxima."),
        Mistake(
            name="wrong-way-round",
            answer=2 + 4 * math.exp(2),
            message="The factor must be below 1: the old maximum minus the new one.",
        ),
        Mistake(
            name="wrong-sum-rescaled",
            answer=2 * math.exp(-2) + 4,
            message="You rescaled the sum that already refers to the new maximum.",
        ),
    ),
)


# ---------------------------------------------------------------- kernels

EPS32 = float(np.finfo(np.float32).eps)
ONE_BLOCK_A_ROW = (
    "`x` and `y`: float32 (R, n), any n from 1 on; every row has a finite entry, and there may be $-\\infty$ among the "
    "others. The launch has R blocks of 64 threads: block r owns row r. Float32 throughout, coalesced"
)


def _kernel_rows(rng: np.random.Generator) -> list[KernelCase]:
    masked = rng.normal(0, 30, (2, 150))
    masked[0, :70], masked[1, 5:] = -np.inf, -np.inf
    levels = rng.normal(0, 3, (3, 64)) + np.array([[200], [-1000], [0]])
    alone = np.full((4, 64), -np.inf)  # one finite logit a row, in every part of a warp; the last far below all others
    alone[range(4), [3, 20, 36, 60]] = 5, -5, 80, -1e35
    cases = []
    for rows in (
        rng.normal(0, 3, (2, 100)), levels, masked, alone, rng.normal(size=(2, 1)), rng.normal(200, 40, (1, 65))
    ):  # fmt: skip
        x = rows.astype(np.float32)
        truth = ops.softmax(x.astype(np.float64))
        below = np.where(np.isfinite(x), x.max(axis=1, keepdims=True) - x.astype(np.float64), 0)
        spread = 1 + np.minimum(below, 128).max()  # further down a probability is 0 in float32
        cases.append(
            KernelCase(
                arguments={"x": x, "y": np.full_like(x, -1)},
                grid=x.shape[0],
                block=lessons.ROW_THREADS,
                truth={"y": truth},
                allowed=EPS32 * spread * (64 * truth + 1e-30),
            )
        )
    return cases


def _row_loads(passes: int) -> Counter:
    return total("passes", "load", "x", lambda case: passes * case.arguments["x"].size)


def _aligned_rows(case: KernelCase) -> float:
    """Sectors of a request where rows begin at a sector; one more where they do not."""
    return 4 if case.arguments["x"].shape[1] % 8 == 0 else 5


ROW_COUNTERS = (sectors("load", "x", _aligned_rows), sectors("store", "y", _aligned_rows))
COLUMN_CHUNKS = (
    "Each thread owns a stretch of neighbouring columns, so the lanes of a warp lie far apart. Start at the thread's "
    "index and step by the number of threads."
)
NARROW = "Literals such as `0.0` and `1.0` are float64 in a compiled kernel, and so is `l = 0`. Write `float32(0.0)`."

KERNEL_SOFTMAX_ROW = Kernel(
    id="kernel-softmax-row",
    chapter=5,
    section="5.11",
    title="Softmax of a row by one block",
    level="hard",
    points=2,
    checklist=(9,),
    prompt="Write a kernel `softmax(x, y)`: the stable softmax of each row, by one block, in at most three passes over "
    "the row.",
    contract=ONE_BLOCK_A_ROW + ", at most $3Rn$ elements of `x` loaded in all. Shared memory and shuffles as you like.",
    hints=(
        "Thread t takes the columns t, t + 64, t + 128 and so on: a loop with a stride.",
        "Reduce the maximum over the block first, then the sum of `exp(x - m)`, then write.",
        "If both reductions use the same shared array, everybody must have read the maximum before the sum comes in.",
    ),
    reference=lessons.softmax_row,
    accept=(lessons.online_softmax,),
    cases=_kernel_rows,
    counters=(*ROW_COUNTERS, _row_loads(3)),
    mistakes=(
        Mistake(
            name="no-maximum",
            answer=edited(lessons.softmax_row, ("m = max(s[0], s[1])", "m = float32(0.0)")),
            message="Without the maximum `exp` overflows to infinity or every term becomes 0. Subtract the row "
            "maximum.",
            section="5.2",
        ),
        Mistake(
            name="maximum-of-one-warp",
            answer=edited(lessons.softmax_row, ("m = max(s[0], s[1])", "m = s[0]")),
            message="Only the first warp's maximum is used. The row's largest logit may be in the other one.",
        ),
        Mistake(
            name="maximum-from-zero",
            answer=edited(lessons.softmax_row, ("m = LOWEST", "m = float32(0.0)")),
            message="A maximum that starts at 0 is wrong for a row of negative logits: their exponentials all vanish. "
            "Start at the lowest float32.",
        ),
        Mistake(
            name="scratch-reused-too-early",
            answer=edited(lessons.softmax_row, ("s[1])\n    cuda.syncthreads()\n", "s[1])\n")),
            message="A fast warp writes its sum over the maxima that a slow one has yet to read. A barrier belongs "
            "between the two uses of the scratch array.",
        ),
        Mistake(
            name="no-barrier-before-maximum",
            answer=edited(lessons.softmax_row, ("    cuda.syncthreads()\n    m = max(s", "    m = max(s")),
            message="The maxima of the other warps are read before they are written. A barrier belongs in between.",
        ),
        Mistake(
            name="no-barrier-before-sum",
            answer=edited(lessons.softmax_row, ("    cuda.syncthreads()\n    total = s", "    total = s")),
            message="The sums of the other warps are read before they are written. A barrier belongs in between.",
        ),
        Mistake(
            name="one-warp",
            answer=edited(lessons.softmax_row, ("total = s[0] + s[1]", "total = s[t // 32]")),
            message="Each warp divides by its own sum. The block has two warps, and the row one sum.",
        ),
        Mistake(
            name="one-column-a-thread",
            answer=edited(
                lessons.softmax_row,
                ("range(t, x.shape[1], ROW_THREADS)", "range(t, min(x.shape[1], ROW_THREADS), ROW_THREADS)"),
                ("range(t, x.shape[1], ROW_THREADS)", "range(t, min(x.shape[1], ROW_THREADS), ROW_THREADS)"),
                ("range(t, x.shape[1], ROW_THREADS)", "range(t, min(x.shape[1], ROW_THREADS), ROW_THREADS)"),
            ),
            message="Only the first 64 columns are looked at. A row may be longer than the block: loop with a stride.",
        ),
        Mistake(
            name="no-guard",
            answer=edited(
                lessons.softmax_row,
                ("range(t, x.shape[1], ROW_THREADS)", "range(t, x.shape[1] + t, ROW_THREADS)"),
                ("range(t, x.shape[1], ROW_THREADS)", "range(t, x.shape[1] + t, ROW_THREADS)"),
                ("range(t, x.shape[1], ROW_THREADS)", "range(t, x.shape[1] + t, ROW_THREADS)"),
            ),
            message="All threads take the same number of columns, so the last ones run past the end of the row. Stop "
            "each at `x.shape[1]`.",
        ),
        Mistake(
            name="uncoalesced",
            answer=edited(
                lessons.softmax_row,
                *[
                    (
                        "range(t, x.shape[1], ROW_THREADS)",
                        "range(t * ((x.shape[1] + 63) // 64), min(x.shape[1], (t + 1) * ((x.shape[1] + 63) // 64)))",
                    )
                ]
                * 3,
            ),
            message=COLUMN_CHUNKS,
        ),
        Mistake(
            name="float64",
            answer=edited(lessons.softmax_row, ("total = float32(0.0)", "total = 0.0")),
            message=NARROW,
        ),
    ),
)

KERNEL_ONLINE_SOFTMAX = Kernel(
    id="kernel-online-softmax",
    chapter=5,
    section="5.11",
    title="Online softmax by one block",
    level="hard",
    points=2,
    checklist=(9, 17),
    prompt="Write a kernel `softmax(x, y)` that reads each row twice: once for a state $(m, \\ell)$ a thread, merged "
    "over the block, and once to write the result.",
    contract=ONE_BLOCK_A_ROW + ", at most $2Rn$ elements of `x` loaded in all.",
    hints=(
        "A thread that has no column holds the empty state. Which finite maximum makes it harmless in a merge?",
        "When a larger logit comes, multiply the sum so far by `exp(m_old - m_new)`; the same holds in a merge.",
        "Merge the states in shared memory as a tree, with a barrier after every turn, outside the `if`.",
    ),
    reference=lessons.online_softmax,
    cases=_kernel_rows,
    counters=(*ROW_COUNTERS, _row_loads(2)),
    mistakes=(
        Mistake(
            name="three-passes",
            answer=lessons.softmax_row,
            message="Maximum, sum and result are three passes. Keep the sum beside the maximum, and correct it when "
            "the maximum grows.",
        ),
        Mistake(
            name="no-rescaling",
            answer=edited(lessons.online_softmax, ("l = l * math.exp(m - higher)", "l = l")),
            message="When the maximum grows, what was summed before still refers to the old one. Rescale it.",
        ),
        Mistake(
            name="rescaled-the-wrong-way",
            answer=edited(lessons.online_softmax, ("math.exp(m - higher)", "math.exp(higher - m)")),
            message="The factor is `exp` of old minus new maximum, which is at most 1. Yours is its inverse.",
        ),
        Mistake(
            name="merge-without-rescaling",
            answer=edited(
                lessons.online_softmax,
                ("sl[t] * math.exp(sm[t] - m) + sl[t + step] * math.exp(sm[t + step] - m)", "sl[t] + sl[t + step]"),
            ),
            message="The two sums of a merge refer to different maxima. Bring both to the common one.",
        ),
        Mistake(
            name="empty-state-nan",
            answer=edited(lessons.online_softmax, ("m, l = LOWEST", 'm, l = float32("-inf")')),
            message="A state that starts at minus infinity gives infinity minus infinity, which is NaN, for an empty "
            "thread or a masked logit. Start at the lowest finite float32.",
        ),
        Mistake(
            name="no-barrier-before-merge",
            answer=edited(lessons.online_softmax, ("    cuda.syncthreads()\n    step", "    step")),
            message="States are merged before all of them are written. A barrier belongs between the two.",
        ),
        Mistake(
            name="no-barrier-in-merge",
            answer=edited(lessons.online_softmax, ("        cuda.syncthreads()\n        step", "        step")),
            message="One turn of the tree reads what the turn before writes. A barrier belongs at the end of each "
            "turn.",
        ),
        Mistake(
            name="barrier-in-if",
            answer=edited(lessons.online_softmax, ("sm[t] = m\n        cuda", "sm[t] = m\n            cuda")),
            message="Threads that merge nothing never come to the barrier inside the condition. Move it out of the "
            "`if`.",
        ),
        Mistake(
            name="uncoalesced",
            answer=edited(
                lessons.online_softmax,
                *[
                    (
                        "range(t, x.shape[1], ROW_THREADS)",
                        "range(t * ((x.shape[1] + 63) // 64), min(x.shape[1], (t + 1) * ((x.shape[1] + 63) // 64)))",
                    )
                ]
                * 2,
            ),
            message=COLUMN_CHUNKS,
        ),
        Mistake(
            name="float64",
            answer=edited(lessons.online_softmax, ("LOWEST, float32(0.0)", "LOWEST, 0.0")),
            message=NARROW,
        ),
    ),
)


def _triton_case(x: Array, dtype: str = "float32") -> RowCase:
    """A launch with its truth; allowed: the dtype's own rounding of the result, and float32's of the steps."""
    import ml_dtypes

    held = x.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32).astype(np.float64)
    truth = ops.softmax(held)
    below = np.where(np.isfinite(held), held.max(-1, keepdims=True) - held, 0.0)
    unit = 2.0**-8 if dtype == "bfloat16" else 2.0**-24
    allowed = truth * (unit + (4 * below + 64) * 2.0**-24) + 2.0**-126
    return RowCase(held.astype(np.float32), truth, allowed, dtype)


def _triton_cases(rng: np.random.Generator) -> list[RowCase]:
    """Rows shorter than the block, as long as it, far from zero, masked, and in bfloat16."""
    levels = rng.normal(size=(3, 100)) + np.array([[0.0], [200.0], [-200.0]])
    masked = rng.normal(size=(3, 20))
    masked[0, :5] = masked[2, 1:] = -np.inf
    return [
        _triton_case(rng.normal(size=(3, 7))),
        _triton_case(rng.normal(size=(2, 16))),
        _triton_case(levels),
        _triton_case(masked),
        _triton_case(rng.normal(size=(1, 1))),
        _triton_case(2 * rng.normal(size=(4, 33)), "bfloat16"),
    ]


def _triton_variant(*edits: tuple[str, str]) -> Any:
    return edited(triton_lessons.softmax_kernel, *edits)


KERNEL_TRITON_SOFTMAX = TritonKernel(
    id="kernel-triton-softmax",
    chapter=5,
    section="5.11",
    title="Softmax in Triton",
    level="hard",
    checklist=(9,),
    points=3,
    prompt="Write `softmax_kernel(y_ptr, x_ptr, columns, BLOCK)` in Triton: program `tl.program_id(0)` writes the "
    "**stable** softmax of one row.",
    contract="`x_ptr`, `y_ptr`: pointers to (rows, columns) arrays in C order, float32 or bfloat16; `BLOCK`: a power "
    "of two, at least `columns`. One program a row, arithmetic in float32. Entries may be $-\\infty$, but no whole row "
    "is. The kernel may use its arguments and `tl`, without `tl.softmax`.",
    hints=(
        "`tl.arange(0, BLOCK)` has BLOCK elements and the row has `columns`: which lanes may load, and what do the "
        "others hold?",
        "What may stand in the place of a missing element so that neither the maximum nor the sum changes?",
        "`tl.load(pointer, mask=…, other=…)`, `tl.max(x, axis=0)`, `tl.sum(e, axis=0)`, "
        "`tl.store(pointer, y, mask=…)`; `.to(tl.float32)` right after the load.",
    ),
    reference=triton_lessons.softmax_kernel,
    cases=_triton_cases,
    forbidden=("softmax",),
    mistakes=(
        Mistake(
            name="no-load-mask",
            answer=_triton_variant((', mask=inside, other=-float("inf")', "")),
            message="The lanes beyond the row load too: the next row, and past the last row nobody's memory.",
        ),
        Mistake(
            name="no-store-mask",
            answer=_triton_variant(("y, mask=inside", "y")),
            message="The lanes beyond the row store too: into the next row, and past the end of the array.",
        ),
        Mistake(
            name="zero-fill",
            answer=_triton_variant(('other=-float("inf")', "other=0.0")),
            message="A lane without an element holds 0, and $e^0 = 1$: it counts in the sum, and may be the maximum.",
        ),
        Mistake(
            name="no-shift",
            answer=_triton_variant(("x - tl.max(x, axis=0)", "x")),
            message="`exp` overflows, or every one of them becomes 0. Subtract the row's maximum first.",
            section="5.2",
        ),
        Mistake(
            name="no-sum",
            answer=_triton_variant(("e / tl.sum(e, axis=0)", "e")),
            message="The exponentials are not divided by their sum.",
        ),
        Mistake(
            name="one-row",
            answer=_triton_variant(("x_ptr + row * columns", "x_ptr")),
            message="Every program reads row 0. A pointer names an element: the row has to be added to it.",
        ),
        Mistake(
            name="block-as-stride",
            answer=_triton_variant(("x_ptr + row * columns", "x_ptr + row * BLOCK")),
            message="Rows lie `columns` apart, not BLOCK: only the registers are padded, the array is not.",
        ),
    ),
    accept=(
        _triton_variant((".to(tl.float32)", "")),  # tl.max and tl.sum take bfloat16 to float32 by themselves
        _triton_variant(
            ("tl.exp(x - tl.max(x, axis=0))", "tl.exp2((x - tl.max(x, axis=0)) * 1.4426950408889634)"),
        ),
        _triton_variant(
            (', mask=inside, other=-float("inf")', ", mask=inside"),
            ("    e = ", '    x = tl.where(inside, x, -float("inf"))\n    e = '),
        ),
    ),
)


ONLINE_KERNEL_LOADS = Number(
    id="online-kernel-loads",
    chapter=5,
    section="5.11",
    title="What an online kernel reads",
    place="chapter",
    checklist=(9,),
    prompt="How many elements does the online kernel load from global memory in all, for 4 rows of 300 logits with 64 "
    "threads a row?",
    hints=("Which two loops read the row?", "A thread with no column left reads nothing."),
    expected=2 * 4 * 300,
    unit="element",
    default_unit="element",
    exact=True,
    mistakes=(
        Mistake(
            name="three-passes",
            answer=3 * 4 * 300,
            message="That is maximum, sum and result apart. The state takes the first two in one pass.",
        ),
        Mistake(
            name="one-pass",
            answer=4 * 300,
            message="One pass gives the state. The result needs every logit again, and the threads have not kept them.",
        ),
        Mistake(
            name="whole-blocks",
            answer=2 * 4 * 320,
            message="You rounded the row up to whole turns of the block. Threads beyond the end read nothing.",
        ),
        Mistake(name="one-row", answer=2 * 300, message="That is one row. Each of them has a block of its own."),
    ),
)

SCRATCH_BARRIER = Choice(
    id="scratch-barrier",
    chapter=5,
    section="5.11",
    title="Scratch memory used twice",
    place="chapter",
    checklist=(9,),
    prompt="The three-pass kernel has a barrier **after** all threads have read the maxima from shared memory. What "
    "goes wrong without it?",
    hints=("Which line writes the same array next, and who may come there first?",),
    options={
        "a": Option(
            "The maxima may not be written yet when they are read",
            "The barrier before the read takes care of that. This one stands after it.",
        ),
        "b": Option(
            "A fast warp writes its sum where a slow warp has yet to read a maximum",
            "The write of the second reduction meets the read of the first. Two arrays would need no barrier here.",
            True,
        ),
        "c": Option(
            "The threads of one warp drift apart",
            "They may, but shuffles bring a warp together again. The fault lies between warps.",
        ),
        "d": Option("Nothing, it only costs time", "Look at the next write to that array, and at who waits for whom."),
    },
)


EXERCISES: tuple[Exercise, ...] = (
    SOFTMAX_STABLE,
    SOFTMAX_SHIFT,
    TWO_CLASS_SIGMOID,
    LOG_SOFTMAX,
    TEMPERATURE_LIMITS,
    CROSS_ENTROPY_IGNORE,
    SOFTMAX_CE_GRAD,
    LOSS_LOGITS_BYTES,
    ENTROPY_BITS,
    KL_DIVERGENCE,
    KL_TORCH_CALL,
    EXPLAIN_CE_KL,
    PERPLEXITY,
    TOP_P,
    VOCAB_PARALLEL_TOP_K,
    ONLINE_MERGE,
    KERNEL_SOFTMAX_ROW,
    KERNEL_ONLINE_SOFTMAX,
    KERNEL_TRITON_SOFTMAX,
    PREDICT_SHIFT,
    NORMALISER_SHAPE,
    PREDICT_OVERFLOW,
    LSE_OF_EQUALS,
    PREDICT_TEMPERATURE,
    LOSS_AT_HALF,
    UNIFORM_ENTROPY,
    PREDICT_KL,
    UNIFORM_PERPLEXITY,
    NUCLEUS_SIZE,
    MERGED_SUM,
    ONLINE_KERNEL_LOADS,
    SCRATCH_BARRIER,
)
