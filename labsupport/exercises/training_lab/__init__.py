"""Exercises of chapter 13: data, schedule, gradients of parts, files, decoding, and one whole training step.

Truths come from the operators and from the lab's own code; a message explains a slip and never holds the
expected value.
"""

from labsupport.exercises.training_lab import checkpoints, data, generation, questions, training_step
from labsupport.grading import Exercise

EXERCISES: tuple[Exercise, ...] = (
    *data.EXERCISES,
    *training_step.EXERCISES,
    *checkpoints.EXERCISES,
    *generation.EXERCISES,
    *questions.EXERCISES,
)
