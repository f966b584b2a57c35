"""Remembers how each source reads, so that an unchanged text is not parsed again.

What is kept lies in ``_build`` and may be deleted at any time: it is found by the text's own hash and
the hash of the code that read it, and is made anew where it is missing or damaged.
"""

import json
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from labsupport.authoring import source as reader
from labsupport.authoring.notebook import digest
from labsupport.authoring.source import Cell, read
from labsupport.grading.files import write_atomically

PLACE = Path("_build", "authoring")


def remembered(root: Path, source: Path) -> list[Cell]:
    """The cells of ``root / source``, as ``labsupport.authoring.source.read`` gives them.

    Raises SourceError as ``read`` does; a faulty text is never remembered.
    """
    kept = root / PLACE / f"{source.parent.name}-{source.stem}.json"
    key = digest((root / source).read_bytes() + _reader().encode())
    try:
        found = json.loads(kept.read_text(encoding="utf-8"))
        if found["key"] == key:
            return [_cell(fields) for fields in found["cells"]]
    except (OSError, ValueError, KeyError, TypeError):
        found = None  # nothing kept yet, or not by this version
    cells = read(root / source, source)
    fields = [asdict(cell) for cell in cells]
    if _survives(fields):
        try:
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(kept, json.dumps({"key": key, "cells": fields}, ensure_ascii=False))
        except OSError:
            return cells  # a folder that cannot be written only costs the time of reading again
    return cells


@cache
def _reader() -> str:
    """Stands for the code that reads: this package's and jupytext's."""
    from importlib.metadata import version

    return digest(Path(reader.__file__).read_bytes()) + version("jupytext")


def _survives(fields: list[dict[str, Any]]) -> bool:
    """Whether JSON gives back the same cells; options of a cell may hold what JSON does not know, such as dates."""
    try:
        return [_cell(field) for field in json.loads(json.dumps(fields))] == [_cell(field) for field in fields]
    except TypeError:
        return False


def _cell(fields: dict[str, Any]) -> Cell:
    return Cell(**{**fields, "tags": tuple(fields["tags"]), "numbers": tuple(fields["numbers"])})
