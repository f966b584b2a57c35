"""The numbers of chapter 3 that the book promises: computed here anew, and found in what the chapter prints."""

import json
from pathlib import Path

import numpy as np
import pytest

from labsupport.cost import DEVICES, gemm_cost, occupancy, roofline
from labsupport.ops.gemm import count_traffic, padding_waste, traffic

CHAPTER = Path(__file__).parents[2] / "chapters" / "03-gemm-tiling.ipynb"


@pytest.fixture(scope="module")
def printed():
    cells = json.loads(CHAPTER.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells if cell["cell_type"] == "code" for output in cell["outputs"]]
    return "\n".join("".join(output["text"]) for output in outputs if output["output_type"] == "stream")


def test_the_square_product_of_4096():
    cost = gemm_cost(4096, 4096, 4096, "float16")
    assert cost.flops == 137_438_953_472
    assert cost.bytes == 100_663_296 == 96 * 2**20
    assert round(cost.intensity, 1) == 1365.3
    assert round(cost.flops / 1e9, 1) == 137.4


@pytest.mark.parametrize("n", [3, 48, 999, 4096])
def test_the_intensity_of_a_square_float16_product_is_a_third_of_its_size(n):
    assert gemm_cost(n, n, n, "float16").intensity == pytest.approx(n / 3)


def test_one_row_has_an_intensity_of_about_one_and_is_memory_bound_everywhere():
    row = gemm_cost(1, 4096, 4096, "float16")
    assert row.intensity == pytest.approx(1, abs=1e-3)
    assert {roofline(row, device, "float16").bound for device in DEVICES.values()} == {"memory"}


def test_the_ridge_of_the_worked_example():
    assert round(DEVICES["H100"].ridge("float16")) == 295


def test_the_block_product_worked_by_hand():
    A = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])
    B = np.array([[1, 0], [2, 1], [0, 1], [1, 1]])
    assert (A[:, :2] @ B[:2]).tolist() == [[5, 2], [17, 6]]
    assert (A[:, 2:] @ B[2:]).tolist() == [[4, 7], [8, 15]]
    assert (A @ B).tolist() == [[9, 9], [25, 21]]


def test_the_loads_worked_by_hand():
    A = np.ones((4, 4))
    assert count_traffic(A, A, 2)[1].loads == 64
    assert count_traffic(A, A)[1].loads == traffic(4, 4, 4, 1).loads == 128


def test_the_tile_and_the_waste_worked_by_hand():
    assert (occupancy(256, 112, 8192).blocks, occupancy(256, 112, 8192).occupancy) == (2, 0.25)
    assert padding_waste(5, 5, 4, 4) == pytest.approx(39 / 64)


@pytest.mark.parametrize(
    "text",
    [
        "137,438,953,472",
        "100,663,296 B (96 MiB)",
        "1365.3 FLOP/B, and n/3 = 1365.3",
        "[[9, 9], [25, 21]]",
        "equal to A @ B in every entry: True",
        "ridge 295.3 FLOP/B",
        "counted    4250",
        "Nothing is measured on the stored page",
    ],
)
def test_the_chapter_prints_it(printed, text):
    assert text in printed


def test_no_row_of_the_traffic_table_disagrees_with_its_formula(printed):
    rows = [line for line in printed.splitlines() if line.strip().startswith(("naive ", "tile "))]
    table = [line for line in rows if line.endswith(("True", "False"))]
    assert len(table) == 5
    assert all(line.endswith("True") for line in table)
