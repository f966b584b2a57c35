"""Progress survives crashes, second kernels, full disks and strange files, or a note says what happened."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labsupport.grading import files
from labsupport.grading.contents import CHAPTERS, CHECKLIST
from labsupport.grading.progress import MARKER, STATES, ProgressStore, default_path, store

#: The module; the package has a function of the same name for the reader.
progress = sys.modules[ProgressStore.__module__]


@dataclass(frozen=True)
class Card:
    """As much of an exercise record as the table needs."""

    id: str
    chapter: int = 5
    title: str = "A title"
    checklist: tuple[int, ...] = ()
    points: int = 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "progress.json"


def written(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_verdict_is_remembered_by_the_next_kernel(path: Path) -> None:
    assert ProgressStore(path).record("softmax-stable", "fail", "h1") == []
    assert ProgressStore(path).record("softmax-stable", "pass", "h2") == []
    later = ProgressStore(path)
    assert (later.state("softmax-stable"), later.attempts("softmax-stable")) == ("pass", 2)
    assert written(path)["version"] == 1


def test_the_file_holds_no_answer_no_name_and_no_time(path: Path) -> None:
    ProgressStore(path).record("kv-bytes", "pass", "0123abcd")
    assert written(path)["exercises"] == {
        "kv-bytes": {"answer": "0123abcd", "attempts": 1, "best": "pass", "state": "pass"}
    }


def test_a_pass_is_never_taken_away_by_a_later_wrong_try(path: Path) -> None:
    kept = ProgressStore(path)
    kept.record("top-p", "pass", "right")
    kept.record("top-p", "fail", "wrong")
    assert (kept.state("top-p"), kept.last_state("top-p"), kept.attempts("top-p")) == ("pass", "fail", 2)


def test_the_same_answer_again_is_not_another_attempt(path: Path) -> None:
    kept = ProgressStore(path)
    for answer in ("a", "a", "b", "b", "a"):
        kept.record("top-p", "fail", answer)
    assert kept.attempts("top-p") == 3


@pytest.mark.parametrize("state", ["todo", "grader-error"])
def test_an_empty_stub_or_a_fault_of_the_grader_is_no_attempt(path: Path, state: str) -> None:
    kept = ProgressStore(path)
    kept.record("top-p", "fail", "a")
    kept.record("top-p", state, "b")
    assert (kept.state("top-p"), kept.last_state("top-p"), kept.attempts("top-p")) == ("fail", "fail", 1)


def test_a_state_that_does_not_exist_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="no state 'passed'"):
        ProgressStore(path).record("top-p", "passed", "")


def test_hints_open_one_by_one_and_stop_at_the_last(path: Path) -> None:
    assert [ProgressStore(path).next_hint("top-p", 3) for _ in range(5)] == [1, 2, 3, 3, 3]
    assert ProgressStore(path).hints("top-p") == 3
    assert ProgressStore(path).next_hint("no-hints", 0) == 0


def test_requests_for_the_solution_are_counted(path: Path) -> None:
    assert [ProgressStore(path).solution_requests("top-p") for _ in range(2)] == [1, 2]


def test_reset_forgets_one_exercise_or_all(path: Path) -> None:
    kept = ProgressStore(path)
    for name in ("a", "b"):
        kept.record(name, "pass", "x")
    kept.reset("a")
    assert (kept.state("a"), kept.state("b")) == ("todo", "pass")
    kept.reset()
    assert ProgressStore(path).entries() == {}


# Files that cannot be used.


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b'{"version": 1, "exercises": {"a": {"sta', "not complete JSON"),
        (b"[" * 100_000, "not complete JSON"),
        (b"\xff\xfe\x00", "not text"),
        (b"[]", "not a progress file"),
        (b'{"exercises": {}}', "not a progress file"),
        (b'{"version": "1", "exercises": {}}', "not a progress file"),
        (b'{"version": true, "exercises": {}}', "not a progress file"),
        (b'{"version": 1, "exercises": []}', "entries that are not progress"),
        (b'{"version": 0, "exercises": {}}', "entries that are not progress"),
        (b'{"version": 1, "exercises": {"a": {"attempts": -1}}}', "entries that are not progress"),
        (b'{"version": 1, "exercises": {"a": {"attempts": NaN}}}', "entries that are not progress"),
        (b'{"version": 1, "exercises": {"a": {"best": "gold"}}}', "entries that are not progress"),
        (b'{"version": 1, "exercises": {"a": {"best": []}}}', "entries that are not progress"),
        (b'{"version": 1, "exercises": {"a": 3}}', "entries that are not progress"),
    ],
)
def test_a_broken_file_is_set_aside_unchanged_with_a_note(path: Path, content: bytes, said: str) -> None:
    path.write_bytes(content)
    notes = ProgressStore(path).record("top-p", "pass", "h")
    assert len(notes) == 1
    assert said in notes[0]
    assert "progress.corrupt-1.json" in notes[0]
    assert path.with_name("progress.corrupt-1.json").read_bytes() == content
    assert ProgressStore(path).state("top-p") == "pass"


def test_a_second_broken_file_does_not_cover_the_first(path: Path) -> None:
    for number, content in ((1, "one"), (2, "two")):
        path.write_text(content)
        ProgressStore(path).record("a", "pass", "h")
        assert path.with_name(f"progress.corrupt-{number}.json").read_text() == content


def test_good_entries_of_a_partly_wrong_file_are_kept(path: Path) -> None:
    path.write_text('{"version": 1, "exercises": {"bad": 3, "good": {"best": "pass", "attempts": 2}}}')
    kept = ProgressStore(path)
    assert kept.state("good") == "pass"
    assert "progress.corrupt-1.json" in kept.notes()[0]
    assert kept.notes() == []


def test_setting_aside_on_a_full_disk_loses_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = '{"version": 1, "exercises": {"bad": 3, "good": {"best": "pass"}}}'
    path.write_text(content)
    with monkeypatch.context() as patch:
        fail_writes(patch, errno.ENOSPC)
        kept = ProgressStore(path)
        kept.record("a", "pass", "h")
        assert (kept.state("good"), kept.state("a")) == ("pass", "pass")
        assert path.read_text() == content
    kept.record("b", "pass", "h")
    assert [ProgressStore(path).state(name) for name in ("good", "a", "b")] == ["pass"] * 3
    assert [p.read_text() for p in path.parent.glob("*corrupt*")] == [content]


def test_what_a_later_minor_edition_added_is_kept(path: Path) -> None:
    path.write_text('{"version": 1, "extra": [1], "exercises": {"a": {"best": "fail", "mood": "good"}}}')
    ProgressStore(path).record("a", "pass", "h")
    assert written(path)["extra"] == [1]
    assert written(path)["exercises"]["a"]["mood"] == "good"


def test_a_file_of_a_newer_edition_is_left_untouched(path: Path) -> None:
    content = b'{"version": 2, "exercises": {"a": "other form"}}'
    path.write_bytes(content)
    kept = ProgressStore(path)
    notes = kept.record("a", "pass", "h")
    assert "newer edition" in notes[0]
    assert kept.record("b", "fail", "h") == []  # said once
    assert (kept.state("a"), kept.state("b")) == ("pass", "fail")
    assert path.read_bytes() == content
    assert not list(path.parent.glob("*corrupt*"))


# Disks that cannot be written.


def fail_writes(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_what_cannot_be_written_is_kept_and_written_later(
    path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    kept = ProgressStore(path)
    kept.record("a", "pass", "h")
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        fail_writes(patch, code)
        notes = kept.record("b", "fail", "h")
        assert os.strerror(code) in notes[0]
        assert kept.record("c", "pass", "h") == []  # said once
        assert kept.next_hint("b", 2) == 1
        assert (kept.state("a"), kept.state("b"), kept.state("c"), kept.hints("b")) == (
            "pass",
            "fail",
            "pass",
            1,
        )
        assert path.read_bytes() == before
        assert [p.name for p in path.parent.iterdir() if p.suffix == ".tmp"] == []
    notes = kept.record("d", "pass", "h")
    assert "saved again" in notes[0]
    later = ProgressStore(path)
    assert [later.state(name) for name in "abcd"] == ["pass", "fail", "pass", "pass"]
    assert later.hints("b") == 1


def test_a_real_read_only_folder_gives_a_note_and_no_error(tmp_path: Path) -> None:
    """As another user: root may write everywhere. /proc accepts no files from anyone."""
    folder = tmp_path / "closed"
    folder.mkdir()
    target = folder / "progress.json" if os.geteuid() else Path("/proc/progress.json")
    folder.chmod(0o500)
    try:
        kept = ProgressStore(target)
        notes = kept.record("a", "pass", "h")
        assert "cannot be saved" in notes[0]
        assert kept.state("a") == "pass"
        assert not target.exists()
    finally:
        folder.chmod(0o700)


def test_a_folder_in_the_place_of_the_file_is_left_alone(path: Path) -> None:
    path.mkdir()
    kept = ProgressStore(path)
    assert "cannot be saved" in kept.record("a", "pass", "h")[0]
    assert kept.state("a") == "pass"
    assert path.is_dir()


def test_a_file_that_cannot_be_read_is_never_replaced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ProgressStore(path).record("old", "pass", "h")
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        refused = PermissionError(errno.EACCES, "Permission denied")
        patch.setattr(Path, "read_bytes", lambda self: (_ for _ in ()).throw(refused))
        kept = ProgressStore(path)
        assert "cannot be saved" in kept.record("new", "pass", "h")[0]
    assert path.read_bytes() == before
    assert (kept.state("old"), kept.state("new")) == ("pass", "pass")


def test_a_link_stays_a_link(tmp_path: Path, path: Path) -> None:
    target = tmp_path / "elsewhere" / "mine.json"
    target.parent.mkdir()
    target.write_text('{"version": 1, "exercises": {}}')
    path.symlink_to(target)
    ProgressStore(path).record("a", "pass", "h")
    assert path.is_symlink()
    assert "a" in written(target)["exercises"]


def test_a_write_that_is_killed_leaves_the_old_file_whole(path: Path) -> None:
    """The process dies between writing and renaming; the next one reads the old state and cleans up."""
    ProgressStore(path).record("a", "pass", "h")
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom labsupport.grading.progress import ProgressStore\n"
        "os.replace = lambda *a: os._exit(9)\n"
        "ProgressStore(Path(sys.argv[1])).record('b', 'pass', 'h')\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], check=False, timeout=60)
    assert done.returncode == 9
    assert list(path.parent.glob("*.tmp"))
    later = ProgressStore(path)
    assert (later.state("a"), later.state("b")) == ("pass", "todo")
    later.record("c", "pass", "h")
    assert not list(path.parent.glob("*.tmp"))


# Two kernels at once.

WRITER = """
import sys
from pathlib import Path
from labsupport.grading.progress import ProgressStore
kept = ProgressStore(Path(sys.argv[1]))
for number in range(int(sys.argv[3])):
    kept.record(f"{sys.argv[2]}-{number}", "pass", "h")
    kept.record("shared", "fail", f"{sys.argv[2]}-{number}")
    kept.solution_requests("shared")
print(kept.notes())
"""


def test_kernels_that_write_at_once_lose_nothing(path: Path) -> None:
    count = 15
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name, str(count)], stdout=subprocess.PIPE, text=True)
        for name in ("a", "b", "c", "d")
    ]
    for writer in writers:
        out, _ = writer.communicate(timeout=100)
        assert (writer.returncode, out.strip()) == (0, "[]")
    entries = ProgressStore(path).entries()
    assert len(entries) == 4 * count + 1
    assert entries["shared"]["attempts"] == 4 * count
    assert entries["shared"]["solutions"] == 4 * count


def test_a_lock_that_is_never_released_costs_a_note_not_the_verdict(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LOCK_SECONDS", 0.05)
    kept = ProgressStore(path)
    with files.locked(path):
        notes = kept.record("a", "pass", "h")
        assert "another process holds" in notes[0]
        assert kept.state("a") == "pass"
    kept.record("b", "pass", "h")
    assert ProgressStore(path).state("a") == "pass"


# Where the file is.


@pytest.fixture
def no_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LABSUPPORT_PROGRESS", raising=False)


@pytest.mark.usefixtures("no_wish")
def test_the_working_copy_around_the_reader_holds_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work" / MARKER).parent.mkdir(parents=True)
    (tmp_path / "work" / MARKER).write_text("{}")
    inner = tmp_path / "work" / "exercises"
    inner.mkdir()
    monkeypatch.chdir(inner)
    assert store().path == tmp_path / "work" / "progress.json"


@pytest.mark.usefixtures("no_wish")
def test_inside_the_book_the_file_is_in_the_ignored_folder(tmp_path: Path) -> None:
    (tmp_path / "_toc.yml").write_text("")
    (tmp_path / "labsupport").mkdir()
    (tmp_path / "chapters").mkdir()
    assert default_path(tmp_path / "chapters") == tmp_path / "work" / "progress.json"


def test_anywhere_else_the_file_is_in_the_current_folder(tmp_path: Path) -> None:
    assert default_path(tmp_path) == tmp_path / "progress.json"


@pytest.mark.parametrize("word", ["off", "OFF", " off "])
def test_off_writes_nothing_and_still_remembers_in_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LABSUPPORT_PROGRESS", word)
    monkeypatch.setattr(progress, "_STORES", {})
    assert store().record("a", "pass", "h") == []
    assert store().state("a") == "pass"
    assert list(tmp_path.iterdir()) == []


def test_the_environment_names_a_file_or_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABSUPPORT_PROGRESS", str(tmp_path))
    assert store().path == tmp_path / "progress.json"
    monkeypatch.setenv("LABSUPPORT_PROGRESS", str(tmp_path / "deep" / "mine.json"))
    store().record("a", "pass", "h")
    assert "a" in written(tmp_path / "deep" / "mine.json")["exercises"]


# What is shown.

CARDS = (
    Card("softmax-stable", 5, "Stable softmax", (9,), 2),
    Card("top-p", 5, "Top-p <mask>", ()),
    Card("explain", 5, "Why it works", (9, 10)),
    Card("bmm-shape", 2, "Shape of a product", (1,)),
)


def test_the_table_counts_by_chapter_and_ticks_the_list(path: Path) -> None:
    kept = ProgressStore(path)
    kept.record("softmax-stable", "pass", "a")
    kept.record("top-p", "fail", "b")
    table = kept.table(CARDS)
    assert "1 of 4 exercises done, 2 of 5 points" in str(table)
    assert "5. Softmax and KL  [###-------]   1 of  3" in str(table)
    assert "top-p (1 try): Top-p <mask>" in str(table)
    assert "[ ]  9 write a stable softmax and LogSumExp (still open: explain)" in str(table)
    kept.record("explain", "review", "c")
    assert "[x]  9 write a stable softmax and LogSumExp\n" in str(kept.table(CARDS))
    assert "[x] 10" in str(kept.table(CARDS))
    assert "[ ]  1" in str(kept.table(CARDS))


def test_the_html_says_states_in_words_and_escapes(path: Path) -> None:
    kept = ProgressStore(path)
    kept.record("softmax-stable", "pass", "a")
    html = kept.table((*CARDS, Card("bad-<b>", 6, "<script>alert(1)</script>")))._repr_html_()
    assert "<script>" not in html
    assert "Top-p &lt;mask&gt;: open" in html
    assert "Stable softmax: passed" in html
    assert html.count("<strong>Open:</strong>") == 18
    assert 'scope="row"' in html
    # Whatever client shows it: no script, no style sheet, no TeX, and the text has the client's colour.
    tags = set(re.findall(r"<(\w+)", html))
    assert tags <= {
        "div", "p", "table", "caption", "thead", "tbody", "tr", "th", "td", "span", "details", "summary", "ul", "ol",
        "li", "strong", "em", "code",
    }  # fmt: skip
    assert not re.search(r"\\[(\[]|\$|url\(|[; \"]color:", html)


def test_the_same_progress_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = ProgressStore(tmp_path / "1.json"), ProgressStore(tmp_path / "2.json")
    for kept, order in ((first, ("a", "b")), (second, ("b", "a"))):
        for name in order:
            kept.record(name, "fail", "h")
    cards = (Card("a"), Card("b", 4))
    assert str(first.table(cards)) == str(second.table(cards))
    assert first.table(cards)._repr_html_() == second.table(cards)._repr_html_()
    assert (tmp_path / "1.json").read_bytes() == (tmp_path / "2.json").read_bytes()


def test_an_empty_table_and_an_unknown_chapter_are_shown_calmly(path: Path) -> None:
    assert "0 of 0 exercises" in str(ProgressStore(path).table(()))
    assert "99. Further exercises" in str(ProgressStore(path).table((Card("a", 99),)))


def test_a_note_appears_once_in_the_table(path: Path) -> None:
    path.write_text("broken")
    kept = ProgressStore(path)
    assert "Note: progress.json is not complete JSON." in str(kept.table(()))
    assert "Note:" not in str(kept.table(()))


def test_the_list_has_eighteen_items_and_the_book_thirteen_chapters() -> None:
    assert len(set(CHECKLIST)) == 18
    assert list(CHAPTERS) == list(range(1, 14))


# Any history.

ACTIONS = st.one_of(
    st.tuples(st.just("record"), st.sampled_from("ab"), st.sampled_from(STATES), st.sampled_from("xy")),
    st.tuples(st.just("hint"), st.sampled_from("ab"), st.just(""), st.just("")),
    st.tuples(st.just("break"), st.just(""), st.just(""), st.just("")),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ACTIONS, max_size=12))
def test_a_file_and_a_memory_store_agree_after_any_history(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, str, str, str]]
) -> None:
    """A disk that fails and recovers at any moment changes nothing in what is remembered."""
    path = tmp_path_factory.mktemp("history") / "progress.json"
    on_disk, in_memory = ProgressStore(path), ProgressStore(None)
    broken = False
    with pytest.MonkeyPatch.context() as patch:
        for action, name, state, answer in actions:
            if action == "break":
                broken = not broken
                patch.undo()
                if broken:
                    fail_writes(patch, errno.ENOSPC)
            for kept in (on_disk, in_memory):
                if action == "record":
                    kept.record(name, state, answer)
                elif action == "hint":
                    kept.next_hint(name, 3)
            assert on_disk.entries() == in_memory.entries()
    on_disk.solution_requests("a")
    in_memory.solution_requests("a")
    assert ProgressStore(path).entries() == in_memory.entries()
