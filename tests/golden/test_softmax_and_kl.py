"""The numbers that chapter 5 promises: computed here by another way, and read from the chapter's own output."""

import math
from decimal import Decimal, getcontext
from pathlib import Path

import numpy as np
import pytest

from labsupport.authoring.notebook import code_cells, load
from labsupport.exercises import get
from labsupport.figures.softmax_and_kl import BINS, TWO_HUMPS, bell
from labsupport.grading import Number
from labsupport.ops.softmax import (
    cross_entropy,
    entropy,
    kl_divergence,
    logsumexp,
    online_merge,
    perplexity,
    softmax,
    softmax_naive,
    top_p,
)

CHAPTER = Path(__file__).resolve().parents[2] / "chapters" / "05-softmax-and-kl.ipynb"
getcontext().prec = 40


def minus_log(p: str) -> Decimal:
    """−log p in decimal arithmetic, which shares nothing with the operators."""
    return -Decimal(p).ln()


@pytest.fixture(scope="module")
def printed() -> str:
    """Everything the cells of the chapter print."""
    notebook = load(CHAPTER)
    assert notebook is not None
    outputs = [output for cell in code_cells(notebook) for output in cell["outputs"]]
    return "".join(output["text"] for output in outputs if output["output_type"] == "stream")


@pytest.mark.parametrize(
    ("p", "loss"), [("0.999", "0.0010"), ("0.665", "0.4080"), ("0.5", "0.6931"), ("0.001", "6.9078")]
)
def test_cross_entropy_of_a_one_hot_target(p: str, loss: str, printed: str) -> None:
    q = float(p)
    assert f"{minus_log(p):.4f}" == loss
    assert f"{cross_entropy(np.log([q, 1 - q]), 0):.4f}" == loss
    assert f"p = {p}: loss = {loss}\n" in printed


def test_the_unrounded_probability_behind_0_4076(printed: str) -> None:
    z = [2.0, 1.0, 0.0]
    assert f"{softmax(z)[0]:.5f}" == "0.66524"
    assert f"{cross_entropy(z, 0):.4f}" == f"{minus_log('0.66524'):.4f}" == "0.4076"
    assert "softmax(2, 1, 0)[0] = 0.66524, loss = 0.4076" in printed


def test_perplexity_of_a_loss_of_2_11(printed: str) -> None:
    assert f"{Decimal('2.11').exp():.2f}" == f"{perplexity(2.11):.2f}" == "8.25"
    assert "exp(2.11) = 8.25\n" in printed


@pytest.mark.parametrize(
    ("dtype", "largest", "threshold"),
    [
        (np.float16, Decimal(65504), "11.09"),
        (np.float32, (2 - Decimal(2) ** -23) * Decimal(2) ** 127, "88.7"),
        (np.float64, (2 - Decimal(2) ** -52) * Decimal(2) ** 1023, "709.8"),
    ],
)
def test_thresholds_of_exp(dtype: type, largest: Decimal, threshold: str, printed: str) -> None:
    digits = len(threshold.split(".")[1])
    assert f"{largest.ln():.{digits}f}" == threshold
    below, above = float(threshold) * 0.999, float(threshold) * 1.001
    assert np.isfinite(softmax_naive(np.array([below, -1], dtype))).all()
    assert np.isnan(softmax_naive(np.array([above, -1], dtype))).any()
    assert f"{dtype.__name__}: max " in printed
    assert f"exp overflows above {threshold}" in printed


def test_worked_examples(printed: str) -> None:
    assert softmax([2.0, 1.0, 0.0]).round(3).tolist() == [0.665, 0.245, 0.09]
    assert f"{logsumexp([2.0, 1.0, 0.0]):.4f}" == "2.4076"
    assert f"{logsumexp([1000.0, 1000.0]):.4f}" == "1000.6931"
    assert f"{kl_divergence([0.5, 0.5], [0.9, 0.1]):.4f}" == "0.5108"
    assert f"{kl_divergence([0.9, 0.1], [0.5, 0.5]):.4f}" == "0.3681"
    assert "KL(p||q) = 0.5108, KL(q||p) = 0.3681" in printed
    assert f"{entropy([0.5, 0.5]):.4f}" == f"{math.log(2):.4f}" == "0.6931"
    assert f"1 nat = {1 / math.log(2):.4f} bit" in printed
    assert f"{math.log(50257):8.4f} nat {math.log2(50257):8.4f} bit" in printed
    assert f"{online_merge((3.0, 2.0), (1.0, 4.0)).l:.3f}" == f"{2 + 4 * math.exp(-2):.3f}" == "2.541"
    assert np.isfinite(top_p(np.log([0.5, 0.25, 0.15, 0.10]), 0.7)).sum() == 2


def test_passes_over_memory_are_counted_and_not_typed(printed: str) -> None:
    gib = 8 * 2048 * 32_000 * 4 / 2**30
    for name, reads in (("naive", 2), ("three_passes", 3), ("online", 2)):
        assert f"{name:13} right: True, {reads} reads an element, {(reads + 1) * gib:.2f} GiB" in printed


def test_forward_kl_covers_and_reverse_kl_picks() -> None:
    grid = [(c, w) for c in np.arange(-8, 8.5, 0.5) for w in np.arange(0.5, 9.5, 0.5)]
    covering = min(grid, key=lambda g: float(kl_divergence(TWO_HUMPS, bell(*g))))
    picking = min(grid, key=lambda g: float(kl_divergence(bell(*g), TWO_HUMPS)))
    assert covering[0] == 0
    assert covering[1] > 5
    assert abs(picking[0]) == 5
    assert picking[1] < 2
    spread = np.sqrt((TWO_HUMPS * BINS**2).sum())
    assert abs(covering[1] - spread) < 2.5  # near the standard deviation of p; the bins end at ±10


@pytest.mark.parametrize(
    ("exercise", "expected"),
    [
        ("lse-of-two-equal-logits", 1000 + math.log(2)),
        ("loss-at-half", math.log(2)),
        ("entropy-of-eight", 3),
        ("perplexity-of-a-uniform-guess", 50257),
        ("nucleus-size", 2),
        ("merged-sum", 2 + 4 * math.exp(-2)),
        ("loss-logits-bytes", 2_097_152_000),
    ],
)
def test_expected_answers(exercise: str, expected: float) -> None:
    record = get(exercise)
    assert isinstance(record, Number)
    assert math.isclose(record.expected, expected, rel_tol=1e-12)
