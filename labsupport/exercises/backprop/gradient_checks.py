"""Exercises of chapter 7 on checking a gradient by differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from labsupport.grading import Case, Exercise, Function, Mistake, Tolerance, Written
from labsupport.grading.shorthand import in_notebook
from labsupport.ops import autodiff as ops

Array = np.ndarray


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
    **in_notebook("7.10"),
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
    fresh=True,
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

explain_check = Written(
    **in_notebook("7.10"),
    id="explain-gradient-check",
    title="When a gradient check lies",
    level="medium",
    prompt="A colleague checks the gradient of a big model in bfloat16, with dropout on and $\\varepsilon = "
    "10^{-8}$, and reports that "
    "backward is broken. In three to six sentences: what is wrong with the check, and how should it be done?",
    hints=(
        "There are at least three separate problems. Take dtype, step and randomness in turn.",
        "What is the smallest change of a weight near 1 that bfloat16 can hold? Do both values of a difference come "
        "from the same function? How many evaluations does a big model need?",
    ),
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
    gradient_check,
    explain_check,
)
