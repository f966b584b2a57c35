"""The numbers that chapter 1 states, and that its notebook shows them."""

from pathlib import Path

import nbformat
import numpy as np
import pytest

from labsupport.cost import DEVICES, linear_cost, roofline, tensor_bytes
from labsupport.figures import three_questions

B, S, H, V = 4, 2048, 4096, 128_256
NOTEBOOK = Path(__file__).resolve().parents[2] / "chapters" / "01-three-questions.ipynb"


def shown() -> str:
    """All text outputs of the chapter."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "\n".join(output.get("text", "") for output in outputs)


def test_cost_of_the_lm_head():
    cost = linear_cost(B * S, H, V, "bfloat16")
    assert cost.flops == 2 * 4 * 2048 * 4096 * 128_256 == 8_607_114_461_184
    assert cost.bytes == 2 * (B * S * H + H * V + B * S * V) == 3_219_128_320
    assert cost.intensity == pytest.approx(2673.7, abs=0.05)


def test_flops_are_those_of_a_counted_loop():
    X, W = np.ones((2, 3, 4)), np.ones((4, 5))
    counted = sum(2 for _ in np.ndindex(2, 3, 5) for _ in range(4))
    assert counted == linear_cost(X.shape[0] * X.shape[1], *W.shape).flops


def test_prefill_is_compute_bound_and_decode_memory_bound():
    prefill, decode = (linear_cost(tokens, H, V, "bfloat16") for tokens in (B * S, B))
    assert roofline(prefill, DEVICES["H100"], "bfloat16").bound == "compute"
    assert roofline(decode, DEVICES["H100"], "bfloat16").bound == "memory"
    assert decode.intensity == pytest.approx(4, rel=0.01)


def test_the_last_index_leaves_32_bits():
    assert 4 * 8192 * V == 4_202_692_608 > 2**31
    assert int(np.prod(np.array([4, 8192, V]), dtype=np.int32)) == -92_274_688


@pytest.mark.parametrize(
    "text",
    ["8,607,114,461,184", "1.957 GiB", "-92,274,688", "counted 24 · formula 24", "memory bound", "[nan  0.  0.]"],
)
def test_the_chapter_shows(text):
    assert text in shown()


def test_figures_state_what_the_cost_model_says():
    figure = three_questions.traffic_by_tokens()
    assert "4.0 FLOP for each byte" in figure.alt
    parts = {"X": (16384, H), "W": (H, V), "logits": (16384, V)}
    total = linear_cost(16384, H, V, "bfloat16").bytes
    shares = [f"{name} {100 * tensor_bytes(shape, 'bfloat16') / total:.0f} percent" for name, shape in parts.items()]
    assert f"With 16384 tokens in bfloat16 the bytes moved are {', '.join(shares)};" in figure.html
    assert "<svg" in three_questions.lm_head().html
    assert "8,607,114,461,184" in three_questions.worksheet().html
