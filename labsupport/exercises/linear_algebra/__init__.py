"""Questions and exercises of chapter 2: layout, products, maps and factors.

Every expected value is computed by ``labsupport.ops`` or NumPy. A message explains a slip of the field, and
must never contain the expected value.
"""

from labsupport.exercises.linear_algebra import factors, layout, products, questions
from labsupport.grading import Exercise

EXERCISES: tuple[Exercise, ...] = (
    *questions.EXERCISES,
    *layout.EXERCISES,
    *products.EXERCISES,
    *factors.EXERCISES,
)
