"""Questions and exercises of chapter 1: the shape, the cost and the risk of one large product.

Every expected value is computed from sizes. A message explains a slip, and must never contain the
expected value.
"""

from labsupport.exercises.three_questions import costs, limits, questions
from labsupport.grading import Exercise

EXERCISES: tuple[Exercise, ...] = (*questions.EXERCISES, *costs.EXERCISES, *limits.EXERCISES)
