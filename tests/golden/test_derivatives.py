"""The numbers that chapter 6 promises: computed here by another way, and read from the chapter's own output."""

import math
import re
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from labsupport.authoring.notebook import code_cells, load
from labsupport.exercises import get
from labsupport.exercises.derivatives.running_example import PARAMETERS, loss_and_slope
from labsupport.figures.derivatives import path, verdict
from labsupport.grading import Number, Several

CHAPTER = Path(__file__).resolve().parents[2] / "chapters" / "06-derivatives.ipynb"


@pytest.fixture(scope="module")
def printed() -> str:
    """Everything the cells of the chapter print."""
    notebook = load(CHAPTER)
    assert notebook is not None
    outputs = [output for cell in code_cells(notebook) for output in cell["outputs"]]
    return "".join(output["text"] for output in outputs if output["output_type"] == "stream")


def test_the_small_decoder_has_the_promised_number_of_parameters(printed: str) -> None:
    layer = 2 * 128 * 128 + 2 * 128 * 64 + 3 * 128 * 480 + 2 * 128 * 64
    assert 2 * 4096 * 128 + 6 * 4096 * 64 + 6 * layer + 128 + 64 == PARAMETERS == 4_120_768
    assert "parameters           4,120,768\n" in printed


@pytest.mark.parametrize(("step", "rise", "ratio"), [("0.01", "0.0601", "6.01"), ("0.001", "0.006001", "6.001")])
def test_rise_over_step_in_exact_arithmetic(step: str, rise: str, ratio: str, printed: str) -> None:
    h = Fraction(step)
    exact = (3 + h) ** 2 - 9
    assert exact == Fraction(rise)
    assert exact / h == Fraction(ratio)
    assert f"step {step:<6} rise {rise:<9} rise / step {ratio}\n" in printed


def test_the_chain_of_two(printed: str) -> None:
    a = Fraction(2)
    assert 3 * (2 * a) == 12
    assert "g = 4.0  f = 12.0  df/da = 12.0" in printed


def test_one_step_of_descent_in_exact_arithmetic(printed: str) -> None:
    w, x, t, eta = Fraction(3), 2, 10, Fraction(1, 10)
    loss, slope = (w * x - t) ** 2, 2 * (w * x - t) * x
    new = w - eta * slope
    assert (loss, slope, new, (new * x - t) ** 2) == (16, -16, Fraction("4.6"), Fraction("0.64"))
    assert loss / (new * x - t) ** 2 == 25
    assert loss_and_slope(3, 2, 10) == (16.0, -16.0)
    assert "guess 6, loss 16.00, slope -16.00\nnew w 4.60, guess 9.20, loss 0.64\n" in printed
    assert "the loss is 25 times smaller" in printed


def test_the_threshold_is_one_over_x_squared() -> None:
    for eta, expected in [
        (0.01, "slow"),
        (0.1, "good"),
        (0.125, "arrives in one step"),
        (0.2, "oscillates and arrives"),
    ]:
        assert verdict(eta) == expected
        assert abs(path(eta, 400)[-1] - 5) < 1e-9
    assert verdict(0.25) == "jumps to and fro for ever"
    assert path(0.25, 400)[-1] == 3
    assert verdict(0.26) == "diverges"
    assert abs(path(0.26, 400)[-1] - 5) > 1e9


def test_the_six_questions(printed: str) -> None:
    step = get("one-descent-step")
    assert isinstance(step, Several)
    assert [part.expected for part in step.parts.values()] == [36, -36, pytest.approx(3.8)]
    for name, expected in (("chain-at-three", 30), ("surprise-at-half", math.log(2)), ("loss-after-one-step", 0.64)):
        record = get(name)
        assert isinstance(record, Number)
        assert math.isclose(record.expected, expected, rel_tol=1e-9)
    assert round(math.log(2), 3) == 0.693
    for line in ("1. 10.0 rise 0.1001", "2. [2.0, 6.0]", "3. 30.0", "4. loss 36 slope -36.0 new w 3.8", "5. 0.693"):
        assert line in printed


def test_losses_and_perplexity(printed: str) -> None:
    for p, loss in (("0.999", "0.0010"), ("0.66524", "0.4076"), ("0.5", "0.6931"), ("0.001", "6.9078")):
        assert f"{-math.log(float(p)):.4f}" == loss
        assert f"p = {p:<8} loss = {loss}\n" in printed
    assert f"{math.exp(2.11):.2f}" == "8.25"
    assert "perplexity 8.25\n" in printed


@pytest.mark.parametrize("layers", [1, 2, 6, 24])
def test_backward_flops_are_two_minus_one_over_the_layers(layers: int, printed: str) -> None:
    net = torch.nn.Sequential(*[torch.nn.Linear(8, 8, bias=False) for _ in range(layers)])
    with FlopCounterMode(display=False) as forward:
        loss = net(torch.ones(4, 8)).sum()
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    ratio = Fraction(backward.get_total_flops(), forward.get_total_flops())
    assert ratio == 2 - Fraction(1, layers)
    assert f"ratio {float(ratio):.3f}\n" in printed


def test_the_judgements_of_the_clock_and_of_memory(printed: str) -> None:
    assert "backward takes longer than forward : True" in printed
    assert "and less than four times as long   : True" in printed
    for layers in (1, 2, 6, 24):
        assert f"{layers:2} layers: saved for backward {layers:2} x 64 KiB, without gradients 0\n" in printed
    assert "training without activations: 16 bytes a parameter" in printed


def test_the_steepest_way_is_not_the_shortest(printed: str) -> None:
    home, steepest, repaired = (
        float(re.findall(rf"^{re.escape(name)} *: +(-?[\d.]+) degrees$", printed, re.MULTILINE)[0])
        for name in ("way to the lowest point", "steepest way down", "each slope at its own rate")
    )
    assert home == repaired == round(math.degrees(math.atan2(-1, -5)), 1)
    assert round(steepest - home) == 67
