"""The four verbs of a reader: ``check``, ``hint``, ``solution`` and ``progress``.

They show something and never raise an ``Exception``, whatever they are given: *Run All* on a notebook
of the book does not stop at a check.
"""

from typing import Any

from labsupport.grading import registry, solutions
from labsupport.grading.answers import MISSING, digest, is_stub, type_name
from labsupport.grading.judge import judge
from labsupport.grading.progress import store
from labsupport.grading.progress_table import Progress
from labsupport.grading.records import Exercise
from labsupport.grading.verdict import Note, Verdict


def check(exercise: Any = MISSING, answer: Any = MISSING, unit: str | None = None) -> Verdict:
    """Judge an answer and remember the verdict.

    Args:
        exercise: the exercise's id, for example ``"softmax-stable"``.
        answer: what the exercise asks for: a function, a shape, a number, a choice, a text. Without one,
            or with an untouched ``...``, the exercise is shown and stays to do.
        unit: the unit of a number, where it is not part of the answer: ``check("kv-bytes", 1.5, "GiB")``.
    """
    record = _find(exercise)
    if isinstance(record, Verdict):
        return record
    given = answer if unit is None or is_stub(answer) else (answer, unit)
    verdict = judge(record, given)
    notes = store().record(record.id, verdict.state, "" if verdict.state == "todo" else digest(given))
    if not notes:
        return verdict
    return Verdict(verdict.state, verdict.exercise, verdict.message, verdict.mistake, (*verdict.notes, *notes))


def hint(exercise: Any = MISSING) -> Note | Verdict:
    """Open one hint more of an exercise and show it; how many are open is remembered."""
    record = _find(exercise)
    if isinstance(record, Verdict):
        return record
    total = len(record.hints)
    number = max(1, store().next_hint(record.id, total))
    last = "\nThat is the last hint." if number == total else ""
    return Note(record.id, f"hint {number} of {total}.", record.hints[number - 1] + last)


def solution(exercise: Any = MISSING) -> Note | Verdict:
    """Show the explained solution, after an attempt or when asked a second time."""
    record = _find(exercise)
    if isinstance(record, Verdict):
        return record
    remembered = store()
    if not remembered.attempts(record.id) and remembered.solution_requests(record.id) < 2:
        again = (
            f'Try it first, with hint("{record.id}") if need be.\nsolution("{record.id}") once more shows it anyway.'
        )
        return Note(record.id, "the solution is not shown yet.", again)
    text = solutions.explanation(record)
    if text is None:
        place = f"It is in the book's folder solutions, in the notebook of chapter {record.chapter}."
        return Note(record.id, "the solution is not within reach from here.", place)
    return Note(record.id, "solution.", text)


def progress(reset: str | None = None) -> Progress | Verdict:
    """Show what is done, by chapter and by item of the self-check list.

    ``reset`` forgets one exercise first, or everything with ``reset="all"``.
    """
    remembered = store()
    if isinstance(reset, str) and reset == "all":
        remembered.reset()
    elif reset is not None:
        record = _find(reset)
        if isinstance(record, Verdict):
            return record
        remembered.reset(record.id)
    try:
        return remembered.table(registry.finder().all())
    except Exception as error:
        return _broken("progress", error)


def _find(exercise: Any) -> Exercise | Verdict:
    """Return the record, or the verdict that says why there is none."""
    if type(exercise) is not str:
        passed = "" if exercise is MISSING else f"; you passed {type_name(exercise)}"
        what = f"the id of an exercise comes first, in quotes{passed}."
        return Verdict("fail", "check", f'{what}\nFor example: check("softmax-stable", softmax).')
    try:
        return registry.finder().get(exercise)
    except KeyError as error:
        return Verdict("fail", exercise[:80], str(error.args[0]))
    except Exception as error:
        return _broken(exercise[:80], error)


def _broken(exercise: str, error: Exception) -> Verdict:
    return Verdict(
        "grader-error",
        exercise,
        f"the book's exercises could not be loaded ({type(error).__name__}); nothing was judged.\n"
        'This is a fault of the book, not yours. Please report it; see the page "Errata" of the book.',
    )
