"""The kernel exercise of chapter 8: LayerNorm of a row by one block, the row read once.

Wrong neighbours are edits of the lesson's kernel, so that the difference is the mistake and nothing else.
"""

# mypy: disallow-untyped-defs=False

import math

import numpy as np
from numpy import float32

from labsupport.cuda.exercise import EPS32, Counter, Kernel, KernelCase, along_rows, sectors, total
from labsupport.cuda.kernels import lessons
from labsupport.cuda.kernels.lessons import FULL, OWN, ROW_THREADS, ROW_WARPS, edited
from labsupport.cuda.simt import cuda
from labsupport.grading import Exercise, Mistake
from labsupport.grading.shorthand import in_notebook
from labsupport.ops.normalization import layer_norm

#: The longest row.
COLUMNS = OWN * ROW_THREADS


# ---------------------------------------------------------------- other right kernels


def by_states(x, gamma, beta, y, eps):
    """One state (n, mean, M2) a thread, merged by shuffles and once in shared memory: one barrier."""
    s = cuda.shared.array((3, ROW_WARPS), float32)
    own = cuda.local.array(OWN, float32)
    row, t, width = cuda.blockIdx.x, cuda.threadIdx.x, x.shape[1]
    n, mean, m2 = float32(0.0), float32(0.0), float32(0.0)
    for k in range(OWN):
        j = t + k * ROW_THREADS
        if j < width:
            own[k] = x[row, j]
            n += float32(1.0)
            delta = own[k] - mean
            mean += delta / n
            m2 += delta * (own[k] - mean)
    for k in range(5):
        more = cuda.shfl_xor_sync(FULL, n, 1 << k)
        delta = cuda.shfl_xor_sync(FULL, mean, 1 << k) - mean
        share = more / max(n + more, float32(1.0))
        m2 += cuda.shfl_xor_sync(FULL, m2, 1 << k) + delta * delta * n * share
        mean += delta * share
        n += more
    if t % 32 == 0:
        s[0, t // 32], s[1, t // 32], s[2, t // 32] = n, mean, m2
    cuda.syncthreads()
    delta = s[1, 1] - s[1, 0]
    share = s[0, 1] / float32(width)
    mean = s[1, 0] + delta * share
    r = float32(1.0) / math.sqrt((s[2, 0] + s[2, 1] + delta * delta * s[0, 0] * share) / float32(width) + eps)
    for k in range(OWN):
        j = t + k * ROW_THREADS
        if j < width:
            y[row, j] = (own[k] - mean) * r * gamma[j] + beta[j]


def by_trees(x, gamma, beta, y, eps):
    """The row in shared memory, both sums by halving in a second array that is used twice."""
    kept = cuda.shared.array(COLUMNS, float32)
    s = cuda.shared.array(ROW_THREADS, float32)
    row, t, width = cuda.blockIdx.x, cuda.threadIdx.x, x.shape[1]
    mean = float32(0.0)
    r = float32(0.0)
    for turn in range(2):
        s[t] = float32(0.0)
        for j in range(t, width, ROW_THREADS):
            if turn == 0:
                kept[j] = x[row, j]
                s[t] += kept[j]
            else:
                kept[j] -= mean
                s[t] += kept[j] * kept[j]
        cuda.syncthreads()
        step = ROW_THREADS // 2
        while step > 0:
            if t < step:
                s[t] += s[t + step]
            cuda.syncthreads()
            step //= 2
        if turn == 0:
            mean = s[0] / float32(width)
        else:
            r = float32(1.0) / math.sqrt(s[0] / float32(width) + eps)
        cuda.syncthreads()
    for j in range(t, width, ROW_THREADS):
        y[row, j] = kept[j] * r * gamma[j] + beta[j]


def by_one_scratch(x, gamma, beta, y, eps):
    """Both sums through the same two places, with a third barrier between them; totals by shuffles downwards."""
    s = cuda.shared.array(ROW_WARPS, float32)
    own = cuda.local.array(OWN, float32)
    row, t, width = cuda.blockIdx.x, cuda.threadIdx.x, x.shape[1]
    total = float32(0.0)
    for k in range(OWN):
        if t + k * ROW_THREADS < width:
            own[k] = x[row, t + k * ROW_THREADS]
            total += own[k]
    for step in (16, 8, 4, 2, 1):
        total += cuda.shfl_down_sync(FULL, total, step)
    if t % 32 == 0:
        s[t // 32] = total
    cuda.syncthreads()
    mean = (s[0] + s[1]) / float32(width)
    cuda.syncthreads()
    total = float32(0.0)
    for k in range(OWN):
        if t + k * ROW_THREADS < width:
            total += (own[k] - mean) * (own[k] - mean)
    for step in (16, 8, 4, 2, 1):
        total += cuda.shfl_down_sync(FULL, total, step)
    if t % 32 == 0:
        s[t // 32] = total
    cuda.syncthreads()
    deviation = math.sqrt((s[0] + s[1]) / float32(width) + eps)
    for k in range(OWN):
        if t + k * ROW_THREADS < width:
            j = t + k * ROW_THREADS
            y[row, j] = (own[k] - mean) / deviation * gamma[j] + beta[j]


# ---------------------------------------------------------------- launches


def _rows(rng: np.random.Generator) -> list[KernelCase]:
    even = np.stack([0.002 * rng.normal(size=72), np.full(72, 0.7)])
    cases = []
    for rows, eps in (
        (2 * rng.normal(size=(3, 100)) + 1, 1e-5),
        (rng.normal(size=(2, COLUMNS)) - 3, 0.1),
        (rng.normal(size=(2, 200)) + 3000, 1e-5),  # a mean that is large against the spread
        (even, 1e-5),  # a spread below the root of eps, and a row of equal numbers
        (rng.normal(size=(2, 65)), 1e-5),
        (rng.normal(size=(2, 30)) + 1, 1e-5),  # the second warp has no column
        (rng.normal(size=(2, 1)), 1e-5),
    ):
        x = rows.astype(np.float32)
        gamma, beta = (1 + rng.normal(size=(2, x.shape[1]))).astype(np.float32)
        small = np.float32(eps)
        wide = x.astype(np.float64)
        truth = layer_norm(wide, gamma.astype(np.float64), beta.astype(np.float64), float(small))
        r = 1 / np.sqrt(wide.var(axis=1, keepdims=True) + float(small))
        carried = np.abs(wide).max(axis=1, keepdims=True) * r  # a rounding of the mean, in units of the result
        cases.append(
            KernelCase(
                arguments={"x": x, "gamma": gamma, "beta": beta, "y": np.full_like(x, -9), "eps": small},
                grid=x.shape[0],
                block=ROW_THREADS,
                truth={"y": truth},
                allowed=16 * EPS32 * (np.abs(gamma) * (1 + carried) + np.abs(beta)),
            )
        )
    return cases


SHARED_WORK = Counter(
    name="serial",
    what="the block makes {measured:.2g} requests for each element of x that it loads, where {most:.2g} are plenty: "
    "the lanes of a warp do not share the work",
    measure=lambda report: (
        report.total("requests", "global", "load", "x") / max(1, report.total("accesses", "global", "load", "x"))
    ),
    most=lambda case: 2 * -(-case.arguments["x"].shape[1] // 32) / case.arguments["x"].shape[1],
)


def _edited(*edits: tuple[str, str]):
    return edited(lessons.layer_norm, *edits)


KERNEL_LAYER_NORM = Kernel(
    **in_notebook("8.10"),
    id="kernel-layer-norm",
    title="LayerNorm of a row by one block",
    level="hard",
    points=2,
    checklist=(7, 17),
    prompt="Write a kernel `norm(x, gamma, beta, y, eps)`: LayerNorm of each row, by one block that loads every "
    "element of `x` once.",
    contract="`x` and `y`: float32 (R, n), any n from 1 to 256; `gamma` and `beta`: float32 (n,); `eps`: a positive "
    "float32. The launch has R blocks of 64 threads: block r owns row r. Float32 throughout, coalesced, each element "
    "of `x` loaded at most once; `y` is written once and not read. Registers, shared memory and shuffles as you like.",
    hints=(
        "Thread t owns the columns t, t + 64, t + 128 and t + 192, as far as there are any. Four elements fit into "
        "`cuda.local.array(4, float32)`.",
        "Two sums go over the block: first of the elements, then, once every thread knows the mean, of the squared "
        "deviations. A column that does not exist adds to neither.",
        "Reduce with shuffles inside a warp, one place a warp in shared memory, a barrier. Use other places for the "
        "second sum, or put a barrier before they are written again.",
    ),
    reference=lessons.layer_norm,
    accept=(by_states, by_trees, by_one_scratch),
    cases=_rows,
    counters=(
        sectors("load", "x", along_rows("x")),
        sectors("load", "gamma", lambda case: 4),
        sectors("load", "beta", lambda case: 4),
        sectors("store", "y", along_rows("y")),
        total("passes", "load", "x", lambda case: case.arguments["x"].size),
        total("read-back", "load", "y", lambda case: 0),
        total("written-twice", "store", "y", lambda case: case.arguments["y"].size),
        SHARED_WORK,
    ),
    mistakes=(
        Mistake(
            name="no-barrier-before-mean",
            answer=_edited(("    cuda.syncthreads()\n    mean", "    mean")),
            message="Sums of other threads are read from shared memory before they are written. A barrier belongs in "
            "between.",
        ),
        Mistake(
            name="second-sum-unguarded",
            answer=_edited(("    cuda.syncthreads()\n    variance", "    variance")),
            message="The first barrier is in its place, the next one is not. A place must be written before others "
            "read it, and read by all before it is written again: each of the two needs a barrier in between.",
        ),
        Mistake(
            name="no-barrier-before-variance",
            answer=edited(by_one_scratch, ("    cuda.syncthreads()\n    deviation", "    deviation")),
            message="The sums of squares are read while other threads still write theirs. A barrier belongs in "
            "between.",
        ),
        Mistake(
            name="barrier-in-if",
            answer=_edited(("s[0, t // 32] = total\n    cuda", "s[0, t // 32] = total\n        cuda")),
            message="Only some threads come to a barrier inside the condition. Move it out of the `if`.",
        ),
        Mistake(
            name="tail-not-masked",
            answer=_edited(
                (
                    "        if t + k * ROW_THREADS < width:\n            own[k] -= mean\n            total += ",
                    "        own[k] -= mean\n        total += ",
                )
            ),
            message="The zeros that fill up the row change no sum, but their deviation from the mean is the mean, and "
            "its square was added. Mask the second sum, too.",
        ),
        Mistake(
            name="divided-by-the-block",
            answer=_edited(*[("float32(width)", "float32(OWN * ROW_THREADS)")] * 2),
            message="You divided by the number of places in the block. The mean goes over the columns of the row.",
        ),
        Mistake(
            name="sample-variance",
            answer=_edited(("s[1, 1]) / float32(width)", "s[1, 1]) / float32(width - 1)")),
            message="You divided by n - 1, the sample variance. LayerNorm takes the population variance.",
            section="8.7",
        ),
        Mistake(
            name="eps-outside",
            answer=_edited(("math.sqrt(variance + eps)", "(math.sqrt(variance) + eps)")),
            message="You added eps to the root. It is added to the variance, under the root.",
            section="8.7",
        ),
        Mistake(
            name="no-eps",
            answer=_edited(("variance + eps", "variance")),
            message="Without eps a row of equal numbers is 0 divided by 0.",
            section="8.7",
        ),
        Mistake(
            name="no-root",
            answer=_edited(("math.sqrt(variance + eps)", "(variance + eps)")),
            message="You divided by the variance. Its root, the standard deviation, has the unit of x.",
            section="8.7",
        ),
        Mistake(
            name="short-formula",
            answer=_edited(
                ("            own[k] -= mean\n", ""),
                ("s[1, 1]) / float32(width)", "s[1, 1]) / float32(width) - mean * mean"),
                ("own[k] * r", "(own[k] - mean) * r"),
            ),
            message="The mean of the squares minus the square of the mean: where the mean is large, the difference of "
            "two such float32 has no digits left. Take the mean out first, or merge states.",
            section="9.6",
        ),
        Mistake(
            name="mean-left-in",
            answer=_edited(
                (
                    "            own[k] -= mean\n            total += own[k] * own[k]\n",
                    "            total += (own[k] - mean) * (own[k] - mean)\n",
                )
            ),
            message="The mean is taken out of the squares, but not out of what you write.",
        ),
        Mistake(
            name="one-warp",
            answer=_edited(("(s[0, 0] + s[0, 1])", "s[0, t // 32]"), ("(s[1, 0] + s[1, 1])", "s[1, t // 32]")),
            message="Each warp uses its own sum. The row has one mean and one variance, over both warps.",
        ),
        Mistake(
            name="one-column-a-thread",
            answer=_edited(*[("range(OWN)", "range(1)")] * 3),
            message="Only the first 64 columns are looked at. A row may be four times as long as the block.",
        ),
        Mistake(
            name="no-guard",
            answer=_edited(("x[row, j] if j < width else float32(0.0)", "x[row, j]")),
            message="Threads beyond the end of the row load what is not theirs. Load where the column exists, and take "
            "a zero elsewhere.",
        ),
        Mistake(
            name="weights-of-the-row",
            answer=_edited(("gamma[j] + beta[j]", "gamma[row] + beta[row]")),
            message="Both weight vectors belong to the columns: every row uses all of their entries.",
        ),
        Mistake(
            name="row-read-again",
            answer=_edited(("own[k] * r", "(x[row, j] - mean) * r")),
            message="The row is loaded again after the first pass. Keep a thread's elements in registers, or the row "
            "in shared memory: the kernel waits for memory and for nothing else.",
        ),
        Mistake(
            name="result-as-storage",
            answer=_edited(
                (
                    "own[k] = x[row, j] if j < width else float32(0.0)\n",
                    "own[k] = x[row, j] if j < width else float32(0.0)\n"
                    "        if j < width:\n            y[row, j] = own[k]\n",
                ),
                ("own[k] * r", "(y[row, j] - mean) * r"),
            ),
            message="The row is kept in `y` and read back from there, which is memory traffic like a second look at "
            "`x`. Registers or shared memory hold it.",
        ),
        Mistake(
            name="uncoalesced",
            answer=_edited(
                ("j = t + k * ROW_THREADS", "j = t * ((width + 63) // 64) + k"),
                ("if j < width else", "if k < (width + 63) // 64 and j < width else"),
                (
                    "if t + k * ROW_THREADS < width:",
                    "if k < (width + 63) // 64 and t * ((width + 63) // 64) + k < width:",
                ),
                ("j = t + k * ROW_THREADS", "j = t * ((width + 63) // 64) + k"),
                ("        if j < width:\n", "        if k < (width + 63) // 64 and j < width:\n"),
            ),
            message="Each thread owns a stretch of neighbouring columns, so the lanes of a warp lie apart. Start at "
            "the thread's index and step by the number of threads.",
        ),
        Mistake(
            name="float64",
            answer=_edited(("total = float32(0.0)", "total = 0.0")),
            message="A float64 sum, and an int that meets a float32, is computed at a small part of the speed on most "
            "GPUs. Write `float32(0.0)`, and `float32(n)` before you divide by it.",
        ),
    ),
)

EXERCISES: tuple[Exercise, ...] = (KERNEL_LAYER_NORM,)
