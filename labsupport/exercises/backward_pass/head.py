"""Exercises of chapter 12 on one weight, on the LM head, and on a step that nudges a prediction."""

from typing import Any

import numpy as np

from labsupport.grading import Case, Exercise, Function, Mistake, Number, Several, Tolerance
from labsupport.ops.softmax import softmax

Array = np.ndarray


_W, _X, _Y, _ETA = 1.0, 4.0, 10.0, 0.02
_SLOPE = 2 * (_W * _X - _Y) * _X
_NEW = _W - _ETA * _SLOPE

QUADRATIC_STEP = Several(
    id="quadratic-step",
    chapter=12,
    section="12.2",
    title="One step by hand",
    prompt=(
        "$L = (wx - y)^2$ with w = 1, x = 4, y = 10 and learning rate 0.02. Give four parts: `loss`, `gradient` "
        "(dL/dw), "
        "`new_w` and `new_loss` after one step of gradient descent."
    ),
    hints=(
        "Guess the sign first: is the product too small or too large, and what would a larger w do?",
        "The chain rule gives $2(wx - y)x$.",
        "The step goes against the gradient.",
    ),
    checklist=(11,),
    level="easy",
    parts={
        "loss": Number(
            prompt="The loss before the step.",
            expected=(_W * _X - _Y) ** 2,
            unit="1",
            rtol=1e-6,
            mistakes=(
                Mistake(name="not-squared", answer=_W * _X - _Y, message="This is the error; the loss squares it."),
            ),
        ),
        "gradient": Number(
            prompt="dL/dw.",
            expected=_SLOPE,
            unit="1",
            rtol=1e-6,
            mistakes=(
                Mistake(
                    name="no-inner",
                    answer=2 * (_W * _X - _Y),
                    message="This is the derivative with respect to the error. The chain rule brings a second factor.",
                ),
                Mistake(name="sign", answer=-_SLOPE, message="The sign is wrong. Would a larger w raise the loss?"),
                Mistake(
                    name="no-two",
                    answer=_SLOPE / 2,
                    message="The factor from the square is missing.",
                ),
            ),
        ),
        "new_w": Number(
            prompt="w after the step.",
            expected=_NEW,
            unit="1",
            rtol=1e-6,
            mistakes=(
                Mistake(name="uphill", answer=_W + _ETA * _SLOPE, message="You went up the slope, along the gradient."),
                Mistake(name="whole", answer=_W - _SLOPE, message="You left the learning rate out."),
            ),
        ),
        "new_loss": Number(
            prompt="The loss after the step.",
            expected=(_NEW * _X - _Y) ** 2,
            unit="1",
            rtol=1e-6,
            mistakes=(
                Mistake(
                    name="tangent",
                    answer=(_W * _X - _Y) ** 2 - _ETA * _SLOPE**2,
                    message="This is what the tangent promises. Put the new w into the loss itself.",
                ),
            ),
        ),
    },
)


# ---------------------------------------------------------------- the head


def _head_backward(h: Array, U: Array, y: Array, *, mean: bool = True, sign: float = 1.0, onehot: bool = True) -> Any:
    dz = softmax(h @ U)
    if onehot:
        dz[np.arange(len(y)), y] -= 1
    dz = sign * dz / (len(y) if mean else 1)
    return dz @ U.T, h.T @ dz


def _head_cases(rng: np.random.Generator) -> list[Case]:
    def one(N: int, d: int, V: int, dtype: Any = np.float64) -> Case:
        h, U = rng.normal(size=(N, d)).astype(dtype), rng.normal(size=(d, V)).astype(dtype)
        return Case(args=(h, U, rng.integers(0, V, N)), label=f"{np.dtype(dtype).name}, h ({N}, {d}), U ({d}, {V})")

    levels = np.array([[1000.0], [-1000.0]]), np.array([[0.5, 0.75, 1.0, 1.5]]), np.array([1, 2])
    return [
        *(one(1, 2, 7), one(5, 3, 4), one(4, 6, 6), one(8, 4, 11, np.float32), one(3, 1, 2)),
        Case(args=levels, label="float64, a row of large logits and one of very negative ones"),
    ]


def _by_exponentials(h: Array, U: Array, y: Array, *, shift: bool) -> Any:
    """Softmax without a shift, or with one shift for all rows."""
    z = h @ U
    with np.errstate(all="ignore"):
        e = np.exp(z - z.max() if shift else z)
        dz = e / e.sum(axis=-1, keepdims=True)
    dz[np.arange(len(y)), y] -= 1
    return dz / len(y) @ U.T, h.T @ (dz / len(y))


def _swapped(h: Array, U: Array, y: Array) -> Any:
    dh, dU = _head_backward(h, U, y)
    return dU, dh


def _one_softmax(h: Array, U: Array, y: Array) -> Any:
    """One softmax over all rows together."""
    dz = softmax((h @ U).ravel()).reshape(len(h), -1)
    dz[np.arange(len(y)), y] -= 1
    dz = dz / len(y)
    return dz @ U.T, h.T @ dz


def _square_slip(h: Array, U: Array, y: Array) -> Any:
    """U where its transpose is due; for other shapes the product does not exist."""
    dz = softmax(h @ U)
    dz[np.arange(len(y)), y] -= 1
    dz = dz / len(y)
    return (dz @ U if U.shape[0] == U.shape[1] else dz @ U.T), h.T @ dz


LM_HEAD_BACKWARD = Function(
    id="lm-head-backward",
    chapter=12,
    section="12.4",
    title="From the loss through the LM head",
    prompt=(
        "Write `backward(h, U, y)` → `(dh, dU)`: gradients of the **mean** cross-entropy of the logits `h @ U` against "
        "the "
        "labels `y`."
    ),
    contract=(
        "`h`: (N, d), `U`: (d, V), float32 or float64, logits of any size; `y`: (N,) integers in [0, V). Result: a "
        "tuple, `dh` (N, d) and `dU` (d, V). Inputs stay as they are."
    ),
    hints=(
        "First dz: softmax of each row, minus 1 at the label, divided by N.",
        "Write the shapes beside the two products; only one order of factors gives each result its shape.",
        "dh sums over the tokens of the vocabulary, dU sums over the N positions.",
    ),
    checklist=(12, 13),
    level="medium",
    points=2,
    oracle=_head_backward,
    cases=_head_cases,
    tolerance=Tolerance(c=8, depth=lambda h, U, y: U.shape[1] + h.shape[0], scale=lambda *a: 1.0),
    mistakes=(
        Mistake(
            name="sum",
            answer=lambda h, U, y: _head_backward(h, U, y, mean=False),
            message="This is the gradient of the sum of the losses. The contract asks for their mean.",
            section="12.9",
        ),
        Mistake(
            name="sign",
            answer=lambda h, U, y: _head_backward(h, U, y, sign=-1.0),
            message="All signs are turned: only the label's column may be negative in dz.",
            section="12.3",
        ),
        Mistake(
            name="no-onehot",
            answer=lambda h, U, y: _head_backward(h, U, y, onehot=False),
            message="You sent the probabilities themselves back. The label's entry is reduced by 1.",
            section="12.3",
        ),
        Mistake(
            name="one-softmax",
            answer=_one_softmax,
            message="Your probabilities sum to 1 over the whole batch. Each row of logits has a softmax of its own.",
            section="12.3",
        ),
        Mistake(
            name="naive-overflow",
            answer=lambda h, U, y: _by_exponentials(h, U, y, shift=False),
            message="Your softmax overflows on large logits. Subtract the maximum of each row.",
            section="5.2",
        ),
        Mistake(
            name="global-shift",
            answer=lambda h, U, y: _by_exponentials(h, U, y, shift=True),
            message="You subtracted the maximum of the whole array. A row far below it becomes 0/0: each row needs its "
            "own maximum.",
            section="5.2",
        ),
        Mistake(name="swapped", answer=_swapped, message="The two results are in the wrong order: dh first, then dU."),
        Mistake(
            name="not-transposed",
            answer=_square_slip,
            message="For a square U you multiplied by U instead of its transpose. No shape warns you there.",
        ),
    ),
    accept=(
        lambda h, U, y: (
            np.einsum("nv,dv->nd", (softmax(h @ U) - np.eye(U.shape[1])[y]) / len(y), U),
            np.einsum("nd,nv->dv", h, (softmax(h @ U) - np.eye(U.shape[1])[y]) / len(y)),
        ),
    ),
)

#: Logits of the worked example of section 12.5, and the gradient of the loss by them; fish is token 4.
_LOGITS = np.array([0.2, 0.7, 0.1, 0.2, 0.6, 0.1, 0.7])
LOGIT_GRADIENT = softmax(_LOGITS) - np.eye(7)[4]

NUDGE_PREDICTION = Number(
    id="nudge-prediction",
    chapter=12,
    section="12.5",
    title="Predict a nudge",
    prompt=(
        "In the worked example (h = [1, 2], gradient of the logit of fish -0.8265) the entry of U in row 1, column "
        "fish is "
        "**raised** by 0.002. By how much does the loss change, to first order? Give the signed number."
    ),
    hints=("Which entry of h meets row 1? That gives dU there.", "First order: gradient times nudge."),
    checklist=(11,),
    level="easy",
    expected=float(2 * LOGIT_GRADIENT[4] * 0.002),
    unit="1",
    rtol=5e-3,
    mistakes=(
        Mistake(
            name="row-0",
            answer=float(LOGIT_GRADIENT[4] * 0.002),
            message="This is row 0, where h is 1. Row 1 meets the other entry of h.",
        ),
        Mistake(
            name="sign",
            answer=float(-2 * LOGIT_GRADIENT[4] * 0.002),
            message="The sign is turned: the gradient there is negative and the nudge goes up.",
        ),
        Mistake(
            name="gradient",
            answer=float(2 * LOGIT_GRADIENT[4]),
            message="This is the gradient itself; multiply it by the nudge.",
        ),
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    QUADRATIC_STEP,
    LM_HEAD_BACKWARD,
    NUDGE_PREDICTION,
)
