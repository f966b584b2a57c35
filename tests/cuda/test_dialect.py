"""The simulator takes what numba's compiler takes and refuses what it refuses, each with a sentence that has a place.

Right kernels in unusual words are run in several orders and compiled; so are wrong ones, whose fault
has to be found under every order.
"""

import math
import re

import numpy as np
import pytest

from labsupport.cuda import simt
from labsupport.cuda.simt import launch
from tests.cuda import dialect_right as right
from tests.cuda import dialect_wrong as wrong

SEEDS = [None, 0, 1]
V, M, I, U = "float32[::1]", "float32[:,::1]", "int32[::1]", "uint32[::1]"


def ramp(*shape, dtype=np.float32):
    return np.arange(math.prod(shape), dtype=dtype).reshape(shape)


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


def numba_backend():
    pytest.importorskip("numba.cuda", reason="numba-cuda is made for Linux; the agreement is tested there")
    from labsupport.cuda import numba_backend

    return numba_backend


# -- right kernels --------------------------------------------------------------------------

X = ramp(32)
PAIRS = np.arange(32) % 2


def scan(x):
    return np.cumsum(x.astype(float))


def halves(x):
    return np.r_[np.full(16, x[:16].sum()), np.full(16, x[16:].max())]


def ranked(x):
    kept = x[x > 0]
    return np.r_[kept, x[kept.size :]]


def branches(i):
    return np.choose(i % 3, [10, 20, 30])


def looped(x):
    i = np.arange(x.size)
    added = np.where(i == 0, 1, np.where(i == 1, 3, 7))
    return np.where(i < 2, x + added, -(x + 7)) + 3


MIXED = np.where(np.arange(32) % 3 == 0, -1, 1) * (1 + X)
ROWS = ramp(3, 8)
SMALL = np.array([0.3, 1.7, -2.6, 5.0], np.float32)
HASHED = np.array([3, 70_000, 9], np.int32)

#: kernel: (types for numba, grid, block, arguments, what the arguments hold afterwards, shared bytes)
RIGHT = {
    right.grid_stride_in_two_axes: ((M,), (2, 1), (2, 2), [ramp(5, 7)], [ramp(5, 7) + 1], 0),
    right.index_as_one_tuple: ((M,), (2, 2), (2, 2), [zeros(3, 4)], [10 * np.arange(3)[:, None] + np.arange(4)], 0),
    right.shape_taken_apart: ((M,), 1, 16, [zeros(3, 5)], [ramp(3, 5)], 0),
    right.annotated: ((V, "int64"), 1, 32, [X, 3], [X[::-1] + 3, None], 0),
    right.chained_comparison_and_choice: ((V,), 1, 8, [zeros(5)], [[0, -1, 2, -3, 4]], 0),
    right.early_return_without_a_later_barrier: ((V,), 2, 32, [zeros(40)], [ramp(40)], 0),
    right.early_return_of_whole_blocks: (
        (V,), 3, 32, [ramp(96)], [np.r_[X[::-1], 32 + X, 64 + X[::-1]]], 0,
    ),
    right.early_return_of_whole_warps: ((V,), 1, 64, [ramp(64)], [np.r_[np.arange(32) ^ 1, np.arange(32, 64)]], 0),
    right.device_functions_within_device_functions: ((V,), 1, 4, [ramp(4)], [ramp(4) * math.sqrt(0.5)], 0),
    right.function_within: ((V,), 1, 32, [X], [3 * X], 0),
    right.function_within_that_takes_an_array: ((V,), 1, 32, [X], [2 * X], 0),
    right.closure: ((V,), 1, 32, [X], [3 * X[::-1]], 0),
    right.sizes_by_name: ((V,), 1, 32, [X], [4 * X[::-1]], 0),
    right.dynamic_memory_in_parts: ((V,), 1, 32, [X], [-X[::-1]], 256),
    right.rows_given_to_a_device_function: (
        (M, V), 1, 4, [ROWS, zeros(3)], [ROWS, ROWS.sum(axis=1) + ROWS[:, 1:3].sum(axis=1)], 0,
    ),
    right.double_buffer: ((V,), 1, 32, [X], [scan(X)], 0),
    right.warp_synchronous_tree: ((V,), 1, 64, [ramp(64)], [np.repeat([496, 1520], 32)], 0),
    right.halves_of_a_warp: ((V,), 1, 32, [X], [halves(X)], 0),
    right.ranks_by_ballot: ((V, I), 1, 32, [MIXED, zeros(2, dtype=np.int32)], [ranked(MIXED), [21, 2]], 0),
    right.last_block_finishes: (
        (V, V, I, V), 4, 16, [ramp(64), zeros(1), zeros(1, dtype=np.int32), zeros(1)], [None, [2016], [4], [2016]], 0,
    ),
    right.bits_and_counters: (
        (I, U), 1, 8, [np.array([0, 255, 0, 0], np.int32), np.array([0, 0], np.uint32)],
        [[255, 0, 255, 5], [3, 1]], 0,
    ),
    right.wraps_like_the_hardware: (
        (I, U), 1, 3, [HASHED, zeros(3, dtype=np.uint32)],
        [[0, 0, 0], (HASHED.astype(np.int64) * 2654435761 % 2**32) >> 16], 0,
    ),
    right.fused_and_chosen: ((V,), 1, 8, [ramp(8)], [np.where(ramp(8) > 2, ramp(8) * (ramp(8) + 1), -ramp(8))], 0),
    right.functions_of_math: (
        (V, M), 1, 4, [SMALL, zeros(5, 4)],
        [
            SMALL,
            [[2 * x for x in map(float, SMALL)],
             [math.atan2(x, x) + math.hypot(x, x) for x in map(float, SMALL)],
             [math.remainder(x, 2) + math.fmod(x, 2) for x in map(float, SMALL)],
             [math.erf(x) for x in map(float, SMALL)],
             [math.trunc(x) - math.copysign(1, x) for x in map(float, SMALL)]],
        ], 0,
    ),
    right.functions_of_numpy: (
        (V, V), 1, 4, [SMALL, zeros(4)], [SMALL, np.maximum(SMALL, 1) + np.sin(SMALL) + math.pi], 0,
    ),
    right.device_function_of_a_tuple: (
        ("int32[:,::1]",), 1, (2, 3), [zeros(2, 3, dtype=np.int32)], [[[0, 10, 20], [1, 11, 21]]], 0,
    ),
    right.match_statement: ((V,), 1, 32, [X], [branches(np.arange(32))], 0),
    right.loops_with_else_and_enumerate: ((V,), 1, 8, [ramp(8)], [looped(ramp(8))], 0),
    right.shared_array_in_a_loop: ((V,), 1, 32, [X], [X + 1], 0),
    right.three_axes: (
        ("int32[:,:,::1]",), (1, 2, 1), (2, 1, 3), [zeros(2, 2, 3, dtype=np.int32)],
        [np.indices((2, 2, 3))[0] + 100 * np.indices((2, 2, 3))[2]], 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kernel", RIGHT, ids=lambda kernel: kernel.__name__)
def test_an_unusual_right_kernel_is_taken_and_computes_what_it_should(kernel):
    _, grid, block, arguments, expected, shared_bytes = RIGHT[kernel]
    for seed in SEEDS:
        copies = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        launch(kernel, grid, block, *copies, seed=seed, shared_bytes=shared_bytes)
        for got, due in zip(copies, expected, strict=True):
            if due is not None:
                np.testing.assert_allclose(got, due, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kernel", RIGHT, ids=lambda kernel: kernel.__name__)
def test_numba_compiles_an_unusual_right_kernel(kernel):
    assert "define" in numba_backend().compile_llvm(kernel, ", ".join(RIGHT[kernel][0]))


# -- wrong kernels --------------------------------------------------------------------------

X64, Y64 = ramp(64), zeros(64)
SQUARE = ramp(8, 8)
ONE, N32 = zeros(1), zeros(1, dtype=np.int32)
RACE, BARRIER, WARP = simt.DataRaceError, simt.BarrierError, simt.WarpError
OUTSIDE, EMPTY, LAUNCH = simt.OutOfBoundsError, simt.UninitializedError, simt.LaunchError
REFUSED = simt.UnsupportedError

#: kernel: (types, grid, block, arguments, error, message, shared bytes); all of these compile
WRONG = {
    wrong.neighbours_in_place: ((V,), 1, 64, [X64], RACE, r"x\[\d+\] \(global.*between them is missing", 0),
    wrong.barrier_does_not_order_blocks: ((V, V), 2, 32, [X64, Y64], RACE, "blocks run in any order", 0),
    wrong.tiles_overlap_by_one: ((V, V), 2, 32, [X64, Y64], RACE, r"out\[31\].*of block \(0\).*of block \(1\)", 0),
    wrong.tree_without_barrier_in_the_loop: ((V, V), 1, 64, [X64, ONE], RACE, r"on s\[\d+\] \(shared", 0),
    wrong.scan_in_one_buffer: ((V,), 1, 64, [X64], RACE, r"on s\[\d+\].*reads it in line \d+ \(s\[t\] \+=", 0),
    wrong.transposes_in_place: ((M,), 1, (8, 8), [SQUARE], RACE, r"A\[0, 1\].*thread \(1, 0\).*thread \(0, 1\)", 0),
    wrong.ticket_without_barrier: ((V, I), 1, 64, [X64, N32], RACE, r"on s\[0\] \(shared", 0),
    wrong.parts_that_overlap: ((V,), 1, 32, [X64], RACE, r"on s\[31\] \(shared", 256),
    wrong.two_dynamic_arrays: ((V,), 1, 32, [X64], RACE, r"on a\[\d+\] \(shared", 256),
    wrong.shared_array_of_a_loop_is_one: ((V,), 1, 32, [X64], RACE, r"on s\[\d+\] \(shared", 0),
    wrong.double_buffer_one_barrier_short: ((V, V), 1, 32, [X64, Y64], RACE, r"on a\[\d+\] \(shared", 0),
    wrong.plain_read_of_what_others_add_to: ((V, V), 1, 64, [X64, ONE], RACE, r"out\[0\].*atomically", 0),
    wrong.warp_sum_beyond_the_warp: ((V,), 1, 64, [X64], RACE, r"on s\[\d+\]", 0),
    wrong.device_function_uses_its_array_twice: ((V,), 1, 32, [X64], RACE, r"on s\[\d+\] \(shared", 0),
    wrong.array_without_a_name: ((V,), 1, 32, [X64], RACE, r"on array_\d+\[0\] \(shared", 0),
    wrong.two_arrays_of_one_name: ((V,), 1, 32, [X64], RACE, r"on s_\d+\[0\] \(shared", 0),
    wrong.arrays_named_in_a_tuple: ((V,), 1, 32, [X64], RACE, r"on sB\[0\] \(shared", 0),
    wrong.barrier_in_a_loop_of_uneven_length: ((V,), 1, 32, [X64], BARRIER, "16 of 32 threads wait", 0),
    wrong.two_barriers_in_one_line: ((V,), 1, 64, [X64], BARRIER, r"both in line \d+, reached by different calls", 0),
    wrong.barrier_by_two_calls: ((V,), 1, 64, [X64], BARRIER, r"both in line \d+, reached by different calls", 0),
    wrong.shuffle_by_two_calls: ((V,), 1, 32, [X64], WARP, "came there from another call", 0),
    wrong.break_before_the_barrier: ((V,), 1, 64, [X64], BARRIER, r"thread \(1\) has already ended", 0),
    wrong.barrier_and_vote: ((V,), 1, (4, 2), [X64], BARRIER, r"thread \(0, 0\) at the one, thread \(0, 1\)", 0),
    wrong.syncwarp_of_half_in_a_branch: ((V,), 1, 32, [X64], WARP, "has already ended", 0),
    wrong.barrier_against_syncwarp: ((V,), 1, 32, [X64], WARP, "waits at the barrier of line", 0),
    wrong.masks_that_differ: ((V,), 1, 32, [X64], WARP, "names the mask 0xfffffffe", 0),
    wrong.shuffle_out_of_the_mask: ((V,), 1, 32, [X64], WARP, "lane 15 reads from lane 16", 0),
    wrong.stencil_reads_left_of_the_array: (
        (M, M), 1, (8, 8), [SQUARE, SQUARE.copy()], OUTSIDE, r"x\[\d, -1\].*count from the start", 0,
    ),
    wrong.last_block_writes_too_far: ((V,), 1, 1, [X64], OUTSIDE, r"s\[4\] is outside the array.*\(4,\)", 0),
    wrong.part_read_beyond_its_end: ((V,), 1, 64, [X64], OUTSIDE, r"s\[\d+\] is outside the part", 0),
    wrong.halo_not_loaded: ((V, V), 1, 32, [X64, Y64], EMPTY, r"s\[0\] \(shared memory\) is read before", 0),
    wrong.atomic_on_unwritten_shared: ((V, V), 1, 32, [X64, ONE], EMPTY, r"s\[0\] \(shared memory\)", 0),
    wrong.too_much_shared_in_two_arrays: ((V,), 1, 1, [X64], LAUNCH, "with b the block uses 73728 B", 0),
    wrong.spins_on_a_lock: ((I,), 1, 2, [N32], simt.EndlessLoopError, "while loop", 0),
}  # fmt: skip

#: What numba's compiler refuses as well: kernel: (types, argument, message)
BOTH_REFUSE = {
    wrong.walrus: (V, "line of its own"),
    wrong.makes_a_list: (V, "makes a list"),
    wrong.list_as_shape: (V, "write a tuple"),
    wrong.python_float_as_type: (V, "float is no type"),
    wrong.size_from_the_block: (V, "size n is not known"),
    wrong.size_from_a_local_product: (V, "size n is not known"),
    wrong.handles_an_exception: (V, "handles exceptions"),
    wrong.truth_value_as_index: (V, "an index is a whole number"),
    wrong.float_as_index: (V, "an index is a whole number"),
    wrong.exponential_of_numpy: (V, r"np\.exp does not exist in a kernel; write math\.exp"),
    wrong.array_of_numpy: (V, r"np\.zeros does not exist"),
    wrong.cube_root: (V, r"math\.cbrt does not exist"),
    wrong.axes_of_the_thread_by_number: (V, r"\.x, \.y and \.z"),
    wrong.thread_index_taken_apart: (V, r"\.x, \.y and \.z"),
    wrong.exchange_of_floats: (V, "does not take an array of float32"),
    wrong.counts_up_a_signed_integer: (I, "it takes uint32, uint64"),
    wrong.shuffles_a_truth_value: (V, "exchanges numbers of 32 or 64 bits"),
    wrong.votes_with_a_float: (V, "takes an integer or a condition"),
    wrong.calls_itself: (V, "calls itself"),
    wrong.atomic_on_an_element: (V, "is the array itself"),
    wrong.assigns_a_part: (V, "single elements"),
    wrong.takes_a_name_away: (V, "takes a name away"),
    wrong.function_within_that_calls_itself: (V, "down calls itself"),
    wrong.stores_a_tuple: (V, "an element is one number"),
    wrong.stores_nothing: (V, "a NoneType cannot be stored in x"),
    wrong.index_without_an_axis: (V, r"write \.x, \.y or \.z"),
    wrong.axis_that_is_none: (V, r"\.x, \.y and \.z, not \.w"),
    wrong.no_such_operation: (V, r"cuda\.synchronize_everything is not"),
}
#: What numba compiles and the simulator does not take, or numba's launch refuses.
SIMULATOR_REFUSES = {
    wrong.sums_as_a_whole: (V, r"x\.sum is not in the dialect"),
    wrong.sums_with_python: (V, "x is taken as a whole"),
    wrong.part_with_a_step: (V, "has a step"),
    wrong.reads_which_lanes_are_active: (V, r"cuda\.activemask is not"),
    wrong.lane_that_is_no_number: (V, "a distance of lanes is a whole number"),
    wrong.mask_that_is_no_number: (V, "the mask of shfl_down_sync is a whole number"),
    wrong.row_of_a_matrix: (M, r"a row is written A\[0, :\]"),
    wrong.part_across_rows: (M, "not one stretch of memory"),
    wrong.part_from_the_end: (V, "count from the start"),
    wrong.returns_a_value: (V, "a kernel returns nothing"),
}

#: What Python itself finds, in a sentence without the simulator's own names: kernel: (arguments, message)
FAULTS = {
    wrong.scalar_with_an_index: ([X64, 3], "a int is indexed here; only an array has elements"),
    wrong.barrier_with_an_argument: ([X64], r"TypeError: cuda\.syncthreads\(\) takes"),
    wrong.atomic_without_a_value: ([X64], r"TypeError: cuda\.atomic\.add\(\) missing"),
    wrong.shared_array_without_a_type: ([X64], r"cuda\.shared\.array\(\) missing .* 'dtype'"),
    wrong.function_without_an_argument: ([X64], r"TypeError: math\.exp\(\) missing"),
    wrong.claims: ([X64], r"^AssertionError\. Line"),
}


SCALED = {right.scales_by_a_shared_integer, right.scales_by_a_lane, right.scales_by_a_float}


def has_its_place(error):
    text = str(error)
    return error.line and (f"line {error.line}" in text or f"Line {error.line}" in text)


@pytest.mark.parametrize("kernel", WRONG, ids=lambda kernel: kernel.__name__)
def test_a_wrong_kernel_is_found_out_in_every_order(kernel):
    _, grid, block, arguments, error, message, shared_bytes = WRONG[kernel]
    for seed in SEEDS:
        with pytest.raises(error, match=message) as caught:
            launch(kernel, grid, block, *(a.copy() for a in arguments), seed=seed, shared_bytes=shared_bytes)
        assert type(caught.value) is error
        assert has_its_place(caught.value)
        axes = len(block) if isinstance(block, tuple) else 1
        threads = re.findall(r"thread (\([^)]*\))", str(caught.value))
        assert threads
        assert {len(thread.split(",")) for thread in threads} == {axes}


@pytest.mark.parametrize("kernel", WRONG, ids=lambda kernel: kernel.__name__)
def test_numba_compiles_a_wrong_kernel_without_a_word(kernel):
    assert "define" in numba_backend().compile_llvm(kernel, ", ".join(WRONG[kernel][0]))


@pytest.mark.parametrize("kernel", BOTH_REFUSE | SIMULATOR_REFUSES, ids=lambda kernel: kernel.__name__)
def test_what_is_outside_the_dialect_is_told_with_its_line(kernel):
    types, message = (BOTH_REFUSE | SIMULATOR_REFUSES)[kernel]
    argument = {V: X64, M: SQUARE, I: ramp(4, dtype=np.int32)}[types]
    with pytest.raises(REFUSED, match=message) as caught:
        launch(kernel, 1, 1, argument.copy())
    assert has_its_place(caught.value)


@pytest.mark.parametrize("kernel", FAULTS, ids=lambda kernel: kernel.__name__)
def test_what_python_finds_is_told_in_the_words_of_the_dialect(kernel):
    arguments, message = FAULTS[kernel]
    with pytest.raises(simt.KernelFault, match=message) as caught:
        launch(kernel, 1, (1, 1), *arguments)
    assert has_its_place(caught.value)
    assert "thread (0, 0)" in str(caught.value)


def test_a_negative_index_is_refused_although_numba_counts_it_from_the_end():
    with pytest.raises(simt.OutOfBoundsError, match="numba takes a negative index from the end"):
        launch(wrong.element_from_the_end, 1, 1, X64.copy())
    text = numba_backend().compile_llvm(wrong.element_from_the_end, V)
    assert re.search(r"icmp slt i64 -1, 0|sub .* 1|-1", text)


@pytest.mark.parametrize("kernel", BOTH_REFUSE, ids=lambda kernel: kernel.__name__)
def test_numba_refuses_it_too(kernel):
    with pytest.raises(Exception, match=r".") as caught:
        numba_backend().compile_llvm(kernel, BOTH_REFUSE[kernel][0])
    assert not isinstance(caught.value, simt.SimtError)


@pytest.mark.parametrize("kernel", SIMULATOR_REFUSES, ids=lambda kernel: kernel.__name__)
def test_numba_takes_what_only_the_simulator_refuses(kernel):
    assert "define" in numba_backend().compile_llvm(kernel, SIMULATOR_REFUSES[kernel][0])


def test_every_kernel_of_the_dialect_is_tested():
    def kernels(module):
        return {
            value for value in vars(module).values()
            if getattr(value, "__module__", "") == module.__name__ and hasattr(value, "__code__")
        }  # fmt: skip

    assert kernels(right) - {right.make_closure} - SCALED == set(RIGHT)
    assert kernels(wrong) == {
        *WRONG, *BOTH_REFUSE, *SIMULATOR_REFUSES, *FAULTS, wrong.element_from_the_end,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "wide"),
    [(right.scales_by_a_shared_integer, True), (right.scales_by_a_lane, True), (right.scales_by_a_float, False)],
)
def test_a_float64_by_way_of_shared_memory_or_a_device_function_is_seen(kernel, wide):
    assert bool(launch(kernel, 1, 32, X.copy()).float64_lines) == wide
    text = numba_backend().compile_llvm(kernel, V)
    assert bool(re.search(r"= fmul double", text)) == wide
