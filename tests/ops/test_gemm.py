"""The products against NumPy in float64, the counted memory against the traffic formula, the errors against bounds."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labsupport.ops.gemm import (
    CountedArray,
    Step,
    Traffic,
    as_tile,
    count_traffic,
    error_bound,
    matmul_naive,
    matmul_tiled,
    padded_shape,
    padding_waste,
    tile_product,
    tile_steps,
    tiled_loops,
    tolerance,
    traffic,
    unit_roundoff,
)

SIZE = st.integers(1, 7)
TILE = st.one_of(st.integers(1, 9), st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9)))
DTYPE = st.sampled_from([np.float64, np.float32, np.float16])


def operands(M, N, K, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (M, K)).astype(dtype), rng.uniform(-1, 1, (K, N)).astype(dtype)


def exact(A, B):
    return np.asarray(A, np.float64) @ np.asarray(B, np.float64)


def slack(A, B):
    """Room for the rounding of the float64 reference itself and of the final store."""
    return 1e-15 * (np.abs(exact(np.abs(A), np.abs(B))) + 1)


@settings(deadline=None)
@given(M=SIZE, N=SIZE, K=SIZE, tile=TILE, dtype=DTYPE, seed=st.integers(0, 99))
def test_tiled_is_within_the_guaranteed_bound_for_any_sizes(M, N, K, tile, dtype, seed):
    A, B = operands(M, N, K, dtype, seed)
    C = matmul_tiled(A, B, tile)
    assert C.dtype == dtype
    assert C.shape == (M, N)
    extra = -(-K // as_tile(tile).K)
    assert np.all(np.abs(C - exact(A, B)) <= error_bound(A, B, dtype, extra) + slack(A, B))


@settings(deadline=None)
@given(M=SIZE, N=SIZE, K=SIZE, dtype=DTYPE)
def test_naive_is_within_the_guaranteed_bound(M, N, K, dtype):
    A, B = operands(M, N, K, dtype)
    C = matmul_naive(A, B)
    assert C.dtype == dtype
    assert np.all(np.abs(C - exact(A, B)) <= error_bound(A, B, dtype) + slack(A, B))


@settings(deadline=None)
@given(M=SIZE, N=SIZE, K=SIZE, dtype=DTYPE)
def test_tiles_of_one_along_k_give_the_bits_of_the_naive_order(M, N, K, dtype):
    A, B = operands(M, N, K, dtype)
    np.testing.assert_array_equal(matmul_tiled(A, B, (3, 4, 1)), matmul_naive(A, B))


def test_whole_number_products_are_exact_whatever_the_tile():
    rng = np.random.default_rng(1)
    A, B = rng.integers(-9, 9, (13, 11)), rng.integers(-9, 9, (11, 7))
    for tile in (1, 2, 5, 11, 64, (4, 3, 2)):
        C = matmul_tiled(A, B, tile)
        assert C.dtype == np.float64
        np.testing.assert_array_equal(C, A @ B)


@pytest.mark.parametrize("shape", [(0, 3, 2), (3, 0, 2), (3, 2, 0)])
def test_empty_axes(shape):
    M, N, K = shape
    A, B = np.ones((M, K)), np.ones((K, N))
    np.testing.assert_array_equal(matmul_tiled(A, B, 2), np.zeros((M, N)))
    np.testing.assert_array_equal(matmul_naive(A, B), np.zeros((M, N)))


def test_layouts_do_not_matter_and_inputs_stay_as_they_are():
    A, B = operands(6, 5, 8)
    kept = A.copy(), B.copy()
    strided = np.repeat(A, 2, axis=1)[:, ::2]
    for a, b in ((np.asfortranarray(A), B), (A, np.asfortranarray(B)), (strided, B[::-1][::-1])):
        np.testing.assert_array_equal(matmul_tiled(a, b, 3), matmul_tiled(A, B, 3))
    np.testing.assert_array_equal(A, kept[0])
    np.testing.assert_array_equal(B, kept[1])


def test_wrong_shapes_name_the_axis_and_both_sizes():
    for product in (matmul_naive, lambda a, b: matmul_tiled(a, b, 2)):
        with pytest.raises(ValueError, match=r"A has 3 columns \(axis 1\) and B has 4 rows \(axis 0\)"):
            product(np.ones((2, 3)), np.ones((4, 5)))
        with pytest.raises(ValueError, match="A must have 2 axes, got 1"):
            product(np.ones(3), np.ones((3, 5)))


@pytest.mark.parametrize("tile", [0, -1, 2.0, (1, 2), (1, 2, 0), "4"])
def test_a_tile_is_positive_and_has_one_or_three_sizes(tile):
    with pytest.raises(ValueError, match=r"tile|T_"):
        matmul_tiled(np.ones((2, 2)), np.ones((2, 2)), tile)


# --- traffic


@settings(deadline=None)
@given(M=SIZE, N=SIZE, K=SIZE, tile=TILE)
def test_counted_traffic_equals_the_formula_also_at_ragged_edges(M, N, K, tile):
    A, B = operands(M, N, K)
    C, counted = count_traffic(A, B, tile)
    assert counted == traffic(M, N, K, tile)
    np.testing.assert_array_equal(C, matmul_tiled(A, B, tile))


@settings(deadline=None)
@given(M=SIZE, N=SIZE, K=SIZE)
def test_counted_naive_traffic_is_two_loads_a_multiply_add(M, N, K):
    A, B = operands(M, N, K)
    C, counted = count_traffic(A, B)
    assert counted == traffic(M, N, K, 1) == Traffic(M * N * K, M * N * K, M * N)
    np.testing.assert_array_equal(C, matmul_naive(A, B))


@settings(deadline=None)
@given(m=SIZE, n=SIZE, K=SIZE, T=SIZE)
def test_square_tiles_that_fit_divide_the_loads_by_their_side(m, n, K, T):
    M, N = m * T, n * T
    assert traffic(M, N, K, T).loads * T == 2 * M * N * K


def test_one_tile_for_everything_moves_each_matrix_once():
    assert traffic(30, 20, 10, (30, 20, 1)).total == 30 * 10 + 10 * 20 + 30 * 20
    with pytest.raises(ValueError, match="N must not be negative"):
        traffic(1, -1, 1, 1)


def test_a_counted_array_counts_every_element_and_hands_out_copies():
    memory = CountedArray(np.arange(12.0).reshape(3, 4))
    assert (memory.shape, memory.ndim, memory.dtype) == ((3, 4), 2, np.float64)
    part = memory[1:, ::2]
    part[:] = -1
    _ = memory[0, 0], memory[2], memory[5:, :]
    assert memory.loads == 4 + 1 + 4 + 0
    memory[0, 1:3] = 7
    memory[2] = 0
    assert memory.stores == 2 + 4
    np.testing.assert_array_equal(memory.read(), [[0, 7, 7, 3], [4, 5, 6, 7], [0, 0, 0, 0]])
    assert memory.loads == 9


@settings(deadline=None)
@given(M=SIZE, N=SIZE, K=SIZE, tile=TILE)
def test_tile_steps_are_the_reads_of_the_kernel_in_order(M, N, K, tile):
    log = []

    class Logged(CountedArray):
        def __getitem__(self, index):
            log.append(index)
            return super().__getitem__(index)

    A, B = operands(M, N, K)
    tiled_loops(Logged(A), Logged(B), np.zeros((M, N)), tile)
    steps = list(tile_steps(M, N, K, tile))
    assert log == [index for step in steps for index in ((step.rows, step.ks), (step.ks, step.cols))]
    covered = np.zeros((M, N, K), int)
    for step in steps:
        assert isinstance(step, Step)
        covered[step.rows, step.cols, step.ks] += 1
    assert np.all(covered == 1)


# --- padding


@settings(deadline=None)
@given(M=SIZE, N=SIZE, K=SIZE, tile=TILE)
def test_padding_with_zeros_changes_nothing_but_the_work(M, N, K, tile):
    A, B = operands(M, N, K)
    padded = padded_shape(M, N, K, tile)
    A_pad, B_pad = np.zeros((padded[0], padded[2])), np.zeros((padded[2], padded[1]))
    A_pad[:M, :K], B_pad[:K, :N] = A, B
    np.testing.assert_array_equal(matmul_tiled(A_pad, B_pad, tile)[:M, :N], matmul_tiled(A, B, tile))
    wasted = math.prod(padded) - M * N * K
    assert math.isclose(padding_waste(M, N, K, tile), wasted / math.prod(padded), abs_tol=1e-15)


def test_padding_waste_by_hand():
    assert padding_waste(128, 128, 128, 64) == 0
    assert padding_waste(129, 128, 128, 128) == pytest.approx(127 / 256)
    assert padding_waste(1, 1, 8, (16, 16, 8)) == pytest.approx(255 / 256)
    with pytest.raises(ValueError, match="positive"):
        padding_waste(0, 1, 1, 1)


# --- rounding


@pytest.mark.parametrize(("name", "bits"), [("float16", 11), ("float32", 24), ("float64", 53)])
def test_unit_roundoff(name, bits):
    assert unit_roundoff(name) == 2.0**-bits == torch.finfo(getattr(torch, name)).eps / 2


def test_the_guaranteed_bound_is_reached_by_no_order_and_is_infinite_when_k_is_too_long():
    A, B = operands(2, 2, 4096, np.float16)
    assert np.all(np.isinf(error_bound(A, B, np.float16)))
    assert np.all(np.isfinite(error_bound(A, B, np.float32)))


@pytest.mark.parametrize("K", [64, 1024, 8192])
@pytest.mark.parametrize("T_K", [1, 32, 256])
def test_correct_products_are_within_the_practical_tolerance(K, T_K):
    A, B = operands(8, 8, K, np.float32, seed=K)
    for C in (matmul_tiled(A, B, (8, 8, T_K)), A @ B, (torch.from_numpy(A) @ torch.from_numpy(B)).numpy()):
        assert np.all(np.abs(C - exact(A, B)) <= tolerance(A, B, np.float32))


@pytest.mark.parametrize("K", [64, 1024, 8192])
def test_a_dropped_tail_is_outside_the_practical_tolerance(K):
    A, B = operands(8, 8, K + 1, np.float32, seed=K)
    assert np.any(np.abs(matmul_tiled(A[:, :-1], B[:-1], 32) - exact(A, B)) > tolerance(A, B, np.float32))


def test_wide_accumulators_save_half_precision():
    A, B = (np.abs(x) for x in operands(8, 8, 4096, np.float16))
    narrow = np.abs(matmul_tiled(A, B, 64) - exact(A, B)).max()
    wide_16 = matmul_tiled(A, B, 64, accumulator=np.float32)
    wide = np.abs(wide_16 - exact(A, B)).max()
    assert wide_16.dtype == np.float16
    assert wide < narrow / 4
    assert wide <= exact(A, B).max() * unit_roundoff(np.float16) * 1.01


def test_tile_product_keeps_the_dtype():
    a, b = operands(3, 4, 5, np.float32)
    assert tile_product(a, b).dtype == np.float32
    np.testing.assert_allclose(tile_product(a, b), exact(a, b), rtol=1e-5, atol=1e-6)
