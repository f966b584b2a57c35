"""Signals and gradients through a deep stack of random layers: what initialisation and residuals do to them.

One forward sweep and its exact backward sweep by the rules of the book, for a linear, tanh or ReLU layer with
or without a residual connection and normalisation. Weights are never trained here.
"""

import math
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from labsupport.ops.normalization import rms_norm, rms_norm_backward

__all__ = ["Profile", "stack_profile"]

Array = npt.NDArray[Any]
Activation = Literal["linear", "tanh", "relu"]


class Profile(NamedTuple):
    """Root mean squares by depth, each of shape (depth + 1,): entry 0 belongs to the input.

    ``signals[l]`` is the size of x_l, ``gradients[l]`` that of ∂L/∂x_l for a random ∂L/∂x_depth of size 1, and
    ``outputs`` keeps the arrays x_l themselves, each (batch, width).
    """

    signals: Array
    gradients: Array
    outputs: tuple[Array, ...]


def stack_profile(
    depth: int,
    width: int,
    gain: float,
    rng: np.random.Generator,
    activation: Activation = "linear",
    residual: bool = False,
    branch: float = 1.0,
    prenorm: bool = False,
    batch: int = 32,
) -> Profile:
    """Send a random batch through ``depth`` random layers and a random cotangent back.

    x_{l+1} = branch · F(x_l), plus x_l with ``residual``; F(x) = f(n(x) W), n is RMSNorm with ``prenorm`` and
    nothing without; W is (width, width) with standard deviation gain/√width.

    Args:
        depth, width, batch: numbers of layers, of units in each, and of rows.
        gain: the standard deviation of a weight in units of 1/√width; 0 or more.
        rng: draws input, weights and cotangent, in this order.
        activation: f, one of "linear", "tanh" and "relu".
        branch: factor of F; 1/√depth keeps a residual stack in bounds.

    Raises:
        ValueError: a size below 1, a negative gain, an unknown activation.

    Source: Glorot and Bengio (2010), section 4.2; He et al. (2016), "Identity Mappings", equation 5.
    """
    if min(depth, width, batch) < 1 or gain < 0:
        raise ValueError(f"need depth, width, batch >= 1 and gain >= 0, got {depth}, {width}, {batch}, {gain}")
    if activation not in ("linear", "tanh", "relu"):
        raise ValueError(f"activation is {activation!r}; it is 'linear', 'tanh' or 'relu'")
    x = rng.normal(size=(batch, width))
    weights = [rng.normal(size=(width, width)) * (gain / math.sqrt(width)) for _ in range(depth)]
    cotangent = rng.normal(size=x.shape)
    outputs = [x]
    for W in weights:
        f = branch * _apply(activation, _normed(x, prenorm) @ W)
        x = x + f if residual else f
        outputs.append(x)
    gradients = [cotangent]
    for W, x in zip(reversed(weights), reversed(outputs[:-1]), strict=True):
        dy = gradients[-1]
        dx = _branch_backward(activation, x, W, branch * dy, prenorm)
        gradients.append(dy + dx if residual else dx)
    return Profile(_sizes(outputs), _sizes(gradients[::-1]), tuple(outputs))


def _branch_backward(activation: Activation, x: Array, W: Array, dy: Array, prenorm: bool) -> Array:
    """Gradient of f(n(x) W) with respect to x, for dy = ∂L/∂f."""
    a = _normed(x, prenorm) @ W
    dn = (dy * _slope(activation, a)) @ W.T
    return rms_norm_backward(x, np.ones(x.shape[-1]), dn)[0] if prenorm else dn


def _normed(x: Array, prenorm: bool) -> Array:
    return rms_norm(x, np.ones(x.shape[-1])) if prenorm else x


def _apply(activation: Activation, a: Array) -> Array:
    if activation == "tanh":
        return np.tanh(a)
    return np.maximum(a, 0) if activation == "relu" else a


def _slope(activation: Activation, a: Array) -> Array:
    if activation == "tanh":
        return 1 - np.tanh(a) ** 2
    return (a > 0).astype(a.dtype) if activation == "relu" else np.ones_like(a)


def _sizes(arrays: list[Array]) -> Array:
    return np.array([math.sqrt(float(np.mean(a * a))) for a in arrays])
