"""The Triton kernel of the exercise, as a reader writes it: a plain function, decorated only where it runs.

Triton is not needed to import this file: ``tl`` is looked up when the kernel runs, in a process where it
is. The kernel uses no trick that the book does not explain.
"""

# mypy: disallow-untyped-defs=False

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import triton.language as tl

__all__ = ["softmax_kernel"]


def softmax_kernel(y_ptr, x_ptr, columns, BLOCK: "tl.constexpr"):
    """Softmax of row ``program_id(0)``: one program a row, the row in registers."""
    row = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    inside = j < columns
    x = tl.load(x_ptr + row * columns + j, mask=inside, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * columns + j, y, mask=inside)
