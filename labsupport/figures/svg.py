"""Primitives for hand-made diagrams: boxes, arrows, text and grids of cells, composed into one picture.

Each function returns SVG text; `picture` puts pieces together in painting order. Coordinates are
pixels at full size with y downwards. Text is never a path and never has a fixed black or white.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from labsupport.figures import style
from labsupport.figures.compact import short

Point = tuple[float, float]


def picture(width: float, height: float, *pieces: str) -> str:
    """Return a whole SVG drawing of `width` × `height` pixels. Keep the width near 360 for phones, at most 640."""
    return f'<svg viewBox="0 0 {short(width)} {short(height)}">{"".join(pieces)}</svg>'


def colour(name: str) -> str:
    """Return the paint for a palette name, `ink` (text colour), `ground` (page colour) or `none`.

    Raises ValueError for a name that is none of these.
    """
    known = {
        "ink": "currentColor", "none": "none", "ground": "var(--lab-ground,var(--jp-layout-color0,#fff))",
        **{key: f"var(--lab-{key},{value})" for key, value in style.PALETTE._asdict().items()},
    }
    if name not in known:
        raise ValueError(f"no colour named {name!r}; the book has {', '.join(known)}")
    return known[name]


def _attributes(**values: Any) -> str:
    written = {key.rstrip("_").replace("_", "-"): value for key, value in values.items() if value is not None}
    return "".join(
        f' {key}="{short(value, 2) if isinstance(value, int | float) else html.escape(str(value))}"'
        for key, value in written.items()
    )


def text(
    x: float, y: float, content: str, *, size: float = 14, anchor: str = "middle", color: str = "ink",
    bold: bool = False, mono: bool = False, italic: bool = False, rotate: float = 0,
) -> str:
    """Return text centred vertically on `y`; `anchor` is start, middle or end; a newline starts a new line."""
    lines = content.split("\n")
    step = size * 1.25
    top = y - step * (len(lines) - 1) / 2 + size * 0.35
    turn = f"rotate({short(rotate)} {short(x)} {short(y)})" if rotate else None
    return "".join(
        "<text" + _attributes(
            x=x, y=top + i * step, font_size=size, text_anchor=None if anchor == "start" else anchor,
            fill=None if color == "ink" else colour(color), font_weight="700" if bold else None,
            font_style="italic" if italic else None, font_family="monospace" if mono else None, transform=turn,
        ) + f">{html.escape(line, quote=False)}</text>"
        for i, line in enumerate(lines) if line.strip()
    )


def rect(
    x: float, y: float, width: float, height: float, *, color: str = "ink", fill: str | None = None,
    tint: float = 0.18, radius: float = 0, stroke: float = 1.5, dashed: bool = False,
) -> str:
    """Return a rectangle outlined in `color`; `fill` names the colour of its tint (none: empty)."""
    paint: dict[str, Any] = {"fill": "none"} if fill in {None, "none"} else {"fill": colour(fill or "")}
    if fill not in {None, "none", "ground"}:
        paint["fill_opacity"] = tint
    return "<rect" + _attributes(
        x=x, y=y, width=width, height=height, rx=radius or None, **paint,
        stroke=colour(color) if stroke else "none", stroke_width=stroke or None,
        stroke_dasharray="5 3" if dashed else None,
    ) + "/>"


def box(
    x: float, y: float, width: float, height: float, label: str = "", *, sub: str = "", color: str = "blue",
    size: float = 14, dashed: bool = False,
) -> str:
    """Return a rounded, tinted box with a label and, below it, a smaller line (a shape, a size)."""
    middle = x + width / 2
    shift = size * 0.6 if sub else 0
    parts = [rect(x, y, width, height, color=color, fill=color, radius=6, dashed=dashed)]
    if label:
        parts.append(text(middle, y + height / 2 - shift, label, size=size, bold=True))
    if sub:
        parts.append(text(middle, y + height / 2 + size * 0.7, sub, size=size - 2))
    return "".join(parts)


def circle(x: float, y: float, radius: float, label: str = "", *, color: str = "blue", size: float = 14) -> str:
    """Return a tinted node with its label inside."""
    ring = "<circle" + _attributes(
        cx=x, cy=y, r=radius, fill=colour(color), fill_opacity=None if color == "none" else 0.18,
        stroke=colour("ink" if color == "none" else color), stroke_width=1.5,
    ) + "/>"
    return ring + (text(x, y, label, size=size) if label else "")


def line(points: Sequence[Point], *, color: str = "ink", width: float = 1.5, dashed: bool = False) -> str:
    """Return an open line through the points."""
    _needs_two(points)
    path = "M" + "L".join(f"{short(x)} {short(y)}" for x, y in points)
    return "<path" + _attributes(
        d=path, fill="none", stroke=colour(color), stroke_width=width, stroke_dasharray="5 3" if dashed else None
    ) + "/>"


def arrow(
    start: Point, end: Point, *, label: str = "", via: Sequence[Point] = (), color: str = "ink", width: float = 1.5,
    dashed: bool = False, size: float = 12, side: float = -10,
) -> str:
    """Return an arrow from `start` to `end`, through `via`; the label stands `side` pixels off its middle."""
    points = [start, *via, end]
    (x0, y0), (x1, y1) = points[-2], points[-1]
    length = math.hypot(x1 - x0, y1 - y0)
    if length == 0:
        raise ValueError(f"an arrow needs two different ends, got {start} twice")
    ux, uy = (x1 - x0) / length, (y1 - y0) / length
    head = 5 + 2 * width
    base = (x1 - ux * head, y1 - uy * head)
    wing = head * 0.45
    corners = [(x1, y1), (base[0] - uy * wing, base[1] + ux * wing), (base[0] + uy * wing, base[1] - ux * wing)]
    tip = "M" + "L".join(f"{short(x)} {short(y)}" for x, y in corners) + "Z"
    parts = [
        line([*points[:-1], base], color=color, width=width, dashed=dashed),
        "<path" + _attributes(d=tip, fill=None if color == "ink" else colour(color)) + "/>",
    ]
    if label:
        (ax, ay), (bx, by) = points[(len(points) - 1) // 2], points[(len(points) - 1) // 2 + 1]
        span = math.hypot(bx - ax, by - ay) or 1
        nx, ny = -(by - ay) / span, (bx - ax) / span
        if ny < 0 or (ny == 0 and nx > 0):
            nx, ny = -nx, -ny
        parts.append(text((ax + bx) / 2 + nx * side, (ay + by) / 2 + ny * side, label, size=size, color=color))
    return "".join(parts)


def _needs_two(points: Sequence[Point]) -> None:
    if len(points) < 2:
        raise ValueError(f"a line needs at least two points, got {len(points)}")


def cells(
    x: float, y: float, values: Sequence[Sequence[Any]], *, size: float = 30, width: float | None = None,
    color: str = "grey", highlight: Mapping[tuple[int, int], str] | None = None, title: str = "",
    rows: Sequence[Any] = (), cols: Sequence[Any] = (), font: float = 13,
) -> str:
    """Return a grid of labelled cells, top left at `(x, y)`: one row of `values` a row of cells.

    `highlight` maps `(row, column)` to a colour; `rows` and `cols` label the edges; `title` stands above.
    Raises ValueError for rows of different lengths or a highlight outside the grid.
    """
    grid = [list(row) for row in values]
    lengths = sorted({len(row) for row in grid})
    if len(lengths) != 1 or lengths[0] == 0:
        raise ValueError(f"a grid needs rows of one length of at least 1, got lengths {lengths}")
    marked = dict(highlight or {})
    outside = [place for place in marked if not (0 <= place[0] < len(grid) and 0 <= place[1] < lengths[0])]
    if outside:
        raise ValueError(f"highlight {outside[0]} lies outside a grid of {len(grid)} × {lengths[0]} cells")
    wide = size if width is None else width
    label_font = max(font - 2, min(font, 11))  # below 11, a phone shows less than 10 pixels
    parts: list[str] = []
    for r, row in enumerate(grid):
        for c, value in enumerate(row):
            paint = marked.get((r, c))
            left, top = x + c * wide, y + r * size
            parts.append(rect(left, top, wide, size, color=color, fill=paint, tint=0.35, stroke=1))
            if str(value):
                parts.append(text(left + wide / 2, top + size / 2, str(value), size=font, bold=paint is not None))
    parts += [
        text(x + (c + 0.5) * wide, y - 9, str(label), size=label_font, color="grey") for c, label in enumerate(cols)
    ]
    parts += [
        text(x - 6, y + (r + 0.5) * size, str(label), size=label_font, anchor="end", color="grey")
        for r, label in enumerate(rows)
    ]
    if title:
        above = y - (24 if cols else 12)
        parts.append(text(x + wide * lengths[0] / 2, above, title, size=font, bold=True))
    return "".join(parts)


def group(*pieces: str, x: float = 0, y: float = 0) -> str:
    """Return the pieces moved by `(x, y)` as one."""
    inner = "".join(pieces)
    return f'<g transform="translate({short(x)} {short(y)})">{inner}</g>' if x or y else inner
