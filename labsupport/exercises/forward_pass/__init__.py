"""Exercises of chapter 11: order and shapes of the forward pass, logits, causality, parameters, kernels, percentiles.

Each record holds the truth and the wrong answers the field really gives; a message explains a slip, and must never
contain the expected value.
"""

from labsupport.exercises.forward_pass import counting, head, layer, measuring, questions, shapes
from labsupport.grading import Exercise

EXERCISES: tuple[Exercise, ...] = (
    *shapes.EXERCISES,
    *head.EXERCISES,
    *layer.EXERCISES,
    *counting.EXERCISES,
    *measuring.EXERCISES,
    *questions.EXERCISES,
)
