"""The numbers that chapter 9 promises: computed here by another way, and read from the chapter's own output."""

import math
import statistics
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

from labsupport.authoring.notebook import code_cells, load
from labsupport.exercises import get
from labsupport.figures import floating_point as figures
from labsupport.grading import Number
from labsupport.ops.floats import BF16, E4M3, E5M2, FORMATS, FP16, FP32, TF32
from labsupport.ops.reductions import Welford

CHAPTER = Path(__file__).resolve().parents[2] / "chapters" / "09-floating-point.ipynb"


@pytest.fixture(scope="module")
def printed() -> str:
    """Everything the cells of the chapter print."""
    notebook = load(CHAPTER)
    assert notebook is not None
    outputs = [output for cell in code_cells(notebook) for output in cell["outputs"]]
    return "".join(output["text"] for output in outputs if output["output_type"] == "stream")


@pytest.mark.parametrize(
    ("fmt", "exponent", "mantissa", "largest"),
    [
        (FP32, 8, 23, (2 - Fraction(1, 2**23)) * 2**127),
        (TF32, 8, 10, (2 - Fraction(1, 2**10)) * 2**127),
        (FP16, 5, 10, Fraction(65504)),
        (BF16, 8, 7, (2 - Fraction(1, 2**7)) * 2**127),
        (E4M3, 4, 3, Fraction(448)),
        (E5M2, 5, 2, Fraction(57344)),
    ],
)
def test_the_table_of_formats(fmt, exponent, mantissa, largest, printed) -> None:
    assert (fmt.exponent_bits, fmt.mantissa_bits, fmt.bits) == (exponent, mantissa, 1 + exponent + mantissa)
    assert Fraction(fmt.max) == largest
    assert fmt.min_normal == 2.0 ** (2 - 2 ** (exponent - 1))
    assert fmt.min_subnormal == fmt.min_normal * 2.0**-mantissa
    row = f"{fmt.name:7}{fmt.bits:5}{exponent:4}{mantissa:4}{float(largest):>11.5g}{fmt.min_normal:>12.3g}"
    assert f"{row}{fmt.min_subnormal:>11.3g}{2.0**-mantissa:>10.3g}\n" in printed


def test_the_golden_limits(printed: str) -> None:
    assert (FP16.max, E4M3.max, E5M2.max) == (65504.0, 448.0, 57344.0)
    assert f"{BF16.max:.3g}" == "3.39e+38"
    assert TF32.bits == 19
    assert "by the formula: 65504.0\n" in printed
    assert printed.count("all equal: True") == 4
    assert "FP16:  65536 patterns" in printed
    assert "E4M3:    256 patterns" in printed


def test_additions_that_do_nothing(printed: str) -> None:
    assert np.float32(16777216) + np.float32(1) == 16777216
    assert ml_dtypes.bfloat16(256) + ml_dtypes.bfloat16(1) == 256
    assert np.float16(2048) + np.float16(1) == 2048
    for name, x in (("FP32", 16777216), ("BF16", 256), ("FP16", 2048)):
        assert f"{name}: {x} + 1 = {x}, + 2 = {x + 2}, + 3 = {x + 4}; spacing 2\n" in printed
    assert "0.1 + 0.2 == 0.3: False" in printed
    assert np.isnan(np.maximum(np.nan, 1)) and np.fmax(np.nan, 1) == 1
    assert "maximum(nan, 1): nan   fmax(nan, 1): 1.0\n" in printed


def test_master_weights_keep_what_bf16_loses(printed: str) -> None:
    weight, master = torch.tensor(1.0, dtype=torch.bfloat16), torch.tensor(1.0)
    for _ in range(1000):
        weight += 0.001
        master += 0.001
    assert float(weight) == 1.0
    assert float(master.bfloat16()) == 2.0
    assert "BF16 weight alone         1.0\n" in printed
    assert "its BF16 copy             2.0\n" in printed


def test_overflow_of_e4m3_differs_between_libraries(printed: str) -> None:
    assert "E4M3 of 500, ml_dtypes   nan\n" in printed
    assert "E4M3 of 500, torch       448.0\n" in printed


def test_sums_by_order(printed: str) -> None:
    assert "serial  FP16 2048.0, BF16 256.0\ntree    FP16 4096.0, BF16 4096.0\n" in printed
    x = np.concatenate([[1.0], np.full(1000, 1e-3)]).astype(np.float16)
    total = np.float16(0)
    for value in x:
        total = np.float16(total + value)
    error = abs(float(total) - math.fsum(x.astype(float)))
    assert f"serial      {error:10.4f}" in printed
    assert "Kahan 0.0  Neumaier 2.0" in printed


def test_variances(printed: str) -> None:
    data = 1e8 + np.random.default_rng(2).normal(size=(1000, 100))
    exact = [float(statistics.pvariance(map(Fraction, row))) for row in data[:20]]
    assert f"two-pass: between {data.var(-1).min():.2f} and {data.var(-1).max():.2f}" in printed
    assert np.allclose(exact, data[:20].var(-1))
    assert "naive:    negative in 380 of 1000 data sets" in printed
    assert statistics.pvariance([4, 7, 13]) == 14
    assert printed.count("variance 14.0\n") == 2
    merged = Welford(2, 1.0, 2.0).merge(Welford(2, 5.0, 2.0))
    assert (merged.n, merged.mean, merged.M2) == (4, 3, 20)  # 0, 2, 4, 6: mean 3, squares 9 + 1 + 1 + 9


def test_hilbert_condition_and_sensitivity() -> None:
    for n in (2, 5, 8, 12):
        product = [
            [sum(a * b for a, b in zip(row, col, strict=True)) for col in zip(*figures.hilbert_inverse(n), strict=True)]
            for row in figures.hilbert(n)
        ]
        assert product == [[int(i == j) for j in range(n)] for i in range(n)]
    H = np.array([[float(v) for v in row] for row in figures.hilbert(6)])
    assert math.isclose(figures.hilbert_condition(6), np.linalg.cond(H, np.inf), rel_tol=1e-6)
    for dtype in ("float32", "float64"):
        u = float(np.finfo(dtype).eps) / 2
        for n in range(2, 13):
            expected = figures.hilbert_condition(n) * u
            if expected < 0.1:
                assert figures.hilbert_error(n, dtype) <= 2 * expected


def test_accumulators(printed: str) -> None:
    assert "K = 8192: FP16 accumulator 2048, FP32 8192\n" in printed
    for data in ("positive", "of both signs"):
        wide, half = (figures.product_error(data, name, 4096) for name in ("FP32", "FP16"))
        assert wide <= 4096 * 2.0**-24
        assert half > 1000 * wide


def test_loss_scaling(printed: str) -> None:
    assert f"{'float16':16}{0.4:11.1f}{1.0:11.1f}   unchanged\n" in printed
    for name in ("float32", "float16, scaled", "bfloat16"):
        assert f"{name:16}{0.0:11.1f}{0.0:11.1f}   below 3 %\n" in printed
    assert figures.scaled_share(0)[0] > 0.7
    assert max(figures.scaled_share(28)) < 0.01
    assert figures.scaled_share(52)[1] > 0.2


def test_every_race_stays_within_its_bound() -> None:
    for name in ("FP16", "BF16", "FP32"):
        fmt = next(f for f in FORMATS if f.name == name)
        for n in (16, 256):
            for algorithm, errors in figures.race(name, n).items():
                allowed = figures.error_bound(algorithm, n, fmt.eps / 2)
                assert (errors <= allowed).all()


@pytest.mark.parametrize(
    ("exercise", "expected"),
    [
        ("fp16-largest", 65504),
        ("fp16-2048-plus-one", 2048),
        ("lost-updates", 1),
        ("fp16-sum-of-ones", 2048),
        ("merged-m2", 20),
        ("accumulator-stalls", 2048),
        ("lost-update", 2**-7),
        ("condition-digits", 1e4 * 2**-24),
        ("loss-scale-limit", 16384),
    ],
)
def test_expected_answers(exercise: str, expected: float) -> None:
    record = get(exercise)
    assert isinstance(record, Number)
    assert math.isclose(record.expected, expected, rel_tol=1e-12)


def test_torch_saturates_infinity_and_a_wide_row_overflows_its_spread(printed: str) -> None:
    assert float(torch.tensor(math.inf).to(torch.float8_e4m3fn)) == 448.0
    assert "E4M3 of inf, torch       448.0\n" in printed
    row = [100 * float(v) for v in np.random.default_rng(0).normal(size=4096)]
    mean = math.fsum(row) / len(row)
    assert math.fsum((v - mean) ** 2 for v in row) > 65520
    assert "M2 of a row of spread 100, in FP16: inf\n" in printed
