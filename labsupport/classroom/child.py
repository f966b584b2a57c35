"""Runs one notebook and writes down what its answers did; started by ``batch`` in a process of its own.

Every cell runs, whatever the one before did. ``check`` only remembers the answer. A function is then
called as the judge would call it, and each call's result is carried out as plain data.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import labsupport
from labsupport import exercises, grading
from labsupport.classroom.carry import Parcel
from labsupport.grading import forbidden, guard
from labsupport.grading.answers import MISSING, is_stub
from labsupport.grading.judge import judge
from labsupport.grading.records import Exercise, Formula, Function


class Notebook:
    """The cells of a notebook, run in an IPython shell, and the answers they gave."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.errors: list[str] = []

    def run(self, cells: list[str]) -> None:
        """Run the cells in order."""
        from IPython.core.interactiveshell import InteractiveShell

        self._take_over()

        class Shell(InteractiveShell):
            """A shell without windows: ``%matplotlib`` is accepted and shows nothing."""

            def enable_gui(self, gui: Any = None) -> None:
                """Nothing to enable."""

        shell = Shell.instance(history_load_length=0)
        shell.history_manager.enabled = False  # type: ignore[union-attr]
        for number, source in enumerate(cells, start=1):
            result = shell.run_cell(source, store_history=False, silent=True)
            error = result.error_before_exec or result.error_in_exec
            if error is not None:
                self.errors.append(f"code cell {number}: {type(error).__name__}: {str(error)[:200]}")

    def _take_over(self) -> None:
        """Let the reader's words record instead of judge."""
        quiet = {"hint": _nothing, "solution": _nothing, "progress": _nothing, "check": self.record}
        for name, value in quiet.items():
            setattr(labsupport, name, value)
            setattr(grading, name, value)

    def record(self, exercise: str, answer: Any = MISSING, unit: str | None = None) -> None:
        """What ``check`` does here: remember the latest answer to each exercise."""
        if type(exercise) is str:
            self.answers[exercise] = answer if unit is None else (answer, unit)


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


class Calls:
    """A reader's function, with everything that its calls did written down."""

    def __init__(self, function: Callable[..., Any], parcel: Parcel) -> None:
        self.function, self.parcel = function, parcel
        self.made: list[dict[str, Any]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function and remember what it did."""
        arrays = [value for value in (*args, *kwargs.values()) if isinstance(value, np.ndarray)]
        before = [array.copy() for array in arrays]
        call: dict[str, Any] = {}
        self.made.append(call)
        try:
            value = self.function(*args, **kwargs)
        except BaseException as error:
            call["raised"] = _named(error)
            raise
        finally:
            call["changed"] = [
                [k, self.parcel.pack(array.copy())]
                for k, (array, old) in enumerate(zip(arrays, before, strict=True))
                if array.tobytes() != old.tobytes()
            ]
        call["value"] = self.parcel.pack(value)
        return value


def _named(error: BaseException) -> list[str]:
    special = {guard.TimeUp: "time", guard.Exited: "exit", guard.Forbidden: "forbidden"}
    text = error.args[0] if error.args and type(error.args[0]) is str else ""
    return [special.get(type(error), type(error).__name__), text[:500]]


def observed(record: Exercise, answer: Any, seed: int, parcel: Parcel) -> dict[str, Any]:
    """What the parent needs to judge one answer."""
    if is_stub(answer):
        return {"kind": "stub"}
    if isinstance(record, Function | Formula) and callable(answer):
        used = forbidden.find(answer, record.forbidden_calls)
        if used:
            return {"kind": "forbidden", "name": used}
        calls = Calls(answer, parcel)
        verdict = judge(record, calls, seed)  # a pass is worth nothing: the parent makes its own verdict
        failed = {"mistake": verdict.mistake, "message": verdict.message} if verdict.state == "fail" else None
        return {"kind": "calls", "calls": calls.made, "failed": failed}
    if callable(answer) or type(record).__module__ != "labsupport.grading.records":
        verdict = judge(record, answer, seed)
        return {"kind": "verdict", "state": verdict.state, "message": verdict.message, "mistake": verdict.mistake}
    return {"kind": "value", "value": parcel.pack(answer)}


def main() -> None:
    """Read the job, run the notebook, write the answers."""
    folder = Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    notebook = Notebook()
    notebook.run(job["cells"])
    parcel, found = Parcel(), {}
    for exercise_id, answer in notebook.answers.items():
        try:
            record = exercises.get(exercise_id)
        except KeyError:
            continue  # the parent knows which ids there are; an invented one earns nothing
        found[exercise_id] = observed(record, answer, job["seed"], parcel)
    parcel.write(folder, {"answers": found, "errors": notebook.errors})


if __name__ == "__main__":
    main()
