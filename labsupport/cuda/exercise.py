"""The exercise kind ``Kernel``: a CUDA kernel judged without a GPU, by result, races, barriers and counters.

The kernel runs in the simulator over several sizes and orders of threads. A fault in it is a verdict
with its line and thread, never an exception; the truth is computed in float64 before the answer runs.
"""

import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any, ClassVar

import numpy as np

from labsupport.cuda import simt
from labsupport.grading import Exercise, Mistake, Verdict, guard
from labsupport.grading.answers import is_stub, type_name
from labsupport.grading.judge import failed, passed, todo

__all__ = ["EPS32", "Counter", "Kernel", "KernelCase", "along_rows", "sectors", "total", "wavefronts"]

#: Distance from 1 to the next float32; what a case allows is a multiple of it.
EPS32 = float(np.finfo(np.float32).eps)
#: Orders of blocks and threads that each case runs in; None is the natural one.
ORDERS = (None, 1, 2)

#: Name of the mistake of a block that no GPU starts.
IMPOSSIBLE = "impossible-block"

Size = int | tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class KernelCase:
    """One launch and the truth about it.

    Args:
        arguments: arrays and numbers by name, in the order of the kernel's parameters.
        grid, block: the launch.
        truth: by name, what each written array holds afterwards, in float64.
        allowed: largest error; a number or an array that broadcasts to the truth.
        label: what a reader sees of it.
    """

    arguments: Mapping[str, Any]
    grid: Size
    block: Size
    truth: Mapping[str, np.ndarray]
    allowed: Any
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class Counter:
    """What a right kernel may cost: ``measure(report)`` is at most ``most(case)``.

    ``what`` completes the sentence "the result is right, but …".
    """

    name: str
    what: str
    measure: Callable[[simt.Report], float]
    most: Callable[[KernelCase], float]


def _per_request(report: simt.Report, counter: str, space: str, kind: str, array: str | None) -> float:
    requests = report.total("requests", space, kind, array)
    return report.total(counter, space, kind, array) / requests if requests else 0.0


def sectors(kind: str, array: str, most: Callable[[KernelCase], float]) -> Counter:
    """At most so many 32-byte sectors a request of the loads or stores of a global array."""
    return Counter(
        name=f"uncoalesced-{kind}-{array}",
        what=f"a warp's {kind} of {array} touches {{measured:g}} sectors of memory on average, where {{most:g}} do",
        measure=lambda report: _per_request(report, "sectors", "global", kind, array),
        most=most,
    )


def along_rows(array: str) -> Callable[[KernelCase], float]:
    """Sectors of a request for 32 neighbours in a row of a float32 array (R, n), for ``sectors``.

    4 where every row begins at a sector; one more where rows may begin within one.
    """
    return lambda case: 4 if case.arguments[array].shape[1] % 8 == 0 else 5


def wavefronts(kind: str, most: float = 1.0) -> Counter:
    """At most so many passes through shared memory a request."""
    return Counter(
        name=f"bank-conflict-{kind}",
        what=f"a warp's {kind} in shared memory takes {{measured:g}} passes on average, where {{most:g}} do: its lanes "
        "meet in a bank",
        measure=lambda report: _per_request(report, "wavefronts", "shared", kind, None),
        most=lambda case: most,
    )


def total(name: str, kind: str, array: str, most: Callable[[KernelCase], float], space: str = "global") -> Counter:
    """At most so many single loads or stores of an array."""
    return Counter(
        name=name,
        what=f"the threads {kind} {{measured:g}} elements of {array}, where {{most:g}} do",
        measure=lambda report: report.total("accesses", space, kind, array),
        most=most,
    )


@dataclass(frozen=True)
class Outcome:
    """What one case did with a kernel."""

    fault: str = ""
    signature: tuple[Any, ...] = ()
    finding: str = ""
    wrong: tuple[tuple[str, np.ndarray], ...] = ()
    costs: tuple[tuple[str, str], ...] = ()

    @property
    def fine(self) -> bool:
        """Whether nothing is to be said."""
        return not (self.fault or self.finding or self.costs)


class _Refused(Exception):
    """The answer is no kernel; the text says what is due."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Kernel(Exercise):
    """The reader writes a kernel in the dialect of ``numba.cuda``; the simulator runs it.

    Args:
        reference: a right kernel.
        cases: ``cases(rng)`` -> the launches.
        counters: what a right kernel may cost, judged when all results are right.
        grid_of: ``grid_of(case, threads)`` -> the grid, where the reader chooses the number of threads in a block
            and answers ``(kernel, threads)``.
        threads: the block of the right answer then.
        seconds: computing time for all launches together.
    """

    kind: ClassVar[str] = "kernel"

    reference: Any
    cases: Callable[[np.random.Generator], list[KernelCase]]
    counters: tuple[Counter, ...] = ()
    grid_of: Callable[[KernelCase, int], Size] | None = None
    threads: int = 128
    seconds: float = 5.0

    def judge(self, answer: Any, seed: int) -> Verdict:
        """Run the kernel on every case in several orders; stop at the first finding."""
        try:
            kernel, threads = self._read(answer)
        except _Refused as refusal:
            return failed(self, str(refusal))
        except simt.LaunchError as error:
            named = next((m for m in self.mistakes if m.name == IMPOSSIBLE), None)
            return failed(self, _opened(error), named.message if named else "", mistake=named.name if named else None)
        except simt.SimtError as error:
            return failed(self, _opened(error))
        known = _known_of(self, seed)
        with guard.session(self.seconds) as notes:
            outcome = guard.run(lambda: _observe(self, kernel, threads, known.cases))
        if isinstance(outcome.raised, guard.TimeUp):
            return failed(self, "your kernel did not end in time. Look for a loop that never stops.")
        if outcome.raised is not None:
            if isinstance(outcome.raised, NotImplementedError):
                return todo(self)
            return failed(self, f"your kernel ended with {type(outcome.raised).__name__}.")
        if outcome.replaced:
            return failed(self, f"your kernel replaced {', '.join(outcome.replaced)}; the original is back.")
        verdict = self._verdict(outcome.value, known, threads)
        return Verdict(verdict.state, verdict.exercise, verdict.message, verdict.mistake, notes)

    def right_answer(self) -> Any:
        """Return the reference, with its block where the reader chooses one."""
        return (self.reference, self.threads) if self.grid_of else self.reference

    def is_open(self, answer: Any) -> bool:
        """Return whether the kernel is an untouched stub."""
        parts = answer if type(answer) is tuple and len(answer) == 2 else (answer,)
        return any(is_stub(part) or is_stub(_function_of(part)) for part in parts)

    def _read(self, answer: Any) -> tuple[simt.Kernel, int | None]:
        given, threads = answer, None
        if self.grid_of:
            if type(answer) is not tuple or len(answer) != 2:
                raise _Refused("pass the kernel and the number of threads in a block: (kernel, threads).")
            given, threads = answer
            if isinstance(threads, bool) or not isinstance(threads, int | np.integer):
                raise _Refused(f"the number of threads in a block is a whole number; you passed {type_name(threads)}.")
            simt.check_launch(1, int(threads))
        function = _function_of(given)
        if type(function) is not FunctionType:
            raise _Refused(f"a kernel is due, a function with @cuda.jit above it; you passed {type_name(given)}.")
        kernel = simt.Kernel(function)
        kernel.rewritten()
        return kernel, None if threads is None else int(threads)

    def _verdict(self, outcomes: list[Outcome], known: "_Known", threads: int | None) -> Verdict:
        def explained(number: int, case: KernelCase, finding: str) -> Verdict:
            where = f"Launch {number}: {case.label or _described(case)}."
            mistake = _recognise(self, outcomes, known, threads)
            if mistake is None:
                return failed(self, finding, where)
            return failed(self, finding, where, mistake.message, mistake=mistake.name, section=mistake.section)

        for number, (case, outcome) in enumerate(zip(known.cases, outcomes, strict=False), start=1):
            if outcome.fault or outcome.finding:
                return explained(number, case, outcome.fault or outcome.finding)
        for number, (case, outcome) in enumerate(zip(known.cases, outcomes, strict=True), start=1):
            for _, text in outcome.costs:
                return explained(number, case, f"the result is right, but {text}.")
        ran = f"{len(known.cases)} launches, each in {len(ORDERS)} orders of threads"
        return passed(self, "right.", f"{ran}: no race, no stray access, every barrier met, results and costs as due.")


def _function_of(answer: Any) -> Any:
    """The plain function inside a kernel of this simulator, of numba, or of numba's simulator."""
    if type(answer) is simt.Kernel:
        return answer.py_func
    if type(answer).__module__.startswith(("numba.", "numba_cuda.")):
        for name in ("py_func", "fn"):
            function = getattr(answer, name, None)
            if type(function) is FunctionType:
                return function
    return answer


@dataclass
class _Known:
    """The cases of a record under one seed, and what its mistakes do with them; computed once."""

    cases: list[KernelCase]
    mistakes: dict[tuple[str, int | None], list[Outcome]] = field(default_factory=dict)


_known: "weakref.WeakKeyDictionary[Kernel, dict[int, _Known]]" = weakref.WeakKeyDictionary()


def _known_of(record: Kernel, seed: int) -> _Known:
    by_seed = _known.setdefault(record, {})
    if seed not in by_seed:
        by_seed[seed] = _Known(record.cases(record.rng(seed)))
    return by_seed[seed]


# Running a kernel.


def _observe(
    record: Kernel, kernel: simt.Kernel, threads: int | None, cases: list[KernelCase], orders: tuple[Any, ...] = ORDERS
) -> list[Outcome]:
    """What every case does with a kernel, up to one that takes too long.

    The first finding of a case is its outcome. After a finding the cases that are left only tell which
    mistake it is; they run in one order, as the mistakes do.
    """
    ends = time.process_time() + record.seconds
    outcomes: list[Outcome] = []
    for case in cases:
        if threads is not None and record.grid_of:
            case = replace(case, grid=record.grid_of(case, threads), block=threads)
        needed = orders if all(outcome.fine for outcome in outcomes) else orders[:1]
        for outcome in _runs(record, kernel, case, ends, needed):
            if not outcome.fine:
                break
        outcomes.append(outcome)
        if outcome.signature[:1] == ("EndlessLoopError",):
            break
    return outcomes


def _runs(
    record: Kernel, kernel: simt.Kernel, case: KernelCase, ends: float, orders: tuple[Any, ...]
) -> Iterator[Outcome]:
    """One outcome an order; the counters are read in the first, since they do not depend on the order."""
    for k, order in enumerate(orders):
        arguments = {
            name: value.copy() if isinstance(value, np.ndarray) else value for name, value in case.arguments.items()
        }
        names = dict(zip(kernel.parameters, arguments, strict=False))
        try:
            report = simt.launch(
                kernel, case.grid, case.block, *arguments.values(), seed=order, profile=k == 0,
                seconds=max(0.1, ends - time.process_time()),
            )  # fmt: skip
        except simt.SimtError as error:
            yield Outcome(_opened(error), _signature(error, names))
            return
        yield _judged(record, case, arguments, _renamed(report, names) if k == 0 else None)


def _signature(error: simt.SimtError, names: Mapping[str, str]) -> tuple[Any, ...]:
    """What a fault is, whatever the reader called things and however the lines are numbered."""
    array = names.get(error.array or "") if error.space == "global" else None
    return type(error).__name__, error.space, array, error.across, error.barriers, error.kinds


def _opened(error: simt.SimtError) -> str:
    return str(error).rstrip(".") + "."


def _renamed(report: simt.Report, names: Mapping[str, str]) -> simt.Report:
    """The report with the exercise's names of the arguments in the place of the reader's."""
    counts = {
        (line, names.get(array, array) if space == "global" else array, space, kind): count
        for (line, array, space, kind), count in report.counts.items()
    }
    return replace(report, counts=counts)


def _judged(record: Kernel, case: KernelCase, arguments: Mapping[str, Any], report: simt.Report | None) -> Outcome:
    for name, value in arguments.items():
        before = case.arguments[name]
        if isinstance(value, np.ndarray) and name not in case.truth and value.tobytes() != before.tobytes():
            return Outcome(finding=f"your kernel changed its input {name}.", signature=("input", name))
    for name, truth in case.truth.items():
        finding = _difference(name, arguments[name], truth, case.allowed, case.arguments[name])
        if finding:
            wrong = tuple((other, arguments[other].astype(np.float64)) for other in case.truth)
            return Outcome(finding=finding, wrong=wrong, signature=("wrong",))
    if report is None:
        return Outcome()
    return Outcome(costs=tuple(_costs(record, case, report)))


def _difference(name: str, got: np.ndarray, truth: np.ndarray, allowed: Any, before: np.ndarray) -> str:
    """What is wrong with a written array, or nothing. Never the value that is due."""
    actual = got.astype(np.float64)
    bad = ~(np.abs(actual - truth) <= np.broadcast_to(allowed, truth.shape))
    bad &= ~(np.isnan(actual) & np.isnan(truth))
    if not bad.any():
        return ""
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    place = f"{name}[{', '.join(map(str, index))}]"
    untouched = bad & (got == before)
    if untouched.all() or (untouched.sum() == bad.sum()):
        return f"{place} was never written, {int(bad.sum())} of {bad.size} elements in all."
    if np.isnan(actual[index]):
        return f"{place} is NaN; {int(bad.sum())} of {bad.size} elements are wrong."
    return f"{place} is wrong, and {int(bad.sum())} of {bad.size} elements in all: {actual[index]:.7g} came back."


def _costs(record: Kernel, case: KernelCase, report: simt.Report) -> Iterator[tuple[str, str]]:
    if report.float64_lines:
        yield (
            "float64",
            f"line {report.float64_lines[0]} rounds a float64 into a float32 array: somewhere the arithmetic became "
            "float64, which most GPUs do at a small part of the speed",
        )
    elif report.float64_arrays:
        yield "float64", f"{report.float64_arrays[0]} is an array of float64, which takes twice the memory"
    for counter in record.counters:
        measured, most = counter.measure(report), counter.most(case)
        if measured > most * (1 + 1e-9):
            yield counter.name, counter.what.format(measured=measured, most=most)


def _described(case: KernelCase) -> str:
    shapes = [f"{name} {value.shape}" for name, value in case.arguments.items() if isinstance(value, np.ndarray)]
    return f"{', '.join(shapes)}, grid {case.grid}, block {case.block}"


# Known mistakes.


def _recognise(record: Kernel, outcomes: list[Outcome], known: _Known, threads: int | None) -> Mistake | None:
    """The first mistake that explains every failing case, or else the first that explains some."""
    failing = {k for k, outcome in enumerate(outcomes) if not outcome.fine}
    partly = None
    for mistake in record.mistakes:
        if mistake.name == IMPOSSIBLE:
            continue  # told before a launch
        given = mistake.answer[0] if record.grid_of else mistake.answer
        seen = known.mistakes.setdefault((mistake.name, threads), [])
        explained = _explains(record, simt.Kernel(_function_of(given)), threads, known.cases, seen, outcomes)
        if explained and explained >= failing:
            return mistake
        if explained and partly is None:
            partly = mistake
    return partly


def _explains(
    record: Kernel,
    mistake: simt.Kernel,
    threads: int | None,
    cases: list[KernelCase],
    seen: list[Outcome],
    outcomes: list[Outcome],
) -> set[int]:
    """The cases on which a mistake fails, if the answer fails in the same way on all of them.

    ``seen`` holds what the mistake is known to do; it runs on the cases after these, up to the first on
    which the two part.
    """
    explained: set[int] = set()
    for k, case in enumerate(cases):
        if k == len(seen):
            seen += _observe(record, mistake, threads, [case], ORDERS[:1])
        if seen[k].fine:
            continue
        if k >= len(outcomes) or not _agree(seen[k], outcomes[k], case):
            return set()
        explained.add(k)
    return explained


def _agree(wrong: Outcome, seen: Outcome, case: KernelCase) -> bool:
    if wrong.signature != seen.signature or [name for name, _ in wrong.costs] != [name for name, _ in seen.costs]:
        return False
    for (_, theirs), (name, ours) in zip(wrong.wrong, seen.wrong, strict=True):
        allowed = np.broadcast_to(case.allowed, case.truth[name].shape)
        same = np.abs(theirs - ours) <= 4 * allowed
        if not (same | (np.isnan(theirs) & np.isnan(ours)) | (theirs == ours)).all():
            return False
    return True
