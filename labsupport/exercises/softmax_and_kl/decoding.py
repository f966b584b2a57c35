"""Exercises of chapter 5 on choosing a token: top-p, and top-k over a sharded vocabulary."""

from typing import Any

import numpy as np

from labsupport.grading import Case, Exercise, Function, Mistake

Array = np.ndarray

#: What an unstable sort does to ties; the end of a sentence.
UNSTABLE = (
    "the default sort of NumPy is not stable: it may put equal ones in any order, though on a short array it often "
    'keeps theirs. Ask for `kind="stable"`.'
)


def _top_p_mask(p: Array, threshold: float) -> Array:
    """Boolean mask of the smallest set of most probable tokens whose mass reaches ``threshold``."""
    return _top_p_mask_of(p, threshold, np.argsort(-p, kind="stable"))


def _top_p_mask_of(p: Array, threshold: float, order: Array) -> Array:
    before = np.concatenate([[0.0], np.cumsum(p[order])[:-1]])
    mask = np.zeros(p.shape, bool)
    mask[order] = before < threshold
    return mask


def _sorted_mask(keep: Any) -> Any:
    """A mask made from the sorted probabilities and their cumulative sums, mapped back to the tokens."""

    def mask(p: Array, threshold: float) -> Array:
        order = np.argsort(-p, kind="stable")
        out = np.zeros(p.shape, bool)
        out[order] = keep(p[order], np.cumsum(p[order]), threshold)
        return out

    return mask


def _top_p_cases(rng: np.random.Generator) -> list[Case]:
    cases = [
        Case(args=(np.array([0.5, 0.25, 0.125, 0.125]), 0.6), label="p = [1/2, 1/4, 1/8, 1/8], 0.6"),
        Case(args=(np.array([0.125, 0.5, 0.125, 0.25]), 0.6), label="the same, unsorted"),
        Case(args=(np.array([0.125, 0.5, 0.125, 0.25]), 0.75), label="a sum that meets 0.75 exactly"),
        Case(args=(np.array([0.25, 0.25, 0.25, 0.25]), 0.5), label="four equal probabilities, 0.5"),
        Case(args=(np.array([0.0625, 0.875, 0.0625]), 0.1), label="a threshold below the largest"),
        Case(args=(np.array([0.125, 0.5, 0.125, 0.25]), 0.75 + 2.0**-30), label="a sum just below the threshold"),
        Case(args=(np.array([0.25, 0.5, 0.25]), 1.0), label="threshold 1"),
        Case(args=(np.array([0.25, 0.0, 0.75]), 1.0), label="threshold 1, and a probability of 0"),
        Case(args=(np.array([1.0]), 0.5), label="a vocabulary of one"),
    ]
    for V in (6, 50):
        p = rng.dirichlet(np.full(V, 0.5))
        sums = np.cumsum(np.sort(p)[::-1])
        n = V // 3
        threshold = float((sums[n] + sums[n + 1]) / 2)  # between two sums, so that no rounding decides
        cases.append(Case(args=(p, threshold), label=f"float64 ({V},), random"))
    # Sums without rounding, and far more than the 16 elements up to which NumPy's default sort keeps ties in order.
    levels = np.repeat([2.0**-6, 2.0**-7, 2.0**-8], [16, 32, 128])
    for threshold in (0.125, 0.75):
        cases.append(Case(args=(rng.permutation(levels), threshold), label=f"176 tokens, many equal, {threshold}"))
    return cases


def _what_is_kept(case: Case, result: Any) -> str | None:
    """Say which property of the nucleus a mask lacks; the last one is the order of ties."""
    p, threshold = case.args
    kept = np.asarray(result, bool)
    if p[kept].sum() < threshold:
        return "the tokens you keep sum to less than the threshold."
    if p[~kept].max(initial=0.0) > p[kept].min():
        return "a token that you drop is more probable than one that you keep."
    if p[kept].sum() - p[kept].min() >= threshold:
        return "you keep more tokens than the threshold needs."
    return "among equal probabilities you keep a higher index and drop a lower one."


def _all_ties_kept(p: Array, threshold: float) -> Array:
    """Every token that is as probable as the least probable one of the nucleus."""
    return p >= p[_top_p_mask(p, threshold)].min()


TOP_P = Function(
    id="top-p",
    chapter=5,
    section="5.9",
    title="The nucleus",
    prompt=(
        "Write `top_p_mask(p, threshold)`: a boolean mask of the smallest set of most probable tokens whose "
        "probabilities sum to **at least** `threshold`. The token that crosses the threshold is kept."
    ),
    contract=(
        "`p`: (V,) float64 probabilities, unsorted; `threshold` in (0, 1]. Among equal probabilities the lower index "
        "comes first. Result: (V,) bool, in the order of `p`, with at least one True."
    ),
    hints=(
        "Sort by decreasing probability and keep the permutation; the mask must go back to the original order.",
        "Look at the sum **before** each token: a token is needed as long as that sum is below the threshold.",
        "`order = np.argsort(-p, kind='stable')`, and `mask[order] = before < threshold`.",
    ),
    level="medium",
    oracle=_top_p_mask,
    cases=_top_p_cases,
    diagnose=_what_is_kept,
    mistakes=(
        Mistake(
            name="crossing-token-dropped",
            answer=_sorted_mask(lambda q, sums, t: sums <= t),
            message="You dropped the token that crosses the threshold, so what is left sums to less than asked for, "
            "and may even be empty.",
        ),
        Mistake(
            name="one-too-many",
            answer=_sorted_mask(lambda q, sums, t: np.concatenate([[0.0], sums[:-1]]) <= t),
            message="Where the sum meets the threshold exactly, you kept one more token. At least means that equal is "
            "enough.",
        ),
        Mistake(
            name="sorted-order",
            answer=lambda p, t: np.concatenate([[0.0], np.cumsum(np.sort(p)[::-1])[:-1]]) < t,
            message="Your mask is in sorted order. Carry it back to the order of `p` with the permutation.",
        ),
        Mistake(
            name="each-by-itself",
            answer=lambda p, t: p >= t,
            message="You compared single probabilities with the threshold. It is their running sum that must reach it.",
        ),
        Mistake(
            name="least-likely-first",
            answer=lambda p, t: _top_p_mask_of(p, t, np.argsort(p, kind="stable")),
            message="You summed from the least likely token upwards. The most likely ones come first.",
        ),
        Mistake(
            name="all-ties-kept",
            answer=_all_ties_kept,
            message="You kept every token that is as probable as the last one needed. The smallest set is asked for: "
            "among equal probabilities the lower index comes first.",
        ),
        Mistake(
            name="ties-to-the-higher-index",
            answer=lambda p, t: _top_p_mask_of(p, t, np.argsort(p, kind="stable")[::-1]),
            message="Among equal probabilities you prefer the higher index: reversing an upward sort reverses the "
            "ties, too. Sort the negated probabilities.",
        ),
        Mistake(
            name="unstable-sort",
            answer=lambda p, t: _top_p_mask_of(p, t, np.argsort(-p)),
            message=f"You sorted the negated probabilities, which is right, but {UNSTABLE}",
        ),
        Mistake(
            name="unstable-sort-reversed",
            answer=lambda p, t: _top_p_mask_of(p, t, np.argsort(p)[::-1]),
            message=f"You reversed an upward sort, which reverses ties, and {UNSTABLE} Sort the negated probabilities.",
        ),
    ),
    accept=(
        _sorted_mask(lambda q, sums, t: np.arange(q.size) <= np.searchsorted(sums, t, side="left")),
        _sorted_mask(lambda q, sums, t: sums - q < t),
    ),
)


def _top_k_cases(rng: np.random.Generator) -> list[Case]:
    even = [rng.normal(size=8) for _ in range(4)]
    skewed = [np.array([0.1, 0.2, 0.3]), np.array([9.0, 8.0, 7.0]), np.array([0.4, 0.5, 0.6])]
    uneven = [rng.normal(size=n) for n in (1, 7, 4)]
    levels = [rng.integers(-2, 2, n).astype(np.float64) for n in (60, 30, 80)]
    ties = [np.array([1.0, 3.0]), np.array([3.0, 2.0]), np.array([3.0, 0.0])]
    return [
        Case(args=(even, 4), label="4 shards of 8, k = 4"),
        Case(args=(skewed, 3), label="3 shards of 3, the largest all on one, k = 3"),
        Case(args=(uneven, 3), label="shards of 1, 7 and 4, k = 3"),
        Case(args=(ties, 2), label="equal logits on several shards, k = 2"),
        Case(args=([even[0]], 1), label="one shard, k = 1"),
        Case(args=(even, 32), label="4 shards of 8, k = 32"),
        # Far more than the 16 elements up to which NumPy's default sort keeps ties in order, on a shard and in all.
        Case(args=(levels, 40), label="3 shards of 60, 30 and 80 with four levels of logits, k = 40"),
        Case(args=(levels[:1], 60), label="one shard of 60 with four levels of logits, k = 60"),
    ]


def _global_top_k(shards: list[Array], k: int) -> Array:
    """Indices in the whole vocabulary of the k largest logits, largest first, ties to the lower index."""
    return np.argsort(-np.concatenate(shards), kind="stable")[:k]


def _local_winners(shards: list[Array], each: int, kind: Any = "stable") -> list[Array]:
    return [np.argsort(-shard, kind=kind)[:each] for shard in shards]


def _offsets(shards: list[Array]) -> list[int]:
    return [sum(len(shard) for shard in shards[:rank]) for rank in range(len(shards))]


def _from_candidates(
    shards: list[Array], k: int, each: int, on_a_shard: Any = "stable", of_all: Any = "stable"
) -> Array:
    """The k best among ``each`` candidates of every shard; the two kinds of sort may differ."""
    local = _local_winners(shards, each, on_a_shard)
    index = np.concatenate([i + offset for i, offset in zip(local, _offsets(shards), strict=True)])
    value = np.concatenate([shard[i] for shard, i in zip(shards, local, strict=True)])
    return index[np.argsort(-value, kind=of_all)[:k]]


def _without_offsets(shards: list[Array], k: int) -> Array:
    local = _local_winners(shards, k)
    value = np.concatenate([shard[i] for shard, i in zip(shards, local, strict=True)])
    return np.concatenate(local)[np.argsort(-value, kind="stable")[:k]]


def _what_is_chosen(case: Case, result: Any) -> str | None:
    """Say which property of the winners the indices lack; the last one is the order of ties."""
    shards, k = case.args
    logits, index = np.concatenate(shards), np.asarray(result)
    if index.min() < 0 or index.max() >= logits.size:
        return "an index lies outside the vocabulary."
    if np.unique(index).size < k:
        return "an index occurs more than once."
    due = np.sort(logits)[::-1][:k]
    if not np.array_equal(np.sort(logits[index])[::-1], due):
        return "these are not the k largest logits."
    if not np.array_equal(logits[index], due):
        return "these are the k largest logits, but the largest does not come first."
    return "these are the k largest logits in order, but among equal ones the lower index does not come first."


VOCAB_PARALLEL_TOP_K = Function(
    id="vocab-parallel-top-k",
    chapter=5,
    section="5.9",
    title="Top-k over a split vocabulary",
    prompt=(
        "A vocabulary is split over ranks. Write `global_top_k(shards, k)`: the indices, in the whole vocabulary, of "
        "the `k` largest logits, as a rank would find them from the candidates of every shard."
    ),
    contract=(
        "`shards`: a list of 1-D float64 arrays, in vocabulary order, of possibly different lengths, some shorter "
        "than `k`; 1 ≤ k ≤ V. Result: (k,) integers, largest logit first, equal logits by lower index."
    ),
    hints=(
        "How many of the global winners can sit on one shard, at worst?",
        "A local index becomes a global one by adding the lengths of the shards before it.",
        "Concatenate candidates in shard order and use a stable sort: ties then fall to the lower index by themselves.",
    ),
    points=2,
    level="hard",
    oracle=_global_top_k,
    cases=_top_k_cases,
    diagnose=_what_is_chosen,
    mistakes=(
        Mistake(
            name="k-over-ranks",
            answer=lambda shards, k: _from_candidates(shards, k, -(-k // len(shards))),
            message="You took only a share of k from each shard. All winners may sit on one shard, so each must offer "
            "up to k.",
        ),
        Mistake(
            name="local-indices",
            answer=_without_offsets,
            message="Your indices are local to their shards. Add the number of logits on the shards before.",
        ),
        Mistake(
            name="ascending",
            answer=lambda shards, k: _global_top_k(shards, k)[::-1],
            message="Your indices go from the smallest winner to the largest. Largest first.",
        ),
        Mistake(
            name="smallest",
            answer=lambda shards, k: np.argsort(np.concatenate(shards), kind="stable")[:k],
            message="You returned the smallest logits: argsort sorts upwards.",
        ),
        Mistake(
            name="ties-to-the-higher-index",
            answer=lambda shards, k: np.argsort(np.concatenate(shards), kind="stable")[::-1][:k],
            message="Among equal logits you prefer the higher index: reversing an upward sort reverses the ties, too. "
            "Sort the negated logits.",
        ),
        Mistake(
            name="unstable-sort",
            answer=lambda shards, k: _from_candidates(shards, k, k, None, None),
            message=f"You sorted the negated logits, which is right, but {UNSTABLE}",
        ),
        Mistake(
            name="unstable-sort-of-candidates",
            answer=lambda shards, k: _from_candidates(shards, k, k, "stable", None),
            message=f"On a shard you keep ties in order, but not among the candidates: {UNSTABLE}",
        ),
        Mistake(
            name="unstable-sort-on-a-shard",
            answer=lambda shards, k: _from_candidates(shards, k, k, None, "stable"),
            message=f"Among the candidates you keep ties in order, but not on a shard: {UNSTABLE}",
        ),
        Mistake(
            name="unstable-sort-of-all",
            answer=lambda shards, k: np.argsort(-np.concatenate(shards))[:k],
            message=f"You took the winners from all logits at once, and {UNSTABLE}",
        ),
        Mistake(
            name="unstable-sort-reversed",
            answer=lambda shards, k: np.argsort(np.concatenate(shards))[::-1][:k],
            message=f"You reversed an upward sort, which reverses ties, and {UNSTABLE} Sort the negated logits.",
        ),
    ),
    accept=(
        lambda shards, k: _from_candidates(shards, k, k),
        lambda shards, k: np.array(
            sorted(range(sum(map(len, shards))), key=lambda i: (-np.concatenate(shards)[i], i))[:k]
        ),
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    TOP_P,
    VOCAB_PARALLEL_TOP_K,
)
