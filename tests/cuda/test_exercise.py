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
