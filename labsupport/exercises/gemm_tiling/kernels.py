"""Kernel exercises of chapter 3 that move elements: a map, a guard, a transpose."""

from __future__ import annotations

import numpy as np

from labsupport.cuda.exercise import EPS32, Counter, Kernel, KernelCase, sectors, wavefronts
from labsupport.cuda.kernels import lessons
from labsupport.cuda.kernels.lessons import edited
from labsupport.exercises.gemm_tiling.kernel_parts import BARRIER_AFTER_IF, F32, NO_GUARD, WIDE, blocks, floats
from labsupport.grading import Exercise, Mistake


def _silu_cases(rng: np.random.Generator) -> list[KernelCase]:
    cases = []
    for n, scale in ((128, 1.0), (256, 8.0)):
        x = (scale * floats(rng, n)).astype(F32)
        wide = x.astype(np.float64)
        truth = wide / (1 + np.exp(-wide))
        cases.append(
            KernelCase(
                arguments={"x": x, "y": np.full(n, -7, F32)},
                grid=n // 32,
                block=32,
                truth={"y": truth},
                allowed=16 * EPS32 * (1 + np.abs(wide)),
            )
        )
    return cases


kernel_map = Kernel(
    id="kernel-map",
    chapter=3,
    section="3.8",
    title="A kernel that maps",
    checklist=(6,),
    prompt="Write a kernel `silu(x, y)` with one thread for each element: `y[i] = x[i] / (1 + exp(-x[i]))`.",
    contract="`x` and `y`: float32, one axis, a multiple of 32 elements. The launch has 32 threads a block and exactly "
    "one thread for each element. Nothing is known of what `y` holds before. Neighbouring threads take neighbouring "
    "elements; all arithmetic is float32.",
    hints=(
        "Which element belongs to thread `cuda.threadIdx.x` of block `cuda.blockIdx.x`?",
        "`cuda.grid(1)` is `blockIdx.x * blockDim.x + threadIdx.x`.",
        "`1.0` is a float64 for the compiler, and `1` makes one too: write `float32(1.0)`.",
    ),
    reference=lessons.silu,
    cases=_silu_cases,
    counters=(
        sectors("load", "x", lambda case: 4),
        sectors("store", "y", lambda case: 4),
    ),
    mistakes=(
        Mistake(
            name="added-to-the-output",
            answer=edited(lessons.silu, ("y[i] = x[i] /", "y[i] += x[i] /")),
            message="The kernel adds to what `y` held before. Nobody promised zeros: assign with `=`.",
        ),
        Mistake(
            name="thread-index-alone",
            answer=edited(lessons.silu, ("cuda.grid(1)", "cuda.threadIdx.x")),
            message="`threadIdx.x` counts within one block, so all blocks work on the same elements. Add the block's "
            "offset.",
        ),
        Mistake(
            name="every-thread-does-everything",
            answer=edited(
                lessons.silu,
                ("i = cuda.grid(1)", "for i in range(x.shape[0]):"),
                ("    y[i] =", "        y[i] ="),
            ),
            message="The body runs once in every thread already. A loop over all elements makes every thread write "
            "all of them.",
        ),
        Mistake(
            name="uncoalesced",
            answer=edited(lessons.silu, ("cuda.grid(1)", "cuda.threadIdx.x * cuda.gridDim.x + cuda.blockIdx.x")),
            message="The lanes of a warp are `gridDim.x` elements apart, so each of their requests touches many "
            "sectors. Lanes that are neighbours take elements that are neighbours.",
        ),
        Mistake(name="float64", answer=edited(lessons.silu, ("float32(1.0)", "1.0")), message=WIDE),
    ),
)


def _guard_cases(rng: np.random.Generator) -> list[KernelCase]:
    cases = []
    for n in (1, 100, 257, 2100):  # the last is longer than any block
        a, b = floats(rng, n), floats(rng, n)
        cases.append(
            KernelCase(
                arguments={"a": a, "b": b, "c": np.full(n, -7, F32)},
                grid=1,
                block=1,
                truth={"c": (a + b).astype(np.float64)},
                allowed=0.0,
                label=f"n = {n}",
            )
        )
    return cases


kernel_guard = Kernel(
    id="kernel-guard",
    chapter=3,
    section="3.8",
    title="A guard, and a block that a GPU can start",
    checklist=(6,),
    prompt="Write a kernel `add(a, b, c)` for any length, and choose the number of threads in a block: answer "
    "`(add, threads)`.",
    contract="float32 arrays of one axis and one length, 1 or more. The launch has just enough blocks of `threads` "
    "threads to cover the arrays; nothing is known of what `c` holds before. All warps but the last are to be full.",
    hints=(
        "With 100 elements and blocks of 64 there are 128 threads. What do the last 28 do?",
        "A block has at most 1024 threads and is made of warps of 32.",
    ),
    reference=lessons.add_guarded,
    cases=_guard_cases,
    grid_of=lambda case, threads: blocks(case.arguments["c"].size, threads),
    counters=(
        Counter(
            name="ragged-warps",
            what="{measured:g} requests of warps load a, where {most:g} do: some warps are not full",
            measure=lambda report: report.total("requests", "global", "load", "a"),
            most=lambda case: blocks(case.arguments["a"].size, 32),
        ),
    ),
    mistakes=(
        Mistake(
            name="no-guard",
            answer=(edited(lessons.add_guarded, ("if i < c.shape[0]:", "if True:")), 128),
            message=NO_GUARD,
        ),
        Mistake(
            name="guard-on-thread-index",
            answer=(edited(lessons.add_guarded, ("if i <", "if cuda.threadIdx.x <")), 128),
            message="The guard looks at the index within the block. Compare the index that the access uses.",
        ),
        Mistake(
            name="last-element-missed",
            answer=(edited(lessons.add_guarded, ("c.shape[0]", "c.shape[0] - 1")), 128),
            message="The guard leaves the last element out: the index runs from 0 to `shape[0] - 1`.",
        ),
        Mistake(
            name="impossible-block",
            answer=(lessons.add_guarded, 2048),
            message="A launch with such a block fails on every GPU, before a single thread runs.",
        ),
        Mistake(
            name="ragged-warps",
            answer=(lessons.add_guarded, 20),
            message="Threads come in warps of 32. A block that is no multiple of 32 leaves lanes of its last warp "
            "idle.",
        ),
    ),
)


def _transpose_cases(rng: np.random.Generator) -> list[KernelCase]:
    cases = []
    for M, N in ((32, 32), (40, 48), (40, 20)):
        A = floats(rng, M, N)
        cases.append(
            KernelCase(
                arguments={"A": A, "B": np.full((N, M), -7, F32)},
                grid=(blocks(N, 32), blocks(M, 32)),
                block=(32, 32),
                truth={"B": A.T.astype(np.float64)},
                allowed=0.0,
            )
        )
    return cases


kernel_transpose = Kernel(
    id="kernel-transpose",
    chapter=3,
    section="3.8",
    title="A transposition without bank conflicts",
    level="medium",
    checklist=(3, 6),
    prompt="Write a kernel `transpose(A, B)` with `B` = $A^T$ that reads and writes whole rows of memory and meets no "
    "bank conflict.",
    contract="`A` (M, N) and `B` (N, M): float32, any sizes. The launch has blocks of (32, 32) threads, and "
    "$\\lceil N/32\\rceil \\times \\lceil M/32\\rceil$ of them: `blockIdx.x` along the columns of `A`.",
    hints=(
        "A warp has one `threadIdx.y` and all 32 `threadIdx.x`. Which of the two must be the last index of `A`, and "
        "of `B`?",
        "Read a tile into shared memory, wait, and write it with the roles of the two block indices exchanged.",
        "A column of a (32, 32) tile lies in one bank. How far apart are its elements in a tile with one column more?",
    ),
    reference=lessons.transpose,
    cases=_transpose_cases,
    counters=(
        sectors("load", "A", lambda case: 4),
        sectors("store", "B", lambda case: 4),
        wavefronts("load"),
        wavefronts("store"),
    ),
    mistakes=(
        Mistake(
            name="bank-conflict",
            answer=edited(lessons.transpose, ("(32, 33)", "(32, 32)")),
            message="The 32 elements of a column of the tile lie 32 words apart, all in one bank. One column more "
            "shifts each row by a bank.",
        ),
        Mistake(
            name="uncoalesced",
            answer=edited(
                lessons.transpose,
                ("    tile = cuda.shared.array((32, 33), float32)\n", ""),
                ("tile[ty, tx] = A[i, j]", "B[j, i] = A[i, j]"),
                ("    cuda.syncthreads()\n", ""),
                ("    i, j = cuda.blockIdx.x * 32 + ty, cuda.blockIdx.y * 32 + tx\n", ""),
                ("    if i < B.shape[0] and j < B.shape[1]:\n        B[i, j] = tile[tx, ty]\n", ""),
            ),
            message="A warp writes a column of `B`, one sector for each lane. Turn the tile in shared memory and write "
            "rows.",
        ),
        Mistake(
            name="no-barrier",
            answer=edited(lessons.transpose, ("    cuda.syncthreads()\n", "")),
            message="A thread writes out an element of the tile that another thread has yet to load. A barrier belongs "
            "between the two.",
        ),
        Mistake(
            name="barrier-in-if",
            answer=edited(lessons.transpose, ("    cuda.syncthreads()", "        cuda.syncthreads()")),
            message=BARRIER_AFTER_IF,
        ),
        Mistake(
            name="no-guard",
            answer=edited(
                lessons.transpose,
                ("if i < A.shape[0] and j < A.shape[1]:", "if True:"),
                ("if i < B.shape[0] and j < B.shape[1]:", "if True:"),
            ),
            message=NO_GUARD,
        ),
        Mistake(
            name="blocks-not-exchanged",
            answer=edited(
                lessons.transpose,
                (
                    "i, j = cuda.blockIdx.x * 32 + ty, cuda.blockIdx.y * 32 + tx",
                    "i, j = cuda.blockIdx.y * 32 + ty, cuda.blockIdx.x * 32 + tx",
                ),
            ),
            message="The elements of a tile change places, the tile itself must too: the roles of `blockIdx.x` and "
            "`blockIdx.y` are exchanged for the store.",
        ),
        Mistake(
            name="guard-axes-exchanged",
            answer=edited(
                lessons.transpose, ("if i < A.shape[0] and j < A.shape[1]:", "if i < A.shape[1] and j < A.shape[0]:")
            ),
            message="The guard compares a row with the number of columns. The first index goes with `shape[0]`.",
        ),
        Mistake(
            name="not-transposed",
            answer=edited(lessons.transpose, ("tile[tx, ty]", "tile[ty, tx]")),
            message="Each tile moves to its new place but is not turned over inside.",
        ),
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    kernel_map,
    kernel_guard,
    kernel_transpose,
)
