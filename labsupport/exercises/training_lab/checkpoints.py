"""Exercises of chapter 13 on checkpoints: their bytes, and what loading one must check."""

import math
from typing import Any

import numpy as np

from labsupport.exercises.training_lab.run import MODEL
from labsupport.grading import Case, Exercise, Function, Mistake, Number
from labsupport.ops import transformer

Array = np.ndarray


CHECKPOINT_BYTES = Number(
    id="lab-checkpoint-bytes",
    chapter=13,
    section="13.9",
    title="What a checkpoint weighs",
    level="easy",
    prompt=(
        "The lab's model has 25,600 parameters. How many bytes of arrays does a file hold from which an AdamW run can "
        "go on, everything in float32? Answer with a unit."
    ),
    hints=(
        "What does AdamW remember of each parameter?",
        "Weights and two moments, four bytes each; the header does not count.",
    ),
    expected=3 * 4 * transformer.count_parameters(MODEL),
    unit="B",
    exact=True,
    default_unit="B",
    mistakes=(
        Mistake(
            name="weights-only",
            answer=4 * transformer.count_parameters(MODEL),
            message="These are the weights alone. A run that goes on needs the state of its optimizer.",
        ),
        Mistake(
            name="one-moment",
            answer=8 * transformer.count_parameters(MODEL),
            message="AdamW keeps two moments, not one.",
        ),
        Mistake(
            name="with-gradients",
            answer=16 * transformer.count_parameters(MODEL),
            message="Gradients are computed anew in the next step; a file need not hold them.",
        ),
    ),
)


def _load_checks(parameters: dict[str, Array], shapes: dict[str, tuple[int, ...]]) -> int:
    if set(parameters) != set(shapes):
        raise ValueError("names differ")
    for name, shape in shapes.items():
        if parameters[name].shape != tuple(shape):
            raise ValueError(f"{name} has another shape")
        if not np.isfinite(parameters[name]).all():
            raise ValueError(f"{name} is not finite")
    return sum(array.size for array in parameters.values())


def _lenient(*, extra: bool = True, shape: str = "shape", finite: bool = True, missing: bool = True) -> Any:
    """A check that lets one fault pass."""

    def check(parameters: dict[str, Array], shapes: dict[str, tuple[int, ...]]) -> int:
        if missing and set(shapes) - set(parameters):
            raise ValueError("missing")
        if extra and set(parameters) - set(shapes):
            raise ValueError("left over")
        for name in set(shapes) & set(parameters):
            array, wanted = parameters[name], tuple(shapes[name])
            if array.size != math.prod(wanted) or (shape == "shape" and array.shape != wanted):
                raise ValueError("shape")
            if finite and not np.isfinite(array).all():
                raise ValueError("finite")
        return sum(array.size for array in parameters.values())

    return check


def _only_nan(parameters: dict[str, Array], shapes: dict[str, tuple[int, ...]]) -> int:
    if any(np.isnan(array).any() for array in parameters.values()):
        raise ValueError("NaN")
    return int(_lenient(finite=False)(parameters, shapes))


def _counted_names(parameters: dict[str, Array], shapes: dict[str, tuple[int, ...]]) -> int:
    if len(parameters) != len(shapes):
        raise ValueError("names")
    return _load_checks({name: parameters[name] for name in shapes}, shapes)  # KeyError where one is renamed


def _ordered_names(parameters: dict[str, Array], shapes: dict[str, tuple[int, ...]]) -> int:
    if list(parameters) != list(shapes):
        raise ValueError("names")
    return _load_checks(parameters, shapes)


def _finite_sum(parameters: dict[str, Array], shapes: dict[str, tuple[int, ...]]) -> int:
    with np.errstate(over="ignore"):
        if not all(np.isfinite(array.sum()) for array in parameters.values()):
            raise ValueError("finite")
    return int(_lenient(finite=False)(parameters, shapes))


def _load_cases(rng: np.random.Generator) -> list[Case]:
    shapes = {"embedding": (5, 4), "layers.0.gate": (4, 6), "head": (4, 5)}

    def drawn(**changed: Any) -> dict[str, Array]:
        arrays = {name: rng.normal(size=shape) for name, shape in shapes.items()}
        arrays |= {name.replace("__", "."): array for name, array in changed.items()}
        return {name: array for name, array in arrays.items() if array is not None}

    bad, worse = rng.normal(size=(4, 5)), rng.normal(size=(4, 6))
    bad[1, 2], worse[0, 0] = np.nan, -np.inf
    return [
        Case(args=(drawn(), shapes), label="a good file"),
        Case(args=(drawn(head=None), shapes), label="head is missing", raises=ValueError),
        Case(args=(drawn(bias=np.zeros(5)), shapes), label="a bias too many", raises=ValueError),
        Case(args=(drawn(head=rng.normal(size=(5, 4))), shapes), label="head transposed", raises=ValueError),
        Case(args=(drawn(embedding=rng.normal(size=(6, 4))), shapes), label="a row too many", raises=ValueError),
        Case(args=(drawn(head=bad), shapes), label="a NaN in head", raises=ValueError),
        Case(args=(drawn(layers__0__gate=worse), shapes), label="an infinity in a layer", raises=ValueError),
        Case(args=({"w": np.zeros((2, 3), np.float32)}, {"w": (2, 3)}), label="one parameter"),
        Case(args=(dict(reversed(drawn().items())), shapes), label="a good file in another order"),
        Case(args=(drawn(head=None, output=np.zeros((4, 5))), shapes), label="head renamed", raises=ValueError),
        Case(args=({"w": np.full(4, 1.5e308)}, {"w": (4,)}), label="finite values whose sum is not"),
    ]


LOAD_CHECKS = Function(
    id="load-checks",
    chapter=13,
    section="13.9",
    title="Refuse a wrong file",
    level="medium",
    prompt=(
        "Write `accept(parameters, shapes)`: return the number of parameters if the arrays have exactly the names and "
        "shapes of `shapes` and are finite; raise `ValueError` in every other case."
    ),
    contract="`parameters`: dict name → float array. `shapes`: dict name → tuple of integers. Result: an integer.",
    hints=(
        "Four faults: a name too few, a name too many, another shape, a value that is not finite.",
        "Compare the two sets of names before you look at a single array.",
        "A transposed array has the right size: compare shapes, not sizes. `np.isfinite` sees NaN and infinity.",
    ),
    oracle=_load_checks,
    cases=_load_cases,
    mistakes=(
        Mistake(
            name="left-over-accepted",
            answer=_lenient(extra=False),
            message="A parameter that the model does not have was accepted. Where would its training go?",
        ),
        Mistake(
            name="missing-accepted",
            answer=_lenient(missing=False),
            message="A missing parameter was accepted: the model would keep random numbers in its place.",
        ),
        Mistake(
            name="sizes-compared",
            answer=_lenient(shape="size"),
            message="A transposed array was accepted: you compared sizes, not shapes.",
        ),
        Mistake(
            name="not-finite-accepted",
            answer=_lenient(finite=False),
            message="An array with a NaN was accepted. One is enough to make every loss NaN.",
        ),
        Mistake(
            name="names-counted",
            answer=_counted_names,
            message="You compared the number of names, not the names. A renamed parameter has to be refused, by "
            "`ValueError`.",
        ),
        Mistake(
            name="order-compared",
            answer=_ordered_names,
            message="You compared the order of the names, too. The same parameters in another order are a good file.",
        ),
        Mistake(
            name="finite-sum",
            answer=_finite_sum,
            message="You ask whether a sum is finite. Finite numbers may add up to an infinity.",
        ),
        Mistake(
            name="only-nan-refused",
            answer=_only_nan,
            message="NaN is refused, infinity is not. It becomes NaN in the first subtraction.",
        ),
    ),
)

EXERCISES: tuple[Exercise, ...] = (
    CHECKPOINT_BYTES,
    LOAD_CHECKS,
)
