"""Turns a matplotlib figure or a hand-made SVG into a small, repeatable picture for inline use.

The result is a list of parts (SVG elements as text) without metadata, with rounded coordinates,
with the page's text colour for black and with ids that belong to this picture alone.
This file never decides what a picture shows; it only writes the same picture shorter.
"""

from __future__ import annotations

import hashlib
import html
import io
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from labsupport.figures import style

Element = ET.Element

#: Screen pixels per unit of a matplotlib figure (72 units an inch) at the widest.
FIGURE_SCALE = 1.25

_NUMBER = re.compile(r"-?\d*\.?\d+(?:[eE][-+]?\d+)?")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_TOKEN = re.compile(r"@@([0-9a-f]{10})@@")
_COORDINATES = {"d", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "rx", "ry", "dx", "dy", "points", "width",
                "height"}
_SKIPPED = {"metadata", "title", "desc", "style"}
_DEFAULTS = {
    ("stroke-linejoin", "round"), ("stroke-linejoin", "miter"), ("stroke-miterlimit", "10"),
    ("stroke-linecap", "butt"), ("stroke-width", "1"), ("stroke-opacity", "1"), ("fill-opacity", "1"),
    ("opacity", "1"), ("text-anchor", "start"), ("stroke-dashoffset", "0"), ("font-weight", "400"),
    ("font-style", "normal"), ("fill", "currentColor"), ("stroke", "none"),
}
_COLOURS = {"#000000": "currentColor", "#000": "currentColor", "black": "currentColor"} | {
    value: f"var(--lab-{name},{value})" for name, value in style.PALETTE._asdict().items()
}
_COLOURS |= dict.fromkeys(("#ffffff", "#fff", "white"), "var(--lab-ground,var(--jp-layout-color0,#fff))")


@dataclass(frozen=True)
class Picture:
    """A drawing as text: its size in user units and its elements in painting order."""

    width: float
    height: float
    scale: float
    parts: tuple[str, ...]


def picture(drawing: Any) -> Picture:
    """Return the compact picture of a matplotlib Figure (which is closed) or of an SVG string.

    Raises ValueError when `drawing` is neither, or when the SVG has no viewBox.
    """
    if isinstance(drawing, str):
        return _from_svg(drawing, scale=1.0)
    if hasattr(drawing, "savefig") and hasattr(drawing, "get_size_inches"):
        return _from_svg(_saved(drawing), scale=FIGURE_SCALE)
    raise ValueError(
        f"a drawing function must return a matplotlib Figure or an SVG string, got {type(drawing).__name__}; "
        "end it with `return fig`"
    )


def _saved(fig: Any) -> str:
    """Return the figure's SVG text and close it where pyplot holds it."""
    buffer = io.StringIO()
    with style.context():
        style.settle(fig)
        fig.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close(fig)
    return buffer.getvalue()


def _from_svg(text: str, scale: float) -> Picture:
    try:
        root = ET.fromstring(text.strip())
    except ET.ParseError as error:
        raise ValueError(f"the SVG of a drawing does not parse as XML: {error}") from error
    box = [float(value) for value in root.get("viewBox", "").replace(",", " ").split()]
    if _local(root.tag) != "svg" or len(box) != 4 or box[:2] != [0, 0]:
        found = root.get("viewBox")
        raise ValueError(f'an SVG drawing needs <svg viewBox="0 0 width height">, got viewBox={found!r}')
    writer = _Writer(root)
    return Picture(box[2], box[3], scale, tuple(writer.parts()))


def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


def short(value: float | str, digits: int = 1) -> str:
    """Return the number rounded to `digits` decimals as short text: `-0.04` is `0`, `2.50` is `2.5`.

    Rounded twice, first to six decimals: a value that differs in its last bits on another CPU,
    and lies on the border between two roundings, still gives the same text.
    """
    exact = Decimal(f"{float(value):.6f}").quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP)
    plain = f"{exact:f}"
    text = plain.rstrip("0").rstrip(".") if "." in plain else plain
    return "0" if text in {"-0", ""} else text


def _path(data: str) -> str:
    """Shorten path data: rounded numbers, implicit line-to commands, no needless spaces."""
    out: list[str] = []
    previous = ""
    for command, arguments in re.findall(r"([A-Za-z])([^A-Za-z]*)", data):
        numbers = " ".join(short(number) for number in _NUMBER.findall(arguments))
        if command == "L" and previous == "L":
            if out[-1] != numbers:
                out += [" ", numbers]
            continue
        out += [command, numbers]
        previous = command
    return "".join(out)


class _Writer:
    """Writes the elements under one SVG root as short text. Ids become content tokens `@@hash@@`."""

    def __init__(self, root: Element) -> None:
        self.root = root
        self.boxes: dict[str, tuple[float, ...]] = {}
        self.tokens: dict[str, str] = {}
        self.definitions: dict[str, str] = {}
        self._define()

    def parts(self) -> list[str]:
        """Return the drawn elements in order, each definition just before its first use."""
        out: list[str] = []
        seen: set[str] = set()
        for child in self.root:
            for text in self._flat(child):
                for token in _TOKEN.findall(text):
                    if token not in seen and token in self.definitions:
                        seen.add(token)
                        out.append(f"<defs>{self.definitions[token]}</defs>")
                out.append(text)
        return out

    def _define(self) -> None:
        for definitions in self.root.iter():
            if _local(definitions.tag) != "defs":
                continue
            for child in definitions:
                name = child.get("id")
                if name is None or _local(child.tag) in _SKIPPED:
                    continue
                if _local(child.tag) == "clipPath":
                    self._remember_box(name, child)
                child.attrib.pop("id")
                body = self._text(child)
                token = hashlib.sha256(body.encode()).hexdigest()[:10]
                self.tokens[name] = token
                self.definitions[token] = re.sub(r"^<(\w+)", rf'<\1 id="@@{token}@@"', body)

    def _remember_box(self, name: str, clip: Element) -> None:
        rect = next((child for child in clip if _local(child.tag) == "rect"), None)
        if rect is not None and not rect.get("transform"):
            x, y, w, h = (float(rect.get(key, 0)) for key in ("x", "y", "width", "height"))
            self.boxes[name] = (x, y, x + w, y + h)

    def _flat(self, element: Element) -> list[str]:
        """Return the element as parts: groups that carry no attribute dissolve into their children."""
        tag = _local(element.tag)
        if tag == "defs" or tag in _SKIPPED:
            return []
        if tag == "g":
            meaningful = set(element.attrib) - {"id", "class"}
            if meaningful == {"clip-path"} and not any(child.get("transform") for child in element):
                for child in element:
                    child.attrib.setdefault("clip-path", element.attrib["clip-path"])
                meaningful = set()
            if not meaningful:
                return [text for child in element for text in self._flat(child)]
        text = self._text(element)
        return [text] if text else []

    def _text(self, element: Element, inherits: bool = False) -> str:
        """Return the element as text; under a group that sets paint (`inherits`) no default may be left out."""
        tag = _local(element.tag)
        if tag == "defs" or tag in _SKIPPED:
            return ""
        attributes = self._attributes(element, tag, inherits)
        inherits = inherits or (tag == "g" and not set(attributes) <= {"transform", "clip-path"})
        if tag in {"path", "rect", "circle"} and attributes.get("fill") == "none" and "stroke" not in attributes:
            return ""
        head = tag + "".join(f' {key}="{html.escape(value)}"' for key, value in attributes.items())
        mixed = tag in {"text", "tspan"}
        body = html.escape(element.text or "", quote=False) if mixed else ""
        if mixed and not body.strip() and len(element):
            body = ""
        for child in element:
            body += self._text(child, inherits)
            if mixed and (child.tail or "").strip():
                body += html.escape(child.tail or "", quote=False)
        if tag in {"g", "text"} and not body.strip():
            return ""
        return f"<{head}>{body}</{tag}>" if body else f"<{head}/>"

    def _attributes(self, element: Element, tag: str, inherits: bool) -> dict[str, str]:
        pairs: dict[str, str] = {}
        for key, value in element.attrib.items():
            name = _local(key)
            if name == "style":
                pairs |= dict(self._declarations(value))
            elif name not in {"id", "class", "space"}:
                pairs[name] = value
        if self._inside(tag, pairs):
            pairs.pop("clip-path")
        written = {name: self._value(name, value) for name, value in pairs.items()}
        return {
            name: value for name, value in written.items()
            if value and (inherits or (name, value) not in _DEFAULTS)
        }

    @staticmethod
    def _declarations(text: str) -> list[tuple[str, str]]:
        out: list[tuple[str, str]] = []
        for declaration in text.split(";"):
            name, _, value = (piece.strip() for piece in declaration.partition(":"))
            if name == "font":
                out += _font(value)
            elif name and name != "font-family":
                out.append((name, value))
            elif name and "mono" in value.split(",")[0].lower():
                out.append((name, "monospace"))
        return out

    def _inside(self, tag: str, pairs: dict[str, str]) -> bool:
        """Return whether the element lies within its clip rectangle, so that clipping changes nothing."""
        found = _REFERENCE.search(pairs.get("clip-path", ""))
        if not found or found[1] not in self.boxes or "transform" in pairs:
            return False
        left, top, right, bottom = self.boxes[found[1]]
        if tag == "path":
            numbers = [float(n) for n in _NUMBER.findall(pairs.get("d", ""))]
            xs, ys = numbers[0::2], numbers[1::2]
        elif tag == "use":
            x, y = float(pairs.get("x", 0)), float(pairs.get("y", 0))
            xs, ys = [x - 6, x + 6], [y - 6, y + 6]
        else:
            return False
        slack = 0.5
        across = bool(xs) and min(xs) >= left - slack and max(xs) <= right + slack
        return across and min(ys) >= top - slack and max(ys) <= bottom + slack

    def _value(self, name: str, value: str) -> str:
        if name == "d":
            return _path(value)
        if name == "href":
            return f"#@@{self.tokens[value[1:]]}@@" if value.startswith("#") else "".join(value.split())
        if name in {"fill", "stroke"}:
            value = _COLOURS.get(value.lower(), value)
        if "url(#" in value:
            return _REFERENCE.sub(lambda found: f"url(#@@{self.tokens[found[1]]}@@)", value)
        if name in _COORDINATES and "%" not in value:
            return _NUMBER.sub(lambda found: short(found[0]), value)
        if name == "transform":
            return _transform(value)
        if name in {"font-size", "stroke-width", "stroke-dasharray", "opacity", "fill-opacity", "stroke-opacity"}:
            return _NUMBER.sub(lambda found: short(found[0], 2), value.replace("px", ""))
        return " ".join(value.split())


def _font(value: str) -> list[tuple[str, str]]:
    """Split matplotlib's `font: italic 700 12px 'family'` into properties, leaving the family to the page."""
    out: list[tuple[str, str]] = []
    for word in value.split("'")[0].split():
        if word.endswith("px"):
            out.append(("font-size", word))
        elif word in {"italic", "oblique"}:
            out.append(("font-style", word))
        elif word in {"bold", "600", "700", "800"}:
            out.append(("font-weight", "700"))
    return out


def _transform(value: str) -> str:
    value = re.sub(r"rotate\(-?0(?:\.0+)?(?: [^)]*)?\)", "", value)
    digits = 4 if "scale" in value or "matrix" in value else 1
    return " ".join(_NUMBER.sub(lambda found: short(found[0], digits), value).split())


def named(frames: Sequence[Picture], salt: str) -> list[Picture]:
    """Return the pictures with final ids: one prefix for all of them, taken from their content and `salt`."""
    digest = hashlib.sha256(salt.encode())
    for frame in frames:
        digest.update("".join(frame.parts).encode())
    prefix = f"f{digest.hexdigest()[:8]}"
    numbers: dict[str, str] = {}

    def rename(found: re.Match[str]) -> str:
        return numbers.setdefault(found[1], f"{prefix}-{len(numbers)}")

    return [
        Picture(frame.width, frame.height, frame.scale, tuple(_TOKEN.sub(rename, part) for part in frame.parts))
        for frame in frames
    ]


def markup(drawn: Picture, alt: str) -> str:
    """Return the inline `<svg role="img">` that scales down to a phone and takes the page's text colour."""
    width, height = short(drawn.width), short(drawn.height)
    widest = round(drawn.width * drawn.scale)
    return (
        f'<svg class="lab-svg" role="img" aria-label="{html.escape(alt)}" viewBox="0 0 {width} {height}" '
        f'style="display:block;width:100%;max-width:{widest}px;height:auto;margin:auto" '
        'fill="currentColor" stroke-linejoin="round" font-family="system-ui,sans-serif">'
        f"{''.join(drawn.parts)}</svg>"
    )
