"""The operator card: ten questions that lead from a formula to a kernel, and the record that holds their answers.

Answers are axis names, functions of sizes and functions of arrays, so that a machine can run them; words are there for
what only a person can judge. A card must never be built with a field of the wrong kind: it says so at once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

__all__ = ["QUESTIONS", "RISKS", "OperatorCard", "words"]

Axes = tuple[str, ...]

#: The ten questions, in the order in which they are asked.
QUESTIONS: tuple[str, ...] = (
    "Which shapes do the inputs, the outputs and the intermediates have?",
    "Which axes are kept, and which are reduced?",
    "Can it be tiled? How do the states of two tiles merge?",
    "How many FLOPs does it take, and how many bytes must it move at least?",
    "What is broadcast, transposed or read with a stride?",
    "Which steps need a wider accumulator?",
    "Can it overflow, divide by 0, cancel digits, or lose them in a long sum?",
    "Which intermediates need never reach main memory?",
    "What happens at ragged edges, where the last tile is not full?",
    "Against which reference, tolerance and extreme inputs is it tested?",
)

#: The risks that question 7 knows, with what each means.
RISKS: Mapping[str, str] = {
    "overflow": "a step leaves the range of float16",
    "zero": "a divisor or the argument of a logarithm becomes 0",
    "cancellation": "two large, nearly equal numbers are subtracted",
    "long reduction": "a sum over an axis that may be long loses digits in a narrow accumulator",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class OperatorCard:
    """The answers for one operator. Sizes are named by the operator's axis letters.

    Args:
        operator: a name of ``OPERATORS``.
        inputs, output, intermediates: (1) the axes of each array; an axis of size 1 is written ``"1"``.
        kept, reduced: (2) axes along which the work is independent, and axes that a sum or a maximum runs over.
        tile_axis: (3) a reduced axis that is cut into tiles, or ``""`` where nothing is reduced.
        state: ``state(start, **inputs)`` → the state of a tile. Inputs that have the tile axis are cut to the tile;
            ``start`` is the index of its first element.
        merge: ``merge(a, b)`` → the state of two neighbouring tiles together.
        finish: ``finish(state, **inputs)`` → the result, from the last state and the whole inputs.
        state_words: what the state holds, in words.
        matmul_flops: (4) ``matmul_flops(**sizes)`` → FLOPs of the matrix products, a multiply-add being two.
        other_flops: ``other_flops(**sizes)`` → all other operations, to within a factor of 2.
        min_bytes: ``min_bytes(e, **sizes)`` → least traffic, with e bytes a floating element and 8 an index.
        broadcast: (5) input → axes of the result along which it is repeated.
        layout: in words: what is transposed or strided.
        accumulator: (6) the dtype of sums where inputs are float16: ``"float32"`` or ``"float64"``.
        sensitive: in words: the steps that need it.
        risks: (7) names of ``RISKS``.
        fused: (8) intermediates that need never reach main memory.
        padding: (9) the value by which each input is lengthened along the tile axis without a change of the result;
            None where no such value exists, so that a kernel needs a mask or the count.
        tail: in words: how the last tile is handled.
        reference: (10) ``reference(**inputs)`` → the result to test against, safe on every finite input.
        tolerance: largest error, relative to the largest result, for ``"float32"`` and ``"float16"``.
        extreme: ``extreme(**inputs)`` → inputs on which the textbook formula breaks in float16.
    """

    operator: str
    inputs: Mapping[str, Axes]
    output: Axes
    intermediates: Mapping[str, Axes] = field(default_factory=dict)
    kept: Axes
    reduced: Axes
    tile_axis: str
    state: Callable[..., Any] | None = None
    merge: Callable[[Any, Any], Any] | None = None
    finish: Callable[..., Any] | None = None
    state_words: str = ""
    matmul_flops: Callable[..., int]
    other_flops: Callable[..., int]
    min_bytes: Callable[..., int]
    broadcast: Mapping[str, Axes] = field(default_factory=dict)
    layout: str = ""
    accumulator: str = "float32"
    sensitive: str = ""
    risks: tuple[str, ...] = ()
    fused: tuple[str, ...] = ()
    padding: Mapping[str, float] | None = None
    tail: str = ""
    reference: Callable[..., Any]
    tolerance: Mapping[str, float]
    extreme: Callable[..., Any]

    def __post_init__(self) -> None:
        for entry in fields(self):
            value, problem = getattr(self, entry.name), ""
            if value is ...:
                continue
            if entry.name in _TEXTS:
                problem = "" if isinstance(value, str) else "a string"
            elif entry.name in _NAMES:
                problem = "" if _names(value) else 'a tuple of names, such as ("M", "K")'
            elif entry.name in _AXES_BY_NAME:
                fits = isinstance(value, Mapping) and all(isinstance(k, str) and _names(v) for k, v in value.items())
                problem = "" if fits else 'a dict of tuples of names, such as {"A": ("M", "K")}'
            elif entry.name in _NUMBERS_BY_NAME:
                fits = (value is None and entry.name == "padding") or _numbers(value)
                problem = "" if fits else "a dict of numbers"
            elif value is not None and not callable(value):
                problem = "a function"
            if problem:
                raise TypeError(f"{entry.name} is {type(value).__name__}; it must be {problem}")

    @property
    def is_complete(self) -> bool:
        """Whether no field is still an ellipsis."""
        return all(getattr(self, entry.name) is not ... for entry in fields(self))


_TEXTS = {"operator", "tile_axis", "state_words", "layout", "accumulator", "sensitive", "tail"}
_NAMES = {"output", "kept", "reduced", "risks", "fused"}
_AXES_BY_NAME = {"inputs", "intermediates", "broadcast"}
_NUMBERS_BY_NAME = {"padding", "tolerance"}


def _names(value: Any) -> bool:
    return isinstance(value, tuple | list) and all(isinstance(name, str) for name in value)


def _numbers(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(k, str) and isinstance(v, int | float) and not isinstance(v, bool) for k, v in value.items()
    )


class _Letter:
    """A size that is still a letter: arithmetic with it gives the formula as text."""

    def __init__(self, text: str, is_sum: bool = False) -> None:
        self.text, self.is_sum = text, is_sum

    def _factor(self) -> str:
        return f"({self.text})" if self.is_sum else self.text

    def __mul__(self, other: Any) -> "_Letter":
        other = _letter(other)
        if "1" in (self.text, other.text):
            return self if other.text == "1" else other
        return _Letter(f"{self._factor()}·{other._factor()}")

    def __add__(self, other: Any) -> "_Letter":
        other = _letter(other)
        if "0" in (self.text, other.text):
            return self if other.text == "0" else other
        return _Letter(f"{self.text} + {other.text}", is_sum=True)

    def __sub__(self, other: Any) -> "_Letter":
        return _Letter(f"{self.text} − {_letter(other)._factor()}", is_sum=True)

    def __rmul__(self, other: Any) -> "_Letter":
        return _letter(other) * self

    def __radd__(self, other: Any) -> "_Letter":
        return _letter(other) + self


def _letter(value: Any) -> _Letter:
    return value if isinstance(value, _Letter) else _Letter(f"{value}")


def words(formula: Callable[..., Any], letters: tuple[str, ...]) -> str:
    """A function of sizes as text: ``words(lambda M, K: 2 * M * K, ("M", "K"))`` is "2·M·K".

    Sums, differences and products only; another operation raises TypeError.
    """
    return _letter(formula(**{name: _Letter(name) for name in letters})).text
