"""Exercises of chapter 13 on the data: merging pairs, targets, the mask of a prompt, the floor of the loss."""

import numpy as np

from labsupport.grading import Case, Exercise, Function, Mistake, Written
from labsupport.ops import transformer

Array = np.ndarray


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


def _join_as_text(ids: list[int], pair: tuple[int, int], new: int) -> list[int]:
    text = " ".join(map(str, ids)).replace(f"{pair[0]} {pair[1]}", str(new))
    return [int(word) for word in text.split()]


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
        Case(args=([11, 2, 1, 2, 1, 22], (1, 2), 30), label="ids of two digits"),
    ],
    fresh=True,
    mistakes=(
        Mistake(
            name="from-the-right",
            answer=_join_from_the_right,
            message="You joined from the right. With an odd run of equal ids the left-over stands at the other end.",
        ),
        Mistake(
            name="as-text",
            answer=_join_as_text,
            message="You replaced text. In it the pair 1 2 also stands inside 11 2 and 1 22: compare numbers.",
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
    fresh=True,
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

EXERCISES: tuple[Exercise, ...] = (
    JOIN_PAIR,
    SHIFT_BY_ONE,
    MASK_PROMPT,
    LOSS_BELOW_FLOOR,
)
