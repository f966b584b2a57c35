"""Every benchmark of the book in turn, each figure beside its target: ``python -m benchmarks`` or ``make bench``.

A benchmark is a module of this folder with a function ``main() -> int`` that prints its figures and returns 1
where a target is missed. Each runs in a process of its own, so that none warms the next.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
#: Modules of this folder that measure nothing themselves.
NO_BENCHMARKS = {"__init__", "__main__", "run", "table"}


def names() -> list[str]:
    """The benchmarks there are, in alphabetical order."""
    return sorted(path.stem for path in HERE.glob("*.py") if path.stem not in NO_BENCHMARKS)


def main(chosen: list[str]) -> int:
    """Run the chosen benchmarks (all without a choice); returns 1 where one missed a target or failed."""
    if unknown := set(chosen) - set(names()):
        print(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(names())}", file=sys.stderr)
        return 2
    missed = 0
    for name in chosen or names():
        print(f"== {name}", flush=True)
        missed |= subprocess.call([sys.executable, "-m", f"benchmarks.{name}"], cwd=HERE.parent) != 0
    return int(missed)
