"""Exercises of chapter 1 on what fits: a shard of the vocabulary, a 32-bit index, a budget of bytes."""

import numpy as np

from labsupport.exercises.three_questions.sizes import B, H, S, V
from labsupport.grading import (
    Case,
    Exercise,
    Function,
    Mistake,
    Number,
    Shape,
    Written,
)
from labsupport.ops.tensors import matmul_shape


def max_tokens(H: int, V: int, itemsize: int, budget: int) -> int:
    """Largest number of tokens for which X, W and the logits fit into ``budget`` bytes, or 0."""
    rest = budget - itemsize * H * V
    return max(0, rest // (itemsize * (H + V)))


def _max_tokens_by_search(H: int, V: int, itemsize: int, budget: int) -> int:
    """The same by bisection over the number of tokens."""
    low, high = 0, budget + 1
    while high - low > 1:
        middle = (low + high) // 2
        if itemsize * (middle * (H + V) + H * V) <= budget:
            low = middle
        else:
            high = middle
    return low


def _token_cases(rng: np.random.Generator) -> list[Case]:
    cases = [(2, 3, 1, 26), (4096, 128_256, 2, 80 * 10**9), (4096, 128_256, 2, 10**9), (8, 8, 4, 4 * 64)]
    for _ in range(4):
        hidden, vocabulary = (int(n) for n in rng.integers(5, 60, 2))
        size = int(rng.choice([1, 2, 4]))
        tokens = int(rng.integers(3, 40))
        exact = size * (hidden * vocabulary + tokens * (hidden + vocabulary))
        cases += [(hidden, vocabulary, size, exact), (hidden, vocabulary, size, exact - 1)]
    return [Case(args=c, label=f"H={c[0]}, V={c[1]}, {c[2]} bytes an element, budget {c[3]:,} B") for c in cases]


EXERCISES: tuple[Exercise, ...] = (
    Shape(
        id="vocabulary-shard",
        chapter=1,
        section="1.4",
        title="Logits on one of eight ranks",
        level="medium",
        checklist=(1,),
        prompt="The columns of `W (4096, 128256)` are split evenly over 8 ranks. What is the shape of the logits that "
        "one rank computes from `X (4, 2048, 4096)`?",
        hints=("Which axis of the weight is split?", "Each rank sees all tokens."),
        expected=matmul_shape((B, S, H), (H, V // 8)),
        mistakes=(
            Mistake(
                name="whole-vocabulary",
                answer=(B, S, V),
                message="That is the whole result. One rank holds only its own columns of the weight.",
            ),
            Mistake(
                name="tokens-split",
                answer=(B, S // 8, V),
                message="You split the sequence. Here the columns of the weight are split; every rank sees all tokens.",
            ),
            Mistake(
                name="rows-split",
                answer=(B, S, H // 8),
                message="You split the hidden axis. The columns of the weight are its vocabulary axis.",
            ),
        ),
    ),
    Number(
        id="index-limit",
        chapter=1,
        section="1.4",
        title="Longest sequence for a 32-bit index",
        level="medium",
        prompt="Logits have $B=4$ and $V=128{,}256$. What is the largest $S$ for which **every** "
        "element's place, counted from 0, still fits in a signed 32-bit integer?",
        contract="An integer number of tokens; a bare number will do.",
        hints=("The last place is $BSV-1$, and it may be $2^{31}-1$.", "Divide and round down."),
        expected=2**31 // (B * V),
        unit="token",
        default_unit="token",
        exact=True,
        mistakes=(
            Mistake(
                name="unsigned",
                answer=2**32 // (B * V),
                message="That is the limit for unsigned indices. A signed one ends at $2^{31}-1$.",
            ),
            Mistake(
                name="rounded-up",
                answer=-(-(2**31) // (B * V)),
                message="You rounded up: with one token more the last place no longer fits.",
            ),
            Mistake(
                name="batch-left-out",
                answer=2**31 // V,
                message="You left the batch out. The place counts through all sequences.",
            ),
        ),
    ),
    Function(
        id="max-tokens",
        chapter=1,
        section="1.5",
        title="How many tokens fit?",
        level="hard",
        points=2,
        checklist=(7,),
        prompt="Write `max_tokens(H, V, itemsize, budget)`: the largest number of tokens $B\\cdot S$ for which "
        "`X`, `W` and the logits together take at most `budget` bytes.",
        contract="All arguments are positive integers. Return an integer; return 0 where not even one token fits.",
        hints=(
            "Write the sum of the three tensors for `t` tokens and solve for `t`.",
            "The weight is there whatever `t` is: subtract it first.",
            "Round down, and never return a negative number.",
        ),
        oracle=max_tokens,
        cases=_token_cases,
        mistakes=(
            Mistake(
                name="weight-forgotten",
                answer=lambda H, V, e, budget: budget // (e * (H + V)),
                message="You gave all of the budget to the tokens. The weight takes its part first.",
            ),
            Mistake(
                name="activation-forgotten",
                answer=lambda H, V, e, budget: max(0, (budget - e * H * V) // (e * V)),
                message="You counted the logits and left out the input `X`.",
            ),
            Mistake(
                name="negative",
                answer=lambda H, V, e, budget: (budget - e * H * V) // (e * (H + V)),
                message="Your answer goes below zero when the weight alone is too large.",
            ),
            Mistake(
                name="rounded-up",
                answer=lambda H, V, e, budget: max(0, -(-(budget - e * H * V) // (e * (H + V)))),
                message="You rounded up: the last token does not fit in whole.",
            ),
            Mistake(
                name="strictly-less",
                answer=lambda H, V, e, budget: max(0, (budget - e * H * V - 1) // (e * (H + V))),
                message="A plan that fills the budget to the last byte still fits: at most, not less than.",
            ),
        ),
        accept=(_max_tokens_by_search,),
    ),
    Written(
        id="three-answers",
        chapter=1,
        section="1.5",
        title="Three questions about another layer",
        level="medium",
        points=2,
        checklist=(1, 7),
        prompt="Take the embedding lookup: integer token ids $(B, S)$ pick rows of a table $(V, H)$. Answer the three "
        "questions in a few sentences: shape, cost, risk.",
        hints=("How many multiplications does a lookup need?", "How much of the table is read for one batch?"),
        rubric=(
            "Shape: ids (B, S) and table (V, H) give (B, S, H).",
            "Cost: no multiply-adds at all; about 2·B·S·H elements of traffic (rows read, rows written), so the "
            "intensity is near zero; the table itself takes V·H elements of memory.",
            "Risk, at least one: an id outside 0 … V-1; scattered reads; a backward pass that adds into shared "
            "rows; a table shared with the LM head in the other layout.",
        ),
        model="The result is (B, S, H). Nothing is multiplied: B·S rows of H numbers are read and written, so the "
        "layer is memory bound. Ids outside the vocabulary read foreign memory, and in the backward pass equal "
        "tokens add into one row.",
    ),
)
