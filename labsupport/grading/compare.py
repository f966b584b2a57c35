"""Holds a result against the truth: exact type, shape, dtype, finite pattern, value, in this order.

Everything is taken out of the reader's objects by exact type before it is compared, so an object that
equals everything or a masked array cannot answer for itself. A finding may quote what came back; it
must never say what was due.
"""

import re
import sys
import types
from dataclasses import dataclass
from typing import Any

import numpy as np

from labsupport.grading.answers import type_name
from labsupport.grading.tolerance import EPS, Tolerance, coarsest, float_name

_SCALARS = (bool, int, float, complex)
#: Names of dtypes outside NumPy that are float formats; they are widened to float32, which is exact.
_SMALL_FLOATS = ("bfloat16", "float8_e5m2", "float8_e4m3fn")
_MOST = 2**27
_KINDS = {"b": "true or false", "i": "whole numbers", "f": "floating-point numbers", "c": "complex numbers"}


class Finding(Exception):
    """What is wrong with an answer, as one sentence in the reader's words.

    ``of_values`` marks numbers that are wrong in a result of the right form.
    """

    def __init__(self, text: str, of_values: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.of_values = of_values


@dataclass(frozen=True)
class Leaf:
    """One array of a result, copied out of the answer.

    ``bare`` marks a Python number and ``listed`` a list of numbers; ``format`` is the float format.
    """

    values: np.ndarray
    format: str | None
    bare: bool = False
    listed: bool = False

    @property
    def kind(self) -> str:
        """The dtype's kind; unsigned counts as whole number, small floats count as float."""
        kind = self.values.dtype.kind
        return "i" if kind == "u" else kind

    def says(self) -> str:
        """Name dtype and shape as they came back."""
        if self.bare and not self.listed:
            return {"b": "a bool", "i": "an int", "f": "a float", "c": "a complex number"}[self.kind]
        name = self.format if self.kind == "f" else None  # a complex number has the format of its parts
        return f"{name or self.values.dtype.name} {self.values.shape}"


Tree = Leaf | tuple["Tree", ...] | dict[Any, "Tree"]


def read(value: Any, like: Any = None, lists: bool = False) -> Tree:
    """Copy a result into a tree of ``Leaf``; ``like`` is the truth's tree, which rules what a list means.

    Raises ``Finding`` for types that are no plain arrays, numbers or containers of them.
    """
    kind = type(value)
    if kind in _SCALARS:
        return _leaf(_python_number(value), bare=True)
    if issubclass(kind, np.generic) and kind.__module__ in ("numpy", "ml_dtypes"):
        return _leaf(np.asarray(value))
    if kind is np.ndarray:
        return _leaf(value)
    if issubclass(kind, tuple) or kind is list:
        items = tuple(tuple.__iter__(value)) if kind is not list else tuple(value)
        if isinstance(like, Leaf) and kind in (list, tuple) and lists:
            return _list_leaf(items)
        if isinstance(like, Leaf):
            raise Finding(f"you returned {type_name(value)}, where {_due(like)} is due.")
        below = like if isinstance(like, tuple) and len(like) == len(items) else (None,) * len(items)
        return tuple(read(item, part, lists) for item, part in zip(items, below, strict=True))
    if issubclass(kind, dict):
        parts = like if isinstance(like, dict) else {}
        return {key: read(item, parts.get(key), lists) for key, item in dict.items(value) if _is_key(key)}
    tensor = _torch_leaf(value)
    if tensor is not None:
        return tensor
    raise Finding(_refusal(value))


def _is_key(key: Any) -> bool:
    if type(key) in (str, int, bool):
        return True
    raise Finding(f"a key of the dict you returned is {type_name(key)}; strings or whole numbers are due.")


def _refusal(value: Any) -> str:
    if value is None:
        return "your function returned None. Does every path end in a return?"
    if issubclass(type(value), np.ma.MaskedArray):
        return "you returned a masked array, which hides values. Return a plain array."
    if issubclass(type(value), np.ndarray):
        return f"you returned {type_name(value)}. Return a plain array: np.asarray(result)."
    return f"you returned {type_name(value)}, where an array or a number is due."


def _due(like: Leaf) -> str:
    return "a single number" if like.bare or like.values.shape == () else "an array"


def _python_number(value: Any) -> np.ndarray:
    if type(value) is int and not -(2**63) <= value < 2**63:
        return np.asarray(float(value)) if abs(value) < 2**1000 else np.asarray(np.inf)
    return np.asarray(value)


def _leaf(array: np.ndarray, bare: bool = False) -> Leaf:
    if array.size > _MOST:  # a view can claim any size, and a copy of it takes all memory there is
        raise Finding(f"you returned an array of shape {array.shape}: far more numbers than any exercise asks for.")
    name = float_name(array.dtype)
    if array.dtype.name in _SMALL_FLOATS:
        return Leaf(array.astype(np.float32), name)
    if array.dtype.kind not in "biufc":
        raise Finding(f"you returned an array of dtype {array.dtype.name}; numbers are due.")
    return Leaf(np.array(array, order="C"), name, bare)


def _list_leaf(items: tuple[Any, ...]) -> Leaf:
    if not all(type(item) in (*_SCALARS, list, tuple) or issubclass(type(item), np.generic) for item in items):
        raise Finding("you returned a list that holds more than numbers.")
    try:
        array = np.asarray(list(items))
    except ValueError:
        raise Finding("you returned a list whose rows differ in length.") from None
    leaf = _leaf(array)
    return Leaf(leaf.values, leaf.format, bare=True, listed=True)


def _torch_leaf(value: Any) -> Leaf | None:
    """Copy a torch tensor, where torch is loaded at all."""
    torch = sys.modules.get("torch")
    if not isinstance(torch, types.ModuleType) or type(value) not in _tensor_types(torch):
        return None
    try:
        tensor = value.detach().cpu()
        name = str(tensor.dtype).removeprefix("torch.")
        array = (tensor.float() if name in _SMALL_FLOATS else tensor).resolve_conj().resolve_neg().numpy()
    except (TypeError, RuntimeError, NotImplementedError):  # sparse, nested, quantised, or without data
        raise Finding("you returned a torch tensor that holds no plain array; return a dense one.") from None
    leaf = _leaf(array)
    return Leaf(leaf.values, name if name in EPS else leaf.format)


def _tensor_types(torch: types.ModuleType) -> tuple[type, ...]:
    """Return the plain tensor types; none where another thread is still importing torch."""
    return (torch.Tensor, torch.nn.Parameter) if hasattr(torch, "nn") and hasattr(torch, "Tensor") else ()


def plain(tree: Tree) -> Any:
    """Return a result as plain arrays in tuples and dicts: the judge's own copy."""
    if isinstance(tree, Leaf):
        return tree.values
    if isinstance(tree, dict):
        return {key: plain(part) for key, part in tree.items()}
    return tuple(plain(part) for part in tree)


def same_shapes(result: Tree, form: Tree) -> bool:
    """Return whether a result has the structure and the shapes that are due."""
    if isinstance(result, Leaf) and isinstance(form, Leaf):
        return result.values.shape == form.values.shape
    if isinstance(result, dict) and isinstance(form, dict):
        return set(result) == set(form) and all(same_shapes(result[key], form[key]) for key in form)
    if isinstance(result, tuple) and isinstance(form, tuple) and len(result) == len(form):
        return all(same_shapes(a, b) for a, b in zip(result, form, strict=True))
    return False


@dataclass(frozen=True)
class Rules:
    """What one case allows: tolerance, inputs and how strictly dtypes are held."""

    tolerance: Tolerance
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    exact_dtype: bool = False

    def input_formats(self) -> list[str]:
        """Return the float formats of the inputs' arrays and NumPy scalars."""
        return [name for value in [*self.args, *self.kwargs.values()] for name in _formats(value)]


def _formats(value: Any) -> list[str]:
    if isinstance(value, np.ndarray | np.generic):
        name = float_name(value.dtype)
        return [name] if name else []
    if type(value) in (list, tuple):
        return [name for item in value for name in _formats(item)]
    if type(value) is dict:
        return [name for item in value.values() for name in _formats(item)]
    return []


def compare(result: Tree, form: Tree, truth: Tree, rules: Rules, where: str = "", due: Tree | None = None) -> None:
    """Raise ``Finding`` at the first difference. ``form`` rules shape and dtype, ``truth`` the values.

    ``due`` is the whole truth, where ``truth`` is a part of it: what another part holds is not to be shown either.
    """
    due = truth if due is None else due
    if isinstance(form, tuple):
        if not isinstance(result, tuple):
            raise Finding(f"you returned {_came(result)}, where a tuple or list of {len(form)} is due.")
        if len(result) != len(form):
            raise Finding(f"you returned {len(result)} values, where {len(form)} are due.")
        assert isinstance(truth, tuple)
        for place, parts in enumerate(zip(result, form, truth, strict=True), start=1):
            compare(*parts, rules, f"{where}result {place}: ", due)
    elif isinstance(form, dict):
        if not isinstance(result, dict):
            raise Finding("you returned something else, where a dict is due.")
        if set(result) != set(form):
            raise Finding(f"{where}the keys of the dict you returned are not the ones due.")
        assert isinstance(truth, dict)
        for key in form:
            compare(result[key], form[key], truth[key], rules, f"{where}{key}: ", due)
    else:
        if not isinstance(result, Leaf):
            raise Finding(f"{where}you returned several values, where {_due(form)} is due.")
        assert isinstance(truth, Leaf)
        _compare_leaf(result, form, truth, rules, where, due)


def _came(result: Tree) -> str:
    if isinstance(result, Leaf):
        return "an array" if result.values.shape else "one value"
    return "a dict"


def _compare_leaf(result: Leaf, form: Leaf, truth: Leaf, rules: Rules, where: str, due: Tree) -> None:
    if result.values.shape != form.values.shape:
        raise Finding(f"{where}the shape {result.values.shape} is not the one due.{_shape_help(result, form)}")
    _compare_dtype(result, form, rules, where)
    if form.kind in "bi":
        wrong = result.values != truth.values
        if wrong.any():
            raise Finding(where + _wrong_places(result, due, wrong), of_values=True)
        return
    _compare_finite(result, truth, where)
    eps_of = coarsest([*rules.input_formats(), *([result.format] if result.format else [])])
    reference = truth.values
    allowed = rules.tolerance.allowed(reference, eps_of, rules.args, rules.kwargs)
    finite = np.isfinite(reference)
    wide = np.longdouble if reference.dtype == np.longdouble else np.result_type(reference, np.float64)
    with np.errstate(all="ignore"):
        error = np.abs(result.values.astype(wide) - reference.astype(wide))
    wrong = finite & ~(error <= allowed)
    if wrong.any():
        raise Finding(where + _wrong_places(result, due, wrong), of_values=True)


def _shape_help(result: Leaf, form: Leaf) -> str:
    if result.values.shape == ():
        return " A single number came back."
    if form.values.shape == ():
        return " A single number is due."
    if result.values.size == form.values.size:
        return " The number of elements is right: look at the axes."
    return ""


def _compare_dtype(result: Leaf, form: Leaf, rules: Rules, where: str) -> None:
    single = form.values.shape == ()  # 8388608.0 for 8388608, and 2 for 2.0, whichever library made the number
    if result.kind != form.kind and not (single and {result.kind, form.kind} == {"i", "f"}):
        raise Finding(f"{where}you returned {result.says()}; {_KINDS[form.kind]} are due.")
    if (single and result.bare) or result.listed or result.kind not in "fc" or form.kind not in "fc":
        return
    mine, due = result.format or "float64", form.format or "float64"
    if rules.exact_dtype and mine != due:
        raise Finding(f"{where}the result has dtype {mine}; the contract asks for another one here.")
    coarse = coarsest(["float32", due, *rules.input_formats()])
    if EPS[mine] > EPS[coarse]:
        raise Finding(f"{where}the result has dtype {mine}: precision of the input is lost.")


def _compare_finite(result: Leaf, truth: Leaf, where: str) -> None:
    mine, due = result.values, truth.values
    nan = np.isnan(mine)
    if (nan & ~np.isnan(due)).any():
        raise Finding(f"{where}NaN came back{_at(nan & ~np.isnan(due))}, where a number is due.")
    inf = np.isinf(mine)
    if (inf & np.isfinite(due)).any():
        raise Finding(f"{where}an infinity came back{_at(inf & np.isfinite(due))}, where a finite number is due.")
    rest = (np.isnan(due) & ~nan) | (np.isinf(due) & ~(mine == due))
    if rest.any():
        raise Finding(f"{where}what came back{_at(rest)} is not what the contract states for this input.")


def _at(wrong: np.ndarray) -> str:
    """Say where the first wrong place is, for an array."""
    if wrong.shape == ():
        return ""
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f" at index {index[0] if len(index) == 1 else index}"


def _wrong_places(result: Leaf, due: Tree, wrong: np.ndarray) -> str:
    first = result.values[wrong][0].item()
    came = "" if _written_in(due, first) else f"{_digits(first)} came back"
    count, size = int(wrong.sum()), wrong.size
    if size == 1:
        return f"the value is wrong{': ' if came else ''}{came}."
    places = "every value is" if count == size else f"{count} of {size} values {'is' if count == 1 else 'are'}"
    return f"{places} wrong{f', the first{_at(wrong)}' if wrong.shape else ''}{': ' if came else ''}{came}."


def _written_in(due: Tree, value: Any) -> bool:
    """Whether an element of the truth is written with the same digits: then they must not be shown."""
    if isinstance(due, dict):
        return any(_written_in(part, value) for part in due.values())
    if isinstance(due, tuple):
        return any(_written_in(part, value) for part in due)
    elements = due.values.ravel()
    if type(value) in (bool, int) and due.kind in "bi":
        return bool((elements == value).any())
    elements = elements.astype(np.result_type(elements, np.float64))
    with np.errstate(all="ignore"):
        near = 1e-3 * abs(value)  # numbers with the same four digits are closer
        alike = np.abs(elements - value) <= near if np.isfinite(value) else ~np.isfinite(elements)
    return any(_four(element) == _four(value) for element in elements[alike].tolist())


def _digits(value: Any) -> str:
    """Write a whole number in full and any other with four digits: enough to know it again, too few to copy."""
    return str(value) if type(value) in (bool, int) else _four(value)


def _four(value: Any) -> str:
    return f"{value + 0:.4g}"  # a negative zero is written like any other


_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


def exception_words(error: BaseException) -> str:
    """Say what was raised; the text of an exception is quoted only where its class is Python's or NumPy's."""
    kind = type(error)
    if type.__getattribute__(kind, "__module__") not in ("builtins", "numpy", "numpy.exceptions", "numpy.linalg"):
        return type_name(error).removeprefix("an object of type ")
    arguments = BaseException.args.__get__(error)  # type: ignore[attr-defined]
    text = arguments[0] if arguments and type(arguments[0]) is str else ""
    text = _ADDRESS.sub("0x…", " ".join(text.split()))
    return f"{kind.__name__}: {text[:200]}" if text else kind.__name__
