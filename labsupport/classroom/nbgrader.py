"""Exports an exercise notebook for nbgrader: its check cells become tests that raise.

For classes that already run nbgrader on JupyterHub. The exercises and their judge stay the same.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from labsupport.grading import check
from labsupport.grading.answers import MISSING


def require(exercise: str, answer: Any = MISSING, unit: str | None = None) -> None:
    """``check`` for an autograder: raises AssertionError with the verdict unless the answer passes.

    A written answer, which no program judges, does not raise.
    """
    verdict = check(exercise, answer, unit)
    if verdict.state not in ("pass", "review"):
        raise AssertionError(verdict.text())


def convert(source: Path, target: Path) -> int:
    """Write ``source`` (an exercise notebook of the book) for nbgrader to ``target``; returns an exit status."""
    from labsupport import exercises

    try:
        notebook = json.loads(source.read_text(encoding="utf-8"))
        cells = notebook["cells"]
    except (OSError, ValueError, KeyError) as error:
        print(f"{source} cannot be read as a notebook: {error}", file=sys.stderr)
        return 2
    tests = 0
    for cell in cells:
        tags = cell["metadata"].get("tags", [])
        text = "".join(cell["source"])
        called = re.search(r'\bcheck\("([a-z0-9-]+)"', text)
        if "check" in tags and called:
            record = exercises.get(called[1])
            text = text.replace("check(", "require(", 1)
            cell["source"] = f"from labsupport.classroom import require\n{text}"
            cell["metadata"]["nbgrader"] = _tagged(f"{record.id}-test", grade=True, points=record.points)
            tests += 1
        elif "exercise" in tags:
            name = cell["metadata"].get("exercise", cell.get("id", ""))
            cell["metadata"]["nbgrader"] = _tagged(f"{name}-answer", solution=True)
        cell.pop("outputs", None)
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    if not tests:
        print(f"{source} has no check cell; name a notebook of the folder exercises.", file=sys.stderr)
        return 2
    target.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{tests} tests for nbgrader in {target}")
    return 0


def _tagged(name: str, grade: bool = False, solution: bool = False, points: int | None = None) -> dict[str, Any]:
    tag: dict[str, Any] = {
        "grade": grade,
        "grade_id": name,
        "locked": grade,
        "schema_version": 3,
        "solution": solution,
        "task": False,
    }
    return tag if points is None else {**tag, "points": points}
