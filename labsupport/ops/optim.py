"""Optimizer steps, initial standard deviations and gradient clipping, one formula each.

Every step takes parameters, gradients and state and returns new arrays: nothing is changed in
place, so that a step can be repeated, compared and undone.
"""

import math
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

__all__ = [
    "adam_step",
    "adamw_step",
    "clip_by_global_norm",
    "global_norm",
    "kaiming_std",
    "momentum_step",
    "sgd_step",
    "xavier_std",
]

Array = npt.NDArray[Any]


def sgd_step(theta: Array, grad: Array, lr: float) -> Array:
    """θ ← θ − η·g.

    Args:
        theta: parameters, any shape.
        grad: ∂L/∂θ, same shape.
        lr: learning rate η, not negative.

    Raises:
        ValueError: shapes differ or ``lr`` is negative.
    """
    theta, grad = _matching(theta, grad=grad)
    _not_negative(lr=lr)
    return theta - lr * grad


def momentum_step(
    theta: Array,
    grad: Array,
    velocity: Array,
    lr: float,
    beta: float,
    convention: Literal["sum", "average"] = "sum",
) -> tuple[Array, Array]:
    """One momentum step; returns the new (θ, v), θ ← θ − η·v.

    Args:
        theta, grad, velocity: same shape; the velocity starts at 0.
        lr: learning rate η.
        beta: momentum β in [0, 1).
        convention: ``"sum"`` is v ← β·v + g (torch's); ``"average"`` is v ← β·v + (1 − β)·g.
            With the same β the first needs a learning rate (1 − β) times smaller.

    Raises:
        ValueError: shapes differ, β outside [0, 1), an unknown convention.

    Source: Polyak (1964); torch.optim.SGD's documentation states the first convention.
    """
    theta, grad, velocity = _matching(theta, grad=grad, velocity=velocity)
    _not_negative(lr=lr)
    _decay(beta=beta)
    if convention not in ("sum", "average"):
        raise ValueError(f"convention is {convention!r}; it is 'sum' (v = beta v + g) or 'average'")
    weight = 1.0 if convention == "sum" else 1.0 - beta
    velocity = beta * velocity + weight * grad
    return theta - lr * velocity, velocity


def adam_step(
    theta: Array,
    grad: Array,
    m: Array,
    v: Array,
    t: int,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
) -> tuple[Array, Array, Array]:
    """One Adam step; returns the new (θ, m, v).

    m ← β₁m + (1 − β₁)g, v ← β₂v + (1 − β₂)g², m̂ = m/(1 − β₁ᵗ), v̂ = v/(1 − β₂ᵗ),
    θ ← θ − η·m̂/(√v̂ + ε).

    Args:
        theta, grad, m, v: same shape; m and v start at 0.
        t: the number of this step, starting at 1.
        lr, beta1, beta2, eps: η, β₁, β₂, ε.

    Raises:
        ValueError: shapes differ, t < 1, a β outside [0, 1).

    Source: Kingma and Ba (2015), "Adam: A Method for Stochastic Optimization", algorithm 1.
    """
    theta, grad, m, v = _matching(theta, grad=grad, m=m, v=v)
    _not_negative(lr=lr, eps=eps)
    _decay(beta1=beta1, beta2=beta2)
    if t < 1:
        raise ValueError(f"t is {t}; the first step has t = 1, else the bias correction divides by 0")
    m = beta1 * m + (1 - beta1) * grad
    v = beta2 * v + (1 - beta2) * grad * grad
    m_hat, v_hat = m / (1 - beta1**t), v / (1 - beta2**t)
    return theta - lr * m_hat / (np.sqrt(v_hat) + eps), m, v


def adamw_step(
    theta: Array,
    grad: Array,
    m: Array,
    v: Array,
    t: int,
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
) -> tuple[Array, Array, Array]:
    """One AdamW step: θ shrinks by η·λ·θ apart from Adam's step; returns the new (θ, m, v).

    Args:
        weight_decay: λ. The other arguments are those of ``adam_step``.

    Raises:
        ValueError: as ``adam_step``, or a negative λ.

    Source: Loshchilov and Hutter (2019), "Decoupled Weight Decay Regularization", algorithm 2.
    """
    _not_negative(weight_decay=weight_decay)
    (theta,) = _matching(theta)
    return adam_step(theta * (1 - lr * weight_decay), grad, m, v, t, lr, beta1, beta2, eps)


def global_norm(grads: list[Array]) -> float:
    """L2 norm of all gradients together, √Σᵢ‖gᵢ‖², as a float.

    Each array is scaled by its largest magnitude first, so that squares neither overflow nor
    vanish; sums are in float64. An empty list has norm 0; a NaN or infinity makes it so.
    """
    largest = max((float(np.abs(grad).max(initial=0.0)) for grad in grads), default=0.0)
    if any(np.isnan(np.asarray(grad)).any() for grad in grads):
        return math.nan
    if largest in (0.0, math.inf):
        return largest
    squares = sum(float(np.sum((np.asarray(grad, dtype=np.float64) / largest) ** 2)) for grad in grads)
    return largest * math.sqrt(squares)


def clip_by_global_norm(grads: list[Array], max_norm: float) -> tuple[list[Array], float]:
    """Scale all gradients by min(1, c/‖g‖), ‖g‖ their global norm; returns (gradients, ‖g‖).

    Args:
        grads: arrays of any shapes; they keep their dtypes and their common direction.
        max_norm: c, positive.

    Raises:
        ValueError: ``max_norm`` is not positive.
        FloatingPointError: the norm is NaN or infinite; scaling would spread it to every array.

    Source: Pascanu, Mikolov and Bengio (2013), algorithm 1.
    """
    if not max_norm > 0:
        raise ValueError(f"max_norm is {max_norm}; it must be positive")
    norm = global_norm(grads)
    if not math.isfinite(norm):
        raise FloatingPointError(f"the global norm is {norm}: find the first non-finite gradient, do not clip it")
    factor = min(1.0, max_norm / norm) if norm else 1.0
    return [np.asarray(grad) * np.asarray(grad).dtype.type(factor) for grad in grads], norm


def xavier_std(fan_in: int, fan_out: int) -> float:
    """Standard deviation √(2 / (fan_in + fan_out)) that keeps variance forward and backward on average.

    Source: Glorot and Bengio (2010), equation 12.
    """
    _fans(fan_in=fan_in, fan_out=fan_out)
    return math.sqrt(2 / (fan_in + fan_out))


def kaiming_std(fan_in: int, gain: float = math.sqrt(2)) -> float:
    """Standard deviation gain/√fan_in; gain √2 makes up for the half that ReLU sets to 0.

    Source: He et al. (2015), "Delving Deep into Rectifiers", equation 10.
    """
    _fans(fan_in=fan_in)
    return gain / math.sqrt(fan_in)


def _matching(theta: Array, **others: Array) -> tuple[Array, ...]:
    theta = np.asarray(theta)
    theta = theta if theta.dtype.kind == "f" else theta.astype(np.float64)
    arrays = [theta]
    for name, value in others.items():
        array = np.asarray(value)
        if array.shape != theta.shape:
            raise ValueError(f"{name} has shape {array.shape} but theta has shape {theta.shape}; they must be the same")
        arrays.append(array)
    return tuple(arrays)


def _not_negative(**values: float) -> None:
    for name, value in values.items():
        if not value >= 0:
            raise ValueError(f"{name} is {value}; it must not be negative")


def _decay(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name} is {value}; it must lie in [0, 1)")


def _fans(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise ValueError(f"{name} is {value}; a layer has at least one input and one output")
