"""Every notebook in the book is complete, executed and current. nbval, which runs them again, sees none of this."""

import re
from pathlib import Path
from typing import Any

import pytest

from labsupport.authoring.build import FOLDERS, sources, survey
from labsupport.authoring.notebook import Document, code_cells, load

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted(
    path.relative_to(ROOT) for folders in FOLDERS.values() for f in folders for path in (ROOT / f).glob("*.ipynb")
)
CHAPTERS = [path for path in NOTEBOOKS if path.parent.name == "chapters"]
LINES = 15  # a reader sees a cell at one glance
SIZE = 1_000_000


def read(path: Path) -> Document:
    notebook = load(ROOT / path)
    assert notebook is not None, f"{path} is no notebook; run: python -m labsupport.authoring build {path.stem[:2]}"
    return notebook


def each(paths: list[Path]) -> Any:
    return pytest.mark.parametrize("path", paths, ids=str)


def test_there_are_notebooks_to_test() -> None:
    assert sources(ROOT), "book/chapters and book/exercises hold no source: every test of notebooks passed on nothing"
    assert CHAPTERS, "no chapter has been built; run: python -m labsupport.authoring build"


def test_every_notebook_is_current() -> None:
    surveyed = survey(ROOT, anew=True)
    wrong = [str(fault) for fault in surveyed.faults]
    wrong += [f"{planned.notebook}: {'; '.join(planned.reasons)}" for planned in surveyed.plans if planned.reasons]
    assert not wrong, "\n".join([*wrong, "run: python -m labsupport.authoring build"])
    assert sorted(planned.notebook for planned in surveyed.plans) == NOTEBOOKS


def test_every_chapter_has_exercises_and_solutions() -> None:
    stems = {
        folder: {path.stem for path in NOTEBOOKS if path.parent.name == folder}
        for folder in ("chapters", "exercises", "solutions")
    }
    assert stems["chapters"] == stems["exercises"] == stems["solutions"]


@each(NOTEBOOKS)
def test_every_code_cell_was_executed_and_none_failed(path: Path) -> None:
    cells = code_cells(read(path))
    assert cells
    assert [cell["id"] for cell in cells if not cell["execution_count"]] == []
    assert [cell["id"] for cell in cells if any(output["output_type"] == "error" for output in cell["outputs"])] == []
    assert any(cell["outputs"] for cell in cells), "no cell shows anything, so that nbval compares nothing"


@each(NOTEBOOKS)
def test_every_check_shows_a_verdict(path: Path) -> None:
    checks = [cell for cell in code_cells(read(path)) if "check" in cell["metadata"].get("tags", [])]
    assert checks
    assert [cell["id"] for cell in checks if not cell["outputs"]] == []


@each([path for path in NOTEBOOKS if path.parent.name == "exercises"])
def test_exercises_and_solutions_hold_the_same_answers_and_checks(path: Path) -> None:
    def cells(folder: str, tag: str) -> list[str]:
        return [c["id"] for c in code_cells(read(Path(folder, path.name))) if tag in c["metadata"].get("tags", [])]

    for tag in ("exercise", "check"):
        assert cells("exercises", tag) == cells("solutions", tag) != []


@each(CHAPTERS)
def test_every_numbered_heading_has_its_label(path: Path) -> None:
    number = int(path.stem[:2])
    found = 0
    for cell in read(path)["cells"]:
        if cell["cell_type"] != "markdown":
            continue
        for heading in re.finditer(r"^##+ (\d+)\.(\d+)(?:\.(\d+))? ", cell["source"], re.MULTILINE):
            found += 1
            numbers = [part for part in heading.groups() if part]
            assert int(numbers[0]) == number, f"{heading[0]!r} stands in chapter {number}"
            label = f"(sec-{'-'.join(numbers)})="
            before = cell["source"][: heading.start()].rstrip().rsplit("\n", 1)[-1]
            assert before == label, f"write the line {label} before {heading[0]!r}"
    assert found, "the chapter has no numbered section"


@each(CHAPTERS)
def test_cells_of_a_chapter_are_short(path: Path) -> None:
    long = {c["id"]: n for c in code_cells(read(path)) if (n := len(c["source"].splitlines())) > LINES}
    assert not long, f"move the code to labsupport and show it from there: {long}"


@each(NOTEBOOKS)
def test_a_notebook_is_light(path: Path) -> None:
    size = (ROOT / path).stat().st_size
    assert size < SIZE, f"{size} bytes; draw fewer frames or simpler figures"


@each(NOTEBOOKS)
def test_no_output_is_a_live_widget(path: Path) -> None:
    kinds = {mime for cell in code_cells(read(path)) for output in cell["outputs"] for mime in output.get("data", {})}
    assert not {kind for kind in kinds if "widget" in kind}, "a page without a kernel shows nothing there"
