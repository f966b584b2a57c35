"""The four verbs of a reader, on a private book of three exercises."""

import json

import pytest

from labsupport import exercises
from labsupport.grading import Mistake, Note, Number, Shape, Verdict, api, check, hint, progress, registry, solution
from labsupport.grading import solutions as solutions_module
from labsupport.grading.answers import digest


@pytest.fixture(autouse=True)
def book(monkeypatch, tmp_path, softmax_record):
    """A book of its own, and a progress file of its own."""
    monkeypatch.setenv("LABSUPPORT_PROGRESS", str(tmp_path / "progress.json"))
    common = {"chapter": 5, "section": "5.1", "title": "t", "prompt": "How many <b>bytes</b>, as $2^n$ in `B`?"}
    records = {
        record.id: record
        for record in (
            softmax_record,
            Number(id="kv-bytes", hints=("First.", "Second."), expected=1.5 * 2**30, unit="B", **common),
            Shape(id="qk-shape", hints=("Only one.",), expected=(2, 3), **common),
        )
    }

    def get(name):
        if name not in records:
            raise KeyError(f"there is no exercise {name!r}.")
        return records[name]

    before = registry.use(registry.Finder(get, lambda: tuple(records.values())))
    yield records
    registry.use(before)


def test_a_unit_may_stand_beside_the_number():
    assert check("kv-bytes", 1.5, "GiB").state == "pass"
    assert check("kv-bytes", 1.5, unit="GB").mistake == "binary-prefix"


def test_no_answer_shows_the_question():
    for verdict in (check("kv-bytes"), check("kv-bytes", ...), check("kv-bytes", ..., "GiB")):
        assert str(verdict) == "○ kv-bytes: to do.\n  How many <b>bytes</b>, as 2^n in `B`?"
        shown = verdict.html().replace(' style="line-height:0"', "")
        assert "How many &lt;b&gt;bytes&lt;/b&gt;, as 2<sup><i>n</i></sup> in <code>B</code>?" in shown


@pytest.mark.parametrize("wrong", [None, 3, ["softmax"], lambda x: x, object()])
def test_an_id_that_is_no_text_is_told(wrong):
    for verb in (check, hint, solution):
        assert "comes first, in quotes; you passed" in str(verb(wrong))


def test_a_verb_without_anything_is_told():
    for verb in (check, hint, solution):
        assert "comes first, in quotes." in str(verb())


def test_an_unknown_id_is_told_and_nothing_is_recorded(tmp_path):
    verdict = check("kv-byte", 3)
    assert verdict.state == "fail"
    assert "there is no exercise 'kv-byte'" in str(verdict)
    assert not (tmp_path / "progress.json").exists()


def test_the_book_answers_did_you_mean():
    first = exercises.all_exercises()[0].id
    with pytest.raises(KeyError, match=f"Did you mean.*{first}"):
        exercises.get(first + "s")
    with pytest.raises(KeyError, match=f"Did you mean.*{first}"):
        exercises.get(first.upper())
    with pytest.raises(KeyError, match="progress\\(\\) lists them"):
        exercises.get("§§§§§§")


def test_hints_come_one_at_a_time_and_are_remembered():
    assert str(hint("kv-bytes")) == "kv-bytes: hint 1 of 2.\n  First."
    assert str(hint("kv-bytes")) == "kv-bytes: hint 2 of 2.\n  Second.\n  That is the last hint."
    assert hint("kv-bytes") == hint("kv-bytes")
    assert "hint 1 of 1" in str(hint("qk-shape"))


def test_the_solution_waits_for_an_attempt(monkeypatch):
    monkeypatch.setattr(solutions_module, "explanation", lambda record: "Because.")
    assert "not shown yet" in str(solution("kv-bytes"))
    check("kv-bytes", 7, "B")
    assert "Because." in str(solution("kv-bytes"))


def test_the_solution_is_shown_when_asked_twice(monkeypatch):
    monkeypatch.setattr(solutions_module, "explanation", lambda record: "Because.")
    assert "not shown yet" in str(solution("qk-shape"))
    assert "Because." in str(solution("qk-shape"))


def test_an_untouched_stub_is_no_attempt():
    check("kv-bytes", ...)
    assert "not shown yet" in str(solution("kv-bytes"))


def test_a_solution_out_of_reach_says_where_it_is(monkeypatch):
    monkeypatch.setattr(solutions_module, "folders", lambda: iter(()))
    solution("kv-bytes")
    assert "notebook of chapter 5" in str(solution("kv-bytes"))


def test_the_solution_is_read_from_the_notebook_by_id(monkeypatch, tmp_path, book):
    cells = [
        {"id": "qk-shape", "cell_type": "code", "metadata": {"tags": ["exercise"]}, "source": "answer = 1"},
        {"id": "w1", "cell_type": "markdown", "metadata": {"tags": ["solution-only"]}, "source": "Not mine."},
        {"id": "kv-bytes", "cell_type": "code", "metadata": {"tags": ["exercise"]}, "source": ["answer = ", "'1 B'\n"]},
        {"id": "c2", "cell_type": "code", "metadata": {"tags": ["check"]}, "source": "check('kv-bytes', answer)"},
        {"id": "w2", "cell_type": "markdown", "metadata": {"tags": ["solution-only"]}, "source": "K and V."},
        {"id": "x", "cell_type": "code", "metadata": {"tags": ["exercise"]}, "source": "other"},
        {"id": "w3", "cell_type": "markdown", "metadata": {"tags": ["solution-only"]}, "source": "Not mine."},
    ]
    (tmp_path / "05-broken.ipynb").write_text("{")
    (tmp_path / "05-book.ipynb").write_text(json.dumps({"cells": cells}))
    monkeypatch.setattr(solutions_module, "folders", lambda: iter([tmp_path]))
    assert solutions_module.explanation(book["kv-bytes"]) == "```python\nanswer = '1 B'\n```\n\nK and V."
    solution("kv-bytes")
    shown = solution("kv-bytes")
    assert isinstance(shown, Note)
    assert "<pre><code>answer = &#x27;1 B&#x27;</code></pre><p>K and V.</p>" in shown.html()


def test_progress_remembers_and_forgets():
    check("kv-bytes", 1.5, "GiB")
    check("qk-shape", (3, 2))
    assert api.store().state("kv-bytes") == "pass"
    assert api.store().state("qk-shape") == "fail"
    progress(reset="kv-bytes")
    assert api.store().state("kv-bytes") == "todo"
    progress(reset="all")
    assert api.store().state("qk-shape") == "todo"
    assert isinstance(progress(reset="nope"), Verdict)


class Touchy:
    def __eq__(self, other):
        raise RuntimeError("do not compare me")

    __hash__ = None


@pytest.mark.parametrize("thing", [3, ["all"], Touchy()])
def test_a_reset_of_what_is_no_text_is_told(thing):
    assert progress(reset=thing).state == "fail"


def test_a_note_about_progress_reaches_the_verdict(monkeypatch):
    class Store:
        def record(self, *args):
            return ["Progress cannot be saved."]

    monkeypatch.setattr(api, "store", Store)
    assert check("kv-bytes", 1, "B").text().endswith("Note: Progress cannot be saved.")


def test_a_book_that_does_not_load_is_not_the_readers_fault():
    def broken(*args):
        raise ImportError("half a chapter")

    before = registry.use(registry.Finder(broken, broken))
    try:
        for shown in (check("kv-bytes", 1), hint("kv-bytes"), solution("kv-bytes"), progress()):
            assert shown.state == "grader-error"
            assert "not yours" in str(shown)
    finally:
        registry.use(before)


def test_a_record_that_breaks_is_not_the_readers_fault(book):
    def broken(*args):
        raise ZeroDivisionError

    from dataclasses import replace

    from labsupport.grading.judge import judge

    for change in (
        {"oracle": broken},
        {"cases": broken},
        {"diagnose": broken},
        {"cases": lambda rng: []},
        {
            "mistakes": (Mistake(name="x", answer=3, message="A mistake that cannot be called."),),
            "forbidden_calls": (3,),
        },
    ):
        verdict = judge(replace(book["softmax-private"], **change), lambda x: x)
        assert verdict.state == "grader-error", change
        assert "fault of the book, not yours" in str(verdict)
        assert 'exercise id "softmax-private"' in str(verdict)


def test_two_records_with_one_id_are_an_error(monkeypatch, book):
    import sys
    import types

    twice = types.ModuleType("labsupport.exercises.twice")
    twice.EXERCISES = (book["kv-bytes"], book["kv-bytes"])
    monkeypatch.setitem(sys.modules, twice.__name__, twice)
    with pytest.raises(ValueError, match="two exercises have the id 'kv-bytes'"):
        exercises._load("twice")


def test_a_chapter_that_does_not_load_takes_no_other_down(monkeypatch):
    names = exercises.modules()
    present = exercises.all_exercises()[-1].id
    monkeypatch.setattr(exercises, "modules", lambda: ("a_chapter_that_is_not_there", *names))
    monkeypatch.setattr(exercises, "_by_id", {})
    monkeypatch.setattr(exercises, "_module_by_id", {})
    monkeypatch.setattr(exercises, "_loaded", set())
    assert exercises.get(present).id == present
    with pytest.raises(ModuleNotFoundError):
        exercises.get("no-such-exercise")
    with pytest.raises(ModuleNotFoundError):
        exercises.all_exercises()


def test_a_changed_function_inside_a_decorator_is_another_answer():
    class Compiled:
        def __init__(self, py_func):
            self.py_func = py_func

    def first(x):
        return x + 1

    def second(x):
        return x * 2

    assert digest(Compiled(first)) != digest(Compiled(second))
    assert digest(Compiled(first)) == digest(Compiled(first))
