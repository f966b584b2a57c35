"""The numerical library as it was when the judge was loaded, so that no answer can bend the ruler.

An answer may replace ``numpy.exp`` or ``numpy.allclose`` in good or bad faith. ``restore`` puts every
replaced function back and names it. It must never touch a name that was not there at the start.
"""

import builtins
import math
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_MODULES: tuple[types.ModuleType, ...] = (np, np.linalg, np.random, math, builtins)
#: Of the built-in names only these: a notebook's kernel replaces others, such as ``input``, for every cell.
_BUILTINS = frozenset(
    f.__name__
    for f in (
        *(abs, all, any, bool, complex, dict, divmod, enumerate, float, frozenset, getattr, int, isinstance),
        *(iter, len, list, map, max, min, next, pow, range, reversed, round, set, setattr, slice, sorted),
        *(str, sum, tuple, type, zip),
    )
)


def _functions(module: types.ModuleType) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(module).items()
        if callable(value) and (name in _BUILTINS if module is builtins else not name.startswith("_"))
    }


_ORIGINAL: tuple[tuple[types.ModuleType, dict[str, Any]], ...] = tuple(
    (module, _functions(module)) for module in _MODULES
)


@contextmanager
def substituted(module: types.ModuleType, name: str, value: Any) -> Iterator[None]:
    """Put ``value`` in the place of a function on the judge's own behalf, which is no replacement."""
    known = next((functions for other, functions in _ORIGINAL if other is module), {})
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


def replaced() -> list[tuple[types.ModuleType, str]]:
    """Return the functions that are not the original ones now, as (module, name)."""
    gone = object()
    return [
        (module, name)
        for module, original in _ORIGINAL
        for now in (vars(module),)
        for name, value in original.items()
        if now.get(name, gone) is not value
    ]


def restore() -> tuple[str, ...]:
    """Put the original functions back; return one note for each that had been replaced."""
    changed = replaced()
    for module, name in changed:
        original = next(functions for known, functions in _ORIGINAL if known is module)
        setattr(module, name, original[name])
    names = [f"{module.__name__}.{name}" for module, name in changed]
    return (f"{', '.join(names)} had been replaced; the original is back.",) if names else ()
