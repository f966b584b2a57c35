"""Questions inside the text of chapter 7."""

from __future__ import annotations

import numpy as np

from labsupport.grading import Choice, Exercise, Mistake, Number, Option, Several, Shape
from labsupport.grading.shorthand import in_text
from labsupport.ops import autodiff as ops

tanh_at_zero = Number(
    **in_text("7.1"),
    id="tanh-from-its-output",
    title="Predict: a derivative from the output alone",
    prompt="A tanh unit put out $y = 0.6$. What is $\\mathrm{d}y/\\mathrm{d}x$ there? You do not need $x$.",
    hints=("The derivative of tanh is one minus its square.", "The square of 0.6 is 0.36."),
    checklist=(11,),
    expected=round(1 - 0.6**2, 9),
    rtol=1e-6,
    mistakes=(
        Mistake(name="sigmoid", answer=0.6 * 0.4, message="This is the rule of the sigmoid, y (1 − y)."),
        Mistake(name="not-squared", answer=0.4, message="The output is squared before it is subtracted."),
        Mistake(
            name="through-tanh",
            answer=float(1 - np.tanh(0.6) ** 2),
            message="You put the output through tanh again. It is tanh of x already.",
        ),
    ),
)

steepest_step = Choice(
    **in_text("7.2"),
    id="steepest-step",
    title="The best unit step",
    prompt="The gradient is $(3, -4)$. Along which unit vector does $f$ fall fastest?",
    hints=("Ascent is along the gradient.", "Divide by the length 5, and turn the sign."),
    options={
        "a": Option("$(0.6, -0.8)$", "That is the direction of steepest ascent."),
        "b": Option("$(-0.6, 0.8)$", "Against the gradient, divided by its length.", True),
        "c": Option("$(0.8, 0.6)$", "This is at right angles to the gradient: f does not change to first order."),
        "d": Option("$(0, 1)$", "This falls as well, and more slowly: it uses one of the two entries only."),
    },
)

jacobian_shape = Shape(
    **in_text("7.3"),
    id="jacobian-shape",
    title="Predict: the shape of a Jacobian",
    prompt="A layer maps a vector of 4096 numbers to one of 11008. Which shape has its Jacobian?",
    hints=("Entry (i, j) is the derivative of output i by input j.", "Rows belong to outputs."),
    expected=np.broadcast_shapes((11008, 1), (1, 4096)),
    mistakes=(
        Mistake(name="transposed", answer=(4096, 11008), message="Rows belong to outputs, columns to inputs."),
        Mistake(name="output", answer=(11008,), message="Each output has a derivative by each of the inputs."),
        Mistake(name="input", answer=(4096,), message="That is the shape of a gradient, where there is one output."),
    ),
)

sweeps = Several(
    **in_text("7.4"),
    id="sweeps-needed",
    title="Predict: how many sweeps?",
    prompt="A function has 3 inputs and 2 outputs. Answer `forward` and `reverse`: how many sweeps of each mode "
    "give the "
    "whole Jacobian?",
    hints=("A forward sweep follows one input.", "A reverse sweep starts from one output."),
    checklist=(11,),
    parts={
        "forward": Number(
            prompt="Sweeps of forward mode.",
            expected=3,
            exact=True,
            mistakes=(Mistake(name="outputs", answer=2, message="A forward sweep gives one column: one input."),),
        ),
        "reverse": Number(
            prompt="Sweeps of reverse mode.",
            expected=2,
            exact=True,
            mistakes=(Mistake(name="inputs", answer=3, message="A reverse sweep gives one row: one output."),),
        ),
    },
)


def _fork_gradient() -> float:
    x, y = ops.Value(2.0), ops.Value(3.0)
    ((x * y + x) ** 2).backward()
    return x.grad


fork_gradient = Number(
    **in_text("7.5"),
    id="gradient-of-the-fork",
    title="Predict: a value used twice",
    prompt="$u = xy$, $v = u + x$, $L = v^2$, at $x = 2$, $y = 3$. What is $\\partial L/\\partial x$?",
    hints=("First $v$, then $\\partial L/\\partial v = 2v$.", "$x$ reaches $v$ on two paths, at rates $y$ and 1."),
    checklist=(11,),
    expected=_fork_gradient(),
    mistakes=(
        Mistake(name="through-u", answer=48.0, message="This is the path through u alone. x also enters v directly."),
        Mistake(name="direct", answer=16.0, message="This is the direct path alone. x also enters through u."),
        Mistake(name="product", answer=768.0, message="Rates along one path multiply; the paths themselves add up."),
        Mistake(name="by-y", answer=32.0, message="This is the derivative by y."),
    ),
)

linear_shapes = Several(
    **in_text("7.6"),
    id="linear-gradient-shapes",
    title="Predict: three shapes",
    prompt="$Y = XW + b$ with $X$ of shape (32, 4096) and $W$ of shape (4096, 11008). Answer the shapes `dX`, "
    "`dW`, `db`.",
    hints=("A gradient has the shape of its tensor.", "The bias is one row, broadcast over the batch."),
    checklist=(12,),
    parts={
        "dX": Shape(
            prompt="Gradient of the input.",
            expected=(32, 4096),
            mistakes=(Mistake(name="output", answer=(32, 11008), message="That is the shape of dY."),),
        ),
        "dW": Shape(
            prompt="Gradient of the weight.",
            expected=(4096, 11008),
            mistakes=(Mistake(name="transposed", answer=(11008, 4096), message="The weight is stored as (in, out)."),),
        ),
        "db": Shape(
            prompt="Gradient of the bias.",
            expected=(11008,),
            mistakes=(
                Mistake(name="per-row", answer=(32, 11008), message="Every row of the batch uses the same bias: sum."),
                Mistake(name="keepdims", answer=(1, 11008), message="The bias has one axis, so its gradient has one."),
            ),
        ),
    },
)

ones_cotangent = Choice(
    **in_text("7.7"),
    id="softmax-of-ones",
    title="Predict: a test that proves nothing",
    prompt="You test your softmax backward with `softmax(z).sum().backward()`. What is the right gradient by $z$?",
    hints=("What is the sum of a row of probabilities?", "How much does that sum change when a logit does?"),
    options={
        "a": Option("the probabilities $p$", "Does the sum of a row ever change?"),
        "b": Option("$p(1-p)$", "That is the diagonal of the Jacobian. The other entries of the row count, too."),
        "c": Option("zero everywhere", "Rows always sum to 1. So an implementation that returns zeros passes.", True),
        "d": Option("one everywhere", "That is the cotangent, the gradient by p."),
    },
)

push_of_the_right_class = Number(
    **in_text("7.8"),
    id="push-of-the-right-class",
    title="How hard is the push?",
    prompt="The right class has a probability of 0.2. What is the gradient of the cross-entropy by **its** logit?",
    hints=("The gradient is $p - y$.", "For the right class $y$ is 1."),
    checklist=(13,),
    expected=round(0.2 - 1, 9),
    mistakes=(
        Mistake(name="wrong-class", answer=0.2, message="This is the entry of a class that is not the right one."),
        Mistake(name="sign", answer=0.8, message="Descent must raise this logit, so its gradient is negative."),
        Mistake(
            name="by-probability", answer=-5.0, message="This is the derivative by the probability, not the logit."
        ),
    ),
)

best_step = Choice(
    **in_text("7.10"),
    id="best-step",
    title="Predict: the best step",
    prompt="A central difference in float64, where machine epsilon is about $2 \\cdot 10^{-16}$ and all values "
    "are near 1. "
    "Which $\\varepsilon$ gives the smallest error?",
    hints=("Truncation error is about $\\varepsilon^2$, rounding error about $2 \\cdot 10^{-16}/\\varepsilon$.",
           "Set the two equal: $\\varepsilon^3$ is about $2 \\cdot 10^{-16}$."),
    options={
        "a": Option("$10^{-2}$", "There the truncation error is about a ten-thousandth."),
        "b": Option("$10^{-5}$", "Near the cube root of machine epsilon both errors balance.", True),
        "c": Option("$10^{-8}$", "That is the best step of a one-sided difference: the square root."),
        "d": Option("$10^{-15}$", "There the two values differ in their last digits only: rounding is all that "
        "is left."),
    },
)  # fmt: skip

EXERCISES: tuple[Exercise, ...] = (
    tanh_at_zero,
    steepest_step,
    jacobian_shape,
    sweeps,
    fork_gradient,
    linear_shapes,
    ones_cotangent,
    push_of_the_right_class,
    best_step,
)
