"""The judge: it turns a reader's answer into a verdict, and knows no subject.

A reader uses ``check``, ``hint``, ``solution`` and ``progress``; an author writes exercise records.
Nothing here may import a chapter's records: they are found through ``labsupport.grading.registry``.
"""

from labsupport.grading.api import check, hint, progress, solution
from labsupport.grading.records import (
    Case,
    Choice,
    Exercise,
    Formula,
    Function,
    Mistake,
    Number,
    Option,
    Several,
    Shape,
    Written,
)
from labsupport.grading.tolerance import Tolerance
from labsupport.grading.verdict import Note, State, Verdict

__all__ = [
    "Case",
    "Choice",
    "Exercise",
    "Formula",
    "Function",
    "Mistake",
    "Note",
    "Number",
    "Option",
    "Several",
    "Shape",
    "State",
    "Tolerance",
    "Verdict",
    "Written",
    "check",
    "hint",
    "progress",
    "solution",
]
