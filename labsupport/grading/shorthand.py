"""Shorthand for those who write exercise records, shared by the chapters.

It must never know a subject: what one chapter alone needs stands beside its records.
"""

from collections.abc import Callable
from typing import Any

import numpy as np


def quiet(f: Callable[..., Any]) -> Any:
    """Return ``f``, a deliberately wrong implementation, such that it runs without NumPy's warnings."""

    def without_warnings(*args: Any, **kwargs: Any) -> Any:
        with np.errstate(all="ignore"):
            return f(*args, **kwargs)

    return without_warnings


def in_text(section: str, **rest: Any) -> dict[str, Any]:
    """Fields of a question inside the text of section ``"8.1"``: the section, its chapter, the place."""
    return in_notebook(section, place="chapter", **rest)


def in_notebook(section: str, **rest: Any) -> dict[str, Any]:
    """Fields of an exercise on section ``"8.1"`` in the exercise notebook: the section and its chapter."""
    return {"chapter": int(section.partition(".")[0]), "section": section, **rest}
