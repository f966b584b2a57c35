"""A private exercise of the judge's own tests: softmax, with the misconceptions the field really has."""

import numpy as np
import pytest

from labsupport.grading import Case, Function, Mistake, Tolerance


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def naive(x: np.ndarray) -> np.ndarray:
    e = np.exp(x)
    return e / e.sum(axis=-1, keepdims=True)


def whole(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def first_axis(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=0))
    return e / e.sum(axis=0)


def ratio(x: np.ndarray) -> np.ndarray:
    return x / x.sum(axis=-1, keepdims=True)


def in_place(x: np.ndarray) -> np.ndarray:
    x -= x.max(axis=-1, keepdims=True)
    e = np.exp(x)
    return e / e.sum(axis=-1, keepdims=True)


def cases(rng: np.random.Generator) -> list[Case]:
    x = rng.normal(size=(3, 5))
    masked = rng.normal(size=(2, 4))
    masked[0, 1] = -np.inf
    return [
        Case(args=(x,)),
        Case(args=(x.astype(np.float32),)),
        Case(args=(np.asfortranarray(rng.normal(size=(4, 4))),), label="float64 (4, 4), Fortran order"),
        Case(args=(rng.normal(size=(3, 8))[:, ::-2],), label="float64 (3, 4), negative stride"),
        Case(args=(rng.normal(size=(2, 3, 1)),)),
        Case(args=(rng.normal(size=(2, 3, 7)),)),
        Case(args=(rng.normal(size=6),)),
        Case(args=(np.zeros((2, 3)),), label="float64 (2, 3), ties"),
        Case(args=(masked,), label="float64 (2, 4), one logit -inf"),
        Case(args=(1000 + rng.normal(size=(2, 6)),), label="float64 (2, 6), logits near 1000"),
        Case(args=(rng.normal(size=257),), label="float64 (257,)"),
    ]


def rows(case: Case, result: object) -> str | None:
    sums = np.sum(np.asarray(result, dtype=float), axis=-1)
    return None if np.allclose(sums, 1) else "your rows do not sum to 1."


def magnitude(x: np.ndarray) -> float:
    """An exponent of size |x| carries a rounding error of |x| units, so it is fair to allow for it."""
    return max(1.0, float(np.abs(x[np.isfinite(x)]).max()))


@pytest.fixture(scope="session")
def softmax_record() -> Function:
    return Function(
        id="softmax-private",
        chapter=5,
        section="5.2",
        title="Softmax",
        prompt="Write `softmax(x)` over the last axis.",
        contract="Any leading axes; float32 or float64.",
        hints=("Think of `exp`.", "Subtract the maximum."),
        oracle=softmax,
        cases=cases,
        tolerance=Tolerance(c=4, depth=lambda x: x.shape[-1], scale=magnitude),
        mistakes=(
            Mistake(name="ratio", answer=ratio, message="You divided the logits. Softmax divides their exponentials."),
            Mistake(
                name="whole-array",
                answer=whole,
                message="You normalised over the whole array instead of the last axis.",
            ),
            Mistake(name="first-axis", answer=first_axis, message="You normalised over the first axis."),
            Mistake(name="overflow", answer=naive, message="`exp` overflows. Subtract the row maximum first."),
            Mistake(name="in-place", answer=in_place, message="`-=` writes to the caller's array."),
        ),
        diagnose=rows,
        forbidden_calls=("scipy.special.softmax", "torch.softmax", ".softmax"),
    )
