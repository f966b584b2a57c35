"""Operator cards: the ten questions from a formula to a kernel, answered as data that a judge can run.

``OPERATORS`` lists what a card may describe, ``OperatorCard`` is the card, ``review`` holds it against runs of the
operator, and ``CARDS`` are the five that the book fills in. Nothing here may accept an answer that a run refutes.
"""

from labsupport.operator_card.card import QUESTIONS, RISKS, OperatorCard
from labsupport.operator_card.cards import CARDS
from labsupport.operator_card.exercise import CardExercise
from labsupport.operator_card.operators import OPERATORS, Operator, brief
from labsupport.operator_card.page import page, render
from labsupport.operator_card.review import Finding, review

__all__ = [
    "CARDS",
    "OPERATORS",
    "QUESTIONS",
    "RISKS",
    "CardExercise",
    "Finding",
    "Operator",
    "OperatorCard",
    "brief",
    "page",
    "render",
    "review",
]
