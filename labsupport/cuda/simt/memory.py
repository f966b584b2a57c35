"""Arrays as a kernel sees them: element by element, bounds checked, every access noted.

Elements live in a Python list, so that a load costs one list look-up and hands out a NumPy scalar
of the array's own dtype. Integers are handed out as Python integers: the compiler computes with
64 bits. One list of numbers, shared by all arrays of a launch, is the log of accesses.
"""

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from labsupport.cuda.simt.errors import OutOfBoundsError, UnsupportedError

SITE_BITS, ARRAY_BITS = 20, 6
#: A log entry is offset · STEP + array · 2**SITE_BITS + site.
STEP = 1 << (SITE_BITS + ARRAY_BITS)
GLOBAL, SHARED, LOCAL = "global", "shared", "local"


class Array:
    """One array of a launch; ``ld2`` and ``st2`` are what ``A[i, j]`` and ``A[i, j] = v`` turn into.

    A part ``A[lo:hi]`` is an array of its own name that begins ``shift`` elements further on in the same memory.
    """

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
        "root",
        "scalar",
        "shape",
        "shift",
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
        shift: int = 0,
    ) -> None:
        self.machine, self.number, self.name, self.space = machine, number, name, space
        self.shape, self.dtype, self.data, self.shift = shape, dtype, data, shift
        self.root: Array = self  # the whole of which this is a part
        self.size, self.itemsize = math.prod(shape), dtype.itemsize
        self.strides = _strides(shape)
        self.n0 = shape[0] if shape else 0
        self.n1 = shape[1] if len(shape) > 1 else 0
        self.scalar, self.convert = scalar_of(dtype)
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

    def __iter__(self) -> Iterator[Any]:
        raise self.machine.refused(
            f"{self.name} is taken as a whole; a thread reads single elements: loop over range({self.name}.shape[0]) "
            f"and read {self.name}[k]"
        )

    def __getattr__(self, attribute: str) -> Any:
        """Called only for what an array of NumPy has and this has not."""
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        raise self.machine.refused(
            f"{self.name}.{attribute} is not in the dialect; of an array a kernel uses the elements, shape, size, "
            "ndim and dtype"
        )

    def __getitem__(self, index: Any) -> Any:
        """Called only where the source does not show that a name stands for an array."""
        raise self.machine.refused(
            "give the array a name of its own (a = …) and write a[i]; here it is taken out of another expression"
        )

    def __setitem__(self, index: Any, value: Any) -> None:
        raise self.machine.refused(
            "give the array a name of its own (a = …) and write a[i] = v; here it is taken out of another expression"
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
        if len(index) == 1 and isinstance(index[0], tuple):  # p = cuda.grid(2); A[p]
            index = index[0]
        if len(index) != len(self.shape):
            raise self.bad_index(site, index)
        total = self.shift
        for i, n, stride in zip(index, self.shape, self.strides, strict=True):
            if not (i.__class__ is int or _is_whole(i)) or not 0 <= i < n:
                raise self.bad_index(site, index)
            total += int(i) * stride
        return total

    def part(self, site: int, *index: Any) -> "Array":
        """The part ``A[i, lo:hi]`` of consecutive elements; a slice is the pair of its bounds."""
        first = next(k for k, i in enumerate(index) if isinstance(i, tuple))
        rest = index[first + 1 :]
        if len(index) > len(self.shape) or any(i != (None, None) for i in rest):
            text = f"this part of {self.name} is not one stretch of memory; index its elements instead"
            raise self.machine.fault(UnsupportedError, site, text, self)
        bounds = [bound for bound in index[first] if bound is not None]
        if not all(_is_whole(i) for i in (*index[:first], *bounds)):
            raise self.bad_index(site, (*index[:first], *bounds))
        for k in range(first):
            if not 0 <= index[k] < self.shape[k]:
                raise self.bad_index(site, (*index[:first], *self.shape[first:]))
        low, high = slice(*index[first]).indices(self.shape[first])[:2]
        if any(bound < 0 for bound in bounds):
            text = f"a part of {self.name} begins or ends at {min(bounds)}; count from the start of the array"
            raise self.machine.fault(UnsupportedError, site, text, self)
        shift = self.shift + sum(int(i) * n for i, n in zip((*index[:first], low), self.strides, strict=False))
        shape = (max(0, high - low), *self.shape[first + 1 :])
        made = make_array(self.machine, self.number, self.name, self.space, shape, self.dtype, self.data, shift)
        made.root = self.root
        return made

    def narrowed(self, site: int, value: Any) -> Any:
        """The value in the array's dtype; the place of a float64 that is rounded is remembered."""
        if value.__class__ is np.float64 or value.__class__ is float:
            self.machine.float64_sites.add(site)
        if not isinstance(value, int | float | np.number | np.bool_):
            text = f"a {type(value).__name__} cannot be stored in {self.name} ({self.dtype}); an element is one number"
            raise self.machine.fault(UnsupportedError, site, text, self)
        return self.convert(value)

    def bad_index(self, site: int, index: tuple[Any, ...]) -> Exception:
        """The error for an index that is not one element of the array."""
        shown = ", ".join(str(int(i)) if _is_whole(i) else f"a {type(i).__name__}, {i}" for i in index)
        if len(index) != len(self.shape):
            count = f"{len(index)} {'index' if len(index) == 1 else 'indices'}"
            text = f"{self.name}[{shown}] has {count}, but {self.name} has shape {self.shape}"
            if 0 < len(index) < len(self.shape):
                text += f"; an element has one for each axis, and a row is written {self.name}[{shown}, :]"
            return self.machine.fault(UnsupportedError, site, text, self)
        if not all(_is_whole(i) for i in index):
            text = f"{self.name}[{shown}]: an index is a whole number; "
            triple = any(hasattr(i, "triple") for i in index)
            text += "write .x, .y or .z" if triple else "use // for integer division and int() otherwise"
            return self.machine.fault(UnsupportedError, site, text, self)
        whole = "array" if self.root is self else "part of the array that was taken"
        text = f"{self.name}[{shown}] is outside the {whole}, whose shape is {self.shape}"
        if any(i < 0 for i in index):
            text += "; numba takes a negative index from the end, CUDA C++ from before the array: count from the start"
        else:
            text += "; compare the index with the shape before the access"
        return self.machine.fault(OutOfBoundsError, site, text, self)


def _is_whole(i: Any) -> bool:
    """Whether the compiler takes a value for an index: an integer, and no truth value."""
    return isinstance(i, int | np.integer) and not isinstance(i, bool)


@lru_cache(maxsize=4096)
def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))


def _one_index(array: Array) -> tuple[Callable[..., Any], Callable[..., None]]:
    """Load and store of element i of an array that is shared or global; closures, since they are called most."""
    data, n, log, scalar, shift = array.data, array.n0, array.append, array.scalar, array.shift
    base = array.base + shift * STEP

    def load(site: int, i: Any) -> Any:
        if i.__class__ is int and 0 <= i < n:
            log(i * STEP + base + site)
            value = data[i + shift]
            return array.machine.uninitialized(array, site, i + shift) if value is None else value
        return array.ld(site, i)

    def store(site: int, value: Any, i: Any) -> None:
        if i.__class__ is int and 0 <= i < n:
            log(i * STEP + base + site)
            data[i + shift] = value if value.__class__ is scalar else array.narrowed(site, value)
        else:
            array.st(site, value, i)

    return load, store


def _two_indices(array: Array) -> tuple[Callable[..., Any], Callable[..., None]]:
    """The same for element (i, j) of a row-major array with two axes."""
    data, n0, n1, log, base, scalar = array.data, array.n0, array.n1, array.append, array.base, array.scalar

    def load(site: int, i: Any, j: Any) -> Any:
        if i.__class__ is j.__class__ is int and 0 <= i < n0 and 0 <= j < n1:
            offset = i * n1 + j
            log(offset * STEP + base + site)
            value = data[offset]
            return array.machine.uninitialized(array, site, offset) if value is None else value
        return array.ld(site, i, j)

    def store(site: int, value: Any, i: Any, j: Any) -> None:
        if i.__class__ is j.__class__ is int and 0 <= i < n0 and 0 <= j < n1:
            offset = i * n1 + j
            log(offset * STEP + base + site)
            data[offset] = value if value.__class__ is scalar else array.narrowed(site, value)
        else:
            array.st(site, value, i, j)

    return load, store


def _private(array: Array) -> tuple[Callable[..., Any], Callable[..., None]]:
    """Load and store in a local array with one or two axes: nobody else sees it, so nothing is noted."""
    data, scalar, n0 = array.data, array.scalar, array.n0
    n1 = array.n1

    def load1(site: int, i: Any) -> Any:
        value = data[i] if i.__class__ is int and 0 <= i < n0 else None
        return array.ld(site, i) if value is None else value

    def store1(site: int, value: Any, i: Any) -> None:
        if i.__class__ is int and 0 <= i < n0 and value.__class__ is scalar:
            data[i] = value
        else:
            array.st(site, value, i)

    def load2(site: int, i: Any, j: Any) -> Any:
        value = data[i * n1 + j] if i.__class__ is j.__class__ is int and 0 <= i < n0 and 0 <= j < n1 else None
        return array.ld(site, i, j) if value is None else value

    def store2(site: int, value: Any, i: Any, j: Any) -> None:
        if i.__class__ is j.__class__ is int and 0 <= i < n0 and 0 <= j < n1 and value.__class__ is scalar:
            data[i * n1 + j] = value
        else:
            array.st(site, value, i, j)

    return (load1, store1) if array.ndim == 1 else (load2, store2)


def make_array(
    machine: Any,
    number: int,
    name: str,
    space: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    data: list[Any],
    shift: int = 0,
) -> Array:
    """An array with the fast ways to its elements; local memory is private and not logged."""
    array = Array(machine, number, name, space, shape, dtype, data, shift)
    if len(shape) == 1 and not (shift and space is LOCAL):
        array.ld1, array.st1 = _private(array) if space is LOCAL else _one_index(array)
    elif len(shape) == 2 and not shift:
        array.ld2, array.st2 = _private(array) if space is LOCAL else _two_indices(array)
    return array


def elements(array: np.ndarray) -> list[Any]:
    """Elements of a NumPy array as a kernel computes with them."""
    if array.dtype.kind == "f":
        return list(array.reshape(-1))
    return array.reshape(-1).tolist()


@lru_cache(maxsize=64)
def scalar_of(dtype: np.dtype[Any]) -> tuple[type, Callable[[Any], Any]]:
    """Class of an element as handed to the kernel, and the conversion of a stored value."""
    if dtype.kind == "f":
        return dtype.type, dtype.type
    if dtype.kind == "b":
        return bool, bool
    bits, signed = 8 * dtype.itemsize, dtype.kind == "i"

    def wrapped(value: Any) -> int:
        number = int(value) & ((1 << bits) - 1)  # wraps round, as the hardware does
        return number - (1 << bits) if signed and number >> (bits - 1) else number

    return _Never, wrapped


class _Never:
    """The class of no value: every store of an integer goes through the conversion."""
