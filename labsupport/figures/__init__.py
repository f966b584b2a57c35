"""Plots and explorable figures: `show`, `explore`, `widget` and the shared `style`, one file per chapter beside them.

A chapter's figures load when first named (`figures.softmax_and_kl`). Importing this package must not
import matplotlib, ipywidgets or IPython.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from labsupport.figures import style, svg
from labsupport.figures.explorable import explore, show
from labsupport.figures.widgets import (
    bit_explorer,
    broadcast_explorer,
    steps,
    strides_explorer,
    widget,
    worksheet,
)

__all__ = [
    "bit_explorer", "broadcast_explorer", "explore", "show", "steps", "strides_explorer", "style", "svg", "widget",
    "worksheet",
]


def __getattr__(name: str) -> Any:
    """Load a chapter's figures on first use; raise AttributeError where there are none of that name."""
    full = f"{__name__}.{name}"
    if name.startswith("_") or find_spec(full) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(full)
