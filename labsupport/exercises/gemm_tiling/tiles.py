"""Exercises of chapter 3 on tiles: their shared memory and occupancy, padding, and a product by tiles."""

from __future__ import annotations

import numpy as np

from labsupport.cost import occupancy, tensor_bytes, tile_resources
from labsupport.grading import (
    Case,
    Choice,
    Exercise,
    Formula,
    Function,
    Mistake,
    Number,
    Option,
    Several,
    Tolerance,
    Written,
)
from labsupport.ops.gemm import matmul_tiled, padding_waste


def _product(A: np.ndarray, B: np.ndarray, tile: int, *, ceil: bool = True, add: bool = True) -> np.ndarray:
    """A tiled product with two switches: edge tiles, and accumulation."""
    (M, K), N = A.shape, B.shape[1]
    C = np.zeros((M, N), np.result_type(A, B))

    def starts(size: int) -> range:
        return range(0, size if ceil else size - size % tile, tile)

    for i in starts(M):
        for j in starts(N):
            for k in starts(K):
                part = A[i : i + tile, k : k + tile] @ B[k : k + tile, j : j + tile]
                C[i : i + tile, j : j + tile] = part + (C[i : i + tile, j : j + tile] if add else 0)
    return C


def _k_tail_dropped(A: np.ndarray, B: np.ndarray, tile: int) -> np.ndarray:
    K = A.shape[1] - A.shape[1] % tile
    return _product(A[:, :K], B[:K], tile)


def _narrow(A: np.ndarray, B: np.ndarray, tile: int) -> np.ndarray:
    return matmul_tiled(A, B, tile).astype(np.float32)


def _tiled_cases(rng: np.random.Generator) -> list[Case]:
    def case(M: int, K: int, N: int, tile: int, dtype: str = "float64") -> Case:
        A, B = rng.normal(size=(M, K)).astype(dtype), rng.normal(size=(K, N)).astype(dtype)
        return Case(args=(A, B, tile), label=f"{dtype} ({M}, {K}) @ ({K}, {N}), tile {tile}")

    A, B = rng.normal(size=(6, 9)), rng.normal(size=(9, 5))
    return [
        case(8, 8, 8, 4),
        case(7, 9, 5, 4),
        case(7, 9, 5, 4, "float32"),
        case(3, 2, 4, 16),
        case(1, 10, 1, 3),
        case(5, 4, 12, 4),
        case(6, 6, 6, 1),
        Case(args=(np.asfortranarray(A), B[:, ::-1], 4), label="float64 (6, 9) @ (9, 5), strided, tile 4"),
    ]


tiled_matmul = Function(
    id="tiled-matmul",
    chapter=3,
    section="3.1",
    title="A tiled product for any sizes",
    checklist=(6,),
    level="hard",
    points=3,
    prompt="Write `tiled_matmul(A, B, tile)`: the product of `A` (M, K) and `B` (K, N), computed tile by tile along "
    "all three axes.",
    contract="Any positive M, N, K, also smaller than `tile`; `tile` is a positive integer. float32 or float64, dtype "
    "kept. Multiply tiles with `@`; the inputs are not changed.",
    hints=(
        "Three loops over tile starts: `for i in range(0, M, tile)`, then `j`, then `k`.",
        "Slices may run past the end: NumPy cuts them for you.",
        "`C[i:i+tile, j:j+tile] += A[i:i+tile, k:k+tile] @ B[k:k+tile, j:j+tile]`, with `C` of zeros before the loops.",
    ),
    oracle=matmul_tiled,
    cases=_tiled_cases,
    tolerance=Tolerance(c=4, depth=lambda A, B, tile: A.shape[1]),
    dtype="exact",
    mistakes=(
        Mistake(
            name="tail-dropped",
            answer=lambda A, B, tile: _product(A, B, tile, ceil=False),
            message="The tail tiles are missing: your loops stop at the last whole tile.",
            section="3.5",
        ),
        Mistake(
            name="k-tail-dropped",
            answer=_k_tail_dropped,
            message="Rows and columns are complete, but the last part of $K$, smaller than a tile, is not added.",
            section="3.5",
        ),
        Mistake(
            name="accumulator-reset",
            answer=lambda A, B, tile: _product(A, B, tile, add=False),
            message="Each step along $K$ overwrites the one before. The tile of $C$ must collect all of them.",
        ),
        Mistake(
            name="transposed",
            answer=lambda A, B, tile: matmul_tiled(A, B, tile).T,
            message="Your result is the transpose: rows of $C$ follow the rows of $A$.",
        ),
        Mistake(
            name="dtype-lost",
            answer=_narrow,
            message="You returned float32 whatever came in. Make `C` in the dtype of the inputs.",
        ),
    ),
    accept=(lambda A, B, tile: _product(A, B, tile), lambda A, B, tile: A @ B),
)

STAGED = tile_resources((128, 128, 32), (8, 8), "float16", stages=2)

tile_shared = Number(
    id="tile-shared",
    chapter=3,
    section="3.4",
    title="Shared memory of a double-buffered tile",
    checklist=(6,),
    prompt="A float16 kernel with $T_M=T_N=128$ and $T_K=32$ keeps two stages of its tiles in shared memory. How many "
    "bytes is that?",
    contract="With a unit, such as `'12 KiB'` or `(1234, 'B')`.",
    hints=("A stage holds a tile of $A$ and a tile of $B$.", "The tile of $C$ lives in registers."),
    expected=int(STAGED.shared),
    unit="B",
    exact=True,
    mistakes=(
        Mistake(
            name="one-stage",
            answer=f"{int(STAGED.shared) // 2} B",
            message="That is half of it: either one stage or one of the two matrices is missing.",
        ),
        Mistake(
            name="c-tile",
            answer=f"{tensor_bytes((128, 128), 'float16') + int(STAGED.shared):d} B",
            message="The area of the tile of $C$ plays no part: it is collected in registers, not in shared memory.",
        ),
        Mistake(
            name="all-three-sizes",
            answer=f"{2 * 2 * 128 * 128 * 32} B",
            message="You multiplied all three tile sizes. That product counts the multiply-adds of a step. What is "
            "stored are two tiles with two axes each.",
        ),
    ),
)

SKEWED = (384, 80, 48 * 1024)
FIT = occupancy(*SKEWED)

occupancy_limit = Several(
    id="occupancy-limit",
    chapter=3,
    section="3.4",
    title="What stops the next block",
    checklist=(6,),
    level="medium",
    prompt="A kernel on sm_90 has 384 threads a block, 80 registers a thread and 48 KiB of shared memory a block.",
    contract="Answer `{'blocks': ..., 'limit': ..., 'occupancy': ...}`: blocks per SM, the key of the resource, and "
    "the occupancy in percent.",
    hints=(
        "A warp takes 80·32 registers; a quarter of the SM has 16,384 of them.",
        "Shared memory: each block takes 1 KB more than it asks for.",
        "Occupancy: resident warps of the 64 that an SM can hold.",
    ),
    parts={
        "blocks": Number(
            prompt="How many blocks fit on one SM?",
            expected=FIT.blocks,
            exact=True,
            mistakes=(
                Mistake(
                    name="threads-only",
                    answer=FIT.blocks_by["threads"],
                    message="That many fit by threads. Registers and shared memory are limits too.",
                ),
                Mistake(
                    name="shared-only",
                    answer=FIT.blocks_by["shared memory"],
                    message="That many fit by shared memory. Registers and threads are limits too.",
                ),
            ),
        ),
        "limit": Choice(
            prompt="Which resource stops the next block?",
            options={
                "threads": Option("threads", "There is room for more threads."),
                "registers": Option("registers", "The quarters of the SM run out of registers first.", True),
                "shared": Option("shared memory", "There is shared memory left for another block."),
            },
        ),
        "occupancy": Number(
            prompt="What is the occupancy, in percent?", expected=100 * FIT.occupancy, unit="%", default_unit="%"
        ),
    },
)


def _padding_sizes(rng: np.random.Generator) -> tuple[int, int, int]:
    """Sizes of any kind; in half of the points the tile divides M."""
    M, N, T = (int(x) for x in rng.integers((1, 1, 2), (400, 400, 150)))
    return (M if rng.random() < 0.5 else T * (1 + M // T), N, T)


padding_formula = Formula(
    id="padding-waste",
    chapter=3,
    section="3.5",
    title="Wasted work as a formula",
    checklist=(6,),
    level="medium",
    prompt="Write `waste(M, N, T)`: the part of the arithmetic, from 0 to 1, that is spent on padding $M$ and $N$ to "
    "multiples of $T$.",
    contract="Positive integers; $K$ is divided evenly and plays no part.",
    hints=("Round up: `-(-M // T) * T`.", "One minus useful over done."),
    oracle=lambda M, N, T: padding_waste(M, N, 1, (T, T, 1)),
    sample=_padding_sizes,
    mistakes=(
        Mistake(
            name="useful",
            answer=lambda M, N, T: 1 - padding_waste(M, N, 1, (T, T, 1)),
            message="That is the useful part; the wasted one is asked.",
        ),
        Mistake(
            name="over-useful",
            answer=lambda M, N, T: (-(-M // T) * T) * (-(-N // T) * T) / (M * N) - 1,
            message="You divided by the useful work. The part is of all the work that is done.",
        ),
        Mistake(
            name="one-axis",
            answer=lambda M, N, T: 1 - M / (-(-M // T) * T),
            message="You padded $M$ only; $N$ is rounded up too.",
        ),
        Mistake(
            name="always-one-more",
            answer=lambda M, N, T: 1 - M * N / ((M // T + 1) * T * (N // T + 1) * T),
            message="You added a tile even where the size is a multiple already. Round up instead.",
        ),
    ),
    points_sampled=40,
)

explain_bits = Written(
    id="explain-bits",
    chapter=3,
    section="3.6",
    title="A colleague's failing test",
    checklist=(17,),
    level="medium",
    prompt="A test compares a new tiled float16 kernel with the old one and demands equal bits; it fails. Explain "
    "what the test should do instead.",
    hints=(
        "What is the reference, what is the scale of the error, how does it grow?",
        "Begin with why equal bits are not due. Then name what to compare with, everything that the tolerance depends "
        "on, and the sizes at which a bug would show. Section 3.6 treats each of these.",
    ),
    rubric=(
        "says that another order of additions rounds differently, so equal bits are not to be expected",
        "compares with a float64 (or float32) reference instead of with another kernel",
        "measures the error against the sum of magnitudes, not against each entry",
        "lets the tolerance depend on the dtype and on the length of the sum",
        "tests ragged sizes and several lengths, because a bug shows as a jump",
    ),
    model="Another tile is another order of additions and rounds differently, so bits may differ in correct kernels. "
    "Compare both with a float64 reference, allow c·sqrt(K)·u times |A||B|, and test ragged sizes and several K.",
)

EXERCISES: tuple[Exercise, ...] = (
    tile_shared,
    occupancy_limit,
    padding_formula,
    explain_bits,
    tiled_matmul,
)
