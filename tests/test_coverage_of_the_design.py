"""The twelve set exercises and the eighteen checklist items are all in the book: what each is, and where it stands.

The tables below are the promise; records, notebooks and chapters are read to see whether it is kept. Nothing here may
be relaxed because a record has moved: fixed ids are called by name from outside the repository.
"""

import inspect
import re
from pathlib import Path

import nbformat
import pytest

from labsupport import exercises
from labsupport.grading import Exercise, Function, Number, Several, Shape
from labsupport.operator_card import CardExercise

ROOT = Path(__file__).resolve().parents[1]

#: The twelve set exercises: what is asked, and the ids that ask it.
TWELVE: dict[int, tuple[str, tuple[str, ...]]] = {
    1: ("shape of a batched product, batch and reduced axes marked", ("bmm-shape", "bmm-axes")),
    2: ("FLOPs and bytes of a GEMM", ("gemm-flops", "gemm-bytes")),
    3: ("softmax does not change under a shift; naive against stable", ("softmax-stable", "softmax-shift")),
    4: ("the gradient p - y", ("softmax-ce-grad",)),
    5: ("backward shapes of GELU(XW + b)", ("gelu-backward-shapes",)),
    6: ("sums in three precisions and several orders", ("sum-orders",)),
    7: ("Welford against the naive variance", ("welford", "welford-merge")),
    8: ("LoRA with r = 8, 16, 64", ("lora-ratio",)),
    9: ("bytes of attention's scores", ("score-bytes",)),
    10: ("weighted mean of 7 and 5 tokens", ("weighted-mean",)),
    11: ("finite differences and their error curve", ("gradient-check",)),
    12: ("an operator card", ("operator-card",)),
}

#: Every fixed id: kind of record, and for a number its unit, for a function its number of arguments without defaults.
FIXED: dict[str, tuple[type[Exercise], str | int | None]] = {
    "bmm-shape": (Shape, None),
    "bmm-axes": (Several, None),
    "gemm-flops": (Number, "FLOP"),
    "gemm-bytes": (Number, "B"),
    "softmax-stable": (Function, 1),
    "softmax-shift": (Several, None),
    "softmax-ce-grad": (Function, 2),
    "gelu-backward-shapes": (Several, None),
    "sum-orders": (Function, 1),
    "welford": (Function, 1),
    "welford-merge": (Function, 2),
    "lora-ratio": (Several, None),
    "score-bytes": (Number, "B"),
    "weighted-mean": (Function, 2),
    "gradient-check": (Function, 3),
    "operator-card": (CardExercise, None),
    "linear-backward": (Function, 3),
    "softmax-backward": (Function, 2),
    "layer-norm": (Function, 3),
    "adam-step": (Function, 9),
    "clip-global-norm": (Function, 2),
    "online-merge": (Function, 2),
    "top-p": (Function, 2),
    "tiled-matmul": (Function, 3),
    "broadcast-shape": (Function, 2),
    "fp-encode": (Function, 3),
}

#: The eighteen items of the self-check list, by a phrase of the page.
ITEMS: dict[int, str] = {
    1: "output shape of (B, S, H) @ (H, V)",
    2: "batched matrix product apart",
    3: "transposed view is contiguous",
    4: "norm, rank, eigenvalue and singular value",
    5: "low-rank factorisation and by LoRA",
    6: "GEMM tiling",
    7: "minimum memory traffic and the arithmetic intensity",
    8: "expectation, variance, covariance and conditional probability",
    9: "stable softmax and LogSumExp",
    10: "cross-entropy, entropy and KL divergence",
    11: "chain rule",
    12: "gradient shapes of a linear layer",
    13: "p - y",
    14: "residual connection",
    15: "precision, dynamic range, overflow and underflow",
    16: "FP16 usually needs loss scaling",
    17: "parallel reduction may differ",
    18: "attention's intermediates",
}

NAMED = re.compile(r"\bitems? ((?:\d+)(?:(?:, | and )\d+)*)\)?")
each_fixed = pytest.mark.parametrize("name", FIXED)
each_item = pytest.mark.parametrize("item", ITEMS)


def notebook_of(record: Exercise) -> str:
    """Path, from the root, of the notebook in which the record is answered."""
    folder = "chapters" if record.place == "chapter" else "exercises"
    return f"{folder}/{record.chapter:02d}-{exercises.module_of(record.id).replace('_', '-')}.ipynb"


def asks(notebook: str, name: str) -> bool:
    """Whether a cell of the notebook grades the exercise."""
    cells = nbformat.read(ROOT / notebook, as_version=4).cells
    return any(cell.cell_type == "code" and f'check("{name}"' in cell.source for cell in cells)


def items_named_in(chapter: Path) -> set[int]:
    """Numbers of the checklist items that the chapter's text names."""
    text = chapter.read_text(encoding="utf-8")
    return {int(number) for group in NAMED.findall(text) for number in re.findall(r"\d+", group)}


def required_arguments(function: object) -> int:
    """Arguments of a callable that have no default and may be given by position."""
    assert callable(function)
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in kinds and p.default is p.empty for p in inspect.signature(function).parameters.values())


def test_there_are_twelve_and_eighteen() -> None:
    assert list(TWELVE) == list(range(1, 13))
    assert list(ITEMS) == list(range(1, 19))
    assert {name for _, names in TWELVE.values() for name in names} <= set(FIXED)


@pytest.mark.parametrize("number", TWELVE)
def test_each_of_the_twelve_is_graded_in_a_notebook_and_explained(number: int) -> None:
    what, names = TWELVE[number]
    for name in names:
        record = exercises.get(name)
        notebook = notebook_of(record)
        print(f"exercise {number:2}, {what}: {name}, chapter {record.chapter}, section {record.section}, {notebook}")
        assert record.place == "exercises"
        assert asks(notebook, name)
        assert asks(notebook.replace("exercises/", "solutions/"), name)


@each_fixed
def test_a_fixed_id_has_its_kind(name: str) -> None:
    kind, detail = FIXED[name]
    record = exercises.get(name)
    assert type(record) is kind
    if isinstance(record, Number):
        assert record.unit == detail
    if isinstance(record, Function):
        assert required_arguments(record.oracle) == detail


@each_fixed
def test_a_fixed_id_takes_the_arguments_of_its_signature(name: str) -> None:
    record = exercises.get(name)
    notebook = notebook_of(record)
    cells = nbformat.read(ROOT / notebook.replace("exercises/", "solutions/"), as_version=4).cells
    place = next(i for i, cell in enumerate(cells) if f'check("{name}"' in cell.source)
    if isinstance(record, Function):
        head = re.search(r"^def \w+\((.*?)\)", cells[place - 1].source, re.MULTILINE)
        assert head is not None
        required = [a for a in head.group(1).split(",") if a.strip() and "=" not in a]
        assert len(required) == FIXED[name][1]


@each_item
def test_an_item_is_on_the_page_ticked_by_an_exercise_and_named_in_a_chapter(item: int) -> None:
    page = (ROOT / "book" / "self-check.md").read_text(encoding="utf-8")
    line = next(line for line in page.splitlines() if line.startswith(f"{item}. "))
    assert ITEMS[item] in line
    ticking = [record.id for record in exercises.all_exercises() if item in record.checklist]
    chapters = [c.stem for c in sorted((ROOT / "book" / "chapters").glob("[0-9]*.md")) if item in items_named_in(c)]
    print(f"item {item:2}: {len(ticking)} exercises, such as {', '.join(ticking[:4])}; named in {', '.join(chapters)}")
    assert ticking
    assert chapters


@each_item
def test_an_item_is_ticked_in_a_chapter_to_which_its_line_points(item: int) -> None:
    page = (ROOT / "book" / "self-check.md").read_text(encoding="utf-8")
    line = next(line for line in page.splitlines() if line.startswith(f"{item}. "))
    linked = {int(number) for number in re.findall(r"<chapters/(\d\d)-", line)}
    ticked_in = {record.chapter for record in exercises.all_exercises() if item in record.checklist}
    assert linked
    assert linked <= ticked_in
