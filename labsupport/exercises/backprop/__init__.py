"""Exercises of chapter 7: backward rules, the computation graph, products with Jacobians, and gradient checks.

A gradient is judged with a random cotangent, and its forward values before it. No message may hold the expected
value.
"""

from labsupport.exercises.backprop import gradient_checks, jacobians, layers, questions
from labsupport.grading import Exercise

EXERCISES: tuple[Exercise, ...] = (
    *jacobians.EXERCISES,
    *layers.EXERCISES,
    *gradient_checks.EXERCISES,
    *questions.EXERCISES,
)
