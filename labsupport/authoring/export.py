"""Exercise records as data for the rendered book, so that a page can judge without a kernel.

``python -m labsupport.authoring.export`` writes ``book/_static/exercises-data.js``, a classic script with one
assignment, which a page may load from a file. It must never contain a function, a path or a time, and the
same records always give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

from labsupport.authoring.book import EXERCISES
from labsupport.grading import units
from labsupport.grading.contents import CHAPTERS, CHECKLIST
from labsupport.grading.files import write_atomically
from labsupport.grading.messages import MESSAGES
from labsupport.grading.number import SLIP_RTOL, SLIPS, quantity, read, words
from labsupport.grading.records import Choice, Exercise, Number, Several, Shape
from labsupport.grading.units import Dimension
from labsupport.grading.verdict import SYMBOLS, WORDS

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "window.labsupportExercises"
#: Kinds that need no kernel. A Several is answerable when each of its parts is.
PAGE_KINDS = (Choice, Number, Shape)

_FRACTION = {"type": "array", "items": {"type": "string", "pattern": "^-?[0-9]+$"}, "minItems": 2, "maxItems": 2}
_TEXT = {"type": "string", "minLength": 1}
_MISTAKES = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"name": _TEXT, "message": _TEXT, "section": {"type": ["string", "null"]}, "answer": {}},
        "required": ["name", "message", "section", "answer"],
        "additionalProperties": False,
    },
}
_COMMON = {"kind": {"enum": ["choice", "number", "shape", "several"]}, "section": _TEXT, "prompt": _TEXT}
_PART: dict[str, Any] = {
    "type": "object",
    "properties": {
        **_COMMON,
        "options": {"type": "array", "minItems": 2, "items": {
            "type": "object",
            "properties": {"key": _TEXT, "text": _TEXT, "explanation": _TEXT, "correct": {"type": "boolean"}},
            "required": ["key", "text", "explanation", "correct"],
            "additionalProperties": False,
        }},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        "value": _FRACTION,
        "dimension": {"type": "array", "items": {"type": "array", "minItems": 2, "maxItems": 2}},
        "exact": {"type": "boolean"},
        "rtol": _FRACTION,
        "percent": _TEXT,
        "unit": {"type": ["string", "null"]},
        "example": _TEXT,
        "words": {"type": "array", "items": _TEXT},
        "mistakes": _MISTAKES,
    },
    "required": ["kind", "section", "prompt"],
    "allOf": [
        {"if": {"properties": {"kind": {"const": kind}}}, "then": {"required": needed}}
        for kind, needed in (
            ("choice", ["options"]),
            ("shape", ["shape", "mistakes"]),
            ("number", ["value", "dimension", "exact", "rtol", "percent", "unit", "example", "words", "mistakes"]),
        )
    ],
    "additionalProperties": False,
}  # fmt: skip
#: The form of the exported data; checked each time before it is written.
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "version": {"const": 1},
        "chapters": {"type": "object", "additionalProperties": _TEXT},
        "checklist": {"type": "array", "items": _TEXT, "minItems": 18, "maxItems": 18},
        "exercises": {
            "type": "object",
            "propertyNames": {"pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"},
            "additionalProperties": {
                "type": "object",
                "properties": {
                    "chapter": {"type": "integer"},
                    "title": _TEXT,
                    "points": {"type": "integer", "minimum": 0},
                    "checklist": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 18}},
                    "form": {
                        "type": "object",
                        "properties": {
                            **_PART["properties"],
                            "contract": {"type": "string"},
                            "hints": {"type": "array", "items": _TEXT, "minItems": 1},
                            "parts": {"type": "array", "minItems": 1, "items": {
                                "type": "object",
                                "properties": {"name": _TEXT, "part": _PART},
                                "required": ["name", "part"],
                                "additionalProperties": False,
                            }},
                        },
                        "required": [*_PART["required"], "contract", "hints"],
                        "allOf": [
                            *_PART["allOf"],
                            {"if": {"properties": {"kind": {"const": "several"}}}, "then": {"required": ["parts"]}},
                        ],
                        "additionalProperties": False,
                    },
                },
                "required": ["chapter", "title", "points", "checklist"],
                "additionalProperties": False,
            },
        },
        "order": {"type": "array", "items": _TEXT},
        "messages": {"type": "object", "additionalProperties": _TEXT},
        "symbols": {"type": "object", "additionalProperties": _TEXT},
        "words": {"type": "object", "additionalProperties": _TEXT},
        "slips": {"type": "array", "items": {
            "type": "object",
            "properties": {"name": _TEXT, "ratio": _FRACTION, "message": _TEXT, "of": {"type": "string"}},
            "required": ["name", "ratio", "message", "of"],
            "additionalProperties": False,
        }},
        "slipRtol": _FRACTION,
        "units": {"type": "object", "additionalProperties": {"type": "array", "minItems": 2, "maxItems": 2}},
        "plainUnits": {"type": "object", "additionalProperties": _FRACTION},
        "unitOrder": {"type": "array", "items": {"type": "string"}},
        "dimensionWords": {"type": "object", "additionalProperties": _TEXT},
        "counts": {"type": "array", "items": _TEXT},
    },
    "required": ["version", "chapters", "checklist", "exercises", "order", "messages", "symbols", "words", "slips",
                 "slipRtol", "units", "plainUnits", "unitOrder", "dimensionWords", "counts"],
    "additionalProperties": False,
}  # fmt: skip


def main(argv: list[str]) -> int:
    """Write the data of every exercise of the book; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m labsupport.authoring.export", description="Export the exercises.")
    parser.add_argument("--root", type=Path, default=ROOT, help="the book's folder")
    options = parser.parse_args(argv)
    from labsupport.exercises import all_exercises

    write(options.root / EXERCISES, all_exercises())
    return 0


def write(path: Path, records: Iterable[Exercise]) -> bool:
    """Write the script; return whether its text changed. Raises jsonschema.ValidationError on a fault of ours."""
    import jsonschema

    data = exported(records)
    jsonschema.validate(data, SCHEMA)
    text = script(data)
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return False  # an unchanged file keeps its time, so that the pages need not be rendered again
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, text)
    return True


def script(data: dict[str, Any]) -> str:
    """The data as a classic script; safe inside a script element too."""
    text = json.dumps(data, ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return f"{VARIABLE} = {text};\n".replace("</", "<\\u002f")


def exported(records: Iterable[Exercise]) -> dict[str, Any]:
    """Everything that the page's judge needs: the exercises, the fixed sentences, the table of units."""
    records = list(records)
    return {
        "version": 1,
        "chapters": {str(number): name for number, name in CHAPTERS.items()},
        "checklist": list(CHECKLIST),
        "exercises": {record.id: _exercise(record) for record in records},
        "order": [record.id for record in records],
        "messages": {
            name: text for name, text in MESSAGES.items() if name.split("-")[0] in ("shape", "number", "choice")
        },
        "symbols": dict(SYMBOLS),
        "words": dict(WORDS),
        "slips": [
            {"name": slip.name, "ratio": _fraction(slip.ratio), "message": slip.message, "of": slip.of}
            for slip in SLIPS
        ],
        "slipRtol": _fraction(SLIP_RTOL),
        **_unit_tables(),
    }


def _unit_tables() -> dict[str, Any]:
    """The judge's own table of units: name -> (size, dimension), with the order in which spellings are compared."""
    single = {name: [_fraction(size), [[base, 1]]] for name, (size, base) in units._UNITS.items()}
    rates = {name: [_fraction(size), _dimension(parts)] for name, (size, parts) in units._RATES.items()}
    return {
        "units": {**single, **rates},
        "plainUnits": {name: _fraction(size) for name, size in units._PLAIN.items()},
        "unitOrder": [*units._UNITS, *units._RATES, "%"],
        "dimensionWords": dict(units._WORDS),
        "counts": sorted(units.COUNTS),
    }


def answerable(record: Exercise) -> bool:
    """Whether a page can judge this exercise without a kernel."""
    if isinstance(record, Several):
        return all(isinstance(part, PAGE_KINDS) for part in record.parts.values())
    return isinstance(record, PAGE_KINDS)


def _exercise(record: Exercise) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "chapter": record.chapter,
        "title": record.title,
        "points": record.points,
        "checklist": list(record.checklist),
    }
    if answerable(record):
        entry["form"] = {**_part(record), "contract": record.contract, "hints": list(record.hints)}
    return entry


def _part(record: Exercise) -> dict[str, Any]:
    common = {"kind": record.kind, "section": record.section, "prompt": record.prompt}
    if isinstance(record, Choice):
        return {**common, "options": [
            {"key": key, "text": option.text, "explanation": option.explanation, "correct": option.correct}
            for key, option in record.options.items()
        ]}  # fmt: skip
    if isinstance(record, Shape):
        mistakes = [_mistake(mistake, [int(size) for size in mistake.answer]) for mistake in record.mistakes]
        return {**common, "shape": [int(size) for size in record.expected], "mistakes": mistakes}
    if isinstance(record, Number):
        return {**common, **_number(record)}
    if isinstance(record, Several):
        parts = [{"name": name, "part": _part(part)} for name, part in record.parts.items()]
        return {**common, "parts": parts}
    raise TypeError(f"exercise {record.id!r}: a page cannot judge the kind {record.kind!r}")


def _number(record: Number) -> dict[str, Any]:
    due = quantity(record.expected, record.unit)
    mistakes = []
    for mistake in record.mistakes:
        known = read(mistake.answer, record.default_unit or record.unit, due.dimension)
        if known.dimension == due.dimension:
            mistakes.append(_mistake(mistake, _fraction(known.value)))
    return {
        "value": _fraction(due.value),
        "dimension": _dimension(due.dimension),
        "exact": record.exact,
        "rtol": _fraction(Fraction(record.rtol)),
        "percent": f"{100 * record.rtol:g}",
        "unit": record.default_unit,
        "example": units.example(due.dimension),
        "words": list(words(record)),
        "mistakes": mistakes,
    }


def _mistake(mistake: Any, answer: Any) -> dict[str, Any]:
    return {"name": mistake.name, "answer": answer, "message": mistake.message, "section": mistake.section}


def _fraction(value: Fraction) -> list[str]:
    return [str(value.numerator), str(value.denominator)]


def _dimension(dimension: Dimension) -> list[list[Any]]:
    return [[base, power] for base, power in dimension]


_BRACKETS = re.compile(r"(?:torch\.Size)?\s*[(\[]*(.*?)[)\]]*", re.DOTALL)
_BETWEEN = re.compile(r"\s*[,;×x*]\s*|\s+")
_WHOLE = re.compile(r"[+-]?[0-9]+(?:_[0-9]+)*")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][+-]?[0-9]+)?")


def shape_from_text(text: str) -> tuple[Any, ...]:
    """The tuple that a shape typed on a page stands for: ``(8, 12)``, ``8 x 12``, ``[8,12]`` and ``8 12`` are one.

    What is not a whole number stays a float or a string in the tuple; the judge names it.
    """
    match = _BRACKETS.fullmatch(text.strip())
    inner = (match[1] if match else text).strip()
    if inner.endswith(","):
        inner = inner[:-1].rstrip()
    if not inner:
        return ()
    return tuple(_size(item) for item in _BETWEEN.split(inner))


def _size(item: str) -> Any:
    if _WHOLE.fullmatch(item):
        return int(item)
    return float(item) if _DECIMAL.fullmatch(item) else item


if __name__ == "__main__":
    import sys

    sys.exit(main(sys.argv[1:]))
