"""What is wrong with a source or a notebook, said so that an author can mend it.

Every fault names the file and the line, what is wrong, and what to do. Nothing here may print or exit:
the command line decides what to do with a fault.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, order=True)
class Fault:
    """One thing an author has to mend; its text is ``file:line: what is wrong; what to do``."""

    path: Path
    line: int
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.problem}; {self.remedy}"


class SourceError(Exception):
    """The source cannot become a notebook; ``faults`` holds every reason that was found."""

    def __init__(self, faults: list[Fault]):
        super().__init__("\n".join(str(fault) for fault in sorted(faults)))
        self.faults = sorted(faults)


class ExecutionError(Exception):
    """A cell failed while its notebook was run; the text names notebook, source, cell and line."""
