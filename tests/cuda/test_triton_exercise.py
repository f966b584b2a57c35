"""The exercise kind for Triton: a fault is a verdict, renamed answers are recognised, and nothing passes unseen."""

import sys

import pytest

from labsupport.cuda.kernels import triton_lessons
from labsupport.cuda.kernels.lessons import edited
from labsupport.cuda.triton_compile import unavailable
from labsupport.exercises import get
from labsupport.grading.judge import judge

RECORD = get("kernel-triton-softmax")
linux = pytest.mark.skipif(unavailable() is not None, reason=f"no Triton: {unavailable()}")


def variant(*edits):
    return edited(triton_lessons.softmax_kernel, *edits)


@linux
def test_an_answer_with_names_of_its_own_is_recognised():
    renamed = variant(
        ("y_ptr, x_ptr, columns, BLOCK", "out, logits, n, SIZE"),
        ("BLOCK)", "SIZE)"),
        ("inside = j < columns", "inside = j < n"),
        ('x_ptr + row * columns + j, mask=inside, other=-float("inf")', "logits + row * n + j"),
        ("y_ptr + row * columns + j", "out + row * n + j"),
    )
    verdict = judge(RECORD, renamed)
    assert verdict.mistake == "no-load-mask"
    assert "logits (3, 7) float32" in verdict.message


@linux
def test_a_decorated_kernel_is_taken_as_it_is():
    triton = pytest.importorskip("triton")
    assert judge(RECORD, triton.jit(triton_lessons.softmax_kernel)).passed


@linux
@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (("tl.exp", "numpy.exp"), "NameError: name 'numpy' is not defined"),
        (("x_ptr, columns, BLOCK", "x_ptr, columns, stride, BLOCK"), "the kernel takes 4 arguments"),
        (("e / tl.sum(e, axis=0)", "tl.softmax(x)"), "the kernel calls softmax, which this exercise asks you to write"),
        (("    e = ", "    while row == row:\n        row += 0\n    e = "), "did not end in time"),
    ],
)
def test_a_fault_is_a_verdict(edit, told):
    from dataclasses import replace

    verdict = judge(replace(RECORD, seconds=3.0), variant(edit))
    assert verdict.state == "fail"
    assert told in verdict.message


@linux
def test_a_function_without_source_is_told_so():
    names: dict = {}
    exec("def softmax_kernel(y_ptr, x_ptr, columns, BLOCK):\n    x = 1\n    y = x", names)
    assert "source of your kernel cannot be read" in judge(RECORD, names["softmax_kernel"]).message


def test_elsewhere_than_on_linux_the_reason_is_said_and_nothing_passes(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    verdict = judge(RECORD, triton_lessons.softmax_kernel)
    assert verdict.state == "review"
    assert "not judged here: Triton is made for Linux only, and this is win32" in verdict.message


def test_without_an_answer_no_process_is_started(monkeypatch):
    from labsupport.cuda import triton_exercise

    monkeypatch.setattr(triton_exercise, "_shared", lambda: pytest.fail("a stub needs no interpreter"))
    assert judge(RECORD, ...).state == "todo"
