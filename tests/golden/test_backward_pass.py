"""The numbers that chapter 12 promises: computed here by another way, and read from the chapter's own output."""

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from labsupport.authoring.notebook import code_cells, load
from labsupport.exercises import get
from labsupport.figures import backward_pass as figures
from labsupport.grading import Number, Several

CHAPTER = Path(__file__).resolve().parents[2] / "chapters" / "12-backward-pass.ipynb"
LOGITS = [0.2, 0.7, 0.1, 0.2, 0.6, 0.1, 0.7]
ROWS = [[0.2, 0.1, -0.3, 0.0, 0.4, 0.5, -0.1], [0.0, 0.3, 0.2, 0.1, 0.1, -0.2, 0.4]]
ANSWER = 4


def probabilities(logits: list[float]) -> list[float]:
    """Softmax by the formula, one number at a time: it shares nothing with the operators."""
    total = math.fsum(math.exp(z) for z in logits)
    return [math.exp(z) / total for z in logits]


@pytest.fixture(scope="module")
def printed() -> str:
    """Everything the cells of the chapter print."""
    notebook = load(CHAPTER)
    assert notebook is not None
    outputs = [output for cell in code_cells(notebook) for output in cell["outputs"]]
    return "".join(output["text"] for output in outputs if output["output_type"] == "stream")


def rounded(values: list[float]) -> str:
    return str([round(v, 3) + 0.0 for v in values])


def test_the_smallest_example_in_fractions(printed: str) -> None:
    w, x, y = Fraction(2), 3, 4
    gradient = 2 * (w * x - y) * x
    new = w - Fraction(1, 100) * gradient
    assert ((w * x - y) ** 2, gradient, float(new), float((new * x - y) ** 2)) == (4, 12, 1.88, 2.6896)
    assert "loss 4, dL/dw 12\nnew w 1.88, new loss 2.6896\n" in printed


def test_probabilities_and_the_gradient_of_the_logits(printed: str) -> None:
    p = probabilities(LOGITS)
    dz = [v - (i == ANSWER) for i, v in enumerate(p)]
    assert rounded(p) == "[0.116, 0.192, 0.105, 0.116, 0.173, 0.105, 0.192]"
    assert f"{dz[ANSWER]:.3f}" == "-0.827"
    assert abs(math.fsum(dz)) < 1e-15
    assert f"p                  {rounded(p)}\n" in printed
    assert f"dz = p - onehot    {rounded(dz)}\n" in printed
    np.testing.assert_allclose(figures.dlogits(), dz, atol=1e-15)


def test_thousandths_that_sum_to_one_give_fish_0_174(printed: str) -> None:
    p = probabilities(LOGITS)
    units = [math.floor(1000 * v) for v in p]
    order = sorted(range(7), key=lambda i: units[i] - 1000 * p[i])
    for i in order[: 1000 - sum(units)]:
        units[i] += 1
    assert units == [116, 192, 105, 116, 174, 105, 192]
    assert "so that it sums    [0.116, 0.192, 0.105, 0.116, 0.174, 0.105, 0.192]\n" in printed


def test_the_gradients_of_the_head_and_of_h(printed: str) -> None:
    dz = [v - (i == ANSWER) for i, v in enumerate(probabilities(LOGITS))]
    row_1 = [2 * v for v in dz]
    np.testing.assert_allclose(row_1, [0.233, 0.3835, 0.2105, 0.233, -1.653, 0.2105, 0.3835], atol=5e-4)
    dh = [math.fsum(u * v for u, v in zip(row, dz, strict=True)) for row in ROWS]
    assert rounded(dh) == "[-0.286, 0.063]"
    assert f"dU row 0           {rounded(dz)}\n" in printed
    assert f"dU row 1           {rounded(row_1)}\n" in printed
    assert "dh                 [-0.286, 0.063]\n" in printed


def test_the_nudge_of_one_entry(printed: str) -> None:
    before = -math.log(probabilities(LOGITS)[ANSWER])
    nudged = [z + 0.001 * (i == ANSWER) for i, z in enumerate(LOGITS)]
    change = -math.log(probabilities(nudged)[ANSWER]) - before
    assert f"{-change:.5f}" == "0.00083"
    assert f"{change / 0.001:.3f}" == "-0.826"
    assert "the loss falls by 0.00083\nratio -0.826, gradient -0.8265\n" in printed


def test_the_mean_over_tokens(printed: str) -> None:
    assert (3 * Fraction(2) + 1 * Fraction(4)) / 4 == Fraction(5, 2)
    assert "sum over tokens / tokens: 2.5\nmean of the two means   : 3.0\n" in printed
    record = get("mean-of-two-micro-batches")
    assert isinstance(record, Number)
    assert record.expected == 2.5


def test_every_tensor_agrees_with_autograd(printed: str) -> None:
    table = printed[printed.index("tensor          shape") :].splitlines()[1:10]
    assert len(table) == 9
    assert all(line.endswith("  True") for line in table)
    assert "23 tensors, all within 1e-11 of their size: True\n" in printed
    assert "output  agrees: False\n" in printed
    assert "sum of dP * P is that of dO * O: True\n" in printed


def test_flops_and_saved_bytes_by_formula(printed: str) -> None:
    B, T, d, n, m, L = 4, 32, 16, 77, 32, 4
    layer = 2 * B * T * (4 * d * d + 3 * d * m) + 4 * B * T * T * d
    forward = L * layer + 2 * B * T * n * d
    again = L * (layer - 2 * B * T * d * m)
    assert f"   FLOPs forward {forward:,}, backward {2 * forward:,}\n" in printed
    assert f"   FLOPs forward {forward:,}, backward {2 * forward + again:,}\n" in printed
    assert "layer runs 4\n" in printed
    assert "layer runs 8\n" in printed
    assert f"one layer's input: {B * T * d * 4:,} B\n" in printed


def test_a_dead_down_matrix_stops_gate_and_up_only() -> None:
    norms = figures.layer_norms(figures.CASES[1])
    assert norms["gate, up"][2] == 0
    assert norms["down"][2] > 0.1
    assert all(norms["attention"][layer] > 0.1 for layer in range(figures.DEPTH))


def test_the_watched_run_flags_the_odd_batch_and_still_learns(printed: str) -> None:
    losses, norms, skipped = figures.watched_run()
    assert skipped == [figures.ODD_STEP] == [int(np.argmax(norms))]
    assert "steps skipped: [25]\n" in printed
    assert losses[-1] < losses[0] / 3


def test_branches_too_large_bring_the_norms_down_to_a_third() -> None:
    norms = figures.layer_norms(figures.CASES[2])
    total = [math.hypot(*(norms[part][layer] for part in norms)) for layer in range(figures.DEPTH)]
    assert total[-1] / total[0] == pytest.approx(1 / 3, abs=0.02)


def test_the_printed_row_of_dU_is_rounded_before_or_up() -> None:
    p = probabilities(LOGITS)
    assert [round(2 * p[1], 5), round(2 * p[2], 5)] == [0.38347, 0.21045]
    assert round(2 * round(p[1], 3), 3) == 0.384
    assert (round(2 * round(p[2], 3), 3), math.ceil(2000 * p[2]) / 1000) == (0.210, 0.211)


def test_a_layer_that_saves_everything_holds_twenty_times_its_input() -> None:
    from labsupport import torch_twin
    from labsupport.ops.transformer import Config, init
    from labsupport.profiling import training_step

    ids = np.random.default_rng(1).integers(0, 77, (4, 33))
    saved = []
    for layers in (1, 2):
        config = Config(vocab=77, width=16, layers=layers, hidden=32, heads=2)
        model = torch_twin.module(config, init(config, np.random.default_rng(0), np.float32))
        saved.append(training_step(model, ids[:, :-1], ids[:, 1:]).saved_bytes)
    assert (saved[1] - saved[0]) / (4 * 32 * 16 * 4) == pytest.approx(20, abs=0.5)


def test_the_exercise_by_hand() -> None:
    record = get("quadratic-step")
    assert isinstance(record, Several)
    expected = {name: part.expected for name, part in record.parts.items() if isinstance(part, Number)}
    assert expected == pytest.approx({"loss": 36, "gradient": -48, "new_w": 1.96, "new_loss": 4.6656})
