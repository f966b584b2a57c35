"""The exercise kind whose answer is an operator card.

It runs the reader's functions under guard and reports the first question that a run refutes. It must never accept one
of the cards that the book prints.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from labsupport.grading import Exercise, guard
from labsupport.grading.answers import type_name
from labsupport.grading.judge import failed, passed, todo
from labsupport.grading.verdict import Verdict
from labsupport.operator_card.card import QUESTIONS, OperatorCard
from labsupport.operator_card.cards import CARDS
from labsupport.operator_card.operators import OPERATORS
from labsupport.operator_card.review import review


@dataclass(frozen=True, kw_only=True, eq=False)
class CardExercise(Exercise):
    """The reader fills in a card for one of ``choices``: an ``OperatorCard``, or a function without arguments of one.

    Args:
        model: a card that is right.
        explanations: slip → the sentence that sets the reader right.
        seconds: computing time for all runs together.
    """

    kind: ClassVar[str] = "card"

    model: OperatorCard
    explanations: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 20.0

    @property
    def choices(self) -> tuple[str, ...]:
        """The operators that may be chosen: those whose card the book does not print."""
        return tuple(name for name in OPERATORS if name not in CARDS)

    def judge(self, answer: Any, seed: int) -> Verdict:
        """Run the card's functions and report the first question that a run refutes."""
        with guard.session(self.seconds):
            card, problem = _card_of(answer)
            if problem:
                return failed(self, problem)
            if card is None or not card.is_complete:
                return todo(self)
            if card.operator not in self.choices:
                what = "its card is printed in the book" if card.operator in CARDS else "it is not on the list"
                return failed(self, f"choose another operator: {what}.", f"The list is {', '.join(self.choices)}.")
            findings = review(card, seed)
        if not findings:
            return passed(self, f"no run refutes your card of {card.operator}: all ten questions hold.")
        first = findings[0]
        others = [str(finding.question) for finding in findings[1:]]
        more = f"Also look at question {', '.join(others)}." if others else ""
        explanation = self.explanations.get(first.slip, "")
        known = first.slip if first.slip in self.explanations else None
        question = f"question {first.question} ({QUESTIONS[first.question - 1][:-1].lower()}): {first.text}"
        return failed(self, question, explanation, more, mistake=known)

    def right_answer(self) -> Any:
        """Return a right card."""
        return self.model


def _card_of(answer: Any) -> tuple[OperatorCard | None, str]:
    """The card in an answer, or a sentence on why there is none; (None, "") where it is still to do."""
    if callable(answer) and not isinstance(answer, type | OperatorCard):
        outcome = guard.run(answer)
        if outcome.raised is not None:
            told = f" ({outcome.raised})" if type(outcome.raised) in (TypeError, ValueError) else ""
            return None, f"your function raised {type(outcome.raised).__name__}{told} before it returned a card."
        answer = outcome.value
        if answer is ...:
            return None, ""
    if type(answer) is not OperatorCard:
        return None, f"an OperatorCard is due, or a function that returns one; you passed {type_name(answer)}."
    return answer, ""
