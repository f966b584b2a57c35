"""LayerNorm and RMSNorm, forward and backward, over the last axis, and the traffic of a forward pass.

The backward rules are the derived ones of the book, so each is a few lines of reductions and
elementwise work. Statistics are never taken over the batch. The traffic is counted from arrays that
the kernels really read and write, never from a formula.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = [
    "Kernel",
    "layer_norm",
    "layer_norm_backward",
    "layer_norm_fused",
    "layer_norm_naive",
    "rms_norm",
    "rms_norm_backward",
    "rms_norm_fused",
    "rms_norm_naive",
]

Array = npt.NDArray[Any]


def layer_norm(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> Array:
    """(x − μ) / √(σ² + ε) · γ + β, with μ and the population variance σ² over the last axis.

    Args:
        x: (..., H), H ≥ 1.
        gamma: (H,), the scale γ.
        beta: (H,), the shift β.
        eps: added to the variance, positive.

    Returns:
        (..., H), in the dtype of ``x``. A row of equal numbers gives β.

    Raises:
        ValueError: H = 0, γ or β of another size, ``eps`` not positive.

    Source: Ba, Kiros and Hinton (2016), "Layer Normalization", equation 3.
    """
    x, gamma, beta = _checked(x, eps, gamma=gamma, beta=beta)
    normalised, _ = _standardised(x, eps)
    return normalised * gamma + beta


def layer_norm_backward(x: Array, gamma: Array, dy: Array, eps: float = 1e-5) -> tuple[Array, Array, Array]:
    """Gradients of ``layer_norm``: dx = r·(g − mean(g) − x̂·mean(g ⊙ x̂)), g = dy ⊙ γ, r = 1/√(σ² + ε).

    Args:
        x: (..., H), the forward input.
        gamma: (H,).
        dy: (..., H), ∂L/∂y.
        eps: as in the forward pass.

    Returns:
        dx (..., H), dγ (H,) and dβ (H,), the last two summed over all leading axes.

    Raises:
        ValueError: as ``layer_norm``, or ``dy`` of another shape than ``x``.
    """
    x, gamma = _checked(x, eps, gamma=gamma)
    dy = _same_shape(x, dy)
    normalised, r = _standardised(x, eps)
    g = dy * gamma
    mean_g = g.mean(axis=-1, keepdims=True)
    mean_gx = (g * normalised).mean(axis=-1, keepdims=True)
    batch = tuple(range(x.ndim - 1))
    return r * (g - mean_g - normalised * mean_gx), (dy * normalised).sum(axis=batch), dy.sum(axis=batch)


def rms_norm(x: Array, gamma: Array, eps: float = 1e-5) -> Array:
    """x / √(mean(x²) + ε) · γ over the last axis: no mean is subtracted, no shift is added.

    Args:
        x: (..., H), H ≥ 1.
        gamma: (H,).
        eps: added to the mean square, positive.

    Returns:
        (..., H), in the dtype of ``x``. A row of zeros gives zeros.

    Raises:
        ValueError: H = 0, γ of another size, ``eps`` not positive.

    Source: Zhang and Sennrich (2019), "Root Mean Square Layer Normalization", equation 4.
    """
    x, gamma = _checked(x, eps, gamma=gamma)
    return x * _inverse_rms(x, eps) * gamma


def rms_norm_backward(x: Array, gamma: Array, dy: Array, eps: float = 1e-5) -> tuple[Array, Array]:
    """Gradients of ``rms_norm``: dx = r·(g − x̂·mean(g ⊙ x̂)), g = dy ⊙ γ, x̂ = r·x, r = 1/√(mean(x²) + ε).

    Args:
        x: (..., H), the forward input.
        gamma: (H,).
        dy: (..., H), ∂L/∂y.
        eps: as in the forward pass.

    Returns:
        dx (..., H) and dγ (H,), summed over all leading axes.

    Raises:
        ValueError: as ``rms_norm``, or ``dy`` of another shape than ``x``.
    """
    x, gamma = _checked(x, eps, gamma=gamma)
    dy = _same_shape(x, dy)
    r = _inverse_rms(x, eps)
    normalised, g = x * r, dy * gamma
    dx = r * (g - normalised * (g * normalised).mean(axis=-1, keepdims=True))
    return dx, (dy * normalised).sum(axis=tuple(range(x.ndim - 1)))


class Kernel(NamedTuple):
    """One launch of a kernel: its name and the elements that it read from and wrote to main memory."""

    name: str
    reads: int
    writes: int


def layer_norm_naive(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> tuple[Array, list[Kernel]]:
    """``layer_norm`` as one kernel for each line of its formula; returns the result and the launches.

    Every intermediate is a whole array: it is written by one kernel and read back by the next, as in a program
    of array operations that nothing fuses. Arguments and errors are those of ``layer_norm``.
    """
    x, gamma, beta = _checked(x, eps, gamma=gamma, beta=beta)
    launches: list[Kernel] = []
    mean = _launch(launches, "mean", lambda x: x.mean(axis=-1, keepdims=True), x)
    centred = _launch(launches, "subtract", np.subtract, x, mean)
    squared = _launch(launches, "square", np.square, centred)
    variance = _launch(launches, "mean of squares", lambda s: s.mean(axis=-1, keepdims=True), squared)
    r = _launch(launches, "inverse root", lambda v: 1 / np.sqrt(v + v.dtype.type(eps)), variance)
    normalised = _launch(launches, "multiply", np.multiply, centred, r)
    scaled = _launch(launches, "times gamma", np.multiply, normalised, gamma)
    return _launch(launches, "plus beta", np.add, scaled, beta), launches


def rms_norm_naive(x: Array, gamma: Array, eps: float = 1e-5) -> tuple[Array, list[Kernel]]:
    """``rms_norm`` as one kernel for each line of its formula; returns the result and the launches."""
    x, gamma = _checked(x, eps, gamma=gamma)
    launches: list[Kernel] = []
    squared = _launch(launches, "square", np.square, x)
    mean = _launch(launches, "mean of squares", lambda s: s.mean(axis=-1, keepdims=True), squared)
    r = _launch(launches, "inverse root", lambda v: 1 / np.sqrt(v + v.dtype.type(eps)), mean)
    normalised = _launch(launches, "multiply", np.multiply, x, r)
    return _launch(launches, "times gamma", np.multiply, normalised, gamma), launches


def layer_norm_fused(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> tuple[Array, list[Kernel]]:
    """``layer_norm`` in one kernel; returns the result and the launch.

    A row is loaded once, stays on the chip through both reductions, and is stored once; γ and β are loaded once
    and kept. That is the least traffic there is, and holds while a row fits on the chip.
    """
    return _row_by_row(layer_norm, x, eps, gamma=gamma, beta=beta)


def rms_norm_fused(x: Array, gamma: Array, eps: float = 1e-5) -> tuple[Array, list[Kernel]]:
    """``rms_norm`` in one kernel, as ``layer_norm_fused``."""
    return _row_by_row(rms_norm, x, eps, gamma=gamma)


def _launch(launches: list[Kernel], name: str, kernel: Callable[..., Array], *inputs: Array) -> Array:
    """Run one array operation and note the elements of its inputs and of its result."""
    result = np.asarray(kernel(*inputs))
    launches.append(Kernel(name, sum(array.size for array in inputs), result.size))
    return result


def _row_by_row(norm: Callable[..., Array], x: Array, eps: float, **parameters: Array) -> tuple[Array, list[Kernel]]:
    x, *kept = _checked(x, eps, **parameters)
    reads, writes = sum(array.size for array in kept), 0
    out = np.empty_like(x)
    for place in np.ndindex(x.shape[:-1]):
        row = x[place]
        reads += row.size
        out[place] = norm(row, *kept, eps=eps)
        writes += row.size
    return out, [Kernel("fused", reads, writes)]


def _standardised(x: Array, eps: float) -> tuple[Array, Array]:
    """x̂ and r = 1/√(σ² + ε); the variance is two-pass, since E[x²] − E[x]² cancels."""
    centred = x - x.mean(axis=-1, keepdims=True)
    r = 1 / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + x.dtype.type(eps))
    return centred * r, r


def _inverse_rms(x: Array, eps: float) -> Array:
    return 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + x.dtype.type(eps))


def _checked(x: Array, eps: float, **parameters: Array) -> tuple[Array, ...]:
    x = np.asarray(x)
    x = x if x.dtype.kind == "f" else x.astype(np.float64)
    if x.ndim == 0 or x.shape[-1] == 0:
        raise ValueError(f"x has shape {x.shape}; normalisation needs a last axis with at least one element")
    if not eps > 0:
        raise ValueError(f"eps is {eps}; it must be positive, it keeps the square root away from 0")
    arrays = [x]
    for name, value in parameters.items():
        array = np.asarray(value)
        if array.shape != x.shape[-1:]:
            raise ValueError(f"{name} has shape {array.shape} but the last axis of x has size {x.shape[-1]}")
        arrays.append(array.astype(x.dtype, copy=False))
    return tuple(arrays)


def _same_shape(x: Array, dy: Array) -> Array:
    dy = np.asarray(dy)
    if dy.shape != x.shape:
        raise ValueError(f"dy has shape {dy.shape} but x has shape {x.shape}; they must be the same")
    return dy.astype(x.dtype, copy=False)
