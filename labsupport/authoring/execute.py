"""Runs notebooks with nbclient, several at once, each in a kernel of its own.

A failing cell becomes an ExecutionError that names notebook, source, cell and line. This file never writes
a notebook: whoever calls it decides what happens to the outputs.
"""

import asyncio
import contextlib
import os
import re
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labsupport.authoring.environment import kernel_environment
from labsupport.authoring.faults import ExecutionError
from labsupport.authoring.notebook import Document, normalise, unstable

TIMEOUT = 180  # seconds per cell
ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Run:
    """One notebook to execute: its document, where it will lie, and the source line of each line of each cell."""

    notebook: Path
    source: Path
    document: Document
    lines: list[list[int]]


async def execute_all(runs: list[Run], root: Path, jobs: int) -> AsyncIterator[tuple[Run, ExecutionError | None]]:
    """Fill in the outputs of each run's document, ``jobs`` at a time; yields each run as it ends, with its error."""
    room = asyncio.Semaphore(jobs)

    async def one(run: Run) -> tuple[Run, ExecutionError | None]:
        async with room:
            try:
                await _execute(run, root, environment)
            except ExecutionError as error:
                return run, error
            return run, None

    with _kernel_environment(root) as environment:
        waiting = [asyncio.ensure_future(one(run)) for run in runs]
        try:
            for done in asyncio.as_completed(waiting):
                yield await done
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)


@contextlib.contextmanager
def _kernel_environment(root: Path) -> Iterator[dict[str, str]]:
    """The kernels' variables: labsupport is the one of this tree, and the user's IPython profile is left out."""
    with tempfile.TemporaryDirectory(prefix="labsupport-ipython-", ignore_cleanup_errors=True) as profile:
        path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH", "")]))
        yield {**kernel_environment(os.environ, Path(profile)), "PYTHONPATH": path}


async def _execute(run: Run, root: Path, environment: dict[str, str]) -> None:
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    node = nbformat.from_dict(run.document)
    folder = (root / run.notebook).parent
    folder.mkdir(parents=True, exist_ok=True)
    at = 0

    def started(cell: Any, cell_index: int) -> None:
        nonlocal at
        at = cell_index

    def interruptible(notebook: Any) -> None:
        # nbclient takes Ctrl-C for itself and ends its own kernel only; here it has to end the whole build.
        with contextlib.suppress(RuntimeError):  # Windows has no such handlers, and leaves Ctrl-C alone
            asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    client = NotebookClient(
        node,
        timeout=TIMEOUT,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        store_widget_state=False,
        resources={"metadata": {"path": str(folder)}},
        on_cell_start=started,
        on_notebook_start=interruptible,
    )
    try:
        await client.async_execute(env=environment)
    except CellExecutionError as error:
        raise _failure(run, node, at, error.ename, error.evalue) from error
    except CellTimeoutError as error:
        raise ExecutionError(f"{_place(run, at, 0)} ran for more than {TIMEOUT} s; make it smaller") from error
    except DeadKernelError as error:
        raise ExecutionError(
            f"{_place(run, at, 0)} ended the kernel (out of memory, or a crash in compiled code)"
        ) from error
    for index, (cell, filled) in enumerate(zip(run.document["cells"], node.cells, strict=True)):
        if cell["cell_type"] == "code":
            cell["execution_count"] = filled.execution_count
            cell["outputs"] = normalise(filled.outputs)
            if what := unstable(cell["outputs"], root):
                raise ExecutionError(
                    f"{_place(run, index, 0)} shows {what}, which differs from run to run; show something else"
                )


def _place(run: Run, index: int, offset: int) -> str:
    """`notebook: cell 'id' (source:line)`, the line being ``offset`` lines into the cell."""
    lines = run.lines[index]
    line = lines[min(offset, len(lines) - 1)]
    return f"{run.notebook}: cell {run.document['cells'][index]['id']!r} ({run.source}:{line})"


def _failure(run: Run, node: Any, index: int, name: str, value: str) -> ExecutionError:
    """The exception of a cell, with the line of the source that it came from."""
    offset = 0
    for output in node.cells[index].outputs:
        if output.output_type == "error":
            frame = re.search(r"Cell In\[\d+\], line (\d+)", ANSI.sub("", "\n".join(output.traceback)))
            offset = int(frame[1]) - 1 if frame else 0
    code = run.document["cells"][index]["source"].split("\n")
    line = code[offset].strip() if offset < len(code) else code[0].strip()
    return ExecutionError(f"{_place(run, index, offset)} raised {name}: {ANSI.sub('', value).strip()}\n    {line}")
