"""Judges a number with a unit: the dimension first, then the value, exactly or within a relative allowance.

A wrong value is held against the record's mistakes and then against the ratios of common slips, such as
bits for bytes or GiB for GB. It must never say the expected value.
"""

import math
import sys
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from labsupport.grading import units
from labsupport.grading.answers import type_name
from labsupport.grading.compare import Finding
from labsupport.grading.judge import failed, passed
from labsupport.grading.messages import say
from labsupport.grading.records import Number
from labsupport.grading.units import Dimension, Quantity
from labsupport.grading.verdict import Verdict


@dataclass(frozen=True)
class Slip:
    """A slip that shows in the ratio of the answer to the truth. ``of`` limits it to one base quantity."""

    name: str
    ratio: Fraction
    message: str
    of: str = ""


def _both(name: str, factor: int | Fraction, more: str, less: str, of: str = "") -> tuple[Slip, Slip]:
    return Slip(name, Fraction(factor), more, of), Slip(name, 1 / Fraction(factor), less, of)


_PREFIXES = tuple(
    slip
    for power, (binary, decimal) in enumerate([("KiB", "KB"), ("MiB", "MB"), ("GiB", "GB"), ("TiB", "TB")], start=1)
    for slip in _both(
        "binary-prefix",
        Fraction(1024, 1000) ** power,
        f"The ratio is that of {binary} to {decimal}: a power of 1024 was taken where a power of 1000 is due.",
        f"The ratio is that of {decimal} to {binary}: a power of 1000 was taken where a power of 1024 is due.",
        "B",
    )
)
#: Looked through in order; the first whose ratio fits is named.
SLIPS: tuple[Slip, ...] = (
    *_both("multiply-add", 2, "It is twice what is due: is a multiply-add counted twice, or one pass too many?",
           "It is half of what is due: a multiply and an add are two FLOPs.", "FLOP"),
    *_both("forward-backward", 3, "It is three times what is due: is the backward pass counted too?",
           "It is a third of what is due: the backward pass costs about twice the forward pass.", "FLOP"),
    *_both("bits", 8, "It is eight times what is due: bits were counted where bytes are due.",
           "It is an eighth of what is due: bytes were taken for bits.", "B"),
    *_PREFIXES,
    *_both("factor-two", 2, "It is twice what is due: look at the bytes of one element, and at what is counted twice.",
           "It is half of what is due: look at the bytes of one element, and at what was left out."),
    *_both("four-bytes", 4, "It is four times what is due: look at the bytes of one element.",
           "It is a quarter of what is due: look at the bytes of one element.", "B"),
    *_both("prefix", 1000, "It is a thousand times what is due: look at the prefix of the unit.",
           "It is a thousandth of what is due: look at the prefix of the unit."),
    *_both("prefix", 1024, "It is 1024 times what is due: look at the prefix of the unit.",
           "It is 1/1024 of what is due: look at the prefix of the unit."),
    *_both("percent", 100, "It is a hundred times what is due: is it a percentage without its sign?",
           "It is a hundredth of what is due: is it a fraction, where a percentage is asked?"),
)  # fmt: skip
#: How exactly a ratio must fit to be named, where the record's own allowance is not wider.
SLIP_RTOL = Fraction(1, 10**4)


def judge(record: Number, answer: Any) -> Verdict:
    """Return the verdict on a number."""
    due = quantity(record.expected, record.unit)
    try:
        mine = read(answer, record.default_unit, due.dimension, words(record))
    except Finding as error:
        return failed(record, error.text)
    if mine.dimension != due.dimension:
        got, wanted = units.describe(mine.dimension), units.describe(due.dimension)
        return failed(record, say("number-dimension", mine="your answer", got=got, due=wanted))
    if _right(mine.value, due.value, record):
        return passed(record, say("number-right"))
    finding = _finding(mine.value, due.value, record)
    for mistake in record.mistakes:
        known = read(mistake.answer, record.default_unit or record.unit, due.dimension)
        if known.dimension == due.dimension and _right(mine.value, known.value, record):
            return failed(record, finding, mistake.message, mistake=mistake.name, section=mistake.section)
    slip = find_slip(mine.value, due, Fraction(0) if record.exact else Fraction(record.rtol))
    if slip:
        return failed(record, finding, slip.message, mistake=slip.name)
    return failed(record, finding)


def quantity(value: Any, unit: str) -> Quantity:
    """Return a value in a known unit as an exact quantity."""
    known = units.parse_unit(unit)
    return Quantity(_number(value) * known.size, known.dimension)


def words(record: Number) -> tuple[str, ...]:
    """Return the words of the question, which may stand behind a number that has no unit: ``512 samples``."""
    if quantity(1, record.unit).dimension != units.NONE:
        return ()
    return units.words_of(f"{record.title} {record.prompt} {record.contract}")


def read(answer: Any, default_unit: str | None, dimension: Dimension, counted: tuple[str, ...] = ()) -> Quantity:
    """Return an answer as an exact quantity; ``Finding`` where it is none.

    A bare number takes ``default_unit``; without one, it is a number without a unit only where the
    quantity due has none. ``counted`` are names that may then stand in a unit's place.
    """
    unit = ""
    value = answer
    if type(answer) in (tuple, list):
        if len(answer) != 2 or type(answer[1]) is not str:
            raise Finding(say("number-pair"))
        value, unit = answer
    if type(value) is str:
        try:
            number, inner = units.parse(value)
        except units.NotANumber as error:
            raise Finding(say(f"number-{error}")) from None
        if inner and unit.strip():
            raise Finding(say("number-unit-twice"))
        unit = inner or unit
    else:
        number = _number(value)
        unit = unit.strip() or _own_unit(value)
    if not unit.strip():
        if default_unit is None and dimension != units.NONE:
            raise Finding(say("number-unit-missing", example=units.example(dimension)))
        unit = default_unit or ""
    try:
        known = units.parse_unit(unit)
        if units.is_count(known.dimension) and number.denominator == 1 and unit.strip().casefold() in counted:
            return Quantity(number, units.NONE)
    except units.UnknownUnit as error:
        if unit.strip().casefold() in counted:
            return Quantity(number, units.NONE)
        close = f" Did you mean {' or '.join(error.close)}?" if error.close else ""
        raise Finding(say("number-unit-unknown", unit=f'"{error.unit}"', close=close)) from None
    return Quantity(number * known.size, known.dimension)


def _number(value: Any) -> Fraction:
    """Return a number of any plain type as a fraction; ``Finding`` where it is none."""
    kind = type(value)
    if kind is np.ndarray and value.shape == () and value.dtype.kind in "biufc":
        value = value[()]
        kind = type(value)
    torch_scalar = _torch_number(value)
    if torch_scalar is not None:
        value, kind = torch_scalar, type(torch_scalar)
    if kind is bool or kind is np.bool_:
        raise Finding(say("number-bool"))
    if kind is complex or issubclass(kind, np.complexfloating):
        raise Finding(say("number-complex"))
    if kind in (int, Fraction):
        return Fraction(value)
    if issubclass(kind, int):
        return Fraction(int.__add__(value, 0))  # the number itself, whatever the subclass makes of it
    if issubclass(kind, np.integer):
        return Fraction(int(value))
    if kind is float or issubclass(kind, np.floating):
        return _of_float(value)
    if kind is Decimal:
        return _of_decimal(value)
    raise Finding(say("number-kind", what=type_name(value)))


def _own_unit(value: Any) -> str:
    """Return the unit that a number's class states, as the book's ``Bytes`` does; empty for a plain number."""
    stated = vars(type(value)).get("unit") if issubclass(type(value), int) else None
    return stated if type(stated) is str else ""


def _torch_number(value: Any) -> Any:
    """Return the number in a torch tensor without axes, or None for anything else."""
    torch = sys.modules.get("torch")
    if torch is None or type(value) is not getattr(torch, "Tensor", None) or value.ndim:
        return None
    return value.item()


def _of_float(value: Any) -> Fraction:
    if np.isnan(value):
        raise Finding(say("number-nan"))
    if np.isinf(value):
        raise Finding(say("number-infinite"))
    above, below = value.as_integer_ratio()
    return Fraction(int(above), int(below))


def _of_decimal(value: Decimal) -> Fraction:
    if value.is_nan():
        raise Finding(say("number-nan"))
    if value.is_infinite():
        raise Finding(say("number-infinite"))
    if abs(value.adjusted()) > 400:
        raise Finding(say("number-huge"))
    return Fraction(value)


def _right(mine: Fraction, due: Fraction, record: Number) -> bool:
    return mine == due if record.exact else abs(mine - due) <= Fraction(record.rtol) * abs(due)


def _finding(mine: Fraction, due: Fraction, record: Number) -> str:
    """Say in what direction and how roughly a number is off."""
    if mine == -due:
        return say("number-sign")
    if due and abs(mine - due) <= abs(due) / 100:
        return say("number-close") if record.exact else say("number-rounded", percent=f"{100 * record.rtol:g}")
    larger, ratio = abs(mine) > abs(due), abs(mine / due) if due else Fraction(1)
    far = ratio > 10 or (mine and ratio < Fraction(1, 10))
    return say(f"number-{'far-' if far else ''}{'above' if larger else 'below'}")


def find_slip(mine: Fraction, due: Quantity, rtol: Fraction) -> Slip | None:
    """Return the first slip whose ratio is that of the answer to the truth."""
    if not due.value:
        return None
    ratio = mine / due.value
    bases = {base for base, _ in due.dimension}
    allowed = max(SLIP_RTOL, rtol)
    for slip in SLIPS:
        if (not slip.of or slip.of in bases) and abs(ratio / slip.ratio - 1) <= allowed:
            return slip
    return None


def spellings(record: Number) -> tuple[str, ...]:
    """Return ways to write the expected value, to look for them in messages.

    Numbers of one or two digits are left out: they stand in sentences for other reasons.
    """
    due = quantity(record.expected, record.unit).value
    texts = {f"{record.expected}", f"{record.expected:g}"}
    for size in (1, 10**3, 10**6, 10**9, 10**12, 2**10, 2**20, 2**30, 2**40):
        value = due / size
        texts |= {f"{float(value):.{digits}g}" for digits in (4, 5, 6, 10, 12, 15)}
        if value.denominator == 1:
            texts |= {f"{int(value)}", f"{int(value):,}", f"{int(value):_}"}
    if math.isfinite(float(due)):
        texts.add(f"{float(due):.3e}")
    return tuple(sorted(text for text in texts if sum(sign.isdigit() for sign in text) >= 3))
