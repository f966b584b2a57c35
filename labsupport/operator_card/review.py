"""Holds an operator card against runs of its operator, question by question.

What can be run is run: shapes, independence of axes, merged tiles, counted FLOPs, bytes, padding, tolerances, extreme
inputs. Findings say what a run showed. Nothing here may print an expected answer.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from labsupport.grading import guard
from labsupport.operator_card.card import RISKS, OperatorCard
from labsupport.operator_card.counting import broadcast_axes, counted_run, torch_matmul_flops
from labsupport.operator_card.operators import OPERATORS, Operator

Array = np.ndarray
Arrays = dict[str, Array]

#: Agreement asked of float64 computations, relative to the largest result.
CLOSE = 1e-9


@dataclass(frozen=True)
class Finding:
    """What a run showed against an answer: the question's number, a short name of the slip, and the sentence."""

    question: int
    slip: str
    text: str


def review(card: OperatorCard, seed: int = 0) -> list[Finding]:
    """Every finding against a card, at most one a question; none means that no run refutes it.

    Raises ValueError for an operator that no card may describe.
    """
    if card.operator not in OPERATORS:
        raise ValueError(f"no operator {card.operator!r}; a card may describe {', '.join(OPERATORS)}")
    operator = OPERATORS[card.operator]
    with guard.quiet():
        questions = enumerate((_shapes, _axes, _merge, _cost, _layout, _accumulator, _risks, _fused, _tail, _test), 1)
        found = [(number, next(ask(card, operator, seed), None)) for number, ask in questions]
    return [Finding(number, *finding) for number, finding in found if finding]


_Findings = Iterator[tuple[str, str]]


class _Failed(Exception):
    """A function of the card did not return what is due; the text says so."""


def _call(what: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function of the card; its failure becomes a sentence."""
    outcome = guard.run(lambda: function(*args, **kwargs))
    if isinstance(outcome.raised, guard.TimeUp):
        raise _Failed(f"`{what}` took too long.")
    if outcome.raised is not None:
        raise _Failed(f"`{what}` raised {type(outcome.raised).__name__} when it was called.")
    return outcome.value


def _array(what: str, value: Any) -> Array:
    """A result of the card's function as a plain array of numbers."""
    if type(value) is np.ndarray or isinstance(value, np.generic | int | float):
        array = np.asarray(value)
        if array.dtype.kind in "fiu":
            return array
    raise _Failed(f"`{what}` returned something that is no array of numbers.")


def _error(got: Array, truth: Array) -> float:
    """Largest deviation relative to the largest truth; infinite where shapes or finiteness differ."""
    if got.shape != truth.shape or not np.isfinite(got).all():
        return np.inf
    scale = float(np.abs(truth).max(initial=0.0)) or 1.0
    return float(np.abs(got.astype(np.float64) - truth).max(initial=0.0)) / scale


# ---------------------------------------------------------------- 1, 2


def _shapes(card: OperatorCard, operator: Operator, seed: int) -> _Findings:
    inputs = operator.example(np.random.default_rng(seed))
    steps = operator.steps(**inputs)
    sizes = {**operator.sizes, "1": 1}
    due = {**inputs, **{name: x for name, x in steps.items() if name != "out"}, "out": steps["out"]}
    said = {**card.inputs, **card.intermediates, "out": card.output}
    if set(said) != set(due):
        odd = sorted(set(said) ^ set(due))
        yield "shape-names", f"the arrays of {operator.name} are not all there, or some are not its own: {odd[0]}."
    for name, x in due.items():
        letters = [a for a in said.get(name, ()) if a not in sizes]
        if letters:
            yield "unknown-axis", f"{name} is given an axis {letters[0]} that {operator.name} does not have."
        elif name in said and tuple(sizes[a] for a in said[name]) != np.shape(x):
            yield "shape", f"a run gave {name} another shape than the card says."


def _axes(card: OperatorCard, operator: Operator, seed: int) -> _Findings:
    letters = set(operator.sizes)
    if set(card.kept) | set(card.reduced) != letters or set(card.kept) & set(card.reduced):
        yield "axes-partition", "each axis of the inputs is either kept or reduced: one is missing, odd or named twice."
        return
    for letter in operator.sizes:
        independent = _independent(operator, letter, seed)
        if independent and letter in card.reduced:
            yield (
                "kept-called-reduced",
                (f"axis {letter} is called reduced, but a run without its last index changes nothing elsewhere."),
            )
        if not independent and letter in card.kept:
            yield (
                "reduced-called-kept",
                (f"axis {letter} is called kept, but a run without its last index changes results elsewhere."),
            )


def _independent(operator: Operator, letter: str, seed: int) -> bool:
    """Whether leaving out the last index of an axis leaves the rest of the result as it was."""
    inputs = operator.example(np.random.default_rng(seed))
    shorter = _cut(operator, inputs, letter, slice(0, -1))
    whole, part = operator.reference(**inputs), operator.reference(**shorter)
    if letter not in operator.output:
        return False
    rest = np.take(whole, range(operator.sizes[letter] - 1), axis=operator.output.index(letter))
    return _error(np.asarray(part), rest) < CLOSE


def _cut(operator: Operator, inputs: Arrays, letter: str, part: slice) -> Arrays:
    """The inputs with one axis cut, wherever it occurs."""
    return {
        name: x[tuple(part if a == letter else slice(None) for a in operator.inputs[name])]
        for name, x in inputs.items()
    }


# ---------------------------------------------------------------- 3


def _merge(card: OperatorCard, operator: Operator, seed: int) -> _Findings:
    if not card.reduced:
        if card.tile_axis or card.state or card.merge:
            yield "needless-merge", "nothing is reduced, so tiles are independent and no state is merged."
        return
    if card.tile_axis not in card.reduced:
        yield "tile-axis", "the tile axis must be one of the reduced axes: along a kept axis tiles need no merge."
        return
    if not (card.state and card.merge and card.finish):
        yield "no-merge", "an axis is reduced, so tiles along it need `state`, `merge` and `finish`."
        return
    try:
        yield from _merged_runs(card, operator, seed)
    except _Failed as failure:
        yield "merge-fails", str(failure)


def _merged_runs(card: OperatorCard, operator: Operator, seed: int) -> _Findings:
    rng = np.random.default_rng(seed)
    n = operator.sizes[card.tile_axis]
    plain = operator.example(rng)
    hard = _call("extreme", card.extreme, **plain)
    for name, inputs in (("plain", plain), ("extreme", hard if _fits(operator, hard) else plain)):
        truth = np.asarray(operator.reference(**inputs))
        for cuts in ((0, n), (0, 1, n), (0, 2, 3, n), (0, n - 1, n)):
            states = [_state(card, operator, inputs, a, b) for a, b in pairwise(cuts)]
            left, right = _folded(card, states), _folded(card, states, from_right=True)
            if _numbers_in(left) != _numbers_in(states[0]):
                yield (
                    "state-grows",
                    (
                        "the merged state holds more numbers than the state of one tile: it stores the data instead of "
                        "summing it up, and would not fit on the chip."
                    ),
                )
            for state in (left, right):
                got = _array("finish", _call("finish", card.finish or _nothing, state, **inputs))
                if got.shape != truth.shape:
                    yield "merge-shape", "the result of the merged tiles has another shape than the operator's."
                elif _error(got, truth) > CLOSE:
                    yield (
                        f"merge-wrong-{name}",
                        (f"tiles merged on {name} inputs do not give the operator's result, for one way of cutting."),
                    )


def _nothing(*_: Any, **__: Any) -> None:
    """Stands for a missing function, which the caller has excluded."""


def _state(card: OperatorCard, operator: Operator, inputs: Arrays, start: int, stop: int) -> Any:
    block = _cut(operator, inputs, card.tile_axis, slice(start, stop))
    return _call("state", card.state or _nothing, start, **block)


def _folded(card: OperatorCard, states: list[Any], from_right: bool = False) -> Any:
    """All states merged, by pairs from the left or from the right: a merge that is associative gives the same."""
    merge = card.merge or _nothing
    if from_right:
        state = states[-1]
        for earlier in reversed(states[:-1]):
            state = _call("merge", merge, earlier, state)
        return state
    state = states[0]
    for later in states[1:]:
        state = _call("merge", merge, state, later)
    return state


def _numbers_in(state: Any) -> int:
    if isinstance(state, tuple | list):
        return sum(_numbers_in(part) for part in state)
    if isinstance(state, Mapping):
        return sum(_numbers_in(part) for part in state.values())
    return int(np.size(_array("state", state)))


def _fits(operator: Operator, inputs: Any) -> bool:
    """Whether a dict holds the operator's inputs, each an array of numbers with its number of axes."""
    return (
        isinstance(inputs, Mapping)
        and set(inputs) == set(operator.inputs)
        and all(
            isinstance(inputs[name], np.ndarray)
            and inputs[name].dtype.kind in "fiu"
            and inputs[name].shape == tuple(operator.sizes[a] for a in axes)
            for name, axes in operator.inputs.items()
        )
    )


# ---------------------------------------------------------------- 4


def _cost(card: OperatorCard, operator: Operator, seed: int) -> _Findings:
    try:
        yield from _flops(card, operator, seed)
        yield from _bytes(card, operator)
    except _Failed as failure:
        yield "cost-fails", str(failure)


def _count(what: str, value: Any) -> int:
    array = _array(what, value)
    if array.shape != () or not np.isfinite(array) or array != np.floor(array):
        raise _Failed(f"`{what}` must return a whole number.")
    return int(array)


def _flops(card: OperatorCard, operator: Operator, seed: int) -> _Findings:
    inputs = operator.example(np.random.default_rng(seed))
    counted = torch_matmul_flops(operator, inputs)
    said = _count("matmul_flops", _call("matmul_flops", card.matmul_flops, **operator.sizes))
    if counted and 2 * said == counted:
        yield "multiply-add", "`matmul_flops` gives half of what torch counts: a multiply and an add are two FLOPs."
    elif said != counted:
        yield "matmul-flops", "`matmul_flops` gives another number than torch counts for the matrix products."
    operations = counted_run(operator, inputs).operations
    said = _count("other_flops", _call("other_flops", card.other_flops, **operator.sizes))
    if not operations <= 2 * said <= 4 * operations and said != operations:
        yield (
            "other-flops",
            (
                "`other_flops` is off by more than a factor of 2 from the operations that the textbook steps were seen "
                "to do."
            ),
        )


def _bytes(card: OperatorCard, operator: Operator) -> _Findings:
    sizes = {letter: 64 * size for letter, size in operator.sizes.items()}
    floats = [axes for name, axes in operator.inputs.items() if name not in operator.integers]
    elements = sum(_elements(axes, sizes) for axes in [*floats, operator.output])
    indices = sum(_elements(operator.inputs[name], sizes) for name in operator.integers)
    said = {e: _count("min_bytes", _call("min_bytes", card.min_bytes, e=e, **sizes)) for e in (2, 4)}
    if said[2] == said[4]:
        yield "elements", "`min_bytes` is the same for elements of 2 and of 4 bytes: each element takes e bytes."
    for e, bytes_said in said.items():
        due = e * elements + 8 * indices
        if abs(bytes_said - due) > due / 100:
            yield (
                "min-bytes",
                "`min_bytes` is not what it takes to read every input once and to write the result once "
                f"({'too much' if bytes_said > due else 'too little'}).",
            )


def _elements(axes: tuple[str, ...], sizes: Mapping[str, int]) -> int:
    return int(np.prod([sizes[a] for a in axes], dtype=np.int64))


# ---------------------------------------------------------------- 5 to 8


def _layout(card: OperatorCard, operator: Operator, seed: int) -> _Findings:
    inputs = operator.example(np.random.default_rng(seed))
    seen = broadcast_axes(operator, counted_run(operator, inputs))
    said = {name: tuple(axes) for name, axes in card.broadcast.items() if axes}
    if said != seen:
        more = set(said) - set(seen)
        what = f"{min(more)} was never broadcast." if more else "an input was broadcast that the card does not name so."
        yield "broadcast", f"in a run, {what}"


def _accumulator(card: OperatorCard, operator: Operator, seed: int) -> _Findings:
    if card.accumulator not in ("float32", "float64"):
        yield "accumulator", "sums of float16 numbers are kept in float32 (or float64), not in the inputs' own dtype."
    if card.reduced and not card.sensitive.strip():
        yield "sensitive", "say in `sensitive` which sums need the wider accumulator."


def _risks(card: OperatorCard, operator: Operator, seed: int) -> _Findings:
    odd = [risk for risk in card.risks if risk not in RISKS]
    if odd:
        yield "unknown-risk", f"the card names a risk that is not on the list; the list is {', '.join(RISKS)}."
    for risk in operator.shows:
        if risk not in card.risks:
            yield f"no-{risk}", f"a run of the textbook steps in float16 shows what the card leaves out: {RISKS[risk]}."
    if card.reduced and "long reduction" not in card.risks:
        yield "no-long-reduction", "an axis that may be long is reduced, and the card does not name that risk."
    for risk, why in operator.excluded.items():
        if risk in card.risks:
            yield "impossible-risk", f"`{risk}` cannot happen here: {why}."


def _fused(card: OperatorCard, operator: Operator, seed: int) -> _Findings:
    steps = set(operator.steps(**operator.example(np.random.default_rng(seed)))) - {"out"}
    odd = sorted(set(card.fused) - steps)
    if odd:
        yield "fused-odd", "`fused` names something that is no intermediate: inputs and results must reach memory."
    if steps and not card.fused:
        yield "nothing-fused", "intermediates reach main memory only if a kernel writes them: name those that need not."


# ---------------------------------------------------------------- 9, 10


def _tail(card: OperatorCard, operator: Operator, seed: int) -> _Findings:
    if not card.tile_axis or card.tile_axis not in operator.sizes:
        return
    having = [name for name, axes in operator.inputs.items() if card.tile_axis in axes]
    inputs = operator.example(np.random.default_rng(seed))
    if card.padding is None:
        for value in (0.0, -np.inf):
            if _unchanged(card, operator, inputs, dict.fromkeys(having, value)):
                yield (
                    "padding-exists",
                    "the card says that no padding value is neutral, and a run with one shows none of it.",
                )
                return
        if not card.tail.strip():
            yield "tail", "say in `tail` how the last tile is handled."
    elif set(card.padding) != set(having):
        yield "padding-names", "`padding` gives one value for each input that has the tile axis, and for no other."
    elif not _unchanged(card, operator, inputs, card.padding):
        yield "padding", "a run with three padded elements along the tile axis changed the result."


def _unchanged(card: OperatorCard, operator: Operator, inputs: Arrays, padding: Mapping[str, float]) -> bool:
    """Whether three more elements along the tile axis leave the result as it was."""
    longer = {}
    for name, x in inputs.items():
        axes = operator.inputs[name]
        widths = [(0, 3 if a == card.tile_axis else 0) for a in axes]
        longer[name] = np.pad(x, widths, constant_values=padding[name]) if card.tile_axis in axes else x
    truth, got = np.asarray(operator.reference(**inputs)), np.asarray(operator.reference(**longer))
    if card.tile_axis in operator.output:
        kept = range(operator.sizes[card.tile_axis])
        got = np.take(got, kept, axis=operator.output.index(card.tile_axis))
    return _error(got, truth) < CLOSE


def _test(card: OperatorCard, operator: Operator, seed: int) -> _Findings:
    try:
        yield from _reference(card, operator, seed)
        yield from _tolerance(card, operator, seed)
        yield from _extreme(card, operator, seed)
    except _Failed as failure:
        yield "test-fails", str(failure)


def _reference(card: OperatorCard, operator: Operator, seed: int) -> _Findings:
    plain = operator.example(np.random.default_rng(seed))
    for change in (lambda inputs: inputs, *operator.shows.values()):
        inputs = change(plain)
        truth = np.asarray(operator.reference(**inputs))
        got = _array("reference", _call("reference", card.reference, **inputs))
        if _error(got, truth) > CLOSE:
            yield "reference", "the card's reference is wrong or not finite on one of the inputs it was tried on."


def _tolerance(card: OperatorCard, operator: Operator, seed: int) -> _Findings:
    if set(card.tolerance) != {"float32", "float16"}:
        yield "tolerance-names", "`tolerance` gives one number for float32 and one for float16."
        return
    right32, right16, wrong = _errors(operator, seed)
    for dtype, right, slip in (("float32", right32, right16), ("float16", right16, wrong)):
        if right > card.tolerance[dtype]:
            yield "too-tight", f"a correct {dtype} run misses the card's tolerance for {dtype}."
        if slip <= card.tolerance[dtype]:
            what = "a run in float16" if dtype == "float32" else "a result that is half a per cent too large"
            yield "too-loose", f"{what} meets the card's tolerance for {dtype}: it is too loose to find a fault."


def _errors(operator: Operator, seed: int) -> tuple[float, float, float]:
    """Largest errors of a correct float32 run, of a correct float16 run, and of a result 0.5 % off, over 8 draws.

    A correct float16 run reads float16, computes in float32 and writes float16.
    """
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(8):
        inputs = operator.example(rng)
        row = []
        for dtype in (np.float32, np.float16):
            stored = operator.cast(inputs, dtype)
            truth = np.asarray(operator.reference(**operator.cast(stored, np.float64)))
            run = np.asarray(operator.reference(**operator.cast(stored, np.float32)))
            row.append(_error(run.astype(dtype), truth))
        found.append((*row, _error(truth * 1.005, truth)))
    return tuple(np.max(found, axis=0).tolist())


def breaks(operator: Operator, inputs: Arrays, allowed: float = 0.01) -> bool:
    """Whether the textbook steps in float16 become non-finite or miss the truth by more than ``allowed``."""
    steps = operator.steps(**operator.cast(inputs, np.float16))
    if not all(np.isfinite(x).all() for x in steps.values()):
        return True
    return _error(np.asarray(steps["out"]), np.asarray(operator.reference(**inputs))) > allowed


def _extreme(card: OperatorCard, operator: Operator, seed: int) -> _Findings:
    plain = operator.example(np.random.default_rng(seed))
    inputs = _call("extreme", card.extreme, **{name: x.copy() for name, x in plain.items()})
    if not _fits(operator, inputs):
        yield "extreme-form", "`extreme` must return a dict of all inputs, each in its own shape."
    elif not np.isfinite(np.asarray(operator.reference(**inputs))).all():
        yield "extreme-too-hard", "the extreme inputs break the safe reference too: they show nothing about a kernel."
    elif not breaks(operator, inputs):
        yield (
            "extreme-harmless",
            ("the textbook formula in float16 survives the card's extreme inputs: they would find no unsafe kernel."),
        )
