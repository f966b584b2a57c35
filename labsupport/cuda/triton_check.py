"""``check`` for the Triton kernels of the catalogue: small ragged shapes in the interpreter, against float64.

Linux only; elsewhere the answer is the reason and the run that is stored, never a verdict.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from labsupport.cuda.catalogue import Run, find
from labsupport.cuda.showing import recorded
from labsupport.cuda.triton_compile import unavailable
from labsupport.cuda.triton_interpreter import Interpreter, KernelError

__all__ = ["Checked", "check_triton", "compare_small"]

#: Small shapes by operation: one element, sizes that no tile divides, and more than one block of rows or keys.
SHAPES: dict[str, tuple[dict[str, int], ...]] = {
    "matmul": ({"M": 1, "N": 1, "K": 1}, {"M": 70, "N": 50, "K": 40}, {"M": 130, "N": 257, "K": 65}),
    "flash_attention": (
        {"batch": 1, "heads": 1, "length": 1, "D": 16},
        {"batch": 2, "heads": 1, "length": 70, "D": 32},
        {"batch": 1, "heads": 2, "length": 200, "D": 128},
    ),
    "rows": ({"rows": 1, "columns": 1}, {"rows": 3, "columns": 200}, {"rows": 2, "columns": 33000}),
}


@dataclass(frozen=True)
class Checked:
    """What checking a kernel gave: a line a shape, or why it could not be done here."""

    kernel: str
    passed: bool
    lines: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        return "\n".join([f"check({self.kernel!r}):", *(f"  {line}" for line in self.lines)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def check_triton(kernel: str) -> Checked:
    """Hold a Triton kernel of the catalogue against float64 on small shapes, on this machine's CPU.

    Raises:
        ValueError: no Triton kernel has that name.
    """
    run = find(kernel)
    if run.family != "triton":
        raise ValueError(f"{kernel!r} is a kernel of the SIMT ladder, not one in Triton")
    reason = unavailable()
    if reason:
        return Checked(kernel, False, (f"not checked here: {reason}.", *str(recorded(kernel)).splitlines()))
    with Interpreter() as interpreter:
        lines = list(_lines(run, interpreter))
    return Checked(kernel, all(right for right, _ in lines), tuple(line for _, line in lines))


def _lines(run: Run, interpreter: Interpreter) -> Iterator[tuple[bool, str]]:
    """Yield (right, line) for every small shape."""
    for number, shape in enumerate(_shapes(run)):
        sizes = ", ".join(f"{name} {size}" for name, size in shape.items())
        try:
            largest, share = interpreter.call(f"{__name__}:compare_small", run.name, number)
        except KernelError as error:
            yield False, f"wrong  {run.dtype} {sizes}: {error}"
            continue
        yield True, f"right  {run.dtype} {sizes}: error {largest:.1e}, {share:.0%} of what rounding explains"


def _shapes(run: Run) -> list[dict[str, int]]:
    causal = {"causal": run.shape["causal"]} if "causal" in run.shape else {}
    return [shape | causal for shape in SHAPES.get(run.operation, SHAPES["rows"])]


def compare_small(name: str, number: int) -> tuple[Any, ...]:
    """Compare a kernel at one small shape, inside the interpreter's process: (largest error, share of the bound)."""
    from labsupport.cuda.bench import prepare

    run = find(name)
    return prepare(replace(run, shape=_shapes(run)[number]), 0, "cpu").check()
