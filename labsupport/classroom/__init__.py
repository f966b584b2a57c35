"""Grading a whole class: each notebook runs in a child process, the verdict is made outside it.

The child returns plain arrays and text; the parent holds the oracles and judges. This limits the
damage of a bad notebook. It is no security boundary: do not run it on notebooks of people you do
not know.
"""

from labsupport.classroom.nbgrader import require

__all__ = ["require"]
