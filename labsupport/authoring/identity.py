"""Cell ids that say where a cell stands, so that inserting a cell elsewhere renumbers nothing.

An answer cell is called by its exercise, its check by the same id with ``-check``, and every other cell by
the heading it stands under and its place there. Ids must never depend on anything outside that heading.
"""

import re
import unicodedata
from pathlib import Path

from labsupport.authoring.faults import Fault, SourceError
from labsupport.authoring.solutions import checked_id
from labsupport.authoring.source import Cell


def slug(heading: str) -> str:
    """A heading as an id: `5.2 Stable softmax` becomes ``5-2-stable-softmax``."""
    plain = unicodedata.normalize("NFKD", re.sub(r"\{[a-z:-]+\}`", "", heading)).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:48].rstrip("-") or "section"


def cell_ids(cells: list[Cell], shown: Path) -> list[str]:
    """One id per cell, unique in its notebook. Raises SourceError where two cells check the same exercise."""
    ids: list[str] = []
    lines: dict[str, int] = {}
    counts: dict[str, int] = {}
    section = "top"
    faults = []
    for cell in cells:
        if headings := cell.headings():
            section = f"sec-{slug(headings[0][2])}"
        name = None
        if cell.exercise is not None:
            name = cell.exercise
        elif "check" in cell.tags and (checked := checked_id(cell)[0]):
            name = f"{checked}-check"[:64]
        if name is None:
            counts[section] = counts.get(section, 0) + 1
            name = section if counts[section] == 1 else f"{section}--{counts[section]}"
        if name in lines:
            faults.append(
                Fault(
                    path=shown,
                    line=cell.line,
                    problem=f"the id {name!r} belongs to the cell in line {lines[name]} too",
                    remedy="answer or check each exercise once",
                )
            )
        lines[name] = cell.line
        ids.append(name)
    if faults:
        raise SourceError(faults)
    return ids
