"""Quantities of this book: a small parser of numbers with units, exact to the last digit.

``KB MB GB`` are powers of 1000, ``KiB MiB GiB`` powers of 1024: they are never mixed up here. Values are
fractions, so that neither a float's range nor its rounding decides; no text is ever evaluated.
"""

import difflib
import re
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

#: A dimension is a product of base quantities with exponents, for example (("B", 1), ("s", -1)).
Dimension = tuple[tuple[str, int], ...]
NONE: Dimension = ()

_SI = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_TIMES = {
    "s": Fraction(1), "sec": Fraction(1), "second": Fraction(1), "seconds": Fraction(1),
    "ms": Fraction(1, 10**3), "µs": Fraction(1, 10**6), "us": Fraction(1, 10**6), "μs": Fraction(1, 10**6),
    "ns": Fraction(1, 10**9), "min": Fraction(60), "h": Fraction(3600),
}  # fmt: skip
_COUNTED = {
    "FLOP": ("FLOP", "FLOPs", "flop", "flops", "Flop", "Flops"),
    "token": ("token", "tokens"),
    "parameter": ("parameter", "parameters", "param", "params"),
    "element": ("element", "elements"),
}
_WORDS = {"FLOP": "computation", "B": "memory", "token": "tokens", "s": "time",
          "parameter": "parameters", "element": "elements"}  # fmt: skip


def _table() -> dict[str, tuple[Fraction, str]]:
    units: dict[str, tuple[Fraction, str]] = {name: (size, "s") for name, size in _TIMES.items()}
    for base, names in _COUNTED.items():
        for (prefix, size), name in product(_SI.items(), names):
            units[prefix + name] = (Fraction(size), base)
    for prefix, size in {**_SI, **_BINARY}.items():
        for name in ("B", "byte", "bytes") if not prefix else ("B",):
            units[prefix + name] = (Fraction(size), "B")
        for name in ("bit", "bits"):
            units[prefix + name] = (Fraction(size, 8), "B")
    return units


_UNITS = _table()
#: FLOPS, in capitals, is a rate by custom; FLOPs is a plural.
_RATES = {prefix + "FLOPS": (Fraction(size), (("FLOP", 1), ("s", -1))) for prefix, size in _SI.items()}
_PLAIN = {"": Fraction(1), "1": Fraction(1), "%": Fraction(1, 100)}
_NUMBER = re.compile(
    r"[+\-−]?(?:\d{1,3}(?:[,\u202f\u00a0 ]\d{3})+(?!\d)|\d+(?:_\d+)*|(?=\.\d))(?:\.\d*)?"
    r"(?:[eE][+\-−]?\d+|\s*[×x*]\s*10(?:\^|\*\*)[+\-−]?\d+)?"
)
_LONGEST, _LARGEST_EXPONENT = 200, 400


class UnknownUnit(ValueError):
    """A unit that is not in the table; ``close`` holds up to two that are spelled alike."""

    def __init__(self, unit: str) -> None:
        super().__init__(unit)
        self.unit = unit[:20]
        same = [name for name in _UNITS if name.casefold() == unit.casefold()]
        self.close = same[:2] or difflib.get_close_matches(unit, [*_UNITS, *_RATES, "%"], n=2, cutoff=0.6)


class NotANumber(ValueError):
    """A text that does not start with a number; the message is ``empty``, ``parse`` or ``huge``."""


@dataclass(frozen=True)
class Unit:
    """A unit: its size in base units, and its dimension."""

    size: Fraction
    dimension: Dimension


@dataclass(frozen=True)
class Quantity:
    """An exact value in base units (FLOP, B, token, s, 1), and its dimension."""

    value: Fraction
    dimension: Dimension


def parse_unit(text: str) -> Unit:
    """Read a unit such as ``GiB``, ``TFLOP/s`` or ``FLOP/B``; UnknownUnit where it is not one."""
    text = text.strip().replace(" per ", "/")
    if text in _PLAIN:
        return Unit(_PLAIN[text], NONE)
    above, *below = [part.strip() for part in text.split("/")]
    size, exponents = Fraction(1), dict[str, int]()
    for place, name in enumerate([above, *below]):
        sign = -1 if place else 1
        if name in _UNITS:
            factor, base = _UNITS[name]
            parts: Dimension = ((base, 1),)
        elif name in _RATES:
            factor, parts = _RATES[name]
        elif name == "1" and not place:
            continue
        else:
            raise UnknownUnit(text)
        size *= factor**sign
        for base, exponent in parts:
            exponents[base] = exponents.get(base, 0) + sign * exponent
    return Unit(size, tuple(sorted((base, power) for base, power in exponents.items() if power)))


def parse(text: str) -> tuple[Fraction, str]:
    """Split a text into an exact number and the unit after it (maybe empty). NotANumber where it has none."""
    text = text.strip()
    if not text:
        raise NotANumber("empty")
    match = _NUMBER.match(text)
    number = match.group() if match else ""
    if not any(sign.isdigit() for sign in number) or len(text) > _LONGEST:
        raise NotANumber("parse")
    return _exact(number), text[len(number) :].strip()


def _exact(number: str) -> Fraction:
    plain = number.replace("−", "-")
    plain = re.sub(r"\s*[×x*]\s*10(?:\^|\*\*)", "e", plain)
    plain = re.sub(r"[_,\u202f\u00a0 ]", "", plain)
    _, _, exponent = plain.lower().partition("e")
    if exponent and (len(exponent) > 5 or abs(int(exponent)) > _LARGEST_EXPONENT):
        raise NotANumber("huge")
    try:
        return Fraction(plain)
    except ValueError:
        raise NotANumber("parse") from None


def describe(dimension: Dimension) -> str:
    """Name a dimension in words: memory, computation per time, no unit."""
    above = [_WORDS[base] for base, power in dimension if power > 0]
    below = [_WORDS[base] for base, power in dimension if power < 0]
    if not above and not below:
        return "no unit"
    return " per ".join(["·".join(above) or "one", *below])


def example(dimension: Dimension) -> str:
    """Return a unit of a dimension, to show how one is written."""
    names = {"FLOP": "GFLOP", "B": "GiB", "token": "token", "s": "ms", "parameter": "parameters", "element": "elements"}
    above = [names[base] for base, power in dimension if power > 0]
    below = ["s" if base == "s" else base for base, power in dimension if power < 0]
    return "/".join(["·".join(above) or "1", *below]) if dimension else "%"
