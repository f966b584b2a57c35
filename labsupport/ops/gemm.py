"""Matrix products, naive and in tiles, with a memory that counts what they load and store.

No BLAS is called: every sum is made of elementwise multiplications and additions in a stated order, so that
results have the same bits on every machine. This file must never hide an index, a rounding or a transfer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np


class Tile(NamedTuple):
    """Sizes of a tile along M, N and the reduced axis K."""

    M: int
    N: int
    K: int


class Step(NamedTuple):
    """One step of the tiled product: C[rows, cols] += A[rows, ks] @ B[ks, cols]."""

    rows: slice
    cols: slice
    ks: slice


@dataclass(frozen=True)
class Traffic:
    """Elements moved between main memory and the chip: loads of A and of B, stores of C."""

    loads_a: int
    loads_b: int
    stores: int

    @property
    def loads(self) -> int:
        """Elements loaded from A and B together."""
        return self.loads_a + self.loads_b

    @property
    def total(self) -> int:
        """Elements loaded and stored."""
        return self.loads + self.stores


class CountedArray:
    """An array in a memory that counts: `loads` and `stores` are elements read and written by indexing."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = np.asarray(array)
        self.loads = 0
        self.stores = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array; looking at it costs no traffic."""
        return self._array.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self._array.ndim

    @property
    def dtype(self) -> np.dtype:
        """Type of the elements."""
        return self._array.dtype

    def __getitem__(self, index: Any) -> np.ndarray:
        part = self._array[index]
        self.loads += part.size
        return part.copy()

    def __setitem__(self, index: Any, value: Any) -> None:
        self.stores += self._array[index].size
        self._array[index] = value

    def read(self) -> np.ndarray:
        """A copy of the contents, not counted: for looking at the result."""
        return self._array.copy()


def _operand(x: Any) -> Any:
    """Arrays and counted arrays as they are; integers and lists as float64."""
    if isinstance(x, CountedArray):
        return x
    x = np.asarray(x)
    return x if np.issubdtype(x.dtype, np.floating) else x.astype(np.float64)


def _sizes(A: Any, B: Any) -> tuple[int, int, int]:
    """(M, N, K) of the product, or ValueError naming the axis and both sizes."""
    for name, x in (("A", A), ("B", B)):
        if x.ndim != 2:
            raise ValueError(f"{name} must have 2 axes, got {x.ndim} with shape {tuple(x.shape)}")
    if A.shape[1] != B.shape[0]:
        raise ValueError(
            f"the reduced axis differs: A has {A.shape[1]} columns (axis 1) and B has {B.shape[0]} rows (axis 0)"
        )
    return A.shape[0], B.shape[1], A.shape[1]


def as_tile(tile: int | tuple[int, int, int]) -> Tile:
    """A tile given as one size or as (T_M, T_N, T_K); every size must be a positive integer."""
    sizes: tuple[Any, ...] = (tile,) * 3 if np.ndim(tile) == 0 else tuple(tile)  # type: ignore[arg-type]
    if len(sizes) != 3:
        raise ValueError(f"a tile is one size or three (T_M, T_N, T_K), got {len(sizes)}")
    for name, size in zip(("T_M", "T_N", "T_K"), sizes, strict=True):
        if not isinstance(size, int | np.integer) or size < 1:
            raise ValueError(f"{name} must be a positive integer, got {size!r}")
    return Tile(*(int(size) for size in sizes))


def naive_loops(A: Any, B: Any, C: Any) -> None:
    """Fill C (M, N) with A (M, K) @ B (K, N): one dot product after the other, one multiply-add at a time.

    Each multiply-add loads one element of A and one of B: 2·M·N·K loads in all, and M·N stores.
    """
    M, N, K = _sizes(A, B)
    for i in range(M):
        for j in range(N):
            total = C.dtype.type(0)
            for k in range(K):
                total = total + A[i, k] * B[k, j]
            C[i, j] = total


def matmul_naive(A: Any, B: Any) -> np.ndarray:
    """C (M, N) = A (M, K) @ B (K, N) by three loops, summed along K in order, in the inputs' dtype.

    Raises ValueError where the reduced axes differ. Meant for small sizes: K Python steps for each output.
    Source: section 3.2.
    """
    A, B = _operand(A), _operand(B)
    C = np.zeros((A.shape[0], B.shape[1]) if A.ndim == B.ndim == 2 else (), np.result_type(A.dtype, B.dtype))
    naive_loops(A, B, C)
    return C


def tile_steps(M: int, N: int, K: int, tile: int | tuple[int, int, int]) -> Iterator[Step]:
    """The steps of the tiled product in order, K innermost, then columns, then rows; edge tiles are cut."""
    T = as_tile(tile)
    for i in range(0, M, T.M):
        for j in range(0, N, T.N):
            for k in range(0, K, T.K):
                yield Step(slice(i, min(i + T.M, M)), slice(j, min(j + T.N, N)), slice(k, min(k + T.K, K)))


def tile_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a (t_M, t_K) @ b (t_K, t_N) as t_K outer products, added in order from zero: the work on chip."""
    partial = np.zeros((a.shape[0], b.shape[1]), np.result_type(a, b))
    for k in range(a.shape[1]):
        partial += a[:, k : k + 1] * b[k : k + 1, :]
    return partial


def tiled_loops(A: Any, B: Any, C: Any, tile: int | tuple[int, int, int], accumulator: Any = None) -> None:
    """Fill C with A @ B tile by tile: load two tiles, multiply, go along K, write the tile of C once."""
    M, N, K = _sizes(A, B)
    T = as_tile(tile)
    kind = np.dtype(accumulator or C.dtype)
    for i in range(0, M, T.M):
        for j in range(0, N, T.N):
            rows, cols = slice(i, min(i + T.M, M)), slice(j, min(j + T.N, N))
            total = np.zeros((rows.stop - i, cols.stop - j), kind)
            for k in range(0, K, T.K):
                ks = slice(k, min(k + T.K, K))
                total += tile_product(A[rows, ks].astype(kind), B[ks, cols].astype(kind))
            C[rows, cols] = total.astype(C.dtype)


def matmul_tiled(A: Any, B: Any, tile: int | tuple[int, int, int], accumulator: Any = None) -> np.ndarray:
    """C (M, N) = A (M, K) @ B (K, N) in tiles, for any M, N, K, also smaller than the tile.

    `tile` is one size or (T_M, T_N, T_K). `accumulator` is the dtype of the sums, by default that of the
    inputs; np.float32 with float16 inputs is what a tensor core does. The result has the dtype of the inputs.
    Raises ValueError where the reduced axes differ or the tile is not positive. Source: section 3.1.
    """
    A, B = _operand(A), _operand(B)
    _sizes(A, B)
    C = np.zeros((A.shape[0], B.shape[1]), np.result_type(A.dtype, B.dtype))
    tiled_loops(A, B, C, tile, accumulator)
    return C


def traffic(M: int, N: int, K: int, tile: int | tuple[int, int, int]) -> Traffic:
    """Elements that the tiled product moves: A once per column of tiles, B once per row of tiles, C once.

    loads_a = M·K·ceil(N/T_N), loads_b = K·N·ceil(M/T_M), stores = M·N. Tile 1 is the naive product, 2·M·N·K
    loads; where T divides M and N the loads are 2·M·N·K/T. Exact also at ragged edges. Source: section 3.2.
    """
    T = as_tile(tile)
    for name, size in zip(("M", "N", "K"), (M, N, K), strict=True):
        if size < 0:
            raise ValueError(f"{name} must not be negative, got {size}")
    return Traffic(M * K * -(-N // T.N), K * N * -(-M // T.M), M * N)


def count_traffic(A: Any, B: Any, tile: int | tuple[int, int, int] | None = None) -> tuple[np.ndarray, Traffic]:
    """Run the product in a memory that counts; return C and what was really moved.

    `tile` None runs the three naive loops, otherwise the tiled loops: the same code as `matmul_naive` and
    `matmul_tiled`.
    """
    A, B = CountedArray(_operand(A)), CountedArray(_operand(B))
    M, N, _ = _sizes(A, B)
    C = CountedArray(np.zeros((M, N), np.result_type(A.dtype, B.dtype)))
    if tile is None:
        naive_loops(A, B, C)
    else:
        tiled_loops(A, B, C, tile)
    if C.loads or A.stores or B.stores:
        raise AssertionError("a product reads A and B and writes C, nothing else")
    return C.read(), Traffic(A.loads, B.loads, C.stores)


def padded_shape(M: int, N: int, K: int, tile: int | tuple[int, int, int]) -> tuple[int, int, int]:
    """(M, N, K), each rounded up to a multiple of its tile size."""
    return tuple(-(-size // T) * T for size, T in zip((M, N, K), as_tile(tile), strict=True))  # type: ignore[return-value]


def padding_waste(M: int, N: int, K: int, tile: int | tuple[int, int, int]) -> float:
    """Part of the multiply-adds of a padded product that is spent on padding, 0 (none) to 1."""
    if min(M, N, K) < 1:
        raise ValueError(f"sizes must be positive, got M={M}, N={N}, K={K}")
    padded_M, padded_N, padded_K = padded_shape(M, N, K, tile)
    return 1 - (M * N * K) / (padded_M * padded_N * padded_K)


def unit_roundoff(dtype: Any) -> float:
    """Half the distance from 1 to the next number of `dtype`: the largest relative error of one rounding."""
    return float(np.finfo(dtype).eps) / 2


def error_bound(A: Any, B: Any, dtype: Any, extra: int = 0) -> np.ndarray:
    """Guaranteed bound (M, N) on |C − A @ B| for a product summed in `dtype` in any order.

    γ_K·(|A| @ |B|) with γ_n = n·u / (1 − n·u) and u the unit roundoff; `extra` counts roundings besides the K
    of a dot product. Infinite where n·u is 1 or more. Barring overflow and underflow. Source: Higham,
    Accuracy and Stability of Numerical Algorithms (2002), section 3.5.
    """
    A, B = (np.asarray(x, np.float64) for x in (A, B))
    _, _, K = _sizes(A, B)
    nu = (K + extra) * unit_roundoff(dtype)
    gamma = nu / (1 - nu) if nu < 1 else np.inf
    return gamma * (np.abs(A) @ np.abs(B))


def tolerance(A: Any, B: Any, dtype: Any, c: float = 4.0) -> np.ndarray:
    """Practical tolerance (M, N) for a product summed in `dtype`: c·sqrt(K)·u·(|A| @ |B|).

    Roundings mostly cancel like steps of a random walk, so the error of a correct kernel grows like sqrt(K),
    not K. Wide enough for any order of summation, narrow enough to catch a dropped tile. Source: Higham and
    Mary, A new approach to probabilistic rounding error analysis (2019), theorem 2.4.
    """
    A, B = (np.asarray(x, np.float64) for x in (A, B))
    _, _, K = _sizes(A, B)
    return c * np.sqrt(K) * unit_roundoff(dtype) * (np.abs(A) @ np.abs(B))
