"""Figures of chapter 2: memory layouts, products, maps, factors, and the one measurement of the chapter.

Everything drawn is computed by `labsupport.ops` with operations whose rounded results are the same on
every CPU. `scan_ratio` is the only function that times anything, and nothing drawn may depend on it.
"""

import base64
import struct
import time
import zlib
from functools import cache
from typing import Any

import numpy as np

from labsupport.figures import explore, show, style, svg
from labsupport.figures.explorable import Explorable, Figure
from labsupport.figures.widgets import Widget, broadcast_explorer, strides_explorer
from labsupport.ops import linalg


def strides() -> Widget:
    """The stride explorer, opened on a 3 × 4 array."""
    return strides_explorer(
        (3, 4),
        [{"name": "transpose"}],
        caption="Pick an element and see its cell; each operation changes shape and strides, and only some copy.",
    )


def broadcast_steps() -> Widget:
    """The broadcasting rule step by step, opened on the (N, 1) with (N,) trap."""
    return broadcast_explorer(
        (3, 1),
        (3,),
        caption="Aligned at the last axis, both shapes repeat: a column with a row.",
    )


def scan_ratio(n: int = 4096, repeats: int = 5) -> float:
    """How many times as long a copy in the order of the transpose takes as a copy in memory order.

    float32, n × n; the best of ``repeats`` runs each, taken in turns. This machine's figure at this moment.
    """
    source = np.ones((n, n), np.float32)
    target = np.empty_like(source)
    best = [float("inf"), float("inf")]
    for _ in range(repeats):
        for which, view in enumerate((source, source.T)):
            begin = time.perf_counter()
            np.copyto(target, view)
            best[which] = min(best[which], time.perf_counter() - begin)
    return best[1] / best[0]


def dot_product() -> Explorable:
    """Two vectors of lengths 2 and 1.5 at a chosen angle, with their dot product and cosine."""

    def draw(angle: int) -> Any:
        fig, ax = style.new(5.2, 3.0)
        turn = np.deg2rad(angle)
        y = 1.5 * np.array([np.cos(turn), np.sin(turn)])
        for vector, name, colour in (((2, 0), "x", style.PALETTE.blue), (y, "y", style.PALETTE.orange)):
            ax.annotate("", vector, (0, 0), arrowprops={"arrowstyle": "->", "color": colour, "linewidth": 2.5})
            ax.text(vector[0] * 1.08, vector[1] * 1.08 + 0.12, name, color=colour, ha="center")
        ax.plot([y[0], y[0]], [0, y[1]], color="k", linestyle=":", linewidth=1)
        ax.plot([0, y[0]], [0, 0], color=style.PALETTE.green, linewidth=4, alpha=0.6)
        ax.set_xlim(-2.4, 2.6)
        ax.set_ylim(-0.3, 1.9)
        ax.set_aspect("equal")
        ax.set_title(f"x·y = {3 * _cos(angle):+.2f}, cos θ = {_cos(angle):+.2f}")
        return fig

    return explore(
        draw,
        alt=lambda angle: (
            f"At an angle of {angle} degrees between x and y the dot product is {3 * _cos(angle):.2f} "
            f"and the cosine {_cos(angle):.2f}."
        ),
        caption="The thick line is the shadow of $y$ on $x$: its signed length times that of $x$ is the dot product.",
        start={"angle": 60},
        labels={"angle": "angle in degrees"},
        angle=list(range(0, 181, 15)),
    )


def _cos(degrees: float) -> float:
    """Cosine of an angle in degrees, without the -0.00 that rounding makes of cos 90°."""
    return round(float(np.cos(np.deg2rad(degrees))), 6) + 0.0


def unit_circles() -> Figure:
    """The vectors of norm 1 in the plane, for L1, L2 and L∞."""
    fig, ax = style.new(5.2, 3.6)
    angle = np.linspace(0, 2 * np.pi, 121)
    direction = np.stack([np.cos(angle), np.sin(angle)])
    for order, name in ((1, "$L_1$"), (2, "$L_2$"), (np.inf, "$L_\\infty$")):
        length = np.array([linalg.norm(column, order) for column in direction.T])
        ax.plot(*(direction / length), label=name)
    ax.plot(0.6, 0.8, "o", color="k")
    ax.annotate("(0.6, 0.8)", (0.6, 0.8), (1.15, 0.8), va="center")
    ax.set_aspect("equal")
    ax.set_xlim(-1.3, 2.2)
    ax.legend(loc="lower right")
    return show(
        fig,
        alt="Unit circles of three norms: L1 is a diamond, L2 a circle, L-infinity a square that encloses both.",
        caption="All vectors of norm 1: the diamond of $L_1$, the circle of $L_2$, the square of $L_\\infty$.",
    )


def rows_meet_columns() -> Explorable:
    """One entry of C at a time: the row of A and the column of B that make it."""
    A = np.array([[1, 2, 0], [3, 1, 2]])
    B = np.array([[1, 0, 2, 1], [0, 1, 1, 3], [2, 1, 0, 1]])
    C = A @ B

    def terms(i: int, j: int) -> str:
        return " + ".join(f"{a}·{b}" for a, b in zip(A[i], B[:, j], strict=True))

    def draw(row: int, column: int) -> str:
        return svg.picture(
            360,
            210,
            svg.cells(14, 56, A.tolist(), size=28, highlight={(row, k): "blue" for k in range(3)}, title="A (2,3)"),
            svg.cells(
                118, 42, B.tolist(), size=28, highlight={(k, column): "orange" for k in range(3)}, title="B (3,4)"
            ),
            svg.cells(246, 56, C.tolist(), size=26, highlight={(row, column): "green"}, title="C (2,4)"),
            svg.text(107, 84, "@", size=16),
            svg.text(238, 84, "=", size=16),
            svg.text(180, 166, f"C[{row}, {column}] = {terms(row, column)} = {C[row, column]}", size=15),
            svg.text(180, 192, "row of A · column of B", size=13, color="grey"),
        )

    return explore(
        draw,
        alt=lambda row, column: (
            f"Entry ({row}, {column}) of C is row {row} of A times column {column} of B: "
            f"{terms(row, column)} = {C[row, column]}."
        ),
        caption="Each entry of $C$ is one dot product; $K=3$ is reduced.",
        labels={"row": "row i", "column": "column j"},
        row=[0, 1],
        column=[0, 1, 2, 3],
    )


def stacked_layers() -> Explorable:
    """Output of a stack of affine layers on one input, with and without ReLU."""

    def run(x: np.ndarray, depth: int, activation: str) -> np.ndarray:
        rng = np.random.default_rng(7)
        h = x[:, None]
        for layer in range(depth):
            W = rng.standard_normal((h.shape[1], 8)) / np.sqrt(h.shape[1])
            h = (h[:, :, None] * W).sum(axis=1) + 0.5 * rng.standard_normal(8)
            if activation == "ReLU" and layer < depth - 1:
                h = np.maximum(h, 0)
        return h[:, 0]

    x = np.linspace(-2, 2, 41)

    def draw(depth: int, activation: str) -> Any:
        fig, ax = style.new(5.2, 3.2)
        y = run(x, depth, activation)
        y = (y - y.mean()) / max(float(np.abs(y - y.mean()).max()), 1e-9)
        ax.plot(x, y, color=style.PALETTE.blue if activation == "none" else style.PALETTE.orange)
        ax.set_xlim(-2, 2)
        ax.set_ylim(-1.15, 1.15)
        ax.set_xlabel("input $x$")
        ax.set_ylabel("output, scaled")
        return fig

    return explore(
        draw,
        alt=lambda depth, activation: (
            f"{depth} affine layers with activation {activation}: the output is "
            + ("a straight line." if activation == "none" or depth == 1 else "a line with kinks.")
        ),
        caption="Without an activation, any number of affine layers is one straight line; with ReLU between them, "
        "kinks appear.",
        start={"depth": 4, "activation": "none"},
        depth=[1, 2, 4, 8],
        activation=["none", "ReLU"],
    )


def _residual(A: np.ndarray, x: np.ndarray, b: np.ndarray) -> float:
    """max |A x - b| / max |b|, summed column by column so that its bits are the same on every CPU."""
    rest = b.copy()
    for column, value in zip(A.T, x, strict=True):
        rest = rest - column * value
    return float(np.abs(rest).max() / np.abs(b).max())


def hilbert_errors(n: int) -> dict[str, float]:
    """Residual and error of x for the n × n Hilbert matrix, solved and inverted by our own elimination."""
    A = 1 / (np.arange(n)[:, None] + np.arange(n) + 1)
    b = np.zeros(n)
    for column in A.T:
        b = b + column
    factors = linalg.lu_factor(A)
    solved = linalg.lu_solve(*factors, b)
    inverse = linalg.lu_solve(*factors, np.eye(n))
    inverted = np.zeros(n)
    for column, value in zip(inverse.T, b, strict=True):
        inverted = inverted + column * value
    return {
        "residual, solve": _residual(A, solved, b),
        "residual, invert": _residual(A, inverted, b),
        "error of x, solve": float(np.abs(solved - 1).max()),
        "error of x, invert": float(np.abs(inverted - 1).max()),
    }


def solve_against_invert() -> Figure:
    """Residual and error of solving and of inverting Hilbert matrices of growing size."""
    sizes = range(2, 12)
    rows = [hilbert_errors(n) for n in sizes]
    fig, axes = style.new(5.2, 3.6, 1, 2, sharey=True)
    for ax, what in zip(axes, ("residual", "error of x"), strict=True):
        for way, mark in (("invert", "s"), ("solve", "o")):
            values = [max(row[f"{what}, {way}"], 1e-17) for row in rows]
            ax.semilogy(sizes, values, marker=mark, label=way)
        ax.set_title(what)
        ax.set_xlabel("size $n$")
        ax.set_ylim(1e-18, 1e1)
        ax.set_xticks([2, 5, 8, 11])
    axes[0].legend(loc="upper left")
    return show(
        fig,
        alt="Hilbert matrices of size 2 to 11: the residual of solving stays near 1e-16, that of inverting climbs to "
        "about 1e-3; the error of x climbs for both, for inverting faster.",
        caption="Solving keeps the equations satisfied at every size (left); the error of $x$ follows the condition "
        "number for both (right).",
    )


def two_thin_factors() -> Explorable:
    """A 4096 × 4096 matrix beside its two factors of rank r, drawn to scale, with both parameter counts."""
    size = 4096

    def draw(r: int) -> str:
        unit = 110 / size
        thin = max(2.0, r * unit)
        count = r * 2 * size
        return svg.picture(
            360,
            190,
            svg.rect(20, 30, 110, 110, color="grey", fill="grey"),
            svg.text(75, 85, "A", bold=True, size=18),
            svg.text(75, 18, "4096 × 4096", size=13),
            svg.text(147, 85, "≈", size=18),
            svg.rect(165, 30, thin, 110, color="blue", fill="blue"),
            svg.text(165, 18, f"B, {r} wide", size=13, anchor="start"),
            svg.rect(165 + thin + 12, 30, 110, thin, color="orange", fill="orange"),
            svg.text(355, 152, f"C, {r} high", size=13, anchor="end"),
            svg.text(180, 176, f"{size * size:,} → {count:,} parameters ({100 * count / size**2:.4g} %)", size=14),
        )

    return explore(
        draw,
        alt=lambda r: f"At rank {r} two factors hold {r * 2 * size:,} parameters instead of {size * size:,}.",
        caption="Drawn to scale: at rank 2048 the two factors are as large as the matrix.",
        start={"r": 64},
        labels={"r": "rank r"},
        r=[8, 64, 256, 512, 1024, 2048],
    )


def eigen_directions() -> Explorable:
    """A vector v and its image A v, turning; they lie on one line only along eigenvectors."""
    A = np.array([[2.0, 1.0], [1.0, 2.0]])

    def image(angle: int) -> tuple[np.ndarray, np.ndarray]:
        v = np.array([_cos(angle), _cos(angle - 90)])
        return v, np.array([A[0, 0] * v[0] + A[0, 1] * v[1], A[1, 0] * v[0] + A[1, 1] * v[1]])

    def draw(angle: int) -> Any:
        fig, ax = style.new(5.0, 4.4)
        v, Av = image(angle)
        for vector, name, colour in ((Av, "A v", style.PALETTE.orange), (v, "v", style.PALETTE.blue)):
            ax.annotate("", vector, (0, 0), arrowprops={"arrowstyle": "->", "color": colour, "linewidth": 2.5})
            ax.text(*(vector + 0.22 * vector / np.hypot(*vector)), name, color=colour, ha="center", va="center")
        turn = np.linspace(0, 2 * np.pi, 73)
        circle = np.stack([np.cos(turn), np.sin(turn)])
        ax.plot(*circle, color="k", linewidth=0.8, linestyle=":")
        ax.plot(2 * circle[0] + circle[1], circle[0] + 2 * circle[1], color="k", linewidth=0.8, linestyle=":")
        ax.set_xlim(-2.8, 2.8)
        ax.set_ylim(-2.6, 2.6)
        ax.set_aspect("equal")
        ax.set_title(_eigen_text(angle))
        return fig

    return explore(
        draw,
        alt=lambda angle: f"v at {angle} degrees under the matrix with rows 2, 1 and 1, 2: {_eigen_text(angle)}.",
        caption="Turn $v$: at 45 and at 135 degrees its image stays on its line, stretched by 3 and by 1.",
        start={"angle": 15},
        labels={"angle": "direction of v, degrees"},
        angle=list(range(0, 180, 15)),
    )


def _eigen_text(angle: int) -> str:
    return {45: "eigenvector, λ = 3", 135: "eigenvector, λ = 1"}.get(angle, "A v leaves the line of v")


def growth_or_decay() -> Explorable:
    """Length of Aᵗ h for a rotation-and-stretch A of a chosen spectral radius, on a logarithmic axis."""
    steps = np.arange(0, 101)

    def draw(radius: float) -> Any:
        fig, ax = style.new(5.2, 3.4)
        ax.semilogy(steps, radius**steps)
        ax.set_xlim(0, 100)
        ax.set_ylim(1e-6, 1e6)
        ax.set_xlabel("step $t$")
        ax.set_ylabel("length of $A^t h$")
        return fig

    return explore(
        draw,
        alt=lambda radius: (
            f"With spectral radius {radius} the length after 100 steps is {radius**100:.2g} times the first."
        ),
        caption="The same map, applied 100 times: a spectral radius a little off 1 is all it takes.",
        start={"radius": 0.95},
        labels={"radius": "spectral radius"},
        radius=[0.88, 0.9, 0.95, 0.99, 1.0, 1.01, 1.05, 1.1, 1.14],
    )


@cache
def terrain() -> np.ndarray:
    """Heights of a stretch of mountain (112, 100), in metres above their mean, float64.

    Block means of the elevation model of the Jacksboro fault, Tennessee, that comes with matplotlib.
    """
    from matplotlib import cbook

    with np.load(cbook.get_sample_data("jacksboro_fault_dem.npz", asfileobj=False)) as data:
        heights = data["elevation"][:336, :400].astype(np.float64)
    blocks = heights.reshape(112, 3, 100, 4).mean(axis=(1, 3))
    blocks -= blocks.mean()
    blocks.setflags(write=False)
    return blocks


def png_address(grey: np.ndarray) -> str:
    """A 4-bit greyscale PNG as a data address; stored uncompressed, so that its bytes depend on the pixels alone."""
    height, width = grey.shape
    packed = (grey[:, 0::2] << 4 | grey[:, 1::2]).astype(np.uint8)
    raw = b"".join(b"\0" + row.tobytes() for row in packed)
    if len(raw) > 65_535:
        raise ValueError(f"a picture of {height} × {width} pixels does not fit one stored block")
    stored = b"\x78\x01\x01" + struct.pack("<HH", len(raw), 65_535 - len(raw)) + raw
    stored += struct.pack(">I", zlib.adler32(raw))

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 4, 0, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", stored) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(data).decode()


def terrain_at_rank() -> Explorable:
    """The terrain at rank k, with what the k terms cost and how far off they are."""
    A = terrain()
    U, sigma, Vt = np.linalg.svd(A, full_matrices=False)
    low, high = float(A.min()), float(A.max())

    def kept(k: int) -> str:
        error = np.sqrt((sigma[k:] ** 2).sum() / (sigma**2).sum())
        return f"{k * sum(A.shape):,} of {A.size:,} numbers, error {100 * error:.0f} %"

    def draw(k: int) -> str:
        heights = (U[:, :k] * sigma[:k]) @ Vt[:k]
        grey = np.clip(np.round((heights - low) / (high - low) * 15), 0, 15).astype(np.uint8)
        place = 'x="30" y="34" width="300" height="336" preserveAspectRatio="none"'
        picture = f'<image {place} href="{png_address(grey)}"/>'
        return svg.picture(360, 380, svg.text(180, 16, f"rank {k}: {kept(k)}", size=14), picture)

    return explore(
        draw,
        alt=lambda k: f"The terrain at rank {k}: {kept(k)} in the Frobenius norm.",
        caption="Light is high, dark is low. Ridges that run along neither axis need many terms; rank 32 looks like "
        "the original.",
        start={"k": 4},
        labels={"k": "rank k"},
        k=[1, 2, 4, 8, 16, 32, 64, 100],
    )


def lora_savings() -> Explorable:
    """Bytes that training one 4096 × 4096 layer holds: in full, and with a LoRA adapter of rank r."""
    size = 4096

    def parts(r: int) -> dict[str, tuple[float, float]]:
        full, adapter = size * size, r * 2 * size
        mib = 2.0**20
        return {
            "weights": (2 * full / mib, 2 * (full + adapter) / mib),
            "gradients": (2 * full / mib, 2 * adapter / mib),
            "optimizer": (8 * full / mib, 8 * adapter / mib),
        }

    def draw(r: int) -> Any:
        fig, ax = style.new(5.2, 2.9)
        left = np.zeros(2)
        for name, values in parts(r).items():
            ax.barh(["full", "LoRA"], values, left=left, label=name, alpha=0.6, height=0.55)
            left = left + values
        for row, total in enumerate(left):
            ax.text(total + 3, row, f"{total:,.0f} MiB", va="center")
        ax.set_xlim(0, 240)
        ax.set_xlabel("memory, MiB")
        ax.invert_yaxis()
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
        return fig

    def alt(r: int) -> str:
        full, adapter = (sum(values[which] for values in parts(r).values()) for which in (0, 1))
        return f"Training the layer holds {full:.0f} MiB in full and {adapter:.0f} MiB with LoRA of rank {r}."

    return explore(
        draw,
        alt=alt,
        caption="Weights and gradients in BF16, AdamW state in FP32, one layer of $4096\\times4096$: the weight stays.",
        start={"r": 8},
        labels={"r": "rank r"},
        r=[8, 16, 64, 256, 1024],
    )
