"""Questions inside the text of chapter 11."""

from labsupport.grading import Choice, Exercise, Mistake, Number, Option, Shape

FORWARD_RUNS_FIRST = Choice(
    id="forward-runs-first",
    chapter=11,
    section="11.1",
    title="Which runs first?",
    prompt="Inside a layer, which box of the map works first?",
    hints=(
        "What does the norm steady: what a part gives, or what it reads?",
        "Section 11.2 writes a layer as a formula, in the line of $y^{(\\ell)}$. A formula runs from the inside out.",
    ),
    level="easy",
    place="chapter",
    options={
        "a": Option("2A, attention", "The attention of a pre-norm layer reads values that another box has steadied."),
        "b": Option("2B, the MLP", "The MLP is the second half of a layer."),
        "c": Option("2C, the norm", "The norm runs before attention, and once more before the MLP.", correct=True),
        "d": Option("2D, the logits", "Logits come after the last layer, once."),
    },
)

FORWARD_LOGITS_SHAPE = Shape(
    id="forward-logits-shape",
    chapter=11,
    section="11.2",
    title="Shape of the logits",
    prompt="Which shape do the logits have?",
    hints=(
        "One score for each token of the vocabulary, at every position of every block.",
        "The last product is $(B, T, d)$ times $(d, V)$. Which axis is summed away, and which one comes in its place?",
    ),
    checklist=(1,),
    level="easy",
    place="chapter",
    expected=(8, 2048, 32000),
    mistakes=(
        Mistake(name="width", answer=(8, 2048, 4096), message="The width d is summed over in the last product."),
        Mistake(name="last-position", answer=(8, 32000), message="Scores exist at every position, not only the last."),
        Mistake(
            name="all-axes", answer=(8, 2048, 4096, 32000), message="A product keeps outer axes and sums the inner."
        ),
    ),
)

LOGIT_OF_CAT = Number(
    id="logit-of-cat",
    chapter=11,
    section="11.3",
    title="The logit of cat",
    prompt="What is the logit of `cat`, whose column of U is 0.1 and 0.3, for h = [1, 2]?",
    hints=(
        "One times the first row, two times the second.",
        "Take the column of `cat` alone: two products, then their sum. The first of them is $1 \\cdot 0.1$.",
    ),
    level="easy",
    place="chapter",
    expected=1 * 0.1 + 2 * 0.3,
    unit="1",
    rtol=1e-6,
    mistakes=(
        Mistake(name="sum", answer=0.1 + 0.3, message="You added the column. Each entry is weighted by h first."),
        Mistake(name="swapped", answer=2 * 0.1 + 1 * 0.3, message="You took the entries of h in the wrong order."),
    ),
)

LOGITS_HOW_MANY = Number(
    id="logits-how-many",
    chapter=11,
    section="11.3",
    title="How many scores",
    prompt="B = 1, T = 10, V = 23: how many logits are there?",
    hints=(
        "Multiply the axes of the shape.",
        "The shape is $(B, T, V)$: at each of the $T$ positions stands a row of $V$ scores.",
    ),
    level="easy",
    place="chapter",
    expected=10 * 23,
    unit="1",
    exact=True,
    mistakes=(
        Mistake(name="sum", answer=33, message="You added the axes; a table has rows times columns."),
        Mistake(name="one-row", answer=23, message="This is one position. There is a row of scores at each."),
    ),
)

CAUSAL_WHICH_CHANGE = Choice(
    id="causal-which-change",
    chapter=11,
    section="11.5",
    title="Which logits change?",
    prompt="Positions are counted from 0. Which of the six rows of logits may change?",
    hints=(
        "Which positions may read position 3?",
        "Position $t$ reads positions 0 to $t$. Go through $t = 0, \\dots, 5$: is 3 among the positions that it reads?",
    ),
    level="easy",
    place="chapter",
    options={
        "a": Option("0 to 3", "Earlier positions cannot read a later one; that is what the mask is for."),
        "b": Option("3 to 5", "Position 3 reads itself, and later positions read it too.", correct=True),
        "c": Option("4 and 5 only", "A position reads its own token as well."),
        "d": Option("all six", "Then the model would see its own answers in training."),
    },
)

LOGITS_CONCLUDE = Choice(
    id="logits-conclude",
    chapter=11,
    section="11.6",
    title="What may be concluded",
    prompt='Logits of one forward pass, no labels. Which statements hold? Several may; answer such as `"a, c"`.',
    hints=(
        "What changes when a constant is added to all logits of one position?",
        "A statement that such a constant can make false does not follow from logits. And does one of them need the "
        "right tokens?",
    ),
    level="medium",
    place="chapter",
    options={
        "a": Option(
            "at this position the model leans more to cat than to fish",
            "Within one row a larger logit means a larger probability.",
            correct=True,
        ),
        "b": Option(
            "cat has probability 0.7",
            "Logits do not sum to 1; softmax comes first.",
        ),
        "c": Option(
            "the model is more certain at this position than at the next, because its largest logit is larger",
            "Each row has a free constant. Compare probabilities, not logits.",
        ),
        "d": Option(
            "cat is e to the (logit difference) times as probable as fish",
            "The quotient of two probabilities of a row depends on the difference of the logits alone.",
            correct=True,
        ),
        "e": Option(
            "the model guesses well",
            "That needs the right tokens, which logits do not hold.",
        ),
    },
)

PARAMETERS_SMALL = Number(
    id="parameters-small",
    chapter=11,
    section="11.7",
    title="Parameters of the small model",
    prompt="How many parameters has this model?",
    hints=("Two tensors outside the layer, seven inside it.", "With L = 1 and m = 2d the formula is 2nd + 10d²."),
    level="easy",
    place="chapter",
    expected=2 * 13 * 6 + 10 * 36,
    unit="parameter",
    default_unit="parameter",
    exact=True,
    mistakes=(
        Mistake(name="tied", answer=13 * 6 + 10 * 36, message="Embedding and LM head are two tensors here."),
        Mistake(name="no-mlp", answer=2 * 13 * 6 + 4 * 36, message="The MLP's three matrices are missing."),
    ),
)

KERNEL_OR_MODEL = Choice(
    id="kernel-or-model",
    chapter=11,
    section="11.8",
    title="Kernel or model?",
    prompt="Which of these changes makes it another model, and not another way to execute the same one?",
    hints=(
        "Which of them changes the formula, in exact arithmetic?",
        "Ask of each change: are the same numbers multiplied and added as before, only in another order or another "
        "place?",
    ),
    level="easy",
    place="chapter",
    options={
        "a": Option("fused instead of explicit attention", "The same formula, with fewer reads and writes."),
        "b": Option("weights split over two devices", "The same products, cut into blocks and added up."),
        "c": Option("norm and product fused into one kernel", "The same formula, without storing the result between."),
        "d": Option(
            "16 attention heads instead of 32",
            "Scores and softmax are then taken over other groups of columns: another function, although every tensor "
            "keeps its shape.",
            correct=True,
        ),
    },
)

PERCENTILE_OF_RUNS = Number(
    id="percentile-of-runs",
    chapter=11,
    section="11.9",
    title="p95 of a hundred runs",
    prompt="What is p95, in milliseconds?",
    hints=(
        "Sort them. Which one is the 95th?",
        "In sorted order the ninety fast runs come first. Is the 95th run one of them?",
    ),
    level="easy",
    place="chapter",
    expected=0.100,
    unit="s",
    default_unit="ms",
    rtol=1e-6,
    mistakes=(
        Mistake(name="mean", answer="19 ms", message="This is the mean, a time that no run took."),
        Mistake(
            name="median", answer="10 ms", message="This is the median; ninety runs are fast, ninety-five are not."
        ),
        Mistake(name="interpolated", answer="95.5 ms", message="Nearest rank returns a time that was measured."),
    ),
)

FORWARD_FLOPS_TOKEN = Number(
    id="forward-flops-token",
    chapter=11,
    section="11.10",
    title="FLOPs for one token",
    prompt="FLOPs of the products with weights, for one token.",
    hints=("Which tensor is looked up and not multiplied?", "Two FLOPs for each weight that is left."),
    checklist=(7,),
    level="medium",
    place="chapter",
    expected=2 * (5024 - 77 * 16),
    unit="FLOP",
    default_unit="FLOP",
    exact=True,
    mistakes=(
        Mistake(name="embedding", answer=2 * 5024, message="The embedding is looked up; it costs no FLOPs."),
        Mistake(name="no-head", answer=2 * (5024 - 2 * 77 * 16), message="The LM head does multiply."),
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    FORWARD_RUNS_FIRST,
    FORWARD_LOGITS_SHAPE,
    LOGIT_OF_CAT,
    LOGITS_HOW_MANY,
    CAUSAL_WHICH_CHANGE,
    LOGITS_CONCLUDE,
    PARAMETERS_SMALL,
    KERNEL_OR_MODEL,
    PERCENTILE_OF_RUNS,
    FORWARD_FLOPS_TOKEN,
)
