"""Where a contract fixes the order of equal values, a wrong answer is told which property of the result it lacks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from labsupport import exercises
from labsupport.grading.judge import judge


def nucleus(order_of: Callable[[np.ndarray], np.ndarray], extra: int = 0) -> Callable[..., np.ndarray]:
    """A nucleus from an order of the tokens; ``extra`` tokens more than it needs."""

    def mask(p: np.ndarray, threshold: float) -> np.ndarray:
        order = order_of(p)
        out = np.zeros(p.shape, bool)
        out[order[: int(np.searchsorted(np.cumsum(p[order]), threshold)) + 1 + extra]] = True
        return out

    return mask


def down(x: np.ndarray) -> np.ndarray:
    return np.argsort(-x, kind="stable")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (nucleus(down, extra=-1), "the tokens you keep sum to less than the threshold."),
        (nucleus(down, extra=1), "you keep more tokens than the threshold needs."),
        (nucleus(lambda p: np.roll(down(p), 1)), "a token that you drop is more probable than one that you keep."),
        (nucleus(lambda p: np.lexsort((-np.arange(p.size), -p))), "among equal probabilities you keep a higher index"),
    ],
)
def test_a_wrong_nucleus_is_told_what_it_lacks(answer: Any, told: str) -> None:
    verdict = judge(exercises.get("top-p"), answer, 0)
    assert verdict.state == "fail"
    assert verdict.message.startswith(told)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda z, k: down(z)[:k] - len(z), "an index lies outside the vocabulary."),
        (lambda z, k: np.full(k, down(z)[0]), "an index occurs more than once."),
        (lambda z, k: np.arange(k), "these are not the k largest logits."),
        (lambda z, k: np.sort(down(z)[:k]), "these are the k largest logits, but the largest does not come first."),
        (lambda z, k: len(z) - 1 - down(z[::-1])[:k], "these are the k largest logits in order, but among equal"),
    ],
)
def test_wrong_winners_are_told_what_they_lack(answer: Any, told: str) -> None:
    verdict = judge(exercises.get("vocab-parallel-top-k"), lambda shards, k: answer(np.concatenate(shards), k), 0)
    assert verdict.state == "fail"
    assert verdict.message.startswith(told)


@pytest.mark.parametrize(
    "order",
    [
        lambda x: np.argsort(-x, kind="mergesort"),
        lambda x: np.lexsort((np.arange(x.size), -x)),
        lambda x: np.array(sorted(range(x.size), key=lambda i: -x[i])),
        lambda x: x.size - 1 - np.argsort(x[::-1], kind="stable")[::-1],
    ],
)
def test_every_stable_sort_passes(order: Callable[[np.ndarray], np.ndarray]) -> None:
    assert judge(exercises.get("top-p"), nucleus(order), 0).state == "pass"
    chosen = judge(exercises.get("vocab-parallel-top-k"), lambda z, k: order(np.concatenate(z))[:k], 0)
    assert chosen.state == "pass"


@pytest.mark.parametrize("exercise", ["top-p", "vocab-parallel-top-k"])
def test_a_case_holds_more_ties_than_an_unstable_sort_keeps_in_order(exercise: str) -> None:
    record = exercises.get(exercise)
    for seed in range(20):
        inputs = [case.args[0] for case in record.cases(record.rng(seed))]
        values = [np.concatenate(x) if isinstance(x, list) else x for x in inputs]
        many = [x for x in values if np.unique(x, return_counts=True)[1].max() > 16]
        assert any(not np.array_equal(np.argsort(-x), down(x)) for x in many)


def near_enough(p: np.ndarray, threshold: float) -> np.ndarray:
    return nucleus(down)(p, threshold - 1e-6)


def everything_at_one(p: np.ndarray, threshold: float) -> np.ndarray:
    return np.ones(p.shape, bool) if threshold >= 1 else nucleus(down)(p, threshold)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (near_enough, "the tokens you keep sum to less than the threshold."),
        (everything_at_one, "you keep more tokens than the threshold needs."),
    ],
)
def test_the_edges_of_the_threshold_are_exact(answer: Any, told: str) -> None:
    verdict = judge(exercises.get("top-p"), answer, 0)
    assert verdict.state == "fail"
    assert verdict.message.startswith(told)
