"""Kernel exercises of chapter 3 on the matrix product: a shared tile, and a register tile."""

from __future__ import annotations

import numpy as np

from labsupport.cuda.exercise import EPS32, Counter, Kernel, KernelCase, sectors, total, wavefronts
from labsupport.cuda.kernels import ladder, lessons
from labsupport.cuda.kernels.lessons import edited
from labsupport.exercises.gemm_tiling.kernel_parts import F32, NO_GUARD, blocks, floats
from labsupport.grading import Exercise, Mistake
from labsupport.ops.gemm import traffic


def _product_cases(rng: np.random.Generator, side: int) -> list[KernelCase]:
    sizes = ((side, side, 8), (side, 2 * side, 16), (side + 5, side + 1, 21), (5, 3, 2))
    cases = []
    for M, N, K in sizes:
        A, B = floats(rng, M, K), floats(rng, K, N)
        a, b = A.astype(np.float64), B.astype(np.float64)
        cases.append(
            KernelCase(
                arguments={"A": A, "B": B, "C": np.full((M, N), 99, F32)},
                grid=(blocks(N, side), blocks(M, side)),
                block=(8, 8),
                truth={"C": a @ b},
                allowed=2 * K * EPS32 * (np.abs(a) @ np.abs(b)),
                label=f"M, N, K = {M}, {N}, {K}",
            )
        )
    return cases


def _aligned(case: KernelCase) -> float:
    """Sectors that a warp of four short rows needs, where rows begin at a sector; no limit elsewhere."""
    (_, K), (_, N) = case.arguments["A"].shape, case.arguments["B"].shape
    return 4 if K % 8 == 0 and N % 8 == 0 else np.inf


def _loads(operand: str, side: int) -> Counter:
    def most(case: KernelCase) -> float:
        (M, K), (_, N) = case.arguments["A"].shape, case.arguments["B"].shape
        counted = traffic(M, N, K, (side, side, 8))
        return counted.loads_a if operand == "A" else counted.loads_b

    return total(f"loads-{operand}", "load", operand, most)


PRODUCT_COUNTERS = (sectors("load", "A", _aligned), sectors("load", "B", _aligned), sectors("store", "C", _aligned))
FIRST_BARRIER = (
    "A thread multiplies with elements of the tile that others have yet to load. A barrier belongs between the loads "
    "and the loop over `k`."
)
SECOND_BARRIER = (
    "A fast thread loads the next tile over elements that a slow one still needs. A barrier belongs at the end of "
    "each turn too."
)
TAIL_DROPPED = "The loop ends at the last whole tile, so a tail of $K$ is lost. Round the number of tiles up."
TAIL_LEFT = "Where the tile reaches beyond the matrix, shared memory keeps what was there before. Store a zero there."
BARRIER_BELOW = "        cuda.syncthreads()\n        for k in range(TILE):"
BARRIER_ABOVE = "        cuda.syncthreads()\n    if row"
A_TAIL = " if row < A.shape[0] and k0 + tx < A.shape[1] else float32(0.0)"
B_TAIL = " if k0 + ty < B.shape[0] and col < B.shape[1] else float32(0.0)"

kernel_shared_tile = Kernel(
    id="kernel-shared-tile",
    chapter=3,
    section="3.8",
    title="A product with shared tiles, for any sizes",
    level="hard",
    points=2,
    checklist=(6, 7),
    prompt="Write a kernel `matmul(A, B, C)` with $8\\times8$ tiles of `A` and `B` in shared memory, for any sizes.",
    contract="`A` (M, K), `B` (K, N), `C` (M, N): float32, any sizes from 1 on. The launch has (8, 8) threads a block, "
    "one for each output, and $\\lceil N/8\\rceil \\times \\lceil M/8\\rceil$ blocks: x along the columns. Each block "
    "loads each element of its tiles once. Float32 throughout, coalesced, no bank conflicts.",
    hints=(
        "One turn for each tile along $K$: load one element of each tile, wait, multiply 8 times, wait.",
        "A thread whose element lies outside stores a zero, and goes on: it has to meet every barrier.",
        "`threadIdx.x` is the last index of every access to global memory. The accumulator starts as `float32(0.0)`.",
    ),
    reference=lessons.shared_tile,
    cases=lambda rng: _product_cases(rng, 8),
    counters=(
        *PRODUCT_COUNTERS,
        _loads("A", 8),
        _loads("B", 8),
        wavefronts("load"),
        wavefronts("store"),
    ),
    mistakes=(
        Mistake(
            name="first-barrier-missing",
            answer=edited(lessons.shared_tile, (BARRIER_BELOW, "        for k in range(TILE):")),
            message=FIRST_BARRIER,
        ),
        Mistake(
            name="second-barrier-missing",
            answer=edited(lessons.shared_tile, (BARRIER_ABOVE, "    if row")),
            message=SECOND_BARRIER,
        ),
        Mistake(
            name="no-guard",
            answer=edited(lessons.shared_tile, (A_TAIL, ""), (B_TAIL, "")),
            message=NO_GUARD,
        ),
        Mistake(
            name="barrier-in-if",
            answer=edited(
                lessons.shared_tile,
                ("    for k0", "    if row >= C.shape[0] or col >= C.shape[1]:\n        return\n    for k0"),
            ),
            message="Threads without an output return before the barriers that the others wait at. They still have "
            "elements of the tiles to load: let them run to the end.",
        ),
        Mistake(
            name="tail-not-zeroed",
            answer=edited(
                lessons.shared_tile,
                (
                    "        sA[ty, tx] = A[row, k0 + tx]" + A_TAIL,
                    "        if row < A.shape[0] and k0 + tx < A.shape[1]:\n            sA[ty, tx] = A[row, k0 + tx]",
                ),
                (
                    "        sB[ty, tx] = B[k0 + ty, col]" + B_TAIL,
                    "        if k0 + ty < B.shape[0] and col < B.shape[1]:\n            sB[ty, tx] = B[k0 + ty, col]",
                ),
            ),
            message=TAIL_LEFT,
        ),
        Mistake(
            name="tail-dropped",
            answer=edited(
                lessons.shared_tile, ("range(0, A.shape[1], TILE)", "range(0, A.shape[1] // TILE * TILE, TILE)")
            ),
            message=TAIL_DROPPED,
        ),
        Mistake(
            name="forgotten-sum",
            answer=edited(
                lessons.shared_tile,
                ("        for k in range(TILE)", "        acc = float32(0.0)\n        for k in range(TILE)"),
            ),
            message="The accumulator starts anew with each tile, so only the last tile of $K$ counts.",
        ),
        Mistake(
            name="uncoalesced",
            answer=edited(
                lessons.shared_tile,
                ("tx, ty = cuda.threadIdx.x, cuda.threadIdx.y", "ty, tx = cuda.threadIdx.x, cuda.threadIdx.y"),
            ),
            message="`threadIdx.x` runs along the rows, so the lanes of a warp lie a whole row apart. Let it run along "
            "the last axis.",
        ),
        Mistake(
            name="bank-conflict",
            answer=edited(
                lessons.shared_tile, ("sA[ty, tx] =", "sA[tx, ty] ="), ("acc += sA[ty, k]", "acc += sA[k, ty]")
            ),
            message="The tile of `A` is stored turned over, so lanes of a warp write 8 words apart and meet in a bank.",
        ),
        Mistake(
            name="no-tiles",
            answer=ladder.matmul_coalesced,
            message="Every multiply-add fetches its two operands from global memory. Load each element of the tile "
            "once, into shared memory.",
        ),
        Mistake(
            name="float64",
            answer=edited(lessons.shared_tile, ("acc = float32(0.0)", "acc = 0.0")),
            message="The accumulator is float64: `0.0` is one, and it makes every sum one. Start with `float32(0.0)`.",
        ),
    ),
)

kernel_register_tile = Kernel(
    id="kernel-register-tile",
    chapter=3,
    section="3.8",
    title="A product with tiles in registers",
    level="hard",
    points=2,
    checklist=(6, 7),
    prompt="Write `matmul(A, B, C)` so that a block of (8, 8) threads makes a $16\\times16$ tile of `C`, each thread "
    "$2\\times2$ outputs in a local array, with 8 of $K$ at a time.",
    contract="Arrays as in `kernel-shared-tile`; $\\lceil N/16\\rceil \\times \\lceil M/16\\rceil$ blocks. An element "
    "of `A` is loaded once for each column of tiles, one of `B` once for each row of tiles; from shared memory a "
    "thread loads 4 elements for 4 multiply-adds. Float32 throughout, coalesced.",
    hints=(
        "`cuda.local.array((2, 2), float32)` is the accumulator; it holds nothing until you write zeros.",
        "Let a thread's outputs lie 8 rows and 8 columns apart: then the lanes of a warp stay neighbours.",
        "Inside the loop over `k`: load two elements of `A` and two of `B` into registers, then make four products.",
    ),
    reference=lessons.register_tile,
    cases=lambda rng: _product_cases(rng, 16),
    counters=(
        *PRODUCT_COUNTERS,
        _loads("A", 16),
        _loads("B", 16),
        Counter(
            name="no-register-reuse",
            what="the threads load {measured:g} elements from shared memory, where {most:g} do",
            measure=lambda report: report.total("accesses", "shared", "load"),
            most=lambda case: 4 * 64 * 8 * blocks(case.arguments["A"].shape[1], 8) * int(np.prod(case.grid)),
        ),
    ),
    mistakes=(
        Mistake(
            name="first-barrier-missing",
            answer=edited(lessons.register_tile, (BARRIER_BELOW, "        for k in range(TILE):")),
            message=FIRST_BARRIER,
        ),
        Mistake(
            name="second-barrier-missing",
            answer=edited(lessons.register_tile, ("        cuda.syncthreads()\n    for m", "    for m")),
            message=SECOND_BARRIER,
        ),
        Mistake(
            name="accumulator-not-zeroed",
            answer=edited(lessons.register_tile, ("            acc[m, n] = float32(0.0)", "            pass")),
            message="A local array holds nothing at the start. Write zeros into the accumulators first.",
        ),
        Mistake(
            name="one-output",
            answer=edited(
                lessons.register_tile,
                (
                    "    for m in range(OUT):\n        for n in range(OUT):\n            i, j",
                    "    for m in range(1):\n        for n in range(1):\n            i, j",
                ),
            ),
            message="Each thread writes one output, but it owns four: the rest of the tile stays as it was.",
        ),
        Mistake(
            name="no-register-reuse",
            answer=edited(
                lessons.register_tile,
                (
                    "                    acc[m, n] += a[m] * b",
                    "                    acc[m, n] += sA[ty + m * TILE, k] * sB[k, tx + n * TILE]",
                ),
            ),
            message="Every multiply-add reads both operands from shared memory. Keep them in registers: each is used "
            "twice.",
        ),
        Mistake(
            name="neighbouring-outputs",
            answer=edited(
                lessons.register_tile,
                (
                    "            i, j = row + m * TILE, col + n * TILE\n",
                    "            i = cuda.blockIdx.y * BIG + OUT * ty + m\n"
                    "            j = cuda.blockIdx.x * BIG + OUT * tx + n\n",
                ),
                ("a[m] = sA[ty + m * TILE, k]", "a[m] = sA[OUT * ty + m, k]"),
                ("b = sB[k, tx + n * TILE]", "b = sB[k, OUT * tx + n]"),
            ),
            message="A thread's outputs are neighbours, so the lanes of a warp are two elements apart and every store "
            "touches twice the sectors. Give neighbouring lanes neighbouring columns.",
        ),
        Mistake(
            name="no-guard",
            answer=edited(
                lessons.register_tile,
                (" if i < A.shape[0] and k < A.shape[1] else float32(0.0)", ""),
                (" if k < B.shape[0] and j < B.shape[1] else float32(0.0)", ""),
            ),
            message=NO_GUARD,
        ),
        Mistake(
            name="tail-dropped",
            answer=edited(
                lessons.register_tile, ("range(0, A.shape[1], TILE)", "range(0, A.shape[1] // TILE * TILE, TILE)")
            ),
            message=TAIL_DROPPED,
        ),
        Mistake(
            name="float64",
            answer=edited(
                lessons.register_tile,
                ("acc = cuda.local.array((OUT, OUT), float32)", "acc = cuda.local.array((OUT, OUT), float64)"),
            ),
            message="The accumulators are float64, which takes two registers each and runs at a small part of the "
            "speed.",
        ),
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    kernel_shared_tile,
    kernel_register_tile,
)
