"""A question, a hint or a solution reads in every client: its formulas need no TeX."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from labsupport.exercises import all_exercises
from labsupport.grading.formulas import formula_html, formula_text
from labsupport.grading.solutions import explanation

FORMULAS = re.compile(r"```.*?```|`[^`\n]+`|\$\$([^$]+)\$\$|\$([^$\n]+)\$", re.DOTALL)


def texts(part: Any) -> Iterator[str]:
    """Every text of a record, at any depth."""
    if isinstance(part, str):
        yield part
    elif dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            yield from texts(getattr(part, field.name))
    elif isinstance(part, Mapping):
        for value in part.values():
            yield from texts(value)
    elif isinstance(part, tuple | list):
        for value in part:
            yield from texts(value)


def formulas(record: Any) -> set[str]:
    found = [*texts(record), explanation(record) or ""]
    return {match[1] or match[2] for text in found for match in FORMULAS.finditer(text) if match[1] or match[2]}


@pytest.mark.parametrize("record", all_exercises(), ids=lambda record: record.id)
def test_every_formula_reads_without_tex(record):
    for tex in formulas(record):
        assert "\\" not in formula_text(tex), tex
        assert "\\" not in formula_html(tex), tex


def test_the_search_finds_formulas():
    assert sum(len(formulas(record)) for record in all_exercises()) > 500


#: *stress*, which only a solution knows: in a question a single star might be a product.
STRESS = re.compile(r"(?<![\w*])\*[^*\s](?:[^*\n]*[^*\s])?\*(?![\w*])")
MARKED = re.compile(r"`[^`\n]+`|\$\$[^$]+\$\$|\$[^$\n]+\$")


def stressed(record: Any) -> list[str]:
    """What stands between single stars in a record's own texts, where a reader would see the stars."""
    return [star for text in texts(record) for star in STRESS.findall(MARKED.sub("", text))]


@pytest.mark.parametrize("record", all_exercises(), ids=lambda record: record.id)
def test_nothing_is_stressed_by_single_stars(record):
    assert stressed(record) == []


def test_the_search_finds_single_stars():
    record = dataclasses.replace(all_exercises()[0], prompt="The rate of the *last* output, **not** `a*b` or $a*b*c$.")
    assert stressed(record) == ["*last*"]
