"""Figures of chapter 6: secants, gears, the steepest direction, the descent, the losses, and what backward keeps.

Every curve and every number drawn is computed here. None may depend on a clock or on a library's rounding, so that
the pictures are the same on every machine.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from labsupport.figures import style, svg
from labsupport.figures.explorable import Explorable, Figure, explore, show
from labsupport.figures.widgets import Widget, steps

BLUE, ORANGE, GREEN, PURPLE, RED, GREY = style.PALETTE
INK = "k"

#: The problem of section 6.6: input, target, first weight.
X, T, W = 2.0, 10.0, 3.0


def secant() -> Explorable:
    """The secant of x² from 3 to 3 + step, and the tangent that it turns into."""

    def ratio(step: float) -> float:
        return ((3 + step) ** 2 - 9) / step

    def draw(step: float) -> Any:
        fig, ax = style.new(5.2, 3.8)
        grid = np.linspace(1.5, 5, 60)
        ax.plot(grid, grid**2, color=BLUE, linestyle="-", label="$x^2$")
        ax.plot([1.5, 5], [9 - 1.5 * 6, 9 + 2 * 6], color=GREY, linestyle="--", label="tangent, slope 6")
        slope = ratio(step)
        ax.plot([1.5, 5], [9 - 1.5 * slope, 9 + 2 * slope], color=ORANGE, linestyle="-", label="through both dots")
        ax.plot([3, 3 + step], [9, (3 + step) ** 2], "o", color=RED)
        ax.text(4.9, -0.5, f"rise / step = {slope:g}", ha="right", va="bottom")
        ax.set_xlim(1.5, 5)
        ax.set_ylim(-2, 26)
        ax.set_xlabel("x")
        ax.legend(loc="upper left")
        return fig

    return explore(
        draw,
        alt=lambda step: (
            f"With a step of {step:g} the line through both points has slope {ratio(step):g}; the tangent 6."
        ),
        caption="Move the second dot towards the first. The line through both turns into the tangent, and its "
        "slope into 6.",
        start={"step": 1.5},
        labels={"step": "step"},
        step=[1.5, 1.0, 0.5, 0.25, 0.1, 0.01],
    )


def gears() -> Figure:
    """Three gears with ratios 4 and 3: one turn of the first is twelve of the last."""
    drawing = svg.picture(
        360,
        186,
        svg.circle(84, 84, 72, "a", color="blue", size=20),
        svg.circle(175, 84, 18, "g", color="orange", size=16),
        svg.circle(200, 84, 6, color="green"),
        svg.text(214, 90, "f", size=16),
        svg.text(84, 176, "a: 1 turn", size=14),
        svg.text(206, 132, "g: 4 turns", size=14),
        svg.text(226, 54, "f: 12 turns", size=14),
        svg.text(312, 84, "4 × 3", size=16),
        svg.text(312, 108, "= 12", size=16, bold=True),
    )
    return show(
        drawing,
        alt="Three gears: one turn of a turns g four times; one turn of g turns f three times; so a turns f "
        "twelve times.",
        caption="Rates in a chain multiply, as the ratios of gears do.",
    )


def steepest() -> Explorable:
    """A step of fixed length from (2, 1) on f = x² + 3y, in a direction of the reader's choice."""
    best = math.degrees(math.atan2(3, 4))

    def rate(angle: float) -> float:
        a = math.radians(angle)
        return round(4 * math.cos(a) + 3 * math.sin(a), 2) + 0.0

    def draw(angle: float) -> Any:
        fig, ax = style.new(5.2, 4.2)
        grid = np.linspace(0, 4, 60)
        for level in range(1, 23, 3):
            line = (level - grid**2) / 3
            ax.plot(grid, np.where(line < 2.6, line, np.nan), color=GREY, linestyle="-", linewidth=1)
        arrow = {"arrowstyle": "-|>", "linewidth": 2.2}
        for degrees, color in ((best, BLUE), (angle, ORANGE)):
            tip = (2 + math.cos(math.radians(degrees)), 1 + math.sin(math.radians(degrees)))
            ax.annotate("", tip, (2, 1), arrowprops={**arrow, "color": color})
        ax.plot([2], [1], "o", color=RED)
        ax.text(0.1, 3.45, f"angle {angle}°: f grows by {rate(angle):.2f} a unit", va="top", color=ORANGE)
        ax.text(0.1, 3.05, "gradient (4, 3): length 5", va="top", color=BLUE)
        ax.set_xlim(0, 4)
        ax.set_ylim(-0.6, 3.5)
        ax.set_aspect("equal")
        ax.grid(False)
        ax.set_xlabel("x")
        ax.set_ylabel("y")
        return fig

    return explore(
        draw,
        alt=lambda angle: (
            f"In the direction of {angle} degrees f grows at a rate of {rate(angle):.2f}; along "
            f"the gradient, "
            "at 36.9 degrees, at 5, which is the most."
        ),
        caption="Grey lines join points of equal \\(f\\). Turn the orange arrow: the rate is largest along the "
        "blue gradient, 0 "
        "along a grey line, and most negative against the gradient.",
        start={"angle": 90},
        labels={"angle": "direction in degrees"},
        angle=[0, 20, 37, 60, 90, 127, 180, 217, 270, 307],
    )


def path(eta: float, count: int) -> list[float]:
    """The first weights of the descent of section 6.6."""
    weights = [W]
    for _ in range(count):
        w = weights[-1]
        weights.append(w - eta * 2 * X * (w * X - T))
    return weights


def verdict(eta: float) -> str:
    """What descent does at this learning rate, from the factor 1 − 2ηx² alone."""
    factor = round(1 - 2 * eta * X * X, 12)
    if abs(factor) > 1:
        return "diverges"
    if abs(factor) == 1:
        return "jumps to and fro for ever"
    if factor == 0:
        return "arrives in one step"
    if factor < 0:
        return "oscillates and arrives"
    return "slow" if factor > 0.5 else "good"


def descent() -> Explorable:
    """The loss (2w − 10)², the tangent at the current weight, and the dots of the descent, for many learning rates."""

    def draw(eta: float, step: int) -> Any:
        weights = path(eta, step)
        losses = [(w * X - T) ** 2 for w in weights]
        fig, ax = style.new(5.2, 4.2)
        grid = np.linspace(1, 9, 100)
        ax.plot(grid, (grid * X - T) ** 2, color=BLUE, linestyle="-")
        now, loss = weights[-1], losses[-1]
        slope = 2 * X * (now * X - T)
        ax.plot([now - 1.5, now + 1.5], [loss - 1.5 * slope, loss + 1.5 * slope], color=RED, linestyle="--")
        ax.plot(weights, losses, "o-", color=ORANGE, linewidth=1, markersize=6)
        ax.plot([now], [loss], "o", color=RED, markersize=9)
        ax.set_xlim(1, 9)
        ax.set_ylim(-6, 64)
        factor = round(1 - 2 * eta * X * X, 6) + 0.0
        ax.text(5, 62, f"η = {eta:g}: {verdict(eta)}", ha="center", va="top")
        ax.text(5, 55.5, f"distance × {factor:g} a step".replace("-", "−"), ha="center", va="top")
        outside = "" if 1 <= now <= 9 else " (outside)"
        ax.text(5, 49, f"w = {now:.4g}{outside}, slope {slope:.4g}".replace("-", "−"), ha="center", va="top", color=RED)
        ax.set_xlabel("weight w")
        ax.set_ylabel("loss $(2w - 10)^2$")
        return fig

    def alt(eta: float, step: int) -> str:
        now = path(eta, step)[-1]
        return (
            f"Learning rate {eta:g} {verdict(eta)}: after {step} steps the weight is {now:.4g}, the loss "
            f"{(now * X - T) ** 2:.4g} and the slope of the tangent {2 * X * (now * X - T):.4g}."
        )

    return explore(
        draw,
        alt=alt,
        caption="The red dashed line is the tangent at the current weight; at the start its slope is −16. "
        "Orange dots are the "
        "steps so far. Steps shorten towards the bottom because the slope does, not because \\(\\eta\\) changes.",
        start={"eta": 0.1, "step": 0},
        labels={"eta": "learning rate η", "step": "steps done"},
        eta=[0.01, 0.03, 0.1, 0.125, 0.2, 0.24, 0.25, 0.26, 0.3],
        step=[0, 1, 2, 3, 4, 6],
    )


def penalties() -> Figure:
    """What a probability p of the right token costs: 1 − p and −log p."""
    fig, ax = style.new(5.2, 3.4)
    p = np.geomspace(1e-3, 1, 150)
    ax.plot(p, -np.log(p), label="$-\\log p$")
    ax.plot(p, 1 - p, label="$1 - p$")
    for value in (0.001, 0.5, 0.999):
        ax.plot([value], [-math.log(value)], "o", color=RED, clip_on=False)
    ax.set_xlim(0, 1.02)
    ax.set_ylim(0, 7.5)
    ax.set_xlabel("probability p of the right token")
    ax.set_ylabel("loss")
    ax.legend(loc="upper right")
    return show(
        fig,
        alt="Minus log p rises without end as p falls to 0, 6.9 at a thousandth; 1 minus p never exceeds 1.",
        caption="Near \\(p = 0\\) the slope of \\(1 - p\\) is still −1, while that of \\(-\\log p\\) has no bound: a "
        "confident mistake is pushed hard.",
    )


_STAGES = 4


def _frame(done: int) -> str:
    """The state after `done` of eight half-steps: four layers forward, then four backward."""
    forward, backward = min(done, _STAGES), max(0, done - _STAGES)
    pieces = []
    for k in range(_STAGES):
        x = 12 + 86 * k
        returned = k >= _STAGES - backward
        kept = k < forward and not returned
        pieces.append(svg.box(x, 56, 64, 40, f"layer {k + 1}", color="green" if returned else "blue", size=13))
        pieces.append(
            svg.rect(
                x, 112, 64, 28, color="orange" if kept else "grey", fill="orange" if kept else "none", dashed=not kept
            )
        )
        pieces.append(svg.text(x + 32, 131, "saved" if kept else ("freed" if returned else "empty"), size=13))
        if k:
            pieces.append(svg.arrow((x - 20, 68), (x - 2, 68), color="blue" if k < forward else "grey"))
            arrived = k > _STAGES - backward - 1 and backward > 0
            pieces.append(svg.arrow((x - 2, 86), (x - 20, 86), color="green" if arrived else "grey"))
    held = forward - backward
    title = f"forward, layer {done}" if 0 < done <= _STAGES else f"backward, layer {_STAGES - backward + 1}"
    return svg.picture(
        360,
        176,
        svg.text(180, 26, title if done else "before the step", size=16, bold=True),
        *pieces,
        svg.text(180, 166, f"activations kept: {held}", size=14),
    )


def forward_then_backward() -> Widget:
    """A training step over four layers: what is saved on the way there and freed on the way back."""
    items = [("Start", "Before the step nothing is saved.", _frame(0))]
    items += [
        (f"Forward {k}", f"Layer {k} computes its output and saves its input: {k} kept.", _frame(k))
        for k in range(1, 5)
    ]
    items += [
        (
            f"Back {5 - k}",
            f"Layer {5 - k} turns the gradient of its output into those of its weights and its input, and frees "
            f"what it "
            f"saved: {4 - k} kept.",
            _frame(4 + k),
        )
        for k in range(1, 5)
    ]
    return steps(
        items,
        alt="A training step over four layers: activations pile up on the way forward and are freed on the way back.",
        caption="The first layer's input is saved first and needed last. At the turn everything is in memory at once.",
    )


def training_loop() -> Figure:
    """The four steps of the loop: guess, measure, share out, nudge."""
    names = (
        ("1 guess", "forward pass"),
        ("2 measure", "loss L"),
        ("3 share out", "gradient of L"),
        ("4 nudge", "w − η ∂L/∂w"),
    )
    places = ((20, 20), (200, 20), (200, 110), (20, 110))
    boxes = [
        svg.box(x, y, 140, 54, name, sub=sub, color=color)
        for (name, sub), (x, y), color in zip(names, places, ("blue", "orange", "green", "purple"), strict=True)
    ]
    drawing = svg.picture(
        360,
        184,
        *boxes,
        svg.arrow((162, 47), (198, 47)),
        svg.arrow((270, 76), (270, 108)),
        svg.arrow((198, 137), (162, 137)),
        svg.arrow((90, 108), (90, 76)),
    )
    return show(
        drawing,
        alt="The loop: guess in the forward pass, measure the loss, share it out as a gradient, nudge the "
        "weights, and again.",
        caption="The whole of training. Chapters 1 to 5 were step 1 and the measure; this chapter is steps 2, 3 and 4.",
    )
