"""Exercises of chapter 7 on the gradients of layers: linear, softmax, GELU, and their FLOPs."""

from __future__ import annotations

from typing import Any

import numpy as np

from labsupport.grading import Case, Exercise, Function, Mistake, Number, Several, Shape, Tolerance
from labsupport.grading.shorthand import in_notebook
from labsupport.ops import autodiff as ops
from labsupport.ops.softmax import softmax

Array = np.ndarray


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
    **in_notebook("7.6"),
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
    **in_notebook("7.7"),
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
    **in_notebook("7.9"),
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
    **in_notebook("7.9"),
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

linear_flops = Number(
    **in_notebook("7.6"),
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
        Mistake(
            name="one-token",
            answer=(2 * 2 * 1024 * 4096, "FLOP"),
            message="That is the cost for a single token. Both products run over all tokens of the batch.",
        ),
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    linear_backward,
    linear_flops,
    softmax_backward,
    gelu_backward_shapes,
    gelu_linear,
)
