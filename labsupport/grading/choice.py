"""Judges a choice: the key of an option, or the keys where several options are right.

Every option explains itself, so a wrong choice teaches as much as the right one. It must never
name the right key.
"""

import re
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
    kind = type(answer)
    if kind in (tuple, list, set, frozenset):
        items = list(answer)
    elif kind is np.ndarray and answer.ndim == 1 and answer.dtype.kind == "U":
        items = answer.tolist()
    else:
        items = _split(record, answer) if kind is str else [answer]
    if not items:
        raise Finding(say("choice-none"))
    chosen = {_key(record, item) for item in items}
    if len(chosen) > 1 and len(record.correct) == 1:
        raise Finding(say("choice-one"))
    return tuple(key for key in record.options if key in chosen)


def _split(record: Choice, text: str) -> list[str]:
    """Split a text into keys where it is a list of them, as in ``"a, c"`` and ``"a and c"``."""
    if _named(record, text) is not None:
        return [text]
    items = [item for item in re.split(r"[,;&+\s]+", text.strip()) if item and item != "and"]
    return items if len(items) > 1 and all(_named(record, item) for item in items) else [text]


def _named(record: Choice, text: str) -> str | None:
    """Return the key that a text stands for: the key itself, ``b)``, ``option b``, or the option's own words."""
    plain = _bare(text)
    for key in record.options:
        if plain in (_bare(key), f"option {_bare(key)}"):
            return key
    for key, option in record.options.items():
        if plain in (_bare(option.text), _bare(f"{key}) {option.text}")):
            return key
    return None


def _bare(text: str) -> str:
    return " ".join(text.split()).strip("()\"'` ").rstrip(".").casefold()


def _key(record: Choice, item: Any) -> str:
    kind = type(item)
    if kind is np.str_:
        item = str(item)
    elif kind in (bool, np.bool_):
        item = str(bool(item))
    elif kind is int or issubclass(kind, np.integer):
        item = str(int(item)) if abs(int(item)) < 10**9 else ""  # Python refuses to write a very long number
    elif kind is not str:
        raise Finding(say("choice-kind", key=next(iter(record.options)), what=type_name(item)))
    key = _named(record, item)
    if key is None:
        raise Finding(say("choice-unknown", keys=", ".join(record.options)))
    return key
