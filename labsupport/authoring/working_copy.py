"""``make lab``: the reader's own copy of the notebooks in ``work/``, brought up to date, and JupyterLab on it.

The generated notebooks are never worked in, so an update of the book cannot overwrite an answer. Everything
is planned in memory first and then written file by file, each in one step. This file must never delete or
replace anything a reader wrote: what has no place is moved to ``work/kept/``.
"""

from __future__ import annotations

import argparse
import copy
import errno
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labsupport.authoring.merge import Merged, Notebook, Stray, exercise_of, merge, renamed_to, source_of
from labsupport.grading.files import locked, write_atomically
from labsupport.grading.progress import MARKER

FOLDERS = ("exercises", "chapters")
VERSION = 1
ROOT = Path(__file__).resolve().parents[2]
WELCOME = """# Your working copy

These notebooks are yours: git ignores this folder, and `make lab` brings a new edition of the book into it
without touching what you wrote. Delete a notebook and run `make lab` to start it again.

- `exercises/` has the exercises, `chapters/` the chapters to run and change.
- `progress.json` remembers what you passed.
- `kept/` appears when the book no longer has a place for something you wrote.
- `.book/` remembers the edition you were given; without it an update cannot tell your text from the book's.
"""


#: Path in the working copy -> (what was given last time, what the reader has).
Changed = dict[Path, tuple[Notebook | None, Notebook]]


#: Settings of the JupyterLab that `lab_command` starts: it asks no questions about news, and asks nobody for them.
LAB_SETTINGS = Path(".book", "jupyter", "labconfig", "page_config.json")
QUIET = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}


class Refused(RuntimeError):
    """The update cannot be done and nothing was changed; the message says why and what to do."""


@dataclass
class Plan:
    """What an update is going to do: texts by path, moves, deletions, and the lines to print."""

    write: dict[Path, str] = field(default_factory=dict)
    move: dict[Path, Path] = field(default_factory=dict)
    delete: list[Path] = field(default_factory=list)
    base: dict[Path, str | None] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    count: dict[str, int] = field(default_factory=lambda: {"new": 0, "updated": 0, "unchanged": 0})

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.write or self.move or self.delete or self.base)


def main(argv: list[str]) -> int:
    """Update the working copy and open JupyterLab in it; returns the exit status."""
    options = _options(argv)
    try:
        plan = update(options.root, options.work)
    except Refused as error:
        print(error, file=sys.stderr)
        return 1
    for line in plan.lines:
        print(line)
    if options.no_lab:
        return 0
    command = [*lab_command(options.work, options.port, not options.no_browser), *options.more]
    return _open_lab(command, lab_environment(options.work))


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m labsupport.authoring lab", description=__doc__)
    parser.add_argument("--no-lab", action="store_true", help="only bring the working copy up to date")
    parser.add_argument("--no-browser", action="store_true", help="print the address, open no browser")
    parser.add_argument("--port", type=int, default=8888, help="where JupyterLab listens (default: 8888)")
    parser.add_argument("--root", type=Path, default=ROOT, help="the book's folder")
    parser.add_argument("--work", type=Path, help="the working copy (default: work/ in the book's folder)")
    parser.add_argument("more", nargs="*", help="after --: options for JupyterLab itself, such as --allow-root")
    options = parser.parse_args(argv)
    options.root = options.root.resolve()
    options.work = (options.work or options.root / "work").resolve()
    return options


def lab_command(work: Path, port: int, browser: bool) -> list[str]:
    """The JupyterLab on `work`: loopback only, with every call to the outside switched off."""
    return [
        sys.executable,
        "-m",
        "jupyterlab",
        f"--ServerApp.root_dir={work}",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
        f"--ServerApp.open_browser={browser}",
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.handlers.announcements.NeverCheckForUpdate",
        "--LabApp.extension_manager=readonly",
    ]


def lab_environment(work: Path) -> dict[str, str]:
    """This process's environment with the settings in `work` before the reader's own."""
    settings = [str(work / LAB_SETTINGS.parents[1]), os.environ.get("JUPYTER_CONFIG_PATH", "")]
    return {**os.environ, "JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, settings))}


def _open_lab(command: list[str], environment: dict[str, str]) -> int:
    """Run JupyterLab until it ends; Ctrl-C is for JupyterLab, which asks whether to stop."""
    with subprocess.Popen(command, env=environment) as server:
        while True:
            try:
                return server.wait()
            except KeyboardInterrupt:
                continue


def update(root: Path, work: Path) -> Plan:
    """Make `work` or bring it up to date from ``exercises/`` and ``chapters/`` of `root`.

    Raises Refused, with nothing changed, when the folder cannot be written, was made by a newer edition,
    is in use by another update, or when the book has no notebooks.
    """
    fresh = {path.relative_to(root): _loads(path.read_text("utf-8")) for path in _notebooks(root)}
    if broken := [str(path) for path, notebook in fresh.items() if notebook is None]:
        raise Refused(f"The book's own {broken[0]} is not a notebook. Restore it with git, then try again.")
    if not fresh:
        raise Refused(f"There are no notebooks in {root}. Build them: python -m labsupport.authoring build")
    try:
        (work / MARKER).parent.mkdir(parents=True, exist_ok=True)
        with locked(work / MARKER):
            _refuse_newer(work)
            plan = _plan(work, {path: notebook for path, notebook in fresh.items() if notebook is not None})
            if not plan.empty or not (work / MARKER).exists():
                _carry_out(plan, work)
    except OSError as error:
        raise Refused(
            f"The working copy {work} cannot be written ({error.strerror or error}). What you wrote is as it was. "
            "Make the folder writable, or choose another one with --work."
        ) from error
    return plan


def _notebooks(root: Path) -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted((root / folder).glob("*.ipynb"))


def _refuse_newer(work: Path) -> None:
    try:
        version = json.loads((work / MARKER).read_text("utf-8")).get("version", VERSION)
    except (FileNotFoundError, ValueError, AttributeError):
        return
    if isinstance(version, int) and version > VERSION:
        raise Refused(f"The working copy {work} was made by a newer edition of the book. Update the book first.")


def _loads(text: str) -> Notebook | None:
    """A notebook of format 4, or None for anything else."""
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(notebook, dict) or notebook.get("nbformat") != 4:
        return None
    cells = notebook.get("cells")
    if not isinstance(cells, list) or not isinstance(notebook.get("metadata", {}), dict):
        return None
    for cell in cells:
        if not isinstance(cell, dict) or not isinstance(cell.get("metadata", {}), dict):
            return None
        source = cell.get("source", "")
        lines = source if isinstance(source, list) else [source]
        if not all(isinstance(line, str) for line in lines):
            return None
    return notebook


def _read(path: Path) -> Notebook | bool | None:
    """A notebook; None where there is no file; False for a file that is no notebook."""
    try:
        notebook = _loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        return False
    return False if notebook is None else notebook


def _dumps(notebook: Notebook) -> str:
    return json.dumps(notebook, indent=1, ensure_ascii=True, sort_keys=True) + "\n"


def _base(work: Path, path: Path) -> Path:
    return work / MARKER.parent / path


def _plan(work: Path, fresh: dict[Path, Notebook]) -> Plan:
    """Compare the three versions of every notebook; changes nothing."""
    plan = Plan()
    olds = {path: _read(_base(work, path)) or None for path in _known(work)}
    source = _moved_files(olds, fresh, work)
    changed: Changed = {}
    absent: set[Path] = set()
    for path, new in fresh.items():
        old = olds.get(source.get(path, path))
        base = old if isinstance(old, dict) else None
        mine = _read(work / source.get(path, path))
        if mine is False:
            aside = _free(work / path.with_name(f"{path.name}.broken"), "-{}")
            plan.move[work / path] = aside
            plan.lines.append(f"{path}: not a notebook; set aside unchanged as {aside.name}, and a fresh one made")
            mine = None
        if isinstance(mine, dict) and base is not None and base == new and path not in source:
            plan.count["unchanged"] += 1
        elif isinstance(mine, dict):
            changed[path] = (base, mine)
            if path in source:
                plan.lines.append(f"{source[path]} is called {path} now")
                plan.delete.append(work / source[path])
                plan.base[_base(work, source[path])] = None
        else:
            changed[path] = (None, {"cells": [], "metadata": new["metadata"]})
            absent.add(path)
        if base != new or path in source:
            plan.base[_base(work, path)] = _dumps(new)
    retired = {path: olds[path] for path in sorted(set(olds) - set(fresh) - set(source.values()))}
    strays = _strays(work, fresh, changed, retired)
    merged = {path: merge(base, mine, fresh[path], strays, _kept_name(path)) for path, (base, mine) in changed.items()}
    adopted = {id(strays[name].mine) for result in merged.values() for name in result.adopted}
    for path, result in merged.items():
        if path in absent:
            plan.write[work / path] = _dumps(result.notebook)
            plan.count["new"] += 1
            continue
        _plan_one(work, plan, path, changed[path][1], result)
        if left := [stray for stray in result.strays if id(stray.mine) not in adopted]:
            _keep(work, plan, path, left)
    for path, old in retired.items():
        _retire(work, plan, path, old)
    total = " · ".join(f"{number} {name}" for name, number in plan.count.items())
    plan.lines.append(f"Working copy {work}: {total}")
    return plan


def _known(work: Path) -> list[Path]:
    """The notebooks given so far, by their path in the working copy."""
    home = work / MARKER.parent
    return [path.relative_to(home) for folder in FOLDERS for path in sorted((home / folder).glob("*.ipynb"))]


def _moved_files(olds: dict[Path, Any], fresh: dict[Path, Notebook], work: Path) -> dict[Path, Path]:
    """New path -> old path of a notebook that the book renamed: the one with most cells in common."""
    gone = {path: old for path, old in olds.items() if path not in fresh and isinstance(old, dict)}
    found: dict[Path, Path] = {}
    for path, new in fresh.items():
        if path in olds or (work / path).exists():
            continue
        names = _names(new)
        shared = {
            old: len(names & _names(gone[old]))
            for old in gone
            if old.parent == path.parent and old not in found.values() and (work / old).is_file()
        }
        best = max(sorted(shared), key=lambda old: shared[old], default=None)
        if (
            best is not None
            and shared[best] * 2 >= max(len(names), len(_names(gone[best])))
            and isinstance(_read(work / best), dict)
        ):
            found[path] = best
    return found


def _names(notebook: Notebook) -> set[str]:
    return {exercise_of(cell) or str(cell.get("id")) for cell in notebook["cells"]}


def _strays(work: Path, fresh: dict[Path, Notebook], changed: Changed, retired: dict[Path, Any]) -> dict[str, Stray]:
    """Changed cells that lost their notebook, by the name that their exercise has now."""
    names: dict[str, list[str]] = {}
    for new in fresh.values():
        for old_name, now in renamed_to(new).items():
            names.setdefault(old_name, []).extend(now)
    found = [merge(base, mine, fresh[path]).strays for path, (base, mine) in changed.items()]
    for path, base in retired.items():
        mine = _read(work / path)
        if isinstance(mine, dict) and isinstance(base, dict):
            found.append(merge(base, mine, {"cells": [], "metadata": {}}).strays)
    strays: dict[str, Stray] = {}
    for stray in itertools.chain(*found):
        now = names.get(stray.name, [])
        strays.setdefault(now[0] if len(now) == 1 else stray.name, stray)
    return strays


def _plan_one(work: Path, plan: Plan, path: Path, mine: Notebook, result: Merged) -> None:
    """Say what became of a notebook that the reader has, and write it where that is anything at all."""
    if _equal(result.notebook, mine) and (work / path).exists():
        plan.count["unchanged"] += 1
        return
    plan.write[work / path] = _dumps(result.notebook)
    plan.count["updated"] += 1
    plan.lines.append(f"{path}: updated, {result.kept} of your cells kept, {result.taken} cells renewed")
    for name in result.beside:
        plan.lines.append(f"{path}: {name} changed in the book; your text stays, the book's is beside it")


def _equal(first: Notebook, second: Notebook) -> bool:
    """Whether two notebooks say the same, however their lines are stored."""

    def plain(notebook: Notebook) -> Notebook:
        cells = [{**cell, "source": source_of(cell)} for cell in notebook["cells"]]
        return {**notebook, "cells": cells}

    return plain(first) == plain(second)


def _kept_name(path: Path) -> str:
    return f"kept/{path.parent.name}-{path.name}"


def _keep(work: Path, plan: Plan, path: Path, strays: list[Stray]) -> None:
    """Add cells to the notebook of kept cells that belongs to `path`; a cell that is already there is not repeated."""
    target = work / _kept_name(path)
    existing = _read(target)
    if existing is False:
        target = _free(target.with_suffix(""), "-{}.ipynb")
    kept = copy.deepcopy(existing) if isinstance(existing, dict) else _empty(path)
    have = [(source_of(cell), cell.get("attachments")) for cell in kept["cells"]]
    for stray in strays:
        if (source_of(stray.mine), stray.mine.get("attachments")) not in have:
            cell = copy.deepcopy(stray.mine)
            cell["id"] = f"kept-{len(kept['cells'])}"
            kept["cells"].append(cell)
        plan.lines.append(f"{path}: {stray.name} left the book; what you wrote is in {target.relative_to(work)}")
    plan.write[target] = _dumps(kept)


def _empty(path: Path) -> Notebook:
    text = f"# Kept from `{path}`\n\nThe book no longer has these cells; they are as you left them."
    cell = {"cell_type": "markdown", "id": "kept-about", "metadata": {}, "source": text}
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": [cell], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def _retire(work: Path, plan: Plan, path: Path, base: Notebook | bool | None) -> None:
    """A notebook that left the book: dropped when untouched, else moved to ``kept/`` whole."""
    mine = _read(work / path)
    plan.base[_base(work, path)] = None
    if mine is None:
        return
    if isinstance(mine, dict) and isinstance(base, dict) and _untouched(mine, base):
        plan.delete.append(work / path)
        plan.lines.append(f"{path} left the book; you had not changed it, so it is gone")
        return
    target = work / _kept_name(path)
    if target.exists() or target in plan.write:
        target = _free(target.with_suffix(""), "-{}.ipynb")
    plan.move[work / path] = target
    plan.lines.append(f"{path} left the book; yours is kept as {target.relative_to(work)}")


def _untouched(mine: Notebook, base: Notebook) -> bool:
    return [source_of(cell) for cell in mine["cells"]] == [source_of(cell) for cell in base["cells"]]


def _free(path: Path, pattern: str) -> Path:
    """The first path of `path` + pattern, numbered from 1, that does not exist."""
    number = 1
    while (free := path.with_name(path.name + pattern.format(number))).exists():
        number += 1
    return free


def _carry_out(plan: Plan, work: Path) -> None:
    """Write what was planned, so that a stop at any moment loses nothing and the next update finishes it.

    Kept cells come before the notebooks they leave, notebooks before what is remembered as given.
    """
    touched = [*plan.write, *plan.move, *plan.move.values(), *plan.delete, *plan.base, work / "README.md"]
    for folder in sorted({path.parent for path in touched}):
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    for path, target in plan.move.items():
        path.rename(target)
    for path in sorted(plan.write, key=lambda path: (path.parent.name != "kept", path)):
        write_atomically(path, plan.write[path])
    for path in plan.delete:
        path.unlink(missing_ok=True)
    for path, text in plan.base.items():
        if text is None:
            path.unlink(missing_ok=True)
        else:
            write_atomically(path, text)
    if not (work / "README.md").exists():
        write_atomically(work / "README.md", WELCOME)
    (work / LAB_SETTINGS).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(work / LAB_SETTINGS, json.dumps(QUIET) + "\n")
    write_atomically(work / MARKER, json.dumps({"version": VERSION}) + "\n")
