"""Where the judge finds an exercise record by its id.

The records live one floor above the judge, which therefore must not import them. The package of
records hands its finder to ``use``; until it has, the first search loads it by name.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module

from labsupport.grading.records import Exercise

#: The package that calls ``use`` when it is imported.
RECORDS = "labsupport.exercises"


@dataclass(frozen=True)
class Finder:
    """How records are looked up: one by id (KeyError with a sentence where there is none), or all."""

    get: Callable[[str], Exercise]
    all: Callable[[], Sequence[Exercise]]


_finder: Finder | None = None


def use(finder: Finder) -> Finder | None:
    """Look records up with ``finder`` from now on; return the finder used so far."""
    global _finder
    before, _finder = _finder, finder
    return before


def finder() -> Finder:
    """Return the finder in use, loading the book's records on first need."""
    if _finder is None:
        import_module(RECORDS)
    if _finder is None:
        raise RuntimeError(f"{RECORDS} was loaded and offered no finder of exercises")
    return _finder
