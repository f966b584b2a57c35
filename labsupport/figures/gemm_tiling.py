"""Figures of chapter 3: blocks, the march of the tiles, the roofline, the resources of a tile, padding and rounding.

Every number drawn is computed here by `labsupport.ops.gemm` or `labsupport.cost`. No curve may depend on a
BLAS library or on a clock, so that the pictures are the same on every machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from labsupport.cost import (
    DEVICES,
    SM_LIMITS,
    Cost,
    Device,
    format_bytes,
    format_quantity,
    gemm_cost,
    roofline,
    tile_resources,
)
from labsupport.cuda.kernels.ladder import make_matmul_shared
from labsupport.cuda.simt import Phase, launch
from labsupport.figures import style, svg
from labsupport.figures.explorable import Explorable, Figure, explore, show
from labsupport.ops.gemm import matmul_tiled, padding_waste, tile_steps, traffic

#: Sizes of the animated product: small enough to see, ragged for every tile but 1 and 2.
WALK = (4, 6, 6)


def block_product() -> Figure:
    """The upper left block of C as two products of blocks."""

    def blocks(x: float, name: str, marked: dict[tuple[int, int], str]) -> str:
        labels = [[f"{name}{r}{c}" for c in (1, 2)] for r in (1, 2)]
        return svg.cells(x, 40, labels, size=42, width=46, highlight=marked, title=name)

    drawing = svg.picture(
        360,
        176,
        blocks(6, "A", {(0, 0): "blue", (0, 1): "orange"}),
        svg.text(116, 82, "@", size=20),
        blocks(134, "B", {(0, 0): "blue", (1, 0): "orange"}),
        svg.text(244, 82, "=", size=20),
        blocks(262, "C", {(0, 0): "green"}),
        svg.text(180, 152, "C11 = A11 B11 + A12 B21", size=16, bold=True),
    )
    return show(
        drawing,
        alt="C11 is A11 times B11 plus A12 times B21: a row of blocks of A meets a column of blocks of B.",
        caption="Blocks follow the same rule as numbers: a row of blocks of \\(A\\) times a column of blocks of "
        "\\(B\\).",
    )


def _step_alt(tile: int, step: int) -> str:
    steps = list(tile_steps(*WALK, tile))
    if step > len(steps):
        return f"Tile {tile} needs only {len(steps)} steps: C is finished."
    rows, cols, ks = steps[step - 1]
    return (
        f"Tile {tile}, step {step} of {len(steps)}: rows {rows.start} to {rows.stop - 1} and k {ks.start} to "
        f"{ks.stop - 1} of A, the same k and columns {cols.start} to {cols.stop - 1} of B are read into C."
    )


def _draw_step(tile: int, step: int) -> str:
    """Three matrices with the tiles of one step lit, finished tiles of C ticked, and the loads so far."""
    M, N, K = WALK
    steps = list(tile_steps(M, N, K, tile))
    step = min(step, len(steps))
    rows, cols, ks = steps[step - 1]
    lit_a = {(r, k): "blue" for r in range(*rows.indices(M)) for k in range(*ks.indices(K))}
    lit_b = {(k, c): "orange" for k in range(*ks.indices(K)) for c in range(*cols.indices(N))}
    lit_c = {(r, c): "green" for r in range(*rows.indices(M)) for c in range(*cols.indices(N))}
    done = np.full((M, N), "", dtype=object)
    for past in steps[:step]:
        if past.ks.stop == K:
            done[past.rows, past.cols] = "✓"
    loads = sum(
        (s.rows.stop - s.rows.start + s.cols.stop - s.cols.start) * (s.ks.stop - s.ks.start) for s in steps[:step]
    )
    cell = 26
    return svg.picture(
        360,
        386,
        svg.cells(188, 34, [[""] * N for _ in range(K)], size=cell, highlight=lit_b, title="B (6, 6)"),
        svg.cells(14, 220, [[""] * K for _ in range(M)], size=cell, highlight=lit_a, title="A (4, 6)"),
        svg.cells(188, 220, done.tolist(), size=cell, highlight=lit_c, title="C (4, 6)"),
        svg.text(92, 70, f"step {step} of {len(steps)}", size=15, bold=True),
        svg.text(92, 100, f"C[{rows.start}:{rows.stop}, {cols.start}:{cols.stop}] +=", size=13, mono=True),
        svg.text(92, 120, f"A[{rows.start}:{rows.stop}, {ks.start}:{ks.stop}]", size=13, mono=True, color="blue"),
        svg.text(92, 140, f"@ B[{ks.start}:{ks.stop}, {cols.start}:{cols.stop}]", size=13, mono=True, color="orange"),
        svg.text(180, 346, f"elements loaded so far: {loads}", size=14, bold=True),
        svg.text(180, 370, f"naive, for the whole product: {traffic(M, N, K, 1).loads}", size=13, color="grey"),
    )


def tiles() -> Explorable:
    """The tiled product step by step: which tiles are read, where they are added, what was loaded so far."""
    most = len(list(tile_steps(*WALK, 2)))
    return explore(
        _draw_step,
        alt=_step_alt,
        caption="Move `step`: along \\(K\\) first, then to the next tile of \\(C\\), which is written once, when it "
        "is ticked. A larger tile needs fewer steps and fewer loads; at size 4 the edge tiles are cut.",
        start={"tile": 2, "step": 1},
        labels={"tile": "tile size T", "step": "step"},
        tile=[2, 3, 4],
        step=list(range(1, most + 1)),
    )


def loads_by_tile(n: int = 1000) -> Figure:
    """Loads of a square product against the tile size, with the line 2n³/T that holds where T divides n."""
    sizes = np.arange(1, n + 1)
    loads = [traffic(n, n, n, int(size)).loads for size in sizes]
    fig, ax = style.new(5.2, 3.6)
    ax.loglog(sizes, 2 * n**3 / sizes, label="$2n^3/T$")
    ax.loglog(sizes, loads, label="counted, ragged edges too")
    ax.set_xlabel("tile size $T$")
    ax.set_ylabel("elements loaded")
    ax.legend(loc="upper right")
    return show(
        fig,
        alt=f"Loads of a {n} by {n} by {n} product fall like one over the tile size, from 2 billion to 2 million; "
        "they make stairs where the tile does not divide the size.",
        caption=f"Loads of a product with \\(n = {n}\\): twice the tile, half the loads, with stairs where \\(T\\) "
        "does not divide \\(n\\).",
    )


def _roofline_axes(device: Device, dtype: str, title: str) -> tuple[Any, Any]:
    """Axes with the two ceilings of a device."""
    peak, ridge = device.peak(dtype), device.ridge(dtype)
    intensity = np.array([0.25, ridge, 8192.0])
    fig, ax = style.new(5.2, 3.8)
    ax.loglog(intensity, np.minimum(peak, intensity * device.bandwidth), color="k")
    ax.axvline(ridge, color=style.PALETTE.grey, linestyle=":", linewidth=1.2)
    ax.minorticks_off()
    ax.set_xlabel("arithmetic intensity, FLOP/B")
    ax.set_ylabel("FLOP/s at most")
    ax.set_title(title)
    return fig, ax


def roofline_devices() -> Explorable:
    """Where a linear layer of width 4096 falls under the roofline, by number of tokens and device."""

    def cost(M: int) -> Cost:
        return gemm_cost(M, 4096, 4096, "float16")

    def draw(device: str, M: int) -> Any:
        chip = DEVICES[device]
        line = roofline(cost(M), chip, "float16")
        fig, ax = _roofline_axes(chip, "float16", f"{chip.name}, float16, datasheet")
        ax.loglog([line.intensity], [line.attainable], "o", color=style.PALETTE.orange, markersize=11)
        ax.set_xlim(0.3, 6000)
        ax.set_ylim(1e11, 3e15)
        ax.annotate(
            f"M = {M}: {line.bound} bound\n{line.intensity:.1f} FLOP/B",
            (line.intensity, line.attainable),
            xytext=(0.03, 0.95),
            textcoords="axes fraction",
            ha="left",
            va="top",
        )
        return fig

    def alt(device: str, M: int) -> str:
        line = roofline(cost(M), DEVICES[device], "float16")
        return (
            f"{device}, M = {M}: intensity {line.intensity:.1f} FLOP/B, {line.bound} bound, at most "
            f"{format_quantity(line.attainable, 'FLOP/s')}; the ridge is at {line.ridge:.0f} FLOP/B."
        )

    return explore(
        draw,
        alt=alt,
        caption="A product of \\(M\\) tokens with a weight of 4096 × 4096: one token runs at the speed of memory, a "
        "large batch at the speed of arithmetic. The dotted line is the ridge.",
        start={"device": "H100", "M": 1},
        labels={"device": "device", "M": "tokens M"},
        device=list(DEVICES),
        M=[1, 8, 64, 512, 4096],
    )


def roofline_here(device: Device, n: int = 1024) -> Figure:
    """The reader's own machine, as measured: the two ceilings, a square product and a product with a vector."""
    fig, ax = _roofline_axes(device, "float32", f"{device.name}, float32, measured")
    for name, cost in (("n × n", gemm_cost(n, n, n, "float32")), ("one row", gemm_cost(1, n, n, "float32"))):
        line = roofline(cost, device)
        ax.loglog([line.intensity], [line.attainable], "o", markersize=9, label=f"{name}: {line.bound} bound")
    ax.legend(loc="lower right")
    return show(fig, alt=f"Measured roofline of this machine: {device!r}.", caption="Your machine, measured just now.")


def tile_calculator() -> Explorable:
    """What a tile takes from one SM and how many blocks fit, by tile, thread tile and number of stages."""
    limits = SM_LIMITS["sm_90"]

    def draw(tile: int, thread: int, stages: int) -> str:
        taken = tile_resources((tile, tile, 32), (thread, thread), "float16", stages=stages)
        rows = [
            ("threads", f"{taken.threads}", taken.threads / limits.threads_per_sm),
            ("registers", f"{taken.registers} each", taken.registers * taken.threads / limits.registers_per_sm),
            ("shared", format_bytes(taken.shared), taken.shared / limits.shared_per_sm),
        ]
        pieces = [svg.text(8, 18, "one block takes, of one SM:", anchor="start", bold=True)]
        for k, (name, value, share) in enumerate(rows):
            y = 36 + 34 * k
            pieces += [
                svg.text(8, y + 12, name, anchor="start", size=13),
                svg.text(92, y + 12, value, anchor="start", size=13),
                svg.rect(178, y, 120, 24, color="grey"),
                svg.rect(178, y, 120 * min(share, 1), 24, color="red" if share > 1 else "blue", fill="blue", tint=0.5),
                svg.text(354, y + 12, f"{share:.0%}", anchor="end", size=13),
            ]
        fit = taken.occupancy
        verdict = f"{fit.blocks} block{'' if fit.blocks == 1 else 's'} per SM, occupancy {fit.occupancy:.0%}"
        pieces += [
            svg.text(8, 156, verdict if fit.blocks else "this block does not run", anchor="start", bold=True),
            svg.text(8, 180, f"limited by {fit.limited_by}", anchor="start", size=13),
            svg.text(8, 204, f"reuse: {taken.intensity:.0f} FLOP per byte from memory", anchor="start", size=13),
        ]
        return svg.picture(360, 220, *pieces)

    def alt(tile: int, thread: int, stages: int) -> str:
        taken = tile_resources((tile, tile, 32), (thread, thread), "float16", stages=stages)
        return (
            f"Tile {tile}, {thread} by {thread} a thread, {stages} stages: {taken.threads} threads, "
            f"{taken.registers} registers each, {format_bytes(taken.shared)} shared; {taken.occupancy.blocks} blocks "
            f"per SM, occupancy {taken.occupancy.occupancy:.0%}, limited by {taken.occupancy.limited_by}."
        )

    return explore(
        draw,
        alt=alt,
        caption="A float16 tile of \\(T \\times T\\) with 32 of \\(K\\) at a time, on sm_90. Look for a setting that "
        "reuses much and still runs: a thread that owns one output asks for too many threads, one that owns 256 for "
        "too many registers.",
        start={"tile": 128, "thread": 8, "stages": 2},
        labels={"tile": "tile T", "thread": "outputs a thread, a side", "stages": "stages in shared memory"},
        tile=[32, 64, 128, 256],
        thread=[1, 2, 4, 8, 16],
        stages=[1, 2, 4],
    )


def padding() -> Explorable:
    """Part of the work that goes into padding, against the size, for one tile."""
    sizes = np.arange(1, 521)

    def draw(tile: int) -> Any:
        fig, ax = style.new(5.2, 3.4)
        ax.plot(sizes, [100 * padding_waste(int(m), int(m), 512, (tile, tile, 32)) for m in sizes])
        ax.set_xlim(0, 520)
        ax.set_ylim(0, 100)
        ax.set_xlabel("M = N")
        ax.set_ylabel("wasted work, %")
        return fig

    def alt(tile: int) -> str:
        return (
            f"Tile {tile}: no waste at multiples of {tile}, "
            f"{padding_waste(tile + 1, tile + 1, 512, (tile, tile, 32)):.0%} of the work is padding one past them, "
            f"{padding_waste(4 * tile + 1, 4 * tile + 1, 512, (tile, tile, 32)):.0%} one past four tiles."
        )

    return explore(
        draw,
        alt=alt,
        caption="Teeth: the waste jumps one past a multiple of the tile and shrinks as the matrix grows.",
        start={"tile": 64},
        labels={"tile": "tile size T"},
        tile=[16, 32, 64, 128, 256],
    )


def _error(K: int, dtype: DTypeLike, tile_k: int, accumulator: DTypeLike | None = None) -> float:
    """Median over the outputs of |C − exact| for seeded uniform operands with a (16, 16) result."""
    rng = np.random.default_rng(K)
    A, B = rng.uniform(-1, 1, (16, K)).astype(dtype), rng.uniform(-1, 1, (K, 16)).astype(dtype)
    C = matmul_tiled(A, B, (16, 16, tile_k), accumulator).astype(np.float64)
    exact = A.astype(np.float64) @ B.astype(np.float64)
    return float(np.median(np.abs(C - exact)))


def error_growth() -> Figure:
    """Error against float64 as K grows, for three orders and accumulators."""
    ks = 2 ** np.arange(5, 14)
    fig, ax = style.new(5.2, 5.0)
    for label, dtype, tile_k, accumulator in (
        ("float16, one after another", np.float16, 1, None),
        ("float16, tiles of 64", np.float16, 64, None),
        ("float16 in, float32 sum", np.float16, 64, np.float32),
        ("float32, one after another", np.float32, 1, None),
        ("float32, tiles of 64", np.float32, 64, None),
    ):
        errors = [_error(int(K), dtype, tile_k, accumulator) for K in ks]
        ax.loglog(ks, errors, marker="o", markersize=4, label=label)
    ax.set_xlim(24, 11000)
    ax.set_ylim(1e-8, 1)
    ax.set_xlabel("length $K$ of the sum")
    ax.set_ylabel("error against float64")
    ax.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0))
    return show(
        fig,
        alt="The error grows with K. In float16, added one after another, it reaches about 0.2 at K = 8192; tiles of "
        "64 cut it to about a fifth, a float32 accumulator to less than a fiftieth; float32 lies four orders below.",
        caption="The error grows with the length of the sum. Tiles shorten the chains of additions; a wide "
        "accumulator leaves little more than the rounding of the result.",
    )


#: Tile side and length of K of the block that is watched.
BLOCK_TILE, BLOCK_K = 4, 8
PHASES = ("load the first tiles", "multiply", "load the next tiles", "multiply", "store C")


def _watched_block() -> list[Phase]:
    """The simulator's trace of the first block of a product with shared tiles."""
    T, K = BLOCK_TILE, BLOCK_K
    A, B, C = np.ones((2 * T, K), np.float32), np.ones((K, 2 * T), np.float32), np.zeros((2 * T, 2 * T), np.float32)
    return launch(make_matmul_shared(T), (2, 2), (T, T), A, B, C, trace=True).trace


def _touched(phase: Phase, array: str, shape: tuple[int, int], chosen: int) -> tuple[list[list[str]], dict[Any, str]]:
    """Letters and colours of the cells of one array: r and w for the block, capitals for the chosen thread."""
    letters = [[""] * shape[1] for _ in range(shape[0])]
    colours: dict[Any, str] = {}
    for step in sorted(phase.steps, key=lambda step: step.thread == chosen):
        if step.array == array:
            letter = "w" if step.kind == "store" else "r"
            mine = step.thread == chosen
            row, column = step.index
            letters[row][column] = letter.upper() if mine else letter
            colours[step.index] = "red" if mine else "orange" if letter == "w" else "blue"
    return letters, colours


def _totals(phase: Phase) -> dict[tuple[str, str], int]:
    counted = {(space, kind): 0 for space in ("global", "shared") for kind in ("load", "store")}
    for step in phase.steps:
        counted[step.space, step.kind] += 1
    return counted


def block_in_steps() -> Explorable:
    """One thread block of the shared-tile product, barrier by barrier, from the simulator's trace."""
    trace, T = _watched_block(), BLOCK_TILE
    threads = {"(0, 0)": 0, "(1, 0)": 1, "(2, 1)": T + 2, "(3, 3)": T * T - 1}

    def draw(phase: int, thread: str) -> str:
        now, chosen = trace[phase - 1], threads[thread]
        grids = [
            ("sB", (T, T), 236, 34, "sB, shared"),
            ("B", (BLOCK_K, T), 120, 34, "B, global"),
            ("sA", (T, T), 236, 148, "sA, shared"),
            ("A", (T, BLOCK_K), 20, 236, "A, global"),
            ("C", (T, T), 236, 262, "C, global"),
        ]
        who = [["" for _ in range(T)] for _ in range(T)]
        who[chosen // T][chosen % T] = "T"
        pieces = [svg.cells(14, 34, who, size=20, title="threads", highlight={(chosen // T, chosen % T): "red"})]
        for array, shape, x, y, title in grids:
            letters, colours = _touched(now, array, shape, chosen)
            pieces.append(svg.cells(x, y, letters, size=20, title=title, highlight=colours))
        count = _totals(now)
        ends = "then the barrier" if now.barrier_line else "the end of the kernel"
        lines = [
            f"{count['global', 'load']} loads and {count['global', 'store']} stores of global memory,",
            f"{count['shared', 'load']} loads and {count['shared', 'store']} stores of shared memory;",
            ends,
        ]
        pieces.append(svg.text(8, 370, f"{phase} of {len(trace)}: {PHASES[phase - 1]}", anchor="start", bold=True))
        pieces += [svg.text(8, 394 + 20 * k, line, anchor="start", size=13) for k, line in enumerate(lines)]
        return svg.picture(360, 450, *pieces)

    def alt(phase: int, thread: str) -> str:
        now = trace[phase - 1]
        count = _totals(now)
        mine = [step for step in now.steps if step.thread == threads[thread]]
        first = mine[0] if mine else None
        sample = f", the first on {first.array}{list(first.index)}" if first else ""
        return (
            f"Phase {phase} of {len(trace)}, {PHASES[phase - 1]}: the block makes {count['global', 'load']} global and "
            f"{count['shared', 'load']} shared loads, {count['global', 'store']} global and "
            f"{count['shared', 'store']} shared stores; thread {thread} makes {len(mine)} accesses{sample}."
        )

    return explore(
        draw,
        alt=alt,
        caption="One block of 16 threads, from one barrier to the next, as the simulator recorded it: r is read, w is "
        "written, by the chosen thread in capitals. A thread loads two elements and multiplies with those of others.",
        start={"phase": 1, "thread": "(2, 1)"},
        labels={"phase": "phase, barrier by barrier", "thread": "thread (x, y)"},
        phase=list(range(1, len(trace) + 1)),
        thread=list(threads),
    )
