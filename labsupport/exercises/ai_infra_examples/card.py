"""The exercise of chapter 10 on an operator card: a model card, and each slip that a run refutes."""

from dataclasses import replace
from typing import Any

import numpy as np

from labsupport.grading import Exercise, Mistake
from labsupport.operator_card import CARDS, OPERATORS, CardExercise, OperatorCard

Array = np.ndarray


def _squares(start: int, x: Array, gamma: Array) -> tuple[int, Array]:
    """Count and sum of squares of each row of a tile."""
    return x.shape[-1], (x * x).sum(axis=-1)


def _rms_finish(state: Any, x: Array, gamma: Array) -> Array:
    n, squares = state
    return x / np.sqrt(squares / n + 1e-5)[..., None] * gamma


def _rms_reference(x: Array, gamma: Array) -> Array:
    x, gamma = x.astype(np.float64), gamma.astype(np.float64)
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5) * gamma


_RMS_CARD = OperatorCard(
    operator="rms_norm",
    inputs={"x": ("N", "H"), "gamma": ("H",)},
    output=("N", "H"),
    intermediates={"mean_square": ("N", "1"), "normalised": ("N", "H")},
    kept=("N",),
    reduced=("H",),
    tile_axis="H",
    state=_squares,
    merge=lambda a, b: (a[0] + b[0], a[1] + b[1]),
    finish=_rms_finish,
    state_words="count and sum of squares of each row",
    matmul_flops=lambda N, H: 0,
    other_flops=lambda N, H: 4 * N * H,
    min_bytes=lambda e, N, H: e * (2 * N * H + H),
    broadcast={"gamma": ("N",)},
    layout="rows are contiguous",
    sensitive="the sum of squares",
    risks=("overflow", "long reduction"),
    fused=("mean_square", "normalised"),
    padding=None,
    tail="masked elements add 0 to the sum, and n counts the real ones",
    reference=_rms_reference,
    tolerance={"float32": 1e-5, "float16": 2e-3},
    extreme=lambda x, gamma: {"x": x * 300, "gamma": gamma},
)

_CARD_SLIPS: dict[str, tuple[str, dict[str, Any]]] = {
    "shape": (
        "Write the axes in the order in which the array stores them; an axis kept with size 1 is written `1`.",
        {"intermediates": {"mean_square": ("N",), "normalised": ("N", "H")}},
    ),
    "reduced-called-kept": (
        "That an axis appears in the result does not make it kept: here every result of a row needs the whole row.",
        {"kept": ("N", "H"), "reduced": ()},
    ),
    "no-merge": (
        "Think of two halves of a row: which few numbers of each are enough to finish?",
        {"merge": None},
    ),
    "merge-wrong-plain": (
        "Check what each number of the state refers to: a mean needs its count to be merged, a sum does not.",
        {
            "state": lambda start, x, gamma: (x * x).mean(axis=-1),
            "merge": lambda a, b: (a + b) / 2,
            "finish": lambda s, x, gamma: x / np.sqrt(s + 1e-5)[..., None] * gamma,
        },
    ),
    "state-grows": (
        "A state is a summary of fixed size, such as a sum, a maximum or a count.",
        {
            "state": lambda start, x, gamma: x,
            "merge": lambda a, b: np.concatenate([a, b], axis=-1),
            "finish": lambda s, x, gamma: _rms_reference(s, gamma),
        },
    ),
    "matmul-flops": (
        "Elementwise work belongs into `other_flops`; here only matrix products count.",
        {"matmul_flops": lambda N, H: 4 * N * H},
    ),
    "elements": (
        "Multiply by `e`, so that the card holds for FP16 and for FP32.",
        {"min_bytes": lambda e, N, H: 2 * N * H + H},
    ),
    "min-bytes": (
        "Every input is read once and the result is written once; intermediates stay on the chip.",
        {"min_bytes": lambda e, N, H: e * N * H},
    ),
    "broadcast": (
        "An input without an axis of the result is repeated along it, with stride 0.",
        {"broadcast": {}},
    ),
    "accumulator": (
        "A sum of thousands of float16 numbers in float16 stalls, as section 9.4 shows.",
        {"accumulator": "float16"},
    ),
    "no-overflow": (
        "Look at the largest intermediate, not at the result: a square or an exponential leaves float16 early.",
        {"risks": ("long reduction",)},
    ),
    "padding": (
        "Zeros change no sum, but they change a count.",
        {"padding": {"x": 0.0, "gamma": 0.0}},
    ),
    "reference": (
        "The reference is for every finite input: try yours on the extreme ones, and mind ε.",
        {"reference": lambda x, gamma: x / np.sqrt((x * x).mean(-1, keepdims=True)) * gamma},
    ),
    "too-loose": (
        "A tolerance must be tight enough to fail a wrong kernel: a few times the unit roundoff of the dtype.",
        {"tolerance": {"float32": 1e-5, "float16": 0.1}},
    ),
    "too-tight": (
        "Rounding the result alone costs half a unit in the last place; leave room for a few.",
        {"tolerance": {"float32": 1e-9, "float16": 1e-6}},
    ),
    "extreme-harmless": (
        "Choose inputs that a naive kernel cannot survive: large, shifted, or exactly 0.",
        {"extreme": lambda x, gamma: {"x": x, "gamma": gamma}},
    ),
}

OPERATOR_CARD = CardExercise(
    id="operator-card",
    chapter=10,
    section="10.8",
    title="An operator card of your own",
    prompt=(
        "Choose an operator from the list and answer the ten questions for it: write `my_card()` that returns a "
        "filled-in "
        "`OperatorCard`. Every answer that can be run is run."
    ),
    contract=(
        f"The list: {', '.join(f'`{name}`' for name in OPERATORS if name not in CARDS)}. `brief(name)` shows formula, "
        "inputs and intermediates; `help(OperatorCard)` explains the fields."
    ),
    hints=(
        "Take the card nearest to your operator from the page of cards, and change what differs.",
        "For the merge state, ask what two halves of the reduced axis must tell each other, and nothing more.",
        "The review stops at the first question that a run refutes and names the others: mend them in order.",
    ),
    checklist=(7, 17),
    level="hard",
    points=4,
    model=_RMS_CARD,
    explanations={slip: message for slip, (message, _) in _CARD_SLIPS.items()},
    mistakes=tuple(
        Mistake(name=slip, answer=replace(_RMS_CARD, **changes), message=message)
        for slip, (message, changes) in _CARD_SLIPS.items()
    ),
    accept=(lambda: _RMS_CARD, replace(_RMS_CARD, accumulator="float64", risks=("overflow", "zero", "long reduction"))),
)

EXERCISES: tuple[Exercise, ...] = (OPERATOR_CARD,)
