"""FloatFormat against the hardware's types: every pattern of 8 and 16 bits, and the boundaries of the rest."""

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labsupport.ops.floats import BF16, E4M3, E5M2, FORMATS, FP16, FP32, TF32, FloatFormat, LossScaler

NATIVE = {
    "FP32": np.float32,
    "FP16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "E4M3": ml_dtypes.float8_e4m3fn,
    "E5M2": ml_dtypes.float8_e5m2,
}
TORCH = {
    "FP16": torch.float16,
    "BF16": torch.bfloat16,
    "E4M3": torch.float8_e4m3fn,
    "E5M2": torch.float8_e5m2,
}
STORED = [FP32, FP16, BF16, E4M3, E5M2]
SMALL = [FP16, BF16, E4M3, E5M2]


def native_bits(fmt, x):
    with np.errstate(over="ignore", invalid="ignore"):
        return bits_of(fmt, x)


def bits_of(fmt, x):
    return np.asarray(x).astype(NATIVE[fmt.name]).view(f"u{fmt.bits // 8}").astype(np.int64)


def patterns(fmt):
    return np.arange(2**fmt.bits)


@pytest.mark.parametrize("fmt", SMALL, ids=lambda f: f.name)
def test_decode_agrees_with_ml_dtypes_on_every_pattern(fmt):
    with np.errstate(invalid="ignore"):
        expected = patterns(fmt).astype(f"u{fmt.bits // 8}").view(NATIVE[fmt.name]).astype(np.float64)
    np.testing.assert_array_equal(fmt.decode(patterns(fmt)), expected)
    np.testing.assert_array_equal(np.signbit(fmt.decode(patterns(fmt))), np.signbit(expected))


@pytest.mark.parametrize("fmt", SMALL, ids=lambda f: f.name)
def test_decode_agrees_with_torch_on_every_pattern(fmt):
    bits = torch.from_numpy(patterns(fmt).astype(f"u{fmt.bits // 8}"))
    expected = bits.view(TORCH[fmt.name]).to(torch.float64).numpy()
    np.testing.assert_array_equal(fmt.decode(patterns(fmt)), expected)


@pytest.mark.parametrize("fmt", SMALL, ids=lambda f: f.name)
def test_encode_inverts_decode_on_every_pattern(fmt):
    code = patterns(fmt)
    numbers = ~np.isnan(fmt.decode(code))
    np.testing.assert_array_equal(fmt.encode(fmt.decode(code[numbers])), code[numbers])
    assert np.isnan(fmt.decode(fmt.encode(np.nan)))


def boundary_values(fmt):
    """Every value, every tie between neighbours, and the float64 numbers next to each tie."""
    values = fmt.decode(np.arange(fmt._max_code + 1))
    ties = (values[1:] + values[:-1]) / 2
    overflow_tie = values[-1] + fmt.ulp(values[-1]) / 2
    ties = np.append(ties, overflow_tie)
    near = [values, ties, np.nextafter(ties, np.inf), np.nextafter(ties, 0.0), [0.0, np.inf, 1e300, 5e-324]]
    x = np.concatenate(near)
    return np.concatenate([x, -x])


@pytest.mark.parametrize("fmt", [FP16, E4M3, E5M2], ids=lambda f: f.name)
def test_encode_agrees_on_every_value_and_every_tie(fmt):
    x = boundary_values(fmt)
    if fmt is FP16:
        expected = native_bits(fmt, x)
    else:
        # ml_dtypes rounds float64 to float32 on the way: keep what float32 holds exactly.
        with np.errstate(over="ignore"):
            single = x.astype(np.float32)
        exact = (x == single) | np.isinf(single)
        x, expected = x[exact], native_bits(fmt, single[exact])
    got = fmt.encode(x)
    is_nan = np.isnan(fmt.decode(got))
    np.testing.assert_array_equal(is_nan, np.isnan(fmt.decode(expected)))
    np.testing.assert_array_equal(got[~is_nan], expected[~is_nan])


@pytest.mark.parametrize("fmt", STORED, ids=lambda f: f.name)
def test_encode_agrees_on_random_float32_patterns(fmt):
    bits = np.random.default_rng(9).integers(0, 2**32, 300_000, dtype=np.uint64).astype(np.uint32)
    x = bits.view(np.float32)
    x = x[~np.isnan(x)]
    got, expected = fmt.encode(x), native_bits(fmt, x)
    is_nan = np.isnan(fmt.decode(expected))
    np.testing.assert_array_equal(np.isnan(fmt.decode(got)), is_nan)
    np.testing.assert_array_equal(got[~is_nan], expected[~is_nan])


@pytest.mark.parametrize("fmt", [FP16, BF16, E5M2], ids=lambda f: f.name)
def test_encode_agrees_with_torch_on_random_float32(fmt):
    bits = np.random.default_rng(10).integers(0, 2**32, 100_000, dtype=np.uint64).astype(np.uint32)
    x = bits.view(np.float32)
    x = x[~np.isnan(x)]
    expected = torch.from_numpy(x).to(TORCH[fmt.name]).to(torch.float64).numpy()
    np.testing.assert_array_equal(fmt.round(x), expected)


def test_e4m3_overflow_is_nan_or_saturates_when_asked():
    assert np.isnan(E4M3.round(480.0)) and np.isnan(E4M3.round(np.inf))
    assert E4M3.round(464.0) == 448.0  # the tie goes to the even pattern, 448
    assert E4M3.round(480.0, saturate=True) == 448.0
    assert E4M3.round(-np.inf, saturate=True) == -448.0
    assert np.isnan(E4M3.round(np.nan, saturate=True))


def test_fp32_is_float32_on_boundaries():
    info = np.finfo(np.float32)
    edges = np.array([info.max, info.tiny, info.smallest_subnormal, 1.0, 16777216.0, 0.1, 1 / 3])
    x = np.concatenate([edges, np.nextafter(edges, np.inf), np.nextafter(edges, -np.inf), edges * (1 + 2**-25)])
    np.testing.assert_array_equal(FP32.encode(x), native_bits(FP32, x))
    assert np.isinf(FP32.round(float(info.max) * (1 + 2**-24)))


def test_the_table_of_formats():
    assert (FP16.max, E4M3.max, E5M2.max) == (65504.0, 448.0, 57344.0)
    assert BF16.max == pytest.approx(3.39e38, rel=1e-3)
    assert [f.bits for f in FORMATS] == [32, 19, 16, 16, 8, 8]
    for fmt in (FP32, FP16):
        info = np.finfo(NATIVE[fmt.name])
        assert (fmt.max, fmt.min_normal, fmt.min_subnormal, fmt.eps) == (
            float(info.max),
            float(info.tiny),
            float(info.smallest_subnormal),
            float(info.eps),
        )
    for fmt in (BF16, E4M3, E5M2):
        info = ml_dtypes.finfo(NATIVE[fmt.name])
        assert (fmt.max, fmt.min_normal, fmt.min_subnormal, fmt.eps) == (
            float(info.max),
            float(info.smallest_normal),
            float(info.smallest_subnormal),
            float(info.eps),
        )


def test_a_small_step_is_lost_where_the_spacing_is_wider():
    assert FP32.round(16777216.0 + 1.0) == 16777216.0
    assert BF16.round(256.0 + 1.0) == 256.0
    assert FP16.round(2048.0 + 1.0) == 2048.0
    assert FP16.round(2048.0 + 3.0) == 2052.0  # the tie at 2051 goes to the even pattern


def test_tf32_keeps_ten_mantissa_bits_and_the_range_of_fp32():
    assert TF32.round(1 + 2.0**-11) == 1.0
    assert TF32.round(1 + 2.0**-10) == 1 + 2.0**-10
    assert TF32.min_normal == FP32.min_normal


@given(st.floats(allow_nan=False, width=32))
def test_rounding_errs_by_at_most_half_a_spacing(x):
    for fmt in FORMATS:
        rounded = float(fmt.round(x))
        if abs(x) <= fmt.max:
            assert abs(rounded - x) <= float(fmt.ulp(x)) / 2
            assert float(fmt.round(rounded)) == rounded


@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_rounding_keeps_order(x, y):
    for fmt in (FP16, BF16, E5M2):
        assert (fmt.round(min(x, y)) <= fmt.round(max(x, y))).all()


def test_ulp_is_the_spacing():
    for fmt in SMALL:
        values = fmt.decode(np.arange(fmt._max_code))
        after = fmt.decode(np.arange(1, fmt._max_code + 1))
        np.testing.assert_array_equal(fmt.ulp(values), after - values)
    assert np.isnan(FP16.ulp(1e9)) and np.isnan(FP16.ulp(np.inf))


def test_scalars_and_shapes_are_kept():
    assert np.shape(FP16.encode(1.0)) == ()
    assert FP16.encode(np.zeros((0, 3))).shape == (0, 3)
    assert FP16.round(np.ones((2, 3), np.float32)).shape == (2, 3)
    assert FP16.encode(-0.0) == 0x8000


def test_bad_patterns_and_formats_are_named():
    with pytest.raises(TypeError, match="encode"):
        FP16.decode(1.0)
    with pytest.raises(ValueError, match="16 bits"):
        FP16.decode(70000)
    with pytest.raises(ValueError, match="16 bits"):
        FP16.decode(np.array([-1]))
    with pytest.raises(ValueError, match="exponent"):
        FloatFormat("FP64", 11, 52)


def test_loss_scaler_halves_on_overflow_and_grows_after_good_steps():
    scaler = LossScaler(scale=8.0, growth_interval=2)
    assert scaler.scale_loss(np.float16(0.5)) == 4.0
    assert scaler.scale_loss(np.float16(0.5)).dtype == np.float16
    grads, finite = scaler.unscale([np.array([16.0, 8.0], np.float16)])
    assert finite and grads[0].dtype == np.float32
    np.testing.assert_array_equal(grads[0], [2.0, 1.0])
    assert scaler.update(True) and scaler.scale == 8.0
    assert scaler.update(True) and scaler.scale == 16.0
    _, finite = scaler.unscale([np.array([1.0]), np.array([np.inf])])
    assert not finite and not scaler.update(finite)
    assert scaler.scale == 8.0 and scaler.good_steps == 0


@pytest.mark.parametrize(
    "bad", [{"scale": 0.0}, {"growth_factor": 1.0}, {"backoff_factor": 1.0}, {"growth_interval": 0}]
)
def test_loss_scaler_refuses_bad_settings(bad):
    with pytest.raises(ValueError, match=r"scale|growth|backoff"):
        LossScaler(**bad)


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize("saturate", [False, True])
def test_rounding_is_decoding_the_encoded(fmt, saturate):
    rng = np.random.default_rng(11)
    single = rng.integers(0, 2**32, 50_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    x = np.concatenate([
        rng.integers(0, 2**64, 50_000, dtype=np.uint64).view(np.float64),
        single[~np.isnan(single)].astype(np.float64),
        [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 1.7e308],
        boundary_values(fmt) if fmt.bits <= 16 else [fmt.max, fmt.max * (1 + fmt.eps / 4), -fmt.max * (1 + fmt.eps)],
    ])
    rounded, expected = fmt.round(x, saturate), fmt.decode(fmt.encode(x, saturate))
    np.testing.assert_array_equal(rounded, expected)
    np.testing.assert_array_equal(np.signbit(rounded)[~np.isnan(x)], np.signbit(x)[~np.isnan(x)])


def test_bf16_on_every_value_and_every_tie():
    values = BF16.decode(np.arange(BF16._max_code + 1))
    ties = np.append((values[1:] + values[:-1]) / 2, BF16.max * (1 + BF16.eps / 4)).astype(np.float32)
    near = np.concatenate([values, ties, np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(0))])
    x = np.concatenate([near, -near]).astype(np.float32)
    np.testing.assert_array_equal(BF16.encode(x), native_bits(BF16, x))
    expected = torch.from_numpy(x).to(torch.bfloat16).to(torch.float64).numpy()
    np.testing.assert_array_equal(BF16.round(x), expected)


def test_torch_saturates_e4m3_where_ml_dtypes_gives_nan():
    """The same dtype name, two overflow rules: E4M3.encode has both."""
    x = boundary_values(E4M3)
    with np.errstate(over="ignore"):
        x = x[x == x.astype(np.float32)].astype(np.float32)
    saturated = torch.from_numpy(x).to(torch.float8_e4m3fn).to(torch.float64).numpy()
    np.testing.assert_array_equal(E4M3.round(x, saturate=True), saturated)
    assert np.isnan(np.float32(500).astype(ml_dtypes.float8_e4m3fn).astype(np.float64))
