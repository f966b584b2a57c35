"""Exercises of chapter 13 on the loop: the schedule, accumulation, ranks, and one whole step."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from labsupport.grading import Case, Choice, Exercise, Function, Mistake, Option, Tolerance
from labsupport.ops import optim
from labsupport.ops.softmax import cross_entropy, softmax

Array = np.ndarray


def _rate(step: int, steps: int, peak: float, warmup: int, floor: float) -> float:
    if step < warmup:
        return peak * (step + 1) / warmup
    share = (step - warmup) / max(1, steps - 1 - warmup)
    return peak * (floor + (1 - floor) * (1 + math.cos(math.pi * share)) / 2)


def _rate_from(first: int) -> Callable[..., float]:
    def rate(step: int, steps: int, peak: float, warmup: int, floor: float) -> float:
        return peak * (step + first) / warmup if step < warmup else _rate(step, steps, peak, warmup, floor)

    return rate


def _after_warmup(f: Callable[..., float]) -> Callable[..., float]:
    def rate(step: int, steps: int, peak: float, warmup: int, floor: float) -> float:
        return peak * (step + 1) / warmup if step < warmup else f(step, steps, peak, warmup, floor)

    return rate


LR_SCHEDULE = Function(
    id="lr-schedule",
    chapter=13,
    section="13.7",
    title="Warm-up and cosine",
    level="easy",
    prompt=(
        "Write `rate(step, steps, peak, warmup, floor)`, the learning rate of equation 13.5: a straight line to `peak` "
        "over the first `warmup` steps, then half a cosine that ends at `floor * peak` in the last step."
    ),
    contract=(
        "`step`: integer from 0 to `steps - 1`; `warmup`: integer from 1, below `steps - 1`; `floor`: from 0 to 1. "
        "Step 0 has the rate `peak / warmup`. Result: a float."
    ),
    hints=(
        "Two branches: `step < warmup`, and the rest.",
        "In the second branch a share $u$ runs from 0 at step `warmup` to 1 at step `steps - 1`.",
        "Half a cosine: `(1 + cos(pi * u)) / 2` runs from 1 to 0. Stretch it between `floor` and 1.",
    ),
    oracle=_rate,
    cases=lambda rng: [
        *(Case(args=(s, 100, 0.01, 10, 0.1), label=f"step {s} of 100") for s in (0, 5, 9, 10, 40, 70, 99)),
        Case(args=(30, 50, 3e-4, 5, 0.0), label="step 30 of 50, floor 0"),
        Case(args=(7, 20, 1.0, 1, 0.5), label="step 7 of 20, one step of warm-up"),
        Case(args=(int(rng.integers(30, 190)), 200, 0.02, 20, 0.2), label="a step of 200"),
    ],
    tolerance=Tolerance(c=16, depth=1, scale=lambda step, steps, peak, *_: peak),
    mistakes=(
        Mistake(
            name="starts-at-zero",
            answer=_rate_from(0),
            message="Your first step has the rate 0 and is lost. Steps count from 0, so the line needs `step + 1`.",
        ),
        Mistake(
            name="linear-decay",
            answer=_after_warmup(
                lambda s, n, p, w, f: p * (1 - (1 - f) * (s - w) / (n - 1 - w)),
            ),
            message="Your decay is a straight line. It meets the cosine at its two ends and in the middle only.",
        ),
        Mistake(
            name="no-floor",
            answer=_after_warmup(lambda s, n, p, w, f: _rate(s, n, p, w, 0.0)),
            message="Your rate ends at 0 whatever the floor is.",
        ),
        Mistake(
            name="floor-added",
            answer=_after_warmup(lambda s, n, p, w, f: p * f + _rate(s, n, p, w, 0.0)),
            message="You added the floor on top: right after the warm-up the rate is then above the peak. Shrink the "
            "cosine by `1 - floor`.",
        ),
        Mistake(
            name="whole-cosine",
            answer=_after_warmup(
                lambda s, n, p, w, f: p * (f + (1 - f) * (1 + math.cos(2 * math.pi * (s - w) / (n - 1 - w))) / 2),
            ),
            message="Your rate comes back up at the end: that is a whole cosine. Half of one goes from 1 to 0.",
        ),
        Mistake(
            name="warm-up-not-subtracted",
            answer=_after_warmup(
                lambda s, n, p, w, f: p * (f + (1 - f) * (1 + math.cos(math.pi * s / (n - 1))) / 2),
            ),
            message="Your cosine starts at step 0 instead of at the end of the warm-up, so that the rate jumps there.",
        ),
    ),
)

STEP_ORDER = Choice(
    id="step-order",
    chapter=13,
    section="13.7",
    title="The order of a step",
    level="easy",
    checklist=(16,),
    prompt=(
        "A step on several ranks, with FP16 loss scaling and clipping by the global norm. After `zero_grad`, forward "
        "and scaled backward: which order is right?"
    ),
    hints=(
        "Clipping compares a norm with a limit. Of which gradient must that norm be?",
        "The limit is meant for the gradient of the whole batch, in its true size.",
    ),
    options={
        "a": Option(
            "sum over ranks, unscale, clip, update",
            "The norm is that of the true gradient of the whole batch, and only then is it limited and used.",
            correct=True,
        ),
        "b": Option(
            "clip, sum over ranks, unscale, update",
            "Each rank would limit its own, still scaled gradient. The norm of a part says nothing about the whole, "
            "and a scaled one is always over the limit.",
        ),
        "c": Option(
            "sum over ranks, clip, unscale, update",
            "The gradient still carries the loss scale when it is compared with the limit. It would be cut to almost "
            "nothing, and unscaling would divide it once more.",
        ),
        "d": Option(
            "sum over ranks, unscale, update, clip",
            "The update has already used the gradient that clipping was to limit.",
        ),
    },
)


def _accumulate(grads: list[Array], counts: list[int]) -> Array:
    total = sum(counts)
    return sum(
        (grad * (count / total) for grad, count in zip(grads, counts, strict=True) if count), np.zeros_like(grads[0])
    )


def _accumulate_cases(rng: np.random.Generator) -> list[Case]:
    def draw(n: int, *shape: int) -> list[Array]:
        return [rng.normal(size=shape) for _ in range(n)]

    with_nan = draw(3, 2, 3)
    with_nan[1] = np.full((2, 3), np.nan)
    return [
        Case(args=(draw(2, 3), [30, 10]), label="two micro-batches, 30 and 10 labels"),
        Case(args=(draw(3, 2, 4), [5, 5, 6]), label="three micro-batches"),
        Case(args=(draw(1, 4), [7]), label="one micro-batch"),
        Case(args=(with_nan, [3, 0, 9]), label="a micro-batch without labels, its gradient is NaN"),
        Case(args=([g.astype(np.float32) for g in draw(4, 5)], [1, 2, 3, 4]), label="float32, four micro-batches"),
    ]


LAB_ACCUMULATE = Function(
    id="lab-accumulate",
    chapter=13,
    section="13.11",
    title="Gradients of parts of a batch",
    level="medium",
    checklist=(17,),
    prompt=(
        "Write `accumulate(grads, counts)`: each `grads[i]` is the gradient of the **mean** loss of micro-batch (or "
        "rank) $i$, over its `counts[i]` labels. Return the gradient of the mean loss of the whole batch."
    ),
    contract=(
        "`grads`: list of float arrays of one shape; `counts`: list of integers, at least one above 0. A part with "
        "count 0 has a gradient of NaN and adds nothing."
    ),
    hints=(
        "Turn each mean back into a sum first: a mean times its count.",
        "Section 13.11: the weight of a part is its share of the labels.",
        "0 times NaN is NaN: leave those parts out instead of multiplying them by 0.",
    ),
    oracle=_accumulate,
    cases=_accumulate_cases,
    tolerance=Tolerance(c=8, depth=lambda grads, counts: len(grads)),
    mistakes=(
        Mistake(
            name="mean-of-means",
            answer=lambda g, n: sum(x for x, c in zip(g, n, strict=True) if c) / sum(c > 0 for c in n),
            message="You averaged the gradients. A part with few labels then weighs as much as one with many.",
        ),
        Mistake(
            name="plain-sum",
            answer=lambda g, n: sum(x for x, c in zip(g, n, strict=True) if c),
            message="You added the gradients of means. Each must carry its share of the labels.",
        ),
        Mistake(
            name="not-divided",
            answer=lambda g, n: sum(x * c for x, c in zip(g, n, strict=True) if c),
            message="You have the gradient of the summed loss: the division by the number of all labels is missing.",
        ),
        Mistake(
            name="nan-spreads",
            answer=lambda g, n: sum(x * (c / sum(n)) for x, c in zip(g, n, strict=True)),
            message="A part without labels has spread its NaN: 0 times NaN is NaN. Leave such parts out.",
        ),
    ),
)


def _share(rows: int, ranks: int, rank: int) -> tuple[int, int]:
    size, extra = divmod(rows, ranks)
    start = rank * size + min(rank, extra)
    return start, start + size + (rank < extra)


CUT_BATCH = Function(
    id="cut-batch",
    chapter=13,
    section="13.11",
    title="Which rows are mine?",
    level="easy",
    prompt=(
        "Write `share(rows, ranks, rank)` → `(start, stop)`: the rows of a batch that belong to one rank. The shares "
        "follow one another, cover every row once, and differ by one row at most; the first ranks get the longer ones."
    ),
    contract="Integers, `rows` ≥ 0, `ranks` ≥ 1, `0 <= rank < ranks`. A share may be empty: then `start == stop`.",
    hints=(
        "`divmod(rows, ranks)` gives the short length and how many ranks get one more.",
        "Before rank $r$ there are $r$ short shares, and one more row for each longer share before it.",
    ),
    oracle=_share,
    cases=lambda rng: [
        *(Case(args=(16, 2, r), label=f"16 rows, rank {r} of 2") for r in (0, 1)),
        *(Case(args=(10, 4, r), label=f"10 rows, rank {r} of 4") for r in range(4)),
        *(Case(args=(2, 3, r), label=f"2 rows, rank {r} of 3") for r in range(3)),
        Case(args=(int(rng.integers(50, 99)), 7, int(rng.integers(0, 7))), label="a rank of 7"),
        Case(args=(0, 2, 1), label="no rows"),
    ],
    mistakes=(
        Mistake(
            name="rest-dropped",
            answer=lambda n, k, r: (r * (n // k), (r + 1) * (n // k)),
            message="Rows that do not divide evenly are lost: nobody trains on them.",
        ),
        Mistake(
            name="rest-to-the-last",
            answer=lambda n, k, r: (r * (n // k), n if r == k - 1 else (r + 1) * (n // k)),
            message="The last rank takes the whole rest. Shares may differ by one row at most, since everybody waits "
            "for the slowest.",
        ),
        Mistake(
            name="rounded-up",
            answer=lambda n, k, r: (min(n, r * -(-n // k)), min(n, (r + 1) * -(-n // k))),
            message="You rounded the share up: the last ranks get little or nothing while the first are full.",
        ),
        Mistake(
            name="longer-last",
            answer=lambda n, k, r: (n * r // k, n * (r + 1) // k),
            message="Your shares are fair, but the longer ones are not the first. All ranks must use one rule, and "
            "the contract names it.",
        ),
    ),
)


# ---------------------------------------------------------------- a whole step


def _train_step(
    W: Array, m: Array, v: Array, t: int, X: Array, y: Array, lr: float, max_norm: float
) -> tuple[Array, Array, Array, float]:
    logits = X @ W
    loss = float(cross_entropy(logits, y))
    d = softmax(logits)
    d[np.arange(len(y)), y] -= 1
    (grad,), _ = optim.clip_by_global_norm([X.T @ d / len(y)], max_norm)
    return *optim.adamw_step(W, grad, m, v, t, lr), loss


def _variant(
    *,
    clip: str = "norm",
    mean: bool = True,
    decay: str = "decoupled",
    later: int = 0,
    sign: int = 1,
    shift: int | None = -1,
) -> Callable[..., Any]:
    """A training step with one part changed; ``shift`` is the axis of softmax's maximum, 0 for all, None for none."""

    def step(W: Array, m: Array, v: Array, t: int, X: Array, y: Array, lr: float, max_norm: float) -> Any:
        logits = X @ W
        with np.errstate(all="ignore"):
            top = np.zeros((1, 1)) if shift is None else logits.max(axis=shift or None, keepdims=True)
            e = np.exp(logits - top)
            total = e.sum(axis=-1, keepdims=True)
            d, loss = e / total, np.mean((top + np.log(total))[:, 0] - logits[np.arange(len(y)), y])
        d[np.arange(len(y)), y] -= sign
        grad = X.T @ d / (len(y) if mean else 1)
        if clip in ("norm", "torch"):
            norm = float(np.sqrt((grad * grad).sum())) + (1e-6 if clip == "torch" else 0.0)
            grad = grad * min(1.0, max_norm / norm)
        elif clip == "entries":
            grad = np.clip(grad, -max_norm, max_norm)
        if decay == "l2":
            new = optim.adam_step(W, grad + 0.01 * W, m, v, t + later, lr)
        elif decay == "none":
            new = optim.adam_step(W, grad, m, v, t + later, lr)
        else:
            new = optim.adamw_step(W, grad, m, v, t + later, lr)
        return *new, float(loss)

    return step


def _loss_after(W: Array, m: Array, v: Array, t: int, X: Array, y: Array, lr: float, max_norm: float) -> Any:
    W, m, v, _ = _train_step(W, m, v, t, X, y, lr, max_norm)
    return W, m, v, float(cross_entropy(X @ W, y))


def _step_cases(rng: np.random.Generator) -> list[Case]:
    def case(N: int, d: int, V: int, t: int, max_norm: float, scale: float, label: str) -> Case:
        W, X = rng.normal(size=(d, V)), scale * rng.normal(size=(N, d))
        y = rng.integers(0, V, N)
        m = np.zeros((d, V)) if t == 1 else 0.1 * rng.normal(size=(d, V))
        v = np.zeros((d, V)) if t == 1 else 0.01 + rng.uniform(size=(d, V))
        return Case(args=(W, m, v, t, X, y, 0.1, max_norm), label=label)

    wide, rows = np.array([[0.95, 0.9, 0.6]]), np.array([[1000.0], [-700.0]])
    return [
        case(6, 3, 4, 1, 100.0, 1.0, "first step, nothing to clip"),
        case(6, 3, 4, 7, 100.0, 1.0, "step 7, nothing to clip"),
        case(6, 3, 4, 7, 0.1, 1.0, "step 7, clipped"),
        case(5, 4, 3, 2, 0.05, 1.0, "step 2, clipped"),
        case(4, 2, 5, 3, 1.0, 300.0, "step 3, logits in the hundreds"),
        case(1, 2, 3, 4, 0.2, 1.0, "step 4, a single row"),
        Case(args=(wide, 0 * wide, 0 * wide + 1, 2, rows, np.array([1, 0]), 0.1, 1.0), label="logits from -665 to 950"),
    ]


TRAIN_STEP = Function(
    id="train-step",
    chapter=13,
    section="13.7",
    title="A whole training step",
    level="hard",
    points=3,
    checklist=(10, 12, 13),
    prompt=(
        "Write `step(W, m, v, t, X, y, lr, max_norm)` for the model `logits = X @ W`: mean cross-entropy, gradient, "
        "clipping by the norm, AdamW. Return `(W, m, v, loss)`, the loss being that before the update."
    ),
    contract=(
        "`X`: (N, d), `W`, `m`, `v`: (d, V), all float64; `y`: integers (N,); `t`: the number of this step, from 1. "
        "AdamW with β = 0.9 and 0.999, ε = 1e-8 and decay λ = 0.01. Clipping: factor min(1, max_norm / norm). Logits "
        "may be in the hundreds. No argument may be changed."
    ),
    hints=(
        "Write the six lines in their order: logits, loss, gradient, clip, moments, weights.",
        "The gradient by the logits is $(p - y)/N$ with $y$ one-hot; the one by $W$ is $X^\\mathsf{T}$ times it.",
        "Decoupled decay: `W * (1 - lr * 0.01)`, then Adam's step. The decay never enters the moments.",
    ),
    oracle=_train_step,
    cases=_step_cases,
    tolerance=Tolerance(
        c=64,
        depth=lambda W, m, v, t, X, y, lr, c: X.shape[0] + X.shape[1],
        scale=lambda W, m, v, t, X, y, lr, c: max(1.0, float(np.abs(X @ W).max())),
    ),
    mistakes=(
        Mistake(
            name="not-clipped",
            answer=_variant(clip="none"),
            message="The gradient was not clipped: where its norm exceeds the limit your moments are too large.",
        ),
        Mistake(
            name="clipped-by-torch",
            answer=_variant(clip="torch"),
            message="Your factor has the norm plus 1e-6 in its denominator, as `torch.nn.utils.clip_grad_norm_` does. "
            "The contract divides by the norm.",
            section="13.7.1",
        ),
        Mistake(
            name="entries-clipped",
            answer=_variant(clip="entries"),
            message="You clipped every entry by itself, which turns the direction. Scale the whole array by one "
            "number.",
            section="13.7",
        ),
        Mistake(
            name="summed-loss",
            answer=_variant(mean=False),
            message="Your gradient belongs to the summed loss: the division by the number of rows is missing.",
            section="13.4",
        ),
        Mistake(
            name="decay-in-the-gradient",
            answer=_variant(decay="l2"),
            message="You added the decay to the gradient, so that it enters the moments. AdamW shrinks the weight "
            "apart from them.",
            section="13.6",
        ),
        Mistake(
            name="no-decay",
            answer=_variant(decay="none"),
            message="Your step is Adam's: the weights do not decay.",
            section="13.6",
        ),
        Mistake(
            name="t-off-by-one",
            answer=_variant(later=1),
            message="Your bias correction uses the next step's number. `t` is the number of this step, and starts "
            "at 1.",
            section="13.6",
        ),
        Mistake(
            name="naive-overflow",
            answer=_variant(shift=None),
            message="Your exponentials overflow where a logit is above 709. Subtract the maximum of each row.",
            section="5.2",
        ),
        Mistake(
            name="global-shift",
            answer=_variant(shift=0),
            message="You subtracted the maximum of the whole array. A row far below it becomes 0/0: each row needs its "
            "own maximum.",
            section="5.2",
        ),
        Mistake(
            name="p-without-y",
            answer=_variant(sign=0),
            message="Your gradient by the logits is p alone: the label does not enter it.",
            section="13.5",
        ),
        Mistake(
            name="loss-after",
            answer=_loss_after,
            message="Your loss is the one after the update. A log shows the loss that the gradient belongs to.",
        ),
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    LR_SCHEDULE,
    STEP_ORDER,
    LAB_ACCUMULATE,
    CUT_BATCH,
    TRAIN_STEP,
)
