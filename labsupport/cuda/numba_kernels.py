"""The SIMT ladder for a GPU: the same source, compiled by numba-cuda instead of simulated.

A kernel's code object is kept as it is; only the names it looks up change, from the simulator's
``cuda`` to numba's. Nothing here may alter what a kernel does.
"""

from types import FunctionType
from typing import Any

from labsupport.cuda import simt

__all__ = ["compiled", "plain"]


def plain(kernel: FunctionType | simt.Kernel) -> FunctionType:
    """Return the kernel as a plain function over ``numba.cuda``, its device functions compiled with it."""
    return _over_numba(kernel.py_func if isinstance(kernel, simt.Kernel) else kernel, {})


def compiled(kernel: FunctionType | simt.Kernel) -> Any:
    """Return the kernel as numba-cuda launches it: ``compiled(kernel)[grid, block](…)``. Needs numba-cuda."""
    from numba import cuda

    return cuda.jit(plain(kernel))


def _over_numba(function: FunctionType, made: dict[FunctionType, Any]) -> FunctionType:
    from numba import cuda

    names = dict(function.__globals__)
    for name in function.__code__.co_names:
        value = names.get(name)
        if value is simt.cuda:
            names[name] = cuda
        elif isinstance(value, simt.Kernel):
            if value.py_func not in made:
                made[value.py_func] = cuda.jit(device=True)(_over_numba(value.py_func, made))
            names[name] = made[value.py_func]
    over = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    over.__module__, over.__doc__ = function.__module__, function.__doc__
    return over
