"""What a contract promises is held by its cases, and wrong answers that have no name of their own fail too."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from labsupport import exercises
from labsupport.cuda.kernels import lessons
from labsupport.cuda.kernels.lessons import edited
from labsupport.grading import Function
from labsupport.grading.judge import judge

FUNCTIONS = [record for record in exercises.all_exercises() if isinstance(record, Function)]
each_function = pytest.mark.parametrize("record", [pytest.param(record, id=record.id) for record in FUNCTIONS])


@each_function
def test_any_leading_axes_are_tried_with_three_axes(record: Function) -> None:
    if not re.search("leading axes", record.contract):
        return
    arrays = [value for case in record.cases(record.rng(0)) for value in case.args if isinstance(value, np.ndarray)]
    assert max(array.ndim for array in arrays) >= 3


@each_function
def test_a_result_whose_dtype_is_named_has_that_very_dtype(record: Function) -> None:
    result = re.search("[Rr]esult:(.*)", record.contract)
    if result and re.search("dtype|float64", result[1]) and "a Python float" not in result[1]:
        assert record.dtype == "exact"


@each_function
def test_a_result_that_is_to_be_new_is_asked_to_be(record: Function) -> None:
    if re.search(r"\bnew (arrays?|list)\b", record.contract):
        assert record.fresh


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def at_least(least: float) -> Callable[..., Any]:
    def tempered(z: np.ndarray, T: float) -> np.ndarray:
        if T <= 0:
            raise ValueError
        return softmax(z / max(T, least))

    return tempered


def mean_shifted_loss(logits: np.ndarray, targets: np.ndarray, ignore_index: int) -> Any:
    z, y = logits[targets != ignore_index], targets[targets != ignore_index]
    d = z - z.mean(axis=-1, keepdims=True)
    with np.errstate(all="ignore"):
        return (np.log(np.exp(d).sum(axis=-1)) - d[np.arange(len(y)), y]).mean()


def mean_shifted_gradient(z: np.ndarray, y: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        e = np.exp(z - z.mean(axis=-1, keepdims=True))
        p = e / e.sum(axis=-1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    return p / len(y)


def first_row_checked(ids: np.ndarray, E: np.ndarray, pos: np.ndarray) -> np.ndarray:
    if ids[0].min() < 0 or ids[0].max() >= len(E):
        raise ValueError
    return E[ids] + pos[: ids.shape[1]]


def power_iteration(A: np.ndarray) -> float:
    v = np.ones(len(A))
    for _ in range(500):
        v = A @ v / np.linalg.norm(A @ v)
    return float(np.linalg.norm(A @ v))


def probe(differ: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[..., Any]:
    """A causality probe that compares logits in a way of its own: (B, T, V) twice, to a vector over positions."""

    def depends(forward: Callable[[np.ndarray], np.ndarray], ids: np.ndarray, vocab: int) -> np.ndarray:
        before, columns = forward(ids), []
        for s in range(ids.shape[1]):
            other = ids.copy()
            other[:, s] = (other[:, s] + 1) % vocab
            columns.append(differ(forward(other), before))
        return np.stack(columns, axis=1)

    return depends


@pytest.mark.parametrize(
    ("exercise", "answer"),
    [
        ("row-major-offset", lambda index, shape: np.int32(np.ravel_multi_index(index, shape) % 2**31) if shape else 0),
        ("spectral-radius", power_iteration),
        ("solve-not-invert", lambda A, b: np.linalg.matrix_power(A, -1) @ b),
        ("temperature-limits", at_least(1e-6)),
        ("temperature-limits", at_least(1e-3)),
        ("cross-entropy-ignore", mean_shifted_loss),
        ("softmax-ce-grad", mean_shifted_gradient),
        ("entropy-bits", lambda p: -(p * np.log2(np.clip(p, 1e-6, 1))).sum(axis=-1)),
        ("entropy-bits", lambda p: -(p * np.log2(np.where(p > 0, p, 1))).sum(axis=1 if p.ndim > 1 else 0)),
        ("embedding-lookup", first_row_checked),
        ("causal-probe", probe(lambda a, b: (a > b).any(axis=(0, 2)))),
        ("causal-probe", probe(lambda a, b: (np.abs(a - b) > 1e-12).any(axis=(0, 2)))),
        ("causal-probe", probe(lambda a, b: (a.sum(axis=2) != b.sum(axis=2)).any(axis=0))),
        ("causal-probe", probe(lambda a, b: (a != b)[:, :, 0].any(axis=0))),
    ],
)
def test_a_plausible_wrong_answer_fails(exercise: str, answer: Any) -> None:
    assert judge(exercises.get(exercise), answer, 0).state == "fail"


def test_a_way_of_looking_at_all_logits_passes() -> None:
    for differ in (lambda a, b: (a != b).any(axis=(0, 2)), lambda a, b: np.abs(a - b).max(axis=2).max(axis=0) > 0):
        assert judge(exercises.get("causal-probe"), probe(differ), 0).state == "pass"


@pytest.mark.parametrize(
    ("exercise", "kernel", "edit"),
    [
        ("kernel-online-softmax", lessons.online_softmax, ("l = l * math.exp(m - higher)", "l = math.exp(m - higher)")),
        ("kernel-flash-block", exercises.get("kernel-flash-block").reference, ("max(m, s)", "s")),
        ("kernel-softmax-row", lessons.softmax_row, ("range(t, x.shape[1], ROW_THREADS)", "range(t, x.shape[1], 65)")),
    ],
)
def test_a_kernel_that_is_right_for_few_tiles_only_fails(exercise: str, kernel: Any, edit: tuple[str, str]) -> None:
    assert judge(exercises.get(exercise), edited(kernel, edit), 0).state == "fail"
