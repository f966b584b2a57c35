"""Exercises of chapter 8: batches, momentum, Adam, memory, depth, initialisation, normalisation, clipping, a kernel.

Each record holds the truth and the wrong answers the field really gives; a message explains a slip, and
must never contain the expected value.
"""

from labsupport.exercises.optimization import batches, clipping, depth, kernels, normalization, optimizers, questions
from labsupport.grading import Exercise

EXERCISES: tuple[Exercise, ...] = (
    *batches.EXERCISES,
    *optimizers.EXERCISES,
    *depth.EXERCISES,
    *normalization.EXERCISES,
    *clipping.EXERCISES,
    *kernels.EXERCISES,
    *questions.EXERCISES,
)
