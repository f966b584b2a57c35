"""Figures of chapter 13: shifted labels, the schedule, a loss curve that grows while training runs, gradients by layer.

What a run did is passed in by the cell that ran it; nothing is trained here, and no value is made up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

import numpy as np

from labsupport.figures import explorable, explore, show, style, svg
from labsupport.figures.explorable import Explorable, Figure
from labsupport.ops import transformer
from labsupport.ops.softmax import softmax
from labsupport.training import Report, Run, Settings, Tokenizer, learning_rate

BLUE, ORANGE, GREEN, PURPLE, RED, GREY = style.PALETTE

#: Steps between two drawings of a live curve.
EVERY = 10


def shifted_labels(texts: Sequence[str]) -> Figure:
    """One block of tokens above its labels: every label is the token one place to the right."""
    count = len(texts) - 1
    width = 48
    drawing = svg.picture(
        8 + count * width, 178,
        svg.text(4, 12, "inputs", anchor="start"),
        svg.cells(4, 24, [list(texts[:-1])], size=38, width=width),
        svg.cells(4, 112, [list(texts[1:])], size=38, width=width),
        svg.text(4, 168, "labels", anchor="start"),
        *(svg.arrow((4 + (i + 0.5) * width, 66), (4 + (i + 0.5) * width, 108)) for i in range(count)),
    )  # fmt: skip
    pairs = ", ".join(f"{a} is asked for {b}" for a, b in pairwise(texts))
    return show(
        drawing,
        alt=f"The labels are the inputs moved one place to the left: {pairs}.",
        caption="One row of a batch. The label of a position is the next token, so the two rows overlap in all but "
        "one token at each end.",
    )


def schedule() -> Explorable:
    """The learning rate over the steps, with the length of the warm-up as a slider."""
    base = Settings()

    def rates(warmup: int) -> list[float]:
        return [learning_rate(step, replace(base, warmup=warmup)) for step in range(base.steps)]

    def draw(warmup: int) -> Any:
        fig, ax = style.new(5.2, 2.8)
        ax.plot(range(base.steps), rates(warmup), color=BLUE)
        ax.set_xlim(0, base.steps)
        ax.set_ylim(0, base.lr * 1.15)
        ax.set_xlabel("step")
        ax.set_ylabel("learning rate")
        return fig

    return explore(
        draw,
        alt=lambda warmup: (
            f"With {warmup} steps of warm-up the learning rate starts at {rates(warmup)[0]:.4f}, is highest at "
            f"{base.lr:g} and ends at {rates(warmup)[-1]:.4f}."
        ),
        caption="A straight line up, half a cosine down. Without warm-up the first steps, whose second moments rest "
        "on a single gradient, are already the largest.",
        start={"warmup": base.warmup},
        labels={"warmup": "warm-up steps"},
        warmup=[1, 5, 10, 20, 40, 80],
    )


class LossCurve:
    """A loss curve that grows while training runs in a live kernel, and stands still on a page.

    Use it as a context and hand ``add`` to the loop: ``with LossCurve(...) as curve: train(..., on_step=curve.add)``.

    Args:
        steps: length of the horizontal axis.
        levels: name → loss of horizontal lines to hold the curve against.
        every: steps between two drawings in a live kernel.
    """

    def __init__(self, steps: int, levels: Mapping[str, float], every: int = EVERY) -> None:
        self.steps, self.levels, self.every = steps, dict(levels), every
        self.losses: list[float] = []
        self.stage: Any = None

    def add(self, step: int, report: Report, rate: float) -> None:
        """Take the loss of one step; draw it now and then if somebody is watching."""
        self.losses.append(report.loss)
        if self.stage is not None and step % self.every == 0:
            self._draw()

    def figure(self) -> Figure:
        """The curve so far."""
        if not self.losses:
            raise ValueError("no step has been taken yet, so that there is no curve to draw")
        with style.context():
            fig, ax = style.new(5.2, 3.6)
            ax.plot(range(len(self.losses)), self.losses, color=BLUE, linestyle="-")
            for (name, level), color in zip(self.levels.items(), (GREY, ORANGE, GREEN), strict=False):
                ax.axhline(level, color=color, linestyle="--")
                lowest = len(self.levels) > 1 and level == min(self.levels.values())
                y, side = (level - 0.09, "top") if lowest else (level + 0.07, "bottom")
                ax.text(self.steps, y, f"{name}: {level:.2f}", color=color, ha="right", va=side)
            ax.set_xlim(0, self.steps)
            ax.set_ylim(0, max(5.5, *self.levels.values()))
            ax.set_xlabel("step")
            ax.set_ylabel("training loss in nats")
            lines = ", ".join(f"{name} {level:.2f}" for name, level in self.levels.items())
            return show(
                fig,
                alt=f"The training loss falls from {self.losses[0]:.2f} to {self.losses[-1]:.2f} nats in "
                f"{len(self.losses)} steps; for comparison: {lines}.",
                caption="Loss of each step. It crosses the guess without a model at once, the best guess from one "
                "token soon after, and then stays near the entropy of the language: only an easy batch lies below.",
            )

    def __enter__(self) -> Self:
        if explorable.is_live():
            import ipywidgets
            from IPython.display import display

            self.stage = ipywidgets.HTML(value="<p>The first step is running.</p>")
            display(self.stage)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.losses:
            return
        if self.stage is not None:
            self._draw()
        elif kind is None:
            from IPython.display import display

            display(self.figure())

    def _draw(self) -> None:
        self.stage.value = self.figure().html


def gradients_by_layer(run: Run, steps: Sequence[int]) -> Explorable:
    """Bars: the gradient norm of each part of the model, at a step to choose."""
    parts = list(run.layers[0])
    top = max(max(layers.values()) for layers in run.layers) * 1.2

    def draw(step: int) -> Any:
        fig, ax = style.new(5.2, 3)
        values = [run.layers[step][part] for part in parts]
        ax.bar(range(len(parts)), values, color=BLUE)
        for x, value in enumerate(values):
            ax.text(x, value + top * 0.02, f"{value:.2f}", ha="center", va="bottom")
        ax.set_xticks(range(len(parts)), parts)
        ax.set_ylim(0, top)
        ax.set_ylabel("gradient norm")
        return fig

    def alt(step: int) -> str:
        norms = ", ".join(f"{part} {run.layers[step][part]:.2f}" for part in parts)
        return f"Gradient norms at step {step}: {norms}; all together {run.norms[step]:.2f}."

    return explore(
        draw,
        alt=alt,
        caption="L2 norm of the gradient of each part. No part stands at 0 and none towers over the rest: the "
        "gradient reaches the embedding at the far end.",
        labels={"step": "step"},
        step=list(steps),
    )


def next_word(
    settings: Settings, tokenizer: Tokenizer, snapshots: Mapping[int, Any], prompt: str, truth: Mapping[str, float]
) -> Explorable:
    """Bars: what the model expects after a prompt, at several stages of its training, beside the true probabilities."""
    words = list(truth)
    places = [int(tokenizer.ids[word]) for word in words]

    def expected(step: int) -> np.ndarray:
        logits, _ = transformer.forward(settings.model, snapshots[step], tokenizer.encode(prompt)[None])
        return softmax(logits[0, -1])[places]

    def draw(step: int) -> Any:
        fig, ax = style.new(5.2, 3.2)
        p, at = expected(step), np.arange(len(words))
        ax.bar(at - 0.2, p, 0.38, color=BLUE, label="model")
        ax.bar(at + 0.2, [truth[word] for word in words], 0.38, color=ORANGE, label="grammar")
        for x, value in zip(at, p, strict=True):
            ax.text(x - 0.2, value + 0.02, f"{value:.2f}", ha="center", va="bottom")
        ax.set_xticks(at, [word.strip() for word in words])
        ax.set_ylim(0, 1)
        ax.set_ylabel("probability")
        ax.legend(loc="upper right")
        return fig

    def alt(step: int) -> str:
        p = ", ".join(f"{word.strip()} {value:.2f}" for word, value in zip(words, expected(step), strict=True))
        return f"After {step} steps the model expects, behind “{prompt.strip()}”: {p}."

    last = max(snapshots)
    return explore(
        draw,
        alt=alt,
        caption=f"The next word behind “{prompt.strip()}”. The subject is plural and four words back; a model that "
        "sees one token only cannot know.",
        start={"step": last},
        labels={"step": "steps trained"},
        step=sorted(snapshots),
    )


def saved_bytes(counts: Mapping[str, int]) -> Figure:
    """Horizontal bars: bytes of activations that wait for the backward pass."""
    fig, ax = style.new(5.2, 0.9 + 0.6 * len(counts))
    names = list(counts)
    sizes = [counts[name] / 2**20 for name in names]
    ax.barh(range(len(names)), sizes, color=BLUE, height=0.6)
    for y, size in enumerate(sizes):
        ax.text(size + max(sizes) * 0.02, y, f"{size:.2f} MiB", va="center")
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_xlim(0, max(sizes) * 1.3)
    ax.set_xlabel("activations kept, MiB")
    ax.grid(False)
    return show(
        fig,
        alt="Activations kept between forward and backward: "
        + ", ".join(f"{name} {size:.2f} MiB" for name, size in zip(names, sizes, strict=True)) + ".",
        caption="Bytes that autograd keeps for the backward pass of one step. Checkpointing keeps the inputs of the "
        "layers and computes the rest again.",
    )
