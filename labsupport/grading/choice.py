"""Judges a choice: the key of an option, or the keys where several options are right.

Every option explains itself, so a wrong choice teaches as much as the right one. It must never
name the right key.
"""

from typing import Any

import numpy as np

from labsupport.grading.answers import type_name
from labsupport.grading.compare import Finding
from labsupport.grading.judge import failed, passed
from labsupport.grading.messages import say
from labsupport.grading.records import Choice
from labsupport.grading.verdict import Verdict


def judge(record: Choice, answer: Any) -> Verdict:
    """Return the verdict on a choice."""
    try:
        chosen = read(record, answer)
    except Finding as finding:
        return failed(record, finding.text)
    wrong = [key for key in chosen if key not in record.correct]
    if wrong:
        return failed(record, say("choice-wrong", key=wrong[0]), record.options[wrong[0]].explanation, mistake=wrong[0])
    if len(chosen) < len(record.correct):
        return failed(record, say("choice-missing"))
    return passed(record, say("choice-right"), *(record.options[key].explanation for key in record.correct))


def read(record: Choice, answer: Any) -> tuple[str, ...]:
    """Return the chosen keys in the options' order, or raise ``Finding``."""
    several = len(record.correct) > 1
    if several and type(answer) in (tuple, list, set, frozenset):
        items = list(answer)
    elif several and type(answer) is str and "," in answer:
        items = answer.split(",")
    else:
        items = [answer]
    if not items:
        raise Finding(say("choice-none"))
    if not several and type(answer) in (tuple, list, set, frozenset):
        raise Finding(say("choice-one"))
    chosen = {_key(record, item) for item in items}
    return tuple(key for key in record.options if key in chosen)


def _key(record: Choice, item: Any) -> str:
    kind = type(item)
    if kind is np.str_:
        item = str(item)
    elif kind in (bool, np.bool_):
        item = str(bool(item))
    elif kind is int or issubclass(kind, np.integer):
        item = str(int(item))
    elif kind is not str:
        raise Finding(say("choice-kind", key=next(iter(record.options)), what=type_name(item)))
    text = item.strip().strip("()").rstrip(".").casefold()
    for key in record.options:
        if key.casefold() == text:
            return key
    raise Finding(say("choice-unknown", keys=", ".join(record.options)))
