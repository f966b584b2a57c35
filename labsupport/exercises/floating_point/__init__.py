"""Exercises of chapter 9: formats, rounding, sums, variances, condition, mixed precision and loss scaling.

Each record holds the truth and the wrong answers the field really gives; a message explains a slip, and
must never contain the expected value.
"""

from labsupport.exercises.floating_point import formats, mixed_precision, nonfinite, questions, sums, variances
from labsupport.grading import Exercise

EXERCISES: tuple[Exercise, ...] = (
    *formats.EXERCISES,
    *sums.EXERCISES,
    *nonfinite.EXERCISES,
    *variances.EXERCISES,
    *mixed_precision.EXERCISES,
    *questions.EXERCISES,
)
