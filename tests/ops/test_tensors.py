"""NumPy is the judge of every rule of shapes and strides; torch is asked where it has its own rule."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from labsupport.ops import tensors

sizes = st.integers(0, 4)
shapes = st.lists(sizes, max_size=4).map(tuple)
full_shapes = st.lists(st.integers(1, 4), max_size=4).map(tuple)


def in_elements(array: np.ndarray) -> tuple[int, ...]:
    return tuple(step // array.itemsize for step in array.strides)


@st.composite
def layouts(draw: st.DrawFn) -> np.ndarray:
    """An array of any layout: C or Fortran, permuted, sliced (also backwards), expanded."""
    base_shape = draw(full_shapes)
    array = np.arange(int(np.prod(base_shape)), dtype=np.int64).reshape(base_shape)
    if draw(st.booleans()):
        array = np.asfortranarray(array)
    array = array.transpose(draw(st.permutations(range(array.ndim))))
    steps = draw(st.lists(st.sampled_from([1, 2, -1]), min_size=array.ndim, max_size=array.ndim))
    array = array[(..., *(slice(None, None, step) for step in steps))]
    if draw(st.booleans()):
        front = draw(st.integers(1, 3))
        array = np.broadcast_to(array, (front, *array.shape))
    return array


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[np.ndarray, tuple[int, ...]]:
    """An array and another shape with as many elements, axes of size 1 included."""
    array = draw(layouts())
    factors = []
    rest = array.size
    while rest > 1:
        divisor = draw(st.sampled_from([d for d in range(2, rest + 1) if rest % d == 0]))
        factors.append(divisor)
        rest //= divisor
    ones = draw(st.integers(0, 2))
    return array, tuple(draw(st.permutations(factors + [1] * ones)))


class TestStrides:
    @given(shapes, st.sampled_from("CF"))
    def test_are_those_of_numpy(self, shape, order):
        assert tensors.strides(shape, order) == in_elements(np.zeros(shape, order=order))

    def test_of_the_book(self):
        assert tensors.strides((2, 3)) == (3, 1)

    def test_refuses_a_negative_size_and_an_unknown_order(self):
        with pytest.raises(ValueError, match="axis 1 has size -3"):
            tensors.strides((2, -3))
        with pytest.raises(ValueError, match="order"):
            tensors.strides((2, 3), order="A")

    @given(layouts())
    def test_offset_finds_the_element(self, array):
        start = array.__array_interface__["data"][0]
        for index in np.ndindex(array.shape):
            address = array[(..., *index)].__array_interface__["data"][0]
            assert tensors.offset(index, in_elements(array)) == (address - start) // array.itemsize

    def test_offset_needs_one_index_per_axis(self):
        with pytest.raises(ValueError, match="3 axes"):
            tensors.offset((1, 2, 0), (3, 1))

    @given(layouts())
    def test_offsets_read_the_buffer_in_row_major_order(self, array):
        found = list(tensors.offsets(array.shape, in_elements(array)))
        assert found == [tensors.offset(i, in_elements(array)) for i in np.ndindex(array.shape)]


class TestContiguous:
    @given(layouts())
    def test_is_numpys_flag(self, array):
        assert tensors.is_contiguous(array.shape, in_elements(array)) == array.flags.c_contiguous

    def test_empty_tensor_and_ignored_stride(self):
        assert tensors.is_contiguous((0, 3), (17, 5))
        assert tensors.is_contiguous((1, 3), (99, 1))
        assert not tensors.is_contiguous((3, 2), (1, 3))

    def test_needs_one_stride_per_axis(self):
        with pytest.raises(ValueError, match="one stride per axis"):
            tensors.is_contiguous((2, 3), (1,))


class TestView:
    @settings(max_examples=500)
    @given(reshapes())
    def test_is_a_view_exactly_when_numpy_shares_memory(self, pair):
        array, new_shape = pair
        reshaped = array.reshape(new_shape)
        can = tensors.can_view(array.shape, in_elements(array), new_shape)
        assert can == np.shares_memory(array, reshaped)

    @settings(max_examples=300)
    @given(reshapes())
    def test_the_strides_show_the_same_elements(self, pair):
        array, new_shape = pair
        steps = tensors.reshape_strides(array.shape, in_elements(array), new_shape)
        if steps is None:
            return
        view = np.lib.stride_tricks.as_strided(array, new_shape, [s * array.itemsize for s in steps])
        np.testing.assert_array_equal(view, array.reshape(new_shape))

    @settings(max_examples=300)
    @given(reshapes())
    def test_torch_agrees_where_it_has_the_layout(self, pair):
        array, new_shape = pair
        if any(step < 0 for step in array.strides):
            return  # torch has no negative strides
        steps = in_elements(array)
        base = torch.zeros(1 + sum((size - 1) * step for size, step in zip(array.shape, steps, strict=True)))
        tensor = base.as_strided(array.shape, steps)
        try:
            tensor.view(new_shape)
            viewed = True
        except RuntimeError:
            viewed = False
        assert tensors.can_view(array.shape, in_elements(array), new_shape) == viewed

    def test_the_two_cases_of_the_book(self):
        assert tensors.can_view((2, 3), (3, 1), (6,))
        assert not tensors.can_view((3, 2), (1, 3), (6,))

    def test_an_empty_tensor_is_always_a_view(self):
        assert tensors.can_view((0, 3), (3, 1), (3, 0))

    def test_refuses_another_number_of_elements(self):
        with pytest.raises(ValueError, match="6 elements cannot become 8"):
            tensors.can_view((2, 3), (3, 1), (4, 2))


class TestBroadcast:
    @settings(max_examples=500)
    @given(st.lists(shapes, max_size=4))
    @example([(3, 1), (3,)])
    @example([(0,), (1,)])
    def test_is_numpys_rule_errors_included(self, many):
        try:
            expected = np.broadcast_shapes(*many)
        except ValueError:
            with pytest.raises(ValueError, match="do not broadcast at axis -"):
                tensors.broadcast_shape(*many)
        else:
            assert tensors.broadcast_shape(*many) == expected

    def test_the_message_names_the_axis_and_both_sizes(self):
        with pytest.raises(ValueError, match=r"axis -1: a \(2, 3\) has size 3 and b \(4,\) has size 4"):
            tensors.broadcast_shape((2, 3), (4,))

    @given(layouts(), st.lists(st.integers(1, 3), max_size=2))
    def test_strides_are_those_of_broadcast_to(self, array, front):
        target = (*front, *(2 if size == 1 else size for size in array.shape))
        expected = np.broadcast_to(array, target)
        found = tensors.broadcast_strides(array.shape, in_elements(array), target)
        used = [axis for axis, size in enumerate(target) if size != 1]
        assert [found[axis] for axis in used] == [in_elements(expected)[axis] for axis in used]

    def test_does_not_shrink(self):
        with pytest.raises(ValueError, match="does not broadcast to"):
            tensors.broadcast_strides((3,), (1,), (1,))


class TestMatmul:
    @settings(max_examples=500)
    @given(shapes, shapes)
    def test_is_numpys_rule_errors_included(self, a, b):
        try:
            expected = np.matmul(np.zeros(a), np.zeros(b)).shape
        except ValueError:
            with pytest.raises(ValueError, match=r"inner sizes differ|do not broadcast|scalar"):
                tensors.matmul_shape(a, b)
        else:
            assert tensors.matmul_shape(a, b) == expected

    @given(st.tuples(*[st.integers(1, 3)] * 3), st.lists(st.sampled_from([1, 2]), max_size=2))
    def test_accepts_every_batch(self, mkn, batch):
        M, K, N = mkn
        a, b = (*batch, M, K), (K, N)
        assert tensors.matmul_shape(a, b) == np.matmul(np.zeros(a), np.zeros(b)).shape

    def test_names_axis_and_sizes(self):
        expected = r"axis -1 of a \(2, 3\) has size 3, axis -2 of b \(4, 5\) has size 4"
        with pytest.raises(ValueError, match=expected):
            tensors.matmul_shape((2, 3), (4, 5))


class TestLineLoads:
    def test_a_contiguous_scan_loads_each_line_once(self):
        assert tensors.line_loads((64, 64), (64, 1), itemsize=4, line_bytes=64) == 64 * 64 * 4 // 64

    def test_a_column_scan_with_a_small_cache_loads_a_line_per_element(self):
        assert tensors.line_loads((64, 64), (1, 64), cache_lines=32) == 64 * 64

    def test_a_cache_that_holds_a_column_of_lines_makes_the_order_harmless(self):
        assert tensors.line_loads((64, 64), (1, 64), cache_lines=64) == 64 * 64 * 4 // 64

    def test_stride_zero_loads_one_line(self):
        assert tensors.line_loads((1000,), (0,)) == 1

    @given(layouts())
    def test_a_boundless_cache_counts_distinct_lines(self, array):
        lines = {p * 8 // 64 for p in tensors.offsets(array.shape, in_elements(array))}
        assert tensors.line_loads(array.shape, in_elements(array), 8, 64, cache_lines=10**6) == len(lines)
