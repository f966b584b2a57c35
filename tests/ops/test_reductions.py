"""Sums and variances: each algorithm against exact arithmetic and within its own error bound."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from labsupport.ops.floats import BF16, FP16, FP32
from labsupport.ops.reductions import (
    Welford,
    error_bound,
    matmul_accumulated,
    sum_kahan,
    sum_neumaier,
    sum_pairwise,
    sum_serial,
    variance_merged,
    variance_naive,
    variance_two_pass,
)

SUMS = [sum_serial, sum_pairwise, sum_kahan, sum_neumaier]


def exact(x):
    return sum((Fraction(float(v)) for v in x), Fraction(0))


def bound(algorithm, x):
    """First-order bound with its second-order term, in units of u·Σ|x|."""
    n, u = x.size, float(np.finfo(x.dtype).eps) / 2
    terms = {
        "sum_serial": max(n - 1, 0) * u / (1 - n * u),
        "sum_pairwise": math.ceil(math.log2(max(n, 2))) * u * 1.01,
        "sum_kahan": 2 * u + 4 * n * u * u,
        "sum_neumaier": 2 * u + 4 * n * u * u,
    }
    return terms[algorithm.__name__] * float(np.abs(x.astype(np.float64)).sum())


vectors = hnp.arrays(
    st.sampled_from([np.float32, np.float64]),
    st.integers(0, 60),
    elements=st.floats(-1000.0, 1000.0, width=32).map(lambda v: v if abs(v) > 1e-6 else 0.0),
)


@pytest.mark.parametrize("algorithm", SUMS, ids=lambda f: f.__name__)
@settings(deadline=None)
@given(vectors)
def test_each_sum_keeps_its_error_bound_and_dtype(algorithm, x):
    total = algorithm(x)
    assert total.dtype == x.dtype
    assert abs(Fraction(float(total)) - exact(x)) <= Fraction(bound(algorithm, x))


@pytest.mark.parametrize("algorithm", SUMS, ids=lambda f: f.__name__)
def test_the_last_axis_is_reduced_whatever_the_layout(algorithm):
    x = np.random.default_rng(0).integers(-9, 9, (4, 5, 6)).astype(np.float32)
    for view in (x, x.transpose(2, 0, 1), x[:, ::-1, ::2], np.asfortranarray(x)):
        np.testing.assert_array_equal(algorithm(view), view.sum(axis=-1))


@pytest.mark.parametrize("algorithm", SUMS, ids=lambda f: f.__name__)
def test_no_numbers_sum_to_zero_and_a_scalar_is_refused(algorithm):
    assert algorithm(np.zeros(0, np.float32)) == 0
    assert algorithm(np.zeros((3, 0))).shape == (3,)
    assert algorithm([1, 2, 3]) == 6.0
    with pytest.raises(ValueError, match="no axis"):
        algorithm(1.0)
    with pytest.raises(TypeError, match="complex"):
        algorithm(np.ones(2, complex))


def test_serial_is_serial_and_pairwise_is_a_tree():
    x = np.array([1.0, 2**-24, 2**-24, 2**-24], np.float32)
    assert sum_serial(x) == 1.0
    assert sum_pairwise(x) == np.float32(1 + 2**-23)
    np.testing.assert_array_equal(sum_serial(x), np.add.accumulate(x)[-1])


def test_kahan_loses_where_neumaier_holds():
    x = np.array([1.0, 1e100, 1.0, -1e100])
    assert sum_kahan(x) == 0.0
    assert sum_neumaier(x) == 2.0


def test_a_format_rounds_after_every_addition():
    x = np.full(4096, 1.0)
    assert sum_serial(x, FP16) == 2048.0  # 2048 + 1 is a tie and goes back to 2048
    assert sum_serial(x, BF16) == 256.0
    assert sum_pairwise(x, BF16) == 4096.0
    y = np.random.default_rng(1).normal(size=500).astype(np.float32)
    assert sum_serial(y, FP32) == sum_serial(y)
    z = np.random.default_rng(2).normal(size=300).astype(np.float16)
    for algorithm in SUMS:
        assert algorithm(z, FP16) == algorithm(z)


def test_compensation_rescues_the_small_terms_in_half_precision():
    x = np.concatenate([[1.0], np.full(1000, 1e-3)]).astype(np.float16)
    reference = float(exact(x))
    errors = {f.__name__: abs(float(f(x)) - reference) for f in SUMS}
    assert errors["sum_kahan"] <= float(FP16.ulp(reference))
    assert errors["sum_serial"] > 10 * errors["sum_kahan"]


def test_variances_on_data_with_a_small_mean_agree_with_numpy():
    x = np.random.default_rng(3).normal(size=(4, 257))
    for variance in (variance_naive, variance_two_pass):
        np.testing.assert_allclose(variance(x), x.var(axis=-1), rtol=1e-12)


def test_a_large_mean_makes_the_naive_variance_negative_or_useless():
    x = 1e8 + np.array([4.0, 7.0, 13.0, 16.0])
    assert variance_two_pass(x) == 22.5
    assert abs(variance_naive(1e9 + x - 1e8) - 22.5) > 20
    data = (1e4 + 1e-2 * np.random.default_rng(4).normal(size=(50, 500))).astype(np.float32)
    assert (variance_naive(data) < 0).any()
    assert (variance_two_pass(data) >= 0).all()


def test_the_variance_of_no_numbers_is_an_error():
    for variance in (variance_naive, variance_two_pass):
        with pytest.raises(ValueError, match="no numbers"):
            variance(np.zeros((2, 0)))


def pushed(x):
    state = Welford()
    for value in x:
        state.push(value)
    return state


def test_welford_holds_where_the_naive_formula_fails():
    state = pushed(1e8 + np.array([4.0, 7.0, 13.0, 16.0]))
    assert (state.n, state.mean, state.variance) == (4, 1e8 + 10, 22.5)
    assert math.isnan(Welford().variance)


@settings(deadline=None)
@given(hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e6, 1e6)), st.data())
def test_welford_merges_to_the_same_state_for_any_split(x, data):
    cut = data.draw(st.integers(0, x.size))
    merged, whole = pushed(x[:cut]).merge(pushed(x[cut:])), pushed(x)
    scale = max(1.0, float(np.abs(x).max()))
    assert merged.n == whole.n == x.size
    assert merged.mean == pytest.approx(whole.mean, rel=1e-12, abs=1e-13 * scale)
    assert merged.M2 == pytest.approx(whole.M2, rel=1e-9, abs=1e-12 * scale**2 * x.size)
    assert whole.variance == pytest.approx(x.var(), rel=1e-9, abs=1e-12 * scale**2)


def test_welford_takes_arrays():
    x = np.random.default_rng(5).normal(size=(30, 7))
    np.testing.assert_allclose(pushed(x).variance, x.var(axis=0), rtol=1e-12)


NAMED = {"serial": sum_serial, "pairwise": sum_pairwise, "kahan": sum_kahan, "neumaier": sum_neumaier}


@pytest.mark.parametrize("fmt", [FP16, BF16, FP32], ids=lambda f: f.name)
@pytest.mark.parametrize("n", [1, 2, 16, 100, 600])
def test_every_order_stays_within_the_bounds(fmt, n):
    rng = np.random.default_rng(n)
    drawn = fmt.round(rng.uniform(-1, 3, n))
    orders = np.stack([drawn, np.sort(drawn), np.sort(drawn)[::-1], drawn[np.argsort(np.abs(drawn))]])
    truth = float(exact(drawn))
    for name, algorithm in NAMED.items():
        allowed = error_bound(name, n, fmt.eps / 2) * np.abs(drawn).sum()
        assert (np.abs(algorithm(orders, fmt) - truth) <= allowed).all(), name


def test_bounds_by_hand():
    assert error_bound("serial", 5, 2**-11) == 4 * 2**-11
    assert error_bound("pairwise", 5, 2**-11) == 3 * 2**-11 / (1 - 3 * 2**-11)
    assert error_bound("kahan", 5, 2**-11) == 2 * 2**-11 + 20 * 2**-22
    assert error_bound("neumaier", 1, 2**-11) == 2**-11
    assert error_bound("kahan", 256, 2**-8) == error_bound("neumaier", 257, 2**-8) == math.inf
    with pytest.raises(ValueError, match="serial"):
        error_bound("tree", 5, 2**-11)
    with pytest.raises(ValueError, match="at least 1"):
        error_bound("serial", 0, 2**-11)


def test_the_correction_of_neumaier_stalls_in_bf16_and_kahan_does_not():
    x = np.random.default_rng(0).uniform(size=4096)
    reference = float(exact(BF16.round(x)))
    assert abs(sum_kahan(x, BF16) - reference) < 0.01 * reference
    assert abs(sum_neumaier(x, BF16) - reference) > 0.3 * reference


@settings(deadline=None)
@given(hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e3, 1e3)), st.integers(1, 9))
def test_merged_variance_is_the_variance(x, blocks):
    scale = max(1.0, float(np.abs(x).max()))
    assert variance_merged(x, blocks) == pytest.approx(x.var(), rel=1e-9, abs=1e-12 * scale**2 * x.size)


def test_merged_variance_keeps_the_dtype_and_names_bad_input():
    x = (1e4 + np.random.default_rng(6).normal(size=500)).astype(np.float32)
    result = variance_merged(x, 8)
    assert result.dtype == np.float32
    assert abs(result / x.astype(np.float64).var() - 1) < 1e-3
    with pytest.raises(ValueError, match="blocks"):
        variance_merged(x, 0)
    with pytest.raises(ValueError, match="vector"):
        variance_merged(np.ones((2, 3)), 2)


def test_a_product_is_rounded_after_every_addition():
    assert matmul_accumulated(np.ones((1, 4096)), np.ones((4096, 1)), FP16, FP16).item() == 2048
    assert matmul_accumulated(np.ones((1, 4096)), np.ones((4096, 1)), FP16, FP32).item() == 4096
    rng = np.random.default_rng(7)
    A, B = rng.normal(size=(3, 50)), rng.normal(size=(50, 4))
    a, b = A.astype(np.float16).astype(np.float64), B.astype(np.float16).astype(np.float64)
    got = matmul_accumulated(A, B, FP16, FP32)
    assert (np.abs(got - a @ b) <= 50 * 2**-24 * (np.abs(a) @ np.abs(b))).all()
    by_hand = np.float32(0)
    for k in range(50):
        by_hand = np.float32(by_hand + np.float32(a[0, k] * b[k, 0]))
    assert got[0, 0] == by_hand
    with pytest.raises(ValueError, match="axis 1"):
        matmul_accumulated(A, A, FP16, FP32)
