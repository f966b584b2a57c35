"""Figures of chapter 1: the shapes of the LM head, where its traffic goes, and the worksheet.

Every number shown is computed by `labsupport.cost`. This file must never type a result.
"""

from typing import Any

from labsupport.cost import linear_cost, tensor_bytes
from labsupport.figures import explore, show, style, svg
from labsupport.figures.explorable import Explorable, Figure
from labsupport.figures.widgets import Widget
from labsupport.figures.widgets import worksheet as worksheet_widget

H, V = 4096, 128_256


def lm_head() -> Figure:
    """X (B, S, H) and W (H, V) as blocks; the axis H is marked in both and gone in the logits."""
    drawing = svg.picture(
        360,
        200,
        svg.rect(14, 60, 86, 84, color="blue", fill="blue"),
        svg.text(57, 102, "X", size=20, bold=True),
        svg.text(57, 48, "H", color="red", bold=True),
        svg.line([(14, 56), (100, 56)], color="red", width=3),
        svg.text(10, 160, "B·S rows", size=13, anchor="start"),
        svg.text(114, 102, "@", size=18),
        svg.rect(130, 30, 92, 84, color="orange", fill="orange"),
        svg.text(176, 72, "W", size=20, bold=True),
        svg.text(176, 18, "V", bold=True),
        svg.line([(126, 30), (126, 114)], color="red", width=3),
        svg.text(118, 40, "H", color="red", bold=True),
        svg.text(238, 102, "=", size=18),
        svg.rect(254, 60, 92, 84, color="green", fill="green"),
        svg.text(300, 102, "logits", size=17, bold=True),
        svg.text(300, 48, "V", bold=True),
        svg.text(252, 160, "B·S rows", size=13, anchor="start"),
        svg.text(180, 186, "H meets H and is summed away", size=13, color="red"),
    )
    return show(
        drawing,
        alt="X with B times S rows and H columns, times W with H rows and V columns, gives logits with B times S "
        "rows and V columns; the two H axes meet and disappear.",
        caption="$H$ is reduced; $B$, $S$ and $V$ stay.",
    )


def _parts(tokens: int, dtype: str) -> dict[str, int]:
    """Bytes of the three tensors of the LM head."""
    return {
        "X": tensor_bytes((tokens, H), dtype),
        "W": tensor_bytes((H, V), dtype),
        "logits": tensor_bytes((tokens, V), dtype),
    }


def traffic_by_tokens() -> Explorable:
    """Shares of X, W and the logits in the least traffic, and the intensity, by tokens and dtype."""

    def draw(tokens: int, dtype: str) -> Any:
        parts = _parts(tokens, dtype)
        total = sum(parts.values())
        fig, ax = style.new(5.2, 3.0)
        left = 0.0
        colours = {"X": style.PALETTE.blue, "W": style.PALETTE.orange, "logits": style.PALETTE.green}
        for name, count in parts.items():
            share = 100 * count / total
            ax.barh(0, share, left=left, color=colours[name], height=0.6, alpha=0.55, label=name)
            if share > 12:
                ax.text(left + share / 2, 0, f"{name}\n{share:.0f} %", ha="center", va="center")
            left += share
        ax.set_xlim(0, 100)
        ax.set_ylim(-0.5, 0.9)
        ax.set_yticks([])
        ax.set_xlabel("share of the bytes moved, %")
        ax.legend(loc="upper center", ncols=3)
        intensity = linear_cost(tokens, H, V, dtype).intensity
        ax.set_title(f"intensity {intensity:,.1f} FLOP/B")
        return fig

    def alt(tokens: int, dtype: str) -> str:
        parts = _parts(tokens, dtype)
        total = sum(parts.values())
        shares = ", ".join(f"{name} {100 * count / total:.0f} percent" for name, count in parts.items())
        intensity = linear_cost(tokens, H, V, dtype).intensity
        return f"With {tokens} tokens in {dtype} the bytes moved are {shares}; {intensity:,.1f} FLOP for each byte."

    return explore(
        draw,
        alt=alt,
        caption="From one token to 16,384, the traffic of the LM head ($H=4096$, $V=128{,}256$) turns from weight "
        "to logits.",
        start={"tokens": 4, "dtype": "bfloat16"},
        labels={"tokens": "tokens B·S", "dtype": "dtype"},
        tokens=[1, 4, 16, 64, 256, 1024, 4096, 16384],
        dtype=["float32", "bfloat16", "float8_e4m3"],
    )


def worksheet() -> Widget:
    """The three questions as a form: sizes and dtype in; shape, FLOPs, bytes and intensity after a prediction."""
    return worksheet_widget(
        B=4, S=2048, H=H, V=V, dtype="BF16", caption="Predict first; the worksheet then shows what the formulas say."
    )
