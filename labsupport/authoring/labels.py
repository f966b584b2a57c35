"""Labels of a solution notebook: the same text as the exercise notebook, under names of its own.

Both notebooks come from one source and stand in one book, where a label may exist once. Every label that the
source defines gets the prefix ``solution-`` in the solution notebook, and so does every reference to it there.
"""

import re
from dataclasses import replace

from labsupport.authoring.source import Cell

TARGET = re.compile(r"^\((?P<label>[\w:-]+)\)=\s*$", re.MULTILINE)
EQUATION = re.compile(r"(?<=\$\$) \((?P<label>[\w:-]+)\)\s*$", re.MULTILINE)
NAMED = re.compile(r"^:(?:label|name): (?P<label>[\w:-]+)\s*$", re.MULTILINE)
PREFIX = "solution-"


def for_solution(cells: list[Cell]) -> list[Cell]:
    """The cells with every label that they define, and every reference to it, renamed; the title says Solutions."""
    labels = {
        found["label"]
        for cell in cells
        if cell.kind == "markdown"
        for pattern in (TARGET, EQUATION, NAMED)
        for found in pattern.finditer(cell.source)
    }
    renamed = [
        replace(cell, source=_rename(cell.source, labels)) if cell.kind == "markdown" else cell for cell in cells
    ]
    for index, cell in enumerate(renamed):
        if cell.kind == "markdown" and (title := re.search(r"^# .*$", cell.source, re.MULTILINE)):
            heading = re.sub(r"\bExercises\b", "Solutions", title[0])
            renamed[index] = replace(cell, source=cell.source.replace(title[0], heading, 1))
            break
    return renamed


def _rename(text: str, labels: set[str]) -> str:
    for label in sorted(labels):
        name = re.escape(label)
        text = re.sub(rf"^\({name}\)=", f"({PREFIX}{label})=", text, flags=re.MULTILINE)
        text = re.sub(rf"(?<=\$\$) \({name}\)(\s*)$", rf" ({PREFIX}{label})\1", text, flags=re.MULTILINE)
        text = re.sub(rf"^(:(?:label|name):) {name}(\s*)$", rf"\1 {PREFIX}{label}\2", text, flags=re.MULTILINE)
        text = re.sub(
            rf"(\{{(?:eq|ref|numref|doc|math:numref)\}}`(?:[^`<]*<)?){name}(>?`)", rf"\1{PREFIX}{label}\2", text
        )
        text = re.sub(rf"(\]\(#?){name}\)", rf"\1{PREFIX}{label})", text)
    return text
