"""Triton's CPU interpreter, mended, and in a process of its own.

Triton 3.7 interprets a kernel with NumPy, but holds bfloat16 as integers (arithmetic is silently
wrong), ignores the precision of a float32 product, ends the process at an address outside every
tensor, and cannot autotune without a GPU. ``mend`` sets these right in the process that calls it;
``Interpreter`` starts such a process, so that no kernel can take a notebook down with it. Nothing
here may be used where kernels are to be compiled.
"""

import io
import json
import math
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from labsupport.cuda.triton_compile import unavailable

__all__ = ["Interpreter", "KernelError", "KernelTimeout", "Tensor", "explain", "load", "mend", "round_tf32"]


class KernelError(RuntimeError):
    """A kernel or its launch went wrong in the interpreter; ``kind`` is the name of the exception there."""

    def __init__(self, kind: str, message: str, line: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.line = line


class KernelTimeout(KernelError):
    """The kernel ran longer than it may."""


# -- the mends, for the process that interprets -----------------------------------------------


def round_tf32(x: NDArray[Any]) -> NDArray[np.float32]:
    """Round float32 to the 10 bits of fraction of TF32, to nearest and halves away from zero (PTX cvt.rna.tf32)."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(x), rounded, x).astype(np.float32)


def mend() -> None:
    """Set Triton's interpreter right in this process. Call it before any kernel module is imported.

    Raises:
        RuntimeError: not Linux, Triton missing, or kernels already made for compilation here.
    """
    reason = unavailable()
    if reason:
        raise RuntimeError(f"Triton's interpreter cannot run: {reason}")
    os.environ["TRITON_INTERPRET"] = "1"
    import triton.runtime.interpreter as upstream

    if getattr(upstream, "_labsupport_mended", False):
        return
    if "labsupport.cuda.kernels.triton_kernels" in sys.modules:
        raise RuntimeError("mend() comes before the kernels are imported: these here were made for compilation")
    upstream._labsupport_mended = True
    _mend_types(upstream)
    _mend_dot(upstream)
    _mend_memory(upstream)
    _mend_autotune()


def _mend_types(upstream: ModuleType) -> None:
    """Hold the small floats as ml_dtypes arrays: casts round to nearest even, arithmetic is theirs."""
    import ml_dtypes
    import triton.language as tl

    small = {
        tl.bfloat16: np.dtype(ml_dtypes.bfloat16),
        tl.float8e4nv: np.dtype(ml_dtypes.float8_e4m3fn),
        tl.float8e5: np.dtype(ml_dtypes.float8_e5m2),
    }
    numpy_dtype = upstream._get_np_dtype

    def get_np_dtype(kind: Any) -> Any:
        scalar = kind.element_ty if isinstance(kind, tl.block_type) else kind
        return numpy_dtype(kind) if isinstance(scalar, tl.pointer_type) else small.get(scalar) or numpy_dtype(kind)

    def cast(self: Any, handle: Any, kind: Any, *_: Any) -> Any:
        target, data = get_np_dtype(kind), handle.data
        if target == small[tl.float8e4nv]:
            # Conversion saturates on the GPU, as in torch; ml_dtypes makes NaN of an overflow.
            data = np.clip(data.astype(np.float32), -448.0, 448.0)
        return upstream.TensorHandle(data.astype(target), kind.scalar)

    def fabs(self: Any, handle: Any) -> Any:
        return upstream.TensorHandle(np.abs(handle.data), handle.dtype.scalar)

    upstream._get_np_dtype = get_np_dtype  # type: ignore[attr-defined]
    builder = upstream.InterpreterBuilder
    builder.cast_impl = builder.create_fp_to_fp = cast
    builder.create_fabs = fabs
    upstream._interpreter = _SmallFloatMemory(upstream._interpreter, tuple(small.values()))  # type: ignore[attr-defined]


class _SmallFloatMemory:
    """The compiled loads and stores, which know NumPy's own dtypes only: small floats pass as integers."""

    def __init__(self, memory: Any, small: tuple[np.dtype[Any], ...]) -> None:
        self._memory, self._small = memory, small

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._memory, name)
        if name not in ("load", "store"):
            return function

        def call(*arguments: Any) -> Any:
            dtype = next((a for a in arguments if isinstance(a, np.dtype) and a in self._small), None)
            result = function(*map(self._plain, arguments))
            return result if dtype is None else result.view(dtype)

        return call

    def _plain(self, argument: Any) -> Any:
        if isinstance(argument, np.dtype) and argument in self._small:
            return np.dtype(f"u{argument.itemsize}")
        if isinstance(argument, np.ndarray) and argument.dtype in self._small:
            return np.ascontiguousarray(argument).view(f"u{argument.dtype.itemsize}")
        return argument


def _mend_dot(upstream: ModuleType) -> None:
    """Multiply in float32 after rounding the factors as the stated precision does, then add to the accumulator."""
    import triton.language as tl

    def create_dot(self: Any, a: Any, b: Any, d: Any, precision: Any, _imprecise: Any) -> Any:
        x, y = a.data, b.data
        if np.issubdtype(x.dtype, np.integer):
            x, y = x.astype(np.int32), y.astype(np.int32)
        else:
            x, y = x.astype(np.float32), y.astype(np.float32)
            named = str(precision).upper()
            # tf32x3 splits a factor into three TF32 parts and comes close to float32: taken as that.
            if a.dtype.scalar == tl.float32 and "TF32" in named and "X3" not in named:
                x, y = round_tf32(x), round_tf32(y)
        return upstream.TensorHandle((np.matmul(x, y) + d.data).astype(d.data.dtype), d.dtype.scalar)

    def min_dot_size(a: Any, _b: Any) -> tuple[int, int, int]:
        return (1, 1, 32) if a.scalar.primitive_bitwidth == 8 else (1, 1, 16)

    upstream.InterpreterBuilder.create_dot = create_dot
    # A tile whose K the tensor cores do not take must not pass here either.
    upstream.interpreter_builder.codegen_fns["min_dot_size"] = min_dot_size


class OutOfBounds(IndexError):
    """An address outside every tensor that the kernel was given."""


@dataclass
class _Extent:
    """Bytes from the first to the last element of one tensor argument."""

    name: str
    low: int
    high: int
    text: str


def _mend_memory(upstream: ModuleType) -> None:
    """Check every address against the tensors of the launch, where upstream reads it and dies."""
    extents: list[_Extent] = []
    prepare = upstream.GridExecutor._init_args_hst

    def init_args(self: Any, args: Any, kwargs: Any) -> Any:
        hosted, named = prepare(self, args, kwargs)
        extents[:] = [
            _extent(name, t)
            for name, t in map(_tensor_of, [*zip(self.arg_names, hosted, strict=False), *named.items()])
            if hasattr(t, "data_ptr") and t.numel()
        ]
        return hosted, named

    def guard(what: str, pointers: Any, mask: Any) -> None:
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        lanes = True if mask is None else getattr(mask, "data", mask)
        program = tuple(int(i) for i in upstream.interpreter_builder.grid_idx)
        check_addresses(what, np.asarray(pointers.data, np.uint64), np.asarray(lanes, bool), size, extents, program)

    builder = upstream.InterpreterBuilder
    load, store, atomic = builder.create_masked_load, builder.create_masked_store, builder.create_atomic_rmw
    swap = builder.create_atomic_cas

    def masked_load(self: Any, pointers: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        guard("load", pointers, mask)
        return load(self, pointers, _handle(upstream, mask), *rest, **named)

    def masked_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        guard("store", pointers, mask)
        return store(self, pointers, value, _handle(upstream, mask), *rest, **named)

    def atomic_rmw(self: Any, operation: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        guard("atomic operation", pointers, mask)
        return atomic(self, operation, pointers, value, mask, *rest)

    def atomic_cas(self: Any, pointers: Any, *rest: Any) -> Any:
        guard("atomic operation", pointers, None)
        return swap(self, pointers, *rest)

    upstream.GridExecutor._init_args_hst = init_args
    builder.create_masked_load, builder.create_masked_store = masked_load, masked_store
    builder.create_atomic_rmw, builder.create_atomic_cas = atomic_rmw, atomic_cas


def _handle(upstream: ModuleType, mask: Any) -> Any:
    """Return a mask as the handle that upstream's loads expect; block pointers pass a bare array."""
    import triton.language as tl

    return upstream.TensorHandle(mask, tl.int1) if isinstance(mask, np.ndarray) else mask


def _tensor_of(argument: tuple[str, Any]) -> tuple[str, Any]:
    """The tensor of a descriptor, or the argument itself."""
    name, value = argument
    return name, value.base if hasattr(value, "block_shape") and hasattr(value, "base") else value


def _extent(name: str, t: Any) -> _Extent:
    span = (sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True)) + 1) * t.element_size()
    low = int(t.data_ptr())
    return _Extent(name, low, low + span, f"{name} {tuple(t.shape)} {str(t.dtype).removeprefix('torch.')}")


def check_addresses(
    what: str,
    pointers: NDArray[np.uint64],
    mask: NDArray[np.bool_],
    size: int,
    extents: Sequence[_Extent],
    program: tuple[int, ...],
) -> None:
    """Raise ``OutOfBounds`` where an active lane's ``size`` bytes lie in no tensor of the launch."""
    active = pointers[np.broadcast_to(mask, pointers.shape)]
    inside = np.zeros(active.shape, bool)
    for extent in extents:
        inside |= (active >= np.uint64(extent.low)) & (active + np.uint64(size) <= np.uint64(extent.high))
    if inside.all():
        return
    address = int(active[~inside][0])
    near = min(extents, key=lambda e: min(abs(address - e.low), abs(address - e.high)), default=None)
    where = "no tensor was passed"
    if near is not None:
        where = f"the first is element {(address - near.low) // size} counted from the start of {near.text}"
    raise OutOfBounds(
        f"{what} out of bounds in program {program}: {int((~inside).sum())} of {active.size} active lanes address "
        f"no tensor of the launch; {where}. Is a mask missing?"
    )


def _mend_autotune() -> None:
    """Take the first configuration: nothing can be timed here, and every configuration means the same."""
    from triton.runtime.autotuner import Autotuner

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        config = self.configs[0]
        self.best_config = config
        return self.fn.run(*args, **kwargs, **config.all_kwargs())

    Autotuner.run = run


# -- the other process, seen from here -------------------------------------------------------


@dataclass(frozen=True)
class Tensor:
    """An array for the interpreter, with the dtype it is to have there.

    ``array`` is NumPy's; ``dtype`` a torch name ("bfloat16", "float8_e4m3fn"), default the array's own.
    Small floats come back as float32, which holds each of their values. ``strides`` in elements makes
    a view that is not contiguous: ``shape`` and ``strides`` over the flat array.
    """

    array: NDArray[Any]
    dtype: str = ""
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = field(default=())


class Interpreter:
    """A process that runs kernels by interpretation, one call after the other.

    >>> with Interpreter() as interpreter:                              # doctest: +SKIP
    ...     y = interpreter.call("labsupport.cuda.triton_ops:softmax", x)

    A call that ends the process, or takes longer than ``seconds``, raises here; the next call starts
    a new process. Linux only: elsewhere the constructor raises ``RuntimeError`` with the reason.
    """

    def __init__(self, seconds: float = 60.0) -> None:
        reason = unavailable()
        if reason:
            raise RuntimeError(f"Triton's interpreter cannot run: {reason}")
        self.seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def call(self, target: str, *args: Any, seconds: float | None = None, **kwargs: Any) -> Any:
        """Call ``target`` ("package.module:function" or "path/file.py:function") there and return its result.

        Arrays and ``Tensor``s become torch tensors and come back as arrays; numbers, strings, booleans
        and None pass as they are; a tuple comes back as a tuple.

        Raises:
            KernelError: what was raised there, with its message.
            KernelTimeout: no answer within ``seconds``.
        """
        process = self._alive()
        assert process.stdin is not None
        assert process.stdout is not None
        limit = self.seconds if seconds is None else seconds
        late = threading.Event()

        def stop() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(limit, stop)
        timer.daemon = True
        timer.start()
        try:
            _send(process.stdin, {"target": target, "args": list(args), "kwargs": kwargs, "seconds": limit})
            answer = _receive(process.stdout)
        except (BrokenPipeError, EOFError) as ended:
            code = process.wait()
            self._process = None
            if late.is_set():
                message = f"{target} had not finished after {limit:g} s and was stopped. Does a loop never end?"
                raise KernelTimeout("TimeoutError", message) from None
            name = signal.Signals(-code).name if code < 0 else f"code {code}"
            raise KernelError("Crash", f"{target} ended the interpreter's process ({name})") from ended
        except BaseException:
            # Interrupted: an answer that comes late must not be taken for that of the next call.
            self.close()
            raise
        finally:
            timer.cancel()
        if "error" in answer:
            raise KernelError(**answer["error"])
        return answer["result"]

    def _alive(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
            root = str(Path(__file__).parents[2])
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH"))))
            self._process = subprocess.Popen(
                [sys.executable, "-m", "labsupport.cuda.triton_interpreter"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
            )
        return self._process


# -- messages: a line of JSON that describes values, then the arrays it numbers, as .npy ----------


def _send(stream: Any, message: Any) -> None:
    arrays: list[NDArray[Any]] = []
    line = json.dumps(_describe(message, arrays)).encode()
    body = io.BytesIO()
    for array in arrays:
        np.save(body, array, allow_pickle=False)
    stream.write(f"{len(line)} {len(arrays)} {body.tell()}\n".encode() + line + body.getvalue())
    stream.flush()


def _receive(stream: Any) -> Any:
    head = stream.readline()
    if not head.endswith(b"\n"):
        raise EOFError("the other side ended")
    line_size, count, body_size = map(int, head.split())
    line, body = stream.read(line_size), io.BytesIO(stream.read(body_size))
    if len(line) < line_size or body.getbuffer().nbytes < body_size:
        raise EOFError("the other side ended in the middle of a message")
    arrays = [np.load(body, allow_pickle=False) for _ in range(count)]
    return _restore(json.loads(line), arrays)


def _describe(value: Any, arrays: list[NDArray[Any]]) -> Any:
    if isinstance(value, np.ndarray):
        value = Tensor(value)
    if isinstance(value, Tensor):
        arrays.append(np.ascontiguousarray(value.array))
        return {"tensor": len(arrays) - 1, "dtype": value.dtype, "shape": value.shape, "strides": value.strides}
    if isinstance(value, tuple):
        return {"tuple": [_describe(v, arrays) for v in value]}
    if isinstance(value, list):
        return [_describe(v, arrays) for v in value]
    if isinstance(value, Mapping):
        return {"map": {str(k): _describe(v, arrays) for k, v in value.items()}}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a {type(value).__name__} cannot pass to the interpreter")


def _restore(value: Any, arrays: list[NDArray[Any]]) -> Any:
    if isinstance(value, list):
        return [_restore(v, arrays) for v in value]
    if not isinstance(value, dict):
        return value
    if "map" in value:
        return {k: _restore(v, arrays) for k, v in value["map"].items()}
    if "tuple" in value:
        return tuple(_restore(v, arrays) for v in value["tuple"])
    array = arrays[value["tensor"]]
    if value["dtype"] or value["strides"]:
        return Tensor(array, value["dtype"], tuple(value["shape"]), tuple(value["strides"]))
    return array


# -- the other process, from inside ----------------------------------------------------------


def _to_torch(value: Any) -> Any:
    import torch

    if isinstance(value, np.ndarray):
        value = Tensor(value)
    if isinstance(value, Tensor):
        t = torch.from_numpy(value.array.copy())
        if value.dtype:
            t = t.to(getattr(torch, value.dtype))
        return t.as_strided(value.shape, value.strides) if value.strides else t
    if isinstance(value, list | tuple):
        return type(value)(map(_to_torch, value))
    return value


def _to_numpy(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        small = value.dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
        return (value.to(torch.float32) if small else value).numpy(force=True)
    if isinstance(value, list | tuple):
        return tuple(map(_to_numpy, value))
    return value


def load(target: str) -> Any:
    """Return the function that ``target`` names, from a package or from a file."""
    from importlib import import_module, util

    module, _, name = target.rpartition(":")
    if not module.endswith(".py"):
        return getattr(import_module(module), name)
    path = Path(module)
    label = f"_kernels_{path.stem}"
    if label not in sys.modules or sys.modules[label].__file__ != str(path):
        spec = util.spec_from_file_location(label, path)
        assert spec is not None
        assert spec.loader is not None
        made = util.module_from_spec(spec)
        spec.loader.exec_module(made)
        sys.modules[label] = made
    return getattr(sys.modules[label], name)


def explain(error: BaseException) -> dict[str, str]:
    """Return an exception as its kind, its message and the source line that raised it."""
    from triton.runtime.errors import InterpreterError

    while isinstance(error, InterpreterError) and error.__cause__ is not None:
        error = error.__cause__
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "/triton/" not in f.filename and "triton_interpreter" not in f.filename]
    place = own[-1] if own else frames[-1]
    return {"kind": type(error).__name__, "message": str(error) or type(error).__name__, "line": place.line or ""}


def serve(source: Any, sink: Any) -> None:
    """Answer calls from ``source`` on ``sink`` until it ends."""
    while True:
        try:
            message = _receive(source)
        except EOFError:
            return
        # Should the other side be gone, nobody else would end an endless kernel.
        signal.alarm(math.ceil(message["seconds"]) + 5)
        try:
            function = load(message["target"])
            args = [_to_torch(a) for a in message["args"]]
            kwargs = {k: _to_torch(v) for k, v in message["kwargs"].items()}
            answer = {"result": _to_numpy(function(*args, **kwargs))}
        except Exception as error:
            answer = {"error": explain(error)}
        signal.alarm(0)
        _send(sink, answer)


def _main() -> None:
    # What a kernel prints must not get between the messages: stdout is stderr for everything but them.
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    np.seterr(all="ignore")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the other side, which ends this process
    mend()
    serve(sys.stdin.buffer, sink)


if __name__ == "__main__":
    _main()
