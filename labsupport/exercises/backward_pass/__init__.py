"""Exercises of chapter 12: gradients by hand, nudging, norms by layer, checkpointing, accumulation, guarding a step.

Each record holds the truth and the wrong answers the field really gives; a message explains a slip, and must never
contain the expected value.
"""

from labsupport.exercises.backward_pass import accumulation, head, layers, questions, whole_model
from labsupport.grading import Exercise

EXERCISES: tuple[Exercise, ...] = (
    *head.EXERCISES,
    *layers.EXERCISES,
    *whole_model.EXERCISES,
    *accumulation.EXERCISES,
    *questions.EXERCISES,
)
