"""Exercises of chapter 8 on depth: how gradients vanish, the residual path, and initialisation."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from labsupport.grading import Case, Exercise, Function, Mistake, Number, Tolerance, Written
from labsupport.ops import optim

Array = np.ndarray


def _first(test: Callable[[int], bool]) -> int:
    """The least n from 1 on that passes."""
    return next(n for n in range(1, 100_000) if test(n))


LAYERS_UNTIL_ZERO = Number(
    id="layers-until-zero",
    chapter=8,
    section="8.4",
    title="When the gradient is gone",
    prompt=(
        "A gradient of 1 passes layers that each scale it by 0.9. After how many layers is it 0 when the exact value "
        "$0.9^n$ is stored in float16?"
    ),
    contract="The least whole number n for which `np.float16(0.9**n)` is 0. Write a loop, or take logarithms.",
    hints=(
        "The smallest positive float16 is $2^{-24}$. What does rounding to nearest do with a number below it?",
        "Numbers down to half of the smallest one round up to it. Look for the first at or below that half.",
    ),
    checklist=(15,),
    level="medium",
    expected=_first(lambda n: np.float16(0.9**n) == 0),
    exact=True,
    mistakes=(
        Mistake(
            name="below-the-smallest",
            answer=_first(lambda n: 0.9**n < 2.0**-24),
            message="Here the value falls below the smallest float16. Rounding to nearest still rounds it up.",
        ),
        Mistake(
            name="normal-numbers",
            answer=_first(lambda n: 0.9**n < float(np.finfo(np.float16).tiny)),
            message="Here the normal numbers end. The subnormal ones below reach further, with fewer digits.",
        ),
        Mistake(
            name="float32",
            answer=_first(lambda n: np.float32(0.9**n) == 0),
            message="This is right for float32, whose exponents reach much further down.",
        ),
        Mistake(
            name="one-early",
            answer=_first(lambda n: np.float16(0.9**n) == 0) - 1,
            message="One layer too few: print the float16 of your n and of the next.",
        ),
    ),
)


def _residual_backward(x: Array, W: Array, dy: Array) -> tuple[Array, Array]:
    """Gradients of y = x + tanh(x W)."""
    da = dy * (1 - np.tanh(x @ W) ** 2)
    return dy + da @ W.T, x.T @ da


def _residual_cases(rng: np.random.Generator) -> list[Case]:
    def draw(rows: int, width: int, dtype: Any = np.float64, size: float = 0.7) -> tuple[Array, Array, Array]:
        shapes = ((rows, width), (width, width), (rows, width))
        x, W, dy = (rng.normal(0, s, shape).astype(dtype) for shape, s in zip(shapes, (1, size, 1), strict=True))
        return x, W, dy

    return [
        Case(args=draw(3, 4), label="float64, x (3, 4)"),
        Case(args=draw(4, 4), label="float64, x (4, 4), square"),
        Case(args=draw(2, 3, np.float32), label="float32, x (2, 3)"),
        Case(args=draw(1, 5), label="float64, one row"),
        Case(args=draw(3, 4, size=4.0), label="float64, large weights, saturated"),
    ]


def _residual(dx: Callable[..., Array], dW: Callable[..., Array]) -> Any:
    """A backward pass from rules that get (x, W, dy, slope)."""

    def backward(x: Array, W: Array, dy: Array) -> tuple[Array, Array]:
        slope = 1 - np.tanh(x @ W) ** 2
        return dx(x, W, dy, slope), dW(x, W, dy, slope)

    return backward


RESIDUAL_BACKWARD = Function(
    id="residual-backward",
    chapter=8,
    section="8.5",
    title="Backward through a residual block",
    prompt=(
        "The block is $y = x + \\tanh(xW)$. Write `backward(x, W, dy)`: the gradients with respect to `x` and `W` for "
        "the incoming gradient `dy`."
    ),
    contract=(
        "`x`, `dy`: (B, n), `W`: (n, n), float32 or float64. Result: the tuple `(dx, dW)`, shapes of `x` and `W`, "
        "same dtype."
    ),
    hints=(
        "Name the parts: $a = xW$, $t = \\tanh(a)$, $y = x + t$. Start at $y$: where does `dy` go?",
        "Both terms of the sum receive `dy`. The branch multiplies it by the slope $1 - t^2$.",
        "With `da = dy * (1 - t**2)`: `dW = x.T @ da`, and `dx` is the sum of two paths.",
    ),
    checklist=(11, 14),
    points=2,
    level="medium",
    oracle=_residual_backward,
    cases=_residual_cases,
    tolerance=Tolerance(
        c=8,
        depth=lambda x, W, dy: sum(x.shape) + 4,
        scale=lambda x, W, dy: (1 + np.abs(x).max()) * (1 + np.abs(W).max()) * (1 + np.abs(dy).max()),
    ),
    dtype="exact",
    mistakes=(
        Mistake(
            name="no-identity",
            answer=_residual(lambda x, W, dy, s: (dy * s) @ W.T, lambda x, W, dy, s: x.T @ (dy * s)),
            message="The shortcut is missing from dx: x reaches y on two paths, and gradients of both add up.",
        ),
        Mistake(
            name="identity-only",
            answer=_residual(lambda x, W, dy, s: dy.copy(), lambda x, W, dy, s: x.T @ (dy * s)),
            message="Your dx has the shortcut alone. The branch sends a gradient back to x as well.",
        ),
        Mistake(
            name="no-slope",
            answer=_residual(lambda x, W, dy, s: dy + dy @ W.T, lambda x, W, dy, s: x.T @ dy),
            message="The slope of tanh is missing: the gradient passes the activation unchanged.",
        ),
        Mistake(
            name="not-transposed",
            answer=_residual(lambda x, W, dy, s: dy + (dy * s) @ W, lambda x, W, dy, s: x.T @ (dy * s)),
            message="In dx the weight is not transposed. Backward, the product runs from outputs to inputs.",
        ),
        Mistake(
            name="slope-on-both-paths",
            answer=_residual(lambda x, W, dy, s: dy * s + (dy * s) @ W.T, lambda x, W, dy, s: x.T @ (dy * s)),
            message="You multiplied the shortcut by the slope of tanh. Nothing stands on that path.",
        ),
        Mistake(
            name="slope-of-a-square",
            answer=_residual(
                lambda x, W, dy, s: dy + (dy * (1 - np.tanh(x @ W))) @ W.T,
                lambda x, W, dy, s: x.T @ (dy * (1 - np.tanh(x @ W))),
            ),
            message="The derivative of tanh is one minus its square. Your square is missing.",
        ),
    ),
    accept=(
        lambda x, W, dy: (dy @ np.eye(x.shape[1], dtype=x.dtype) + (dy / np.cosh(x @ W) ** 2) @ W.T,
                          np.einsum("bi,bj->ij", x, dy / np.cosh(x @ W) ** 2)),
    ),
)  # fmt: skip

EXPLAIN_RESIDUAL = Written(
    id="explain-residual",
    chapter=8,
    section="8.5",
    title="Why a residual connection helps the gradient",
    prompt=(
        "In three to six sentences: why does $y = x + F(x)$ help a gradient through a hundred layers, and what does "
        "it not promise?"
    ),
    hints=(
        "Write the Jacobian of one block, then multiply out the product of several.",
        "What happens to the size of the signal when each block adds a term of the same size?",
    ),
    checklist=(14,),
    level="medium",
    rubric=(
        "States the Jacobian I + ∂F/∂x of a block.",
        "Says that the product over blocks contains a term (path) that passes through no weight, so the gradient does "
        "not vanish with the product of the branches.",
        "Says that it is no guarantee: the product may still grow, or shrink where I and ∂F/∂x cancel.",
        "Names a remedy for the growth: a scaled branch, or a normalised input of the branch.",
    ),
    model=(
        "The Jacobian of a block is I + ∂F/∂x, so the gradient arrives at x once unchanged, once through the branch. "
        "Multiplied out over all blocks, the product holds a term I that meets no weight: even if every branch "
        "shrinks the gradient, this path brings it to the first layer. It promises no bound. If each block adds a term "
        "of the size of its input, signal and gradient grow exponentially with depth, and where ∂F/∂x is near -I a "
        "block still loses the gradient. So the branch is scaled down at the start, or reads a normalised input."
    ),
)


# ---------------------------------------------------------------- initialisation


def _init_std(shape: tuple[int, int], activation: str) -> float:
    d_in, d_out = shape
    return optim.kaiming_std(d_in) if activation == "relu" else optim.xavier_std(d_in, d_out)


INIT_STD = Function(
    id="init-std",
    chapter=8,
    section="8.6",
    title="An initial standard deviation",
    prompt=(
        "Write `init_std(shape, activation)`: the standard deviation of a weight `W` of that shape, by Xavier's rule "
        "for `'tanh'` and by Kaiming's for `'relu'`."
    ),
    contract=(
        "`shape`: the tuple (d_in, d_out), as the book stores weights; `activation`: `'tanh'` or `'relu'`. Result: "
        "a float."
    ),
    hints=(
        "Both rules state a **variance**.",
        "Xavier looks at both directions, Kaiming at the inputs only. Which axis holds the inputs?",
    ),
    oracle=_init_std,
    cases=lambda rng: [
        Case(args=((512, 512), "tanh"), label="(512, 512), tanh"),
        Case(args=((512, 512), "relu"), label="(512, 512), relu"),
        Case(args=((1024, 4096), "tanh"), label="(1024, 4096), tanh"),
        Case(args=((1024, 4096), "relu"), label="(1024, 4096), relu"),
        Case(args=((int(rng.integers(2, 900)), 1), "relu"), label="one output, relu"),
        Case(args=((3, int(rng.integers(2, 900))), "tanh"), label="three inputs, tanh"),
    ],
    tolerance=Tolerance(c=8),
    mistakes=(
        Mistake(
            name="variance",
            answer=lambda shape, activation: _init_std(shape, activation) ** 2,
            message="This is the variance. The standard deviation is its root.",
        ),
        Mistake(
            name="axes-swapped",
            answer=lambda shape, activation: _init_std(shape[::-1], activation),
            message="You took the fan-in from the last axis, where torch keeps it. The book's weights are "
            "(d_in, d_out).",
        ),
        Mistake(
            name="relu-without-gain",
            answer=lambda shape, activation: shape[0] ** -0.5 if activation == "relu" else _init_std(shape, activation),
            message="For ReLU you kept the variance of the inputs and forgot the half that ReLU sets to 0.",
        ),
        Mistake(
            name="xavier-for-all",
            answer=lambda shape, activation: optim.xavier_std(*shape),
            message="You used Xavier's rule for both. For ReLU, Kaiming's looks at the inputs only.",
        ),
        Mistake(
            name="rules-swapped",
            answer=lambda shape, activation: (
                optim.xavier_std(*shape) if activation == "relu" else optim.kaiming_std(shape[0])
            ),
            message="The two rules are in each other's place: Xavier's goes with tanh, Kaiming's with ReLU.",
        ),
        Mistake(
            name="kaiming-for-all",
            answer=lambda shape, activation: optim.kaiming_std(shape[0]),
            message="You used Kaiming's rule for both. Tanh keeps both signs, so Xavier's is due.",
        ),
        Mistake(
            name="uniform-bound",
            answer=lambda shape, activation: math.sqrt(3) * _init_std(shape, activation),
            message="This is the bound of a uniform distribution with the right variance. The standard deviation is "
            "smaller by the root of 3.",
        ),
    ),
    accept=(lambda shape, activation: np.sqrt(2 / (shape[0] if activation == "relu" else shape[0] + shape[1])),),
)

EXERCISES: tuple[Exercise, ...] = (
    LAYERS_UNTIL_ZERO,
    RESIDUAL_BACKWARD,
    EXPLAIN_RESIDUAL,
    INIT_STD,
)
