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
    "milliseconds": Fraction(1, 10**3), "microseconds": Fraction(1, 10**6), "nanoseconds": Fraction(1, 10**9),
    "minutes": Fraction(60), "hours": Fraction(3600),
}  # fmt: skip
#: Prefixes spelled out stand before a unit that is spelled out: gigabytes, mebibytes, kilobits.
_SPELLED = {
    "kilo": 10**3, "mega": 10**6, "giga": 10**9, "tera": 10**12,
    "kibi": 2**10, "mebi": 2**20, "gibi": 2**30, "tebi": 2**40,
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
        for name in ("B", "byte", "bytes", "Byte", "Bytes") if not prefix else ("B",):
            units[prefix + name] = (Fraction(size), "B")
        for name in ("bit", "bits"):
            units[prefix + name] = (Fraction(size, 8), "B")
    for (prefix, size), (name, part) in product(_SPELLED.items(), {"byte": 1, "bit": 8}.items()):
        for ending in ("", "s"):
            units[prefix + name + ending] = (Fraction(size, part), "B")
    for (prefix, size), name in product(_SPELLED.items(), ("flop", "flops")):
        if prefix[-2:] != "bi":
            units[prefix + name] = (Fraction(size), "FLOP")
    return units


_UNITS = _table()
#: FLOPS, in capitals, is a rate by custom; FLOPs is a plural.
_RATES = {prefix + "FLOPS": (Fraction(size), (("FLOP", 1), ("s", -1))) for prefix, size in _SI.items()}
#: What may follow a number without a dimension. A nat is the 1 of information in natural logarithms.
_PLAIN = {
    "": Fraction(1), "1": Fraction(1), "%": Fraction(1, 100), "percent": Fraction(1, 100), "per cent": Fraction(1, 100),
    "x": Fraction(1), "×": Fraction(1), "times": Fraction(1), "nat": Fraction(1), "nats": Fraction(1),
}  # fmt: skip
#: Quantities that only count: their names may stand behind a number that has no unit, if the question names them.
COUNTS = frozenset({"token", "parameter", "element"})
_WHOLE = r"(?:[1-9][0-9]{0,2}(?:[,'’\u202f\u00a0 ][0-9]{3})+(?![0-9])|[0-9]+(?:_[0-9]+)*|(?=\.[0-9]))"
_DECIMAL = _WHOLE + r"(?:\.[0-9]*)?(?:[eE][+\-−]?[0-9]+)?"
_POWER = r"(?:\s*(?:\^|\*\*)\s*(?:[+\-−]?[0-9]+|\([+\-−]?[0-9]+\)|\{[+\-−]?[0-9]+\}))?"
_BETWEEN = r"\s*(?:\*(?!\*)|[×x·⋅/])\s*"
#: A number, or a product of numbers and powers: ``1.5``, ``2^-24``, ``1.5 * 2**30``, ``2/3``; ≈ may stand before it.
_NUMBER = re.compile(rf"[≈~=]?\s*[+\-−]?{_DECIMAL}{_POWER}(?:{_BETWEEN}{_DECIMAL}{_POWER})*")
_FACTOR = re.compile(rf"([×x*·⋅/]?)\s*({_DECIMAL})({_POWER})")
_SUPERSCRIPTS = str.maketrans("⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "+-0123456789")
_RAISED = re.compile("[⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
#: What follows a number and cannot be a unit: another number.
_MORE = re.compile(r"(?:[+\-−–±^]|\*\*|\.\.)?\s*\.?[0-9]")
_LONGEST, _LARGEST_EXPONENT, _LARGEST_POWER = 200, 400, 5000


class UnknownUnit(ValueError):
    """A unit that is not in the table; ``close`` holds up to two that are spelled alike."""

    def __init__(self, unit: str) -> None:
        super().__init__(unit)
        self.unit = unit[:20]
        same = [name for name in _UNITS if name.casefold() == unit.casefold()]
        self.close = same[:2] or difflib.get_close_matches(unit, [*_UNITS, *_RATES, "%"], n=2, cutoff=0.6)


class NotANumber(ValueError):
    """A text that is not one number with a unit; the message is the name of the sentence that says why."""


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
    if len(text) > _LONGEST:
        raise NotANumber("parse")
    text = _RAISED.sub(lambda match: "^" + match.group().translate(_SUPERSCRIPTS), text)
    match = _NUMBER.match(text)
    number = match.group() if match else ""
    if not any(sign in "0123456789" for sign in number):
        raise NotANumber("parse")
    value, rest = _exact(number), text[len(number) :].strip()
    if re.match(r",\s*[0-9]", rest):
        raise NotANumber("comma")
    if _MORE.match(rest):
        raise NotANumber("more")
    return value, rest


def _exact(number: str) -> Fraction:
    plain = number.replace("−", "-").lstrip("≈~= ")
    value = Fraction(-1 if plain.startswith("-") else 1)
    for operator, decimal, power in _FACTOR.findall(plain.lstrip("+-")):
        factor = _raised(_decimal(decimal), power)
        if operator == "/" and not factor:
            raise NotANumber("infinite")
        value = value / factor if operator == "/" else value * factor
    return value


def _decimal(text: str) -> Fraction:
    plain = re.sub("[_,'’\u202f\u00a0 ]", "", text)
    _, _, exponent = plain.lower().partition("e")
    if exponent and (len(exponent) > 5 or abs(int(exponent)) > _LARGEST_EXPONENT):
        raise NotANumber("huge")
    try:
        return Fraction(plain)
    except ValueError:
        raise NotANumber("parse") from None


def _raised(base: Fraction, power: str) -> Fraction:
    """Raise a number to a whole power, within bounds: no text may cost more than a moment."""
    digits = power.strip(" \t^*(){}")
    if not digits:
        return base
    exponent = int(digits) if len(digits) <= 6 else _LARGEST_POWER + 1
    size = len(str(base.numerator)) + len(str(base.denominator)) - 1
    if abs(exponent) * size > _LARGEST_POWER:
        raise NotANumber("huge")
    if not base and exponent < 0:
        raise NotANumber("infinite")
    return base**exponent


def is_count(dimension: Dimension) -> bool:
    """Return whether a quantity only counts something: tokens, parameters or elements."""
    return len(dimension) == 1 and dimension[0][0] in COUNTS and dimension[0][1] == 1


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a question, singular and plural: what a number without a unit may be said to count."""
    found = {word.casefold() for word in re.findall("[A-Za-z]{3,}", text)}
    found |= {word.removesuffix("s") for word in found} | {word + "s" for word in found if not word.endswith("s")}
    return tuple(sorted(found))


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
