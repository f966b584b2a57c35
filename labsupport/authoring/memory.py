"""Remembers how each source reads and what was found current, so that an unchanged text costs nothing again.

What is kept lies in ``_build`` and may be deleted at any time: it is found by the hashes of all it depends
on, the code that read it among them, and is made anew where it is missing or damaged.
"""

import contextlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache, cached_property
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


class Settled:
    """What was found to be in order, as facts that hold while labsupport, the pins and the named files stay the same.

    ``facts`` returns what ``note`` was given, or None where anything has changed since; ``keep`` writes the notes.
    One that is not ``trusting`` starts with nothing.
    """

    def __init__(self, root: Path, trusting: bool = True):
        self.root = root
        self._place = root / PLACE / "settled.json"
        self._kept: dict[str, Any] = {}
        if trusting:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # nothing kept yet, or damaged
                kept = json.loads(self._place.read_text(encoding="utf-8"))
                self._kept = dict(kept["facts"]) if kept["code"] == self._code else {}
        self._noted = False

    @cached_property
    def _code(self) -> str:
        """Stands for every file of the package, the pins and the code that reads."""
        files = sorted(path for path in (self.root / "labsupport").rglob("*") if path.is_file())
        own = [path for path in files if "__pycache__" not in path.parts]
        parts = [f"{path.relative_to(self.root).as_posix()} {digest(path.read_bytes())}" for path in own]
        return digest("\n".join([*parts, digest((self.root / "requirements.txt").read_bytes()), _reader()]))

    def _key(self, files: Iterable[Path]) -> str:
        found = [(file, self.root / file) for file in files]
        return digest("\n".join(f"{file} {digest(path.read_bytes())}" for file, path in found if path.is_file()))

    def facts(self, name: str, files: Iterable[Path]) -> Any:
        """Return what is known of ``name``, or None; ``files`` (relative to the root) are those it depends on."""
        kept = self._kept.get(name)
        return kept["facts"] if isinstance(kept, dict) and kept.get("key") == self._key(files) else None

    def note(self, name: str, files: Iterable[Path], facts: Any) -> None:
        """Remember ``facts`` (JSON, not None) of ``name`` for as long as the files stay as they are now."""
        self._kept[name] = {"key": self._key(files), "facts": facts}
        self._noted = True

    def keep(self) -> None:
        """Write the notes; a folder that cannot be written only costs the time of finding out again."""
        if self._noted:
            with contextlib.suppress(OSError):
                self._place.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(self._place, json.dumps({"code": self._code, "facts": self._kept}, ensure_ascii=False))


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
