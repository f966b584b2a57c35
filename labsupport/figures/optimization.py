"""Figures of chapter 8: batches, momentum, Adam's start, ZeRO, depth, initialisation, norms and their block, clipping.

Every number drawn is computed by ``labsupport.ops``, ``labsupport.cost`` or the simulator from a seeded generator. No
curve may depend on a clock or on a BLAS library beyond its rounding.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from labsupport.cost import training_memory
from labsupport.cuda.kernels import lessons
from labsupport.cuda.simt import Phase, Report, cuda, launch
from labsupport.figures import explore, show, style, svg
from labsupport.figures.explorable import Explorable, Figure
from labsupport.ops.depth import Profile, stack_profile
from labsupport.ops.normalization import layer_norm_fused, layer_norm_naive, rms_norm_fused, rms_norm_naive
from labsupport.ops.optim import clip_by_global_norm, momentum_step, sgd_step

BLUE, ORANGE, GREEN, PURPLE, RED, GREY = style.PALETTE


# ---------------------------------------------------------------- one small data set for section 8.1


def regression(samples: int = 1024) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (N, 2) and targets (N,) of the least-squares problem of section 8.1; the best w is near (1, −1)."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(samples, 2)) * np.array([1.6, 0.8])
    return X, X @ np.array([1.0, -1.0]) + rng.normal(size=samples)


def batch_variance() -> Figure:
    """Measured variance of the mini-batch gradient against B, with the line variance of one sample over B."""
    X, y = regression()
    w = np.zeros(2)
    each = (X @ w - y)[:, None] * X
    rng = np.random.default_rng(0)
    sizes = 2 ** np.arange(0, 11, 2)
    measured = [each[rng.integers(len(each), size=(2000, B))].mean(1).var(0).sum() for B in sizes]
    fig, ax = style.new(5.2, 3.4)
    ax.loglog(sizes, each.var(0).sum() / sizes, label="variance of one gradient / B")
    ax.loglog(sizes, measured, "o", color=ORANGE, markersize=8, label="measured, 2000 batches")
    ax.set_xticks(sizes, [str(B) for B in sizes])
    ax.minorticks_off()
    ax.set_xlabel("batch size B")
    ax.set_ylabel("variance of the gradient")
    ax.legend(loc="upper right")
    return show(
        fig,
        alt="The measured variance of the mini-batch gradient lies on the line that falls like one over the batch, "
        "from a batch of 1 to one of 1024.",
        caption="Four times the batch, a quarter of the variance: both axes are logarithmic, so the line is straight.",
    )


def sgd_path() -> Explorable:
    """Forty SGD steps on the loss of two weights, for batches of different size."""
    X, y = regression()
    grid = np.linspace(-2.6, 2.6, 61)
    A, b = X.T @ X / len(X), X.T @ y / len(X)
    best = np.linalg.solve(A, b)
    u, v = np.meshgrid(grid, grid)
    d = np.stack([u - best[0], v - best[1]], axis=-1)
    excess = 0.5 * np.einsum("...i,ij,...j->...", d, A, d)

    def path(B: int) -> np.ndarray:
        rng, w = np.random.default_rng(3), np.array([-2.0, 2.0])
        places = [w]
        for _ in range(40):
            i = rng.permutation(len(X))[:B]
            w = sgd_step(w, X[i].T @ (X[i] @ w - y[i]) / B, 0.25)
            places.append(w)
        return np.array(places)

    def spread(B: int) -> float:
        tail = path(B)[-20:] - best
        return float(np.sqrt((tail**2).sum(1).mean()))

    def draw(B: int) -> Any:
        w = path(B)
        fig, ax = style.new(5.2, 4.2)
        ax.contour(u, v, excess, levels=[0.05, 0.3, 1, 2.5, 5], colors=[GREY], linewidths=1)
        ax.plot(w[:, 0], w[:, 1], "o-", color=BLUE, markersize=4, linewidth=1.2)
        ax.plot(*best, "*", color=RED, markersize=14)
        ax.set_title(f"B = {B}: last 20 steps {spread(B):.2f} from the best")
        ax.set_xlim(-2.6, 2.6)
        ax.set_ylim(-2.6, 2.6)
        ax.set_xlabel("first weight")
        ax.set_ylabel("second weight")
        return fig

    return explore(
        draw,
        alt=lambda B: (
            f"With batches of {B} the last 20 of 40 steps are {spread(B):.2f} from the best weights, root mean square."
        ),
        caption="Lines of equal loss, and 40 steps with \\(\\eta = 0.25\\). A small batch gets near as fast, and then "
        "walks about the minimum (star); a large one settles.",
        start={"B": 1},
        labels={"B": "batch size B"},
        B=[1, 4, 16, 64, 256, 1024],
    )


# ---------------------------------------------------------------- momentum and Adam


#: Curvatures of the ravine of section 8.2: ½(a·x² + b·y²).
RAVINE = np.array([1.0, 30.0])


def ravine_path(beta: float, lr: float = 0.03, steps: int = 60) -> np.ndarray:
    """Places of momentum descent (torch's convention) in the ravine, (steps + 1, 2)."""
    theta, velocity = np.array([-9.0, 1.6]), np.zeros(2)
    places = [theta]
    for _ in range(steps):
        theta, velocity = momentum_step(theta, RAVINE * theta, velocity, lr, beta)
        places.append(theta)
    return np.array(places)


def _ravine_loss(theta: np.ndarray) -> float:
    return float(0.5 * (RAVINE * theta * theta).sum())


def momentum_path() -> Explorable:
    """Sixty steps in a ravine with momentum from 0 to 0.99."""
    grid_x, grid_y = np.meshgrid(np.linspace(-10, 10, 81), np.linspace(-2.6, 2.6, 61))
    loss = 0.5 * (RAVINE[0] * grid_x**2 + RAVINE[1] * grid_y**2)

    def draw(beta: float) -> Any:
        w = ravine_path(beta)
        fig, ax = style.new(5.2, 3.4)
        ax.contour(grid_x, grid_y, loss, levels=[1, 5, 15, 40, 80], colors=[GREY], linewidths=1)
        ax.plot(w[:, 0], w[:, 1], "o-", color=BLUE, markersize=3, linewidth=1)
        ax.plot(0, 0, "*", color=RED, markersize=14)
        ax.set_xlim(-10, 10)
        ax.set_ylim(-2.6, 2.6)
        ax.set_xlabel("flat direction")
        ax.set_ylabel("steep direction")
        ax.set_title(f"β = {beta:g}: loss {_ravine_loss(w[-1]):.2g} after 60 steps")
        return fig

    return explore(
        draw,
        alt=lambda beta: (
            f"With momentum {beta:g} the loss falls from {_ravine_loss(ravine_path(0)[0]):.0f} to "
            f"{_ravine_loss(ravine_path(beta)[-1]):.2g} in 60 steps."
        ),
        caption="The learning rate is 0.03 for every \\(\\beta\\). Without momentum the flat direction crawls; near "
        "0.7 it is quick; at 0.99 the path flies past the minimum again and again.",
        start={"beta": 0.0},
        labels={"beta": "momentum β"},
        beta=[0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99],
    )


def adam_start() -> Explorable:
    """Adam's step in units of the learning rate for a constant gradient, with and without bias correction."""
    t = np.arange(1, 201)

    def raw(beta2: float) -> np.ndarray:
        return (1 - 0.9**t) / np.sqrt(1 - beta2**t)

    def draw(beta2: float) -> Any:
        fig, ax = style.new(5.2, 3.4)
        ax.plot(t, raw(beta2), label="without bias correction")
        ax.plot(t, np.ones(len(t)), label="with it")
        ax.set_xscale("log")
        ax.set_xlim(1, 200)
        ax.set_xticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
        ax.minorticks_off()
        ax.set_ylim(0, 10)
        ax.set_xlabel("step t")
        ax.set_ylabel("step / learning rate")
        ax.legend(loc="upper left")
        ax.text(190, 9.7, f"worst: {raw(beta2).max():.1f}", ha="right", va="top")
        return fig

    return explore(
        draw,
        alt=lambda beta2: (
            f"With β₂ = {beta2:g} and no bias correction the steps reach {raw(beta2).max():.1f} learning "
            "rates; with it they are 1."
        ),
        caption="A constant gradient, \\(\\beta_1 = 0.9\\). Both averages start at 0, and \\(v\\) catches up more "
        "slowly than \\(m\\), so the uncorrected quotient overshoots.",
        start={"beta2": 0.999},
        labels={"beta2": "β₂"},
        beta2=[0.9, 0.95, 0.99, 0.999, 0.9999],
    )


def zero_bytes() -> Explorable:
    """Bytes a parameter and rank of mixed-precision Adam, by ZeRO stage and number of ranks."""
    count = 2**20
    parts = (("parameters", BLUE), ("gradients", ORANGE), ("master_weights", GREEN), ("optimizer", PURPLE))
    names = ("weights", "gradients", "fp32 master", "m and v")

    def held(ranks: int, stage: int) -> list[float]:
        memory = training_memory(count, ranks=ranks, zero_stage=stage)
        return [getattr(memory, part) / count for part, _ in parts]

    def draw(ranks: int) -> Any:
        fig, ax = style.new(5.2, 3.4)
        for stage in range(4):
            left = 0.0
            for size, (_, color), name in zip(held(ranks, stage), parts, names, strict=True):
                ax.barh(stage, size, left=left, color=color, height=0.62, label=name if stage == 0 else None)
                left += size
            ax.text(left + 0.25, stage, f"{left:.3g} B", va="center")
        ax.set_xlim(0, 18.5)
        ax.set_ylim(4.6, -0.6)
        ax.set_yticks(range(4), ["no sharding", "ZeRO 1", "ZeRO 2", "ZeRO 3"])
        ax.set_xlabel("bytes a parameter on each rank")
        ax.legend(loc="lower right", ncols=4, fontsize=12, columnspacing=1, handlelength=1)
        ax.grid(axis="y", visible=False)
        return fig

    return explore(
        draw,
        alt=lambda ranks: (
            f"On {ranks} rank{'s' if ranks > 1 else ''} a parameter takes "
            + ", ".join(f"{sum(held(ranks, stage)):.3g}" for stage in range(4))
            + " bytes without sharding and with ZeRO stages 1, 2 and 3."
        ),
        caption="Mixed-precision Adam holds 16 bytes a parameter. Stage 1 shards the 12 bytes of fp32 state, stage 2 "
        "the gradients too, stage 3 the weights too.",
        start={"ranks": 8},
        labels={"ranks": "ranks"},
        ranks=[1, 2, 4, 8, 16, 64, 256],
    )


# ---------------------------------------------------------------- depth


def chain_product() -> Explorable:
    """factor^l over 100 layers, with the least float16 number."""
    layers = np.arange(101)
    least = 2.0**-25  # half of the smallest float16: what is no larger rounds to 0

    def draw(factor: float) -> Any:
        fig, ax = style.new(5.2, 3.4)
        ax.semilogy(layers, factor ** layers.astype(float), color=BLUE)
        ax.axhline(least, color=RED, linestyle="--")
        ax.text(2, least * 2, "float16: 0 from here down", color=RED, va="bottom")
        ax.set_xlim(0, 100)
        ax.set_ylim(1e-12, 1e12)
        ax.set_yticks([1e-12, 1e-6, 1, 1e6, 1e12], ["10⁻¹²", "10⁻⁶", "1", "10⁶", "10¹²"])
        ax.minorticks_off()
        ax.set_xlabel("layers passed")
        ax.set_ylabel("gradient")
        ax.text(98, 4e11, f"{factor:g} per layer: {factor**100:.3g} after 100", ha="right", va="top")
        return fig

    return explore(
        draw,
        alt=lambda factor: f"A factor of {factor:g} per layer is {factor**100:.3g} after 100 layers.",
        caption="One factor per layer, logarithmic axis. Only factors very near 1 survive a hundred layers.",
        start={"factor": 0.9},
        labels={"factor": "factor per layer"},
        factor=[0.8, 0.9, 0.95, 0.99, 1.0, 1.01, 1.05, 1.1, 1.2],
    )


#: The four stacks of section 8.5: name, colour, settings beyond depth and gain.
STACKS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("plain", BLUE, {}),
    ("residual", ORANGE, {"residual": True}),
    ("residual / √D", GREEN, {"residual": True, "branch": None}),
    ("pre-norm residual", PURPLE, {"residual": True, "prenorm": True}),
)


@lru_cache(maxsize=64)
def residual_profile(name: str, depth: int, gain: float = 0.9) -> Profile:
    """A stack of section 8.5, width 64, tanh layers; one seed, so that all four meet the same weights."""
    settings = {k: v for label, _, s in STACKS if label == name for k, v in s.items()}
    if settings.get("branch", 1) is None:
        settings["branch"] = depth**-0.5
    return stack_profile(depth, 64, gain, np.random.default_rng(5), "tanh", **settings)


def residual_depth() -> Explorable:
    """Size of the gradient at every layer, for four kinds of stack and several depths."""

    def draw(depth: int) -> Any:
        fig, ax = style.new(5.2, 3.8)
        for (name, color, _), dash in zip(STACKS, style.DASHES, strict=False):
            ax.semilogy(residual_profile(name, depth).gradients, color=color, linestyle=dash, label=name)
        ax.set_xlim(0, 100)
        ax.set_ylim(1e-6, 1e6)
        ax.set_yticks([1e-6, 1e-4, 1e-2, 1, 100, 1e4], ["10⁻⁶", "10⁻⁴", "10⁻²", "1", "10²", "10⁴"])
        ax.minorticks_off()
        ax.set_xlabel("layer (the loss is at the right end of a line)")
        ax.set_ylabel("size of the gradient")
        ax.legend(loc="upper right", ncols=2)
        return fig

    def alt(depth: int) -> str:
        first = {name: residual_profile(name, depth).gradients[0] for name, *_ in STACKS}
        return f"At the input of {depth} layers the gradient is " + ", ".join(
            f"{size:.2g} for {name}" for name, size in first.items()
        )

    return explore(
        draw,
        alt=lambda depth: alt(depth) + ".",
        caption="Tanh layers with weights of standard deviation \\(0.9/\\sqrt{n}\\); the gradient has size 1 at the "
        "loss. The plain stack loses it with depth. A residual stack keeps it; it may even grow.",
        start={"depth": 50},
        labels={"depth": "layers"},
        depth=[5, 10, 20, 50, 100],
    )


@lru_cache(maxsize=32)
def init_profile(activation: Any, gain: float) -> Profile:
    """Fifty plain layers of width 128; the gain is the weights' standard deviation in units of 1/√n."""
    return stack_profile(50, 128, gain, np.random.default_rng(11), activation)


GAINS = [0.5, 0.8, 1.0, 1.2, 1.414, 2.0]


def init_layers() -> Explorable:
    """Size of signal and gradient through 50 layers, by gain and activation."""

    def draw(activation: str, gain: float) -> Any:
        profile = init_profile(activation, gain)
        fig, ax = style.new(5.2, 3.6)
        ax.semilogy(np.maximum(profile.signals, 1e-30), color=BLUE, label="signal, forward")
        ax.semilogy(np.maximum(profile.gradients, 1e-30), color=ORANGE, label="gradient, backward")
        ax.set_xlim(0, 50)
        ax.set_ylim(1e-16, 1e16)
        ax.set_yticks([1e-15, 1e-10, 1e-5, 1, 1e5, 1e10, 1e15], ["10⁻¹⁵", "10⁻¹⁰", "10⁻⁵", "1", "10⁵", "10¹⁰", "10¹⁵"])
        ax.minorticks_off()
        ax.set_xlabel("layer")
        ax.set_ylabel("root mean square")
        ax.legend(loc="upper center", ncols=2)
        return fig

    def alt(activation: str, gain: float) -> str:
        profile = init_profile(activation, gain)
        return (
            f"{activation}, standard deviation {gain:g} over root n: after 50 layers the signal has size "
            f"{profile.signals[-1]:.2g}, and the gradient at the input {profile.gradients[0]:.2g}."
        )

    return explore(
        draw,
        alt=alt,
        caption="Fifty layers, no residuals. Linear layers need gain 1, ReLU needs \\(\\sqrt 2 \\approx 1.414\\). Tanh "
        "holds its signal below 1, and still its gradient explodes when the gain is large.",
        start={"activation": "relu", "gain": 1.0},
        labels={"activation": "activation", "gain": "gain (std · √n)"},
        activation=["linear", "relu", "tanh"],
        gain=GAINS,
    )


def init_histograms() -> Explorable:
    """Distribution of tanh activations after 1, 10 and 50 layers, by gain."""
    edges = np.linspace(-1, 1, 33)

    def draw(gain: float) -> Any:
        outputs = init_profile("tanh", gain).outputs
        fig, axes = style.new(5.2, 3.0, 1, 3, sharey=True)
        for ax, layer in zip(axes, (1, 10, 50), strict=True):
            share, _ = np.histogram(outputs[layer], bins=edges)
            ax.bar(edges[:-1], share / outputs[layer].size, width=edges[1] - edges[0], align="edge", color=BLUE)
            ax.set_title(f"layer {layer}")
            ax.set_xlim(-1, 1)
            ax.set_ylim(0, 0.6)
            ax.set_xticks([-1, 0, 1])
        axes[0].set_ylabel("share of units")
        axes[1].set_xlabel("value of the unit")
        return fig

    def share(gain: float, test: Any) -> float:
        return float(test(np.abs(init_profile("tanh", gain).outputs[50])).mean())

    return explore(
        draw,
        alt=lambda gain: (
            f"Gain {gain:g}, after 50 tanh layers: {share(gain, lambda a: a > 0.9):.0%} of the units are "
            f"beyond 0.9, {share(gain, lambda a: a < 0.05):.0%} are within 0.05 of 0."
        ),
        caption="Values of tanh units. Too small a gain and all units are 0 after a few layers (the bar in the middle "
        "leaves the picture); too large and they sit at −1 and 1, where the slope is 0.",
        start={"gain": 1.0},
        labels={"gain": "gain (std · √n)"},
        gain=GAINS,
    )


# ---------------------------------------------------------------- normalisation


def norm_axes() -> Figure:
    """Which numbers share a mean: a row for LayerNorm, a column for BatchNorm."""
    values = [[""] * 6 for _ in range(4)]
    row = {(1, c): "blue" for c in range(6)}
    column = {(r, 2): "orange" for r in range(4)}
    drawing = svg.picture(
        360,
        176,
        svg.cells(34, 44, values, size=22, width=22, highlight=row),
        svg.cells(206, 44, values, size=22, width=22, highlight=column),
        svg.text(100, 20, "LayerNorm, RMSNorm", size=14, bold=True),
        svg.text(272, 20, "BatchNorm", size=14, bold=True),
        svg.text(100, 150, "hidden axis →", size=13),
        svg.text(272, 150, "hidden axis →", size=13),
        svg.text(16, 88, "tokens", size=13, rotate=-90),
        svg.text(190, 88, "tokens", size=13, rotate=-90),
    )
    return show(
        drawing,
        alt="LayerNorm takes its statistics over one row, the hidden axis of one token; BatchNorm over one column, one "
        "feature of all tokens.",
        caption="The coloured numbers share one mean and one variance. A row of LayerNorm needs no other token.",
    )


def norm_traffic() -> Figure:
    """Elements moved per element of x, kernel by kernel, for naive and fused LayerNorm and RMSNorm."""
    H = 256
    x, gamma, beta = np.ones((64, H)), np.ones(H), np.zeros(H)
    rows = (
        ("LayerNorm, naive", layer_norm_naive(x, gamma, beta)[1]),
        ("RMSNorm, naive", rms_norm_naive(x, gamma)[1]),
        ("LayerNorm, fused", layer_norm_fused(x, gamma, beta)[1]),
        ("RMSNorm, fused", rms_norm_fused(x, gamma)[1]),
    )
    fig, ax = style.new(5.2, 3.2)
    for place, (_, launches) in enumerate(rows):
        left = 0.0
        for kernel in launches:
            for amount, color, hatch in ((kernel.reads, BLUE, None), (kernel.writes, ORANGE, "///")):
                width = amount / x.size
                if width > 0.1:
                    ax.barh(place, width, left=left, color=color, hatch=hatch, height=0.6, edgecolor="k", linewidth=0.6)
                left += width
        ax.text(left + 0.2, place, f"{left:.1f}", va="center")
    ax.barh([9], [1], color=BLUE, label="read")
    ax.barh([9], [1], color=ORANGE, hatch="///", label="written")
    ax.set_ylim(3.6, -0.6)
    ax.set_xlim(0, 15)
    ax.set_yticks(range(4), [name for name, _ in rows])
    ax.set_xlabel("elements moved, per element of x")
    ax.legend(loc="lower right")
    ax.grid(axis="y", visible=False)
    return show(
        fig,
        alt="Naive LayerNorm moves 12 elements for each element of x and naive RMSNorm 7; fused, both move 2.",
        caption="Each block is one kernel reading or writing the whole tensor. Fused, both norms move the same: "
        "one read and one write.",
    )


# ---------------------------------------------------------------- clipping


def clip_direction() -> Explorable:
    """A gradient of two numbers, clipped by its norm and clipped number by number."""
    g = np.array([4.0, 1.0])

    def both(c: float) -> tuple[np.ndarray, np.ndarray]:
        return clip_by_global_norm([g], c)[0][0], np.clip(g, -c, c)

    def angle(v: np.ndarray) -> float:
        return float(np.degrees(np.arctan2(v[1], v[0])))

    def draw(c: float) -> Any:
        fig, ax = style.new(5.2, 3.4)
        ring = np.linspace(0, np.pi / 2, 60)
        ax.plot(c * np.cos(ring), c * np.sin(ring), color=GREY, linestyle=":")
        ax.plot([c, c], [0, c], color=GREY, linestyle=":")
        ax.plot([0, c], [c, c], color=GREY, linestyle=":")
        by_norm, by_value = both(c)
        for v, color, name, dash in (
            (g, GREY, "gradient", "-"),
            (by_value, ORANGE, "by value", "--"),
            (by_norm, BLUE, "by norm", "-"),
        ):
            ax.plot(
                [0, v[0]], [0, v[1]], "o", linestyle=dash, color=color, label=f"{name}: {angle(v):.0f}°", linewidth=2
            )
        ax.set_xlim(0, 4.4)
        ax.set_ylim(0, 2.3)
        ax.set_aspect("equal")
        ax.set_xlabel("first component")
        ax.set_ylabel("second")
        ax.legend(loc="upper right")
        return fig

    return explore(
        draw,
        alt=lambda c: (
            f"Limit {c:g}: the gradient points at {angle(g):.0f} degrees; clipped by norm at "
            f"{angle(both(c)[0]):.0f}, clipped number by number at {angle(both(c)[1]):.0f}."
        ),
        caption="Clipping by norm pulls the gradient back onto the circle, along itself. Clipping every number puts it "
        "into the square, and turns it.",
        start={"c": 1.0},
        labels={"c": "limit c"},
        c=[0.5, 1.0, 1.5, 2.0, 3.0, 4.0],
    )


# ---------------------------------------------------------------- one block of a norm


#: Columns of the row that is watched: two whole turns of the block and a part of a third.
WATCHED_COLUMNS = 150
#: What the block does in each phase.
NORM_PHASES = ("load the row, add it up", "square what is left", "write the result")


@lru_cache(maxsize=1)
def _watched_norm() -> Report:
    """The simulator's report, with its trace, of one block that normalises one row."""
    x = np.random.default_rng(12).integers(-3, 6, (1, WATCHED_COLUMNS)).astype(np.float32)
    one, nil = np.ones(WATCHED_COLUMNS, np.float32), np.zeros(WATCHED_COLUMNS, np.float32)
    kernel, y, eps = cuda.jit(lessons.layer_norm), np.zeros_like(x), np.float32(1e-5)
    return launch(kernel, 1, lessons.ROW_THREADS, x, one, nil, y, eps, trace=True)


def _touched(phase: Phase, *arrays: str) -> dict[tuple[int, ...], set[int]]:
    """Which threads touched each element of some arrays in a phase."""
    threads: dict[tuple[int, ...], set[int]] = {}
    for step in phase.steps:
        if step.array in arrays:
            threads.setdefault(step.index, set()).add(step.thread)
    return threads


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    """First and last of each run of neighbours in ascending numbers."""
    runs: list[tuple[int, int]] = []
    for n in numbers:
        runs[-1:] = [(runs[-1][0], n)] if runs and runs[-1][1] == n - 1 else [*runs[-1:], (n, n)]
    return runs


def _thread_left(thread: int) -> float:
    """Left edge of what stands above or below a thread; a gap parts the two warps."""
    return 24 + 5 * thread + 6 * (thread // 32)


def _strip(y: float, threads: int, color: str, marked: list[int], chosen: int | None) -> str:
    """One turn of the block: a box for eight neighbours, a sector of memory, with the marked threads coloured."""
    pieces = []
    for first, last in _runs(marked):
        for low, high in ((first, min(last, 31)), (max(first, 32), last)):
            if low <= high:
                wide = _thread_left(high) + 5 - _thread_left(low)
                pieces.append(svg.rect(_thread_left(low), y, wide, 12, fill=color, tint=0.4, stroke=0))
    for first in range(0, threads, 8):
        wide = 5 * min(8, threads - first)
        pieces.append(svg.rect(_thread_left(first), y, wide, 12, color="grey", stroke=1))
    if chosen is not None:
        pieces.append(svg.rect(_thread_left(chosen), y, 5, 12, fill="red", tint=1, stroke=0))
    return "".join(pieces)


def _row_of(y: float, title: str, touched: dict[tuple[int, ...], set[int]], color: str, thread: int) -> str:
    """A row of the watched width, turn by turn of the block, so that a thread's columns stand below each other."""
    pieces = [svg.text(190, y - 10, title, size=13, bold=True)]
    for turn, first in enumerate(range(0, WATCHED_COLUMNS, lessons.ROW_THREADS)):
        count = min(lessons.ROW_THREADS, WATCHED_COLUMNS - first)
        users = {index[-1] - first: who for index, who in touched.items() if first <= index[-1] < first + count}
        mine = next((place for place, who in users.items() if thread in who), None)
        pieces += [
            svg.text(20, y + 15 * turn + 6, str(first), size=11, anchor="end", color="grey"),
            _strip(y + 15 * turn, count, color, sorted(users), mine),
        ]
    return "".join(pieces)


def _sums_of(now: Phase, thread: int) -> str:
    """The four places of shared memory, and arrows to the chosen thread or from the lanes that write."""
    values = now.shared["s"]
    pieces = [svg.text(190, 208, "s, shared memory", size=13, bold=True)]
    for step in now.steps:
        if step.array == "s":
            row, warp = step.index
            middle, top = _thread_left(32 * warp) + 80, 146 + 26 * row
            x = _thread_left(step.thread) + 2.5
            if step.kind == "store":
                pieces.append(svg.arrow((x, 114), (middle - 58, top + 11), via=[(x, top + 11)], color="orange"))
            elif step.thread == thread:
                side = middle + 67
                via = [(side, top + 11), (side, 128), (x, 128)]
                pieces.append(svg.arrow((middle + 58, top + 11), (x, 114), via=via, color="red"))
    seen = {step.index: step.kind for step in now.steps if step.array == "s"}
    for row, name in enumerate(("sum", "squares")):
        for warp in range(lessons.ROW_WARPS):
            value = values[row * lessons.ROW_WARPS + warp]
            told = "empty" if value is None else f"{name} {value:.1f}"
            color = {"store": "orange", "load": "blue", None: None}[seen.get((row, warp))]
            left = _thread_left(32 * warp) + 22
            pieces += [
                svg.rect(left, 146 + 26 * row, 116, 22, color="grey", fill="ground", stroke=0),
                svg.rect(left, 146 + 26 * row, 116, 22, color="grey", fill=color, tint=0.4, stroke=1),
                svg.text(left + 58, 157 + 26 * row, told, size=13, bold=color is not None),
            ]
    return "".join(pieces)


def _norm_words(number: int, thread: int) -> tuple[str, str, str]:
    """What the block does in a phase, what the chosen thread does, and how the phase ends."""
    report = _watched_norm()
    now = report.trace[number - 1]
    count = {(space, kind): 0 for space in ("global", "shared") for kind in ("load", "store")}
    for step in now.steps:
        count[step.space, step.kind] += 1
    block = f"global {count['global', 'load']} loads, {count['global', 'store']} stores; "
    block += f"shared {count['shared', 'load']} loads, {count['shared', 'store']} stores."
    columns = [step.index[-1] for step in now.steps if step.thread == thread and step.array in ("x", "y")]
    where = ", ".join(map(str, columns))
    if number == 1:
        mine = f"Thread {thread} keeps columns {where}."
    elif number == 2:
        mine = f"Thread {thread} reads two sums and takes the mean out."
    else:
        mine = f"Thread {thread} reads two sums and writes columns {where}."
    shuffles = report.warp_operations // (2 * lessons.ROW_WARPS)
    ends = f"{shuffles} shuffles add up a warp, then the barrier." if now.barrier_line else "The end of the kernel."
    return block, mine, ends


def norm_block() -> Explorable:
    """One thread block computes LayerNorm of a row, barrier by barrier, from the simulator's trace."""
    trace = _watched_norm().trace

    def draw(phase: int, thread: int) -> str:
        now = trace[phase - 1]
        lanes = [t for t in range(lessons.ROW_THREADS) if any(step.thread == t for step in now.steps)]
        pieces = [
            _row_of(24, "x, global: a column below a thread", _touched(now, "x"), "blue", thread),
            svg.text(190, 90, "64 threads, two warps of 32 lanes", size=13, bold=True),
            _strip(101, lessons.ROW_THREADS, "grey", lanes, thread),
            _sums_of(now, thread),
            _row_of(244, "gamma and beta, global", _touched(now, "gamma", "beta"), "blue", thread),
            _row_of(318, "y, global", _touched(now, "y"), "orange", thread),
            svg.text(4, 380, f"{phase} of {len(trace)}: {NORM_PHASES[phase - 1]}", anchor="start", bold=True),
        ]
        words = _norm_words(phase, thread)
        pieces += [svg.text(4, 402 + 19 * k, line, anchor="start", size=12) for k, line in enumerate(words)]
        return svg.picture(360, 452, *pieces)

    return explore(
        draw,
        alt=lambda phase, thread: (
            f"Phase {phase} of {len(trace)}, {NORM_PHASES[phase - 1]}: " + " ".join(_norm_words(phase, thread))
        ),
        caption="A row of 150 columns and its block, from one barrier to the next, as the simulator recorded it. A box "
        "holds eight neighbours: a sector of 32 bytes. Blue is read, orange is written, red is the chosen thread.",
        start={"phase": 1, "thread": 7},
        labels={"phase": "phase", "thread": "thread"},
        phase=list(range(1, len(trace) + 1)),
        thread=[0, 7, 32, 63],
    )
