"""Every exercise of the book proves itself: its truth passes, its mistakes fail, its ids agree everywhere."""

import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import nbformat
import pytest

from labsupport import exercises
from labsupport.grading import Exercise
from labsupport.grading.gates import GATES, mistaken_answers
from labsupport.grading.judge import judge

ROOT = Path(__file__).resolve().parents[2]
CHECK = re.compile(r"""\bcheck\(\s*["']([\w-]+)["']""")
STATE = re.compile(r'data-exercise="([\w-]+)" data-state="([\w-]+)"')


def loaded() -> list[Exercise]:
    """The records of all modules that load; ``test_module_loads`` tells of the others."""
    records: list[Exercise] = []
    for name in exercises.modules():
        try:
            records += import_module(f"labsupport.exercises.{name}").EXERCISES
        except Exception as error:
            print(f"{name} does not load: {error!r}")
    return records


RECORDS = loaded()
SOURCES = sorted(path.stem for path in (ROOT / "book" / "chapters").glob("[0-9]*.md"))
each_record = pytest.mark.parametrize("record", [pytest.param(record, id=record.id) for record in RECORDS])
each_chapter = pytest.mark.parametrize("stem", SOURCES)


@pytest.mark.parametrize("module", exercises.modules())
def test_module_loads(module: str) -> None:
    assert import_module(f"labsupport.exercises.{module}").EXERCISES


@pytest.mark.parametrize("chapter", exercises.modules())
def test_a_chapter_joins_the_records_of_all_its_modules(chapter: str) -> None:
    package = import_module(f"labsupport.exercises.{chapter}")
    parts = [import_module(f"{package.__name__}.{part.name}") for part in pkgutil.iter_modules(package.__path__)]
    of_parts = [record.id for part in parts for record in getattr(part, "EXERCISES", ())]
    assert sorted(record.id for record in package.EXERCISES) == sorted(of_parts)


@pytest.mark.parametrize("gate", GATES.values(), ids=GATES.keys())
@each_record
def test_exercise_proves_itself(record: Exercise, gate) -> None:
    gate(record, judge)


@each_record
def test_a_second_hint_follows_the_first(record: Exercise) -> None:
    assert len(record.hints) >= 2
    assert len(set(record.hints)) == len(record.hints)


#: A written answer has no known mistakes: it is shown its rubric and never judged wrong.
JUDGED = [record for record in RECORDS if record.place == "exercises" and record.kind != "written"]


@pytest.mark.parametrize("record", [pytest.param(record, id=record.id) for record in JUDGED])
def test_an_exercise_of_the_notebooks_knows_three_mistakes(record: Exercise) -> None:
    assert len(list(mistaken_answers(record))) >= 3


def test_no_two_exercises_share_an_id() -> None:
    assert len({record.id for record in exercises.all_exercises()}) == len(RECORDS)


@each_record
def test_record_is_found_by_its_id_in_the_module_of_its_chapter(record: Exercise) -> None:
    assert exercises.get(record.id) is record
    stem = f"{record.chapter:02d}-{exercises.module_of(record.id).replace('_', '-')}"
    assert (ROOT / "book" / "chapters" / f"{stem}.md").is_file()


@each_record
def test_section_is_a_labelled_heading_of_the_chapter(record: Exercise) -> None:
    wanted = {record.section, *(mistake.section for mistake in record.mistakes if mistake.section)}
    for section in wanted:
        chapter = int(section.split(".")[0])
        (source,) = (ROOT / "book" / "chapters").glob(f"{chapter:02d}-*.md")
        text = source.read_text(encoding="utf-8")
        label = re.escape(f"(sec-{section.replace('.', '-')})=")
        assert re.search(rf"^{label}\n+#+ {re.escape(section)}\.? ", text, re.MULTILINE), section


def test_every_item_of_the_self_check_list_is_ticked_by_some_exercise() -> None:
    ticked = {item for record in RECORDS for item in record.checklist}
    assert ticked == set(range(1, 19))


# Sources and notebooks name the same exercises as the records.


def ids(stem: str, place: str) -> set[str]:
    return {record.id for record in RECORDS if record.chapter == int(stem[:2]) and record.place == place}


@each_chapter
def test_chapter_source_asks_the_records_placed_in_it(stem: str) -> None:
    text = (ROOT / "book" / "chapters" / f"{stem}.md").read_text(encoding="utf-8")
    assert set(CHECK.findall(text)) == ids(stem, "chapter")


@each_chapter
def test_exercise_source_has_every_record_once_with_a_check(stem: str) -> None:
    text = (ROOT / "book" / "exercises" / f"{stem}.md").read_text(encoding="utf-8")
    answers = re.findall(r"^:exercise:\s*([\w-]+)\s*$", text, re.MULTILINE)
    assert len(answers) == len(set(answers))
    assert set(answers) == ids(stem, "exercises")
    assert ids(stem, "exercises") <= set(CHECK.findall(text)) <= {record.id for record in RECORDS}


def states(folder: str, stem: str) -> Iterator[tuple[str, str]]:
    """Yield (id, state) for every check in a generated notebook; a check without a verdict is an error."""
    notebook = nbformat.read(ROOT / folder / f"{stem}.ipynb", as_version=4)
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        assert all(output.output_type != "error" for output in cell.outputs), cell.source
        asked = CHECK.findall(cell.source)
        html = "".join(output.get("data", {}).get("text/html", "") for output in cell.outputs)
        shown = STATE.findall(html)
        assert [name for name, _ in shown] == asked, f"{folder}/{stem}: {cell.source}"
        yield from shown


@each_chapter
def test_chapter_notebook_shows_each_question_unanswered(stem: str) -> None:
    shown = list(states("chapters", stem))
    assert {name for name, _ in shown} == ids(stem, "chapter")
    assert {state for _, state in shown} <= {"todo"}


@each_chapter
def test_exercise_notebook_is_all_to_do(stem: str) -> None:
    shown = list(states("exercises", stem))
    assert {name for name, _ in shown} == ids(stem, "exercises")
    assert {state for _, state in shown} <= {"todo"}


@each_chapter
def test_solution_notebook_passes_everywhere(stem: str) -> None:
    shown = list(states("solutions", stem))
    assert {name for name, _ in shown} == ids(stem, "exercises")
    kinds = {record.id: record.kind for record in RECORDS}
    for name, state in shown:
        assert state == "pass" or (state == "review" and kinds[name] in ("written", "several")), name
