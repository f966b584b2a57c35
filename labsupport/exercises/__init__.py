"""The exercise records of the book: one package per chapter, with a module for each of its subjects.

A module offers a tuple ``EXERCISES``; the chapter's package joins those of its modules in the order of
the chapter. What several modules of a chapter share has a module of its own there; what several
chapters share, and knows no subject, is in ``labsupport.grading.shorthand``. The records know the
subjects and their misconceptions; they must never contain a mechanism of the judge, which lives in
``labsupport.grading``. A chapter is imported when one of its exercises is first looked for.
"""

import difflib
import pkgutil
from importlib import import_module

from labsupport.grading import Exercise
from labsupport.grading.registry import Finder, use

__all__ = ["all_exercises", "get", "module_of", "modules"]

_by_id: dict[str, Exercise] = {}
_module_by_id: dict[str, str] = {}
_loaded: set[str] = set()


def modules() -> tuple[str, ...]:
    """Return the names of the chapters' packages, in alphabetical order."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def _load(name: str) -> None:
    """Import one chapter and take its records in. Two records with one id are a ValueError."""
    if name in _loaded:
        return
    records: tuple[Exercise, ...] = import_module(f"{__name__}.{name}").EXERCISES
    fresh: dict[str, Exercise] = {}
    for record in records:
        if not record.id:
            raise ValueError(f"{name}: the exercise {record.title!r} has no id")
        if record.id in fresh or record.id in _by_id:
            other = _module_by_id.get(record.id, name)
            raise ValueError(f"two exercises have the id {record.id!r}, in {other} and in {name}")
        fresh[record.id] = record
    _by_id.update(fresh)
    _module_by_id.update(dict.fromkeys(fresh, name))
    _loaded.add(name)


def get(exercise_id: str) -> Exercise:
    """Return the record with this id; KeyError with a "did you mean" where there is none.

    A chapter that cannot be loaded does not take the others down: its error is raised only
    where the id is in none of them.
    """
    errors: list[Exception] = []
    for name in modules():
        if exercise_id in _by_id:
            break
        try:
            _load(name)
        except Exception as error:
            errors.append(error)
    if exercise_id in _by_id:
        return _by_id[exercise_id]
    if errors:
        raise errors[0]
    close = difflib.get_close_matches(exercise_id.lower(), sorted(_by_id), n=3, cutoff=0.5)
    if not close:
        raise KeyError(f"there is no exercise {exercise_id!r}; progress() lists them all.")
    raise KeyError(f"there is no exercise {exercise_id!r}. Did you mean {' or '.join(map(repr, close))}?")


def all_exercises() -> tuple[Exercise, ...]:
    """Return every record of the book, by chapter, in each chapter's own order."""
    for name in modules():
        _load(name)
    return tuple(sorted(_by_id.values(), key=lambda record: record.chapter))


def module_of(exercise_id: str) -> str:
    """Return the name of the chapter's package that holds an exercise, for example ``softmax_and_kl``."""
    get(exercise_id)
    return _module_by_id[exercise_id]


use(Finder(get, all_exercises))
