"""Softmax and its family against extended precision, torch and scipy, over every layout and every odd input.

Bounds follow from the dtype and the length of the row, never from a guess; each is derived beside it.
"""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from labsupport.ops.softmax import (
    OnlineState,
    cross_entropy,
    entropy,
    kl_divergence,
    log_softmax,
    logsumexp,
    online_merge,
    online_state,
    perplexity,
    sample,
    softmax,
    softmax_naive,
    top_k,
    top_p,
)

INF, NAN = np.inf, np.nan
FLOATS = (np.float16, np.float32, np.float64)
few = settings(max_examples=150, deadline=None)


@pytest.fixture(autouse=True)
def _warnings_are_errors():
    """An operator that warns on an odd input would write noise into a reader's notebook."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# ---------------------------------------------------------------- references and bounds


def reference(z, axis=-1, temperature=1.0):
    """Shifted logits, softmax, log-softmax and log-sum-exp in extended precision, and the shifted logits."""
    z = np.asarray(z, np.longdouble)
    m = z.max(axis=axis, keepdims=True)
    d = (z - m) / np.longdouble(temperature)
    s = np.exp(d).sum(axis=axis, keepdims=True)
    return d, np.exp(d) / s, d - np.log(s), np.squeeze(m + np.log(s), axis=axis)


def within(actual, expected, bound):
    """|actual − expected| ≤ bound elementwise, infinities and NaN in the same places."""
    actual, expected = np.asarray(actual, np.longdouble), np.asarray(expected, np.longdouble)
    assert actual.shape == expected.shape
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite])
    gap = np.abs(actual[finite] - expected[finite])
    bound = np.broadcast_to(bound, expected.shape)[finite]
    assert np.all(gap <= bound), f"off by {(gap / np.maximum(bound, 1e-300)).max()} times the bound"


def eps(dtype):
    return np.longdouble(np.finfo(dtype).eps)


def tiny(dtype):
    return np.longdouble(np.finfo(dtype).smallest_subnormal)


def softmax_bound(d, p, n, dtype):
    """exp turns the rounding of the shift, eps·|d|, into a relative error; the sum adds n, the quotient 4."""
    return eps(dtype) * (np.abs(d) + n + 4) * p + tiny(dtype)


def log_bound(d, n, dtype):
    """Absolute: eps·|d| from the shift, n·eps from the sum inside the logarithm, rounding of the result."""
    d = np.abs(np.where(np.isfinite(d), d, 0)).astype(np.longdouble)
    return eps(dtype) * (2 * d + n + math.log(n) + 4)


@st.composite
def layouts(draw, elements, min_side=1, max_side=6, dtypes=FLOATS):
    """An array and an axis: any dtype and number of axes; permuted, strided, reversed, C or Fortran."""
    dtype = draw(st.sampled_from(dtypes))
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=min_side, max_side=max_side))
    doubled = tuple(2 * n for n in shape)
    z = draw(hnp.arrays(dtype, doubled, elements=elements(dtype), fill=st.nothing()))
    steps = draw(st.tuples(*[st.sampled_from([1, 2, -1, -2]) for _ in shape]))
    z = z[tuple(slice(None, None, step) for step in steps)]
    z = z[tuple(slice(0, n) for n in shape)]
    z = z.transpose(draw(st.permutations(range(z.ndim))))
    if draw(st.booleans()):
        z = np.asfortranarray(z)
    return z, draw(st.integers(-z.ndim, z.ndim - 1))


def finite_elements(dtype):
    width = np.finfo(dtype).bits
    top = {16: 3e4, 32: 1e5, 64: 1e5}[width]
    top = float(np.dtype(dtype).type(top))
    return st.floats(-top, top, width=width)


def any_elements(dtype):
    width = np.finfo(dtype).bits
    return st.one_of(finite_elements(dtype), st.sampled_from([INF, -INF, NAN, 0.0]), st.floats(width=width))


# ---------------------------------------------------------------- softmax, log_softmax, logsumexp


@few
@given(layouts(finite_elements), st.sampled_from([1.0, 0.5, 2.0, 0.01, 1e3]))
def test_softmax_family_agrees_with_extended_precision_in_every_layout(case, temperature):
    z, axis = case
    d, p, log_p, _ = reference(z, axis, temperature)
    n = z.shape[axis]
    out, log_out = softmax(z, axis, temperature), log_softmax(z, axis, temperature)
    assert out.dtype == log_out.dtype == z.dtype
    within(out, p, softmax_bound(d, p, n, z.dtype))
    assert np.all((out >= 0) & (out <= 1))
    if z.dtype != np.float16 or np.abs(log_p).max() < 6e4:
        within(log_out, log_p, log_bound(d, n, z.dtype))
    assert np.all(log_out <= 0)


@few
@given(layouts(finite_elements), st.booleans())
def test_logsumexp_agrees_with_extended_precision_in_every_layout(case, keepdims):
    z, axis = case
    expected = reference(z, axis)[3]
    out = logsumexp(z, axis, keepdims=keepdims)
    assert out.dtype == z.dtype
    assert out.shape == (np.max(z, axis=axis, keepdims=True).shape if keepdims else expected.shape)
    scale = np.abs(z.astype(np.longdouble)).max() + z.shape[axis] + 4
    within(out.reshape(expected.shape), expected, eps(z.dtype) * scale)


@few
@given(layouts(any_elements))
def test_softmax_family_agrees_with_torch_on_infinities_and_nan(case):
    import torch

    z, axis = case
    z = z.astype(np.float64, order="C")
    t = torch.from_numpy(z)
    n = z.shape[axis]
    with np.errstate(all="ignore"):
        d = np.abs(z.astype(np.longdouble) - z.max(axis=axis, keepdims=True))
    d = np.where(np.isfinite(d), d, 0)
    p = torch.softmax(t, axis).numpy()
    within(softmax(z, axis), p, 2 * softmax_bound(d, np.nan_to_num(p), n, np.float64))
    within(log_softmax(z, axis), torch.log_softmax(t, axis).numpy(), 2 * log_bound(d, n, np.float64))
    scale = np.nan_to_num(np.abs(z), posinf=0).max() + n + 4
    within(logsumexp(z, axis), torch.logsumexp(t, axis).numpy(), 2 * eps(np.float64) * scale)


@few
@given(layouts(finite_elements, dtypes=(np.float32, np.float64)))
def test_softmax_family_agrees_with_scipy(case):
    from scipy import special

    z, axis = case
    d, p, _, _ = reference(z, axis)
    n = z.shape[axis]
    within(softmax(z, axis), special.softmax(z, axis), 2 * softmax_bound(d, p, n, z.dtype))
    within(log_softmax(z, axis), special.log_softmax(z, axis), 2 * log_bound(d, n, z.dtype))
    scale = np.abs(z).max() + n + 4
    within(logsumexp(z, axis), special.logsumexp(z, axis), 2 * eps(z.dtype) * scale)


@few
@given(layouts(finite_elements), st.floats(-100, 100, width=16))
def test_softmax_does_not_see_a_shift_of_the_whole_row(case, c):
    z, axis = case
    z = np.round(z.astype(np.float64))  # integers, so that z + c is exact and only the operator is judged
    np.testing.assert_array_equal(softmax(z + np.round(c), axis), softmax(z, axis))


@few
@given(layouts(any_elements))
def test_no_operator_changes_its_input_or_warns(case):
    z, axis = case
    before = z.copy()
    for operator in (softmax, log_softmax, logsumexp, online_state):
        operator(z, axis)
    for operator in (softmax_naive, lambda z: top_k(z, 1), lambda z: top_p(z, 0.5)):
        operator(z)
    np.testing.assert_array_equal(z, before)


def test_a_long_row_keeps_its_sum():
    z = np.random.default_rng(0).normal(size=200_000).astype(np.float32)
    assert abs(softmax(z).astype(np.float64).sum() - 1) <= float(eps(np.float32)) * (4 + math.log2(z.size))
    within(logsumexp(z), reference(z)[3], eps(np.float32) * (abs(reference(z)[3]) + math.log2(z.size)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_extreme_but_finite_logits_stay_finite(dtype):
    top = np.finfo(dtype).max
    z = np.array([[top, top, -top], [-top, -top, -top], [top, 0, 0]], dtype)
    np.testing.assert_allclose(softmax(z)[0], [0.5, 0.5, 0])
    np.testing.assert_allclose(softmax(z)[1], np.full(3, 1 / 3), rtol=float(eps(dtype)))
    np.testing.assert_array_equal(softmax(z)[2], [1, 0, 0])
    np.testing.assert_array_equal(logsumexp(z), np.array([top, -top, top], dtype))


@pytest.mark.parametrize(("dtype", "last"), [(np.float16, 11.0), (np.float32, 88.0), (np.float64, 709.0)])
def test_naive_softmax_overflows_where_the_book_says(dtype, last):
    assert np.isfinite(softmax_naive(np.array([last, 0], dtype))).all()
    assert np.isnan(softmax_naive(np.array([last + 1, 0], dtype))).any()
    assert np.isnan(softmax_naive(np.full(2, -1000 if dtype != np.float16 else -30, dtype))).all()
    assert softmax_naive(np.zeros(3, dtype)).dtype == dtype


@pytest.mark.parametrize(
    ("row", "probabilities", "lse"),
    [
        ([-INF, -INF, -INF], [NAN, NAN, NAN], -INF),
        ([INF, 0.0, -INF], [NAN, NAN, NAN], INF),
        ([INF, INF, 0.0], [NAN, NAN, NAN], INF),
        ([NAN, 0.0, 1.0], [NAN, NAN, NAN], NAN),
        ([NAN, INF, -INF], [NAN, NAN, NAN], NAN),
        ([-INF, 2.0, -INF], [0.0, 1.0, 0.0], 2.0),
        ([-INF], [NAN], -INF),
        ([3.0], [1.0], 3.0),
    ],
)
@pytest.mark.parametrize("dtype", FLOATS)
def test_stated_result_of_masked_infinite_and_nan_rows(row, probabilities, lse, dtype):
    z = np.array([row, [0.0] * len(row)], dtype)
    np.testing.assert_array_equal(softmax(z)[0], np.array(probabilities, dtype))
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(log_softmax(z)[0], np.log(np.array(probabilities, dtype)))
    np.testing.assert_array_equal(logsumexp(z)[0], dtype(lse))
    np.testing.assert_allclose(softmax(z)[1].sum(), 1, rtol=float(eps(dtype)))  # the neighbour is untouched


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4), (2, 0, 3)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_empty_axes(shape, dtype):
    z = np.zeros(shape, dtype)
    for operator in (softmax, log_softmax):
        for axis in range(len(shape)):
            assert operator(z, axis).shape == shape
            assert operator(z, axis).dtype == dtype
    for axis in range(len(shape)):
        out = logsumexp(z, axis)
        assert out.shape == shape[:axis] + shape[axis + 1 :]
        if shape[axis] == 0:
            assert np.all(out == -INF)


@pytest.mark.parametrize("temperature", [0, -1.0, NAN, INF, -INF])
@pytest.mark.parametrize(
    "operator",
    [softmax, log_softmax, lambda z, temperature: sample(z, np.random.default_rng(0), temperature)],
)
def test_temperature_of_zero_or_below_says_to_use_argmax(operator, temperature):
    with pytest.raises(ValueError, match="argmax"):
        operator(np.zeros(3), temperature=temperature)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("temperature", [1e-3, 1e-8, 1e-50, 1e-310])
def test_tiny_temperature_is_argmax_and_not_nan(dtype, temperature):
    z = np.array([1, 3, -2], dtype)
    np.testing.assert_array_equal(softmax(z, temperature=temperature), np.array([0, 1, 0], dtype))
    tie = softmax(np.array([3, 3, -2], dtype), temperature=temperature)
    np.testing.assert_array_equal(tie, np.array([0.5, 0.5, 0], dtype))


def test_huge_temperature_is_uniform():
    np.testing.assert_array_equal(softmax([1.0, 3.0, -2.0, 0.0], temperature=1e300), np.full(4, 0.25))


def test_masked_entry_stays_out_at_every_temperature():
    for temperature in (1e-6, 1.0, 1e6):
        assert softmax([1.0, -INF, 0.0], temperature=temperature)[1] == 0


def test_input_kinds():
    assert softmax([1, 2, 3]).dtype == np.float64
    assert softmax(np.array([True, False])).dtype == np.float64
    assert softmax(np.arange(3, dtype=np.int8)).dtype == np.float64
    assert softmax(np.arange(3, dtype=np.longdouble)).dtype == np.longdouble
    for operator in (softmax, log_softmax, logsumexp, softmax_naive, online_state):
        with pytest.raises(ValueError, match="no axis"):
            operator(1.0)
        with pytest.raises(TypeError, match="real numbers"):
            operator(np.array([1j, 2]))
        with pytest.raises(TypeError):
            operator(np.array(["a", "b"]))
    for operator in (softmax, log_softmax, logsumexp, online_state, entropy):
        with pytest.raises(ValueError, match="axis"):
            operator(np.zeros((2, 3)), axis=2)


# ---------------------------------------------------------------- cross-entropy


@few
@given(layouts(finite_elements, dtypes=(np.float32, np.float64)), st.data())
def test_cross_entropy_agrees_with_torch(case, data):
    import torch

    z, _ = case
    V = z.shape[-1]
    labels = st.one_of(st.integers(0, V - 1), st.just(-100))
    targets = data.draw(hnp.arrays(np.int64, z.shape[:-1], elements=labels))
    t = torch.from_numpy(z.copy()).reshape(-1, V)
    y = torch.from_numpy(targets.copy()).reshape(-1)
    for reduction in ("none", "sum", "mean"):
        expected = torch.nn.functional.cross_entropy(t, y, reduction=reduction).numpy()
        out = cross_entropy(z, targets, reduction=reduction)
        assert out.dtype == z.dtype
        if reduction == "none":
            expected = expected.reshape(targets.shape)
        spread = np.ptp(z.astype(np.float64), axis=-1).max() + V + 4
        count = max(1, targets.size)
        scale = spread * (count * (count + 2) if reduction == "sum" else count + 2)
        within(out, expected, 2 * eps(z.dtype) * scale)


def test_cross_entropy_of_logits_that_softmax_sends_to_zero():
    z = np.array([[1000.0, 0.0]], np.float32)
    assert cross_entropy(z, [1]) == 1000
    assert cross_entropy(z, [0]) == 0
    assert cross_entropy(np.array([0.0, -INF]), 1) == INF


def test_ignored_positions_change_nothing_whatever_they_hold():
    z = np.array([[1.0, 2.0, 3.0], [NAN, INF, 0.0], [0.0, 0.0, 0.0]])
    out = cross_entropy(z, [2, -100, 0], reduction="none")
    assert out[1] == 0
    assert cross_entropy(z, [2, -100, 0]) == cross_entropy(z[[0, 2]], [2, 0])
    assert cross_entropy(z, [2, -100, 0], reduction="sum") == out.sum()
    assert cross_entropy(z[[0, 2]], [2, 0], ignore_index=0) == cross_entropy(z[:1], [2])


def test_mean_over_no_counted_target_is_nan_and_their_sum_is_zero():
    z = np.zeros((2, 3))
    assert np.isnan(cross_entropy(z, [-100, -100]))
    assert cross_entropy(z, [-100, -100], reduction="sum") == 0
    assert np.isnan(cross_entropy(np.zeros((0, 3)), []))
    assert cross_entropy(np.zeros((0, 3)), [], reduction="none").shape == (0,)


@pytest.mark.parametrize(
    ("shape", "targets", "error", "words"),
    [
        ((2, 3), [0, 3], ValueError, "target 3 .* 3 entries"),
        ((2, 3), [0, -1], ValueError, "target -1 "),
        ((2, 3), [0.0, 1.0], TypeError, "float64"),
        ((2, 3), [True, False], TypeError, "bool"),
        ((2, 3), [0], ValueError, "axis 0 .* size 2 .* size 1"),
        ((2, 3), [[0], [1]], ValueError, "1 axes .* 2"),
        ((2, 3), np.eye(3)[:2].astype(int), ValueError, "axes"),
        ((2, 0), [0, 0], ValueError, "0 entries"),
    ],
)
def test_cross_entropy_refuses(shape, targets, error, words):
    with pytest.raises(error, match=words):
        cross_entropy(np.zeros(shape), targets)


def test_cross_entropy_refuses_an_unknown_reduction():
    with pytest.raises(ValueError, match="batchmean"):
        cross_entropy(np.zeros((2, 3)), [0, 1], reduction="batchmean")


# ---------------------------------------------------------------- entropy, KL, perplexity


def probabilities(dtype=np.float64):
    return st.tuples(st.integers(1, 4), st.integers(1, 12), st.integers(0, 2**32 - 1)).map(
        lambda t: np.random.default_rng(t[2]).dirichlet(np.full(t[1], 0.3), size=t[0]).astype(dtype)
    )


@few
@given(probabilities(), st.integers(0, 2**32 - 1))
def test_entropy_and_kl_agree_with_scipy(p, seed):
    from scipy import special

    q = np.random.default_rng(seed).dirichlet(np.ones(p.shape[1]), size=p.shape[0])
    n = p.shape[1]
    within(entropy(p), special.entr(p).sum(-1), eps(np.float64) * (n + 4) * (1 + math.log(n)))
    terms = p * (np.abs(np.log(np.maximum(p, 1e-300))) + np.abs(np.log(q)))
    within(kl_divergence(p, q), special.rel_entr(p, q).sum(-1), eps(np.float64) * (n + 4) * (1 + terms.sum(-1)))


@few
@given(probabilities(np.float32), st.integers(0, 2**32 - 1))
def test_laws_of_entropy_and_kl(p, seed):
    p64 = p.astype(np.float64)
    p64 /= p64.sum(-1, keepdims=True)
    V = p.shape[1]
    q = np.random.default_rng(seed).dirichlet(np.ones(V), size=p.shape[0])
    slack = 100 * V * np.finfo(np.float64).eps
    H, kl = entropy(p64), kl_divergence(p64, q)
    assert np.all(H >= 0)
    assert np.all(math.log(V) - H >= -slack)
    assert np.all(kl >= -slack)
    np.testing.assert_array_equal(kl_divergence(p64, p64), np.zeros(len(p)))
    np.testing.assert_allclose(-(p64 * np.log(q)).sum(-1), H + kl, rtol=0, atol=slack * (1 + kl.max()))
    np.testing.assert_allclose(entropy(p64, base=2) * math.log(2), H, rtol=0, atol=slack)
    assert entropy(p).dtype == kl_divergence(p, p).dtype == np.float32


def test_known_entropies():
    assert entropy([0.5, 0.5], base=2) == 1
    assert entropy(np.full(8, 1 / 8), base=2) == 3
    assert entropy([1.0, 0.0]) == 0
    assert math.copysign(1, entropy([1.0, 0.0])) == 1  # 0, never −0
    assert entropy([]) == 0
    assert entropy(np.zeros((2, 0))).shape == (2,)
    assert np.isnan(entropy([NAN, 0.5]))
    np.testing.assert_allclose(entropy(np.full((4, 2), 0.25), axis=0), [math.log(4)] * 2)


def test_kl_where_one_side_is_zero():
    assert kl_divergence([0.5, 0.5], [1.0, 0.0]) == INF
    assert kl_divergence([1.0, 0.0], [0.5, 0.5]) == math.log(2)
    assert kl_divergence([1.0, 0.0], [1.0, 0.0]) == 0
    assert np.isnan(kl_divergence([0.0, 1.0], [NAN, 1.0]))
    assert kl_divergence([], []) == 0
    assert kl_divergence(np.float16([0.5, 0.5]), np.float16([0.25, 0.75])).dtype == np.float16


def test_kl_of_a_tiny_q_does_not_overflow_in_float32():
    q = np.array([1e-45, 1.0], np.float32)
    assert np.isclose(kl_divergence(np.array([1, 0], np.float32), q), -np.log(np.float64(q[0])))


def test_kl_agrees_with_torch_once_the_arguments_are_in_its_order():
    import torch

    p, q = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.2, 0.7])
    p = np.array([0.6, 0.3, 0.1])
    theirs = torch.nn.functional.kl_div(torch.tensor(q).log(), torch.tensor(p), reduction="sum").item()
    assert math.isclose(kl_divergence(p, q), theirs, rel_tol=1e-14)
    assert not math.isclose(kl_divergence(q, p), theirs, rel_tol=1e-3)


@pytest.mark.parametrize("operator", [entropy, lambda x: kl_divergence(x, x)])
@pytest.mark.parametrize("logits", [[-0.1, 1.1], [2.0, 1.0], [INF, 0.0], [-INF, 1.0]])
def test_logits_are_refused_where_probabilities_are_due(operator, logits):
    with pytest.raises(ValueError, match="softmax first"):
        operator(logits)


@pytest.mark.parametrize("base", [0, 1, -2, NAN, INF])
def test_impossible_bases_are_refused(base):
    with pytest.raises(ValueError, match="base"):
        entropy([0.5, 0.5], base=base)
    with pytest.raises(ValueError, match="base"):
        kl_divergence([0.5, 0.5], [0.5, 0.5], base=base)


def test_kl_refuses_shapes_that_differ_and_names_both():
    with pytest.raises(ValueError, match="axis 1 of p has size 3 and axis 1 of q has size 1"):
        kl_divergence(np.full((2, 3), 1 / 3), np.ones((2, 1)))
    with pytest.raises(ValueError, match="1 axes"):
        kl_divergence(np.ones(1), np.ones((1, 1)))


def test_perplexity():
    assert perplexity(0) == 1
    np.testing.assert_allclose(perplexity(np.log([2.0, 50257.0])), [2, 50257], rtol=1e-14)
    assert perplexity(np.float32(2.0)).dtype == np.float32
    assert perplexity(np.float16(2.0)).dtype == np.float16
    assert perplexity(1000.0) == INF
    assert perplexity(INF) == INF
    assert np.isnan(perplexity(NAN))
    assert perplexity(np.zeros((2, 0))).shape == (2, 0)
    with pytest.raises(ValueError, match="sign"):
        perplexity(-2.11)


@few
@given(probabilities())
def test_perplexity_of_a_uniform_guess_is_the_vocabulary(p):
    V = p.shape[1]
    np.testing.assert_allclose(perplexity(cross_entropy(np.zeros(p.shape), np.zeros(len(p), int))), V, rtol=1e-14)


# ---------------------------------------------------------------- top-k, top-p, sampling


def kept(filtered):
    return np.asarray(filtered) > -INF


@few
@given(layouts(finite_elements), st.data())
def test_top_k_keeps_the_k_largest_and_ties_go_to_the_lower_index(case, data):
    z, _ = case
    V = z.shape[-1]
    k = data.draw(st.integers(1, V))
    out = top_k(z, k)
    assert out.dtype == z.dtype
    for row, filtered in zip(z.reshape(-1, V), out.reshape(-1, V), strict=True):
        chosen = sorted(range(V), key=lambda i: (-row[i], i))[:k]
        expected = np.full(V, -INF)
        expected[chosen] = row[chosen]
        np.testing.assert_array_equal(filtered, expected)


@few
@given(layouts(lambda dtype: st.floats(-20, 20, width=np.finfo(dtype).bits)), st.floats(0.01, 1))
def test_top_p_keeps_the_smallest_set_that_reaches_p(case, p):
    z, _ = case
    V = z.shape[-1]
    out = top_p(z, p)
    assert out.dtype == z.dtype
    slack = (V + 4) * float(np.finfo(np.float64).eps)
    for row, keep in zip(z.reshape(-1, V), kept(out).reshape(-1, V), strict=True):
        probability = softmax(row.astype(np.float64))
        inside, outside = probability[keep], probability[~keep]
        assert keep.any()
        assert inside.sum() >= p - slack
        assert inside.sum() - inside.min() < p + slack  # without its least likely token it falls short
        assert outside.size == 0 or inside.min() >= outside.max()
    np.testing.assert_array_equal(out[kept(out)], z[kept(out)])


def test_top_p_keeps_the_token_that_crosses_and_breaks_ties_by_index():
    z = np.log([0.5, 0.25, 0.125, 0.125])
    assert kept(top_p(z, 0.6)).tolist() == [True, True, False, False]
    assert kept(top_p(z, 0.01)).tolist() == [True, False, False, False]
    assert kept(top_p(np.zeros(4), 0.5)).tolist() == [True, True, False, False]
    assert kept(top_p(np.zeros(4), 0.51)).tolist() == [True, True, True, False]
    assert kept(top_p([0.0, -800.0], 1)).all()  # p = 1 keeps what has probability 0.0, too


def test_filters_on_masked_infinite_and_nan_rows():
    z = np.array([[-INF, -INF, -INF], [NAN, 0, 1], [INF, 0, 1], [-INF, 0, 1]])
    assert np.all(top_k(z, 2)[0] == -INF)
    assert np.isnan(top_k(z, 2)[1]).all()
    np.testing.assert_array_equal(top_k(z, 2)[2:], [[INF, -INF, 1], [-INF, 0, 1]])
    for p in (0.5, 1):
        assert np.all(top_p(z, p)[0] == -INF)
        assert np.isnan(top_p(z, p)[1:3]).all()
    np.testing.assert_array_equal(top_p(z, 0.5)[3], [-INF, -INF, 1])


@pytest.mark.parametrize("k", [0, -1, 4])
def test_k_out_of_range_is_refused(k):
    with pytest.raises(ValueError, match=r"axis -1 .* 3 entries"):
        top_k(np.zeros((2, 3)), k)


@pytest.mark.parametrize("k", [2.0, "2", True, None])
def test_k_that_is_no_integer_is_refused(k):
    with pytest.raises(TypeError, match="integer"):
        top_k(np.zeros(3), k)


@pytest.mark.parametrize("p", [0, -0.1, 1.1, NAN, INF])
def test_p_outside_its_interval_is_refused(p):
    with pytest.raises(ValueError, match=r"\(0, 1\]"):
        top_p(np.zeros(3), p)


def test_empty_vocabularies_are_refused_where_a_token_is_due():
    for operator in (
        lambda z: top_k(z, 1),
        lambda z: top_p(z, 0.5),
        lambda z: sample(z, np.random.default_rng(0)),
    ):
        with pytest.raises(ValueError, match=r"empty|entries"):
            operator(np.zeros((2, 0)))


def test_sampling_follows_the_probabilities():
    p = np.array([0.5, 0.3, 0.15, 0.05])
    n = 40_000
    counts = np.bincount(sample(np.broadcast_to(np.log(p), (n, 4)), np.random.default_rng(5)), minlength=4)
    assert np.all(np.abs(counts - n * p) < 5 * np.sqrt(n * p * (1 - p)))  # five standard deviations
    cold = np.bincount(
        sample(np.broadcast_to(np.log(p), (n, 4)), np.random.default_rng(5), temperature=0.5), minlength=4
    )
    q = p**2 / (p**2).sum()
    assert np.all(np.abs(cold - n * q) < 5 * np.sqrt(n * q * (1 - q)))


@few
@given(layouts(finite_elements), st.integers(0, 2**32 - 1))
def test_sample_never_draws_a_masked_token_and_repeats_with_its_seed(case, seed):
    z, _ = case
    z = top_k(z, 1 + z.shape[-1] // 2)
    tokens = sample(z, np.random.default_rng(seed))
    assert tokens.shape == z.shape[:-1]
    assert np.issubdtype(tokens.dtype, np.integer)
    assert np.all(np.take_along_axis(z, tokens[..., None], -1) > -INF)
    np.testing.assert_array_equal(tokens, sample(z, np.random.default_rng(seed)))


class _EdgeGenerator:
    """A Generator at the ends of its interval, where a careless sampler leaves the vocabulary."""

    def __init__(self, u: float) -> None:
        self.u = u

    def random(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.full(shape, self.u)


@pytest.mark.parametrize("u", [0.0, 1 - 2**-53])
def test_sample_at_the_ends_of_the_unit_interval(u):
    z = np.concatenate([[-INF], np.zeros(1000), [-INF]])
    assert 1 <= sample(z, _EdgeGenerator(u)) <= 1000


@pytest.mark.parametrize("row", [[-INF, -INF], [NAN, 0.0], [INF, 0.0]])
def test_sample_refuses_a_row_that_is_no_distribution(row):
    with pytest.raises(ValueError, match=r"row \(1,\)"):
        sample(np.array([[0.0, 0.0], row]), np.random.default_rng(0))


# ---------------------------------------------------------------- online softmax


def left(states):
    total = (-INF, 0.0)
    for state in states:
        total = online_merge(total, state)
    return total


def right(states):
    total = (-INF, 0.0)
    for state in reversed(states):
        total = online_merge(state, total)
    return total


def tree(states):
    if len(states) < 2:
        return states[0] if states else OnlineState(np.float64(-INF), np.float64(0))
    half = len(states) // 2
    return online_merge(tree(states[:half]), tree(states[half:]))


@few
@given(hnp.arrays(np.float64, st.integers(0, 40), elements=st.floats(-700, 700) | st.just(-INF)), st.data())
def test_any_split_merged_in_any_order_is_the_state_of_the_whole(z, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, z.size), max_size=6)))
    blocks = np.split(z, cuts)
    whole = online_state(z)
    for order in (left, right, tree):
        m, l = order([online_state(block) for block in blocks])
        assert m == whole.m
        # every element is scaled at most once per merge, each time by exp of a difference rounded by eps·1400
        assert abs(l - whole.l) <= 4 * np.finfo(float).eps * (len(blocks) * 1400 + z.size) * max(whole.l, 1)


@few
@given(layouts(any_elements))
def test_state_says_what_logsumexp_says(case):
    z, axis = case
    m, l = online_state(z, axis)
    assert m.dtype == l.dtype == z.dtype
    with np.errstate(all="ignore"):
        lse = m.astype(np.float64) + np.log(l.astype(np.float64))
    expected = logsumexp(z.astype(np.float64), axis)
    np.testing.assert_array_equal(np.isnan(lse), np.isnan(expected))
    np.testing.assert_array_equal(np.isposinf(lse), np.isposinf(expected))
    finite = np.isfinite(expected)
    scale = eps(z.dtype) * (z.shape[axis] + 4) * (1 + np.abs(expected[finite]))
    within(np.asarray(lse)[finite], expected[finite], scale)


@pytest.mark.parametrize("state", [(3.0, 2.0), (-INF, 0.0), (INF, 1.0), (-700.0, 5.0)])
def test_the_empty_state_is_the_identity(state):
    for merged in (online_merge(state, (-INF, 0.0)), online_merge((-INF, 0.0), state)):
        assert merged == state


def test_merge_of_infinities_and_nan():
    assert online_merge((INF, 1.0), (INF, 2.0)) == (INF, 3.0)
    assert online_merge((INF, 1.0), (5.0, 2.0)) == (INF, 1.0)
    assert np.isnan(online_merge((NAN, NAN), (5.0, 2.0))).all()


def test_merge_keeps_shape_and_dtype_and_takes_scalars_with_any_shape():
    a = online_state(np.zeros((2, 3, 4), np.float32))
    merged = online_merge(a, (-INF, 0.0))
    assert merged.m.shape == merged.l.shape == (2, 3)
    assert merged.m.dtype == merged.l.dtype == np.float32
    assert online_merge(online_state(np.zeros(3, np.float16)), (-INF, 0.0)).l.dtype == np.float16
    assert online_merge((1, 2), (3, 4)).m.dtype == np.float64
    with pytest.raises(ValueError, match="axis 1 of m_a has size 3 and axis 1 of m_b has size 4"):
        online_merge(a, online_state(np.zeros((2, 4, 1))))


def test_a_half_precision_sum_is_accumulated_wider():
    """70,000 equal logits: a float16 accumulator would stop at 2048, and 1/70000 still rounds correctly."""
    z = np.zeros(70_000, np.float16)
    assert softmax(z)[0] == np.float16(1 / 70_000)
    assert logsumexp(z) == np.float16(math.log(70_000))
