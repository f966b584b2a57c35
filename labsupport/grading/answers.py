"""What an answer is before it is judged: an untouched stub, or something with a type we can name.

Answers come from a reader and may be anything. Nothing here may call ``repr``, ``str``, ``==`` or
``bool`` of an object whose type is not one of ours, Python's or NumPy's.
"""

import dis
import hashlib
import types
from typing import Any

import numpy as np

#: Bytecode that every function has and that does nothing.
_NOISE = {"RESUME", "NOP", "CACHE", "PRECALL", "COPY_FREE_VARS", "MAKE_CELL", "EXTENDED_ARG", "NOT_TAKEN"}


#: Flag of a class that a ``class`` statement made, not the interpreter or a library in C.
_MADE_IN_PYTHON = 1 << 9


class _Missing:
    """The type of the mark for "no answer was given"."""

    def __repr__(self) -> str:
        return "<no answer>"


MISSING = _Missing()


def is_stub(answer: Any) -> bool:
    """Return whether an answer is untouched: ``...``, nothing, or a function or class with an empty body."""
    if answer is MISSING or answer is ...:
        return True
    if type(answer) is types.FunctionType:
        return _empty_body(answer.__code__)
    if type(answer) is types.MethodType and type(answer.__func__) is types.FunctionType:
        return _empty_body(answer.__func__.__code__)
    if type(answer) is type and answer.__flags__ & _MADE_IN_PYTHON:
        members = [value for value in vars(answer).values() if type(value) is types.FunctionType]
        return all(_empty_body(member.__code__) for member in members)
    return False


def _empty_body(code: types.CodeType) -> bool:
    """Whether a function does nothing but ``...``, ``pass``, a docstring or ``raise NotImplementedError``."""
    if code.co_name == "<lambda>":
        return False  # whoever writes a lambda has written something
    steps = [step for step in dis.get_instructions(code) if step.opname not in _NOISE]
    names = [step.opname for step in steps]
    if names == ["RETURN_CONST"] or names == ["LOAD_CONST", "RETURN_VALUE"]:
        return steps[0].argval is None or steps[0].argval is ...
    first = steps[0]
    return (
        first.opname == "LOAD_GLOBAL"
        and first.argval == "NotImplementedError"
        and any(name == "RAISE_VARARGS" for name in names[:4])
    )


def contains_stub(result: Any) -> bool:
    """Return whether a returned value is ``...`` or a plain container that holds ``...``."""
    if result is ...:
        return True
    if type(result) in (tuple, list):
        return any(item is ... for item in result)
    return type(result) is dict and any(item is ... for item in result.values())


def type_name(value: Any) -> str:
    """Name the type of an answer in a few words, without asking the object anything."""
    plain = {
        type(None): "None", bool: "a truth value", int: "an int", float: "a float", complex: "a complex number",
        str: "a string", bytes: "bytes", tuple: "a tuple", list: "a list", dict: "a dict", set: "a set",
        types.FunctionType: "a function", types.BuiltinFunctionType: "a function", type: "a class",
        types.ModuleType: "a module", types.GeneratorType: "a generator",
    }  # fmt: skip
    kind = type(value)
    if kind in plain:
        return plain[kind]
    if kind is np.ndarray:
        return "an array"
    name = type.__getattribute__(kind, "__name__")
    name = name if type(name) is str else "object"
    return f"an object of type {name[:60]}"


def digest(answer: Any) -> str:
    """Return a short hash of an answer, so that the same answer again is no new attempt."""
    return hashlib.sha256("\0".join(_pieces(answer, 0)).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _pieces(value: Any, depth: int) -> list[str]:
    kind = type(value)
    if kind in (str, float, complex, bool, type(None)):
        return [kind.__name__, repr(value)]
    if kind is int:
        return ["int", hex(value)]
    if kind in (tuple, list, dict) and depth < 4:
        items = value.items() if kind is dict else enumerate(value)
        return [kind.__name__, *(piece for item in items for part in item for piece in _pieces(part, depth + 1))]
    if kind is types.FunctionType:
        return ["function", *_code_pieces(value.__code__)]
    if kind is np.ndarray and value.dtype != object:
        return ["array", str(value.dtype), str(value.shape), hashlib.sha256(value.tobytes()).hexdigest()]
    if isinstance(value, np.generic):
        return ["scalar", value.dtype.name, value.tobytes().hex()]
    inner = _wrapped(value)
    return [type_name(value)] if inner is None else [type_name(value), *_code_pieces(inner.__code__)]


def _wrapped(value: Any) -> types.FunctionType | None:
    """Return the function inside a decorated one (``__wrapped__``, or ``py_func`` as compilers call it)."""
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    if type(held) is not dict:
        return None
    found = held.get("__wrapped__", held.get("py_func"))
    return found if type(found) is types.FunctionType else None


def _code_pieces(code: types.CodeType) -> list[str]:
    pieces = [code.co_code.hex(), *code.co_names, *code.co_varnames]
    for constant in code.co_consts:
        pieces += _code_pieces(constant) if type(constant) is types.CodeType else _pieces(constant, 0)
    return pieces
