"""The simulator: right kernels run and are counted, each wrong one is found whatever the order of threads."""

import numpy as np
import pytest
from numpy import float32, uint32

from labsupport.cuda import simt
from labsupport.cuda.kernels.lessons import edited
from labsupport.cuda.simt import cuda, launch
from tests.cuda import kernels_right as right
from tests.cuda import kernels_wrong as wrong

SEEDS = [None, 0, 1, 2]


def floats(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# -- right kernels --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_add_with_a_guard(seed):
    a, b, c = floats(100), floats(100, seed=1), np.zeros(100, np.float32)
    report = launch(right.add, 4, 32, a, b, c, seed=seed)
    np.testing.assert_array_equal(c, a + b)
    assert (report.blocks, report.threads) == (4, 128)
    assert report.total("accesses", kind="load") == 200
    assert report.total("accesses", kind="store") == 100


def test_numba_s_launch_syntax():
    a, c = floats(40), np.zeros(40, np.float32)
    right.add[2, 32](a, a, c)
    np.testing.assert_array_equal(c, 2 * a)
    assert right.add.report.blocks == 2


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("sizes", [(16, 16, 16), (13, 9, 21), (1, 1, 1), (8, 24, 3)])
def test_tiled_matmul_also_at_ragged_edges(sizes, seed):
    M, N, K = sizes
    A, B, C = floats(M, K), floats(K, N, seed=1), np.zeros((M, N), np.float32)
    grid = (-(-N // right.T), -(-M // right.T))
    launch(right.matmul_tiled, grid, (right.T, right.T), A, B, C, seed=seed)
    np.testing.assert_allclose(C, A.astype(float) @ B.astype(float), rtol=1e-5, atol=1e-5)


def test_tiled_matmul_loads_what_the_formula_says():
    n, T = 32, right.T
    A, B, C = floats(n, n), floats(n, n, seed=1), np.zeros((n, n), np.float32)
    report = launch(right.matmul_tiled, (n // T, n // T), (T, T), A, B, C)
    assert report.total("accesses", "global", "load") == 2 * n**3 // T
    assert report.total("accesses", "shared", "load") == 2 * n**3
    assert report.barriers == (n // T) ** 2 * 2 * (n // T)
    assert report.shared_bytes == 2 * T * T * 4
    assert report.float64_lines == ()


@pytest.mark.parametrize("seed", SEEDS)
def test_block_sum_with_a_tree_and_an_atomic(seed):
    x, out = np.arange(150, dtype=np.float32), np.zeros(1, np.float32)
    launch(right.block_sum, 3, 64, x, out, seed=seed)
    assert out[0] == x.sum()


@pytest.mark.parametrize("seed", SEEDS)
def test_warp_operations(seed):
    x, out = np.arange(64, dtype=np.float32), np.zeros(2, np.float32)
    report = launch(right.warp_sum, 1, 64, x, out, seed=seed)
    np.testing.assert_array_equal(out, [x[:32].sum(), x[32:].sum()])
    assert report.warp_operations == 2 * 5
    y = np.arange(32, dtype=np.float32)
    launch(right.warp_exchange, 1, 32, y, seed=seed)
    np.testing.assert_array_equal(y, np.arange(32)[::-1])


def test_votes_and_shuffles():
    x = np.where(np.arange(32) < 3, 1.0, -1.0).astype(np.float32)
    out = np.zeros((6, 32), np.int64)
    launch(right.votes, 1, 32, x, out)
    assert (out[0] == 0b111).all() and (out[1] == 0).all() and (out[2] == 1).all()
    assert (out[3] == 3).all() and (out[4] == 0).all() and (out[5] == 1).all()
    y, got = np.arange(32, dtype=np.float32), np.zeros((4, 32), np.float32)
    launch(right.shuffles, 1, 32, y, got)
    np.testing.assert_array_equal(got[0], 3)
    np.testing.assert_array_equal(got[1], np.r_[0, np.arange(31)])
    np.testing.assert_array_equal(got[2], np.r_[np.arange(1, 32), 31])
    np.testing.assert_array_equal(got[3], np.arange(32) ^ 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_atomics(seed):
    x, bins = np.array([0, 1, 1, 3] * 10, np.int32), np.zeros(4, np.int32)
    launch(right.histogram, 2, 32, x, bins, seed=seed)
    np.testing.assert_array_equal(bins, [10, 20, 0, 10])
    values, out = np.arange(1, 33, dtype=np.int32), np.array([-5, 99, 0, 0, 0], np.int32)
    launch(right.atomics, 1, 32, values, out, seed=seed)
    np.testing.assert_array_equal(out, [32, 1, -values.sum(), 7, 9])


def test_bank_conflicts_and_what_padding_does():
    A, B = floats(32, 32), np.zeros((32, 32), np.float32)
    padded = launch(right.transpose, 1, (32, 32), A, B)
    np.testing.assert_array_equal(B, A.T)
    straight = launch(right.transpose_conflicts, 1, (32, 32), A, B)
    assert wavefronts(padded, "load") == 1.0
    assert wavefronts(straight, "load") == 32.0
    assert wavefronts(straight, "store") == 1.0


def wavefronts(report, kind):
    return report.total("wavefronts", "shared", kind) / report.total("requests", "shared", kind)


def test_sectors_tell_coalesced_from_strided():
    A, B = floats(32, 32), np.zeros((32, 32), np.float32)
    along = launch(right.copy_rows, 1, (32, 32), A, B)
    across = launch(right.copy_columns, 1, (32, 32), A, B)
    assert along.total("sectors") / along.total("requests") == 4.0
    assert across.total("sectors") / across.total("requests") == 32.0
    half = launch(right.copy_rows, 1, (32, 32), A.astype(np.float16), B.astype(np.float16))
    assert half.total("sectors") / half.total("requests") == 2.0
    double = launch(right.copy_rows, 1, (32, 32), A.astype(np.float64), B.astype(np.float64))
    assert double.total("sectors") / double.total("requests") == 8.0


def test_dynamic_shared_memory():
    x = np.arange(48, dtype=np.float32)
    right.dynamic_reverse[1, 48, 0, 48 * 4](x)
    np.testing.assert_array_equal(x, np.arange(48)[::-1])


def test_two_arrays_made_in_one_assignment_are_both_watched():
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    report = launch(right.two_arrays_at_once, 1, 8, x, y)
    assert y.tolist() == [7.0] * 8
    assert report.total("accesses", "shared") == 16


def test_local_arrays_device_functions_three_axes_and_grid_strides():
    x, out = floats(20), np.zeros(20, np.float32)
    launch(right.local_polynomial, 1, 20, x, out)
    np.testing.assert_allclose(out, 1 + x + x**2 + x**3, rtol=1e-5)
    y = np.array([-3.0, 0.5, 3.0], np.float32)
    launch(right.uses_device_function, 1, 3, y)
    np.testing.assert_array_equal(y, [-1, 0.5, 1])
    cube = np.zeros((4, 3, 2), np.int32)
    launch(right.grid_of_three, (2, 3, 1), (2, 1, 2), cube)
    i, j, k = np.indices(cube.shape)
    np.testing.assert_array_equal(cube, i * 100 + j * 10 + k)
    z = np.ones(50, np.float32)
    launch(right.grid_stride, 2, 8, z)
    np.testing.assert_array_equal(z, 2)
    w = np.arange(8, dtype=np.int32)
    launch(right.swap, 1, 4, w)
    np.testing.assert_array_equal(w, [1, 0, 3, 2, 5, 4, 7, 6])


def test_numbers_have_the_compiler_s_types():
    f32, i32, out = np.array([2.5], np.float32), np.array([-7, 0], np.int32), np.zeros(7)
    launch(right.types, 1, 1, f32, i32, out)
    assert out[0] == 2.5 / 3  # int64 with float32 gives float64
    assert out[1:5].tolist() == [-3.5, -4.0, 3.0, 2.0]
    assert out[5] == np.exp(np.float32(2.5))  # math.exp of a float32 stays float32
    assert out[6] == -7 * 0.1
    assert i32[1] == -2147483648  # a stored int32 wraps round


def test_a_float64_accumulator_is_seen_and_not_hidden():
    x, out = np.full(1000, 0.1, np.float32), np.zeros(1, np.float32)
    report = launch(right.float64_accumulator, 1, 1, x, out)
    assert len(report.float64_lines) == 1
    assert out[0] == np.float32(x.astype(np.float64).sum())
    assert launch(right.softmax_row, 2, 1, floats(2, 5), np.zeros((2, 5), np.float32)).float64_lines == ()


def test_softmax_row():
    x, y = floats(3, 7) * 50, np.zeros((3, 7), np.float32)
    launch(right.softmax_row, 3, 1, x, y)
    e = np.exp(x.astype(float) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(axis=1, keepdims=True), rtol=1e-5, atol=1e-38)


def test_the_trace_shows_the_first_block_phase_by_phase():
    x = np.arange(48, dtype=np.float32)
    report = launch(right.dynamic_reverse, 1, 48, x, shared_bytes=48 * 4, trace=True)
    first, second = report.trace
    assert {step.kind for step in first.steps if step.space == "shared"} == {"store"}
    assert {step.kind for step in second.steps if step.space == "shared"} == {"load"}
    assert first.barrier_line > 0 and second.barrier_line == 0
    assert (second.steps[0].array, second.steps[0].index) == ("s", (47,))
    assert "barriers" in str(report)


def test_the_same_seed_gives_the_same_report():
    def run(seed):
        A, C = floats(16, 16), np.zeros((16, 16), np.float32)
        return str(launch(right.matmul_tiled, (2, 2), (8, 8), A, A, C, seed=seed)), C.tobytes()

    assert run(3) == run(3)
    assert run(3) == run(None)


# -- wrong kernels --------------------------------------------------------------------------

X64, Y64, OUT = np.ones(64, np.float32), np.zeros(64, np.float32), np.zeros(1, np.float32)
SQUARE = np.ones((16, 16), np.float32)
T2 = ((2, 2), (8, 8))
PAIR, BINS8 = np.ones(2, np.float32), np.zeros(8, np.int32)

WRONG = [
    (wrong.add_without_guard, 3, 32, (X64, X64, Y64), simt.OutOfBoundsError, r"a\[\d+\] is outside"),
    (wrong.negative_index, 1, 64, (X64, Y64), simt.OutOfBoundsError, r"a\[-1\].*count from the start"),
    (wrong.matmul_without_first_barrier, *T2, (SQUARE, SQUARE, SQUARE.copy()), simt.DataRaceError, r"sA\[0, 0\]"),
    (wrong.matmul_without_second_barrier, *T2, (SQUARE, SQUARE, SQUARE.copy()), simt.DataRaceError, r"sA\[0, 0\]"),
    (wrong.barrier_in_a_condition, 1, 64, (X64,), simt.BarrierError, "32 of 64 threads wait"),
    (wrong.early_return_before_barrier, 1, 64, (X64, 60), simt.BarrierError, r"thread \(60\) has already ended"),
    (wrong.two_different_barriers, 1, 64, (X64,), simt.BarrierError, r"different barriers, lines \d+ and \d+"),
    (wrong.all_threads_write_one_element, 1, 64, (X64, OUT), simt.DataRaceError, r"out\[0\] \(global"),
    (wrong.blocks_share_an_element, 4, 8, (X64, OUT), simt.DataRaceError, r"blocks run in any order"),
    (wrong.block_reads_what_another_wrote, 2, 1, (PAIR, PAIR.copy()), simt.DataRaceError, "block"),
    (wrong.block_writes_what_another_read, 2, 1, (PAIR,), simt.DataRaceError, "block"),
    (wrong.histogram_without_atomic, 1, 8, (BINS8, BINS8.copy()), simt.DataRaceError, r"bins\[0\]"),
    (wrong.atomic_and_plain, 1, 64, (X64, OUT), simt.DataRaceError, "atomically"),
    (wrong.unwritten_shared, 1, 64, (X64,), simt.UninitializedError, r"s\[60\].*before any thread"),
    (wrong.unwritten_local, 1, 1, (X64,), simt.UninitializedError, r"^s\[0\] \(local"),
    (wrong.warp_exchange_without_syncwarp, 1, 32, (X64,), simt.DataRaceError, r"data race on s\[0\]"),
    (wrong.syncwarp_across_warps, 1, 64, (X64,), simt.DataRaceError, r"data race on s\[0\]"),
    (wrong.shuffle_in_a_branch, 1, 32, (X64,), simt.WarpError, "has already ended"),
    (wrong.shuffle_from_an_absent_lane, 1, 40, (X64,), simt.WarpError, "lane 7 reads from lane 8"),
    (wrong.caller_not_in_the_mask, 1, 32, (X64,), simt.WarpError, "not in the mask"),
    (wrong.too_much_shared, 1, 1, (X64,), simt.LaunchError, "65536 B of shared memory; the limit is 49152"),
    (wrong.waits_for_a_flag, 1, 2, (np.zeros(1, np.int32),), simt.EndlessLoopError, "while loop"),
    (wrong.takes_a_slice, 1, 1, (X64,), simt.UnsupportedError, "single elements"),
    (wrong.too_few_indices, 1, 1, (SQUARE,), simt.UnsupportedError, r"x\[0\] has 1 index, but"),
    (wrong.float_index, 1, 1, (X64,), simt.UnsupportedError, "use //"),
    (wrong.counts_a_truth_value, 1, 1, (X64,), simt.UnsupportedError, r"int\(condition\)"),
    (wrong.size_that_is_computed, 1, 1, (X64,), simt.UnsupportedError, r"size T \+ 1 is not known"),
    (wrong.size_from_an_argument, 1, 1, (X64, 4), simt.UnsupportedError, "size n is not known"),
    (wrong.calls_a_plain_function, 1, 1, (X64,), simt.UnsupportedError, "plain_helper is a plain Python function"),
    (wrong.counts_for_ever, 1, 1, (X64,), simt.EndlessLoopError, "1000000000000 turns"),
    (wrong.divides_by_zero, 1, 1, (X64,), simt.KernelFault, "ZeroDivisionError"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kernel", "grid", "block", "arguments", "error", "message"), WRONG, ids=lambda v: getattr(v, "__name__", None)
)
def test_every_fault_is_found_in_every_order(kernel, grid, block, arguments, error, message):
    # With the flag's writer first the loop ends and the race is the finding: see the next test.
    orders = [None] if kernel is wrong.waits_for_a_flag else SEEDS
    for seed in orders:
        copies = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        with pytest.raises(error, match=message) as caught:
            launch(kernel, grid, block, *copies, seed=seed)
        assert type(caught.value) is error
        if error not in (simt.LaunchError,):
            assert caught.value.line is not None


def test_a_flag_that_is_written_first_is_still_a_race():
    for seed in range(6):
        with pytest.raises((simt.DataRaceError, simt.EndlessLoopError)):
            launch(wrong.waits_for_a_flag, 1, 2, np.zeros(1, np.int32), seed=seed)


def test_a_race_names_both_lines_and_threads():
    with pytest.raises(simt.DataRaceError) as caught:
        launch(wrong.matmul_without_second_barrier, *T2, SQUARE, SQUARE, SQUARE.copy())
    text = str(caught.value)
    assert "sA[ty, tx] = A[row, t * T + tx]" in text
    assert "acc += sA[ty, k] * sB[k, tx]" in text
    assert "syncthreads() between them is missing" in text


def test_the_verdict_on_a_race_is_the_same_sentence_in_every_order():
    def verdict(seed):
        with pytest.raises(simt.DataRaceError) as caught:
            launch(wrong.matmul_without_first_barrier, *T2, SQUARE, SQUARE, SQUARE.copy(), seed=seed)
        return str(caught.value).split("; ")[0]

    assert len({verdict(seed) for seed in [None, *range(4)]}) <= 2  # the block found first may differ


@pytest.mark.parametrize(
    ("grid", "block", "arguments", "message"),
    [
        (1, 1025, (X64, X64, Y64), "1025"),
        (1, (32, 33), (X64, X64, Y64), "1056 threads"),
        (1, (1, 1, 65), (X64, X64, Y64), "65 along z; the limit is 64"),
        ((1, 70000), 1, (X64, X64, Y64), "70000 along y"),
        (0, 32, (X64, X64, Y64), "at least 1"),
        (1.5, 32, (X64, X64, Y64), "whole number"),
        (1, 32, (X64, X64), "takes 3 arguments"),
        (1, 32, (X64, X64[::2], Y64), "b is not contiguous"),
        (1, 32, (X64, X64, [0.0]), "c is a list"),
        (1, 32, (X64, X64 * 1j, Y64), "complex64"),
        (1, 32, (X64, np.array(1.0), Y64), "without axes"),
    ],
)
def test_a_bad_launch_is_named(grid, block, arguments, message):
    with pytest.raises(simt.LaunchError, match=message):
        launch(right.add, grid, block, *arguments)


def test_a_zero_size_array_is_no_error():
    empty = np.zeros(0, np.float32)
    launch(right.add, 1, 32, empty, empty, empty)


def test_names_of_cuda_outside_a_kernel_say_so():
    with pytest.raises(simt.LaunchError, match="inside a running kernel"):
        simt.cuda.syncthreads()
    with pytest.raises(simt.LaunchError, match=r"\[grid, block\]"):
        right.add(X64, X64, Y64)


def test_the_simulator_is_usable_after_a_fault():
    with pytest.raises(simt.BarrierError):
        launch(wrong.barrier_in_a_condition, 1, 64, X64.copy())
    test_add_with_a_guard(None)


def test_a_launch_ends_with_its_time():
    def slow(x):
        for k in range(1000):
            for j in range(1000):
                x[0] = float32(k + j)

    with pytest.raises(simt.EndlessLoopError, match="longer than it may"):
        launch(slow, 1, 1, np.zeros(1, np.float32), seconds=0.05)


def test_a_fault_says_its_memory_its_barriers_and_what_the_threads_did():
    with pytest.raises(simt.DataRaceError) as first:
        launch(wrong.matmul_without_first_barrier, *T2, SQUARE, SQUARE, SQUARE.copy())
    with pytest.raises(simt.DataRaceError) as second:
        launch(wrong.matmul_without_second_barrier, *T2, SQUARE, SQUARE, SQUARE.copy())
    assert (first.value.space, first.value.barriers, first.value.across) == ("shared", 0, False)
    assert (second.value.space, second.value.barriers, second.value.across) == ("shared", 1, False)
    assert first.value.kinds == second.value.kinds == ("load", "store")
    with pytest.raises(simt.DataRaceError) as across:
        launch(wrong.blocks_share_an_element, 4, 8, X64, OUT.copy())
    assert (across.value.array, across.value.across, across.value.kinds) == ("out", True, ("store", "store"))
    with pytest.raises(simt.OutOfBoundsError) as outside:
        launch(wrong.negative_index, 1, 64, X64, Y64.copy())
    assert (outside.value.array, outside.value.space) == ("a", "global")


def test_the_trace_keeps_what_shared_memory_holds_at_each_barrier():
    x = np.arange(48, dtype=np.float32)
    report = launch(right.dynamic_reverse, 1, 48, x, shared_bytes=48 * 4, trace=True)
    assert report.trace[0].shared["s"] == tuple(range(48))


def test_shared_arrays_of_float64_are_named():
    def wide(x):
        s = simt.cuda.shared.array(4, np.float64)
        s[0] = x[0]

    assert launch(wide, 1, 1, np.zeros(1, np.float32)).float64_arrays == ("s",)


@pytest.mark.parametrize(
    ("size", "error", "message"),
    [
        ("-1", simt.LaunchError, "whole numbers, 0 or more"),
        ("8.0", simt.LaunchError, "whole numbers, 0 or more"),
        ("()", simt.LaunchError, "whole numbers, 0 or more"),
        ("10**9", simt.LaunchError, "4000000000 B in every thread"),
        ("shape=len(x)", simt.UnsupportedError, "not known when the kernel is compiled"),
        ("0", simt.OutOfBoundsError, "whose shape is (0,)"),
    ],
)
def test_a_size_that_no_array_has_is_named_before_memory_is_asked_for(size, error, message):
    kernel = edited(wrong.sized_by_an_argument, ("SIZE, ", f"{size}, dtype="))
    with pytest.raises(error) as caught:
        launch(kernel, 1, 32, np.zeros(32, np.float32))
    assert message in str(caught.value)


def test_an_array_has_a_name_before_it_has_an_index():
    for place in ("(a, b)[0][t]", "(a if t < 16 else b)[t]"):
        kernel = edited(right.arrays_in_turn, ("c[t] = x[t]", f"{place} = x[t]"))
        with pytest.raises(simt.UnsupportedError, match="a name of its own"):
            launch(kernel, 1, 32, floats(32))
    with pytest.raises(simt.UnsupportedError, match="0 indices"):
        launch(edited(right.arrays_in_turn, ("= x[t]", "= x[()]")), 1, 32, floats(32))


def test_two_arrays_under_one_name_in_turn_are_both_watched():
    x = floats(32)
    expected = 2 * x
    report = launch(right.arrays_in_turn, 1, 32, x)
    np.testing.assert_array_equal(x, expected)
    assert report.total("accesses", "shared", "store") == 3 * 32
    shared_place = edited(right.arrays_in_turn, ("c[t] = x[t]", "c[0] = x[t]"))
    with pytest.raises(simt.DataRaceError):
        launch(shared_place, 1, 32, floats(32))


@pytest.mark.parametrize("kernel", [wrong.takes_a_name_of_numpy, wrong.takes_a_name_of_nobody])
def test_math_has_the_names_of_python_s_module_alone(kernel):
    with pytest.raises(
        simt.UnsupportedError, match=r"math\.\w+ does not exist in a kernel\. Line \d+, thread \(0, 0\)"
    ):
        launch(kernel, 1, (1, 1), X64.copy())


def _transposed_by(kind):
    def kernel(x, y):
        tile = cuda.shared.array((32, 32), float32)
        i, j = kind(cuda.threadIdx.y), kind(cuda.threadIdx.x)
        tile[i, j] = x[i, j]
        cuda.syncthreads()
        y[i, j] = tile[j, i]

    return kernel


@pytest.mark.parametrize("kind", [np.int32, np.uint32, np.int64])
def test_an_index_in_a_numpy_integer_is_counted_as_any_other(kind):
    x, y = np.arange(1024, dtype=np.float32).reshape(32, 32), np.zeros((32, 32), np.float32)
    reports = [launch(_transposed_by(k), 1, (32, 32), x, y) for k in (int, kind)]
    assert (y == x.T).all()
    for counter in ("accesses", "requests", "sectors", "wavefronts"):
        for space in ("global", "shared"):
            for way in ("load", "store"):
                due, got = (report.total(counter, space, way) for report in reports)
                assert got == due, (counter, space, way)


def test_a_race_over_an_index_in_a_numpy_integer_is_seen():
    def kernel(x, y):
        s = cuda.shared.array((2, 64), float32)
        j = uint32(cuda.threadIdx.x)
        s[0, j] = x[j]
        s[1, j] = s[0, uint32(63) - j]
        y[j] = s[1, j]

    with pytest.raises(simt.DataRaceError):
        launch(kernel, 1, 64, np.ones(64, np.float32), np.zeros(64, np.float32))
