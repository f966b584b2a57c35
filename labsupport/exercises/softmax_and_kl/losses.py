"""Exercises of chapter 5 on the cross-entropy loss, its gradient, and the bytes of its logits."""

import math
from typing import Any

import numpy as np

from labsupport.exercises.softmax_and_kl.logits import magnitude, row_length
from labsupport.grading import Case, Exercise, Function, Mistake, Number, Tolerance
from labsupport.grading.shorthand import quiet
from labsupport.ops import softmax as ops

Array = np.ndarray


def _hard_rows(rng: np.random.Generator) -> tuple[Array, Array]:
    """Rows at three levels, which need a maximum each, and a row too wide for any shift but its maximum."""
    levels = rng.normal(size=(3, 4)) + np.array([[0.0], [1000.0], [-1000.0]])
    return levels, np.array([[1000.0, 0.0, -1000.0], [0.0, 1.0, 2.0]])


def _global_shift(z: Array) -> tuple[Array, Array]:
    """Exponentials and their row sums after one shift for the whole array."""
    e = np.exp(z - z.max(initial=-np.inf))
    return e, e.sum(axis=-1, keepdims=True)


def _ignored_cases(rng: np.random.Generator) -> list[Case]:
    z = rng.normal(0, 2, (6, 5))
    some = np.array([2, -100, 0, 4, -100, 1])
    unknown = z.copy()
    unknown[1] = np.nan
    far = np.array([[0.0, 900.0, 0.0], [5.0, 5.0, 5.0], [1.0, 2.0, 3.0]])
    levels, wide = _hard_rows(rng)
    return [
        Case(args=(z, np.array([2, 1, 0, 4, 3, 1]), -100), label="float64 (6, 5), nothing ignored"),
        Case(args=(z, some, -100), label="float64 (6, 5), two labels ignored"),
        Case(args=(z.astype(np.float32), some, -100), label="float32 (6, 5), two labels ignored"),
        Case(args=(z, np.array([2, 0, 1, 4, 0, 0]), 0), label="float64 (6, 5), the padding label 0 ignored"),
        Case(args=(unknown, some, -100), label="float64 (6, 5), an ignored row holds NaN"),
        Case(args=(far, np.array([0, 1, -100]), -100), label="float64 (3, 3), the right class far behind"),
        Case(args=(levels, np.array([0, 3, 1]), -100), label="float64 (3, 4), rows near 0, 1000 and -1000"),
        Case(args=(wide, np.array([0, 2]), -100), label="float64 (2, 3), a row 2,000 wide"),
    ]


def _nll(z: Array, y: Array, ignore: int) -> tuple[Array, Array]:
    counted = y != ignore
    rows = ops.cross_entropy(np.where(counted[:, None], z, 0), np.where(counted, y, 0), reduction="none")
    return rows, counted


def _ce(reduce: Any) -> Any:
    return quiet(lambda logits, targets, ignore_index: reduce(*_nll(logits, targets, ignore_index)))


def _selected(log_p: Any) -> Any:
    """The loss of the counted rows by a log-softmax of one's own."""

    def loss(logits: Array, targets: Array, ignore_index: int) -> Any:
        z, y = logits[targets != ignore_index], targets[targets != ignore_index]
        return -log_p(z)[np.arange(len(y)), y].mean()

    return quiet(loss)


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
        "`logits`: (N, V), float32 or float64, of any size; `targets`: (N,) integers, at least one of them counted. A "
        "row that is ignored may hold anything, NaN included. Result: a scalar, in nats."
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
        scale=lambda z, y, ignore: magnitude(z),
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
            answer=quiet(
                lambda z, y, ignore: (
                    -np.mean(np.log(ops.softmax(z[y != ignore]))[np.arange((y != ignore).sum()), y[y != ignore]])
                )
            ),
            message="Where the right class is far behind, softmax underflows to 0 and its logarithm is -inf. Use "
            "log-softmax.",
            section="5.3",
        ),
        Mistake(
            name="naive-lse",
            answer=_selected(lambda z: z - np.log(np.exp(z).sum(-1, keepdims=True))),
            message="Your log-sum-exp overflows on large logits, and is the logarithm of 0 on very negative ones. Take "
            "the maximum of the row out of it first.",
            section="5.3",
        ),
        Mistake(
            name="global-shift",
            answer=_selected(lambda z: z - z.max() - np.log(_global_shift(z)[1])),
            message="You shifted every row by the maximum of the whole array. A row far below it underflows to the "
            "logarithm of 0. Each row needs its own maximum.",
            section="5.2",
        ),
        Mistake(
            name="multiplied-by-mask",
            answer=quiet(
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
    levels, wide = _hard_rows(rng)
    return [
        Case(args=(z, np.array([5, 0, 2, 2])), label="float64 (4, 6)"),
        Case(args=(z.astype(np.float32), np.array([5, 0, 2, 2])), label="float32 (4, 6)"),
        Case(args=(rng.normal(0, 2, (3, 3)), np.array([1, 0, 1])), label="float64 (3, 3), square"),
        Case(args=(rng.normal(0, 2, (1, 3)), np.array([1])), label="float64 (1, 3), a batch of one"),
        Case(args=(np.zeros((2, 2)), np.array([0, 1])), label="float64 (2, 2), all logits equal"),
        Case(args=(1000 + rng.normal(size=(3, 4)), np.array([0, 3, 1])), label="float64 (3, 4), logits near 1000"),
        Case(args=(levels, np.array([0, 3, 1])), label="float64 (3, 4), rows near 0, 1000 and -1000"),
        Case(args=(wide, np.array([1, 2])), label="float64 (2, 3), a row 2,000 wide"),
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
    contract="`logits`: (B, V), float32 or float64, of any size; `targets`: (B,) integers in [0, V). Result: (B, V), "
    "same dtype.",
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
    tolerance=Tolerance(c=4, depth=row_length, scale=magnitude),
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
        Mistake(
            name="global-shift",
            answer=quiet(lambda z, y: (_global_shift(z)[0] / _global_shift(z)[1] - _one_hot(z, y)) / len(y)),
            message="You shifted every row by the maximum of the whole array. A row far below it underflows to 0/0. "
            "Each row needs its own maximum.",
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

EXERCISES: tuple[Exercise, ...] = (
    CROSS_ENTROPY_IGNORE,
    SOFTMAX_CE_GRAD,
    LOSS_LOGITS_BYTES,
)
