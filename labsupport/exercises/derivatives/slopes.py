"""Exercises of chapter 6 on rates of change, the rules of derivatives, and the chain rule backwards."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from labsupport.grading import Case, Exercise, Formula, Function, Mistake, Tolerance
from labsupport.grading.shorthand import in_notebook

Curve = Callable[[float], float]


def _rate(f: Curve, x: float, step: float) -> float:
    return (f(x + step) - f(x)) / step


def _square(x: float) -> float:
    return x * x


def _cubic(x: float) -> float:
    return x * x * x - 2 * x


def _reciprocal(x: float) -> float:
    return 1 / x


def _rate_cases(rng: np.random.Generator) -> list[Case]:
    cases = [
        Case(args=(_square, 3.0, 0.01), label="x², x = 3, step 0.01"),
        Case(args=(_square, 3.0, -0.5), label="x², x = 3, step -0.5"),
        Case(args=(_square, 0.0, 0.25), label="x², x = 0, step 0.25"),
        Case(args=(_reciprocal, 2.0, 0.5), label="1/x, x = 2, step 0.5"),
    ]
    x, step = float(rng.uniform(1, 3)), float(rng.uniform(0.1, 1))
    return [*cases, Case(args=(_cubic, x, step), label="x³ - 2x at a random point")]


rate_of_change = Function(
    **in_notebook("6.2"),
    id="rate-of-change",
    title="Rise over step",
    prompt="Write `rate(f, x, step)`: by how much `f` rises from `x` to `x + step`, divided by the step.",
    contract="`f`: a function of one float; `x`, `step`: floats, the step is not 0 and may be negative. Result: "
    "a float.",
    hints=("Evaluate `f` at both ends.", "The new value minus the old one, over the step."),
    oracle=_rate,
    cases=_rate_cases,
    tolerance=Tolerance(c=100, scale=lambda f, x, step: 1 + abs(f(x) / step)),
    mistakes=(
        Mistake(
            name="rise-only",
            answer=lambda f, x, step: f(x + step) - f(x),
            message="This is the rise. A rate is a rise divided by a step.",
        ),
        Mistake(
            name="upside-down",
            answer=lambda f, x, step: step / (f(x + step) - f(x)),
            message="The fraction is upside down: the rise is divided by the step.",
        ),
        Mistake(
            name="old-minus-new",
            answer=lambda f, x, step: (f(x) - f(x + step)) / step,
            message="The rise is the new value minus the old one; yours is the other way round.",
        ),
        Mistake(
            name="absolute-step",
            answer=lambda f, x, step: (f(x + step) - f(x)) / abs(step),
            message="A step to the left is negative, and its sign belongs into the ratio.",
        ),
        Mistake(
            name="two-sided",
            answer=lambda f, x, step: (f(x + step) - f(x - step)) / (2 * step),
            message="You stepped to both sides. That is a better estimate of a derivative, and here one step is "
            "asked for.",
        ),
    ),
    accept=(lambda f, x, step: f(x + step) / step - f(x) / step,),
)


def _table_sum(x: float) -> float:
    return float(5 * x**2 + 3 * np.exp(x) - np.log(x) + 7)


derivative_table = Formula(
    **in_notebook("6.2"),
    id="derivative-of-a-sum",
    title="A derivative from the table",
    prompt="Give the derivative of $f(x) = 5x^2 + 3e^x - \\log x + 7$ as a function of `x`.",
    contract="`x`: a float between 0.5 and 3. Result: a float.",
    hints=("Term by term: the derivative of a sum is the sum of the derivatives.", "What does the 7 contribute?"),
    checklist=(11,),
    oracle=lambda x: 10 * x + 3 * np.exp(x) - 1 / x,
    sample=lambda rng: (float(rng.uniform(0.5, 3)),),
    tolerance=Tolerance(c=2.0**10),  # tight enough to tell a formula from a difference quotient
    mistakes=(
        Mistake(
            name="difference-quotient",
            answer=lambda x: (_table_sum(x + 1e-5) - _table_sum(x - 1e-5)) / 2e-5,
            message="That is a difference quotient: a good estimate, and no formula. Use the table, term by term.",
        ),
        Mistake(
            name="kept-the-constant",
            answer=lambda x: 10 * x + 3 * np.exp(x) - 1 / x + 7,
            message="The constant 7 does not change, so its rate of change vanishes.",
        ),
        Mistake(
            name="square",
            answer=lambda x: 5 * x + 3 * np.exp(x) - 1 / x,
            message="The derivative of the square brings a factor of 2.",
        ),
        Mistake(
            name="exp-as-power",
            answer=lambda x: 10 * x + 3 * x * np.exp(x - 1) - 1 / x,
            message="In $e^x$ the variable is the exponent. It is its own derivative; the power rule does not apply.",
        ),
        Mistake(
            name="log-sign",
            answer=lambda x: 10 * x + 3 * np.exp(x) + 1 / x,
            message="The logarithm has a minus sign before it, and the sign stays.",
        ),
    ),
)


def _chain_cases(rng: np.random.Generator) -> list[Case]:
    return [
        Case(args=([4.0, 3.0],), label="two gears"),
        Case(args=([2.0, -1.5, 0.5, 4.0],), label="four stages, one negative"),
        Case(args=([7.0],), label="one stage"),
        Case(args=([3.0, 0.0, 5.0],), label="a stage that passes nothing on"),
        Case(args=(rng.uniform(0.5, 2, 6).tolist(),), label="six stages"),
    ]


def _suffix_products(rates: list[float]) -> list[float]:
    back, products = 1.0, []
    for rate in reversed(rates):
        back *= rate
        products.append(back)
    return products[::-1]


def _prefix_products(rates: list[float]) -> list[float]:
    forward, products = 1.0, []
    for rate in rates:
        forward *= rate
        products.append(forward)
    return products


chain_backwards = Function(
    **in_notebook("6.5"),
    id="chain-backwards",
    title="All rates of a chain in one sweep",
    level="medium",
    prompt="Stage $k$ of a chain turns its input into its output at rate `rates[k]`. Write `to_the_end(rates)`: "
    "for each "
    "stage, the rate of the **last** output by that stage's **input**. One sweep, one multiplication a stage.",
    contract="`rates`: a list of floats, not empty; a rate may be 0 or negative. Result: a list or array of the "
    "same length.",
    hints=(
        "Which entry do you know at once: the first or the last?",
        "The entry of a stage is its own rate times the entry of the stage after it.",
        "Walk through `reversed(rates)`, keep a running product, and turn the list round at the end.",
    ),
    checklist=(11,),
    oracle=lambda rates: np.array(_suffix_products(rates)),
    cases=_chain_cases,
    lists=True,
    tolerance=Tolerance(c=8, depth=6, scale="each"),
    mistakes=(
        Mistake(
            name="forwards",
            answer=_prefix_products,
            message="You multiplied from the front: those are the rates of each output by the first input.",
        ),
        Mistake(
            name="not-turned",
            answer=lambda rates: _suffix_products(rates)[::-1],
            message="Your numbers stand in the order in which they were found, the last stage first.",
        ),
        Mistake(
            name="own-rate-missing",
            answer=lambda rates: [*_suffix_products(rates)[1:], 1.0],
            message="This is the rate by each stage's output. By its input, the stage's own rate belongs in.",
        ),
        Mistake(
            name="sums",
            answer=lambda rates: [sum(rates[k:]) for k in range(len(rates))],
            message="You added the rates. Rates in a chain multiply.",
        ),
        Mistake(
            name="by-division",
            answer=lambda rates: [
                math.prod(rates) / math.prod(rates[:k]) if math.prod(rates[:k]) else math.nan for k in range(len(rates))
            ],
            message="You divided the whole product by what comes before. A stage with rate 0 makes that 0/0.",
        ),
    ),
    accept=(
        lambda rates: np.cumprod(rates[::-1])[::-1],
        lambda rates: [math.prod(rates[k:]) for k in range(len(rates))],
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    rate_of_change,
    derivative_table,
    chain_backwards,
)
