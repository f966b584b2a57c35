"""Floating-point formats bit by bit: encode, decode, round and measure the spacing.

Every format of the book (FP32, TF32, FP16, BF16 and both FP8 kinds) is one ``FloatFormat``
with the same few lines of integer arithmetic, so that the rule is seen once and compared with
the hardware's types on every bit pattern. It must never call a library's own conversion.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["BF16", "E4M3", "E5M2", "FORMATS", "FP16", "FP32", "TF32", "FloatFormat", "LossScaler"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class FloatFormat:
    """A binary floating-point format: 1 sign bit, then exponent bits, then mantissa bits.

    The value of a pattern (s, e, f) is ``(-1)**s * 2**(e - bias) * 1.f`` for ``e > 0`` and
    ``(-1)**s * 2**(1 - bias) * 0.f`` for ``e == 0`` (zero and the subnormals).

    Args:
        name: what the format is called.
        exponent_bits: number of exponent bits, 2 to 8 here.
        mantissa_bits: number of stored mantissa bits; a normal number has one more, hidden.
        has_infinity: IEEE-like: the largest exponent field holds infinity and NaN. Without it
            (E4M3, "fn" for finite) only the pattern of all ones is NaN.

    Source: IEEE 754-2019, section 3.4; "FP8 Formats for Deep Learning" (Micikevicius et al., 2022).
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    has_infinity: bool = True

    def __post_init__(self) -> None:
        # float64 has to hold every value and every tie between two values exactly.
        if not (2 <= self.exponent_bits <= 8 and 1 <= self.mantissa_bits <= 26):
            raise ValueError(
                f"{self.name}: {self.exponent_bits} exponent and {self.mantissa_bits} mantissa bits; "
                "this class handles 2 to 8 exponent bits and 1 to 26 mantissa bits"
            )

    # -- the format's own numbers ------------------------------------------------------------

    @property
    def bits(self) -> int:
        """Width of a pattern in bits: sign, exponent and mantissa."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def bias(self) -> int:
        """What is subtracted from the exponent field: 2**(exponent_bits - 1) - 1."""
        return 2 ** (self.exponent_bits - 1) - 1

    @property
    def eps(self) -> float:
        """Distance from 1 to the next larger number: 2**-mantissa_bits."""
        return 2.0**-self.mantissa_bits

    @property
    def max(self) -> float:
        """Largest finite value."""
        return self._largest

    @cached_property
    def _largest(self) -> float:
        return float(self.decode(self._max_code))

    @property
    def min_normal(self) -> float:
        """Smallest positive normal value: 2**(1 - bias)."""
        return 2.0 ** (1 - self.bias)

    @property
    def min_subnormal(self) -> float:
        """Smallest positive value: min_normal * eps."""
        return self.min_normal * self.eps

    @property
    def _max_code(self) -> int:
        all_ones = 2 ** (self.bits - 1) - 1
        return all_ones - 2**self.mantissa_bits if self.has_infinity else all_ones - 1

    @property
    def _nan_code(self) -> int:
        """The quiet NaN: for IEEE-like formats the first mantissa bit set, else the pattern of all ones."""
        if self.has_infinity:
            return self._max_code + 1 + 2 ** (self.mantissa_bits - 1)
        return self._max_code + 1

    # -- bits to numbers ---------------------------------------------------------------------

    def decode(self, bits: npt.ArrayLike) -> Any:
        """Value of each bit pattern, as float64.

        Args:
            bits: integers in [0, 2**self.bits), any shape.

        Returns:
            float64 of the same shape; infinities and NaN where the format has them.

        Raises:
            TypeError: ``bits`` are not integers.
            ValueError: a pattern does not fit in ``self.bits`` bits.
        """
        code = np.asarray(bits)
        if code.dtype.kind not in "iu":
            raise TypeError(f"{self.name}: bit patterns are integers, not {code.dtype}; encode() takes numbers")
        if code.size and not (int(code.min()) >= 0 and int(code.max()) < 2**self.bits):
            raise ValueError(f"{self.name}: a bit pattern lies in [0, {2**self.bits}), it has {self.bits} bits")
        code = code.astype(np.int64)
        sign = np.where(code >> (self.bits - 1), -1.0, 1.0)
        magnitude = code & (2 ** (self.bits - 1) - 1)
        exponent = magnitude >> self.mantissa_bits
        fraction = magnitude & (2**self.mantissa_bits - 1)
        hidden = np.where(exponent > 0, 2**self.mantissa_bits, 0)
        scale = np.maximum(exponent, 1) - self.bias - self.mantissa_bits
        value = np.ldexp((hidden + fraction).astype(np.float64), scale)
        value = np.where(magnitude == self._max_code + 1, np.inf if self.has_infinity else np.nan, value)
        value = np.where(magnitude > self._max_code + 1, np.nan, value)
        return np.copysign(value, sign)[()]

    # -- numbers to bits ---------------------------------------------------------------------

    def encode(self, x: npt.ArrayLike, saturate: bool = False) -> Any:
        """Bit pattern of the nearest value of the format, ties to the even pattern.

        Beyond the largest value (by half a spacing or more) the result is infinity, or NaN in a
        format without infinity; with ``saturate=True`` it is the largest finite value, except
        that NaN stays NaN.

        Args:
            x: real numbers, any shape; read as float64.
            saturate: clamp overflow, infinities included, to the largest finite value.

        Returns:
            int64 patterns of the same shape.
        """
        value = np.asarray(x, dtype=np.float64)
        finite = np.isfinite(value)
        magnitude = np.where(finite, np.abs(value), 0.0)
        exponent = self._exponent(magnitude)
        # In units of the spacing at this exponent; rint rounds ties to even. The hidden
        # bit of a normal number adds 1 to the exponent field, and so does a carry out of
        # the mantissa.
        spacings = np.rint(np.ldexp(magnitude, self.mantissa_bits - exponent))
        code = ((exponent + self.bias - 1) << self.mantissa_bits) + spacings.astype(np.int64)
        overflow = self._max_code if saturate else self._max_code + 1
        code = np.where((code > self._max_code) | np.isinf(value), overflow, code)
        code = np.where(np.isnan(value), self._nan_code, code)
        sign = np.signbit(value).astype(np.int64) << (self.bits - 1)
        return (sign | code)[()]

    def _exponent(self, magnitude: Array) -> Array:
        """Exponent e with 2**e <= magnitude < 2**(e + 1), not below that of the subnormals (also for 0)."""
        exponent = np.where(magnitude > 0, np.frexp(magnitude)[1] - 1, 1 - self.bias)
        return np.maximum(exponent, 1 - self.bias).astype(np.int64)

    def round(self, x: npt.ArrayLike, saturate: bool = False) -> Any:
        """The nearest value of the format, as float64: ``decode(encode(x))``, by the short way.

        A value is a whole number of spacings, so it is divided by the spacing, a power of two, rounded to a whole
        number with ties to even, and multiplied again.
        """
        value = np.asarray(x, dtype=np.float64)
        exponent = np.maximum(np.frexp(value)[1] - 1, 1 - self.bias)
        spacing = np.ldexp(1.0, exponent - self.mantissa_bits)
        with np.errstate(over="ignore", invalid="ignore"):  # beyond float64, and NaN that signal
            nearest = np.rint(value / spacing) * spacing
        beyond = self._largest if saturate else np.inf if self.has_infinity else np.nan
        return np.where(np.abs(nearest) > self._largest, np.copysign(beyond, value), nearest)[()]

    def ulp(self, x: npt.ArrayLike) -> Any:
        """Spacing of the format at ``x``: the distance from |x|, rounded down, to the next larger value.

        NaN where ``x`` is not finite or lies beyond the largest value.
        """
        value = np.abs(np.asarray(x, dtype=np.float64))
        inside = np.isfinite(value) & (value <= self.max)
        exponent = self._exponent(np.where(inside, value, 0.0))
        return np.where(inside, np.ldexp(1.0, exponent - self.mantissa_bits), np.nan)[()]


FP32 = FloatFormat("FP32", 8, 23)
#: A mode of the matrix unit, not a storage type: values live in 32-bit words, 19 bits count.
TF32 = FloatFormat("TF32", 8, 10)
FP16 = FloatFormat("FP16", 5, 10)
BF16 = FloatFormat("BF16", 8, 7)
E4M3 = FloatFormat("E4M3", 4, 3, has_infinity=False)
E5M2 = FloatFormat("E5M2", 5, 2)

FORMATS = (FP32, TF32, FP16, BF16, E4M3, E5M2)


@dataclass
class LossScaler:
    """Dynamic loss scaling: multiply the loss, divide the gradients, adapt to overflow.

    A step whose gradients hold an infinity or a NaN is skipped and the scale falls by
    ``backoff_factor``; after ``growth_interval`` good steps in a row it grows by ``growth_factor``.

    Args:
        scale: the present factor, a power of two so that scaling rounds nothing.
        growth_factor: factor after enough good steps, above 1.
        backoff_factor: factor after an overflow, between 0 and 1.
        growth_interval: good steps in a row before the scale grows.

    Source: "Mixed Precision Training" (Micikevicius et al., 2018), section 3.2.
    """

    scale: float = 2.0**16
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    good_steps: int = 0

    def __post_init__(self) -> None:
        if not self.scale > 0 or not self.growth_factor > 1 or not 0 < self.backoff_factor < 1:
            raise ValueError(
                f"scale {self.scale}, growth {self.growth_factor}, backoff {self.backoff_factor}: "
                "the scale is positive, growth is above 1 and backoff lies between 0 and 1"
            )
        if self.growth_interval < 1:
            raise ValueError(f"growth_interval is {self.growth_interval}; it counts steps, 1 or more")

    def scale_loss(self, loss: Any) -> Any:
        """The scaled loss L' = s·L, in the loss's own dtype."""
        return np.asarray(loss) * np.asarray(loss).dtype.type(self.scale)

    def unscale(self, grads: list[Array]) -> tuple[list[Array], bool]:
        """Gradients divided by the scale, as float32, and whether all of them are finite."""
        finite = all(bool(np.isfinite(grad).all()) for grad in grads)
        return [np.asarray(grad, dtype=np.float32) / np.float32(self.scale) for grad in grads], finite

    def update(self, finite: bool) -> bool:
        """Adapt the scale after a step; returns whether the step may be applied."""
        if not finite:
            self.scale *= self.backoff_factor
            self.good_steps = 0
            return False
        self.good_steps += 1
        if self.good_steps == self.growth_interval:
            self.scale *= self.growth_factor
            self.good_steps = 0
        return True
