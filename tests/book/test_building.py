"""Building the book, on a small copy with this book's settings, layout and style."""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path

import pytest

from labsupport.authoring import book, sphinx_ext
from tests.book.pages import ROOT


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A book of two pages with this book's settings, layout and style."""
    for name in ("_config.yml", "book/references.bib", "book/_static/book.css", "book/_static/book.js"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "book/_static/favicon.svg", tmp_path / "book/_static/favicon.svg")
    shutil.copytree(ROOT / "book" / "_templates", tmp_path / "book" / "_templates")
    for name in book.RENDERING_CODE:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "book" / "glossary").mkdir()
    (tmp_path / "book" / "glossary" / "01-a.md").write_text("zeta\n: Last.\n\nalpha\n: First.\n", encoding="utf-8")
    (tmp_path / "book" / "intro.md").write_text("# Title\n\nA sentence, {term}`alpha`.\n", encoding="utf-8")
    (tmp_path / "book" / "glossary.md").write_text("# Glossary\n\n```{book-glossary}\n```\n", encoding="utf-8")
    (tmp_path / "_toc.yml").write_text(book.contents(tmp_path), encoding="utf-8")
    return tmp_path


def test_a_changed_sentence_reaches_its_page_and_nothing_is_done_twice(small: Path) -> None:
    assert book.render(small)
    page = small / "_build" / "html" / "book" / "intro.html"
    glossary = small / "_build" / "html" / "book" / "glossary.html"
    untouched = glossary.stat().st_mtime_ns
    assert "A sentence" in page.read_text(encoding="utf-8")
    assert not book.render(small)
    source = small / "book" / "intro.md"
    source.write_text(source.read_text(encoding="utf-8").replace("A sentence", "Another sentence"), encoding="utf-8")
    assert book.render(small)
    assert "Another sentence" in page.read_text(encoding="utf-8")
    assert glossary.stat().st_mtime_ns == untouched
    text = glossary.read_text(encoding="utf-8")
    assert text.index("alpha") < text.index("zeta")


def test_a_changed_style_reaches_the_pages_without_a_changed_sentence(small: Path) -> None:
    assert book.render(small)
    style = small / "book" / "_static" / "book.css"
    style.write_text(style.read_text(encoding="utf-8") + "/* a new last line */\n", encoding="utf-8")
    assert book.render(small)
    built = (small / "_build" / "html" / "_static" / "book.css").read_text(encoding="utf-8")
    assert built.endswith("/* a new last line */\n")


def test_what_a_tool_leaves_in_a_hidden_folder_is_no_page(small: Path) -> None:
    (small / ".pytest_cache").mkdir()
    (small / ".pytest_cache" / "README.md").write_text("# Cache\n", encoding="utf-8")
    assert book.render(small)
    assert not list((small / "_build" / "html").rglob("README*"))


def test_a_clean_build_renders_anew_and_keeps_what_is_known_of_the_sources(small: Path) -> None:
    assert book.render(small)
    left_over, note = small / "_build" / "html" / "gone.html", small / "_build" / "authoring" / "note.json"
    note.parent.mkdir()
    for path in (left_over, note):
        path.write_text("{}", encoding="utf-8")
    assert book.render(small, clean=True)
    assert note.exists()
    assert not left_over.exists()
    assert (small / "_build" / "html" / "book" / "intro.html").exists()


def test_a_new_glossary_file_reaches_the_glossary(small: Path) -> None:
    assert book.render(small)
    (small / "book" / "glossary" / "02-b.md").write_text("middle\n: Between.\n", encoding="utf-8")
    assert book.render(small)
    text = (small / "_build" / "html" / "book" / "glossary.html").read_text(encoding="utf-8")
    assert text.index("alpha") < text.index("middle") < text.index("zeta")


def test_a_warning_fails_the_build_again_and_again(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    intro = small / "book" / "intro.md"
    good = intro.read_text(encoding="utf-8")
    intro.write_text(good + "\nSee {doc}`nowhere`.\n", encoding="utf-8")
    for _ in range(2):
        with pytest.raises(book.BookError, match="warnings"):
            book.render(small)
        assert "nowhere" in capsys.readouterr().err
    intro.write_text(good, encoding="utf-8")
    assert book.render(small)


def test_a_widget_without_a_script_fails_the_build(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    intro = small / "book" / "intro.md"
    intro.write_text(intro.read_text(encoding="utf-8") + '\n<figure data-widget="absent"></figure>\n', encoding="utf-8")
    with pytest.raises(book.BookError, match="warnings"):
        book.render(small)
    assert "widgets/absent.js" in capsys.readouterr().err


def test_outside_a_book_the_command_says_where_to_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(book, "__file__", str(tmp_path / "a" / "b" / "book.py"))
    assert book.main(["--pages-only"]) == 1
    assert "root of the book's repository" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tensor\n: One.\n\nTensor\n: Two.\n", r"x\.md:4: the term 'Tensor' stands already in x\.md:1"),
        (": A definition.\n", r"x\.md:1: a definition without a term"),
        ("tensor\n", r"x\.md:1: the term 'tensor' has no definition"),
        ("tensor\n  more\n", r"x\.md:2: an indented line that continues no definition"),
    ],
)
def test_a_slip_in_a_glossary_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.md").write_text(text, encoding="utf-8")
    entries, slips = sphinx_ext.merge_glossaries([tmp_path / "x.md"])
    assert len(slips) == 1
    assert re.match(message, slips[0])
    assert [entry.terms[0][0] for entry in entries] in ([], ["tensor"])


def test_a_warning_in_a_notebook_names_the_line_of_its_source(small: Path) -> None:
    shutil.copy(ROOT / "requirements.txt", small / "requirements.txt")
    chapters = small / "book" / "chapters"
    chapters.mkdir()
    text = (
        "---\njupytext: {text_representation: {extension: .md, format_name: myst}}\n"
        "kernelspec: {display_name: Python 3, language: python, name: python3}\n---\n"
        "# 1. Title\n\nFirst cell.\n\n+++\n\n## 1.1 Second\n\nSee {doc}`nowhere`.\n"
    )
    (chapters / "01-scratch.md").write_text(text, encoding="utf-8")
    wrong = next(number for number, line in enumerate(text.splitlines(), start=1) if "nowhere" in line)
    stream = io.StringIO()
    warnings = book.SourceWarnings(small, stream)
    warnings.write("/x/chapters/01-scratch.ipynb:20003: WARNING: unknown document: 'nowhere'\n")
    warnings.write("/x/chapters/77-gone.ipynb:10001: WARNING: other\n")
    assert stream.getvalue().splitlines() == [
        f"book/chapters/01-scratch.md:{wrong}: WARNING: unknown document: 'nowhere'",
        "/x/chapters/77-gone.ipynb:10001: WARNING: other",
    ]


def test_equations_are_numbered_within_their_chapter() -> None:
    ids = ["a", "b", "c"]
    assert sphinx_ext.chapter_numbers("chapters/05-softmax-and-kl", ids) == {"a": (5, 1), "b": (5, 2), "c": (5, 3)}
    assert sphinx_ext.chapter_numbers("book/notation", ids) == {"a": (1,), "b": (2,), "c": (3,)}


def test_a_formula_and_the_punctuation_after_it_stay_together() -> None:
    formula = '<span class="math notranslate nohighlight">\\(x &lt; 1\\)</span>'
    for after, kept in ((". On", "."), ("), so", "),"), (" on", ""), ("-axis", ""), ("; and", ";")):
        wanted = f'<span class="kept">{formula}{kept}</span>' if kept else formula
        assert sphinx_ext.mend(f"<p>A {formula}{after}</p>") == f"<p>A {wanted}{after.removeprefix(kept)}</p>"


EQUATION = """```{{math}}
:label: {0}
x = 1
```
"""


def test_numbers_follow_a_change_also_where_another_page_names_them(small: Path) -> None:
    intro, glossary = small / "book" / "intro.md", small / "book" / "glossary.md"
    title = "# Title\n\n"
    intro.write_text(title + EQUATION.format("eq-second") + "\nA sentence, {term}`alpha`.\n", encoding="utf-8")
    glossary.write_text(glossary.read_text(encoding="utf-8") + "\nSee {eq}`eq-second`.\n", encoding="utf-8")
    assert book.render(small)
    named = small / "_build" / "html" / "book" / "glossary.html"
    assert ">(1)<" in re.sub(r"</?span[^>]*>", "", named.read_text(encoding="utf-8"))
    intro.write_text(title + EQUATION.format("eq-first") + EQUATION.format("eq-second"), encoding="utf-8")
    assert book.render(small)
    shown = re.sub(r"</?span[^>]*>", "", (small / "_build/html/book/intro.html").read_text(encoding="utf-8"))
    assert shown.index("(1)") < shown.index("(2)")
    assert ">(2)<" in re.sub(r"</?span[^>]*>", "", named.read_text(encoding="utf-8"))
