"""One answer, one verdict: the frame that is the same for every kind of exercise.

A stub is to do, and a fault inside the grader is the grader's. This file must never let an
exception reach the reader, except the interrupt they sent themselves.
"""

import traceback
from typing import Any

from labsupport.grading import guard, pristine
from labsupport.grading.answers import MISSING
from labsupport.grading.records import Exercise
from labsupport.grading.verdict import Verdict

#: The seed behind every check a reader runs.
SEED = 0


def judge(record: Exercise, answer: Any = MISSING, seed: int = SEED) -> Verdict:
    """Judge ``answer`` to ``record`` on the inputs that ``seed`` gives. Never raises an ``Exception``."""
    try:
        notes = pristine.restore()
        pristine.hold()
        with guard.quiet():
            verdict = todo(record) if record.is_open(answer) else record.judge(answer, seed)
    except Exception as error:
        return grader_error(record, error)
    if notes:
        verdict = Verdict(verdict.state, verdict.exercise, verdict.message, verdict.mistake, (*notes, *verdict.notes))
    return verdict


def todo(record: Exercise) -> Verdict:
    """Return the verdict on an untouched exercise: its question."""
    return Verdict("todo", record.id, "\n".join(["to do.", *record.question()]))


def passed(record: Exercise, *lines: str) -> Verdict:
    """Return a pass, with what was held against what."""
    return Verdict("pass", record.id, "\n".join(lines or ("right.",)))


def failed(
    record: Exercise, finding: str, *details: str, mistake: str | None = None, section: str | None = None
) -> Verdict:
    """Return a fail: the finding, its details on one line, and where to read."""
    where = f'See section {section or record.section}, then hint("{record.id}").'
    lines = [finding, " ".join(detail for detail in details if detail), where]
    return Verdict("fail", record.id, "\n".join(line for line in lines if line), mistake)


def grader_error(record: Exercise, error: Exception) -> Verdict:
    """Return the verdict on a fault of the book, with what is needed to report it."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {frames[-1].name}" if frames else ""
    return Verdict(
        "grader-error",
        record.id,
        "the check itself failed; your answer was not judged.\n"
        f"This is a fault of the book, not yours: {type(error).__name__}{place}.\n"
        f'Please report it with the exercise id "{record.id}"; see the page "Errata" of the book.',
    )
