"""Decides which notebooks are current and brings the others up to date.

A notebook is current when the file holds exactly the bytes that its source, the code it reaches and its stored
outputs give. Only a change of code, of a reached file or of the pins makes it run again. A notebook is replaced
in one step or not at all: a failure leaves the last good one.
"""

import asyncio
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from labsupport.authoring.dependencies import Graph
from labsupport.authoring.environment import KERNEL_ENV
from labsupport.authoring.execute import Run, execute_all
from labsupport.authoring.faults import ExecutionError, Fault, SourceError
from labsupport.authoring.identity import cell_ids
from labsupport.authoring.labels import for_solution
from labsupport.authoring.memory import Settled, remembered
from labsupport.authoring.notebook import STAMP, Document, code_cells, digest, document, dumps, load, texts
from labsupport.authoring.solutions import checked_id, is_open_question, refuse_markers, split, telling
from labsupport.authoring.source import Cell

NAME = re.compile(r"\d\d-[a-z0-9]+(-[a-z0-9]+)*")
PINS = "requirements.txt"
#: Source folder -> the folders of the notebooks that come from it.
FOLDERS = {"book/chapters": ("chapters",), "book/exercises": ("exercises", "solutions")}


@dataclass
class Plan:
    """One notebook as it should be: ``document`` with its stamp, and the reasons why the file differs from that."""

    notebook: Path
    source: Path
    document: Document
    lines: list[list[int]]
    reasons: list[str]
    execute: bool
    #: The exercises in it, each with the line of its first cell in the source.
    exercises: dict[str, int]
    #: Lines that no output of the notebook may show: the solutions, for an exercise notebook.
    secret: list[tuple[int, str]] = field(default_factory=list)


@dataclass
class Sources:
    """The sources of a tree, and the notebooks planned from those that have no fault."""

    plans: list[Plan]
    faults: list[Fault]


class Reach:
    """The files that code cells can reach: read from the imports, or remembered while no code has changed."""

    def __init__(self, graph: Graph, settled: Settled):
        self.graph = graph
        self.settled = settled

    def files(self, code: list[tuple[int, str]], source: Path) -> list[Path]:
        """As Graph.files, for the cells ``(first line, text)`` of a source. Raises SourceError as that does."""
        name = f"reach of {source.stem}: {digest(chr(0).join(text for _, text in code))}"
        if (known := self.settled.facts(name, [])) is not None:
            return [Path(path) for path in known]
        found = self.graph.files(code, source, source.stem)
        self.settled.note(name, [], [path.as_posix() for path in found])
        return found


def sources(root: Path, only: Iterable[str] = ()) -> list[Path]:
    """The source files, relative to the root, of the chapters in ``only`` (numbers or stems; empty: all).

    Raises ValueError for a chapter that has no source.
    """
    found = [path.relative_to(root) for folder in FOLDERS for path in sorted((root / folder).glob("*.md"))]
    if not (wanted := list(only)):
        return found
    chosen = []
    for name in wanted:
        matching = [
            path for path in found if path.stem == name or (name.isdigit() and path.stem[:2] == f"{int(name):02d}")
        ]
        if not matching:
            known = ", ".join(sorted({path.stem for path in found})) or "none yet"
            raise ValueError(f"no source belongs to {name!r}; the sources in {' and '.join(FOLDERS)} are: {known}")
        chosen += matching
    return sorted(set(chosen))


def survey(root: Path, only: Iterable[str] = (), anew: bool = False) -> Sources:
    """Plan every notebook of the chosen chapters without running anything.

    What was found current and has not changed since is not worked out again, unless ``anew``: such a plan
    has an empty document.
    """
    settled = Settled(root, trusting=not anew)
    reach = Reach(Graph(root), settled)
    pins = digest((root / PINS).read_bytes())
    surveyed = Sources([], [])
    for source in sources(root, only):
        files = [Path(folder, f"{source.stem}.ipynb") for folder in FOLDERS[source.parent.as_posix()]]
        facts = settled.facts(source.as_posix(), [source, *files])
        if facts is not None:
            surveyed.plans += [
                Plan(file, source, {}, [], [], False, found) for file, found in zip(files, facts, strict=True)
            ]
            continue
        try:
            plans = plan(root, source, reach, pins)
        except SourceError as error:
            surveyed.faults += error.faults
            continue
        surveyed.plans += plans
        if not any(planned.reasons for planned in plans):
            settled.note(source.as_posix(), [source, *files], [planned.exercises for planned in plans])
    settled.keep()
    if not list(only):
        surveyed.faults += orphans(root)
    surveyed.faults = sorted({*surveyed.faults, *shared_ids(surveyed.plans)})
    return surveyed


def shared_ids(plans: list[Plan]) -> list[Fault]:
    """An exercise id that two sources use: the reader's progress would take one for the other."""
    first: dict[str, Path] = {}
    faults = []
    for planned in plans:
        for name, line in planned.exercises.items():
            if first.setdefault(name, planned.source) != planned.source:
                problem = f"the exercise id {name!r} belongs to {first[name]} too"
                fault = Fault(
                    path=planned.source, line=line, problem=problem, remedy="give each exercise an id of its own"
                )
                faults.append(fault)
    return faults


def plan(root: Path, source: Path, reach: Reach, pins: str) -> list[Plan]:
    """The notebooks of one source. Raises SourceError with everything that is wrong in it."""
    if not NAME.fullmatch(source.stem):
        raise SourceError(
            [
                Fault(
                    path=source,
                    line=1,
                    problem="the file name is no NN-name",
                    remedy="call it like 05-softmax-and-kl.md",
                )
            ]
        )
    cells = remembered(root, source)
    folders = FOLDERS[source.parent.as_posix()]
    if len(folders) == 1:
        faults = []
        for cell in cells:
            faults += _not_in_a_chapter(cell, source)
        if faults:
            raise SourceError(faults)
        return [_plan(root, source, Path(folders[0], f"{source.stem}.ipynb"), cells, reach, pins)]
    opened, solved, secret = split(cells, source)
    exercise, solution = (Path(folder, f"{source.stem}.ipynb") for folder in folders)
    return [
        _plan(root, source, exercise, opened, reach, pins, secret),
        _plan(root, source, solution, for_solution(solved), reach, pins),
    ]


def _not_in_a_chapter(cell: Cell, source: Path) -> list[Fault]:
    """Answers belong to the exercises; a question in a chapter is open, so that the page can ask it."""
    odd = [tag for tag in ("exercise", "solution-only", "exercise-only") if tag in cell.tags]
    faults = [
        Fault(
            path=source,
            line=cell.line,
            problem=f"the tag {tag!r} in a chapter",
            remedy="move the cell to book/exercises",
        )
        for tag in odd
    ]
    if "check" in cell.tags and (name := checked_id(cell)[0]) is None:
        faults.append(
            Fault(
                path=source, line=cell.line, problem="the check cell checks nothing", remedy='call check("its-id", ...)'
            )
        )
    elif "check" in cell.tags and not is_open_question(cell):
        faults.append(
            Fault(
                path=source,
                line=cell.line,
                problem=f"the question {name!r} is answered in the chapter",
                remedy="write ... as its answer, or drop the tag 'check'",
            )
        )
    try:
        refuse_markers(cell, source)
    except SourceError as error:
        faults += error.faults
    return faults


def _plan(
    root: Path,
    source: Path,
    notebook: Path,
    cells: list[Cell],
    reach: Reach,
    pins: str,
    secret: Iterable[tuple[int, str]] = (),
) -> Plan:
    wanted = document(cells, cell_ids(cells, source))
    codes = code_cells(wanted)
    reached = reach.files([(cell.line, cell.source) for cell in cells if cell.kind == "code"], source)
    settings = {**KERNEL_ENV, "MATPLOTLIBRC": Path(KERNEL_ENV["MATPLOTLIBRC"]).read_text(encoding="utf-8")}
    environment = digest("\0".join(f"{name}={value}" for name, value in sorted(settings.items())))
    stamp = {
        "code": digest("\0".join(cell["source"] for cell in codes)),
        "environment": environment,
        "files": {path.as_posix(): digest((root / path).read_bytes()) for path in reached},
        "pins": pins,
    }
    found = load(root / notebook)
    reasons = _reasons_to_run(stamp, found, len(codes))
    execute = bool(reasons)
    if found is not None and not execute:
        for cell, old in zip(codes, code_cells(found), strict=True):
            cell["execution_count"], cell["outputs"] = old["execution_count"], old["outputs"]
        if outputs_digest(wanted) != found["metadata"][STAMP]["outputs"]:
            reasons, execute = ["its outputs were changed by hand or by another run"], True
    wanted["metadata"][STAMP] = stamp
    lines = [[number for number, _ in cell.lines()] for cell in cells]
    exercises: dict[str, int] = {}
    for cell, numbers in zip(wanted["cells"], lines, strict=True):
        if name := cell["metadata"].get("exercise"):
            exercises.setdefault(name, numbers[0])
    planned = Plan(notebook, source, wanted, lines, reasons, execute, exercises, list(secret))
    if not execute and (leak := leaked(planned)):
        planned.reasons, planned.execute = [leak], True
    elif not execute and _finished(planned) != (root / notebook).read_text(encoding="utf-8"):
        planned.reasons.append("its text differs from the source")
    return planned


def _reasons_to_run(stamp: Document, found: Document | None, cells: int) -> list[str]:
    """Why the notebook on disk has to be executed again, in words."""
    if found is None:
        return ["it does not exist or is no notebook"]
    old = found["metadata"].get(STAMP, {})
    if len(code_cells(found)) != cells or old.get("code") != stamp["code"]:
        return ["its code cells changed"]
    before, now = old.get("files", {}), stamp["files"]
    changed = sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))
    reasons = (
        [f"{', '.join(changed[:3])}{f' and {len(changed) - 3} more' if len(changed) > 3 else ''} changed"]
        if changed
        else []
    )
    if old.get("pins") != stamp["pins"]:
        reasons.append(f"{PINS} changed")
    if old.get("environment") != stamp["environment"]:
        reasons.append("the kernel's environment changed")
    if not reasons and "outputs" not in old:
        reasons.append("its outputs carry no hash")
    return reasons


def leaked(planned: Plan) -> str:
    """What an output gives away of a solution, in words; empty where it gives away nothing."""
    needles = telling(planned.secret)
    for cell in code_cells(planned.document) if needles else ():
        shown = "".join(texts(cell["outputs"])).translate(str.maketrans("", "", " \t\n"))
        for needle, (line, text) in needles.items():
            if needle in shown:
                return f"the output of cell {cell['id']!r} shows the solution line {text!r} ({planned.source}:{line})"
    return ""


def outputs_digest(notebook: Document) -> str:
    """One hash over every output and execution count of a notebook."""
    stored = [[cell["execution_count"], cell["outputs"]] for cell in code_cells(notebook)]
    return digest(json.dumps(stored, sort_keys=True, ensure_ascii=False))


def _finished(planned: Plan) -> str:
    """The bytes of the notebook once its outputs are known."""
    planned.document["metadata"][STAMP]["outputs"] = outputs_digest(planned.document)
    return dumps(planned.document)


def orphans(root: Path) -> list[Fault]:
    """Generated notebooks whose source is gone."""
    return [
        Fault(
            path=path.relative_to(root),
            line=1,
            problem=f"its source {source}/{path.stem}.md does not exist",
            remedy="delete the notebook, or bring the source back",
        )
        for source, folders in FOLDERS.items()
        for folder in folders
        for path in sorted((root / folder).glob("*.ipynb"))
        if not (root / source / f"{path.stem}.md").is_file()
    ]


def build(root: Path, plans: list[Plan], jobs: int, report: Callable[[Plan, str], None]) -> list[ExecutionError]:
    """Bring each planned notebook up to date and call ``report(plan, what was done)`` after each; returns failures."""
    for planned in plans:
        if not planned.execute:
            if planned.reasons:
                replace_file(root / planned.notebook, _finished(planned))
            report(planned, "text only, nothing executed" if planned.reasons else "current")
    waiting = {planned.notebook: planned for planned in plans if planned.execute}
    if not waiting:
        return []
    # On Windows the kernel's sockets need the selector loop; elsewhere it is the default.
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        return runner.run(_execute(root, waiting, jobs, report))


async def _execute(
    root: Path, waiting: dict[Path, Plan], jobs: int, report: Callable[[Plan, str], None]
) -> list[ExecutionError]:
    failures = []
    runs = [Run(planned.notebook, planned.source, planned.document, planned.lines) for planned in waiting.values()]
    async for run, error in execute_all(runs, root, jobs):
        planned = waiting[run.notebook]
        if not error and (leak := leaked(planned)):
            error = ExecutionError(f"{run.notebook}: {leak}; show something else")
        if error:
            failures.append(error)
            report(planned, "failed")
        else:
            replace_file(root / planned.notebook, _finished(planned))
            report(planned, "executed")
    return failures


def replace_file(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` in one step: whoever reads it sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
