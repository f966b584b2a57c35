"""Shows operator cards: one as a table in markdown, and the page of the book with the ten questions and five cards.

``book/operator-checklist.md`` is what ``page()`` returns; a test holds the two together. This file must never say
anything about an operator that its card does not say.
"""

from collections.abc import Mapping
from pathlib import Path

from labsupport.operator_card.card import QUESTIONS, RISKS, OperatorCard, words
from labsupport.operator_card.cards import CARDS
from labsupport.operator_card.operators import OPERATORS

Axes = tuple[str, ...]


def _axes(axes: Axes) -> str:
    return f"({', '.join(axes)}{',' if len(axes) == 1 else ''})"


def _shapes(arrays: Mapping[str, Axes]) -> str:
    return ", ".join(f"`{name}` {_axes(axes)}" for name, axes in arrays.items()) or "none"


def _names(names: Axes) -> str:
    return ", ".join(names) or "none"


def _answers(card: OperatorCard) -> tuple[str, ...]:
    """The ten answers as one line each."""
    letters = tuple(OPERATORS[card.operator].sizes)
    cost = [
        f"matrix products {words(card.matmul_flops, letters)} FLOPs",
        f"the rest about {words(card.other_flops, letters)}",
        f"at least {words(card.min_bytes, ('e', *letters))} bytes",
    ]
    repeated = "; ".join(f"`{name}` along {_names(axes)}" for name, axes in card.broadcast.items())
    padding = ", ".join(f"`{name}` by {_number(value)}" for name, value in (card.padding or {}).items())
    tolerance = ", ".join(f"{dtype} {value:g}" for dtype, value in card.tolerance.items())
    return (
        f"in {_shapes(card.inputs)}; out {_axes(card.output)}; intermediates {_shapes(card.intermediates)}",
        f"kept {_names(card.kept)}; reduced {_names(card.reduced)}",
        f"along {card.tile_axis}: {card.state_words}" if card.tile_axis else "tiles are independent",
        "; ".join(cost),
        f"broadcast {repeated or 'none'}; {card.layout or 'contiguous'}",
        f"{card.accumulator} for {card.sensitive}" if card.sensitive else "none",
        "; ".join(f"{risk}: {RISKS[risk]}" for risk in card.risks) or "none",
        ", ".join(f"`{name}`" for name in card.fused) or "there are none",
        f"pad {padding}; {card.tail}" if card.padding else card.tail,
        f"a safe reference in float64; {tolerance} of the largest result; inputs that break the textbook formula",
    )


def _number(value: float) -> str:
    return f"{value:g}".replace("-inf", "−∞")


#: The questions in two words, for tables.
SHORT: tuple[str, ...] = (
    "Shapes", "Axes", "Tiles", "Cost", "Layout", "Precision", "Risks", "Fusion", "Tails", "Test",
)  # fmt: skip


def render(card: OperatorCard) -> str:
    """One card as a markdown table, question by question."""
    rows = [
        f"| {number} {short} | {answer} |"
        for number, (short, answer) in enumerate(zip(SHORT, _answers(card), strict=True), 1)
    ]
    return "\n".join(["| Question | Answer |", "|---|---|", *rows])


_OPENING = """\
# From a formula to a kernel: the operator checklist

Ten questions, asked in this order, turn a formula into a plan for a kernel. Section {ref}`10.8 <sec-10-8>` works
through them, and the exercise `operator-card` lets you answer them for an operator of your choice.

## The ten questions

"""

_CARDS = """\
## Five cards, filled in

On each card, letters are axis sizes, and e is the number of bytes of one element. M, N and K are those of a matrix
product; elsewhere N counts rows or tokens, V classes, H features, G sequences times heads, S_q and S_k queries and
keys, D_h and D_v the widths of a head. An axis of size 1 is written 1. Every answer that can be run was held
against runs of the operator: shapes, the independence of kept axes, tiles merged in several ways, FLOPs against
PyTorch's own counter, the bytes of inputs and outputs, padding, tolerances, and extreme inputs.
"""


def page() -> str:
    """The whole page ``book/operator-checklist.md``."""
    parts = [_OPENING + "\n".join(f"{n}. {question}" for n, question in enumerate(QUESTIONS, 1)) + "\n", _CARDS]
    for name, card in CARDS.items():
        operator = OPERATORS[name]
        parts.append(f"### {operator.title}\n\n$$\n{operator.formula}\n$$\n\n{render(card)}\n")
    return "\n".join(parts)


def write(root: Path) -> None:
    """Write the page into a checkout of the book."""
    (root / "book" / "operator-checklist.md").write_text(page(), encoding="utf-8")
