"""Figures of chapter 10: attention step by step, score bytes, saturation, tiles, LoRA, memory of whole models.

Every number shown is computed by the operators and cost functions of the book. This file must never hold a value of its
own beyond the sizes it draws.
"""

from itertools import groupby
from typing import Any

import numpy as np

from labsupport import model_memory
from labsupport.cost import format_bytes, lora_cost, score_bytes
from labsupport.cuda.kernels import lessons
from labsupport.cuda.simt import Phase, launch
from labsupport.figures import explore, show, steps, style, svg
from labsupport.figures.explorable import Explorable, Figure
from labsupport.figures.widgets import Widget
from labsupport.ops.attention import traffic
from labsupport.ops.softmax import entropy, softmax

BLUE, ORANGE, GREEN, PURPLE, RED, GREY = style.PALETTE

#: The sizes of the walk through attention: small enough to draw, all different.
B, S, N_H, D_H = 2, 5, 3, 4


def attention_shapes(B: int = B, S: int = S, N_h: int = N_H, D_h: int = D_H) -> Widget:
    """Multi-head attention as eight steps, each with the shape that it takes in and gives out."""
    H = N_h * D_h
    walk: list[tuple[str, str, str, str]] = [
        ("Input", "X", f"({B}, {S}, {H})", f"$X$ has shape $(B, S, H) = ({B}, {S}, {H})$: one vector for each token."),
        (
            "Three projections",
            "Q, K, V",
            f"3 × ({B}, {S}, {H})",
            f"Three products $X W$ with weights of shape $({H}, {H})$. Each result has the shape of $X$.",
        ),
        (
            "Cut the heads",
            "reshape",
            f"({B}, {S}, {N_h}, {D_h})",
            f"The last axis is cut into ${N_h}$ heads of width $D_h = {D_h}$. No element moves: this is a view.",
        ),
        (
            "Move the heads forward",
            "transpose",
            f"({B}, {N_h}, {S}, {D_h})",
            "Heads and tokens change places. The head axis is now a batch axis, like $B$.",
        ),
        (
            "Scores",
            "Q Kᵀ / √D_h",
            f"({B}, {N_h}, {S}, {S})",
            f"${B * N_h}$ products $({S}, {D_h}) \\cdot ({D_h}, {S})$, one for each sequence and head. $D_h$ is summed "
            "away.",
        ),
        (
            "Mask and softmax",
            "P",
            f"({B}, {N_h}, {S}, {S})",
            "Future positions become $-\\infty$, then each row becomes weights that sum to 1. The shape stays.",
        ),
        (
            "Weighted values",
            "P V",
            f"({B}, {N_h}, {S}, {D_h})",
            "The key axis is summed away: each query gets a mean of values.",
        ),
        (
            "Merge the heads",
            "O W",
            f"({B}, {S}, {H})",
            "Transpose back and reshape: heads stand side by side again, which copies. The product with "
            f"$({H}, {H})$ mixes them.",
        ),
    ]
    return steps(
        [(title, text, _walk_picture(walk, i)) for i, (title, _, _, text) in enumerate(walk)],
        alt="Walk through the shapes of multi-head attention",
        caption="Eight steps from $(B, S, H)$ back to $(B, S, H)$. Only the scores and the weights have $S$ twice.",
    )


def _walk_picture(walk: list[tuple[str, str, str, str]], now: int) -> str:
    """All steps as a ladder of boxes, the current one in colour, and its inner picture beside it."""
    pieces = []
    for i, (_, name, shape, _) in enumerate(walk):
        y = 6 + 34 * i
        color = "orange" if i == now else "blue" if i < now else "grey"
        pieces.append(svg.rect(4, y, 226, 26, color=color, fill=color if i <= now else None, radius=6))
        pieces.append(svg.text(12, y + 13, name, anchor="start", size=13, bold=i == now))
        pieces.append(svg.text(224, y + 13, shape, anchor="end", size=13))
        if i:
            pieces.append(svg.line([(117, y - 8), (117, y)], color=color))
    pieces.append(_inner(now))
    return svg.picture(360, 282, *pieces)


def _inner(now: int) -> str:
    """What one sequence looks like at a step, as a small grid: rows are tokens."""
    x, y = 248, 24
    if now < 2:
        return _grid(x, y, S, N_H * D_H, lambda r, c: "blue", "tokens × H")
    if now in (2, 7):
        return _grid(x, y, S, N_H * D_H, lambda r, c: ("blue", "green", "purple")[c // D_H], "heads side by side")
    if now in (3, 6):
        heads = [
            _grid(x, y + 78 * h, S, D_H, lambda r, c, h=h: ("blue", "green", "purple")[h], f"head {h}: S × D_h")
            for h in range(N_H)
        ]
        return "".join(heads)
    masked = now == 5
    heads = [
        _grid(
            x,
            y + 78 * h,
            S,
            S,
            lambda r, c, h=h: "none" if masked and c > r else ("blue", "green", "purple")[h],
            f"head {h}: S × S",
        )
        for h in range(N_H)
    ]
    return "".join(heads)


def _grid(x: float, y: float, rows: int, cols: int, color: Any, title: str) -> str:
    """Rows of tokens; neighbouring cells of one colour are drawn as one bar."""
    cell = 9
    pieces = [svg.text(x, y - 10, title, anchor="start", size=12)]
    for r in range(rows):
        names = [color(r, c) for c in range(cols)]
        for name, run in groupby(range(cols), key=names.__getitem__):
            places = list(run)
            left, width = x + cell * places[0], cell * len(places) - 1.5
            fill = None if name == "none" else name
            shade = "grey" if name == "none" else name
            pieces.append(svg.rect(left, y + cell * r, width, cell - 1.5, color=shade, fill=fill, tint=0.6, stroke=0.6))
    return "".join(pieces)


def score_memory() -> Explorable:
    """Bytes of the explicit scores against those of Q, by context length, for a number of heads."""
    lengths = np.array([512, 1024, 2048, 4096, 8192, 16384, 32768])

    def draw(S: int, N_h: int) -> Any:
        fig, ax = style.new(5.2, 3.5)
        scores = np.array([score_bytes(1, N_h, int(s)) for s in lengths]) / 2**30
        queries = lengths * N_h * 128 * 2 / 2**30
        ax.loglog(lengths, scores, "o-", color=ORANGE, markersize=4, base=2)
        ax.loglog(lengths, queries, "s--", color=BLUE, markersize=4)
        ax.text(lengths[2] * 0.9, scores[2] * 1.6, "scores", ha="right", color=ORANGE)
        ax.text(lengths[6] * 1.2, queries[5] / 5, "Q, heads of width 128", ha="right", va="top", color=BLUE)
        ax.plot([S], [score_bytes(1, N_h, S) / 2**30], "o", color=RED, markersize=10)
        ax.set_xlim(400, 42000)
        ax.set_ylim(2.0**-11, 2.0**8)
        ax.set_xticks(lengths, [str(s) for s in lengths])
        ax.set_yticks([2.0**-10, 2.0**-5, 1, 2.0**5], ["1 MiB", "32 MiB", "1 GiB", "32 GiB"])
        ax.minorticks_off()
        ax.set_xlabel("context length S")
        return fig

    return explore(
        draw,
        alt=lambda S, N_h: (
            f"With {N_h} heads and {S} tokens the FP16 scores of one sequence and layer take "
            f"{format_bytes(score_bytes(1, N_h, S))}."
        ),
        caption="One sequence, one layer, FP16. The line of the scores is twice as steep: each doubling of $S$ costs "
        "a factor of 4.",
        start={"S": 4096, "N_h": 32},
        labels={"S": "context length S", "N_h": "heads"},
        S=[512, 1024, 2048, 4096, 8192, 16384, 32768],
        N_h=[8, 32],
    )


def softmax_saturates() -> Explorable:
    """The weights of one query over 16 keys, with and without the scale, for a head width."""
    keys = 16

    def weights(D_h: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(11)
        q, k = rng.standard_normal(1024)[:D_h], rng.standard_normal((keys, 1024))[:, :D_h]
        z = k @ q
        return softmax(z), softmax(z / np.sqrt(D_h))

    def draw(D_h: int) -> Any:
        fig, axes = style.new(5.2, 3.3, 1, 2, sharey=True)
        titles = ("without the scale", "divided by √D_h")
        for ax, p, title, color in zip(axes, weights(D_h), titles, (ORANGE, BLUE), strict=True):
            ax.bar(range(keys), p, color=color)
            ax.set_ylim(0, 1.05)
            ax.set_xlim(-0.7, keys - 0.3)
            ax.set_xticks([0, 5, 10, 15])
            ax.set_title(title)
            ax.set_xlabel("key")
            ax.text(keys - 0.5, 0.97, f"entropy {entropy(p):.2f} nat", ha="right", va="top")
        axes[0].set_ylabel("weight")
        return fig

    def alt(D_h: int) -> str:
        plain, scaled = weights(D_h)
        return (
            f"Head width {D_h}: the largest of 16 weights is {plain.max():.2f} without the scale and "
            f"{scaled.max():.2f} with it."
        )

    return explore(
        draw,
        alt=alt,
        caption="The weights of one random query. Without the scale a wide head soon puts everything on one key; with "
        "it the picture hardly depends on the width.",
        start={"D_h": 64},
        labels={"D_h": "head width"},
        D_h=[4, 16, 64, 256, 1024],
    )


def tiles(queries: int = 6, keys: int = 8, block: tuple[int, int] = (3, 2)) -> Widget:
    """Blocks of attention in the order in which they are visited, with what the state holds after each."""
    rows, columns = block
    visited: list[tuple[int, int]] = [(i, j) for i in range(0, queries, rows) for j in range(0, keys, columns)]
    items = []
    for n, (i, j) in enumerate(visited[: len(visited) // 2 + 1]):
        last = j + columns >= keys
        title = f"Queries {i} to {i + rows - 1}, keys {j} to {j + columns - 1}"
        if j == 0:
            text = "New queries start with $m = -\\infty$, $\\ell = 0$, $A = 0$; the first block of keys is added."
        elif last:
            text = "The last keys are merged. $A / \\ell$ is the output of these queries: it alone is written."
        else:
            text = (
                "Scores of one block are made on the chip and merged into $(m, \\ell, A)$; then the block is forgotten."
            )
        items.append((title, text, _tile_picture(queries, keys, visited, n, block)))
    return steps(
        items,
        alt="Attention by blocks, one block of keys at a time",
        caption="Orange: the block of scores on the chip now. Green: blocks whose share is in the state or the output. "
        "The whole square never exists.",
    )


def _tile_picture(queries: int, keys: int, visited: list[tuple[int, int]], now: int, block: tuple[int, int]) -> str:
    cell, x, y = 22, 92, 52
    rows, columns = block
    i, j = visited[now]
    done = set(visited[:now])
    pieces = [svg.text(x + cell * keys / 2, 12, "keys and values", size=13), svg.text(36, y + 66, "queries", size=13)]
    for c in range(keys):
        color = "orange" if j <= c < j + columns else "grey"
        pieces.append(svg.rect(x + cell * c, 24, cell - 3, 18, color=color, fill=color))
    for r in range(queries):
        color = "orange" if i <= r < i + rows else "grey"
        pieces.append(svg.rect(68, y + cell * r, 18, cell - 3, color=color, fill=color))
        finished = (r // rows * rows, keys - columns) in done or (r // rows * rows == i and j + columns >= keys)
        pieces.append(
            svg.rect(
                x + cell * keys + 8, y + cell * r, 26, cell - 3,
                color="green" if finished else "grey", fill="green" if finished else None,
            )
        )  # fmt: skip
        for c in range(keys):
            corner = (r // rows * rows, c // columns * columns)
            name = "orange" if corner == (i, j) else "green" if corner in done else None
            pieces.append(
                svg.rect(
                    x + cell * c, y + cell * r, cell - 3, cell - 3, color=name or "grey", fill=name, stroke=0.8,
                    dashed=name is None,
                )
            )  # fmt: skip
    pieces.append(svg.text(x + cell * keys + 21, 33, "O", size=14, bold=True))
    state = f"state of {rows} queries: m, ℓ and A"
    pieces.append(svg.box(60, y + cell * queries + 10, 260, 30, state, color="purple", size=13))
    return svg.picture(360, y + cell * queries + 46, *pieces)


def tile_traffic() -> Figure:
    """Traffic of tiled attention over that of the explicit form, by number of queries in a block."""
    fig, ax = style.new(5.2, 3.4)
    sizes = np.array([1, 4, 16, 64, 128, 256, 1024])
    for D_h, marker in ((64, "o-"), (128, "s--")):
        explicit = traffic(4096, 4096, D_h).total
        ratio = [traffic(4096, 4096, D_h, block=int(b)).total / explicit for b in sizes]
        ax.loglog(sizes, ratio, marker, markersize=4, base=2, label=f"head width {D_h}")
    ax.axhline(1, color="k", linewidth=1)
    ax.text(1000, 1.15, "explicit form", ha="right")
    ax.set_xticks(sizes, [str(b) for b in sizes])
    ax.set_yticks([1 / 64, 1 / 16, 1 / 4, 1, 4, 16, 64], ["1/64", "1/16", "1/4", "1", "4", "16", "64"])
    ax.minorticks_off()
    ax.set_xlabel("queries in a block")
    ax.set_ylabel("traffic, relative")
    ax.legend(loc="upper right")
    small = traffic(4096, 4096, 128, block=128).total / traffic(4096, 4096, 128).total
    return show(
        fig,
        alt=f"The traffic of tiled attention falls with the number of queries in a block; at head width 128 and 128 "
        f"queries it is {small:.2f} of the explicit form's.",
        caption="A sequence of 4096 tokens. Blocks of one query are far worse than the explicit form: they read all "
        "keys for each query.",
    )


#: Queries and keys of the block that is watched, and the width of its head; a tile holds as many keys.
FLASH_QUERIES, FLASH_KEYS, FLASH_WIDTH = 8, 10, 4
REGISTERS = ("p", "m", "old", "ℓ", "A")


def watched_flash(causal: bool) -> tuple[list[Phase], np.ndarray]:
    """The simulator's trace of one block of `flash_block`, and its registers after each tile.

    The kernel runs as in the lesson, for a narrower head, with lines that write down the registers: p, m,
    the factor old, ℓ and A of each thread, shape (tiles, 8, 4, 5).
    """
    writes = "".join(
        f"        seen[j0 // WIDE, y, x, {k}] = {name}\n" for k, name in enumerate(("p", "m", "old", "l", "A"))
    )
    kernel = lessons.edited(
        lessons.flash_block,
        ("O, causal)", "O, causal, seen)"),
        ("range(3)", "range(2)"),
        ("            A += w * sV[r, x]\n", "            A += w * sV[r, x]\n" + writes),
    )
    kernel.__globals__.update(QUERIES=FLASH_QUERIES, WIDE=FLASH_WIDTH, PADDED=FLASH_WIDTH + 1)
    rng = np.random.default_rng(2)
    Q, K, V = (
        rng.integers(-2, 3, (n, FLASH_WIDTH)).astype(np.float32) for n in (FLASH_QUERIES, FLASH_KEYS, FLASH_KEYS)
    )
    seen = np.zeros((-(-FLASH_KEYS // FLASH_WIDTH), FLASH_QUERIES, FLASH_WIDTH, len(REGISTERS)), np.float32)
    trace = launch(
        kernel, 1, (FLASH_WIDTH, FLASH_QUERIES), Q, K, V, np.zeros_like(Q), int(causal), seen, trace=True
    ).trace
    return trace, seen


def _marks(phase: Phase, array: str, shape: tuple[int, int], chosen: int) -> dict[str, Any]:
    """Letters and colours of the cells of one array: r and w for the block, capitals in red for the chosen thread."""
    letters = [[""] * shape[1] for _ in range(shape[0])]
    colours: dict[Any, str] = {}
    for step in sorted(phase.steps, key=lambda step: step.thread == chosen):
        if step.array == array:
            mine, letter = step.thread == chosen, "w" if step.kind == "store" else "r"
            letters[step.index[0]][step.index[1]] = letter.upper() if mine else letter
            colours[step.index] = "red" if mine else "orange" if letter == "w" else "blue"
    return {"values": letters, "highlight": colours}


def accesses(phase: Phase) -> dict[str, int]:
    """Loads and stores of a phase by memory, without the lines that write down the registers."""
    counted = dict.fromkeys(("global load", "global store", "shared load", "shared store"), 0)
    for step in phase.steps:
        if step.array != "seen":
            counted[f"{step.space} {step.kind}"] += 1
    return counted


def _registers(seen: np.ndarray, done: int, place: tuple[int, int], y: float) -> str:
    """The registers of all threads after ``done`` tiles, one row of threads a row; those of one thread are marked."""
    x, pieces = 4.0, []
    row, column = place
    for k, (name, width) in enumerate(zip(REGISTERS, (30, 29, 29, 31, 31), strict=True)):
        columns = FLASH_WIDTH if name in "pA" else 1
        if done:
            values = [
                [f"{v:.1f}".replace("-0.0", "0.0") if name in "mA" else f"{v:.2f}" for v in line[:columns, k]]
                for line in seen[done - 1]
            ]
        else:
            start = {"m": "low", "ℓ": "0.00", "A": "0.0"}.get(name, "")
            values = [[start] * columns for _ in range(FLASH_QUERIES)]
        mark = {(row, column if columns > 1 else 0): "red"}
        pieces.append(svg.cells(x, y, values, size=18, width=width, title=name, highlight=mark, font=11))
        x += width * columns + 4
    return "".join(pieces)


def flash_in_steps() -> Explorable:
    """One thread block of flash attention, barrier by barrier, from the simulator's trace."""
    watched = {name: watched_flash(name == "causal") for name in ("none", "causal")}
    threads = {f"({x}, {y})": (y, x) for y, x in ((1, 2), (6, 3))}
    W, last = FLASH_WIDTH, len(watched["none"][0])

    def stage(phase: int) -> tuple[str, int]:
        """What a phase does in words, and how many tiles have been used at its end."""
        tile = (phase - 1) // 2
        keys = f"keys {W * tile} to {min(W * tile + W, FLASH_KEYS) - 1}"
        if phase == last:
            return "divide A by ℓ, write O", tile
        return (f"load {keys}", tile) if phase % 2 else (f"use {keys}", tile + 1)

    def risen(mask: str, phase: int) -> str:
        """In how many rows the tile raised the maximum, which is where the factor is below 1."""
        rows = int((watched[mask][1][stage(phase)[1] - 1][:, 0, 2] < 1).sum())
        return f"the maximum rises in {rows} of {FLASH_QUERIES} rows"

    def draw(phase: int, thread: str, mask: str) -> str:
        trace, seen = watched[mask]
        now, place = trace[phase - 1], threads[thread]
        chosen = place[0] * W + place[1]
        grids = [
            ("K", (FLASH_KEYS, W), 4, 34, "K, global"),
            ("sK", (W, W + 1), 88, 34, "sK, shared"),
            ("sV", (W, W), 88, 136, "sV, shared"),
            ("O" if phase == last else "Q", (FLASH_QUERIES, W), 188, 34, "O, global" if phase == last else "Q, global"),
            ("sQ", (FLASH_QUERIES, W), 272, 34, "sQ, shared"),
        ]
        pieces = [
            svg.cells(x, y, **_marks(now, array, shape, chosen), size=17, title=title, font=12)
            for array, shape, x, y, title in grids
        ]
        words, done = stage(phase)
        pieces.append(_registers(seen, done, place, 248))
        count = accesses(now)
        lines = [
            f"global memory: {count['global load']} loads, {count['global store']} stores;",
            f"shared memory: {count['shared load']} loads, {count['shared store']} stores;",
            (risen(mask, phase) + "; " if phase % 2 == 0 else "")
            + ("then the barrier" if now.barrier_line else "the end of the kernel"),
        ]
        pieces.append(svg.text(4, 412, f"{phase} of {last}: {words}", anchor="start", bold=True))
        pieces += [svg.text(4, 435 + 19 * k, line, anchor="start", size=13) for k, line in enumerate(lines)]
        return svg.picture(360, 488, *pieces)

    def alt(phase: int, thread: str, mask: str) -> str:
        trace, seen = watched[mask]
        count, (words, done), (row, column) = accesses(trace[phase - 1]), stage(phase), threads[thread]
        text = (
            f"Phase {phase} of {last}, {words}, {'causal' if mask == 'causal' else 'no'} mask: "
            f"{count['global load']} global and {count['shared load']} shared loads, "
            f"{count['global store']} global and {count['shared store']} shared stores"
        )
        if phase % 2 == 0:
            p, m, f, l, A = seen[done - 1, row, column]
            text += f"; {risen(mask, phase)}. Thread {thread} holds the weight {p:.2f} and the factor {f:.2f}, then "
            text += f"m = {m:.1f}, ℓ = {l:.2f} and A = {A:.1f}".replace("-0.0", "0.0")
        return text + "."

    return explore(
        draw,
        alt=alt,
        caption="One block of 32 threads, 8 queries and 10 keys in tiles of 4, from one barrier to the next, as the "
        "simulator recorded it: r is read, w is written, in capitals and red by the chosen thread; V is read where K "
        "is. Below, a row for each query, what the registers hold: weights $p$ of the tile, $m$ (low: its start), the "
        "factor $e^{m - m'}$ (`old`), $\\ell$ and $A$.",
        start={"phase": 2, "thread": "(2, 1)", "mask": "none"},
        labels={"phase": "phase", "thread": "thread (x, y)", "mask": "mask"},
        phase=list(range(1, last + 1)),
        thread=list(threads),
        mask=list(watched),
    )


def lora_share() -> Explorable:
    """Parameters and FLOPs of an adapter as a share of its layer's, by rank and width of a square layer."""
    widths = (1024, 4096, 8192)

    def share(r: int, d: int) -> float:
        return lora_cost(d, d, r).ratio

    def draw(r: int) -> Any:
        fig, ax = style.new(5.2, 2.6)
        values = [100 * share(r, d) for d in widths]
        ax.barh([str(d) for d in widths], values, color=BLUE)
        for place, value in enumerate(values):
            ax.text(value + 0.4, place, f"{value:.2f} %", va="center")
        ax.set_xlim(0, 32)
        ax.set_xlabel("adapter, % of the layer (parameters and FLOPs)")
        ax.set_ylabel("width d")
        return fig

    return explore(
        draw,
        alt=lambda r: (
            f"At rank {r} the adapter has {100 * share(r, 4096):.2f} % of the parameters of a 4096 by 4096 layer."
        ),
        caption="The share is $2r/d$ for a square layer: it doubles with the rank and halves with the width.",
        start={"r": 8},
        labels={"r": "rank r"},
        r=[1, 2, 4, 8, 16, 32, 64, 128],
    )


def training_memory() -> Explorable:
    """Training memory of two public models by part, for a context length, with and without checkpointing."""
    names = ("weights", "gradients", "master weights", "optimizer", "activations")

    def parts(model: str, S: int, layers: str) -> list[float]:
        sizes = model_memory.MODELS[model]
        memory = model_memory.train(sizes, 1, S, checkpointing=layers == "checkpointed")
        held = (memory.parameters, memory.gradients, memory.master_weights, memory.optimizer, memory.activations)
        return [value.GiB for value in held]

    def draw(model: str, S: int, layers: str) -> Any:
        fig, ax = style.new(5.2, 3.2)
        values = parts(model, S, layers)
        ax.barh(names[::-1], values[::-1], color=[ORANGE, PURPLE, GREEN, BLUE, BLUE])
        limit = 90 if model == "Llama 3 8B" else 6
        for place, value in enumerate(values[::-1]):
            ax.text(value + limit / 80, place, f"{value:.2f} GiB", va="center")
        ax.set_xlim(0, limit)
        ax.set_xlabel(f"GiB, in all {sum(values):.1f}")
        return fig

    def alt(model: str, S: int, layers: str) -> str:
        values = parts(model, S, layers)
        return (
            f"{model}, one sequence of {S} tokens, activations {layers}: {sum(values):.1f} GiB in all, of which "
            f"activations {values[-1]:.2f} GiB."
        )

    return explore(
        draw,
        alt=alt,
        caption="One sequence, mixed-precision AdamW, fused attention. Four bars depend on the parameters only; the "
        "last one grows with the tokens, and checkpointing acts on it alone.",
        start={"model": "Llama 3 8B", "S": 4096, "layers": "kept"},
        labels={"model": "model", "S": "tokens", "layers": "activations"},
        model=["GPT-2 small", "Llama 3 8B"],
        S=[1024, 4096, 8192],
        layers=["kept", "checkpointed"],
    )
