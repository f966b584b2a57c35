"""Questions inside the text of chapter 5."""

import math

import numpy as np

from labsupport.grading import Choice, Exercise, Mistake, Number, Option, Shape
from labsupport.grading.shorthand import in_text
from labsupport.ops import softmax as ops

PREDICT_SHIFT = Choice(
    **in_text("5.1"),
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
    **in_text("5.1"),
    id="softmax-normaliser-shape",
    title="Predict: the shape of the normaliser",
    prompt="Logits have shape (B, S, V) = (8, 2048, 32000). Which shape has their sum of exponentials over the "
    "vocabulary, taken with `keepdims=True`?",
    hints=("One number for every token position.", "`keepdims=True` leaves a 1 where the axis was."),
    checklist=(1,),
    expected=(8, 2048, 1),
    mistakes=(
        Mistake(name="dropped", answer=(8, 2048), message="This is the shape without keepdims."),
        Mistake(name="not-reduced", answer=(8, 2048, 32000), message="Nothing is summed in this shape."),
        Mistake(name="over-positions", answer=(8, 1, 32000), message="You summed over the positions."),
    ),
)

PREDICT_OVERFLOW = Choice(
    **in_text("5.2"),
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
    **in_text("5.3"),
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
        Mistake(
            name="log-of-one",
            answer=1001.0,
            message="Two terms of 1 sum to 2, and the natural logarithm of 2 is not 1.",
        ),
        Mistake(
            name="base-10",
            answer=1000 + math.log10(2),
            message="You took the logarithm to base 10. Here it is natural.",
        ),
    ),
)

PREDICT_TEMPERATURE = Choice(
    **in_text("5.4"),
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
    **in_text("5.5"),
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
    **in_text("5.6"),
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
    **in_text("5.7"),
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
    **in_text("5.8"),
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
    **in_text("5.9"),
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
    **in_text("5.10"),
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
    hints=(
        "Which line writes the same array next, and who may come there first?",
        "The warps of a block do not run in step. Let one of them run ahead to that line: what may the others still "
        "want to read?",
    ),
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
