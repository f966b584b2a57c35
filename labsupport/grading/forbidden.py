"""Finds calls that an exercise does not allow: read from the answer's bytecode, and stopped as it runs.

Reading the bytecode needs no source text, so it works for any answer however it was typed. Calls that
a library makes inside itself are its own business: only the reader's code is held to the rule.
"""

import builtins
import dis
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from labsupport.grading import pristine
from labsupport.grading.guard import Forbidden

_LIBRARIES = ("numpy", "scipy", "torch", "labsupport.ops")
_MATMUL = {"@", "@="}


def full_name(name: str) -> str:
    """Spell a forbidden name in full: ``np.linalg.inv`` is ``numpy.linalg.inv``."""
    return "numpy." + name.removeprefix("np.") if name.startswith("np.") else name


def find(answer: Any, names: tuple[str, ...]) -> str | None:
    """Return the first forbidden name that an answer uses, as the exercise spells it, or None."""
    objects = {name: value for name in names if (value := _resolve(full_name(name))) is not None}
    seen: set[types.CodeType] = set()
    waiting: list[Any] = [answer]
    while waiting:
        item = waiting.pop(0)
        for name, value in objects.items():
            if item is value:
                return name
        if type(item) is partial:
            waiting.append(item.func)
        elif type(item) is type:
            waiting += list(vars(item).values())
        elif type(item) is types.MethodType:
            waiting.append(item.__func__)
        elif type(item) is types.FunctionType and item.__code__ not in seen and not _of_library(item.__globals__):
            seen.add(item.__code__)
            used, found = _read(item.__code__, _names_of(item), names)
            if found:
                return found
            waiting += used
    return None


def _names_of(function: types.FunctionType) -> dict[str, Any]:
    """Return the names a function sees: its module's, then those of the functions around it."""
    names = dict(vars(builtins)) | function.__globals__
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return names


def _resolve(name: str) -> Any:
    """Return the object a full dotted name stands for, where its module is loaded already."""
    if "." not in name:
        return vars(builtins).get(name)
    module, _, attribute = name.rpartition(".")
    return vars(sys.modules[module]).get(attribute) if module in sys.modules else None


def _read(code: types.CodeType, names: dict[str, Any], forbidden: tuple[str, ...]) -> tuple[list[Any], str | None]:
    """Walk through bytecode: return the objects it uses, and the first forbidden name met as text."""
    spelled = {full_name(name): name for name in forbidden}
    used: list[Any] = []
    local: dict[str, Any] = {}
    current: Any = None
    dotted = ""
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_FAST", "LOAD_CLASSDEREF"):
            known = local if step.opname == "LOAD_FAST" else {**names, **local}
            current, dotted = known.get(step.argval), ""
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"):
            if f".{step.argval}" in spelled:
                return used, spelled[f".{step.argval}"]
            dotted = f"{dotted}.{step.argval}" if dotted else ""
            current = vars(current).get(step.argval) if type(current) is types.ModuleType else None
        elif step.opname == "IMPORT_NAME":
            dotted, current = step.argval, sys.modules.get(step.argval)
        elif step.opname in ("STORE_FAST", "STORE_DEREF", "STORE_NAME"):
            local[step.argval] = current
            continue
        elif step.opname == "BINARY_OP" and step.argrepr in _MATMUL and "@" in spelled:
            return used, "@"
        elif step.opname in ("CACHE", "PUSH_NULL", "PRECALL", "EXTENDED_ARG"):
            continue
        else:
            current, dotted = None, ""
        if dotted in spelled:
            return used, spelled[dotted]
        if current is not None:
            used.append(current)
    for constant in code.co_consts:
        if type(constant) is types.CodeType:
            inner, found = _read(constant, {**names, **local}, forbidden)
            if found:
                return used, found
            used += inner
    return used, None


def _of_library(module_globals: dict[str, Any]) -> bool:
    name = str(module_globals.get("__name__", ""))
    return any(name == library or name.startswith(library + ".") for library in _LIBRARIES)


@contextmanager
def stopped(names: tuple[str, ...]) -> Iterator[None]:
    """While this lasts, a forbidden function of a loaded module raises ``Forbidden`` for the reader's code."""
    with ExitStack() as stack:
        for name in names:
            module_name, _, attribute = full_name(name).rpartition(".")
            original = vars(sys.modules[module_name]).get(attribute) if module_name in sys.modules else None
            if callable(original) and not isinstance(original, type):
                stack.enter_context(pristine.substituted(sys.modules[module_name], attribute, _stop(name, original)))
        yield


def _stop(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if _of_library(sys._getframe(1).f_globals):
            return original(*args, **kwargs)
        raise Forbidden(name)

    return call
