"""Exercises of chapter 8 on LayerNorm and RMSNorm, forward and backward, and on their traffic."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from labsupport.cost import tensor_bytes
from labsupport.grading import Case, Exercise, Function, Mistake, Number, Tolerance
from labsupport.ops import normalization as norms

Array = np.ndarray


def _norm_scale(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> float:
    """Rounding of x, carried through the division by the smallest deviation of a row."""
    r = 1 / np.sqrt(np.var(np.asarray(x, np.float64), axis=-1) + eps)
    return float(np.abs(gamma).max() * max(1.0, np.abs(x).max() * r.max()) + np.abs(beta).max())


def _layer_norm_cases(rng: np.random.Generator) -> list[Case]:
    def draw(shape: tuple[int, ...], dtype: Any = np.float64, mean: float = 1.0) -> tuple[Array, Array, Array]:
        x, gamma, beta = 2 * rng.normal(size=shape) + mean, 1 + rng.normal(size=shape[-1]), rng.normal(size=shape[-1])
        return x.astype(dtype), gamma.astype(dtype), beta.astype(dtype)

    _, gamma, beta = draw((2, 4))
    flat = np.array([[7.0, 7.0, 7.0, 7.0], [1.0, 2.0, 3.0, 4.0]])
    return [
        Case(args=draw((3, 5)), label="float64 (3, 5)"),
        Case(args=draw((4, 4)), label="float64 (4, 4), square"),
        Case(args=draw((2, 3, 8), np.float32), label="float32 (2, 3, 8)"),
        Case(args=draw((6,)), label="float64 (6,), one axis"),
        Case(args=(*draw((3, 4)), 0.5), label="float64 (3, 4), eps 0.5"),
        Case(args=(flat, gamma, beta), label="a row of equal numbers"),
        Case(args=draw((2, 8), np.float32, mean=10_000.0), label="float32 (2, 8), mean 10,000"),
    ]


def _ln(mean: Any = None, spread: Any = None, affine: Any = None) -> Any:
    """A LayerNorm with one part replaced."""

    def norm(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> Array:
        with np.errstate(all="ignore"):
            centred = x - (mean(x) if mean else x.mean(axis=-1, keepdims=True))
            below = spread(x, eps) if spread else np.sqrt(x.var(axis=-1, keepdims=True) + x.dtype.type(eps))
            normalised = (centred / below).astype(x.dtype)
            return affine(normalised, gamma, beta) if affine else normalised * gamma + beta

    return norm


LAYER_NORM = Function(
    id="layer-norm",
    chapter=8,
    section="8.7",
    title="LayerNorm",
    prompt="Write `layer_norm(x, gamma, beta, eps=1e-5)` over the **last** axis, for any leading axes.",
    contract=(
        "`x`: float32 or float64, H ≥ 2 entries in the last axis; `gamma`, `beta`: (H,), same dtype. Result: shape and "
        "dtype of `x`. A row of equal numbers gives `beta`; a large mean must not spoil the variance."
    ),
    hints=(
        "Subtract the mean first; the variance is the mean of the squares of what is left.",
        "The variance divides by H. `eps` is added to the variance, under the root.",
        "`keepdims=True` keeps one statistic for each row, so that it lines up with the row.",
    ),
    points=2,
    level="medium",
    oracle=norms.layer_norm,
    cases=_layer_norm_cases,
    tolerance=Tolerance(c=4, depth=lambda x, *rest: x.shape[-1], scale=_norm_scale),
    dtype="exact",
    mistakes=(
        Mistake(
            name="divided-by-h-minus-1",
            answer=_ln(spread=lambda x, eps: np.sqrt(x.var(axis=-1, ddof=1, keepdims=True) + x.dtype.type(eps))),
            message="Your variance divides by H - 1 (as torch.var does by default). LayerNorm divides by H.",
        ),
        Mistake(
            name="eps-outside",
            answer=_ln(spread=lambda x, eps: x.std(axis=-1, keepdims=True) + x.dtype.type(eps)),
            message="You added eps to the standard deviation. It belongs under the root, to the variance.",
        ),
        Mistake(
            name="no-eps",
            answer=_ln(spread=lambda x, eps: x.std(axis=-1, keepdims=True)),
            message="Without eps a row of equal numbers is 0/0.",
        ),
        Mistake(
            name="no-root",
            answer=_ln(spread=lambda x, eps: x.var(axis=-1, keepdims=True) + x.dtype.type(eps)),
            message="You divided by the variance. Its root has the unit of x.",
        ),
        Mistake(
            name="axis-0",
            answer=_ln(
                mean=lambda x: x.mean(axis=0, keepdims=True),
                spread=lambda x, eps: np.sqrt(x.var(axis=0, keepdims=True) + x.dtype.type(eps)),
            ),
            message="Your statistics run over axis 0, the batch. LayerNorm looks at the last axis of one token only.",
        ),
        Mistake(
            name="whole-array",
            answer=_ln(mean=lambda x: x.mean(), spread=lambda x, eps: np.sqrt(x.var() + x.dtype.type(eps))),
            message="You used one mean and one variance for the whole array. Each row has its own.",
        ),
        Mistake(
            name="mean-not-subtracted",
            answer=_ln(
                mean=lambda x: x.dtype.type(0),
                spread=lambda x, eps: np.sqrt((x * x).mean(axis=-1, keepdims=True) + x.dtype.type(eps)),
            ),
            message="This is RMSNorm: the mean is not taken out.",
            section="8.8",
        ),
        Mistake(
            name="short-variance",
            answer=_ln(
                spread=lambda x, eps: np.sqrt(
                    (x * x).mean(axis=-1, keepdims=True) - x.mean(axis=-1, keepdims=True) ** 2 + x.dtype.type(eps)
                )
            ),
            message="You computed the variance as mean of squares minus square of mean. With a large mean, two large "
            "numbers cancel and little is left, or less than nothing.",
        ),
        Mistake(
            name="no-gamma",
            answer=_ln(affine=lambda n, gamma, beta: n + beta),
            message="The scale gamma is not applied.",
        ),
        Mistake(
            name="no-beta",
            answer=_ln(affine=lambda n, gamma, beta: n * gamma),
            message="The shift beta is not added.",
        ),
        Mistake(
            name="beta-scaled",
            answer=_ln(affine=lambda n, gamma, beta: (n + beta) * gamma),
            message="You scaled beta with gamma. The shift comes after the scale.",
        ),
    ),
    accept=(
        _ln(),
        lambda x, gamma, beta, eps=1e-5: np.apply_along_axis(
            lambda row: (row - row.mean()) / math.sqrt(row.var() + eps) * gamma + beta, -1, x
        ).astype(x.dtype),
    ),
)


def _passes(launches: list[norms.Kernel], size: int) -> int:
    """How often a tensor of the size of x is read or written."""
    return sum(kernel.reads // size + kernel.writes // size for kernel in launches)


_ROWS, _WIDTH = np.ones((64, 128)), np.ones(128)
_NAIVE = _passes(norms.rms_norm_naive(_ROWS, _WIDTH)[1], _ROWS.size)
_FUSED = _passes(norms.rms_norm_fused(_ROWS, _WIDTH)[1], _ROWS.size)
_TENSOR = int(tensor_bytes((8, 2048, 4096), "bfloat16"))

NORM_TRAFFIC = Number(
    id="norm-traffic",
    chapter=8,
    section="8.7",
    title="What fusing a norm saves",
    prompt=(
        "RMSNorm of x (8, 2048, 4096) in bfloat16 runs as five kernels: square, mean, inverse root, multiply by it, "
        "multiply by gamma. How many bytes less does one fused kernel move? Answer with a unit."
    ),
    contract="Count tensors of the size of x only, read or written; gamma and one number a row do not count.",
    hints=(
        "Go through the kernels: which read a whole tensor, which write one?",
        "A fused kernel reads x once and writes y once.",
        "Multiply the difference in passes by the bytes of one tensor.",
    ),
    level="medium",
    expected=float((_NAIVE - _FUSED) * _TENSOR),
    unit="B",
    mistakes=(
        Mistake(
            name="naive-total",
            answer=(_NAIVE * _TENSOR, "B"),
            message="This is all that the five kernels move. What remains with one kernel must be taken off.",
        ),
        Mistake(
            name="writes-forgotten",
            answer=(3 * _TENSOR, "B"),
            message="You counted only reads (or only writes). Every intermediate is written and read back.",
        ),
        Mistake(
            name="layer-norm",
            answer=(10 * _TENSOR, "B"),
            message="This is the saving for LayerNorm, which has more steps.",
        ),
        Mistake(
            name="elements",
            answer=((_NAIVE - _FUSED) * _TENSOR / 2, "B"),
            message="This is the number of elements. Each has two bytes.",
        ),
        Mistake(
            name="fused-total",
            answer=(_FUSED * _TENSOR, "B"),
            message="This is what the fused kernel moves. The question is what it saves.",
        ),
    ),
)


def _rms_backward_cases(rng: np.random.Generator) -> list[Case]:
    def draw(shape: tuple[int, ...], dtype: Any = np.float64) -> tuple[Array, Array, Array]:
        x, gamma, dy = rng.normal(size=shape), 1 + rng.normal(size=shape[-1]), rng.normal(size=shape)
        return x.astype(dtype), gamma.astype(dtype), dy.astype(dtype)

    return [
        Case(args=(*draw((3, 5)), 1e-5), label="float64 (3, 5)"),
        Case(args=(*draw((4, 4)), 1e-5), label="float64 (4, 4), square"),
        Case(args=(*draw((2, 3, 4)), 1e-5), label="float64 (2, 3, 4)"),
        Case(args=(*draw((2, 6), np.float32), 1e-5), label="float32 (2, 6)"),
        Case(args=(*draw((1, 5)), 0.5), label="float64 (1, 5), eps 0.5"),
    ]


def _rms(dx: Callable[..., Array], dgamma: Callable[..., Array] | None = None) -> Any:
    """A backward pass from rules that get (x, gamma, dy, x̂, r)."""

    def backward(x: Array, gamma: Array, dy: Array, eps: float) -> tuple[Array, Array]:
        r = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + x.dtype.type(eps))
        n = x * r
        leading = tuple(range(x.ndim - 1))
        return dx(x, gamma, dy, n, r), dgamma(x, gamma, dy, n, r) if dgamma else (dy * n).sum(axis=leading)

    return backward


def _mean(a: Array) -> Array:
    return np.asarray(a.mean(axis=-1, keepdims=True))


def _rms_dx(x: Array, gamma: Array, dy: Array, n: Array, r: Array) -> Array:
    return np.asarray(r * (dy * gamma - n * _mean(dy * gamma * n)))


RMS_NORM_BACKWARD = Function(
    id="rms-norm-backward",
    chapter=8,
    section="8.8",
    title="The backward pass of RMSNorm",
    prompt=(
        "Write `backward(x, gamma, dy, eps)`: the gradients of $y = \\gamma \\odot x / \\sqrt{\\mathrm{mean}(x^2) + "
        "\\varepsilon}$ with respect to `x` and `gamma`. Derive them before you write."
    ),
    contract=(
        "`x`, `dy`: (..., H), any number of leading axes, at least one; `gamma`: (H,); one dtype, float32 or float64. "
        "Result: the tuple `(dx, dgamma)`, shapes (..., H) and (H,), same dtype."
    ),
    hints=(
        "Let $r$ be one over the root and $\\hat x = r x$. First $g = dy \\odot \\gamma$, the gradient of $\\hat x$.",
        "$x_j$ acts on every $\\hat x_i$ of its row through $r$: $\\partial r / \\partial x_j = -r^3 x_j / H$.",
        "What is left is a projection: $g$ minus $\\hat x$ times a mean over the row, all times $r$.",
    ),
    checklist=(11,),
    points=3,
    level="hard",
    oracle=norms.rms_norm_backward,
    cases=_rms_backward_cases,
    tolerance=Tolerance(
        c=8,
        depth=lambda x, *rest: x.size,
        scale=lambda x, gamma, dy, eps: float(
            np.abs(dy).max()
            * (1 + np.abs(gamma).max())
            * max(1.0, (1 / np.sqrt((np.asarray(x, np.float64) ** 2).mean(-1) + eps)).max()) ** 2
        ),
    ),
    dtype="exact",
    mistakes=(
        Mistake(
            name="root-held-fixed",
            answer=_rms(lambda x, gamma, dy, n, r: dy * gamma * r),
            message="You treated the root mean square as a constant. It depends on every entry of the row.",
        ),
        Mistake(
            name="sum-for-mean",
            answer=_rms(lambda x, gamma, dy, n, r: r * (dy * gamma - n * (dy * gamma * n).sum(-1, keepdims=True))),
            message="In the term that is subtracted you summed over the row, where the mean is due: the derivative of "
            "a mean carries 1/H.",
        ),
        Mistake(
            name="gamma-too-late",
            answer=_rms(lambda x, gamma, dy, n, r: r * (dy - n * _mean(dy * n)) * gamma),
            message="You multiplied by gamma at the end. It belongs to the gradient before the mean is taken.",
        ),
        Mistake(
            name="no-gamma",
            answer=_rms(lambda x, gamma, dy, n, r: r * (dy - n * _mean(dy * n))),
            message="The scale is missing from dx: the gradient of the normalised row is dy times gamma.",
        ),
        Mistake(
            name="layer-norm",
            answer=_rms(lambda x, gamma, dy, n, r: _rms_dx(x, gamma, dy, n, r) - r * _mean(dy * gamma)),
            message="You also took out the mean of the gradient. That term belongs to LayerNorm.",
            section="8.7",
        ),
        Mistake(
            name="no-outer-r",
            answer=_rms(lambda x, gamma, dy, n, r: dy * gamma - n * _mean(dy * gamma * n)),
            message="The factor r in front is missing.",
        ),
        Mistake(
            name="dgamma-of-x",
            answer=_rms(_rms_dx, lambda x, gamma, dy, n, r: (dy * x).sum(axis=tuple(range(x.ndim - 1)))),
            message="For dgamma you multiplied by x. gamma multiplies the normalised row.",
        ),
        Mistake(
            name="dgamma-mean",
            answer=_rms(_rms_dx, lambda x, gamma, dy, n, r: (dy * n).mean(axis=tuple(range(x.ndim - 1)))),
            message="You averaged dgamma over the tokens. Every token uses the same gamma, so its gradients add up.",
        ),
        Mistake(
            name="dgamma-one-axis",
            answer=_rms(_rms_dx, lambda x, gamma, dy, n, r: (dy * n).sum(axis=0)),
            message="Your dgamma is summed over the first axis only. All leading axes are tokens.",
        ),
    ),
    accept=(_rms(_rms_dx), _rms(lambda x, gamma, dy, n, r: r * dy * gamma - r**3 * x * _mean(dy * gamma * x))),
)

EXERCISES: tuple[Exercise, ...] = (
    LAYER_NORM,
    NORM_TRAFFIC,
    RMS_NORM_BACKWARD,
)
