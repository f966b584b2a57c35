"""The reader's vocabulary: the five names every notebook of the book starts with.

Everything else loads when it is first used, so that importing the package costs
little more than importing NumPy. This file must never import a heavy package.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "1.0.0"

#: Public name -> module that defines it. Authoring reads this table too: a notebook that
#: uses one of these names depends on that module.
LAZY = {
    "check": "labsupport.grading",
    "hint": "labsupport.grading",
    "solution": "labsupport.grading",
    "progress": "labsupport.grading",
    "explore": "labsupport.figures",
}

__all__ = ["check", "explore", "hint", "progress", "solution"]

if TYPE_CHECKING:
    from labsupport.figures import explore
    from labsupport.grading import check, hint, progress, solution


def __getattr__(name: str) -> Any:
    """Load a public name on first use; raise AttributeError for anything else."""
    if name in LAZY:
        value = getattr(import_module(LAZY[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'labsupport' has no attribute {name!r}; it offers {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
