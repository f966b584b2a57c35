"""What every exercise must prove before a reader meets it: the grader's own mutation tests.

Each gate takes a record and a judge and raises ``AssertionError`` with a sentence. They take the judge as
an argument so that a deliberately broken one can be shown to be caught. A gate must never repair a record.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from labsupport.grading import formula, function
from labsupport.grading.answers import MISSING
from labsupport.grading.records import Choice, Exercise, Formula, Function, Several, Written
from labsupport.grading.tolerance import EPS
from labsupport.grading.verdict import Verdict

#: A message may quote what came back: the reader has it already.
_OWN_VALUE = re.compile(r": \S+ came back\.")

Judge = Callable[[Exercise, Any, int], Verdict]

#: The seed of the reader's checks, and one that no record was written against.
SEEDS = (0, 20_231_117)


def right_answers_pass(record: Exercise, judge: Judge) -> None:
    """The oracle and every accepted variant pass, under both seeds; a written one is for review."""
    due = "review" if _holds_written(record) else "pass"
    for seed in SEEDS:
        for number, answer in enumerate([record.right_answer(), *record.accept]):
            verdict = judge(record, answer, seed)
            what = "the right answer" if number == 0 else f"accepted variant {number}"
            assert verdict.state == due, f"{what} of {record.id} under seed {seed}:\n{verdict}"


def mistakes_fail_by_name(record: Exercise, judge: Judge) -> None:
    """Every known mistake fails, is recognised as itself, and is told its own message, under both seeds."""
    for name, answer, message in mistaken_answers(record):
        for seed in SEEDS:
            verdict = judge(record, answer, seed)
            assert verdict.state == "fail", f"the mistake {name} of {record.id} under seed {seed}:\n{verdict}"
            assert verdict.mistake == name, f"{name} of {record.id} is taken for {verdict.mistake}:\n{verdict}"
            assert message in verdict.message, f"{name} of {record.id} is not told its message:\n{verdict}"


def stubs_are_todo(record: Exercise, judge: Judge) -> None:
    """No answer, an ellipsis, and functions and classes nobody has filled in yet are to do."""

    def empty(*args: Any, **kwargs: Any) -> Any: ...

    def documented(*args: Any, **kwargs: Any) -> Any:
        """Say what it will do."""

    def unwritten(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("still to be written")

    def half(*args: Any, **kwargs: Any) -> Any:
        result = ...
        return result

    class Blank:
        """Say what it will be."""

        def __init__(self, *args: Any) -> None: ...

    stubs: list[Any] = [MISSING, ...]
    if isinstance(record, Function | Formula):
        stubs += [empty, documented, unwritten, half, Blank]
    for stub in stubs:
        verdict = judge(record, stub, SEEDS[0])
        assert verdict.state == "todo", f"a stub of {record.id}:\n{verdict}"


def wrong_kinds_are_told(record: Exercise, judge: Judge) -> None:
    """An answer of a kind nobody asked for is a sentence, never a fault of the grader and never a pass."""
    for answer in [None, object(), _EqualsAll(), b"x", {"x": 1}, {1, 2}, float("nan"), [[]], np.ma.masked, type]:
        verdict = judge(record, answer, SEEDS[0])
        assert verdict.state == "fail", f"{record.id} given {type(answer).__name__}:\n{verdict}"


def near_misses_fail(record: Exercise, judge: Judge) -> None:
    """Half a per cent too much, all zeros and one wrong middle element fail: the tolerance is tight."""
    if not isinstance(record, Function | Formula):
        return
    plain = formula.as_function(record) if isinstance(record, Formula) else record
    if plain.call is not None or not _returns_floats(plain):
        return
    for name, change in {"half a per cent": _scaled, "zeros": _zeroed, "a wrong middle": _dented}.items():
        verdict = judge(record, _changed(record.right_answer(), change), SEEDS[0])
        assert verdict.state == "fail", f"{name} in the result of {record.id} passes:\n{verdict}"


def errors_beyond_tolerance_fail(record: Exercise, judge: Judge) -> None:
    """A hundred times the stated allowance, worked out here anew, fails: the stated tolerance is the one held."""
    if not isinstance(record, Function | Formula):
        return
    plain = formula.as_function(record) if isinstance(record, Formula) else record
    if plain.call is not None or not _returns_floats(plain):
        return
    tolerance = plain.tolerance

    def off(*args: Any, **kwargs: Any) -> Any:
        inputs = [np.asarray(value).dtype.name for value in args if isinstance(value, np.ndarray | np.generic)]
        length = tolerance.length(args, kwargs)
        stated = tolerance.scale(*args, **kwargs) if callable(tolerance.scale) else None

        def add(array: np.ndarray) -> np.ndarray:
            eps = max(EPS[name] for name in ["float64", array.dtype.name, *inputs] if name in EPS)
            finite = np.abs(np.where(np.isfinite(array), array, 0)).astype(np.float64)
            largest = float(finite.max(initial=0.0)) or 1.0
            scale = stated if stated is not None else finite if tolerance.scale == "each" else largest
            return array + 100 * tolerance.c * eps * length * scale

        return _walk(record.right_answer()(*args, **kwargs), add)

    verdict = judge(record, off, SEEDS[0])
    assert verdict.state == "fail", f"an error of 100 tolerances in the result of {record.id} passes:\n{verdict}"


def nothing_leaks(record: Exercise, judge: Judge) -> None:
    """No message and no hint contains the expected value, however it is written."""
    question = " ".join(record.question())  # may itself name a value, for example as a size of an input
    hidden = [secret for secret in secrets(record) if not _contains(question, secret)]
    if not hidden:
        return
    said = [judge(record, answer, SEEDS[0]).message for _, answer, _ in mistaken_answers(record)]
    said += [judge(record, answer, SEEDS[0]).message for answer in (None, 12345.678, (9, 9), "zzz", lambda *a: 0)]
    said += record.hints
    said += [message for _, _, message in mistaken_answers(record)]
    for secret in hidden:
        for text in said:
            text = _OWN_VALUE.sub("", text)
            assert not _contains(text, secret), f"{record.id} gives {secret} away:\n{text}"


def cases_repeat(record: Exercise, judge: Judge) -> None:
    """The same seed gives the same inputs, byte for byte; the mistakes of a function come from its cases alone."""
    if not isinstance(record, Function):
        return
    for seed in SEEDS:
        first, again = ([*_inputs(record, seed)] for _ in range(2))
        assert first == again, f"the cases of {record.id} are not the same twice under seed {seed}"


def speaks_well(record: Exercise, judge: Judge) -> None:
    """Sentences are sentences: mistakes and explanations begin with a capital and end with a stop."""
    for name, _, message in mistaken_answers(record):
        text = message.strip()
        first = text.split()[0]
        assert first[0] == first[0].upper() or re.search(r"\d|_", first), f"{record.id}, {name} begins small: {text}"
        assert text[-1] in ".?!)", f"{record.id}, {name}: the message has no end: {text}"
        assert "\n" not in text, f"{record.id}, {name}: the message is one line"


#: All gates, by name: the tests run each of them over every record.
GATES: dict[str, Callable[[Exercise, Judge], None]] = {
    gate.__name__: gate
    for gate in (
        right_answers_pass,
        mistakes_fail_by_name,
        stubs_are_todo,
        wrong_kinds_are_told,
        near_misses_fail,
        errors_beyond_tolerance_fail,
        nothing_leaks,
        cases_repeat,
        speaks_well,
    )
}


# What the gates need to know of a record.


def mistaken_answers(record: Exercise) -> Iterator[tuple[str, Any, str]]:
    """Yield every known wrong answer as (name, answer, message), those of the parts of a whole too."""
    if isinstance(record, Several):
        right = record.right_answer()
        for part_name, part in record.parts.items():
            for name, answer, message in mistaken_answers(part):
                yield f"{part_name}: {name}", {**right, part_name: answer}, message
    elif isinstance(record, Choice):
        for key, option in record.options.items():
            if not option.correct:
                yield key, key, option.explanation
    for mistake in record.mistakes:
        yield mistake.name, mistake.answer, mistake.message


def secrets(record: Exercise) -> set[str]:
    """Return texts of the expected value: those the record names, and small results of a function."""
    found = set(record.secrets())
    plain = formula.as_function(record) if isinstance(record, Formula) else record
    if isinstance(plain, Function):
        for known in function.prepare(plain, SEEDS[0]).prepared:
            for leaf in function.leaves(known.truth):
                if leaf.values.size <= 16 and leaf.values.dtype.kind == "f":
                    found |= {text for value in leaf.values.ravel().tolist() for text in _spellings(value)}
    return found


def _spellings(value: float) -> Iterator[str]:
    for text in (f"{value:.4g}", f"{value:.6g}", f"{value:.4f}", repr(value)):
        if len(re.sub(r"e.*|\D", "", text).strip("0")) >= 4:
            yield text


def _contains(text: str, secret: str) -> bool:
    return re.search(rf"(?<![\d.,]){re.escape(secret)}(?![\d])", text) is not None


def _holds_written(record: Exercise) -> bool:
    parts = record.parts.values() if isinstance(record, Several) else [record]
    return any(isinstance(part, Written) for part in parts)


def _returns_floats(record: Function) -> bool:
    return any(
        leaf.kind == "f" and np.any(np.where(np.isfinite(leaf.values), leaf.values, 0) != 0)
        for known in function.prepare(record, SEEDS[0]).prepared
        for leaf in function.leaves(known.form)
    )


def _inputs(record: Function, seed: int) -> Iterator[Any]:
    for case in record.cases(record.rng(seed)):
        yield case.label, [function.fingerprint(value, identity=False) for value in (*case.args, *case.kwargs.values())]


def _changed(answer: Callable[..., Any], change: Callable[[np.ndarray], np.ndarray]) -> Callable[..., Any]:
    """Return a function whose floating results are changed, its structure and dtypes kept."""

    def changed(*args: Any, **kwargs: Any) -> Any:
        return _walk(answer(*args, **kwargs), change)

    return changed


def _walk(value: Any, change: Callable[[np.ndarray], np.ndarray]) -> Any:
    if isinstance(value, tuple | list):
        return tuple(_walk(item, change) for item in value)
    if isinstance(value, dict):
        return {key: _walk(item, change) for key, item in value.items()}
    array = np.asarray(value)
    if array.dtype.kind != "f" or array.dtype.name not in ("float16", "float32", "float64", "longdouble"):
        return value
    result = change(array).astype(array.dtype)
    return result if isinstance(value, np.ndarray) else result[()]


def _scaled(array: np.ndarray) -> np.ndarray:
    return array * 1.005


def _zeroed(array: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(array), np.zeros_like(array), array)


def _dented(array: np.ndarray) -> np.ndarray:
    """Change the middle element by a tenth of the largest magnitude."""
    dented = np.array(array, ndmin=1, copy=True)
    finite = np.where(np.isfinite(dented), np.abs(dented), 0)
    if dented.size:
        dented.reshape(-1)[dented.size // 2] += 0.1 * (finite.max() or 1.0)
    return dented.reshape(array.shape)


class _EqualsAll:
    """An object that claims to equal everything, and to be any array."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = object.__hash__

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        return np.zeros(3)
