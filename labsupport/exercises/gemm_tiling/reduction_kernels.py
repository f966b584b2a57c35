"""Kernel exercises of chapter 3 that reduce: a sum in shared memory, and a sum by shuffles."""

from __future__ import annotations

import numpy as np

from labsupport.cuda.exercise import EPS32, Counter, Kernel, KernelCase, wavefronts
from labsupport.cuda.kernels import lessons
from labsupport.cuda.kernels.lessons import edited
from labsupport.exercises.gemm_tiling.kernel_parts import BARRIER_AFTER_IF, F32, NO_GUARD, WIDE, blocks, floats
from labsupport.grading import Exercise, Mistake


def _sum_cases(rng: np.random.Generator) -> list[KernelCase]:
    cases = []
    for n in (128, 300, 1):
        x = floats(rng, n)
        count = blocks(n, lessons.THREADS)
        padded = np.zeros(count * lessons.THREADS)
        padded[:n] = x
        rows = padded.reshape(count, -1)
        cases.append(
            KernelCase(
                arguments={"x": x, "partial": np.full(count, -7, F32)},
                grid=count,
                block=lessons.THREADS,
                truth={"partial": rows.sum(axis=1)},
                allowed=10 * EPS32 * np.abs(rows).sum(axis=1),
            )
        )
    return cases


SUM_CONTRACT = (
    "`x`: float32, any length from 1 on. The launch has 128 threads a block and enough blocks to cover `x`; "
    "`partial` has one float32 for each block, the sum of that block's 128 elements, fewer in the last block. "
)

ELEMENTS_SHARED = Counter(
    name="serial",
    what="a block makes {measured:g} requests to load x, where {most:g} do: its threads do not share the work",
    measure=lambda report: report.total("requests", "global", "load", "x") / report.blocks,
    most=lambda case: lessons.WARPS,
)
NO_ATOMICS = Counter(
    name="atomics",
    what="a block makes {measured:g} atomic additions, where none is due",
    measure=lambda report: report.total("accesses", kind="atomic") / report.blocks,
    most=lambda case: 0,
)
ATOMICS_QUEUE = (
    "Atomic additions to one place happen one after the other, in an order that no one knows. Let pairs of partial "
    "sums be added side by side."
)

kernel_reduce = Kernel(
    id="kernel-reduce",
    chapter=3,
    section="3.8",
    title="A sum in shared memory",
    level="medium",
    checklist=(6, 17),
    prompt="Write a kernel `block_sum(x, partial)` that adds up each block's elements in shared memory, as a tree.",
    contract=SUM_CONTRACT + "Float32 throughout, no bank conflicts, and the work shared by all threads: no thread "
    "loads more than a few elements of `x` or adds more than a few dozen, and no atomics, which would queue up.",
    hints=(
        "Give every thread a place in shared memory, also the threads beyond the end: what value adds nothing?",
        "Halve the number of active threads each turn: thread `t` adds the element `step` places on.",
        "A barrier after the load and one after each turn, outside the `if`.",
    ),
    reference=lessons.reduce_tree,
    accept=(lessons.reduce_shuffle,),
    cases=_sum_cases,
    counters=(
        ELEMENTS_SHARED,
        NO_ATOMICS,
        wavefronts("load"),
        wavefronts("store"),
        Counter(
            name="serial",
            what="a block makes {measured:g} requests to load shared memory, where {most:g} are plenty",
            measure=lambda report: report.total("requests", "shared", "load") / report.blocks,
            most=lambda case: 64,
        ),
    ),
    mistakes=(
        Mistake(
            name="no-guard",
            answer=edited(lessons.reduce_tree, ("x[i] if i < x.shape[0] else float32(0.0)", "x[i]")),
            message=NO_GUARD,
        ),
        Mistake(
            name="no-barrier-after-load",
            answer=edited(lessons.reduce_tree, ("    cuda.syncthreads()\n", "")),
            message="Threads add elements that others have yet to load. A barrier belongs between the load and the "
            "first addition.",
        ),
        Mistake(
            name="no-barrier-in-loop",
            answer=edited(lessons.reduce_tree, ("        cuda.syncthreads()\n        step", "        step")),
            message="One turn reads what the turn before writes. A barrier belongs at the end of every turn.",
        ),
        Mistake(
            name="barrier-in-if",
            answer=edited(lessons.reduce_tree, ("s[t + step]\n        cuda", "s[t + step]\n            cuda")),
            message=BARRIER_AFTER_IF,
        ),
        Mistake(
            name="tail-not-filled",
            answer=edited(
                lessons.reduce_tree,
                ("s[t] = x[i] if i < x.shape[0] else float32(0.0)", "if i < x.shape[0]:\n        s[t] = x[i]"),
            ),
            message="Threads beyond the end leave their place in shared memory as it was. Fill it with the value that "
            "adds nothing.",
        ),
        Mistake(
            name="half-missing",
            answer=edited(lessons.reduce_tree, ("step = THREADS // 2", "step = THREADS // 4")),
            message="The first step spans a quarter of the block, so the upper half is never added.",
        ),
        Mistake(
            name="all-write-the-result",
            answer=edited(lessons.reduce_tree, ("    if t == 0:\n        partial", "    partial")),
            message="All threads of the block write the one result. Let a single thread do it.",
        ),
        Mistake(
            name="bank-conflict",
            answer=edited(
                lessons.reduce_tree,
                ("step = THREADS // 2", "step = 1"),
                ("while step > 0", "while step < THREADS"),
                ("if t < step:", "if 2 * step * t < THREADS:"),
                ("s[t] += s[t + step]", "s[2 * step * t] += s[2 * step * t + step]"),
                ("step //= 2", "step *= 2"),
            ),
            message="Active threads lie `2 * step` elements apart, so ever more of them share a bank. Let thread `t` "
            "add the element `step` places on, with `step` shrinking.",
        ),
        Mistake(
            name="serial",
            answer=edited(
                lessons.reduce_tree,
                ("step = THREADS // 2", "total = float32(0.0)"),
                ("while step > 0:", "if t == 0:"),
                ("if t < step:", "for k in range(THREADS):"),
                ("s[t] += s[t + step]", "total += s[k]"),
                ("        cuda.syncthreads()\n        step //= 2\n    if t == 0:\n", ""),
                ("= s[0]", "= total"),
            ),
            message="One thread adds everything while 127 wait. Halve the number of sums in each turn.",
        ),
        Mistake(
            name="atomics",
            answer=edited(
                lessons.reduce_tree,
                ("s[t] = x[i] if i < x.shape[0] else float32(0.0)", "if t == 0:\n        s[0] = float32(0.0)"),
                ("    step = THREADS // 2\n", ""),
                ("    while step > 0:\n        if t < step:\n            s[t] += s[t + step]\n", ""),
                (
                    "        cuda.syncthreads()\n        step //= 2\n",
                    "    if i < x.shape[0]:\n        cuda.atomic.add(s, 0, x[i])\n    cuda.syncthreads()\n",
                ),
            ),
            message=ATOMICS_QUEUE,
        ),
        Mistake(
            name="float64",
            answer=edited(lessons.reduce_tree, ("(THREADS, float32)", "(THREADS, float64)")),
            message=WIDE,
        ),
    ),
)

kernel_shuffle_reduce = Kernel(
    id="kernel-shuffle-reduce",
    chapter=3,
    section="3.8",
    title="A sum by shuffles",
    level="medium",
    checklist=(6, 17),
    prompt="Write `block_sum(x, partial)` again, with one barrier: shuffles within each warp, shared memory only "
    "between the warps.",
    contract=SUM_CONTRACT + "At most one barrier a block, float32 throughout. Values travel within a warp by shuffles "
    "alone; shared memory holds one sum for each warp. No atomics.",
    hints=(
        "`cuda.shfl_xor_sync(0xFFFFFFFF, value, 1 << k)` is the value of the lane whose number differs in bit `k`.",
        "All 32 lanes take part in every shuffle, also those beyond the end.",
        "Lane 0 of each warp writes its warp's sum; after one barrier, thread 0 adds the four.",
    ),
    reference=lessons.reduce_shuffle,
    cases=_sum_cases,
    counters=(
        Counter(
            name="too-many-barriers",
            what="a block passes {measured:g} barriers, where {most:g} does",
            measure=lambda report: report.barriers / report.blocks,
            most=lambda case: 1,
        ),
        ELEMENTS_SHARED,
        NO_ATOMICS,
        Counter(
            name="no-shuffles",
            what="a block makes {measured:g} requests to load shared memory, where {most:g} are plenty for the sums of "
            "its warps",
            measure=lambda report: report.total("requests", "shared", "load") / report.blocks,
            most=lambda case: lessons.WARPS**2,
        ),
    ),
    mistakes=(
        Mistake(
            name="no-guard",
            answer=edited(lessons.reduce_shuffle, ("x[i] if i < x.shape[0] else float32(0.0)", "x[i]")),
            message=NO_GUARD,
        ),
        Mistake(
            name="shuffle-in-if",
            answer=edited(
                lessons.reduce_shuffle,
                ("value = x[i] if i < x.shape[0] else float32(0.0)", "value = float32(0.0)\n    if i < x.shape[0]:"),
                ("    for k in range(5):", "        value = x[i]\n        for k in range(5):"),
                ("        value += cuda", "            value += cuda"),
            ),
            message="The mask names all 32 lanes, but the condition keeps some away. Give the lanes beyond the end a "
            "zero and let every lane shuffle.",
        ),
        Mistake(
            name="mask-too-small",
            answer=edited(lessons.reduce_shuffle, ("FULL", "0xFFFF")),
            message="The mask names 16 lanes and 32 call. A bit is due for every lane that takes part.",
        ),
        Mistake(
            name="four-steps",
            answer=edited(lessons.reduce_shuffle, ("range(5)", "range(4)")),
            message="Four exchanges join 16 lanes. A warp has 32, which takes one more.",
        ),
        Mistake(
            name="no-barrier",
            answer=edited(lessons.reduce_shuffle, ("    cuda.syncthreads()\n", "")),
            message="Thread 0 reads what the other warps have yet to write. Shuffles order a warp, only a barrier "
            "orders the block.",
        ),
        Mistake(
            name="one-place-for-all-warps",
            answer=edited(lessons.reduce_shuffle, ("s[t // 32] = value", "s[0] = value")),
            message="All warps write their sum to the same place. Warp `t // 32` has a place of its own.",
        ),
        Mistake(
            name="first-warp-only",
            answer=edited(lessons.reduce_shuffle, ("range(WARPS)", "range(1)")),
            message="Only the first warp's sum is taken. A block of 128 threads has four warps.",
        ),
        Mistake(
            name="no-shuffles",
            answer=edited(
                lessons.reduce_shuffle,
                ("shared.array(WARPS", "shared.array(THREADS"),
                ("    for k in range(5):\n        value += cuda.shfl_xor_sync(FULL, value, 1 << k)\n", ""),
                ("    if t % 32 == 0:\n        s[t // 32] = value", "    s[t] = value"),
                ("range(WARPS)", "range(THREADS)"),
            ),
            message="There is one barrier, and behind it one thread adds everything. Join the lanes of each warp by "
            "shuffles first: then four sums are left.",
        ),
        Mistake(
            name="too-many-barriers",
            answer=lessons.reduce_tree,
            message="This is the tree in shared memory, with a barrier a turn. Within a warp a shuffle needs none.",
        ),
        Mistake(
            name="float64",
            answer=edited(lessons.reduce_shuffle, ("total = float32(0.0)", "total = 0.0")),
            message=WIDE,
        ),
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    kernel_reduce,
    kernel_shuffle_reduce,
)
