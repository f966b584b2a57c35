"""The verb ``check``: findings are answers, the caller's arrays stay, misuse is named."""

import numpy as np
import pytest

from labsupport import cuda
from labsupport.cuda.kernels import ladder, lessons
from tests.cuda import kernels_wrong as wrong

X = np.linspace(-2, 2, 100).astype(np.float32)


def test_a_right_kernel_passes_with_its_report_and_its_results():
    c = np.zeros(100, np.float32)
    found = cuda.check(ladder.vector_add, 4, 32, X, X, c, expected={"c": 2 * X})
    assert found
    assert found.passed
    assert found.report.total("accesses", kind="load") == 200
    np.testing.assert_array_equal(found.results["c"], 2 * X)
    assert not c.any()
    assert str(found).startswith("✓ vector_add")


def test_a_fault_is_an_answer_with_line_and_thread():
    found = cuda.check(wrong.add_without_guard, 4, 32, X, X, np.zeros(100, np.float32))
    assert not found
    assert "thread (" in found.fault
    assert "Line" in found.fault
    assert found.report is None
    assert repr(found).startswith("✗ add_without_guard: ")


def test_a_wrong_result_is_an_answer():
    found = cuda.check(ladder.vector_add, 4, 32, X, X, np.zeros(100, np.float32), expected={"c": X})
    assert "c[0] is wrong, and 100 of 100" in found.fault


def test_infinities_and_nan_are_compared_too():
    x = np.array([np.inf, np.nan, 1.0], np.float32)
    assert cuda.check(ladder.vector_add, 1, 32, x, x, np.zeros(3, np.float32), expected={"c": x + x})


def test_a_float64_is_noted():
    wide = lessons.edited(lessons.silu, ("float32(1.0)", "1.0"))
    found = cuda.check(wide, 3, 32, X[:96].copy(), np.zeros(96, np.float32))
    assert found
    assert "float64 arithmetic" in repr(found)


@pytest.mark.parametrize(("block", "message"), [(2048, "limit is 1024"), (0, "at least 1"), ((32, 33), "1056 threads")])
def test_a_bad_block_is_an_answer(block, message):
    assert message in cuda.check(ladder.vector_add, 1, block, X, X, X.copy()).fault


def test_bad_arguments_are_answers():
    assert "not contiguous" in cuda.check(ladder.vector_add, 4, 32, X, X[::-1], X.copy()).fault
    assert "complex64" in cuda.check(ladder.vector_add, 4, 32, X, X * 1j, X.copy()).fault
    assert "takes 3 arguments" in cuda.check(ladder.vector_add, 4, 32, X).fault
    empty = np.zeros(0, np.float32)
    assert cuda.check(ladder.vector_add, 1, 32, empty, empty, empty)


def test_misuse_of_the_verb_is_named():
    with pytest.raises(TypeError, match="written with def"):
        cuda.check(3, 1, 32)
    with pytest.raises(ValueError, match="no array 'd'; it has a, b, c"):
        cuda.check(ladder.vector_add, 4, 32, X, X, X.copy(), expected={"d": X})
    with pytest.raises(ValueError, match="shape"):
        cuda.check(ladder.vector_add, 4, 32, X, X, X.copy(), expected={"c": X[:5]})


def test_a_name_that_cuda_does_not_have_is_named():
    with pytest.raises(AttributeError, match="check"):
        cuda.chek
