"""Sums and variances whose rounding can be watched: the same total by several algorithms.

Each function accumulates in the dtype of its input (or in a ``FloatFormat`` that rounds after
every operation), along the last axis, in the order that its name says. It must never use a
wider accumulator in secret: the error is the subject.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labsupport.ops.floats import FloatFormat

__all__ = [
    "Welford",
    "error_bound",
    "matmul_accumulated",
    "sum_kahan",
    "sum_neumaier",
    "sum_pairwise",
    "sum_serial",
    "variance_merged",
    "variance_naive",
    "variance_two_pass",
]

Array = npt.NDArray[Any]


def _floating(x: npt.ArrayLike) -> Array:
    """The input as a floating array with at least one axis; integers become float64."""
    array = np.asarray(x)
    if array.ndim == 0:
        raise ValueError("x has no axis to reduce; give an array of shape (..., n)")
    if array.dtype.kind in "iub":
        return array.astype(np.float64)
    if array.dtype.kind != "f":
        raise TypeError(f"x has dtype {array.dtype}; these reductions take real numbers")
    return array


def _rounded(value: Array, fmt: FloatFormat | None) -> Array:
    """The value as an operation in the format would have left it; unchanged without a format."""
    return value if fmt is None else np.asarray(fmt.round(value)).astype(value.dtype)


def _prepared(x: npt.ArrayLike, fmt: FloatFormat | None) -> Array:
    array = _floating(x)
    # float64 holds every value of the formats, and rounding a float64 sum once more to so few
    # bits gives the correctly rounded sum (24 bits need 50; float64 has 53).
    return array if fmt is None else np.asarray(fmt.round(array.astype(np.float64)))


def sum_serial(x: npt.ArrayLike, fmt: FloatFormat | None = None) -> Any:
    """Sum along the last axis from left to right, one addition after the other.

    Args:
        x: (..., n). n = 0 gives 0.
        fmt: round the inputs and every partial sum to this format (the result is float64).

    Returns:
        (...), in the dtype of ``x``. Error at most (n - 1)·u·Σ|x| to first order, u = eps/2.

    Source: Higham, "Accuracy and Stability of Numerical Algorithms", section 4.2.
    """
    array = _prepared(x, fmt)
    total = np.zeros(array.shape[:-1], array.dtype)
    for k in range(array.shape[-1]):
        total = _rounded(total + array[..., k], fmt)
    return total[()]


def sum_pairwise(x: npt.ArrayLike, fmt: FloatFormat | None = None) -> Any:
    """Sum along the last axis as a balanced tree: halves first, then their sums.

    Args:
        x: (..., n). n = 0 gives 0.
        fmt: round the inputs and every partial sum to this format (the result is float64).

    Returns:
        (...), in the dtype of ``x``. Error at most ⌈log2 n⌉·u·Σ|x| to first order.

    Source: Higham, section 4.1.
    """
    level = _prepared(x, fmt)
    while level.shape[-1] > 1:
        even = level.shape[-1] // 2 * 2
        paired = _rounded(level[..., 0:even:2] + level[..., 1:even:2], fmt)
        level = np.concatenate([paired, level[..., even:]], axis=-1)
    return (level[..., 0] if level.shape[-1] else np.zeros(level.shape[:-1], level.dtype))[()]


def sum_kahan(x: npt.ArrayLike, fmt: FloatFormat | None = None) -> Any:
    """Compensated sum along the last axis: the rounding error of each addition is carried along.

    Args:
        x: (..., n). n = 0 gives 0.
        fmt: round the inputs and every operation to this format (the result is float64).

    Returns:
        (...), in the dtype of ``x``. Error at most 2·u·Σ|x| to first order, whatever n is; but a
        term much larger than the running sum loses the compensation (see ``sum_neumaier``).

    Source: Kahan (1965); Higham, section 4.3.
    """
    array = _prepared(x, fmt)
    total = np.zeros(array.shape[:-1], array.dtype)
    compensation = np.zeros_like(total)
    for k in range(array.shape[-1]):
        y = _rounded(array[..., k] - compensation, fmt)
        t = _rounded(total + y, fmt)
        compensation = _rounded(_rounded(t - total, fmt) - y, fmt)
        total = t
    return total[()]


def sum_neumaier(x: npt.ArrayLike, fmt: FloatFormat | None = None) -> Any:
    """Kahan's sum, also right when a term is larger than the running sum.

    Args:
        x: (..., n). n = 0 gives 0.
        fmt: round the inputs and every operation to this format (the result is float64).

    Returns:
        (...), in the dtype of ``x``; [1, 1e100, 1, -1e100] gives 2 in float64, Kahan's gives 0.

    Source: Neumaier (1974), "Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen".
    """
    array = _prepared(x, fmt)
    total = np.zeros(array.shape[:-1], array.dtype)
    compensation = np.zeros_like(total)
    for k in range(array.shape[-1]):
        term = array[..., k]
        t = _rounded(total + term, fmt)
        large = np.where(np.abs(total) >= np.abs(term), total, term)
        small = np.where(np.abs(total) >= np.abs(term), term, total)
        compensation = _rounded(compensation + _rounded(_rounded(large - t, fmt) + small, fmt), fmt)
        total = t
    return _rounded(total + compensation, fmt)[()]


def variance_naive(x: npt.ArrayLike) -> Any:
    """Population variance as E[x²] − E[x]²: one pass, and wrong when the mean is large.

    Args:
        x: (..., n), n ≥ 1.

    Returns:
        (...), in the dtype of ``x``; may be negative through cancellation, which is its lesson.

    Raises:
        ValueError: n = 0.

    Source: Chan, Golub and LeVeque (1983), "Algorithms for computing the sample variance".
    """
    array = _nonempty(x)
    n = array.dtype.type(array.shape[-1])
    mean = sum_serial(array) / n
    return sum_serial(array * array) / n - mean * mean


def variance_two_pass(x: npt.ArrayLike) -> Any:
    """Population variance as the mean of (x − mean)²: reads the data twice.

    Args:
        x: (..., n), n ≥ 1.

    Returns:
        (...), in the dtype of ``x``, never negative.

    Raises:
        ValueError: n = 0.

    Source: Chan, Golub and LeVeque (1983).
    """
    array = _nonempty(x)
    n = array.dtype.type(array.shape[-1])
    centred = array - np.asarray(sum_serial(array) / n)[..., None]
    return sum_serial(centred * centred) / n


def _nonempty(x: npt.ArrayLike) -> Array:
    array = _floating(x)
    if array.shape[-1] == 0:
        raise ValueError(f"x has shape {array.shape}: the variance of no numbers is not defined")
    return array


@dataclass
class Welford:
    """Running mean and variance in one pass, as a state (n, mean, M2) that merges.

    Args:
        n: how many numbers were seen.
        mean: their mean.
        M2: Σ (x − mean)².

    Source: Welford (1962); the merge is Chan, Golub and LeVeque (1979).
    """

    n: int = 0
    mean: Any = 0.0
    M2: Any = 0.0

    @property
    def variance(self) -> Any:
        """Population variance M2 / n; NaN for an empty state."""
        return self.M2 / self.n if self.n else float("nan")

    def push(self, x: Any) -> None:
        """Take in one more number (or one more array of a fixed shape)."""
        self.n += 1
        delta = x - self.mean
        self.mean = self.mean + delta / self.n
        self.M2 = self.M2 + delta * (x - self.mean)

    def merge(self, other: "Welford") -> "Welford":
        """The state of both sets of numbers together; an empty state changes nothing."""
        if other.n == 0:
            return Welford(self.n, self.mean, self.M2)
        if self.n == 0:
            return Welford(other.n, other.mean, other.M2)
        n = self.n + other.n
        delta = other.mean - self.mean
        mean = self.mean + delta * (other.n / n)
        return Welford(n, mean, self.M2 + other.M2 + delta * delta * (self.n * other.n / n))


def error_bound(algorithm: str, n: int, u: float) -> float:
    """How large |computed − exact| may be, as a multiple of Σ|x|, for a sum of n numbers.

    Args:
        algorithm: "serial", "pairwise", "kahan" or "neumaier".
        n: how many numbers, 1 or more.
        u: half the format's eps, the largest relative error of one rounding.

    Returns:
        serial (n − 1)·u, for every n (Rump, 2012); pairwise h·u/(1 − h·u) with h = ⌈log2 n⌉ (Higham, 4.6);
        Kahan 2u + 4n·u² (Higham, 4.8, where the second term is O(n·u²): read it for n·u < 0.1); Neumaier
        u + γ² with γ = (n − 1)u/(1 − (n − 1)u) (Ogita, Rump and Oishi, 2005, proposition 4.5). Infinity where
        the analysis ends, that is where h·u or (n − 1)·u reaches 1.

    Raises:
        ValueError: an unknown algorithm, or n below 1.
    """
    if n < 1:
        raise ValueError(f"n is {n}; a sum has at least 1 term here")
    if algorithm == "serial":
        return (n - 1) * u
    if algorithm == "pairwise":
        return _gamma((n - 1).bit_length(), u)
    if algorithm == "kahan":
        return 2 * u + 4 * n * u * u if n * u < 1 else math.inf
    if algorithm == "neumaier":
        return u + _gamma(n - 1, u) ** 2
    raise ValueError(f"no bound for {algorithm!r}; there is serial, pairwise, kahan and neumaier")


def _gamma(k: int, u: float) -> float:
    """Higham's γ_k = k·u/(1 − k·u): the relative error of k roundings in a row."""
    return k * u / (1 - k * u) if k * u < 1 else math.inf


def variance_merged(x: npt.ArrayLike, blocks: int) -> Any:
    """Population variance from blocks that are read on their own and merged as a tree, in the dtype of ``x``.

    Args:
        x: (n,), n ≥ 1.
        blocks: number of blocks, 1 or more; their sizes differ by at most one, and some may be empty.

    Returns:
        a scalar in the dtype of ``x``, never negative.

    Raises:
        ValueError: x is not a vector, n = 0 or no block.

    Source: Chan, Golub and LeVeque (1979).
    """
    array = _nonempty(x)
    if array.ndim != 1 or blocks < 1:
        raise ValueError(f"x has shape {array.shape}, cut into {blocks} blocks; a vector and 1 block or more are due")
    zero = array.dtype.type(0)
    states = []
    for part in np.array_split(array, blocks):
        state = Welford(0, zero, zero)
        for value in part:
            state.push(value)
        states.append(state)
    while len(states) > 1:
        last = states[len(states) // 2 * 2 :]
        states = [a.merge(b) for a, b in zip(states[0::2], states[1::2], strict=False)] + last
    return array.dtype.type(states[0].variance)


def matmul_accumulated(A: npt.ArrayLike, B: npt.ArrayLike, inputs: FloatFormat, accumulator: FloatFormat) -> Array:
    """Matrix product with inputs in one format and the running sum in another, k after k.

    Products are exact, as in a matrix unit; every addition is rounded to the accumulator's format.

    Args:
        A: (M, K).
        B: (K, N).
        inputs: format that A and B are rounded to first.
        accumulator: format of the running sum.

    Returns:
        (M, N) as float64, with values of the accumulator's format.

    Raises:
        ValueError: the shapes do not fit.
    """
    left, right = (np.asarray(inputs.round(np.asarray(value, np.float64))) for value in (A, B))
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
        raise ValueError(f"A has shape {left.shape} and B {right.shape}: axis 1 of A and axis 0 of B must be equal")
    total = np.zeros((left.shape[0], right.shape[1]))
    for k in range(left.shape[1]):
        total = np.asarray(accumulator.round(total + left[:, k, None] * right[k]))
    return total
