"""The commands of an author: ``python -m labsupport.authoring COMMAND``.

Each command is a function ``main(argv) -> exit status``, found by name and imported only when called. This file
prints; nothing below it does.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

#: Command -> (module and function, what it does).
COMMANDS = {
    "build": ("labsupport.authoring.cli:build", "turn the sources into executed notebooks; runs only what changed"),
    "check": ("labsupport.authoring.cli:check", "prove that every notebook is current; runs nothing"),
    "book": ("labsupport.authoring.book:main", "render the notebooks as a book of web pages"),
    "lab": ("labsupport.authoring.working_copy:main", "open JupyterLab on a copy of the exercises that is yours"),
}
ROOT = Path(__file__).resolve().parents[2]


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit status (2 for an unknown command)."""
    arguments = sys.argv[1:] if argv is None else argv
    usage = "usage: python -m labsupport.authoring COMMAND [options]\n\n" + "\n".join(
        f"  {name:6} {what}" for name, (_, what) in COMMANDS.items()
    )
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage)
        return 0 if arguments else 2
    if arguments[0] not in COMMANDS:
        print(f"there is no command {arguments[0]!r}\n{usage}", file=sys.stderr)
        return 2
    module, _, name = COMMANDS[arguments[0]][0].partition(":")
    command: Callable[[list[str]], int] = getattr(import_module(module), name)
    try:
        return command(arguments[1:])
    except KeyboardInterrupt:
        print("stopped; every notebook is as it was or finished", file=sys.stderr)
        return 130


def build(argv: list[str]) -> int:
    """Build the chosen notebooks; status 1 when a source has a fault or a cell fails."""
    from labsupport.authoring import build as builder

    options = _options("build", argv, jobs=True)
    began = time.perf_counter()
    surveyed = _survey(options)
    if surveyed is None:
        return 2
    todo = [planned for planned in surveyed.plans if planned.reasons]
    with _Progress(len(todo)) as progress:
        failures = builder.build(options.root, todo, options.jobs, progress.report)
    for fault in surveyed.faults:
        print(fault, file=sys.stderr)
    for failure in failures:
        print(failure, file=sys.stderr)
    current = len(surveyed.plans) - len(todo)
    ran = sum(planned.execute for planned in todo) - len(failures)
    text = sum(not planned.execute for planned in todo)
    print(
        f"{ran} executed, {text} rewritten without running, {current} were current,"
        f" {len(failures)} failed, {len(surveyed.faults)} faults in sources, {time.perf_counter() - began:.1f} s"
    )
    return 1 if surveyed.faults or failures else 0


def check(argv: list[str]) -> int:
    """Prove that the chosen notebooks are current; status 1 names those that are not, and why."""
    options = _options("check", argv, jobs=False)
    began = time.perf_counter()
    surveyed = _survey(options)
    if surveyed is None:
        return 2
    stale = [planned for planned in surveyed.plans if planned.reasons]
    for fault in surveyed.faults:
        print(fault, file=sys.stderr)
    for planned in stale:
        print(f"{planned.notebook} is not current: {'; '.join(planned.reasons)}", file=sys.stderr)
    if stale:
        chapters = sorted({planned.notebook.stem[:2] for planned in stale})
        print(f"run: python -m labsupport.authoring build {' '.join(chapters)}", file=sys.stderr)
    if stale or surveyed.faults:
        return 1
    if not surveyed.plans:
        print("there is no source yet, so there is nothing to prove", file=sys.stderr)
        return 1
    print(f"{len(surveyed.plans)} notebooks are current ({time.perf_counter() - began:.2f} s)")
    return 0


def _options(command: str, argv: list[str], jobs: bool) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m labsupport.authoring {command}", description=COMMANDS[command][1])
    parser.add_argument("only", nargs="*", metavar="NN", help="chapters, by number (05) or name; default: all")
    parser.add_argument(
        "--root",
        type=lambda value: Path(value).resolve(),
        default=ROOT,
        help="the book's folder (default: the one of this package)",
    )
    if jobs:
        parser.add_argument(
            "-j",
            "--jobs",
            type=int,
            default=min(os.cpu_count() or 1, 8),
            help="kernels at a time (default: one per core, 8 at most)",
        )
    return parser.parse_args(argv)


def _survey(options: argparse.Namespace) -> Any:
    from labsupport.authoring import build as builder

    try:
        return builder.survey(options.root, options.only)
    except (ValueError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return None


class _Progress:
    """A bar on a terminal, one line per notebook elsewhere (a log has no use for a bar)."""

    def __init__(self, total: int):
        self.bar: Any = None
        if total and sys.stderr.isatty():
            from tqdm import tqdm

            self.bar = tqdm(total=total, unit="notebook")

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar:
            self.bar.close()

    def report(self, planned: Any, done: str) -> None:
        line = f"{planned.notebook}: {done}" + (f" ({'; '.join(planned.reasons)})" if done != "current" else "")
        if self.bar:
            self.bar.write(line)
            self.bar.update()
        else:
            print(line, flush=True)
