"""Exercises of chapter 4: tables, Bayes, expectation, variance, covariance, divisors and logarithms.

Expected values are computed by `labsupport.ops.probability` or from the tables stated here. No message may hold one.
"""

from labsupport.exercises.probability import distributions, likelihoods, questions, variances
from labsupport.grading import Exercise

EXERCISES: tuple[Exercise, ...] = (
    *questions.EXERCISES,
    *distributions.EXERCISES,
    *variances.EXERCISES,
    *likelihoods.EXERCISES,
)
