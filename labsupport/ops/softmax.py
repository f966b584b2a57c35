"""Softmax and its family: from logits to probabilities, losses, divergences and the next token.

Every function is the book's formula in NumPy, written so that no intermediate overflows.
This file must never hide a broken input: a NaN stays a NaN, and a row that is no
distribution is never turned into one.

Common rules. ``z`` holds logits (no unit), ``p`` and ``q`` hold probabilities. Vocabulary is the last
axis unless ``axis`` says otherwise. The floating dtype of the input is kept; float16 is computed in
float32 and rounded once; integers and booleans become float64. Logarithms are natural, so results are in
nats, unless a base is named. A difference of logits beyond the dtype's range counts as infinite.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

Array = np.ndarray

__all__ = [
    "OnlineState",
    "cross_entropy",
    "entropy",
    "kl_divergence",
    "log_softmax",
    "logsumexp",
    "online_merge",
    "online_state",
    "perplexity",
    "sample",
    "softmax",
    "softmax_naive",
    "top_k",
    "top_p",
]


class OnlineState(NamedTuple):
    """What one pass over some logits has to remember: their maximum and the sum of exp(z − maximum)."""

    m: Array
    l: Array


# ---------------------------------------------------------------- logits -> probabilities


def softmax_naive(z: ArrayLike) -> Array:
    """Softmax over the last axis exactly as the definition reads, e^z / Σ e^z: it overflows.

    Kept for comparison only. z: (..., V) -> (..., V), in the input's own dtype and with no protection:
    a logit above 11.09 (float16), 88.7 (float32) or 709.8 (float64) gives inf/inf = NaN, and a row
    far below zero gives 0/0 = NaN. NumPy's warnings are silenced, because the failure is the point.
    """
    z, dtype = _floats(z, "z")
    with np.errstate(all="ignore"):
        e = np.exp(z.astype(dtype, copy=False))
        return e / e.sum(axis=-1, keepdims=True)


def softmax(z: ArrayLike, axis: int = -1, temperature: float = 1.0) -> Array:
    """Stable softmax along one axis: e^((z−m)/T) / Σ e^((z−m)/T) with m = max z.

    z: any shape with at least one axis -> the same shape; entries in [0, 1], rows sum to 1.
    An entry of −inf gets probability exactly 0. A row that is all −inf, or holds +inf or NaN,
    has no softmax and comes back all NaN (as in torch). An empty axis gives an empty result.

    Raises ValueError for a temperature that is not positive and finite, for a 0-d input and for an
    axis that does not exist; TypeError for input that is not real numbers.
    Source: section 5.2 and 5.4; Goodfellow, Bengio, Courville (2016), section 4.1.
    """
    z, dtype = _floats(z, "z")
    with np.errstate(all="ignore"):
        e = np.exp(_shifted(z, axis, temperature))
        return (e / e.sum(axis=axis, keepdims=True)).astype(dtype, copy=False)


def log_softmax(z: ArrayLike, axis: int = -1, temperature: float = 1.0) -> Array:
    """Logarithm of the softmax without forming the softmax: (z−m)/T − log Σ e^((z−m)/T).

    z: any shape with at least one axis -> the same shape, in nats, entries ≤ 0.
    Finite for every finite logit, also where softmax underflows to 0. An entry of −inf stays −inf;
    a row that is all −inf, or holds +inf or NaN, comes back all NaN. An empty axis gives an empty result.

    Raises what ``softmax`` raises. Source: section 5.3.
    """
    z, dtype = _floats(z, "z")
    with np.errstate(all="ignore"):
        d = _shifted(z, axis, temperature)
        return (d - np.log(np.exp(d).sum(axis=axis, keepdims=True))).astype(dtype, copy=False)


def logsumexp(z: ArrayLike, axis: int = -1, keepdims: bool = False) -> Array:
    """Stable logarithm of a sum of exponentials: m + log Σ e^(z−m).

    z: any shape with at least one axis -> that shape without ``axis`` (or with size 1 there), in nats.
    All −inf, or an empty axis, gives −inf: the logarithm of a sum that is 0. A +inf gives +inf, a NaN gives
    NaN.

    Raises ValueError for a 0-d input and for an axis that does not exist. Source: section 5.3;
    Blanchard, Higham and Higham (2021).
    """
    z, dtype = _floats(z, "z")
    m = np.max(z, axis=axis, keepdims=True, initial=-np.inf)
    # ±inf − ±inf would be NaN, and without a shift both limits come out right.
    m = np.where(np.isinf(m), 0, m).astype(z.dtype)
    with np.errstate(all="ignore"):
        lse = m + np.log(np.exp(z - m).sum(axis=axis, keepdims=True))
        return (lse if keepdims else np.squeeze(lse, axis=axis)).astype(dtype, copy=False)[()]


# ---------------------------------------------------------------- losses and divergences


def cross_entropy(
    logits: ArrayLike, targets: ArrayLike, ignore_index: int = -100, reduction: str = "mean"
) -> Array:
    """Negative log-likelihood of the right classes, straight from the logits: LSE(z) − z_y.

    logits: (..., V); targets: (...) integers in [0, V), or ``ignore_index`` for positions that do not count.
    reduction "mean": scalar, nats per counted target; "sum": scalar, nats; "none": (...), 0 where ignored.
    What the logits of an ignored position hold, even NaN, changes nothing. The mean over no counted target
    is NaN (0/0, as in torch). A right class with logit −inf costs +inf.

    Raises ValueError for a wrong shape, a target out of range (a negative one does not count from the end),
    an empty vocabulary or an unknown reduction; TypeError for targets that are not integers.
    Source: section 5.5.
    """
    logits, dtype = _floats(logits, "logits")
    targets, counted = _targets(targets, logits.shape, ignore_index)
    right = np.where(counted, targets, 0)[..., None]
    nll = -np.take_along_axis(log_softmax(logits), right, axis=-1)[..., 0]
    nll = np.where(counted, nll, 0)  # a choice, not a product: 0 · NaN would be NaN
    if reduction == "none":
        return nll.astype(dtype)[()]
    with np.errstate(all="ignore"):
        if reduction == "sum":
            return nll.sum().astype(dtype)
        if reduction == "mean":
            return (nll.sum() / counted.sum(dtype=nll.dtype)).astype(dtype)
    raise ValueError(f"reduction is {reduction!r}; it must be 'mean', 'sum' or 'none'")


def entropy(p: ArrayLike, base: float = np.e, axis: int = -1) -> Array:
    """Entropy −Σ p log p along one axis: nats for base e, bits for base 2.

    p: probabilities, any shape with at least one axis -> that shape without ``axis``. 0·log 0 counts as 0.
    Between 0 (one certain outcome) and log V (uniform). An empty axis gives 0; a NaN gives NaN.
    Whether a row sums to 1 is not checked.

    Raises ValueError for an entry outside [0, 1] (logits are not probabilities) and for a base
    that is not positive, finite and different from 1. Source: section 5.6; Shannon (1948).
    """
    p, dtype = _probabilities(p, "p")
    with np.errstate(all="ignore"):
        total = np.where(p == 0, 0, p * np.log(p)).sum(axis=axis)
        return ((0 - total) / _log_base(base)).astype(dtype)


def kl_divergence(p: ArrayLike, q: ArrayLike, base: float = np.e, axis: int = -1) -> Array:
    """Kullback–Leibler divergence of q from p, KL(p‖q) = Σ p log(p/q), along one axis.

    p, q: probabilities of the same shape -> that shape without ``axis``, in nats (base e) or bits (base 2).
    Where p is 0 the term is 0; where p > 0 and q = 0 the result is +inf. An empty axis gives 0, a NaN NaN.
    Never negative except by rounding. The order of the arguments matters, and it is the formula's:
    torch.nn.functional.kl_div takes log q first.

    Raises ValueError for shapes that differ, for an entry outside [0, 1] and for a bad base.
    Source: section 5.7; Kullback and Leibler (1951).
    """
    p, p_dtype = _probabilities(p, "p")
    q, q_dtype = _probabilities(q, "q")
    _same_shape("p", p.shape, "q", q.shape)
    with np.errstate(all="ignore"):
        # log p − log q, not log(p/q): the quotient may overflow where the difference of logarithms does not.
        terms = np.where(p == 0, np.where(np.isnan(q), q, 0), p * (np.log(p) - np.log(q)))
        return (terms.sum(axis=axis) / _log_base(base)).astype(np.result_type(p_dtype, q_dtype))


def perplexity(mean_nll: ArrayLike) -> Array:
    """Perplexity exp(mean NLL): the number of equally likely tokens that would be as hard to guess.

    mean_nll: nats per token, any shape, also a scalar -> the same shape, in tokens, ≥ 1.
    +inf, and a value too large for the dtype, give +inf; a NaN gives NaN.

    Raises ValueError for a negative value: the probability of a token is at most 1, so its NLL is at least 0,
    and a negative one is a log-likelihood whose sign was not turned. Source: section 5.8.
    """
    nll, dtype = _floats(mean_nll, "mean_nll", least_axes=0)
    if np.any(nll < 0):
        raise ValueError(
            f"mean_nll holds {float(nll[nll < 0].flat[0]):g}, and an NLL is never negative; "
            "turn the sign of a log-likelihood first"
        )
    with np.errstate(over="ignore"):
        return np.exp(nll).astype(dtype)


# ---------------------------------------------------------------- choosing a token


def top_k(logits: ArrayLike, k: int) -> Array:
    """Keep the k largest logits of each row and set the others to −inf.

    logits: (..., V) -> (..., V). Exactly k entries are kept; among equal logits the lower index wins.
    A row with a NaN comes back all NaN, so that the fault shows. −inf entries stay −inf even when kept.

    Raises ValueError for k outside 1..V, TypeError for a k that is not an integer. Source: section 5.9;
    Fan, Lewis and Dauphin (2018).
    """
    logits, dtype = _floats(logits, "logits")
    V = logits.shape[-1]
    if isinstance(k, bool | np.bool_) or not isinstance(k, int | np.integer):
        raise TypeError(f"k counts tokens and must be an integer, got {k!r}")
    if not 1 <= k <= V:
        raise ValueError(f"k is {k}, and axis -1 of the logits has {V} entries; k must be between 1 and {V}")
    order = np.argsort(-logits, axis=-1, kind="stable")
    keep = np.zeros(logits.shape, bool)
    np.put_along_axis(keep, order[..., :k], True, axis=-1)
    broken = np.isnan(logits).any(axis=-1, keepdims=True)
    return np.where(broken, np.nan, np.where(keep, logits, -np.inf)).astype(dtype)


def top_p(logits: ArrayLike, p: float) -> Array:
    """Keep the smallest set of most probable tokens whose probabilities sum to at least p; the rest is −inf.

    logits: (..., V) -> (..., V). The token that crosses p is kept, so at least one always is. Among equal
    probabilities the lower index comes first. p = 1 returns the logits unchanged. A row that is all −inf
    stays so; a row with +inf or NaN has no softmax and comes back all NaN.

    Raises ValueError for p outside (0, 1] and for an empty vocabulary. Source: section 5.9;
    Holtzman, Buys, Du, Forbes and Choi (2020), section 3.1.
    """
    logits, dtype = _floats(logits, "logits")
    if not 0 < p <= 1:
        raise ValueError(f"p is {p}; it is a probability mass in (0, 1]")
    if logits.shape[-1] == 0:
        raise ValueError("axis -1 of the logits has 0 entries; top-p keeps at least one token")
    probability = softmax(logits.astype(np.result_type(logits, np.float64), copy=False))
    order = np.argsort(-probability, axis=-1, kind="stable")
    before = np.cumsum(np.take_along_axis(probability, order, axis=-1), axis=-1)
    before = np.concatenate([np.zeros_like(before[..., :1]), before[..., :-1]], axis=-1)
    keep = np.zeros(logits.shape, bool)
    np.put_along_axis(keep, order, (before < p) | (p == 1), axis=-1)
    broken = (np.isnan(logits) | (logits == np.inf)).any(axis=-1, keepdims=True)
    return np.where(broken, np.nan, np.where(keep, logits, -np.inf)).astype(dtype)


def sample(logits: ArrayLike, rng: np.random.Generator, temperature: float = 1.0) -> Array:
    """Draw one token index per row from softmax(logits / temperature), by inverting the cumulative sum.

    logits: (..., V) -> (...) integers in [0, V). A token with logit −inf is never drawn.
    One uniform number of ``rng`` is used per row, so equal seeds give equal tokens.

    Raises ValueError for a row that is no distribution (all −inf, +inf, NaN or empty) and a bad temperature.
    Source: section 5.9.
    """
    logits, _ = _floats(logits, "logits")
    cumulative = softmax(logits.astype(np.float64, copy=False), temperature=temperature).cumsum(axis=-1)
    broken = ~np.isfinite(cumulative[..., -1:]).all(axis=-1) | (logits.shape[-1] == 0)
    if broken.any():
        row = tuple(int(i) for i in np.argwhere(broken)[0])
        raise ValueError(f"row {row} of the logits is no distribution (all -inf, +inf, NaN or empty)")
    u = 1.0 - rng.random(logits.shape[:-1])  # in (0, 1]: a token of probability 0 is never hit
    return (cumulative < u[..., None] * cumulative[..., -1:]).sum(axis=-1)


# ---------------------------------------------------------------- online softmax


def online_state(block: ArrayLike, axis: int = -1) -> OnlineState:
    """Maximum m and shifted sum l = Σ e^(z−m) of one block of logits.

    block: any shape with at least one axis -> m and l, each of that shape without ``axis``.
    A block that is empty or all −inf gives the empty state (−inf, 0). A +inf gives (+inf, number of +inf);
    a NaN gives (NaN, NaN). In every case m + log l is ``logsumexp(block)``.

    Raises ValueError for a 0-d input and for an axis that does not exist. Source: section 5.10;
    Milakov and Gimelshein (2018), algorithm 3.
    """
    block, dtype = _floats(block, "block")
    m = np.max(block, axis=axis, keepdims=True, initial=-np.inf)
    l = np.where(block == -np.inf, 0, _rescale(block, m)).sum(axis=axis)
    return OnlineState(np.squeeze(m, axis=axis).astype(dtype)[()], l.astype(dtype))


def online_merge(a: tuple[ArrayLike, ArrayLike], b: tuple[ArrayLike, ArrayLike]) -> OnlineState:
    """State of two blocks together: m = max(m_a, m_b), l = l_a e^(m_a−m) + l_b e^(m_b−m).

    a, b: states (m, l); the four arrays have one shape, scalars go with any. The empty state (−inf, 0) is the
    identity, and the merge is associative and commutative up to rounding: any split, any order, any tree.

    Raises ValueError for shapes that differ. Source: section 5.10; Milakov and Gimelshein (2018), theorem 1.
    """
    (m_a, l_a), (m_b, l_b) = a, b
    dtype = np.result_type(m_a, l_a, m_b, l_b)
    dtype = dtype if np.issubdtype(dtype, np.floating) else np.dtype(np.float64)
    wide = _working(dtype)
    m_a, l_a, m_b, l_b = (np.asarray(x, dtype=wide) for x in (m_a, l_a, m_b, l_b))
    for name, x in (("l_a", l_a), ("m_b", m_b), ("l_b", l_b)):
        if x.ndim and m_a.ndim:
            _same_shape("m_a", m_a.shape, name, x.shape)
    m = np.maximum(m_a, m_b)
    l = l_a * _rescale(m_a, m) + l_b * _rescale(m_b, m)
    return OnlineState(m.astype(dtype), l.astype(dtype))


# ---------------------------------------------------------------- shared steps


def _rescale(old: Array, new: Array) -> Array:
    """e^(old − new), with 1 where both are the same infinity (the difference would be NaN)."""
    with np.errstate(all="ignore"):
        return np.where(old == new, np.ones((), old.dtype), np.exp(old - new))


def _shifted(z: Array, axis: int, temperature: float) -> Array:
    """(z − max z) / T. Dividing after the shift is the same number, and a tiny T cannot overflow upwards."""
    if not 0 < temperature < np.inf:
        raise ValueError(
            f"temperature is {temperature}; it must be positive and finite. "
            "For the limit 0 use argmax, for the limit infinity a uniform draw"
        )
    d = z - np.max(z, axis=axis, keepdims=True, initial=-np.inf)
    if temperature == 1:
        return d
    return (d / np.float64(temperature)).astype(z.dtype)  # in float64: a tiny T would round to 0 in float32


def _working(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def _floats(x: ArrayLike, name: str, least_axes: int = 1) -> tuple[Array, np.dtype]:
    """The input in its working precision, and the dtype in which the result is due."""
    x = np.asarray(x)
    if x.dtype == bool or np.issubdtype(x.dtype, np.integer):
        x = x.astype(np.float64)
    if not np.issubdtype(x.dtype, np.floating):
        raise TypeError(f"{name} must hold real numbers in a NumPy floating dtype, got {x.dtype}")
    if x.ndim < least_axes:
        raise ValueError(f"{name} has no axis (shape {x.shape}); give it at least one, the vocabulary")
    return x.astype(_working(x.dtype), copy=False), x.dtype


def _probabilities(x: ArrayLike, name: str) -> tuple[Array, np.dtype]:
    x, dtype = _floats(x, name)
    outside = (x < 0) | (x > 1 + 16 * float(np.finfo(dtype).eps))
    if outside.any():
        raise ValueError(
            f"{name} holds {float(x[outside][0]):g}, outside [0, 1]; "
            "it must hold probabilities, so pass logits through softmax first"
        )
    return x, dtype


def _log_base(base: float) -> float:
    if not 0 < base < np.inf or base == 1:
        raise ValueError(f"base is {base}; it must be positive, finite and not 1 (e for nats, 2 for bits)")
    return float(np.log(base))


def _same_shape(a: str, a_shape: tuple[int, ...], b: str, b_shape: tuple[int, ...]) -> None:
    if len(a_shape) != len(b_shape):
        raise ValueError(f"{a} has {len(a_shape)} axes {a_shape} and {b} has {len(b_shape)} {b_shape}")
    for axis, (m, n) in enumerate(zip(a_shape, b_shape, strict=True)):
        if m != n:
            raise ValueError(f"axis {axis} of {a} has size {m} and axis {axis} of {b} has size {n}")


def _targets(targets: Any, logits_shape: tuple[int, ...], ignore_index: int) -> tuple[Array, Array]:
    """Checked integer targets, and a mask of those that count."""
    targets = np.asarray(targets)
    if targets.size == 0 and targets.dtype == np.float64:
        targets = targets.astype(np.int64)  # [] carries no dtype of its own
    if not np.issubdtype(targets.dtype, np.integer):
        raise TypeError(f"targets must be integer class indices, got {targets.dtype}")
    _same_shape("logits without its last axis", logits_shape[:-1], "targets", targets.shape)
    V = logits_shape[-1]
    if V == 0:
        raise ValueError("axis -1 of the logits has 0 entries; a target needs a class to point to")
    counted = targets != ignore_index
    wrong = counted & ((targets < 0) | (targets >= V))
    if wrong.any():
        first = int(targets[wrong].flat[0])
        raise ValueError(f"target {first} is not a class: axis -1 of the logits has {V} entries")
    return targets, counted
