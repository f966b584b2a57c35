"""A deterministic simulator of the ``numba.cuda`` kernel dialect, for machines without a GPU.

Kernels written for numba-cuda run here unchanged, thread by thread, and what a GPU leaves
undefined is found and explained: data races, divergent barriers, accesses outside an array,
memory that nobody filled. It needs NumPy and greenlet only, and must never accept a kernel whose
result depends on luck.
"""

from collections.abc import Callable, Iterator, Sequence
from sys import _getframe
from types import CodeType, FunctionType, ModuleType
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

import numpy as np

from labsupport.cuda.simt.arithmetic import RUNTIME, in_a_kernel
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
    FULL_MASK,
    MAX_BLOCK_DIM,
    MAX_GRID_DIM,
    RUNNING,
    Dim3,
    Machine,
    Phase,
    Report,
    Step,
    as_dim3,
    check_block,
    no_such_name,
    running,
)
from labsupport.cuda.simt.memory import Array
from labsupport.cuda.simt.transform import FLOAT, INTEGER, transformed

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

#: All bits of the integers that a kernel computes with.
FULL_WORD = 0xFFFFFFFFFFFFFFFF

#: What a function was rewritten to; it depends on the source and on which names are known to be integers or floats.
_makers: "WeakKeyDictionary[FunctionType, dict[Any, Callable[[dict[str, Any]], FunctionType]]]" = WeakKeyDictionary()


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
    check_launch(grid, block)
    if not isinstance(shared_bytes, int | np.integer) or shared_bytes < 0:
        raise LaunchError(f"shared_bytes is {shared_bytes!r}; it is a number of bytes, 0 or more")
    if RUNNING:
        raise UnsupportedError("a kernel cannot launch a kernel here")
    names = made.parameters
    if len(names) != len(arguments):
        raise LaunchError(f"{made.__name__} takes {len(names)} arguments ({', '.join(names)}), not {len(arguments)}")
    machine = Machine(grid, block, int(shared_bytes), seed, profile, trace, seconds)
    RUNNING.append(machine)
    try:
        return machine.run(made.rewritten(arguments), names, arguments)
    finally:
        RUNNING.pop()


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
        if not RUNNING:
            raise LaunchError(f"{self.__name__} is a kernel: launch it with {self.__name__}[grid, block](…)")
        if self._made is None or self._launch is not RUNNING[-1]:
            self.rewritten()
        assert self._made is not None
        return self._made(*(_Tuple(value) if type(value) is tuple else value for value in arguments))

    def rewritten(self, arguments: Sequence[Any] = ()) -> FunctionType:
        """The function whose accesses pass through the simulator, with today's global values.

        With the arguments of a launch, the kinds of its parameters are known.
        """
        code, closure = self.py_func.__code__, self.py_func.__closure__ or ()
        outside = self.py_func.__globals__ | dict(
            zip(code.co_freevars, (cell.cell_contents for cell in closure), strict=True)
        )
        used = {name: outside[name] for name in _names(code) if name in outside}
        kinds = {name: _kind_of(value) for name, value in used.items()}
        kinds.update(zip(self.parameters, map(_kind_of, arguments), strict=False))
        known = {name: kind for name, kind in kinds.items() if kind}
        if any(isinstance(value, Kernel) and value.py_func is self.py_func for value in used.values()):
            text = f"{self.__name__} calls itself; a thread has a small stack, so write a loop"
            raise UnsupportedError(f"line {code.co_firstlineno}: {text}", line=code.co_firstlineno)
        makers = _makers.setdefault(self.py_func, {})
        key = frozenset(known.items())
        if key not in makers:
            makers[key] = transformed(self.py_func, known)
        namespace = {name: _in_a_kernel(name, value) for name, value in used.items()}
        namespace |= RUNTIME | {"__builtins__": outside["__builtins__"]}
        if RUNNING:
            namespace |= {"__simt_loop": RUNNING[-1].loop, "__simt_tick": RUNNING[-1].tick}
        self._made, self._launch = makers[key](namespace), RUNNING[-1] if RUNNING else None
        return self._made


class _Tuple(tuple[Any, ...]):
    """A tuple given to a device function, whose parameters are read as if they were arrays."""

    __slots__ = ()

    def ld1(self, site: int, k: Any) -> Any:
        """Part k."""
        return self[k]


def _names(code: CodeType) -> Iterator[str]:
    """Names from outside that a function and the functions within it use."""
    yield from (*code.co_names, *code.co_freevars)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _kind_of(value: Any) -> int:
    """INTEGER or FLOAT, of a number or of the elements of an array; 0 for anything else."""
    if isinstance(value, np.ndarray | np.generic):
        return {"i": INTEGER, "u": INTEGER, "b": INTEGER, "f": FLOAT}.get(value.dtype.kind, 0)
    return INTEGER if isinstance(value, int) else FLOAT if isinstance(value, float) else 0


def _in_a_kernel(name: str, value: Any) -> Any:
    """A value from outside as the compiler sees it: this module's cuda, its math, its types and functions."""
    if isinstance(value, ModuleType) and value.__name__ in ("numba.cuda", "numba_cuda.numba.cuda"):
        return cuda
    if type(value).__module__.startswith("numba") and hasattr(value, "py_func"):
        return Kernel(value.py_func, device=True)
    if isinstance(value, FunctionType):
        return _plain_function(name)
    return in_a_kernel(value)


def _plain_function(name: str) -> Callable[..., Any]:
    """What stands for a function without a decorator: a compiler refuses to call it from a kernel."""

    def refuse(*arguments: Any, **named: Any) -> NoReturn:
        raise running().refused(f"{name} is a plain Python function; write @cuda.jit(device=True) above it")

    return refuse


def _called(name: str, kind: type) -> Any:
    """An object of a class whose methods Python's own messages call by the name."""
    for function in vars(kind).values():
        plain = getattr(function, "__func__", function)
        if isinstance(plain, FunctionType):
            plain.__qualname__ = f"{name}.{plain.__name__}"
    return kind()


class _Shared:
    """``cuda.shared.array(shape, dtype)``; shape 0 is the dynamic shared memory of the launch."""

    @staticmethod
    def array(shape: int | tuple[int, ...], dtype: Any, place: int | None = None) -> Array:
        machine = running()
        made = machine.shared.get(place)
        return machine.shared_array(_shape(shape), _dtype(dtype), _known(place)) if made is None else made


class _Local:
    """``cuda.local.array(shape, dtype)``."""

    @staticmethod
    def array(shape: int | tuple[int, ...], dtype: Any, place: int | None = None) -> Array:
        return running().local_array(_shape(shape), _dtype(dtype), _known(place))


def _known(place: int | None) -> int:
    if place is None:
        raise running().refused("write cuda.shared.array(…) or cuda.local.array(…) in full where the array is made")
    return place


def _shape(shape: Any) -> tuple[int, ...]:
    sizes = shape if isinstance(shape, tuple) else (shape,)
    if not sizes or not all(isinstance(n, int | np.integer) and not isinstance(n, bool) and n >= 0 for n in sizes):
        raise running().fault_here(
            LaunchError, f"the shape {shape!r} of a shared or local array is not made of whole numbers, 0 or more"
        )
    return tuple(int(n) for n in sizes)


def _dtype(dtype: Any) -> np.dtype[Any]:
    try:
        return _DTYPES[dtype]
    except (KeyError, TypeError):
        pass
    name = getattr(dtype, "name", dtype)
    if isinstance(name, str) or (isinstance(name, type) and issubclass(name, np.generic)):
        try:
            found = np.dtype(name)
        except TypeError:
            found = np.dtype(object)
        if found.kind in "fiub":
            return found
    raise running().refused(
        f"{getattr(dtype, '__name__', dtype)} is no type of an array's elements here; take one of NumPy's, such as "
        "float32"
    )


_DTYPES: dict[Any, np.dtype[Any]] = {kind: np.dtype(kind) for kind in (np.float16, np.float32, np.float64)}


class _Atomic:
    """Read-modify-write that no other thread can interrupt; each returns the old value."""

    @staticmethod
    def _change(name: str, array: Any, index: Any, site: int, value: Any, new: Callable[[Any, Any], Any]) -> Any:
        machine = running()
        if not isinstance(array, Array):
            raise machine.refused(f"the first argument of cuda.atomic.{name} is the array itself, the second the index")
        if array.dtype.name not in _ATOMIC.get(name, _NUMBERS):
            raise machine.refused(
                f"cuda.atomic.{name} does not take an array of {array.dtype}; it takes "
                f"{', '.join(_ATOMIC.get(name, _NUMBERS))}"
            )
        offset = array.offset(site, index if isinstance(index, tuple) else (index,))
        machine.log_atomic(array, site, offset)
        old = array.data[offset]
        if old is None:
            old = machine.uninitialized(array, site, offset)
        array.data[offset] = array.narrowed(site, new(old, array.narrowed(site, value)))
        return old

    def add(self, array: Any, index: Any, value: Any, site: int = 0) -> Any:
        return self._change("add", array, index, site, value, lambda old, new: old + new)

    def sub(self, array: Any, index: Any, value: Any, site: int = 0) -> Any:
        return self._change("sub", array, index, site, value, lambda old, new: old - new)

    def max(self, array: Any, index: Any, value: Any, site: int = 0) -> Any:
        return self._change("max", array, index, site, value, lambda old, new: new if new > old else old)

    def min(self, array: Any, index: Any, value: Any, site: int = 0) -> Any:
        return self._change("min", array, index, site, value, lambda old, new: new if new < old else old)

    def exch(self, array: Any, index: Any, value: Any, site: int = 0) -> Any:
        return self._change("exch", array, index, site, value, lambda old, new: new)

    def cas(self, array: Any, index: Any, old: Any, value: Any, site: int = 0) -> Any:
        return self._change("cas", array, index, site, value, lambda present, new: new if present == old else present)

    def compare_and_swap(self, array: Any, old: Any, value: Any, site: int = 0) -> Any:
        return self.cas(array, 0, old, value, site)

    def and_(self, array: Any, index: Any, value: Any, site: int = 0) -> Any:
        return self._change("and_", array, index, site, value, lambda old, new: old & new)

    def or_(self, array: Any, index: Any, value: Any, site: int = 0) -> Any:
        return self._change("or_", array, index, site, value, lambda old, new: old | new)

    def xor(self, array: Any, index: Any, value: Any, site: int = 0) -> Any:
        return self._change("xor", array, index, site, value, lambda old, new: old ^ new)

    def inc(self, array: Any, index: Any, value: Any, site: int = 0) -> Any:
        """Count up from 0 to the value and round again."""
        return self._change("inc", array, index, site, value, lambda old, new: 0 if old >= new else old + 1)

    def dec(self, array: Any, index: Any, value: Any, site: int = 0) -> Any:
        """Count down from the value to 0 and round again."""
        return self._change("dec", array, index, site, value, lambda old, new: new if old in (0, new + 1) else old - 1)

    def __getattr__(self, name: str) -> NoReturn:
        raise no_such_name(f"cuda.atomic.{name} is not in the dialect that the simulator knows")


_WORDS = ("int32", "int64", "uint32", "uint64")
_NUMBERS = ("float32", "float64", *_WORDS)
#: Element types of the atomic operations, where not all numbers will do.
_ATOMIC = dict.fromkeys(("exch", "cas", "and_", "or_", "xor"), _WORDS) | dict.fromkeys(
    ("inc", "dec"), ("uint32", "uint64")
)


def _integer(name: str, predicate: Any, bools: bool = False) -> Any:
    """A predicate of a vote, which the compiler takes as an integer, and within a warp also as a truth value."""
    if not isinstance(predicate, int | np.integer | np.bool_) or (not bools and isinstance(predicate, bool | np.bool_)):
        raise running().refused(
            f"{name} takes an integer{' or a condition' if bools else ''}, not a {type(predicate).__name__}; write "
            f"{'a comparison' if bools else 'int(condition)'}"
        )
    return predicate


_EXCHANGED = (np.float32, int, np.float64)


def _exchanged(name: str, value: Any) -> Any:
    """A value that lanes can hand to each other: the compiler takes numbers of 32 or 64 bits."""
    if value.__class__ not in _EXCHANGED:
        raise running().refused(
            f"{name} exchanges numbers of 32 or 64 bits, not a {type(value).__name__}; convert the value first"
        )
    return value


def _lanes(n: Any) -> int:
    """A lane or a distance between lanes."""
    if n.__class__ is not int and not isinstance(n, np.integer):
        raise running().refused(f"a lane or a distance of lanes is a whole number, not a {type(n).__name__}")
    return int(n)


class _Cuda:
    """The part of ``numba.cuda`` that kernels use."""

    shared, local = _called("cuda.shared", _Shared), _called("cuda.local", _Local)
    atomic = _called("cuda.atomic", _Atomic)
    warpsize = 32

    threadIdx = property(lambda self: running().current.index)
    blockIdx = property(lambda self: running().block_index)
    blockDim = property(lambda self: running().block_dim)
    gridDim = property(lambda self: running().grid_dim)
    laneid = property(lambda self: running().current.lane)

    @staticmethod
    def jit(function: Any = None, device: bool = False, **options: Any) -> Any:
        """Decorator for kernels and device functions; signatures and options are accepted and ignored."""
        if isinstance(function, FunctionType):
            return Kernel(function, device)
        return lambda f: Kernel(f, device)

    @staticmethod
    def grid(ndim: int) -> Any:
        """Index of the thread in the whole grid, along the first ``ndim`` axes."""
        m = running()
        t, b, d = m.current.index, m.block_index, m.block_dim
        if ndim == 1:
            return b.x * d.x + t.x
        return (b.x * d.x + t.x, b.y * d.y + t.y, b.z * d.z + t.z)[: _axes(ndim)]

    @staticmethod
    def gridsize(ndim: int) -> Any:
        """Number of threads of the grid along the first ``ndim`` axes."""
        m = running()
        sizes = tuple(g * b for g, b in zip(m.grid_dim.triple, m.block_dim.triple, strict=True))
        return sizes[0] if ndim == 1 else sizes[: _axes(ndim)]

    @staticmethod
    def syncthreads() -> None:
        running().wait("syncthreads", _getframe(1))

    @staticmethod
    def syncthreads_count(predicate: Any) -> Any:
        return running().wait("syncthreads_count", _getframe(1), _integer("cuda.syncthreads_count", predicate))

    @staticmethod
    def syncthreads_and(predicate: Any) -> Any:
        return running().wait("syncthreads_and", _getframe(1), _integer("cuda.syncthreads_and", predicate))

    @staticmethod
    def syncthreads_or(predicate: Any) -> Any:
        return running().wait("syncthreads_or", _getframe(1), _integer("cuda.syncthreads_or", predicate))

    @staticmethod
    def syncwarp(mask: int = FULL_MASK) -> None:
        running().meet("syncwarp", _getframe(1), mask)

    @staticmethod
    def shfl_sync(mask: int, value: Any, source: int) -> Any:
        payload = (_exchanged("cuda.shfl_sync", value), _lanes(source) % 32)
        return running().meet("shfl_sync", _getframe(1), mask, payload)

    @staticmethod
    def shfl_up_sync(mask: int, value: Any, delta: int) -> Any:
        m = running()
        payload = (_exchanged("cuda.shfl_up_sync", value), m.current.lane - _lanes(delta))
        return m.meet("shfl_up_sync", _getframe(1), mask, payload)

    @staticmethod
    def shfl_down_sync(mask: int, value: Any, delta: int) -> Any:
        m = running()
        payload = (_exchanged("cuda.shfl_down_sync", value), m.current.lane + _lanes(delta))
        return m.meet("shfl_down_sync", _getframe(1), mask, payload)

    @staticmethod
    def shfl_xor_sync(mask: int, value: Any, lane_mask: int) -> Any:
        m = running()
        payload = (_exchanged("cuda.shfl_xor_sync", value), m.current.lane ^ _lanes(lane_mask))
        return m.meet("shfl_xor_sync", _getframe(1), mask, payload)

    @staticmethod
    def ballot_sync(mask: int, predicate: Any) -> Any:
        return running().meet("ballot_sync", _getframe(1), mask, _integer("cuda.ballot_sync", predicate, True))

    @staticmethod
    def all_sync(mask: int, predicate: Any) -> Any:
        return running().meet("all_sync", _getframe(1), mask, _integer("cuda.all_sync", predicate, True))

    @staticmethod
    def any_sync(mask: int, predicate: Any) -> Any:
        return running().meet("any_sync", _getframe(1), mask, _integer("cuda.any_sync", predicate, True))

    @staticmethod
    def lanemask_lt() -> int:
        """A bit for each lane below this one."""
        return (1 << running().current.lane) - 1

    @staticmethod
    def popc(x: int) -> int:
        """How many bits are set."""
        return (int(x) & FULL_WORD).bit_count()

    @staticmethod
    def ffs(x: int) -> int:
        """Position of the lowest set bit, counted from 1; 0 where none is set."""
        return (int(x) & -int(x)).bit_length()

    @staticmethod
    def fma(a: Any, b: Any, c: Any) -> Any:
        """a · b + c, rounded once."""
        kinds = np.result_type(*(v if isinstance(v, np.floating) else np.float64(v) for v in (a, b, c)))
        return kinds.type(np.longdouble(a) * np.longdouble(b) + np.longdouble(c))

    @staticmethod
    def selp(condition: Any, a: Any, b: Any) -> Any:
        """a where the condition holds, otherwise b; both are computed."""
        return a if condition else b

    def __getattr__(self, name: str) -> NoReturn:
        raise no_such_name(f"cuda.{name} is not in the dialect that the simulator knows")

    @staticmethod
    def threadfence() -> None:
        """Orders this thread's writes for others to see; it is no barrier, so here it does nothing."""

    threadfence_block = threadfence

    @staticmethod
    def to_device(array: np.ndarray) -> np.ndarray:
        """The array itself: there is no device to copy to."""
        return array


def _axes(ndim: Any) -> int:
    """1, 2 or 3, the numbers of axes that a grid may be asked for."""
    if isinstance(ndim, bool) or ndim not in (1, 2, 3):
        raise running().refused(f"cuda.grid and cuda.gridsize take 1, 2 or 3 axes, not {ndim!r}")
    return int(ndim)


cuda: _Cuda = _called("cuda", _Cuda)

_ = Dim3  # part of the public types through Report and Step
