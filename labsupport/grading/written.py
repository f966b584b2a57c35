"""Takes a written answer down for review and shows the rubric. It must never pass one by itself."""

from typing import Any

from labsupport.grading.answers import type_name
from labsupport.grading.judge import failed, todo
from labsupport.grading.records import Written
from labsupport.grading.verdict import Verdict


def judge(record: Written, answer: Any) -> Verdict:
    """Return ``review`` with the rubric for any text; an empty text is still to do."""
    if type(answer) is not str:
        return failed(record, f"an explanation in your own words is due, as text; you passed {type_name(answer)}.")
    if not answer.strip():
        return todo(record)
    lines = ["recorded. Hold it against these points yourself:", *(f"- {point}" for point in record.rubric)]
    return Verdict("review", record.id, "\n".join(lines))
