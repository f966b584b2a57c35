"""Judges a shape: a tuple, a list, a ``torch.Size`` or a one-dimensional array of whole numbers.

A wrong shape is told by what is wrong with it: rank, order or axes. It must never say a size.
"""

from typing import Any

import numpy as np

from labsupport.grading.answers import type_name
from labsupport.grading.compare import Finding
from labsupport.grading.judge import failed, passed
from labsupport.grading.messages import say
from labsupport.grading.records import Shape
from labsupport.grading.verdict import Verdict


def judge(record: Shape, answer: Any) -> Verdict:
    """Return the verdict on a shape."""
    try:
        mine = read(answer)
    except Finding as finding:
        return failed(record, finding.text)
    if mine == record.expected:
        return passed(record, say("shape-right"))
    for mistake in record.mistakes:
        if mine == tuple(mistake.answer):
            return failed(record, compare(mine, record.expected), mistake.message,
                          mistake=mistake.name, section=mistake.section)  # fmt: skip
    return failed(record, compare(mine, record.expected))


def read(answer: Any) -> tuple[int, ...]:
    """Return a shape as a tuple of ints, or raise ``Finding``."""
    kind = type(answer)
    if kind is str:
        raise Finding(say("shape-string"))
    if kind is int or issubclass(kind, np.integer):
        raise Finding(say("shape-bare"))
    if issubclass(kind, tuple):
        items = list(tuple.__iter__(answer))
    elif kind is list:
        items = answer
    elif kind is np.ndarray and answer.ndim == 1 and answer.dtype.kind in "iu":
        items = answer.tolist()
    else:
        raise Finding(say("shape-kind", what=type_name(answer)))
    return tuple(_size(item, axis) for axis, item in enumerate(items))


def _size(item: Any, axis: int) -> int:
    if type(item) is not int and not issubclass(type(item), np.integer):
        raise Finding(say("shape-entry", axis=axis, what=type_name(item)))
    if int(item) < 0:
        raise Finding(say("shape-negative", axis=axis))
    return int(item)


def compare(mine: tuple[int, ...], expected: tuple[int, ...]) -> str:
    """Say how a shape differs from the right one."""
    if len(mine) != len(expected):
        return say("shape-rank-few" if len(mine) < len(expected) else "shape-rank-many")
    if sorted(mine) == sorted(expected):
        return say("shape-order")
    wrong = [str(axis) for axis, (a, b) in enumerate(zip(mine, expected, strict=True)) if a != b]
    axes = f"axis {wrong[0]}" if len(wrong) == 1 else f"axes {', '.join(wrong[:-1])} and {wrong[-1]}"
    return say("shape-axes", axes=axes)


def spellings(expected: tuple[int, ...]) -> tuple[str, ...]:
    """Return the ways a shape may be written, to look for it in messages; a rank of 0 has none."""
    if not expected:
        return ()
    inner = ", ".join(map(str, expected))
    times = "×".join(map(str, expected))
    tight = inner.replace(" ", "")
    texts = (f"({inner})", f"[{inner}]", f"({tight})", f"[{tight}]")
    return texts if len(expected) == 1 else (*texts, inner, tight, times, f"{expected}")
