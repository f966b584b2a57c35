"""Arrays as a kernel sees them: element by element, bounds checked, every access noted.

Elements live in a Python list, so that a load costs one list look-up and hands out a NumPy scalar
of the array's own dtype. Integers are handed out as Python integers: the compiler computes with
64 bits. One list of numbers, shared by all arrays of a launch, is the log of accesses.
"""

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
        "machine",
        "n0",
        "n1",
        "name",
        "number",
        "scalar",
        "shape",
        "size",
        "space",
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
        self.size, self.itemsize = int(np.prod(shape, dtype=np.int64)), dtype.itemsize
        self.strides = tuple(int(np.prod(shape[k + 1 :], dtype=np.int64)) for k in range(len(shape)))
        self.n0 = shape[0] if shape else 0
        self.n1 = shape[1] if len(shape) > 1 else 0
        self.scalar, self.convert = _scalar_of(dtype)
        self.base = number << SITE_BITS
        self.append: Callable[[int], None] = machine.log.append

    ndim = property(lambda self: len(self.shape))

    def __len__(self) -> int:
        return self.shape[0]

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

    # Fast paths for one and two indices; arrays with another number of axes keep the slow one.
    ld1 = ld2 = ld
    st1 = st2 = st

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


class Array1(Array):
    """An array with one axis that is shared or global."""

    __slots__ = ()

    def ld1(self, site: int, i: Any) -> Any:
        """Element i."""
        if i.__class__ is int and 0 <= i < self.n0:
            value = self.data[i]
            self.append(i * STEP + self.base + site)
            return self.machine.uninitialized(self, site, i) if value is None else value
        return self.ld(site, i)

    def st1(self, site: int, value: Any, i: Any) -> None:
        """Set element i."""
        if i.__class__ is int and 0 <= i < self.n0:
            self.append(i * STEP + self.base + site)
            self.data[i] = value if value.__class__ is self.scalar else self.narrowed(site, value)
        else:
            self.st(site, value, i)


class Array2(Array):
    """An array with two axes, row-major, that is shared or global."""

    __slots__ = ()

    def ld2(self, site: int, i: Any, j: Any) -> Any:
        """Element (i, j)."""
        if 0 <= i < self.n0 and 0 <= j < self.n1:
            offset = i * self.n1 + j
            if offset.__class__ is int:
                value = self.data[offset]
                self.append(offset * STEP + self.base + site)
                return self.machine.uninitialized(self, site, offset) if value is None else value
        return self.ld(site, i, j)

    def st2(self, site: int, value: Any, i: Any, j: Any) -> None:
        """Set element (i, j)."""
        if 0 <= i < self.n0 and 0 <= j < self.n1:
            offset = i * self.n1 + j
            if offset.__class__ is int:
                self.append(offset * STEP + self.base + site)
                self.data[offset] = value if value.__class__ is self.scalar else self.narrowed(site, value)
                return
        self.st(site, value, i, j)


def make_array(
    machine: Any, number: int, name: str, space: str, shape: tuple[int, ...], dtype: np.dtype[Any], data: list[Any]
) -> Array:
    """The array class that fits: local memory is private and not logged."""
    kind = Array if space is LOCAL else {1: Array1, 2: Array2}.get(len(shape), Array)
    return kind(machine, number, name, space, shape, dtype, data)


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
