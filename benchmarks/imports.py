"""What a reader waits for at the first cell: importing labsupport, against importing NumPy in the same run.

Each import happens in a fresh interpreter, the candidates take turns, and the interpreter's own start is subtracted.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.table import Row, show

ROOT = Path(__file__).resolve().parents[1]
REPEATS = 15
STATEMENTS = {
    "start": "",
    "numpy": "import numpy",
    "labsupport": "import labsupport",
    "check": "from labsupport import check",
    "reader": "import numpy; from labsupport import check, hint",
}


def seconds(statement: str) -> float:
    """Seconds of a fresh interpreter that runs one statement."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], cwd=ROOT, check=True)
    return time.perf_counter() - began


def rows() -> Iterator[Row]:
    """Medians over interleaved runs; the ratio is of one turn's pair, so that a busy moment hits both."""
    taken: dict[str, list[float]] = {name: [] for name in STATEMENTS}
    for statement in STATEMENTS.values():
        seconds(statement)  # the first run reads from disk and writes byte code
    for _ in range(REPEATS):
        for name, statement in STATEMENTS.items():
            taken[name].append(seconds(statement))
    own = {name: [t - start for t, start in zip(times, taken["start"], strict=True)] for name, times in taken.items()}
    yield "import numpy, ms", 1e3 * statistics.median(own["numpy"]), None
    # The judge brings numpy.random too, which NumPy itself loads on first use.
    for name, target in (("labsupport", 1.25), ("check", 2.25), ("reader", 2.25)):
        ratio = statistics.median(a / b for a, b in zip(own[name], own["numpy"], strict=True))
        yield f"{STATEMENTS[name]} / import numpy", ratio, target


def main() -> int:
    """Measure and print; returns 1 when a target is missed."""
    return show(rows())


if __name__ == "__main__":
    sys.exit(main())
