"""Exercises of chapter 6 on gradient descent: steps, the largest learning rate, a line fitted to points."""

from __future__ import annotations

from typing import Any

import numpy as np

from labsupport.grading import Case, Exercise, Formula, Function, Mistake, Tolerance
from labsupport.grading.shorthand import in_notebook

Array = np.ndarray


def _descend(w: float, x: float, t: float, eta: float, steps: int, factor: float = 2.0) -> list[float]:
    path = [w]
    for _ in range(steps):
        w = w - eta * factor * x * (w * x - t)
        path.append(w)
    return path


def _descend_cases(rng: np.random.Generator) -> list[Case]:
    w, x, t = (float(v) for v in rng.uniform(0.5, 3, 3))
    return [
        Case(args=(3.0, 2.0, 10.0, 0.1, 1), label="w = 3, x = 2, t = 10, eta = 0.1, one step"),
        Case(args=(3.0, 2.0, 10.0, 0.1, 5), label="the same, five steps"),
        Case(args=(3.0, 2.0, 10.0, 0.26, 6), label="eta = 0.26, six steps"),
        Case(args=(5.0, 2.0, 10.0, 0.1, 3), label="already at the best weight"),
        Case(args=(3.0, 2.0, 10.0, 0.1, 0), label="no step"),
        Case(args=(w, x, t, 0.05, 4), label="random numbers, four steps"),
    ]


def _uphill(w: float, x: float, t: float, eta: float, steps: int) -> list[float]:
    return _descend(w, x, t, -eta, steps)


def _frozen_slope(w: float, x: float, t: float, eta: float, steps: int) -> list[float]:
    slope = 2 * x * (w * x - t)
    return [w - k * eta * slope for k in range(steps + 1)]


def _without_inner(w: float, x: float, t: float, eta: float, steps: int) -> list[float]:
    path = [w]
    for _ in range(steps):
        path.append(path[-1] - eta * 2 * (path[-1] * x - t))
    return path


descend = Function(
    **in_notebook("6.6"),
    id="descend",
    title="The path of a descent",
    level="medium",
    prompt="Write `descend(w, x, t, eta, steps)`: the weights that gradient descent visits on $L = (wx - t)^2$, "
    "the first "
    "one included.",
    contract="`w`, `x`, `t`, `eta`: floats; `steps`: an integer of at least 0. Result: a list or array of `steps + 1` "
    "weights.",
    hints=(
        "The slope at the current weight is $2x(wx - t)$.",
        "Start the list with `w` and append one weight a step.",
        "The slope changes with the weight: compute it anew in each step.",
    ),
    checklist=(11,),
    oracle=lambda *a: np.array(_descend(*a)),
    cases=_descend_cases,
    lists=True,
    tolerance=Tolerance(c=64, depth=lambda w, x, t, eta, steps: steps + 1),
    mistakes=(
        Mistake(name="uphill", answer=_uphill, message="Your steps go uphill: the gradient is subtracted, not added."),
        Mistake(
            name="frozen-slope",
            answer=_frozen_slope,
            message="You used the first slope for every step. Compute it anew at each weight.",
        ),
        Mistake(
            name="no-inner",
            answer=_without_inner,
            message="The inner function's factor x is missing in your slope.",
            section="6.5",
        ),
        Mistake(
            name="no-two",
            answer=lambda w, x, t, eta, steps: _descend(w, x, t, eta, steps, factor=1.0),
            message="The square brings down a factor of 2, which your slope lacks.",
        ),
        Mistake(
            name="without-the-start",
            answer=lambda *a: _descend(*a)[1:],
            message="The weight before the first step belongs to the path.",
        ),
        Mistake(
            name="only-the-end", answer=lambda *a: _descend(*a)[-1], message="The whole path is asked, not its "
            "last weight."
        ),
    ),
)  # fmt: skip

largest_eta = Formula(
    **in_notebook("6.6"),
    id="largest-eta",
    title="Where descent stops arriving",
    level="medium",
    prompt="On $L = (wx - t)^2$ descent arrives for every $\\eta$ between 0 and a threshold. Give the threshold as a "
    "function of `x`.",
    contract="`x`: a float between 0.5 and 4. Result: a float.",
    hints=(
        "Write $w_{k+1} - w^*$ as a factor times $w_k - w^*$.",
        "The factor is $1 - 2\\eta x^2$; when is its size below 1?",
    ),
    oracle=lambda x: 1 / x**2,
    sample=lambda rng: (float(rng.uniform(0.5, 4)),),
    mistakes=(
        Mistake(
            name="fastest",
            answer=lambda x: 1 / (2 * x**2),
            message="At this learning rate the factor vanishes: one step arrives. Larger ones still arrive.",
        ),
        Mistake(
            name="no-square", answer=lambda x: 1 / x, message="The input enters the slope's slope twice: it is squared."
        ),
        Mistake(
            name="curvature",
            answer=lambda x: 2 * x**2,
            message="This is the curvature of the loss. The threshold is two divided by it.",
        ),
        Mistake(
            name="no-factor",
            answer=lambda x: 2 / x**2,
            message="The square's factor of 2 is part of the slope; put it into the condition.",
        ),
    ),
)


def _mse_gradient(w: Array, X: Array, y: Array) -> Array:
    return 2 / len(y) * X.T @ (X @ w - y)


def _mse_cases(rng: np.random.Generator) -> list[Case]:
    def case(n: int, d: int, dtype: Any = np.float64, order: str = "C") -> tuple[Array, Array, Array]:
        X = np.asarray(rng.normal(size=(n, d)), dtype=dtype, order=order)  # type: ignore[call-overload]
        return rng.normal(size=d).astype(dtype), X, rng.normal(size=n).astype(dtype)

    return [
        Case(args=case(5, 3), label="5 rows, 3 weights"),
        Case(args=case(4, 4), label="4 rows, 4 weights"),
        Case(args=case(6, 2, np.float32), label="float32, 6 rows, 2 weights"),
        Case(args=case(7, 3, order="F"), label="7 rows, 3 weights, Fortran order"),
        Case(args=case(1, 2), label="one row"),
        Case(args=case(3, 1), label="one weight"),
    ]


mse_gradient = Function(
    **in_notebook("6.7"),
    id="mse-gradient",
    title="Gradient of a mean squared error",
    level="hard",
    points=2,
    prompt="A model predicts `X @ w`; the loss is the **mean** of the squared errors. Write `grad(w, X, y)`, "
    "the gradient "
    "by `w`.",
    contract="`w`: (d,), `X`: (N, d), `y`: (N,), all float32 or all float64, N of at least 1. Result: shape (d,).",
    hints=(
        "One row first: the derivative of $(x \\cdot w - y)^2$ by $w_j$ is $2 (x \\cdot w - y) x_j$.",
        "Sum over rows: the errors multiply the rows of `X`, which is a product with `X.T`.",
        "The mean brings a factor of one over N.",
    ),
    checklist=(11,),
    oracle=_mse_gradient,
    cases=_mse_cases,
    tolerance=Tolerance(
        c=16,
        depth=lambda w, X, y: sum(X.shape),
        scale=lambda w, X, y: float(2 / len(y) * (np.abs(X).T @ (np.abs(X) @ np.abs(w) + np.abs(y))).max()),
    ),
    mistakes=(
        Mistake(
            name="sum",
            answer=lambda w, X, y: 2 * X.T @ (X @ w - y),
            message="This is the gradient of the summed error. The mean brings a factor of one over N.",
        ),
        Mistake(
            name="no-two",
            answer=lambda w, X, y: X.T @ (X @ w - y) / len(y),
            message="The square brings down a factor of 2.",
        ),
        Mistake(
            name="sign",
            answer=lambda w, X, y: 2 / len(y) * X.T @ (y - X @ w),
            message="The error is the prediction minus the target; yours has the other sign.",
        ),
        Mistake(
            name="mean-over-weights",
            answer=lambda w, X, y: 2 / len(w) * X.T @ (X @ w - y),
            message="You divided by the number of weights. The mean runs over the rows.",
        ),
        Mistake(
            name="errors",
            answer=lambda w, X, y: 2 / len(y) * (X @ w - y),
            message="This has one entry per row: the derivative by the predictions. The chain goes on to the weights.",
            section="6.5",
        ),
    ),
    accept=(
        lambda w, X, y: np.array([2 * np.mean((X @ w - y) * X[:, j]) for j in range(X.shape[1])]),
        lambda w, X, y: 2 * ((X @ w - y)[:, None] * X).mean(axis=0),
    ),
)  # fmt: skip


def _fit(x: Array, y: Array, eta: float, steps: int) -> tuple[float, float]:
    w = b = 0.0
    for _ in range(steps):
        error = w * x + b - y
        w, b = w - eta * 2 * float(np.mean(error * x)), b - eta * 2 * float(np.mean(error))
    return w, b


def _fit_one_after_the_other(x: Array, y: Array, eta: float, steps: int) -> tuple[float, float]:
    w = b = 0.0
    for _ in range(steps):
        w -= eta * 2 * float(np.mean((w * x + b - y) * x))
        b -= eta * 2 * float(np.mean(w * x + b - y))
    return w, b


def _fit_without_bias(x: Array, y: Array, eta: float, steps: int) -> tuple[float, float]:
    w = 0.0
    for _ in range(steps):
        w -= eta * 2 * float(np.mean((w * x - y) * x))
    return w, 0.0


def _fit_summed(x: Array, y: Array, eta: float, steps: int) -> tuple[float, float]:
    w = b = 0.0
    for _ in range(steps):
        error = w * x + b - y
        w, b = w - eta * 2 * float(np.sum(error * x)), b - eta * 2 * float(np.sum(error))
    return w, b


def _fit_cases(rng: np.random.Generator) -> list[Case]:
    x = np.array([0.0, 1.0, 2.0, 3.0])
    noisy = rng.uniform(-1, 1, 8)
    return [
        Case(args=(x, 2 * x + 1, 0.05, 1), label="a line, one step"),
        Case(args=(x, 2 * x + 1, 0.05, 3), label="a line, three steps"),
        Case(args=(x, 2 * x + 1, 0.05, 200), label="a line, 200 steps"),
        Case(args=(noisy, rng.normal(size=8), 0.1, 10), label="noise, ten steps"),
        Case(args=(x[::-1], x, 0.02, 4), label="a reversed view, four steps"),
        Case(args=(x, x, 0.05, 0), label="no step"),
    ]


fit_line = Function(
    **in_notebook("6.6"),
    id="fit-a-line",
    title="Fit a line by descent",
    level="hard",
    points=2,
    prompt="Write `fit(x, y, eta, steps)`: gradient descent on the mean squared error of $wx + b$, from $w = b = 0$.",
    contract="`x`, `y`: float64 of shape (N,); `eta`: a float; `steps`: at least 0. Both parameters are updated "
    "from the "
    "**same** errors in a step. Result: the tuple `(w, b)`.",
    hints=(
        "Two partial derivatives: by w, the mean of $2 \\cdot$ error $\\cdot x$; by b, the mean of $2 \\cdot$ error.",
        "Compute the errors once a step, then both gradients, then both updates.",
    ),
    checklist=(11,),
    oracle=_fit,
    cases=_fit_cases,
    tolerance=Tolerance(c=64, depth=lambda x, y, eta, steps: 8 + steps, scale=lambda *a: 4.0),
    mistakes=(
        Mistake(
            name="one-after-the-other",
            answer=_fit_one_after_the_other,
            message="The second parameter already saw the first one's new value. Compute both gradients before "
            "any update.",
            section="6.4",
        ),
        Mistake(
            name="no-bias",
            answer=_fit_without_bias,
            message="The parameter b never moved: it has a partial derivative, too.",
        ),
        Mistake(
            name="sum",
            answer=_fit_summed,
            message="You summed over the points. The mean squared error divides by their number.",
        ),
        Mistake(
            name="uphill",
            answer=lambda x, y, eta, steps: _fit(x, y, -eta, steps),
            message="Your steps go uphill: the gradient is subtracted.",
        ),
        Mistake(
            name="swapped",
            answer=lambda *a: _fit(*a)[::-1],
            message="The two parameters are in each other's place: w is the slope of the line.",
        ),
        Mistake(
            name="no-two",
            answer=lambda x, y, eta, steps: _fit(x, y, eta / 2, steps),
            message="The square brings down a factor of 2, which your gradients lack.",
        ),
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    descend,
    largest_eta,
    fit_line,
    mse_gradient,
)
