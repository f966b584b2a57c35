"""A deterministic simulator of the ``numba.cuda`` kernel dialect, for machines without a GPU.

Kernels written for numba-cuda run here unchanged, thread by thread, and what a GPU leaves
undefined is found and explained: data races, divergent barriers, accesses outside an array,
memory that nobody filled. It needs NumPy and greenlet only, and must never accept a kernel whose
result depends on luck.
"""

import math as python_math
import operator
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from labsupport.cuda.simt.errors import (
    BarrierError,
    DataRaceError,
    EndlessLoopError,
    KernelFault,
    LaunchError,
    OutOfBoundsError,
    SimtError,
    UninitializedError,
    UnsupportedError,
    WarpError,
)
from labsupport.cuda.simt.machine import (
    MAX_BLOCK_DIM,
    MAX_GRID_DIM,
    Dim3,
    Machine,
    Phase,
    Report,
    Step,
    as_dim3,
    check_block,
)
from labsupport.cuda.simt.memory import Array
from labsupport.cuda.simt.transform import transformed

__all__ = [
    "BarrierError",
    "DataRaceError",
    "EndlessLoopError",
    "Kernel",
    "KernelFault",
    "LaunchError",
    "OutOfBoundsError",
    "Phase",
    "Report",
    "SimtError",
    "Step",
    "UninitializedError",
    "UnsupportedError",
    "WarpError",
    "check_launch",
    "cuda",
    "launch",
]

FULL_MASK = 0xFFFFFFFF

#: What a function was rewritten to, without and with a look at every integer; it depends on the source alone.
_makers: "WeakKeyDictionary[FunctionType, dict[bool, Callable[[dict[str, Any]], FunctionType]]]" = WeakKeyDictionary()
#: The launch that is running; kernels have no other way to reach it than these module names.
_running: list[Machine] = []


def launch(
    kernel: "Kernel | FunctionType",
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    *arguments: Any,
    shared_bytes: int = 0,
    seed: int | None = None,
    profile: bool = True,
    trace: bool = False,
    seconds: float | None = None,
) -> Report:
    """Run a kernel over a grid of blocks and return what it did.

    Args:
        kernel: a function with ``cuda.jit``, or a plain function in the same dialect.
        grid, block: number of blocks and of threads in a block, each a number or up to three.
        arguments: NumPy arrays (C-contiguous; changed in place) and numbers.
        shared_bytes: dynamic shared memory of a block.
        seed: order of blocks and threads; None is the natural order. No verdict depends on it.
        profile: count sectors, bank conflicts and accesses.
        trace: keep every access of the first block in ``Report.trace``.
        seconds: computing time after which loops count as endless; None is no limit.

    Raises:
        SimtError: a subclass names each fault, with line and thread.
    """
    made = kernel if isinstance(kernel, Kernel) else Kernel(kernel)
    dims = as_dim3(grid, "grid", MAX_GRID_DIM), as_dim3(block, "block", MAX_BLOCK_DIM)
    check_block(dims[1])
    if not isinstance(shared_bytes, int | np.integer) or shared_bytes < 0:
        raise LaunchError(f"shared_bytes is {shared_bytes!r}; it is a number of bytes, 0 or more")
    if _running:
        raise UnsupportedError("a kernel cannot launch a kernel here")
    names = made.parameters
    if len(names) != len(arguments):
        raise LaunchError(f"{made.__name__} takes {len(names)} arguments ({', '.join(names)}), not {len(arguments)}")
    careful = any(_is_integer(value) for value in arguments)
    function = made.rewritten(careful)
    machine = Machine(*dims, int(shared_bytes), seed, profile, trace, seconds, careful)
    _running.append(machine)
    try:
        return machine.run(function, names, arguments)
    finally:
        _running.pop()


def check_launch(grid: int | tuple[int, ...], block: int | tuple[int, ...]) -> None:
    """Raise LaunchError for a grid or a block that no GPU starts."""
    as_dim3(grid, "grid", MAX_GRID_DIM)
    check_block(as_dim3(block, "block", MAX_BLOCK_DIM))


class Kernel:
    """A kernel or device function; ``kernel[grid, block](…)`` runs it, as in numba."""

    def __init__(self, function: FunctionType, device: bool = False) -> None:
        if not isinstance(function, FunctionType):
            raise UnsupportedError(f"a kernel is a function written with def, not a {type(function).__name__}")
        self.py_func, self.device = function, device
        self.__name__, self.__doc__ = function.__name__, function.__doc__
        self._made: FunctionType | None = None
        self._launch: Machine | None = None
        #: Report of the last launch through ``kernel[grid, block](…)``.
        self.report: Report | None = None

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the arguments."""
        return self.py_func.__code__.co_varnames[: self.py_func.__code__.co_argcount]

    def __getitem__(self, configuration: tuple[Any, ...]) -> Callable[..., None]:
        if not isinstance(configuration, tuple) or not 2 <= len(configuration) <= 4:
            raise LaunchError("write kernel[grid, block](…), with the numbers of blocks and of threads in a block")
        grid, block, *rest = configuration
        shared_bytes = rest[1] if len(rest) == 2 else 0

        def run(*arguments: Any) -> None:
            self.report = launch(self, grid, block, *arguments, shared_bytes=shared_bytes)

        return run

    def __call__(self, *arguments: Any) -> Any:
        """Call a device function from a running kernel."""
        if not _running:
            raise LaunchError(f"{self.__name__} is a kernel: launch it with {self.__name__}[grid, block](…)")
        if self._made is None or self._launch is not _running[-1]:
            self.rewritten(_running[-1].careful)
        assert self._made is not None
        return self._made(*arguments)

    def rewritten(self, careful: bool = False) -> FunctionType:
        """The function whose accesses pass through the simulator, with today's global values."""
        makers = _makers.setdefault(self.py_func, {})
        if careful not in makers:
            makers[careful] = transformed(self.py_func, careful)
        namespace = dict(self.py_func.__globals__)
        closure = self.py_func.__closure__ or ()
        namespace.update(zip(self.py_func.__code__.co_freevars, (cell.cell_contents for cell in closure), strict=True))
        self._made, self._launch = makers[careful](_kernel_names(namespace)), _machine() if _running else None
        return self._made


def _is_integer(value: Any) -> bool:
    kind = value.dtype.kind if isinstance(value, np.ndarray | np.generic) else "i" if isinstance(value, int) else "f"
    return kind in "iub"


def _kernel_names(namespace: dict[str, Any]) -> dict[str, Any]:
    """Global names as the compiler would see them: this module's cuda, its math, its types."""
    for name, value in list(namespace.items()):
        if value is python_math:
            namespace[name] = math
        elif isinstance(value, ModuleType) and value.__name__ in ("numba.cuda", "numba_cuda.numba.cuda"):
            namespace[name] = cuda
        elif type(value).__module__.startswith("numba") and hasattr(value, "py_func"):
            namespace[name] = Kernel(value.py_func, device=True)
        elif type(value).__module__.startswith("numba.") and isinstance(getattr(value, "name", None), str):
            namespace[name] = _numpy_type(value.name)
        elif isinstance(value, FunctionType):
            namespace[name] = _plain_function(name)
    namespace.update(_RUNTIME)
    return namespace


def _plain_function(name: str) -> Callable[..., Any]:
    """What stands for a function without a decorator: a compiler refuses to call it from a kernel."""

    def refuse(*arguments: Any, **named: Any) -> Any:
        line = sys._getframe(1).f_lineno
        raise UnsupportedError(
            f"line {line}: {name} is a plain Python function; write @cuda.jit(device=True) above it", line=line
        )

    return refuse


def _numpy_type(name: str) -> Any:
    return np.dtype(name).type if name in np.sctypeDict else name


def _machine() -> Machine:
    if not _running:
        raise LaunchError(
            "this name of cuda means something inside a running kernel only; launch it with [grid, block]"
        )
    return _running[-1]


def _tick(line: int) -> None:
    _running[-1].tick(line)


def _loop(line: int, items: Any) -> Any:
    _running[-1].loop(line, len(items) if items.__class__ is range else 1)
    return items


def _divide(a: Any, b: Any) -> Any:
    """True division as compiled code does it: integers give float64, a float32 stays float32 with its own kind."""
    if a.__class__ is int:
        return np.float64(a) / b if b.__class__ is not int else _quotient(a, b)
    if b.__class__ is int:
        return a / np.float64(b)
    return a / b


def _meeting(operate: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The operation as compiled code does it: an int64 that meets a float32 makes a float64."""

    def mixed(a: Any, b: Any) -> Any:
        if a.__class__ is int:
            return operate(np.float64(a), b) if isinstance(b, np.floating) else operate(a, b)
        if b.__class__ is int and isinstance(a, np.floating):
            return operate(a, np.float64(b))
        return operate(a, b)

    return mixed


def _power(a: Any, b: Any) -> Any:
    """A power as compiled code computes it: a float to an integer power stays what it is."""
    return np.float64(a) ** b if a.__class__ is int and isinstance(b, np.floating) else a**b


def _choosing(choose: Callable[..., Any]) -> Callable[..., Any]:
    """``max`` or ``min``, with the same rule."""

    def chosen(*values: Any) -> Any:
        result, first = choose(*values), values[0].__class__
        if all(value.__class__ is first for value in values):
            return result
        floats = [value.dtype for value in values if isinstance(value, np.floating)]
        if not floats:
            return result
        if any(not isinstance(value, np.floating) for value in values):
            return np.float64(result)
        return np.result_type(*floats).type(result)

    return chosen


def _quotient(a: int, b: int) -> np.float64:
    if b == 0:
        raise ZeroDivisionError("an integer is divided by 0")
    return np.float64(a / b)


class _Shared:
    """``cuda.shared.array(shape, dtype)``; shape 0 is the dynamic shared memory of the launch."""

    @staticmethod
    def array(shape: int | tuple[int, ...], dtype: Any) -> Array:
        return _machine().shared_array(_shape(shape), _dtype(dtype))


class _Local:
    """``cuda.local.array(shape, dtype)``."""

    @staticmethod
    def array(shape: int | tuple[int, ...], dtype: Any) -> Array:
        return _machine().local_array(_shape(shape), _dtype(dtype))


def _shape(shape: Any) -> tuple[int, ...]:
    sizes = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    if not sizes or not all(isinstance(n, int | np.integer) and n >= 0 for n in sizes):
        raise LaunchError(f"the shape {shape!r} of a shared or local array is not made of whole numbers, 0 or more")
    return tuple(int(n) for n in sizes)


def _dtype(dtype: Any) -> np.dtype[Any]:
    return np.dtype(getattr(dtype, "name", None) or dtype)


class _Atomic:
    """Read-modify-write that no other thread can interrupt; each returns the old value."""

    @staticmethod
    def _change(array: Array, index: Any, site: int, new: Callable[[Any], Any]) -> Any:
        machine = _machine()
        position = tuple(index) if isinstance(index, tuple) else (index,)
        offset = array.offset(site, position)
        machine.log_atomic(array, site, offset)
        old = array.data[offset]
        if old is None:
            old = machine.uninitialized(array, site, offset)
        array.data[offset] = array.convert(new(old))
        return old

    def add(self, array: Array, index: Any, value: Any, site: int = 0) -> Any:
        return self._change(array, index, site, lambda old: old + value)

    def sub(self, array: Array, index: Any, value: Any, site: int = 0) -> Any:
        return self._change(array, index, site, lambda old: old - value)

    def max(self, array: Array, index: Any, value: Any, site: int = 0) -> Any:
        return self._change(array, index, site, lambda old: value if value > old else old)

    def min(self, array: Array, index: Any, value: Any, site: int = 0) -> Any:
        return self._change(array, index, site, lambda old: value if value < old else old)

    def exch(self, array: Array, index: Any, value: Any, site: int = 0) -> Any:
        return self._change(array, index, site, lambda old: value)

    def cas(self, array: Array, index: Any, old: Any, value: Any, site: int = 0) -> Any:
        return self._change(array, index, site, lambda present: value if present == old else present)


def _integer(predicate: Any) -> Any:
    """A predicate of a block-wide vote, which the compiler takes as an integer only."""
    if isinstance(predicate, bool | np.bool_):
        line = sys._getframe(2).f_lineno
        text = f"line {line}: syncthreads_count, _and and _or take an integer: int(condition)"
        raise UnsupportedError(text, line=line)
    return predicate


def _line() -> int:
    """Line of the kernel that called a function of ``cuda``."""
    return sys._getframe(2).f_lineno


class _Cuda:
    """The part of ``numba.cuda`` that kernels use."""

    shared, local, atomic = _Shared(), _Local(), _Atomic()
    warpsize = 32

    threadIdx = property(lambda self: _machine().current.index)
    blockIdx = property(lambda self: _machine().block_index)
    blockDim = property(lambda self: _machine().block_dim)
    gridDim = property(lambda self: _machine().grid_dim)
    laneid = property(lambda self: _machine().current.lane)

    @staticmethod
    def jit(function: Any = None, device: bool = False, **options: Any) -> Any:
        """Decorator for kernels and device functions; signatures and options are accepted and ignored."""
        if isinstance(function, FunctionType):
            return Kernel(function, device)
        return lambda f: Kernel(f, device)

    @staticmethod
    def grid(ndim: int) -> Any:
        """Index of the thread in the whole grid, along the first ``ndim`` axes."""
        m = _machine()
        t, b, d = m.current.index, m.block_index, m.block_dim
        index = (b.x * d.x + t.x, b.y * d.y + t.y, b.z * d.z + t.z)
        return index[0] if ndim == 1 else index[:ndim]

    @staticmethod
    def gridsize(ndim: int) -> Any:
        """Number of threads of the grid along the first ``ndim`` axes."""
        m = _machine()
        sizes = tuple(g * b for g, b in zip(m.grid_dim, m.block_dim, strict=True))
        return sizes[0] if ndim == 1 else sizes[:ndim]

    @staticmethod
    def syncthreads() -> None:
        _machine().wait(sys._getframe(1).f_lineno)

    @staticmethod
    def syncthreads_count(predicate: Any) -> Any:
        return _machine().park("syncthreads_count", _line(), payload=_integer(predicate))

    @staticmethod
    def syncthreads_and(predicate: Any) -> Any:
        return _machine().park("syncthreads_and", _line(), payload=_integer(predicate))

    @staticmethod
    def syncthreads_or(predicate: Any) -> Any:
        return _machine().park("syncthreads_or", _line(), payload=_integer(predicate))

    @staticmethod
    def syncwarp(mask: int = FULL_MASK) -> None:
        _machine().park("syncwarp", _line(), mask)

    @staticmethod
    def shfl_sync(mask: int, value: Any, source: int) -> Any:
        return _machine().park("shfl_sync", _line(), mask, (value, source % 32))

    @staticmethod
    def shfl_up_sync(mask: int, value: Any, delta: int) -> Any:
        m = _machine()
        return m.park("shfl_up_sync", _line(), mask, (value, m.current.lane - delta))

    @staticmethod
    def shfl_down_sync(mask: int, value: Any, delta: int) -> Any:
        m = _machine()
        return m.park("shfl_down_sync", _line(), mask, (value, m.current.lane + delta))

    @staticmethod
    def shfl_xor_sync(mask: int, value: Any, lane_mask: int) -> Any:
        m = _machine()
        return m.park("shfl_xor_sync", _line(), mask, (value, m.current.lane ^ lane_mask))

    @staticmethod
    def ballot_sync(mask: int, predicate: Any) -> Any:
        return _machine().park("ballot_sync", _line(), mask, predicate)

    @staticmethod
    def all_sync(mask: int, predicate: Any) -> Any:
        return _machine().park("all_sync", _line(), mask, predicate)

    @staticmethod
    def any_sync(mask: int, predicate: Any) -> Any:
        return _machine().park("any_sync", _line(), mask, predicate)

    @staticmethod
    def threadfence() -> None:
        """Orders this thread's writes for others to see; it is no barrier, so here it does nothing."""

    threadfence_block = threadfence

    @staticmethod
    def to_device(array: np.ndarray) -> np.ndarray:
        """The array itself: there is no device to copy to."""
        return array


class _Math:
    """``math`` as kernels use it: a float32 stays a float32, an integer becomes float64."""

    pi, e, inf, nan = (np.float64(getattr(python_math, name)) for name in ("pi", "e", "inf", "nan"))

    def __getattr__(self, name: str) -> Any:
        ufunc: Any = {"pow": np.power, "fabs": np.abs, "erf": None}.get(name, getattr(np, name, None))
        if name in ("erf", "erfc", "gamma", "lgamma"):
            plain = getattr(python_math, name)
            return lambda x: _kind(x)(plain(float(x)))
        if ufunc is None or not hasattr(python_math, name):  # NumPy has names that no compiler takes from math
            raise UnsupportedError(f"math.{name} does not exist in a kernel")
        return lambda *x: ufunc(*(_kind(v)(v) for v in x))


def _kind(x: Any) -> Any:
    return type(x) if isinstance(x, np.floating) else np.float64


math = _Math()
cuda = _Cuda()

#: Names that the rewritten code uses, and built-in names as the compiler means them.
_RUNTIME = {
    "__simt_divide": _divide,
    "__simt_tick": _tick,
    "__simt_loop": _loop,
    "__simt_add": _meeting(operator.add),
    "__simt_sub": _meeting(operator.sub),
    "__simt_mul": _meeting(operator.mul),
    "__simt_pow": _power,
    "__simt_floordiv": _meeting(operator.floordiv),
    "__simt_mod": _meeting(operator.mod),
    "float": lambda x: x if isinstance(x, np.floating) else np.float64(x),
    "max": _choosing(max),
    "min": _choosing(min),
}

_ = Dim3  # part of the public types through Report and Step
