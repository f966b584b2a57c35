"""Reads the explained solution of an exercise out of the book's solution notebooks.

The notebooks are generated and committed, so they are simply read as JSON; nothing in them is run.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from labsupport.grading.records import Exercise

TAG = "solution-only"


def folders() -> Iterator[Path]:
    """Yield the places where solution notebooks may be: beside the package, then around the current folder."""
    yield Path(__file__).resolve().parents[2] / "solutions"
    try:
        here = Path.cwd()
    except FileNotFoundError:
        return
    for folder in [here, *here.parents]:
        yield folder / "solutions"


def explanation(record: Exercise) -> str | None:
    """Return the solution as Markdown: the answer's code and why it is right; None where none is found."""
    for folder in folders():
        for path in sorted(folder.glob(f"{record.chapter:02d}-*.ipynb")):
            text = _in_notebook(path, record.id)
            if text:
                return text
    return None


def _in_notebook(path: Path, exercise_id: str) -> str:
    try:
        cells: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError):
        return ""  # unreadable here; another folder may have it
    start = next((place for place, cell in enumerate(cells) if cell.get("id") == exercise_id), None)
    if start is None:
        return ""
    parts = [f"```python\n{_source(cells[start]).strip()}\n```"]
    for cell in cells[start + 1 :]:
        if cell["cell_type"] == "code" and "exercise" in cell.get("metadata", {}).get("tags", []):
            break
        if TAG in cell.get("metadata", {}).get("tags", []):
            parts.append(_source(cell).strip())
    return "\n\n".join(parts)


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source", "")
    return source if isinstance(source, str) else "".join(source)
