"""The numbers of chapter 4 that the book promises: computed here anew, and found in what the chapter prints."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from labsupport.figures.probability import batch_spread, sample_gradients, underflow
from labsupport.ops.probability import (
    Bernoulli,
    Normal,
    Uniform,
    conditional,
    correlation,
    covariance,
    marginal,
    posterior,
    sequence_log_probability,
)

CHAPTER = Path(__file__).parents[2] / "chapters" / "04-probability.ipynb"


@pytest.fixture(scope="module")
def printed():
    cells = json.loads(CHAPTER.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells if cell["cell_type"] == "code" for output in cell["outputs"]]
    return "\n".join("".join(output["text"]) for output in outputs if output["output_type"] == "stream")


def test_moments_worked_by_hand():
    assert (Bernoulli(0.2).mean, Bernoulli(0.2).variance) == (0.2, pytest.approx(0.16))
    assert Uniform(-1, 1).variance == pytest.approx(1 / 3)
    assert float(Normal().cdf(1) - Normal().cdf(-1)) == pytest.approx(0.6827, abs=5e-5)


def test_the_joint_table_worked_by_hand():
    joint = np.array([[0.30, 0.10], [0.15, 0.45]])
    np.testing.assert_allclose(marginal(joint, 0), [0.4, 0.6])
    assert conditional(joint, 0)[0, 0] == pytest.approx(0.75)
    assert conditional(joint, 1)[0, 0] == pytest.approx(2 / 3)


def test_the_flag_worked_by_hand():
    assert posterior([0.01, 0.99], [0.90, 0.05])[0] == pytest.approx(9 / 58.5)


def test_the_covariance_worked_by_hand():
    x = np.array([[0.0, 0.0], [1.0, 2.0], [2.0, 4.0]])
    np.testing.assert_allclose(3 * covariance(x), [[2, 4], [4, 8]])
    np.testing.assert_allclose(correlation(x), np.ones((2, 2)))


def test_variances_of_one_two_three_four():
    x = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    assert np.var(x.numpy()) == 1.25
    assert x.var().item() == pytest.approx(5 / 3)
    assert ((x - x.mean()) / torch.nn.functional.layer_norm(x, (4,), eps=0.0)).square().mean() == pytest.approx(1.25)


@pytest.mark.parametrize("B", [1, 8, 64, 512])
def test_gradient_noise_falls_with_the_root_of_the_batch(B):
    gradients = sample_gradients()
    spread = batch_spread(gradients, B, 4000, np.random.default_rng(B))
    assert spread * math.sqrt(B) / gradients.std() == pytest.approx(1, abs=0.06)


@pytest.mark.parametrize(("dtype", "last"), [(np.float16, 7), (np.float32, 45), (np.float64, 323)])
def test_where_a_product_of_tenths_is_lost(dtype, last):
    running = np.multiply.accumulate(np.full(1000, 0.1, dtype))
    assert np.count_nonzero(running) == last
    assert float(sequence_log_probability(np.full(1000, 0.1))) == pytest.approx(-2302.5851, abs=1e-4)


@pytest.mark.parametrize("B", [1, 16, 48, 63])
def test_noise_of_a_batch_drawn_without_replacement(B):
    n, rng = 64, np.random.default_rng(0)
    values = rng.normal(size=n)
    order = rng.permuted(np.tile(np.arange(n), (20_000, 1)), axis=1)
    spread = values[order[:, :B]].mean(axis=1).std()
    assert spread == pytest.approx(values.std() / np.sqrt(B) * np.sqrt((n - B) / (n - 1)), rel=0.03)


def test_a_product_of_nine_tenths_stands_still_in_float16():
    running = np.multiply.accumulate(np.full(400, 0.9, np.float16))
    assert running[-1] == running[-100] > 1e11 * 0.9**400
    assert "float16 never, but it stands still" in underflow().html


@pytest.mark.parametrize(
    "text",
    [
        "posterior               [0.1538 0.8462]",
        "sum over all 27 sequences: 1.0",
        "within 5 standard errors: True",
        "P(Y > 0.25 | |X| < 0.5)    0.00",
        "float16: the last cumulative sum is 0.0625",
        "each 4 times: spread of the mean is 2.0 times",
        "a correlated sequence: spread of the mean is 4.3 times",
        "n =    8: too small by 6.459%, fails at rtol 1e-3; corrected: True",
        "n = 4096: too small by 0.012%, passes at rtol 1e-3; corrected: True",
        "float32: product 0.0, zero after 45 tokens",
        "log of the product: -inf",
        "mean NLL per token: 2.3026",
        "np.cov(x)               (1000, 1000)",
    ],
)
def test_the_chapter_prints_it(printed, text):
    assert text in printed


def test_no_comparison_of_the_chapter_came_out_false(printed):
    assert not re.search(r"(?<!rowvar=)False", printed)
