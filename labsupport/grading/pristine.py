"""The numerical library as it was when the judge was loaded, so that no answer can bend the ruler.

An answer may replace ``numpy.exp`` or ``numpy.allclose`` in good or bad faith. ``restore`` puts every
replaced function back and names it. It must never touch a name that was not there at the start.
"""

import builtins
import copy
import dis
import html
import math
import os
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

#: Built-in names that a notebook's kernel replaces itself, for every cell.
_OF_THE_KERNEL = frozenset(
    {"input", "exit", "quit", "copyright", "credits", "license", "help", "breakpoint", "display"}
)
#: Of these modules only the named functions are held: the guard replaces others for a while, and a test may too.
_NAMED: dict[types.ModuleType, frozenset[str]] = {
    os: frozenset({"getcwd", "chdir", "fspath"}),
    sys: frozenset({"gettrace", "settrace", "getprofile", "setprofile", "getrecursionlimit", "_getframe"}),
    time: frozenset({"monotonic", "process_time", "perf_counter"}),
    warnings: frozenset({"catch_warnings", "simplefilter", "filterwarnings", "warn"}),
    copy: frozenset({"copy", "deepcopy"}),
    dis: frozenset({"get_instructions"}),
    html: frozenset({"escape"}),
}
_WHOLE: tuple[types.ModuleType, ...] = (np, np.linalg, np.random, math, builtins)
#: The book's own modules that decide a verdict; each is held from the first check after it is loaded.
_DECIDING = tuple(
    f"labsupport.grading.{name}"
    for name in (
        *("answers", "choice", "compare", "forbidden", "formula", "function", "guard", "judge", "messages"),
        *("number", "pristine", "records", "several", "shape", "tolerance", "units", "verdict", "written"),
    )
)
_PACKAGES = ("labsupport.ops.", "labsupport.cost.")


def _is_own(name: str) -> bool:
    return name in _DECIDING or name.startswith(_PACKAGES)


def _functions(module: types.ModuleType) -> dict[str, Any]:
    named = _NAMED.get(module)
    own = _is_own(module.__name__)
    return {
        name: value
        for name, value in vars(module).items()
        if (isinstance(value, types.FunctionType | type) if own else callable(value))
        and (name in named if named is not None else own or not name.startswith("_"))
        and not (module is builtins and name in _OF_THE_KERNEL)
    }


_original: list[tuple[types.ModuleType, dict[str, Any]]] = [
    (module, _functions(module)) for module in (*_WHOLE, *_NAMED)
]
#: Names of modules that are held, or that are none of the book's own: a check must not look at thousands anew.
_known: set[str] = set()


def hold() -> None:
    """Hold the book's own modules as well, as they are now: those loaded since the last time."""
    for name in sys.modules.keys() - _known:  # an answer may put anything there, under any key
        module = sys.modules.get(name)
        if not isinstance(name, str) or not _is_own(name):
            _known.add(name)
        elif type(module) is types.ModuleType:
            _known.add(name)
            _original.append((module, _functions(module)))


@contextmanager
def substituted(module: types.ModuleType, name: str, value: Any) -> Iterator[None]:
    """Put ``value`` in the place of a function on the judge's own behalf, which is no replacement."""
    hold()
    known = next((functions for other, functions in _original if other is module), {})
    original = getattr(module, name)
    setattr(module, name, value)
    if name in known:
        known[name] = value
    try:
        yield
    finally:
        setattr(module, name, original)
        if name in known:
            known[name] = original


_GONE = object()


def replaced() -> list[tuple[types.ModuleType, str]]:
    """Return the functions that are not the original ones now, as (module, name).

    Neither this nor ``restore`` may call a built-in function: it may be the one that was replaced.
    """
    return [
        (module, name)
        for module, original in _original
        for now in (module.__dict__,)
        for name, value in original.items()
        if now.get(name, _GONE) is not value
    ]


def restore(find: Callable[[], list[tuple[types.ModuleType, str]]] = replaced) -> tuple[str, ...]:
    """Put the original functions back; return one note for each that had been replaced."""
    changed = find()
    for module, name in changed:
        for known, functions in _original:
            if known is module:
                module.__dict__[name] = functions[name]
    names = [f"{module.__name__}.{name}" for module, name in changed]
    return (f"{', '.join(names)} had been replaced; the original is back.",) if names else ()


@contextmanager
def modules() -> Iterator[None]:
    """Put modules back that were replaced or taken out of ``sys.modules`` meanwhile; new ones stay."""
    before = dict(sys.modules)
    try:
        yield
    finally:
        for name, module in before.items():
            if sys.modules.get(name) is not module:
                sys.modules[name] = module
