"""Questions inside the text of chapter 1."""

from labsupport.cost import tensor_bytes
from labsupport.exercises.three_questions.sizes import LM_HEAD, B, H, S, V
from labsupport.grading import (
    Choice,
    Exercise,
    Mistake,
    Number,
    Option,
    Shape,
)
from labsupport.ops.tensors import matmul_shape

EXERCISES: tuple[Exercise, ...] = (
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
