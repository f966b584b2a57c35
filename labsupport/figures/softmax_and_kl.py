"""Figures of chapter 5: temperature, overflow by dtype, the loss, KL both ways, decoding filters, online merge.

Every height and every number in a caption is computed by ``labsupport.ops.softmax``. This file must never hold
a value of its own beyond the inputs it draws.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from labsupport.cuda.kernels import lessons
from labsupport.cuda.simt import Phase, launch
from labsupport.figures import explore, show, steps, style, svg
from labsupport.figures.explorable import Explorable, Figure
from labsupport.ops.softmax import (
    cross_entropy,
    entropy,
    kl_divergence,
    online_merge,
    online_state,
    softmax,
    top_k,
    top_p,
)

if TYPE_CHECKING:
    from labsupport.figures.widgets import Widget

BLUE, ORANGE, GREEN, PURPLE, RED, GREY = style.PALETTE

#: Five tokens and the logits of one position, used by the figures of sections 5.1 and 5.4.
TOKENS = ("fish", "dog", "cat", "car", "sky")
LOGITS = np.array([2.0, 1.5, 0.5, -0.5, -1.0])

#: Two vocabularies of ten tokens: a model that is sure, and one that is not.
SURE = softmax(np.array([3.4, 1.6, 1.0, 0.4, 0.0, -0.4, -0.8, -1.2, -1.6, -2.0]))
UNSURE = softmax(np.array([1.0, 0.9, 0.8, 0.65, 0.5, 0.4, 0.25, 0.1, 0.0, -0.2]))

#: A distribution with two humps over 21 bins, the p of section 5.7.
BINS = np.arange(-10, 11)
TWO_HUMPS = 0.5 * softmax(-0.5 * ((BINS + 5) / 1.5) ** 2) + 0.5 * softmax(-0.5 * ((BINS - 5) / 1.5) ** 2)


def bell(centre: float, width: float) -> np.ndarray:
    """A categorical distribution over ``BINS`` in the form of a bell: the q of section 5.7."""
    return softmax(-0.5 * ((BINS - centre) / width) ** 2)


def _label_bars(ax: Any, heights: np.ndarray) -> None:
    for x, h in enumerate(heights):
        ax.text(x, h + 0.02, f"{h:.2f}", ha="center", va="bottom", fontsize=12)


def temperature() -> Explorable:
    """Bars of softmax(z/T) for five tokens: sharper below T = 1, flatter above."""

    def draw(T: float) -> Any:
        p = softmax(LOGITS, temperature=T)
        fig, ax = style.new(5.2, 3.4)
        ax.bar(range(5), p, color=BLUE)
        _label_bars(ax, p)
        ax.set_ylim(0, 1.12)
        ax.set_xticks(range(5), [f"{t}\n{z:g}" for t, z in zip(TOKENS, LOGITS, strict=True)])
        ax.set_ylabel("probability")
        ax.text(4.45, 1.0, f"entropy {entropy(p, base=2):.2f} bit", ha="right")
        return fig

    def alt(T: float) -> str:
        p = softmax(LOGITS, temperature=T)
        return (
            f"At temperature {T:g} the probabilities of {', '.join(TOKENS)} are {', '.join(f'{v:.2f}' for v in p)}; "
            f"the entropy is {entropy(p, base=2):.2f} bits."
        )

    return explore(
        draw,
        alt=alt,
        caption="Five tokens with their logits below. A low temperature puts nearly everything on the first; "
        "a high one approaches 0.20 for each.",
        start={"T": 1.0},
        labels={"T": "temperature T"},
        T=[0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, 10.0, 100.0],
    )


def exp_overflow() -> Explorable:
    """Where e^z leaves float16, float32 and float64, on logarithmic axes, with a movable logit."""
    dtypes = (("float16", np.float16, BLUE), ("float32", np.float32, ORANGE), ("float64", np.float64, GREEN))

    def fits(z: float, dtype: Any) -> bool:
        return z <= float(np.log(np.finfo(dtype).max.astype(np.longdouble)))

    def draw(z: float) -> Any:
        fig, ax = style.new(5.2, 3.8)
        grid = np.array([2.0, 2000.0])
        ax.loglog(grid, grid * np.log10(np.e), color="k", linestyle="-")
        for name, dtype, color in dtypes:
            top = float(np.log10(np.finfo(dtype).max.astype(np.longdouble)))
            ax.axhline(top, color=color, linestyle="--")
            verdict = "fits" if fits(z, dtype) else "inf"
            ax.text(2.1, top * 1.08, f"{name}: {verdict}", color=color, va="bottom")
        ax.plot([z], [z * np.log10(np.e)], "o", color=RED, markersize=9)
        ax.set_xlim(2, 2000)
        ax.set_ylim(0.7, 1000)
        ax.set_xticks([3, 10, 30, 100, 300, 1000], ["3", "10", "30", "100", "300", "1000"])
        ax.set_yticks([1, 10, 100, 1000], ["10¹", "10¹⁰", "10¹⁰⁰", "10¹⁰⁰⁰"])
        ax.minorticks_off()
        ax.set_xlabel("logit z")
        ax.set_ylabel("exp(z)")
        return fig

    def alt(z: float) -> str:
        inside = [name for name, dtype, _ in dtypes if fits(z, dtype)]
        outside = [name for name, dtype, _ in dtypes if not fits(z, dtype)]
        words = f"exp({z:g}) fits {', '.join(inside)}" if inside else f"exp({z:g}) fits none of the three dtypes"
        return words + (f" and is infinite in {', '.join(outside)}." if outside and inside else ".")

    return explore(
        draw,
        alt=alt,
        caption="The dot is `exp(z)`; the dashed lines are the largest finite numbers. Above its line a dtype "
        "returns inf. Both axes are logarithmic, so 20 more on the logit is a long way up.",
        start={"z": 20.0},
        labels={"z": "logit z"},
        z=[5.0, 10.0, 11.0, 12.0, 20.0, 50.0, 88.0, 89.0, 200.0, 700.0, 710.0, 1500.0],
    )


def loss_curve() -> Figure:
    """Cross-entropy of a one-hot target, −log p, with the four values of section 5.5."""
    fig, ax = style.new(5.2, 3.4)
    p = np.geomspace(1e-3, 1, 200)
    ax.plot(p, -np.log(p), color=BLUE)
    for value, dx in ((0.999, -0.16), (0.665, -0.02), (0.5, -0.02), (0.001, 0.04)):
        loss = float(cross_entropy(np.log([value, 1 - value]), 0))
        ax.plot([value], [loss], "o", color=RED, clip_on=False)
        ax.text(value + dx, loss + 0.3, f"p = {value:g}: {loss:.4f}" if value < 0.01 else f"{loss:.4f}")
    ax.set_xlim(0, 1.05)
    ax.set_ylim(0, 8)
    ax.set_xlabel("probability p of the right token")
    ax.set_ylabel("loss in nats")
    return show(
        fig,
        alt="The loss minus log p falls from 6.9 nats at probability 0.001 to almost 0 at probability 1; it is steep "
        "near 0 and flat near 1.",
        caption="A confident wrong answer is expensive: the curve has no upper end at p = 0.",
    )


def kl_two_ways() -> Explorable:
    """A bell q held against a p with two humps, with KL in both directions."""

    def both(centre: float, width: float) -> tuple[float, float]:
        q = bell(centre, width)
        return float(kl_divergence(TWO_HUMPS, q)), float(kl_divergence(q, TWO_HUMPS))

    def draw(centre: float, width: float) -> Any:
        forward, backward = both(centre, width)
        fig, ax = style.new(5.2, 3.6)
        ax.bar(BINS, TWO_HUMPS, color=GREY, width=0.9, label="p, the data")
        ax.plot(BINS, bell(centre, width), "o-", color=BLUE, markersize=4, label="q, the model")
        ax.set_ylim(0, 0.4)
        ax.set_xlim(-10.6, 10.6)
        ax.set_xticks([-10, -5, 0, 5, 10])
        ax.set_xlabel("outcome")
        ax.set_ylabel("probability")
        ax.legend(loc="upper left")
        ax.text(10.4, 0.375, f"KL(p‖q) = {forward:.2f}", ha="right", va="top")
        ax.text(10.4, 0.335, f"KL(q‖p) = {backward:.2f}", ha="right", va="top")
        return fig

    def alt(centre: float, width: float) -> str:
        forward, backward = both(centre, width)
        return (
            f"With q centred at {centre:g} and {width:g} wide, KL(p‖q) is {forward:.2f} nats and KL(q‖p) is "
            f"{backward:.2f} nats."
        )

    return explore(
        draw,
        alt=alt,
        caption="Move q until each of the two numbers is as small as it gets. KL(p‖q) wants q wide over both humps, "
        "KL(q‖p) wants it narrow on one.",
        start={"centre": 0, "width": 3.0},
        labels={"centre": "centre of q", "width": "width of q"},
        centre=[-7, -5, -2, 0, 2, 5, 7],
        width=[1.5, 3.0, 5.0, 8.0],
    )


def _kept(rule: Any, title: Any) -> Any:
    """Two bar charts, sure and unsure model, with the kept tokens in blue and their number above."""
    fig, axes = style.new(5.2, 3.2, 1, 2, sharey=True)
    for ax, name, p in zip(axes, ("a sure model", "an unsure model"), (SURE, UNSURE), strict=True):
        keep = np.isfinite(rule(np.log(p)))
        ax.bar(np.flatnonzero(keep), p[keep], color=BLUE, label="kept")
        ax.bar(np.flatnonzero(~keep), p[~keep], color=GREY, hatch="///", label="set to −inf")
        ax.set_xlim(-0.7, 9.7)
        ax.set_ylim(0, 0.8)
        ax.set_xticks([0, 3, 6, 9], ["1", "4", "7", "10"])
        ax.set_title(name)
        ax.text(9.5, 0.7, title(keep, p), ha="right", va="top")
        ax.set_xlabel("token, by rank")
    axes[0].set_ylabel("probability")
    return fig


def _summary(keep: np.ndarray, p: np.ndarray) -> str:
    return f"{keep.sum()} kept,\nmass {p[keep].sum():.2f}"


def _kept_words(rule: Any, what: str) -> str:
    counts = [(np.isfinite(rule(np.log(p))), p) for p in (SURE, UNSURE)]
    (a, p), (b, q) = counts
    return (
        f"{what}: the sure model keeps {a.sum()} tokens with mass {p[a].sum():.2f}, the unsure model {b.sum()} "
        f"with mass {q[b].sum():.2f}."
    )


def top_k_kept() -> Explorable:
    """Which tokens top-k keeps for a sure and for an unsure model."""
    return explore(
        lambda k: _kept(lambda z: top_k(z, k), _summary),
        alt=lambda k: _kept_words(lambda z: top_k(z, k), f"Top-k with k = {k}"),
        caption="Hatched bars are set to −∞. The same k keeps junk where the model is sure, and cuts good "
        "tokens where it is not.",
        start={"k": 3},
        labels={"k": "k"},
        k=[1, 2, 3, 4, 5, 6, 8, 10],
    )


def top_p_kept() -> Explorable:
    """Which tokens top-p keeps for a sure and for an unsure model."""
    return explore(
        lambda p: _kept(lambda z: top_p(z, p), _summary),
        alt=lambda p: _kept_words(lambda z: top_p(z, p), f"Top-p with p = {p:g}"),
        caption="Hatched bars are set to −∞. The same p keeps few tokens where the model is sure and many "
        "where it is not; the kept mass is always at least p.",
        start={"p": 0.8},
        labels={"p": "p"},
        p=[0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0],
    )


#: Eight logits of one row, the example of section 5.10.
ROW = np.array([1.0, 3.0, 2.0, 0.5, 4.0, 2.5, 1.5, 3.5])


def merge_by_split() -> Explorable:
    """One row cut into two blocks at any place: the states differ, the merged state does not."""

    def states(cut: int) -> tuple[Any, Any, Any]:
        a, b = online_state(ROW[:cut]), online_state(ROW[cut:])
        return a, b, online_merge(a, b)

    def words(state: Any) -> str:
        m = "−∞" if np.isneginf(state.m) else f"{state.m:g}"
        return f"m = {m}, ℓ = {state.l:.3f}"

    def draw(cut: int) -> Any:
        a, b, merged = states(cut)
        fig, ax = style.new(5.2, 3.6)
        place = np.arange(ROW.size)
        ax.bar(place[:cut], ROW[:cut], color=BLUE)
        ax.bar(place[cut:], ROW[cut:], color=ORANGE, hatch="///")
        for state, start, end, color in ((a, 0, cut, BLUE), (b, cut, ROW.size, ORANGE)):
            if end > start:
                ax.hlines(state.m, start - 0.45, end - 0.55, color=color, linestyle="--")
        ax.vlines(cut - 0.5, 0, 4.6, color="k", linewidth=1)
        ax.text(-0.4, 6.7, f"a:  {words(a)}", color=BLUE, va="top")
        ax.text(7.4, 6.7, f"b:  {words(b)}", color=ORANGE, va="top", ha="right")
        ax.text(3.5, 5.7, f"merged:  {words(merged)}", va="top", ha="center")
        ax.set_xlim(-0.6, 7.6)
        ax.set_ylim(0, 7)
        ax.set_yticks([0, 1, 2, 3, 4])
        ax.set_xticks(place)
        ax.set_xlabel("index in the row")
        ax.set_ylabel("logit")
        return fig

    def alt(cut: int) -> str:
        a, b, merged = states(cut)
        return (
            f"Cut after {cut} of 8 logits: block a has {words(a)}; block b has {words(b)}; merged, {words(merged)}, "
            "the same for every cut."
        )

    return explore(
        draw,
        alt=alt,
        caption="Dashed lines are the maxima of the two blocks. Wherever the row is cut, the merged state is the "
        "state of the whole row; an empty block changes nothing.",
        start={"cut": 3},
        labels={"cut": "logits in block a"},
        cut=list(range(ROW.size + 1)),
    )


#: Threads and columns of the block that is watched.
WATCHED_THREADS, WATCHED_COLUMNS = 8, 16


def _watched_row() -> tuple[list[Phase], np.ndarray]:
    """The simulator's trace of one block that normalises one row, and the row."""
    row = np.random.default_rng(5).integers(-3, 6, (1, WATCHED_COLUMNS)).astype(np.float32)
    kernel = lessons.edited(lessons.online_softmax, *[("ROW_THREADS", str(WATCHED_THREADS))] * 5)
    return launch(kernel, 1, WATCHED_THREADS, row, np.zeros_like(row), trace=True).trace, row


def _merges(phase: Phase) -> list[tuple[int, int]]:
    """Which state each thread merges into its own in a phase: pairs of (own place, the other's)."""
    pairs = set()
    for step in phase.steps:
        if step.array == "sm" and step.kind == "load" and step.index[0] != step.thread:
            pairs.add((step.thread, step.index[0]))
    return sorted(pairs)


def _block_picture(phase: Phase, row: np.ndarray) -> str:
    """The row, the two shared arrays and the merges of one phase."""
    wide, narrow = 42, 21
    touched: dict[str, dict[tuple[int, int], str]] = {name: {} for name in ("x", "y", "sm", "sl")}
    for step in phase.steps:
        colour = "orange" if step.kind == "store" else "blue"
        place = (0, step.index[-1])
        if touched[step.array].get(place) != "orange":
            touched[step.array][place] = colour
    m, l = phase.shared["sm"], phase.shared["sl"]
    pieces = [
        svg.cells(12, 34, [[f"{v:.0f}" for v in row[0]]], size=narrow, title="x, global", highlight=touched["x"]),
        svg.cells(
            12,
            108,
            [[f"{v:.0f}" for v in m]],
            size=30,
            width=wide,
            title="m, shared: maximum a thread",
            highlight=touched["sm"],
            cols=[f"t{t}" for t in range(WATCHED_THREADS)],
        ),
        svg.cells(
            12,
            216,
            [[f"{v:.2f}" for v in l]],
            size=30,
            width=wide,
            title="l, shared: sum a thread",
            highlight=touched["sl"],
        ),
        svg.cells(12, 290, [[""] * WATCHED_COLUMNS], size=narrow, title="y, global", highlight=touched["y"]),
    ]
    for k, (own, other) in enumerate(_merges(phase) if phase.barrier_line else []):
        y = 150 + 10 * (k % 4)
        pieces.append(
            svg.arrow(
                (12 + wide * (other + 0.5), 140),
                (12 + wide * (own + 0.5), 140),
                via=[(12 + wide * (other + 0.5), y + 6), (12 + wide * (own + 0.5), y + 6)],
            )
        )
    return svg.picture(360, 330, *pieces)


def online_block() -> "Widget":
    """One thread block computes an online softmax, barrier by barrier, from the simulator's trace."""
    trace, row = _watched_row()
    items = []
    for number, phase in enumerate(trace, 1):
        merges = _merges(phase)
        if number == 1:
            title = "Load"
            text = f"Each thread reads every {WATCHED_THREADS}th column and writes its state (m, l)."
        elif phase.barrier_line:
            pairs = ", ".join(f"{other} into {own}" for own, other in merges)
            title, text = f"Merge, step {number - 1}", f"States merge: {pairs}. The other threads wait."
        else:
            title = "Write"
            text = f"Every thread reads the row's state, m = {phase.shared['sm'][0]:.0f} and l = "
            text += f"{phase.shared['sl'][0]:.2f}, reads its columns again and writes the result."
        if phase.barrier_line:
            text += " Then the barrier."
        items.append((f"{number} of {len(trace)}. {title}.", text, _block_picture(phase, row)))
    return steps(
        items,
        alt="One block of eight threads and a row of 16 logits, from one barrier to the next: each thread reads two "
        "logits and writes its state; in three turns four, two and one threads merge states; then all read one "
        "and write.",
        caption="Blue is read, orange is written. Three barriers of merging turn eight states into one.",
    )
