"""Exercises of chapter 7 on slopes and Jacobians: activations, a chain, a graph, a Hessian."""

from __future__ import annotations

import functools
import itertools

import numpy as np

from labsupport.grading import Case, Exercise, Formula, Function, Mistake, Number, Tolerance
from labsupport.grading.shorthand import in_notebook

Array = np.ndarray


def _silu(x: float) -> float:
    return float(x / (1 + np.exp(-x)))


activation_slopes = Formula(
    **in_notebook("7.1"),
    id="silu-slope",
    title="Derivative of an activation",
    level="medium",
    prompt="SiLU is $f(x) = x\\,\\sigma(x)$ with the sigmoid $\\sigma(x) = 1/(1 + e^{-x})$. Give its derivative as a "
    "function of `x`.",
    contract="`x`: a float between −4 and 4. Result: a float.",
    hints=(
        "A product: the first factor's rate times the second, plus the other way round.",
        "$\\sigma' = \\sigma(1-\\sigma)$.",
    ),
    checklist=(11,),
    oracle=lambda x: (s := 1 / (1 + np.exp(-x))) + x * s * (1 - s),
    sample=lambda rng: (float(rng.uniform(-4, 4)),),
    tolerance=Tolerance(c=2.0**10, scale=lambda x: 1.0),  # tells a formula from a difference quotient
    mistakes=(
        Mistake(
            name="difference-quotient",
            answer=lambda x: (_silu(x + 1e-5) - _silu(x - 1e-5)) / 2e-5,
            message="That is a difference quotient: a good estimate, and no formula. Use the product rule.",
        ),
        Mistake(
            name="first-factor-only",
            answer=lambda x: 1 / (1 + np.exp(-x)),
            message="This is the rate with the sigmoid held fixed. The sigmoid moves with x, too.",
        ),
        Mistake(
            name="second-factor-only",
            answer=lambda x: x * (s := 1 / (1 + np.exp(-x))) * (1 - s),
            message="This is the rate with the factor x held fixed. That factor moves, too.",
        ),
        Mistake(
            name="product-of-rates",
            answer=lambda x: (s := 1 / (1 + np.exp(-x))) * (1 - s),
            message="The derivative of a product is not the product of the derivatives.",
        ),
        Mistake(
            name="relu", answer=lambda x: float(x > 0), message="This is the derivative of ReLU, which SiLU smooths."
        ),
    ),
    accept=(lambda x: (1 + np.exp(-x) + x * np.exp(-x)) / (1 + np.exp(-x)) ** 2,),
)


def _vjp_chain(matrices: list[Array], v: Array) -> Array:
    for J in reversed(matrices):
        v = v @ J
    return v


def _vjp_cases(rng: np.random.Generator) -> list[Case]:
    def case(*sizes: int) -> tuple[list[Array], Array]:
        return [rng.normal(size=(o, i)) for i, o in itertools.pairwise(sizes)], rng.normal(size=sizes[-1])

    return [
        Case(args=case(3, 4, 2), label="two stages, 3 -> 4 -> 2"),
        Case(args=case(3, 3, 3, 3), label="three square stages"),
        Case(args=case(2, 5), label="one stage"),
        Case(args=case(4, 3, 5, 1), label="three stages to one output"),
        Case(args=case(3000, 1, 3000), label="from 3000 through 1 to 3000"),
    ]


vector_jacobian = Function(
    **in_notebook("7.4"),
    id="vector-jacobian",
    title="A cotangent through a chain",
    level="medium",
    prompt="`jacobians[k]`, of shape (outputs, inputs), belongs to stage $k$ of a chain; stage 0 runs first. Write "
    "`pull_back(jacobians, v)`: the gradient by the chain's input, given the cotangent `v` of its output. "
    "Multiply a vector "
    "with a matrix, never two matrices.",
    contract="`jacobians`: a list of float64 matrices that fit; `v`: one axis. Result: one axis, as long as the "
    "chain's input.",
    hints=(
        "Which stage does the cotangent meet first?",
        "A cotangent is a row vector: it stands on the left of the matrix.",
    ),
    checklist=(11,),
    oracle=_vjp_chain,
    cases=_vjp_cases,
    tolerance=Tolerance(
        c=16,
        depth=lambda jacobians, v: sum(len(J) for J in jacobians),
        scale=lambda jacobians, v: float(_vjp_chain([np.abs(J) for J in jacobians], np.abs(v)).max()),
    ),
    held=lambda jacobians, v: 10_000_000 if len(v) == 3000 else None,
    mistakes=(
        Mistake(
            name="matrices-first",
            answer=lambda jacobians, v: v @ functools.reduce(np.matmul, jacobians[::-1]),
            message="You multiplied the matrices with each other. From 3000 through 1 to 3000 that makes nine million "
            "numbers, where a vector passes 3000.",
        ),
        Mistake(
            name="first-stage-first",
            answer=lambda jacobians, v: _vjp_chain(jacobians[::-1], v),
            message="You met the first stage first. A cotangent starts at the output and goes back.",
        ),
        Mistake(
            name="tangent",
            answer=lambda jacobians, v: _jvp_backwards(jacobians, v),
            message="You put the vector on the right of the matrix. That carries a tangent; a cotangent stands "
            "on the left.",
        ),
        Mistake(
            name="last-stage-only",
            answer=lambda jacobians, v: v @ jacobians[-1],
            message="You stopped after one stage.",
        ),
        Mistake(
            name="ones",
            answer=lambda jacobians, v: _vjp_chain(jacobians, np.ones_like(v)),
            message="You put ones in the place of the cotangent.",
        ),
    ),
    accept=(
        lambda jacobians, v: _transposed_chain(jacobians, v),
        lambda jacobians, v: np.linalg.multi_dot([v, *jacobians[::-1]]),
    ),
)


def _jvp_backwards(jacobians: list[Array], v: Array) -> Array:
    for J in reversed(jacobians):
        v = J @ v
    return v


def _transposed_chain(jacobians: list[Array], v: Array) -> Array:
    for J in jacobians[::-1]:
        v = J.T @ v
    return v


def _sweep(parents: list[tuple[int, ...]], local: list[tuple[float, ...]]) -> Array:
    grads = np.zeros(len(parents))
    grads[-1] = 1
    for node in range(len(parents) - 1, -1, -1):
        for parent, slope in zip(parents[node], local[node], strict=True):
            grads[parent] += slope * grads[node]
    return grads


def _sweep_assigning(parents: list[tuple[int, ...]], local: list[tuple[float, ...]]) -> Array:
    grads = np.zeros(len(parents))
    grads[-1] = 1
    for node in range(len(parents) - 1, -1, -1):
        for parent, slope in zip(parents[node], local[node], strict=True):
            grads[parent] = slope * grads[node]
    return grads


def _sweep_forwards(parents: list[tuple[int, ...]], local: list[tuple[float, ...]]) -> Array:
    grads = np.zeros(len(parents))
    grads[-1] = 1
    for node in range(len(parents)):
        for parent, slope in zip(parents[node], local[node], strict=True):
            grads[parent] += slope * grads[node]
    return grads


def _sweep_unscaled(parents: list[tuple[int, ...]], local: list[tuple[float, ...]]) -> Array:
    grads = np.zeros(len(parents))
    grads[-1] = 1
    for node in range(len(parents) - 1, -1, -1):
        for parent, slope in zip(parents[node], local[node], strict=True):
            grads[parent] += slope
    return grads


def _sweep_cases(rng: np.random.Generator) -> list[Case]:
    fork_parents: list[tuple[int, ...]] = [(), (), (0, 1), (2, 0), (3,)]
    fork_local: list[tuple[float, ...]] = [(), (), (3.0, 2.0), (1.0, 1.0), (16.0,)]
    chain_parents: list[tuple[int, ...]] = [(), (0,), (1,), (2,)]
    chain_local = [(), *((float(s),) for s in rng.normal(size=3))]
    square_parents: list[tuple[int, ...]] = [(), (0, 0), (1, 0)]
    diamond: list[tuple[int, ...]] = [(), (0,), (0,), (1, 2), (3, 0)]
    slopes = [tuple(float(s) for s in rng.normal(size=len(p))) for p in diamond]
    return [
        Case(args=(fork_parents, fork_local), label="the fork of section 7.5"),
        Case(args=(chain_parents, chain_local), label="a chain of four"),
        Case(args=(square_parents, [(), (1.5, 1.5), (1.5, 2.25)]), label="a value multiplied with itself"),
        Case(args=(diamond, slopes), label="a diamond and a short cut"),
        Case(args=([()], [()]), label="a single value"),
    ]


graph_sweep = Function(
    **in_notebook("7.5"),
    id="graph-sweep",
    title="One sweep over a graph",
    level="medium",
    points=2,
    prompt="Values are numbered so that each comes after those that it was computed from; the last one is the "
    "output. Write "
    "`sweep(parents, local)`: the derivative of the output by every value.",
    contract="`parents[n]`: a tuple of numbers below n, a number may appear twice; `local[n]`: as many "
    "derivatives of value n by "
    "those parents. Result: a list or array of one float a value.",
    hints=(
        "The derivative of the output by itself is 1. All others start at 0.",
        "Walk from the last value to the first, and hand each value's gradient on to its parents.",
        "A parent may receive from several values: add.",
    ),
    checklist=(11,),
    oracle=_sweep,
    cases=_sweep_cases,
    lists=True,
    tolerance=Tolerance(c=16, depth=8),
    mistakes=(
        Mistake(
            name="assigned",
            answer=_sweep_assigning,
            message="You overwrote a gradient that was there already. Paths that meet in a value add up.",
        ),
        Mistake(
            name="wrong-direction",
            answer=_sweep_forwards,
            message="You walked from the inputs to the output. A value's gradient is complete only after all "
            "its users.",
        ),
        Mistake(
            name="not-multiplied",
            answer=_sweep_unscaled,
            message="You handed on the local derivative alone. It is multiplied with the gradient that has arrived.",
        ),
    ),
)


def _hvp_logistic(X: Array, w: Array, v: Array) -> Array:
    s = 1 / (1 + np.exp(-(X @ w)))
    return X.T @ (s * (1 - s) * (X @ v))


def _hvp_cases(rng: np.random.Generator) -> list[Case]:
    def case(n: int, d: int) -> tuple[Array, Array, Array]:
        return rng.normal(size=(n, d)), rng.normal(size=d), rng.normal(size=d)

    X, w, v = case(2, 1_000_000)  # a Hessian of this size raises MemoryError at once, and the kernel lives
    return [
        Case(args=case(6, 3), label="6 rows, 3 weights"),
        Case(args=case(4, 4), label="4 rows, 4 weights"),
        Case(args=case(1, 2), label="one row"),
        Case(args=(X / 1000, w, v), label="1000000 weights: a Hessian would take 8 TB"),
    ]


hessian_vector = Function(
    **in_notebook("7.3"),
    id="hessian-vector",
    title="A Hessian times a vector",
    level="hard",
    points=2,
    prompt="The loss is $L(w) = \\sum_i \\log(1 + e^{x_i \\cdot w})$; its gradient is $X^{\\mathsf T} "
    "\\sigma(Xw)$. Write "
    "`hvp(X, w, v)`: the product $Hv$ with the Hessian, in O(N d) memory.",
    contract="`X`: (N, d), `w`, `v`: (d,), float64, d up to 1000000. Result: shape (d,), exact but for rounding: a "
    "difference of two gradients keeps only half of the digits.",
    hints=(
        "$H v$ is the rate at which the gradient changes when $w$ moves along $v$.",
        "$Xw$ then changes by $Xv$, and the sigmoid by its slope times that.",
        "No matrix but `X` is needed: two products with vectors.",
    ),
    checklist=(11,),
    oracle=_hvp_logistic,
    cases=_hvp_cases,
    tolerance=Tolerance(
        c=64,
        depth=lambda X, w, v: X.shape[0] + min(X.shape[1], 64),
        scale=lambda X, w, v: float((np.abs(X).T @ (0.25 * (np.abs(X) @ np.abs(v)))).max()),
    ),
    mistakes=(
        Mistake(
            name="no-curvature",
            answer=lambda X, w, v: X.T @ (X @ v),
            message="The slope of the sigmoid is missing: this is the Hessian of a squared error.",
        ),
        Mistake(
            name="sigmoid-itself",
            answer=lambda X, w, v: X.T @ (1 / (1 + np.exp(-(X @ w))) * (X @ v)),
            message="You used the sigmoid. Its slope is due, since the gradient is differentiated once more.",
        ),
        Mistake(
            name="gradient",
            answer=lambda X, w, v: X.T @ (1 / (1 + np.exp(-(X @ w)))),
            message="This is the gradient. The direction has not been used.",
        ),
        Mistake(
            name="slope-at-direction",
            answer=lambda X, w, v: X.T @ ((s := 1 / (1 + np.exp(-(X @ v)))) * (1 - s) * (X @ w)),
            message="Point and direction are in each other's place.",
        ),
    ),
    accept=(
        lambda X, w, v: (X.T * (0.25 / np.cosh((X @ w) / 2) ** 2)) @ (X @ v),
        lambda X, w, v: sum(x * (x @ v) / (2 + np.exp(x @ w) + np.exp(-(x @ w))) for x in X),
    ),
)

_N = 4_120_768

hessian_bytes = Number(
    **in_notebook("7.3"),
    id="hessian-bytes",
    title="Bytes of a Hessian",
    level="easy",
    prompt=f"A small model has {_N:,} parameters. How many bytes would its full Hessian take in float32? Answer "
    f"with a unit.",
    hints=("One entry for each **pair** of parameters.", "The number of parameters squared, four bytes each."),
    expected=4 * _N**2,
    unit="B",
    default_unit="B",
    mistakes=(
        Mistake(name="gradient", answer=(4 * _N, "B"), message="That is the gradient. The Hessian is a square table."),
        Mistake(name="elements", answer=(_N**2, "B"), message="This is the number of entries, not of bytes."),
        Mistake(name="triangle", answer=(2 * _N**2, "B"), message="Symmetry would save half. The full table is asked."),
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    activation_slopes,
    hessian_bytes,
    hessian_vector,
    vector_jacobian,
    graph_sweep,
)
