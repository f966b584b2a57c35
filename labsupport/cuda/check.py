"""The verb ``check``: run a kernel in the simulator and say what is wrong with it, on any machine.

A fault of the kernel is an answer, not an exception. The caller's arrays stay as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from labsupport.cuda import simt

__all__ = ["Checked", "check"]

#: Orders of blocks and threads that a kernel runs in; None is the natural one.
ORDERS = (None, 1, 2)


@dataclass(frozen=True)
class Checked:
    """What a check found.

    Attributes:
        name: of the kernel.
        fault: the finding, with line and thread; empty where there is none.
        report: what the launch counted, in the natural order; None after a fault of the kernel.
        results: the arrays after the launch, by the names of the kernel's parameters.
    """

    name: str
    fault: str = ""
    report: simt.Report | None = None
    results: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether nothing was found."""
        return not self.fault

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        if self.fault:
            return f"✗ {self.name}: {self.fault}"
        lines = [f"✓ {self.name}: no race, no stray access, every barrier met, in {len(ORDERS)} orders of threads."]
        if self.report is not None and self.report.float64_lines:
            lines.append(f"  Note: float64 arithmetic reaches a narrower array in line {self.report.float64_lines[0]}.")
        return "\n".join([*lines, f"  {self.report}".replace("\n", "\n  ")])


def check(
    kernel: Any,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    *arguments: Any,
    expected: Mapping[str, ArrayLike] | None = None,
    rtol: float = 1e-5,
    shared_bytes: int = 0,
    seconds: float = 60.0,
) -> Checked:
    """Run a kernel in the simulator, in several orders of threads, and hold its results against the truth.

    Args:
        kernel: a function in the dialect of ``numba.cuda``, plain or decorated (by numba too).
        grid, block: the launch.
        arguments: NumPy arrays and numbers; the kernel gets copies.
        expected: by parameter name, what an array is to hold afterwards.
        rtol: allowed error, as a share of the largest magnitude that is expected.
        shared_bytes: dynamic shared memory of a block.
        seconds: computing time of one launch after which a loop counts as endless.

    Raises:
        TypeError: the kernel is no function.
        ValueError: ``expected`` names an array the kernel does not have, or of another shape.
    """
    function = getattr(kernel, "py_func", kernel)
    try:
        made = simt.Kernel(function)
    except simt.UnsupportedError as error:
        raise TypeError(str(error)) from None
    first: tuple[simt.Report, dict[str, Any]] | None = None
    for order in ORDERS:
        copies = [_copy(value) for value in arguments]
        try:
            report = simt.launch(
                made, grid, block, *copies,
                shared_bytes=shared_bytes, seed=order, profile=first is None, seconds=seconds,
            )  # fmt: skip
        except simt.SimtError as error:
            return Checked(made.__name__, str(error))
        results = {n: v for n, v in zip(made.parameters, copies, strict=True) if isinstance(v, np.ndarray)}
        for name, truth in (expected or {}).items():
            fault = _difference(name, results, np.asarray(truth), rtol)
            if fault:
                return Checked(made.__name__, fault, report, results)
        first = first or (report, results)
    assert first is not None
    return Checked(made.__name__, "", *first)


def _copy(value: Any) -> Any:
    """A copy of an array; one that a launch refuses for its layout stays as it is, to be refused."""
    return value.copy() if isinstance(value, np.ndarray) and value.flags.c_contiguous else value


def _difference(name: str, results: Mapping[str, np.ndarray], truth: np.ndarray, rtol: float) -> str:
    """What is wrong with one array, or nothing."""
    if name not in results:
        raise ValueError(f"the kernel has no array {name!r}; it has {', '.join(results)}")
    if results[name].shape != truth.shape:
        raise ValueError(f"{name} has shape {results[name].shape}, what is expected has {truth.shape}")
    actual, due = results[name].astype(np.float64), truth.astype(np.float64)
    scale = np.abs(due[np.isfinite(due)]).max(initial=0.0) or 1.0
    with np.errstate(invalid="ignore"):
        right = (np.abs(actual - due) <= rtol * scale) | (actual == due) | (np.isnan(actual) & np.isnan(due))
    if right.all():
        return ""
    index = ", ".join(str(int(i)) for i in np.argwhere(~right)[0])
    return f"{name}[{index}] is wrong, and {int((~right).sum())} of {right.size} elements in all."
