"""Judges a formula given as a function: sampled at seeded points and compared as a function is.

Text is never evaluated; a formula in quotes is told so. Points must be drawn off singularities, by the record.
"""

import weakref
from typing import Any

import numpy as np

from labsupport.grading import function
from labsupport.grading.answers import type_name
from labsupport.grading.judge import failed
from labsupport.grading.records import Case, Formula, Function
from labsupport.grading.verdict import Verdict

_as_function: "weakref.WeakKeyDictionary[Formula, Function]" = weakref.WeakKeyDictionary()


def judge(record: Formula, answer: Any, seed: int) -> Verdict:
    """Return the verdict on a formula."""
    if type(answer) is str:
        return failed(record, "text is not evaluated: pass the formula as a function.", "For example: lambda x: x**2.")
    if not callable(answer):
        return failed(record, f"a formula is due as a function; you passed {type_name(answer)}.")
    if record not in _as_function:
        _as_function[record] = as_function(record)
    return function.judge(_as_function[record], answer, seed)


def as_function(record: Formula) -> Function:
    """Return the exercise that judges this formula point by point."""

    def cases(rng: np.random.Generator) -> list[Case]:
        return [Case(args=record.sample(rng)) for _ in range(record.points_sampled)]

    shared = ("id", "chapter", "section", "title", "prompt", "hints", "contract", "mistakes", "tolerance")
    return Function(
        oracle=record.oracle,
        cases=cases,
        forbidden_calls=record.forbidden_calls,
        **{name: getattr(record, name) for name in shared},
    )
