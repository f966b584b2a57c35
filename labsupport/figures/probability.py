"""Figures of chapter 4: distributions and their samples, intervals, Bayes, dependence, noise, covariance, underflow.

Every sample is drawn from a seeded generator and every curve is computed by `labsupport.ops.probability`. No figure
may show a number that the chapter's operators did not give.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from labsupport.figures import style, svg
from labsupport.figures.explorable import Explorable, Figure, explore, show
from labsupport.ops.probability import (
    Bernoulli,
    Categorical,
    Normal,
    Uniform,
    correlation,
    covariance,
    posterior,
    principal_axes,
)

NEXT_TOKEN = Categorical(np.array([0.05, 0.4, 0.1, 0.3, 0.15]))


def distributions() -> Explorable:
    """Four distributions, with the histogram of n samples over each."""

    def bars(ax: Any, law: Any, n: int, values: np.ndarray) -> None:
        draws = law.sample(np.random.default_rng(0), n)
        shares = [(draws == value).mean() for value in values]
        ax.bar(values, shares, width=0.6, color=style.PALETTE.blue, alpha=0.5)
        ax.plot(values, law.pmf(values), "o", color=style.PALETTE.orange)
        ax.set_xticks(values)
        ax.set_ylim(0, 0.95)

    def curve(ax: Any, law: Any, n: int, low: float, high: float) -> None:
        counts, edges = np.histogram(law.sample(np.random.default_rng(0), n), bins=np.linspace(low, high, 25))
        ax.stairs(counts / n / np.diff(edges), edges, fill=True, color=style.PALETTE.blue, alpha=0.5)
        x = np.linspace(low, high, 121)
        ax.plot(x, law.pdf(x), color=style.PALETTE.orange)
        ax.set_xlim(low, high)
        ax.set_ylim(0, 1)

    def draw(n: int) -> Any:
        fig, axes = style.new(5.2, 5.0, 2, 2)
        bars(axes[0, 0], Bernoulli(0.2), n, np.arange(2))
        bars(axes[0, 1], NEXT_TOKEN, n, np.arange(5))
        curve(axes[1, 0], Uniform(-1, 1), n, -1.5, 1.5)
        curve(axes[1, 1], Normal(0, 1), n, -4, 4)
        names = ("Bernoulli, p = 0.2", "Categorical, V = 5", "Uniform on [-1, 1)", "Normal(0, 1)")
        for ax, name in zip(axes.flat, names, strict=True):
            ax.set_title(name, fontsize=12)
        return fig

    return explore(
        draw,
        alt="Histograms of {n} samples over the exact probabilities of four distributions: Bernoulli, categorical, "
        "uniform and normal.",
        caption="Bars: shares and densities of the samples. Orange: the exact pmf or pdf. More samples, less "
        "disagreement.",
        start={"n": 100},
        labels={"n": "samples"},
        n=[30, 100, 1000, 30000],
    )


def interval() -> Explorable:
    """The probability of an interval as the area under the density of N(0, 1)."""
    law = Normal(0, 1)

    def inside(b: float) -> float:
        return float(law.cdf(b) - law.cdf(-b))

    def draw(b: float) -> Any:
        fig, ax = style.new(5.2, 3.4)
        x = np.linspace(-4, 4, 161)
        area = np.linspace(-b, b, 81)
        ax.fill([-b, *area, b], [0.0, *law.pdf(area), 0.0], color=style.PALETTE.blue, alpha=0.4)
        ax.plot(x, law.pdf(x), color="k")
        ax.set_xlim(-4, 4)
        ax.set_ylim(0, 0.45)
        ax.set_xlabel("$x$")
        ax.set_ylabel("density $p(x)$")
        ax.text(3.9, 0.4, f"area {inside(b):.4f}", ha="right")
        return fig

    return explore(
        draw,
        alt=lambda b: f"Between minus {b} and {b} the area under the normal density is {inside(b):.4f}.",
        caption="Probability is area. As the interval shrinks to a point, the area goes to zero; the density does not.",
        start={"b": 1.0},
        labels={"b": "half-width b"},
        b=[0.01, 0.1, 0.5, 1.0, 2.0, 3.0],
    )


def uncorrelated() -> Figure:
    """Y = X² beside a copy of the same Y with its order shuffled: the same marginals, both uncorrelated."""
    rng = np.random.default_rng(0)
    x = Uniform(-1, 1).sample(rng, 250)
    y = x**2
    shuffled = rng.permutation(y)
    fig, axes = style.new(5.2, 3.1, 1, 2, sharey=True)
    for ax, values, name in zip(axes, (y, shuffled), ("$Y = X^2$", "$Y$ shuffled"), strict=True):
        ax.plot(x, values, ".", markersize=4)
        ax.set_title(name)
        ax.set_xlabel("$X$")
        ax.set_xlim(-1.1, 1.1)
    axes[0].set_ylabel("$Y$")
    found = [correlation(np.stack([x, values], 1))[0, 1] for values in (y, shuffled)]
    return show(
        fig,
        alt=f"Left, the points of Y = X squared lie on a parabola; right, the same Y values in random order. The "
        f"correlations are small in both, {found[0]:.2f} and {found[1]:.2f}.",
        caption="The same two marginals twice, and next to no correlation in either. Only on the right does \\(X\\) "
        "tell nothing about \\(Y\\).",
    )


def bayes() -> Explorable:
    """Of 1000 documents: which are spam, which are flagged, and what a flag means."""

    def counts(prior: float, false_alarm: float) -> tuple[float, float, float]:
        return 1000 * prior * 0.9, 1000 * (1 - prior) * false_alarm, posterior_of(prior, false_alarm)

    def posterior_of(prior: float, false_alarm: float) -> float:
        return float(posterior([prior, 1 - prior], [0.9, false_alarm])[0])

    def draw(prior: float, false_alarm: float) -> str:
        hit, alarm, post = counts(prior, false_alarm)
        scale = 330 / 1000
        bad = 1000 * prior
        pieces = [
            svg.text(8, 18, "1000 documents", anchor="start", bold=True),
            svg.rect(8, 30, 330, 34, color="grey"),
            svg.rect(8, 30, max(1.5, bad * scale), 34, color="orange", fill="orange", tint=0.5),
            svg.text(8, 80, f"bad: {bad:.0f}", anchor="start", size=13, color="orange"),
            svg.text(338, 80, f"good: {1000 - bad:.0f}", anchor="end", size=13),
            svg.text(8, 116, "flagged", anchor="start", bold=True),
            svg.rect(8, 128, max(1.5, (hit + alarm) * scale), 34, color="grey"),
            svg.rect(8, 128, max(1.5, hit * scale), 34, color="orange", fill="orange", tint=0.5),
            svg.text(8, 178, f"bad: {hit:.1f}", anchor="start", size=13, color="orange"),
            svg.text(338, 178, f"good: {alarm:.1f}", anchor="end", size=13),
            svg.text(8, 214, f"p(bad | flagged) = {post:.3f}", anchor="start", size=16, bold=True),
        ]
        return svg.picture(348, 230, *pieces)

    def alt(prior: float, false_alarm: float) -> str:
        hit, alarm, post = counts(prior, false_alarm)
        return (
            f"Of 1000 documents {1000 * prior:.0f} are bad. {hit:.1f} bad and {alarm:.1f} good ones are flagged: "
            f"a flagged document is bad with probability {post:.3f}."
        )

    return explore(
        draw,
        alt=alt,
        caption="The filter flags 90 % of the bad documents throughout. What a flag means depends on how many bad "
        "ones there are, and on the false alarms.",
        start={"prior": 0.01, "false_alarm": 0.05},
        labels={"prior": "share of bad documents", "false_alarm": "false alarms"},
        prior=[0.001, 0.01, 0.05, 0.1, 0.3, 0.5],
        false_alarm=[0.001, 0.01, 0.05, 0.1],
    )


def sample_gradients(n: int = 4096) -> np.ndarray:
    """Gradients of n samples: squared error of a one-weight model y = w·x at w = 0, for targets 2x plus noise."""
    rng = np.random.default_rng(0)
    x = Normal(0, 1).sample(rng, n)
    y = 2 * x + Normal(0, 1).sample(rng, n)
    return -2 * x * y


def batch_spread(gradients: np.ndarray, B: int, batches: int, rng: np.random.Generator) -> float:
    """Standard deviation over `batches` of the mean gradient of B samples drawn with replacement."""
    return float(gradients[rng.integers(gradients.size, size=(batches, B))].mean(axis=1).std())


def gradient_noise() -> Figure:
    """Spread of the mini-batch gradient against the batch size, beside σ/sqrt(B)."""
    gradients = sample_gradients()
    rng = np.random.default_rng(1)
    sizes = 2 ** np.arange(11)
    spread = [batch_spread(gradients, int(B), 2000, rng) for B in sizes]
    fig, ax = style.new(5.2, 3.6)
    ax.loglog(sizes, gradients.std() / np.sqrt(sizes), label=r"$\sigma\,B^{-1/2}$")
    ax.loglog(sizes, spread, "o", color=style.PALETTE.orange, label="measured, 2000 batches")
    ax.minorticks_off()
    ax.set_yticks([0.25, 0.5, 1, 2, 4], ["0.25", "0.5", "1", "2", "4"])
    ax.set_xticks([1, 4, 16, 64, 256, 1024], ["1", "4", "16", "64", "256", "1024"])
    ax.set_xlabel("batch size $B$")
    ax.set_ylabel("std of the gradient")
    ax.legend(loc="upper right")
    return show(
        fig,
        alt="The measured standard deviation of the mini-batch gradient lies on the line sigma over the square root "
        "of B, from B = 1 to 1024.",
        caption="Four times the batch, half the noise.",
    )


def _cloud(rho: float) -> np.ndarray:
    """90 points (90, 2) of a pair with unit variances and correlation rho."""
    z = np.random.default_rng(5).normal(size=(90, 2))
    return np.stack([z[:, 0], rho * z[:, 0] + math.sqrt(1 - rho**2) * z[:, 1]], axis=1)


def covariance_cloud() -> Explorable:
    """A cloud of points for several correlations, with its principal axes drawn two standard deviations long."""

    def draw(rho: float) -> Any:
        x = _cloud(rho)
        variances, axes = principal_axes(x)
        fig, ax = style.new(4.6, 4.2)
        ax.plot(*x.T, ".", markersize=4)
        center = x.mean(axis=0)
        for k, colour in enumerate((style.PALETTE.orange, style.PALETTE.purple)):
            end = center + 2 * math.sqrt(variances[k]) * axes[:, k]
            ax.plot([center[0], end[0]], [center[1], end[1]], color=colour, linewidth=3, label=f"axis {k + 1}")
        ax.set_xlim(-3.6, 3.6)
        ax.set_ylim(-3.6, 3.6)
        ax.set_aspect("equal")
        ax.set_xlabel("$x_0$")
        ax.set_ylabel("$x_1$")
        ax.legend(loc="upper left")
        return fig

    def alt(rho: float) -> str:
        x = _cloud(rho)
        variances, _ = principal_axes(x)
        return (
            f"Correlation set to {rho}: the sample has covariance {covariance(x)[0, 1]:.2f}; the first principal axis "
            f"holds {variances[0] / variances.sum():.0%} of the variance."
        )

    return explore(
        draw,
        alt=alt,
        caption="The axes are the eigenvectors of the covariance matrix, two standard deviations long.",
        start={"rho": 0.8},
        labels={"rho": "correlation"},
        rho=[-0.9, -0.5, 0.0, 0.5, 0.8, 0.95],
    )


def _end(running: np.ndarray) -> str:
    """What becomes of a running product: the step after which it is 0, or that it does not move any more."""
    alive = int(np.count_nonzero(running))
    if alive < running.size:
        return f"after {alive}"
    return "never, but it stands still" if running[-1] == running[-2] else "never"


def underflow() -> Explorable:
    """The running product of T equal probabilities in three formats, and the running sum of logarithms."""
    formats = (("float16", np.float16), ("float32", np.float32), ("float64", np.float64))

    def products(p: float, dtype: Any, T: int) -> np.ndarray:
        return np.multiply.accumulate(np.full(T, p, dtype))

    def draw(p: float) -> Any:
        T = 400
        fig, (top, below) = style.new(5.2, 4.8, 2, 1, sharex=True)
        steps = np.arange(1, T + 1)
        for name, dtype in formats:
            value = products(p, dtype, T).astype(np.float64)
            alive = value > 0
            power = np.log10(value[alive])
            top.plot(steps[alive], power, label=name)
            if not alive.all():
                top.plot(steps[alive][-1], power[-1], "kx", markersize=7)
        top.set_ylim(-340, 10)
        top.set_ylabel("$\\log_{10}$ of product")
        top.legend(loc="lower left")
        below.plot(steps, np.cumsum(np.full(T, math.log(p))), color="k")
        below.set_ylim(-1000, 20)
        below.set_xlim(0, T)
        below.set_ylabel("sum of logs")
        below.set_xlabel("tokens $T$")
        return fig

    def alt(p: float) -> str:
        ends = ", ".join(f"{name} {_end(products(p, dtype, 400))}" for name, dtype in formats)
        return (
            f"Each token has probability {p}. Within 400 tokens the product is lost in: {ends}. The log-sum is a line."
        )

    return explore(
        draw,
        alt=alt,
        caption="A cross marks the last product that is not zero in its format. At 0.9 float16 never reaches zero: "
        "rounding holds it at one number, which is wrong too. The sum of logarithms goes on.",
        start={"p": 0.1},
        labels={"p": "probability of each token"},
        p=[0.9, 0.5, 0.1, 0.02],
    )
