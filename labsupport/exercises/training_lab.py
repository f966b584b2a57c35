"""Exercises of chapter 13: data, schedule, gradients of parts, files, decoding, and one whole training step.

Truths come from the operators and from the lab's own code; a message explains a slip and never holds the
expected value. The last part holds the questions inside the chapter's text.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from labsupport.grading import (
    Case,
    Choice,
    Exercise,
    Function,
    Mistake,
    Number,
    Option,
    Several,
    Shape,
    Tolerance,
    Written,
)
from labsupport.ops import optim, transformer
from labsupport.ops.softmax import cross_entropy, softmax, top_k
from labsupport.training import Settings

Array = np.ndarray
SETTINGS = Settings()
MODEL = SETTINGS.model

# ---------------------------------------------------------------- data


def _blocks(stream: Array, T: int) -> tuple[Array, Array]:
    count = (len(stream) - 1) // T
    return stream[: count * T].reshape(count, T), stream[1 : count * T + 1].reshape(count, T)


def _block_cases(rng: np.random.Generator) -> list[Case]:
    return [
        Case(args=(np.arange(10, 23), 4), label="13 tokens, T = 4"),
        Case(args=(rng.integers(0, 50, 17), 4), label="17 tokens, T = 4"),
        Case(args=(rng.integers(0, 50, 16), 4), label="16 tokens, T = 4: the last block has no last label"),
        Case(args=(rng.integers(0, 50, 20), 4), label="20 tokens, T = 4"),
        Case(args=(rng.integers(0, 50, 5), 1), label="5 tokens, T = 1"),
        Case(args=(rng.integers(0, 50, 8), 7), label="8 tokens, T = 7"),
        Case(args=(rng.integers(0, 50, 40)[::2], 3), label="20 tokens with a stride, T = 3"),
    ]


SHIFT_BY_ONE = Function(
    id="shift-by-one",
    chapter=13,
    section="13.2",
    title="Blocks and their labels",
    level="easy",
    checklist=(1,),
    prompt=(
        "Write `blocks(stream, T)`: cut a stream of token ids into consecutive blocks of `T` tokens that do not "
        "overlap, and give each position the following token as its label. Return `(ids, labels)`."
    ),
    contract=(
        "`stream`: integers, shape (n,), with at least `T + 1` tokens. Both results: integers of shape (N, T), with N "
        "as large as every label allows; what is left over is dropped."
    ),
    hints=(
        "The last position of the last block needs a label, too. How many tokens do N blocks use up?",
        "N is the largest number with `N * T + 1 <= n`.",
        "`stream[:N * T]` and `stream[1:N * T + 1]`, both reshaped.",
    ),
    oracle=_blocks,
    cases=_block_cases,
    mistakes=(
        Mistake(
            name="not-shifted",
            answer=lambda s, T: (_blocks(s, T)[0], _blocks(s, T)[0]),
            message="Your labels are the inputs themselves. The model would learn to copy.",
        ),
        Mistake(
            name="not-shifted-all",
            answer=lambda s, T: (s[: len(s) // T * T].reshape(-1, T), s[: len(s) // T * T].reshape(-1, T)),
            message="Your labels are the inputs themselves. The model would learn to copy.",
        ),
        Mistake(
            name="shifted-back",
            answer=lambda s, T: _blocks(s, T)[::-1],
            message="Your labels are the tokens before. Inputs and labels have changed places.",
        ),
        Mistake(
            name="wraps-around",
            answer=lambda s, T: (_blocks(s, T)[0], np.roll(_blocks(s, T)[0], -1, axis=1)),
            message="The last label of a block is its own first token: a roll wraps around. Take the label from the "
            "stream, where the next block begins.",
        ),
        Mistake(
            name="wrap-at-the-end",
            answer=lambda s, T: (
                s[: len(s) // T * T].reshape(-1, T),
                np.roll(s[: len(s) // T * T], -1).reshape(-1, T),
            ),
            message="Your last label is the first token of the stream. Leave out a block that lacks its last label, "
            "and take labels from the stream before it is cut.",
        ),
    ),
)


def _join(ids: list[int], pair: tuple[int, int], new: int) -> list[int]:
    out: list[int] = []
    place = 0
    while place < len(ids):
        if tuple(ids[place : place + 2]) == tuple(pair):
            out.append(new)
            place += 2
        else:
            out.append(ids[place])
            place += 1
    return out


def _join_from_the_right(ids: list[int], pair: tuple[int, int], new: int) -> list[int]:
    return _join(ids[::-1], (pair[1], pair[0]), new)[::-1]


def _join_once(ids: list[int], pair: tuple[int, int], new: int) -> list[int]:
    for i in range(len(ids) - 1):
        if (ids[i], ids[i + 1]) == tuple(pair):
            return [*ids[:i], new, *ids[i + 2 :]]
    return list(ids)


def _join_keeps_second(ids: list[int], pair: tuple[int, int], new: int) -> list[int]:
    return [new if tuple(ids[i : i + 2]) == tuple(pair) else ids[i] for i in range(len(ids))]


JOIN_PAIR = Function(
    id="join-pair",
    chapter=13,
    section="13.1",
    title="One merge of byte-pair encoding",
    level="easy",
    prompt=(
        "Write `join(ids, pair, new)`: replace each occurrence of two neighbours `pair` by the single id `new`, from "
        "left to right, without overlaps."
    ),
    contract="`ids`: list of integers, also empty. `pair`: two integers, also equal ones. Result: a new list.",
    hints=(
        "A loop with an index that moves by one or by two.",
        "After a match the second neighbour is used up: move by two.",
    ),
    oracle=_join,
    cases=lambda rng: [
        Case(args=([1, 2, 3, 1, 2], (1, 2), 9), label="two occurrences"),
        Case(args=([5, 5, 5], (5, 5), 9), label="three equal ids"),
        Case(args=([1, 2, 1], (2, 2), 9), label="no occurrence"),
        Case(args=([], (1, 2), 9), label="empty"),
        Case(args=([7], (7, 7), 9), label="a single id"),
        Case(args=(rng.integers(0, 3, 30).tolist(), (1, 1), 9), label="30 ids"),
        Case(args=(rng.integers(0, 3, 30).tolist(), (0, 2), 9), label="30 ids, another pair"),
    ],
    mistakes=(
        Mistake(
            name="from-the-right",
            answer=_join_from_the_right,
            message="You joined from the right. With an odd run of equal ids the left-over stands at the other end.",
        ),
        Mistake(name="only-once", answer=_join_once, message="You stopped after the first occurrence."),
        Mistake(
            name="second-kept",
            answer=_join_keeps_second,
            message="You replaced the first neighbour and kept the second: the text has grown by it.",
        ),
    ),
)


def _mask(labels: Array, lengths: Array) -> Array:
    hidden = np.arange(labels.shape[1]) < np.asarray(lengths)[:, None] - 1
    return np.where(hidden, transformer.IGNORE, labels)


MASK_PROMPT = Function(
    id="mask-the-prompt",
    chapter=13,
    section="13.2",
    title="Labels of an answer only",
    level="medium",
    prompt=(
        "In supervised fine-tuning only the answer counts. Write `mask(labels, lengths)`: row $b$ begins with a prompt "
        "of `lengths[b]` tokens, and each label that is itself a prompt token becomes −100."
    ),
    contract=(
        "`labels`: integers (B, T), shifted by one: `labels[b, t]` is token $t+1$ of the row. `lengths`: integers "
        "(B,), each from 1 to T. Result: a new array (B, T)."
    ),
    hints=(
        "Write out a row of five tokens with a prompt of two. Which labels are prompt tokens?",
        "The position of the last prompt token is asked for the first token of the answer: that one counts.",
        "Compare `np.arange(T)` with `lengths[:, None] - 1`, and use `np.where`.",
    ),
    oracle=_mask,
    cases=lambda rng: [
        Case(args=(np.array([[11, 12, 13, 14]]), np.array([2])), label="one row, a prompt of 2"),
        Case(args=(np.array([[11, 12, 13, 14]]), np.array([1])), label="a prompt of 1"),
        Case(args=(rng.integers(0, 50, (4, 6)), np.array([1, 3, 6, 2])), label="four rows"),
        Case(args=(rng.integers(0, 50, (3, 5)), rng.integers(1, 6, 3)), label="three rows"),
        Case(args=(rng.integers(1, 50, (5, 3)).T.copy().T, np.array([1, 2, 3, 1, 2])), label="Fortran order"),
    ],
    mistakes=(
        Mistake(
            name="one-too-many",
            answer=lambda y, n: np.where(np.arange(y.shape[1]) < n[:, None], -100, y),
            message="You also hid the first token of the answer. Labels are shifted: the last prompt token is asked "
            "for it.",
        ),
        Mistake(
            name="zero-for-hidden",
            answer=lambda y, n: np.where(np.arange(y.shape[1]) < n[:, None] - 1, 0, y),
            message="You set the hidden labels to 0, which is the id of a token: the model would be asked for it.",
        ),
        Mistake(
            name="answer-hidden",
            answer=lambda y, n: np.where(np.arange(y.shape[1]) < n[:, None] - 1, y, -100),
            message="You hid the answer and kept the prompt.",
        ),
        Mistake(
            name="one-length-for-all",
            answer=lambda y, n: np.where(np.arange(y.shape[1]) < n[0] - 1, -100, y),
            message="You used the length of the first prompt for every row.",
        ),
    ),
)

# ---------------------------------------------------------------- the loop


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
    *, clip: str = "norm", mean: bool = True, decay: str = "decoupled", shift: int = 0, sign: int = 1
) -> Callable[..., Any]:
    """A training step with one part changed."""

    def step(W: Array, m: Array, v: Array, t: int, X: Array, y: Array, lr: float, max_norm: float) -> Any:
        logits = X @ W
        d = softmax(logits)
        d[np.arange(len(y)), y] -= sign
        grad = X.T @ d / (len(y) if mean else 1)
        if clip == "norm":
            (grad,), _ = optim.clip_by_global_norm([grad], max_norm)
        elif clip == "torch":
            grad = grad * min(1.0, max_norm / (float(np.sqrt((grad * grad).sum())) + 1e-6))
        elif clip == "entries":
            grad = np.clip(grad, -max_norm, max_norm)
        if decay == "l2":
            new = optim.adam_step(W, grad + 0.01 * W, m, v, t + shift, lr)
        elif decay == "none":
            new = optim.adam_step(W, grad, m, v, t + shift, lr)
        else:
            new = optim.adamw_step(W, grad, m, v, t + shift, lr)
        return *new, float(cross_entropy(logits, y))

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

    return [
        case(6, 3, 4, 1, 100.0, 1.0, "first step, nothing to clip"),
        case(6, 3, 4, 7, 100.0, 1.0, "step 7, nothing to clip"),
        case(6, 3, 4, 7, 0.1, 1.0, "step 7, clipped"),
        case(5, 4, 3, 2, 0.05, 1.0, "step 2, clipped"),
        case(4, 2, 5, 3, 1.0, 300.0, "step 3, logits in the hundreds"),
        case(1, 2, 3, 4, 0.2, 1.0, "step 4, a single row"),
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
            answer=_variant(shift=1),
            message="Your bias correction uses the next step's number. `t` is the number of this step, and starts "
            "at 1.",
            section="13.6",
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

# ---------------------------------------------------------------- files

CHECKPOINT_BYTES = Number(
    id="lab-checkpoint-bytes",
    chapter=13,
    section="13.9",
    title="What a checkpoint weighs",
    level="easy",
    prompt=(
        "The lab's model has 25,600 parameters. How many bytes of arrays does a file hold from which an AdamW run can "
        "go on, everything in float32? Answer with a unit."
    ),
    hints=(
        "What does AdamW remember of each parameter?",
        "Weights and two moments, four bytes each; the header does not count.",
    ),
    expected=3 * 4 * transformer.count_parameters(MODEL),
    unit="B",
    exact=True,
    default_unit="B",
    mistakes=(
        Mistake(
            name="weights-only",
            answer=4 * transformer.count_parameters(MODEL),
            message="These are the weights alone. A run that goes on needs the state of its optimizer.",
        ),
        Mistake(
            name="one-moment",
            answer=8 * transformer.count_parameters(MODEL),
            message="AdamW keeps two moments, not one.",
        ),
        Mistake(
            name="with-gradients",
            answer=16 * transformer.count_parameters(MODEL),
            message="Gradients are computed anew in the next step; a file need not hold them.",
        ),
    ),
)


def _load_checks(parameters: dict[str, Array], shapes: dict[str, tuple[int, ...]]) -> int:
    if set(parameters) != set(shapes):
        raise ValueError("names differ")
    for name, shape in shapes.items():
        if parameters[name].shape != tuple(shape):
            raise ValueError(f"{name} has another shape")
        if not np.isfinite(parameters[name]).all():
            raise ValueError(f"{name} is not finite")
    return sum(array.size for array in parameters.values())


def _lenient(*, extra: bool = True, shape: str = "shape", finite: bool = True, missing: bool = True) -> Any:
    """A check that lets one fault pass."""

    def check(parameters: dict[str, Array], shapes: dict[str, tuple[int, ...]]) -> int:
        if missing and set(shapes) - set(parameters):
            raise ValueError("missing")
        if extra and set(parameters) - set(shapes):
            raise ValueError("left over")
        for name in set(shapes) & set(parameters):
            array, wanted = parameters[name], tuple(shapes[name])
            if array.size != math.prod(wanted) or (shape == "shape" and array.shape != wanted):
                raise ValueError("shape")
            if finite and not np.isfinite(array).all():
                raise ValueError("finite")
        return sum(array.size for array in parameters.values())

    return check


def _only_nan(parameters: dict[str, Array], shapes: dict[str, tuple[int, ...]]) -> int:
    if any(np.isnan(array).any() for array in parameters.values()):
        raise ValueError("NaN")
    return int(_lenient(finite=False)(parameters, shapes))


def _load_cases(rng: np.random.Generator) -> list[Case]:
    shapes = {"embedding": (5, 4), "layers.0.gate": (4, 6), "head": (4, 5)}

    def drawn(**changed: Any) -> dict[str, Array]:
        arrays = {name: rng.normal(size=shape) for name, shape in shapes.items()}
        arrays |= {name.replace("__", "."): array for name, array in changed.items()}
        return {name: array for name, array in arrays.items() if array is not None}

    bad, worse = rng.normal(size=(4, 5)), rng.normal(size=(4, 6))
    bad[1, 2], worse[0, 0] = np.nan, -np.inf
    return [
        Case(args=(drawn(), shapes), label="a good file"),
        Case(args=(drawn(head=None), shapes), label="head is missing", raises=ValueError),
        Case(args=(drawn(bias=np.zeros(5)), shapes), label="a bias too many", raises=ValueError),
        Case(args=(drawn(head=rng.normal(size=(5, 4))), shapes), label="head transposed", raises=ValueError),
        Case(args=(drawn(embedding=rng.normal(size=(6, 4))), shapes), label="a row too many", raises=ValueError),
        Case(args=(drawn(head=bad), shapes), label="a NaN in head", raises=ValueError),
        Case(args=(drawn(layers__0__gate=worse), shapes), label="an infinity in a layer", raises=ValueError),
        Case(args=({"w": np.zeros((2, 3), np.float32)}, {"w": (2, 3)}), label="one parameter"),
    ]


LOAD_CHECKS = Function(
    id="load-checks",
    chapter=13,
    section="13.9",
    title="Refuse a wrong file",
    level="medium",
    prompt=(
        "Write `accept(parameters, shapes)`: return the number of parameters if the arrays have exactly the names and "
        "shapes of `shapes` and are finite; raise `ValueError` in every other case."
    ),
    contract="`parameters`: dict name → float array. `shapes`: dict name → tuple of integers. Result: an integer.",
    hints=(
        "Four faults: a name too few, a name too many, another shape, a value that is not finite.",
        "Compare the two sets of names before you look at a single array.",
        "A transposed array has the right size: compare shapes, not sizes. `np.isfinite` sees NaN and infinity.",
    ),
    oracle=_load_checks,
    cases=_load_cases,
    mistakes=(
        Mistake(
            name="left-over-accepted",
            answer=_lenient(extra=False),
            message="A parameter that the model does not have was accepted. Where would its training go?",
        ),
        Mistake(
            name="missing-accepted",
            answer=_lenient(missing=False),
            message="A missing parameter was accepted: the model would keep random numbers in its place.",
        ),
        Mistake(
            name="sizes-compared",
            answer=_lenient(shape="size"),
            message="A transposed array was accepted: you compared sizes, not shapes.",
        ),
        Mistake(
            name="not-finite-accepted",
            answer=_lenient(finite=False),
            message="An array with a NaN was accepted. One is enough to make every loss NaN.",
        ),
        Mistake(
            name="only-nan-refused",
            answer=_only_nan,
            message="NaN is refused, infinity is not. It becomes NaN in the first subtraction.",
        ),
    ),
)

# ---------------------------------------------------------------- generation


def _decode_attention(q: Array, K: Array, V: Array, *, scale: float | None = None) -> Array:
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = np.einsum("hd,htd->ht", q, K) * q.dtype.type(factor)
    return np.einsum("ht,htd->hd", softmax(scores), V)


DECODE_ATTENTION = Function(
    id="decode-attention",
    chapter=13,
    section="13.10",
    title="Attention of one new token",
    level="medium",
    checklist=(18,),
    prompt=(
        "Write `decode_attention(q, K, V)`: attention of a single new token, whose query is `q`, over all cached keys "
        "and values, its own included."
    ),
    contract=(
        "`q`: (N_h, D_h); `K`, `V`: (N_h, T, D_h), float32 or float64. Scores are divided by the root of D_h. Result: "
        "(N_h, D_h)."
    ),
    hints=(
        "Scores have shape (N_h, T): one dot product for each head and cached token.",
        "No mask is needed: everything in the cache is in the past.",
        "`(q[:, None] @ K.swapaxes(-1, -2))` is (N_h, 1, T); softmax over the last axis; times `V`; drop the axis.",
    ),
    oracle=_decode_attention,
    cases=lambda rng: [
        Case(args=(rng.normal(size=(2, 4)), rng.normal(size=(2, 5, 4)), rng.normal(size=(2, 5, 4)))),
        Case(
            args=tuple(rng.normal(size=s).astype(np.float32) for s in ((3, 8), (3, 6, 8), (3, 6, 8))),
            label="float32, 3 heads",
        ),
        Case(args=(rng.normal(size=(4, 4)), rng.normal(size=(4, 4, 4)), rng.normal(size=(4, 4, 4))), label="all 4"),
        Case(args=(rng.normal(size=(1, 2)), rng.normal(size=(1, 1, 2)), rng.normal(size=(1, 1, 2))), label="T = 1"),
        Case(
            args=(400 * rng.normal(size=(2, 4)), rng.normal(size=(2, 5, 4)), rng.normal(size=(2, 5, 4))),
            label="scores in the hundreds",
        ),
    ],
    tolerance=Tolerance(
        c=16,
        depth=lambda q, K, V: q.shape[-1] + K.shape[1],
        scale=lambda q, K, V: float(np.abs(V).max()) * max(1.0, float(np.abs(np.einsum("hd,htd->ht", q, K)).max())),
    ),
    mistakes=(
        Mistake(
            name="not-scaled",
            answer=lambda q, K, V: _decode_attention(q, K, V, scale=1.0),
            message="The scores were not divided by the root of the head's width.",
            section="13.10",
        ),
        Mistake(
            name="scaled-by-width",
            answer=lambda q, K, V: _decode_attention(q, K, V, scale=1 / q.shape[-1]),
            message="You divided by the head's width instead of by its root.",
        ),
        Mistake(
            name="softmax-over-heads",
            answer=lambda q, K, V: np.einsum(
                "ht,htd->hd", softmax(np.einsum("hd,htd->ht", q, K) / math.sqrt(q.shape[-1]), axis=0), V
            ),
            message="Your weights sum to 1 over the heads. Each head has a softmax of its own, over the tokens.",
        ),
        Mistake(
            name="own-token-left-out",
            answer=lambda q, K, V: _decode_attention(q, K[:, :-1], V[:, :-1]) if K.shape[1] > 1 else 0 * V[:, 0],
            message="You left out the new token's own key and value, the last in the cache.",
        ),
        Mistake(
            name="keys-for-values",
            answer=lambda q, K, V: _decode_attention(q, K, K),
            message="You averaged the keys. The weights come from keys, what is averaged are values.",
        ),
    ),
)


def _pick(logits: Array, u: float, temperature: float, k: int) -> int:
    p = softmax(top_k(logits / temperature, k))
    return int(np.searchsorted(np.cumsum(p), u, side="right"))


def _pick_sorted(logits: Array, u: float, temperature: float, k: int) -> int:
    p = softmax(top_k(logits / temperature, k))
    order = np.argsort(-p, kind="stable")
    return int(order[np.searchsorted(np.cumsum(p[order]), u, side="right")])


def _pick_unnormalised(logits: Array, u: float, temperature: float, k: int) -> int:
    p = softmax(logits / temperature) * np.isfinite(top_k(logits, k))
    return min(int(np.searchsorted(np.cumsum(p), u, side="right")), len(logits) - 1)


PICK_TOKEN = Function(
    id="pick-token",
    chapter=13,
    section="13.10",
    title="From logits to a token",
    level="medium",
    checklist=(9,),
    prompt=(
        "Write `pick(logits, u, temperature, k)`: divide by the temperature, keep the `k` largest logits, and turn the "
        "random number `u` into a token: the first id whose cumulative probability exceeds `u`."
    ),
    contract=(
        "`logits`: float64 (V,), all different; `u`: a float in [0, 1); `temperature` > 0; `k` from 1 to V. The "
        "probabilities of the kept tokens sum to 1, and are added in the order of the ids. Result: an integer."
    ),
    hints=(
        "Set the logits that are dropped to −inf, then a stable softmax renormalises the rest.",
        "`np.cumsum(p)`, and the first place where it is above `u`.",
        "`np.searchsorted(cumulative, u, side='right')` finds that place.",
    ),
    oracle=_pick,
    cases=lambda rng: [
        Case(args=(np.array([1.0, 3.0, 2.0, 0.0]), 0.05, 1.0, 4), label="u = 0.05, all tokens"),
        Case(args=(np.array([1.0, 3.0, 2.0, 0.0]), 0.9, 1.0, 4), label="u = 0.9, all tokens"),
        Case(args=(np.array([1.0, 3.0, 2.0, 0.0]), 0.05, 1.0, 2), label="u = 0.05, two tokens"),
        Case(args=(np.array([1.0, 3.0, 2.0, 0.0]), 0.999, 1.0, 2), label="u = 0.999, two tokens"),
        Case(args=(np.array([0.0, 1.0, 0.5, 0.2]), 0.95, 0.1, 3), label="cold"),
        Case(args=(np.array([0.0, 5.0, 0.5, 0.2]), 0.2, 50.0, 4), label="hot"),
        Case(args=(np.array([1000.0, 1002.0, 1001.0]), 0.5, 1.0, 3), label="logits near 1000"),
        Case(args=(np.array([-1.0, 2.0, 1.0]), 0.0, 1.0, 1), label="k = 1"),
        *(
            Case(args=(rng.normal(size=12), float(rng.uniform()), 0.8, 5), label=f"twelve tokens, draw {i}")
            for i in range(4)
        ),
    ],
    mistakes=(
        Mistake(
            name="temperature-multiplied",
            answer=lambda z, u, T, k: _pick(z * T * T, u, T, k),
            message="You multiplied by the temperature. A low one must sharpen.",
        ),
        Mistake(
            name="no-filter",
            answer=lambda z, u, T, k: _pick(z, u, T, len(z)),
            message="A token outside the k largest was drawn.",
        ),
        Mistake(
            name="sorted-order",
            answer=_pick_sorted,
            message="You added probabilities from the largest down. The contract adds them in the order of the ids.",
        ),
        Mistake(
            name="not-renormalised",
            answer=_pick_unnormalised,
            message="The kept probabilities no longer sum to 1, so a large `u` finds no token. Filter logits, then "
            "softmax.",
        ),
        Mistake(
            name="greedy",
            answer=lambda z, u, T, k: int(np.argmax(z)),
            message="You took the largest logit; the random number has no effect.",
        ),
    ),
    accept=(lambda z, u, T, k: int(np.argmax(np.cumsum(softmax(top_k(z / T, k))) > u)),),
)

LOSS_BELOW_FLOOR = Written(
    id="loss-below-floor",
    chapter=13,
    section="13.2",
    title="A loss that is too good",
    level="medium",
    checklist=(10,),
    prompt=(
        "A colleague reports a held-out loss clearly below the entropy of the language. In three to six sentences: why "
        "is that no success, what may have happened, and how would you find out?"
    ),
    hints=(
        "Cross-entropy is entropy plus something that cannot be negative.",
        "Where could the answer have got into the question: labels, mask, the split of the data?",
    ),
    rubric=(
        "says that cross-entropy is at least the entropy, since KL is not negative",
        "names a leak: labels that are not shifted, a mask that lets the future through, or held-out text in training",
        "names a test: change later tokens and compare earlier logits, look at a row of ids and labels, or search "
        "the training text for held-out blocks",
        "knows that a small sample may lie below by chance",
    ),
    model=(
        "The expected cross-entropy is the entropy plus KL(p||q), and KL is not negative, so a loss clearly below it "
        "means that the model sees what it is asked for. Labels may not be shifted, the causal mask may leak, or "
        "held-out text may be in the training text. I would print one row of ids and labels, change tokens after t "
        "and see whether logits up to t move, and search the training stream for the held-out blocks. On very little "
        "text the mean may also lie below by chance."
    ),
)

# ---------------------------------------------------------------- questions inside the chapter

_CHAPTER: tuple[Exercise, ...] = (
    Choice(
        id="lab-larger-vocabulary",
        chapter=13,
        section="13.1",
        title="A larger vocabulary",
        place="chapter",
        level="easy",
        prompt="The vocabulary grows by merges. What happens to the cost of training on the same text?",
        hints=("A token now stands for more letters.", "What has one row or column for each token of the vocabulary?"),
        options={
            "a": Option(
                "Fewer positions, and larger logits at each of them.",
                "A text becomes shorter in tokens, while embedding, head and logits grow with V.",
                correct=True,
            ),
            "b": Option("More positions, and smaller logits.", "A merge makes one token of two: texts get shorter."),
            "c": Option(
                "Only the embedding grows; the rest stays.",
                "The number of tokens of the text changes, and so does the width of the logits.",
            ),
            "d": Option(
                "Nothing, since the text is the same.",
                "The model never sees the text, only its tokens, and their number changes.",
            ),
        },
    ),
    Shape(
        id="lab-logits-shape",
        chapter=13,
        section="13.2",
        title="Shape of the logits",
        place="chapter",
        level="easy",
        checklist=(1,),
        prompt="Ids have shape (16, 32) and the vocabulary 80 tokens. Which shape do the logits have?",
        hints=("One score for every token at every position.",),
        expected=(SETTINGS.rows, SETTINGS.length, MODEL.vocab),
        mistakes=(
            Mistake(
                name="last-position-only",
                answer=(SETTINGS.rows, MODEL.vocab),
                message="These are the scores of one position a row. In training every position is asked.",
            ),
            Mistake(
                name="width-not-vocabulary",
                answer=(SETTINGS.rows, SETTINGS.length, MODEL.width),
                message="This is the shape before the head, with the width of the model as its last axis.",
            ),
            Mistake(
                name="axes-swapped",
                answer=(SETTINGS.rows, MODEL.vocab, SETTINGS.length),
                message="The vocabulary is the last axis.",
            ),
        ),
    ),
    Number(
        id="lab-parameters",
        chapter=13,
        section="13.3",
        title="Parameters of the lab's model",
        place="chapter",
        level="easy",
        prompt="How many parameters has the model with $n = 80$, $d = 32$, $L = 2$, $m = 64$?",
        hints=(
            "Embedding and head have n times d numbers each.",
            "A layer has four matrices of d times d and three of d times m.",
        ),
        expected=transformer.count_parameters(MODEL),
        unit="parameter",
        exact=True,
        default_unit="parameter",
        mistakes=(
            Mistake(
                name="one-layer",
                answer=2 * 80 * 32 + 4 * 32**2 + 3 * 32 * 64,
                message="You counted one layer; the model has two.",
            ),
            Mistake(
                name="embedding-once",
                answer=80 * 32 + 2 * (4 * 32**2 + 3 * 32 * 64),
                message="Embedding and head are two tensors; you counted one of them.",
            ),
            Mistake(
                name="two-mlp-matrices",
                answer=2 * 80 * 32 + 2 * (4 * 32**2 + 2 * 32 * 64),
                message="The gated MLP has a third matrix beside up and down.",
            ),
        ),
    ),
    Number(
        id="lab-uniform-loss",
        chapter=13,
        section="13.4",
        title="The loss of a uniform guess",
        place="chapter",
        level="easy",
        checklist=(10,),
        prompt="A model finds all 80 tokens equally likely. What is its loss, in nats? Two decimals are enough.",
        hints=("The probability of the right token is 1/80.", "The loss is minus its natural logarithm."),
        expected=math.log(MODEL.vocab),
        unit="1",
        rtol=2e-3,
        mistakes=(
            Mistake(name="bits", answer=math.log2(MODEL.vocab), message="These are bits; nats use the natural log."),
            Mistake(name="base-10", answer=math.log10(MODEL.vocab), message="This is the logarithm to base 10."),
            Mistake(name="probability", answer=1 / MODEL.vocab, message="This is the probability, not its logarithm."),
            Mistake(
                name="sign", answer=-math.log(MODEL.vocab), message="A loss is minus the logarithm of a probability."
            ),
        ),
    ),
    Choice(
        id="lab-norms-add-up",
        chapter=13,
        section="13.5",
        title="Norms of parts and of the whole",
        place="chapter",
        level="easy",
        checklist=(4,),
        prompt="The gradient norms of four parts are known. How do you get the global norm?",
        hints=("The global norm is the L2 norm of all entries in one long vector.",),
        options={
            "a": Option("add them", "Norms add only where all parts point the same way, and parts never do."),
            "b": Option("take the largest", "That is a lower bound; the other parts add to it."),
            "c": Option("average them", "An average is below the largest part; the whole is not smaller than a part."),
            "d": Option(
                "root of the sum of their squares",
                "Squares of entries add up, whatever part they are in. Ranks do the same with their shards.",
                correct=True,
            ),
        },
    ),
    Number(
        id="lab-first-adam-step",
        chapter=13,
        section="13.6",
        title="Length of the first step",
        place="chapter",
        level="medium",
        prompt=(
            "The gradient of a weight is $10^{-3}$ and the learning rate 0.01. How far does the first AdamW step move "
            "it, without decay? Give the absolute value."
        ),
        hints=(
            "Work out $\\hat m$ and $\\hat v$ at $t = 1$.",
            "The bias correction at the first step takes the factors $1 - \\beta$ out again.",
        ),
        expected=0.01,
        unit="1",
        rtol=1e-2,
        mistakes=(
            Mistake(name="sgd", answer=1e-5, message="This is SGD's step. Adam divides by the size of the gradient."),
            Mistake(
                name="no-correction",
                answer=0.01 * 1e-4 / math.sqrt(1e-9),
                message="Without the bias corrections, yes. At the first step they matter most.",
            ),
            Mistake(
                name="first-moment-only",
                answer=1e-3,
                message="The factor $1 - \\beta_1$ is undone by the bias correction.",
            ),
        ),
    ),
    Choice(
        id="lab-clipping",
        chapter=13,
        section="13.7",
        title="What clipping does",
        place="chapter",
        level="easy",
        prompt="What does clipping by the global norm do to a gradient of norm 4 when the limit is 1?",
        hints=("One factor for all entries of all arrays.",),
        options={
            "a": Option(
                "Entries above 1 become 1, the others stay.",
                "That is clipping by value. It turns the direction of the gradient.",
            ),
            "b": Option(
                "Every entry is divided by 4; the direction stays.",
                "The factor is min(1, limit / norm), the same for every array.",
                correct=True,
            ),
            "c": Option(
                "Each array is scaled to norm 1 by itself.",
                "Then large and small layers would move alike, and the direction of the whole would turn.",
            ),
            "d": Option("The step is skipped.", "Skipping is for gradients that are not finite."),
        },
    ),
    Choice(
        id="lab-checkpointing-cost",
        chapter=13,
        section="13.8",
        title="The price of checkpointing",
        place="chapter",
        level="easy",
        prompt="Activation checkpointing keeps the inputs of the layers only. What is its price?",
        hints=("The inside of a layer is needed again in the backward pass.",),
        options={
            "a": Option("A less accurate gradient.", "The same numbers are computed again, nothing is approximated."),
            "b": Option(
                "Each layer's forward runs twice.",
                "Once to go on, once more when the backward pass arrives and needs the inside.",
                correct=True,
            ),
            "c": Option("The backward pass runs twice.", "Each gradient is computed once; the forward is repeated."),
            "d": Option("Weights must be stored twice.", "It concerns activations; weights and their states stay."),
        },
    ),
    Choice(
        id="lab-heads-mismatch",
        chapter=13,
        section="13.9",
        title="The fault that no shape shows",
        place="chapter",
        level="medium",
        prompt=(
            "A file of a model with 2 heads is loaded into one with 4. Without the check of the configuration, what "
            "happens?"
        ),
        hints=("Which tensors have the number of heads in their shape?", "How are heads cut out of the width?"),
        options={
            "a": Option(
                "A shape error in the first layer.",
                "Query, key, value and output are (d, d), whatever the number of heads.",
            ),
            "b": Option(
                "It runs, and the results are wrong.",
                "Every shape fits; the same columns are cut into other heads. Nothing but the number in the file "
                "can tell.",
                correct=True,
            ),
            "c": Option(
                "It runs, and the results are the same.",
                "Softmax is taken for each head, so that another cut gives other weights.",
            ),
            "d": Option("The loss becomes NaN.", "All numbers stay finite. That is what makes it nasty."),
        },
    ),
    Several(
        id="lab-cache-positions",
        chapter=13,
        section="13.10",
        title="Positions computed",
        place="chapter",
        level="medium",
        checklist=(18,),
        prompt=(
            "A prompt of 8 tokens, then 40 tokens are generated. How many positions pass through the layers, `with` a "
            "cache and `without`?"
        ),
        contract="Two numbers, `with` and `without`. The last generated token need not pass through the layers.",
        hints=(
            "The first new token comes out of the prefill of the prompt.",
            "With a cache each further token costs one position; without, all positions so far.",
            "Without: 8, then 9, then 10, and so on, forty times.",
        ),
        parts={
            "with": Number(
                prompt="Positions with the cache.",
                expected=8 + 39,
                unit="1",
                exact=True,
                mistakes=(
                    Mistake(
                        name="last-token-counted",
                        answer=48,
                        message="You counted the last generated token: nobody asks what follows it.",
                    ),
                    Mistake(
                        name="prompt-left-out", answer=39, message="The prompt must be read, too: that is the prefill."
                    ),
                ),
            ),
            "without": Number(
                prompt="Positions without the cache.",
                expected=sum(8 + i for i in range(40)),
                unit="1",
                exact=True,
                mistakes=(
                    Mistake(
                        name="one-step-late",
                        answer=sum(9 + i for i in range(40)),
                        message="Your first pass already holds a generated token. It reads the prompt alone.",
                    ),
                    Mistake(
                        name="constant-length",
                        answer=40 * 48,
                        message="The sequence is not at its full length from the start; it grows by one each step.",
                    ),
                    Mistake(
                        name="prompt-each-time",
                        answer=40 * 8,
                        message="The generated tokens pass through the layers again, too.",
                    ),
                ),
            ),
        },
    ),
    Number(
        id="lab-mean-of-gradients",
        chapter=13,
        section="13.11",
        title="The weight of a rank",
        place="chapter",
        level="easy",
        checklist=(17,),
        prompt="Rank 0 has 30 labels that count, rank 1 has 10. Which weight belongs to the gradient of rank 0?",
        hints=("The mean of the whole batch gives every label the same weight.", "The weight is a share of labels."),
        expected=30 / 40,
        unit="1",
        mistakes=(
            Mistake(
                name="half",
                answer=0.5,
                message="Equal weights are right only where the ranks have equally many labels.",
            ),
            Mistake(name="ratio", answer=3, message="This is the ratio of the two counts; the weights must sum to 1."),
            Mistake(name="other-rank", answer=0.25, message="This is the weight of the other rank."),
        ),
    ),
    Choice(
        id="lab-what-changes",
        chapter=13,
        section="13.12",
        title="What a method changes",
        place="chapter",
        level="medium",
        prompt="Which of these needs no change to batches, labels, forward and loss, only to what is updated?",
        hints=("Go through the stages of each method: which one touches stage 6 alone?",),
        options={
            "a": Option(
                "supervised fine-tuning", "Its labels differ: those of the prompt do not count, which is stage 2."
            ),
            "b": Option(
                "sharding of the optimizer states",
                "Each rank keeps and updates a part of the states. Data, forward and loss are those of before.",
                correct=True,
            ),
            "c": Option(
                "DPO, on pairs of answers of which one is preferred",
                "It compares two answers, so that batches and loss are others.",
            ),
            "d": Option(
                "PPO, on its own answers, marked by a reward",
                "It generates its own data and weighs the loss by a reward.",
            ),
        },
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    JOIN_PAIR,
    SHIFT_BY_ONE,
    MASK_PROMPT,
    LR_SCHEDULE,
    STEP_ORDER,
    LAB_ACCUMULATE,
    CUT_BATCH,
    CHECKPOINT_BYTES,
    LOAD_CHECKS,
    PICK_TOKEN,
    DECODE_ATTENTION,
    TRAIN_STEP,
    LOSS_BELOW_FLOOR,
    *_CHAPTER,
)
