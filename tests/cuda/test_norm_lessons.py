"""The lessons of chapter 8: norms of a row by one block, right at ragged lengths in any order, counted by formula."""

import numpy as np
import pytest

from labsupport.cuda.kernels import lessons
from labsupport.cuda.kernels.lessons import edited
from labsupport.cuda.simt import DataRaceError, launch
from labsupport.exercises import get
from labsupport.exercises.optimization import kernels
from labsupport.grading.judge import judge
from labsupport.ops.normalization import layer_norm, rms_norm

EPS = np.float32(1e-5)
SEEDS = [None, 1]
WIDTHS = [1, 30, 64, 65, 200, 256]
LAYER_NORMS = [lessons.layer_norm, lessons.layer_norm_states]


def inputs(width, mean=0.0, rows=3):
    rng = np.random.default_rng(width)
    x = (mean + rng.normal(size=(rows, width))).astype(np.float32)
    gamma, beta = rng.normal(size=(2, width)).astype(np.float32)
    return x, gamma, beta


def worst(kernel, x, gamma, beta, seed=None):
    y = np.full_like(x, np.nan)
    report = launch(kernel, len(x), lessons.ROW_THREADS, x, gamma, beta, y, EPS, seed=seed)
    truth = layer_norm(x.astype(float), gamma.astype(float), beta.astype(float), float(EPS))
    return report, np.abs(y - truth).max()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kernel", LAYER_NORMS)
def test_layer_norm_of_a_row(kernel, width, seed):
    report, error = worst(kernel, *inputs(width, mean=2.0), seed)
    assert error < 3e-6
    assert report.float64_lines == ()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("width", WIDTHS)
def test_rms_norm_of_a_row(width, seed):
    x, gamma, _ = inputs(width, mean=2.0)
    y = np.full_like(x, np.nan)
    report = launch(lessons.rms_norm, len(x), lessons.ROW_THREADS, x, gamma, y, EPS, seed=seed)
    np.testing.assert_allclose(y, rms_norm(x.astype(float), gamma.astype(float), float(EPS)), rtol=2e-6, atol=2e-6)
    assert report.float64_lines == ()
    assert report.total("accesses", "global", "load", "x") == report.total("accesses", "global", "store") == x.size


def test_states_take_rows_of_any_length():
    assert worst(lessons.layer_norm_states, *inputs(700, mean=2.0))[1] < 3e-6


@pytest.mark.parametrize("width", WIDTHS)
def test_what_the_kernels_cost(width):
    x, gamma, beta = inputs(width)
    rows, size = x.shape[0], x.size
    once, _ = worst(lessons.layer_norm, x, gamma, beta)
    twice, _ = worst(lessons.layer_norm_states, x, gamma, beta)
    for report, reads, barriers, shuffles, shared in ((once, 1, 2, 20, 16), (twice, 2, 1, 30, 24)):
        assert report.total("accesses", "global", "load", "x") == reads * size
        assert report.total("requests", "global", "load", "x") == reads * rows * -(-width // 32)
        assert report.total("accesses", "global", "store", "y") == size
        for weight in ("gamma", "beta"):
            assert report.total("accesses", "global", "load", weight) == size
        assert report.barriers == rows * barriers
        assert report.warp_operations == rows * shuffles
        assert report.shared_bytes == shared
    if width % 8 == 0:  # rows begin and end at a sector
        assert once.total("sectors", "global", "load", "x") == size * 4 // 32


def test_the_sectors_hold_what_was_asked_for_and_nothing_else():
    report, _ = worst(lessons.layer_norm, *inputs(200, rows=4))
    for array, kind in (("x", "load"), ("gamma", "load"), ("beta", "load"), ("y", "store")):
        assert report.total("sectors", "global", kind, array) * 32 == 4 * 200 * 4


def test_the_short_formula_loses_with_the_square_of_the_mean():
    short = lessons.edited(
        lessons.layer_norm,
        ("            own[k] -= mean\n", ""),
        ("s[1, 1]) / float32(width)", "s[1, 1]) / float32(width) - mean * mean"),
        ("own[k] * r", "(own[k] - mean) * r"),
    )
    for mean in (100, 1000):
        rows = inputs(200, mean)
        lost, kept = worst(short, *rows)[1], worst(lessons.layer_norm, *rows)[1]
        assert lost > 0.01 * mean**2 * np.finfo(np.float32).eps
        assert kept < 10 * mean * np.finfo(np.float32).eps < lost


@pytest.mark.parametrize(("before", "barriers"), [("mean", 0), ("variance", 1)])
def test_each_barrier_is_needed(before, barriers):
    broken = lessons.edited(lessons.layer_norm, (f"    cuda.syncthreads()\n    {before}", f"    {before}"))
    with pytest.raises(DataRaceError) as found:
        worst(broken, *inputs(200))
    assert (found.value.space, found.value.barriers, found.value.kinds) == ("shared", barriers, ("load", "store"))


@pytest.mark.parametrize("kernel", [lessons.layer_norm, kernels.by_one_scratch])
def test_a_square_written_as_a_power_stays_float32(kernel):
    whole = "own[k] * own[k]" if kernel is lessons.layer_norm else "(own[k] - mean) * (own[k] - mean)"
    squared = edited(kernel, (whole, f"({whole.split(' * ')[0]}) ** 2"))
    assert judge(get("kernel-layer-norm"), squared, 0).state == "pass"


def test_the_result_is_no_place_to_keep_the_row():
    stored = edited(
        lessons.layer_norm,
        ("        own[k] = x[row, j] if j < width else float32(0.0)\n        total += own[k]\n",
         "        if j < width:\n            y[row, j] = x[row, j]\n            total += y[row, j]\n"),
        ("own[k] -= mean\n            total += own[k] * own[k]", "total += (y[row, t + k * 64] - mean) ** 2"),
        ("own[k] * r", "(y[row, j] - mean) * r"),
    )  # fmt: skip
    verdict = judge(get("kernel-layer-norm"), stored, 0)
    assert (verdict.state, verdict.mistake) == ("fail", "result-as-storage")
