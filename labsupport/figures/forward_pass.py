"""Figures of chapter 11: the flow, the place on the training map, logits as bars, causality, parameters, a profile.

Numbers are computed by ``labsupport.ops`` or read from the recorded profile beside this file. This file must never
hold a result of its own; it also keeps the worked example that chapters 11 and 12 share.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from labsupport.figures import explore, show, steps, style, svg
from labsupport.figures.explorable import Displayable, Explorable, Figure
from labsupport.ops import transformer
from labsupport.ops.attention import causal_mask
from labsupport.ops.normalization import rms_norm
from labsupport.ops.softmax import softmax
from labsupport.ops.transformer import Config, Parameters

BLUE, ORANGE, GREEN, PURPLE, RED, GREY = style.PALETTE
Array = np.ndarray

# -- the worked example ---------------------------------------------------------------------

#: Seven tokens with their English and Vietnamese names; the index is the token id.
ENGLISH = ("pad", "cat", "dog", "eats", "fish", "sleeps", "eos")
VIETNAMESE = ("pad", "mèo", "chó", "ăn", "cá", "ngủ", "eos")
#: The vector of "eats" after the last layer (d = 2), and the LM head (2, 7). Chosen by hand, not learned.
H = np.array([1.0, 2.0])
U = np.array([[0.2, 0.1, -0.3, 0.0, 0.4, 0.5, -0.1], [0.0, 0.3, 0.2, 0.1, 0.1, -0.2, 0.4]])
#: Id of "fish", the right answer after "cat eats".
ANSWER = 4

#: A profile measured once and kept with its conditions.
RECORD = Path(__file__).with_name("records") / "forward_profile.json"


# -- where we are ---------------------------------------------------------------------------

COLUMNS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "1 Data": (("1A", "token ids"), ("1B", "batch (B, T)"), ("1C", "labels")),
    "2 Forward": (("2A", "embed, attend"), ("2B", "MLP"), ("2C", "norm, residual"), ("2D", "logits")),
    "3 Learn": (
        ("3A", "loss"),
        ("3B", "backward"),
        ("3C", "layer gradients"),
        ("3D", "AdamW"),
        ("3E", "next batch"),
    ),
}


def map_column(column: str, color: str, caption: str, alt: str) -> Figure:
    """The first three columns of the training map with one of them coloured."""
    pieces = []
    for place, (title, boxes) in enumerate(COLUMNS.items()):
        x = 4 + 120 * place
        mine = title == column
        pieces.append(svg.text(x + 54, 14, title, size=14, bold=mine))
        for row, (name, what) in enumerate(boxes):
            y = 30 + 48 * row
            pieces.append(svg.box(x, y, 108, 40, name, sub=what, color=color if mine else "grey", size=13))
            if row:
                pieces.append(svg.arrow((x + 54, y - 8), (x + 54, y), color="grey", width=1))
    pieces.append(svg.arrow((112, 98), (124, 98)))
    pieces.append(svg.arrow((232, 194), (244, 50), via=[(238, 194), (238, 50)]))
    pieces.append(svg.arrow((298, 262), (58, 174), via=[(298, 284), (58, 284)], label="next batch"))
    return show(svg.picture(360, 296, *pieces), alt=alt, caption=caption)


def on_the_map() -> Figure:
    """Column 2 of the training map: boxes 2A to 2D."""
    return map_column(
        "2 Forward",
        "blue",
        "Column 2 is this chapter: it takes the batch from column 1 and hands logits to the loss in column 3. The "
        "arrows between its boxes show the order of look-up.",
        "Three columns of the training map: data 1A to 1C, forward 2A to 2D, learning 3A to 3E. The forward column is "
        "marked; it takes the batch of 1B and hands logits to the loss 3A.",
    )


FLOW = (
    ("token ids", "(B, T) whole numbers"),
    ("look up embedding", "(B, T, d)"),
    ("L transformer layers", "(B, T, d) each"),
    ("last norm, LM head", "(B, T, V) logits"),
    ("use them", "loss, or the next token"),
)


def flow() -> Figure:
    """The forward pass in five steps."""
    pieces = []
    for row, (name, what) in enumerate(FLOW):
        y = 4 + 62 * row
        color = "orange" if row in (0, 4) else "blue"
        pieces.append(svg.box(70, y, 220, 44, f"{row + 1}. {name}", sub=what, color=color))
        if row:
            pieces.append(svg.arrow((180, y - 18), (180, y)))
    return show(
        svg.picture(360, 300, *pieces),
        alt="Five steps, one below the other: token ids, look up the embedding, L transformer layers, last norm and LM "
        "head, use the logits for the loss or for the next token.",
        caption="The flow in five steps. Only step 4 changes the last axis, from $d$ to $V$.",
    )


# -- one layer, step by step ----------------------------------------------------------------

LAYER_STEPS = (
    ("norm", "a", "Box 2C: each vector of x is brought to root-mean-square 1. Shape stays (B, T, d)."),
    ("attention", "o", "Box 2A: every position reads itself and earlier ones. In and out (B, T, d)."),
    ("+ residual", "y", "Box 2C: y = x + attention. The road around attention keeps what x held."),
    ("norm", "b", "Box 2C again: y is brought to root-mean-square 1 before the MLP reads it."),
    ("MLP", "h", "Box 2B: each position by itself, d to m and back to d."),
    ("+ residual", "next x", "Box 2C: the next x is y + MLP. The next layer starts here, shape (B, T, d)."),
)


def layer_walk() -> Displayable:
    """A walk through one layer in the order of execution, one box a step."""

    def drawing(active: int) -> str:
        pieces = [svg.text(180, 12, "x  (B, T, d)")]
        for row, (name, result, _) in enumerate(LAYER_STEPS):
            y = 40 + 50 * row
            color = "orange" if name == "norm" else "green" if name.startswith("+") else "blue"
            box = svg.box(115, y, 130, 36, name, color=color if row <= active else "grey", dashed=row > active)
            pieces += [
                svg.arrow((180, y - 10), (180, y)),
                box,
                svg.text(256, y + 18, result, anchor="start", mono=True),
            ]
            if row == active:
                pieces.append(svg.circle(102, y + 18, 6, color="red"))
        for start, end in ((0, 2), (3, 5)):
            top, low = 30 + 50 * start, 58 + 50 * end
            done = end <= active
            pieces.append(
                svg.arrow(
                    (172, top),
                    (115, low),
                    via=[(60, top), (60, low)],
                    color="green" if done else "grey",
                    dashed=not done,
                )
            )
        return svg.picture(360, 338, *pieces)

    return steps(
        [(f"{row + 1}. {name}", words, drawing(row)) for row, (name, _, words) in enumerate(LAYER_STEPS)],
        alt="One transformer layer in the order in which it runs: norm, attention, residual, norm, MLP, residual.",
        caption="One layer in the order of execution. Green arrows are the residual road.",
    )


# -- logits ---------------------------------------------------------------------------------


def logits_bars() -> Figure:
    """The seven logits of the worked example, with both names below each bar."""
    z = H @ U
    fig, ax = style.new(5.2, 3.4)
    colors = [GREEN if i == ANSWER else BLUE for i in range(len(z))]
    ax.bar(range(len(z)), z, color=colors, hatch=["///" if i == ANSWER else "" for i in range(len(z))])
    for i, value in enumerate(z):
        ax.text(i, value + 0.02, f"{value:.1f}", ha="center")
    names = [a if a == b else f"{a}\n{b}" for a, b in zip(ENGLISH, VIETNAMESE, strict=True)]
    ax.set_xticks(range(len(z)), names)
    ax.set_ylim(0, 0.9)
    ax.set_ylabel("logit")
    ax.text(ANSWER, 0.72, "right answer", ha="center", color=GREEN)
    return show(
        fig,
        alt="Logits after 'cat eats': cat and eos 0.7, fish 0.6, pad and eats 0.2, dog and sleeps 0.1. The right "
        "answer, "
        "fish, is behind two others.",
        caption="Scores after “cat eats” (mèo ăn). Two wrong tokens stand above the right one, hatched.",
    )


def lm_head_column() -> Explorable:
    """One column of U at a time: the dot product that makes one logit."""

    def draw(token: str) -> str:
        j = ENGLISH.index(token)
        z = H @ U
        return svg.picture(
            360,
            230,
            svg.cells(
                40, 66, [[f"{v:.0f}"] for v in H], size=34, title="h", highlight={(0, 0): "blue", (1, 0): "orange"}
            ),
            svg.cells(
                106,
                66,
                [[f"{v:.1f}" for v in row] for row in U],
                size=34,
                font=12,
                cols=ENGLISH,
                title="U  (d, V) = (2, 7)",
                highlight={(0, j): "blue", (1, j): "orange"},
            ),
            svg.cells(
                106,
                160,
                [[f"{v:.1f}" if i == j else "" for i, v in enumerate(z)]],
                size=34,
                font=12,
                highlight={(0, j): "green"},
            ),
            svg.text(84, 177, "z", bold=True),
            svg.text(180, 216, f"{H[0]:.0f} · ({U[0, j]:.1f}) + {H[1]:.0f} · ({U[1, j]:.1f}) = {z[j]:.1f}", size=15),
        )

    def alt(token: str) -> str:
        j = ENGLISH.index(token)
        return (
            f"The logit of {token} ({VIETNAMESE[j]}) is {H[0]:.0f} times {U[0, j]:.1f} plus {H[1]:.0f} times "
            f"{U[1, j]:.1f}, which is {(H @ U)[j]:.1f}."
        )

    return explore(
        draw,
        alt=alt,
        caption="One column of $U$ gives one logit. All seven columns at once are one row of a matrix product.",
        start={"token": "fish"},
        token=list(ENGLISH),
    )


# -- causality ------------------------------------------------------------------------------


def masked_forward(config: Config, W: Parameters, ids: Array, allowed: Array) -> Array:
    """Logits of a one-layer, one-head model under any mask: allowed[t, s] says whether t may read s."""
    x = W["embedding"][ids] + transformer.positions(0, ids.shape[1], config.width)
    one = np.ones(config.width)
    a = rms_norm(x, one)
    Q, K, V = (a @ W[f"layers.0.{name}"] for name in ("query", "key", "value"))
    scores = Q @ K.swapaxes(-1, -2) / np.sqrt(config.width)
    y = x + softmax(np.where(allowed, scores, -np.inf)) @ V @ W["layers.0.output"]
    b = rms_norm(y, one)
    gate, up = b @ W["layers.0.gate"], b @ W["layers.0.up"]
    x = y + (gate / (1 + np.exp(-gate)) * up) @ W["layers.0.down"]
    return rms_norm(x, one) @ W["head"]


#: Masks of the figure: the right one, none, and one that lets each position read its successor.
MASKS: Mapping[str, Callable[[int], Array]] = {
    "causal": causal_mask,
    "off by one": lambda n: np.tri(n, k=1, dtype=bool),
    "no mask": lambda n: np.ones((n, n), dtype=bool),
}


def influence(forward: Any, ids: Array, vocab: int) -> Array:
    """(T, T): largest change of any logit at position t when the token at position s becomes another one."""
    before = forward(ids)
    T = ids.shape[1]
    changes = np.zeros((T, T))
    for s in range(T):
        other = ids.copy()
        other[:, s] = (other[:, s] + 1) % vocab
        changes[:, s] = np.abs(forward(other) - before).max(axis=(0, 2))
    return changes


def causality() -> Explorable:
    """Which logits move when one token is replaced, under a right and two wrong masks."""
    config = Config(vocab=13, width=6, layers=1, hidden=12)
    parameters = transformer.init(config, np.random.default_rng(0))
    ids = np.array([[3, 1, 4, 1, 5, 9]])
    T = ids.shape[1]

    def of(mask: str) -> Array:
        return influence(lambda x: masked_forward(config, parameters, x, MASKS[mask](T)), ids, config.vocab)

    def draw(mask: str) -> str:
        changes = of(mask)
        bad = {(t, s) for t in range(T) for s in range(t + 1, T) if changes[t, s] > 0}
        marked = {(t, s): "red" if (t, s) in bad else "blue" for t in range(T) for s in range(T) if changes[t, s] > 0}
        words = [
            [("leak" if (t, s) in bad else "yes") if (t, s) in marked else "0" for s in range(T)] for t in range(T)
        ]
        return svg.picture(
            360,
            292,
            svg.text(200, 14, "token replaced at position s", size=13),
            svg.cells(90, 50, words, size=38, font=12, rows=range(T), cols=range(T), highlight=marked),
            svg.text(36, 164, "do logits\nat t\nchange?", size=13),
        )

    def alt(mask: str) -> str:
        changes = of(mask)
        leaks = int((changes[np.triu_indices(T, 1)] > 0).sum())
        later = "no logit depends on a later token" if not leaks else f"{leaks} pairs leak from a later token"
        return f"With mask '{mask}', {later}."

    return explore(
        draw,
        alt=alt,
        caption="Rows are positions of logits, columns are replaced tokens. Under the causal mask everything above the "
        "diagonal is exactly 0.",
        start={"mask": "causal"},
        mask=list(MASKS),
    )


# -- parameters -----------------------------------------------------------------------------


def parameter_budget() -> Explorable:
    """Where the parameters are: embedding, head, attention, MLP, for several widths and depths."""

    def sizes(d: int, L: int, n: int) -> dict[str, int]:
        return {"embedding": n * d, "attention": 4 * L * d * d, "MLP": 6 * L * d * d, "LM head": n * d}

    def draw(d: int, L: int, n: int) -> Any:
        parts = sizes(d, L, n)
        total = sum(parts.values())
        fig, ax = style.new(5.2, 2.8)
        colors = (ORANGE, BLUE, GREEN, PURPLE)
        for row, (count, color) in enumerate(zip(parts.values(), colors, strict=True)):
            ax.barh(row, count / total, color=color)
            ax.text(count / total + 0.01, row, f"{count:,}", va="center")
        ax.set_xlim(0, 1.15)
        ax.set_yticks(range(4), list(parts))
        ax.invert_yaxis()
        ax.set_xlabel("share of all parameters")
        ax.set_title(f"P = {total:,}")
        return fig

    def alt(d: int, L: int, n: int) -> str:
        parts = sizes(d, L, n)
        words = ", ".join(f"{name} {count:,}" for name, count in parts.items())
        return f"With n = {n}, d = {d}, L = {L} and m = 2d there are {sum(parts.values()):,} parameters: {words}."

    return explore(
        draw,
        alt=alt,
        caption="With $m = 2d$, $P = 2nd + 10Ld^2$. In small models the vocabulary holds most parameters, in large "
        "ones the layers do.",
        start={"d": 16, "L": 1, "n": 77},
        labels={"d": "width d", "L": "layers L", "n": "vocabulary n"},
        n=[13, 77, 32000],
        d=[6, 16, 128, 1024],
        L=[1, 4, 24],
    )


# -- the recorded profile -------------------------------------------------------------------


def recorded() -> dict[str, Any]:
    """The profile that was measured once: conditions, and seconds of every run for each part."""
    return dict(json.loads(RECORD.read_text(encoding="utf-8")))


def profile_recorded() -> Figure:
    """p50, p95 and p99 of each part of a layer, from the record."""
    record = recorded()
    parts: Mapping[str, Sequence[float]] = record["percentiles_us"]
    fig, ax = style.new(5.2, 3.6)
    for row, (_, (p50, p95, p99)) in enumerate(parts.items()):
        ax.plot([p50, p99], [row, row], color=GREY, linewidth=1, linestyle="-")
        for value, marker, color in ((p50, "o", BLUE), (p95, "s", ORANGE), (p99, "D", RED)):
            ax.plot([value], [row], marker, color=color)
    for marker, color, label in (("o", BLUE, "p50"), ("s", ORANGE, "p95"), ("D", RED, "p99")):
        ax.plot([], [], marker, color=color, label=label)
    ax.set_xscale("log")
    ax.set_yticks(range(len(parts)), list(parts))
    ax.invert_yaxis()
    ax.set_xlabel("microseconds a run (logarithmic)")
    ax.legend(loc="lower right")
    conditions = "; ".join(f"{name} {value}" for name, value in record["conditions"].items())
    slowest = max(parts, key=lambda name: parts[name][0] if name not in ("model", "layers.0") else 0)
    return show(
        fig,
        alt=f"Percentiles of the time of each part of one forward pass; among the inner parts {slowest} takes longest.",
        caption="In each row the distance from p50 to p99 is what a mean would hide. One recorded measurement; "
        f"conditions: {conditions}.",
    )
