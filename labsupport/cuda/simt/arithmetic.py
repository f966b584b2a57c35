"""Numbers as a kernel computes with them: the compiler's types, the operators, ``math``, and what there is of ``np``.

An integer is a Python integer and a float a NumPy scalar, so that a float32 stays a float32.
"""

import math as python_math
import operator
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from labsupport.cuda.simt.machine import MARK, no_such_name
from labsupport.cuda.simt.memory import scalar_of

__all__ = ["INTEGERS", "RUNTIME", "in_a_kernel", "kernel_math", "kernel_numpy"]


class _Integer:
    """An integer type as kernels call it: a cast that wraps round, and that computes with 64 bits afterwards."""

    def __init__(self, name: str) -> None:
        self.name, self._convert = name, scalar_of(np.dtype(name))[1]

    def __call__(self, value: Any = 0) -> int:
        number: int = self._convert(value)
        return number


INTEGERS = {name: _Integer(name) for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")}


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
        if len(values) == 2 and values[1].__class__ is first:  # by far the most frequent case
            return result
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


class _Math:
    """``math`` as kernels use it: a float32 stays a float32, an integer becomes float64."""

    pi, e, inf, nan, tau = (np.float64(getattr(python_math, name)) for name in ("pi", "e", "inf", "nan", "tau"))

    def __init__(self) -> None:
        for name in _UFUNCS:
            setattr(self, name, _of_floats(getattr(np, _UFUNCS[name]), f"math.{name}"))
        for name in ("erf", "erfc", "gamma", "lgamma", "remainder"):
            setattr(self, name, _through_python(getattr(python_math, name)))

    @staticmethod
    def ldexp(x: Any, exponent: int) -> Any:
        """x · 2**exponent."""
        return np.ldexp(_kind(x)(x), exponent)

    @staticmethod
    def frexp(x: Any) -> tuple[Any, int]:
        """Mantissa and exponent of x."""
        mantissa, exponent = np.frexp(_kind(x)(x))
        return mantissa, int(exponent)

    def __getattr__(self, name: str) -> NoReturn:
        raise no_such_name(f"math.{name} does not exist in a kernel")


#: The functions of ``math`` that numba compiles and NumPy has, with NumPy's name.
_UFUNCS = {
    name: name
    for name in (
        "sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt",
        "fabs", "floor", "ceil", "trunc", "isnan", "isinf", "isfinite", "degrees", "radians", "modf", "fmod", "hypot",
        "copysign", "nextafter",
    )
} | {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2", "asinh": "arcsinh", "acosh": "arccosh",
    "atanh": "arctanh", "pow": "power",
}  # fmt: skip


def _of_floats(ufunc: Any, name: str) -> Callable[..., Any]:
    """A function of NumPy that takes integers as float64; Python's own messages call it by the name."""

    def one(x: Any) -> Any:
        return ufunc(x if isinstance(x, np.floating) else np.float64(x))

    def two(x: Any, y: Any) -> Any:
        return ufunc(
            x if isinstance(x, np.floating) else np.float64(x), y if isinstance(y, np.floating) else np.float64(y)
        )

    made = one if ufunc.nin == 1 else two
    made.__qualname__ = name
    return made


def _through_python(function: Callable[..., float]) -> Callable[..., Any]:
    """A function of Python's that keeps the kind of its arguments."""

    def computed(*values: Any) -> Any:
        kind = np.result_type(*(_kind(value) for value in values)).type
        return kind(function(*map(float, values)))

    return computed


def _as_float(x: Any) -> Any:
    """``float(x)``, which leaves a float32 what it is."""
    return x if isinstance(x, np.floating) else np.float64(x)


_as_float.__name__ = "float"


def _kind(x: Any) -> Any:
    return type(x) if isinstance(x, np.floating) else np.float64


class _NumPy:
    """``np`` as kernels use it: types, constants and the few functions that numba compiles for a GPU."""

    def __init__(self) -> None:
        for name in ("pi", "e", "inf", "nan"):
            setattr(self, name, np.float64(getattr(np, name)))
        for name in (*_UFUNCS, *_UFUNCS.values(), "deg2rad", "rad2deg"):
            if hasattr(np, name) and name not in _NOT_NUMPY:
                setattr(self, name, _of_floats(getattr(np, name), f"np.{name}"))
        self.maximum = self.fmax = _choosing(max)
        self.minimum = self.fmin = _choosing(min)
        for kind in (np.float16, np.float32, np.float64, np.bool_):
            setattr(self, kind.__name__, kind)
        for name, integer in INTEGERS.items():
            setattr(self, name, integer)

    def __getattr__(self, name: str) -> NoReturn:
        instead = f"; write math.{name}" if name in _UFUNCS else ""
        raise no_such_name(f"np.{name} does not exist in a kernel{instead}")


#: Functions of NumPy that numba takes from ``math`` alone.
_NOT_NUMPY = (
    "exp", "exp2", "expm1", "log1p", "sqrt", "fabs", "floor", "ceil", "trunc", "isinf", "isfinite", "modf", "fmod",
    "copysign", "nextafter", "pow", "power",
)  # fmt: skip

kernel_math = _Math()
kernel_numpy = _NumPy()

#: Names that the rewritten code uses, and built-in names as the compiler means them.
RUNTIME = {
    MARK: _divide,
    "__simt_add": _meeting(operator.add),
    "__simt_sub": _meeting(operator.sub),
    "__simt_mul": _meeting(operator.mul),
    "__simt_pow": _power,
    "__simt_floordiv": _meeting(operator.floordiv),
    "__simt_mod": _meeting(operator.mod),
    "float": _as_float,
    "max": _choosing(max),
    "min": _choosing(min),
}


def in_a_kernel(value: Any) -> Any:
    """What a number's type, ``math`` or ``np`` is within a kernel; anything else is what it was."""
    if value is python_math:
        return kernel_math
    if value is np:
        return kernel_numpy
    if isinstance(value, type) and issubclass(value, np.integer):
        return INTEGERS.get(value.__name__, value)
    if type(value).__module__.startswith("numba.") and isinstance(name := getattr(value, "name", None), str):
        return INTEGERS.get(name, np.dtype(name).type if name in np.sctypeDict else value)
    return value
