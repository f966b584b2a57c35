"""Flash attention as a kernel: the graded kernel of section 10.4.1 and the questions in its text.

The kernel is judged by the simulator. The right answer is the lesson's kernel with an axis of heads; each wrong one is
the right one with the edit that makes the mistake, and nothing else.
"""

import math

import numpy as np
from numpy import float32

from labsupport.cuda.exercise import EPS32, Counter, Kernel, KernelCase, sectors, total
from labsupport.cuda.kernels import lessons
from labsupport.cuda.kernels.lessons import FULL, LOWEST, MASKED, edited
from labsupport.cuda.simt import cuda
from labsupport.grading import Choice, Exercise, Mistake, Number, Option
from labsupport.ops.attention import attention

Array = np.ndarray

QUERIES, WIDE = lessons.QUERIES, lessons.WIDE

# ---------------------------------------------------------------- questions in the text


def tiles(S_q: int, S_k: int, queries: int, keys: int, causal: bool) -> int:
    """Return how many tiles of keys all blocks of queries load, wholly masked ones left out."""
    count = 0
    for first in range(0, S_q, queries):
        end = min(S_k, first + queries + S_k - S_q) if causal else S_k
        count += max(0, -(-end // keys))
    return count


FLASH_BARRIERS = Number(
    id="flash-barriers",
    chapter=10,
    section="10.4.1",
    place="chapter",
    title="Barriers of flash attention",
    prompt="`flash_block` runs over 96 queries and 48 keys of one head, without a mask. A block takes 8 queries, a "
    "tile 8 keys. How many barriers do all its blocks pass together?",
    hints=(
        "How many blocks are there, and how many tiles does each of them walk over?",
        "Count the barriers of a turn.",
    ),
    checklist=(18,),
    expected=2 * tiles(96, 48, QUERIES, WIDE, False),
    exact=True,
    mistakes=(
        Mistake(
            name="one-a-turn",
            answer=tiles(96, 48, QUERIES, WIDE, False),
            message="A turn has two barriers: one before the tile is used, one before the next tile is loaded.",
        ),
        Mistake(
            name="one-block",
            answer=2 * 48 // WIDE,
            message="That is one block's count. Every eight queries have a block of their own.",
        ),
        Mistake(
            name="one-more-for-the-queries",
            answer=2 * tiles(96, 48, QUERIES, WIDE, False) + 96 // QUERIES,
            message="The queries need no barrier of their own: they are written before the first tile's barrier.",
        ),
    ),
)

FLASH_EMPTY_ROW = Choice(
    id="flash-empty-row",
    chapter=10,
    section="10.4.1",
    place="chapter",
    title="A tile that is masked whole",
    prompt="So far query $i$ has met masked keys only. Which start of $m$, and which score of a masked key, leave its "
    "state empty, whatever comes later?",
    hints=(
        "Work out $e^{s - m'}$ and $e^{m - m'}$ for each pair, with $m' = \\max(m, s)$.",
        "An empty state is $\\ell = 0$ and $A = 0$. Which pairs keep both at 0, without a NaN? Which of these starts "
        "does no harm when a key with a very low score may be read later?",
    ),
    checklist=(9, 18),
    options={
        "a": Option(
            "$m = -\\infty$, score $-\\infty$",
            "The difference is $-\\infty - (-\\infty)$, which is NaN, and sum and accumulator are NaN from then on.",
        ),
        "b": Option(
            "$m$ the lowest finite number, score the same number",
            "The difference is 0 and its exponential 1: masked keys weigh as much as each other, and a row without any "
            "key ends as a mean of values.",
        ),
        "c": Option(
            "$m$ the lowest finite number, score $-\\infty$",
            "The weight is $e^{-\\infty} = 0$, the factor $e^{0} = 1$. Sum and accumulator stay 0.",
            True,
        ),
        "d": Option(
            "$m = 0$, score $-\\infty$",
            "Masked keys get the weight 0. But a row whose scores all lie far below 0 is then measured against 0, and "
            "its weights vanish.",
        ),
    },
)

_LONG, _SIDE = 4096, 128

FLASH_CAUSAL_TILES = Number(
    id="flash-causal-tiles",
    chapter=10,
    section="10.4.1",
    place="chapter",
    title="Tiles under a causal mask",
    prompt="One head has 4096 queries and as many keys, blocks of 128 queries and tiles of 128 keys. Under a causal "
    "mask tiles that are masked whole are skipped. How many tiles do all blocks load together?",
    hints=(
        "Block $b$, counted from 0, reads keys up to its own last query. How many tiles is that?",
        "How many blocks of queries are there? The last of them loads as many tiles as there are tiles of keys.",
    ),
    checklist=(18,),
    expected=tiles(_LONG, _LONG, _SIDE, _SIDE, True),
    exact=True,
    mistakes=(
        Mistake(
            name="nothing-skipped",
            answer=tiles(_LONG, _LONG, _SIDE, _SIDE, False),
            message="That is the whole square. Tiles above the diagonal are never loaded.",
        ),
        Mistake(
            name="half",
            answer=tiles(_LONG, _LONG, _SIDE, _SIDE, False) // 2,
            message="Half of the square cuts the tiles on the diagonal in two. They are masked in part and loaded "
            "whole.",
        ),
        Mistake(
            name="diagonal-skipped",
            answer=tiles(_LONG, _LONG, _SIDE, _SIDE, True) - _LONG // _SIDE,
            message="You left out the tiles on the diagonal. They hold keys that may be read.",
        ),
    ),
)

# ---------------------------------------------------------------- the kernel


def flash_heads(Q, K, V, O, causal):  # type: ignore[no-untyped-def]
    """The lesson's kernel with an axis of heads; query heads may share a head of keys and values."""
    sQ = cuda.shared.array((8, 8), float32)
    sK = cuda.shared.array((8, 9), float32)
    sV = cuda.shared.array((8, 8), float32)
    x, y, h = cuda.threadIdx.x, cuda.threadIdx.y, cuda.blockIdx.y
    i, g = cuda.blockIdx.x * 8 + y, h // (Q.shape[0] // K.shape[0])
    queries, keys = Q.shape[1], K.shape[1]
    ahead = keys - queries
    end = min(keys, (cuda.blockIdx.x + 1) * 8 + ahead) if causal else keys
    root = math.sqrt(float32(8))
    sQ[y, x] = Q[h, i, x] / root if i < queries else float32(0.0)
    m, l, A = LOWEST, float32(0.0), float32(0.0)
    for j0 in range(0, end, 8):
        sK[y, x] = K[g, j0 + y, x] if j0 + y < keys else float32(0.0)
        sV[y, x] = V[g, j0 + y, x] if j0 + y < keys else float32(0.0)
        cuda.syncthreads()
        s, j = float32(0.0), j0 + x
        for d in range(8):
            s += sQ[y, d] * sK[x, d]
        if j >= keys or (causal and j > i + ahead):
            s = MASKED
        new = max(m, s)
        for k in range(3):
            new = max(new, cuda.shfl_xor_sync(FULL, new, 1 << k))
        p, old = math.exp(s - new), math.exp(m - new)
        m, l, A = new, l * old, A * old
        for r in range(8):
            w = cuda.shfl_sync(FULL, p, cuda.laneid - x + r)
            l += w
            A += w * sV[r, x]
        cuda.syncthreads()
    if i < queries:
        O[h, i, x] = A / l if l > float32(0.0) else float32(0.0)


def each_thread_all_scores(Q, K, V, O, causal):  # type: ignore[no-untyped-def]
    """Another right answer: no shuffles, every thread makes all scores of its row and rescales key by key."""
    q = cuda.local.array(8, float32)
    sK = cuda.shared.array((8, 8), float32)
    sV = cuda.shared.array((8, 8), float32)
    x, y, h = cuda.threadIdx.x, cuda.threadIdx.y, cuda.blockIdx.y
    i, g = cuda.blockIdx.x * 8 + y, h // (Q.shape[0] // K.shape[0])
    sK[y, x] = Q[h, i, x] if i < Q.shape[1] else float32(0.0)  # the tile of keys holds the queries first
    cuda.syncthreads()
    for d in range(8):
        q[d] = sK[y, d] / math.sqrt(float32(8))
    cuda.syncthreads()
    end = K.shape[1]
    if causal:
        end = min(end, (cuda.blockIdx.x + 1) * 8 + K.shape[1] - Q.shape[1])
    m, l, A = LOWEST, float32(0.0), float32(0.0)
    for j0 in range(0, end, 8):
        if j0 + y < K.shape[1]:
            sK[y, x], sV[y, x] = K[g, j0 + y, x], V[g, j0 + y, x]
        cuda.syncthreads()
        for j in range(j0, min(j0 + 8, K.shape[1])):
            if not causal or j <= i + K.shape[1] - Q.shape[1]:
                s = float32(0.0)
                for d in range(8):
                    s += q[d] * sK[j - j0, d]
                new = max(m, s)
                p, old = math.exp(s - new), math.exp(m - new)
                m, l, A = new, l * old + p, A * old + p * sV[j - j0, x]
        cuda.syncthreads()
    if i < Q.shape[1]:
        O[h, i, x] = A / l if l > float32(0.0) else float32(0.0)


#: Another right answer: weights in shared memory, which takes a third barrier, and a sum that each thread keeps alone.
WEIGHTS_IN_SHARED = edited(
    flash_heads,
    ("    sV =", "    sP = cuda.shared.array((8, 8), float32)\n    sV ="),
    (
        "        new = max(m, s)\n        for k in range(3):\n"
        "            new = max(new, cuda.shfl_xor_sync(FULL, new, 1 << k))\n",
        "        sP[y, x] = s\n        cuda.syncthreads()\n        new = m\n        for k in range(8):\n"
        "            new = max(new, sP[y, k])\n",
    ),
    ("p, old = math.exp(s - new), math.exp", "old = math.exp"),
    ("w = cuda.shfl_sync(FULL, p, cuda.laneid - x + r)", "w = math.exp(sP[y, r] - new)"),
)


def _cases(rng: np.random.Generator) -> list[KernelCase]:
    """Launches of a few tiles: scores that rise, a tail, every kind of causal mask, rows without a key, heads."""
    sizes = (
        ("two blocks of queries, a last tile of one key", 1, 1, 11, 9, False),
        ("scores of some hundreds, rising and falling", 1, 1, 3, 12, False),
        ("causal", 1, 1, 10, 10, True),
        ("causal, more queries than keys", 1, 1, 17, 3, True),
        ("causal, a last tile that only later queries may read", 1, 1, 5, 11, True),
        ("causal, fewer queries than keys, one head of keys for all", 3, 1, 3, 12, True),
        ("causal, six query heads on three heads of keys", 6, 3, 2, 5, True),
    )
    cases = []
    for label, N_h, N_kv, S_q, S_k, causal in sizes:
        Q, O = rng.normal(size=(N_h, S_q, WIDE)), np.full((N_h, S_q, WIDE), 99)
        K, V = rng.normal(size=(2, N_kv, S_k, WIDE))
        if "hundreds" in label:  # the last query's scores fall, and all lie far below 0
            Q = (0.5 + np.abs(Q)) * np.array([1, 1, -1])[:, None]
            K = (0.5 + np.abs(K)) * np.linspace(100, 150, S_k)[:, None]
        arrays = {name: a.astype(np.float32) for name, a in (("Q", Q), ("K", K), ("V", V), ("O", O))}
        q, k, v = (arrays[name].astype(np.float64) for name in "QKV")
        k, v = k.repeat(N_h // N_kv, axis=0), v.repeat(N_h // N_kv, axis=0)
        size = (np.abs(q) @ np.abs(k).swapaxes(1, 2)).max() / math.sqrt(WIDE)
        cases.append(
            KernelCase(
                arguments={**arrays, "causal": int(causal)},
                grid=(-(-S_q // QUERIES), N_h),
                block=(WIDE, QUERIES),
                truth={"O": attention(q, k, v, causal)},
                allowed=EPS32 * (32 + 8 * float(size)) * np.abs(v).max(),
                label=f"{label}; heads {N_h} and {N_kv}, {S_q} queries, {S_k} keys",
            )
        )
    return cases


def _tiles_of(case: KernelCase) -> int:
    N_h, S_q, _ = case.arguments["Q"].shape
    return N_h * tiles(S_q, case.arguments["K"].shape[1], QUERIES, WIDE, bool(case.arguments["causal"]))


def _elements(case: KernelCase) -> int:
    """Elements of K, and of V, in the tiles that hold a key that may be read; nothing beyond the last key counts."""
    N_h, S_q, _ = case.arguments["Q"].shape
    S_k, causal = case.arguments["K"].shape[1], case.arguments["causal"]
    blocks = range(QUERIES, S_q + QUERIES, QUERIES)
    ends = [min(S_k, last + S_k - S_q) if causal else S_k for last in blocks]
    return N_h * WIDE * sum(min(S_k, -(-max(0, end) // WIDE) * WIDE) for end in ends)


BARRIERS = Counter(
    name="barriers",
    what="its blocks pass {measured:g} barriers, where {most:g} do",
    measure=lambda report: report.barriers,
    most=lambda case: 3 * _tiles_of(case) + 2 * int(np.prod(case.grid)),
)
SHARED_WORK = Counter(
    name="serial",
    what="the block makes {measured:.2g} requests for each element of global memory, where {most:.2g} are plenty: its "
    "threads do not share the work",
    measure=lambda report: report.total("requests", "global") / max(report.total("accesses", "global"), 1),
    most=lambda case: 1 / WIDE,  # a row, or more, at a time
)
#: A warp holds four rows of a tile, which are neighbours in memory: 128 bytes.
FOUR_SECTORS = tuple(
    sectors(kind, array, lambda case: 4)
    for kind, array in (("load", "Q"), ("load", "K"), ("load", "V"), ("store", "O"))
)


def _mistake(name: str, message: str, *edits: tuple[str, str], section: str = "") -> Mistake:
    return Mistake(name=name, answer=edited(flash_heads, *edits), message=message, section=section)


KERNEL_FLASH_BLOCK = Kernel(
    id="kernel-flash-block",
    chapter=10,
    section="10.4.1",
    title="Flash attention by one block, with heads",
    level="hard",
    points=3,
    checklist=(9, 18),
    prompt="Write a kernel `flash(Q, K, V, O, causal)`: attention of several heads, with a block for each head and "
    "each 8 queries that walks over tiles of 8 keys. Several query heads may share one head of keys and values.",
    contract="`Q`, `O`: float32 (N_h, S_q, 8); `K`, `V`: float32 (N_kv, S_k, 8); any sizes from 1 on; N_kv divides "
    "N_h, and query head h reads head $\\lfloor h N_{kv} / N_h \\rfloor$ of `K` and `V`. Scores are divided by "
    "$\\sqrt 8$ and may reach some hundreds. `causal` is 0 or 1; where it is 1, query i reads the keys "
    "$j \\le i + S_k - S_q$, and a query that may read none gives 0. The launch has $\\lceil S_q/8 \\rceil \\times "
    "N_h$ blocks of (8, 8) threads, x first. A block loads its queries once, and once each tile of 8 keys and values "
    "that holds a key one of its queries may read; at most three barriers a tile and two besides; "
    "`O` is written once and not read. Float32 throughout, coalesced, a row of 8 or more by each request.",
    hints=(
        "Begin with the kernel of section 10.4.1. The head is `cuda.blockIdx.y`; what changes is the place of every "
        "access to global memory, and the shapes.",
        "A turn: load the tile, barrier, one score a thread, mask, maximum over the eight threads of a row, rescale "
        "sum and accumulator with the same factor, add the tile's share, barrier.",
        "The block's last query decides how far the loop over tiles runs. A masked score is $-\\infty$, $m$ starts at "
        "the lowest finite number, and a row whose sum is still 0 at the end gives 0.",
    ),
    reference=flash_heads,
    accept=(each_thread_all_scores, WEIGHTS_IN_SHARED),
    cases=_cases,
    counters=(
        *FOUR_SECTORS,
        total("loads-Q", "load", "Q", lambda case: case.arguments["Q"].size),
        total("loads-K", "load", "K", _elements),
        total("loads-V", "load", "V", _elements),
        total("loads-O", "load", "O", lambda case: 0),
        total("stores-O", "store", "O", lambda case: case.arguments["O"].size),
        BARRIERS,
        SHARED_WORK,
    ),
    mistakes=(
        _mistake(
            "first-barrier-missing",
            "A thread scores keys that others have yet to load. A barrier belongs between the load of a tile and its "
            "first use.",
            ("        cuda.syncthreads()\n        s, j", "        s, j"),
        ),
        _mistake(
            "second-barrier-missing",
            "A fast thread loads the next tile over values that a slow one still adds up. A barrier belongs at the end "
            "of each turn too.",
            ("        cuda.syncthreads()\n    if i", "    if i"),
        ),
        _mistake(
            "values-not-rescaled",
            "The accumulator still refers to the old maximum. It is rescaled with the same factor as the sum.",
            ("A * old", "A"),
            section="10.4",
        ),
        _mistake(
            "sum-not-rescaled",
            "The sum still refers to the old maximum. It is rescaled with the same factor as the accumulator.",
            ("l * old", "l"),
            section="10.4",
        ),
        _mistake(
            "nothing-rescaled",
            "When a tile raises the maximum, everything that was added before is too large. Rescale sum and "
            "accumulator.",
            ("l * old, A * old", "l, A"),
            section="10.4",
        ),
        _mistake(
            "rescaled-the-wrong-way",
            "The factor is `exp` of old minus new maximum, which is at most 1. Yours is its inverse.",
            ("math.exp(m - new)", "math.exp(new - m)"),
            section="10.4",
        ),
        _mistake(
            "no-maximum",
            "Without the maximum `exp` overflows on scores of some hundreds. Subtract the running maximum of the row.",
            ("m, l, A = LOWEST", "m, l, A = float32(0.0)"),
            ("        new = max(m, s)\n", "        new = m\n"),
            section="5.2",
        ),
        _mistake(
            "maximum-from-zero",
            "A maximum that starts at 0 is wrong for a row of negative scores: their exponentials all vanish. Start at "
            "the lowest finite float32.",
            ("m, l, A = LOWEST", "m, l, A = float32(0.0)"),
        ),
        _mistake(
            "a-maximum-for-each-thread",
            "Each thread keeps the maximum of its own keys, so the weights of a row refer to eight different ones. The "
            "threads of a row have to agree on one.",
            ("        for k in range(3):\n            new = max(new, cuda.shfl_xor_sync(FULL, new, 1 << k))\n", ""),
        ),
        _mistake(
            "tail-not-masked",
            "Beyond the last key the tile holds zeros, and a score of 0 has a weight. Mask these places like keys that "
            "may not be read.",
            ("j >= keys or (causal and j > i + ahead)", "causal and j > i + ahead"),
        ),
        _mistake(
            "tail-not-zeroed",
            "Beyond the last key the tile holds whatever was there before. A weight of 0 does not help: 0 times NaN is "
            "NaN. Store zeros.",
            (
                "        sK[y, x] = K[g, j0 + y, x] if j0 + y < keys else float32(0.0)\n",
                "        if j0 + y < keys:\n            sK[y, x] = K[g, j0 + y, x]\n",
            ),
            (
                "        sV[y, x] = V[g, j0 + y, x] if j0 + y < keys else float32(0.0)\n",
                "        if j0 + y < keys:\n            sV[y, x] = V[g, j0 + y, x]\n",
            ),
        ),
        _mistake(
            "tail-dropped",
            "The loop ends at the last whole tile, so the keys of a shorter one are lost. Let the last tile be cut.",
            ("range(0, end, 8)", "range(0, end // 8 * 8, 8)"),
        ),
        _mistake(
            "one-key-of-the-future",
            "The mask is off by one: each query reads the key after its own.",
            ("min(keys, (cuda.blockIdx.x + 1) * 8 + ahead)", "min(keys, (cuda.blockIdx.x + 1) * 8 + ahead + 1)"),
            ("j > i + ahead", "j > i + ahead + 1"),
            section="10.2",
        ),
        _mistake(
            "own-key-masked",
            "The mask is off by one: a query may read its own key.",
            ("j > i + ahead", "j >= i + ahead"),
            section="10.2",
        ),
        _mistake(
            "mask-from-the-first-key",
            "The mask counts from the first key. It is aligned at the end: the last query reads all keys, also where "
            "there are more or fewer keys than queries.",
            ("ahead = keys - queries", "ahead = 0"),
            section="10.2",
        ),
        _mistake(
            "loop-cut-without-a-mask",
            "The loop ends after the block's last query in any case. Without a mask every query reads all keys.",
            (" if causal else keys", ""),
            section="10.2",
        ),
        _mistake(
            "loop-cut-too-early",
            "The loop ends at the number of the block's last query. With more keys than queries it reads further: up "
            "to key $i + S_k - S_q$.",
            ("(cuda.blockIdx.x + 1) * 8 + ahead)", "(cuda.blockIdx.x + 1) * 8 + min(ahead, 0))"),
            section="10.2",
        ),
        _mistake(
            "mask-ignored",
            "`causal` changes nothing in your kernel: queries read the future.",
            (" if causal else keys", " if causal and keys < 0 else keys"),
            ("(causal and j > i + ahead)", "(causal and j > i + ahead + keys + queries)"),
            section="10.2",
        ),
        _mistake(
            "not-scaled",
            "The scores are not divided by $\\sqrt{8}$, the root of the head width.",
            ("Q[h, i, x] / root", "Q[h, i, x]"),
            section="10.3",
        ),
        _mistake(
            "scaled-by-the-width",
            "The scores are divided by the head width. Its root is due.",
            ("math.sqrt(float32(8))", "float32(8)"),
            section="10.3",
        ),
        _mistake(
            "masked-by-a-finite-number",
            "A masked score is a finite number, and a row of nothing else has weights of 1: it becomes a mean of "
            "values. Masked scores are minus infinity.",
            ("s = MASKED", "s = LOWEST"),
        ),
        _mistake(
            "empty-row-nan",
            "A query that may read no key divides 0 by 0. Look at the sum before you divide.",
            ("A / l if l > float32(0.0) else float32(0.0)", "A / l"),
        ),
        _mistake(
            "not-divided",
            "The accumulator is written as it is. Divide it by the sum once, at the end.",
            ("A / l if l > float32(0.0) else float32(0.0)", "A"),
        ),
        _mistake(
            "state-restarted",
            "The state starts anew with each tile, so only the last tile counts.",
            (
                "        s, j = float32(0.0), j0 + x\n",
                "        m, l, A = LOWEST, float32(0.0), float32(0.0)\n        s, j = float32(0.0), j0 + x\n",
            ),
        ),
        _mistake(
            "divided-by-the-heads-of-keys",
            "You divided the head's number by the number of heads of keys. Divide it by the number of query heads that "
            "share one, N_h / N_kv.",
            ("h // (Q.shape[0] // K.shape[0])", "h // K.shape[0]"),
            section="10.7",
        ),
        _mistake(
            "heads-dealt-out-in-turn",
            "Neighbouring query heads share a head of keys: the first N_h / N_kv of them read head 0. Yours are dealt "
            "out in turn.",
            ("h // (Q.shape[0] // K.shape[0])", "h % K.shape[0]"),
            section="10.7",
        ),
        _mistake(
            "a-key-head-for-each-query-head",
            "There are fewer heads of keys than of queries. Work out which one a query head shares.",
            ("h // (Q.shape[0] // K.shape[0])", "h"),
            section="10.7",
        ),
        _mistake(
            "no-guard",
            "The last block has rows beyond the last query. Compare `i` with their number before every access.",
            ("Q[h, i, x] / root if i < queries else float32(0.0)", "Q[h, i, x] / root"),
            (
                "    if i < queries:\n        O[h, i, x] = A / l if l > float32(0.0) else float32(0.0)",
                "    O[h, i, x] = A / l if l > float32(0.0) else float32(0.0)",
            ),
        ),
        _mistake(
            "early-return",
            "Threads without a query return before a barrier of the block. They still have to load their part "
            "of each tile.",
            ("    root =", "    if i >= queries:\n        return\n    root ="),
        ),
        _mistake(
            "masked-tiles-loaded",
            "Tiles that lie wholly in the future of a block are loaded and masked. End the loop after the last key "
            "that one of the block's queries may read.",
            ("min(keys, (cuda.blockIdx.x + 1) * 8 + ahead) if causal else keys", "keys"),
        ),
        _mistake(
            "accumulator-in-memory",
            "The accumulator lives in `O`, which is read and written again for each key: that is the traffic flash "
            "attention is there to avoid. Keep it in a register and write `O` once.",
            (
                "    m, l, A = LOWEST, float32(0.0), float32(0.0)\n",
                "    m, l = LOWEST, float32(0.0)\n    if i < queries:\n        O[h, i, x] = float32(0.0)\n",
            ),
            (
                "m, l, A = new, l * old, A * old\n",
                "m, l = new, l * old\n        if i < queries:\n            O[h, i, x] *= old\n",
            ),
            (
                "            A += w * sV[r, x]\n",
                "            if i < queries:\n                O[h, i, x] += w * sV[r, x]\n",
            ),
            ("O[h, i, x] = A / l if", "O[h, i, x] = O[h, i, x] / l if"),
        ),
        _mistake(
            "uncoalesced",
            "`threadIdx.x` runs down the rows of a tile while it is loaded, so a warp touches eight rows in half their "
            "length. Let it run along the last axis.",
            ("sK[y, x] = K[g, j0 + y, x] if j0 + y < keys", "sK[x, y] = K[g, j0 + x, y] if j0 + x < keys"),
            ("sV[y, x] = V[g, j0 + y, x] if j0 + y < keys", "sV[x, y] = V[g, j0 + x, y] if j0 + x < keys"),
        ),
        _mistake(
            "float64",
            "Literals such as `0.0` are float64 in a compiled kernel, and so is `l = 0`. Write `float32(0.0)`.",
            ("LOWEST, float32(0.0), float32(0.0)", "LOWEST, 0.0, 0.0"),
        ),
    ),
)

EXERCISES: tuple[Exercise, ...] = (KERNEL_FLASH_BLOCK, FLASH_BARRIERS, FLASH_EMPTY_ROW, FLASH_CAUSAL_TILES)
