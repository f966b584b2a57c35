"""Distributions against scipy.stats and by sampling, tables and moments against NumPy, and Bayes against a table."""

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labsupport.ops.probability import (
    Bernoulli,
    Categorical,
    Normal,
    Uniform,
    conditional,
    correlation,
    covariance,
    marginal,
    posterior,
    principal_axes,
    sequence_log_probability,
    standard_error,
)

WEIGHTS = (0.1, 0.0, 0.25, 0.6, 0.05)
PAIRS = [
    (Bernoulli(0.3), scipy.stats.bernoulli(0.3)),
    (Bernoulli(0.0), scipy.stats.bernoulli(0.0)),
    (Categorical(np.array(WEIGHTS)), scipy.stats.rv_discrete(values=(range(5), WEIGHTS))),
    (Uniform(-2.0, 0.5), scipy.stats.uniform(-2.0, 2.5)),
    (Normal(1.5, 0.4), scipy.stats.norm(1.5, 0.4)),
]
IDS = [f"{type(ours).__name__}-{k}" for k, (ours, _) in enumerate(PAIRS)]
#: Chance that a correct sampler fails one of the tests below, for one seed.
ALPHA = 1e-6


def joint_table(seed, *shape):
    return np.random.default_rng(seed).dirichlet(np.ones(math.prod(shape))).reshape(shape)


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=IDS)
def test_mean_and_variance_are_scipys(ours, theirs):
    assert ours.mean == pytest.approx(theirs.mean(), abs=1e-14)
    assert ours.variance == pytest.approx(theirs.var(), abs=1e-14)


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=IDS)
def test_masses_and_densities_are_scipys(ours, theirs):
    x = np.linspace(-4, 6, 200)
    whole = np.arange(-2, 8)
    if hasattr(ours, "pdf"):
        np.testing.assert_allclose(ours.pdf(x), theirs.pdf(x), rtol=1e-12, atol=1e-300)
        np.testing.assert_allclose(ours.cdf(x), theirs.cdf(x), rtol=1e-12, atol=1e-300)
    else:
        np.testing.assert_allclose(ours.pmf(whole), theirs.pmf(whole), rtol=1e-12)
        assert np.all(ours.pmf(np.array([0.5, 1.5])) == 0)


@pytest.mark.parametrize("ours", [pair[0] for pair in PAIRS if hasattr(pair[0], "pdf")])
def test_an_interval_has_the_integral_of_the_density(ours):
    a, b = ours.mean - 0.7, ours.mean + 0.2
    area, _ = scipy.integrate.quad(lambda x: float(ours.pdf(x)), a, b)
    assert float(ours.cdf(b) - ours.cdf(a)) == pytest.approx(area, abs=1e-10)


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=IDS)
def test_samples_follow_the_distribution(ours, theirs):
    draws = ours.sample(np.random.default_rng(7), 20_000)
    assert draws.shape == (20_000,)
    if hasattr(ours, "pdf"):
        assert scipy.stats.kstest(draws, theirs.cdf).pvalue > ALPHA
        return
    assert draws.dtype == np.int64
    values, counts = np.unique(draws, return_counts=True)
    expected = ours.pmf(values) * draws.size
    assert np.all(expected > 0)  # nothing of probability 0 is ever drawn
    assert expected.sum() == pytest.approx(draws.size)  # nothing of positive probability is missing
    if values.size > 1:
        assert scipy.stats.chisquare(counts, expected).pvalue > ALPHA


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=IDS)
def test_sample_means_stay_within_the_stated_confidence(ours, theirs):
    n = 40_000
    draws = ours.sample(np.random.default_rng(11), n)
    z = scipy.stats.norm.isf(ALPHA / 2)
    assert abs(draws.mean() - ours.mean) <= z * math.sqrt(ours.variance / n)


def test_samplers_take_their_randomness_from_the_callers_generator():
    for ours, _ in PAIRS:
        one, two = (ours.sample(np.random.default_rng(3), 8) for _ in range(2))
        np.testing.assert_array_equal(one, two)


def test_a_categorical_survives_probabilities_that_do_not_quite_sum_to_one():
    p = np.full(50_000, 1 / 50_000, np.float32)
    draws = Categorical(p).sample(np.random.default_rng(0), 1000)
    assert draws.min() >= 0
    assert draws.max() < p.size


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Bernoulli(1.1), "between 0 and 1"),
        (lambda: Categorical([0.5, 0.6]), "sums to 1.1"),
        (lambda: Categorical([-0.5, 1.5]), "negative"),
        (lambda: Categorical([np.nan, 1.0]), "NaN"),
        (lambda: Categorical([]), "empty"),
        (lambda: Categorical([[0.5, 0.5]]), "1 axis"),
        (lambda: Uniform(1.0, 1.0), "low must be less than high"),
        (lambda: Normal(0.0, 0.0), "sigma must be positive"),
    ],
)
def test_what_is_no_distribution_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# --- joint tables and Bayes


@settings(deadline=None)
@given(seed=st.integers(0, 999), shape=st.sampled_from([(2, 3), (4, 1), (2, 3, 2)]))
def test_product_rule_and_marginals(seed, shape):
    joint = joint_table(seed, *shape)
    for axis in range(joint.ndim):
        others = tuple(a for a in range(joint.ndim) if a != axis)
        along = marginal(joint, axis)
        np.testing.assert_allclose(along, joint.sum(axis=others))
        given_axis = conditional(joint, axis)
        np.testing.assert_allclose(given_axis.sum(axis=others), 1.0)
        np.testing.assert_allclose(given_axis * np.expand_dims(along, others), joint)


def test_a_conditional_on_the_impossible_is_nan():
    given_y = conditional([[0.5, 0.0], [0.5, 0.0]], 1)
    assert np.all(np.isnan(given_y[:, 1]))
    np.testing.assert_array_equal(given_y[:, 0], [0.5, 0.5])


@settings(deadline=None)
@given(seed=st.integers(0, 999), n=st.integers(1, 4), k=st.integers(1, 5))
def test_posterior_against_the_table(seed, n, k):
    rng = np.random.default_rng(seed)
    prior, likelihood = rng.dirichlet(np.ones(k)), rng.uniform(0.01, 1, (n, k))
    table = prior * likelihood.prod(axis=0)
    np.testing.assert_allclose(posterior(prior, likelihood), table / table.sum())
    step = prior
    for row in likelihood:
        step = posterior(step, row)
    np.testing.assert_allclose(posterior(prior, likelihood), step, rtol=1e-9)


def test_posterior_by_hand():
    # 1 in 100 is ill, the test finds 90 of 100 ill and alarms on 5 of 100 healthy: 0.009 / (0.009 + 0.0495)
    np.testing.assert_allclose(posterior([0.01, 0.99], [0.90, 0.05]), [0.009 / 0.0585, 0.0495 / 0.0585])


def test_posterior_of_many_observations_does_not_underflow():
    likelihood = np.tile([0.01, 0.02], (10_000, 1))
    np.testing.assert_array_equal(posterior([0.5, 0.5], likelihood), [0.0, 1.0])


def test_posterior_refuses_what_it_cannot_answer():
    with pytest.raises(ValueError, match=r"\(2,\).*\(3,\)"):
        posterior([0.5, 0.5], [0.1, 0.1, 0.1])
    with pytest.raises(ValueError, match="probability 0 under every hypothesis"):
        posterior([1.0, 0.0], [0.0, 0.3])
    with pytest.raises(ValueError, match="negative"):
        posterior([0.5, 0.5], [-0.1, 0.3])


@settings(deadline=None)
@given(p=st.lists(st.floats(1e-3, 1), min_size=1, max_size=30))
def test_sequence_log_probability_is_the_log_of_the_product(p):
    assert float(sequence_log_probability(p)) == pytest.approx(math.log(math.prod(p)), abs=1e-9)


def test_sequence_log_probability_where_the_product_is_lost():
    p = np.full((2, 1000), 0.1, np.float32)
    assert np.all(np.prod(p, axis=-1) == 0)
    log_p = sequence_log_probability(p)
    assert (log_p.shape, log_p.dtype) == ((2,), np.float32)
    np.testing.assert_allclose(log_p, 1000 * math.log(0.1), rtol=1e-5)
    assert sequence_log_probability([0.5, 0.0]) == -np.inf
    with pytest.raises(ValueError, match="between 0 and 1"):
        sequence_log_probability([1.5])
    with pytest.raises(ValueError, match="scalar"):
        sequence_log_probability(0.5)


# --- moments


@settings(deadline=None)
@given(seed=st.integers(0, 999), n=st.integers(2, 12), d=st.integers(1, 5), ddof=st.sampled_from([0, 1]))
def test_covariance_and_correlation_are_numpys(seed, n, d, ddof):
    x = np.random.default_rng(seed).normal(size=(n, d)) * 10 + 100
    cov = covariance(x, ddof)
    np.testing.assert_allclose(cov, np.cov(x, rowvar=False, ddof=ddof).reshape(d, d), atol=1e-9)
    np.testing.assert_allclose(correlation(x), np.corrcoef(x, rowvar=False).reshape(d, d), atol=1e-9)
    np.testing.assert_array_equal(cov, cov.T)
    assert np.linalg.eigvalsh(cov).min() >= -1e-9 * np.trace(cov)


def test_covariance_keeps_float32_and_names_what_is_wrong():
    assert covariance(np.ones((3, 2), np.float32)).dtype == np.float32
    with pytest.raises(ValueError, match="2 axes, n observations by d variables, got 1"):
        covariance(np.ones(3))
    with pytest.raises(ValueError, match="1 observations, at least 2"):
        covariance(np.ones((1, 3)), ddof=1)
    with pytest.raises(ValueError, match="column 1 of x is constant"):
        correlation([[1, 5], [2, 5], [4, 5]])


@settings(deadline=None)
@given(seed=st.integers(0, 999), d=st.integers(1, 5))
def test_principal_axes_against_the_svd(seed, d):
    x = np.random.default_rng(seed).normal(size=(50, d)) * np.arange(1, d + 1)
    variances, axes = principal_axes(x)
    centred = x - x.mean(axis=0)
    np.testing.assert_allclose(variances, np.linalg.svd(centred, compute_uv=False) ** 2 / 50, rtol=1e-9)
    np.testing.assert_allclose(axes.T @ axes, np.eye(d), atol=1e-12)
    np.testing.assert_allclose(covariance(centred @ axes), np.diag(variances), atol=1e-9 * variances.max())
    assert np.all(np.diff(variances) <= 0)
    assert np.all(np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], 0) > 0)


def test_standard_error():
    x = np.random.default_rng(0).normal(size=500)
    assert standard_error(x) == pytest.approx(scipy.stats.sem(x))
    with pytest.raises(ValueError, match="at least 2"):
        standard_error([1.0])


def test_defaults_of_the_libraries_differ_as_the_book_says():
    x = np.array([1.0, 2.0, 3.0, 4.0])
    assert np.var(x) == 1.25
    assert torch.from_numpy(x).var().item() == pytest.approx(5 / 3)
    assert np.cov(x) == pytest.approx(5 / 3)
    normed = torch.nn.functional.layer_norm(torch.from_numpy(x), (4,), eps=0.0)
    assert normed.square().mean().item() == pytest.approx(1.0)
