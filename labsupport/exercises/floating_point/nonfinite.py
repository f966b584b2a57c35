"""The exercise of chapter 9 on finding the first tensor with an infinity or a NaN."""

import numpy as np

from labsupport.grading import Case, Exercise, Function, Mistake
from labsupport.grading.shorthand import quiet

Array = np.ndarray


def _first_bad(tensors: list[Array]) -> int:
    return next((i for i, x in enumerate(tensors) if not np.isfinite(x).all()), -1)


def _tensor_cases(rng: np.random.Generator) -> list[Case]:
    good = [rng.normal(size=(2, 3)) for _ in range(4)]
    with_nan, with_inf, with_minus = (x.copy() for x in good[:3])
    with_nan[0, 1], with_inf[1, 2], with_minus[0, 0] = np.nan, np.inf, -np.inf
    lists = [
        ("four finite arrays", good),
        ("inf in the second, NaN in the third", [good[0], with_inf, with_nan, good[3]]),
        ("-inf in the first", [with_minus, good[1], with_nan]),
        ("NaN in the last", [good[0], good[1], with_nan]),
        ("float16 with inf", [np.ones(3, np.float16), np.array([1, np.inf], np.float16)]),
        ("large and finite", [np.array([1e300, -1e300]), np.array([65504], np.float16)]),
        ("large and finite, though their sum is not", [np.full(2, 1.5e308), np.full(2, 6e4, np.float16)]),
        ("both signs of infinity", [good[0], np.array([np.inf, -np.inf])]),
        ("an empty list", []),
    ]
    return [Case(args=(tensors,), label=label) for label, tensors in lists]


FIRST_NONFINITE = Function(
    id="first-nonfinite",
    chapter=9,
    section="9.5",
    title="The first bad tensor",
    level="easy",
    prompt="Write `first_bad(tensors)`: the index of the first array that holds an infinity or a NaN, -1 if there is "
    "none.",
    contract="`tensors`: a list of floating arrays of any shapes, in the order in which they were computed; it may be "
    "empty. Result: an int.",
    hints=(
        "`np.isfinite` is False for infinities of both signs and for NaN.",
        "Return at the first one; after the loop, nothing was found.",
    ),
    oracle=_first_bad,
    cases=_tensor_cases,
    mistakes=(
        Mistake(
            name="nan-only",
            answer=lambda ts: next((i for i, x in enumerate(ts) if np.isnan(x).any()), -1),
            message="You look for NaN only. An infinity comes first in most broken models.",
        ),
        Mistake(
            name="plus-inf-only",
            answer=lambda ts: next((i for i, x in enumerate(ts) if np.isnan(x).any() or (x == np.inf).any()), -1),
            message="You miss the infinity with a minus sign.",
        ),
        Mistake(
            name="last",
            answer=lambda ts: max((i for i, x in enumerate(ts) if not np.isfinite(x).all()), default=-1),
            message="That is the last bad array. The cause is the first.",
        ),
        Mistake(
            name="by-the-sum",
            answer=quiet(lambda ts: next((i for i, x in enumerate(ts) if np.isnan(x.sum())), -1)),
            message="A sum that is NaN tells of NaN or of infinities of both signs, and of no single infinity.",
        ),
        Mistake(
            name="finite-sum",
            answer=quiet(lambda ts: next((i for i, x in enumerate(ts) if not np.isfinite(x.sum())), -1)),
            message="You ask whether the sum is finite. Finite numbers may add up to an infinity.",
        ),
        Mistake(
            name="by-size",
            answer=quiet(lambda ts: next((i for i, x in enumerate(ts) if not (np.abs(x) < 1e100).all()), -1)),
            message="A large number may be finite. Ask for finiteness, not for size.",
        ),
        Mistake(
            name="all-entries",
            answer=lambda ts: next((i for i, x in enumerate(ts) if not np.isfinite(x).any()), -1),
            message="You ask for an array in which nothing is finite. One bad entry is enough.",
        ),
        Mistake(
            name="zero-for-none",
            answer=lambda ts: max(_first_bad(ts), 0),
            message="When nothing is found you name the first array.",
        ),
    ),
)

EXERCISES: tuple[Exercise, ...] = (FIRST_NONFINITE,)
