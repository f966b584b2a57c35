"""Notebooks as text: a round trip loses nothing, the same cells give the same bytes, and nothing volatile is stored."""

import json
from pathlib import Path

import nbformat
import pytest

from labsupport.authoring.notebook import document, dumps, load, normalise, texts, unstable
from labsupport.authoring.source import Cell

ROOT = Path("/a/b/book")


def stream(text: str, name: str = "stdout") -> dict[str, str]:
    return {"output_type": "stream", "name": name, "text": text}


def test_round_trip(tmp_path: Path) -> None:
    notebook = document(
        [Cell("markdown", "a\nb", 1), Cell("code", "x = 1\n\nx", 4, ("check",), "id", {"k": [1]})], ["m", "c"]
    )
    notebook["cells"][1] |= {
        "execution_count": 1,
        "outputs": [
            stream("1\n2\n"),
            {
                "output_type": "execute_result",
                "execution_count": 1,
                "metadata": {},
                "data": {"text/html": "<b>\n</b>", "application/vnd.x+json": {"a": [1, 2]}},
            },
        ],
    }
    text = dumps(notebook)
    (tmp_path / "x.ipynb").write_text(text, encoding="utf-8")
    assert load(tmp_path / "x.ipynb") == notebook
    assert dumps(notebook) == text
    nbformat.validate(nbformat.reads(text, as_version=4))
    stored = json.loads(text)["cells"][1]
    assert stored["metadata"] == {"exercise": "id", "k": [1], "tags": ["check"]}
    assert stored["outputs"][0]["text"] == ["1\n", "2\n"]


@pytest.mark.parametrize("text", [None, "", "{}", '{"cells": 3}', '{"cells": [{}]}', "<<<<<"])
def test_what_is_no_notebook_is_none(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "x.ipynb"
    if text is not None:
        path.write_text(text)
    assert load(path) is None


def test_neighbouring_streams_are_merged() -> None:
    outputs = [stream("a"), stream("b\n"), stream("w", "stderr"), stream("c")]
    assert normalise(outputs) == [stream("ab\n"), stream("w", "stderr"), stream("c")]
    assert outputs[0]["text"] == "a", "the argument is left alone"


@pytest.mark.parametrize("path", ["/var/x/ipykernel_12/345.py", r"C:\Users\x\Temp\ipykernel_12\345.py"])
def test_the_file_of_a_cell_in_a_warning_is_masked(path: str) -> None:
    [output] = normalise([stream(f"{path}:1: RuntimeWarning: overflow\n", "stderr")])
    assert output["text"] == "cell.py:1: RuntimeWarning: overflow\n"
    assert unstable([output], ROOT) == ""


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (stream("<function f at 0x7f3a9c>"), "a memory address"),
        ({"output_type": "display_data", "data": {"text/html": f"<a href='{ROOT}/x'>"}, "metadata": {}}, "the folder"),
        (stream("see ipykernel_12"), "temporary file"),
        (stream("0x7f is 127"), ""),
    ],
)
def test_what_differs_from_run_to_run_is_refused(output: dict[str, str], told: str) -> None:
    assert told in unstable([output], ROOT)
    assert bool(told) == bool(unstable([output], ROOT))


def test_texts_of_all_formats() -> None:
    shown = [
        stream("a"),
        {"output_type": "display_data", "data": {"text/html": "b", "x+json": {"c": 1}}, "metadata": {}},
    ]
    assert [text for text in texts(shown) if text] == ["a", "b"]
