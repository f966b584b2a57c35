"""Questions and exercises of chapter 1: the shape, the cost and the risk of one large product.

Every expected value is computed from sizes. A message explains a slip, and must never contain the
expected value.
"""

import numpy as np

from labsupport.cost import gemm_cost, linear_cost, tensor_bytes
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
    Written,
)
from labsupport.ops.tensors import matmul_shape

#: The running example: Llama 3 8B's output projection.
B, S, H, V = 4, 2048, 4096, 128_256
LM_HEAD = linear_cost(B * S, H, V, "bfloat16")

# ---------------------------------------------------------------- questions in the chapter

QUESTIONS: tuple[Exercise, ...] = (
    Choice(
        id="star-or-at",
        chapter=1,
        section="1.1",
        title="Star instead of at",
        place="chapter",
        checklist=(2,),
        prompt="`X` has shape `(4, 8)` and `W` has shape `(8, 8)`. What does `X * W` do?",
        hints=("`*` is elementwise: compare the shapes axis by axis, from the last one.", "Is 4 equal to 8, or 1?"),
        options={
            "a": Option(
                "It gives the same as `X @ W`.",
                "`*` multiplies entries with equal index and sums nothing; `@` sums over the inner axis.",
            ),
            "b": Option(
                "It raises an error.",
                "The last axes fit, 8 and 8, but the axes before them are 4 and 8: neither equal nor 1.",
                True,
            ),
            "c": Option(
                "It gives an elementwise product of shape `(4, 8)`.",
                "An elementwise product needs sizes that are equal or 1 on every axis. Compare the first axes.",
            ),
        },
    ),
    Shape(
        id="lm-head-shape",
        chapter=1,
        section="1.2",
        title="Shape of the logits",
        place="chapter",
        checklist=(1,),
        prompt="What is the shape of the logits for $B=4$, $S=2048$, $H=4096$, $V=128{,}256$?",
        hints=("Which index stands on both sides of the formula?", "$B$ and $S$ are kept, $H$ is summed."),
        expected=matmul_shape((B, S, H), (H, V)),
        mistakes=(
            Mistake(
                name="inner-axis-kept",
                answer=(B, S, H, V),
                message="The axis that both factors share is summed: it is not in the result.",
            ),
            Mistake(
                name="batch-flattened",
                answer=(B * S, V),
                message="You merged batch and sequence. The product keeps every leading axis of `X`.",
            ),
            Mistake(
                name="activation-shape",
                answer=(B, S, H),
                message="That is the shape of the input. The last axis of the result comes from the weight.",
            ),
        ),
    ),
    Choice(
        id="lm-head-reduced",
        chapter=1,
        section="1.2",
        title="The reduced axis",
        place="chapter",
        checklist=(1,),
        prompt="Which axis does the LM head reduce?",
        hints=("It stands in both factors.", "It is not in the shape of the logits."),
        options={
            "B": Option("the batch", "$b$ stands on both sides of the formula: each sequence keeps its own scores."),
            "S": Option("the sequence", "$s$ stands on both sides: every token gets scores of its own."),
            "H": Option("the hidden size", "$h$ stands only on the right: its products are summed.", True),
            "V": Option(
                "the vocabulary", "$v$ is the new axis of the result. It is softmax that reduces over it later."
            ),
        },
    ),
    Number(
        id="lm-head-flops",
        chapter=1,
        section="1.3",
        title="FLOPs of the LM head",
        place="chapter",
        checklist=(7,),
        prompt="How many FLOPs does the LM head take at $B=4$, $S=2048$, $H=4096$, $V=128{,}256$? Give a unit.",
        hints=(
            "How many outputs are there, and how many multiply-adds does each need?",
            "One multiply-add is two FLOPs.",
        ),
        expected=LM_HEAD.flops,
        unit="FLOP",
        rtol=0.01,
        mistakes=(
            Mistake(
                name="multiply-adds",
                answer=f"{LM_HEAD.flops // 2} FLOP",
                message="You counted multiply-adds. One multiply and one add are two FLOPs.",
            ),
            Mistake(
                name="one-sequence",
                answer=f"{LM_HEAD.flops // B} FLOP",
                message="That is one sequence. The batch does the work once for each of its sequences.",
            ),
            Mistake(
                name="outputs-only",
                answer=f"{B * S * V} FLOP",
                message="That is the number of outputs. Each of them is a sum of $H$ products.",
            ),
        ),
    ),
    Number(
        id="lm-head-logits-bytes",
        chapter=1,
        section="1.3",
        title="Bytes of the logits",
        place="chapter",
        checklist=(7,),
        prompt="How many bytes do the logits $(4, 2048, 128256)$ take in BF16? Give a unit, GiB or GB.",
        hints=("Multiply the sizes, then by the bytes of one element.", "BF16 takes two bytes an element."),
        expected=int(tensor_bytes((B, S, V), "bfloat16")),
        unit="B",
        rtol=0.01,
        mistakes=(
            Mistake(
                name="float32",
                answer=f"{int(tensor_bytes((B, S, V), 'float32'))} B",
                message="You used four bytes an element. BF16 has 16 bits.",
            ),
            Mistake(
                name="weight",
                answer=f"{int(tensor_bytes((H, V), 'bfloat16'))} B",
                message="Those are the bytes of the weight. The logits have one score for every token and entry.",
            ),
        ),
    ),
    Choice(
        id="lm-head-bound",
        chapter=1,
        section="1.3",
        title="Limited by arithmetic or by memory",
        place="chapter",
        checklist=(7,),
        prompt="With $B=4$ and $S=1$ in BF16, what limits the LM head on an H100, which can do 295 FLOP for each byte?",
        hints=("With four tokens, how often is each weight used once it is read?", "Compare that intensity with 295."),
        options={
            "a": Option(
                "arithmetic",
                "Each weight of two bytes is used for four tokens, 8 FLOPs. Compare that with what the device can do.",
            ),
            "b": Option(
                "memory",
                "About 4 FLOP for each byte, far under 295: the time goes into reading the weight once.",
                True,
            ),
            "c": Option("both equally", "That would need an intensity near 295 FLOP/B. Work the quotient out."),
        },
    ),
    Choice(
        id="index-width",
        chapter=1,
        section="1.4",
        title="A 32-bit index",
        place="chapter",
        prompt="Logits of shape $(4, 8192, 128256)$: "
        "does the place of the last element fit in a signed 32-bit integer?",
        hints=(
            "The largest is $2^{31}-1$, a little over 2.1 billion.",
            "$4\\cdot8192\\cdot128256$ is how many billion?",
        ),
        options={
            "yes": Option("It fits.", "Multiply the three sizes and compare with $2^{31}$."),
            "no": Option("It does not fit.", "There are about 4.2 billion elements, more than $2^{31}$.", True),
        },
    ),
    Choice(
        id="split-rows",
        chapter=1,
        section="1.4",
        title="A weight split by rows",
        place="chapter",
        prompt="Each of 4 ranks holds a quarter of the rows of $W$ and the matching columns of $X$. "
        "What must happen to the four local results?",
        hints=(
            "Which axis was split: one that is kept, or the one that is summed?",
            "A part of a sum is not a result.",
        ),
        options={
            "a": Option("They are concatenated along $V$.", "That is right for a split of the columns of $W$."),
            "b": Option(
                "They are added.", "The split axis is the reduced one, so every rank holds partial sums.", True
            ),
            "c": Option("Nothing: each rank is done.", "Each rank has summed over a quarter of $H$ only."),
            "d": Option("They are averaged.", "The dot product is a sum over $H$, not a mean."),
        },
    ),
    Choice(
        id="double-tokens",
        chapter=1,
        section="1.5",
        title="Twice the tokens",
        place="chapter",
        checklist=(7,),
        prompt="You double $S$ and leave everything else. What happens to FLOPs, weight bytes and logits bytes?",
        hints=("Which of the three formulas contains $S$?", "The weight has shape $(H, V)$."),
        options={
            "a": Option("All three double.", "The weight's shape is $(H, V)$: look for $S$ in it."),
            "b": Option("FLOPs and logits double, the weight stays.", "$S$ stands in $2BSHV$ and in $BSV$ only.", True),
            "c": Option("FLOPs grow fourfold, logits double.", "$2BSHV$ has one factor $S$. Attention has two."),
            "d": Option("Only FLOPs double.", "Every new token brings $V$ new scores."),
        },
    ),
)

# ---------------------------------------------------------------- exercises

#: An MLP block of the same model: 4096 → 14336 → 4096.
HIDDEN = 14_336


def lm_head_cost(B: int, S: int, H: int, V: int, itemsize: int) -> tuple[int, int]:
    """FLOPs and least bytes of (B, S, H) @ (H, V) → (B, S, V)."""
    return 2 * B * S * H * V, itemsize * (B * S * H + H * V + B * S * V)


def _cost_cases(rng: np.random.Generator) -> list[Case]:
    sizes: list[tuple[int, ...]] = [(1, 2, 3, 5, 4), (4, 2048, 4096, 128_256, 2), (1, 1, 4096, 128_256, 2)]
    sizes += [tuple(int(n) for n in (*rng.integers(2, 50, 4), e)) for e in (1, 2, 4)]
    return [Case(args=s, label=f"B={s[0]}, S={s[1]}, H={s[2]}, V={s[3]}, {s[4]} bytes an element") for s in sizes]


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


def _up_and_down(down: tuple[int, ...]) -> Several:
    """Shapes through an MLP block of 16 × 512 tokens."""
    return Several(
        id="mlp-shapes",
        chapter=1,
        section="1.2",
        title="Shapes through an MLP",
        checklist=(1,),
        prompt="`X` has shape `(16, 512, 4096)`, `W1` has shape `(4096, 14336)`, `W2` has shape `(14336, 4096)`. "
        "Give the shapes of `hidden = X @ W1` and of `out = hidden @ W2`.",
        hints=("Leading axes stay.", "The last axis of a product comes from the weight."),
        parts={
            "hidden": Shape(
                prompt="Shape of `X @ W1`.",
                expected=matmul_shape((16, 512, H), (H, HIDDEN)),
                mistakes=(
                    Mistake(
                        name="flattened",
                        answer=(16 * 512, HIDDEN),
                        message="You merged the leading axes. A product keeps them.",
                    ),
                    Mistake(
                        name="input-shape",
                        answer=(16, 512, H),
                        message="That is the shape of the input. The last axis comes from the weight.",
                    ),
                ),
            ),
            "out": Shape(
                prompt="Shape of `hidden @ W2`.",
                expected=down,
                mistakes=(
                    Mistake(
                        name="inner-kept",
                        answer=(16, 512, HIDDEN),
                        message="The second product sums over the hidden axis: it is gone from the result.",
                    ),
                ),
            ),
        },
    )


MLP = 2 * gemm_cost(16 * 512, HIDDEN, H, "bfloat16")
DECODE = linear_cost(1, H, V, "bfloat16")

EXERCISES: tuple[Exercise, ...] = (
    *QUESTIONS,
    _up_and_down(matmul_shape((16, 512, HIDDEN), (HIDDEN, H))),
    Number(
        id="mlp-flops",
        chapter=1,
        section="1.3",
        title="FLOPs of an MLP",
        checklist=(7,),
        prompt="How many FLOPs do `X @ W1` and `hidden @ W2` take together, for `X (16, 512, 4096)`, "
        "`W1 (4096, 14336)`, `W2 (14336, 4096)`? Give a unit.",
        contract="The activation function between them is not counted.",
        hints=("One product costs two FLOPs for each multiply-add.", "The two products cost the same."),
        expected=MLP.flops,
        unit="FLOP",
        mistakes=(
            Mistake(
                name="multiply-adds",
                answer=f"{MLP.flops // 2} FLOP",
                message="Either you counted multiply-adds as one FLOP, or only one of the two products.",
            ),
            Mistake(
                name="one-token-row",
                answer=f"{MLP.flops // 512} FLOP",
                message="You left the sequence axis out. Every token of every sequence goes through the block.",
            ),
        ),
    ),
    Number(
        id="weight-gib",
        chapter=1,
        section="1.3",
        title="A weight in GiB",
        prompt="How large is a weight $(4096, 128256)$ in BF16, **in GiB**? A bare number counts as GiB.",
        hints=("Two bytes an element.", "One GiB is $2^{30}$ bytes, not $10^9$."),
        expected=tensor_bytes((H, V), "bfloat16") / 2**30,
        unit="GiB",
        default_unit="GiB",
        mistakes=(
            Mistake(
                name="gigabytes",
                answer=tensor_bytes((H, V), "bfloat16") / 10**9,
                message="You divided by $10^9$. That gives GB; a GiB has $2^{30}$ bytes.",
            ),
            Mistake(
                name="elements",
                answer=H * V / 2**30,
                message="You counted elements. Each takes two bytes in BF16.",
            ),
        ),
    ),
    Number(
        id="decode-intensity",
        chapter=1,
        section="1.3",
        title="Intensity of one token",
        level="medium",
        checklist=(7,),
        prompt="What is the arithmetic intensity of the LM head for a **single** token ($B=S=1$, $H=4096$, "
        "$V=128{,}256$, BF16), in FLOP/B? A bare number counts as FLOP/B.",
        hints=("Divide $2BSHV$ by the bytes of all three tensors.", "One tensor outweighs the two others by far."),
        expected=DECODE.intensity,
        unit="FLOP/B",
        default_unit="FLOP/B",
        rtol=5e-3,
        mistakes=(
            Mistake(
                name="multiply-adds",
                answer=DECODE.intensity / 2,
                message="You counted a multiply-add as one FLOP.",
            ),
            Mistake(
                name="elements",
                answer=DECODE.intensity * 2,
                message="You divided by the number of elements. Intensity is per byte, and each element has two.",
            ),
            Mistake(
                name="weight-left-out",
                answer=DECODE.flops / (2 * (H + V)),
                message="You left the weight out. It has to be read, and it is the largest of the three.",
            ),
        ),
    ),
    Function(
        id="lm-head-cost",
        chapter=1,
        section="1.3",
        title="A cost function",
        level="medium",
        checklist=(7,),
        prompt="Write `lm_head_cost(B, S, H, V, itemsize)`. It returns the tuple `(flops, bytes)` of "
        "`X (B, S, H) @ W (H, V)`, each of the three tensors moved once.",
        contract="All arguments are positive integers, `itemsize` in bytes; both results are integers.",
        hints=(
            "Two FLOPs for each multiply-add.",
            "Three tensors: input, weight and output.",
            "The batch does not repeat the weight.",
        ),
        oracle=lm_head_cost,
        cases=_cost_cases,
        mistakes=(
            Mistake(
                name="multiply-adds",
                answer=lambda B, S, H, V, e: (B * S * H * V, e * (B * S * H + H * V + B * S * V)),
                message="Your FLOPs count a multiply-add once. A multiply and an add are two FLOPs.",
            ),
            Mistake(
                name="output-forgotten",
                answer=lambda B, S, H, V, e: (2 * B * S * H * V, e * (B * S * H + H * V)),
                message="Your bytes leave out the output. It has to be written.",
            ),
            Mistake(
                name="weight-per-sequence",
                answer=lambda B, S, H, V, e: (2 * B * S * H * V, e * (B * S * H + B * H * V + B * S * V)),
                message="You counted the weight once for each sequence. All sequences share it.",
            ),
            Mistake(
                name="elements",
                answer=lambda B, S, H, V, e: (2 * B * S * H * V, B * S * H + H * V + B * S * V),
                message="You counted elements. Multiply by the bytes of one element.",
            ),
        ),
        accept=(
            lambda B, S, H, V, e: (int(np.prod([2, B, S, H, V])), e * (B * S * (H + V) + H * V)),
            lambda B, S, H, V, e: [2 * B * S * H * V, e * (B * S * H + H * V + B * S * V)],
        ),
    ),
    Formula(
        id="intensity-limit",
        chapter=1,
        section="1.5",
        title="Intensity with very many tokens",
        level="medium",
        checklist=(7,),
        prompt="For very many tokens the weight no longer counts in the traffic. Give the limit of the intensity as a "
        "function `f(H, V, itemsize)`, in FLOP/B.",
        hints=(
            "Divide numerator and denominator by the number of tokens.",
            "Which of the three terms of the denominator does not grow with the tokens?",
        ),
        oracle=lambda H, V, itemsize: 2 * H * V / (itemsize * (H + V)),
        sample=lambda rng: (
            float(rng.integers(64, 9000)),
            float(rng.integers(9001, 200_000)),
            float(rng.choice([1, 2, 4])),
        ),
        mistakes=(
            Mistake(
                name="multiply-adds",
                answer=lambda H, V, e: H * V / (e * (H + V)),
                message="You counted a multiply-add as one FLOP.",
            ),
            Mistake(
                name="output-only",
                answer=lambda H, V, e: 2 * H / e,
                message="You dropped the input. Both it and the logits grow with the tokens.",
            ),
            Mistake(
                name="weight-kept",
                answer=lambda H, V, e: 2 * H * V / (e * (H + V + H * V)),
                message="The weight is still in your traffic. For many tokens its share vanishes.",
            ),
        ),
    ),
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
