"""On the page, without a kernel: the verdicts of the notebook, by mouse and keyboard, remembered by the browser."""

from __future__ import annotations

import difflib
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from playwright.sync_api import Browser, Page, expect

from labsupport.authoring import export
from labsupport.authoring.book import EXERCISES
from labsupport.exercises import all_exercises
from labsupport.grading import Choice, Exercise, Mistake, Number, Option, Several, Shape, Written, units
from labsupport.grading import verdict as verdicts
from labsupport.grading.contents import CHAPTERS, CHECKLIST
from labsupport.grading.judge import judge, todo
from labsupport.grading.progress import ProgressStore
from tests.book.browser import collect_problems, open_browser

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[2]
STATIC = ROOT / "book" / "_static"


def fields(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "chapter": 5, "section": "5.2", "title": f"About {name}", "prompt": "How many?",
            "hints": ("First hint with $x^2$.", "Second hint."), **more}  # fmt: skip


BOTH = Option("both `x` and $y$", "Both < all & 'each'.", correct=True)
#: Records that bring every path of the page's judge, whatever the chapters ask today.
MADE: tuple[Exercise, ...] = (
    Number(**fields("made-bytes", checklist=(9,)), expected=3 * 2**29, unit="B", exact=True, default_unit="B",
           mistakes=(Mistake(name="one-cache", answer="0.75 GiB", message="K and V are two tensors.", section="5.3"),)),
    Number(**fields("made-flops"), expected=137_438_953_472, unit="FLOP", rtol=1e-3),
    Number(**fields("made-rate"), expected=67e12, unit="FLOP/s", rtol=1e-2),
    Number(**fields("made-intensity"), expected=4096 / 3, unit="FLOP/B", rtol=1e-4),
    Number(**fields("made-time"), expected=0.0125, unit="s", rtol=1e-3, default_unit="ms"),
    Number(**fields("made-percent"), expected=0.00390625, unit="1", rtol=1e-3),
    Number(**fields("made-negative"), expected=-1.653, unit="1", rtol=1e-3),
    Number(**{**fields("made-counted"), "prompt": "How many questions, with one token each?"}, expected=3, exact=True),
    Number(**fields("made-zero"), expected=0, unit="1", exact=True),
    Number(**fields("made-tokens"), expected=1000, unit="token/s", rtol=0.5),
    Shape(**fields("made-shape"), expected=(8, 12, 1024),
          mistakes=(Mistake(name="swapped", answer=(8, 1024, 12), message="The last two axes are swapped."),)),
    Shape(**fields("made-scalar"), expected=()),
    Choice(**fields("made-choice"), options={
        "a": Option("one <b>", "No: one is `too` few."),
        "b": Option("two", "Yes, two.", True),
        "c": Option("three", "No: three is too many."),
    }),
    Choice(**fields("made-choices"), options={
        "a": Option("one", "Yes, one.", True), "b": Option("two", "No, two."), "c": BOTH,
    }),
    Several(**fields("made-several", contract="Three parts."), parts={
        "shape": Shape(expected=(2, 3)),
        "bytes": Number(expected=2**20, unit="B", exact=True, prompt="In bytes?"),
        "which": Choice(options={"x": Option("left", "No, not left."), "y": Option("right", "Yes.", True)}),
    }),
    Written(**fields("made-written"), rubric=("says why",)),
)  # fmt: skip


def book_records() -> list[Exercise]:
    return [record for record in all_exercises() if export.answerable(record)]


def form_of(record: Exercise) -> str:
    return todo(record).html()


def write_page(folder: Path, records: list[Exercise], body: str) -> Path:
    """A page as the book has it: the real scripts and styles, the data of these records."""
    export.write(folder / "exercises-data.js", records)
    page = folder / "page.html"
    links = "".join(
        f'<link rel="stylesheet" href="{(STATIC / name).as_uri()}">' for name in ("book.css", "exercises.css")
    )
    page.write_text(
        f'<!DOCTYPE html><html lang="en" data-theme="light"><head><meta charset="utf-8"><title>Page</title>{links}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<script defer src="exercises-data.js"></script>'
        f'<script defer src="{(STATIC / "exercises.js").as_uri()}"></script></head>'
        f'<body><main><h1>Page</h1><section id="sec-5-2"><h2>5.2</h2>{body}</section></main></body></html>',
        encoding="utf-8",
    )
    return page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


@contextmanager
def questions(browser: Browser, folder: Path, records: list[Exercise]) -> Iterator[Page]:
    """A page that asks these; anything it asks of the network or complains about fails the test."""
    path = write_page(folder, records, "".join(form_of(record) for record in records))
    context = browser.new_context()
    opened = context.new_page()
    problems = collect_problems(opened)
    opened.goto(path.as_uri())
    yield opened
    assert problems.all() == []
    context.close()


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """A page with the questions made here."""
    with questions(browser, tmp_path, list(MADE)) as opened:
        yield opened


@pytest.fixture
def page_of_all(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """A page with every question of the book as well."""
    with questions(browser, tmp_path, [*MADE, *book_records()]) as opened:
        yield opened


# The two judges.


NO_QUANTITIES = (
    "", "  ", "abc", "GiB", "-", ".", "1e", "1.2.3", "1e999", "1e-9999999", "nan", "inf", "0", "-0", "12 GB GB",
    "1 GiB/", "3 µS", "3 gflops", "3 TFLOPS/S", "3 KB", "3 kb",
    "2^-24", "2**-24", "2^(-24)", "2^{-24}", "2⁻²⁴", "2·2⁹", "3 * 2**29", "3×2^29 B", "2/3", "1 / 2^8", "1/0", "0^-1",
    "2^9999", "9^99999", "2^9999999999", "2^", "2*", "1 1", "1-2", "1 ± 2", "1..2", "0,500", "≈ 8.25", "~8x", "= 8 ×",
    "1'000", "-2^2", "-1/256", "1 percent", "3 times", "2 nats", "3 questions", "1 bytes", "0 bytes", "7 gigabytes",
    "2 teraflops", "1000 tokens", "1.5 tokens", "1 token", "0 Bytes", "²", "1e5*9e-5",
    "1 / s", "1 per s", "7 bananas", "3 GiBs", "3 gib", "3 mflop", "5 seconds", "1" * 250, "½", "1,00", "1,0000",
)  # fmt: skip
UNIT_NAMES = (
    "", "B", "KB", "GB", "KiB", "MiB", "GiB", "bit", "Gbit", "FLOP", "GFLOP", "TFLOPS", "TFLOP/s", "FLOP/B", "s", "ms",
    "µs", "min", "token", "tokens/s", "%", "1", "token per s", "GB/s", "parameters",
)  # fmt: skip
#: The ratios of the known slips, some beside them, and some of no meaning.
FACTORS = (
    *(slip.ratio for slip in export.SLIPS), 1, -1, 20, Fraction(1, 30), Fraction(1005, 1000), Fraction(10_009, 10_000),
    Fraction(20_001, 10_000), Fraction(20_003, 10_000), Fraction(99, 100), Fraction(103, 100),
)  # fmt: skip


#: Spellings that a number of the book is tried with.
SPELLINGS = 40


def texts_of_numbers(record: Number, rng: random.Random) -> list[str]:
    """Right answers in other words, near misses, slips, wrong dimensions, and texts that are no numbers."""
    due = units.parse_unit(record.unit)
    value = Fraction(record.expected) * due.size
    texts = [*NO_QUANTITIES]
    for name in UNIT_NAMES:
        unit = units.parse_unit(name)
        if unit.dimension == due.dimension or not name:
            exact = value / (due.size if not name else unit.size)
            for factor in FACTORS:
                texts.append(f"{float(exact * factor)!r} {name}".strip())
            whole = round(exact * rng.choice(FACTORS))
            decimal = float(exact)
            texts += [f"{whole:,} {name}", f"{whole:,} {name}".replace(",", "\u202f"), f"{whole:_}{name}"]
            texts += [
                f"{decimal:.3e}{name}",
                f"{decimal:.4g} {name}",
                f"  +{decimal!r}  {name} ",
                f"−{decimal!r} {name}",
            ]
            texts += [f"{decimal / 1e6!r} × 10^6 {name}", f"{decimal / 1e3!r}*10**3{name}"]
        else:
            texts.append(f"1.5 {name}")
    return texts


def texts_of_mistakes(record: Number) -> list[str]:
    texts = []
    for mistake in record.mistakes:
        if isinstance(mistake.answer, (int, float)):
            texts.append(f"{mistake.answer!r} {record.default_unit or record.unit}".removesuffix(" 1"))
        elif isinstance(mistake.answer, str):
            texts.append(mistake.answer)
    return texts


NO_SHAPES = (
    "()", "( )", "[]", "(8,)", "8", "(8 12 1024", "8,,12", "(8, 12.0, 1024)", "(B, S, H)", "(8, -12, 1024)", "(-1)",
    "torch.Size([8, 12, 1024])", "(8,12,1024),", "8 x 12 x 1024", "8×12×1024", "8;12;1024", "8 * 12 * 1_024",
    "(8, 12, 1e3)", "(8, 12, .5)", "(+8, 012, 1024)", "(8, twelve, 1024)", "(" + "9" * 30 + ",)",
)  # fmt: skip


def texts_of_shapes(record: Shape, rng: random.Random) -> list[str]:
    shapes = [record.expected, record.expected[::-1], record.expected[1:], (*record.expected, 1)]
    shapes += [tuple(mistake.answer) for mistake in record.mistakes]
    shapes += [tuple(size + rng.choice([0, 0, 1]) for size in record.expected) for _ in range(4)]
    texts = [*NO_SHAPES]
    for shape in shapes:
        inner = [str(size) for size in shape]
        texts += [
            f"({', '.join(inner)})",
            f"[{','.join(inner)}]",
            " ".join(inner),
            f" ( {' , '.join(inner)} ) ",
            "x".join(inner),
        ]
    return texts


def answers_to(record: Exercise, rng: random.Random) -> list[tuple[Any, Any]]:
    """(what the page is given, what the notebook is given) for one record."""
    if isinstance(record, Number):
        texts = texts_of_numbers(record, rng)
        if record not in MADE:  # those made for this test get every spelling, those of the book some
            texts = rng.sample(texts, SPELLINGS)
        return [(text, text) for text in (*texts, *texts_of_mistakes(record))]
    if isinstance(record, Shape):
        return [(text, export.shape_from_text(text)) for text in texts_of_shapes(record, rng)]
    if isinstance(record, Choice):
        keys = list(record.options)
        if len(record.correct) == 1:
            return [([key], key) for key in keys]
        picked = [[key for at, key in enumerate(keys) if number >> at & 1] for number in range(2 ** len(keys))]
        return [(chosen, list(chosen)) for chosen in picked]
    assert isinstance(record, Several)
    inner = {name: [("", ...), *answers_to(part, rng)] for name, part in record.parts.items()}
    pairs = []
    for _ in range(60):
        chosen = {name: rng.choice(found) for name, found in inner.items()}
        right = {name: right_pair(record.parts[name]) for name in inner}
        chosen = {name: right[name] if rng.random() < 0.6 else pair for name, pair in chosen.items()}
        # A blank field is an untouched part, in whichever way it is blank.
        chosen = {name: (given, ...) if is_blank(given) else (given, mine) for name, (given, mine) in chosen.items()}
        if any(mine is not ... for _, mine in chosen.values()):
            pairs.append(
                ({name: pair[0] for name, pair in chosen.items()}, {name: pair[1] for name, pair in chosen.items()})
            )
    return pairs


def is_blank(given: Any) -> bool:
    return not given.strip() if isinstance(given, str) else not given


def right_pair(part: Exercise) -> tuple[Any, Any]:
    answer = part.right_answer()
    if isinstance(part, Choice):
        return list(part.correct), answer
    if isinstance(part, Number):
        text = f"{answer[0]!r} {answer[1]}"
        return text, text
    return str(answer), answer


@pytest.fixture
def progress_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABSUPPORT_PROGRESS", "off")


@pytest.mark.usefixtures("progress_off")
def test_the_page_and_the_notebook_give_the_same_verdicts(page_of_all: Page) -> None:
    rng = random.Random(5)
    records = {record.id: record for record in [*MADE, *book_records()] if export.answerable(record)}
    cases = [(name, given, mine) for name, record in records.items() for given, mine in answers_to(record, rng)]
    said = page_of_all.evaluate("cases => cases.map(([id, answer]) => labsupportJudge.judge(id, answer))",
                         [[name, given] for name, given, _ in cases])  # fmt: skip
    assert len(cases) >= 2000
    states = set()
    for (name, given, mine), found in zip(cases, said, strict=True):
        verdict = judge(records[name], mine)
        states.add((type(records[name]).__name__, verdict.state))
        assert (name, given, found) == (
            name, given, {"state": verdict.state, "message": verdict.message, "mistake": verdict.mistake}
        )  # fmt: skip
    # The comparison means something only where every kind was right, wrong and, for parts, unfinished.
    kinds = {"Number", "Shape", "Choice", "Several"}
    assert states == {(kind, state) for kind in kinds for state in ("pass", "fail")} | {("Several", "todo")}


#: Sentences about Python values that cannot be typed into a field of the page.
NOT_TYPED = {
    "shape-kind", "shape-string", "number-kind", "number-pair", "number-nan", "number-infinite", "number-complex",
    "number-bool", "number-unit-twice", "choice-kind", "choice-unknown", "shape-bare", "choice-one",
}  # fmt: skip


def test_every_slip_and_every_fixed_sentence_is_reached() -> None:
    """The answers above must exercise the sentences, or the comparison is blind to them."""
    rng = random.Random(5)
    said: set[str] = set()
    for record in MADE:
        if export.answerable(record):
            said |= {judge(record, mine).message for _, mine in answers_to(record, rng)}
    for slip in export.SLIPS:
        assert any(slip.message in message for message in said), slip.name
    for name, template in export.exported(MADE)["messages"].items():
        start = template.split("{")[0]
        assert any(start in message for message in said) or name in NOT_TYPED, name


def test_spellings_alike_are_those_of_the_notebook(page: Page) -> None:
    rng = random.Random(3)
    possible = export.exported(())["unitOrder"]
    letters = sorted({letter for name in possible for letter in name})
    words = ["".join(rng.choices(letters, k=rng.randint(0, 7))) for _ in range(300)]
    for name in rng.sample(possible, 100):
        at = rng.randint(0, len(name))
        words.append(name[:at] + rng.choice(letters) + name[at + rng.randint(0, 1) :])
    found = page.evaluate(
        "([words, all]) => words.map(word => labsupportJudge.closeMatches(word, all, 2, 0.6))", [words, possible]
    )
    assert found == [difflib.get_close_matches(word, possible, n=2, cutoff=0.6) for word in words]
    assert sum(map(bool, found)) > 100


def test_texts_are_set_as_in_the_notebook(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    def left_to_mathjax(tex: str) -> str:
        raise ValueError(tex)

    monkeypatch.setattr(verdicts, "formula_html", left_to_mathjax)  # what a page has and a notebook's output has not
    texts = [
        "a < b & 'c' \"d\"",
        "`x < y` and $a < b$ and **strong**",
        "**strong `code` and $x$**",
        "$$\\sum_i$$",
        "`unclosed",
        "$1 and $2",
        "**",
        "a `b` c `d`",
    ]
    for record in [*MADE, *book_records()]:
        texts += [record.title, record.prompt, record.contract, *record.hints]
        texts += [
            text for option in getattr(record, "options", {}).values() for text in (option.text, option.explanation)
        ]
    assert page.evaluate("texts => texts.map(labsupportJudge.inlineHtml)", texts) == [
        verdicts.inline_html(text) for text in texts
    ]


# The data.


def test_the_export_is_valid_deterministic_and_free_of_paths(tmp_path: Path) -> None:
    records = [*MADE, *all_exercises()]
    assert export.write(tmp_path / "one.js", records) is True
    assert export.write(tmp_path / "one.js", records) is False
    export.write(tmp_path / "two.js", records)
    text = (tmp_path / "one.js").read_text(encoding="ascii")
    assert text == (tmp_path / "two.js").read_text(encoding="ascii")
    assert text.startswith("window.labsupportExercises = {")
    assert "</" not in text
    assert str(ROOT) not in text
    data = json.loads(text.removeprefix("window.labsupportExercises = ").removesuffix(";\n"))
    assert data == export.exported(records)
    assert set(data["exercises"]) == {record.id for record in records}
    assert "form" not in data["exercises"]["made-written"]


def test_the_command_writes_the_data_of_the_book(tmp_path: Path) -> None:
    assert export.main(["--root", str(tmp_path)]) == 0
    assert (tmp_path / EXERCISES).read_text(encoding="ascii") == export.script(export.exported(all_exercises()))


@pytest.mark.parametrize(
    "fault",
    [
        lambda data: data["exercises"]["made-shape"]["form"].update(shape=[-1]),
        lambda data: data["exercises"]["made-shape"]["form"].pop("mistakes"),
        lambda data: data["exercises"]["made-bytes"]["form"].update(value=["1.5", "1"]),
        lambda data: data["exercises"]["made-choice"]["form"]["options"][0].pop("explanation"),
        lambda data: data["exercises"]["made-several"]["form"]["parts"][0]["part"].pop("shape"),
        lambda data: data["exercises"].update({"Not An Id": {}}),
        lambda data: data.update(path="somewhere"),
    ],
)
def test_data_of_another_form_is_refused(fault: Any) -> None:
    data = export.exported(MADE)
    jsonschema.validate(data, export.SCHEMA)
    fault(data)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, export.SCHEMA)


def test_a_shape_may_be_typed_in_several_ways() -> None:
    for text in ("(8, 12)", "[8,12]", "8 x 12", "8×12", " 8 12 ", "torch.Size([8, 12])", "(8, 12,)"):
        assert export.shape_from_text(text) == (8, 12)
    assert export.shape_from_text("()") == ()
    assert export.shape_from_text("(8, 1.5, H)") == (8, 1.5, "H")


# The forms.


def form(page: Page, name: str) -> Any:
    return page.locator(f'form[data-exercise="{name}"]')


def test_every_answerable_question_becomes_a_form_and_the_others_stay_text(page_of_all: Page) -> None:
    records = [*MADE, *book_records()]
    expect(page_of_all.locator("form.ls-form")).to_have_count(sum(export.answerable(record) for record in records))
    expect(page_of_all.locator('.ls-verdict[data-state="todo"]')).to_have_count(1)
    expect(form(page_of_all, "made-choice").get_by_role("radio")).to_have_count(3)
    expect(form(page_of_all, "made-choices").get_by_role("checkbox")).to_have_count(3)
    expect(form(page_of_all, "made-bytes").get_by_role("textbox", name="Your answer")).to_have_count(1)


@pytest.mark.parametrize(
    ("heading", "said"),
    [
        ('{title}<a class="headerlink" href="#x">#</a>', False),  # an exercise with a section of its own
        ("5.2 Stable softmax", True),  # a prediction inside a section
    ],
)
def test_a_form_says_the_question_unless_the_text_above_it_does(
    browser: Browser, tmp_path: Path, heading: str, said: bool
) -> None:
    record = next(record for record in MADE if record.id == "made-bytes")
    body = f"<section><h3>{heading.format(title=record.title)}</h3><p>{record.prompt}</p>{form_of(record)}</section>"
    page = browser.new_page()
    try:
        page.goto(write_page(tmp_path, [record], body).as_uri())
        asked = form(page, record.id)
        expect(asked.get_by_role("group", name=record.title)).to_have_count(1)  # heard in either case
        expect(asked.get_by_text(record.prompt)).to_have_count(int(said))
        assert (asked.locator("legend").bounding_box() or {"width": 0})["width"] > 1 or not said
        expect(asked.get_by_role("textbox", name="Your answer")).to_be_visible()
    finally:
        page.close()


@pytest.mark.parametrize("own_section", [True, False])
def test_a_question_that_a_page_cannot_judge_leads_to_the_notebook(
    browser: Browser, tmp_path: Path, own_section: bool
) -> None:
    record = next(record for record in MADE if not export.answerable(record))
    heading = record.title if own_section else "5.2 Stable softmax"
    body = f"<section><h3>{heading}</h3><p>Above: {record.prompt}</p>{form_of(record)}</section>"
    page = browser.new_page()
    try:
        page.goto(write_page(tmp_path, [record], body).as_uri())
        shown = page.locator(".ls-verdict")
        expect(shown).to_contain_text("to do")
        expect(shown.get_by_text("make lab")).to_have_count(int(own_section))
        expect(shown.get_by_text(record.prompt)).to_have_count(int(not own_section))
    finally:
        page.close()


def test_a_choice_is_answered_by_keyboard_alone(page: Page) -> None:
    asked = form(page, "made-choice")
    asked.get_by_role("radio").first.focus()
    page.keyboard.press("Space")
    page.keyboard.press("Enter")
    expect(asked.get_by_role("status")).to_contain_text("not right yet")
    expect(asked.get_by_role("status")).to_contain_text("No: one is too few.")
    asked.get_by_role("radio").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(asked.get_by_role("status")).to_contain_text("pass")
    expect(asked.get_by_role("status")).to_contain_text("Yes, two.")


def test_the_focus_is_visible(page: Page) -> None:
    page.keyboard.press("Tab")
    style = "getComputedStyle(document.activeElement)"
    outline = page.evaluate(f"{style}.outlineStyle + {style}.outlineWidth")
    assert outline == "solid3px"


def test_a_number_names_its_slip_and_links_to_the_section(page: Page) -> None:
    asked = form(page, "made-bytes")
    asked.get_by_role("textbox").fill("12 GiB")
    asked.get_by_role("textbox").press("Enter")
    expect(asked.get_by_role("status")).to_contain_text("bits were counted where bytes are due")
    expect(asked.get_by_role("link", name="section 5.2")).to_have_attribute("href", "#sec-5-2")
    asked.get_by_role("textbox").fill("1.5 GiB")
    asked.get_by_role("button", name="Check").click()
    expect(asked.locator(".ls-verdict")).to_have_attribute("data-state", "pass")


def test_what_a_reader_types_is_shown_as_text(page: Page) -> None:
    asked = form(page, "made-flops")
    asked.get_by_role("textbox").fill("3 <img src=x onerror=alert(1)>")
    asked.get_by_role("button", name="Check").click()
    expect(asked.get_by_role("status")).to_contain_text("<img src=x")
    expect(asked.locator("img")).to_have_count(0)


def test_an_empty_answer_is_asked_for_and_not_counted(page: Page) -> None:
    for name, words in (("made-bytes", "Type an answer first."), ("made-choice", "Choose an option first.")):
        form(page, name).get_by_role("button", name="Check").click()
        expect(form(page, name).get_by_role("status")).to_have_text(words)
    assert page.evaluate("localStorage.getItem('labsupport-progress')") is None


def test_parts_are_answered_one_by_one(page: Page) -> None:
    asked = form(page, "made-several")
    boxes = asked.get_by_role("textbox")
    boxes.nth(0).fill("(2, 3)")
    asked.get_by_role("button", name="Check").click()
    expect(asked.get_by_role("status")).to_contain_text("still to do: bytes, which. What you gave so far is right.")
    boxes.nth(1).fill("1 MiB")
    asked.get_by_role("radio").nth(1).check()
    asked.get_by_role("button", name="Check").click()
    expect(asked.get_by_role("status")).to_contain_text("right, all 3 parts.")


def test_hints_open_one_by_one_and_are_remembered(page: Page) -> None:
    asked = form(page, "made-bytes")
    expect(asked.get_by_role("listitem")).to_have_count(0)
    asked.get_by_role("button", name="Hint 1 of 2").click()
    expect(asked.get_by_role("listitem")).to_have_count(1)
    page.reload()
    expect(asked.get_by_role("listitem")).to_have_count(1)
    asked.get_by_role("button", name="Hint 2 of 2").click()
    expect(asked.get_by_role("listitem")).to_have_count(2)
    expect(asked.get_by_role("button", name="No more hints")).to_be_disabled()
    asked.get_by_role("button", name="No more hints").press("Enter")
    expect(asked.get_by_role("listitem")).to_have_count(2)


def test_a_pass_is_remembered_kept_and_cleared_on_request(page: Page) -> None:
    asked = form(page, "made-bytes")
    for text in ("1.5 GiB", "2 GiB", "2 GiB"):
        asked.get_by_role("textbox").fill(text)
        asked.get_by_role("button", name="Check").click()
    entry = json.loads(page.evaluate("localStorage.getItem('labsupport-progress')"))["exercises"]["made-bytes"]
    assert (entry["best"], entry["state"], entry["attempts"]) == ("pass", "fail", 2)
    page.reload()
    expect(asked.get_by_role("status")).to_contain_text("You passed this question before.")
    asked.get_by_role("button", name="Start again").click()
    page.reload()
    expect(asked.get_by_role("status")).to_have_text("")


def test_a_browser_that_stores_nothing_still_judges(browser: Browser, tmp_path: Path) -> None:
    path = write_page(tmp_path, list(MADE), form_of(MADE[0]) + "<div data-progress></div>")
    opened = browser.new_page()
    opened.add_init_script("Object.defineProperty(window, 'localStorage', {get() { throw new Error('blocked'); }})")
    problems = collect_problems(opened)
    opened.goto(path.as_uri())
    form(opened, "made-bytes").get_by_role("textbox").fill("1.5 GiB")
    form(opened, "made-bytes").get_by_role("button", name="Check").click()
    expect(form(opened, "made-bytes").locator(".ls-verdict")).to_have_attribute("data-state", "pass")
    expect(opened.get_by_text("This browser stores nothing")).to_be_visible()
    expect(opened.get_by_text(f"Progress: 1 of {len(MADE)} exercises done")).to_be_visible()
    assert problems.all() == []
    opened.close()


@pytest.mark.parametrize(
    "broken",
    [
        "{",
        "[]",
        "null",
        '{"version": 9, "exercises": {"made-bytes": {}}}',
        '{"version": 1, "exercises": {"made-bytes": 3}}',
    ],
)
def test_broken_browser_storage_starts_afresh(page: Page, broken: str) -> None:
    page.evaluate("text => localStorage.setItem('labsupport-progress', text)", broken)
    page.reload()
    form(page, "made-bytes").get_by_role("textbox").fill("1.5 GiB")
    form(page, "made-bytes").get_by_role("button", name="Check").click()
    expect(form(page, "made-bytes").locator(".ls-verdict")).to_have_attribute("data-state", "pass")


def test_without_javascript_the_questions_read_as_text(browser: Browser, tmp_path: Path) -> None:
    path = write_page(tmp_path, list(MADE), form_of(next(record for record in MADE if record.id == "made-choice")))
    context = browser.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto(path.as_uri())
    words = opened.locator("main").inner_text()
    assert "How many?" in words
    assert "c) three" in words
    context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_forms_pass_accessibility_rules_and_fit_a_phone(browser: Browser, tmp_path: Path, theme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    body = "".join(form_of(record) for record in MADE) + LIST + "<div data-progress></div>"
    path = write_page(tmp_path, list(MADE), body)
    context = browser.new_context(viewport={"width": 360, "height": 740})
    opened = context.new_page()
    opened.goto(path.as_uri())
    opened.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
    for name, text in (("made-bytes", "12 GiB"), ("made-shape", "(8, 12, 1024)")):
        form(opened, name).get_by_role("textbox").fill(text)
        form(opened, name).get_by_role("button", name="Check").click()
        form(opened, name).get_by_role("button", name="Hint").click()
    found = Axe().run(opened, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa"]})
    assert found.violations_count == 0, found.generate_report()
    assert opened.evaluate("document.documentElement.scrollWidth") <= 360
    context.close()


def test_print_shows_the_question_and_no_buttons(page: Page) -> None:
    page.emulate_media(media="print")
    asked = form(page, "made-choice")
    expect(asked.get_by_text("How many?")).to_be_visible()
    expect(asked.locator(".ls-buttons")).to_be_hidden()


# The self-check page.

LIST = (
    '<div class="ls-checklist docutils container"><ol>'
    + "".join(f"<li><p>{text}</p></li>" for text in CHECKLIST)
    + "</ol></div>"
)


@pytest.fixture
def self_check(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    path = write_page(tmp_path, list(MADE), form_of(MADE[0]) + LIST + "<div data-progress><p>without script</p></div>")
    context = browser.new_context()
    opened = context.new_page()
    problems = collect_problems(opened)
    opened.goto(path.as_uri())
    yield opened
    assert problems.all() == []
    context.close()


def item(page: Page, number: int) -> Any:
    return page.locator(".ls-checklist > ol > li").nth(number - 1)


def test_passing_on_the_page_ticks_the_item(self_check: Page) -> None:
    expect(item(self_check, 9)).to_contain_text("○ Open: 0 of 1 exercises done")
    expect(item(self_check, 1)).to_contain_text("no exercise yet")
    form(self_check, "made-bytes").get_by_role("textbox").fill("1.5 GiB")
    form(self_check, "made-bytes").get_by_role("button", name="Check").click()
    expect(item(self_check, 9)).to_contain_text("✓ Ticked: 1 of 1 exercises done")
    expect(self_check.get_by_role("table")).to_contain_text(f"1 of {len(MADE)}")
    item(self_check, 9).get_by_text("Ticked").click()
    expect(item(self_check, 9)).to_contain_text("About made-bytes: passed")


def test_the_progress_file_of_the_notebooks_is_taken_in(self_check: Page, tmp_path: Path) -> None:
    kept = ProgressStore(tmp_path / "progress.json")
    kept.record("made-bytes", "pass", "h")
    kept.record("made-written", "review", "h")
    box = self_check.get_by_role("textbox", name="Progress as text")
    box.fill((tmp_path / "progress.json").read_text(encoding="utf-8"))
    self_check.get_by_role("button", name="Take in this text").click()
    expect(self_check.get_by_text("Taken in: 2 exercises.")).to_be_visible()
    expect(item(self_check, 9)).to_contain_text("Ticked")
    expect(self_check.get_by_text(f"Progress: 2 of {len(MADE)} exercises done")).to_be_visible()


def test_the_text_of_the_page_is_a_progress_file_of_the_notebooks(self_check: Page, tmp_path: Path) -> None:
    form(self_check, "made-bytes").get_by_role("textbox").fill("1.5 GiB")
    form(self_check, "made-bytes").get_by_role("button", name="Check").click()
    self_check.get_by_role("button", name="Show my progress as text").click()
    (tmp_path / "progress.json").write_text(self_check.get_by_role("textbox", name="Progress as text").input_value())
    kept = ProgressStore(tmp_path / "progress.json")
    assert kept.state("made-bytes") == "pass"
    assert kept.notes() == []


def test_a_text_that_is_no_progress_changes_nothing(self_check: Page) -> None:
    self_check.get_by_role("textbox", name="Progress as text").fill("hello")
    self_check.get_by_role("button", name="Take in this text").click()
    expect(self_check.get_by_text("Nothing was changed.")).to_be_visible()
    assert self_check.evaluate("localStorage.getItem('labsupport-progress')") is None


def test_everything_is_forgotten_only_after_a_yes(self_check: Page) -> None:
    form(self_check, "made-bytes").get_by_role("textbox").fill("1.5 GiB")
    form(self_check, "made-bytes").get_by_role("button", name="Check").click()
    for answer, words in (("dismiss", "Ticked"), ("accept", "Open")):
        self_check.once("dialog", lambda dialog, answer=answer: getattr(dialog, answer)())
        self_check.get_by_role("button", name="Forget everything").click()
        expect(item(self_check, 9)).to_contain_text(words)


def test_the_page_of_the_book_lists_the_eighteen_items_with_their_chapters() -> None:
    text = (ROOT / "book" / "self-check.md").read_text(encoding="utf-8")
    assert "ls-checklist" in text
    assert "data-progress" in text
    for number, words in enumerate(CHECKLIST, 1):
        assert f"\n{number}. {words} ({{chapter}}`chapter " in text
    names = {path.stem for path in (ROOT / "chapters").glob("*.ipynb")} | {
        path.stem for path in (ROOT / "book" / "chapters").glob("*.md")
    }
    assert {int(name[:2]) for name in names} <= set(CHAPTERS)
    for name in names:
        if f"<chapters/{name[:3]}" in text:
            assert f"<chapters/{name}>" in text
