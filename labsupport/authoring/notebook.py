"""Notebooks as text: from cells and outputs to the same bytes every time, and back.

This file knows the notebook format (4.5) and nothing else. It must never write a time, a machine's path or a
Python version into a notebook.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from labsupport.authoring.source import Cell

METADATA: dict[str, Any] = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {
        "codemirror_mode": {"name": "ipython", "version": 3},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "pygments_lexer": "ipython3",
    },
}
STAMP = "labsupport"
#: What no output may show, because it differs from run to run or from machine to machine.
UNSTABLE = {
    re.compile(r"\bat 0x[0-9a-f]{6,}"): "a memory address",
    re.compile(r"ipykernel_\d+"): "the path of a kernel's temporary file",
}
#: The file of a cell as a warning names it, and what is stored instead (tests/sanitize.cfg says the same to nbval).
CELL_FILE = (re.compile(r"\S*[/\\]ipykernel_\d+[/\\]\d+\.py"), "cell.py")

Document = dict[str, Any]


def digest(content: str | bytes) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of a text: enough to see that it changed."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:16]


def document(cells: list[Cell], ids: list[str]) -> Document:
    """A notebook without outputs: texts as one string each, as nbformat holds them in memory."""
    written = []
    for cell, name in zip(cells, ids, strict=True):
        metadata = {**cell.metadata}
        if cell.tags:
            metadata["tags"] = list(cell.tags)
        if cell.exercise is not None:
            metadata["exercise"] = cell.exercise
        node: Document = {"cell_type": cell.kind, "id": name, "metadata": metadata, "source": cell.source}
        if cell.kind == "code":
            node |= {"execution_count": None, "outputs": []}
        written.append(node)
    return {"cells": written, "metadata": json.loads(json.dumps(METADATA)), "nbformat": 4, "nbformat_minor": 5}


def code_cells(notebook: Document) -> list[Document]:
    """The code cells of a notebook, in order."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def dumps(notebook: Document) -> str:
    """The bytes of the file: sorted keys, one line of text per line, a final newline."""
    cells = []
    for cell in notebook["cells"]:
        cell = {**cell, "source": cell["source"].splitlines(keepends=True)}
        if "outputs" in cell:
            cell["outputs"] = [_split(output) for output in cell["outputs"]]
        cells.append(cell)
    return json.dumps({**notebook, "cells": cells}, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def load(path: Path) -> Document | None:
    """The notebook at ``path`` with its texts joined; None where there is none that can be read."""
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            cell["source"] = _text(cell["source"])
            for output in cell.get("outputs", []):
                _join(output)
    except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError):
        return None
    return dict(notebook)


def normalise(outputs: list[Document]) -> list[Document]:
    """Outputs as they are stored: neighbouring streams of one name merged, nothing of the running kernel left."""
    merged: list[Document] = []
    for output in outputs:
        output = json.loads(json.dumps(output))
        output.pop("transient", None)
        if (
            merged
            and output["output_type"] == merged[-1]["output_type"] == "stream"
            and output["name"] == merged[-1]["name"]
        ):
            merged[-1]["text"] += output["text"]
        else:
            merged.append(output)
    for output in merged:
        if output["output_type"] == "stream":
            output["text"] = CELL_FILE[0].sub(CELL_FILE[1], output["text"])
    return merged


def texts(outputs: list[Document]) -> Iterator[str]:
    """Every text that outputs show, streams and all text formats alike."""
    for output in outputs:
        yield output.get("text", "")
        yield from (value for mime, value in output.get("data", {}).items() if _is_text(mime))


def unstable(outputs: list[Document], root: Path) -> str:
    """What in these outputs would differ on another run or machine, in words; empty where nothing does."""
    text = json.dumps(outputs, ensure_ascii=False)
    for pattern, name in UNSTABLE.items():
        if found := pattern.search(text):
            return f"{name} ({found[0]!r})"
    if str(root) in text:
        return "the folder in which the book lies on this machine"
    return ""


def _text(value: str | list[str]) -> str:
    return value if isinstance(value, str) else "".join(value)


def _is_text(mime: str) -> bool:
    return not mime.endswith("json")


def _join(output: Document) -> None:
    if "text" in output:
        output["text"] = _text(output["text"])
    for mime in output.get("data", {}):
        if _is_text(mime):
            output["data"][mime] = _text(output["data"][mime])


def _split(output: Document) -> Document:
    output = {**output}
    if "text" in output:
        output["text"] = output["text"].splitlines(keepends=True)
    if "data" in output:
        output["data"] = {
            mime: value.splitlines(keepends=True) if _is_text(mime) else value for mime, value in output["data"].items()
        }
    return output
