"""Answers that other graders got wrong, from their public reports: each must be judged right here.

Each test is named after what it guards.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from labsupport.grading import Case, Choice, Formula, Function, Mistake, Number, Option, Tolerance
from labsupport.grading.judge import judge

COMMON = {"id": "of-the-field", "chapter": 5, "section": "5.2", "title": "t", "prompt": "p", "hints": ("h",)}


def function(oracle: Callable, cases: Callable, **fields) -> Function:
    return Function(**COMMON, oracle=oracle, cases=cases, **fields)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rows(rng):
    return [Case(args=(scale * rng.normal(size=shape),)) for shape in [(3, 4), (4, 4), (257,)] for scale in (1, 500)]


SOFTMAX = function(
    softmax, rows, tolerance=Tolerance(c=4, depth=lambda x: x.shape[-1], scale=lambda x: np.abs(x).max())
)
SUM = function(
    lambda x: x.sum(),
    lambda rng: [Case(args=(rng.normal(size=n).astype(t),)) for n in (1, 7, 1024) for t in (np.float32, np.float64)],
    tolerance=Tolerance(c=4, depth=lambda x: x.size, scale=lambda x: np.abs(x).max()),
)
SOFTPLUS = Formula(**COMMON, oracle=lambda z: np.logaddexp(0, z), sample=lambda rng: (rng.uniform(-3, 3),), mistakes=())
CAUSAL = function(
    lambda q, k: softmax(np.where(np.tri(len(q), dtype=bool), q @ k.T, -np.inf)),
    lambda rng: [Case(args=(rng.normal(size=(5, 3)), rng.normal(size=(5, 3)))), Case(args=(np.ones((4, 2)),) * 2)],
    tolerance=Tolerance(c=8, depth=8, scale=lambda q, k: 1 + np.abs(q @ k.T).max()),
    mistakes=(
        Mistake(name="no-mask", answer=lambda q, k: softmax(q @ k.T), message="No mask: a token sees later ones."),
    ),
)


def softmax_backward(p, dp):
    return p * (dp - (dp * p).sum(-1, keepdims=True))


BACKWARD = function(
    softmax_backward,
    lambda rng: [Case(args=(softmax(rng.normal(size=(3, 5))), rng.normal(size=(3, 5)))) for _ in range(3)],
    tolerance=Tolerance(c=4, depth=5, scale=lambda p, dp: np.abs(dp).max()),
)

# Right answers that must pass.


@pytest.mark.parametrize("yes", [True, np.True_, np.bool_(1)])
def test_numpy_2_truth_values_pass(yes):
    record = Choice(**COMMON, options={"True": Option("t", "Yes.", True), "False": Option("f", "No.")})
    assert judge(record, yes).state == "pass"
    contiguous = function(lambda x: bool(x.flags.c_contiguous), rows)
    assert judge(contiguous, lambda x: np.bool_(x.flags.c_contiguous)).state == "pass"


@pytest.mark.parametrize("scalar", [np.float64, np.float32, float, np.asarray, lambda v: np.asarray(v)[()]])
def test_numpy_2_scalars_pass(scalar):
    assert judge(SUM, lambda x: scalar(x.sum())).state == "pass"
    assert judge(Number(**COMMON, expected=0.5), scalar(0.5)).state == "pass"


def test_a_product_of_numpy_integers_passes():
    record = Number(**COMMON, expected=2 * 4 * 1024 * 1024, unit="FLOP", exact=True, default_unit="FLOP")
    assert judge(record, np.prod([4, 1024, 1024]) * 2).state == "pass"


def test_a_whole_float_for_a_whole_number_passes():
    assert judge(Number(**COMMON, expected=8388608, exact=True), 8388608.0).state == "pass"
    flops = function(
        lambda m, n: 2 * m * n, lambda rng: [Case(args=(1024, 4096)), Case(args=(3, int(rng.integers(9))))]
    )
    assert judge(flops, lambda m, n: 2.0 * m * n).state == "pass"
    assert judge(flops, lambda m, n: np.prod([m, n]) * 2).state == "pass"
    assert judge(flops, lambda m, n: 2.0 * m * n + 0.5).state == "fail"


def test_a_float32_result_for_a_float32_input_passes():
    def add(x):
        total = np.float32(0) if x.dtype == np.float32 else 0.0
        for value in x:
            total = total + value
        return total

    assert judge(SUM, add).state == "pass"


def test_a_run_that_warns_on_stderr_passes():
    def warns(x):
        print("warning", file=sys.stderr)
        np.log(np.zeros(1))
        return softmax(x)

    assert judge(SOFTMAX, warns).state == "pass"


@pytest.mark.parametrize(
    "formula",
    [lambda z: np.log1p(np.exp(z)), lambda z: z + np.log1p(np.exp(-z)), lambda z: z / 2 + np.log(2 * np.cosh(z / 2))],
)
def test_a_mathematically_equal_formula_passes(formula):
    assert judge(SOFTPLUS, formula).state == "pass"


def test_a_log_sum_exp_shift_passes():
    def by_logs(x):
        m = x.max(-1, keepdims=True)
        return np.exp(x - (m + np.log(np.exp(x - m).sum(-1, keepdims=True))))

    assert judge(SOFTMAX, by_logs).state == "pass"


def test_a_kernel_closer_to_the_truth_than_the_reference_passes():
    """The reference in float32 adds up an error that the answer does not have: float64 is the judge."""

    def poor(x):
        total = x.dtype.type(0)
        for value in x:
            total += value
        return total

    record = function(
        poor,
        lambda rng: [Case(args=(rng.uniform(size=4096).astype(np.float32),))],
        tolerance=Tolerance(c=1, depth=1),
    )
    assert judge(record, lambda x: x.astype(np.float64).sum().astype(np.float32)).state == "pass"
    assert judge(record, poor).state == "fail"


def test_an_answer_from_another_cell_order_passes(softmax_record):
    """The answer is passed by value: what else is defined, and when, does not matter."""
    namespace = {}
    exec("def f(x):\n    return g(x)", namespace)
    exec("def g(x):\n    e = np.exp(x - x.max(-1, keepdims=True))\n    return e / e.sum(-1, keepdims=True)", namespace)
    exec("import numpy as np", namespace)
    assert judge(softmax_record, namespace["f"]).state == "pass"


def test_a_renamed_notebook_passes(tmp_path):
    """Nothing depends on a file's name: the same check in a file of any name gives the same bytes."""
    source = (
        "from labsupport.grading import Shape\nfrom labsupport.grading.judge import judge\n"
        f"print(judge(Shape(**{json.dumps({**COMMON, 'hints': ['h']})}, expected=(2, 3)), (3, 2)).html())\n"
    )
    shown = set()
    for name in ("05-softmax.py", "copy of 05 (2).py"):
        (tmp_path / name).write_text(source)
        ran = subprocess.run([sys.executable, name], cwd=tmp_path, capture_output=True, text=True, check=True)
        shown.add(ran.stdout)
    assert len(shown) == 1
    assert 'data-state="fail"' in shown.pop()


# Wrong answers that must fail.


def fails(record, answer, words=""):
    verdict = judge(record, answer)
    assert verdict.state == "fail", verdict
    assert words in verdict.message, verdict
    return verdict


def test_zeros_do_not_hide_under_an_absolute_tolerance():
    tiny = function(lambda x: x * 1e-12, lambda rng: [Case(args=(rng.normal(size=50),))])
    assert judge(tiny, lambda x: 1e-12 * x).state == "pass"
    fails(tiny, np.zeros_like, "every value is wrong")


def test_a_ratio_is_no_softmax():
    fails(SOFTMAX, lambda x: x / x.sum(-1, keepdims=True))


def test_a_naive_softmax_that_overflows_fails():
    fails(SOFTMAX, lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True), "NaN came back")


def test_a_column_where_a_vector_is_due_fails():
    record = function(lambda x: x.sum(-1), lambda rng: [Case(args=(rng.normal(size=(3, 4)),))])
    fails(record, lambda x: x.sum(-1, keepdims=True), "(3, 1)")
    fails(record, lambda x: x.sum(-1)[None], "(1, 3)")


def test_an_empty_list_is_no_scalar():
    fails(SUM, lambda x: [], "a list")
    fails(SUM, lambda x: np.array([]), "A single number is due")
    fails(SUM, lambda x: np.array([x.sum()]), "(1,)")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_fail(value):
    fails(SOFTMAX, lambda x: np.full_like(x, value), "came back")
    fails(Number(**COMMON, expected=1.0), value)


def test_nan_where_nan_is_due_passes_and_a_number_there_fails():
    record = function(lambda x: np.sqrt(x), lambda rng: [Case(args=(np.array([-1.0, 4.0, np.inf]),))])
    assert judge(record, lambda x: x**0.5).state == "pass"
    fails(record, lambda x: np.nan_to_num(np.sqrt(x)), "not what the contract states")
    fails(record, lambda x: np.array([np.nan, 2, -np.inf]), "not what the contract states")


def test_an_empty_result_fails():
    fails(SOFTMAX, lambda x: x[:0])
    fails(SOFTMAX, lambda x: ())


def test_an_integer_dtype_fails():
    record = function(lambda x: x * 2.0, lambda rng: [Case(args=(np.arange(4.0),))])
    fails(record, lambda x: (2 * x).astype(int), "floating-point numbers are due")
    mask = function(lambda x: x > 0, lambda rng: [Case(args=(rng.normal(size=4),))])
    fails(mask, lambda x: (x > 0).astype(int), "true or false are due")


def test_an_answer_right_only_for_ones_fails():
    record = function(
        lambda a, b: a @ b,
        lambda rng: [Case(args=(np.ones((2, 2)),) * 2), Case(args=(rng.normal(size=(2, 2)), rng.normal(size=(2, 2))))],
    )
    fails(record, lambda a, b: 2 * a * b, "case 2")


@pytest.mark.parametrize("factor", [0.99, 0.995, 1.005, 1.01])
def test_half_a_per_cent_fails(factor):
    fails(SOFTMAX, lambda x: softmax(x) * factor)
    fails(BACKWARD, lambda p, dp: softmax_backward(p, dp) * factor)


def test_a_mutated_input_fails():
    def mutates(x):
        x -= x.max(-1, keepdims=True)
        return softmax(x)

    fails(SOFTMAX, mutates, "changed its input")


def test_an_object_equal_to_everything_fails():
    class Any:
        def __eq__(self, other):
            return True

        __hash__ = None

    fails(SOFTMAX, lambda x: Any(), "an object of type Any")
    fails(Number(**COMMON, expected=1), Any(), "an object of type Any")
    fails(Choice(**COMMON, options={"a": Option("a", "b.", True), "b": Option("a", "b.")}), Any(), "of type Any")


def test_a_masked_array_hiding_a_wrong_value_fails():
    def hides(x):
        wrong = softmax(x)
        wrong.flat[0] = 7
        return np.ma.masked_array(wrong, mask=wrong == 7)

    fails(SOFTMAX, hides, "masked array")


def test_an_ignored_causal_mask_fails():
    assert fails(CAUSAL, lambda q, k: softmax(q @ k.T)).mistake == "no-mask"


def test_an_off_by_one_mask_fails():
    """A row of equal scores hides a wrong mask, because softmax only sees differences; random rows do not."""

    def off_by_one(q, k):
        return softmax(np.where(np.tri(len(q), k=1, dtype=bool), q @ k.T, -np.inf))

    def masks_with_zero(q, k):
        return softmax(np.where(np.tri(len(q), dtype=bool), q @ k.T, 0.0))

    def masks_after(q, k):
        return softmax(q @ k.T) * np.tri(len(q))

    for answer in (off_by_one, masks_with_zero, masks_after):
        fails(CAUSAL, answer)


def test_all_zero_gradients_fail():
    """With a cotangent of ones every softmax gradient is zero; a random one tells them apart."""
    fails(BACKWARD, lambda p, dp: np.zeros_like(p), "every value is wrong")
    fails(BACKWARD, lambda p, dp: p - p, "every value is wrong")


def test_a_gradient_of_zero_is_held_to_the_scale_of_its_inputs():
    record = function(lambda x: x - x, lambda rng: [Case(args=(rng.normal(size=9),))])
    assert judge(record, lambda x: np.zeros_like(x)).state == "pass"
    assert judge(record, lambda x: (x + 1) - 1 - x).state == "pass"
    fails(record, lambda x: x * 1e-9)


@pytest.mark.parametrize("size", [257, 100_001])
def test_a_wrong_middle_element_of_a_long_array_fails(size):
    record = function(lambda x: x + 1, lambda rng: [Case(args=(rng.normal(size=size),))])

    def dented(x):
        out = x + 1
        out[size // 2] += 1e-6
        return out

    verdict = fails(record, dented, f"1 of {size} values is wrong, the first at index {size // 2}")
    assert "came back" not in verdict.message  # to four digits it is the right one


def test_a_hard_coded_answer_for_the_shown_case_fails():
    fails(SOFTMAX, lambda x: np.array([0.09, 0.24, 0.67]))
    fails(SUM, lambda x: 6.0)


def test_a_hung_answer_fails():
    def hangs(x):
        while True:
            pass

    fails(replace(SOFTMAX, seconds=0.3), hangs, "did not end within")


def test_an_infinite_print_fails(capsys):
    def prints(x):
        while True:
            print("x")

    fails(replace(SOFTMAX, seconds=0.3), prints, "did not end within")
    assert capsys.readouterr().out == ""
