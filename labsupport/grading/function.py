"""Judges a function: runs it on seeded cases beside the oracle and stops at the first finding.

The order is fixed: ran in time, left its inputs alone, exact type, shape, dtype kind, finite pattern,
value. The oracle's results exist before the answer runs. A known mistake is recognised only where the
answer agrees with it on every case on which it differs from the truth.
"""

import copy
import tracemalloc
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labsupport.grading import forbidden, guard
from labsupport.grading.answers import contains_stub, type_name
from labsupport.grading.compare import Finding, Leaf, Rules, Tree, compare, exception_words, plain, read, same_shapes
from labsupport.grading.judge import failed, passed, todo
from labsupport.grading.records import Case, Function, Mistake
from labsupport.grading.tolerance import EPS, coarsest
from labsupport.grading.verdict import Verdict


@dataclass(frozen=True)
class Prepared:
    """A case with the truth: ``form`` rules structure, shape and dtype, ``truth`` the values."""

    case: Case
    form: Tree
    truth: Tree
    rules: Rules


@dataclass(frozen=True)
class Observed:
    """What one call of an answer did, copied out of its hands."""

    tree: Tree = ()
    value: Any = None
    refused: str = ""
    raised: BaseException | None = None
    mutated: str = ""
    replaced: tuple[str, ...] = ()
    shared: bool = False
    greedy: bool = False

    @property
    def open(self) -> bool:
        """Whether the function turned out to be a stub."""
        return type(self.raised) is NotImplementedError or (self.raised is None and contains_stub(self.value))


@dataclass
class Known:
    """What the judge knows of a record under one seed; computed once."""

    prepared: tuple[Prepared, ...]
    mistakes: dict[str, list[Observed]] = field(default_factory=dict)


_known: "weakref.WeakKeyDictionary[Function, dict[int, Known]]" = weakref.WeakKeyDictionary()


def judge(record: Function, answer: Any, seed: int) -> Verdict:
    """Return the verdict on a function."""
    if not callable(answer):
        name = 'Pass the function itself, not its result or its name: check("' + record.id + '", f), not f(x).'
        return failed(record, f"a function is due; you passed {type_name(answer)}.", name)
    used = forbidden.find(answer, record.forbidden_calls)
    if used:
        return failed(record, f"your function uses {used}, which this exercise asks you to do without.")
    known = prepare(record, seed)
    observed, notes = _observe(record, answer, seed, known.prepared)
    for number, (prepared, seen) in enumerate(zip(known.prepared, observed, strict=False), start=1):
        if seen.open and prepared.case.raises is not NotImplementedError:
            return todo(record)
        finding = _finding(record, prepared, seen)
        if finding:
            verdict = _explained(record, known, observed, seed, number, finding)
            return Verdict("fail", verdict.exercise, verdict.message, verdict.mistake, notes)
    right = passed(record, "right.", _measure(record, known.prepared))
    return Verdict("pass", right.exercise, right.message, None, notes)


# What is known before the answer runs.


def prepare(record: Function, seed: int) -> Known:
    """Return the cases of a seed with their truths, computed once."""
    by_seed = _known.setdefault(record, {})
    if seed not in by_seed:
        with guard.quiet():
            plain = record.cases(record.rng(seed))
            cases = [_prepared(record, case) for case in plain]
        if not cases:
            raise ValueError(f"exercise {record.id!r} has no cases")
        by_seed[seed] = Known(tuple(cases))
    return by_seed[seed]


def _prepared(record: Function, case: Case) -> Prepared:
    rules = Rules(record.tolerance, case.args, dict(case.kwargs), record.dtype == "exact")
    if case.raises is not None:
        return Prepared(case, (), (), rules)
    form = read(_call(record, record.oracle, *_copied((case.args, dict(case.kwargs)))), lists=True)
    args, kwargs = _raised((case.args, dict(case.kwargs))) if record.upcast else (case.args, case.kwargs)
    better = record.reference or record.oracle
    truth = read(_call(record, better, *_copied((args, dict(kwargs)))), like=form, lists=True)
    for leaf in (*leaves(form), *leaves(truth)):
        leaf.values.flags.writeable = False
    return Prepared(case, form, truth, rules)


def _call(record: Function, answer: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    return record.call(answer, *args, **kwargs) if record.call else answer(*args, **kwargs)


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Rebuild plain containers with ``change`` applied to everything else."""
    if type(value) in (tuple, list):
        return type(value)(_mapped(item, change) for item in value)
    if type(value) is dict:
        return {key: _mapped(item, change) for key, item in value.items()}
    return change(value)


def _copied(value: Any) -> Any:
    """Copy arrays and random generators, so that an oracle that changes its input harms nothing."""

    def change(item: Any) -> Any:
        if isinstance(item, np.ndarray):
            return item.copy(order="K")
        return copy.deepcopy(item) if isinstance(item, np.random.Generator) else item

    return _mapped(value, change)


def _raised(value: Any) -> Any:
    """Raise float16 and float32 to float64; whatever else stays as it is."""

    def change(item: Any) -> Any:
        if isinstance(item, np.ndarray) and item.dtype in (np.float16, np.float32):
            return item.astype(np.float64)
        return np.float64(item) if isinstance(item, np.float16 | np.float32) else item

    return _mapped(value, change)


# Running an answer.


def _observe(
    record: Function, answer: Callable[..., Any], seed: int, prepared: tuple[Prepared, ...]
) -> tuple[list[Observed], tuple[str, ...]]:
    """Run an answer on fresh copies of all cases, up to one that does not end; return what it did."""
    cases = record.cases(record.rng(seed))
    observed: list[Observed] = []
    with guard.session(record.seconds) as notes, forbidden.stopped(record.forbidden_calls):
        for case, known in zip(cases, prepared, strict=True):
            observed.append(_observe_one(record, answer, case, known))
            if isinstance(observed[-1].raised, guard.TimeUp):
                break
    return observed, notes


def _observe_one(record: Function, answer: Callable[..., Any], case: Case, known: Prepared) -> Observed:
    kwargs = dict(case.kwargs)
    inputs = {f"argument {place}": value for place, value in enumerate(case.args, start=1)} | kwargs
    before = {name: fingerprint(value) for name, value in inputs.items()}
    limit = record.held(*case.args, **kwargs) if record.held else None
    outcome, greedy = _held_to(limit, lambda: _call(record, answer, case.args, kwargs))
    changed = [name for name, value in inputs.items() if fingerprint(value) != before[name]]
    mutated = changed[0] if changed else ""
    if outcome.raised is not None:
        return Observed(raised=outcome.raised, mutated=mutated, replaced=outcome.replaced)
    try:
        tree, refused = read(outcome.value, like=known.form, lists=record.lists), ""
        shared = record.fresh and _shares(outcome.value, list(inputs.values()))
    except Finding as finding:
        tree, refused, shared = (), finding.text, False
    except RecursionError:
        tree, refused, shared = (), "you returned containers that hold containers without end.", False
    return Observed(tree, outcome.value, refused, None, mutated, outcome.replaced, shared, greedy)


def _held_to(limit: int | None, call: Callable[[], Any]) -> tuple[guard.Outcome, bool]:
    """Run a call; say whether it held more than ``limit`` bytes at once, as Python and NumPy count them."""
    if limit is None:
        return guard.run(call), False
    tracing = tracemalloc.is_tracing()
    if not tracing:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        outcome = guard.run(call)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        if not tracing:
            tracemalloc.stop()
    return outcome, peak - before > limit


def _shares(value: Any, inputs: list[Any]) -> bool:
    """Whether a result is one of the inputs, or an array in it lies in the memory of one of theirs."""
    if type(value) is list and any(value is item for item in inputs):
        return True
    arrays = _arrays(inputs)
    return any(np.may_share_memory(mine, theirs) for mine in _arrays(value) for theirs in arrays)


def _arrays(value: Any) -> list[np.ndarray]:
    """Return the arrays in plain containers."""
    if type(value) is np.ndarray:
        return [value]
    items = value.values() if type(value) is dict else value if type(value) in (tuple, list) else ()
    return [array for item in items for array in _arrays(item)]


def fingerprint(value: Any, identity: bool = True) -> Any:
    """Reduce an input to bytes that change when it does.

    What is not data stands for itself, or for its type alone where ``identity`` is False.
    """
    if isinstance(value, np.ndarray):
        return (value.shape, value.dtype.str, value.tobytes())
    if type(value) in (list, tuple):
        return [fingerprint(item, identity) for item in value]
    if type(value) is dict:
        return [(key, fingerprint(item, identity)) for key, item in value.items()]
    if isinstance(value, int | float | complex | str | np.generic | type(None)):
        return repr(value)
    if hasattr(value, "detach"):  # a torch tensor
        return fingerprint(value.detach().cpu().double().numpy(), identity)
    return id(value) if identity else type(value).__name__


# From what was observed to a finding.


def _finding(record: Function, prepared: Prepared, seen: Observed) -> str | None:
    """Return what is wrong with one call, or None."""
    raises = prepared.case.raises
    if seen.raised is not None and (raises is None or not isinstance(seen.raised, raises)):
        return _raised_words(record, seen.raised, raises)
    if seen.replaced:
        return f"your function replaced {', '.join(seen.replaced)}; the original is back. Leave the library as it is."
    if seen.mutated:
        return f"your function changed its input ({seen.mutated}). Work on a copy."
    if raises is not None:
        return None if seen.raised is not None else f"the contract asks for {raises.__name__} here; none was raised."
    if seen.refused:
        return seen.refused
    try:
        compare(seen.tree, prepared.form, prepared.truth, prepared.rules)
    except Finding as finding:
        if record.diagnose and finding.of_values and same_shapes(seen.tree, prepared.form):
            return record.diagnose(prepared.case, plain(seen.tree)) or finding.text
        return finding.text
    if seen.shared:
        return "the values are right, but you returned your input itself or a view of it; the result is to be new."
    if seen.greedy:
        return "the values are right, but your function holds far more numbers at once than the contract allows."
    return None


def _raised_words(record: Function, error: BaseException, raises: type[Exception] | None) -> str:
    if isinstance(error, guard.TimeUp):
        return f"your function did not end within {record.seconds:g} seconds. Look for a loop that never stops."
    if isinstance(error, guard.Forbidden):
        return f"your function uses {error.args[0]}, which this exercise asks you to do without."
    if isinstance(error, guard.Exited | SystemExit):
        name = "sys.exit" if isinstance(error, SystemExit) else error.args[0]
        return f"your function called {name}, which would end the notebook's process. Return a result instead."
    if isinstance(error, RecursionError):
        return "your function calls itself without end (RecursionError)."
    if isinstance(error, MemoryError):
        return "your function asked for more memory than there is (MemoryError)."
    due = f" The contract asks for {raises.__name__} here." if raises is not None else ""
    return f"your function raised {exception_words(error)}{_line(error)}.{due}"


def _line(error: BaseException) -> str:
    """Say on which line of the reader's own code an exception arose: the innermost frame outside libraries."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if not str(trace.tb_frame.f_globals.get("__name__", "")).startswith(("labsupport.", "numpy", "torch")):
            place = f" on line {trace.tb_lineno - code.co_firstlineno + 1} of {code.co_name}"
        trace = trace.tb_next
    return place


def _explained(
    record: Function, known: Known, observed: list[Observed], seed: int, number: int, finding: str
) -> Verdict:
    """Return the failing verdict on case ``number``, with the misconception behind it where it is known."""
    case = known.prepared[number - 1].case
    where = f"Input {case.label or _describe(case)}, case {number}."
    mistake = _recognise(record, known, observed, seed, number - 1)
    if mistake is None:
        return failed(record, finding, where)
    return failed(record, finding, where, mistake.message, mistake=mistake.name, section=mistake.section)


def _describe(case: Case) -> str:
    words = [_describe_value(value) for value in case.args]
    words += [f"{name}={_describe_value(value)}" for name, value in case.kwargs.items()]
    return ", ".join(words) or "of no arguments"


def _describe_value(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype.name} {value.shape}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int | str | bool | type(None)):
        return repr(value)
    if type(value) in (tuple, list):
        inside = ", ".join(_describe_value(item) for item in value)
        return f"({inside})" if type(value) is tuple else f"[{inside}]"
    return type_name(value)


def _recognise(record: Function, known: Known, observed: list[Observed], seed: int, shown: int) -> Mistake | None:
    """Return the first mistake that explains the case shown; one that explains all failing cases comes first."""
    wrong = {
        place
        for place, (prepared, seen) in enumerate(zip(known.prepared, observed, strict=False))
        if _finding(record, prepared, seen)
    }
    partly: Mistake | None = None
    for mistake in record.mistakes:
        if mistake.name not in known.mistakes:
            known.mistakes[mistake.name] = _observe(record, mistake.answer, seed, known.prepared)[0]
        explained = _explains(record, known.prepared, known.mistakes[mistake.name], observed)
        if explained >= wrong and explained:
            return mistake
        if shown in explained and partly is None:
            partly = mistake
    return partly


def _explains(
    record: Function, prepared: tuple[Prepared, ...], mistaken: list[Observed], observed: list[Observed]
) -> set[int]:
    """Return the cases on which a mistake differs from the truth, if the answer agrees with it on all of them."""
    differs: set[int] = set()
    for place, (known, wrong) in enumerate(zip(prepared, mistaken, strict=False)):
        if _finding(record, known, wrong) is None:
            continue
        if place >= len(observed) or not _agree(known, wrong, observed[place]):
            return set()
        differs.add(place)
    return differs


def _agree(prepared: Prepared, wrong: Observed, seen: Observed) -> bool:
    """Whether an answer did what a mistake does, to within the tolerance of the case."""
    if (wrong.mutated, wrong.replaced, wrong.refused) != (seen.mutated, seen.replaced, seen.refused):
        return False
    if (wrong.shared, wrong.greedy) != (seen.shared, seen.greedy):
        return False
    if type(wrong.raised) is not type(seen.raised):
        return False
    if wrong.raised is not None or wrong.refused:
        return True
    try:
        compare(seen.tree, wrong.tree, wrong.tree, prepared.rules)
    except Finding:
        return False
    return True


def _measure(record: Function, prepared: tuple[Prepared, ...]) -> str:
    """Say what was held against what: the number of cases and the tolerance."""
    count = f"{len(prepared)} case{'' if len(prepared) == 1 else 's'}"
    formats: list[str] = []
    depth = 1
    for known in prepared:
        mine = [leaf.format for leaf in leaves(known.form) if leaf.format]
        if mine:
            formats.append(coarsest([*known.rules.input_formats(), *mine]))
            depth = max(depth, record.tolerance.length(known.case.args, dict(known.case.kwargs)))
    if not formats:
        return f"{count}, compared exactly."
    ordered = sorted(set(formats), key=EPS.__getitem__)
    return f"{count}, each within {record.tolerance.words(ordered, depth)}."


def leaves(tree: Tree) -> list[Leaf]:
    """Return all arrays of a result, in order."""
    if isinstance(tree, Leaf):
        return [tree]
    parts = tree.values() if isinstance(tree, dict) else tree
    return [leaf for part in parts for leaf in leaves(part)]
