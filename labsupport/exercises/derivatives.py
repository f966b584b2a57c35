"""Exercises of chapter 6: rates, partial derivatives, the chain rule, descent, losses and what backward costs.

Expected values are computed from the functions stated here, never typed. No message may hold one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from labsupport.grading import (
    Case,
    Choice,
    Exercise,
    Formula,
    Function,
    Mistake,
    Number,
    Option,
    Several,
    Shape,
    Tolerance,
    Written,
)
from labsupport.ops.autodiff import Value

Array = np.ndarray
Curve = Callable[[float], float]

#: Weights of the small decoder of section 6.1.
PARAMETERS = 4_120_768


def loss_and_slope(w: float, x: float, t: float) -> tuple[float, float]:
    """L = (w x − t)² and ∂L/∂w, by the engine of chapter 7."""
    weight = Value(w)
    loss = (weight * x - t) ** 2
    loss.backward()
    return loss.data, weight.grad


def _in_text(section: str, **rest: Any) -> dict[str, Any]:
    return {"chapter": 6, "section": section, "place": "chapter", **rest}


def _exercise(section: str, **rest: Any) -> dict[str, Any]:
    return {"chapter": 6, "section": section, **rest}


# --- in the chapter ---------------------------------------------------------------------------------------

ratio_at_three = Number(
    **_in_text("6.2"),
    id="ratio-at-three",
    title="Predict: rise over step",
    prompt="$f(x) = x^2$ goes from $x = 3$ to $x = 3.01$. What is the rise divided by the step? Give three digits.",
    hints=("What is $3.01^2 - 3^2$?", "Divide that rise by 0.01."),
    expected=round((3.01**2 - 3**2) / 0.01, 6),
    rtol=1e-4,
    mistakes=(
        Mistake(name="rise", answer=3.01**2 - 9, message="This is the rise. Divide it by the step."),
        Mistake(name="limit", answer=6.0, message="This is what the ratio tends to. The step here is still 0.01."),
        Mistake(name="value", answer=3.01**2, message="This is the new value of the function, not its change."),
    ),
)

negative_slope = Choice(
    **_in_text("6.2"),
    id="negative-slope",
    title="Which way is down?",
    prompt="The derivative of the loss with respect to a weight is −16. What lowers the loss?",
    hints=("What does a small increase of the weight do to the loss?", "Rise is about slope times step."),
    options={
        "a": Option("making the weight a little larger", "A negative slope times a positive step is a fall.", True),
        "b": Option("making the weight a little smaller", "Negative slope times negative step is a rise."),
        "c": Option("nothing: the loss is at its lowest", "At a lowest point of a smooth curve the slope is zero."),
        "d": Option("making the weight negative", "The sign of the slope is not the sign that the weight should have."),
    },
)

other_partial = Number(
    **_in_text("6.3"),
    id="other-partial",
    title="Predict: the other partial derivative",
    prompt="$f(x, y) = x^2 + 3y$. What is $\\partial f/\\partial y$ at $x = 2$, $y = 5$?",
    hints=("Hold $x$ fixed: what kind of number is $x^2$ then?", "Only $3y$ changes when $y$ does."),
    checklist=(11,),
    expected=3.0,
    exact=True,
    mistakes=(
        Mistake(name="other", answer=4.0, message="This is the partial derivative by x. Hold x and move y."),
        Mistake(name="both", answer=7.0, message="You added both partial derivatives. Move one variable only."),
        Mistake(
            name="value", answer=19.0, message="This is the value of the function. The question is how it changes."
        ),
        Mistake(name="times-y", answer=15.0, message="This is the term 3y itself, not its rate of change."),
    ),
)

gradient_length = Shape(
    **_in_text("6.4"),
    id="gradient-length",
    title="How long is the gradient?",
    prompt="All parameters of a model lie in one vector of shape (4120768,). Which shape has the gradient of the loss?",
    hints=("How many partial derivatives are there?", "One number for each parameter."),
    expected=np.broadcast_to(0.0, PARAMETERS).shape,
    mistakes=(
        Mistake(name="scalar", answer=(), message="The loss is one number. Its gradient has an entry per parameter."),
        Mistake(
            name="square",
            answer=(PARAMETERS, PARAMETERS),
            message="A square table would hold second derivatives. The gradient holds first ones.",
        ),
        Mistake(name="column", answer=(PARAMETERS, 1), message="The gradient has the very shape of the parameters."),
    ),
)

chain_at_two = Number(
    **_in_text("6.5"),
    id="chain-at-two",
    title="Predict: two gears",
    prompt="$g = a^2$, $f = 3g$, $a = 2$. What is $\\mathrm{d}f/\\mathrm{d}a$?",
    hints=("How much does $g$ move for a small move of $a$?", "Multiply the two rates."),
    checklist=(11,),
    expected=3 * 2 * 2.0,
    mistakes=(
        Mistake(name="sum", answer=7.0, message="You added the rates. Rates in a chain multiply."),
        Mistake(name="last", answer=3.0, message="This is the rate of f by g alone."),
        Mistake(name="first", answer=4.0, message="This is the rate of g by a alone."),
        Mistake(name="square-of-all", answer=36.0, message="The factor 3 stands outside the square."),
    ),
)

new_loss = Number(
    **_in_text("6.6"),
    id="loss-after-one-step",
    title="Predict: one step of descent",
    prompt="$x = 2$, $t = 10$, $w = 3$, $L = (wx - t)^2$. One step with $\\eta = 0.1$. What is the loss afterwards?",
    hints=(
        "The slope by the chain rule: $2(wx - t) \\cdot x$.",
        "The new weight is $w$ minus $\\eta$ times the slope.",
    ),
    checklist=(11,),
    expected=round(loss_and_slope(3 - 0.1 * loss_and_slope(3, 2, 10)[1], 2, 10)[0], 9),
    rtol=1e-6,
    mistakes=(
        Mistake(name="uphill", answer=((3 - 1.6) * 2 - 10.0) ** 2, message="You added the gradient: that is uphill."),
        Mistake(
            name="no-inner",
            answer=((3 + 0.8) * 2 - 10.0) ** 2,
            message="The factor x of the inner function is missing in your slope.",
            section="6.5",
        ),
        Mistake(name="weight", answer=4.6, message="This is the new weight. Put it back into the loss."),
        Mistake(name="old", answer=16.0, message="This is the loss before the step."),
    ),
)

too_large_eta = Choice(
    **_in_text("6.6"),
    id="eta-too-large",
    title="Predict: a learning rate of 0.3",
    prompt="In the same problem, $x = 2$. What do the steps do with $\\eta = 0.3$?",
    hints=("By which factor is the distance to the best weight multiplied in a step?", "Compute $1 - 2\\eta x^2$."),
    options={
        "a": Option("arrive faster than with 0.1", "The factor at 0.1 is 0.2. Which is it here, and of which size?"),
        "b": Option("jump from side to side and still arrive", "That needs a factor between −1 and 0."),
        "c": Option("jump from side to side, further each time", "The factor is −1.4: sign turned, size grown.", True),
        "d": Option("creep", "That is a factor just below 1, so a very small learning rate."),
    },
)

confident_and_wrong = Number(
    **_in_text("6.7"),
    id="loss-at-a-thousandth",
    title="Confident and wrong",
    prompt="The model gives the right token a probability of 0.001. What is the cross-entropy in nats? Two decimals.",
    hints=("Only the right token's probability counts.", "It is minus the natural logarithm of 0.001."),
    checklist=(10,),
    expected=-math.log(0.001),
    rtol=2e-3,
    mistakes=(
        Mistake(name="base-10", answer=3.0, message="You took the logarithm to base 10. Here it is natural."),
        Mistake(name="bits", answer=-math.log2(0.001), message="This is the value in bits."),
        Mistake(name="distance", answer=0.999, message="This is one minus the probability, which never exceeds 1."),
        Mistake(name="sign", answer=math.log(0.001), message="The loss is the negative of the logarithm."),
    ),
)

backward_factor = Choice(
    **_in_text("6.8"),
    id="backward-factor",
    title="Predict: the price of going back",
    prompt="A deep network of linear layers. How does the work of the backward pass compare with the forward pass?",
    hints=("Which gradients does one layer need to compute?", "One for its weights and one for its input."),
    options={
        "a": Option("about half", "Each layer needs two products of the size of the forward one. Count again."),
        "b": Option("about the same", "That would be one product a layer. Which gradient did you leave out?"),
        "c": Option("about twice", "One product for the weights' gradient, one for the input's.", True),
        "d": Option(
            "as many times as there are parameters",
            "That is the price of nudging one parameter at a time, which going back avoids.",
        ),
    },
)

# the six questions of section 6.10

check_square = Several(
    **_in_text("6.10"),
    id="square-at-five",
    title="Question 1: a rate and a rise",
    prompt="$f(x) = x^2$ at $x = 5$. Answer `slope`, the derivative, and `rise`, by about how much $y$ grows when $x$ "
    "grows by 0.01.",
    contract="A tuple `(slope, rise)`, or a dict with these two names.",
    hints=("The derivative of $x^2$ is $2x$.", "Rise is about slope times step."),
    checklist=(11,),
    parts={
        "slope": Number(
            prompt="The derivative at 5.",
            expected=2 * 5.0,
            mistakes=(
                Mistake(name="value", answer=25.0, message="This is the value of the function, not its rate."),
                Mistake(name="no-point", answer=2.0, message="The derivative depends on x: put the point in."),
            ),
        ),
        "rise": Number(
            prompt="The rise, about.",
            expected=2 * 5 * 0.01,
            rtol=2e-3,
            mistakes=(
                Mistake(name="step", answer=0.01, message="This is the step. Multiply by the slope."),
                Mistake(name="slope", answer=10.0, message="This is the slope. Multiply by the step."),
            ),
        ),
    },
)

check_partials = Several(
    **_in_text("6.10"),
    id="two-partials",
    title="Question 2: two partial derivatives",
    prompt="$f(x, y) = 2x + y^2$ at $x = 4$, $y = 3$. Answer `by_x` and `by_y`, the two partial derivatives there.",
    contract="A tuple `(by_x, by_y)`, or a dict with these two names.",
    hints=("Hold $y$ fixed and differentiate by $x$; then the other way round.", "One of the two is a constant."),
    checklist=(11,),
    parts={
        "by_x": Number(
            prompt="The partial derivative by $x$.",
            expected=2.0,
            mistakes=(
                Mistake(name="swapped", answer=6.0, message="This is the partial derivative by y."),
                Mistake(name="value", answer=8.0, message="This is the term with x, not its rate of change."),
                Mistake(
                    name="kept-the-rest",
                    answer=2 + 3.0**2,
                    message="Hold y fixed: its term is a constant, and a constant's derivative vanishes.",
                ),
            ),
        ),
        "by_y": Number(
            prompt="The partial derivative by $y$.",
            expected=2 * 3.0,
            mistakes=(
                Mistake(name="swapped", answer=2.0, message="This is the partial derivative by x."),
                Mistake(name="value", answer=9.0, message="This is the term with y, not its rate of change."),
                Mistake(name="undifferentiated", answer=3.0, message="The square brings its factor down."),
                Mistake(
                    name="kept-the-rest",
                    answer=2 * 4 + 2 * 3.0,
                    message="Hold x fixed: its term is a constant, and a constant's derivative vanishes.",
                ),
            ),
        ),
    },
)

check_chain = Number(
    **_in_text("6.10"),
    id="chain-at-three",
    title="Question 3: a chain",
    prompt="$y = 5g$, $g = a^2$, $a = 3$. What is $\\mathrm{d}y/\\mathrm{d}a$?",
    hints=("Two rates: of $y$ by $g$, and of $g$ by $a$.", "The second one is $2a$ at $a = 3$."),
    checklist=(11,),
    expected=5 * 2 * 3.0,
    mistakes=(
        Mistake(name="sum", answer=11.0, message="You added the rates. Rates in a chain multiply."),
        Mistake(name="value", answer=45.0, message="This is the value of y, not its rate."),
        Mistake(name="outer", answer=5.0, message="This is the outer rate alone."),
        Mistake(name="inner", answer=6.0, message="This is the inner rate alone."),
    ),
)

_LOSS, _SLOPE = loss_and_slope(2, 3, 12)

check_step = Several(
    **_in_text("6.10"),
    id="one-descent-step",
    title="Question 4: a whole step",
    prompt="$w = 2$, $x = 3$, $t = 12$, $L = (wx - t)^2$. Answer `loss`, `slope` ($\\partial L/\\partial w$) and "
    "`weight`, the new weight after a step with $\\eta = 0.05$.",
    contract="A tuple `(loss, slope, weight)`, or a dict with these three names.",
    hints=(
        "With $u = wx - t$: $L = u^2$, so the slope is $2u \\cdot x$.",
        "New weight: $w$ minus $\\eta$ times the slope.",
    ),
    checklist=(11,),
    level="medium",
    parts={
        "loss": Number(
            prompt="The loss before the step.",
            expected=_LOSS,
            mistakes=(Mistake(name="error", answer=-6.0, message="This is the error. The loss is its square."),),
        ),
        "slope": Number(
            prompt="The slope of the loss by the weight.",
            expected=_SLOPE,
            mistakes=(
                Mistake(name="no-inner", answer=-12.0, message="The factor x of the inner function is missing."),
                Mistake(name="sign", answer=36.0, message="The prediction is too small, so the error is negative."),
                Mistake(name="no-two", answer=-18.0, message="The square brings down a factor of 2."),
            ),
        ),
        "weight": Number(
            prompt="The new weight.",
            expected=2 - 0.05 * _SLOPE,
            rtol=1e-6,
            mistakes=(
                Mistake(name="uphill", answer=2 + 0.05 * _SLOPE, message="You added the gradient: that is uphill."),
                Mistake(name="step-only", answer=1.8, message="This is the step. Add it to the old weight."),
            ),
        ),
    },
)

check_half = Number(
    **_in_text("6.10"),
    id="surprise-at-half",
    title="Question 5: half sure",
    prompt="The model gives the right answer a probability of 0.5. What is the cross-entropy in nats? Three decimals.",
    hints=("Minus the natural logarithm.", "Minus the logarithm of one half is the logarithm of 2."),
    checklist=(10,),
    expected=math.log(2),
    mistakes=(
        Mistake(name="bits", answer=1.0, message="This is the value in bits."),
        Mistake(name="sign", answer=-math.log(2), message="The loss is the negative of the logarithm."),
        Mistake(name="base-10", answer=math.log10(2), message="You took the logarithm to base 10."),
    ),
)

check_backwards = Choice(
    **_in_text("6.10"),
    id="why-backwards",
    title="Question 6: why backwards?",
    prompt="Why does backpropagation start at the loss and not at the inputs?",
    hints=("How many losses are there, and how many parameters?", "Which partial results do many parameters share?"),
    checklist=(11,),
    options={
        "a": Option(
            "one loss, many parameters: going back, each shared factor is computed once",
            "Everything between a layer and the loss is worked out once and serves all layers before it.",
            True,
        ),
        "b": Option("the chain rule holds only in that direction", "A product may be multiplied from either end."),
        "c": Option("it needs less memory", "It needs more: the values of the forward pass are kept for it."),
        "d": Option("the result is more accurate", "Both directions give the same derivatives, up to rounding."),
    },
)

# --- the exercise notebook --------------------------------------------------------------------------------


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
    **_exercise("6.2"),
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

derivative_table = Formula(
    **_exercise("6.2"),
    id="derivative-of-a-sum",
    title="A derivative from the table",
    prompt="Give the derivative of $f(x) = 5x^2 + 3e^x - \\log x + 7$ as a function of `x`.",
    contract="`x`: a float between 0.5 and 3. Result: a float.",
    hints=("Term by term: the derivative of a sum is the sum of the derivatives.", "What does the 7 contribute?"),
    checklist=(11,),
    oracle=lambda x: 10 * x + 3 * np.exp(x) - 1 / x,
    sample=lambda rng: (float(rng.uniform(0.5, 3)),),
    mistakes=(
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
    **_exercise("6.5"),
    id="chain-backwards",
    title="All rates of a chain in one sweep",
    level="medium",
    prompt="Stage $k$ of a chain turns its input into its output at rate `rates[k]`. Write `to_the_end(rates)`: "
    "for each "
    "stage, the rate of the *last* output by that stage's *input*. One sweep, one multiplication a stage.",
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
    **_exercise("6.6"),
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
    **_exercise("6.6"),
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
    **_exercise("6.7"),
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
    **_exercise("6.6"),
    id="fit-a-line",
    title="Fit a line by descent",
    level="hard",
    points=2,
    prompt="Write `fit(x, y, eta, steps)`: gradient descent on the mean squared error of $wx + b$, from $w = b = 0$.",
    contract="`x`, `y`: float64 of shape (N,); `eta`: a float; `steps`: at least 0. Both parameters are updated "
    "from the "
    "*same* errors in a step. Result: the tuple `(w, b)`.",
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

perplexity_aloud = Number(
    **_exercise("6.9"),
    id="perplexity-of-a-log-line",
    title="Read a log line aloud",
    prompt="A training log says `loss 2.11`, in nats per token. Among how many equally likely tokens might the "
    "model as "
    "well be choosing? Two decimals; the unit is token.",
    hints=("The loss is a logarithm. What undoes it?", "It is $e$ to the power of the loss."),
    checklist=(10,),
    expected=math.exp(2.11),
    unit="token",
    default_unit="token",
    mistakes=(
        Mistake(name="base-2", answer=(2**2.11, "token"), message="The loss is in nats, so the base is e, not 2."),
        Mistake(name="base-10", answer=(10**2.11, "token"), message="The loss is in nats, so the base is e, not 10."),
        Mistake(name="probability", answer=(math.exp(-2.11), "token"), message="This is a probability. The sign."),
        Mistake(name="log", answer=(math.log(2.11), "token"), message="You took a logarithm; undo one instead."),
    ),
)

_LAYERS, _TOKENS, _WIDTH = 6, 4096, 512

saved_activations = Number(
    **_exercise("6.8"),
    id="saved-activations",
    title="What the backward pass waits for",
    level="medium",
    prompt=f"{_LAYERS} linear layers of width {_WIDTH}, one after the other, run on {_TOKENS} tokens in "
    f"float32. Each saves its "
    "input for the backward pass. How many bytes are saved? Answer with a unit, such as `3 MiB`.",
    hints=("One saved input has shape (tokens, width).", "Four bytes an element, and one such tensor for each layer."),
    expected=_LAYERS * _TOKENS * _WIDTH * 4,
    unit="B",
    default_unit="B",
    exact=True,
    mistakes=(
        Mistake(name="one-layer", answer=(_TOKENS * _WIDTH * 4, "B"), message="This is one layer. Each keeps "
        "its input."),
        Mistake(
            name="weights",
            answer=(_LAYERS * _WIDTH * _WIDTH * 4, "B"),
            message="These are the weights, which are there anyway. The activations grow with the number of tokens.",
        ),
        Mistake(
            name="elements", answer=(_LAYERS * _TOKENS * _WIDTH, "B"), message="This is the number of elements."
        ),
    ),
)  # fmt: skip

training_step_flops = Number(
    **_exercise("6.8"),
    id="training-step-flops",
    title="FLOPs of a training step",
    level="medium",
    prompt=f"A deep model does its work in matrix products. Its weights number {PARAMETERS:,}, each used once a "
    f"token in one "
    "multiply and one add. Count backward as exactly twice forward. How many FLOPs does one training token cost?",
    hints=("Forward: two FLOPs for each weight.", "Backward is twice that, and a step is both together."),
    expected=3 * 2 * PARAMETERS,
    unit="FLOP",
    default_unit="FLOP",
    exact=True,
    mistakes=(
        Mistake(
            name="forward-only", answer=(2 * PARAMETERS, "FLOP"), message="This is the forward pass. Add the way back."
        ),
        Mistake(
            name="backward-only", answer=(4 * PARAMETERS, "FLOP"), message="This is the backward pass alone."
        ),
        Mistake(
            name="one-flop", answer=(3 * PARAMETERS, "FLOP"), message="One multiply and one add are two FLOPs."
        ),
    ),
)  # fmt: skip

explain_training_memory = Written(
    **_exercise("6.9"),
    id="explain-training-memory",
    title="Runs there, does not train there",
    level="medium",
    prompt="In three to six sentences: a model runs on a small board and cannot be trained on it. Say what "
    "training holds in "
    "memory that inference does not, and what grows with depth and with the number of tokens.",
    hints=(
        "Go through a step: forward, backward, update. What must exist at the same time?",
        "Which of these tensors has one entry a parameter, and which one entry a token and layer?",
    ),
    rubric=(
        "names the gradient, as large as the parameters",
        "names the optimizer's state (two numbers a parameter for Adam)",
        "names the activations saved by the forward pass, one set a layer",
        "says that activations grow with depth and with tokens, the others with parameters only",
    ),
    model="Inference holds the weights and the activations of the current layer. Training also holds one "
    "gradient a parameter "
    "and the optimizer's state, two more numbers a parameter for Adam. The backward pass needs the inputs of "
    "every layer, so "
    "all activations stay until it has passed. They grow with depth and with tokens, while the rest grows with "
    "parameters only.",
)

EXERCISES: tuple[Exercise, ...] = (
    rate_of_change,
    derivative_table,
    chain_backwards,
    descend,
    largest_eta,
    fit_line,
    mse_gradient,
    saved_activations,
    training_step_flops,
    perplexity_aloud,
    explain_training_memory,
    ratio_at_three,
    negative_slope,
    other_partial,
    gradient_length,
    chain_at_two,
    new_loss,
    too_large_eta,
    confident_and_wrong,
    backward_factor,
    check_square,
    check_partials,
    check_chain,
    check_step,
    check_half,
    check_backwards,
)
