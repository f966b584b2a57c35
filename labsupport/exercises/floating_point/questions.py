"""Questions inside the text of chapter 9."""

import numpy as np

from labsupport.grading import Choice, Exercise, Mistake, Number, Option
from labsupport.grading.shorthand import in_text
from labsupport.ops import reductions
from labsupport.ops.floats import FP16

LARGEST_FP16 = Number(
    **in_text("9.1"),
    id="fp16-largest",
    title="Predict: the largest FP16 number",
    prompt="FP16 has 5 exponent bits (bias 15) and 10 mantissa bits; field 31 is set aside. What is its largest finite "
    "number?",
    hints=("The largest field is 30, so the exponent is 15.", "All mantissa bits set: $1 + 1023/1024$."),
    checklist=(15,),
    expected=FP16.max,
    exact=True,
    mistakes=(
        Mistake(name="power", answer=65536.0, message="That is the next power of two, which does not fit."),
        Mistake(name="integer", answer=65535.0, message="That is the largest 16-bit integer."),
        Mistake(name="empty-mantissa", answer=32768.0, message="You left the mantissa bits at 0."),
        Mistake(name="field-31", answer=131008.0, message="You used the field that belongs to infinity and NaN."),
    ),
)

FP16_OR_BF16 = Choice(
    **in_text("9.2"),
    id="bf16-or-fp16",
    title="Predict: 1.001 in two formats",
    prompt="Which of the two formats can tell 1.001 from 1?",
    hints=("The spacing at 1 is $2^{-M}$.", "FP16 has 10 mantissa bits, BF16 has 7."),
    checklist=(15,),
    options={
        "a": Option("FP16 only", "Its spacing at 1 is about 0.00098; that of BF16 is 0.0078.", correct=True),
        "b": Option("BF16 only", "BF16 spends its bits on range. Compare the spacings at 1."),
        "c": Option("both", "One of the two has a spacing of 0.0078 at 1."),
        "d": Option("neither", "One of the two has a spacing below 0.001 at 1."),
    },
)

PREDICT_2049 = Number(
    **in_text("9.3"),
    id="fp16-2048-plus-one",
    title="Predict: 2048 + 1 in FP16",
    prompt="What is 2048 + 1 in FP16, with 10 mantissa bits and ties to even?",
    hints=("The spacing from 2048 on is 2.", "The exact result lies in the middle; whose last bit is 0?"),
    checklist=(15,),
    expected=float(FP16.round(2049.0)),
    exact=True,
    mistakes=(
        Mistake(name="exact", answer=2049.0, message="This number is not in FP16: it needs 12 significant bits."),
        Mistake(name="up", answer=2050.0, message="The tie does not always go up. Look at the last mantissa bit."),
    ),
)

LOST_UPDATES = Number(
    **in_text("9.3"),
    id="lost-updates",
    title="Predict: a thousand small updates",
    prompt="A weight of 1.0 in BF16 (7 mantissa bits) receives 1,000 updates of 0.001, one after the other. What is it "
    "afterwards?",
    hints=("What is half the spacing of BF16 at 1?", "What does the very first update do?"),
    checklist=(15,),
    expected=1.0,
    rtol=1e-6,
    mistakes=(
        Mistake(name="exact", answer=2.0, message="That is exact arithmetic. Compare one update with the spacing."),
        Mistake(name="one-step", answer=1.0078125, message="Not even one spacing comes together: each update is "
                "rounded by itself."),
    ),
)  # fmt: skip

ONES_IN_FP16 = Number(
    **in_text("9.4"),
    id="fp16-sum-of-ones",
    title="Predict: 4,096 ones",
    prompt="What is the serial sum of 4,096 ones in FP16?",
    hints=("At which running sum does adding 1 become a tie?", "Think of the spacing above $2^{11}$."),
    checklist=(17,),
    expected=float(reductions.sum_serial(np.ones(4096), FP16)),
    exact=True,
    mistakes=(
        Mistake(name="exact", answer=4096.0, message="That is exact arithmetic, or a tree."),
        Mistake(name="bf16", answer=256.0, message="That is where BF16 stops."),
        Mistake(name="largest", answer=65504.0, message="The sum does not overflow; it stops earlier."),
        Mistake(name="half", answer=1024.0, message="Up to here every whole number is still a number of FP16."),
    ),
)

WHICH_NOT_NAN = Choice(
    **in_text("9.5"),
    id="which-is-not-nan",
    title="Predict: which is not NaN?",
    prompt="Three of these are NaN. Which one is not?",
    hints=(
        "NaN is the result of an operation that has no answer.",
        "As the divisor grows, what does a quotient come close to?",
    ),
    checklist=(15,),
    options={
        "a": Option("0/0", "Any number would do as an answer, so there is none."),
        "b": Option("inf - inf", "How much larger the first is, nobody knows."),
        "c": Option("0 * inf", "Zero times more than everything has no answer."),
        "d": Option("1/inf", "It is 0, the limit of a quotient whose divisor grows.", correct=True),
    },
)

NAIVE_SIGN = Choice(
    **in_text("9.6"),
    id="naive-variance-sign",
    title="Predict: the naive variance",
    prompt="100 numbers near $10^8$ with a true variance of 1, in float64. What may E[x²] − E[x]² return?",
    hints=(
        "How large is $x^2$, and how far apart are float64 numbers there?",
        "At $10^{16}$ the spacing of float64 is 2.",
    ),
    options={
        "a": Option("about 1, within a percent", "That would need digits behind the point of a number near 1e16."),
        "b": Option("a value such as -4, 0 or 2", "The spacing of float64 near 1e16 is 2.", correct=True),
        "c": Option("NaN", "Nothing here is infinite, and nothing is divided by 0."),
        "d": Option("0 or more, never below", "In exact arithmetic. Both terms were rounded before the subtraction."),
    },
)

MERGED_M2 = Number(
    **in_text("9.6"),
    id="merged-m2",
    title="Predict: a merged state",
    prompt="Two states (n, mean, M2): (2, 1, 2) and (2, 5, 2). What is M2 of the merged state?",
    hints=("The distance of the means is 4.", "The extra term is $\\delta^2 n_a n_b / n$."),
    expected=float(reductions.Welford(2, 1.0, 2.0).merge(reductions.Welford(2, 5.0, 2.0)).M2),
    mistakes=(
        Mistake(name="sum", answer=4.0, message="You added the two M2. The distance of the means is missing."),
        Mistake(name="not-divided", answer=68.0, message="Divide the extra term by the count of both."),
        Mistake(name="not-squared", answer=8.0, message="The distance of the means enters squared."),
        Mistake(name="variance", answer=5.0, message="That is the variance; M2 is not yet divided."),
    ),
)

MORE_BITS = Choice(
    **in_text("9.7"),
    id="more-bits-or-not",
    title="Predict: does float64 help?",
    prompt="The entries of a matrix were **measured** with a relative error of $10^{-6}$, and its condition number is "
    "$10^8$. You solve in float64 instead of float32. Does the answer get useful?",
    hints=(
        "Which error is larger, that of the measurement or that of the format?",
        "Multiply the error of the data by the condition number.",
    ),
    options={
        "a": Option("yes, 16 digits minus 8 leaves 8", "That counts the format's rounding and forgets the data's own "
                    "error."),
        "b": Option("no, the data's own error is enlarged just the same", "The problem is sensitive, whatever the "
                    "format.", correct=True),
        "c": Option("yes, if a stable algorithm is used", "A stable algorithm adds little error. The error came with "
                    "the data."),
        "d": Option("no, because float64 has no more range", "It has, and range is not the subject here."),
    },
)  # fmt: skip

ACCUMULATOR_STALLS = Number(
    **in_text("9.8"),
    id="accumulator-stalls",
    title="Predict: where an FP16 accumulator stalls",
    prompt="Inputs are all 1 and K = 8192. What does an FP16 accumulator return for one output?",
    hints=("It is a serial sum of ones.", "From which number on is 1 half a spacing?"),
    checklist=(15,),
    expected=float(reductions.matmul_accumulated(np.ones((1, 8192)), np.ones((8192, 1)), FP16, FP16).item()),
    exact=True,
    mistakes=(
        Mistake(name="exact", answer=8192.0, message="That is what an FP32 accumulator returns."),
        Mistake(name="bf16", answer=256.0, message="That is a BF16 accumulator."),
        Mistake(name="half", answer=4096.0, message="Above the point where it stalls, 1 is half a spacing or less."),
    ),
)

SCALE_THAT_RESCUES = Choice(
    **in_text("9.9"),
    id="scale-that-rescues",
    title="Predict: a gradient of 1e-8",
    prompt="A gradient of $10^{-8}$ becomes 0 in FP16, whose smallest number is about $6 \\cdot 10^{-8}$. Which loss "
    "scale stores it with all 11 significant bits?",
    hints=(
        "A number with all its bits must be normal: at least $6.1 \\cdot 10^{-5}$.",
        "How many powers of two lie between $10^{-8}$ and $6.1 \\cdot 10^{-5}$?",
    ),
    checklist=(16,),
    options={
        "a": Option("$2^{4}$", "It is no longer 0, but a subnormal with very few bits."),
        "b": Option("$2^{10}$", "About $10^{-5}$: still a subnormal, with fewer bits."),
        "c": Option("$2^{16}$", "About $6.6 \\cdot 10^{-4}$: a normal number.", correct=True),
        "d": Option("$2^{43}$", "About 88,000: beyond the largest number."),
    },
)

SKIPPED_STEP = Choice(
    **in_text("9.9"),
    id="skipped-step",
    title="Predict: what a skipped step costs",
    prompt="Dynamic scaling meets an infinite gradient and skips the step. What is lost?",
    hints=(
        "Which numbers were changed before the test?",
        "The weights and the optimizer state are touched only after the test.",
    ),
    checklist=(16,),
    options={
        "a": Option("one batch's compute", "Weights and optimizer state stay as they were.", correct=True),
        "b": Option("the weights, which must be reloaded", "They are changed only after the test."),
        "c": Option("nothing: the update is applied with clipped gradients", "A clipped infinity is still no "
                    "gradient."),
        "d": Option("the optimizer's moments, which become 0", "They are not touched by a step that is skipped."),
    },
)  # fmt: skip

HAS_NO_STATE = Choice(
    **in_text("9.10"),
    id="has-no-state",
    title="Predict: what does not merge?",
    prompt="Which of these cannot be computed from states of a fixed size, one per block?",
    hints=(
        "Which of them needs to see all numbers of both blocks side by side?",
        "Two blocks with the same state must be interchangeable.",
    ),
    checklist=(17,),
    options={
        "a": Option("the maximum", "One number per block is enough."),
        "b": Option("the variance", "A count, a mean and M2 are enough."),
        "c": Option("the exact median", "Any number of a block may turn out to be it.", correct=True),
        "d": Option("LogSumExp", "A maximum and a sum are enough."),
    },
)

EXERCISES: tuple[Exercise, ...] = (
    LARGEST_FP16,
    FP16_OR_BF16,
    PREDICT_2049,
    LOST_UPDATES,
    ONES_IN_FP16,
    WHICH_NOT_NAN,
    NAIVE_SIGN,
    MERGED_M2,
    MORE_BITS,
    ACCUMULATOR_STALLS,
    SCALE_THAT_RESCUES,
    SKIPPED_STEP,
    HAS_NO_STATE,
)
