"""Figures of chapter 12: the flow back, a step on a parabola, gradients of logits and of the LM head, norms by layer.

Numbers are computed by ``labsupport.ops``, and counts of saved tensors by ``labsupport.profiling``. This file must
never hold a result of its own.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from labsupport.figures import explore, show, style, svg
from labsupport.figures.explorable import Explorable, Figure
from labsupport.figures.forward_pass import ANSWER, ENGLISH, VIETNAMESE, H, U, map_column
from labsupport.ops import transformer
from labsupport.ops.optim import global_norm
from labsupport.ops.softmax import softmax
from labsupport.ops.transformer import Config, Parameters

BLUE, ORANGE, GREEN, PURPLE, RED, GREY = style.PALETTE
Array = np.ndarray


def dlogits() -> Array:
    """p − onehot of the worked example, (7,)."""
    return softmax(H @ U) - np.eye(len(ENGLISH))[ANSWER]


# -- where we are ---------------------------------------------------------------------------

FLOW = (
    ("loss", "gradient of the logits, (B, T, V)"),
    ("LM head, last norm", "dU, then dx (B, T, d)"),
    ("layers, last to first", "seven gradients each, dx (B, T, d)"),
    ("embedding", "dE (V, d): every gradient is there"),
)


def flow() -> Figure:
    """The backward pass in four steps."""
    pieces = []
    for row, (name, what) in enumerate(FLOW):
        y = 4 + 66 * row
        pieces.append(svg.box(30, y, 300, 46, f"{row + 1}. {name}", sub=what, color="orange" if row == 0 else "purple"))
        if row:
            pieces.append(svg.arrow((180, y - 20), (180, y)))
    return show(
        svg.picture(360, 254, *pieces),
        alt="Four steps, one below the other: the loss gives the gradient of the logits; LM head and last norm; the "
        "layers "
        "from the last to the first; the embedding. Then every parameter has its gradient.",
        caption="The flow in four steps: the forward pass in reverse order.",
    )


def on_the_map() -> Figure:
    """Column 3 of the training map: boxes 3A to 3E."""
    return map_column(
        "3 Learn",
        "purple",
        "Column 3. This chapter is about 3B and 3C; 3A came with chapter 5, 3D with chapter 8.",
        "Three columns of the training map. The learning column is marked: loss 3A, backward 3B, gradients by layer "
        "3C, "
        "AdamW 3D, next batch 3E, from which an arrow leads back to the data.",
    )


# -- one parameter --------------------------------------------------------------------------


def one_step() -> Explorable:
    """The parabola (3w − 4)² with its tangent at w = 2, and where a step of the chosen learning rate lands."""
    x, y, w = 3.0, 4.0, 2.0

    def loss(v: Any) -> Any:
        return (v * x - y) ** 2

    slope = 2 * (w * x - y) * x

    def draw(eta: float) -> Any:
        new = w - eta * slope
        fig, ax = style.new(5.2, 3.6)
        grid = np.linspace(-0.6, 3.0, 150)
        ax.plot(grid, loss(grid), color=BLUE, linestyle="-", label="loss")
        ax.plot(grid, loss(w) + slope * (grid - w), color=ORANGE, linestyle="--", label="tangent, slope 12")
        ax.plot([w], [loss(w)], "o", color="k")
        ax.plot([new], [loss(new)], "D", color=GREEN if loss(new) < loss(w) else RED, markersize=9)
        ax.set_xlim(-0.6, 3.0)
        ax.set_ylim(-6, 26)
        ax.set_xlabel("w")
        ax.set_ylabel("loss")
        ax.legend(loc="upper center")
        ax.text(0.95, 14, f"new w {new:.2f}\nnew loss {loss(new):.4f}", va="center")
        return fig

    def alt(eta: float) -> str:
        new = w - eta * slope
        word = (
            "lower than"
            if loss(new) < loss(w) - 1e-9
            else "as high as"
            if loss(new) < loss(w) + 1e-9
            else "higher than"
        )
        return (
            f"With learning rate {eta:g} the step lands at w = {new:.2f}, where the loss is {loss(new):.4f}, {word} 4."
        )

    return explore(
        draw,
        alt=alt,
        caption="The tangent promises that the loss falls without end; the parabola keeps the promise only nearby.",
        start={"eta": 0.01},
        labels={"eta": "learning rate η"},
        eta=[0.01, 0.03, 0.05, 0.08, 0.1, 0.12, 0.15, 0.2],
    )


# -- the worked example ---------------------------------------------------------------------


def dlogits_bars() -> Figure:
    """The gradient of the loss by the seven logits."""
    dz = dlogits()
    fig, ax = style.new(5.2, 3.4)
    ax.bar(
        range(7),
        dz,
        color=[GREEN if i == ANSWER else BLUE for i in range(7)],
        hatch=["///" if v < 0 else "" for v in dz],
    )
    for i, value in enumerate(dz):
        ax.text(
            i, value + (0.03 if value > 0 else -0.03), f"{value:.3f}", ha="center", va="bottom" if value > 0 else "top"
        )
    ax.axhline(0, color="k", linewidth=1, linestyle="-")
    names = [a if a == b else f"{a}\n{b}" for a, b in zip(ENGLISH, VIETNAMESE, strict=True)]
    ax.set_xticks(range(7), names)
    ax.set_ylim(-1, 0.45)
    ax.set_ylabel("∂loss / ∂logit")
    return show(
        fig,
        alt="The gradient by the logit of fish, the right answer, is -0.827; those of the six others are positive, "
        "between "
        "0.105 and 0.192. Together they sum to 0.",
        caption="Only the answer's column is negative: raising its logit lowers the loss. All seven sum to 0.",
    )


def outer_product() -> Explorable:
    """dU = outer(h, dz): choose a token and see its column."""
    dz = dlogits()
    dU = np.outer(H, dz)

    def draw(token: str) -> str:
        j = ENGLISH.index(token)
        width = 43

        def row(values: Array) -> list[str]:
            return [f"{v:.3f}" for v in values]

        return svg.picture(
            360,
            206,
            svg.cells(48, 40, [row(dz)], size=32, width=width, font=11, cols=ENGLISH, highlight={(0, j): "green"}),
            svg.text(24, 56, "dz", bold=True),
            svg.cells(
                8, 112, [[f"{v:.0f}"] for v in H], size=32, title="h", highlight={(0, 0): "blue", (1, 0): "orange"}
            ),
            svg.cells(
                48,
                112,
                [row(r) for r in dU],
                size=32,
                width=width,
                font=11,
                title="dU = outer(h, dz)",
                highlight={(0, j): "blue", (1, j): "orange"},
            ),
            svg.text(
                180, 194, f"{H[0]:.0f} · {dz[j]:.3f} = {dU[0, j]:.3f},   {H[1]:.0f} · {dz[j]:.3f} = {dU[1, j]:.3f}"
            ),
        )

    def alt(token: str) -> str:
        j = ENGLISH.index(token)
        return (
            f"The gradient of the column of {token} is h times {dz[j]:.3f}: {dU[0, j]:.3f} in the first row and "
            f"{dU[1, j]:.3f} in the second."
        )

    return explore(
        draw,
        alt=alt,
        caption="Each entry of dU is one number of $h$ times one number of dz. The shape is that of $U$, (2, 7).",
        start={"token": "fish"},
        token=list(ENGLISH),
    )


# -- gradients by layer ---------------------------------------------------------------------

PARTS: Mapping[str, tuple[str, ...]] = {
    "attention": ("query", "key", "value", "output"),
    "gate, up": ("gate", "up"),
    "down": ("down",),
}
DEPTH = 6
CASES = ("healthy", "down of layer 2 is 0", "branches 10 times too large")


def layer_norms(case: str) -> dict[str, list[float]]:
    """Gradient norm of each part in each layer of a six-layer model, for one of the cases."""
    config = Config(13, 16, DEPTH, 32, 2)
    parameters = transformer.init(config, np.random.default_rng(0))
    if case == CASES[1]:
        parameters["layers.2.down"] *= 0
    if case == CASES[2]:
        parameters = {k: 10 * v if k.endswith((".output", ".down")) else v for k, v in parameters.items()}
    blocks = np.random.default_rng(1).integers(0, 13, (4, 17))
    _, saved = transformer.loss(config, parameters, blocks[:, :-1], blocks[:, 1:])
    grads = transformer.backward(config, parameters, saved)
    return {
        part: [global_norm([grads[f"layers.{layer}.{name}"] for name in names]) for layer in range(DEPTH)]
        for part, names in PARTS.items()
    }


def gradient_norms() -> Explorable:
    """Gradient norms by layer and part, as a picture, for a healthy model and two sick ones."""

    def draw(case: str) -> Any:
        norms = layer_norms(case)
        fig, ax = style.new(5.2, 3.6)
        for place, (part, color, hatch) in enumerate(zip(PARTS, (BLUE, GREEN, ORANGE), ("", "///", "xx"), strict=True)):
            x = np.arange(DEPTH) + 0.27 * (place - 1)
            ax.bar(x, norms[part], width=0.25, color=color, hatch=hatch, label=part)
            for i, value in enumerate(norms[part]):
                if value == 0:
                    ax.text(x[i], 0.01, "0", ha="center", va="bottom", color=RED)
        ax.set_ylim(0, 1.6)
        ax.set_xlabel("layer")
        ax.set_ylabel("gradient norm")
        ax.legend(loc="upper right", ncols=3)
        return fig

    def alt(case: str) -> str:
        norms = layer_norms(case)
        totals = [global_norm([np.array([norms[part][layer] for part in PARTS])]) for layer in range(DEPTH)]
        zero = [f"{part} of layer {i}" for part in PARTS for i, v in enumerate(norms[part]) if v == 0]
        words = f"; exactly 0: {', '.join(zero)}" if zero else ""
        return f"{case}: norms of layers 0 to 5 are {', '.join(f'{t:.2f}' for t in totals)}{words}."

    return explore(
        draw,
        alt=alt,
        caption="One bar for each part and layer. A healthy picture is level; a bar of exactly 0, or one end far above "
        "the other, is a question to ask.",
        start={"case": CASES[0]},
        case=list(CASES),
    )


# -- memory, accumulation, watching ---------------------------------------------------------


def saved_by_depth() -> Figure:
    """Bytes of saved activations against depth, with and without checkpointing, counted in torch."""
    from labsupport import torch_twin
    from labsupport.profiling import training_step

    depths = (1, 2, 4, 8)
    ids = np.random.default_rng(1).integers(0, 77, (4, 33))
    sizes: dict[bool, list[int]] = {False: [], True: []}
    for layers in depths:
        config = Config(77, 16, layers, 32, 2)
        weights = transformer.init(config, np.random.default_rng(0), np.float32)
        for checkpoint, found in sizes.items():
            model = torch_twin.module(config, weights, checkpoint=checkpoint)
            found.append(training_step(model, ids[:, :-1], ids[:, 1:]).saved_bytes)
    fig, ax = style.new(5.2, 3.2)
    for checkpoint, label, color, marker in (
        (False, "everything saved", BLUE, "o"),
        (True, "layer inputs only", ORANGE, "s"),
    ):
        ax.plot(depths, np.array(sizes[checkpoint]) / 1024, marker=marker, color=color, label=label)
    ax.set_xlabel("layers L")
    ax.set_ylabel("saved, KiB")
    ax.set_ylim(0, 1500)
    ax.set_xticks(depths)
    ax.legend(loc="upper left")
    ratio = sizes[False][-1] / sizes[True][-1]
    return show(
        fig,
        alt=f"Saved activations grow with depth in both cases; at 8 layers, saving everything takes {ratio:.0f} times "
        "as much as saving layer inputs only.",
        caption="Bytes held between forward and backward: $B = 4$, $T = 32$, $d = 16$, $m = 32$, float32. The slope is "
        "one "
        "layer's scratch paper, or one layer's input.",
    )


def wrong_mean() -> Explorable:
    """Two micro-batches: the mean over tokens, and the mean of means, for several token counts."""
    first, second = 2.0, 4.0

    def values(tokens: int) -> tuple[float, float]:
        return (3 * first + tokens * second) / (3 + tokens), (first + second) / 2

    def draw(tokens: int) -> Any:
        right, wrong = values(tokens)
        fig, ax = style.new(5.2, 2.6)
        ax.bar(range(4), [first, second, right, wrong], color=[BLUE, BLUE, GREEN, RED], hatch=["", "", "", "///"])
        for i, value in enumerate((first, second, right, wrong)):
            ax.text(i, value + 0.1, f"{value:.2f}", ha="center")
        ax.set_xticks(range(4), ["A, 3 tokens", f"B, {tokens} token{'s' * (tokens > 1)}", "per token", "mean of means"])
        ax.set_ylim(0, 5)
        ax.set_ylabel("mean loss")
        return fig

    def alt(tokens: int) -> str:
        right, wrong = values(tokens)
        plural = "s" * (tokens > 1)
        return f"With {tokens} token{plural} in B the mean per token is {right:.2f}, the mean of means {wrong:.2f}."

    return explore(
        draw,
        alt=alt,
        caption="The two right bars agree only where both micro-batches have as many tokens.",
        start={"tokens": 1},
        labels={"tokens": "tokens in B"},
        tokens=[1, 2, 3, 5, 9],
    )


#: Step of the watched run at which a batch of another kind comes in.
ODD_STEP = 25


def watched_run(steps: int = 40) -> tuple[list[float], list[float], list[int]]:
    """Losses, gradient norms and skipped steps of a short run; at one step a batch of one repeated token comes in.

    A step is skipped where its norm is above three times the median of the ten norms before it.
    """
    config = Config(13, 12, 2, 24, 2)
    parameters: Parameters = transformer.init(config, np.random.default_rng(0))
    stream = np.tile(np.arange(13), 20)
    rng = np.random.default_rng(1)
    losses: list[float] = []
    norms: list[float] = []
    skipped: list[int] = []
    for step in range(steps):
        starts = rng.integers(0, 13, 4)
        blocks = np.stack([stream[s : s + 9] for s in starts])
        if step == ODD_STEP:
            blocks = np.full_like(blocks, 5)
        value, saved = transformer.loss(config, parameters, blocks[:, :-1], blocks[:, 1:])
        grads = transformer.backward(config, parameters, saved)
        norm = global_norm(list(grads.values()))
        sick = len(norms) >= 10 and norm > 3 * np.median(norms[-10:])
        losses.append(value)
        norms.append(norm)
        if sick:
            skipped.append(step)
        else:
            parameters = {name: p - 0.3 * grads[name] for name, p in parameters.items()}
    return losses, norms, skipped


def watch() -> Figure:
    """Loss and gradient norm per step, with the spike of one odd batch."""
    losses, norms, skipped = watched_run()
    fig, axes = style.new(5.2, 4.0, 2, 1, sharex=True)
    for ax, values, label, color in zip(axes, (losses, norms), ("loss", "gradient norm"), (BLUE, ORANGE), strict=True):
        ax.plot(range(len(values)), values, color=color, linestyle="-")
        ax.plot(skipped, [values[step] for step in skipped], "o", color=RED)
        ax.set_ylabel(label)
        ax.set_ylim(0, 1.15 * max(values))
    axes[1].set_xlabel("step")
    usual = float(np.median(norms[ODD_STEP - 10 : ODD_STEP]))
    return show(
        fig,
        alt=f"Over 40 steps the loss falls; at step {ODD_STEP} the gradient norm jumps to "
        f"{norms[ODD_STEP] / usual:.0f} times its usual size and comes back, because that step was skipped.",
        caption=f"At step {ODD_STEP} a broken batch came in. The norm shows it before any weight has changed; "
        "the red dot is the step that was skipped.",
    )
