"""Building: what runs, what does not, what stays when something fails, and that the bytes are the same every time."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from labsupport.authoring import build as builder
from labsupport.authoring import execute
from labsupport.authoring.build import build, replace_file, survey
from labsupport.authoring.build import sources as source_files
from labsupport.authoring.dependencies import Graph
from labsupport.authoring.notebook import load

from .conftest import bring_up_to_date, write_sources

ROOT = Path(__file__).resolve().parents[2]
ALL = ["chapters/05-tiny.ipynb", "exercises/05-tiny.ipynb", "solutions/05-tiny.ipynb"]
CHAPTER = "book/chapters/05-tiny.md"
EXERCISES = "book/exercises/05-tiny.md"


def edit(root: Path, name: str, old: str, new: str) -> None:
    path = root / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def contents(root: Path) -> dict[str, bytes]:
    return {name: (root / name).read_bytes() for name in ALL}


def command(*arguments: str, cwd: Path | str = "/") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "labsupport.authoring", *arguments],
        capture_output=True, text=True, cwd=cwd, env=environment, timeout=100,
    )  # fmt: skip


def test_one_source_gives_both_notebooks(built: Path) -> None:
    exercise, solution = load(built / ALL[1]), load(built / ALL[2])
    assert exercise
    assert solution
    assert [cell["id"] for cell in exercise["cells"]] == [
        "sec-exercises-5",
        "sec-exercises-5--2",
        "sec-twice",
        "twice",
        "twice-check",
    ]
    assert exercise["cells"][3]["source"] == "def twice(x):\n    ...  # your code here"
    assert exercise["cells"][4]["outputs"] == [{"name": "stdout", "output_type": "stream", "text": "twice open\n"}]
    assert solution["cells"][4]["outputs"][0]["text"] == "twice right\n"
    assert solution["cells"][0]["source"] == "# Solutions 5"
    assert solution["cells"][5]["source"] == "Because adding is doubling."
    assert [cell["execution_count"] for cell in exercise["cells"] if cell["cell_type"] == "code"] == [1, 2, 3]


def test_nothing_of_this_machine_is_in_a_notebook(built: Path) -> None:
    for text in contents(built).values():
        for word in (str(built), str(Path.home()) + "/", sys.version.split()[0], str(time.gmtime().tm_year)):
            assert word.encode() not in text


def test_the_same_text_gives_the_same_bytes_elsewhere(built: Path, tmp_path: Path) -> None:
    other = write_sources(tmp_path / "elsewhere")
    assert set(bring_up_to_date(other).values()) == {"executed"}
    assert contents(other) == contents(built)


def test_a_second_build_does_nothing(book: Path) -> None:
    before = {name: (book / name).stat().st_mtime_ns for name in ALL}
    assert bring_up_to_date(book) == dict.fromkeys(ALL, "current")
    assert {name: (book / name).stat().st_mtime_ns for name in ALL} == before


@pytest.mark.parametrize(
    ("name", "old", "new", "executed"),
    [
        (CHAPTER, "More prose.", "Better prose.", []),
        (CHAPTER, "## 5.1 Doubling", "## 5.1 Twice as much", []),
        (CHAPTER, "More prose.", "More.\n\n+++\n\nA cell more.", []),
        (CHAPTER, ":tags: [check]", ":tags: [check, hide-input]", []),
        (EXERCISES, "Because adding", "Since adding", []),
        (CHAPTER, "double(2)", "double(3)", ALL[:1]),
        (EXERCISES, "doubled_value", "value_doubled", ALL[2:]),
        (EXERCISES, "def twice(x)", "def twice(y, x=1)", ALL[1:]),
        ("labsupport/ops/add.py", "x + y", "y + x", ALL[:1]),
        ("labsupport/ops/unused.py", "", "x = 1\n", []),
        ("labsupport/figures.py", "...", "pass", []),
        ("labsupport/exercises/tiny.py", "(dict", "(\n dict", ALL),
        ("labsupport/grading.py", "'right'", "'correct'", ALL),
        ("labsupport/__init__.py", "LAZY = ", "#\nLAZY = ", ALL),
        ("requirements.txt", "2.4.6", "2.4.7", ALL),
    ],
)
def test_only_what_an_edit_touches_is_executed(book: Path, name: str, old: str, new: str, executed: list[str]) -> None:
    assert [planned.notebook.as_posix() for planned in survey(book).plans if planned.reasons] == []
    edit(book, name, old, new)
    assert [planned.notebook.as_posix() for planned in survey(book).plans if planned.execute] == executed


def test_what_was_found_current_is_not_planned_again(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [planned.reasons for planned in survey(book).plans] == [[]] * 3
    monkeypatch.setattr(builder, "plan", lambda *_: pytest.fail("it was planned again"))
    assert [planned.reasons for planned in survey(book).plans] == [[]] * 3
    with pytest.raises(pytest.fail.Exception):
        survey(book, anew=True)


def test_a_sentence_costs_no_look_at_the_imports(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    survey(book)
    edit(book, CHAPTER, "More prose.", "Better prose.")
    monkeypatch.setattr(Graph, "files", lambda *_: pytest.fail("the imports were read again"))
    assert [planned.execute for planned in survey(book).plans if planned.reasons] == [False]


def test_a_sentence_keeps_the_outputs(book: Path) -> None:
    edit(book, CHAPTER, "(sec-5-1)=", "A sentence.\n\n(sec-5-1)=")
    assert bring_up_to_date(book)[ALL[0]] == "text only, nothing executed"
    notebook = load(book / ALL[0])
    assert notebook
    assert notebook["cells"][3]["outputs"][0]["text"] == "4\n"
    assert "A sentence." in "".join(cell["source"] for cell in notebook["cells"])


def test_an_output_changed_by_hand_is_found_and_made_again(book: Path) -> None:
    before = contents(book)
    edit(book, ALL[0], '"4\\n"', '"5\\n"')
    [planned] = [planned for planned in survey(book).plans if planned.reasons]
    assert planned.reasons == ["its outputs were changed by hand or by another run"]
    bring_up_to_date(book)
    assert contents(book) == before


def test_a_broken_notebook_is_made_again(book: Path) -> None:
    before = contents(book)
    (book / ALL[0]).write_text("<<<<<<< half a merge")
    bring_up_to_date(book)
    assert contents(book) == before


@pytest.mark.parametrize(
    ("name", "old", "new", "notebook", "told"),
    [
        (CHAPTER, "print(double(2))", "x = 1\n1 / 0", 0, "cell 'sec-5-1-doubling--2' (book/chapters/05-tiny.md:21) raised ZeroDivisionError: division by zero\n    1 / 0"),
        (CHAPTER, "print(double(2))", "def f():\n    return 1 / 0\n\nf()", 0, "(book/chapters/05-tiny.md:23) raised ZeroDivisionError: division by zero\n    f()"),
        (CHAPTER, "print(double(2))", "print(object())", 0, "cell 'sec-5-1-doubling--2' (book/chapters/05-tiny.md:20) shows a memory address"),
        (CHAPTER, "print(double(2))", "import os\nos._exit(1)", 0, "(book/chapters/05-tiny.md:20) ended the kernel"),
        (EXERCISES, "    # END SOLUTION", "    # END SOLUTION\n    raise KeyError(x)", 1, "cell 'twice-check' (book/exercises/05-tiny.md:30) raised KeyError: 1"),
        (EXERCISES, "x + x\n", "x + x\n    y = 1 / 0\n", 2, "cell 'twice-check' (book/exercises/05-tiny.md:30) raised ZeroDivisionError"),
        (EXERCISES, "Write `twice`.", "W.\n\n```{code-cell} ipython3\nprint('doubled_value  = ' + 'x+x')\n```", 1, "the output of cell 'sec-twice--2' shows the solution line 'doubled_value = x + x'"),
    ],
)  # fmt: skip
def test_a_failing_cell_is_named_and_the_last_good_notebook_stays(
    book: Path, name: str, old: str, new: str, notebook: int, told: str
) -> None:
    before = contents(book)
    edit(book, name, old, new)
    surveyed = survey(book)
    assert surveyed.faults == []
    failures = [str(failure) for failure in build(book, surveyed.plans, 2, lambda *_: None)]
    assert any(failure.startswith(f"{ALL[notebook]}: ") and told in failure for failure in failures), failures
    assert contents(book)[ALL[notebook]] == before[ALL[notebook]]
    assert [path.name for path in (book / ALL[notebook]).parent.iterdir()] == ["05-tiny.ipynb"], (
        "no temporary file is left"
    )


def test_a_fault_in_one_source_does_not_keep_the_others_back(book: Path) -> None:
    edit(book, EXERCISES, "# BEGIN SOLUTION", "# BEGIN SOLUTON")
    edit(book, CHAPTER, "double(2)", "double(4)")
    surveyed = survey(book)
    assert next(str(fault).partition("; ")[0] for fault in surveyed.faults) == (
        "book/exercises/05-tiny.md:20: '# BEGIN SOLUTON' looks like a solution marker but is none"
    )
    done: dict[str, str] = {}
    build(book, surveyed.plans, 1, lambda planned, what: done.update({planned.notebook.as_posix(): what}))
    assert done == {ALL[0]: "executed"}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("```{code-cell} ipython3\nprint", "```{code-cell} ipython3\n:tags: [exercise]\nprint", "the tag 'exercise' in a chapter; move the cell to book/exercises"),
        ("print(double(2))", "x = 1  # SOLUTION", "a solution marker outside an exercise cell"),
        ('check("twice", ...)', 'check("twice", double)', "the question 'twice' is answered in the chapter; write ... as its answer"),
        ('check("twice", ...)', "print(1)", "the check cell checks nothing"),
    ],
)  # fmt: skip
def test_a_chapter_holds_questions_and_no_answers(book: Path, old: str, new: str, told: str) -> None:
    edit(book, CHAPTER, old, new)
    assert told in "\n".join(str(fault) for fault in survey(book).faults)


def test_one_exercise_id_in_two_chapters(sources: Path) -> None:
    text = (sources / EXERCISES).read_text(encoding="utf-8")
    (sources / "book/exercises/06-other.md").write_text(text, encoding="utf-8")
    assert [str(fault) for fault in survey(sources).faults] == [
        "book/exercises/06-other.md:19: the exercise id 'twice' belongs to book/exercises/05-tiny.md too;"
        " give each exercise an id of its own"
    ]


def test_one_exercise_id_is_told_while_one_of_the_sources_is_settled(book: Path) -> None:
    survey(book)
    text = (book / EXERCISES).read_text(encoding="utf-8")
    (book / "book/exercises/06-other.md").write_text(text, encoding="utf-8")
    [fault] = survey(book).faults
    assert "06-other.md:19: the exercise id 'twice' belongs to" in str(fault)


def test_a_file_of_the_package_that_is_no_python(book: Path) -> None:
    edit(book, "labsupport/ops/add.py", "def add(x, y):", "def add(x, y)")
    assert [str(fault) for fault in survey(book).faults] == [
        "labsupport/ops/add.py:1: the file is no Python: expected ':'; correct it"
    ]


def test_a_cell_that_never_ends_is_named(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "TIMEOUT", 1)
    edit(book, CHAPTER, "print(double(2))", "import time\ntime.sleep(60)")
    [failure] = build(book, survey(book).plans, 1, lambda *_: None)
    assert str(failure) == (
        "chapters/05-tiny.ipynb: cell 'sec-5-1-doubling--2' (book/chapters/05-tiny.md:20) ran for more than 1 s; make it smaller"
    )


@pytest.mark.skipif(os.name == "nt", reason="Windows has no signal for Ctrl-C to another process")
def test_stopping_leaves_the_last_good_notebooks_and_no_kernel(book: Path) -> None:
    before = contents(book)
    mark = book / "started"
    edit(
        book,
        CHAPTER,
        "print(double(2))",
        f"import os, pathlib, time\npathlib.Path('{mark}').write_text(str(os.getpid()))\ntime.sleep(90)",
    )
    running = subprocess.Popen(
        [sys.executable, "-m", "labsupport.authoring", "build", "--root", str(book)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + 60
    while not (mark.exists() and mark.read_text()) and time.monotonic() < end:
        time.sleep(0.1)
    kernel = int(mark.read_text())
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert said.splitlines()[-1] == "stopped; every notebook is as it was or finished"
    assert contents(book) == before
    with pytest.raises(ProcessLookupError):
        os.kill(kernel, 0)


def test_a_notebook_without_a_source_and_a_source_without_a_name(book: Path) -> None:
    (book / CHAPTER).rename(book / "book/chapters/Tiny.md")
    assert [str(fault) for fault in survey(book).faults] == [
        "book/chapters/Tiny.md:1: the file name is no NN-name; call it like 05-softmax-and-kl.md",
        "chapters/05-tiny.ipynb:1: its source book/chapters/05-tiny.md does not exist; delete the notebook, or bring the source back",
    ]


def test_chapters_can_be_chosen(sources_of: Callable[..., list[str]]) -> None:
    assert sources_of("5") == sources_of("05") == sources_of("05-tiny") == sources_of() == [CHAPTER, EXERCISES]
    with pytest.raises(ValueError, match=r"no source belongs to '06'; the sources in .* are: 05-tiny"):
        sources_of("06")


@pytest.fixture
def sources_of(built: Path) -> Callable[..., list[str]]:
    return lambda *only: [path.as_posix() for path in source_files(built, only)]


def test_a_file_is_replaced_in_one_step_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, "new")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("x", "old")]


def test_the_commands_from_any_folder(book: Path, tmp_path: Path) -> None:
    first = command("check", "--root", str(book), cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("3 notebooks are current")
    edit(book, CHAPTER, "More prose.", "Other prose.")
    edit(book, EXERCISES, "doubled_value", "value_doubled")
    stale = command("check", "--root", str(book), cwd=tmp_path)
    assert stale.returncode == 1
    assert stale.stderr.splitlines() == [
        "chapters/05-tiny.ipynb is not current: its text differs from the source",
        "solutions/05-tiny.ipynb is not current: its code cells changed",
        "run: python -m labsupport.authoring build 05",
    ]
    edit(book, EXERCISES, "value_doubled", "doubled_value")
    made = command("build", "5", "--root", str(book), cwd=tmp_path)
    assert (made.returncode, made.stderr) == (0, "")
    assert (
        made.stdout.splitlines()[0]
        == "chapters/05-tiny.ipynb: text only, nothing executed (its text differs from the source)"
    )
    assert made.stdout.splitlines()[1].startswith("0 executed, 1 rewritten without running, 2 were current")


def test_the_commands_on_faults(book: Path) -> None:
    edit(book, CHAPTER, "print(double(2))", "1 / 0")
    edit(book, EXERCISES, "# END SOLUTION", "# END")
    failed = command("build", "--root", str(book))
    assert failed.returncode == 1
    assert "book/exercises/05-tiny.md:20: # BEGIN SOLUTION is never closed; write # END SOLUTION" in failed.stderr
    assert "(book/chapters/05-tiny.md:20) raised ZeroDivisionError" in failed.stderr
    assert "Traceback" not in failed.stderr
    checked = command("check", "--root", str(book))
    assert checked.returncode == 1
    assert "run: python -m labsupport.authoring build 05" in checked.stderr
    assert command("check", "--root", str(book), "99").returncode == 2


def test_nothing_to_prove_is_no_proof(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("")
    checked = command("check", "--root", str(tmp_path))
    assert checked.returncode == 1
    assert "there is no source yet" in checked.stderr


def test_unknown_commands_and_help() -> None:
    assert command("biuld").returncode == 2
    assert "there is no command 'biuld'" in command("biuld").stderr
    assert command().returncode == 2
    shown = command("--help")
    assert shown.returncode == 0
    for name in ("build", "check", "book", "lab"):
        assert name in shown.stdout


def test_a_sentence_needs_neither_nbclient_nor_a_kernel(book: Path) -> None:
    edit(book, CHAPTER, "More prose.", "Other prose.")
    code = (
        "import sys; from labsupport.authoring.cli import main; status = main(sys.argv[1:]);"
        "print(*[name for name in ('nbclient', 'matplotlib', 'torch', 'rfc3987_syntax') if name in sys.modules]); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "build", "--root", str(book)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == ""
