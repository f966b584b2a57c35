"""Forty softmax answers as readers write them: the judge accepts every right one and no wrong one."""

import math

import numpy as np
import pytest

from labsupport.grading.judge import judge

SEEDS = (0, 99)


def shifted(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def by_log_sum_exp(x):
    m = x.max(-1, keepdims=True)
    return np.exp(x - (m + np.log(np.exp(x - m).sum(-1, keepdims=True))))


def by_loops(x):
    out = np.empty_like(x)
    for index in np.ndindex(x.shape[:-1]):
        row = x[index]
        top = max(row)
        e = [math.exp(v - top) for v in row]
        out[index] = [v / math.fsum(e) for v in e]
    return out


def in_float64_then_back(x):
    return shifted(x.astype(np.float64)).astype(x.dtype)


def in_longdouble(x):
    return shifted(x.astype(np.longdouble)).astype(x.dtype)


def with_np_generic(x):
    return np.apply_along_axis(lambda r: np.exp(r - r.max()) / np.exp(r - r.max()).sum(), -1, x)


def shifted_by_row_maximum_plus_one(x):
    e = np.exp(x - x.max(-1, keepdims=True) - 1)
    return e / e.sum(-1, keepdims=True)


def warns(x):
    import sys
    import warnings

    warnings.warn("a run that warns is no wrong run", stacklevel=1)
    print("debugging", file=sys.stderr)
    return shifted(x)


def fortran_result(x):
    return np.asfortranarray(shifted(x))


def float32_for_float64(x):
    return shifted(x).astype(np.float32)


def by_torch(x):
    import torch

    t = torch.tensor(np.ascontiguousarray(x))
    e = torch.exp(t - t.max(dim=-1, keepdim=True).values)
    return e / e.sum(dim=-1, keepdim=True)


class Softmax:
    def __call__(self, x):
        return shifted(x)


RIGHT = {
    "shifted": shifted,
    "log-sum-exp": by_log_sum_exp,
    "loops": by_loops,
    "float64 inside": in_float64_then_back,
    "longdouble inside": in_longdouble,
    "apply along axis": with_np_generic,
    "another shift": shifted_by_row_maximum_plus_one,
    "warns and prints": warns,
    "fortran result": fortran_result,
    "float32 for float64": float32_for_float64,
    "torch tensor": by_torch,
    "callable object": Softmax(),
    "lambda": lambda x: shifted(x),
}


def naive(x):
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def whole_array(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def whole_maximum_only(x):
    e = np.exp(x - x.max())
    return e / e.sum(-1, keepdims=True) if x.max() < 500 else e / e.sum()


def first_axis(x):
    e = np.exp(x - x.max(0))
    return e / e.sum(0)


def no_keepdims(x):
    return np.exp(x - x.max(-1)) / np.exp(x - x.max(-1)).sum(-1)


def minimum(x):
    e = np.exp(x - x.min(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def in_place(x):
    x -= x.max(-1, keepdims=True)
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def log_softmax(x):
    return np.log(shifted(x))


def base_two(x):
    e = 2.0 ** (x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def epsilon_in_the_denominator(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / (e.sum(-1, keepdims=True) + 1e-6)


def clipped(x):
    return naive(np.clip(x, -50, 50))


def argmax(x):
    return (x == x.max(-1, keepdims=True)).astype(x.dtype)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def rounded(x):
    return np.round(shifted(x), 3)


def float16_inside(x):
    return shifted(x.astype(np.float16)).astype(x.dtype)


def flattened(x):
    return shifted(x).ravel()


def column(x):
    return shifted(x)[..., None]


def nan_to_num(x):
    return np.nan_to_num(naive(x))


def uniform(x):
    return np.full(x.shape, 1 / x.shape[-1])


WRONG = {
    "naive": naive,
    "whole array": whole_array,
    "whole maximum": whole_maximum_only,
    "first axis": first_axis,
    "no keepdims": no_keepdims,
    "minimum instead of maximum": minimum,
    "in place": in_place,
    "log softmax": log_softmax,
    "base two": base_two,
    "epsilon in the denominator": epsilon_in_the_denominator,
    "clipped": clipped,
    "argmax": argmax,
    "sigmoid": sigmoid,
    "rounded": rounded,
    "float16 inside": float16_inside,
    "flattened": flattened,
    "an axis too many": column,
    "NaN swept away": nan_to_num,
    "uniform": uniform,
    "ratio": lambda x: x / x.sum(-1, keepdims=True),
    "zeros": np.zeros_like,
    "half a per cent": lambda x: shifted(x) * 1.005,
    "as a list": lambda x: shifted(x).tolist(),
    "float16 result": lambda x: shifted(x).astype(np.float16),
    "integers": lambda x: shifted(x).astype(int),
    "identity": lambda x: x,
    "empty": lambda x: np.array([]),
    "None": lambda x: None,
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", RIGHT)
def test_right_answer_passes(softmax_record, name, seed):
    verdict = judge(softmax_record, RIGHT[name], seed)
    assert verdict.state == "pass", verdict


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_answer_fails(softmax_record, name, seed):
    verdict = judge(softmax_record, WRONG[name], seed)
    assert verdict.state == "fail", verdict


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        ("naive", "overflow"),
        ("whole array", "whole-array"),
        ("first axis", "first-axis"),
        ("in place", "in-place"),
        ("ratio", "ratio"),
        ("uniform", None),
        ("base two", None),
        ("rounded", None),
    ],
)
def test_misconception_is_named_only_where_it_is_the_one(softmax_record, name, mistake):
    assert judge(softmax_record, WRONG[name]).mistake == mistake


def test_answers_of_the_corpus_leave_the_judge_unchanged(softmax_record):
    before = judge(softmax_record, shifted)
    for answer in WRONG.values():
        judge(softmax_record, answer)
    assert judge(softmax_record, shifted) == before
