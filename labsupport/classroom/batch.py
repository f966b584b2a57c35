"""The command that grades a folder of notebooks into one table.

Exercises are matched by id, never by cell number; a missing one earns 0 with the reason. One bad
notebook never stops the batch, and a run that was stopped goes on where it left off.
"""

import argparse
import csv
import ctypes
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from labsupport import exercises
from labsupport.classroom.carry import Delivery
from labsupport.classroom.nbgrader import convert
from labsupport.grading import guard
from labsupport.grading.judge import SEED, judge
from labsupport.grading.records import Exercise

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
#: Bytes that a notebook may print or write into one file.
OUTPUT_LIMIT = 64 * 2**20


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    submission: str
    exercise: str
    chapter: int
    points: int
    possible: int
    state: str
    mistake: str
    reason: str
    sha256: str


@dataclass(frozen=True)
class Limits:
    """What one notebook may take: seconds of wall clock, bytes of memory."""

    seconds: float
    memory: int


def main(argv: list[str]) -> int:
    """Grade, or convert for nbgrader; returns the exit status."""
    options = _parser().parse_args(argv)
    if options.nbgrader:
        return convert(Path(options.submissions), Path(options.nbgrader))
    source, table = Path(options.submissions), Path(options.output)
    notebooks = sorted(p for p in source.rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
    if not source.is_dir() or not notebooks:
        print(f"{source} holds no notebook (*.ipynb); name the folder with the submissions.", file=sys.stderr)
        return 2
    try:
        wanted = [exercises.get(name) for name in options.exercise] if options.exercise else None
    except KeyError as error:
        print(error.args[0], file=sys.stderr)
        return 2
    done = _read_table(table)
    limits = Limits(options.seconds, int(options.memory * 2**30))
    fresh = [path for path in notebooks if not _is_done(path, source, done)]
    rows = [row for row in done if any(_is_current(row, path, source) for path in notebooks)]
    for new in _graded(fresh, source, wanted, limits, options.jobs):
        rows += new
        _write_table(table, rows)
    _write_table(table, rows)
    print(f"{len(fresh)} notebooks graded, {len(notebooks) - len(fresh)} were done; the table is {table}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m labsupport.grade", description=__doc__.splitlines()[0])
    parser.add_argument("submissions", help="folder of notebooks, one or more a person")
    parser.add_argument("-o", "--output", default="grades.csv", help="the table to write")
    parser.add_argument("--exercise", action="append", help="grade only this id (may be repeated)")
    parser.add_argument("--seconds", type=float, default=180.0, help="wall clock of one notebook")
    parser.add_argument("--memory", type=float, default=4.0, help="GiB of memory of one notebook")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="notebooks at a time")
    parser.add_argument("--nbgrader", metavar="OUT", help="instead: turn an exercise notebook into one for nbgrader")
    return parser


def _graded(
    paths: list[Path], source: Path, wanted: list[Exercise] | None, limits: Limits, jobs: int
) -> Iterator[list[Row]]:
    from tqdm import tqdm

    with ThreadPoolExecutor(max(1, jobs)) as pool:
        waiting = {pool.submit(_run, path, limits): path for path in paths}
        finished = tqdm(as_completed(waiting), total=len(waiting), unit="notebook", disable=not sys.stderr.isatty())
        for future in finished:
            # Judging happens here, in the main thread, one notebook at a time.
            yield list(_judged(waiting[future], source, wanted, future.result()))


@dataclass(frozen=True)
class Ran:
    """What came back of one notebook."""

    delivery: Delivery | None
    ids: tuple[str, ...]
    reason: str


def _run(path: Path, limits: Limits) -> Ran:
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        sources = ["".join(cell["source"]) for cell in cells]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Ran(None, (), f"the file is not a notebook that can be read ({type(error).__name__})")
    ids = tuple(str(cell.get("metadata", {}).get("exercise", "")) for cell in cells)
    with tempfile.TemporaryDirectory(prefix="grade-") as name:
        folder = Path(name)
        (folder / "job.json").write_text(json.dumps({"cells": sources, "seed": SEED}), encoding="utf-8")
        reason = _child(folder, limits)
        try:
            return Ran(Delivery(folder), ids, reason)
        except (OSError, ValueError, KeyError):
            return Ran(None, ids, reason or "the notebook ended its own process before it was graded")


def _child(folder: Path, limits: Limits) -> str:
    """Run the child in the folder; returns why it failed, or nothing."""
    environment = {
        **{name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT") if name in os.environ},
        **{"HOME": str(folder), "TMPDIR": str(folder), "IPYTHONDIR": str(folder), "MPLCONFIGDIR": str(folder)},
        **{"LABSUPPORT_PROGRESS": "off", "LABSUPPORT_STATIC": "1", "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"},
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "labsupport.classroom.child", str(folder)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_confined(limits) if os.name == "posix" else None,
        )
        try:
            status = process.wait(limits.seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(process)
    if status is None:
        return f"the notebook did not end within {limits.seconds:g} seconds"
    if status:
        tail = (folder / "output.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return f"the notebook's process ended with status {status}" + (f": {tail[-1][:200]}" if tail else "")
    return ""


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Stop the child and whatever it started."""
    if os.name == "posix":
        import contextlib
        import signal

        with contextlib.suppress(ProcessLookupError):  # nothing is left to stop
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def _confined(limits: Limits) -> Callable[[], None]:
    """What the child does before it becomes Python: limits, and a network of its own that leads nowhere."""
    import resource

    libc = ctypes.CDLL(None, use_errno=True) if sys.platform.startswith("linux") else None

    def confine() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limits.memory, limits.memory))
        resource.setrlimit(resource.RLIMIT_FSIZE, (OUTPUT_LIMIT * 8, OUTPUT_LIMIT * 8))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if libc is not None:
            libc.unshare(CLONE_NEWUSER | CLONE_NEWNET)  # where the system forbids it, the network stays

    return confine


# -- judging --------------------------------------------------------------------------------


def _judged(path: Path, source: Path, wanted: list[Exercise] | None, ran: Ran) -> Iterator[Row]:
    answers = ran.delivery.structure["answers"] if ran.delivery else {}
    for record in wanted if wanted is not None else _expected(ran, answers):
        state, mistake, reason = _verdict(record, ran, answers.get(record.id))
        points = record.points if state == "pass" else 0
        yield Row(
            path.relative_to(source).as_posix(), record.id, record.chapter, points, record.points, state, mistake,
            reason, _sha(path),
        )  # fmt: skip


def _expected(ran: Ran, answers: dict[str, Any]) -> list[Exercise]:
    """Records that the notebook is about: those it marks, those it answers, and the rest of their chapters."""
    known = {record.id: record for record in exercises.all_exercises()}
    named = {*ran.ids, *answers} & known.keys()
    chapters = {known[name].chapter for name in named}
    all_of_them = [r for r in known.values() if r.chapter in chapters and r.place == "exercises"]
    return all_of_them or [record for record in known.values() if record.place == "exercises"]


def _verdict(record: Exercise, ran: Ran, answer: dict[str, Any] | None) -> tuple[str, str, str]:
    if answer is None:
        cause = ran.reason or f'no check("{record.id}", …) ran'
        errors = ran.delivery.structure["errors"] if ran.delivery else []
        return "missing", "", "; ".join([cause, *errors[:2]])
    if answer["kind"] == "verdict":
        return answer["state"], answer["mistake"] or "", f"judged inside the notebook's process. {answer['message']}"
    if answer["kind"] == "forbidden":
        return "fail", "", f"the function uses {answer['name']}, which this exercise asks to do without"
    assert ran.delivery is not None
    verdict = judge(record, _answer(answer, ran.delivery), SEED)
    if verdict.passed and answer.get("failed"):  # what values do not show: an input in a list changed, memory held
        return "fail", answer["failed"]["mistake"] or "", answer["failed"]["message"].splitlines()[0]
    return verdict.state, verdict.mistake or "", verdict.message.splitlines()[0]


def _answer(answer: dict[str, Any], delivery: Delivery) -> Any:
    if answer["kind"] == "stub":
        return ...
    if answer["kind"] == "value":
        return delivery.unpack(answer["value"])
    player = Player(answer["calls"], delivery)

    def replay(*args: Any, **kwargs: Any) -> Any:
        return player.play(args, kwargs)

    return replay


class Player:
    """Does what the reader's function did, call by call."""

    def __init__(self, calls: list[dict[str, Any]], delivery: Delivery) -> None:
        self.calls, self.delivery = iter(calls), delivery

    def play(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The next call: change what was changed, raise what was raised, return what was returned."""
        import numpy as np

        call = next(self.calls, None)
        if call is None:
            raise guard.TimeUp  # the child was stopped here
        arrays = [value for value in (*args, *kwargs.values()) if isinstance(value, np.ndarray)]
        for k, packed in call["changed"]:
            arrays[k][...] = self.delivery.unpack(packed)
        if "raised" in call:
            raise _exception(*call["raised"])
        return self.delivery.unpack(call["value"])


def _exception(name: str, text: str) -> BaseException:
    import builtins

    special: dict[str, type[BaseException]] = {
        "time": guard.TimeUp,
        "exit": guard.Exited,
        "forbidden": guard.Forbidden,
    }
    kind = special.get(name) or getattr(builtins, name, None)
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        kind = type(name, (Exception,), {})
    return kind(text)


# -- the table ------------------------------------------------------------------------------


def _read_table(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != [field.name for field in fields(Row)]:
            raise SystemExit(f"{path} is no table of this command; move it away or choose another -o")
        return [_row(line) for line in reader]


def _row(line: dict[str, Any]) -> Row:
    numbers = {name: int(line[name]) for name in ("chapter", "points", "possible")}
    return Row(**{**line, **numbers})


def _write_table(path: Path, rows: list[Row]) -> None:
    part = path.with_name(path.name + ".part")
    with part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([field.name for field in fields(Row)])
        writer.writerows(_safe(astuple(row)) for row in sorted(rows, key=lambda r: (r.submission, r.chapter)))
    part.replace(path)


def _safe(row: tuple[Any, ...]) -> list[Any]:
    """A text that a spreadsheet would take for a formula gets an apostrophe."""
    return [f"'{cell}" if isinstance(cell, str) and cell[:1] in "=+-@" and cell else cell for cell in row]


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _is_done(path: Path, source: Path, rows: list[Row]) -> bool:
    return any(_is_current(row, path, source) for row in rows)


def _is_current(row: Row, path: Path, source: Path) -> bool:
    return row.submission == path.relative_to(source).as_posix() and row.sha256 == _sha(path)
