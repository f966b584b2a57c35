"""What the kernel exercises of chapter 3 share: inputs, the number of blocks, and sentences on frequent slips."""

from __future__ import annotations

import numpy as np

F32 = np.float32
BARRIER_AFTER_IF = (
    "A barrier inside a condition is not reached by every thread of the block. Let the condition guard the access "
    "alone, and place `cuda.syncthreads()` after it, for all threads."
)
NO_GUARD = (
    "The grid is rounded up to whole blocks, so some threads lie beyond the end. Compare the index with the shape "
    "before every access, with `<`: an index ends one before the shape."
)
WIDE = (
    "A literal such as `0.0` or `1`, or `acc = 0`, makes float64 in a compiled kernel. Write `float32(0.0)` and keep "
    "every operand in float32."
)


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Normal float32 numbers of a shape."""
    return rng.normal(size=shape).astype(F32)


def blocks(n: int, size: int) -> int:
    """Number of blocks of ``size`` threads that cover ``n`` elements."""
    return -(-n // size)
