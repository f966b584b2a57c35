"""Runs everything that must hold before a change is handed on, the cheap things first, and stops at the first failure.

    python tools/test.py [further pytest options]     (make test does this)

It runs in the environment that tools/install.py made, and its last line is pytest's.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: (what it proves, arguments of Python, what to do when it fails)
STEPS = (
    ("style", ["-m", "ruff", "check", "."], "mend the lines named above; most can be mended by: ruff check --fix ."),
    ("types", ["-m", "mypy"], "mend the types named above"),
    (
        "floors of the architecture",
        ["-c", "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"],
        "let a room import only from the floors below it",
    ),
    ("notebooks are current", ["-m", "labsupport.authoring", "check"], "run: python -m labsupport.authoring build"),
    (
        "the book renders",
        ["-m", "labsupport.authoring", "book"],
        "mend what is named above; the browser tests need the book",
    ),
)
#: A worker a core. More than six gain nothing: the longest file then takes as long as all others.
WORKERS = max(2, min(6, os.cpu_count() or 2))
#: One run for units, notebooks and browser. nbval compares every output with what the code gives now; a notebook
#: stays with one worker, because its cells share a kernel.
PYTEST = [
    *("-m", "pytest", "--nbval", "--nbval-current-env", "--nbval-sanitize-with", "tests/sanitize.cfg"),
    # Files in their order, notebooks first: else those with few and long tests come last, one after another.
    *("-n", str(WORKERS), "--dist", "loadfile", "--no-loadscope-reorder", "-q", "-rs", "--durations", "25"),
]


def main(arguments):
    """Run the steps; returns the exit status of the first that fails, or pytest's."""
    os.chdir(str(ROOT))
    for name, command, remedy in STEPS:
        print(f"== {name}", flush=True)
        status = subprocess.call([sys.executable, *command])
        if status:
            print(f"== {name}: failed; {remedy}", file=sys.stderr)
            return status
    print("== tests", flush=True)
    return subprocess.call([sys.executable, *PYTEST, *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
