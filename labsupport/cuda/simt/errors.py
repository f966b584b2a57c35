"""What can be wrong with a kernel, one exception class each, every message with line and thread.

A message names the fault, where it is and what to do. None of these is ever raised for a fault
of the simulator itself.
"""

Thread = tuple[int, int, int]

__all__ = [
    "BarrierError",
    "DataRaceError",
    "EndlessLoopError",
    "KernelFault",
    "LaunchError",
    "OutOfBoundsError",
    "SimtError",
    "UninitializedError",
    "UnsupportedError",
    "WarpError",
]


class SimtError(RuntimeError):
    """A fault of a kernel or of its launch.

    Attributes:
        line: line of the kernel's source file, or None for a launch.
        thread: (x, y, z) of the thread, or None.
        block: (x, y, z) of the block, or None.
        array: name of the array, for a fault of one element.
        space: ``"global"``, ``"shared"`` or ``"local"``, the memory of that array.
        barriers: how many barriers the block had passed.
        across: whether two blocks take part.
        kinds: of a race, what the two threads do: ``"load"``, ``"store"`` or ``"atomic"``.
    """

    def __init__(
        self, message: str, line: int | None = None, thread: Thread | None = None, block: Thread | None = None
    ) -> None:
        super().__init__(message)
        self.line, self.thread, self.block = line, thread, block
        self.array: str | None = None
        self.space: str | None = None
        self.barriers = 0
        self.across = False
        self.kinds: tuple[str, ...] = ()


class LaunchError(SimtError):
    """The launch asks for what no GPU gives: too many threads, too much shared memory, a bad argument."""


class UnsupportedError(SimtError):
    """The kernel uses something outside the dialect, such as a slice."""


class OutOfBoundsError(SimtError):
    """An index outside the array. A GPU would read or overwrite foreign memory without a word."""


class DataRaceError(SimtError):
    """Two threads access the same element, at least one writes, and nothing orders them."""


class UninitializedError(SimtError):
    """An element of shared or local memory is read that no thread has written."""


class BarrierError(SimtError):
    """A barrier that not every thread of the block reaches."""


class WarpError(SimtError):
    """A warp operation whose mask names lanes that do not take part."""


class EndlessLoopError(SimtError):
    """A loop that runs far longer than any kernel of the book."""


class KernelFault(SimtError):
    """An ordinary Python exception inside the kernel, such as a division by zero."""
