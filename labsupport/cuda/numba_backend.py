"""Gives a kernel of the book to numba-cuda: the same function, with ``numba.cuda`` in the place of the simulator.

Compiling to PTX needs no GPU; launching does. Nothing here may change a kernel's source: what is
compiled is the function that the simulator runs.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import FunctionType, SimpleNamespace
from typing import Any

from labsupport.cuda import simt

__all__ = ["compile_llvm", "compile_ptx", "for_gpu", "has_nvvm", "infer"]

#: Compute capability of the H100 and H200.
SM_90 = (9, 0)


def for_gpu(kernel: Any) -> Any:
    """The kernel as a numba dispatcher: ``for_gpu(kernel)[grid, block](…)`` launches it on a GPU.

    Its global ``cuda`` becomes ``numba.cuda``, and device functions are rebound with it.

    Raises:
        ModuleNotFoundError: numba-cuda is not installed.
    """
    from numba import cuda

    return cuda.jit(_rebound(_plain(kernel)))


def compile_ptx(kernel: Any, signature: str | tuple[Any, ...], cc: tuple[int, int] = SM_90) -> str:
    """The kernel's PTX for a compute capability; needs NVIDIA's libraries nvvm and nvrtc, but no GPU.

    Args:
        kernel: a kernel of the dialect, plain or with ``cuda.jit``.
        signature: types of the arguments, such as ``"float32[:, ::1], float32"``, or numba types.
        cc: compute capability.

    Raises:
        RuntimeError: one of them is not found, with what to install.
    """
    if not has_nvvm():
        raise RuntimeError(
            "PTX is made with NVIDIA's libraries nvvm and nvrtc, which are not both found here; they are in the CUDA "
            "toolkit, and come with: pip install numba-cuda[cu13]"
        )
    from numba import cuda

    with _without_a_driver(cc):
        text: str = cuda.compile_ptx(_rebound(_plain(kernel)), _types(signature), cc=cc)[0]
    return text


def compile_llvm(kernel: Any, signature: str | tuple[Any, ...], cc: tuple[int, int] = SM_90) -> str:
    """What numba makes of the kernel and its device functions before NVIDIA's part: LLVM IR, typed in full.

    It needs no library of NVIDIA's. Arguments as in ``compile_ptx``.
    """
    text: str = _compiled(kernel, signature, cc).library.get_llvm_str()
    return text


def infer(function: Any, signature: str | tuple[Any, ...], cc: tuple[int, int] = SM_90) -> str:
    """Name of the type that a function returns for arguments of these types, as numba's compiler infers it."""
    return str(_compiled(function, signature, cc).signature.return_type)


def has_nvvm() -> bool:
    """Whether the two libraries of NVIDIA that numba makes PTX with are within reach."""
    try:
        from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
    except ImportError:  # an older numba-cuda searches by itself
        return _numba_finds_nvvm()
    try:
        for library in ("nvvm", "nvrtc"):
            load_nvidia_dynamic_lib(library)
    except DynamicLibNotFoundError:
        return False
    return True


def _numba_finds_nvvm() -> bool:
    from numba.cuda.cudadrv import nvvm

    try:
        nvvm.NVVM()
    except Exception:
        return False
    return True


def _compiled(function: Any, signature: str | tuple[Any, ...], cc: tuple[int, int]) -> Any:
    from numba.cuda.compiler import compile_cuda

    with _without_a_driver(cc):
        options = {"fastmath": False, "opt": 3}
        return compile_cuda(_rebound(_plain(function)), None, _types(signature), nvvm_options=options, cc=cc)


def _types(signature: str | tuple[Any, ...]) -> tuple[Any, ...]:
    if not isinstance(signature, str):
        return tuple(signature)
    from numba import types

    names = {name: getattr(types, name) for name in ("float16", "float32", "float64", "int32", "int64", "uint32")}
    return tuple(eval(f"({signature},)", {"__builtins__": {}}, names))  # fixed texts of this book, never a reader's


def _plain(kernel: Any) -> FunctionType:
    function = getattr(kernel, "py_func", kernel)
    if not isinstance(function, FunctionType):
        raise TypeError(f"a kernel is a function written with def, not a {type(kernel).__name__}")
    return function


@lru_cache(maxsize=256)
def _rebound(function: FunctionType) -> FunctionType:
    """A copy of the function that sees numba's ``cuda`` and numba's device functions."""
    from numba import cuda

    def rebind(value: Any) -> Any:
        if value is simt.cuda:
            return cuda
        if isinstance(value, simt.Kernel):
            return cuda.jit(device=True)(_rebound(value.py_func))
        return value

    used = set(_names(function.__code__))
    names = {name: rebind(value) for name, value in function.__globals__.items() if name in used}
    names["__builtins__"] = function.__globals__["__builtins__"]
    made = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    made.__module__, made.__qualname__ = function.__module__, function.__qualname__
    return made


def _names(code: Any) -> Iterator[str]:
    yield from code.co_names


@contextmanager
def _without_a_driver(cc: tuple[int, int]) -> Iterator[None]:
    """Compile for ``cc``, device functions too: numba would ask the current GPU, or NVRTC, what there is."""
    from numba import cuda

    dispatcher, config = cuda.dispatcher, vars(cuda)["config"]

    device, forced = dispatcher.get_current_device, config.FORCE_CUDA_CC
    stand_in: Callable[[], Any] = lambda: SimpleNamespace(compute_capability=cc)  # noqa: E731
    dispatcher.get_current_device, config.FORCE_CUDA_CC = stand_in, cc
    try:
        yield
    finally:
        dispatcher.get_current_device, config.FORCE_CUDA_CC = device, forced
