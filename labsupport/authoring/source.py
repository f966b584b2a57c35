"""Reads a MyST text notebook into cells that remember their place in the file.

The reading itself is jupytext's. This file must never change what an author wrote: it adds line
numbers, and it refuses what jupytext would accept in silence (a misspelt tag or directive).
"""

import difflib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from labsupport.authoring.faults import Fault, SourceError

#: Every tag a cell may carry, and what it does.
TAGS = {
    "exercise": "an answer cell, with a solution region",
    "check": "calls check on an exercise id",
    "solution-only": "is left out of the exercise notebook",
    "exercise-only": "is left out of the solution notebook",
    "hide-input": "the page folds the code away",
    "hide-output": "the page folds the output away",
    "hide-cell": "the page folds the cell away",
    "remove-input": "the page leaves the code out",
    "remove-output": "the page leaves the output out",
    "remove-cell": "the page leaves the cell out",
    "scroll-output": "the page gives a long output a scroll bar",
    "full-width": "the page lets the cell use the margin too",
    "margin": "the page puts the cell in the margin",
}

NESTED_CELL = re.compile(r"^\s*(`{3,}|~{3,}|:{3,})\s*\{\s*code[-_ ]?cell", re.MULTILINE)
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*\s*$")
FENCE = re.compile(r"^\s*(`{3,}|~{3,}|:{3,})")


@dataclass(frozen=True)
class Cell:
    """One cell of a source: its text, the line where that text begins, and its options."""

    kind: Literal["markdown", "code", "raw"]
    source: str
    line: int
    tags: tuple[str, ...] = ()
    exercise: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    #: Line number of each line, where they do not simply count on from ``line``.
    numbers: tuple[int, ...] = ()

    def lines(self) -> list[tuple[int, str]]:
        """The cell's lines with their line numbers in the source file."""
        texts = self.source.split("\n")
        return list(zip(self.numbers or range(self.line, self.line + len(texts)), texts, strict=True))

    def headings(self) -> list[tuple[int, int, str]]:
        """(line, level, text) of each heading of a markdown cell, fenced blocks left out."""
        found: list[tuple[int, int, str]] = []
        fence = ""
        for number, text in self.lines() if self.kind == "markdown" else ():
            if opened := FENCE.match(text):
                if not fence:
                    fence = opened[1]
                elif text.strip().startswith(fence) and not text.strip().strip(fence[0]):
                    fence = ""
            elif not fence and (heading := HEADING.match(text)):
                found.append((number, len(heading[1]), heading[2]))
        return found


def read(path: Path, shown: Path) -> list[Cell]:
    """The cells of the text notebook at ``path``; faults call the file ``shown``.

    Raises SourceError when the text is no MyST notebook, or when a tag or directive is misspelt.
    """
    text = path.read_text(encoding="utf-8")
    if not text.startswith("---\n"):
        raise SourceError(
            [
                Fault(
                    path=shown,
                    line=1,
                    problem="the front matter is missing",
                    remedy="begin the file with the jupytext and kernelspec block between two --- lines",
                )
            ]
        )
    myst = _jupytext_myst()
    try:
        notebook = myst.myst_to_notebook(text, add_source_map=True)
    except (myst.MystMetadataParsingError, ValueError, myst.nbf.ValidationError) as error:
        said = str(getattr(error, "message", error)).replace("\n", " ")
        line = re.search(r"line (\d+)", said)
        raise SourceError(
            [
                Fault(
                    path=shown,
                    line=int(line[1]) if line else 1,
                    problem=said,
                    remedy="mend the options of that cell, or the front matter",
                )
            ]
        ) from error
    lines = text.splitlines()
    cells = [
        _cell(cell, start, lines) for cell, start in zip(notebook.cells, notebook.metadata["source_map"], strict=True)
    ]
    if faults := [fault for cell in cells for fault in _faults(cell, shown)]:
        raise SourceError(faults)
    return cells


def _jupytext_myst() -> Any:
    """jupytext's MyST reader, imported without one second of work that it does not need.

    jupytext imports jsonschema, which compiles a grammar of internationalised web addresses when it can
    find one. No notebook needs it, and jsonschema does without it where the package is missing.
    """
    hidden = "rfc3987_syntax"
    if "jsonschema" in sys.modules or hidden in sys.modules:
        hidden = ""
    else:
        sys.modules[hidden] = None  # type: ignore[assignment]
    try:
        import jupytext.myst
    finally:
        if hidden:
            del sys.modules[hidden]
    return jupytext.myst


def _cell(node: Any, start: int, lines: list[str]) -> Cell:
    """jupytext's cell with its place: ``start`` counts from 0 and includes the option lines."""
    metadata = dict(node.metadata)
    tags = metadata.pop("tags", ())
    exercise = metadata.pop("exercise", None)
    if node.cell_type != "markdown":
        if lines[start : start + 1] == ["---"]:
            start = lines.index("---", start + 1) + 1
        while start < len(lines) and lines[start].lstrip().startswith(":"):
            start += 1
        if start < len(lines) and not lines[start].strip():
            start += 1
    while node.cell_type == "markdown" and not lines[start].strip():
        start += 1
    return Cell(
        kind=node.cell_type,
        source=node.source,
        line=start + 1,
        tags=(tags,) if isinstance(tags, str) else tuple(str(tag) for tag in tags or ()),
        exercise=None if exercise is None else str(exercise),
        metadata=metadata,
    )


def _faults(cell: Cell, shown: Path) -> Iterator[Fault]:
    for tag in cell.tags:
        if tag not in TAGS:
            close = difflib.get_close_matches(tag, TAGS, n=1)
            remedy = f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(TAGS)}"
            yield Fault(path=shown, line=cell.line, problem=f"unknown tag {tag!r}", remedy=remedy)
    if cell.kind == "code" and not cell.source.strip():
        yield Fault(path=shown, line=cell.line, problem="the code cell is empty", remedy="fill it or delete it")
    if cell.kind == "markdown" and (nested := NESTED_CELL.search(cell.source)):
        line = cell.line + cell.source.count("\n", 0, nested.start() + len(nested[0]) - len(nested[0].lstrip()))
        yield Fault(
            path=shown,
            line=line,
            problem="this code cell would be shown as text",
            remedy="write ```{code-cell} ipython3 at the start of a line, outside any list or directive",
        )
