"""CUDA-backed runs: ``check`` a kernel anywhere, ``measure`` it on a GPU, show the run that is ``recorded``.

The three verbs load when first used, so that importing the package costs nothing. Nothing here may
fall back from one verb to another without a word.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

#: Public name -> module that defines it.
LAZY = {
    "NoGPUError": "labsupport.cuda.device",
    "check": "labsupport.cuda.checking",
    "measure": "labsupport.cuda.measuring",
    "recorded": "labsupport.cuda.showing",
}

__all__ = ["NoGPUError", "check", "measure", "recorded"]

if TYPE_CHECKING:
    from labsupport.cuda.checking import check
    from labsupport.cuda.device import NoGPUError
    from labsupport.cuda.measuring import measure
    from labsupport.cuda.showing import recorded


class _Package(ModuleType):
    """This package, where a verb stays the verb when the module of its name is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in LAZY and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    """Load a verb on first use; raise AttributeError for anything else."""
    if name in LAZY:
        value = getattr(import_module(LAZY[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'labsupport.cuda' has no attribute {name!r}; it offers {', '.join(__all__)}")
