"""The gates that every exercise passes are no decoration: a judge broken on purpose does not get through."""

from dataclasses import replace

import pytest

from labsupport.grading import Mistake, Option, Several, Verdict, function, number, pristine
from labsupport.grading.gates import GATES
from labsupport.grading.judge import judge
from labsupport.grading.records import Choice, Formula, Number, Shape, Written
from labsupport.grading.tolerance import Tolerance

COMMON = {"id": "a-record", "chapter": 5, "section": "5.2", "title": "t", "prompt": "p", "hints": ("h",)}
CHOICE = Choice(**COMMON, options={"a": Option("x", "No.", False), "b": Option("y", "Yes.", True)})
NUMBER = Number(
    **COMMON,
    expected=137_438_953_472,
    unit="FLOP",
    exact=True,
    mistakes=(Mistake(name="half", answer="68.719476736 GFLOP", message="A multiply and an add are two."),),
)
SHAPE = Shape(
    **COMMON, expected=(2, 3, 5), mistakes=(Mistake(name="turned", answer=(2, 5, 3), message="Rows come first."),)
)
FORMULA = Formula(
    **COMMON,
    oracle=lambda p, y: p - y,
    sample=lambda rng: (rng.uniform(), rng.uniform()),
    mistakes=(Mistake(name="sign", answer=lambda p, y: y - p, message="The sign is turned."),),
)
WRITTEN = Written(**COMMON, rubric=("says why",))
SEVERAL = Several(**COMMON, parts={"choice": CHOICE, "number": NUMBER, "shape": SHAPE})
OTHERS = {
    "choice": CHOICE,
    "number": NUMBER,
    "shape": SHAPE,
    "formula": FORMULA,
    "written": WRITTEN,
    "several": SEVERAL,
}


def caught(record, broken):
    """Return the names of the gates that a judge does not get through."""
    names = set()
    for name, gate in GATES.items():
        try:
            gate(record, broken)
        except AssertionError:
            names.add(name)
    return names


def test_the_judge_passes_every_gate(softmax_record):
    for record in (softmax_record, *OTHERS.values()):
        assert caught(record, judge) == set(), record.kind


@pytest.mark.parametrize("kind", OTHERS)
def test_a_judge_that_always_passes_is_caught(kind):
    gates = caught(OTHERS[kind], lambda record, answer, seed: Verdict("pass", record.id, "right."))
    assert {"stubs_are_todo", "wrong_kinds_are_told"} <= gates
    if kind != "written":
        assert "mistakes_fail_by_name" in gates


@pytest.mark.parametrize("kind", OTHERS)
def test_a_judge_that_always_fails_is_caught(kind):
    gates = caught(OTHERS[kind], lambda record, answer, seed: Verdict("fail", record.id, "wrong."))
    assert {"stubs_are_todo", "right_answers_pass"} <= gates


def test_a_judge_of_functions_that_always_passes_is_caught(softmax_record):
    gates = caught(softmax_record, lambda record, answer, seed: Verdict("pass", record.id, "right."))
    assert {"mistakes_fail_by_name", "near_misses_fail", "errors_beyond_tolerance_fail"} <= gates


@pytest.mark.parametrize("factor", [1e6, 1e3])
def test_a_loose_tolerance_is_caught(softmax_record, monkeypatch, factor):
    allowed = Tolerance.allowed
    monkeypatch.setattr(Tolerance, "allowed", lambda self, *args: factor * allowed(self, *args))
    assert "errors_beyond_tolerance_fail" in caught(softmax_record, judge)
    assert "errors_beyond_tolerance_fail" in caught(FORMULA, judge)


def test_a_tolerance_loose_beyond_reason_is_caught_by_the_near_misses(softmax_record):
    loose = replace(softmax_record, tolerance=Tolerance(c=1e14))
    assert "near_misses_fail" in caught(loose, judge)


def test_a_tolerance_that_rejects_the_right_is_caught(softmax_record, monkeypatch):
    allowed = Tolerance.allowed
    monkeypatch.setattr(Tolerance, "allowed", lambda self, *args: 0 * allowed(self, *args))
    assert "right_answers_pass" in caught(softmax_record, judge)


def test_a_judge_that_ignores_mistakes_is_caught(softmax_record):
    with pristine.substituted(function, "_recognise", lambda *args: None):
        assert "mistakes_fail_by_name" in caught(softmax_record, judge)


def test_a_judge_that_names_the_wrong_mistake_is_caught(softmax_record):
    with pristine.substituted(function, "_recognise", lambda record, *args: record.mistakes[0]):
        assert "mistakes_fail_by_name" in caught(softmax_record, judge)


def test_a_judge_blind_to_changed_inputs_is_caught(softmax_record):
    with pristine.substituted(function, "fingerprint", lambda value, identity=True: None):
        assert "mistakes_fail_by_name" in caught(softmax_record, judge)


def test_a_judge_that_takes_stubs_for_answers_is_caught(softmax_record, monkeypatch):
    monkeypatch.setattr(type(softmax_record), "is_open", lambda self, answer: False)
    assert "stubs_are_todo" in caught(softmax_record, judge)


def test_a_judge_that_gives_the_number_away_is_caught():
    with pristine.substituted(number, "_finding", lambda mine, due, record: f"it is {int(due):,}, not that."):
        assert "nothing_leaks" in caught(NUMBER, judge)


@pytest.mark.parametrize("spelling", ["137438953472", "137.4 GFLOP", "128 GiFLOP", "1.374e+11", "137.438953472"])
def test_a_message_that_gives_the_number_away_is_caught(spelling):
    leaky = replace(NUMBER, mistakes=(replace(NUMBER.mistakes[0], message=f"It is {spelling}."),))
    assert "nothing_leaks" in caught(leaky, judge)


@pytest.mark.parametrize("spelling", ["(2, 3, 5)", "[2, 3, 5]", "2×3×5", "(2,3,5)"])
def test_a_message_that_gives_the_shape_away_is_caught(spelling):
    leaky = replace(SHAPE, hints=(f"It is {spelling}.",))
    assert "nothing_leaks" in caught(leaky, judge)


def test_a_message_that_gives_a_value_of_a_function_away_is_caught(softmax_record):
    value = float(softmax_record.oracle(softmax_record.cases(softmax_record.rng(0))[0].args[0])[0, 1])
    leaky = replace(softmax_record, diagnose=lambda case, result: f"the second value is {value:.4f}.")
    assert "nothing_leaks" in caught(leaky, judge)


def test_a_mistake_that_is_not_wrong_is_caught(softmax_record):
    also_right = Mistake(name="right", answer=softmax_record.oracle, message="Not wrong at all.")
    assert "mistakes_fail_by_name" in caught(replace(softmax_record, mistakes=(also_right,)), judge)


def test_cases_that_do_not_repeat_are_caught(softmax_record):
    import numpy as np

    free = np.random.default_rng(1)
    unsteady = replace(softmax_record, cases=lambda rng: softmax_record.cases(free))
    assert "cases_repeat" in caught(unsteady, judge)


def test_a_message_that_is_no_sentence_is_caught():
    assert "speaks_well" in caught(replace(NUMBER, mistakes=(replace(NUMBER.mistakes[0], message="two"),)), judge)
