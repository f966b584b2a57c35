"""What an exercise is: one frozen record that holds the question, the truth and the known mistakes.

A record is data. Each kind of exercise is a subclass of ``Exercise`` whose ``judge(answer, seed)``
turns an answer into a ``Verdict``; new kinds are added the same way, anywhere. A record must never
hold text that gives the expected value away: a test reads every message it can produce.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from labsupport.grading.tolerance import Tolerance
from labsupport.grading.verdict import Verdict

Level = Literal["easy", "medium", "hard"]
Place = Literal["exercises", "chapter"]
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_SECTION = re.compile(r"\d+(\.\d+)*")


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A known misconception: a wrong answer with a name and the sentence that sets the reader right.

    The judge recognises it when a reader's answer agrees with ``answer`` wherever that differs from
    the truth. The same list is the grader's own mutation test: every mistake must fail, by its name.
    """

    name: str
    answer: Any
    message: str
    section: str | None = None


@dataclass(frozen=True, kw_only=True)
class Case:
    """One call of a function under judgement: arguments, and a label that a reader may see.

    ``raises`` names the exception type that the contract asks for instead of a result.
    """

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    raises: type[Exception] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Exercise:
    """What every kind of exercise has.

    ``prompt`` is one to three sentences with inline code, ``$formulas$`` and ``**strong**`` only, so
    that it reads in a terminal too. A part of a ``Several`` leaves out the id: it takes over whatever
    it does not say itself from the exercise it belongs to.
    """

    kind: ClassVar[str] = "exercise"

    id: str = ""
    chapter: int = 0
    section: str = ""
    title: str = ""
    prompt: str = ""
    hints: tuple[str, ...] = ()
    contract: str = ""
    checklist: tuple[int, ...] = ()
    points: int = 1
    level: Level = "easy"
    place: Place = "exercises"
    mistakes: tuple[Mistake, ...] = ()
    accept: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if not self.id:
            return
        where = f"exercise {self.id!r}"
        if not _ID.fullmatch(self.id):
            raise ValueError(f"{where}: an id is lower-case words joined by hyphens")
        if not _SECTION.fullmatch(self.section) or int(self.section.split(".")[0]) != self.chapter:
            raise ValueError(f"{where}: section {self.section!r} is not a section of chapter {self.chapter}")
        if not self.hints or not all(self.hints):
            raise ValueError(f"{where}: at least one hint, none of them empty")
        if any(item not in range(1, 19) for item in self.checklist):
            raise ValueError(f"{where}: checklist items are 1 to 18, got {self.checklist}")
        if not self.title or not self.prompt:
            raise ValueError(f"{where}: a title and a prompt are due")
        names = [mistake.name for mistake in self.mistakes]
        if len(set(names)) != len(names):
            raise ValueError(f"{where}: two mistakes share a name in {names}")

    def judge(self, answer: Any, seed: int) -> Verdict:
        """Judge an answer that is no stub; ``seed`` rules every random input. Subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it judges an answer")

    def right_answer(self) -> Any:
        """Return an answer that must pass: the gates of the book judge it. Subclasses define it."""
        raise NotImplementedError(f"{type(self).__name__} does not say what its right answer is")

    def is_open(self, answer: Any) -> bool:
        """Return whether ``answer`` is an untouched stub, which is to do and never wrong."""
        from labsupport.grading.answers import is_stub

        return is_stub(answer)

    def question(self) -> tuple[str, ...]:
        """Return the lines a reader sees while the exercise is to do."""
        return (self.prompt, *([self.contract] if self.contract else []))

    def secrets(self) -> tuple[str, ...]:
        """Return texts of the expected value that no message may contain."""
        return ()

    def rng(self, seed: int) -> np.random.Generator:
        """Return the exercise's own random generator: the id and the seed fix every number it draws."""
        return np.random.default_rng([seed, *self.id.encode()])


@dataclass(frozen=True, kw_only=True, eq=False)
class Function(Exercise):
    """The reader writes a function; it is run on seeded cases and compared with ``oracle``.

    Args:
        oracle: the reference. Called with each case as it is (structure, shape and dtype of the
            result) and with floating inputs raised to float64 (values), unless ``upcast`` is False.
        cases: ``cases(rng)`` -> the list of cases. It is called anew for every run and must give
            the same cases for the same generator.
        reference: where given, computes the values instead of the oracle, for example in longdouble.
        dtype: ``"kind"`` asks for a float where the oracle gives one; ``"exact"`` for its very dtype.
        lists: whether a list or tuple of numbers may stand where the oracle returns an array.
        fresh: whether the contract asks for new arrays: then the result may not lie in an input's memory.
        held: ``held(*args, **kwargs)`` -> how many bytes an answer may hold at once in a case, or None where
            any number will do. Give it room, and to the last cases only: an import counts too.
        call: how the answer is called, ``call(answer, *args, **kwargs)``; default ``answer(*args, **kwargs)``.
        diagnose: ``diagnose(case, result)`` -> a sentence of the subject that says what is wrong with
            the result ("your rows do not sum to 1."), or None. Asked only about finite wrong values
            in a result of the right form, given as plain arrays.
        forbidden_calls: names the answer may not use: ``"np.linalg.inv"``, ``"sum"``, ``".softmax"`` (a
            method of that name), ``"@"`` (the operator).
        seconds: computing time for all cases together; an answer that only waits has four times as long.
    """

    kind: ClassVar[str] = "function"

    oracle: Callable[..., Any]
    cases: Callable[[np.random.Generator], list[Case]]
    tolerance: Tolerance = field(default_factory=Tolerance)
    reference: Callable[..., Any] | None = None
    dtype: Literal["kind", "exact"] = "kind"
    upcast: bool = True
    lists: bool = False
    fresh: bool = False
    held: Callable[..., int | None] | None = None
    call: Callable[..., Any] | None = None
    diagnose: Callable[[Case, Any], str | None] | None = None
    forbidden_calls: tuple[str, ...] = ()
    seconds: float = 5.0

    def judge(self, answer: Any, seed: int) -> Verdict:
        """Run the answer on the seeded cases and stop at the first finding."""
        from labsupport.grading.function import judge

        return judge(self, answer, seed)

    def right_answer(self) -> Any:
        """Return the oracle."""
        return self.oracle


@dataclass(frozen=True, kw_only=True, eq=False)
class Formula(Exercise):
    """The reader gives a formula as a function; it is sampled at seeded points off singularities.

    Args:
        oracle: the true formula.
        sample: ``sample(rng)`` -> the arguments of one point, as a tuple.
        points_sampled: how many points are drawn.
    """

    kind: ClassVar[str] = "formula"

    oracle: Callable[..., Any]
    sample: Callable[[np.random.Generator], tuple[Any, ...]]
    points_sampled: int = 16
    tolerance: Tolerance = field(default_factory=lambda: Tolerance(c=2.0**20))
    forbidden_calls: tuple[str, ...] = ()

    def judge(self, answer: Any, seed: int) -> Verdict:
        """Sample the answer at seeded points and compare it with the oracle."""
        from labsupport.grading.formula import judge

        return judge(self, answer, seed)

    def right_answer(self) -> Any:
        """Return the oracle."""
        return self.oracle


@dataclass(frozen=True, kw_only=True, eq=False)
class Shape(Exercise):
    """The reader gives a shape: a tuple, a list or a ``torch.Size``."""

    kind: ClassVar[str] = "shape"

    expected: tuple[int, ...]

    def judge(self, answer: Any, seed: int) -> Verdict:
        """Compare axis by axis."""
        from labsupport.grading.shape import judge

        return judge(self, answer)

    def right_answer(self) -> Any:
        """Return the expected shape."""
        return self.expected

    def secrets(self) -> tuple[str, ...]:
        """Return the expected shape as text."""
        from labsupport.grading.shape import spellings

        return spellings(self.expected)


@dataclass(frozen=True, kw_only=True, eq=False)
class Number(Exercise):
    """The reader gives a number with a unit: ``"1.5 GiB"``, ``1.5, "GiB"`` or, in ``default_unit``, ``1.5``.

    Args:
        expected: the true value, in ``unit``.
        unit: its unit; ``"1"`` where it has none.
        rtol: relative allowance; ``exact=True`` allows none.
        default_unit: the unit of a bare number. Without it a bare number of a quantity that has a
            unit is asked for its unit.
    """

    kind: ClassVar[str] = "number"

    expected: float
    unit: str = "1"
    rtol: float = 1e-3
    exact: bool = False
    default_unit: str | None = None

    def judge(self, answer: Any, seed: int) -> Verdict:
        """Compare the dimension first, then the value; name a slip by its ratio."""
        from labsupport.grading.number import judge

        return judge(self, answer)

    def right_answer(self) -> Any:
        """Return the expected value with its unit."""
        return (self.expected, self.unit)

    def secrets(self) -> tuple[str, ...]:
        """Return the expected value as text, in several units and roundings."""
        from labsupport.grading.number import spellings

        return spellings(self)


@dataclass(frozen=True)
class Option:
    """One option of a choice. Every option explains itself, the right one too."""

    text: str
    explanation: str
    correct: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice(Exercise):
    """The reader gives the key of an option, or the keys where several options are right."""

    kind: ClassVar[str] = "choice"

    options: Mapping[str, Option]

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.options) < 2 or not self.correct:
            raise ValueError(f"exercise {self.id!r}: a choice has two options or more and at least one is correct")
        if not all(option.text and option.explanation for option in self.options.values()):
            raise ValueError(f"exercise {self.id!r}: every option has a text and explains itself")

    @property
    def correct(self) -> tuple[str, ...]:
        """The keys of the right options, in order."""
        return tuple(key for key, option in self.options.items() if option.correct)

    def judge(self, answer: Any, seed: int) -> Verdict:
        """Compare the chosen keys with the right ones."""
        from labsupport.grading.choice import judge

        return judge(self, answer)

    def right_answer(self) -> Any:
        """Return the right key, or the tuple of right keys."""
        return self.correct[0] if len(self.correct) == 1 else self.correct

    def question(self) -> tuple[str, ...]:
        """Return the prompt and the options."""
        several = ("Several options are right.",) if len(self.correct) > 1 else ()
        return (*super().question(), *several, *(f"{key}) {option.text}" for key, option in self.options.items()))


@dataclass(frozen=True, kw_only=True, eq=False)
class Written(Exercise):
    """The reader explains in words. The answer is recorded, the rubric shown; nothing passes by itself."""

    kind: ClassVar[str] = "written"

    rubric: tuple[str, ...]
    model: str = ""

    def judge(self, answer: Any, seed: int) -> Verdict:
        """Record the text for review, with the rubric."""
        from labsupport.grading.written import judge

        return judge(self, answer)

    def right_answer(self) -> Any:
        """Return a text that may be recorded."""
        return self.model or "\n".join(self.rubric)


@dataclass(frozen=True, kw_only=True, eq=False)
class Several(Exercise):
    """One exercise of named parts; the answer is a dict by part, or a tuple or list in their order.

    Mistakes and secrets are those of the parts, which need no id of their own: a part's verdict
    speaks under the exercise's.
    """

    kind: ClassVar[str] = "several"

    parts: Mapping[str, Exercise]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.parts:
            raise ValueError(f"exercise {self.id!r}: at least one part is due")
        parts = {name: self._completed(part) for name, part in self.parts.items()}
        object.__setattr__(self, "parts", parts)

    def _completed(self, part: Exercise) -> Exercise:
        inherited = ("chapter", "section", "title", "prompt", "hints")
        missing = {name: getattr(self, name) for name in inherited if not getattr(part, name)}
        return replace(part, id=self.id, **missing)

    def judge(self, answer: Any, seed: int) -> Verdict:
        """Judge the parts in order and stop at the first finding."""
        from labsupport.grading.several import judge

        return judge(self, answer, seed)

    def is_open(self, answer: Any) -> bool:
        """Return whether the answer is a stub, or every part of it is."""
        from labsupport.grading.several import is_open

        return is_open(self, answer)

    def right_answer(self) -> Any:
        """Return the right answers by part."""
        return {name: part.right_answer() for name, part in self.parts.items()}

    def question(self) -> tuple[str, ...]:
        """Return the prompt, then the questions of the parts."""
        lines = list(super().question())
        for name, part in self.parts.items():
            first, *rest = part.question()
            lines.append(f"{name}: {first}" if part.prompt != self.prompt else f"{name}:")
            lines += rest
        return tuple(lines)

    def secrets(self) -> tuple[str, ...]:
        """Return the secrets of all parts."""
        return tuple(text for part in self.parts.values() for text in part.secrets())
