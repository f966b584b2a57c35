"""How close is close enough: ``c * eps * depth * scale``, never a bare constant.

``eps`` belongs to the coarser of the input's and the output's dtype, ``depth`` is the length of
the longest reduction, ``scale`` the magnitude of the result. This file must never look at an
answer's values: the tolerance depends on the inputs and the reference alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

#: Machine epsilon of every float format the judge may meet, by dtype name.
EPS: Mapping[str, float] = MappingProxyType(
    {
        "float8_e5m2": 2.0**-2,
        "float8_e4m3fn": 2.0**-3,
        "bfloat16": 2.0**-7,
        "float16": 2.0**-10,
        "float32": 2.0**-23,
        "float64": 2.0**-52,
    }
)
#: One unit of rounding error counts as float64 from here on: the reference itself is no better.
FINEST = "float64"


def float_name(dtype: np.dtype[Any]) -> str | None:
    """Return the name in ``EPS`` that rules values of ``dtype``, or None where it is no float format."""
    if dtype.name in EPS:
        return dtype.name
    if dtype.kind == "c":
        return "float32" if dtype.itemsize == 8 else FINEST
    return FINEST if dtype.kind == "f" else None


def coarsest(names: list[str]) -> str:
    """Return the name of the coarsest of some float formats; ``float64`` where there is none."""
    return max([FINEST, *names], key=EPS.__getitem__)


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """Rounding allowance of an exercise.

    Args:
        c: how many units in the last place one step of the computation may cost.
        depth: length of the longest reduction, a number or ``depth(*args, **kwargs)``.
        scale: ``"max"`` (the largest finite magnitude of each returned array), ``"each"`` (every
            value by itself, for results without cancellation) or ``scale(*args, **kwargs)``, a number
            or an array that broadcasts to the result: use it where large intermediate values cancel.
    """

    c: float = 4.0
    depth: int | Callable[..., int] = 1
    scale: str | Callable[..., Any] = "max"

    def __post_init__(self) -> None:
        if not self.c > 0:
            raise ValueError(f"a tolerance needs c > 0, got {self.c}")
        if isinstance(self.scale, str) and self.scale not in ("max", "each"):
            raise ValueError(f'scale is "max", "each" or a function of the inputs, got {self.scale!r}')

    def length(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
        """Return the reduction length of one case, at least 1."""
        depth = self.depth(*args, **kwargs) if callable(self.depth) else self.depth
        return max(1, int(depth))

    def allowed(self, reference: np.ndarray, eps_of: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> np.ndarray:
        """Return the largest error allowed at every place of ``reference``, as float64."""
        magnitude = np.abs(np.where(np.isfinite(reference), reference, 0)).astype(np.float64)
        if callable(self.scale):
            scale = np.broadcast_to(np.asarray(self.scale(*args, **kwargs), np.float64), reference.shape)
            if not np.isfinite(scale).all():
                raise ValueError("the scale of a tolerance must be finite: it would let everything pass")
        elif self.scale == "each":
            scale = magnitude
        else:
            largest = float(magnitude.max(initial=0.0)) or largest_input(args, kwargs)
            scale = np.full(reference.shape, largest)
        return self.c * EPS[eps_of] * self.length(args, kwargs) * scale

    def words(self, formats: list[str], depth: int) -> str:
        """Say the tolerance to a reader: units in the last place, float formats, reduction length."""
        if self.c >= 1000:  # nobody counts a million units: say how large they are together
            parts = [f"{self.c * EPS[name]:.1g} ({name})" for name in formats]
            units = f"a relative error of {' and '.join(parts)}"
        else:
            units = f"{self.c:g} unit{'' if self.c == 1 else 's'} in the last place of {' and '.join(formats)}"
        return units if depth == 1 else f"{units}, times the reduction length {depth}"


def largest_input(args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Return the largest finite magnitude among the inputs' arrays; 1 where there is none or all are 0.

    It is the scale of a result that is exactly zero, where rounding noise has no other measure.
    """
    largest = 0.0
    for value in [*args, *kwargs.values()]:
        if isinstance(value, np.ndarray) and value.size and value.dtype.kind == "f":
            wide = np.abs(value.astype(np.float64))
            largest = max(largest, float(np.max(np.where(np.isfinite(wide), wide, 0.0))))
    return largest or 1.0
