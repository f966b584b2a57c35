"""Questions inside the text of chapter 6; the last six are those of section 6.10."""

from __future__ import annotations

import math

import numpy as np

from labsupport.exercises.derivatives.running_example import PARAMETERS, loss_and_slope
from labsupport.grading import Choice, Exercise, Mistake, Number, Option, Several, Shape
from labsupport.grading.shorthand import in_text

ratio_at_three = Number(
    **in_text("6.2"),
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
    **in_text("6.2"),
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
    **in_text("6.3"),
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
    **in_text("6.4"),
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
    **in_text("6.5"),
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
    **in_text("6.6"),
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
    **in_text("6.6"),
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
    **in_text("6.7"),
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
    **in_text("6.8"),
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
    **in_text("6.10"),
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
    **in_text("6.10"),
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
    **in_text("6.10"),
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
    **in_text("6.10"),
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
    **in_text("6.10"),
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
    **in_text("6.10"),
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

EXERCISES: tuple[Exercise, ...] = (
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
