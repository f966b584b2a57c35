"""Arrays as a kernel sees them: element by element, bounds checked, every access noted.

Elements live in a Python list, so that a load costs one list look-up and hands out a NumPy scalar
of the array's own dtype. Integers are handed out as Python integers: the compiler computes with
64 bits. One list of numbers, shared by all arrays of a launch, is the log of accesses.
"""

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from labsupport.cuda.simt.errors import OutOfBoundsError, UnsupportedError

SITE_BITS, ARRAY_BITS = 20, 6
#: A log entry is offset · STEP + array · 2**SITE_BITS + site.
STEP = 1 << (SITE_BITS + ARRAY_BITS)
GLOBAL, SHARED, LOCAL = "global", "shared", "local"


class Array:
    """One array of a launch; ``ld2`` and ``st2`` are what ``A[i, j]`` and ``A[i, j] = v`` turn into."""

    __slots__ = (
        "append",
        "base",
        "convert",
        "data",
        "dtype",
        "itemsize",
        "ld1",
        "ld2",
        "machine",
        "n0",
        "n1",
        "name",
        "number",
        "scalar",
        "shape",
        "size",
        "space",
        "st1",
        "st2",
        "strides",
    )

    def __init__(
        self,
        machine: Any,
        number: int,
        name: str,
        space: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        data: list[Any],
    ) -> None:
        self.machine, self.number, self.name, self.space = machine, number, name, space
        self.shape, self.dtype, self.data = shape, dtype, data
        self.size, self.itemsize = math.prod(shape), dtype.itemsize
        self.strides = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
        self.n0 = shape[0] if shape else 0
        self.n1 = shape[1] if len(shape) > 1 else 0
        self.scalar, self.convert = _scalar_of(dtype)
        self.base = number << SITE_BITS
        self.append: Callable[[int], None] = machine.log.append
        # What one and two indices turn into; ``make_array`` puts faster ones here where it can.
        self.ld1: Callable[..., Any] = self.ld
        self.ld2: Callable[..., Any] = self.ld
        self.st1: Callable[..., None] = self.st
        self.st2: Callable[..., None] = self.st

    ndim = property(lambda self: len(self.shape))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        """Called only where the source does not show that a name stands for an array."""
        line = sys._getframe(1).f_lineno
        raise UnsupportedError(
            f"line {line}: give the array a name of its own (a = …) and write a[i]; here it is taken out of another "
            "expression",
            line=line,
        )

    def __setitem__(self, index: Any, value: Any) -> None:
        line = sys._getframe(1).f_lineno
        raise UnsupportedError(
            f"line {line}: give the array a name of its own (a = …) and write a[i] = v; here it is taken out of "
            "another expression",
            line=line,
        )

    def ld(self, site: int, *index: Any) -> Any:
        """Element at the index."""
        offset = self.offset(site, index)
        if self.space is not LOCAL:
            self.append(offset * STEP + self.base + site)
        value = self.data[offset]
        return self.machine.uninitialized(self, site, offset) if value is None else value

    def st(self, site: int, value: Any, *index: Any) -> None:
        """Set the element at the index, converted to the array's dtype."""
        offset = self.offset(site, index)
        if self.space is not LOCAL:
            self.append(offset * STEP + self.base + site)
        self.data[offset] = value if value.__class__ is self.scalar else self.narrowed(site, value)

    def offset(self, site: int, index: tuple[Any, ...]) -> int:
        """Offset of an element in the buffer; raises OutOfBoundsError."""
        if len(index) != len(self.shape):
            raise self.bad_index(site, index)
        total = 0
        for i, n, stride in zip(index, self.shape, self.strides, strict=True):
            if not isinstance(i, int | np.integer) or not 0 <= i < n:
                raise self.bad_index(site, index)
            total += int(i) * stride
        return total

    def narrowed(self, site: int, value: Any) -> Any:
        """The value in the array's dtype; the place of a float64 that is rounded is remembered."""
        if value.__class__ is np.float64 or value.__class__ is float:
            self.machine.float64_sites.add(site)
        try:
            return self.convert(value)
        except (TypeError, ValueError) as error:
            text = f"a {type(value).__name__} cannot be stored in {self.name} ({self.dtype})"
            raise self.machine.fault(UnsupportedError, site, text, self) from error

    def bad_index(self, site: int, index: tuple[Any, ...]) -> Exception:
        """The error for an index that is not one element of the array."""
        shown = ", ".join(str(int(i)) if isinstance(i, int | np.integer) else type(i).__name__ for i in index)
        if len(index) != len(self.shape):
            text = f"{self.name}[{shown}] has {len(index)} indices, but {self.name} has shape {self.shape}"
            return self.machine.fault(UnsupportedError, site, text, self)
        if not all(isinstance(i, int | np.integer) for i in index):
            text = f"{self.name}[{shown}]: an index is a whole number; use // for integer division"
            return self.machine.fault(UnsupportedError, site, text, self)
        text = f"{self.name}[{shown}] is outside the array, whose shape is {self.shape}"
        if any(i < 0 for i in index):
            text += "; a negative index does not count from the end on a GPU"
        else:
            text += "; compare the index with the shape before the access"
        return self.machine.fault(OutOfBoundsError, site, text, self)


def _one_index(array: Array) -> tuple[Callable[..., Any], Callable[..., None]]:
    """Load and store of element i of an array that is shared or global; closures, since they are called most."""
    data, n, log, base, scalar = array.data, array.n0, array.append, array.base, array.scalar

    def load(site: int, i: Any) -> Any:
        if i.__class__ is int and 0 <= i < n:
            log(i * STEP + base + site)
            value = data[i]
            return array.machine.uninitialized(array, site, i) if value is None else value
        return array.ld(site, i)

    def store(site: int, value: Any, i: Any) -> None:
        if i.__class__ is int and 0 <= i < n:
            log(i * STEP + base + site)
            data[i] = value if value.__class__ is scalar else array.narrowed(site, value)
        else:
            array.st(site, value, i)

    return load, store


def _two_indices(array: Array) -> tuple[Callable[..., Any], Callable[..., None]]:
    """The same for element (i, j) of a row-major array with two axes."""
    data, n0, n1, log, base, scalar = array.data, array.n0, array.n1, array.append, array.base, array.scalar

    def load(site: int, i: Any, j: Any) -> Any:
        try:
            if 0 <= i < n0 and 0 <= j < n1:
                offset = i * n1 + j
                if offset.__class__ is int:  # a NumPy integer would overflow in the log
                    value = data[offset]
                    log(offset * STEP + base + site)
                    return array.machine.uninitialized(array, site, offset) if value is None else value
        except TypeError:  # an index that is no whole number, which ``ld`` explains
            pass
        return array.ld(site, i, j)

    def store(site: int, value: Any, i: Any, j: Any) -> None:
        if 0 <= i < n0 and 0 <= j < n1:
            offset = i * n1 + j
            if offset.__class__ is int:
                log(offset * STEP + base + site)
                data[offset] = value if value.__class__ is scalar else array.narrowed(site, value)
                return
        array.st(site, value, i, j)

    return load, store


def make_array(
    machine: Any, number: int, name: str, space: str, shape: tuple[int, ...], dtype: np.dtype[Any], data: list[Any]
) -> Array:
    """An array with the fast ways to its elements; local memory is private and not logged."""
    array = Array(machine, number, name, space, shape, dtype, data)
    if space is not LOCAL and len(shape) == 1:
        array.ld1, array.st1 = _one_index(array)
    elif space is not LOCAL and len(shape) == 2:
        array.ld2, array.st2 = _two_indices(array)
    return array


def elements(array: np.ndarray) -> list[Any]:
    """Elements of a NumPy array as a kernel computes with them."""
    if array.dtype.kind == "f":
        return list(array.reshape(-1))
    return array.reshape(-1).tolist()


def _scalar_of(dtype: np.dtype[Any]) -> tuple[type, Callable[[Any], Any]]:
    """Class of an element as handed to the kernel, and the conversion of a stored value."""
    if dtype.kind == "f":
        return dtype.type, dtype.type
    if dtype.kind == "b":
        return bool, bool
    if dtype.itemsize == 8 and dtype.kind == "i":
        return int, int
    bits, signed = 8 * dtype.itemsize, dtype.kind == "i"

    def wrapped(value: Any) -> int:
        number = int(value) & ((1 << bits) - 1)  # wraps round, as the hardware does
        return number - (1 << bits) if signed and number >> (bits - 1) else number

    return _Never, wrapped


class _Never:
    """The class of no value: every store of a narrow integer goes through the conversion."""
