"""The ladder: each kernel right at ragged sizes and in any order, its counters equal to the formula."""

import numpy as np
import pytest

from labsupport.cuda.kernels import ladder
from labsupport.cuda.simt import launch
from labsupport.ops.normalization import layer_norm
from labsupport.ops.softmax import softmax

SEEDS = [None, 1]


def floats(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def blocks(n, size):
    return -(-n // size)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("n", [1, 128, 300])
def test_sums_and_addition(n, seed):
    x = floats(n)
    for kernel in (ladder.reduce_tree, ladder.reduce_shuffle):
        partial = np.zeros(blocks(n, ladder.THREADS), np.float32)
        report = launch(kernel, partial.size, ladder.THREADS, x, partial, seed=seed)
        assert partial.sum() == pytest.approx(x.astype(float).sum(), rel=1e-5, abs=1e-5)
        assert report.float64_lines == ()
    c = np.zeros(n, np.float32)
    launch(ladder.vector_add, blocks(n, 64), 64, x, x, c, seed=seed)
    np.testing.assert_array_equal(c, x + x)


def test_shuffles_need_one_barrier_where_the_tree_needs_eight():
    x, partial = floats(128), np.zeros(1, np.float32)
    assert launch(ladder.reduce_tree, 1, 128, x, partial).barriers == 1 + 7
    assert launch(ladder.reduce_shuffle, 1, 128, x, partial).barriers == 1


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", [(32, 32), (33, 40), (5, 70)])
@pytest.mark.parametrize("name", ["transpose_naive", "transpose_shared", "transpose_padded"])
def test_transposition(name, shape, seed):
    A = floats(*shape)
    B = np.zeros(shape[::-1], np.float32)
    launch(getattr(ladder, name), (blocks(shape[1], 32), blocks(shape[0], 32)), (32, 32), A, B, seed=seed)
    np.testing.assert_array_equal(B, A.T)


def test_what_transposition_costs():
    A, B = floats(64, 64), np.zeros((64, 64), np.float32)

    def report(kernel):
        return launch(kernel, (2, 2), (32, 32), A, B)

    naive, shared, padded = map(report, (ladder.transpose_naive, ladder.transpose_shared, ladder.transpose_padded))
    assert per_request(naive, "sectors", "global", "store") == 32
    for tiled, passes in ((shared, 32), (padded, 1)):
        assert per_request(tiled, "sectors", "global", "store") == 4
        assert per_request(tiled, "sectors", "global", "load") == 4
        assert per_request(tiled, "wavefronts", "shared", "load") == passes


def per_request(report, counter, space, kind, array=None):
    return report.total(counter, space, kind, array) / report.total("requests", space, kind, array)


RUNGS = {
    "naive": (ladder.matmul_naive, lambda M, N: (blocks(M, 32), blocks(N, 4)), (32, 4)),
    "coalesced": (ladder.matmul_coalesced, lambda M, N: (blocks(N, 32), blocks(M, 4)), (32, 4)),
    "shared": (ladder.make_matmul_shared(16), lambda M, N: (blocks(N, 16), blocks(M, 16)), (16, 16)),
    "register": (
        ladder.make_matmul_register(32, 32, 8, 4, 4),
        lambda M, N: (blocks(N, 32), blocks(M, 32)),
        (8, 8),
    ),
}


def run(rung, M, N, K, seed=None):
    kernel, grid, block = RUNGS[rung]
    A, B, C = floats(M, K), floats(K, N, seed=1), np.zeros((M, N), np.float32)
    report = launch(kernel, grid(M, N), block, A, B, C, seed=seed)
    np.testing.assert_allclose(C, A.astype(float) @ B.astype(float), rtol=1e-4, atol=1e-4)
    return report


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("sizes", [(32, 32, 16), (33, 17, 19), (1, 40, 5)])
@pytest.mark.parametrize("rung", RUNGS)
def test_every_rung_multiplies_any_sizes(rung, sizes, seed):
    assert run(rung, *sizes, seed=seed).float64_lines == ()


def test_each_rung_loads_less_from_global_memory():
    n = 32
    loads = {rung: run(rung, n, n, n).total("accesses", "global", "load") for rung in RUNGS}
    assert loads["naive"] == loads["coalesced"] == 2 * n**3
    assert loads["shared"] == 2 * n**3 // 16
    assert loads["register"] == 2 * n**3 // 32


def test_coalescing_and_bank_conflicts_of_the_products():
    naive, coalesced, register = (run(rung, 32, 32, 16) for rung in ("naive", "coalesced", "register"))
    assert per_request(naive, "sectors", "global", "load", "A") == 32
    assert per_request(naive, "sectors", "global", "load", "B") == 1
    assert per_request(coalesced, "sectors", "global", "load", "A") == 1
    assert per_request(coalesced, "sectors", "global", "load", "B") == 4
    assert per_request(register, "wavefronts", "shared", "load") == 1
    assert per_request(register, "wavefronts", "shared", "store") == 1
    assert per_request(register, "sectors", "global", "store", "C") == 4


def test_a_register_tile_that_does_not_divide_is_refused():
    with pytest.raises(ValueError, match="do not divide"):
        ladder.make_matmul_register(32, 32, 8, 5, 4)
    with pytest.raises(ValueError, match="64 threads do not load tiles of 32×6 and 6×32 in whole rows each"):
        ladder.make_matmul_register(32, 32, 6, 4, 4)


def test_the_measured_register_tile_has_no_bank_conflicts_either():
    A, B, C = floats(128, 32), floats(32, 128, seed=1), np.zeros((128, 128), np.float32)
    report = launch(ladder.make_matmul_register(128, 128, 16, 8, 8), 1, (16, 16), A, B, C)
    np.testing.assert_allclose(C, A.astype(float) @ B.astype(float), rtol=1e-4, atol=1e-4)
    for kind in ("load", "store"):
        assert per_request(report, "wavefronts", "shared", kind) == 1
    assert report.total("accesses", "global", "load") == A.size + B.size


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("width", [1, 100, 300])
@pytest.mark.parametrize("name", ["softmax_row", "softmax_online"])
def test_softmax_of_rows(name, width, seed):
    x = floats(3, width) * 60
    x[1, : width // 2] = -np.inf
    y = np.zeros_like(x)
    report = launch(getattr(ladder, name), 3, ladder.THREADS, x, y, seed=seed)
    np.testing.assert_allclose(y, softmax(x.astype(float)), rtol=1e-5, atol=1e-38)
    passes = 3 if name == "softmax_row" else 2
    assert report.total("accesses", "global", "load") == passes * x.size
    assert report.float64_lines == ()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("width", [1, 100, 300])
def test_layer_norm_of_rows(width, seed):
    x, gamma, beta = floats(3, width) + 1000, floats(width, seed=1), floats(width, seed=2)
    y = np.zeros_like(x)
    report = launch(ladder.layer_norm, 3, ladder.THREADS, x, gamma, beta, y, 1e-5, seed=seed)
    expected = layer_norm(x.astype(float), gamma.astype(float), beta.astype(float))
    np.testing.assert_allclose(y, expected, rtol=2e-3, atol=2e-3)
    assert report.total("accesses", "global", "load", "x") == 3 * x.size
    assert report.float64_lines == ()
