"""Exercises of chapter 7: backward rules, the computation graph, products with Jacobians, and gradient checks.

A gradient is judged with a random cotangent, and its forward values before it. No message may hold the expected
value.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

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
    Tolerance,
    Written,
)
from labsupport.ops import autodiff as ops
from labsupport.ops.softmax import softmax

Array = np.ndarray


def _in_text(section: str, **rest: Any) -> dict[str, Any]:
    return {"chapter": 7, "section": section, "place": "chapter", **rest}


def _exercise(section: str, **rest: Any) -> dict[str, Any]:
    return {"chapter": 7, "section": section, **rest}


# --- in the chapter ---------------------------------------------------------------------------------------

tanh_at_zero = Number(
    **_in_text("7.1"),
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
    **_in_text("7.2"),
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
    **_in_text("7.3"),
    id="jacobian-shape",
    title="Predict: the shape of a Jacobian",
    prompt="A layer maps a vector of 4096 numbers to one of 11008. Which shape has its Jacobian?",
    hints=("Entry (i, j) is the derivative of output i by input j.", "Rows belong to outputs."),
    expected=(np.zeros(11008)[:, None] * np.zeros((1, 4096))).shape,
    mistakes=(
        Mistake(name="transposed", answer=(4096, 11008), message="Rows belong to outputs, columns to inputs."),
        Mistake(name="output", answer=(11008,), message="Each output has a derivative by each of the inputs."),
        Mistake(name="input", answer=(4096,), message="That is the shape of a gradient, where there is one output."),
    ),
)

sweeps = Several(
    **_in_text("7.4"),
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
    **_in_text("7.5"),
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
    **_in_text("7.6"),
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
    **_in_text("7.7"),
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
    **_in_text("7.8"),
    id="push-of-the-right-class",
    title="How hard is the push?",
    prompt="The right class has a probability of 0.2. What is the gradient of the cross-entropy by *its* logit?",
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
    **_in_text("7.10"),
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

# --- the exercise notebook --------------------------------------------------------------------------------


activation_slopes = Formula(
    **_exercise("7.1"),
    id="silu-slope",
    title="Derivative of an activation",
    level="medium",
    prompt="SiLU is $f(x) = x\\,\\sigma(x)$ with the sigmoid $\\sigma(x) = 1/(1 + e^{-x})$. Give its derivative as a "
    "function of `x`.",
    contract="`x`: a float between −4 and 4. Result: a float.",
    hints=(
        "A product: the first factor's rate times the second, plus the other way round.",
        "$\\sigma' = \\sigma(1-\\sigma)$.",
    ),
    checklist=(11,),
    oracle=lambda x: (s := 1 / (1 + np.exp(-x))) + x * s * (1 - s),
    sample=lambda rng: (float(rng.uniform(-4, 4)),),
    mistakes=(
        Mistake(
            name="first-factor-only",
            answer=lambda x: 1 / (1 + np.exp(-x)),
            message="This is the rate with the sigmoid held fixed. The sigmoid moves with x, too.",
        ),
        Mistake(
            name="second-factor-only",
            answer=lambda x: x * (s := 1 / (1 + np.exp(-x))) * (1 - s),
            message="This is the rate with the factor x held fixed. That factor moves, too.",
        ),
        Mistake(
            name="product-of-rates",
            answer=lambda x: (s := 1 / (1 + np.exp(-x))) * (1 - s),
            message="The derivative of a product is not the product of the derivatives.",
        ),
        Mistake(
            name="relu", answer=lambda x: float(x > 0), message="This is the derivative of ReLU, which SiLU smooths."
        ),
    ),
    accept=(lambda x: (1 + np.exp(-x) + x * np.exp(-x)) / (1 + np.exp(-x)) ** 2,),
)


def _linear_cases(rng: np.random.Generator) -> list[Case]:
    def case(batch: int, d_in: int, d_out: int, dtype: Any = np.float64) -> tuple[Array, Array, Array]:
        return tuple(rng.normal(size=s).astype(dtype) for s in ((batch, d_in), (d_in, d_out), (batch, d_out)))  # type: ignore[return-value]

    X, W, dY = case(5, 4, 3)
    return [
        Case(args=(X, W, dY), label="float64, batch 5, 4 -> 3"),
        Case(args=case(4, 4, 4), label="float64, all sizes 4"),
        Case(args=case(6, 3, 2, np.float32), label="float32, batch 6, 3 -> 2"),
        Case(args=(np.asfortranarray(X), W, np.asfortranarray(dY)), label="float64, Fortran order"),
        Case(args=(X.repeat(2, 0)[::2], W, dY.repeat(2, 0)[::2]), label="float64, every second row of a batch"),
        Case(args=case(1, 3, 2), label="float64, a batch of one"),
        Case(args=case(3, 1, 4), label="float64, one input"),
    ]


def _linear_scale(X: Array, W: Array, dY: Array) -> float:
    X, W, dY = (np.abs(np.asarray(a, np.float64)) for a in (X, W, dY))
    return max(1.0, float(max((dY @ W.T).max(), (X.T @ dY).max(), dY.sum(0).max())))


linear_backward = Function(
    **_exercise("7.6"),
    id="linear-backward",
    title="Backward of a linear layer",
    level="medium",
    points=2,
    prompt="The forward pass was $Y = XW + b$. Write `backward(X, W, dY)`: the gradients of $X$, $W$ and $b$, given "
    "$\\partial L/\\partial Y$.",
    contract="`X`: (B, d_in), `W`: (d_in, d_out), `dY`: (B, d_out), all float32 or all float64. Result: the tuple "
    "`(dX, dW, db)` of shapes (B, d_in), (d_in, d_out), (d_out,), in the dtype of the inputs.",
    hints=(
        "Write down the three shapes first. Which products of `X`, `W`, `dY` have them?",
        "(B, d_out) times what gives (B, d_in)? And what gives (d_in, d_out) from `X` and `dY`?",
        "The bias was broadcast over the batch, so its gradient is summed over the batch.",
    ),
    checklist=(12,),
    oracle=ops.linear_backward,
    cases=_linear_cases,
    tolerance=Tolerance(c=8, depth=lambda X, W, dY: max(*X.shape, *W.shape), scale=_linear_scale),
    dtype="exact",
    mistakes=(
        Mistake(
            name="mean-bias",
            answer=lambda X, W, dY: (dY @ W.T, X.T @ dY, dY.mean(axis=0)),
            message="You averaged the bias gradient over the batch. A mean belongs to the loss; here the paths add up.",
        ),
        Mistake(
            name="mean-everywhere",
            answer=lambda X, W, dY: (dY @ W.T, X.T @ dY / len(X), dY.mean(axis=0)),
            message="You divided by the batch size. If the loss is a mean, `dY` holds that factor already.",
        ),
        Mistake(
            name="no-transpose",
            answer=lambda X, W, dY: (dY @ W, X.T @ dY, dY.sum(axis=0)),
            message="The input gradient goes back through the weight, which needs its transpose. Shapes tell "
            "you, unless "
            "the weight is square.",
        ),
        Mistake(
            name="weight-transposed",
            answer=lambda X, W, dY: (dY @ W.T, dY.T @ X, dY.sum(axis=0)),
            message="The weight's gradient is transposed: that is its shape for a weight stored as (out, in).",
        ),
        Mistake(
            name="bias-not-summed",
            answer=lambda X, W, dY: (dY @ W.T, X.T @ dY, dY),
            message="The bias is one row that every example uses. Its gradient is summed over the batch.",
        ),
        Mistake(
            name="bias-wrong-axis",
            answer=lambda X, W, dY: (dY @ W.T, X.T @ dY, dY.sum(axis=1)),
            message="You summed the bias gradient over the features. It is summed over the batch.",
        ),
        Mistake(
            name="bias-keepdims",
            answer=lambda X, W, dY: (dY @ W.T, X.T @ dY, dY.sum(axis=0, keepdims=True)),
            message="The bias has one axis, and so has its gradient.",
        ),
        Mistake(
            name="ones",
            answer=lambda X, W, dY: (
                np.ones_like(dY) @ W.T,
                X.T @ np.ones_like(dY),
                np.ones_like(dY).sum(axis=0),
            ),
            message="You left out `dY`: this is right only for the sum of all outputs.",
            section="7.4",
        ),
        Mistake(
            name="order",
            answer=lambda X, W, dY: (X.T @ dY, dY @ W.T, dY.sum(axis=0)),
            message="The first two results are in each other's place: the contract says dX, dW, db.",
        ),
    ),
    accept=(
        lambda X, W, dY: (
            np.einsum("bo,io->bi", dY, W),
            np.einsum("bi,bo->io", X, dY),
            np.einsum("bo->o", dY),
        ),
        lambda X, W, dY: [(W @ dY.T).T, (dY.T @ X).T, np.ones(len(dY), dY.dtype) @ dY],
    ),
)


def _softmax_cases(rng: np.random.Generator) -> list[Case]:
    def case(*shape: int, dtype: Any = np.float64, scale: float = 1.0) -> tuple[Array, Array]:
        p = softmax(scale * rng.normal(size=shape)).astype(dtype)
        return p, rng.normal(size=shape).astype(dtype)

    p, dp = case(3, 5)
    wide = case(1_000_000)  # its Jacobian cannot be had anywhere: MemoryError at once, and the kernel lives
    return [
        Case(args=(p, dp), label="float64 (3, 5)"),
        Case(args=case(4, 4), label="float64 (4, 4), square"),
        Case(args=case(2, 3, 4), label="float64 (2, 3, 4)"),
        Case(args=case(3, 6, dtype=np.float32), label="float32 (3, 6)"),
        Case(args=(p.repeat(2, 1)[:, ::2], dp.repeat(2, 1)[:, ::2]), label="float64 (3, 5), every second column"),
        Case(args=case(7), label="float64 (7,), one axis"),
        Case(args=case(2, 5, scale=30.0), label="float64 (2, 5), nearly certain"),
        Case(args=wide, label="float64 (1000000,): a Jacobian would take 8 TB"),
    ]


def _softmax_scale(p: Array, dp: Array) -> float:
    return float(np.abs(np.asarray(dp, np.float64)).max() * np.asarray(p, np.float64).max())


softmax_backward = Function(
    **_exercise("7.7"),
    id="softmax-backward",
    title="Backward of softmax in O(V)",
    level="medium",
    points=2,
    prompt="The forward pass gave $p = \\mathrm{softmax}(z)$ over the last axis. Write `backward(p, dp)`: "
    "$\\partial L/\\partial z$, given $\\partial L/\\partial p$. Memory O(V) a row: no V × V matrix.",
    contract="`p`, `dp`: one shape, float32 or float64, any leading axes, V up to 1000000. Result: the same shape "
    "and dtype.",
    hints=(
        "Write the product of the row vector `dp` with diag(p) − p pᵀ on paper, without any numbers.",
        "$\\sum_i dp_i\\, p_i (\\delta_{ij} - p_j)$: pull $p_j$ out. What is left is a difference.",
        "You need one number a row: the dot product of `dp` and `p`, with keepdims=True.",
    ),
    checklist=(13,),
    oracle=ops.softmax_backward,
    cases=_softmax_cases,
    tolerance=Tolerance(c=16, depth=lambda p, dp: min(p.shape[-1], 64), scale=_softmax_scale),
    dtype="exact",
    diagnose=lambda case, result: (
        "your rows do not sum to 0."
        if result.size and not np.allclose(np.sum(result, -1, dtype=np.float64), 0, atol=1e-4)
        else None
    ),
    mistakes=(
        Mistake(
            name="diagonal-only",
            answer=lambda p, dp: p * (1 - p) * dp,
            message="You used the diagonal of the Jacobian only. Every probability depends on every logit.",
        ),
        Mistake(
            name="no-subtraction",
            answer=lambda p, dp: p * dp,
            message="The normaliser depends on the logits, too: the weighted mean of `dp` must be taken off.",
        ),
        Mistake(
            name="plain-sum",
            answer=lambda p, dp: p * (dp - dp.sum(axis=-1, keepdims=True)),
            message="You took off the sum of `dp`. It is the sum weighted with the probabilities.",
        ),
        Mistake(
            name="plain-mean",
            answer=lambda p, dp: p * (dp - dp.mean(axis=-1, keepdims=True)),
            message="You took off the plain mean of `dp`. It is the mean weighted with the probabilities.",
        ),
        Mistake(
            name="whole-array",
            answer=lambda p, dp: p * (dp - np.sum(dp * p)),
            message="You summed over the whole array. Every row has its own softmax.",
        ),
        Mistake(
            name="axis-0",
            answer=lambda p, dp: p * (dp - np.sum(dp * p, axis=0, keepdims=True)),
            message="You summed over axis 0. The softmax ran over the last axis.",
        ),
        Mistake(
            name="sign",
            answer=lambda p, dp: p * (np.sum(dp * p, axis=-1, keepdims=True) - dp),
            message="The sign is turned.",
        ),
        Mistake(
            name="zeros",
            answer=lambda p, dp: np.zeros_like(p),
            message="Zero is right only for a constant `dp`, such as that of a plain sum.",
        ),
    ),
    accept=(
        lambda p, dp: p * dp - p * np.sum(dp * p, axis=-1, keepdims=True),
        lambda p, dp: p * (dp - np.einsum("...i,...i->...", dp, p)[..., None]),
    ),
)

_B, _DIN, _DOUT = 32, 768, 3072

gelu_backward_shapes = Several(
    **_exercise("7.9"),
    id="gelu-backward-shapes",
    title="Backward shapes of GELU(XW + b)",
    prompt=f"$Y = \\mathrm{{GELU}}(XW + b)$ with $X$ of shape ({_B}, {_DIN}), $W$ of shape ({_DIN}, {_DOUT}) "
    f"and $b$ of shape "
    f"({_DOUT},). Answer the shapes of `dX`, `dW` and `db`.",
    contract="A dict or a tuple of three shapes, in the order dX, dW, db.",
    hints=("GELU acts elementwise: it changes no shape.", "A gradient has the shape of its tensor."),
    checklist=(12,),
    parts={
        "dX": Shape(
            prompt="Gradient of the input.",
            expected=(_B, _DIN),
            mistakes=(
                Mistake(
                    name="output", answer=(_B, _DOUT), message="That is the shape of dY and of the pre-activation."
                ),
                Mistake(name="transposed", answer=(_DIN, _B), message="The batch is the first axis."),
            ),
        ),
        "dW": Shape(
            prompt="Gradient of the weight.",
            expected=(_DIN, _DOUT),
            mistakes=(
                Mistake(name="transposed", answer=(_DOUT, _DIN), message="The weight is stored as (in, out)."),
                Mistake(
                    name="per-example",
                    answer=(_B, _DIN, _DOUT),
                    message="That is a gradient for each example. The product sums over the batch.",
                ),
            ),
        ),
        "db": Shape(
            prompt="Gradient of the bias.",
            expected=(_DOUT,),
            mistakes=(
                Mistake(name="not-summed", answer=(_B, _DOUT), message="All examples share the bias: sum over them."),
                Mistake(name="keepdims", answer=(1, _DOUT), message="The bias has one axis, and so has its gradient."),
                Mistake(name="input", answer=(_DIN,), message="The bias is added to the output."),
            ),
        ),
    },
)


def _gelu_linear(X: Array, W: Array, b: Array, dY: Array) -> tuple[Array, Array, Array, Array]:
    Z = X @ W + b
    return (ops.gelu(Z), *ops.linear_backward(X, W, ops.gelu_backward(Z, dY)))


def _gelu_linear_without_slope(X: Array, W: Array, b: Array, dY: Array) -> tuple[Array, ...]:
    return (ops.gelu(X @ W + b), *ops.linear_backward(X, W, dY))


def _gelu_linear_at_output(X: Array, W: Array, b: Array, dY: Array) -> tuple[Array, ...]:
    Y = ops.gelu(X @ W + b)
    return (Y, *ops.linear_backward(X, W, ops.gelu_backward(Y, dY)))


def _gelu_linear_no_bias(X: Array, W: Array, b: Array, dY: Array) -> tuple[Array, ...]:
    Z = X @ W
    return (ops.gelu(Z), *ops.linear_backward(X, W, ops.gelu_backward(Z, dY)))


def _gelu_linear_relu(X: Array, W: Array, b: Array, dY: Array) -> tuple[Array, ...]:
    Z = X @ W + b
    return (np.maximum(Z, 0), *ops.linear_backward(X, W, dY * (Z > 0)))


def _gelu_linear_slope_only(X: Array, W: Array, b: Array, dY: Array) -> tuple[Array, ...]:
    Z = X @ W + b
    return (ops.gelu(Z), *ops.linear_backward(X, W, ops.gelu_backward(Z, np.ones_like(dY))))


def _gelu_linear_first_term(X: Array, W: Array, b: Array, dY: Array) -> tuple[Array, ...]:
    Z = X @ W + b
    t = np.tanh(np.sqrt(2 / np.pi) * (Z + 0.044715 * Z**3))
    return (ops.gelu(Z), *ops.linear_backward(X, W, dY * 0.5 * (1 + t)))


def _gelu_linear_cases(rng: np.random.Generator) -> list[Case]:
    def case(batch: int, d_in: int, d_out: int) -> tuple[Array, ...]:
        sizes: tuple[tuple[int, ...], ...] = ((batch, d_in), (d_in, d_out), (d_out,), (batch, d_out))
        return tuple(rng.normal(size=s) for s in sizes)

    X, W, b, dY = case(4, 3, 3)
    return [
        Case(args=case(5, 4, 3), label="batch 5, 4 -> 3"),
        Case(args=(X, W, b, dY), label="batch 4, 3 -> 3"),
        Case(args=(np.asfortranarray(X), W, b, dY.repeat(2, 0)[::2]), label="Fortran order, every second row"),
        Case(args=case(1, 2, 6), label="a batch of one"),
    ]


gelu_linear = Function(
    **_exercise("7.9"),
    id="gelu-linear-backward",
    title="Forward and backward of a GELU layer",
    level="hard",
    points=3,
    prompt="Write `layer(X, W, b, dY)` for $Y = \\mathrm{GELU}(XW + b)$, with the tanh form of GELU. Return the "
    "forward value "
    "first, then the three gradients.",
    contract="float64: `X` (B, d_in), `W` (d_in, d_out), `b` (d_out,), `dY` (B, d_out). Result: the tuple `(Y, "
    "dX, dW, db)`.",
    hints=(
        "Keep the pre-activation $Z = XW + b$; $Y = \\mathrm{GELU}(Z)$ acts elementwise.",
        "$dZ = dY \\odot \\mathrm{GELU}'(Z)$; from there it is the linear layer.",
        "GELU is a product of $z/2$ and $1 + \\tanh(\\dots)$: its derivative has two terms.",
    ),
    checklist=(11, 12),
    oracle=_gelu_linear,
    cases=_gelu_linear_cases,
    tolerance=Tolerance(
        c=64, depth=lambda X, W, b, dY: max(*X.shape, *W.shape), scale=lambda X, W, b, dY: 4 * _linear_scale(X, W, dY)
    ),
    mistakes=(
        Mistake(
            name="no-slope",
            answer=_gelu_linear_without_slope,
            message="The cotangent went straight into the linear layer. GELU's slope is missing.",
        ),
        Mistake(
            name="slope-at-output",
            answer=_gelu_linear_at_output,
            message="You took GELU's slope at its output. It is due at the pre-activation, which must be kept.",
        ),
        Mistake(name="no-bias", answer=_gelu_linear_no_bias, message="The bias is missing in the forward pass."),
        Mistake(name="relu", answer=_gelu_linear_relu, message="This is ReLU. GELU is smooth."),
        Mistake(
            name="cotangent-ignored",
            answer=_gelu_linear_slope_only,
            message="You left out `dY`: this is right only for the sum of all outputs.",
            section="7.4",
        ),
        Mistake(
            name="first-term-only",
            answer=_gelu_linear_first_term,
            message="GELU is a product, and you kept the tanh factor fixed: a term of the derivative is missing.",
            section="7.1",
        ),
    ),
)  # fmt: skip

Scalar = Callable[[Array], Any]


def _difference(f: Scalar, x: Array, eps: float) -> Array:
    return ops.central_difference(f, x, eps)


def _by_element(f: Scalar, x: Array, eps: float, sides: tuple[float, float], divisor: float) -> Array:
    gradient = np.empty_like(x)
    for index in np.ndindex(x.shape):
        values = []
        for side in sides:
            moved = x.copy()
            moved[index] += side * eps
            values.append(f(moved))
        gradient[index] = (values[0] - values[1]) / divisor
    return gradient


def _all_at_once(f: Scalar, x: Array, eps: float) -> Array:
    return np.full(x.shape, (f(x + eps) - f(x - eps)) / (2 * eps))


def _first_axis(f: Scalar, x: Array, eps: float) -> Array:
    gradient = np.zeros_like(x)
    for i in range(len(x)):
        up, down = x.copy(), x.copy()
        up[i] += eps
        down[i] -= eps
        gradient[i] = (f(up) - f(down)) / (2 * eps)
    return gradient


def _not_put_back(f: Scalar, x: Array, eps: float) -> Array:
    moved, gradient = x.copy(), np.empty_like(x)
    for index in np.ndindex(x.shape):
        moved[index] += eps
        up = f(moved)
        moved[index] -= 2 * eps
        gradient[index] = (up - f(moved)) / (2 * eps)
    return gradient


def _sum_of_cubes(x: Array) -> Any:
    return (x * x * x).sum()


def _products(x: Array) -> Any:
    flat = x.reshape(-1)
    return (flat[:-1] * flat[1:] * flat[1:]).sum() + flat[0]


def _reciprocals(x: Array) -> Any:
    return (1 / (2 + x * x)).sum()


def _difference_cases(rng: np.random.Generator) -> list[Case]:
    return [
        Case(args=(_sum_of_cubes, np.array([1.0, 2.0, -1.0]), 0.125), label="sum of cubes, (3,), eps 1/8"),
        Case(args=(_sum_of_cubes, rng.normal(size=(2, 3)), 0.25), label="sum of cubes, (2, 3), eps 1/4"),
        Case(args=(_products, rng.normal(size=(3, 2)), 0.0625), label="neighbours multiplied, (3, 2), eps 1/16"),
        Case(args=(_reciprocals, rng.normal(size=(4,)), 0.5), label="reciprocals, (4,), eps 1/2"),
        Case(args=(_products, rng.normal(size=(2, 8))[:, ::2], 0.125), label="every second column, eps 1/8"),
        Case(args=(_reciprocals, rng.normal(size=(1, 1, 2)), 0.0625), label="reciprocals, (1, 1, 2), eps 1/16"),
    ]


gradient_check = Function(
    **_exercise("7.10"),
    id="gradient-check",
    title="A numerical gradient",
    level="medium",
    points=2,
    prompt="Write `central_difference(f, x, eps)`: the gradient of the scalar function `f` at the array `x`, by "
    "$(f(x + \\varepsilon e_i) - f(x - \\varepsilon e_i))/2\\varepsilon$ for each element.",
    contract="`f`: takes an array of the shape of `x`, returns one number; `x`: float64, at least one axis, not "
    "empty; `eps`: a "
    "positive float. Result: a new array of the shape of `x`; `x` stays as it is.",
    hints=(
        "`np.ndindex(x.shape)` walks through all positions of any shape.",
        "Work on a copy, move one element up and down, and put it back.",
        "Two values of `f` an element, divided by the whole distance between them.",
    ),
    checklist=(11,),
    oracle=_difference,
    cases=_difference_cases,
    tolerance=Tolerance(c=64, depth=4, scale=lambda f, x, eps: float((1 + np.abs(x).max()) ** 3 / eps)),
    mistakes=(
        Mistake(
            name="one-sided",
            answer=lambda f, x, eps: _by_element(f, x, eps, (1, 0), eps),
            message="This is the one-sided difference. Its error shrinks like the step, not like its square.",
        ),
        Mistake(
            name="backward",
            answer=lambda f, x, eps: _by_element(f, x, eps, (0, -1), eps),
            message="This is a one-sided difference to the left. Step to both sides.",
        ),
        Mistake(
            name="divided-by-eps",
            answer=lambda f, x, eps: _by_element(f, x, eps, (1, -1), eps),
            message="The two points are two steps apart; you divided by one.",
        ),
        Mistake(
            name="sign",
            answer=lambda f, x, eps: _by_element(f, x, eps, (-1, 1), 2 * eps),
            message="You subtracted the upper value from the lower one.",
        ),
        Mistake(
            name="all-at-once",
            answer=_all_at_once,
            message="You moved all elements together. That is the rate along one direction, not a partial derivative.",
        ),
        Mistake(
            name="whole-rows",
            answer=_first_axis,
            message="You moved whole rows. Every element of an array needs its own difference.",
        ),
        Mistake(
            name="not-put-back",
            answer=_not_put_back,
            message="You did not put the element back before you moved the next one.",
        ),
        Mistake(
            name="half-steps",
            answer=lambda f, x, eps: _by_element(f, x, eps / 2, (1, -1), eps),
            message="You moved by half of the step. The contract moves by the whole step to each side.",
        ),
    ),
    accept=(lambda f, x, eps: _by_element(f, x, eps, (1, -1), 2 * eps),),
)


def _vjp_chain(matrices: list[Array], v: Array) -> Array:
    for J in reversed(matrices):
        v = v @ J
    return v


def _vjp_cases(rng: np.random.Generator) -> list[Case]:
    def case(*sizes: int) -> tuple[list[Array], Array]:
        return [rng.normal(size=(o, i)) for i, o in itertools.pairwise(sizes)], rng.normal(size=sizes[-1])

    wide = [np.ones((1, 3000)) * rng.normal(size=(2, 1)), *(np.ones((3000, 1)) * rng.normal() for _ in range(1))]
    return [
        Case(args=case(3, 4, 2), label="two stages, 3 -> 4 -> 2"),
        Case(args=case(3, 3, 3, 3), label="three square stages"),
        Case(args=case(2, 5), label="one stage"),
        Case(args=case(4, 3, 5, 1), label="three stages to one output"),
        Case(args=([wide[1], wide[0]], rng.normal(size=2)), label="through a layer of 3000"),
    ]


vector_jacobian = Function(
    **_exercise("7.4"),
    id="vector-jacobian",
    title="A cotangent through a chain",
    level="medium",
    prompt="`jacobians[k]`, of shape (outputs, inputs), belongs to stage $k$ of a chain; stage 0 runs first. Write "
    "`pull_back(jacobians, v)`: the gradient by the chain's input, given the cotangent `v` of its output. "
    "Multiply a vector "
    "with a matrix, never two matrices.",
    contract="`jacobians`: a list of float64 matrices that fit; `v`: one axis. Result: one axis, as long as the "
    "chain's input.",
    hints=(
        "Which stage does the cotangent meet first?",
        "A cotangent is a row vector: it stands on the left of the matrix.",
    ),
    checklist=(11,),
    oracle=_vjp_chain,
    cases=_vjp_cases,
    tolerance=Tolerance(
        c=16,
        depth=lambda jacobians, v: sum(len(J) for J in jacobians),
        scale=lambda jacobians, v: float(_vjp_chain([np.abs(J) for J in jacobians], np.abs(v)).max()),
    ),
    mistakes=(
        Mistake(
            name="first-stage-first",
            answer=lambda jacobians, v: _vjp_chain(jacobians[::-1], v),
            message="You met the first stage first. A cotangent starts at the output and goes back.",
        ),
        Mistake(
            name="tangent",
            answer=lambda jacobians, v: _jvp_backwards(jacobians, v),
            message="You put the vector on the right of the matrix. That carries a tangent; a cotangent stands "
            "on the left.",
        ),
        Mistake(
            name="last-stage-only",
            answer=lambda jacobians, v: v @ jacobians[-1],
            message="You stopped after one stage.",
        ),
        Mistake(
            name="ones",
            answer=lambda jacobians, v: _vjp_chain(jacobians, np.ones_like(v)),
            message="You put ones in the place of the cotangent.",
        ),
    ),
    accept=(
        lambda jacobians, v: _transposed_chain(jacobians, v),
        lambda jacobians, v: v @ np.linalg.multi_dot([*jacobians[::-1], np.eye(jacobians[0].shape[1])]),
    ),
)


def _jvp_backwards(jacobians: list[Array], v: Array) -> Array:
    for J in reversed(jacobians):
        v = J @ v
    return v


def _transposed_chain(jacobians: list[Array], v: Array) -> Array:
    for J in jacobians[::-1]:
        v = J.T @ v
    return v


def _sweep(parents: list[tuple[int, ...]], local: list[tuple[float, ...]]) -> Array:
    grads = np.zeros(len(parents))
    grads[-1] = 1
    for node in range(len(parents) - 1, -1, -1):
        for parent, slope in zip(parents[node], local[node], strict=True):
            grads[parent] += slope * grads[node]
    return grads


def _sweep_assigning(parents: list[tuple[int, ...]], local: list[tuple[float, ...]]) -> Array:
    grads = np.zeros(len(parents))
    grads[-1] = 1
    for node in range(len(parents) - 1, -1, -1):
        for parent, slope in zip(parents[node], local[node], strict=True):
            grads[parent] = slope * grads[node]
    return grads


def _sweep_forwards(parents: list[tuple[int, ...]], local: list[tuple[float, ...]]) -> Array:
    grads = np.zeros(len(parents))
    grads[-1] = 1
    for node in range(len(parents)):
        for parent, slope in zip(parents[node], local[node], strict=True):
            grads[parent] += slope * grads[node]
    return grads


def _sweep_unscaled(parents: list[tuple[int, ...]], local: list[tuple[float, ...]]) -> Array:
    grads = np.zeros(len(parents))
    grads[-1] = 1
    for node in range(len(parents) - 1, -1, -1):
        for parent, slope in zip(parents[node], local[node], strict=True):
            grads[parent] += slope
    return grads


def _sweep_cases(rng: np.random.Generator) -> list[Case]:
    fork_parents: list[tuple[int, ...]] = [(), (), (0, 1), (2, 0), (3,)]
    fork_local: list[tuple[float, ...]] = [(), (), (3.0, 2.0), (1.0, 1.0), (16.0,)]
    chain_parents: list[tuple[int, ...]] = [(), (0,), (1,), (2,)]
    chain_local = [(), *((float(s),) for s in rng.normal(size=3))]
    square_parents: list[tuple[int, ...]] = [(), (0, 0), (1, 0)]
    diamond: list[tuple[int, ...]] = [(), (0,), (0,), (1, 2), (3, 0)]
    slopes = [tuple(float(s) for s in rng.normal(size=len(p))) for p in diamond]
    return [
        Case(args=(fork_parents, fork_local), label="the fork of section 7.5"),
        Case(args=(chain_parents, chain_local), label="a chain of four"),
        Case(args=(square_parents, [(), (1.5, 1.5), (1.5, 2.25)]), label="a value multiplied with itself"),
        Case(args=(diamond, slopes), label="a diamond and a short cut"),
        Case(args=([()], [()]), label="a single value"),
    ]


graph_sweep = Function(
    **_exercise("7.5"),
    id="graph-sweep",
    title="One sweep over a graph",
    level="medium",
    points=2,
    prompt="Values are numbered so that each comes after those that it was computed from; the last one is the "
    "output. Write "
    "`sweep(parents, local)`: the derivative of the output by every value.",
    contract="`parents[n]`: a tuple of numbers below n, a number may appear twice; `local[n]`: as many "
    "derivatives of value n by "
    "those parents. Result: a list or array of one float a value.",
    hints=(
        "The derivative of the output by itself is 1. All others start at 0.",
        "Walk from the last value to the first, and hand each value's gradient on to its parents.",
        "A parent may receive from several values: add.",
    ),
    checklist=(11,),
    oracle=_sweep,
    cases=_sweep_cases,
    lists=True,
    tolerance=Tolerance(c=16, depth=8),
    mistakes=(
        Mistake(
            name="assigned",
            answer=_sweep_assigning,
            message="You overwrote a gradient that was there already. Paths that meet in a value add up.",
        ),
        Mistake(
            name="wrong-direction",
            answer=_sweep_forwards,
            message="You walked from the inputs to the output. A value's gradient is complete only after all "
            "its users.",
        ),
        Mistake(
            name="not-multiplied",
            answer=_sweep_unscaled,
            message="You handed on the local derivative alone. It is multiplied with the gradient that has arrived.",
        ),
    ),
)


def _hvp_logistic(X: Array, w: Array, v: Array) -> Array:
    s = 1 / (1 + np.exp(-(X @ w)))
    return X.T @ (s * (1 - s) * (X @ v))


def _hvp_cases(rng: np.random.Generator) -> list[Case]:
    def case(n: int, d: int) -> tuple[Array, Array, Array]:
        return rng.normal(size=(n, d)), rng.normal(size=d), rng.normal(size=d)

    X, w, v = case(2, 1_000_000)  # a Hessian of this size raises MemoryError at once, and the kernel lives
    return [
        Case(args=case(6, 3), label="6 rows, 3 weights"),
        Case(args=case(4, 4), label="4 rows, 4 weights"),
        Case(args=case(1, 2), label="one row"),
        Case(args=(X / 1000, w, v), label="1000000 weights: a Hessian would take 8 TB"),
    ]


hessian_vector = Function(
    **_exercise("7.3"),
    id="hessian-vector",
    title="A Hessian times a vector",
    level="hard",
    points=2,
    prompt="The loss is $L(w) = \\sum_i \\log(1 + e^{x_i \\cdot w})$; its gradient is $X^{\\mathsf T} "
    "\\sigma(Xw)$. Write "
    "`hvp(X, w, v)`: the product $Hv$ with the Hessian, in O(N d) memory.",
    contract="`X`: (N, d), `w`, `v`: (d,), float64, d up to 1000000. Result: shape (d,), exact but for rounding: a "
    "difference of two gradients keeps only half of the digits.",
    hints=(
        "$H v$ is the rate at which the gradient changes when $w$ moves along $v$.",
        "$Xw$ then changes by $Xv$, and the sigmoid by its slope times that.",
        "No matrix but `X` is needed: two products with vectors.",
    ),
    checklist=(11,),
    oracle=_hvp_logistic,
    cases=_hvp_cases,
    tolerance=Tolerance(
        c=64,
        depth=lambda X, w, v: X.shape[0] + min(X.shape[1], 64),
        scale=lambda X, w, v: float((np.abs(X).T @ (0.25 * (np.abs(X) @ np.abs(v)))).max()),
    ),
    mistakes=(
        Mistake(
            name="no-curvature",
            answer=lambda X, w, v: X.T @ (X @ v),
            message="The slope of the sigmoid is missing: this is the Hessian of a squared error.",
        ),
        Mistake(
            name="sigmoid-itself",
            answer=lambda X, w, v: X.T @ (1 / (1 + np.exp(-(X @ w))) * (X @ v)),
            message="You used the sigmoid. Its slope is due, since the gradient is differentiated once more.",
        ),
        Mistake(
            name="gradient",
            answer=lambda X, w, v: X.T @ (1 / (1 + np.exp(-(X @ w)))),
            message="This is the gradient. The direction has not been used.",
        ),
        Mistake(
            name="slope-at-direction",
            answer=lambda X, w, v: X.T @ ((s := 1 / (1 + np.exp(-(X @ v)))) * (1 - s) * (X @ w)),
            message="Point and direction are in each other's place.",
        ),
    ),
    accept=(
        lambda X, w, v: (X.T * (0.25 / np.cosh((X @ w) / 2) ** 2)) @ (X @ v),
        lambda X, w, v: sum(x * (x @ v) / (2 + np.exp(x @ w) + np.exp(-(x @ w))) for x in X),
    ),
)

_N = 4_120_768

hessian_bytes = Number(
    **_exercise("7.3"),
    id="hessian-bytes",
    title="Bytes of a Hessian",
    level="easy",
    prompt=f"A small model has {_N:,} parameters. How many bytes would its full Hessian take in float32? Answer "
    f"with a unit.",
    hints=("One entry for each *pair* of parameters.", "The number of parameters squared, four bytes each."),
    expected=4 * _N**2,
    unit="B",
    default_unit="B",
    mistakes=(
        Mistake(name="gradient", answer=(4 * _N, "B"), message="That is the gradient. The Hessian is a square table."),
        Mistake(name="elements", answer=(_N**2, "B"), message="This is the number of entries, not of bytes."),
        Mistake(name="triangle", answer=(2 * _N**2, "B"), message="Symmetry would save half. The full table is asked."),
    ),
)

linear_flops = Number(
    **_exercise("7.6"),
    id="linear-backward-flops",
    title="FLOPs of a backward pass",
    prompt="A linear layer has B = 4096 tokens, d_in = 1024 and d_out = 4096. How many FLOPs do the two "
    "products of its backward "
    "pass take together? Answer with a unit, such as `1.5 TFLOP`.",
    hints=("Each product takes as many as the forward pass.", "Two FLOPs for each of B · d_in · d_out, twice."),
    expected=2 * 2 * 4096 * 1024 * 4096,
    unit="FLOP",
    default_unit="FLOP",
    checklist=(12,),
    mistakes=(
        Mistake(
            name="one-product", answer=(2 * 4096 * 1024 * 4096, "FLOP"), message="This is one product. There are two."
        ),
        Mistake(
            name="with-forward",
            answer=(6 * 4096 * 1024 * 4096, "FLOP"),
            message="You counted the forward pass as well.",
        ),
    ),
)

explain_check = Written(
    **_exercise("7.10"),
    id="explain-gradient-check",
    title="When a gradient check lies",
    level="medium",
    prompt="A colleague checks the gradient of a big model in bfloat16, with dropout on and $\\varepsilon = "
    "10^{-8}$, and reports that "
    "backward is broken. In three to six sentences: what is wrong with the check, and how should it be done?",
    hints=("There are at least three separate problems. Take dtype, step and randomness in turn.",),
    rubric=(
        "says that in a 16-bit dtype such a step is lost in rounding, and asks for float64",
        "says that the step must suit dtype and method, about 6e-6 for a central difference in float64",
        "says that dropout makes the function a different one at each call, and must be off or seeded",
        "says that the check belongs to small sizes, since it costs two evaluations a parameter",
    ),
    model="In bfloat16 a step of 1e-8 does not even change the weights, so every difference is 0 or noise. With "
    "dropout the two "
    "values belong to two different functions. Check a small copy of the layer in float64, with dropout off, "
    "with central "
    "differences and a step near 6e-6, away from kinks, and with a random cotangent.",
)

EXERCISES: tuple[Exercise, ...] = (
    activation_slopes,
    hessian_bytes,
    hessian_vector,
    vector_jacobian,
    graph_sweep,
    linear_backward,
    linear_flops,
    softmax_backward,
    gelu_backward_shapes,
    gelu_linear,
    gradient_check,
    explain_check,
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
