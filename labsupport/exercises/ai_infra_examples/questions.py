"""Questions inside the text of chapter 10."""

from labsupport.cost import linear_cost, lora_cost, tensor_bytes
from labsupport.grading import Choice, Exercise, Mistake, Number, Option, Shape

_PROJECTION = linear_cost(8 * 2048, 4096, 4096)

EXERCISES: tuple[Exercise, ...] = (
    Number(
        id="projection-flops",
        chapter=10,
        section="10.1",
        place="chapter",
        title="FLOPs of one projection",
        prompt=(
            "How many FLOPs does one projection $H \\to N$ take forward, with $B = 8$, $S = 2048$, $H = N = 4096$? "
            "Answer with a unit, such as `\"1.2 TFLOP\"`."
        ),
        hints=(
            "There are $B \\cdot S \\cdot N$ outputs, and each sums over $H$.",
            "A multiply-add is two FLOPs. Every size is a power of two, so add exponents: $8 \\cdot 2048 = 2^{14}$ "
            "tokens.",
        ),
        checklist=(1, 7),
        expected=_PROJECTION.flops,
        unit="FLOP",
        default_unit="FLOP",
        mistakes=(
            Mistake(
                name="one-sequence",
                answer=_PROJECTION.flops // 8,
                message="That is one sequence; the batch holds eight.",
            ),
        ),
    ),
    Shape(
        id="attention-scores-shape",
        chapter=10,
        section="10.2",
        place="chapter",
        title="Shape of the scores",
        prompt="$X$ has shape $(2, 128, 512)$ and there are 8 heads. Which shape do the scores $Q K^\\top$ have?",
        hints=(
            "Heads become a batch axis, and the head width is summed away.",
            "Write down the shapes of $Q$ and of $K^\\top$ for one head of one sequence, and multiply them. Which "
            "axes come before those two?",
        ),
        checklist=(18,),
        expected=(2, 8, 128, 128),
        mistakes=(
            Mistake(
                name="no-heads",
                answer=(2, 128, 128),
                message="Each head has its own scores; the head axis is missing.",
            ),
            Mistake(
                name="head-width-kept",
                answer=(2, 8, 128, 64),
                message="That is the shape of $Q$. The head width is the axis that is summed over.",
            ),
            Mistake(
                name="heads-behind",
                answer=(2, 128, 8, 128),
                message="The heads stand before the tokens, so that a matrix product sees them as a batch axis.",
            ),
        ),
    ),
    Choice(
        id="score-growth",
        chapter=10,
        section="10.2.1",
        place="chapter",
        title="Twice the context",
        prompt="The context length doubles and nothing else changes. What happens to the bytes of the explicit "
            "scores?",
        hints=(
            "How often does $S$ occur in the shape of the scores?",
            "The shape is in the table of section 10.2. Count the elements for $S$ and for $2S$, and divide.",
        ),
        checklist=(18,),
        options={
            "a": Option("They double.", "Activations of shape (B, S, H) do; the scores have S twice in their shape."),
            "b": Option("They grow fourfold.", "The scores have shape (B, N_h, S, S): S occurs twice.", True),
            "c": Option("They grow eightfold.", "That would need three axes of length S."),
            "d": Option("They stay, since D_h is summed away.", "D_h is gone, but two token axes remain."),
        },
    ),
    Choice(
        id="row-without-keys",
        chapter=10,
        section="10.2",
        place="chapter",
        title="A query that may read nothing",
        prompt=(
            "A query may read no key at all, because its whole row is masked. What does `attention` of this "
            "book return "
            "for it?"
        ),
        hints=(
            "A softmax of such a row is 0/0. Somebody must decide, and say so.",
            "The output is a weighted sum over the keys that may be read. How many terms does that sum have here?",
        ),
        checklist=(9,),
        options={
            "a": Option("NaN", "A plain softmax does. An attention kernel that pads its batch would then spread NaN."),
            "b": Option("the mean of all values", "That happens with a large negative number instead of −∞: a "
            "silent leak."),
            "c": Option("zeros", "An empty sum of values is 0; the docstring says so and a test holds it.", True),
            "d": Option("its own value", "Its own key is masked too."),
        },
    ),
    Number(
        id="score-spread-at-256",
        chapter=10,
        section="10.3",
        place="chapter",
        title="Spread of a dot product",
        prompt=(
            "$q$ and $k$ have 256 independent entries each, with mean 0 and variance 1. What is the standard "
            "deviation of "
            "$q \\cdot k$?"
        ),
        hints=(
            "Each of the 256 products has variance 1. Variances add, standard deviations do not.",
            "Add up the 256 variances first. The standard deviation is the root of the variance of the sum.",
        ),
        checklist=(8,),
        expected=16,
        mistakes=(
            Mistake(name="variance", answer=256, message="That is the variance; take its square root."),
            Mistake(
                name="already-scaled",
                answer=1,
                message="That is what is left after the division by $\\sqrt{D_h}$.",
            ),
        ),
    ),
    Choice(
        id="block-size-effect",
        chapter=10,
        section="10.4",
        place="chapter",
        title="A larger block",
        prompt="Attention by blocks runs with twice as many queries in a block. What changes?",
        hints=(
            "Who reads K and V, and how often?",
            "One pass over all keys serves one block of queries. How many blocks are there, before and after? And "
            "where does a block keep its queries and their state?",
        ),
        checklist=(18,),
        options={
            "a": Option("The result: fewer merges are more exact by a constant.", "The merge is exact algebra; only "
                        "rounding moves in the last digits, in no fixed direction."),
            "b": Option("The FLOPs of the two products halve.", "Each query still meets each key once."),
            "c": Option("K and V are read half as often, and more on-chip memory is needed.", "One reading of K and V "
                        "serves a whole block of queries.", True),
            "d": Option("The memory for the whole score matrix halves.", "There is no such matrix in this form."),
        },
    ),
    Number(
        id="lora-share-64",
        chapter=10,
        section="10.5",
        place="chapter",
        title="Share of a rank-64 adapter",
        prompt=(
            "A weight of $4096 \\times 4096$ gets a LoRA adapter with $r = 64$. How large is the adapter, as a "
            "percentage of the weight's parameters? Answer like `\"1.5 %\"`."
        ),
        hints=(
            "The adapter has $r (d_{in} + d_{out})$ parameters.",
            "Divide by the $d_{in} d_{out}$ parameters of the weight. The two widths are equal, so one of them "
            "cancels. Then make a percentage of it.",
        ),
        checklist=(5,),
        expected=100 * lora_cost(4096, 4096, 64).ratio,
        unit="%",
        default_unit="%",
        rtol=1e-2,
        mistakes=(
            Mistake(
                name="one-factor",
                answer=100 * lora_cost(4096, 4096, 64).ratio / 2,
                message="That is one of the two factors.",
            ),
            Mistake(
                name="rank-8",
                answer=100 * lora_cost(4096, 4096, 8).ratio,
                message="That is the share of a rank-8 adapter.",
            ),
        ),
    ),
    Number(
        id="mean-of-two-ranks",
        chapter=10,
        section="10.6",
        place="chapter",
        title="Seven tokens and five",
        prompt="One rank has 7 tokens with mean loss 2.0, the other 5 tokens with mean loss 3.0. What is the "
            "mean loss over all?",
        hints=(
            "How large is the sum of the losses on each rank?",
            "Add the two sums, and divide once. By how many tokens?",
        ),
        checklist=(8,),
        expected=29 / 12,
        rtol=2e-3,
        mistakes=(
            Mistake(
                name="mean-of-means",
                answer=2.5,
                message="That gives both ranks the same weight, but they have different numbers of tokens.",
            ),
            Mistake(
                name="weights-swapped",
                answer=(5 * 2.0 + 7 * 3.0) / 12,
                message="The weights are exchanged: the mean of 2.0 belongs to seven tokens.",
            ),
        ),
    ),
    Number(
        id="activation-bytes-bf16",
        chapter=10,
        section="10.7",
        place="chapter",
        title="One activation",
        prompt="How many bytes does a BF16 tensor of shape $(8, 2048, 4096)$ take? Answer with a unit, such as "
            "`\"3 MiB\"`.",
        hints=(
            "Elements times bytes; every size is a power of two.",
            "Write each size as a power of two and add the exponents. Add that of the bytes of one BF16 element too. "
            "A MiB is $2^{20}$ bytes.",
        ),
        checklist=(18,),
        expected=int(tensor_bytes((8, 2048, 4096), "bf16")),
        unit="B",
        default_unit="B",
        rtol=3e-3,
        mistakes=(
            Mistake(
                name="one-sequence",
                answer=int(tensor_bytes((2048, 4096), "bf16")),
                message="That is one sequence of the batch.",
            ),
        ),
    ),
    Choice(
        id="train-8b-on-80",
        chapter=10,
        section="10.7.2",
        place="chapter",
        title="Eight billion parameters on one device",
        prompt=(
            "A model of 8 billion parameters is trained with AdamW in mixed precision on **one** device with 80 GB, "
            "without sharding. Does it fit?"
        ),
        hints=(
            "How many bytes does one parameter need, with everything that the optimizer keeps?",
            "Section 8.3 adds them up for mixed-precision AdamW. Multiply by the number of parameters, and compare "
            "with 80 GB before you think of activations.",
        ),
        options={
            "a": Option("Yes: the weights are 16 GB.", "That is inference. Training keeps gradients and "
            "optimizer state too."),
            "b": Option("Yes, if activations are checkpointed.", "Checkpointing shrinks activations only. Look "
            "at what is "
                        "there before the first token."),
            "c": Option("No: parameters, gradients and optimizer state alone exceed it.", "At 16 bytes a "
            "parameter that "
                        "is about 128 GB, before any activation.", True),
            "d": Option("No, because of the KV cache.", "Training keeps no KV cache; that belongs to generation."),
        },
    ),
    Choice(
        id="neutral-padding",
        chapter=10,
        section="10.8",
        place="chapter",
        title="What a tail is filled with",
        prompt=(
            "A softmax kernel reads tiles of 128 logits, and a row has 1000. With which value are the missing "
            "24 of the "
            "last tile filled, so that the result stays right?"
        ),
        hints=(
            "Which number adds nothing to a sum of exponentials, and never is a maximum?",
            "Put each option into $e^{x - m}$, with $m$ the maximum of the row. What does it add to the sum? Can it "
            "become $m$ itself?",
        ),
        checklist=(9,),
        options={
            "a": Option("0", "Its exponential is 1 before the shift: the sum grows by up to 24."),
            "b": Option("−∞", "Its exponential is exactly 0, and it never is the maximum.", True),
            "c": Option("the smallest logit of the row", "It adds the smallest term once more for each missing "
            "place."),
            "d": Option("any value, since the stores are masked", "Masked stores protect the output. The sum has been "
                        "spoiled by then."),
        },
    ),
)  # fmt: skip
