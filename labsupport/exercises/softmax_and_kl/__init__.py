"""Exercises of chapter 5: softmax, losses and divergences, decoding, online softmax, softmax kernels.

Each record holds the truth and the wrong answers the field really gives; a message explains a slip, and
must never contain the expected value.
"""

from labsupport.exercises.softmax_and_kl import decoding, divergences, kernels, losses, online, questions, softmax
from labsupport.grading import Exercise

EXERCISES: tuple[Exercise, ...] = (
    *softmax.EXERCISES,
    *losses.EXERCISES,
    *divergences.EXERCISES,
    *decoding.EXERCISES,
    *online.EXERCISES,
    *kernels.EXERCISES,
    *questions.EXERCISES,
)
