"""Linear algebra behind the book: norms and errors, the order of a chain of products, low rank, LoRA.

Arrays in, arrays out; the floating dtype of the input is kept and integers become float64. These are
references to be read and compared against; they must never trade clarity for speed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Order = int | tuple["Order", "Order"]


def _floating(*arrays: ArrayLike) -> list[NDArray[Any]]:
    """The inputs as arrays of one floating dtype: their common one, float64 when all are integers."""
    found = [np.asarray(array) for array in arrays]
    dtype = np.result_type(*found)
    if not np.issubdtype(dtype, np.floating):
        dtype = np.result_type(dtype, np.float64)
    return [array.astype(dtype, copy=False) for array in found]


def _matrix(A: ArrayLike, name: str = "A") -> NDArray[Any]:
    (array,) = _floating(A)
    if array.ndim != 2:
        raise ValueError(f"{name} must be a matrix with 2 axes, got shape {array.shape}")
    return array


def _length(x: NDArray[Any]) -> NDArray[Any]:
    """L2 norm over the last axis, kept as size 1; scaled by the largest entry so that squares stay finite."""
    scale = np.max(np.abs(x), axis=-1, keepdims=True, initial=0)
    safe = np.where((scale == 0) | ~np.isfinite(scale), np.ones_like(scale), scale)
    return safe * np.sqrt(np.sum((x / safe) ** 2, axis=-1, keepdims=True))


def norm(x: ArrayLike, ord: float | str = 2) -> np.floating[Any]:
    """Size of a vector (n,) or matrix (m, n), as one number in the unit of the entries.

    Vector: ``1`` sum of |x_i|, ``2`` square root of the sum of squares, ``inf`` largest |x_i|.
    Matrix: ``"fro"`` the 2-norm of all entries; ``2`` the largest singular value; ``1`` and ``inf`` the
    largest column sum and row sum of |A_ij|.

    Raises ValueError for another ord or number of axes. Source: section 2.5; Golub and Van Loan, section 2.3.
    """
    (array,) = _floating(x)
    magnitude = np.abs(array)
    if array.ndim == 1:
        if ord == 1:
            return magnitude.sum()
        if ord == 2:
            return _length(array)[0]
        if ord == np.inf:
            return magnitude.max(initial=0)
    elif array.ndim == 2:
        if ord == "fro":
            return _length(array.ravel())[0]
        if ord == 2:
            return np.linalg.svd(array, compute_uv=False)[0]
        if ord == 1:
            return magnitude.sum(axis=0).max(initial=0)
        if ord == np.inf:
            return magnitude.sum(axis=1).max(initial=0)
    raise ValueError(
        f"no norm {ord!r} for shape {array.shape}: a vector has 1, 2 and inf, a matrix 1, 2, inf and 'fro'"
    )


def cosine_similarity(x: ArrayLike, y: ArrayLike, eps: float = 1e-8) -> Any:
    """Cosine of the angle between x and y over the last axis: x, y: (…, n) → (…), between -1 and 1.

    Each vector is divided by max(its norm, eps), so a vector of zeros gives 0 instead of 0/0, and the squares
    of large entries do not overflow. Leading axes broadcast.

    Raises ValueError when the last axes differ. Source: section 2.4; same formula as torch's.
    """
    a, b = _floating(x, y)
    if a.ndim == 0 or b.ndim == 0 or a.shape[-1] != b.shape[-1]:
        raise ValueError(f"last axes must be equal: x has shape {a.shape}, y has shape {b.shape}")
    limit = np.asarray(eps, dtype=a.dtype)
    return np.sum(a / np.maximum(_length(a), limit) * (b / np.maximum(_length(b), limit)), axis=-1)


class Error(NamedTuple):
    """Largest deviation over all entries: absolute, relative to the reference, in units in the last place."""

    abs: float
    rel: float
    ulp: float

    def __repr__(self) -> str:
        return f"Error(abs={self.abs:.3g}, rel={self.rel:.3g}, ulp={self.ulp:.3g})"


def error(actual: ArrayLike, reference: ArrayLike) -> Error:
    """Compare ``actual`` with a more exact ``reference`` of the same shape: (largest abs, rel, ulp error).

    rel is |a - b| / |b|: infinite where b is 0 and a is not. One ulp is the distance from |b|, rounded to the
    dtype of ``actual``, to the next larger number of that dtype. Equal entries, infinities included, count
    as 0; a NaN on one side only gives NaN, on both sides 0. No entries: all three are 0.

    Raises ValueError when the shapes differ: nothing is broadcast. Source: section 2.5.
    """
    (a,), (b,) = _floating(actual), _floating(reference)
    if a.shape != b.shape:
        raise ValueError(f"shapes must be equal: actual has {a.shape}, reference has {b.shape}")
    wide = np.result_type(a, b, np.float64)
    with np.errstate(all="ignore"):
        unit = np.spacing(np.abs(b).astype(a.dtype)).astype(wide)
        a, b = a.astype(wide), b.astype(wide)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        difference = np.where(same, 0, np.abs(a - b))
        relative = np.where(same, 0, difference / np.abs(b))
        ulps = np.where(same, 0, difference / unit)
    return Error(*(float(np.max(part, initial=0)) for part in (difference, relative, ulps)))


@dataclass(frozen=True)
class Chain:
    """How to multiply a chain of matrices: nested pairs of positions, and what that costs in FLOPs."""

    flops: int
    order: Order

    def __str__(self) -> str:
        return f"{chain_text(self.order)}: {self.flops:,} FLOPs"


def chain_text(order: Order) -> str:
    """Write an order with letters: ((0, 1), 2) → '(AB)C'."""
    if isinstance(order, int):
        return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[order] if order < 26 else f"M{order}"
    return "".join(f"({chain_text(part)})" if isinstance(part, tuple) else chain_text(part) for part in order)


def _chain_sizes(shapes: Sequence[tuple[int, int]]) -> list[int]:
    """The sizes p_0, …, p_n of a chain of matrices (p_0, p_1), (p_1, p_2), …"""
    if not shapes:
        raise ValueError("a chain needs at least one matrix shape")
    for position, shape in enumerate(shapes):
        if len(shape) != 2:
            raise ValueError(f"matrix {position} has shape {tuple(shape)}; a chain is made of 2-axis shapes")
    for position, (left, right) in enumerate(pairwise(shapes)):
        if left[1] != right[0]:
            raise ValueError(
                f"axis 1 of matrix {position} has size {left[1]}, axis 0 of matrix {position + 1} has size "
                f"{right[0]}; neighbours must agree"
            )
    return [shapes[0][0], *(shape[1] for shape in shapes)]


def chain_flops(shapes: Sequence[tuple[int, int]], order: Order) -> int:
    """FLOPs of multiplying the chain in the given order; (m, k) @ (k, n) costs 2·m·k·n.

    ``order`` is made of nested pairs of positions, e.g. ((0, 1), 2) for (AB)C, and uses 0 … n-1 once each,
    from left to right. Raises ValueError otherwise. Source: section 2.6.
    """
    size = _chain_sizes(shapes)

    def walk(part: Order, start: int) -> tuple[int, int]:
        """(FLOPs, first position after this part)."""
        if isinstance(part, tuple):
            left_flops, middle = walk(part[0], start)
            right_flops, stop = walk(part[1], middle)
            return left_flops + right_flops + 2 * size[start] * size[middle] * size[stop], stop
        if part != start or start >= len(shapes):
            last = len(shapes) - 1
            raise ValueError(f"order {order} must use positions 0 to {last} once each, left to right")
        return 0, start + 1

    flops, used = walk(order, 0)
    if used != len(shapes):
        raise ValueError(f"order {order} uses {used} of {len(shapes)} matrices")
    return flops


def chain_order(shapes: Sequence[tuple[int, int]]) -> Chain:
    """The cheapest order of multiplying a chain of matrices, by dynamic programming.

    The best order of matrices i … j splits somewhere into two best orders: best[i, j] is the smallest
    best[i, s] + best[s+1, j] + 2·p_i·p_{s+1}·p_{j+1}. Takes O(n³) steps where trying all orders takes
    exponentially many. Among equally cheap orders the leftmost split wins.

    Raises ValueError for neighbours that do not fit. Source: Cormen et al., Introduction to Algorithms,
    section on matrix-chain multiplication; section 2.6.
    """
    size = _chain_sizes(shapes)
    best: dict[tuple[int, int], Chain] = {(i, i): Chain(0, i) for i in range(len(shapes))}
    for length in range(2, len(shapes) + 1):
        for first in range(len(shapes) - length + 1):
            last = first + length - 1
            candidates = []
            for s in range(first, last):  # matrices first … s on the left, s+1 … last on the right
                left, right = best[first, s], best[s + 1, last]
                product = 2 * size[first] * size[s + 1] * size[last + 1]
                candidates.append(Chain(left.flops + right.flops + product, (left.order, right.order)))
            best[first, last] = min(candidates, key=lambda chain: chain.flops)
    return best[0, len(shapes) - 1]


def _rank(k: int, shape: tuple[int, ...]) -> int:
    if not 0 <= k <= min(shape):
        raise ValueError(f"rank k={k} is outside 0 … {min(shape)} for a matrix of shape {shape}")
    return int(k)


def low_rank_factors(A: ArrayLike, k: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """B: (m, k) and C: (k, n) whose product is the best rank-k approximation of A: (m, n).

    B holds the first k left singular vectors scaled by the singular values, C the right ones: k(m + n)
    numbers instead of m·n. Raises ValueError for k outside 0 … min(m, n). Source: sections 2.10 and 2.12.
    """
    matrix = _matrix(A)
    k = _rank(k, matrix.shape)
    U, sigma, Vt = np.linalg.svd(matrix, full_matrices=False)
    return U[:, :k] * sigma[:k], Vt[:k]


def low_rank(A: ArrayLike, k: int) -> NDArray[Any]:
    """Best approximation of A: (m, n) by a matrix of rank at most k, in the 2- and the Frobenius norm.

    Its error is sigma_{k+1} in the 2-norm and sqrt(sum of sigma_i² over i > k) in the Frobenius norm.
    Raises ValueError for k outside 0 … min(m, n). Source: Eckart and Young (1936); section 2.12.
    """
    B, C = low_rank_factors(A, k)
    return B @ C


def randomized_svd(
    A: ArrayLike, k: int, rng: np.random.Generator, oversample: int = 8, passes: int = 2
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The k largest singular triples of A: (m, n), approximately: U (m, k), sigma (k,), Vt (k, n).

    A random matrix of k + oversample columns is pushed through A; an orthonormal basis Q of the result nearly
    spans the leading left singular vectors, and the SVD of the small matrix Qᵀ A gives the rest. Each pass
    multiplies by A Aᵀ once more, which sharpens the gap between kept and dropped singular values.
    Costs O(m·n·k) FLOPs instead of O(m·n·min(m, n)). The signs of U and Vt are not fixed.

    Raises ValueError for k outside 0 … min(m, n). Source: Halko, Martinsson and Tropp (2011), algorithms 4.4
    and 5.1; section 2.12.
    """
    matrix = _matrix(A)
    k = _rank(k, matrix.shape)
    columns = min(k + oversample, *matrix.shape)
    start = rng.standard_normal((matrix.shape[1], columns)).astype(matrix.dtype)
    Q, _ = np.linalg.qr(matrix @ start)
    for _ in range(passes):
        Z, _ = np.linalg.qr(matrix.T @ Q)
        Q, _ = np.linalg.qr(matrix @ Z)
    U, sigma, Vt = np.linalg.svd(Q.T @ matrix, full_matrices=False)
    return (Q @ U)[:, :k], sigma[:k], Vt[:k]


def power_iteration(A: ArrayLike, steps: int, rng: np.random.Generator) -> tuple[np.floating[Any], NDArray[Any]]:
    """The eigenvalue of largest magnitude of A: (n, n) and its eigenvector (n,) of length 1, approximately.

    Multiply by A, scale to length 1, repeat: the component with the largest |eigenvalue| outgrows the rest,
    and the error of v falls by the factor |second / first| a step. It converges only if one eigenvalue is
    larger in magnitude than all others; the value returned is vᵀ A v.

    Raises ValueError when A is not square or has no entry, and when steps is negative. Source: Golub and
    Van Loan, section 7.3; section 2.11.
    """
    matrix = _matrix(A)
    rows, columns = matrix.shape
    if rows != columns or rows == 0:
        raise ValueError(f"A must be square and not empty: axis 0 has size {rows}, axis 1 has size {columns}")
    if steps < 0:
        raise ValueError(f"steps must not be negative, got {steps}")
    v = rng.standard_normal((rows,)).astype(matrix.dtype)
    v /= np.linalg.norm(v)
    for _ in range(steps):
        image = matrix @ v
        length = norm(image)
        if length == 0:  # v lies in the null space: an eigenvector with eigenvalue 0
            break
        v = image / length
    return v @ matrix @ v, v


def condition_number(A: ArrayLike) -> float:
    """Largest singular value over the smallest: how much A: (m, n) can magnify a relative error of the input.

    1 for an orthogonal matrix; infinite when the rank is less than min(m, n), up to rounding (a
    smallest singular value of exactly 0). Raises ValueError when A is not a matrix or is empty.
    Source: section 2.9.
    """
    matrix = _matrix(A)
    if matrix.size == 0:
        raise ValueError(f"an empty matrix of shape {matrix.shape} has no condition number")
    sigma = np.linalg.svd(matrix, compute_uv=False)
    return float("inf") if sigma[-1] == 0 else float(sigma[0] / sigma[-1])


def lu_factor(A: ArrayLike) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Gaussian elimination with partial pivoting of A: (n, n) → packed factors (n, n) and row order (n,).

    ``A[order] = L @ U``: L has ones on its diagonal and its other entries lie below the diagonal of the packed
    matrix, U on and above it. Written with elementwise operations only, so that its bits are the same on every
    CPU. Raises ValueError when A is not square, and naming the column in which no pivot is left.
    Source: Golub and Van Loan, section 3.4; section 2.9.
    """
    packed = _matrix(A).copy()
    n = packed.shape[0]
    if packed.shape[1] != n:
        raise ValueError(f"A must be square: axis 0 has size {n}, axis 1 has size {packed.shape[1]}")
    order = np.arange(n)
    for k in range(n):
        pivot = k + int(np.argmax(np.abs(packed[k:, k])))
        if packed[pivot, k] == 0:
            raise ValueError(f"A is singular: column {k} has no pivot left")
        packed[[k, pivot]], order[[k, pivot]] = packed[[pivot, k]], order[[pivot, k]]
        packed[k + 1 :, k] /= packed[k, k]
        packed[k + 1 :, k + 1 :] -= packed[k + 1 :, k, None] * packed[k, None, k + 1 :]
    return packed, order


def lu_solve(packed: NDArray[Any], order: NDArray[np.intp], b: ArrayLike) -> NDArray[Any]:
    """Solve A x = b from the factors of `lu_factor`; b: (n,) or (n, columns), x has its shape.

    Forward substitution with L, then backward substitution with U: 2n² - n FLOPs a column.
    Raises ValueError when axis 0 of b is not n. Source: Golub and Van Loan, section 3.1; section 2.9.
    """
    n = len(order)
    (right,) = _floating(b)
    if right.ndim not in (1, 2) or right.shape[0] != n:
        raise ValueError(f"axis 0 of b {right.shape} must have size {n}, as A has")
    x = right[order].astype(np.result_type(packed, right))
    for k in range(n):
        x[k + 1 :] -= np.multiply.outer(packed[k + 1 :, k], x[k])
    for k in reversed(range(n)):
        x[k] /= packed[k, k]
        x[:k] -= np.multiply.outer(packed[:k, k], x[k])
    return x


def solve_flops(n: int, columns: int = 1) -> int:
    """FLOPs of solving A X = B by LU, A: (n, n), B: (n, columns): about 2n³/3 + 2n² columns.

    Counts the multiplications, divisions and subtractions of `lu_factor` and `lu_solve`. With ``columns=n``
    and B = I this is the cost of an explicit inverse. Source: section 2.9.
    """
    if n < 0 or columns < 0:
        raise ValueError(f"sizes must not be negative, got n={n}, columns={columns}")
    factor = sum(below + 2 * below**2 for below in range(n))
    return factor + columns * (2 * n * n - n)


def _lora(W: ArrayLike, A: ArrayLike, B: ArrayLike) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Check W: (d_out, d_in), A: (r, d_in), B: (d_out, r) against each other."""
    base, down, up = _matrix(W, "W"), _matrix(A, "A"), _matrix(B, "B")
    for what, left, right in (
        ("d_in: axis 1 of W and axis 1 of A", base.shape[1], down.shape[1]),
        ("d_out: axis 0 of W and axis 0 of B", base.shape[0], up.shape[0]),
        ("r: axis 0 of A and axis 1 of B", down.shape[0], up.shape[1]),
    ):
        if left != right:
            raise ValueError(f"{what} must agree, got {left} and {right}")
    if down.shape[0] == 0:
        raise ValueError("r: axis 0 of A has size 0; the scale alpha / r needs at least rank 1")
    return base, down, up


def lora_forward(x: ArrayLike, W: ArrayLike, A: ArrayLike, B: ArrayLike, alpha: float) -> NDArray[Any]:
    """A linear layer with a LoRA adapter beside it: x Wᵀ + (alpha / r) (x Aᵀ) Bᵀ, (…, d_in) → (…, d_out).

    W: (d_out, d_in) frozen, A: (r, d_in) and B: (d_out, r) trained: the layout of the paper and of
    ``torch.nn.Linear``. The narrow product comes first, so the adapter costs 2·r·(d_in + d_out) FLOPs a
    row. With B = 0 the result is that of the base layer.

    Raises ValueError naming the axis that does not fit. Source: Hu et al. (2021), section 4.1; section 2.13.
    """
    base, down, up = _lora(W, A, B)
    x, base, down, up = _floating(x, base, down, up)
    if x.ndim == 0 or x.shape[-1] != base.shape[1]:
        raise ValueError(f"d_in: the last axis of x {x.shape} must have size {base.shape[1]}, as axis 1 of W")
    scale = x.dtype.type(alpha / down.shape[0])
    return x @ base.T + scale * ((x @ down.T) @ up.T)


def lora_merge(W: ArrayLike, A: ArrayLike, B: ArrayLike, alpha: float) -> NDArray[Any]:
    """The adapter folded into the weight: W + (alpha / r) B A, (d_out, d_in). One GEMM, then no extra cost.

    W: (d_out, d_in), A: (r, d_in), B: (d_out, r). Raises ValueError naming the axis that does not fit.
    Source: Hu et al. (2021), section 4.1; section 2.13.
    """
    base, down, up = _floating(*_lora(W, A, B))
    return base + base.dtype.type(alpha / down.shape[0]) * (up @ down)
