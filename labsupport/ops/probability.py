"""Distributions, joint tables, Bayes' rule and moments: the chance that training and sampling are made of.

Samplers are written from uniform numbers, so that every step of them can be read. All randomness comes from
the `np.random.Generator` that the caller passes; this file must never draw from a generator of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

#: How far a sum of probabilities may be from 1: float32 probabilities of a large vocabulary.
SUM_TOLERANCE = 1e-4


def _floating(x: Any) -> np.ndarray:
    """`x` as a floating array; integers become float64."""
    x = np.asarray(x)
    return x if np.issubdtype(x.dtype, np.floating) else x.astype(np.float64)


def _probabilities(p: Any, name: str) -> np.ndarray:
    """`p` as an array of probabilities that sum to 1 over all its elements, or ValueError."""
    p = _floating(p)
    if p.size == 0:
        raise ValueError(f"{name} is empty, and nothing cannot sum to 1")
    if not np.all(p >= 0):
        raise ValueError(f"{name} has an entry that is negative or NaN")
    if abs(float(p.sum(dtype=np.float64)) - 1) > SUM_TOLERANCE:
        raise ValueError(f"{name} sums to {float(p.sum(dtype=np.float64)):.6g}, not to 1")
    return p


# --- distributions ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bernoulli:
    """1 with probability p, else 0: a dropout mask, a yes-or-no label."""

    p: float

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise ValueError(f"p must be between 0 and 1, got {self.p}")

    @property
    def mean(self) -> float:
        """p."""
        return self.p

    @property
    def variance(self) -> float:
        """p·(1 − p)."""
        return self.p * (1 - self.p)

    def pmf(self, x: Any) -> np.ndarray:
        """P(X = x), elementwise; 0 for anything but 0 and 1."""
        x = np.asarray(x)
        return np.where(x == 1, self.p, np.where(x == 0, 1 - self.p, 0.0))

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """n draws (n,), int64: 1 where a uniform number falls below p."""
        return (rng.random(n) < self.p).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Categorical:
    """One of V categories 0 … V−1 with probabilities p (V,): the next token."""

    p: np.ndarray

    def __post_init__(self) -> None:
        p = _probabilities(self.p, "p")
        if p.ndim != 1:
            raise ValueError(f"p must have 1 axis, got {p.ndim} with shape {p.shape}")
        object.__setattr__(self, "p", p)

    @property
    def mean(self) -> float:
        """Σ k·p_k. For token ids it is a number without a meaning: ids are names."""
        return float(np.arange(self.p.size) @ self.p)

    @property
    def variance(self) -> float:
        """Σ (k − mean)²·p_k, likewise only where the categories are numbers."""
        return float((np.arange(self.p.size) - self.mean) ** 2 @ self.p)

    def pmf(self, x: Any) -> np.ndarray:
        """P(X = x), elementwise; 0 for anything but a whole number from 0 to V−1."""
        x = np.asarray(x)
        known = (x >= 0) & (x < self.p.size) & (x == np.floor(x))
        return np.where(known, self.p[np.where(known, x, 0).astype(np.int64)], 0.0)

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """n draws (n,), int64: the first category whose cumulative probability exceeds a uniform number."""
        cumulative = np.cumsum(self.p, dtype=np.float64)
        draws = np.searchsorted(cumulative, rng.random(n) * cumulative[-1], side="right")
        return np.minimum(draws, np.flatnonzero(self.p)[-1])


@dataclass(frozen=True)
class Uniform:
    """Equally dense everywhere on [low, high): initial weights, the raw material of every sampler."""

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"low must be less than high, got {self.low} and {self.high}")

    @property
    def mean(self) -> float:
        """(low + high) / 2."""
        return (self.low + self.high) / 2

    @property
    def variance(self) -> float:
        """(high − low)² / 12."""
        return (self.high - self.low) ** 2 / 12

    def pdf(self, x: Any) -> np.ndarray:
        """Density at x, elementwise; per unit of x, so it exceeds 1 where the interval is shorter than 1."""
        x = np.asarray(x, np.float64)
        return np.where((x >= self.low) & (x < self.high), 1 / (self.high - self.low), 0.0)

    def cdf(self, x: Any) -> np.ndarray:
        """P(X <= x), elementwise."""
        return np.clip((np.asarray(x, np.float64) - self.low) / (self.high - self.low), 0.0, 1.0)

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """n draws (n,): a uniform number on [0, 1), stretched and moved."""
        return self.low + (self.high - self.low) * rng.random(n)


@dataclass(frozen=True)
class Normal:
    """The Gaussian N(mu, sigma²), given by its standard deviation: initial weights, noise, sums of many causes."""

    mu: float = 0.0
    sigma: float = 1.0

    def __post_init__(self) -> None:
        if not self.sigma > 0:
            raise ValueError(f"sigma must be positive, got {self.sigma}")

    @property
    def mean(self) -> float:
        """mu."""
        return self.mu

    @property
    def variance(self) -> float:
        """sigma²."""
        return self.sigma**2

    def pdf(self, x: Any) -> np.ndarray:
        """Density at x, elementwise: exp(−(x − mu)² / (2·sigma²)) / (sigma·sqrt(2π))."""
        z = (np.asarray(x, np.float64) - self.mu) / self.sigma
        return np.exp(-0.5 * z**2) / (self.sigma * math.sqrt(2 * math.pi))

    def cdf(self, x: Any) -> np.ndarray:
        """P(X <= x), elementwise, by the error function."""
        z = (np.asarray(x, np.float64) - self.mu) / (self.sigma * math.sqrt(2))
        return 0.5 * np.vectorize(math.erfc, otypes=[float])(-z)

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """n draws (n,) by Box and Muller (1958): the radius and the angle of a point in the plane are independent."""
        radius = np.sqrt(-2 * np.log1p(-rng.random(n)))
        return self.mu + self.sigma * radius * np.cos(2 * math.pi * rng.random(n))


# --- joint tables -----------------------------------------------------------------------------------------


def marginal(joint: Any, axis: int) -> np.ndarray:
    """Marginal over `axis` of a joint table p(x, y): the other axes are summed away."""
    joint = _probabilities(joint, "the joint table")
    kept = axis % joint.ndim
    return joint.sum(axis=tuple(a for a in range(joint.ndim) if a != kept))


def conditional(joint: Any, given: int) -> np.ndarray:
    """p(other axes | axis `given`), same shape as the joint table: each slice is divided by its marginal.

    A slice whose marginal is 0 has no conditional distribution and is NaN.
    """
    joint = _probabilities(joint, "the joint table")
    others = tuple(a for a in range(joint.ndim) if a != given % joint.ndim)
    evidence = joint.sum(axis=others, keepdims=True)
    return np.divide(joint, evidence, out=np.full_like(joint, np.nan), where=evidence > 0)


def posterior(prior: Any, likelihood: Any) -> np.ndarray:
    """Bayes' rule: p(θ|D) = p(D|θ)·p(θ) / p(D) over k hypotheses, shape (k,).

    `prior` (k,) sums to 1. `likelihood` (k,) holds p(D|θ) for each hypothesis, or (n, k) for n observations
    that are independent given θ; computed by logarithms, so that a long row of observations does not
    underflow. Raises ValueError where the shapes differ or no hypothesis allows the data.
    """
    prior, likelihood = _probabilities(prior, "the prior"), _floating(likelihood)
    if prior.ndim != 1 or likelihood.ndim not in (1, 2) or likelihood.shape[-1] != prior.size:
        raise ValueError(
            f"the prior has shape {prior.shape} and the likelihood {likelihood.shape}: "
            "the last axis of the likelihood must run over the hypotheses of the prior"
        )
    if not np.all(likelihood >= 0):
        raise ValueError("the likelihood has an entry that is negative or NaN")
    with np.errstate(divide="ignore"):
        log_joint = np.log(prior) + np.log(likelihood).reshape(-1, prior.size).sum(axis=0)
    if np.all(np.isneginf(log_joint)):
        raise ValueError("the data have probability 0 under every hypothesis")
    weights = np.exp(log_joint - log_joint.max())
    return weights / weights.sum()


def sequence_log_probability(p: Any) -> np.ndarray:
    """log p(x_1 … x_T) = Σ_t log p(x_t | x_<t), in nats, over the last axis of p (…, T); −inf where a factor is 0."""
    p = _floating(p)
    if p.ndim == 0:
        raise ValueError("p must have a last axis of T conditional probabilities, got a scalar")
    if not np.all((p >= 0) & (p <= 1)):
        raise ValueError("every conditional probability must be between 0 and 1")
    with np.errstate(divide="ignore"):
        return np.log(p).sum(axis=-1)


# --- moments ----------------------------------------------------------------------------------------------


def _observations(x: Any, least: int) -> np.ndarray:
    """`x` as an (n, d) array with at least `least` observations, or ValueError."""
    x = _floating(x)
    if x.ndim != 2:
        raise ValueError(f"x must have 2 axes, n observations by d variables, got {x.ndim} with shape {x.shape}")
    if x.shape[0] < least:
        raise ValueError(f"axis 0 holds {x.shape[0]} observations, at least {least} are needed")
    return x


def covariance(x: Any, ddof: int = 0) -> np.ndarray:
    """Covariance matrix (d, d) of n observations of d variables, x (n, d): centred X^T X / (n − ddof).

    Symmetric and positive semidefinite. `ddof` 0 divides by n (population), 1 by n − 1 (unbiased).
    """
    x = _observations(x, ddof + 1)
    centred = x - x.mean(axis=0)
    return centred.T @ centred / (x.shape[0] - ddof)


def correlation(x: Any) -> np.ndarray:
    """Correlation matrix (d, d) of x (n, d): covariance over the product of standard deviations, between −1 and 1.

    Raises ValueError naming the column that never changes, for which it is not defined.
    """
    x = _observations(x, 2)
    constant = np.flatnonzero(np.ptp(x, axis=0) == 0)
    if constant.size:
        raise ValueError(f"column {constant[0]} of x is constant: its correlation is not defined")
    cov = covariance(x)
    std = np.sqrt(np.diag(cov))
    return np.clip(cov / std / std[:, None], -1, 1)


def principal_axes(x: Any) -> tuple[np.ndarray, np.ndarray]:
    """PCA of x (n, d): variances (d,) in falling order and the orthonormal axes as columns (d, d).

    The eigenvectors of the covariance matrix (divided by n). An axis is known up to its sign: here the entry
    of largest magnitude is positive.
    """
    variances, axes = np.linalg.eigh(covariance(x))
    variances, axes = variances[::-1], axes[:, ::-1]
    largest = np.abs(axes).argmax(axis=0)
    return np.maximum(variances, 0), axes * np.sign(axes[largest, np.arange(axes.shape[1])])


def standard_error(x: Any) -> float:
    """Estimated standard deviation of the mean of n independent observations: s / sqrt(n), with s² unbiased."""
    x = _floating(x).ravel()
    if x.size < 2:
        raise ValueError(f"{x.size} observations tell nothing of their spread, at least 2 are needed")
    return float(x.std(ddof=1) / math.sqrt(x.size))
