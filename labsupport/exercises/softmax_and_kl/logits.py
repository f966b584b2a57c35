"""Rows of logits for the exercises of chapter 5, and how closely a result of them is due."""

from typing import Any

import numpy as np

from labsupport.grading import Case, Tolerance

Array = np.ndarray


def labelled_rows(rng: np.random.Generator) -> list[tuple[str, Array]]:
    """Rows of logits in both dtypes and every layout, each row with a finite entry."""
    masked = rng.normal(size=(3, 4)).astype(np.float32)
    masked[0, 1] = masked[1, 3] = -np.inf
    levels = rng.normal(size=(3, 4)) + np.array([[0.0], [1000.0], [-1000.0]])
    return [
        ("float64 (3, 5)", rng.normal(0, 2, (3, 5))),
        ("float64 (4, 4), square", rng.normal(0, 2, (4, 4))),
        ("float32 (3, 5)", rng.normal(0, 2, (3, 5)).astype(np.float32)),
        ("float64 (2, 3, 4), Fortran order", np.asfortranarray(rng.normal(0, 2, (2, 3, 4)))),
        ("float64 (4, 3), every second column, reversed", rng.normal(0, 2, (4, 6))[:, ::-2]),
        ("float64 (6,), one axis", rng.normal(0, 2, 6)),
        ("float32 (4, 1), a vocabulary of one", rng.normal(size=(4, 1)).astype(np.float32)),
        ("float32 (2, 4), logits near 10,000", (10_000 + rng.normal(size=(2, 4))).astype(np.float32)),
        ("float64 (3, 4), rows near 0, 1000 and -1000", levels),
        ("float32 (3, 4), some logits -inf", masked),
        ("float64 (2, 3), a row 2,000 wide", np.array([[1000.0, 0.0, -1000.0], [0.0, 1.0, 2.0]])),
        ("float64 (4,), one logit far below", np.array([0.5, 0.0, 1.0, -1500.0])),
    ]


def row_cases(rng: np.random.Generator) -> list[Case]:
    """The labelled rows as cases of a function of logits alone."""
    return [Case(args=(z,), label=label) for label, z in labelled_rows(rng)]


def row_length(z: Any, *_: Any, **__: Any) -> int:
    """Number of terms that the reduction over the last axis adds."""
    return int(np.shape(z)[-1])


def magnitude(z: Any, *_: Any, **__: Any) -> float:
    """Rounding of the logits themselves: 1 or the largest finite logit."""
    z = np.asarray(z, np.float64)
    return max(1.0, float(np.abs(z[np.isfinite(z)]).max(initial=0.0)))


ROUNDING = Tolerance(c=4, depth=row_length, scale=magnitude)


def exp_shifted(z: Array, axis: int | None = -1) -> Array:
    """exp(z − max z) along an axis, for variants of softmax; None takes the maximum of the whole array."""
    return np.exp(z - np.max(z, axis=axis, keepdims=True))
