"""LayerNorm and RMSNorm, forward and backward, over the last axis.

The backward rules are the derived ones of the book, so each is a few lines of reductions and
elementwise work. Statistics are never taken over the batch.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["layer_norm", "layer_norm_backward", "rms_norm", "rms_norm_backward"]

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
