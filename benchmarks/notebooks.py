"""How long the notebooks take: to run each one, to prove that all are current, to follow a changed sentence.

Everything happens in a copy of the repository, one notebook at a time. Times are of this machine and this moment.
"""

import asyncio
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.book import LEFT_OUT
from benchmarks.table import Row, show
from labsupport.authoring.build import Plan, survey
from labsupport.authoring.execute import Run, execute_all

ROOT = Path(__file__).resolve().parents[1]


async def run_time(root: Path, planned: Plan) -> float:
    """Seconds to start a kernel and run one notebook."""
    began = time.perf_counter()
    async for _, error in execute_all(
        [Run(planned.notebook, planned.source, planned.document, planned.lines)], root, 1
    ):
        if error:
            raise SystemExit(str(error))
    return time.perf_counter() - began


def command(root: Path, *arguments: str) -> float:
    """Seconds of one command of the authoring tools, the start of the interpreter included."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "labsupport.authoring", *arguments, "--root", str(root)], capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return time.perf_counter() - began


def rows() -> Iterator[Row]:
    """Commands first, then the notebooks, slowest last."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(shutil.copytree(ROOT, Path(folder) / "book", ignore=LEFT_OUT))
        surveyed = survey(root, anew=True)
        if surveyed.faults or not surveyed.plans:
            raise SystemExit("\n".join(map(str, surveyed.faults)) or "there is no source to build")
        command(root, "build")
        yield "check of all notebooks, s per notebook", command(root, "check") / len(surveyed.plans), 0.2
        source = root / surveyed.plans[0].source
        source.write_text(source.read_text(encoding="utf-8") + "\nOne more sentence.\n", encoding="utf-8")
        yield "build of one chapter after a changed sentence, s", command(root, "build", source.stem), 1.0
        times = {planned.notebook: asyncio.run(run_time(root, planned)) for planned in surveyed.plans}
        yield f"median run of {len(times)} notebooks, s", statistics.median(times.values()), 6.0
        for notebook, taken in sorted(times.items(), key=lambda item: item[1])[-3:]:
            yield f"run of {notebook}, s", taken, 20.0


def main() -> int:
    """Measure and print; returns 1 when a target is missed."""
    return show(rows())


if __name__ == "__main__":
    sys.exit(main())
