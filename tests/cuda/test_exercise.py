"""The kind of exercise that judges a kernel: what passes, what is refused, and that nothing ever raises.

The gates run over every record; here are the answers that no record knows.
"""

import math

import numpy as np
import pytest
from numpy import float32

from labsupport.cuda.exercise import Kernel
from labsupport.cuda.kernels import lessons
from labsupport.cuda.kernels.lessons import edited
from labsupport.cuda.simt import cuda
from labsupport.exercises import all_exercises, get
from labsupport.grading.judge import judge

KERNELS = [record for record in all_exercises() if isinstance(record, Kernel)]


@cuda.jit
def untouched(x, y): ...


def test_there_are_at_least_nine_kernels_and_each_knows_several_mistakes():
    assert len(KERNELS) >= 9
    assert all(len(record.mistakes) >= 4 for record in KERNELS)


@pytest.mark.parametrize("stub", [..., untouched, untouched.py_func, (untouched, 128), (lessons.add_guarded, ...)])
def test_an_untouched_kernel_is_to_do(stub):
    record = get("kernel-guard") if isinstance(stub, tuple) else get("kernel-map")
    assert judge(record, stub).state == "todo"


def test_the_answer_may_be_plain_or_decorated():
    for answer in (lessons.silu, cuda.jit(lessons.silu)):
        assert judge(get("kernel-map"), answer).state == "pass"


def renamed(source, target):
    i = cuda.grid(1)
    target[i] = source[i] / (float32(1.0) + math.exp(-source[i]))


def test_names_of_arguments_are_the_reader_s():
    assert judge(get("kernel-map"), renamed).state == "pass"
    strided = edited(renamed, ("cuda.grid(1)", "cuda.threadIdx.x * cuda.gridDim.x + cuda.blockIdx.x"))
    assert judge(get("kernel-map"), strided).mistake == "uncoalesced"


def wrong_arity(x):
    x[0] = 1


def endless(x, y):
    while True:
        y[0] = x[0]


def counts_far(x, y):
    for k in range(10**12):
        y[0] = x[k]


def raises(x, y):
    y[0] = 1 // (cuda.threadIdx.x - cuda.threadIdx.x)


def calls_nothing_there(x, y):
    y[cuda.grid(1)] = nowhere(x[0])  # noqa: F821


def exits(x, y):
    raise SystemExit


def slices(x, y):
    y[:] = x[:]


def writes_its_input(x, y):
    i = cuda.grid(1)
    x[i] = x[i] / (float32(1.0) + math.exp(-x[i]))
    y[i] = x[i]


def writes_nothing(x, y):
    cuda.syncthreads()


def leaves_nan(x, y):
    y[cuda.grid(1)] = float32(np.nan)


FAULTS = [
    (wrong_arity, "takes 1 arguments"),
    (endless, "while loop"),
    (counts_far, "for loops of one thread"),
    (raises, "ZeroDivisionError"),
    (calls_nothing_there, "NameError"),
    (exits, "SystemExit"),
    (slices, "single elements"),
    (writes_its_input, "changed its input x"),
    (writes_nothing, "never written"),
    (leaves_nan, "NaN"),
    (lambda x, y: None, "written with def"),
    (len, "a kernel is due"),
    (3, "a kernel is due"),
    ("silu", "a kernel is due"),
]


@pytest.mark.parametrize(("answer", "message"), FAULTS, ids=lambda v: getattr(v, "__name__", None))
def test_a_fault_is_a_verdict_with_its_place(answer, message):
    verdict = judge(get("kernel-map"), answer)
    assert verdict.state == "fail"
    assert message in verdict.message
    if answer in (endless, counts_far, raises, calls_nothing_there):
        assert "Line" in verdict.message
        assert "thread (" in verdict.message


@pytest.mark.parametrize(
    ("threads", "message"),
    [(2048, "2048"), (0, "at least 1"), (-32, "at least 1"), (1.5, "whole number"), ("128", "whole number")],
)
def test_a_bad_block_is_named(threads, message):
    verdict = judge(get("kernel-guard"), (lessons.add_guarded, threads))
    assert verdict.state == "fail"
    assert message in verdict.message


@pytest.mark.parametrize("threads", [32, 64, 96, 1024])
def test_any_block_of_whole_warps_will_do(threads):
    assert judge(get("kernel-guard"), (lessons.add_guarded, threads)).state == "pass"


def test_mistakes_are_known_under_the_reader_s_own_block():
    wrong = edited(lessons.add_guarded, ("if i <", "if cuda.threadIdx.x <"))
    assert judge(get("kernel-guard"), (wrong, 64)).mistake == "guard-on-thread-index"


def test_a_kernel_alone_is_asked_for_its_block():
    assert "(kernel, threads)" in judge(get("kernel-guard"), lessons.add_guarded).message


def test_the_verdict_is_the_same_every_time():
    wrong = edited(lessons.reduce_tree, ("    cuda.syncthreads()\n", ""))
    first, again = (judge(get("kernel-reduce"), wrong) for _ in range(2))
    assert first.text() == again.text()
    assert "thread (" in first.message


def test_another_way_to_the_same_end_passes():
    grid_stride = edited(
        lessons.add_guarded, ("if i < c.shape[0]:", "for i in range(i, c.shape[0], cuda.gridsize(1)):")
    )
    assert judge(get("kernel-guard"), (grid_stride, 128)).state == "pass"
    down = edited(
        lessons.reduce_shuffle, ("shfl_xor_sync(FULL, value, 1 << k)", "shfl_down_sync(FULL, value, 16 >> k)")
    )
    assert judge(get("kernel-shuffle-reduce"), down).state == "pass"


def test_a_float64_expression_is_named_with_its_line():
    verdict = judge(get("kernel-map"), edited(lessons.silu, ("float32(1.0)", "1")))
    assert verdict.mistake == "float64"
    assert "line 4 rounds a float64" in verdict.message


def sums_by_atomics(x, partial):
    if cuda.threadIdx.x == 0:
        partial[cuda.blockIdx.x] = float32(0.0)
    cuda.syncthreads()
    if cuda.grid(1) < x.shape[0]:
        cuda.atomic.add(partial, cuda.blockIdx.x, x[cuda.grid(1)])


def one_thread_sums(x, partial):
    first = cuda.blockIdx.x * 128
    if cuda.threadIdx.x == 0:
        total = float32(0.0)
        for k in range(first, min(first + 128, x.shape[0])):
            total += x[k]
        partial[cuda.blockIdx.x] = total


def tree_of_each_warp(x, partial):
    s = cuda.shared.array(128, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    s[t] = x[i] if i < x.shape[0] else float32(0.0)
    cuda.syncwarp()
    for k in range(5):
        if t % 32 < 16 >> k:
            s[t] += s[t + (16 >> k)]
        cuda.syncwarp()
    cuda.syncthreads()
    if t == 0:
        partial[cuda.blockIdx.x] = s[0] + s[32] + s[64] + s[96]


def one_thread_normalises(x, gamma, beta, y, eps):
    kept = cuda.shared.array(256, float32)
    row, n = cuda.blockIdx.x, x.shape[1]
    if cuda.threadIdx.x == 0:
        mean, squares = float32(0.0), float32(0.0)
        for j in range(n):
            kept[j] = x[row, j]
            mean += kept[j]
        mean /= float32(n)
        for j in range(n):
            squares += (kept[j] - mean) * (kept[j] - mean)
        r = float32(1.0) / math.sqrt(squares / float32(n) + eps)
        for j in range(n):
            y[row, j] = (kept[j] - mean) * r * gamma[j] + beta[j]


ACCUMULATE = edited(lessons.add_guarded, ("c[i] = a[i]", "c[i] += a[i]"))
TURNED = edited(lessons.transpose, ("B[i, j] =", "B[i, j] +="))
MAXIMUM = "m = max(s[0], s[1])"

#: Kernels that no record knows: a right result where the record's launches are too kind, or a cost that is not due.
ACCEPTED_NOWHERE = [
    ("kernel-guard", (ACCUMULATE, 128), "is wrong"),
    ("kernel-guard", (lessons.add_guarded, 1000), "not full"),
    ("kernel-transpose", TURNED, "is wrong"),
    ("kernel-reduce", sums_by_atomics, "atomic additions"),
    ("kernel-reduce", one_thread_sums, "requests to load x"),
    ("kernel-shuffle-reduce", sums_by_atomics, "atomic additions"),
    ("kernel-shuffle-reduce", one_thread_sums, "requests to load x"),
    ("kernel-shuffle-reduce", tree_of_each_warp, "requests to load shared memory"),
    ("kernel-softmax-row", edited(lessons.softmax_row, (MAXIMUM, "m = s[1]")), "wrong"),
    ("kernel-softmax-row", edited(lessons.softmax_row, ("m = max(m, x[row, j])", "m = max(m, x[0, j])")), "wrong"),
    ("kernel-softmax-row", edited(lessons.softmax_row, ("m = LOWEST", "m = float32(-1e30)")), "wrong"),
    ("kernel-softmax-row", edited(lessons.softmax_row, ("range(5)", "range(4)")), "wrong"),
    ("kernel-softmax-row", edited(lessons.softmax_row, ("y[row, j] =", "y[row, j] +=")), "wrong"),
    ("kernel-online-softmax", edited(lessons.online_softmax, ("m, l = LOWEST", "m, l = float32(-1e30)")), "wrong"),
    ("kernel-layer-norm", one_thread_normalises, "do not share the work"),
    ("kernel-layer-norm", edited(lessons.layer_norm, ("x[row, j] if", "x[0, j] if")), "wrong"),
    ("kernel-layer-norm", edited(lessons.layer_norm, ("range(5)", "range(4)")), "wrong"),
    ("kernel-layer-norm", edited(lessons.layer_norm, ("y[row, j] =", "y[row, j] +=")), "wrong"),
    ("kernel-layer-norm", lessons.layer_norm_states, "load 600 elements of x, where 300 do"),
]


@pytest.mark.parametrize(("record", "answer", "message"), ACCEPTED_NOWHERE)
def test_a_kernel_right_by_luck_or_by_brute_force_fails(record, answer, message):
    verdict = judge(get(record), answer)
    assert verdict.state == "fail"
    assert message in verdict.message


def one_tile_ahead(A, B, C):
    sA = cuda.shared.array((2, 8, 8), float32)
    sB = cuda.shared.array((2, 8, 8), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, col = cuda.blockIdx.y * 8 + ty, cuda.blockIdx.x * 8 + tx
    acc, which = float32(0.0), 0
    for k0 in range(0, A.shape[1], 8):
        a = b = float32(0.0)
        if row < A.shape[0] and k0 + tx < A.shape[1]:
            a = A[row, k0 + tx]
        if k0 + ty < B.shape[0] and col < B.shape[1]:
            b = B[k0 + ty, col]
        sA[which, ty, tx], sB[which, ty, tx] = a, b
        cuda.syncthreads()
        for k in range(8):
            acc += sA[which, ty, k] * sB[which, k, tx]
        which = 1 - which
    if row < C.shape[0] and col < C.shape[1]:
        C[row, col] = acc


def sum_of_what_is_there(x, partial):
    s = cuda.shared.array(128, float32)
    t, first = cuda.threadIdx.x, cuda.blockIdx.x * 128
    n = min(128, x.shape[0] - first)
    if t < n:
        s[t] = x[first + t]
    cuda.syncthreads()
    step = 64
    while step > 0:
        if t < step and t + step < n:
            s[t] += s[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        partial[cuda.blockIdx.x] = s[0]


def all_add_four(x, partial):
    s = cuda.shared.array(4, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    value = x[i] if i < x.shape[0] else float32(0.0)
    for step in (16, 8, 4, 2, 1):
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, step)
    if t % 32 == 0:
        s[t // 32] = value
    cuda.syncthreads()
    total = s[0] + s[1] + s[2] + s[3]
    if t == 127:
        partial[cuda.blockIdx.x] = total


def one_warp_normalises(x, gamma, beta, y, eps):
    own = cuda.local.array(8, float32)
    row, t, n = cuda.blockIdx.x, cuda.threadIdx.x, x.shape[1]
    if t < 32:
        total = float32(0.0)
        for k in range(8):
            own[k] = x[row, t + 32 * k] if t + 32 * k < n else float32(0.0)
            total += own[k]
        for k in range(5):
            total += cuda.shfl_xor_sync(0xFFFFFFFF, total, 1 << k)
        mean = total / float32(n)
        total = float32(0.0)
        for k in range(8):
            own[k] = own[k] - mean if t + 32 * k < n else float32(0.0)
            total += own[k] * own[k]
        for k in range(5):
            total += cuda.shfl_xor_sync(0xFFFFFFFF, total, 1 << k)
        for j in range(t, n, 32):
            y[row, j] = own[j // 32] / math.sqrt(total / float32(n) + eps) * gamma[j] + beta[j]


UNUSUAL = [
    ("kernel-shared-tile", one_tile_ahead),
    ("kernel-shared-tile", edited(lessons.shared_tile, ("sA[ty, k] * sB[k, tx]", "sB[k, tx] * sA[ty, k]"))),
    ("kernel-transpose", edited(lessons.transpose, ("(32, 33)", "(32, 65)"))),
    (
        "kernel-transpose",
        edited(
            lessons.transpose,
            ("(32, 33)", "(32, 32)"), ("tile[ty, tx]", "tile[ty, tx ^ ty]"), ("tile[tx, ty]", "tile[tx, ty ^ tx]"),
        ),
    ),
    ("kernel-reduce", sum_of_what_is_there),
    ("kernel-shuffle-reduce", all_add_four),
    ("kernel-layer-norm", one_warp_normalises),
]  # fmt: skip


@pytest.mark.parametrize(("record", "answer"), UNUSUAL)
def test_an_unusual_right_kernel_passes(record, answer):
    verdict = judge(get(record), answer)
    assert verdict.state == "pass", verdict.message
