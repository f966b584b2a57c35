"""What the judge remembers of a reader: state, attempts and opened hints of each exercise, in one JSON file.

The file stays in the reader's working copy; it holds no names, no times and no answers, only a hash of the
last one. A write is atomic and locked, so a crash or a second kernel loses nothing; a file that cannot be
read is set aside, never overwritten. This module must never raise because of a file: it says so in a note.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from labsupport.grading.files import locked, write_atomically
from labsupport.grading.progress_table import Progress, Record, tabulate

VERSION = 1
STATES = ("todo", "fail", "review", "pass", "grader-error")
#: From worst to best. A state that is not listed (the grader's own fault) says nothing about the reader.
RANK = {"todo": 0, "fail": 1, "review": 2, "pass": 3}
#: The file that marks a working copy; written by ``python -m labsupport.authoring lab``.
MARKER = Path(".book", "working-copy.json")
FILE_NAME = "progress.json"

Entry = dict[str, Any]
Entries = dict[str, Entry]
Result = TypeVar("Result")


def default_path(start: Path | None = None) -> Path:
    """The progress file for a reader who works in `start` (default: the current folder).

    The working copy around `start` wins; inside the book's own folders it is ``work/progress.json`` at the
    book's root, which git ignores; anywhere else it is ``progress.json`` in `start` itself.
    """
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if os.path.isfile(folder / MARKER):
            return folder / FILE_NAME
        if os.path.isfile(folder / "_toc.yml") and os.path.isdir(folder / "labsupport"):
            return folder / "work" / FILE_NAME
    return here / FILE_NAME


_STORES: dict[Path | None, ProgressStore] = {}


def store() -> ProgressStore:
    """The store as ``LABSUPPORT_PROGRESS`` says (``off``, a file or a folder), else at `default_path`."""
    wish = os.environ.get("LABSUPPORT_PROGRESS", "").strip()
    path: Path | None
    if wish.lower() == "off":
        path = None
    elif wish:
        path = Path(wish).expanduser().absolute()
        if path.is_dir():
            path = path / FILE_NAME
    else:
        try:
            path = default_path()
        except FileNotFoundError:  # the current folder was deleted under the kernel
            path = None
    if path not in _STORES:
        _STORES[path] = ProgressStore(path)
    return _STORES[path]


@dataclass
class _Loaded:
    """A file as read: what is in it, what must be kept of it, and whether it may be replaced."""

    entries: Entries
    other: dict[str, Any] = field(default_factory=dict)
    fault: str = ""
    newer: bool = False
    error: OSError | None = None


class ProgressStore:
    """Progress in one file, or in memory only when `path` is None.

    Every change is made to the file as it is at that moment, under a lock. A change that cannot be
    written is kept and made later, so a folder that becomes writable again has everything.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._waiting: list[Callable[[Entries], Any]] = []
        self._memory: Entries = {}
        self._notes: list[str] = []
        self._said: set[str] = set()

    # What the judge asks and tells.

    def record(self, exercise_id: str, state: str, answer_hash: str = "") -> list[str]:
        """Remember a verdict; return the notes that the reader should see (often none).

        Only ``pass``, ``fail`` and ``review`` are attempts, and the same answer again is not a new one.
        A pass is kept as the best state: no later try takes it away.
        Raises ValueError for a state that does not exist.
        """
        if state not in STATES:
            raise ValueError(f"There is no state {state!r}; the states are {', '.join(STATES)}.")
        if state not in ("todo", "grader-error"):

            def change(entries: Entries) -> None:
                entry = entries.setdefault(exercise_id, {})
                if not answer_hash or entry.get("answer") != answer_hash or not entry.get("attempts"):
                    entry["attempts"] = entry.get("attempts", 0) + 1
                entry["state"] = state
                entry["answer"] = answer_hash
                if RANK[state] >= RANK[entry.get("best", "todo")]:
                    entry["best"] = state

            self._update(change)
        return self.notes()

    def state(self, exercise_id: str) -> str:
        """The best state so far: ``todo``, ``fail``, ``review`` or ``pass``."""
        return str(self._view().get(exercise_id, {}).get("best", "todo"))

    def last_state(self, exercise_id: str) -> str:
        """The state of the latest attempt; it may be worse than the best one."""
        return str(self._view().get(exercise_id, {}).get("state", "todo"))

    def attempts(self, exercise_id: str) -> int:
        """How many different answers were judged."""
        return int(self._view().get(exercise_id, {}).get("attempts", 0))

    def hints(self, exercise_id: str) -> int:
        """How many hints are open."""
        return int(self._view().get(exercise_id, {}).get("hints", 0))

    def next_hint(self, exercise_id: str, total: int) -> int:
        """Open one more of `total` hints and return its number, from 1; after the last one, `total`."""

        def change(entries: Entries) -> int:
            if total <= 0:
                return 0
            entry = entries.setdefault(exercise_id, {})
            entry["hints"] = min(entry.get("hints", 0) + 1, total)
            return int(entry["hints"])

        return self._update(change)

    def solution_requests(self, exercise_id: str) -> int:
        """Count one more request for the solution and return how many there were."""

        def change(entries: Entries) -> int:
            entry = entries.setdefault(exercise_id, {})
            entry["solutions"] = entry.get("solutions", 0) + 1
            return int(entry["solutions"])

        return self._update(change)

    def reset(self, exercise_id: str | None = None) -> None:
        """Forget one exercise, or all of them."""

        def change(entries: Entries) -> None:
            if exercise_id is None:
                entries.clear()
            else:
                entries.pop(exercise_id, None)

        self._update(change)

    def entries(self) -> Entries:
        """A copy of everything remembered, by exercise id."""
        return {name: dict(entry) for name, entry in sorted(self._view().items())}

    def table(self, records: Iterable[Record]) -> Progress:
        """The table of progress over these exercise records, with the eighteen checklist items."""
        best = {name: str(entry.get("best", "todo")) for name, entry in self._view().items()}
        tries = {name: int(entry.get("attempts", 0)) for name, entry in self._view().items()}
        return tabulate(records, best, tries, tuple(self.notes()))

    def notes(self) -> list[str]:
        """Notes that were not shown yet; each is given once."""
        notes, self._notes = self._notes, []
        return notes

    # How it is kept.

    def _say(self, note: str) -> None:
        if note not in self._said:
            self._said.add(note)
            self._notes.append(note)

    def _view(self) -> Entries:
        """The entries as they are now: the file's, with every change that still waits to be written."""
        if self.path is None:
            return self._memory
        loaded = _load(self.path)
        if loaded.fault and not loaded.newer:
            self._update(lambda entries: None)  # sets the file aside, under the lock
            loaded = _load(self.path)
        if loaded.newer:
            self._say(loaded.fault)
        for change in self._waiting:
            change(loaded.entries)
        return loaded.entries

    def _update(self, change: Callable[[Entries], Result]) -> Result:
        """Make a change to the file as it is now; where that is impossible, keep it and say so."""
        if self.path is None:
            return change(self._memory)
        try:
            return self._update_file(self.path, change)
        except OSError as error:
            self._say(
                f"Progress cannot be saved ({error.strerror or error}). It is kept until this kernel stops. "
                "Set LABSUPPORT_PROGRESS to a file that you can write, or to off."
            )
        entries = _load(self.path).entries
        for earlier in self._waiting:
            earlier(entries)
        self._waiting.append(change)
        return change(entries)

    def _update_file(self, path: Path, change: Callable[[Entries], Result]) -> Result:
        path.parent.mkdir(parents=True, exist_ok=True)
        path = path.resolve()  # a link stays a link: its target is replaced
        with locked(path):
            loaded = _load(path)
            if loaded.error is not None:
                raise loaded.error
            if loaded.newer:
                self._say(loaded.fault)
                for earlier in self._waiting:
                    earlier(loaded.entries)
                self._waiting.append(change)
                return change(loaded.entries)
            before = json.dumps(loaded.entries, sort_keys=True)
            for earlier in self._waiting:
                earlier(loaded.entries)
            result = change(loaded.entries)
            if loaded.fault:
                aside = _set_aside(path)
                self._say(f"{loaded.fault} It was set aside as {aside}; what could be read of it is kept.")
            if loaded.fault or json.dumps(loaded.entries, sort_keys=True) != before:
                _write(path, loaded)
            if self._waiting:
                self._waiting.clear()
                self._said.clear()
                self._say("Progress is saved again, with everything since it could not be.")
            return result


def _load(path: Path) -> _Loaded:
    """Read a progress file. Never raises: what is wrong with it stands in ``fault``."""
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return _Loaded({})
    except UnicodeDecodeError:
        return _Loaded({}, fault=f"{path.name} is not text.")
    except OSError as error:
        return _Loaded({}, error=error)  # must not be replaced: what is in it is not known
    if not text.strip():
        return _Loaded({}, fault=f"{path.name} is empty.")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return _Loaded({}, fault=f"{path.name} is not complete JSON.")
    if not isinstance(data, dict) or not _is_count(data.get("version")):
        return _Loaded({}, fault=f"{path.name} is not a progress file.")
    if data["version"] > VERSION:
        return _Loaded(
            {},
            fault=f"{path.name} was written by a newer edition of the book and is left as it is. "
            "What you do now is kept until this kernel stops; update the book to continue it.",
            newer=True,
        )
    raw = data.get("exercises")
    entries = {name: entry for name, entry in raw.items() if _is_entry(entry)} if isinstance(raw, dict) else {}
    other = {key: value for key, value in data.items() if key not in ("version", "exercises")}
    whole = isinstance(raw, dict) and len(entries) == len(raw) and data["version"] == VERSION
    return _Loaded(entries, other, "" if whole else f"{path.name} has entries that are not progress.")


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _is_entry(entry: object) -> bool:
    """Whether an entry has the types that this edition writes; unknown keys are kept as they are."""
    return (
        isinstance(entry, dict)
        and all(_is_count(entry.get(key, 0)) for key in ("attempts", "hints", "solutions"))
        and all(entry.get(key, "todo") in list(RANK) for key in ("state", "best"))
        and isinstance(entry.get("answer", ""), str)
    )


def _write(path: Path, loaded: _Loaded) -> None:
    """Replace the file in one step: a crash leaves the old one or the new one, never a part."""
    data = {**loaded.other, "version": VERSION, "exercises": loaded.entries}
    text = json.dumps(data, indent=1, sort_keys=True) + "\n"
    write_atomically(path, text)


def _set_aside(path: Path) -> str:
    """Copy a file that cannot be used to the first free ``progress.corrupt-N.json``; return that name.

    A copy, because the file itself must stay until its replacement is written.
    """
    content = path.read_bytes()
    for number in itertools.count(1):
        aside = path.with_name(f"{path.stem}.corrupt-{number}{path.suffix}")
        if not aside.exists():
            try:
                aside.write_bytes(content)
            except OSError:
                with contextlib.suppress(OSError):
                    aside.unlink()
                raise
            break
        if aside.read_bytes() == content:  # of an earlier time when the replacement could not be written
            break
    return aside.name
