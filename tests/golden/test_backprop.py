"""The numbers that chapter 7 promises: computed here by another way, and read from the chapter's own output."""

import inspect
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from labsupport.authoring.notebook import code_cells, load
from labsupport.exercises import get
from labsupport.figures.backprop import ACTIVATIONS, chain_flops, difference_errors
from labsupport.grading import Number, Several
from labsupport.ops.autodiff import Value, central_difference, forward_difference, gelu, gelu_backward

CHAPTER = Path(__file__).resolve().parents[2] / "chapters" / "07-backprop.ipynb"


@pytest.fixture(scope="module")
def printed() -> str:
    """Everything the cells of the chapter print."""
    notebook = load(CHAPTER)
    assert notebook is not None
    outputs = [output for cell in code_cells(notebook) for output in cell["outputs"]]
    return "".join(output["text"] for output in outputs if output["output_type"] == "stream")


def test_the_fork_in_exact_arithmetic(printed: str) -> None:
    x, y = Fraction(2), Fraction(3)
    v = x * y + x
    assert (v**2, 2 * v, 2 * v * x, 2 * v * (y + 1)) == (64, 16, 32, 64)
    assert "L 64.0  v 16.0  u 16.0  y 32.0  x 64.0\n" in printed
    assert "assigned: 48.0 for x" in printed
    record = get("gradient-of-the-fork")
    assert isinstance(record, Number)
    assert record.expected == 64


def test_the_engine_fits_the_promise(printed: str) -> None:
    assert len(inspect.getsource(Value).splitlines()) < 150
    assert "fewer than 150 lines: True" in printed


@pytest.mark.parametrize("name", list(ACTIVATIONS))
def test_slopes_of_the_activations(name: str) -> None:
    f, slope = ACTIVATIONS[name]
    theirs = {
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "ReLU": torch.relu,
        "GELU": lambda t: torch.nn.functional.gelu(t, approximate="tanh"),
    }[name]
    x = torch.linspace(-4, 4, 82, dtype=torch.float64, requires_grad=True)
    y = theirs(x)
    y.sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(f(x.detach().numpy()), y.detach().numpy(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(slope(x.detach().numpy()), x.grad.numpy(), rtol=1e-11, atol=1e-13)


def test_what_the_table_says_of_gelu() -> None:
    x = np.linspace(-8, 8, 16_001)
    slope = gelu_backward(x, np.ones_like(x))
    assert (round(slope.min(), 2), round(slope.max(), 2)) == (-0.13, 1.13)
    exact = torch.nn.functional.gelu(torch.from_numpy(x)).numpy()
    assert 1e-4 < np.abs(gelu(x) - exact).max() < 1e-3


def test_sweeps_and_flops_of_both_modes(printed: str) -> None:
    record = get("sweeps-needed")
    assert isinstance(record, Several)
    assert [part.expected for part in record.parts.values()] == [3, 2]
    assert "forward: 3 sweeps, reverse: 2 sweeps\nsame Jacobian: True" in printed
    for outputs in (1, 10, 1000, 10_000):
        sizes = (1000, 1000, 1000, outputs)
        forward = 2 * 1000**3 + 2 * 1000 * 1000 * outputs
        reverse = 2 * 2 * outputs * 1000 * 1000
        assert (chain_flops(sizes, reverse=False), chain_flops(sizes, reverse=True)) == (forward, reverse)
        line = f"{outputs:6} outputs: forward {forward / 1e9:7.3f} GFLOP, reverse {reverse / 1e9:7.3f} GFLOP\n"
        assert line in printed
    assert "one vector-Jacobian product: 8.4 MFLOP, 64 KiB of result" in printed
    assert 2 * 64 * 256 * 256 == 8_388_608
    assert 16_384 * 16_384 * 4 == 2**30


def test_every_operator_agrees_with_torch_to_twelve_digits(printed: str) -> None:
    assert "relative error below 1e-12: False" not in printed
    assert printed.count("relative error below 1e-12: True") == 4 + 2 + 2 + 4


def test_the_largest_curvature_by_products_and_by_eigenvalues(printed: str) -> None:
    line = next(line for line in printed.splitlines() if line.startswith("largest curvature"))
    by_products, by_eigenvalues = (float(word.strip(",")) for word in line.split() if word[0].isdigit())
    assert by_products == by_eigenvalues


def test_hand_worked_examples(printed: str) -> None:
    assert "dX [[10.0, 31.0]]  dW [[10.0, 1.0], [20.0, 2.0]]  db [10.0, 1.0]" in printed
    assert "gradient [6.0, 1.0]\nHessian  [[6.0, 2.0], [2.0, 0.0]]" in printed
    p, dp = [Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)], [4, 0, 0]
    dot = sum(a * b for a, b in zip(p, dp, strict=True))
    assert [a * (b - dot) for a, b in zip(p, dp, strict=True)] == [1, Fraction(-1, 2), Fraction(-1, 2)]
    assert "without it       [ 1.  -0.5 -0.5]" in printed
    assert "p - y     [ 0.665  0.245 -0.91 ] sum 0.0" in printed
    assert "forward 34.4 GFLOP, two GEMMs 68.7 GFLOP" in printed


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("central", [False, True])
def test_the_best_step_is_where_it_is_predicted(dtype: type, central: bool) -> None:
    curve = difference_errors(dtype, central)
    eps = float(np.finfo(dtype).eps)
    assert curve.predicted == eps ** (1 / 3 if central else 1 / 2)
    assert 0.25 < curve.found / curve.predicted < 4
    assert curve.error.min() < 30 * eps ** (2 / 3 if central else 1 / 2)
    smallest = int(curve.error.argmin())
    assert curve.error[0] > 100 * curve.error[smallest]
    assert curve.error[-1] > 100 * curve.error[smallest]
    right = (curve.step > 3 * curve.found) & (curve.step < 0.1)
    order = np.polyfit(np.log(curve.step[right]), np.log(curve.error[right]), 1)[0]
    assert abs(order - (2 if central else 1)) < 0.15


def test_the_curve_is_the_error_of_the_library_s_own_differences() -> None:
    def f(v: np.ndarray) -> np.ndarray:
        return (1 / (1 + v * v)).sum()

    x = np.array([0.5, 1.25])
    exact = -2 * x / (1 + x * x) ** 2
    for difference, central in ((forward_difference, False), (central_difference, True)):
        step = difference_errors(np.float64, central).found
        assert np.abs(difference(f, x, step) - exact).max() < 10 * difference_errors(np.float64, central).error.min()


def test_bytes_of_a_hessian() -> None:
    record = get("hessian-bytes")
    assert isinstance(record, Number)
    assert record.expected == 4 * 4_120_768**2
    assert math.isclose(record.expected, 67.9e12, rel_tol=1e-3)


def test_exact_and_tanh_gelu_lie_as_far_apart_as_the_chapter_prints(printed: str) -> None:
    x = np.linspace(-6, 6, 12_001)
    exact = np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x])
    assert f"exact and tanh GELU differ by up to {np.abs(gelu(x) - exact).max():.1e}\n" in printed
