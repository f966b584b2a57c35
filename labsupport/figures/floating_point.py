"""Figures of chapter 9: spacing and range of formats, lost updates, sums and variances raced, Hilbert, scaling.

Every number drawn is computed by ``labsupport.ops.floats`` and ``labsupport.ops.reductions`` or in exact fractions.
This file must never call a BLAS or LAPACK routine where its last bits could be seen.
"""

from fractions import Fraction
from functools import cache
from math import comb
from typing import Any

import numpy as np

from labsupport.figures import explore, show, style, svg
from labsupport.figures.explorable import Explorable, Figure
from labsupport.ops.floats import BF16, E4M3, E5M2, FORMATS, FP16, FP32, FloatFormat
from labsupport.ops.reductions import (
    error_bound,
    matmul_accumulated,
    sum_kahan,
    sum_neumaier,
    sum_pairwise,
    sum_serial,
    variance_merged,
    variance_naive,
    variance_two_pass,
)

BLUE, ORANGE, GREEN, PURPLE, RED, GREY = style.PALETTE
SUMS = {"serial": sum_serial, "pairwise": sum_pairwise, "kahan": sum_kahan, "neumaier": sum_neumaier}
SHOWN = {FP32: BLUE, FP16: ORANGE, BF16: GREEN, E4M3: PURPLE, E5M2: RED}
BY_NAME = {fmt.name: fmt for fmt in FORMATS}


def spacing() -> Explorable:
    """The distance between neighbouring numbers against their size, for five formats, with a movable number."""
    exponents = np.arange(-26, 22)

    def draw(x: float) -> Any:
        fig, ax = style.new(5.2, 4.2)
        for fmt, color in SHOWN.items():
            gap = np.asarray(fmt.ulp(2.0**exponents))
            ax.step(exponents, np.log2(gap), where="post", color=color, label=fmt.name)
        ax.axvline(np.log2(x), color="k", linewidth=1)
        ax.set_xlim(-26, 21)
        ax.set_ylim(-50, 24)
        ax.set_xticks([-24, -16, -8, 0, 8, 16], [f"$2^{{{k}}}$" for k in (-24, -16, -8, 0, 8, 16)])
        ax.set_yticks([-48, -32, -16, 0, 16], [f"$2^{{{k}}}$" for k in (-48, -32, -16, 0, 16)])
        ax.set_xlabel("magnitude of the number")
        ax.set_ylabel("distance to the next one")
        ax.legend(loc="upper left", ncols=3)
        return fig

    def alt(x: float) -> str:
        gaps = [f"{fmt.name} {float(fmt.ulp(x)):.3g}" if x <= fmt.max else f"{fmt.name} overflows" for fmt in SHOWN]
        return f"At {x:g} the distance to the next number is: {', '.join(gaps)}."

    return explore(
        draw,
        alt=alt,
        caption="Each step up is one power of two: twice the size, twice the spacing. A flat end on the left is the "
        "range of the subnormals; a line that ends on the right has overflowed.",
        start={"x": 1.0},
        labels={"x": "number"},
        x=[2.0**k for k in (-20, -14, -10, -6, 0, 4, 8, 11, 15)] + [100_000.0, 2.0**20],
    )


def range_and_precision() -> Figure:
    """Range as a bar from the smallest to the largest number, precision as decimal digits beside it."""
    fig, ax = style.new(5.2, 3.6)
    for row, fmt in enumerate(FORMATS[::-1]):
        low, normal, high = (np.log10(v) for v in (fmt.min_subnormal, fmt.min_normal, fmt.max))
        ax.barh(row, high - normal, left=normal, color=BLUE, height=0.55)
        ax.barh(row, normal - low, left=low, color=ORANGE, height=0.55, hatch="///")
        ax.text(42, row, f"{-np.log10(fmt.eps / 2):.1f} digits", va="center")
    ax.set_yticks(range(6), [fmt.name for fmt in FORMATS[::-1]])
    ax.set_xlim(-48, 68)
    ax.set_xticks([-40, -20, 0, 20, 40], [f"$10^{{{k}}}$" for k in (-40, -20, 0, 20, 40)])
    ax.set_xlabel("magnitude")
    return show(
        fig,
        alt="FP32, TF32 and BF16 span nearly the same range of 76 decades and more, with 7.2, 3.3 and 2.4 digits; "
        "FP16 spans 12 decades with 3.3 digits; the FP8 formats less, with 1.2 and 0.9 digits.",
        caption="Length is range, the number beside it is precision: the two are bought with different bits. Hatched: "
        "subnormals.",
    )


def _weights(update: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The BF16 weight and the BF16 copy of an FP32 master weight after each of the steps, from 1."""
    plain, master = np.ones(steps + 1), np.ones(steps + 1)
    for k in range(steps):
        plain[k + 1] = BF16.round(plain[k] + BF16.round(update))
        master[k + 1] = FP32.round(master[k] + FP32.round(update))
    return plain, np.asarray(BF16.round(master))


def master_weights() -> Explorable:
    """A weight of 1 that receives the same small update 200 times, kept in BF16 or in FP32."""

    def draw(update: float) -> Any:
        plain, master = _weights(update, 200)
        fig, ax = style.new(5.2, 3.6)
        ax.step(range(201), master, where="post", color=BLUE, label="FP32 master, BF16 copy")
        ax.plot(range(201), plain, color=RED, label="BF16 weight alone")
        ax.plot([0, 200], [1, 1 + 200 * update], color=GREY, linestyle=":", label="exact")
        ax.set_ylim(0.9, 2.4)
        ax.set_xlim(0, 200)
        ax.set_xlabel("step")
        ax.set_ylabel("weight")
        ax.legend(loc="upper left")
        return fig

    def alt(update: float) -> str:
        plain, master = _weights(update, 200)
        return (
            f"After 200 updates of {update:g} the exact weight is {1 + 200 * update:g}; the BF16 weight is "
            f"{plain[-1]:g} and the copy of the FP32 master is {master[-1]:g}."
        )

    return explore(
        draw,
        alt=alt,
        caption="Below half a spacing, 0.0039, the BF16 weight never moves. The FP32 master collects the updates, and "
        "its BF16 copy steps when a whole spacing has come together.",
        start={"update": 0.002},
        labels={"update": "update per step"},
        update=[0.0005, 0.001, 0.002, 0.0038, 0.004, 0.005, 0.006],
    )


def serial_and_tree() -> Figure:
    """Eight numbers added in a chain of depth 7 and in a tree of depth 3."""
    pieces = []
    left = [30 + 40 * i for i in range(8)]
    pieces.append(svg.text(20, 18, "serial: 7 additions in a row", size=14, anchor="start"))
    at = left[0], 50.0
    for i in range(8):
        pieces.append(svg.circle(left[i], 50, 11, f"{i + 1}"))
    for i in range(1, 8):
        node = left[i], 60.0 + 22 * i
        pieces += [svg.line([at, node], color="blue"), svg.line([(left[i], 61), node], color="grey")]
        pieces.append(svg.circle(node[0], node[1], 6, "", color="blue"))
        at = node
    pieces.append(svg.text(20, 252, "tree: 3 levels", size=14, anchor="start"))
    level = [(float(x), 284.0) for x in left]
    pieces += [svg.circle(x, y, 11, f"{i + 1}") for i, (x, y) in enumerate(level)]
    while len(level) > 1:
        parents = [((a[0] + b[0]) / 2, a[1] + 40) for a, b in zip(level[::2], level[1::2], strict=True)]
        for i, parent in enumerate(parents):
            pieces += [svg.line([child, parent], color="orange") for child in level[2 * i : 2 * i + 2]]
            pieces.append(svg.circle(parent[0], parent[1], 6, "", color="orange"))
        level = parents
    return show(
        svg.picture(350, 420, *pieces),
        alt="Added in a chain, the first of eight numbers passes seven additions; in a tree every number passes three.",
        caption="The number of roundings that one term passes is the length of its path to the result: $n - 1$ in a "
        "chain, $\\lceil\\log_2 n\\rceil$ in a tree.",
    )


#: Lengths of the race.
LENGTHS = (16, 64, 256, 1024, 4096)
ORDERS = ("as drawn", "ascending", "descending", "random signs")
_NATIVE: dict[str, Any] = {"FP16": np.float16, "FP32": np.float32}


@cache
def race(name: str, n: int) -> dict[str, np.ndarray]:
    """Error over Σ|x| of each algorithm, for the orders of ``ORDERS``, on n numbers in [0, 1) of one format."""
    fmt = BY_NAME[name]
    rng = np.random.default_rng(n)
    drawn = np.asarray(fmt.round(rng.uniform(size=n)))
    signs = drawn * rng.choice([-1.0, 1.0], n)
    rows = np.stack([drawn, np.sort(drawn), np.sort(drawn)[::-1], signs])
    exact = np.array([float(sum(map(Fraction, row))) for row in rows])
    # float16 and float32 arrays round after every operation as FP16 and FP32 do, and much faster.
    x, native = (rows.astype(_NATIVE[name]), None) if name in _NATIVE else (rows, fmt)
    return {
        key: np.abs(np.asarray(algorithm(x, native), np.float64) - exact) / np.abs(rows).sum(-1)
        for key, algorithm in SUMS.items()
    }


def sum_race() -> Explorable:
    """Error of four summation algorithms against the number of terms, with each one's bound as a thin line."""

    def draw(format: str, order: str) -> Any:
        fmt, row = BY_NAME[format], ORDERS.index(order)
        fig, ax = style.new(5.2, 4.4)
        for (key, _), color, mark in zip(SUMS.items(), (RED, BLUE, GREEN, PURPLE), "osD^", strict=True):
            errors = [race(format, n)[key][row] for n in LENGTHS]
            bounds = [error_bound(key, n, fmt.eps / 2) for n in LENGTHS]
            ax.loglog(LENGTHS, np.maximum(errors, 1e-10), mark + "-", color=color, label=key, markersize=6)
            ax.loglog(LENGTHS, [b if b < 1 else np.nan for b in bounds], ":", color=color)
        ax.set_xlim(12, 5500)
        ax.set_ylim(5e-11, 3)
        ax.set_xticks(LENGTHS, [str(n) for n in LENGTHS])
        ax.minorticks_off()
        ax.set_xlabel("number of terms")
        ax.set_ylabel("error / sum of magnitudes")
        ax.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=2)
        return fig

    def alt(format: str, order: str) -> str:
        errors = ", ".join(f"{key} {race(format, 4096)[key][ORDERS.index(order)]:.1e}" for key in SUMS)
        return f"{format}, {order}, 4096 terms: error over the sum of magnitudes is {errors}."

    return explore(
        draw,
        alt=alt,
        caption="Points are errors, dotted lines of the same colour the bounds; a bound above 1 says nothing and is "
        "left out. Errors of 0 lie on the lower edge.",
        start={"format": "BF16", "order": "as drawn"},
        labels={"format": "format", "order": "order"},
        format=["FP16", "BF16", "FP32"],
        order=list(ORDERS),
    )


def _merged(x: np.ndarray) -> Any:
    return variance_merged(x, 16)


def _welford(x: np.ndarray) -> Any:
    return variance_merged(x, 1)


VARIANCES = {"naive": variance_naive, "two-pass": variance_two_pass, "Welford": _welford, "merged": _merged}


@cache
def variance_errors(dtype: str, power: int) -> dict[str, float]:
    """Relative error of each variance on 200 numbers of spread 1 around 10**power; the truth in exact fractions."""
    data = (10.0**power + np.random.default_rng(7).normal(size=200)).astype(dtype)
    exact = [Fraction(float(v)) for v in data]
    mean = sum(exact) / len(exact)
    truth = float(sum((v - mean) ** 2 for v in exact) / len(exact))
    return {name: abs(float(f(data)) - truth) / truth if truth else float("nan") for name, f in VARIANCES.items()}


def variance_race() -> Explorable:
    """Relative error of four variance algorithms against the mean of the data."""

    def draw(dtype: str) -> Any:
        powers = range(0, 7) if dtype == "float32" else range(0, 14)
        fig, ax = style.new(5.2, 4.0)
        for name, color, mark in zip(VARIANCES, (RED, BLUE, GREEN, PURPLE), "osD^", strict=True):
            errors = [max(variance_errors(dtype, k)[name], 1e-17) for k in powers]
            ax.semilogy(powers, errors, mark + "-", color=color, label=name, markersize=6)
        ax.axhline(1, color="k", linewidth=1)
        ax.text(0, 3, "no digit is right", va="bottom")
        ax.set_xlim(-0.5, 13.5)
        ax.set_ylim(1e-18, 1e14)
        ax.set_yticks([1e-15, 1e-10, 1e-5, 1, 1e5, 1e10])
        ax.set_xticks([0, 2, 4, 6, 8, 10, 12], [f"$10^{{{k}}}$" for k in (0, 2, 4, 6, 8, 10, 12)])
        ax.set_xlabel("mean of the data (spread 1)")
        ax.set_ylabel("relative error of the variance")
        ax.legend(loc="upper left", ncols=2)
        return fig

    def alt(dtype: str) -> str:
        power = 4 if dtype == "float32" else 8
        errors = ", ".join(f"{name} {value:.0e}" for name, value in variance_errors(dtype, power).items())
        return f"{dtype}, mean 1e{power}, spread 1: relative errors are {errors}."

    return explore(
        draw,
        alt=alt,
        caption="The naive error grows with the square of the mean, the others with the mean at most. Welford's "
        "merged blocks lie beside the single pass, now a little above it, now a little below.",
        start={"dtype": "float32"},
        labels={"dtype": "dtype"},
        dtype=["float32", "float64"],
    )


def hilbert(n: int) -> list[list[Fraction]]:
    """The Hilbert matrix, H[i][j] = 1/(i + j + 1), exactly."""
    return [[Fraction(1, i + j + 1) for j in range(n)] for i in range(n)]


def hilbert_inverse(n: int) -> list[list[int]]:
    """Its inverse, whose entries are whole numbers (Savage and Lukacs, 1954)."""
    return [
        [
            (-1) ** (i + j)
            * (i + j + 1)
            * comb(n + i, n - j - 1)
            * comb(n + j, n - i - 1)
            * comb(i + j, i) ** 2
            for j in range(n)
        ]
        for i in range(n)
    ]


def hilbert_condition(n: int) -> float:
    """κ(H) in the ∞-norm, the largest row sum of H times that of its inverse, exactly."""
    largest = max(sum(row, Fraction(0)) for row in hilbert(n))
    return float(largest * max(sum(abs(v) for v in row) for row in hilbert_inverse(n)))


def solve_exactly(A: list[list[Fraction]], b: list[Fraction]) -> list[Fraction]:
    """Solve A x = b by elimination in fractions: no rounding at all."""
    rows = [[*row, value] for row, value in zip(A, b, strict=True)]
    n = len(rows)
    for k in range(n):
        pivot = next(i for i in range(k, n) if rows[i][k])
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [value / rows[k][k] for value in rows[k]]
        for i in range(n):
            if i != k and rows[i][k]:
                rows[i] = [value - rows[i][k] * top for value, top in zip(rows[i], rows[k], strict=True)]
    return [row[-1] for row in rows]


@cache
def hilbert_error(n: int, dtype: str) -> float:
    """Relative change of the exact solution (all ones) when the entries of H alone are rounded to a dtype."""
    H = hilbert(n)
    b = [sum(row, Fraction(0)) for row in H]
    rounded = [[Fraction(float(np.dtype(dtype).type(float(v)))) for v in row] for row in H]
    return float(max(abs(v - 1) for v in solve_exactly(rounded, b)))


def hilbert_sensitivity() -> Explorable:
    """How far the exact solution of a Hilbert system moves when only its entries are rounded."""

    def draw(dtype: str) -> Any:
        sizes = range(2, 13)
        u = float(np.finfo(dtype).eps) / 2
        fig, ax = style.new(5.2, 3.8)
        ax.semilogy(sizes, [hilbert_condition(n) * u for n in sizes], "--", color=GREY, label="κ·u")
        ax.semilogy(sizes, [hilbert_error(n, dtype) for n in sizes], "o-", color=BLUE, label="change of x")
        ax.axhline(1, color="k", linewidth=1)
        ax.text(12.2, 2, "no digit left", ha="right", va="bottom")
        ax.set_ylim(1e-17, 1e11)
        ax.set_yticks([1e-15, 1e-10, 1e-5, 1, 1e5, 1e10])
        ax.set_xlim(1.7, 12.3)
        ax.set_xlabel("size n of the Hilbert matrix")
        ax.set_ylabel("relative change")
        ax.legend(loc="upper left")
        return fig

    def alt(dtype: str) -> str:
        u = float(np.finfo(dtype).eps) / 2
        lost = next((n for n in range(2, 13) if hilbert_condition(n) * u >= 1), 13)
        last = f"reaches 1 at n = {lost}" if lost < 13 else "stays below 1"
        return f"In {dtype} the product of condition number and rounding unit {last}; the solution moves with it."

    return explore(
        draw,
        alt=alt,
        caption="Only the input was rounded; the system was then solved in exact fractions. The change grows "
        "with $\\kappa u$ until no digit is left; 29 more bits move that wall and do not remove it.",
        start={"dtype": "float32"},
        labels={"dtype": "entries rounded to"},
        dtype=["float32", "float64"],
    )


@cache
def product_error(data: str, accumulator: str, K: int) -> float:
    """Largest error of an (8, K) by (K, 8) product with FP16 inputs, over Σ|a·b|, for one accumulator format."""
    rng = np.random.default_rng(K)
    draw = rng.uniform if data == "positive" else rng.normal
    A, B = (np.asarray(FP16.round(draw(size=shape))) for shape in ((8, K), (K, 8)))
    products = A[:, :, None] * B[None]
    # Sums of at most 4096 products of 22 bits: a float64 holds them to far more digits than are drawn.
    exact, size = products.sum(1), np.abs(products).sum(1)
    return float((np.abs(matmul_accumulated(A, B, FP16, BY_NAME[accumulator]) - exact) / size).max())


def accumulators() -> Explorable:
    """Error of a product of FP16 matrices against its depth K, by the format of the running sum."""
    depths = (16, 64, 256, 1024, 4096)

    def draw(data: str) -> Any:
        fig, ax = style.new(5.2, 3.8)
        for name, color, mark in (("BF16", GREEN, "D"), ("FP16", ORANGE, "s"), ("FP32", BLUE, "o")):
            errors = [product_error(data, name, K) for K in depths]
            ax.loglog(depths, errors, mark + "-", color=color, label=f"{name} accumulator")
        ax.set_ylim(1e-9, 1e4)
        ax.set_yticks([1e-9, 1e-6, 1e-3, 1])
        ax.set_xlim(12, 5500)
        ax.set_xticks(depths, [str(K) for K in depths])
        ax.minorticks_off()
        ax.set_xlabel("K, the depth of the product")
        ax.set_ylabel("largest error / sum of |a·b|")
        ax.legend(loc="upper left")
        return fig

    def alt(data: str) -> str:
        values = ", ".join(f"{name} {product_error(data, name, 4096):.1e}" for name in ("BF16", "FP16", "FP32"))
        return f"Inputs {data}, K = 4096: the largest relative error by accumulator is {values}."

    return explore(
        draw,
        alt=alt,
        caption="The inputs are the same FP16 numbers each time. Only the format of the running sum differs, and it "
        "decides.",
        start={"data": "positive"},
        labels={"data": "inputs"},
        data=["positive", "of both signs"],
    )


@cache
def gradients() -> np.ndarray:
    """All gradients of the first step of a small regression with small targets, in float64."""
    rng = np.random.default_rng(0)
    X, W1, W2 = rng.normal(size=(512, 16)), rng.normal(size=(16, 32)) / 4, rng.normal(size=(32, 8)) / 4
    H = np.tanh(X @ W1)
    dY = 2e-4 * (H @ W2 - np.sin(X @ rng.normal(size=(16, 8)) / 4)) / (512 * 8)
    dH = 1e-4 * dY @ W2.T
    return np.concatenate([dY.ravel(), dH.ravel(), (X.T @ (dH * (1 - H * H))).ravel(), (1e-4 * H.T @ dY).ravel()])


def scaled_share(power: int) -> tuple[float, float]:
    """Shares of the gradients that are 0 and that are infinite in FP16 after a scale of 2**power."""
    g = np.asarray(FP16.round(gradients() * 2.0**power))
    return float((g == 0).mean()), float(np.isinf(g).mean())


def loss_scale() -> Explorable:
    """The gradients' magnitudes on a logarithmic axis, pushed by the loss scale into the range of FP16."""
    low, high = np.log2(FP16.min_subnormal) - 1, np.log2(FP16.max)

    def draw(power: int) -> Any:
        fig, ax = style.new(5.2, 3.6)
        sizes = np.log2(np.abs(gradients())) + power
        counts, edges = np.histogram(sizes, bins=np.arange(-64, 65, 2))
        ax.bar(edges[:-1], counts / counts.sum(), width=2, align="edge", color=BLUE)
        for place in (low, high):
            ax.axvline(place, color="k", linestyle="--")
        ax.text(low - 1, 0.44, "becomes 0", ha="right", va="top")
        ax.text((low + high) / 2, 0.44, "FP16", ha="center", va="top")
        ax.text(high + 1, 0.44, "becomes inf", va="top")
        ax.set_xlim(-64, 48)
        ax.set_ylim(0, 0.45)
        ax.set_xticks([-60, -40, -20, 0, 20, 40], [f"$2^{{{k}}}$" for k in (-60, -40, -20, 0, 20, 40)])
        ax.set_xlabel("magnitude of the scaled gradient")
        ax.set_ylabel("share")
        return fig

    def alt(power: int) -> str:
        zero, infinite = scaled_share(power)
        return f"With a loss scale of 2 to the {power}, {zero:.0%} of the gradients are 0 and {infinite:.0%} infinite."

    return explore(
        draw,
        alt=alt,
        caption="The scale moves all gradients to the right by the same distance. Too little and they are 0, too much "
        "and they are infinite; FP16 leaves a window of 40 powers of two.",
        start={"power": 0},
        labels={"power": "loss scale, power of two"},
        power=[0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52],
    )


def formats_table() -> str:
    """The table of formats, every entry computed, as text of at most 74 columns."""
    head = f"{'format':7}{'bits':>5}{'exp':>4}{'man':>4}{'max':>11}{'min normal':>12}{'min subn.':>11}{'eps':>10}"

    def line(fmt: FloatFormat) -> str:
        numbers = f"{fmt.max:>11.5g}{fmt.min_normal:>12.3g}{fmt.min_subnormal:>11.3g}{fmt.eps:>10.3g}"
        return f"{fmt.name:7}{fmt.bits:5}{fmt.exponent_bits:4}{fmt.mantissa_bits:4}{numbers}"

    return "\n".join([head, *map(line, FORMATS)])
