"""Questions inside the text of chapter 8."""

import math

from labsupport.cost import training_memory
from labsupport.grading import Choice, Exercise, Mistake, Number, Option, Several, Shape
from labsupport.grading.shorthand import in_text

BATCH_FOUR_TIMES = Number(
    **in_text("8.1"),
    id="batch-four-times",
    title="Predict: four times the batch",
    prompt="The batch grows from 64 to 256. By which factor does the **standard deviation** of its gradient shrink?",
    hints=("The variance is divided by four.", "The standard deviation is the root of the variance."),
    checklist=(8,),
    expected=math.sqrt(256 / 64),
    mistakes=(
        Mistake(name="variance", answer=4.0, message="This is the factor of the variance. Take its root."),
        Mistake(
            name="inverse", answer=0.5, message="You gave what is left. The question is by which factor it shrinks."
        ),
        Mistake(name="none", answer=1.0, message="More samples give a quieter mean."),
    ),
)

TERMINAL_VELOCITY = Number(
    **in_text("8.2"),
    id="momentum-terminal-velocity",
    title="Predict: a constant gradient",
    prompt="Every gradient is 1 and $\\beta = 0.9$. Which velocity does the sum convention approach?",
    hints=("At the end the velocity no longer changes: $v = 0.9 v + 1$.", "Solve this equation for v."),
    expected=1 / (1 - 0.9),
    mistakes=(
        Mistake(name="average", answer=1.0, message="This is the limit of the average convention."),
        Mistake(name="two-terms", answer=1.9, message="This is the second step. The sum goes on."),
        Mistake(
            name="beta-sum", answer=0.9 / (1 - 0.9), message="You left out the newest gradient, whose weight is 1."
        ),
    ),
)

ADAM_FIRST_STEP = Number(
    **in_text("8.3"),
    id="adam-first-step",
    title="Predict: Adam's first step",
    prompt=(
        "One weight, moments 0, $t = 1$, learning rate 0.1, and a gradient of 1000. How far does Adam move the weight?"
    ),
    hints=(
        "After the correction, the first moment is the gradient, and the second is its square.",
        "What is the quotient of the gradient and the root of its square?",
    ),
    expected=0.1,
    rtol=1e-3,
    mistakes=(
        Mistake(name="sgd", answer=100.0, message="This is SGD's step. Adam divides by the size of the gradient."),
        Mistake(
            name="uncorrected",
            answer=0.1 * 0.1 / math.sqrt(0.001),
            message="You left out the bias correction of both moments.",
        ),
        Mistake(name="only-v", answer=0.01, message="You corrected the second moment and not the first."),
    ),
)

BYTES_PER_PARAMETER = Number(
    **in_text("8.3"),
    id="bytes-per-parameter",
    title="Predict: bytes a parameter",
    prompt=(
        "Adam in mixed precision: 2-byte weights, 2-byte gradients, fp32 master weights, and both moments in fp32. "
        "How many bytes does one parameter take? The unit is B."
    ),
    hints=("A float32 has four bytes.", "Add up five numbers."),
    expected=float(training_memory(1).total),
    unit="B",
    default_unit="B",
    exact=True,
    mistakes=(
        Mistake(name="state", answer=(8, "B"), message="These are the two moments alone."),
        Mistake(name="no-master", answer=(12, "B"), message="One of the five is missing: the master weights."),
        Mistake(
            name="half-state", answer=(10, "B"), message="Master weights and moments are float32, not 2 bytes each."
        ),
        Mistake(name="weights", answer=(4, "B"), message="These are weights and gradients alone."),
    ),
)

HUNDRED_LAYERS = Choice(
    **in_text("8.4"),
    id="hundred-layers",
    title="Predict: a hundred factors of 0.9",
    prompt="Each of 100 layers scales the gradient by 0.9. Roughly what is left?",
    hints=(
        "Ten layers leave about a third: $0.9^{10} \\approx 0.35$.",
        "A hundred layers are ten times ten: $0.35^{10}$.",
    ),
    checklist=(11,),
    options={
        "a": Option("a tenth", "That is left after about 22 layers."),
        "b": Option("a thousandth", "That is left after about 66 layers."),
        "c": Option(
            "some 3 in 100,000", "Ten factors leave about 0.35, and its tenth power is about that.", correct=True
        ),
        "d": Option("nothing: it underflows in float32", "float32 reaches down to about $10^{-45}$, far below."),
    },
)

RESIDUAL_PROMISE = Choice(
    **in_text("8.5"),
    id="residual-promise",
    title="Predict: what the identity path promises",
    prompt="Every block has the Jacobian $I + J_l$. What does this say of the gradient at the first block?",
    hints=(
        "Multiply out two blocks: $(I + J_1)(I + J_2)$.",
        "One term of the product holds no $J$ at all. Do the others have a bound?",
    ),
    checklist=(14,),
    options={
        "a": Option(
            "It always has the size it has at the last block",
            "Only if all $J_l$ were 0. The other terms are there, and they may grow.",
        ),
        "b": Option(
            "It does not hang on the product of the branches alone, but it may still grow",
            "One path has no factor. The sum of the others is not bounded by it.",
            correct=True,
        ),
        "c": Option(
            "It can neither vanish nor explode",
            "With $J_l$ near $-I$ it can vanish, and with large $J_l$ it explodes.",
        ),
        "d": Option(
            "Nothing: a sum of matrices can be anything",
            "True in the worst case. At a usual initial scale no branch is near $-I$: the identity is not cancelled.",
        ),
    },
)

VARIANCE_OF_A_LAYER = Number(
    **in_text("8.6"),
    id="variance-of-a-layer",
    title="Predict: the variance after a layer",
    prompt=(
        "Inputs of variance 1, 4096 of them a unit, and weights of standard deviation 0.02. What is the variance of "
        "the outputs?"
    ),
    hints=("The variance of a weight is the square of 0.02.", "4096 products add up, each with the same variance."),
    checklist=(8,),
    expected=4096 * 0.02**2,
    mistakes=(
        Mistake(
            name="standard-deviation",
            answer=4096 * 0.02,
            message="You used the standard deviation of the weights. Their variance is its square.",
        ),
        Mistake(
            name="root",
            answer=math.sqrt(4096 * 0.02**2),
            message="This is the standard deviation of the outputs.",
        ),
        Mistake(name="one-product", answer=0.02**2, message="This is the variance of one product. Thousands add up."),
    ),
)

MEAN_SHAPE = Shape(
    **in_text("8.7"),
    id="layer-norm-mean-shape",
    title="Predict: the shape of the means",
    prompt="x has shape (B, S, H) = (8, 2048, 4096). Which shape have LayerNorm's means, taken with `keepdims=True`?",
    hints=("Each token has one mean.", "`keepdims=True` leaves a 1 where the axis was."),
    checklist=(1,),
    expected=(8, 2048, 1),
    mistakes=(
        Mistake(name="batch-norm", answer=(1, 1, 4096), message="One mean for each feature: that is BatchNorm."),
        Mistake(name="dropped", answer=(8, 2048), message="This is the shape without keepdims."),
        Mistake(
            name="per-sequence", answer=(8, 1, 1), message="You gave one mean for each sequence. Each token has one."
        ),
        Mistake(name="per-sequence-kept", answer=(8, 1, 4096), message="You reduced over the tokens."),
    ),
)

RMS_SPEED = Choice(
    **in_text("8.8"),
    id="rms-norm-speed",
    title="Predict: what RMSNorm saves",
    prompt=(
        "Both norms are fused kernels. RMSNorm does about half of the arithmetic. How much faster does a model become "
        "whose norms take 5 % of a step?"
    ),
    hints=(
        "Is a fused norm limited by arithmetic or by memory?",
        "Both read x once and write y once. And what is the most that 5 % can give?",
    ),
    checklist=(7,),
    options={
        "a": Option("twice as fast", "Half of the arithmetic of 5 % of a step cannot halve the step."),
        "b": Option(
            "2.5 % faster", "That is if the kernel's time were its arithmetic. What does a fused norm wait for?"
        ),
        "c": Option("hardly at all", "Both kernels move the same bytes, and wait for them.", correct=True),
        "d": Option("5 % faster", "That is the gain from a norm that takes no time at all."),
    },
)

CLIP_BY_HAND = Number(
    **in_text("8.9"),
    id="clip-by-hand",
    title="Predict: two tensors, one norm",
    prompt="$g_1 = (3)$, $g_2 = (4)$, limit 1. What is $g_1$ after clipping by the global norm?",
    hints=("The norm of both together is that of the vector (3, 4).", "Both are scaled by one over this norm."),
    checklist=(4,),
    expected=3 / 5,
    mistakes=(
        Mistake(name="own-norm", answer=1.0, message="You clipped the tensor by its own norm."),
        Mistake(name="sum", answer=3 / 7, message="You added the two norms. The norm of both is the root of a sum."),
        Mistake(name="squares", answer=3 / 25, message="You divided by the sum of squares. Its root is the norm."),
        Mistake(name="unclipped", answer=3.0, message="The norm is above the limit, so the gradient is scaled."),
    ),
)

NORM_OF_TWO_RANKS = Number(
    **in_text("8.9"),
    id="norm-of-two-ranks",
    title="Predict: the norm of two shards",
    prompt="The shard of rank 0 has norm 3, that of rank 1 has norm 4. What is the global norm?",
    hints=("The gradient is one long vector, cut in two.", "Squares add up over the ranks."),
    checklist=(4,),
    expected=math.hypot(3, 4),
    mistakes=(
        Mistake(name="sum", answer=7.0, message="Norms do not add up; their squares do."),
        Mistake(name="squares", answer=25.0, message="This is the sum of squares. The norm is its root."),
        Mistake(name="maximum", answer=4.0, message="This is the larger of the two norms, as with the infinity norm."),
        Mistake(name="mean", answer=3.5, message="You averaged the norms. A norm of shards is no average."),
    ),
)

NORM_KERNEL_SECTORS = Number(
    **in_text("8.10"),
    id="norm-kernel-sectors",
    title="Predict: sectors of the rows",
    prompt=(
        "x has 4 rows of 200 float32, each row a block of 64 threads, and the kernel loads x once. How many sectors of "
        "32 bytes do all requests for x touch together?"
    ),
    hints=(
        "How many float32 lie in one sector? Does a row of 200 begin and end at the border of one?",
        "Neighbouring lanes take neighbouring columns, so no sector of a row is touched by two requests.",
    ),
    checklist=(7,),
    expected=4 * 200 * 4 / 32,
    exact=True,
    mistakes=(
        Mistake(
            name="full-turns",
            answer=4 * 4 * 2 * 4,
            message="You gave every warp a full request in every turn. In the last one only a few lanes have a column.",
        ),
        Mistake(
            name="three-passes", answer=3 * 100, message="The row is loaded once here; three passes would do this."
        ),
        Mistake(name="one-row", answer=25, message="This is one row. Each of the rows has a block of its own."),
        Mistake(name="elements", answer=800, message="These are elements. A sector holds several neighbours."),
        Mistake(name="requests", answer=28, message="These are the requests. A full one touches several sectors."),
    ),
)

PADDED_VARIANCE = Number(
    **in_text("8.10"),
    id="padded-variance",
    title="Predict: a tail that is not masked",
    prompt=(
        "A block of 8 threads has a row of four numbers, 1, 2, 3 and 4; the other four threads hold a zero. The second "
        "sum goes over all eight, zeros included. Which variance comes out?"
    ),
    hints=(
        "The zeros leave the first sum as it is, and it is divided by the four columns. What is the mean?",
        "Each thread squares what it holds minus the mean. What does a thread with a zero add?",
    ),
    checklist=(8,),
    expected=(1.5**2 + 0.5**2 + 0.5**2 + 1.5**2 + 4 * 2.5**2) / 4,
    mistakes=(
        Mistake(name="masked", answer=1.25, message="This is the variance of the row, which a masked sum gives."),
        Mistake(
            name="divided-by-eight", answer=30 / 8, message="The sum is divided by the columns, not by the threads."
        ),
        Mistake(name="sum", answer=30.0, message="This is the sum of the squares. It is still to be divided."),
        Mistake(
            name="zeros-alone", answer=6.25, message="This is what the zeros add. The row's own squares come on top."
        ),
        Mistake(
            name="mean-of-eight",
            answer=30 / 8 - 1.25**2,
            message="This is the variance of eight numbers, four of them zeros. The kernel divides both sums by four.",
        ),
    ),
)

RMS_KERNEL = Several(
    **in_text("8.10"),
    id="rms-norm-kernel",
    title="Predict: what RMSNorm's kernel needs",
    prompt=(
        "LayerNorm's kernel takes 2 barriers and 20 shuffles for a row of 200, and moves 400 elements of x and y. What "
        "does the kernel of RMSNorm take for such a row: `barriers`, `shuffles` and `moved`?"
    ),
    contract=(
        "Three whole numbers. `barriers` of the block; `shuffles` of its two warps together; `moved`, elements of x "
        "loaded and of y stored."
    ),
    hints=(
        "LayerNorm needs the mean before it can add up the squares. What does RMSNorm need first?",
        "What does one sum over the block cost: which steps in each warp, and what where the warps meet? Then ask of x "
        "and y which loads or stores could fall away.",
    ),
    checklist=(7,),
    parts={
        "barriers": Number(
            prompt="Barriers of the block.",
            expected=1,
            exact=True,
            mistakes=(
                Mistake(name="both", answer=2, message="Two sums took two barriers. How many sums are left?"),
                Mistake(name="none", answer=0, message="The sums of the two warps still meet in shared memory."),
            ),
        ),
        "shuffles": Number(
            prompt="Shuffles of both warps together.",
            expected=2 * 5,
            exact=True,
            mistakes=(
                Mistake(name="one-warp", answer=5, message="This is one warp. The block has two."),
                Mistake(name="both-sums", answer=20, message="These are two sums in each warp. How many are left?"),
            ),
        ),
        "moved": Number(
            prompt="Elements of x loaded and of y stored.",
            expected=2 * 200,
            exact=True,
            mistakes=(
                Mistake(name="half", answer=200, message="Every element is still loaded once and stored once."),
                Mistake(name="weights", answer=600, message="You counted gamma, too. Only x and y are asked for."),
            ),
        ),
    },
)

EXERCISES: tuple[Exercise, ...] = (
    BATCH_FOUR_TIMES,
    TERMINAL_VELOCITY,
    ADAM_FIRST_STEP,
    BYTES_PER_PARAMETER,
    HUNDRED_LAYERS,
    RESIDUAL_PROMISE,
    VARIANCE_OF_A_LAYER,
    MEAN_SHAPE,
    RMS_SPEED,
    CLIP_BY_HAND,
    NORM_OF_TWO_RANKS,
    NORM_KERNEL_SECTORS,
    PADDED_VARIANCE,
    RMS_KERNEL,
)
