"""Shapes, formulas, choices, written answers and exercises of several parts."""

import sys

import numpy as np
import pytest

from labsupport.grading import Choice, Exercise, Formula, Mistake, Number, Option, Several, Shape, Verdict, Written
from labsupport.grading.judge import judge, passed

COMMON = {"id": "an-exercise", "chapter": 2, "section": "2.7", "title": "t", "prompt": "Which?", "hints": ("h",)}

SHAPE = Shape(
    **COMMON,
    expected=(2, 8, 128, 256),
    mistakes=(Mistake(name="transposed", answer=(2, 8, 256, 128), message="Rows are queries.", section="2.6"),),
)


@pytest.mark.parametrize(
    "answer",
    [
        (2, 8, 128, 256),
        [2, 8, 128, 256],
        np.zeros((2, 8, 128, 256), np.int8).shape,
        np.array([2, 8, 128, 256]),
        (np.int64(2), 8, np.uint8(128), 256),
    ],
)
def test_a_shape_may_be_any_sequence_of_whole_numbers(answer):
    assert judge(SHAPE, answer).state == "pass"


def test_a_torch_size_is_a_shape():
    torch = pytest.importorskip("torch", reason="torch is an extra of the package")
    assert judge(SHAPE, torch.Size([2, 8, 128, 256])).state == "pass"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((2, 8, 128), "too few axes"),
        ((), "too few axes"),
        ((2, 8, 128, 256, 1), "too many axes"),
        ((8, 2, 128, 256), "their order is not"),
        ((2, 8, 128, 255), "the size of axis 3 is not"),
        ((2, 9, 128, 255), "the size of axes 1 and 3 is not"),
        ((2, 8, 128.0, 256), "axis 2 is a float"),
        ((True, 8, 128, 256), "axis 0 is a truth value"),
        ((2, 8, 128, -1), "negative"),
        ("(2, 8, 128, 256)", "without quotes"),
        (np.zeros((2, 8, 128, 256)), "you passed an array"),
        (3, "written with a comma"),
        (np.int64(3), "written with a comma"),
        (3.0, "you passed a float"),
        ({2, 8}, "you passed a set"),
        ((2, 8, 128, None), "axis 3 is None"),
    ],
)
def test_a_wrong_shape_is_told_why(answer, words):
    verdict = judge(SHAPE, answer)
    assert verdict.state == "fail"
    assert words in verdict.message, verdict


def test_a_known_wrong_shape_is_told_its_message_and_section():
    verdict = judge(SHAPE, (2, 8, 256, 128))
    assert verdict.mistake == "transposed"
    assert str(verdict) == (
        "✗ an-exercise: the sizes are right, their order is not.\n"
        "  Rows are queries.\n"
        '  See section 2.6, then hint("an-exercise").'
    )


def test_the_empty_shape_is_a_shape():
    scalar = Shape(**COMMON, expected=())
    assert judge(scalar, ()).state == "pass"
    assert judge(scalar, (1,)).state == "fail"


FORMULA = Formula(
    **COMMON,
    oracle=lambda z: 1 / (1 + np.exp(-z)),
    sample=lambda rng: (rng.uniform(-4, 4),),
    mistakes=(Mistake(name="sign", answer=lambda z: 1 / (1 + np.exp(z)), message="The sign of z is turned."),),
)


@pytest.mark.parametrize(
    "answer",
    [lambda z: np.exp(z) / (1 + np.exp(z)), lambda z: (1 + np.tanh(z / 2)) / 2, lambda t: 0.5 * np.tanh(0.5 * t) + 0.5],
)
def test_a_mathematically_equal_formula_passes(answer):
    assert judge(FORMULA, answer).state == "pass"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("1/(1+exp(-z))", "text is not evaluated"),
        ("__import__('os')._exit(1)", "text is not evaluated"),
        (0.5, "due as a function"),
        (lambda z: 1 / (1 + np.exp(z)), "The sign of z is turned"),
        (lambda z: 1.001 / (1 + np.exp(-z)), "the value is wrong"),
        (lambda z: 0.5 + z / 4, "the value is wrong"),
        (lambda: 1, "TypeError"),
    ],
)
def test_a_wrong_formula_is_told_why(answer, words):
    verdict = judge(FORMULA, answer)
    assert verdict.state == "fail"
    assert words in verdict.message, verdict


CHOICE = Choice(
    **COMMON, options={"a": Option("rows", "No: columns.", False), "b": Option("columns", "Yes: they are.", True)}
)
SEVERAL_RIGHT = Choice(
    **COMMON, options={"a": Option("B", "Yes.", True), "b": Option("S", "No.", False), "c": Option("H", "Yes.", True)}
)
TRUTH = Choice(**COMMON, options={"True": Option("it is", "Yes.", True), "False": Option("it is not", "No.")})


@pytest.mark.parametrize(
    "answer",
    ["b", "B", " b ", "b)", "(b)", "b.", np.str_("b"), ["b"], ("b",), {"b"}, np.array(["b"]), "'b'", "option b",
     "columns", " Columns. ", "b) columns"],
)  # fmt: skip
def test_a_choice_is_a_key(answer):
    assert judge(CHOICE, answer).state == "pass"


@pytest.mark.parametrize(
    "answer",
    [{"a", "c"}, ["c", "a"], ("a", "c"), "a, c", frozenset("ac"), ["a", "c", "a"], "a c", "a and c", "A & C", "a;c",
     np.array(["a", "c"]), ["H", "a"], ["c) H", "a"]],
)  # fmt: skip
def test_several_right_options(answer):
    assert judge(SEVERAL_RIGHT, answer).state == "pass"


@pytest.mark.parametrize("answer", [True, np.True_, "true", "True"])
def test_a_numpy_truth_value_is_one(answer):
    assert judge(TRUTH, answer).state == "pass"


@pytest.mark.parametrize(
    ("record", "answer", "words"),
    [
        (CHOICE, "a", "no, not a.\n  No: columns."),
        (CHOICE, "c", "the options are a, b"),
        (CHOICE, "", "the options are a, b"),
        (CHOICE, None, "you passed None"),
        (CHOICE, ["a", "b"], "one option is due"),
        (CHOICE, "a, b", "one option is due"),
        (CHOICE, "a and d", "the options are a, b"),
        (CHOICE, "rows", "no, not a"),
        (CHOICE, ["a"], "no, not a"),
        (CHOICE, np.array([1.0]), "you passed an array"),
        (CHOICE, 1.5, "you passed a float"),
        pytest.param(CHOICE, 10**10_000, "the options are a, b", id="a number too long to write"),
        (SEVERAL_RIGHT, "a", "not all of it"),
        (SEVERAL_RIGHT, ["a", "b", "c"], "no, not b"),
        (SEVERAL_RIGHT, [], "at least one"),
        (TRUTH, np.False_, "not False"),
    ],
)
def test_a_wrong_choice_explains_itself(record, answer, words):
    verdict = judge(record, answer)
    assert verdict.state == "fail"
    assert words in str(verdict), verdict


def test_an_open_choice_shows_its_options():
    assert str(judge(CHOICE)) == "○ an-exercise: to do.\n  Which?\n  a) rows\n  b) columns"


WRITTEN = Written(**COMMON, rubric=("names the maximum", "names the shift"))


def test_a_written_answer_never_passes_by_itself():
    verdict = judge(WRITTEN, "Because the maximum is subtracted.")
    assert verdict.state == "review"
    assert "- names the shift" in str(verdict)
    assert judge(WRITTEN, "  ").state == "todo"
    assert judge(WRITTEN, 3).state == "fail"


PARTS = Several(
    **COMMON,
    parts={
        "batch": Choice(prompt="Which are batch axes?", options=CHOICE.options),
        "size": Number(
            expected=64, exact=True, mistakes=(Mistake(name="heads", answer=8, message="Heads are a batch axis."),)
        ),
        "shape": Shape(expected=(2, 3)),
    },
)


@pytest.mark.parametrize(
    "answer", [{"batch": "b", "size": 64, "shape": (2, 3)}, ("b", 64, (2, 3)), ["b", "64", [2, 3]]]
)
def test_parts_are_given_by_name_or_in_order(answer):
    assert judge(PARTS, answer).state == "pass"


@pytest.mark.parametrize(
    ("answer", "state", "words"),
    [
        (("b", 8, (2, 3)), "fail", "size: your number is too small.\n  Heads are a batch axis."),
        (("a", ..., ...), "fail", "batch: no, not a."),
        (("b", 64), "fail", "3 answers are due"),
        ({"batch": "b", "size": 64}, "fail", "shape missing"),
        ({"batch": "b", "size": 64, "form": 1}, "fail", "1 unknown"),
        (64, "fail", "a dict by part is due"),
        (("b", ..., (2, 3)), "todo", "still to do: size. What you gave so far is right."),
        ((..., ..., ...), "todo", "to do"),
        ({"batch": ..., "size": ..., "shape": ...}, "todo", "to do"),
    ],
)
def test_parts_are_judged_one_by_one(answer, state, words):
    verdict = judge(PARTS, answer)
    assert verdict.state == state
    assert words in str(verdict), verdict


def test_the_mistake_of_a_part_is_named_with_the_part():
    assert judge(PARTS, ("b", 8, (2, 3))).mistake == "size: heads"


def test_a_new_kind_needs_only_a_judge():
    class Card(Exercise):
        kind = "card"

        def judge(self, answer: object, seed: int) -> Verdict:
            return passed(self, f"seen under seed {seed}.")

    assert str(judge(Card(**COMMON), {"a": 1}, 7)) == "✓ an-exercise: seen under seed 7."


@pytest.mark.parametrize(
    "fields",
    [
        {"id": "Not An Id"},
        {"section": "5.2"},
        {"section": "first"},
        {"hints": ()},
        {"checklist": (19,)},
        {"prompt": ""},
        {"mistakes": (SHAPE.mistakes[0], SHAPE.mistakes[0])},
    ],
)
def test_a_record_that_cannot_be_right_is_refused(fields):
    with pytest.raises(ValueError, match="exercise"):
        Shape(**{**COMMON, **fields}, expected=(2,))


def test_a_choice_without_a_right_option_is_refused():
    with pytest.raises(ValueError, match="at least one is correct"):
        Choice(**COMMON, options={"a": Option("x", "y"), "b": Option("x", "y")})


def test_the_judge_does_not_load_torch():
    import subprocess

    code = "import sys, labsupport.grading; print(sorted({'torch', 'matplotlib', 'IPython'} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
