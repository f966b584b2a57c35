"""NumPy, torch and brute force are the judges of the linear algebra; dtypes and messages are held too."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labsupport.ops import linalg

floats = st.sampled_from([np.float32, np.float64])


def matrix(m: int, n: int, seed: int = 0, dtype: type = np.float64) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((m, n)).astype(dtype)


class TestNorm:
    @given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 50), floats, st.sampled_from([1, 2, np.inf]))
    def test_is_numpys_norm(self, m, n, seed, dtype, ord):
        A = matrix(m, n, seed, dtype)
        for x, which in ((A[0], ord), (A, ord), (A, "fro")):
            found = linalg.norm(x, which)
            assert found.dtype == dtype
            expected = np.linalg.norm(x.astype(float), which)
            np.testing.assert_allclose(found, expected, rtol=20 * np.finfo(dtype).eps)

    def test_squares_do_not_overflow_or_vanish(self):
        assert linalg.norm(np.array([3e30, 4e30], np.float32)) == pytest.approx(5e30)
        assert linalg.norm(np.array([3e-30, 4e-30], np.float32)) == pytest.approx(5e-30)
        assert linalg.norm(np.array([[3e200], [4e200]]), "fro") == pytest.approx(5e200)

    def test_of_zeros_nothing_and_integers(self):
        assert linalg.norm(np.zeros(3)) == 0
        assert linalg.norm(np.zeros(0)) == 0
        assert linalg.norm([3, -4]) == 5.0

    def test_non_finite_entries_are_not_hidden(self):
        assert np.isinf(linalg.norm(np.array([1.0, np.inf])))
        assert np.isnan(linalg.norm(np.array([1.0, np.nan])))

    def test_refuses_what_it_does_not_know(self):
        with pytest.raises(ValueError, match="no norm 3"):
            linalg.norm(np.ones(3), 3)
        with pytest.raises(ValueError, match="no norm 2"):
            linalg.norm(np.ones((2, 2, 2)), 2)


class TestCosine:
    @given(st.integers(0, 100), st.integers(1, 8))
    def test_is_torchs(self, seed, n):
        rng = np.random.default_rng(seed)
        x, y = rng.standard_normal((4, 1, n)), rng.standard_normal((3, n))
        expected = torch.cosine_similarity(torch.tensor(x), torch.tensor(y), dim=-1).numpy()
        np.testing.assert_allclose(linalg.cosine_similarity(x, y), expected, rtol=1e-12, atol=1e-14)

    def test_does_not_depend_on_length_and_survives_zero_and_huge(self):
        x = np.array([1.0, 2.0, -1.0])
        assert linalg.cosine_similarity(x, 7 * x) == pytest.approx(1)
        assert linalg.cosine_similarity(x, -x) == pytest.approx(-1)
        assert linalg.cosine_similarity(x, np.zeros(3)) == 0
        huge = np.array([1e30, 1e30], np.float32)
        assert linalg.cosine_similarity(huge, huge) == pytest.approx(1, abs=1e-6)

    def test_keeps_float32(self):
        assert linalg.cosine_similarity(np.ones(3, np.float32), np.ones(3, np.float32)).dtype == np.float32

    def test_refuses_other_lengths(self):
        with pytest.raises(ValueError, match=r"x has shape \(3,\), y has shape \(4,\)"):
            linalg.cosine_similarity(np.ones(3), np.ones(4))


class TestError:
    def test_one_step_is_one_ulp(self):
        for dtype in (np.float16, np.float32, np.float64):
            b = np.array([1.5, -3.0, 1000.0], dtype)
            found = linalg.error(np.nextafter(b, dtype(np.inf)), b)
            assert found.ulp == 1
            assert found.abs == float(np.spacing(b[2]))

    def test_relative_error_near_zero_explodes_while_absolute_stays(self):
        found = linalg.error([1e-9], [1e-15])
        assert found.abs < 1e-8
        assert found.rel > 1e5
        assert linalg.error([1e-9], [0.0]).rel == np.inf

    def test_equal_infinities_and_nans_count_as_nothing(self):
        x = np.array([np.inf, -np.inf, np.nan, 1.0])
        assert linalg.error(x, x) == (0, 0, 0)
        assert np.isnan(linalg.error([np.nan], [1.0]).abs)
        assert linalg.error([np.inf], [1.0]).abs == np.inf
        assert linalg.error([], []) == (0, 0, 0)

    @given(st.integers(0, 200))
    def test_float32_against_float64(self, seed):
        b = np.random.default_rng(seed).standard_normal(20)
        found = linalg.error(b.astype(np.float32), b)
        assert found.ulp <= 0.5
        assert found.rel <= np.finfo(np.float32).eps / 2
        assert found.abs == np.max(np.abs(b.astype(np.float32).astype(float) - b))

    def test_does_not_broadcast(self):
        with pytest.raises(ValueError, match=r"actual has \(3, 1\), reference has \(3,\)"):
            linalg.error(np.ones((3, 1)), np.ones(3))

    def test_reads_well(self):
        assert repr(linalg.error([1.0], [2.0])) == "Error(abs=1, rel=0.5, ulp=2.25e+15)"


@cache
def every_order(start: int, stop: int) -> tuple[linalg.Order, ...]:
    if stop - start == 1:
        return (start,)
    return tuple(
        (left, right)
        for middle in range(start + 1, stop)
        for left in every_order(start, middle)
        for right in every_order(middle, stop)
    )


class TestChain:
    @settings(max_examples=150)
    @given(st.lists(st.integers(1, 60), min_size=2, max_size=8))
    def test_is_the_cheapest_of_all_orders(self, p):
        shapes = list(pairwise(p))
        best = linalg.chain_order(shapes)
        costs = [linalg.chain_flops(shapes, order) for order in every_order(0, len(shapes))]
        assert best.flops == min(costs)
        assert linalg.chain_flops(shapes, best.order) == best.flops

    def test_cost_is_what_multiplying_counts(self):
        shapes = [(2, 3), (3, 5), (5, 7)]
        counted = 0

        def multiply(order):
            nonlocal counted
            if isinstance(order, int):
                return np.ones(shapes[order])
            left, right = multiply(order[0]), multiply(order[1])
            counted += sum(2 for _ in np.ndindex(left.shape[0], right.shape[1], left.shape[1]))
            return left @ right

        for order in every_order(0, 3):
            counted = 0
            multiply(order)
            assert linalg.chain_flops(shapes, order) == counted

    def test_text(self):
        assert str(linalg.chain_order([(1, 8), (8, 8), (8, 8)])) == "(AB)C: 256 FLOPs"
        assert linalg.chain_text((0, (1, 2))) == "A(BC)"
        assert linalg.chain_order([(4, 5)]) == linalg.Chain(0, 0)

    def test_refuses_neighbours_that_do_not_fit(self):
        with pytest.raises(ValueError, match="axis 1 of matrix 0 has size 3, axis 0 of matrix 1 has size 4"):
            linalg.chain_order([(2, 3), (4, 5)])
        with pytest.raises(ValueError, match="at least one"):
            linalg.chain_order([])
        with pytest.raises(ValueError, match="left to right"):
            linalg.chain_flops([(2, 3), (3, 4)], (1, 0))
        with pytest.raises(ValueError, match="uses 1 of 2"):
            linalg.chain_flops([(2, 3), (3, 4)], 0)


class TestLowRank:
    @given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 100), st.data())
    def test_error_is_eckart_and_youngs(self, m, n, seed, data):
        A = matrix(m, n, seed)
        k = data.draw(st.integers(0, min(m, n)))
        sigma = np.append(np.linalg.svd(A, compute_uv=False), 0)
        rest = A - linalg.low_rank(A, k)
        assert np.linalg.norm(rest, 2) == pytest.approx(sigma[k], abs=1e-12)
        assert np.linalg.norm(rest) == pytest.approx(np.sqrt(np.sum(sigma[k:] ** 2)), abs=1e-12)

    @given(st.integers(0, 100))
    def test_no_random_matrix_of_that_rank_is_nearer(self, seed):
        A = matrix(6, 5, 1)
        rng = np.random.default_rng(seed)
        left = rng.standard_normal((6, 2))
        other = left @ np.linalg.lstsq(left, A, rcond=None)[0]  # the best with this column space
        assert np.linalg.norm(A - linalg.low_rank(A, 2)) <= np.linalg.norm(A - other) + 1e-12

    def test_factors_have_few_parameters_and_keep_the_dtype(self):
        B, C = linalg.low_rank_factors(matrix(20, 30, dtype=np.float32), 3)
        assert (B.shape, C.shape) == ((20, 3), (3, 30))
        assert B.dtype == C.dtype == np.float32

    def test_refuses_an_impossible_rank(self):
        with pytest.raises(ValueError, match="k=4 is outside 0 … 3"):
            linalg.low_rank(matrix(3, 5), 4)
        with pytest.raises(ValueError, match="2 axes"):
            linalg.low_rank(np.ones(3), 1)


class TestRandomizedSvd:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("shape", [(60, 40), (40, 60), (40, 40)])
    def test_finds_the_leading_triples(self, shape, dtype):
        rng = np.random.default_rng(3)
        U, _ = np.linalg.qr(rng.standard_normal((shape[0], 40)))
        V, _ = np.linalg.qr(rng.standard_normal((shape[1], 40)))
        sigma = 0.7 ** np.arange(40)
        A = (U[:, :40] * sigma @ V[:, :40].T).astype(dtype)
        u, s, vt = linalg.randomized_svd(A, 5, rng)
        assert (u.shape, s.shape, vt.shape) == ((shape[0], 5), (5,), (5, shape[1]))
        assert u.dtype == s.dtype == vt.dtype == dtype
        np.testing.assert_allclose(s, sigma[:5], rtol=1e-5)
        np.testing.assert_allclose(u.T @ u, np.eye(5), atol=1e-5)
        assert np.linalg.norm(A - u * s @ vt, 2) == pytest.approx(sigma[5], rel=1e-3)

    def test_is_exact_when_the_rank_is_small_and_repeats_with_the_seed(self):
        A = matrix(30, 3) @ matrix(3, 20, 1)
        u, s, vt = linalg.randomized_svd(A, 3, np.random.default_rng(0))
        np.testing.assert_allclose(u * s @ vt, A, atol=1e-10)
        again = linalg.randomized_svd(A, 3, np.random.default_rng(0))
        np.testing.assert_array_equal(again[1], s)

    def test_refuses_an_impossible_rank(self):
        with pytest.raises(ValueError, match="k=21"):
            linalg.randomized_svd(matrix(30, 20), 21, np.random.default_rng(0))


class TestPowerIteration:
    def test_finds_the_dominant_eigenpair(self):
        Q, _ = np.linalg.qr(matrix(5, 5))
        A = Q * np.array([-3.0, 2.0, 1.0, 0.5, 0.1]) @ Q.T
        value, vector = linalg.power_iteration(A, 100, np.random.default_rng(0))
        assert value == pytest.approx(-3)
        np.testing.assert_allclose(A @ vector, -3 * vector, atol=1e-10)

    def test_error_falls_by_the_ratio_of_eigenvalues(self):
        A = np.diag([2.0, 1.0])
        tails = [abs(linalg.power_iteration(A, s, np.random.default_rng(1))[1][1]) for s in (20, 21)]
        assert tails[1] / tails[0] == pytest.approx(0.5, rel=1e-6)

    def test_zero_matrix_has_eigenvalue_zero(self):
        assert linalg.power_iteration(np.zeros((3, 3)), 5, np.random.default_rng(0))[0] == 0

    def test_refuses_what_is_not_square(self):
        with pytest.raises(ValueError, match="axis 0 has size 2, axis 1 has size 3"):
            linalg.power_iteration(np.ones((2, 3)), 1, np.random.default_rng(0))
        with pytest.raises(ValueError, match="steps"):
            linalg.power_iteration(np.eye(2), -1, np.random.default_rng(0))


class TestCondition:
    @given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 50))
    def test_is_numpys(self, m, n, seed):
        A = matrix(m, n, seed)
        assert linalg.condition_number(A) == pytest.approx(np.linalg.cond(A), rel=1e-6)

    def test_of_orthogonal_and_singular(self):
        assert linalg.condition_number(np.linalg.qr(matrix(4, 4))[0]) == pytest.approx(1)
        assert linalg.condition_number(np.diag([1.0, 0.0])) == np.inf
        with pytest.raises(ValueError, match="empty"):
            linalg.condition_number(np.zeros((0, 3)))


class Counted:
    """A number that counts every arithmetic operation done with it."""

    operations = 0

    def __init__(self, value):
        self.value = float(value)

    def _count(self, other, result):
        Counted.operations += 1
        return Counted(result(self.value, other.value))

    def __mul__(self, other):
        return self._count(other, lambda a, b: a * b)

    def __sub__(self, other):
        return self._count(other, lambda a, b: a - b)

    def __truediv__(self, other):
        return self._count(other, lambda a, b: a / b)

    def __abs__(self):
        return Counted(abs(self.value))

    def __gt__(self, other):
        return self.value > other.value

    def __lt__(self, other):
        return self.value < other.value

    def __eq__(self, other):
        return self.value == (other.value if isinstance(other, Counted) else other)

    __hash__ = None


class TestLu:
    @given(st.integers(1, 8), st.integers(0, 100), floats)
    def test_factors_rebuild_the_matrix(self, n, seed, dtype):
        A = matrix(n, n, seed, dtype)
        packed, order = linalg.lu_factor(A)
        assert packed.dtype == dtype
        L, U = np.tril(packed, -1) + np.eye(n, dtype=dtype), np.triu(packed)
        assert np.max(np.abs(L)) <= 1
        np.testing.assert_allclose(L @ U, A[order], atol=50 * np.finfo(dtype).eps * np.abs(U).max())

    @pytest.mark.parametrize("shape", [(6,), (6, 3), (6, 0)])
    def test_solves(self, shape):
        A, b = matrix(6, 6), np.random.default_rng(1).standard_normal(shape)
        found = linalg.lu_solve(*linalg.lu_factor(A), b)
        np.testing.assert_allclose(found, np.linalg.solve(A, b), rtol=1e-10)

    def test_pivots_where_the_first_entry_is_zero(self):
        A = np.array([[0.0, 1.0], [1.0, 0.0]])
        np.testing.assert_array_equal(linalg.lu_solve(*linalg.lu_factor(A), [2.0, 3.0]), [3.0, 2.0])

    @pytest.mark.parametrize(("n", "columns"), [(1, 1), (4, 1), (5, 5), (6, 2)])
    def test_flops_are_those_that_are_done(self, n, columns):
        counted = np.vectorize(Counted, otypes=[object])
        Counted.operations = 0
        linalg.lu_solve(*linalg.lu_factor(counted(matrix(n, n))), counted(matrix(n, columns)))
        assert Counted.operations == linalg.solve_flops(n, columns)

    def test_refuses_what_has_no_solution(self):
        with pytest.raises(ValueError, match="column 1 has no pivot"):
            linalg.lu_factor(np.ones((2, 2)))
        with pytest.raises(ValueError, match="axis 0 has size 2, axis 1 has size 3"):
            linalg.lu_factor(np.ones((2, 3)))
        with pytest.raises(ValueError, match=r"axis 0 of b \(3,\) must have size 2"):
            linalg.lu_solve(*linalg.lu_factor(np.eye(2)), np.ones(3))
        with pytest.raises(ValueError, match="negative"):
            linalg.solve_flops(-1)


class TestLora:
    d_in, d_out, r, alpha = 6, 5, 2, 4.0

    def parts(self, dtype=np.float64):
        rng = np.random.default_rng(0)
        W, A, B = (
            rng.standard_normal(s).astype(dtype)
            for s in ((self.d_out, self.d_in), (self.r, self.d_in), (self.d_out, self.r))
        )
        return rng.standard_normal((3, 4, self.d_in)).astype(dtype), W, A, B

    @pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 1e-5), (np.float64, 1e-13)])
    def test_merged_layer_equals_base_plus_adapter(self, dtype, rtol):
        x, W, A, B = self.parts(dtype)
        found = linalg.lora_forward(x, W, A, B, self.alpha)
        assert found.shape == (3, 4, self.d_out)
        assert found.dtype == dtype
        merged = linalg.lora_merge(W, A, B, self.alpha)
        assert merged.dtype == dtype
        np.testing.assert_allclose(found, x @ merged.T, rtol=rtol, atol=rtol)

    def test_is_the_sum_over_the_rank(self):
        x, W, A, B = self.parts()
        expected = np.einsum("bsi,oi->bso", x, W)
        for q in range(self.r):
            expected = expected + self.alpha / self.r * np.einsum("bsi,i,o->bso", x, A[q], B[:, q])
        np.testing.assert_allclose(linalg.lora_forward(x, W, A, B, self.alpha), expected, rtol=1e-12)

    def test_zero_b_is_the_base_layer_bit_for_bit(self):
        x, W, A, B = self.parts()
        np.testing.assert_array_equal(linalg.lora_forward(x, W, A, 0 * B, self.alpha), x @ W.T)
        np.testing.assert_array_equal(linalg.lora_merge(W, A, 0 * B, self.alpha), W)

    def test_update_has_at_most_rank_r(self):
        _, W, A, B = self.parts()
        assert np.linalg.matrix_rank(linalg.lora_merge(W, A, B, self.alpha) - W) == self.r

    @pytest.mark.parametrize(
        ("name", "shape", "message"),
        [
            ("x", (3, 7), r"last axis of x \(3, 7\) must have size 6"),
            ("A", (2, 7), "d_in: .* got 6 and 7"),
            ("B", (4, 2), "d_out: .* got 5 and 4"),
            ("B", (5, 3), "r: .* got 2 and 3"),
        ],
    )
    def test_names_the_axis_that_does_not_fit(self, name, shape, message):
        given_parts = dict(zip("xWAB", self.parts(), strict=True)) | {name: np.ones(shape)}
        with pytest.raises(ValueError, match=message):
            linalg.lora_forward(*given_parts.values(), self.alpha)

    def test_refuses_rank_zero(self):
        with pytest.raises(ValueError, match="at least rank 1"):
            linalg.lora_merge(np.ones((2, 3)), np.ones((0, 3)), np.ones((2, 0)), 1.0)
