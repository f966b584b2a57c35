"""Brings a new edition of a notebook into a reader's copy without touching what the reader wrote.

Three versions meet: the one given last time (base), the reader's (mine) and the new one. Cells are matched
by exercise id and cell id, never by their number. This file must never drop a source that differs from base:
what has no place any more is handed back to the caller, who keeps it.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Cell = dict[str, Any]
Notebook = dict[str, Any]


@dataclass(frozen=True)
class Stray:
    """A cell that the reader changed and that has no place in its notebook any more."""

    mine: Cell
    base: Cell | None

    @property
    def name(self) -> str:
        """Exercise id, else cell id."""
        return exercise_of(self.mine) or exercise_of(self.base or {}) or str(self.mine.get("id", "cell"))


@dataclass
class Merged:
    """The reader's notebook after the update, and what happened to the cells."""

    notebook: Notebook
    strays: list[Stray] = field(default_factory=list)
    kept: int = 0
    taken: int = 0
    beside: list[str] = field(default_factory=list)
    adopted: set[str] = field(default_factory=set)


def source_of(cell: Cell) -> str:
    """The text of a cell; notebooks may store it as lines."""
    source = cell.get("source", "")
    return "".join(source) if isinstance(source, list) else str(source)


def exercise_of(cell: Cell) -> str:
    """The exercise id of an answer cell, else an empty string."""
    metadata = cell.get("metadata")
    found = metadata.get("exercise") if isinstance(metadata, dict) else None
    return found if isinstance(found, str) else ""


def renamed_to(new: Notebook) -> dict[str, list[str]]:
    """Old exercise id -> ids that took its place: a ``renamed`` map of the notebook and entries of cells."""
    names: dict[str, list[str]] = {}
    for old, now in dict(new.get("metadata", {}).get("renamed", {})).items():
        names.setdefault(old, []).extend([now] if isinstance(now, str) else now)
    for cell in new["cells"]:
        olds = cell.get("metadata", {}).get("renamed", [])
        for old in [olds] if isinstance(olds, str) else olds:
            names.setdefault(old, []).append(exercise_of(cell))
    return names


def merge(
    base: Notebook | None,
    mine: Notebook,
    new: Notebook,
    elsewhere: Mapping[str, Stray] | None = None,
    kept_in: str = "kept",
) -> Merged:
    """The reader's notebook `mine` with the text of `new`; `base` is what was given last time.

    An untouched cell takes the new text; a changed one keeps the reader's, and when the book changed it
    too the book's version is placed beside it as a note. A cell the reader added stays after its neighbour.
    `elsewhere` holds changed answers of other notebooks, by their exercise id in `new`. `kept_in` is where
    the caller keeps the strays; a note says so at the place where they were.
    """
    olds = base["cells"] if base else []
    plan = _Plan(olds, mine["cells"], new["cells"], renamed_to(new))
    merged = Merged({})
    groups: dict[int, list[Cell]] = {place: [] for place in range(-1, len(new["cells"]))}
    place = -1
    for index, cell in enumerate(mine["cells"]):
        old = plan.base_of.get(index)
        if index in plan.new_of:
            place = plan.new_of[index]
        elif old is None:
            groups[place].append(copy.deepcopy(cell))
        elif not _same(cell, olds[old]):
            stray = Stray(cell, olds[old])
            merged.strays.append(stray)
            groups[place].append(_stray_note(stray, kept_in))
    cells: list[Cell] = list(groups[-1])
    mine_of = {place: index for index, place in plan.new_of.items()}
    for place, fresh in enumerate(new["cells"]):
        pair: Stray | None = None
        if place in mine_of:
            index = mine_of[place]
            old = plan.base_of.get(index)
            pair = Stray(mine["cells"][index], None if old is None else olds[old])
        elif place in plan.old_of:
            if _same(fresh, olds[plan.old_of[place]]):
                cells += groups[place]  # the reader deleted this cell, and the book did not change it
                continue
        elif exercise_of(fresh) in (elsewhere or {}):
            pair = (elsewhere or {})[exercise_of(fresh)]
            merged.adopted.add(exercise_of(fresh))
        cells += _combined(pair, fresh, merged)
        cells += groups[place]
    merged.notebook = {
        "cells": _with_ids(_without_stale_notes(cells)),
        "metadata": _three_way((base or {}).get("metadata", {}), mine.get("metadata", {}), new["metadata"]),
        "nbformat": 4,
        "nbformat_minor": max(5, int(mine.get("nbformat_minor", 5)), int(new.get("nbformat_minor", 5))),
    }
    return merged


class _Plan:
    """Which cell of one version is which cell of another, by index."""

    def __init__(self, olds: list[Cell], mine: list[Cell], news: list[Cell], renamed: Mapping[str, list[str]]) -> None:
        names = {old: now[0] for old, now in renamed.items() if len(now) == 1}
        #: new -> base. Equal text before equal id: ids of plain cells count from their heading.
        self.old_of = _pairs(news, _with_names(olds, names), (_exercise, _id_and_text, _text, _plain_id))
        #: mine -> base. The reader's tools keep ids, but a cell that was cut and pasted has a new one.
        self.base_of = _pairs(mine, olds, (_exercise_and_id, _id, _exercise, _text))
        place_of = {old: place for place, old in self.old_of.items()}
        #: mine -> new
        self.new_of = {index: place_of[old] for index, old in self.base_of.items() if old in place_of}
        # Without a base (it was deleted, or the last update was cut short) the cells are matched directly.
        rest = [index for index in range(len(mine)) if index not in self.base_of]
        open_places = [place for place in range(len(news)) if place not in self.old_of]
        direct = _pairs(
            _with_names([mine[index] for index in rest], names),
            [news[place] for place in open_places],
            (_exercise_and_id, _exercise, _id_and_text, _text, _plain_id),
        )
        self.new_of |= {rest[i]: open_places[j] for i, j in direct.items()}


Key = Callable[[Cell], Any]


def _pairs(left: list[Cell], right: list[Cell], keys: tuple[Key, ...]) -> dict[int, int]:
    """Match cells of two versions (index on the left -> index on the right), by one key after the other.

    A key that is empty matches nothing; each cell is used once, in order.
    """
    found: dict[int, int] = {}
    for key in keys:
        taken = set(found.values())
        where: dict[Any, list[int]] = {}
        for j, cell in enumerate(right):
            if j not in taken and key(cell):
                where.setdefault(key(cell), []).append(j)
        for i, cell in enumerate(left):
            if i not in found and where.get(key(cell)):
                found[i] = where[key(cell)].pop(0)
    return found


def _with_names(cells: list[Cell], names: Mapping[str, str]) -> list[Cell]:
    """The cells under the new names of their exercises; a check cell is called after its exercise."""
    checks = {f"{old}-check": f"{now}-check" for old, now in names.items()}
    called = []
    for cell in cells:
        exercise, name = exercise_of(cell), cell.get("id")
        if exercise in names:
            metadata = {**cell["metadata"], "exercise": names[exercise]}
            cell = {**cell, "metadata": metadata, "id": names.get(str(name), name)}
        elif name in checks:
            cell = {**cell, "id": checks[name]}
        called.append(cell)
    return called


def _exercise(cell: Cell) -> str:
    return exercise_of(cell)


def _id(cell: Cell) -> str:
    return str(cell.get("id") or "")


def _plain_id(cell: Cell) -> str:
    return "" if exercise_of(cell) else _id(cell)


def _exercise_and_id(cell: Cell) -> tuple[str, str] | None:
    return (exercise_of(cell), _id(cell)) if exercise_of(cell) and _id(cell) else None


def _id_and_text(cell: Cell) -> tuple[Any, ...] | None:
    return (_plain_id(cell), _text(cell)) if _plain_id(cell) else None


def _text(cell: Cell) -> tuple[str, str] | None:
    plain = source_of(cell).strip() and not exercise_of(cell)
    return (str(cell.get("cell_type")), source_of(cell)) if plain else None


def _same(cell: Cell, other: Cell) -> bool:
    """Whether two cells hold the same text; outputs and ids are not the reader's writing."""
    return (
        source_of(cell) == source_of(other)
        and cell.get("cell_type") == other.get("cell_type")
        and cell.get("attachments", {}) == other.get("attachments", {})
    )


def _combined(pair: Stray | None, fresh: Cell, merged: Merged) -> list[Cell]:
    """The cell that stands at the place of `fresh`, and the book's version beside it after a conflict."""
    if pair is None:
        return [copy.deepcopy(fresh)]
    mine, base = pair.mine, pair.base
    result = copy.deepcopy(fresh)
    result["metadata"] = _three_way((base or {}).get("metadata", {}), mine.get("metadata", {}), fresh["metadata"])
    if base is not None and _same(mine, base) and not _same(mine, fresh):
        merged.taken += 1
        return [result]
    if _same(mine, fresh):
        if base is None or mine.get("outputs") != base.get("outputs"):
            _carry(mine, result, "outputs", "execution_count")
        return [result]
    merged.kept += 1
    result["cell_type"] = mine.get("cell_type", fresh["cell_type"])
    result["source"] = mine.get("source", "")
    for key in ("outputs", "execution_count", "attachments"):
        result.pop(key, None)
    _carry(mine, result, "outputs", "execution_count", "attachments")
    if base is not None and _same(fresh, base):
        return [result]
    name = exercise_of(fresh) or str(fresh.get("id", ""))
    merged.beside.append(name)
    return [result, _conflict_note(name, fresh)]


def _carry(source: Cell, target: Cell, *keys: str) -> None:
    for key in keys:
        if key in source:
            target[key] = copy.deepcopy(source[key])


def _three_way(base: Mapping[str, Any], mine: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata: the book's keys, except where the reader's tools changed or added one."""
    result = dict(copy.deepcopy(dict(new)))
    for key, value in mine.items():
        if key not in ("exercise", "renamed", "book") and (key not in base or base[key] != value):
            if key in new and key not in base:
                continue
            result[key] = copy.deepcopy(value)
    return result


def _note(kind: str, name: str, text: str) -> Cell:
    """A markdown cell of the update itself; its id says whether the reader changed it since."""
    return {
        "cell_type": "markdown",
        "id": _note_id(name, text),
        "metadata": {"book": {"note": kind, "about": name}},
        "source": text,
    }


def _note_id(name: str, text: str) -> str:
    return "note-" + hashlib.sha256(f"{name}\n{text}".encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _conflict_note(name: str, fresh: Cell) -> Cell:
    fence = fence_for(source_of(fresh))
    language = "python" if fresh["cell_type"] == "code" else ""
    return _note(
        "conflict",
        name,
        f"**Changed in the book.** The cell above is yours and stays as you wrote it. "
        f"In the book it now reads:\n\n{fence}{language}\n{source_of(fresh)}\n{fence}",
    )


def _stray_note(stray: Stray, kept_in: str) -> Cell:
    return _note(
        "stray",
        stray.name,
        f"**No longer in the book.** The cell that stood here (`{stray.name}`) left this notebook. "
        f"What you wrote in it is kept in `{kept_in}`, unless its exercise moved to another notebook.",
    )


def fence_for(text: str) -> str:
    """A code fence longer than any run of backticks in `text`."""
    runs = [len(run) for run in re.findall(r"`+", text)]
    return "`" * max(3, *(run + 1 for run in runs)) if runs else "```"


def _without_stale_notes(cells: list[Cell]) -> list[Cell]:
    """Of the update's own untouched notes about one cell, only the newest stays."""
    seen: set[tuple[str, str]] = set()
    result = []
    for cell in cells:
        mark = cell.get("metadata", {}).get("book")
        if isinstance(mark, dict) and cell.get("id") == _note_id(str(mark.get("about")), source_of(cell)):
            key = (str(mark.get("note")), str(mark.get("about")))
            if key in seen:  # a fresh note stands directly after its cell, before older ones
                continue
            seen.add(key)
        result.append(cell)
    return result


def _with_ids(cells: list[Cell]) -> list[Cell]:
    """Give every cell an id of its own; a repeated one goes to the later cell's text and place."""
    used: set[str] = set()
    for index, cell in enumerate(cells):
        name = str(cell.get("id", ""))
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) or name in used:
            count = 0
            while not name or name in used or not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name):
                seed = f"{index}\n{count}\n{source_of(cell)}"
                name = "own-" + hashlib.sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()[:12]
                count += 1
            cell["id"] = name
        used.add(name)
    return cells
