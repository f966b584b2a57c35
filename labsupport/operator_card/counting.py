"""Counts what NumPy code does: elementwise operations, elements reduced, and which arrays were broadcast.

An array type takes note of every universal function that meets it; matrix products are left to torch's counter. It
must never change a result.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labsupport.operator_card.operators import Operator

Array = np.ndarray


@dataclass
class Tally:
    """Operations seen so far, and (name, its shape, shape of the result) of each broadcast input."""

    operations: int = 0
    broadcasts: set[tuple[str, tuple[int, ...], tuple[int, ...]]] = field(default_factory=set)


class Counted(np.ndarray):
    """An array that enters what happens to it, and to all that is computed from it, in a tally."""

    tally: Tally | None = None
    label: str = ""

    def __array_finalize__(self, source: Any) -> None:
        self.tally = getattr(source, "tally", None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **settings: Any) -> Any:
        plain = [x.view(np.ndarray) if isinstance(x, Counted) else x for x in inputs]
        if out is not None:
            settings["out"] = tuple(x.view(np.ndarray) if isinstance(x, Counted) else x for x in out)
        result = getattr(ufunc, method)(*plain, **settings)
        if ufunc is not np.matmul and self.tally is not None:
            size = int(np.size(result))
            self.tally.operations += int(np.size(plain[0])) - size if method == "reduce" else size
            if method == "__call__":
                self.tally.broadcasts |= {
                    (x.label, x.shape, np.shape(result))
                    for x in inputs
                    if isinstance(x, Counted) and x.label and x.shape != np.shape(result)
                }
        if not isinstance(result, np.ndarray | np.generic):
            return result
        counted = np.asarray(result).view(Counted)
        counted.tally = self.tally
        return counted


def counted_run(operator: Operator, inputs: dict[str, Array]) -> Tally:
    """Run the textbook steps of an operator and return what they did."""
    tally = Tally()
    watched: dict[str, Any] = {}
    for name, x in inputs.items():
        if name in operator.integers:
            watched[name] = x
            continue
        array = np.array(x).view(Counted)
        array.tally, array.label = tally, name
        watched[name] = array
    operator.steps(**watched)
    return tally


def broadcast_axes(operator: Operator, tally: Tally) -> dict[str, tuple[str, ...]]:
    """Input → axes of the result along which it was repeated; sizes name the axes, since all differ."""
    letters = {size: letter for letter, size in operator.sizes.items()}
    found = {}
    for name, shape, result in tally.broadcasts:
        missing = tuple(letters[size] for size in result if size not in shape)
        if missing:
            found[name] = missing
    return found


def torch_matmul_flops(operator: Operator, inputs: dict[str, Array]) -> int:
    """FLOPs of the matrix products as torch's FlopCounterMode counts them; elementwise work counts 0 there."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    tensors = {name: torch.as_tensor(np.array(x)) for name, x in inputs.items()}
    with FlopCounterMode(display=False) as counter:
        operator.torch(**tensors)
    return int(counter.get_total_flops())
