"""Exercises of chapter 6: rates, partial derivatives, the chain rule, descent, losses and what backward costs.

Expected values are computed from the functions stated here, never typed. No message may hold one.
"""

from labsupport.exercises.derivatives import descent, questions, slopes, training
from labsupport.grading import Exercise

EXERCISES: tuple[Exercise, ...] = (
    *slopes.EXERCISES,
    *descent.EXERCISES,
    *training.EXERCISES,
    *questions.EXERCISES,
)
