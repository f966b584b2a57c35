"""Derivatives: a small reverse-mode engine, the backward rules of the book, and how to check them.

``Value`` is the whole of backpropagation on scalars, each operation's forward value beside its
backward rule; the array functions are the same rules in matrix form. Nothing here may build a
full Jacobian.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "GradientCheck",
    "Value",
    "central_difference",
    "check_gradient",
    "cross_entropy_backward",
    "forward_difference",
    "gelu",
    "gelu_backward",
    "hessian_vector",
    "linear_backward",
    "softmax_backward",
]

Array = npt.NDArray[Any]
Number = float | int
Slopes = tuple[float, ...]


class Value:
    """A scalar that remembers how it was computed, for the chain rule.

    Args:
        data: the number.
        label: a name for the drawn graph.

    ``grad`` is ∂(output)/∂(this) after ``output.backward()``; a value
    used twice adds up the gradients of both uses.

    Source: Baydin et al. (2018), "Automatic Differentiation in Machine
    Learning", section 3.2.
    """

    def __init__(self, data: Number, label: str = "") -> None:
        self.data = float(data)
        self.grad = 0.0
        self.label = label
        self.operation = ""
        self.parents: tuple[Value, ...] = ()
        self.local: Slopes = ()  # ∂(this)/∂(parent), one per parent

    @classmethod
    def _of(
        cls,
        data: float,
        operation: str,
        parents: tuple["Value", ...],
        local: Slopes,
    ) -> "Value":
        out = cls(data)
        out.operation, out.parents, out.local = operation, parents, local
        return out

    def __add__(self, other: "Value | Number") -> "Value":
        b = _value(other)
        return Value._of(self.data + b.data, "+", (self, b), (1.0, 1.0))

    def __mul__(self, other: "Value | Number") -> "Value":
        b = _value(other)
        local = (b.data, self.data)
        return Value._of(self.data * b.data, "×", (self, b), local)

    def __pow__(self, exponent: Number) -> "Value":
        if not isinstance(exponent, int | float):
            kind = type(exponent).__name__
            raise TypeError(f"exponent: {kind}; a fixed number is due")
        y, n = self.data**exponent, exponent
        slope = n * self.data ** (n - 1) if n else 0.0
        return Value._of(y, f"^{n}", (self,), (slope,))

    def exp(self) -> "Value":
        """e to the power of this value."""
        y = math.exp(self.data)
        return Value._of(y, "exp", (self,), (y,))

    def log(self) -> "Value":
        """Natural logarithm; ValueError at or below 0."""
        y = math.log(self.data)
        return Value._of(y, "log", (self,), (1.0 / self.data,))

    def tanh(self) -> "Value":
        """Hyperbolic tangent."""
        y = math.tanh(self.data)
        return Value._of(y, "tanh", (self,), (1.0 - y * y,))

    def sigmoid(self) -> "Value":
        """1 / (1 + e^-x), computed without overflow."""
        e = math.exp(-abs(self.data))
        y = 1.0 / (1.0 + e) if self.data >= 0 else e / (1.0 + e)
        return Value._of(y, "sigmoid", (self,), (y * (1.0 - y),))

    def relu(self) -> "Value":
        """max(0, x); the derivative at 0 is taken as 0."""
        slope = float(self.data > 0)
        return Value._of(max(0.0, self.data), "relu", (self,), (slope,))

    def __neg__(self) -> "Value":
        return self * -1.0

    def __sub__(self, other: "Value | Number") -> "Value":
        return self + -_value(other)

    def __truediv__(self, other: "Value | Number") -> "Value":
        return self * _value(other) ** -1

    def __radd__(self, other: Number) -> "Value":
        return _value(other) + self

    def __rsub__(self, other: Number) -> "Value":
        return _value(other) - self

    def __rmul__(self, other: Number) -> "Value":
        return _value(other) * self

    def __rtruediv__(self, other: Number) -> "Value":
        return _value(other) / self

    def backward(self) -> None:
        """Fill every ``grad`` in one sweep, from output to inputs."""
        order = self.graph()
        for node in order:
            node.grad = 0.0
        self.grad = 1.0
        for node in reversed(order):
            for k, parent in enumerate(node.parents):
                parent.grad += node.local[k] * node.grad

    def graph(self) -> list["Value"]:
        """All values, each after those that it was computed from."""
        order: list[Value] = []
        seen: set[int] = set()
        stack: list[tuple[Value, bool]] = [(self, False)]
        while stack:  # no recursion: a chain may be longer than the stack
            node, parents_done = stack.pop()
            if parents_done:
                order.append(node)
            elif id(node) not in seen:
                seen.add(id(node))
                stack.append((node, True))
                stack.extend((p, False) for p in reversed(node.parents))
        return order

    def __repr__(self) -> str:
        name = f"{self.label}: " if self.label else ""
        return f"Value({name}data={self.data:.6g}, grad={self.grad:.6g})"

    def _repr_svg_(self) -> str:
        from labsupport.ops.graph import draw

        return draw(self)


def _value(x: "Value | Number") -> Value:
    if isinstance(x, Value):
        return x
    if isinstance(x, int | float | np.integer | np.floating):
        return Value(float(x))
    raise TypeError(f"a Value combines with another Value or a number, not with a {type(x).__name__}")


# -- backward rules on arrays ---------------------------------------------------------------


def linear_backward(X: Array, W: Array, dY: Array) -> tuple[Array, Array, Array]:
    """Gradients of Y = X @ W + b, given the gradient of Y: two GEMMs and one reduction.

    Args:
        X: (..., d_in), the input of the forward pass; the leading axes are the batch.
        W: (d_in, d_out).
        dY: (..., d_out), ∂L/∂Y.

    Returns:
        dX = dY @ Wᵀ of shape (..., d_in), dW = Xᵀ @ dY of shape (d_in, d_out),
        db = Σ_batch dY of shape (d_out,).

    Raises:
        ValueError: shapes that do not fit.

    Source: Parr and Howard (2018), "The Matrix Calculus You Need for Deep Learning".
    """
    X, W, dY = np.asarray(X), np.asarray(W), np.asarray(dY)
    if W.ndim != 2:
        raise ValueError(f"W has {W.ndim} axes; it must have two, (d_in, d_out)")
    if X.shape[-1] != W.shape[0]:
        raise ValueError(f"the last axis of X has size {X.shape[-1]} but axis 0 of W has size {W.shape[0]}")
    if dY.shape != (*X.shape[:-1], W.shape[1]):
        raise ValueError(f"dY has shape {dY.shape} but Y = X @ W has shape {(*X.shape[:-1], W.shape[1])}")
    rows, gradients = X.reshape(-1, W.shape[0]), dY.reshape(-1, W.shape[1])
    return dY @ W.T, rows.T @ gradients, gradients.sum(axis=0)


def softmax_backward(p: Array, dp: Array) -> Array:
    """Gradient through softmax along the last axis: dz = p ⊙ (dp − ⟨dp, p⟩).

    Args:
        p: (..., V), the softmax output of the forward pass.
        dp: (..., V), ∂L/∂p.

    Returns:
        dz: (..., V), ∂L/∂z. Memory O(V) a row; the V×V Jacobian diag(p) − p pᵀ is never formed.

    Raises:
        ValueError: the shapes differ.
    """
    p, dp = np.asarray(p), np.asarray(dp)
    if p.shape != dp.shape:
        raise ValueError(f"p has shape {p.shape} but dp has shape {dp.shape}; they must be the same")
    return p * (dp - np.sum(dp * p, axis=-1, keepdims=True))


def cross_entropy_backward(logits: Array, targets: Array) -> Array:
    """Gradient of the mean softmax cross-entropy by the logits: (softmax(z) − onehot(y)) / B.

    Args:
        logits: (B, V), real numbers.
        targets: (B,), integers in [0, V).

    Returns:
        (B, V), in the dtype of ``logits``; each row sums to 0.

    Raises:
        ValueError: shapes that do not fit, targets outside [0, V), or an empty batch.
        TypeError: targets that are not integers.
    """
    logits, targets = np.asarray(logits), np.asarray(targets)
    if logits.ndim != 2 or targets.shape != logits.shape[:1]:
        raise ValueError(f"logits have shape {logits.shape} and targets {targets.shape}; they must be (B, V) and (B,)")
    if targets.dtype.kind not in "iu":
        raise TypeError(f"targets have dtype {targets.dtype}; they are class numbers, so integers")
    if logits.shape[0] == 0:
        raise ValueError("the batch is empty: the mean of no losses is not defined")
    if targets.min() < 0 or targets.max() >= logits.shape[1]:
        raise ValueError(
            f"targets lie in [{targets.min()}, {targets.max()}] but there are V = {logits.shape[1]} classes"
        )
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    gradient = exponentials / exponentials.sum(axis=-1, keepdims=True)
    gradient[np.arange(len(targets)), targets] -= 1
    return gradient / np.asarray(logits.shape[0], gradient.dtype)


def gelu(x: Array) -> Array:
    """GELU in its tanh form: x/2 · (1 + tanh(√(2/π)·(x + 0.044715 x³))).

    Args:
        x: any shape.

    Source: Hendrycks and Gimpel (2016), "Gaussian Error Linear Units", section 2.
    """
    x = np.asarray(x)
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gelu_backward(x: Array, dy: Array) -> Array:
    """∂L/∂x through ``gelu``, given dy = ∂L/∂gelu(x); any shape, elementwise."""
    x = np.asarray(x)
    c = math.sqrt(2 / math.pi)
    t = np.tanh(c * (x + 0.044715 * x**3))
    return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x**2))


# -- checking a gradient --------------------------------------------------------------------


def central_difference(f: Callable[[Array], Any], x: npt.ArrayLike, eps: float | None = None) -> Array:
    """Numerical gradient of a scalar function: (f(x + ε e_i) − f(x − ε e_i)) / 2ε for each element.

    Args:
        f: takes an array of the shape of ``x`` and returns one number.
        x: the point, any shape; integers become float64. It is not changed.
        eps: the step. By default the cube root of the dtype's machine epsilon, times
            max(1, |x_i|), where truncation and rounding balance.

    Returns:
        The gradient, shape and dtype of ``x``. Two evaluations of ``f`` an element.

    Raises:
        ValueError: ``eps`` is not positive or ``f`` does not return one number.

    Source: Nocedal and Wright, "Numerical Optimization", section 8.1.
    """
    point = np.array(x, dtype=np.result_type(np.asarray(x), np.float16) if np.asarray(x).dtype.kind == "f" else float)
    if eps is not None and not eps > 0:
        raise ValueError(f"eps is {eps}; the step must be positive")
    gradient = np.empty_like(point)
    for index in np.ndindex(point.shape):
        start = point[index]
        step = eps if eps is not None else float(np.finfo(point.dtype).eps) ** (1 / 3) * max(1.0, abs(float(start)))
        point[index] = start + step
        above, high = point[index], _scalar(f(point.copy()))
        point[index] = start - step
        below, low = point[index], _scalar(f(point.copy()))
        point[index] = start
        gradient[index] = (high - low) / (above - below)  # the step as it was really taken
    return gradient


def forward_difference(f: Callable[[Array], Any], x: npt.ArrayLike, eps: float | None = None) -> Array:
    """One-sided numerical gradient: (f(x + ε e_i) − f(x)) / ε for each element.

    Args:
        f: takes an array of the shape of ``x`` and returns one number.
        x: the point, any shape; integers become float64. It is not changed.
        eps: the step. By default the square root of the dtype's machine epsilon, times max(1, |x_i|).

    Returns:
        The gradient, shape and dtype of ``x``. One evaluation of ``f`` an element, and one more.

    Raises:
        ValueError: ``eps`` is not positive or ``f`` does not return one number.

    Source: Nocedal and Wright, "Numerical Optimization", section 8.1.
    """
    point = np.array(x, dtype=np.result_type(np.asarray(x), np.float16) if np.asarray(x).dtype.kind == "f" else float)
    if eps is not None and not eps > 0:
        raise ValueError(f"eps is {eps}; the step must be positive")
    gradient, here = np.empty_like(point), _scalar(f(point.copy()))
    for index in np.ndindex(point.shape):
        start = point[index]
        step = eps if eps is not None else float(np.finfo(point.dtype).eps) ** 0.5 * max(1.0, abs(float(start)))
        point[index] = start + step
        gradient[index] = (_scalar(f(point.copy())) - here) / (point[index] - start)
        point[index] = start
    return gradient


def hessian_vector(
    gradient: Callable[[Array], Array], x: npt.ArrayLike, v: npt.ArrayLike, eps: float | None = None
) -> Array:
    """H(x) v from two gradients, (∇f(x + εv) − ∇f(x − εv)) / 2ε; the n×n Hessian H is never formed.

    Args:
        gradient: takes an array of the shape of ``x``, returns ∇f there in the same shape.
        x: the point, float64 is advised.
        v: the direction, shape of ``x``.
        eps: the step. By default the cube root of machine epsilon, times max(1, ‖x‖) / ‖v‖.

    Returns:
        H v, shape of ``x``; zeros where v is zero.

    Raises:
        ValueError: the shapes of ``x`` and ``v`` differ, or ``eps`` is not positive.

    Source: Pearlmutter (1994), "Fast Exact Multiplication by the Hessian", section 1.
    """
    point, direction = np.asarray(x, dtype=float), np.asarray(v, dtype=float)
    if point.shape != direction.shape:
        raise ValueError(f"x has shape {point.shape} but v has shape {direction.shape}; they must be the same")
    if eps is not None and not eps > 0:
        raise ValueError(f"eps is {eps}; the step must be positive")
    length = float(np.sqrt(np.sum(direction**2)))
    if length == 0:
        return np.zeros_like(point)
    if eps is None:
        eps = float(np.finfo(float).eps) ** (1 / 3) * max(1.0, float(np.sqrt(np.sum(point**2)))) / length
    ahead, behind = gradient(point + eps * direction), gradient(point - eps * direction)
    return np.asarray((ahead - behind) / (2 * eps))


def _scalar(value: Any) -> Any:
    if np.size(value) != 1:
        raise ValueError(f"f returned shape {np.shape(value)}; a gradient needs a function with one number as value")
    return np.asarray(value).reshape(())[()]


@dataclass(frozen=True)
class GradientCheck:
    """Outcome of ``check_gradient``: the largest relative error, where it is, and the verdict."""

    error: float
    index: tuple[int, ...]
    passed: bool


def check_gradient(
    f: Callable[[Array], Any], grad: npt.ArrayLike, x: npt.ArrayLike, eps: float | None = None, rtol: float = 1e-6
) -> GradientCheck:
    """Compare a gradient with central differences, element by element.

    Args:
        f: scalar function of an array; deterministic, float64, without a kink within ``eps`` of ``x``.
        grad: the gradient to check, shape of ``x``.
        x: the point.
        eps: step of the central difference.
        rtol: error allowed, relative to the larger of |grad|, |numerical| and 1e-3 of the
            largest element, so that elements near zero are not compared with rounding noise.

    Returns:
        The worst element and whether it is within ``rtol``.

    Raises:
        ValueError: ``grad`` has another shape than ``x``.
    """
    point, claimed = np.asarray(x, dtype=np.float64), np.asarray(grad, dtype=np.float64)
    if claimed.shape != point.shape:
        raise ValueError(f"grad has shape {claimed.shape} but x has shape {point.shape}; they must be the same")
    numerical = central_difference(f, point, eps)
    size = np.maximum(np.abs(claimed), np.abs(numerical))
    floor = max(1e-3 * float(size.max(initial=0.0)), np.finfo(np.float64).tiny)
    error = np.abs(claimed - numerical) / np.maximum(size, floor)
    error = np.where(np.isfinite(error), error, np.inf)
    worst = np.unravel_index(int(np.argmax(error)), error.shape) if error.size else ()
    largest = float(error[worst]) if error.size else 0.0
    return GradientCheck(largest, tuple(int(i) for i in worst), largest <= rtol)
