"""Judges an exercise of several parts: each part by its own kind, the first finding counts.

Parts that are still open do not hide a wrong one, and a right one does not hide that others are open.
"""

from collections.abc import Mapping
from typing import Any

from labsupport.grading.answers import is_stub, type_name
from labsupport.grading.compare import Finding
from labsupport.grading.judge import failed, passed
from labsupport.grading.records import Several
from labsupport.grading.verdict import Verdict


def judge(record: Several, answer: Any, seed: int) -> Verdict:
    """Return the verdict on all parts together."""
    try:
        given = read(record, answer)
    except Finding as finding:
        return failed(record, finding.text)
    unjudged = [name for name, part in record.parts.items() if part.is_open(given[name])]
    review: Verdict | None = None
    for name, part in record.parts.items():
        if name in unjudged:
            continue
        verdict = part.judge(given[name], seed)
        if verdict.state == "todo":
            unjudged.append(name)
        elif verdict.state == "review":
            review = verdict
        elif verdict.state != "pass":
            mistake = f"{name}: {verdict.mistake}" if verdict.mistake else None
            return Verdict(verdict.state, record.id, f"{name}: {verdict.message}", mistake, verdict.notes)
    if unjudged:
        done = "" if len(unjudged) == len(record.parts) else " What you gave so far is right."
        return Verdict("todo", record.id, f"still to do: {', '.join(unjudged)}.{done}")
    if review:
        return Verdict("review", record.id, review.message)
    return passed(record, f"right, all {len(record.parts)} parts.")


def read(record: Several, answer: Any) -> Mapping[str, Any]:
    """Return the answers by part, or raise ``Finding``."""
    names = list(record.parts)
    kind = type(answer)
    if issubclass(kind, tuple) or kind is list:
        items = list(tuple.__iter__(answer)) if kind is not list else list(answer)
        if len(items) != len(names):
            raise Finding(f"{len(names)} answers are due ({', '.join(names)}); you passed {len(items)}.")
        return dict(zip(names, items, strict=True))
    if issubclass(kind, dict):
        answer = dict(dict.items(answer))  # as it is, whatever a subclass makes of a missing key
        unknown = [key for key in answer if type(key) is not str or key not in names]
        missing = [name for name in names if name not in answer]
        if unknown or missing:
            word = f"{len(unknown)} unknown" if unknown else f"{', '.join(missing)} missing"
            raise Finding(f"the parts are {', '.join(names)}; of yours, {word}.")
        return answer
    raise Finding(f"a dict by part is due ({', '.join(names)}); you passed {type_name(answer)}.")


def is_open(record: Several, answer: Any) -> bool:
    """Return whether nothing was answered yet: a stub, or one stub for every part."""
    if is_stub(answer):
        return True
    try:
        given = read(record, answer)
    except Finding:
        return False
    return all(part.is_open(given[name]) for name, part in record.parts.items())
