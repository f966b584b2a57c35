"""The exercise kind ``TritonKernel``: a kernel over rows in Triton, judged on the CPU in a process of its own.

The kernel's source goes to Triton's mended interpreter and its results come back; a fault there is a
verdict, never an exception here. Where Triton cannot be had the answer is not judged, and the reason is
said: it is never passed unseen.
"""

import ast
import atexit
import inspect
import itertools
import tempfile
import textwrap
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, ClassVar

import numpy as np

from labsupport.cuda.triton_compile import unavailable
from labsupport.cuda.triton_interpreter import Interpreter, KernelError, KernelTimeout, Tensor
from labsupport.grading import Exercise, Mistake, Verdict
from labsupport.grading.answers import is_stub, type_name
from labsupport.grading.judge import failed, passed

__all__ = ["RowCase", "TritonKernel", "run_rows"]

HEADER = "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"


@dataclass(frozen=True)
class RowCase:
    """One launch: ``x`` (rows, columns) in ``dtype``, what is due in float64, and by how much it may be missed."""

    x: np.ndarray
    truth: np.ndarray
    allowed: np.ndarray
    dtype: str = "float32"

    @property
    def label(self) -> str:
        """What a reader sees of the launch."""
        rows, columns = self.x.shape
        return f"{self.dtype} ({rows}, {columns}), BLOCK {block_of(columns)}"


@dataclass(frozen=True)
class _Outcome:
    """What one launch did: a result, or a fault with its kind and its line."""

    result: np.ndarray | None = None
    kind: str = ""
    message: str = ""
    line: str = ""


class _Refused(Exception):
    """The answer is no kernel; the text says what is due."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TritonKernel(Exercise):
    """The reader writes ``kernel(y_ptr, x_ptr, columns, BLOCK)``; one program works on one row.

    Args:
        reference: a right kernel, a plain function.
        cases: ``cases(rng)`` -> the launches.
        forbidden: names of ``tl`` that would answer the question by themselves.
        seconds: time for all launches of one answer together, the start of the process not counted.
    """

    kind: ClassVar[str] = "triton"

    reference: Callable[..., Any]
    cases: Callable[[np.random.Generator], list[RowCase]]
    forbidden: tuple[str, ...] = ()
    seconds: float = 20.0

    def judge(self, answer: Any, seed: int) -> Verdict:
        """Run the kernel on every case; stop at the first finding."""
        try:
            source = self._source(answer)
        except _Refused as refusal:
            return failed(self, str(refusal))
        reason = unavailable()
        if reason:
            return Verdict("review", self.id, f"not judged here: {reason}.\nOn Linux the same cell judges your kernel.")
        known = _known_of(self, seed)
        outcomes = _observe(self, source, known.cases)
        if isinstance(outcomes, KernelTimeout):
            return failed(self, "your kernel did not end in time. Look for a loop that never stops.")
        for number, (case, outcome) in enumerate(zip(known.cases, outcomes, strict=True), start=1):
            finding = _finding(case, outcome)
            if finding:
                where = f"Launch {number}: {case.label}."
                mistake = _recognise(self, outcomes, known)
                if mistake is None:
                    return failed(self, finding, where)
                return failed(self, finding, where, mistake.message, mistake=mistake.name, section=mistake.section)
        return passed(
            self, "right.", f"{len(known.cases)} launches in Triton's interpreter, within float32's rounding."
        )

    def right_answer(self) -> Any:
        """Return the reference."""
        return self.reference

    def is_open(self, answer: Any) -> bool:
        """Return whether the kernel is an untouched stub."""
        return is_stub(_plain(answer))

    def _source(self, answer: Any) -> str:
        """Return the kernel's own source, from ``def`` on, with its block size marked as a constant."""
        function = _plain(answer)
        if type(function) is not FunctionType or function.__name__ == "<lambda>":
            raise _Refused(f"a kernel is due, a function written with def; you passed {type_name(answer)}.")
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        except (OSError, TypeError, SyntaxError):
            raise _Refused("the source of your kernel cannot be read. Define it in a cell of the notebook.") from None
        node = tree.body[0]
        if not isinstance(node, ast.FunctionDef):
            raise _Refused("a kernel is due, a function written with def.")
        due = list(inspect.signature(self.reference).parameters)
        given = [argument.arg for argument in node.args.args]
        if len(given) != len(due):
            raise _Refused(f"the kernel takes {len(due)} arguments, {', '.join(due)}; yours takes {len(given)}.")
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute) and inner.attr in self.forbidden:
                raise _Refused(f"the kernel calls {inner.attr}, which this exercise asks you to write.")
        node.decorator_list = []
        node.args.args[-1].annotation = ast.parse("tl.constexpr", mode="eval").body
        return HEADER + ast.unparse(node) + "\n"


def _plain(answer: Any) -> Any:
    """The function inside a kernel that was decorated with ``triton.jit``."""
    if type(answer).__module__.startswith("triton."):
        function = getattr(answer, "fn", None)
        if type(function) is FunctionType:
            return function
    return answer


# -- running ------------------------------------------------------------------------------------

_interpreter: Interpreter | None = None


def _shared() -> Interpreter:
    """The one interpreter of this process, started at its first use and ended with it."""
    global _interpreter
    if _interpreter is None:
        _interpreter = Interpreter()
        atexit.register(_interpreter.close)
    return _interpreter


def _observe(record: TritonKernel, source: str, cases: list[RowCase]) -> list[_Outcome] | KernelTimeout:
    """Every launch's outcome, or the timeout."""
    target = f"{__name__}:run_rows"
    shared = _shared()
    shared.call(f"{__name__}:ready")  # so that the time limit is the kernel's own
    try:
        answers = shared.call(target, source, [Tensor(case.x, case.dtype) for case in cases], seconds=record.seconds)
    except KernelTimeout as late:
        return late
    except KernelError as error:
        return [_Outcome(kind=error.kind, message=str(error), line=error.line)] * len(cases)
    return [_Outcome(result=a) if isinstance(a, np.ndarray) else _Outcome(None, *a) for a in answers]


def ready() -> bool:
    """Answer once the process has loaded Triton."""
    import triton

    return bool(triton.knobs.runtime.interpret)


def block_of(columns: int) -> int:
    """Return the power of two that a row of ``columns`` elements is padded to, at least 16."""
    return max(16, 1 << (columns - 1).bit_length())


_numbers = itertools.count()


def run_rows(source: str, inputs: list[Any]) -> tuple[Any, ...]:
    """Run a kernel over rows, inside the interpreter's process.

    Args:
        source: a module that defines one ``triton.jit`` function.
        inputs: tensors (rows, columns).

    Returns:
        For each input the result, NaN where nothing was written, or (kind, message, line) of a fault.
    """
    import torch

    from labsupport.cuda.triton_interpreter import explain, load

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"answer{next(_numbers)}.py")
        path.write_text(source, encoding="utf-8")
        name = next(n.name for n in ast.parse(source).body if isinstance(n, ast.FunctionDef))
        kernel = load(f"{path}:{name}")
        results: list[Any] = []
        for x in inputs:
            y = torch.full(x.shape, float("nan"), dtype=x.dtype)
            try:
                kernel[(x.shape[0],)](y, x, x.shape[1], block_of(x.shape[1]))
            except Exception as error:
                told = explain(error)
                results.append((told["kind"], told["message"], told["line"]))
                continue
            results.append(y)
        return tuple(results)


# -- judging ------------------------------------------------------------------------------------


def _finding(case: RowCase, outcome: _Outcome) -> str:
    """What is wrong with a launch, or nothing. Never the value that is due."""
    if outcome.result is None:
        what = outcome.message if outcome.kind == "OutOfBounds" else f"{outcome.kind}: {outcome.message}"
        what = what if what.endswith("?") else what.rstrip(".") + "."
        return f"{what} Line: {outcome.line.strip()}." if outcome.line else what
    got = outcome.result.astype(np.float64)
    bad = ~(np.abs(got - case.truth) <= case.allowed)
    if not bad.any():
        return ""
    i, j = (int(n) for n in np.argwhere(bad)[0])
    amount = f"{int(bad.sum())} of {bad.size} elements"
    if np.isnan(got[i, j]):
        return f"y[{i}, {j}] is NaN or was never written; {amount} are wrong."
    return f"y[{i}, {j}] is wrong, and {amount} in all: {got[i, j]:.7g} came back."


@dataclass
class _Known:
    """The cases of a record under one seed, and what its mistakes do with them."""

    cases: list[RowCase]
    mistakes: dict[str, list[_Outcome]]


_known: "weakref.WeakKeyDictionary[TritonKernel, dict[int, _Known]]" = weakref.WeakKeyDictionary()


def _known_of(record: TritonKernel, seed: int) -> _Known:
    by_seed = _known.setdefault(record, {})
    if seed not in by_seed:
        by_seed[seed] = _Known(record.cases(record.rng(seed)), {})
    return by_seed[seed]


def _recognise(record: TritonKernel, outcomes: list[_Outcome], known: _Known) -> Mistake | None:
    """The first mistake that does as the answer did wherever it is wrong; one that explains all findings first."""
    wrong = {k for k, (case, outcome) in enumerate(zip(known.cases, outcomes, strict=True)) if _finding(case, outcome)}
    alike: list[tuple[bool, Mistake]] = []
    for mistake in record.mistakes:
        if mistake.name not in known.mistakes:
            seen = _observe(record, record._source(mistake.answer), known.cases)
            if isinstance(seen, KernelTimeout):
                raise RuntimeError(f"the mistake {mistake.name} of {record.id} does not end")
            known.mistakes[mistake.name] = seen
        theirs = known.mistakes[mistake.name]
        differs = {k for k, case in enumerate(known.cases) if _finding(case, theirs[k])}
        if differs and all(_same(outcomes[k], theirs[k]) for k in differs):
            alike.append((wrong <= differs, mistake))
    return next((m for whole, m in alike if whole), alike[0][1] if alike else None)


def _same(one: _Outcome, other: _Outcome) -> bool:
    """Whether two launches did the same, whatever the kernels call things."""
    if one.result is None or other.result is None:
        # The first word tells a load from a store; what follows holds the reader's own names.
        told = [(o.kind, o.message.partition(" ")[0]) for o in (one, other)]
        return one.result is other.result and told[0] == told[1]
    return bool(np.allclose(one.result, other.result, rtol=1e-2, atol=1e-30, equal_nan=True))
