"""Figures of chapter 7: activations, the cost of both modes, the sweep over a graph, shapes, Jacobian, error curve.

Every number drawn is computed here, by IEEE additions, multiplications and divisions where rounding shows, so that
the pictures are the same on every machine.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from labsupport.figures import style, svg
from labsupport.figures.explorable import Explorable, Figure, explore, show
from labsupport.figures.widgets import Widget, steps
from labsupport.ops.autodiff import Value, gelu, gelu_backward
from labsupport.ops.softmax import softmax

BLUE, ORANGE, GREEN, PURPLE, RED, GREY = style.PALETTE

Array = np.ndarray


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


#: Name -> (function, derivative).
ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "sigmoid": (_sigmoid, lambda x: _sigmoid(x) * (1 - _sigmoid(x))),
    "tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
    "ReLU": (lambda x: np.maximum(x, 0), lambda x: (x > 0).astype(float)),
    "GELU": (gelu, lambda x: gelu_backward(x, np.ones_like(x))),
}


def activations() -> Explorable:
    """Four activations with their derivatives, and the tangent at a movable point."""

    def at(function: str, x: float) -> tuple[float, float]:
        f, slope = ACTIVATIONS[function]
        point = np.array(x)
        return round(float(f(point)), 3) + 0.0, round(float(slope(point)), 3) + 0.0

    def draw(function: str, x: float) -> Any:
        f, slope = ACTIVATIONS[function]
        grid = np.linspace(-4, 4, 81)
        fig, ax = style.new(5.2, 3.8)
        ax.plot(grid, f(grid), label="f")
        ax.plot(grid, slope(grid), label="its derivative")
        y, rate = at(function, x)
        ax.plot([x - 0.8, x + 0.8], [y - 0.8 * rate, y + 0.8 * rate], color=RED, linestyle="-", linewidth=2.5)
        ax.plot([x, x], [y, rate], "o", color=RED)
        ax.set_xlim(-4, 4)
        ax.set_ylim(-1.4, 2.4)
        ax.set_xlabel("x")
        ax.legend(loc="upper left")
        ax.set_title(f"{function} at {x:g}: value {y:g}, slope {rate:g}".replace("-", "−"))
        return fig

    return explore(
        draw,
        alt=lambda function, x: "At x = {:g} {} is {:g} and its slope {:g}.".format(x, function, *at(function, x)),
        caption="The dashed line is the slope of the solid one. Far out, sigmoid and tanh are flat and pass "
        "nothing back; ReLU "
        "passes all or nothing; GELU is smooth, and its slope goes a little below 0 and above 1.",
        start={"function": "sigmoid", "x": 1.0},
        labels={"function": "function", "x": "x"},
        function=list(ACTIVATIONS),
        x=[-3.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0],
    )


def chain_flops(sizes: tuple[int, ...], reverse: bool) -> int:
    """FLOPs of the product of a chain's Jacobians, from the output's end or from the input's end."""
    inputs, outputs = sizes[0], sizes[-1]
    pairs = list(itertools.pairwise(sizes))
    if reverse:  # (outputs, k) @ (k, j): the last Jacobian is there, the others are multiplied on its right
        return sum(2 * outputs * b * a for a, b in pairs[:-1])
    return sum(2 * inputs * b * a for a, b in pairs[1:])


def mode_cost() -> Figure:
    """FLOPs of the full Jacobian in both modes, for a chain 1000 → 1000 → 1000 → outputs."""
    outputs = np.array([1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000])
    fig, ax = style.new(5.2, 3.6)
    for reverse, label in ((False, "forward mode"), (True, "reverse mode")):
        ax.loglog(outputs, [chain_flops((1000, 1000, 1000, int(m)), reverse) for m in outputs], label=label)
    ax.minorticks_off()
    ax.set_xlabel("number of outputs")
    ax.set_ylabel("FLOPs")
    ax.legend(loc="upper left")
    return show(
        fig,
        alt="With one output reverse mode is about a thousand times cheaper than forward mode; with more "
        "outputs than inputs "
        "it is dearer.",
        caption="The whole Jacobian of a chain with 1000 inputs. A loss is the left edge of this picture, and there "
        "reverse mode wins by the number of inputs.",
    )


def _fork() -> dict[str, Value]:
    x, y = Value(2.0, "x"), Value(3.0, "y")
    u = x * y
    v = u + x
    loss = v**2
    loss.backward()
    return {"x": x, "y": y, "u": u, "v": v, "L": loss}


def graph(output: Value) -> Figure:
    """The computation graph of a value, as the engine draws it."""
    count = len(output.graph())
    return show(
        output._repr_svg_(),
        alt=f"Computation graph of {count} values, inputs left, output right; the output is {output.data:.6g}.",
        caption="Each box holds a value and its gradient; the number at an arrowhead is the local derivative.",
    )


def sweep() -> Widget:
    """The backward sweep over u = xy, v = u + x, L = v²: a gradient arrives at each value, and x receives two."""
    values = _fork()
    places = {"x": (16, 30), "y": (16, 124), "u": (112, 124), "v": (204, 60), "L": (292, 60)}
    names = {"x": "x", "y": "y", "u": "u = x y", "v": "v = u+x", "L": "L = v²"}
    edges = {("v", "L"): "×16", ("u", "v"): "×1", ("x", "v"): "×1", ("x", "u"): "×3", ("y", "u"): "×2"}
    ends = {  # start and end of an arrow, and where its factor stands
        ("v", "L"): ((270, 84), (290, 84), (280, 124)),
        ("u", "v"): ((178, 140), (212, 110), (208, 136)),
        ("x", "v"): ((82, 52), (202, 76), (146, 54)),
        ("x", "u"): ((70, 80), (118, 122), (110, 98)),
        ("y", "u"): ((82, 150), (110, 150), (96, 142)),
    }

    def frame(grads: dict[str, str], lit: tuple[tuple[str, str], ...]) -> str:
        pieces = [
            svg.box(x, y, 66, 48, name, sub=f"{values[key].data:g}", color="green" if key in grads else "grey", size=13)
            for key, (x, y), name in ((key, places[key], names[key]) for key in places)
        ]
        pieces += [
            svg.text(
                places[key][0] + 33, places[key][1] + (-8 if key in ("x", "v", "L") else 64), grad, size=12, bold=True
            )
            for key, grad in grads.items()
        ]
        for edge, (start, end, label) in ends.items():
            pieces.append(svg.arrow(start, end, color="orange" if edge in lit else "grey"))
            if edge in lit:
                pieces.append(svg.text(*label, edges[edge], size=12))
        return svg.picture(360, 200, *pieces)

    g = {key: f"{value.grad:g}" for key, value in values.items()}
    one, two, three = {"L": "1"}, {"L": "1", "v": g["v"]}, {"L": "1", "v": g["v"], "u": g["u"], "x": g["v"]}
    return steps(
        [
            ("Seed.", "The output's gradient by itself is 1.", frame(one, ())),
            ("v.", "L = v² hands 1 × 2v = 16 to v.", frame(two, (("v", "L"),))),
            (
                "Fork.",
                "v = u + x hands 16 × 1 to u, and 16 × 1 to x: the direct path.",
                frame(three, (("u", "v"), ("x", "v"))),
            ),
            (
                "Add.",
                "u = x y hands 16 × y = 48 to x, which adds it to the 16 it has: 64. And 16 × x = 32 to y.",
                frame({**three, "x": "16 + 48 = 64", "y": g["y"]}, (("x", "u"), ("y", "u"))),
            ),
        ],
        alt="Backward sweep over a small graph; x is used twice and its gradient is the sum 16 + 48.",
        caption="Orange: what is handed back in this step, and its factor. x waits until both of its users have "
        "reported.",
    )


def linear_shapes() -> Figure:
    """The three tensors of a linear layer's backward pass as products of shapes."""

    def row(y: float, parts: tuple[tuple[str, str, str], ...], note: str) -> str:
        pieces = []
        x = 4.0
        for name, shape, color in parts:
            if name in ("=", "@"):
                pieces.append(svg.text(x + 10, y + 26, name, size=18))
                x += 22
            else:
                pieces.append(svg.box(x, y, 94, 46, name, sub=shape, color=color))
                x += 98
        return "".join(pieces) + svg.text(180, y + 64, note, size=13)

    drawing = svg.picture(
        360,
        270,
        row(
            6,
            (("dX", "(B, d_in)", "green"), ("=", "", ""), ("dY", "(B, d_out)", "orange"), ("@", "", ""),
             ("Wᵀ", "(d_out, d_in)", "blue")),
            "d_out is summed over: one GEMM",
        ),
        row(
            96,
            (("dW", "(d_in, d_out)", "green"), ("=", "", ""), ("Xᵀ", "(d_in, B)", "blue"), ("@", "", ""),
             ("dY", "(B, d_out)", "orange")),
            "the batch is summed over: one GEMM",
        ),
        row(
            186,
            (("db", "(d_out,)", "green"), ("=", "", ""), ("Σ dY", "over B", "orange")),
            "the batch is summed over: one reduction",
        ),
    )  # fmt: skip
    return show(
        drawing,
        alt="dX is dY times W transposed, dW is X transposed times dY, db is dY summed over the batch; only "
        "these products fit.",
        caption="Try any other order or transposition: the shapes do not fit, unless two sizes happen to be equal.",
    )


def softmax_jacobian() -> Explorable:
    """The Jacobian of softmax for logits (2, 1, 0, 0) divided by a temperature."""
    logits = np.array([2.0, 1.0, 0.0, 0.0])

    def matrix(T: float) -> tuple[Array, Array]:
        p = softmax(logits / T)
        return p, np.diag(p) - np.outer(p, p)

    def draw(T: float) -> str:
        p, J = matrix(T)
        shown = [[f"{v:.3f}".replace("-", "−") if abs(v) >= 5e-4 else "0" for v in row] for row in J]
        marked = {(i, i): "green" for i in range(4)} | {
            (i, j): "orange" for i in range(4) for j in range(4) if i != j and J[i, j] <= -5e-4
        }
        return svg.picture(
            360,
            236,
            svg.text(180, 20, "p = " + ", ".join(f"{v:.3f}" for v in p), size=14, bold=True),
            svg.cells(36, 64, shown, size=34, width=78, highlight=marked, rows=["p1", "p2", "p3", "p4"],
                      cols=["z1", "z2", "z3", "z4"]),
            svg.text(180, 226, "each row and each column sums to 0", size=13),
        )  # fmt: skip

    def alt(T: float) -> str:
        p, J = matrix(T)
        return (
            f"At temperature {T:g} the probabilities are {', '.join(f'{v:.3f}' for v in p)}; the largest entry "
            f"of the Jacobian is "
            f"{J.max():.3f} and the smallest {J.min():.3f}."
        )

    return explore(
        draw,
        alt=alt,
        caption="Green: a logit raises its own probability, \\(p_i(1-p_i)\\). Orange: it lowers all others, "
        "\\(-p_i p_j\\). A "
        "certain softmax, at low temperature, passes hardly anything back.",
        start={"T": 1.0},
        labels={"T": "temperature T"},
        T=[0.2, 0.5, 1.0, 2.0, 10.0],
    )


class ErrorCurve(NamedTuple):
    """Error of a numerical derivative against the step; everything in float64, dimensionless."""

    step: Array
    error: Array
    predicted: float
    found: float


#: Points at which the derivative of 1/(1 + x²) is taken; fractions, so that no library function is involved.
POINTS = np.arange(1, 65) / 61 + 0.25


def difference_errors(dtype: Any, central: bool) -> ErrorCurve:
    """Largest error of (f(x+ε) − f(x))/ε or (f(x+ε) − f(x−ε))/2ε for f = 1/(1+x²) over 64 points.

    Only additions, multiplications and divisions are used, which IEEE 754 rounds alike on every machine.
    The predicted best step is eps^(1/2) one-sided and eps^(1/3) central, with the machine epsilon of ``dtype``.
    """
    x = POINTS.astype(dtype)
    wide = x.astype(np.float64)
    exact = -2 * wide / ((1 + wide * wide) * (1 + wide * wide))

    def f(v: Array) -> Array:
        one = np.ones((), v.dtype)
        return one / (one + v * v)

    eps = float(np.finfo(dtype).eps)
    exponents = np.arange(1, 1 + int(-math.log2(eps)))
    taken, errors = [], []
    for k in exponents:
        h = np.array(2.0**-k, dtype)
        above, below = x + h, (x - h if central else x)
        slope = (f(above) - f(below)).astype(np.float64) / (above - below).astype(np.float64)
        taken.append(2.0**-k)
        errors.append(float(np.abs(slope - exact).max()))
    step, error = np.array(taken), np.array(errors)
    return ErrorCurve(step, error, eps ** (1 / 3 if central else 1 / 2), float(step[error.argmin()]))


def error_curve() -> Explorable:
    """The U-shaped error of numerical derivatives over the step, one-sided and central, by dtype."""
    kinds = {"float64": np.float64, "float32": np.float32}

    def draw(dtype: str) -> Any:
        fig, ax = style.new(5.2, 4.2)
        for central, name, color, marker in ((False, "one-sided", BLUE, "o"), (True, "central", ORANGE, "s")):
            curve = difference_errors(kinds[dtype], central)
            ax.loglog(curve.step, curve.error, marker=marker, markersize=3.5, color=color, label=name)
            ax.axvline(curve.predicted, color=color, linestyle=":", linewidth=1.5)
            ax.plot([curve.found], [curve.error.min()], marker, color=RED, markersize=9)
        ax.set_xlim(1e-16, 1)
        ax.set_ylim(1e-12, 10)
        ax.minorticks_off()
        ax.set_xlabel("step ε")
        ax.set_ylabel("largest error")
        ax.set_title(dtype)
        ax.legend(loc="lower left")
        return fig

    def alt(dtype: str) -> str:
        one, two = (difference_errors(kinds[dtype], central) for central in (False, True))
        return (
            f"In {dtype} the one-sided error is least, {one.error.min():.1e}, at a step of {one.found:.1e}; the "
            f"central one "
            f"{two.error.min():.1e} at {two.found:.1e}. Both rise to the left and to the right."
        )

    return explore(
        draw,
        alt=alt,
        caption="Right branches: truncation, steeper for the central difference. Left branches: rounding, alike for "
        "both. Dotted lines are the predicted best steps, red marks the best ones found.",
        labels={"dtype": "dtype"},
        dtype=list(kinds),
    )
