"""The numbers that chapter 8 promises: computed here by another way, and read from the chapter's own output."""

import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from labsupport.authoring.notebook import code_cells, load
from labsupport.exercises import get
from labsupport.figures import optimization as figures
from labsupport.grading import Number, Several

CHAPTER = Path(__file__).resolve().parents[2] / "chapters" / "08-optimization.ipynb"


@pytest.fixture(scope="module")
def printed() -> str:
    """Everything the cells of the chapter print."""
    notebook = load(CHAPTER)
    assert notebook is not None
    outputs = [output for cell in code_cells(notebook) for output in cell["outputs"]]
    return "".join(output["text"] for output in outputs if output["output_type"] == "stream")


def test_a_hundred_factors(printed: str) -> None:
    assert f"{Decimal('0.9') ** 100:.5e}" == "2.65614e-5"
    assert f"{Decimal('1.1') ** 100:.1f}" == "13780.6"
    assert " 0.9 ** 100 = 2.65614e-05\n" in printed
    assert " 1.1 ** 100 = 13780.6\n" in printed


def test_variance_of_a_mini_batch_is_that_of_one_sample_over_b(printed: str) -> None:
    X, y = figures.regression()
    each = -y[:, None] * X  # gradients of ½(x·w − y)² at w = 0
    one = sum(np.var(each[:, k]) for k in range(2))
    assert f"variance of g  {one:.2f}\n" in printed
    lines = [line for line in printed.splitlines() if line.startswith("B =") and "B * variance" in line]
    assert len(lines) == 5
    for line in lines:
        assert float(line.split()[-1]) == pytest.approx(one, rel=0.06)


def test_sixteen_bytes_a_parameter(printed: str) -> None:
    assert 2 + 2 + 4 + 4 + 4 == 16
    assert "Adam, mixed precision       2      2      4      8     16\n" in printed
    assert "Adam, float32               4      4      0      8     16\n" in printed
    record = get("bytes-per-parameter")
    assert isinstance(record, Number) and record.expected == 16


def test_zero_shards_what_its_stage_says(printed: str) -> None:
    for ranks in (1, 8, 64):
        share = Fraction(1, ranks)
        each = (16, 4 + 12 * share, 2 + 14 * share, 16 * share)
        sizes = " ".join(f"{float(7 * bytes_):6.1f}" for bytes_ in each)
        assert f"ranks {ranks:2}, GB on each, stages 0-3: {sizes}\n" in printed
    record = get("training-bytes")
    assert isinstance(record, Several)
    expected = {name: part.expected for name, part in record.parts.items() if isinstance(part, Number)}
    assert expected == {"one_rank": 112e9, "zero_1": 38.5e9}


def test_optimizers_agree_with_torch(printed: str) -> None:
    for name in ("SGD", "momentum", "Adam", "AdamW"):
        assert f"{name:8} 100 steps, within 1e-12 of torch.optim: True\n" in printed


def test_layer_norm_by_hand(printed: str) -> None:
    deviations = [Fraction(k) - Fraction(5, 2) for k in (1, 2, 3, 4)]
    variance = sum(d * d for d in deviations) / 4
    assert variance == Fraction(5, 4)
    assert [f"{float(d) / math.sqrt(variance):.3f}" for d in deviations] == ["-1.342", "-0.447", "0.447", "1.342"]
    assert "by hand       [-1.342 -0.447  0.447  1.342]\n" in printed
    assert "by hand [0.849 1.131]\n" in printed
    assert f"{3 / math.sqrt(12.5):.3f} {4 / math.sqrt(12.5):.3f}" == "0.849 1.131"


def test_backward_passes_agree_with_autograd(printed: str) -> None:
    assert printed.count("within 1e-12 of autograd: True\n") == 5


def test_the_ridge_of_a_norm_is_that_of_float32_arithmetic(printed: str) -> None:
    elements = 8 * 2048 * 4096
    for name, passes in (("naive", 12), ("fused", 2)):
        bytes_ = passes * elements * 2
        words = f"{7 * elements / bytes_:.2f} FLOP/B, ridge {66.9e12 / 3.35e12:.0f}: memory bound, "
        assert f"{words}{bytes_ / 3.35e12 * 1e6:.0f} us at least\n" in printed, name


def test_a_norm_that_is_infinite_as_a_divisor(printed: str) -> None:
    assert "3 and inf, over inf: [ 0. nan]\n" in printed


def test_naive_layer_norm_moves_twelve_elements_and_the_fused_two(printed: str) -> None:
    assert 1 + 2 + 2 + 1 + 2 + 2 + 2 == 12
    assert "naive 8 kernels move 12.05, one fused kernel 2.03\n" in printed
    assert "RMSNorm   5 kernels, naive  7.03, fused 2.02 elements per x\n" in printed
    record = get("norm-traffic")
    assert isinstance(record, Number) and record.expected == (7 - 2) * 8 * 2048 * 4096 * 2


def test_clipping_on_ranks_is_clipping_in_one_process(printed: str) -> None:
    assert "clipped shards equal to one process within 1e-12: True\n" in printed
    assert "norm after clipping 1.0\n" in printed
    rng = np.random.default_rng(7)
    norm = math.sqrt(math.fsum(v * v for n in (20, 5, 21, 8, 6) for v in rng.normal(size=n)))
    assert f"norm in one process {norm:.6f}\n" in printed
    assert f"norm on the ranks   [{', '.join([f'{norm:.6f}'] * 4)}]\n" in printed
    assert "ValueError: rank 1 found a gradient that is not finite\n" in printed


def test_a_float16_gradient_is_gone_after_165_factors_of_nine_tenths() -> None:
    n = math.ceil(25 * math.log(2) / -math.log(0.9))
    record = get("layers-until-zero")
    assert isinstance(record, Number) and record.expected == n == 165


def test_a_plain_stack_loses_the_gradient_and_residual_stacks_keep_it() -> None:
    first = {name: figures.residual_profile(name, 100).gradients[0] for name, *_ in figures.STACKS}
    assert first["plain"] < 1e-3
    assert 0.5 < first["residual / √D"] < 2
    assert 1 < first["pre-norm residual"] < 20 < first["residual"]


def test_gain_one_keeps_a_linear_stack_and_root_two_a_relu_stack() -> None:
    assert 0.5 < figures.init_profile("linear", 1.0).signals[-1] < 2
    assert 0.5 < figures.init_profile("relu", 1.414).signals[-1] < 2
    assert (
        figures.init_profile("linear", 0.8).signals[-1] < 1e-4 < 1e3 < figures.init_profile("linear", 1.2).signals[-1]
    )
    assert figures.init_profile("relu", 1.0).signals[-1] == pytest.approx(2**-25, rel=0.7)


def test_a_batch_without_replacement_is_quieter_by_the_formula(printed: str) -> None:
    line = next(line for line in printed.splitlines() if line.startswith("without replacement"))
    measured, formula = (float(part.split()[-1]) for part in line.split(",")[-2:])
    assert formula == round((1024 - 256) / (1024 - 1), 2)
    assert measured == pytest.approx(formula, rel=0.03)


def test_momentum_cancels_gradients_that_flip_their_sign(printed: str) -> None:
    kept = abs(sum(Fraction(9, 10) ** k * (-1) ** k for k in range(200)))
    assert f"|v| = {float(kept):.3f}, 1 / (1 + 0.9) = {1 / 1.9:.3f}\n" in printed


def test_an_adam_step_passes_one_learning_rate_after_a_calm(printed: str) -> None:
    m, v = Fraction(0), Fraction(0)
    for t in range(1, 2001):
        g = 1.0 if t == 2000 else 1e-3
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    step = m / (1 - 0.9**2000) / math.sqrt(v / (1 - 0.999**2000))
    assert 2.5 < step < 3.5
    assert f"calm, then one of 1  last step {step:.2f} learning rates\n" in printed
    assert "steady               last step 1.00 learning rates\n" in printed


def test_the_mean_of_clipped_gradients_is_another_gradient(printed: str) -> None:
    mean = (1.65, 2.0)
    norm = math.hypot(*mean)
    assert f"average, then clip: [{mean[0] / norm:.3f} {mean[1] / norm:.3f}]\n" in printed
    assert f"clip, then average: [{(0.6 + 0.3) / 2:.2f} {0.8 / 2:.1f} ]\n" in printed


def test_a_block_adds_up_a_row_by_hand(printed: str) -> None:
    held = ((1, 5), (2, 6), (3,), (4,))
    sums = [sum(columns) for columns in held]
    mean = Fraction(sum(sums), 6)
    squares = [sum((c - mean) ** 2 for c in columns) for columns in held]
    assert sums == [6, 8, 3, 4] and mean == Fraction(7, 2)
    assert [float(s) for s in squares] == [8.5, 8.5, 0.25, 0.25]
    assert "sums    [6. 8. 3. 4.] warps [14.  7.]\n" in printed
    assert "squares [8.5  8.5  0.25 0.25] warps [17.   0.5]\n" in printed
    assert f"mean 3.5 variance {float(sum(squares) / 6):.3f}\n" in printed


def test_a_norm_s_kernel_costs_what_the_table_says(printed: str) -> None:
    n, rows, threads, warps = 200, 4, 64, 2
    counts = {
        "loads of x": rows * n, "requests": rows * math.ceil(n / 32), "sectors": rows * n * 4 // 32,
        "stores of y": rows * n, "barriers": rows * 2, "shuffles": rows * 2 * warps * 5,
        "shared loads": rows * 2 * threads * warps, "shared bytes": 2 * warps * 4,
    }  # fmt: skip
    assert list(counts.values()) == [800, 28, 100, 800, 8, 80, 1024, 16]
    for what, count in counts.items():
        assert f"{what:12} {count:5,}\n" in printed
    record = get("norm-kernel-sectors")
    assert isinstance(record, Number) and record.expected == counts["sectors"]
    assert "data race on s[0, 0] (shared memory)" in printed


def test_a_norm_moves_two_gibibytes_and_waits_for_memory(printed: str) -> None:
    bytes_ = 2 * 2**17 * 4096 * 2 + 2 * 4096 * 2
    assert f"{bytes_ / 2**30:.4f}" == "2.0000"
    ridge, intensity = 67e12 / 4.8e12, 7 * 2**17 * 4096 / bytes_
    assert f"intensity {intensity:.2f} FLOP/B, ridge {ridge:.0f}\n" in printed
    assert f"memory bound, {bytes_ / 4.8e12 * 1e6:.0f} us at least\n" in printed
    assert "e = 4: 7 / (2 e) = 0.875 FLOP/B\ne = 2: 7 / (2 e) = 1.750 FLOP/B\n" in printed


def test_zeros_in_the_tail_add_the_square_of_the_mean(printed: str) -> None:
    unguarded = (5 + 4 * Fraction(5, 2) ** 2) / 4
    assert f"guarded   1.25\nunguarded {float(unguarded)}\n" in printed
    record = get("padded-variance")
    assert isinstance(record, Number) and record.expected == unguarded == Fraction(15, 2)


def test_the_short_formula_fails_where_the_mean_is_large(printed: str) -> None:
    lines = printed.split(" mean   short  centred  states\n")[1].splitlines()[:5]
    table = [[float(number) for number in line.split()] for line in lines]
    assert [row[0] for row in table] == [0, 10, 100, 1000, 10_000]
    for mean, short, centred, states in table:
        assert max(centred, states) <= 1e-6 + 4e-7 * mean
        assert short >= 1e-7 * mean**2


def test_rms_norm_s_kernel_does_half_and_moves_as_much(printed: str) -> None:
    for name, both, one in (("barriers", 2, 1), ("shuffles", 20, 10), ("moved", 400, 400), ("shared B", 16, 8)):
        assert f"{name:8} {both:10} {one:8}\n" in printed


def test_three_kernels_of_layer_norm_counted(printed: str) -> None:
    for name, reads, barriers, shuffles in (
        ("in registers", 1, 2, 10),
        ("states", 2, 1, 15),
        ("three passes", 3, 4, 10),
    ):
        assert f"{name:12} {reads:5} {barriers:8} {shuffles:8}\n" in printed


def test_what_rms_norm_s_kernel_needs() -> None:
    record = get("rms-norm-kernel")
    assert isinstance(record, Several)
    expected = {name: part.expected for name, part in record.parts.items() if isinstance(part, Number)}
    assert expected == {"barriers": 1, "shuffles": 10, "moved": 400}


def test_the_watched_block_is_the_simulator_s_trace() -> None:
    figure = figures.norm_block()
    assert figure.axes == {"phase": [1, 2, 3], "thread": [0, 7, 32, 63]}
    told = [figure.alternative(phase=phase, thread=7) for phase in (1, 2, 3)]
    assert "global 150 loads, 0 stores; shared 0 loads, 2 stores. Thread 7 keeps columns 7, 71, 135." in told[0]
    assert "global 0 loads, 0 stores; shared 128 loads, 2 stores." in told[1]
    assert "global 300 loads, 150 stores; shared 128 loads, 0 stores." in told[2]
    assert "Thread 63 reads two sums and writes columns 63, 127." in figure.alternative(phase=3, thread=63)
    x = np.random.default_rng(12).integers(-3, 6, figures.WATCHED_COLUMNS).astype(float)
    warps = [np.concatenate([x[first : first + 32] for first in range(32 * w, x.size, 64)]) for w in range(2)]
    drawn = figure.draw(phase=2, thread=7)
    for warp in warps:
        assert f">sum {warp.sum():.1f}<" in drawn
        assert f">squares {((warp - x.mean()) ** 2).sum():.1f}<" in drawn
