"""Questions inside the text of chapter 12."""

from labsupport.exercises.backward_pass.head import LOGIT_GRADIENT
from labsupport.grading import Choice, Exercise, Mistake, Number, Option, Shape

BACKWARD_FIRST = Choice(
    id="backward-first-gradient",
    chapter=12,
    section="12.1",
    title="Which gradient is known first?",
    prompt="Which parameter's gradient is complete first?",
    hints=(
        "Which parameter stands nearest to the loss?",
        "The walk goes against the forward pass: the loss, then the logits. Which operation with a weight made the "
        "logits?",
    ),
    checklist=(11,),
    level="easy",
    place="chapter",
    options={
        "a": Option(
            "the embedding's", "It stands at the far end: the gradient has passed all layers before it gets there."
        ),
        "b": Option("the first layer's", "The walk starts at the loss, and the first layer is nearly at its end."),
        "c": Option("the LM head's", "It is the last operation with a weight before the loss.", correct=True),
        "d": Option(
            "all at the same time", "Each step needs the gradient that the step after it in the forward pass gives."
        ),
    },
)

GRADIENT_OF_SQUARE = Number(
    id="gradient-of-the-square",
    chapter=12,
    section="12.2",
    title="dL/dw",
    prompt="What is dL/dw?",
    hints=(
        "Two factors: the derivative of the square, and that of wx by w.",
        "Work out $u = wx - y$ first; the square has the derivative $2u$. By how much does $wx$ grow when $w$ grows "
        "by 1?",
    ),
    checklist=(11,),
    level="easy",
    place="chapter",
    expected=2 * (2 * 3 - 4) * 3,
    unit="1",
    exact=True,
    mistakes=(
        Mistake(name="no-inner", answer=4, message="This is the derivative by wx - y. A factor is missing."),
        Mistake(name="sign", answer=-12, message="A larger w makes wx - y larger, and it is positive already."),
        Mistake(name="no-two", answer=6, message="The factor 2 of the square is missing."),
    ),
)

SIGN_OF_ANSWER = Choice(
    id="sign-of-answer-column",
    chapter=12,
    section="12.3",
    title="Signs of the gradient",
    prompt="Which entries of the gradient of the logits are negative?",
    hints=("Which logit should grow for the loss to fall?", "p - 1 for one entry, p for the others."),
    checklist=(13,),
    level="easy",
    place="chapter",
    options={
        "a": Option("all", "Then a common rise of all logits would lower the loss; it changes nothing."),
        "b": Option("that of the right answer only", "There it is p - 1, elsewhere p.", correct=True),
        "c": Option("those of the two tokens ahead of the answer", "Raising these makes the answer less likely."),
        "d": Option("all but that of the right answer", "It is the other way round: the gradient points uphill."),
    },
)

HEAD_GRADIENT_SHAPE = Shape(
    id="head-gradient-shape",
    chapter=12,
    section="12.4",
    title="Shape of dU",
    prompt="Which shape has dU?",
    hints=(
        "A gradient has the shape of its tensor.",
        "At one position: how many numbers does $U$ take in, and how many does it give? Positions are summed over.",
    ),
    checklist=(12,),
    level="easy",
    place="chapter",
    expected=(16, 77),
    mistakes=(
        Mistake(name="per-position", answer=(4, 32, 16, 77), message="The outer products of all positions are summed."),
        Mistake(name="logits", answer=(4, 32, 77), message="This is the shape of the logits' gradient."),
        Mistake(name="transposed", answer=(77, 16), message="U is (d, V) in this book."),
    ),
)

NUDGE_CHANGES_LOSS = Number(
    id="nudge-changes-loss",
    chapter=12,
    section="12.5",
    title="The loss after a nudge",
    prompt="The change of the loss, with its sign.",
    hints=(
        "Gradient times nudge.",
        "The entry is in row 0, so its gradient is $h_0$ times that of the logit of `fish`. The sign of the product "
        "counts.",
    ),
    level="easy",
    place="chapter",
    expected=float(LOGIT_GRADIENT[4] * 0.001),
    unit="1",
    rtol=6e-3,
    mistakes=(
        Mistake(
            name="sign",
            answer=float(-LOGIT_GRADIENT[4] * 0.001),
            message="The gradient is negative: raising the entry helps.",
        ),
        Mistake(
            name="gradient", answer=float(LOGIT_GRADIENT[4]), message="This is the gradient; the nudge is a thousandth."
        ),
        Mistake(
            name="row-1", answer=float(2 * LOGIT_GRADIENT[4] * 0.001), message="This is row 1; row 0 meets the 1 of h."
        ),
    ),
)

REPEATED_TOKEN = Choice(
    id="repeated-token-gradient",
    chapter=12,
    section="12.6",
    title="A token that occurs twice",
    prompt="Which gradient does the row of `cat` get?",
    hints=(
        "The row was used twice in the forward pass.",
        "Change the row a little. Both places change, and each of them changes the loss. What is the whole change?",
    ),
    checklist=(11,),
    level="easy",
    place="chapter",
    options={
        "a": Option("that of the last place", "Then the first place would have no influence, although it was read."),
        "b": Option("the mean of both", "The chain rule adds the paths. No averaging happens here."),
        "c": Option("the sum of both", "A value that is used twice collects both gradients.", correct=True),
        "d": Option("two rows, one for each place", "There is one row of E for the token, so one gradient."),
    },
)

DEAD_DOWN = Choice(
    id="dead-down-matrix",
    chapter=12,
    section="12.7",
    title="A matrix of zeros",
    prompt="Which gradients of this layer are exactly 0?",
    hints=("What does the gradient pass on its way to gate and up?", "What does the gradient of down itself need?"),
    checklist=(11, 14),
    level="medium",
    place="chapter",
    options={
        "a": Option("all seven", "Attention gets its gradient along the residual road."),
        "b": Option("that of down", "It is h transposed times the gradient from above, and neither of them is 0."),
        "c": Option(
            "those of gate and up", "Their gradient passes through down, and there it becomes 0.", correct=True
        ),
        "d": Option("none", "A product with a zero matrix gives zeros, backwards as well."),
    },
)

CHECKPOINT_PRICE = Number(
    id="checkpoint-price",
    chapter=12,
    section="12.8",
    title="Price of checkpointing",
    prompt="FLOPs of a step with checkpointing, divided by those of a step without it; a ratio such as 1.5.",
    hints=(
        "Count passes, in units of one forward pass: how many has a step without checkpointing?",
        "Only the forward pass is run again, the backward pass is not.",
    ),
    checklist=(7,),
    level="easy",
    place="chapter",
    expected=4 / 3,
    unit="1",
    rtol=1e-2,
    mistakes=(
        Mistake(
            name="backward-once", answer=3 / 2, message="You gave the backward pass the price of one forward pass."
        ),
        Mistake(name="double", answer=2, message="The forward pass runs twice, the backward pass once."),
        Mistake(
            name="passes", answer=4, message="This counts passes; divide by those of a step without checkpointing."
        ),
        Mistake(name="upside-down", answer=3 / 4, message="You divided the other way round: the step gets dearer."),
    ),
)

MEAN_OF_TWO = Number(
    id="mean-of-two-micro-batches",
    chapter=12,
    section="12.9",
    title="Mean loss per token",
    prompt="The mean loss per token over both, in nats.",
    hints=(
        "Sums first: 3 times 2.0, and 1 times 4.0.",
        "Add the two sums. From how many tokens do they come? Divide once, by that number.",
    ),
    level="easy",
    place="chapter",
    expected=(3 * 2.0 + 1 * 4.0) / 4,
    unit="1",
    rtol=1e-6,
    mistakes=(
        Mistake(
            name="mean-of-means", answer=3.0, message="This is the mean of the two means: B's token counts too much."
        ),
        Mistake(name="sum", answer=10.0, message="This is the sum over tokens; divide by their number."),
        Mistake(name="by-batches", answer=5.0, message="You divided by the number of micro-batches, not of tokens."),
    ),
)

NAN_INTO_ADAM = Choice(
    id="nan-into-adam",
    chapter=12,
    section="12.10",
    title="A NaN meets the optimizer",
    prompt="What is lost after that step?",
    hints=("Adam keeps running means of each gradient.", "What does that weight do in the next forward pass?"),
    level="medium",
    place="chapter",
    options={
        "a": Option("nothing, the next step repairs it", "A running mean that has taken in a NaN stays NaN for ever."),
        "b": Option(
            "that weight and its two moments, and from the next forward pass on everything",
            "m and v become NaN and with them the weight. The next forward pass carries it into every logit that the "
            "weight "
            "touches, and the backward pass into every gradient.",
            correct=True,
        ),
        "c": Option("that one step", "The state of the optimizer remembers."),
        "d": Option("only the learning rate schedule", "The schedule does not look at gradients."),
    },
)

GRADIENT_CONCLUDE = Choice(
    id="gradient-conclude",
    chapter=12,
    section="12.11",
    title="What may be concluded",
    prompt='Which statements follow from a gradient? Several may; answer such as `"a, c"`.',
    hints=(
        "A gradient belongs to one point and one batch.",
        "It is the slope of a tangent, and speaks of small changes only. Ask of each statement: does it need a long "
        "step, another batch, or the unit of a weight?",
    ),
    level="medium",
    place="chapter",
    options={
        "a": Option(
            "a small enough step against the gradient lowers this batch's loss",
            "That is what the derivative says, where the gradient is not 0.",
            correct=True,
        ),
        "b": Option("a step of length 1 lowers the loss", "The bend decides, and the gradient does not know it."),
        "c": Option(
            "the weight with the largest gradient is the most important one",
            "The size depends on the batch, and on the unit in which the weight is written.",
        ),
        "d": Option(
            "a weight with gradient 0 can be removed",
            "At a minimum every gradient is 0. Removing a weight is a long step, not a small one.",
        ),
        "e": Option(
            "if one entry is -0.8, raising that weight by 0.001 changes the loss by about -0.0008",
            "First order: gradient times a small change.",
            correct=True,
        ),
    },
)

EXERCISES: tuple[Exercise, ...] = (
    BACKWARD_FIRST,
    GRADIENT_OF_SQUARE,
    SIGN_OF_ANSWER,
    HEAD_GRADIENT_SHAPE,
    NUDGE_CHANGES_LOSS,
    REPEATED_TOKEN,
    DEAD_DOWN,
    CHECKPOINT_PRICE,
    MEAN_OF_TWO,
    NAN_INTO_ADAM,
    GRADIENT_CONCLUDE,
)
