"""How a function is judged: order of findings, structures, dtypes, tolerance, mistakes, forbidden calls."""

from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from labsupport.grading import Case, Function, Mistake, Tolerance
from labsupport.grading.judge import judge
from labsupport.grading.tolerance import EPS, coarsest

COMMON = {"id": "a-function", "chapter": 2, "section": "2.3", "title": "t", "prompt": "p", "hints": ("h",)}


def record(oracle, *arguments, **fields):
    cases = [Case(args=args) for args in arguments]
    return Function(**COMMON, oracle=oracle, cases=lambda rng: [replace(case) for case in cases], **fields)


X = np.arange(6.0).reshape(2, 3)

# Kinds of results.


@pytest.mark.parametrize("given", [lambda x: (x.sum(), x * 2), lambda x: [x.sum(), x * 2]])
def test_a_tuple_may_come_back_as_a_list(given):
    assert judge(record(lambda x: (x.sum(), x * 2), (X,)), given).state == "pass"


def test_a_named_tuple_is_a_tuple():
    Pair = namedtuple("Pair", "a b")
    assert judge(record(lambda x: (x, x), (X,)), lambda x: Pair(x, x)).state == "pass"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda x: x, "returned an array, where a tuple or list of 2 is due"),
        (lambda x: x.sum(), "returned one value, where a tuple or list of 2 is due"),
        (lambda x: (x, x, x), "3 values, where 2 are due"),
        (lambda x: (x, x + 1), "result 2: every value is wrong"),
        (lambda x: (x, (x, x)), "a tuple, where an array is due"),
        (lambda x: {"a": x}, "returned a dict, where a tuple or list of 2 is due"),
    ],
)
def test_a_wrong_tuple_is_told_why(given, words):
    assert words in judge(record(lambda x: (x, x), (X,)), given).message


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda x: {"m": x}, "the keys"),
        (lambda x: {"m": x, "v": 2 * x}, "v: 5 of 6 values are wrong"),
        (lambda x: {"m": x, "v": x, "w": x}, "the keys"),
        (lambda x: {object(): x}, "a key of the dict"),
        (lambda x: (x, x), "a dict is due"),
    ],
)
def test_a_wrong_dict_is_told_why(given, words):
    asked = record(lambda x: {"m": x, "v": x}, (X,))
    assert judge(asked, lambda x: {"v": x, "m": x}).state == "pass"
    assert words in judge(asked, given).message


def test_a_list_stands_for_an_array_only_where_the_exercise_says_so():
    asked = record(lambda x: x * 2, (X,))
    assert "a list" in judge(asked, lambda x: (x * 2).tolist()).message
    assert judge(replace(asked, lists=True), lambda x: (x * 2).tolist()).state == "pass"
    assert "differ in length" in judge(replace(asked, lists=True), lambda x: [[1.0], [1.0, 2.0]]).message
    assert "more than numbers" in judge(replace(asked, lists=True), lambda x: ["a"]).message
    assert judge(replace(asked, lists=True), lambda x: (x * 3).tolist()).state == "fail"


def test_a_tuple_of_numbers_stands_where_a_list_of_them_may():
    rec = record(lambda x: 2 * x, (X,), lists=True)
    assert judge(rec, lambda x: tuple(tuple(row) for row in (2 * x).tolist())).state == "pass"
    assert judge(rec, lambda x: [tuple(row) for row in (2 * x).tolist()]).state == "pass"
    assert judge(rec, lambda x: tuple((2 * x).ravel().tolist())).state == "fail"


def test_an_ellipsis_in_the_result_is_a_stub():
    asked = record(lambda x: (x, x), (X,))
    assert judge(asked, lambda x: (x, ...)).state == "todo"
    assert judge(asked, lambda x: ...).state == "todo"


@pytest.mark.parametrize("answer", [3, "softmax", X, None, (1, 2)])
def test_a_result_instead_of_a_function_is_told(answer):
    verdict = judge(record(lambda x: x, (X,)), answer)
    assert verdict.state == "fail"
    assert "Pass the function itself" in verdict.message


def test_an_exception_that_the_contract_asks_for():
    def strict(x):
        if x.ndim != 2:
            raise ValueError("a matrix is due")
        return x

    def cases(rng):
        return [Case(args=(X,)), Case(args=(X[0],), raises=ValueError)]

    asked = Function(**COMMON, oracle=strict, cases=cases)
    assert judge(asked, strict).state == "pass"
    assert "asks for ValueError here; none was raised" in judge(asked, lambda x: x).message

    def wrong_type(x):
        if x.ndim != 2:
            raise KeyError
        return x

    assert "raised KeyError on line 3 of wrong_type. The contract asks" in judge(asked, wrong_type).message


def test_a_missing_return_is_guessed():
    def forgets(x):
        y = x * 2  # noqa: F841

    assert "Does every path end in a return?" in judge(record(lambda x: x * 2, (X,)), forgets).message


# Dtypes and tolerance.


@pytest.mark.parametrize(
    ("given", "state"),
    [
        (np.float64, "pass"),
        (np.float32, "pass"),
        (np.longdouble, "pass"),
        (np.float16, "fail"),
        (np.complex128, "fail"),
    ],
)
def test_a_float_of_enough_precision_is_a_float(given, state):
    assert judge(record(lambda x: x + 0.1, (X,)), lambda x: (x + 0.1).astype(given)).state == state


def test_the_very_dtype_is_held_only_where_the_contract_keeps_it():
    asked = record(lambda x: x + 1, (X,), (X.astype(np.float32),), dtype="exact")
    assert judge(asked, lambda x: x + 1).state == "pass"
    assert "asks for another one" in judge(asked, lambda x: (x + 1).astype(np.float64)).message
    assert "asks for another one" in judge(asked, lambda x: (x + 1).astype(np.float32)).message


def test_unsigned_integers_are_whole_numbers():
    asked = record(lambda x: x.astype(int), (X,))
    assert judge(asked, lambda x: x.astype(np.uint8)).state == "pass"
    assert judge(asked, lambda x: x).state == "fail"
    assert judge(asked, lambda x: x.astype(bool)).state == "fail"


def test_the_tolerance_grows_with_depth_and_with_the_coarser_dtype():
    one = Tolerance(c=4)
    deep = Tolerance(c=4, depth=lambda x: x.size)
    reference = np.array([0.5, -2.0, np.inf])
    assert one.allowed(reference, "float64", (X,), {}).tolist() == [8 * EPS["float64"]] * 3
    assert deep.allowed(reference, "float64", (X,), {}).tolist() == [48 * EPS["float64"]] * 3
    assert one.allowed(reference, "float32", (X,), {}).tolist() == [8 * EPS["float32"]] * 3
    each = Tolerance(c=4, scale="each").allowed(reference, "float64", (X,), {})
    assert each.tolist() == [2 * EPS["float64"], 8 * EPS["float64"], 0.0]
    assert coarsest(["float64", "float32"]) == "float32"
    assert coarsest([]) == "float64"


@pytest.mark.parametrize(("units", "state"), [(3, "pass"), (5, "fail"), (-3, "pass"), (-5, "fail")])
def test_the_tolerance_is_units_in_the_last_place(units, state):
    asked = record(lambda x: x, (np.array([1.0, 1.0]),))
    assert judge(asked, lambda x: x + units * EPS["float64"]).state == state


def test_the_tolerance_is_told_to_the_reader():
    asked = record(lambda x: x.sum(), (np.ones(1024, np.float32),), tolerance=Tolerance(c=4, depth=np.size))
    assert str(judge(asked, np.sum)) == (
        "✓ a-function: right.\n"
        "  1 case, each within 4 units in the last place of float32, times the reduction length 1024."
    )
    assert judge(record(np.ndim, (X,)), np.ndim).message.endswith("compared exactly.")


@pytest.mark.parametrize("fields", [{"c": 0}, {"scale": "loose"}])
def test_a_tolerance_that_means_nothing_is_refused(fields):
    with pytest.raises(ValueError, match=r"scale|c > 0"):
        Tolerance(**fields)


def test_the_truth_is_computed_in_float64_and_in_more_where_the_record_says_so():
    x = np.array([1.0, 1e-17, -1.0])
    plain = record(lambda x: np.float64(x[0] + x[1] + x[2]), (x,))
    exact = replace(plain, reference=lambda x: x.astype(np.longdouble).sum())
    assert judge(plain, lambda x: 0.0).state == "pass"
    assert judge(exact, lambda x: 0.0).state == "fail"


# Mistakes.


def test_a_mistake_must_agree_on_every_case_where_it_is_wrong():
    asked = record(
        lambda x: x * 2,
        (X,),
        (X + 1,),
        mistakes=(Mistake(name="triple", answer=lambda x: x * 3, message="Twice, not three times."),),
    )
    assert judge(asked, lambda x: 3 * x).mistake == "triple"
    assert judge(asked, lambda x: x * 3 if x[0, 0] == 0 else x).mistake is None


def test_a_mistake_that_explains_every_failing_case_comes_first():
    cases = [(np.array([1.0]),), (np.array([-1.0]),), (np.array([2.0]),)]
    mistakes = (
        Mistake(name="negative", answer=lambda x: np.where(x < 0, -x, x * x), message="The sign."),
        Mistake(name="absolute", answer=lambda x: np.abs(x), message="Not squared."),
    )
    asked = record(lambda x: np.where(x < 0, -2 * x, x * x), *cases, mistakes=mistakes)
    assert judge(asked, mistakes[0].answer).mistake == "negative"
    assert judge(asked, mistakes[1].answer).mistake == "absolute"


def test_a_mistake_is_named_only_where_it_explains_the_case_shown():
    shifted = Mistake(name="shifted", answer=lambda x: x + 1 if x.size == 2 else x, message="Shifted.")
    rec = record(lambda x: x, (np.zeros(1),), (np.zeros(2),), mistakes=(shifted,))
    assert judge(rec, shifted.answer).mistake == "shifted"
    both = judge(rec, lambda x: x + 1)
    assert both.mistake is None
    assert "Shifted" not in both.message


@pytest.mark.parametrize("given", [lambda x: x, lambda x: x[:], lambda x: x.reshape(3, 2).reshape(2, 3)])
def test_an_input_or_a_view_of_it_is_not_new(given):
    assert judge(record(lambda x: x.copy(), (X,)), given).state == "pass"
    assert "the result is to be new" in judge(record(lambda x: x.copy(), (X,), fresh=True), given).message


def test_new_results_are_new_in_every_container():
    rec = record(lambda xs: [x + 0 for x in xs], ([X, X + 1],), fresh=True)
    assert judge(rec, lambda xs: [x.copy() for x in xs]).state == "pass"
    assert judge(rec, lambda xs: [xs[0].copy(), xs[1]]).state == "fail"
    numbers = record(lambda xs: [x + 0 for x in xs], ([1, 2],), fresh=True)
    assert judge(numbers, lambda xs: list(xs)).state == "pass"
    assert judge(numbers, lambda xs: xs).state == "fail"


def test_what_is_held_at_once_can_be_limited():
    def outer(x):
        return np.exp(x[:, None] * x).sum(axis=1)

    def by_rows(x):
        return np.array([np.exp(value * x).sum() for value in x])

    long = np.linspace(0, 1, 400)
    limited = Mistake(name="whole-table", answer=outer, message="You hold the whole table.")
    rec = record(by_rows, (long,), held=lambda x: 100_000, mistakes=(limited,), tolerance=Tolerance(depth=400))
    assert judge(rec, by_rows).state == "pass"
    verdict = judge(rec, outer)
    assert (verdict.state, verdict.mistake) == ("fail", "whole-table")
    assert "holds far more numbers at once" in verdict.message
    assert judge(replace(rec, held=lambda x: None), outer).state == "pass"


def test_a_mistake_may_raise_or_change_its_input():
    def mutates(x):
        x += 1
        return x * 2

    def raises(x):
        raise IndexError

    asked = record(
        lambda x: (x + 1) * 2,
        (X.copy(),),
        mistakes=(
            Mistake(name="mutates", answer=mutates, message="It writes."),
            Mistake(name="raises", answer=raises, message="It counts from 1."),
        ),
    )
    fresh = replace(asked, cases=lambda rng: [Case(args=(X.copy(),))])
    assert judge(fresh, mutates).mistake == "mutates"
    assert judge(fresh, raises).mistake == "raises"
    assert judge(fresh, lambda x: x * 2).mistake is None


def test_the_first_failing_case_is_told_and_no_expected_value():
    asked = record(lambda x: x * 1.234567, (np.ones(2),), (np.full(2, 2.0),))
    message = judge(asked, lambda x: np.where(x > 1, 9.8765, x * 1.234567)).message
    assert message == (
        "every value is wrong, the first at index 0: 9.877 came back.\n"
        "Input float64 (2,), case 2.\n"
        'See section 2.3, then hint("a-function").'
    )
    assert "1.2345" not in message
    assert "2.469" not in message


def test_the_subject_is_asked_only_about_results_of_the_right_form():
    asked_about = []

    def diagnose(case, result):
        asked_about.append(result)
        return "the rows are wrong." if result[0].sum() else None

    asked = record(lambda x: (x + 1, x), (X,), diagnose=diagnose)
    assert judge(asked, lambda x: (x, x)).message.startswith("the rows are wrong.")
    assert judge(asked, lambda x: (x * 0, x)).message.startswith("result 1: every value is wrong")
    before = len(asked_about)
    assert before
    for answer in (lambda x: x, lambda x: (x, 1.0), lambda x: (x[0], x), lambda x: (x / 0, x), lambda x: (x > 1, x)):
        assert judge(asked, answer).state == "fail"
    assert len(asked_about) == before


def test_the_subject_sees_the_result_of_its_own_case():
    buffer = np.empty(3)

    def reuses(x):
        buffer[:] = 2 * x
        return buffer

    asked = record(
        lambda x: x,
        (np.ones(3),),
        (np.zeros(3),),
        diagnose=lambda case, result: "twice too much." if result[0] == 2 else "not seen.",
    )
    assert judge(asked, reuses).message.startswith("twice too much.")


def test_a_random_generator_is_given_to_everyone_in_the_same_state():
    def cases(rng):
        return [Case(args=(np.random.default_rng(seed), 4)) for seed in (1, 2)]

    asked = Function(**COMMON, oracle=lambda rng, n: rng.normal(size=n), cases=cases)
    assert judge(asked, lambda rng, n: rng.normal(size=n)).state == "pass"
    assert judge(asked, lambda rng, n: rng.uniform(size=n)).state == "fail"


def test_a_scale_that_would_let_everything_pass_is_a_fault_of_the_record():
    masked = np.array([1.0, -np.inf])
    asked = record(lambda x: np.exp(x), (masked,), tolerance=Tolerance(scale=lambda x: np.abs(x).max()))
    assert judge(asked, np.exp).state == "grader-error"


def test_how_an_answer_is_called_can_be_said():
    def twice(step, x):
        return step(step(x))

    asked = record(lambda x: x + 1, (X,), call=twice)
    assert judge(asked, lambda x: x + 1).state == "pass"
    assert judge(asked, lambda x: x + 2).state == "fail"


def test_cases_with_views_keep_their_layout():
    seen = []

    def looks(x):
        seen.append((x.flags.c_contiguous, x.flags.writeable, x.strides))
        return x + 1

    views = record(lambda x: x + 1, (X.T,), (X[:, ::-1],))
    assert judge(views, looks).state == "pass"
    assert seen == [(False, True, X.T.strides), (False, True, X[:, ::-1].strides)]


# Forbidden calls.


def helper(x):
    return np.linalg.inv(x)


def as_argument(x, inv=np.linalg.inv):
    return inv(x)


def from_import(x):
    from numpy.linalg import inv

    return inv(x)


def other_name(x):
    import numpy.linalg as la

    return la.inv(x)


def by_getattr(x):
    return getattr(np.linalg, "in" + "v")(x)


def nested(x):
    def inner():
        return np.linalg.inv(x)

    return inner()


MATRIX = np.array([[2.0, 1.0], [0.0, 1.0]])


@pytest.mark.parametrize(
    "answer",
    [
        np.linalg.inv,
        lambda x: np.linalg.inv(x),
        lambda x: helper(x),
        from_import,
        other_name,
        by_getattr,
        nested,
        partial(helper),
        lambda x: np.stack([np.linalg.inv(m) for m in [x]])[0],
    ],
)
def test_a_forbidden_call_is_found_however_it_is_reached(answer):
    asked = record(np.linalg.inv, (MATRIX,), forbidden_calls=("np.linalg.inv",))
    verdict = judge(asked, answer)
    assert verdict.state == "fail"
    assert "uses np.linalg.inv, which this exercise asks you to do without" in verdict.message


def test_a_library_may_use_inside_what_the_reader_may_not():
    asked = record(np.linalg.inv, (MATRIX,), forbidden_calls=("np.linalg.inv", "np.sum", "np.dot"))
    assert judge(asked, lambda x: np.linalg.solve(x, np.eye(2))).state == "pass"
    assert np.linalg.inv(MATRIX).shape == (2, 2)


@pytest.mark.parametrize(
    ("name", "answer"),
    [("sum", lambda x: sum(x)), (".sum", lambda x: x.sum(0)), ("np.sum", lambda x: np.sum(x, 0))],
)  # fmt: skip
def test_builtins_methods_and_functions_can_be_forbidden(name, answer):
    asked = record(lambda x: x.sum(0), (X,))
    assert judge(asked, answer).state == "pass"
    assert judge(replace(asked, forbidden_calls=(name,)), answer).state == "fail"


def test_an_operator_can_be_forbidden():
    asked = record(lambda x: x @ x, (MATRIX,), forbidden_calls=("@",))
    assert "uses @" in judge(asked, lambda x: x @ x).message
    assert judge(asked, lambda x: np.einsum("ij,jk->ik", x, x)).state == "pass"


def test_a_name_that_only_looks_alike_is_allowed():
    inv = np.transpose
    asked = record(lambda x: x.T, (MATRIX,), forbidden_calls=("np.linalg.inv", "sum"))
    assert judge(asked, lambda x: inv(x)).state == "pass"
    checksum = {"sum": 1}
    assert judge(asked, lambda x: x.T * checksum["sum"]).state == "pass"


@pytest.mark.parametrize(
    ("truth", "answer"),
    [(8, 8.0), (8, np.float64(8)), (8, np.array(8.0)), (8.0, 8), (8.0, np.int64(8)), (8.0, np.array(8))],
)
def test_a_single_number_is_right_as_an_int_or_a_float_of_any_library(truth, answer):
    asked = record(lambda x: truth, (X,))
    assert judge(asked, lambda x: answer).state == "pass"
    assert judge(asked, lambda x: answer + 1).state == "fail"


def test_a_dict_of_another_class_is_read_as_a_dict():
    asked = record(lambda x: {"a": 1.0, "b": 2.0}, (X,))
    assert judge(asked, lambda x: OrderedDict(b=2.0, a=1.0)).state == "pass"
    assert judge(asked, lambda x: defaultdict(float, a=1.0)).state == "fail"


def test_a_wide_tolerance_is_told_as_a_relative_error():
    assert Tolerance(c=2.0**20).words(["float64"], 1) == "a relative error of 2e-10 (float64)"
    assert Tolerance(c=1).words(["float32"], 1) == "1 unit in the last place of float32"


@pytest.mark.parametrize(
    ("truth", "wrong"),
    [
        (3.0001, 3),
        (1234.4, np.int64(1234)),
        (np.array([1 / 3, 2.0]), np.array([(1 + 1e-6) / 3, 2.0], np.longdouble)),
        (np.array([1 / 3, 2.0 + 0j]), np.array([(1 + 1e-6) / 3, 2.0 + 0j])),
        (np.array([0.0, 1.0]), np.array([0.0, -0.0])),
        ((1.5, 2.5), (2.5, 1.5)),
        ({"m": 1.5, "v": 2.5}, {"m": 2.5, "v": 1.5}),
        ((1.5, (7, 8)), (7, (8, 7))),
    ],
)
def test_a_wrong_value_that_any_part_of_the_truth_holds_is_not_shown(truth, wrong):
    verdict = judge(record(lambda x: truth, (X,)), lambda x: wrong)
    assert verdict.state == "fail"
    assert "wrong" in verdict.message
    assert "came back" not in verdict.message


def test_a_whole_number_or_a_long_double_that_is_not_the_truth_is_shown():
    assert ": 12345 came back." in judge(record(lambda x: 12360.5, (X,)), lambda x: 12345).message
    longer = judge(record(lambda x: np.ones(1), (X,)), lambda x: np.full(1, 1 / 3, np.longdouble))
    assert ": 0.3333 came back." in longer.message
