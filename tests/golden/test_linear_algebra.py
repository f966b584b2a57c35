"""The numbers that chapter 2 states, computed here by another way where there is one, and shown by its notebook."""

import re
from pathlib import Path

import nbformat
import numpy as np
import pytest

from labsupport.cost import lora_cost
from labsupport.figures import linear_algebra as figures
from labsupport.ops import linalg, tensors

NOTEBOOK = Path(__file__).resolve().parents[2] / "chapters" / "02-linear-algebra.ipynb"


def shown() -> str:
    """All text outputs of the chapter."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "\n".join(output.get("text", "") for output in outputs)


def test_strides_of_the_matrix_and_of_its_transpose():
    A = np.array([[1, 2, 3], [4, 5, 6]])
    assert tensors.strides((2, 3)) == (3, 1) == tuple(step // A.itemsize for step in A.strides)
    assert tuple(step // A.itemsize for step in A.T.strides) == (1, 3)
    assert [A.ravel()[tensors.offset((i, j), (3, 1))] for i in range(2) for j in range(3)] == [1, 2, 3, 4, 5, 6]
    assert not tensors.is_contiguous((3, 2), (1, 3))


def test_lora_of_4096_and_rank_8():
    cost = lora_cost(4096, 4096, 8)
    B, A = np.empty((4096, 8)), np.empty((8, 4096))
    assert (cost.full_parameters, cost.parameters) == (16_777_216, 65_536)
    assert A.size + B.size == cost.parameters
    assert f"{cost.ratio:.2%}" == "0.39%"


def test_column_scan_loads_a_line_for_each_element():
    along = tensors.line_loads((512, 512), (512, 1), cache_lines=256)
    across = tensors.line_loads((512, 512), (1, 512), cache_lines=256)
    assert (along, across) == (512 * 512 * 4 // 64, 512 * 512)


def test_chain_orders_differ_by_a_factor_of_thousands():
    shapes = [(1, 4096), (4096, 4096), (4096, 4096), (4096, 32)]
    assert linalg.chain_order(shapes).flops == 67_371_008
    assert linalg.chain_flops(shapes, (0, ((1, 2), 3))) == 138_512_957_440


def test_solve_costs_a_quarter_of_inverting():
    ratio = (linalg.solve_flops(1000, 1000) + 2 * 1000**2) / linalg.solve_flops(1000)
    assert ratio == pytest.approx(3.99, abs=0.005)


def test_hilbert_errors_are_as_the_figure_says():
    rows = [figures.hilbert_errors(n) for n in range(2, 12)]
    assert all(row["residual, solve"] < 1e-15 for row in rows)
    assert rows[-1]["residual, invert"] > 1e-4
    assert rows[-1]["error of x, invert"] > rows[-1]["error of x, solve"] > 1e-4


def test_terrain_is_a_real_matrix_of_full_rank_with_falling_singular_values():
    A = figures.terrain()
    assert A.shape == (112, 100)
    assert abs(A.mean()) < 1e-9
    sigma = np.linalg.svd(A, compute_uv=False)
    assert np.linalg.matrix_rank(A) == 100
    for k in (1, 4, 16, 64):
        rest = A - linalg.low_rank(A, k)
        assert np.linalg.norm(rest, 2) == pytest.approx(sigma[k])
        assert np.linalg.norm(rest) == pytest.approx(np.sqrt((sigma[k:] ** 2).sum()))


def test_the_picture_of_the_terrain_holds_its_pixels():
    import base64
    import io

    from PIL import Image

    grey = np.arange(24, dtype=np.uint8).reshape(4, 6) % 16
    data = base64.b64decode(figures.png_address(grey).split(",")[1])
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(data)).convert("L")), grey * 17)


@pytest.mark.parametrize(
    "text",
    [
        "strides (3, 1) · offset of (1, 2): 5",
        "shape (3, 2) strides (1, 3)",
        "16,777,216 → 65,536 (0.39%)",
        "shape (1000, 1000)",
        "67,371,008 FLOPs",
        "step 0 is the base model, bit for bit: True",
        "adapter apart = merged weight: True",
        "the strided copy takes at least 1.5 times as long: True",
    ],
)
def test_the_chapter_shows(text):
    assert text in shown()


def test_eckart_and_young_stand_side_by_side_in_the_chapter():
    rows = re.findall(r"^ *(\d+) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)$", shown(), re.MULTILINE)
    assert [int(row[0]) for row in rows] == [1, 4, 16, 64]
    assert all(row[1] == row[2] and row[3] == row[4] for row in rows)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows_meet_columns", "Entry (1, 3) of C is row 1 of A times column 3 of B: 3·1 + 1·3 + 2·1 = 8."),
        ("two_thin_factors", "At rank 2048 two factors hold 16,777,216 parameters"),
        ("lora_savings", "192 MiB in full and 33 MiB with LoRA of rank 8"),
        ("eigen_directions", "eigenvector, λ = 3"),
        ("growth_or_decay", "With spectral radius 0.9 the length after 100 steps is 2.7e-05 times the first"),
        ("dot_product", "At an angle of 90 degrees between x and y the dot product is 0.00"),
        ("stacked_layers", "8 affine layers with activation none: the output is a straight line."),
    ],
)
def test_figures_state_computed_numbers(name, text):
    assert text in getattr(figures, name)().html


def test_stacked_affine_layers_are_a_line_and_relu_breaks_it():
    html = figures.stacked_layers().html
    assert "a line with kinks" in html


@pytest.mark.parametrize(
    "name", ["strides", "broadcast_steps", "unit_circles", "solve_against_invert", "terrain_at_rank"]
)
def test_figures_are_the_same_each_time(name):
    assert getattr(figures, name)().html == getattr(figures, name)().html
