"""The numbers that chapter 11 promises: computed here by another way, and read from the chapter's own output."""

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from labsupport.authoring.notebook import code_cells, load
from labsupport.exercises import get
from labsupport.figures import forward_pass as figures
from labsupport.grading import Number
from labsupport.ops.attention import causal_mask
from labsupport.ops.transformer import Config, count_parameters, forward, init

CHAPTER = Path(__file__).resolve().parents[2] / "chapters" / "11-forward-pass.ipynb"


@pytest.fixture(scope="module")
def printed() -> str:
    """Everything the cells of the chapter print."""
    notebook = load(CHAPTER)
    assert notebook is not None
    outputs = [output for cell in code_cells(notebook) for output in cell["outputs"]]
    return "".join(output["text"] for output in outputs if output["output_type"] == "stream")


def test_the_seven_logits_in_exact_arithmetic(printed: str) -> None:
    rows = [["2", "1", "-3", "0", "4", "5", "-1"], ["0", "3", "2", "1", "1", "-2", "4"]]
    first, second = ([Fraction(v) / 10 for v in row] for row in rows)
    exact = [1 * a + 2 * b for a, b in zip(first, second, strict=True)]
    assert [float(v) for v in exact] == [0.2, 0.7, 0.1, 0.2, 0.6, 0.1, 0.7]
    np.testing.assert_allclose(figures.H @ figures.U, [float(v) for v in exact], atol=1e-15)
    assert "logits [0.2, 0.7, 0.1, 0.2, 0.6, 0.1, 0.7]\n" in printed
    assert sum(v > exact[figures.ANSWER] for v in exact) == 2
    assert "ahead of the right answer, fish: cat, eos\n" in printed


def test_the_names_are_the_same_tokens_in_two_languages() -> None:
    assert figures.ENGLISH == ("pad", "cat", "dog", "eats", "fish", "sleeps", "eos")
    assert figures.VIETNAMESE == ("pad", "mèo", "chó", "ăn", "cá", "ngủ", "eos")


def test_28_and_230_scores(printed: str) -> None:
    assert "B = 1, T = 4, V = 7: (1, 4, 7), 28 numbers\n" in printed
    assert "B = 1, T = 10, V = 23: (1, 10, 23), 230 numbers\n" in printed
    record = get("logits-how-many")
    assert isinstance(record, Number)
    assert record.expected == 230


def test_516_and_5024_parameters(printed: str) -> None:
    for n, d, count in ((13, 6, 516), (77, 16, 5024)):
        config = Config(n, d, 1, 2 * d)
        assert 2 * n * d + 10 * d * d == count == count_parameters(config)
        assert sum(array.size for array in init(config, np.random.default_rng(0)).values()) == count
        assert f"n = {n}, d = {d}: formula {count}, tensors {count}\n" in printed


def test_the_probability_of_fish(printed: str) -> None:
    logits = [0.2, 0.7, 0.1, 0.2, 0.6, 0.1, 0.7]
    p = math.exp(0.6) / math.fsum(math.exp(v) for v in logits)
    assert f"p(fish)                  {p:.4f}\n" in printed
    assert "odds cat : fish, e^0.1   1.1052\n" in printed


def test_the_figure_s_own_forward_is_the_model_when_the_mask_is_causal() -> None:
    config = Config(vocab=13, width=6, layers=1, hidden=12)
    parameters = init(config, np.random.default_rng(0))
    ids = np.random.default_rng(2).integers(0, 13, (2, 6))
    ours = figures.masked_forward(config, parameters, ids, causal_mask(6))
    np.testing.assert_allclose(ours, forward(config, parameters, ids)[0], rtol=1e-12, atol=1e-13)


def test_no_experiment_of_the_chapter_fails(printed: str) -> None:
    assert ": False" not in printed
    assert "causal     : causal\n" in printed
    assert "off by one : 5 of 15 later pairs leak\n" in printed


def test_flops_and_cache_bytes(printed: str) -> None:
    assert "one token, products: 7584 FLOP\n" in printed
    B, T, d, n, m, L = 4, 32, 16, 77, 32, 2
    flops = 2 * B * T * (n * d + L * (4 * d * d + 3 * d * m)) + L * 4 * B * T * T * d
    assert f"formula {flops:,} FLOP, torch counts {flops:,} FLOP\n" in printed
    assert f"cache {2 * L * T * d * 8:,} B" in printed


def test_the_rounded_product_of_the_percentile_s_solution() -> None:
    assert 55 / 100 * 100 == 55.00000000000001
    assert (math.ceil(55 / 100 * 100), -(-55 * 100 // 100)) == (56, 55)


def test_the_recorded_profile_names_its_conditions() -> None:
    record = figures.recorded()
    assert {"input", "dtype", "device", "threads", "torch", "gradients", "runs", "CPU", "model", "date"} <= set(
        record["conditions"]
    )
    for p50, p95, p99 in record["percentiles_us"].values():
        assert 0 < p50 <= p95 <= p99
