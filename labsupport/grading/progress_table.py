"""The table that ``progress()`` shows: exercises by chapter with bars, and the eighteen checklist items.

It is built from exercise records and states alone, has one layout, and gives the same bytes for the same
progress. It must never read or write a file, and never say a state by colour only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Protocol

from labsupport.grading.contents import CHAPTERS, CHECKLIST

BAR = 10  # characters
#: States that need nothing more from the judge; a written answer is the reader's own to compare.
DONE = ("pass", "review")
LEFT = 'style="text-align:left"'
FRAME = "display:inline-block;width:6em;height:.7em;border:1px solid currentColor;margin-right:.6em"


class Record(Protocol):
    """What the table needs of an exercise record."""

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def chapter(self) -> int: ...  # noqa: D102
    @property
    def title(self) -> str: ...  # noqa: D102
    @property
    def checklist(self) -> tuple[int, ...]: ...  # noqa: D102
    @property
    def points(self) -> int: ...  # noqa: D102


@dataclass(frozen=True)
class Row:
    """One exercise as the table shows it."""

    id: str
    title: str
    state: str
    attempts: int
    points: int


@dataclass(frozen=True)
class Chapter:
    """One chapter with its exercises in the order of the records."""

    number: int
    rows: tuple[Row, ...]

    @property
    def done(self) -> int:
        """Exercises passed, or handed in where no judge decides."""
        return sum(row.state in DONE for row in self.rows)

    @property
    def points(self) -> int:
        """Points of the exercises that are done."""
        return sum(row.points for row in self.rows if row.state in DONE)

    @property
    def label(self) -> str:
        """Number and short name."""
        return f"{self.number}. {CHAPTERS.get(self.number, 'Further exercises')}"


@dataclass(frozen=True)
class Item:
    """One checklist item: ticked when every exercise that belongs to it is done."""

    number: int
    text: str
    done: int
    open: tuple[str, ...]

    @property
    def ticked(self) -> bool:
        """Whether the item has exercises and none of them is open."""
        return self.done > 0 and not self.open


@dataclass(frozen=True)
class Progress:
    """Progress as text and as HTML; displayed by a notebook as it is."""

    chapters: tuple[Chapter, ...]
    items: tuple[Item, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Fixed-width text for a terminal."""
        rows = [row for chapter in self.chapters for row in chapter.rows]
        width = max([len(chapter.label) for chapter in self.chapters] + [10])
        lines = [self.headline, ""]
        for chapter in self.chapters:
            bar = _bar(chapter.done, len(chapter.rows))
            lines.append(f"{chapter.label:<{width}}  {bar}  {chapter.done:>2} of {len(chapter.rows):>2}")
        for heading, wanted in (("Tried, not passed yet:", "fail"), ("Compare with the rubric:", "review")):
            found = [row for row in rows if row.state == wanted]
            if found:
                lines += [
                    "",
                    heading,
                    *(f"  {row.id} ({_tries(row.attempts)}): {row.title}" for row in found),
                ]
        ticked = sum(item.ticked for item in self.items)
        lines += ["", f"Self-check list: {ticked} of {len(self.items)} ticked. I can"]
        lines += [f"  [{'x' if item.ticked else ' '}] {item.number:>2} {item.text}{_rest(item)}" for item in self.items]
        lines += [line for note in self.notes for line in ("", f"Note: {note}")]
        return "\n".join(lines)

    __repr__ = __str__

    @property
    def headline(self) -> str:
        """One sentence that says it all."""
        total = sum(len(chapter.rows) for chapter in self.chapters)
        done = sum(chapter.done for chapter in self.chapters)
        points = sum(row.points for chapter in self.chapters for row in chapter.rows)
        earned = sum(chapter.points for chapter in self.chapters)
        return f"Progress: {done} of {total} exercises done, {earned} of {points} points."

    def _repr_html_(self) -> str:
        """A table with a caption and header cells, then the list; inherits the page's colours."""
        chapters = "".join(_chapter_html(chapter) for chapter in self.chapters)
        items = "".join(
            f'<li value="{item.number}"><strong>{"Ticked" if item.ticked else "Open"}:</strong> '
            f"{escape(item.text)}{escape(_rest(item))}</li>"
            for item in self.items
        )
        notes = "".join(f"<p><strong>Note:</strong> {escape(note)}</p>" for note in self.notes)
        ticked = sum(item.ticked for item in self.items)
        return (
            f'<div class="ls-progress"><table><caption {LEFT}>{escape(self.headline)}</caption>'
            f'<thead><tr><th scope="col" {LEFT}>Chapter</th><th scope="col" {LEFT}>Done</th>'
            f'<th scope="col" {LEFT}>Exercises</th></tr></thead><tbody>{chapters}</tbody></table>'
            f"<p>Self-check list: {ticked} of {len(self.items)} ticked. I can</p>"
            f"<ol>{items}</ol>{notes}</div>"
        )


def tabulate(
    records: Iterable[Record],
    best: Mapping[str, str],
    attempts: Mapping[str, int],
    notes: tuple[str, ...] = (),
) -> Progress:
    """Sort the records into chapters and checklist items.

    `best` and `attempts` give state and tries by exercise id; an exercise they do not name is ``todo``.
    """
    chapters: dict[int, list[Row]] = {}
    belonging: dict[int, list[Row]] = {number: [] for number in range(1, len(CHECKLIST) + 1)}
    for record in records:
        state = best.get(record.id, "todo")
        row = Row(record.id, record.title, state, attempts.get(record.id, 0), record.points)
        chapters.setdefault(record.chapter, []).append(row)
        for number in record.checklist:
            belonging[number].append(row)
    return Progress(
        tuple(Chapter(number, tuple(rows)) for number, rows in sorted(chapters.items())),
        tuple(_item(number, rows) for number, rows in belonging.items()),
        notes,
    )


def _item(number: int, rows: list[Row]) -> Item:
    still_open = tuple(row.id for row in rows if row.state not in DONE)
    return Item(number, CHECKLIST[number - 1], len(rows) - len(still_open), still_open)


def _bar(done: int, total: int) -> str:
    filled = BAR * done // total if total else 0
    return "[" + "#" * filled + "-" * (BAR - filled) + "]"


def _tries(count: int) -> str:
    return "1 try" if count == 1 else f"{count} tries"


def _rest(item: Item) -> str:
    """How far an item that was begun is: which exercises are still open."""
    if item.ticked or not item.done:
        return ""
    return f" (still open: {', '.join(item.open)})"


def _chapter_html(chapter: Chapter) -> str:
    percent = 100 * chapter.done // len(chapter.rows)
    names = {"pass": "passed", "review": "handed in", "fail": "tried", "todo": "open"}
    exercises = "".join(
        f"<li><code>{escape(row.id)}</code> {escape(row.title)}: {names[row.state]}</li>" for row in chapter.rows
    )
    fill = f"display:block;height:100%;width:{percent}%;background:currentColor"
    return (
        f'<tr><th scope="row" {LEFT}>{escape(chapter.label)}</th>'
        f'<td {LEFT}><span aria-hidden="true" style="{FRAME}"><span style="{fill}"></span></span>'
        f"{chapter.done} of {len(chapter.rows)}</td>"
        f"<td {LEFT}><details><summary>Show</summary><ul>{exercises}</ul></details></td></tr>"
    )
