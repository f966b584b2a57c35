"""Kernel exercises of chapter 5: softmax of a row, in CUDA and in Triton."""

from typing import Any

import numpy as np

from labsupport.cuda.exercise import EPS32, Counter, Kernel, KernelCase, along_rows, sectors, total
from labsupport.cuda.kernels import lessons, triton_lessons
from labsupport.cuda.kernels.lessons import edited
from labsupport.cuda.triton_exercise import RowCase, TritonKernel
from labsupport.grading import Exercise, Mistake
from labsupport.ops import softmax as ops

Array = np.ndarray

ONE_BLOCK_A_ROW = (
    "`x` and `y`: float32 (R, n), any n from 1 on; every row has a finite entry, and there may be $-\\infty$ among the "
    "others. The launch has R blocks of 64 threads: block r owns row r. Float32 throughout, coalesced"
)


def _kernel_rows(rng: np.random.Generator) -> list[KernelCase]:
    masked = rng.normal(0, 30, (2, 150))
    masked[0, :70], masked[1, 5:] = -np.inf, -np.inf
    levels = rng.normal(0, 3, (3, 64)) + np.array([[200], [-1000], [0]])
    alone = np.full((4, 64), -np.inf)  # one finite logit a row, in every part of a warp; the last far below all others
    alone[range(4), [3, 20, 36, 60]] = 5, -5, 80, -1e35
    long = rng.normal(size=(2, 200))  # three or four columns of like size a thread; one far above all where turns meet
    long[1, 64] = 150
    cases = []
    for rows in (
        rng.normal(0, 3, (2, 100)), levels, masked, alone, rng.normal(size=(2, 1)), rng.normal(200, 40, (1, 65)), long
    ):  # fmt: skip
        x = rows.astype(np.float32)
        truth = ops.softmax(x.astype(np.float64))
        below = np.where(np.isfinite(x), x.max(axis=1, keepdims=True) - x.astype(np.float64), 0)
        spread = 1 + np.minimum(below, 128).max()  # further down a probability is 0 in float32
        cases.append(
            KernelCase(
                arguments={"x": x, "y": np.full_like(x, -1)},
                grid=x.shape[0],
                block=lessons.ROW_THREADS,
                truth={"y": truth},
                allowed=EPS32 * spread * (64 * truth + 1e-30),
            )
        )
    return cases


def _row_loads(passes: int) -> Counter:
    return total("passes", "load", "x", lambda case: passes * case.arguments["x"].size)


ROW_COUNTERS = (sectors("load", "x", along_rows("x")), sectors("store", "y", along_rows("x")))
COLUMN_CHUNKS = (
    "Each thread owns a stretch of neighbouring columns, so the lanes of a warp lie far apart. Start at the thread's "
    "index and step by the number of threads."
)
NARROW = "Literals such as `0.0` and `1.0` are float64 in a compiled kernel, and so is `l = 0`. Write `float32(0.0)`."

KERNEL_SOFTMAX_ROW = Kernel(
    id="kernel-softmax-row",
    chapter=5,
    section="5.11",
    title="Softmax of a row by one block",
    level="hard",
    points=2,
    checklist=(9,),
    prompt="Write a kernel `softmax(x, y)`: the stable softmax of each row, by one block, in at most three passes over "
    "the row.",
    contract=ONE_BLOCK_A_ROW + ", at most $3Rn$ elements of `x` loaded in all. Shared memory and shuffles as you like.",
    hints=(
        "Thread t takes the columns t, t + 64, t + 128 and so on: a loop with a stride.",
        "Reduce the maximum over the block first, then the sum of `exp(x - m)`, then write.",
        "If both reductions use the same shared array, everybody must have read the maximum before the sum comes in.",
    ),
    reference=lessons.softmax_row,
    accept=(lessons.online_softmax,),
    cases=_kernel_rows,
    counters=(*ROW_COUNTERS, _row_loads(3)),
    mistakes=(
        Mistake(
            name="no-maximum",
            answer=edited(lessons.softmax_row, ("m = max(s[0], s[1])", "m = float32(0.0)")),
            message="Without the maximum `exp` overflows to infinity or every term becomes 0. Subtract the row "
            "maximum.",
            section="5.2",
        ),
        Mistake(
            name="maximum-of-one-warp",
            answer=edited(lessons.softmax_row, ("m = max(s[0], s[1])", "m = s[0]")),
            message="Only the first warp's maximum is used. The row's largest logit may be in the other one.",
        ),
        Mistake(
            name="maximum-from-zero",
            answer=edited(lessons.softmax_row, ("m = LOWEST", "m = float32(0.0)")),
            message="A maximum that starts at 0 is wrong for a row of negative logits: their exponentials all vanish. "
            "Start at the lowest float32.",
        ),
        Mistake(
            name="scratch-reused-too-early",
            answer=edited(lessons.softmax_row, ("s[1])\n    cuda.syncthreads()\n", "s[1])\n")),
            message="A fast warp writes its sum over the maxima that a slow one has yet to read. A barrier belongs "
            "between the two uses of the scratch array.",
        ),
        Mistake(
            name="no-barrier-before-maximum",
            answer=edited(lessons.softmax_row, ("    cuda.syncthreads()\n    m = max(s", "    m = max(s")),
            message="The maxima of the other warps are read before they are written. A barrier belongs in between.",
        ),
        Mistake(
            name="no-barrier-before-sum",
            answer=edited(lessons.softmax_row, ("    cuda.syncthreads()\n    total = s", "    total = s")),
            message="The sums of the other warps are read before they are written. A barrier belongs in between.",
        ),
        Mistake(
            name="one-warp",
            answer=edited(lessons.softmax_row, ("total = s[0] + s[1]", "total = s[t // 32]")),
            message="Each warp divides by its own sum. The block has two warps, and the row one sum.",
        ),
        Mistake(
            name="one-column-a-thread",
            answer=edited(
                lessons.softmax_row,
                ("range(t, x.shape[1], ROW_THREADS)", "range(t, min(x.shape[1], ROW_THREADS), ROW_THREADS)"),
                ("range(t, x.shape[1], ROW_THREADS)", "range(t, min(x.shape[1], ROW_THREADS), ROW_THREADS)"),
                ("range(t, x.shape[1], ROW_THREADS)", "range(t, min(x.shape[1], ROW_THREADS), ROW_THREADS)"),
            ),
            message="Only the first 64 columns are looked at. A row may be longer than the block: loop with a stride.",
        ),
        Mistake(
            name="no-guard",
            answer=edited(
                lessons.softmax_row,
                ("range(t, x.shape[1], ROW_THREADS)", "range(t, x.shape[1] + t, ROW_THREADS)"),
                ("range(t, x.shape[1], ROW_THREADS)", "range(t, x.shape[1] + t, ROW_THREADS)"),
                ("range(t, x.shape[1], ROW_THREADS)", "range(t, x.shape[1] + t, ROW_THREADS)"),
            ),
            message="All threads take the same number of columns, so the last ones run past the end of the row. Stop "
            "each at `x.shape[1]`.",
        ),
        Mistake(
            name="uncoalesced",
            answer=edited(
                lessons.softmax_row,
                *[
                    (
                        "range(t, x.shape[1], ROW_THREADS)",
                        "range(t * ((x.shape[1] + 63) // 64), min(x.shape[1], (t + 1) * ((x.shape[1] + 63) // 64)))",
                    )
                ]
                * 3,
            ),
            message=COLUMN_CHUNKS,
        ),
        Mistake(
            name="float64",
            answer=edited(lessons.softmax_row, ("total = float32(0.0)", "total = 0.0")),
            message=NARROW,
        ),
    ),
)

KERNEL_ONLINE_SOFTMAX = Kernel(
    id="kernel-online-softmax",
    chapter=5,
    section="5.11",
    title="Online softmax by one block",
    level="hard",
    points=2,
    checklist=(9, 17),
    prompt="Write a kernel `softmax(x, y)` that reads each row twice: once for a state $(m, \\ell)$ a thread, merged "
    "over the block, and once to write the result.",
    contract=ONE_BLOCK_A_ROW + ", at most $2Rn$ elements of `x` loaded in all.",
    hints=(
        "A thread that has no column holds the empty state. Which finite maximum makes it harmless in a merge?",
        "When a larger logit comes, multiply the sum so far by `exp(m_old - m_new)`; the same holds in a merge.",
        "Merge the states in shared memory as a tree, with a barrier after every turn, outside the `if`.",
    ),
    reference=lessons.online_softmax,
    cases=_kernel_rows,
    counters=(*ROW_COUNTERS, _row_loads(2)),
    mistakes=(
        Mistake(
            name="three-passes",
            answer=lessons.softmax_row,
            message="Maximum, sum and result are three passes. Keep the sum beside the maximum, and correct it when "
            "the maximum grows.",
        ),
        Mistake(
            name="no-rescaling",
            answer=edited(lessons.online_softmax, ("l = l * math.exp(m - higher)", "l = l")),
            message="When the maximum grows, what was summed before still refers to the old one. Rescale it.",
        ),
        Mistake(
            name="rescaled-the-wrong-way",
            answer=edited(lessons.online_softmax, ("math.exp(m - higher)", "math.exp(higher - m)")),
            message="The factor is `exp` of old minus new maximum, which is at most 1. Yours is its inverse.",
        ),
        Mistake(
            name="merge-without-rescaling",
            answer=edited(
                lessons.online_softmax,
                ("sl[t] * math.exp(sm[t] - m) + sl[t + step] * math.exp(sm[t + step] - m)", "sl[t] + sl[t + step]"),
            ),
            message="The two sums of a merge refer to different maxima. Bring both to the common one.",
        ),
        Mistake(
            name="empty-state-nan",
            answer=edited(lessons.online_softmax, ("m, l = LOWEST", 'm, l = float32("-inf")')),
            message="A state that starts at minus infinity gives infinity minus infinity, which is NaN, for an empty "
            "thread or a masked logit. Start at the lowest finite float32.",
        ),
        Mistake(
            name="no-barrier-before-merge",
            answer=edited(lessons.online_softmax, ("    cuda.syncthreads()\n    step", "    step")),
            message="States are merged before all of them are written. A barrier belongs between the two.",
        ),
        Mistake(
            name="no-barrier-in-merge",
            answer=edited(lessons.online_softmax, ("        cuda.syncthreads()\n        step", "        step")),
            message="One turn of the tree reads what the turn before writes. A barrier belongs at the end of each "
            "turn.",
        ),
        Mistake(
            name="barrier-in-if",
            answer=edited(lessons.online_softmax, ("sm[t] = m\n        cuda", "sm[t] = m\n            cuda")),
            message="Threads that merge nothing never come to the barrier inside the condition. Move it out of the "
            "`if`.",
        ),
        Mistake(
            name="uncoalesced",
            answer=edited(
                lessons.online_softmax,
                *[
                    (
                        "range(t, x.shape[1], ROW_THREADS)",
                        "range(t * ((x.shape[1] + 63) // 64), min(x.shape[1], (t + 1) * ((x.shape[1] + 63) // 64)))",
                    )
                ]
                * 2,
            ),
            message=COLUMN_CHUNKS,
        ),
        Mistake(
            name="float64",
            answer=edited(lessons.online_softmax, ("LOWEST, float32(0.0)", "LOWEST, 0.0")),
            message=NARROW,
        ),
    ),
)


def _triton_case(x: Array, dtype: str = "float32") -> RowCase:
    """A launch with its truth; allowed: the dtype's own rounding of the result, and float32's of the steps."""
    import ml_dtypes

    held = x.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else np.float32).astype(np.float64)
    truth = ops.softmax(held)
    below = np.where(np.isfinite(held), held.max(-1, keepdims=True) - held, 0.0)
    unit = 2.0**-8 if dtype == "bfloat16" else 2.0**-24
    allowed = truth * (unit + (4 * below + 64) * 2.0**-24) + 2.0**-126
    return RowCase(held.astype(np.float32), truth, allowed, dtype)


def _triton_cases(rng: np.random.Generator) -> list[RowCase]:
    """Rows shorter than the block, as long as it, far from zero, masked, and in bfloat16."""
    levels = rng.normal(size=(3, 100)) + np.array([[0.0], [200.0], [-200.0]])
    masked = rng.normal(size=(3, 20))
    masked[0, :5] = masked[2, 1:] = -np.inf
    return [
        _triton_case(rng.normal(size=(3, 7))),
        _triton_case(rng.normal(size=(2, 16))),
        _triton_case(levels),
        _triton_case(masked),
        _triton_case(rng.normal(size=(1, 1))),
        _triton_case(2 * rng.normal(size=(4, 33)), "bfloat16"),
    ]


def _triton_variant(*edits: tuple[str, str]) -> Any:
    return edited(triton_lessons.softmax_kernel, *edits)


KERNEL_TRITON_SOFTMAX = TritonKernel(
    id="kernel-triton-softmax",
    chapter=5,
    section="5.11",
    title="Softmax in Triton",
    level="hard",
    checklist=(9,),
    points=3,
    prompt="Write `softmax_kernel(y_ptr, x_ptr, columns, BLOCK)` in Triton: program `tl.program_id(0)` writes the "
    "**stable** softmax of one row.",
    contract="`x_ptr`, `y_ptr`: pointers to (rows, columns) arrays in C order, float32 or bfloat16; `BLOCK`: a power "
    "of two, at least `columns`. One program a row, arithmetic in float32. Entries may be $-\\infty$, but no whole row "
    "is. The kernel may use its arguments and `tl`, without `tl.softmax`.",
    hints=(
        "`tl.arange(0, BLOCK)` has BLOCK elements and the row has `columns`: which lanes may load, and what do the "
        "others hold?",
        "What may stand in the place of a missing element so that neither the maximum nor the sum changes?",
        "`tl.load(pointer, mask=…, other=…)`, `tl.max(x, axis=0)`, `tl.sum(e, axis=0)`, "
        "`tl.store(pointer, y, mask=…)`; `.to(tl.float32)` right after the load.",
    ),
    reference=triton_lessons.softmax_kernel,
    cases=_triton_cases,
    forbidden=("softmax",),
    mistakes=(
        Mistake(
            name="no-load-mask",
            answer=_triton_variant((', mask=inside, other=-float("inf")', "")),
            message="The lanes beyond the row load too: the next row, and past the last row nobody's memory.",
        ),
        Mistake(
            name="no-store-mask",
            answer=_triton_variant(("y, mask=inside", "y")),
            message="The lanes beyond the row store too: into the next row, and past the end of the array.",
        ),
        Mistake(
            name="zero-fill",
            answer=_triton_variant(('other=-float("inf")', "other=0.0")),
            message="A lane without an element holds 0, and $e^0 = 1$: it counts in the sum, and may be the maximum.",
        ),
        Mistake(
            name="no-shift",
            answer=_triton_variant(("x - tl.max(x, axis=0)", "x")),
            message="`exp` overflows, or every one of them becomes 0. Subtract the row's maximum first.",
            section="5.2",
        ),
        Mistake(
            name="no-sum",
            answer=_triton_variant(("e / tl.sum(e, axis=0)", "e")),
            message="The exponentials are not divided by their sum.",
        ),
        Mistake(
            name="one-row",
            answer=_triton_variant(("x_ptr + row * columns", "x_ptr")),
            message="Every program reads row 0. A pointer names an element: the row has to be added to it.",
        ),
        Mistake(
            name="block-as-stride",
            answer=_triton_variant(("x_ptr + row * columns", "x_ptr + row * BLOCK")),
            message="Rows lie `columns` apart, not BLOCK: only the registers are padded, the array is not.",
        ),
    ),
    accept=(
        _triton_variant((".to(tl.float32)", "")),  # tl.max and tl.sum take bfloat16 to float32 by themselves
        _triton_variant(
            ("tl.exp(x - tl.max(x, axis=0))", "tl.exp2((x - tl.max(x, axis=0)) * 1.4426950408889634)"),
        ),
        _triton_variant(
            (', mask=inside, other=-float("inf")', ", mask=inside"),
            ("    e = ", '    x = tl.where(inside, x, -float("inf"))\n    e = '),
        ),
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    KERNEL_SOFTMAX_ROW,
    KERNEL_ONLINE_SOFTMAX,
    KERNEL_TRITON_SOFTMAX,
)
