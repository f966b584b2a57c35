"""Cards under review: the five of the book hold, a wrong answer is found at its own question, the page is current."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from labsupport.operator_card import CARDS, QUESTIONS, CardExercise, OperatorCard, page, render, review
from labsupport.operator_card.card import words
from labsupport.ops.softmax import softmax

ROOT = Path(__file__).resolve().parents[2]
MATMUL, SOFTMAX, NORM = CARDS["matmul"], CARDS["softmax"], CARDS["layer_norm"]
ATTENTION, LOSS = CARDS["attention"], CARDS["cross_entropy"]


@pytest.mark.parametrize("name", CARDS)
@pytest.mark.parametrize("seed", [0, 1, 20_231_117])
def test_the_cards_of_the_book_hold(name, seed):
    assert review(CARDS[name], seed) == []


def naive_sum(start, x):
    return np.exp(x).sum(axis=-1)


WRONG = [
    (MATMUL, 1, "shape", {"output": ("N", "M")}),
    (MATMUL, 1, "unknown-axis", {"output": ("M", "Q")}),
    (SOFTMAX, 1, "shape", {"intermediates": {"exponentials": ("N", "V"), "total": ("N",)}}),
    (SOFTMAX, 1, "shape-names", {"intermediates": {"exponentials": ("N", "V")}}),
    (MATMUL, 2, "axes-partition", {"kept": ("M",)}),
    (MATMUL, 2, "kept-called-reduced", {"kept": ("M",), "reduced": ("K", "N")}),
    (ATTENTION, 2, "reduced-called-kept", {"kept": ("G", "S_q", "D_v", "D_h"), "reduced": ("S_k",)}),
    (SOFTMAX, 2, "reduced-called-kept", {"kept": ("N", "V"), "reduced": ()}),
    (MATMUL, 3, "tile-axis", {"tile_axis": "M"}),
    (MATMUL, 3, "no-merge", {"merge": None}),
    (MATMUL, 3, "merge-wrong-plain", {"merge": lambda a, b: b}),
    (MATMUL, 3, "merge-wrong-plain", {"merge": lambda a, b: (a + b) / 2}),
    (NORM, 3, "merge-wrong-plain", {"merge": lambda a, b: tuple(p + q for p, q in zip(a, b, strict=True))}),
    (SOFTMAX, 3, "merge-wrong-extreme", {
        "state": naive_sum, "merge": lambda a, b: a + b, "finish": lambda s, x: np.exp(x) / s[:, None],
    }),
    (SOFTMAX, 3, "state-grows", {
        "state": lambda start, x: x, "merge": lambda a, b: np.concatenate([a, b], -1),
        "finish": lambda s, x: softmax(s),
    }),
    (SOFTMAX, 3, "merge-fails", {"merge": lambda a, b: a["m"]}),
    (MATMUL, 3, "merge-shape", {"finish": lambda s, A, B: s.sum()}),
    (MATMUL, 4, "multiply-add", {"matmul_flops": lambda M, N, K: M * N * K}),
    (MATMUL, 4, "matmul-flops", {"matmul_flops": lambda M, N, K: 2 * M * N}),
    (SOFTMAX, 4, "other-flops", {"other_flops": lambda N, V: N * V}),
    (MATMUL, 4, "elements", {"min_bytes": lambda e, M, N, K: M * K + K * N + M * N}),
    (MATMUL, 4, "min-bytes", {"min_bytes": lambda e, M, N, K: 2 * e * M * N * K}),
    (MATMUL, 4, "elements", {"min_bytes": lambda e, M, N, K: 2 * (M * K + K * N + M * N)}),
    (SOFTMAX, 4, "min-bytes", {"min_bytes": lambda e, N, V: e * N * V}),
    (MATMUL, 4, "cost-fails", {"min_bytes": lambda e, M, N, K: 0.5}),
    (NORM, 5, "broadcast", {"broadcast": {}}),
    (MATMUL, 5, "broadcast", {"broadcast": {"A": ("N",)}}),
    (MATMUL, 6, "accumulator", {"accumulator": "float16"}),
    (MATMUL, 6, "sensitive", {"sensitive": ""}),
    (SOFTMAX, 7, "no-overflow", {"risks": ("zero", "long reduction")}),
    (NORM, 7, "no-cancellation", {"risks": ("overflow", "long reduction")}),
    (MATMUL, 7, "no-long-reduction", {"risks": ("overflow",)}),
    (MATMUL, 7, "impossible-risk", {"risks": ("overflow", "zero", "long reduction")}),
    (MATMUL, 7, "unknown-risk", {"risks": ("overflow", "long reduction", "boredom")}),
    (ATTENTION, 8, "nothing-fused", {"fused": ()}),
    (ATTENTION, 8, "fused-odd", {"fused": ("scores", "Q")}),
    (SOFTMAX, 9, "padding", {"padding": {"x": 0.0}}),
    (SOFTMAX, 9, "padding-exists", {"padding": None}),
    (NORM, 9, "padding", {"padding": {"x": 0.0, "gamma": 0.0, "beta": 0.0}}),
    (ATTENTION, 9, "padding", {"padding": {"K": 0.0, "V": 0.0}}),
    (MATMUL, 9, "padding-names", {"padding": {"A": 0.0}}),
    (NORM, 9, "tail", {"tail": ""}),
    (SOFTMAX, 10, "reference", {"reference": lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)}),
    (SOFTMAX, 10, "test-fails", {"reference": lambda x: "softmax"}),
    (SOFTMAX, 10, "too-tight", {"tolerance": {"float32": 1e-9, "float16": 2e-3}}),
    (SOFTMAX, 10, "too-tight", {"tolerance": {"float32": 1e-5, "float16": 1e-5}}),
    (SOFTMAX, 10, "too-loose", {"tolerance": {"float32": 1e-2, "float16": 2e-3}}),
    (LOSS, 10, "too-loose", {"tolerance": {"float32": 1e-5, "float16": 0.1}}),
    (LOSS, 10, "tolerance-names", {"tolerance": {"float32": 1e-5}}),
    (SOFTMAX, 10, "extreme-harmless", {"extreme": lambda x: {"x": x}}),
    (SOFTMAX, 10, "extreme-too-hard", {"extreme": lambda x: {"x": x * np.inf}}),
    (SOFTMAX, 10, "extreme-form", {"extreme": lambda x: x * 300}),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("card", "question", "slip", "changes"), WRONG)
def test_a_wrong_answer_is_found_at_its_question(card, question, slip, changes):
    findings = {finding.question: finding for finding in review(replace(card, **changes), 0)}
    assert question in findings
    assert findings[question].slip == slip
    assert findings[question].text.endswith(".")


def test_every_question_has_a_wrong_answer_that_is_found():
    assert {question for _, question, _, _ in WRONG} == set(range(1, len(QUESTIONS) + 1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output": "MN"}, "output is str; it must be a tuple"),
        ({"inputs": {"A": "MK"}}, "inputs is dict; it must be a dict of tuples"),
        ({"tolerance": {"float32": "small"}}, "tolerance is dict; it must be a dict of numbers"),
        ({"merge": 3}, "merge is int; it must be a function"),
        ({"tail": None}, "tail is NoneType; it must be a string"),
    ],
)
def test_a_field_of_the_wrong_kind_is_refused_at_once(changes, message):
    with pytest.raises(TypeError, match=message):
        replace(MATMUL, **changes)


def test_an_unknown_operator_is_refused():
    with pytest.raises(ValueError, match="no operator 'conv'"):
        review(replace(MATMUL, operator="conv"))


def test_formulas_become_words():
    assert words(lambda M, K: 2 * M * K, ("M", "K")) == "2·M·K"
    assert words(lambda e, M, K: e * (M + K) + 8, ("e", "M", "K")) == "e·(M + K) + 8"
    assert words(lambda M: 1 * M + 0, ("M",)) == "M"
    assert words(lambda M: 0, ("M",)) == "0"
    assert words(lambda M, K: M - (M - K), ("M", "K")) == "M − (M − K)"


def test_a_card_shows_every_answer():
    text = render(NORM)
    for part in ("`gamma` (H,)", "kept N; reduced H", "8·N·H", "`gamma` along N", "cancellation"):
        assert part in text
    assert len(text.splitlines()) == 2 + len(QUESTIONS)


def test_the_page_of_the_book_is_what_the_cards_say():
    assert (ROOT / "book" / "operator-checklist.md").read_text(encoding="utf-8") == page()


EXERCISE = CardExercise(
    id="a-card", chapter=10, section="10.8", title="A card", prompt="Fill in a card.", hints=("Run it.",), model=MATMUL
)


@pytest.mark.parametrize(
    ("answer", "state", "words"),
    [
        (lambda: ..., "todo", "to do"),
        (replace(MATMUL, tail=...), "todo", "to do"),
        (MATMUL, "fail", "its card is printed in the book"),
        (lambda: replace(MATMUL, operator="conv"), "fail", "it is not on the list"),
        (lambda: 1 / 0, "fail", "raised ZeroDivisionError"),
        (lambda: OperatorCard(operator="matmul"), "fail", "raised TypeError"),
        ({"operator": "matmul"}, "fail", "you passed a dict"),
        (OperatorCard, "fail", "you passed a class"),
    ],
)
def test_answers_that_are_no_card_of_the_list(answer, state, words):
    verdict = EXERCISE.judge(answer, 0)
    assert verdict.state == state
    assert words in verdict.message


def test_a_batched_product_is_a_matrix_product_with_one_more_kept_axis():
    card = replace(
        MATMUL,
        operator="batched_matmul",
        inputs={"A": ("G", "M", "K"), "B": ("G", "K", "N")},
        output=("G", "M", "N"),
        kept=("G", "M", "N"),
        matmul_flops=lambda G, M, N, K: 2 * G * M * N * K,
        other_flops=lambda G, M, N, K: 0,
        min_bytes=lambda e, G, M, N, K: e * G * (M * K + K * N + M * N),
    )
    assert EXERCISE.judge(card, 0).passed
    assert EXERCISE.judge(lambda: card, 1).passed
    endless = replace(card, merge=lambda a, b: [0 for _ in iter(int, 1)])
    verdict = replace(EXERCISE, seconds=0.3).judge(endless, 0)
    assert verdict.state == "fail"
    assert "took too long" in verdict.message
