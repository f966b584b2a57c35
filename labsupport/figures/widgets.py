"""Interactive widgets of the book: a figure whose script takes over where scripts run.

Each wrapper works out in Python what a reader without JavaScript sees. The scripts lie in
`book/_static/widgets`; this file knows their configuration, never their logic.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import floor, prod
from pathlib import Path
from typing import Any

import numpy as np

from labsupport.figures import compact, explorable
from labsupport.figures.explorable import Displayable, figcaption, inline
from labsupport.ops import floats, tensors

#: Where the scripts lie in a checkout of the book.
STATIC = Path(__file__).resolve().parents[2] / "book" / "_static"

#: A notebook may run the scripts of an output just before the output joins the page, so look again a little later.
_MOUNT = "[0, 200, 1000].forEach(function (t) { setTimeout(function () { window.labsupport.mountAll(); }, t); });"


class Widget(Displayable):
    """A widget as HTML: its fallback, and in a live kernel its script as well."""

    def __init__(self, name: str, html: str, alt: str) -> None:
        self.name = name
        self.html = html
        self.alt = alt

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        bundle = super()._repr_mimebundle_()
        if explorable.is_live():
            bundle["text/html"] = self.html + live_assets(self.name)
        return bundle


def live_assets(name: str) -> str:
    """Return the widget's style and scripts inline, for a live notebook; nothing outside a checkout."""
    script = STATIC / "widgets" / f"{name}.js"
    if not script.is_file():
        return ""
    style = (STATIC / "explore.css").read_text(encoding="utf-8")
    scripts = [(STATIC / "explore.js").read_text(encoding="utf-8"), script.read_text(encoding="utf-8"), _MOUNT]
    return f"<style>{style}</style>" + "".join(f"<script>{text}</script>" for text in scripts)


def widget(name: str, config: Mapping[str, Any], fallback: str, alt: str, caption: str = "") -> Widget:
    """Return a figure that the script `book/_static/widgets/<name>.js` makes interactive.

    `config` is any JSON; `fallback` is trusted HTML, read where no script runs; `alt` names the widget in one
    sentence. Raises ValueError for an empty fallback or alt, or a name that is not letters and dashes.
    """
    if not name.replace("-", "").isalpha() or name != name.lower():
        raise ValueError(f"a widget's name is lower-case letters and dashes, got {name!r}")
    if not fallback.strip():
        raise ValueError(f"widget {name} needs a fallback: what a reader without scripts sees")
    if not alt.strip():
        raise ValueError(f"widget {name} needs alt text: one sentence that says what it is for")
    data = html.escape(json.dumps(config, ensure_ascii=False, separators=(",", ":"), sort_keys=True))
    text = (
        f'<figure class="lab-figure" data-widget="{name}" data-config="{data}" data-alt="{html.escape(alt)}">'
        f'<div class="lab-fallback">{fallback}</div>{figcaption(caption)}</figure>'
    )
    if len(text.encode()) > explorable.BYTE_LIMIT:
        raise ValueError(f"widget {name} weighs {len(text.encode()):,} bytes, more than {explorable.BYTE_LIMIT:,}")
    return Widget(name, text, alt)


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return an HTML table; the first cell of a row is its heading."""
    top = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in head)
    body = "".join(
        f'<tr><th scope="row">{html.escape(str(row[0]))}</th>'
        + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row[1:]) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


#: Most elements the stride explorer draws.
STRIDE_CELLS = 64


def strides_explorer(
    shape: Sequence[int] = (3, 4), operations: Sequence[Mapping[str, Any]] = (), caption: str = "",
) -> Widget:
    """Return the stride explorer over `arange` of `shape`: views, copies, strides and where each element lies.

    `operations` are applied at the start, each `{"name": ..., ...}`: transpose, slice (axis, start, stop, step),
    flip (axis), newaxis (axis), broadcast (shape), reshape (shape), contiguous.
    Raises ValueError for a shape of no or of more than 64 elements.
    """
    sizes = [int(size) for size in shape]
    if not sizes or min(sizes) < 1 or prod(sizes) > STRIDE_CELLS:
        raise ValueError(f"the stride explorer draws shapes of 1 to {STRIDE_CELLS} elements, got {tuple(sizes)}")
    x = np.arange(prod(sizes)).reshape(sizes)
    samples = [
        ("x", x), ("x.T", x.T), ("x[..., ::2]", x[..., ::2]), ("x[::-1]", x[::-1]), ("x[None]", x[None]),
        ("x.reshape(-1)", x.reshape(-1)), ("x.T.reshape(-1)", x.T.reshape(-1)),
    ]
    rows = [
        (code, y.shape, tuple(step // y.itemsize for step in y.strides), "yes" if y.flags.c_contiguous else "no",
         "view" if np.shares_memory(x, y) else "copy")
        for code, y in samples
    ]
    fallback = _table(["expression", "shape", "strides (elements)", "C-contiguous", "view or copy"], rows)
    config = {"shape": sizes, "operations": [dict(one) for one in operations]}
    return widget("strides", config, fallback, _STRIDES_ALT.format(shape=tuple(sizes)), caption)


_STRIDES_ALT = "Stride explorer: the elements of an array of shape {shape} and the buffer cells they lie in"


def bit_explorer(value: float = 0.1, format: str = "FP16", caption: str = "") -> Widget:
    """Return the float bit explorer, opened at `value` in one of FP32 TF32 FP16 BF16 E4M3 E5M2.

    Raises ValueError for another format.
    """
    formats = {one.name: one for one in floats.FORMATS}
    if format not in formats:
        raise ValueError(f"no float format {format!r}; the explorer has {', '.join(formats)}")
    rows = []
    for one in formats.values():
        bits = f"{int(one.encode(value)):0{one.bits}b}"
        cut = 1 + one.exponent_bits
        spaced = " ".join((bits[0], bits[1:cut], bits[cut:]))
        rows.append((one.name, spaced, f"{float(one.round(value)):.10g}", f"{float(one.ulp(value)):.4g}"))
    fallback = _table(["format", "sign, exponent, mantissa", f"{value:g} is stored as", "spacing"], rows)
    shown: float | str = value if np.isfinite(value) else f"{value}"
    return widget(
        "bits", {"format": format, "value": shown}, fallback,
        "Float bit explorer: flip the bits of a number and see its exact value and its neighbours", caption,
    )


#: Bytes an element of the worksheet's dtypes.
WIDTHS = {"FP32": 4, "BF16": 2, "FP16": 2, "FP8": 1}


def _ratio(numerator: int, denominator: int, digits: int) -> str:
    """Return numerator / denominator rounded half up, thousands grouped: `1,536.000`."""
    scale = 10**digits
    units = floor(Fraction(numerator * scale, denominator) + Fraction(1, 2))
    return f"{units // scale:,}" + (f".{units % scale:0{digits}d}" if digits else "")


def _bytes(count: int) -> str:
    return f"{count:,} B = {_ratio(count, 2**30, 3)} GiB = {_ratio(count, 10**9, 3)} GB"


def worksheet_rows(B: int, S: int, H: int, V: int, dtype: str = "BF16") -> list[tuple[str, str, str]]:
    """Return (quantity, formula, written value) for logits (B, S, V) = X (B, S, H) @ W (H, V), counts exact."""
    width = WIDTHS[dtype]
    flops, weight, activation, logits = 2 * B * S * H * V, H * V * width, B * S * H * width, B * S * V * width
    everything = weight + activation + logits
    return [
        ("shape of the logits", "(B, S, H) @ (H, V)", f"({B}, {S}, {V})"),
        ("FLOPs", "2·B·S·H·V", f"{flops:,} FLOP = {_ratio(flops, 10**12, 3)} TFLOP"),
        ("bytes of the weight", "H·V·e", _bytes(weight)),
        ("bytes of the activation", "B·S·H·e", _bytes(activation)),
        ("bytes of the logits", "B·S·V·e", _bytes(logits)),
        ("arithmetic intensity", "FLOPs / (weight + activation + logits)", f"{_ratio(flops, everything, 2)} FLOP/B"),
    ]


def worksheet(
    B: int = 4, S: int = 2048, H: int = 4096, V: int = 128256, dtype: str = "BF16", caption: str = "",
) -> Widget:
    """Return the worksheet of the LM head: the reader predicts shape, FLOPs, bytes and intensity, then looks.

    Raises ValueError for a size outside 1 to 10**9 or a dtype other than FP32, BF16, FP16, FP8.
    """
    sizes = {"B": B, "S": S, "H": H, "V": V}
    for name, size in sizes.items():
        if not (isinstance(size, int) and 1 <= size <= 10**9):
            raise ValueError(f"{name} must be a whole number from 1 to 1,000,000,000, got {size!r}")
    if dtype not in WIDTHS:
        raise ValueError(f"no dtype {dtype!r} on the worksheet; it has {', '.join(WIDTHS)}")
    setting = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    results = _table(["quantity", "formula", "value"], worksheet_rows(B, S, H, V, dtype))
    fallback = (
        f"<p>Predict for {setting} in {dtype} (e = {WIDTHS[dtype]} bytes): the shape of the logits, the FLOPs, the "
        f"bytes of weight, activation and logits, the arithmetic intensity.</p>"
        f"<details><summary>Show the results</summary>{results}</details>"
    )
    return widget(
        "worksheet", {**{name: str(size) for name, size in sizes.items()}, "dtype": dtype}, fallback,
        "Worksheet: predict the shape, FLOPs, bytes and arithmetic intensity of the LM head", caption,
    )


def broadcast_explorer(a: Sequence[int] = (8, 1, 3), b: Sequence[int] = (7, 1), caption: str = "") -> Widget:
    """Return the broadcasting explorer: two shapes lined up at the last axis and decided axis by axis."""
    left, right = [int(size) for size in a], [int(size) for size in b]
    width = max(len(left), len(right))
    lines = {"a": left, "b": right}
    rows: list[list[Any]] = [
        [name, *["–"] * (width - len(sizes)), *sizes] for name, sizes in lines.items()
    ]
    try:
        result: Sequence[Any] = tensors.broadcast_shape(tuple(left), tuple(right))
        end = f"<p>The result has shape {tuple(result)}.</p>"
        rows.append(["result", *result])
    except ValueError as error:
        end = f"<p>{html.escape(str(error))}</p>"
    fallback = _table(["axis", *[str(axis) for axis in range(-width, 0)]], rows) + end
    return widget(
        "broadcast", {"a": left, "b": right}, fallback,
        "Broadcasting explorer: two shapes lined up at the last axis, and the size of each result axis", caption,
    )


def steps(items: Sequence[tuple[str, str, Any]], alt: str, caption: str = "") -> Widget:
    """Return a player of `(title, text, drawing)` steps; a drawing is an SVG string or a matplotlib Figure.

    Without scripts all steps stand below each other. `text` is also the alternative text of its drawing, so it
    says what changes. Raises ValueError for no step, an empty title or text, or drawings of several sizes.
    """
    if not items:
        raise ValueError("a player needs at least one step (title, text, drawing)")
    for number, (title, text, _) in enumerate(items, 1):
        if not title.strip() or not text.strip():
            raise ValueError(f"step {number} needs a title and a text that says what changes")
    frames = compact.named([compact.picture(drawing) for _, _, drawing in items], alt)
    sizes = sorted({(frame.width, frame.height) for frame in frames})
    if len(sizes) > 1:
        raise ValueError(f"all steps need drawings of one size, got {sizes[0]} and {sizes[-1]}")

    def heard(title: str, text: str) -> str:
        return f"{title.rstrip('.:')}: {text}"

    listed = "".join(
        f'<li><p class="lab-step-text tex2jax_process"><strong>{inline(title)}</strong> {inline(text)}</p>'
        f"{compact.markup(frame, heard(title, text))}</li>"
        for (title, text, _), frame in zip(items, frames, strict=True)
    )
    return widget("steps", {"count": len(items)}, f'<ol class="lab-steps">{listed}</ol>', alt, caption)
