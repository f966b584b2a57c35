"""The training map as HTML: one SVG for wide pages, one for narrow ones, and the list that says everything.

`python -m labsupport.figures.training_map_page` writes `book/training-map.html`, which the map's page includes; a test
holds that it is current. The words live in `training_map`; nothing here may say anything of its own about a box.
"""

from __future__ import annotations

import html
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from labsupport.figures import svg
from labsupport.figures.training_map import BOXES, GROUPS, STAGES, Box
from labsupport.figures.widgets import Widget, widget
from labsupport.grading.contents import CHAPTERS

__all__ = ["BOOK", "FRAGMENT", "drawings", "fragment", "training_map"]

#: The part of the page that is made from the boxes, seen from the repository.
FRAGMENT = Path("book", "training-map.html")
BOOK = Path(__file__).resolve().parents[2]
#: Files of the chapters that the map links to, without their numbers' leading part being typed twice.
PAGES = {
    int(name[:2]): name
    for name in (
        "01-three-questions", "02-linear-algebra", "03-gemm-tiling", "04-probability", "05-softmax-and-kl",
        "06-derivatives", "07-backprop", "08-optimization", "09-floating-point", "10-ai-infra-examples",
        "11-forward-pass", "12-backward-pass", "13-training-lab",
    )
}  # fmt: skip

ALT = "The training map: 22 boxes in five groups, from token ids to a chosen token."
CAPTION = (
    "Read down the columns 1, 2 and 3. From 3E the next batch starts again in column 1, or the weights are saved and "
    "loaded in 5A. Column 4 is no next step: 4A and 4B save memory, 4C to 4G are different ways to train."
)
PARTS = (("takes", "What comes in"), ("does", "What it does, and why"), ("gives", "What goes out"),
         ("example", "Example"), ("caution", "Caution"))  # fmt: skip

HEIGHT = 46  # of a box


@dataclass
class Layout:
    """Where everything stands in one drawing, in its own units."""

    name: str
    width: float
    height: float
    box_width: float
    places: dict[str, tuple[float, float]] = field(default_factory=dict)
    frames: dict[int, tuple[float, float, float, float]] = field(default_factory=dict)
    next_batch: Sequence[tuple[float, float]] = ()
    load_weights: Sequence[tuple[float, float]] = ()
    labels: Sequence[tuple[float, float, str, str]] = ()  # x, y, anchor, text


def wide() -> Layout:
    """Four columns, and the fifth group as a band below the first three."""
    step, left, top, width, gap = 56, 12, 34, 158, 24
    layout = Layout("wide", 4 * width + 3 * gap + 2 * left, 480, width)
    for group in (1, 2, 3, 4):
        x = left + (group - 1) * (width + gap)
        members = [box for box in BOXES if box.group == group]
        layout.frames[group] = (x - 8, 2, width + 16, top + step * len(members) - 6)
        for row, box in enumerate(members):
            layout.places[box.id] = (x, top + row * step)
    band = 398
    layout.frames[5] = (left - 8, band, 3 * width + 2 * gap + 16, 80)
    for column, box in enumerate(box for box in BOXES if box.group == 5):
        layout.places[box.id] = (left + column * (width + gap), band + 28)
    x3, y3 = layout.places["3E"]
    x1 = left + width / 2
    bottom1 = sum(layout.frames[1][1::2])
    layout.next_batch = [(x3, y3 + HEIGHT / 2), (x1, y3 + HEIGHT / 2), (x1, bottom1 + 2)]
    down = x3 + width / 2
    x5 = left + width - 22  # right of the band's title
    layout.load_weights = [(down, y3 + HEIGHT), (down, band - 26), (x5, band - 26), (x5, band + 26)]
    layout.labels = [
        (x1 + 12, y3 + HEIGHT / 2 - 12, "start", "next batch"), (x5 + 12, band - 38, "start", "load weights"),
    ]  # fmt: skip
    return layout


def narrow() -> Layout:
    """Two columns of boxes, group below group, with the arrows in the margins."""
    step, left, width, gap = 54, 24, 141, 10
    layout = Layout("narrow", 340, 0, width)
    y = 2.0
    for group in GROUPS:
        members = [box for box in BOXES if box.group == group]
        rows = (len(members) + 1) // 2
        layout.frames[group] = (left - 6, y, 2 * width + gap + 12, 30 + rows * step)
        for i, box in enumerate(members):
            layout.places[box.id] = (left + (i % 2) * (width + gap), y + 28 + (i // 2) * step)
        y += 30 + rows * step + 12
    layout.height = y - 6
    x3, y3 = layout.places["3E"]
    middle = y3 + HEIGHT / 2
    x5, y5 = layout.places["5A"]
    right = layout.width - 8
    end = x3 + width
    top = layout.frames[1][1] + 14
    layout.next_batch = [(end, middle), (right, middle), (right, top), (left + 2 * width + gap + 8, top)]
    layout.load_weights = [(x3, middle), (8, middle), (8, y5 + HEIGHT / 2), (x5 - 2, y5 + HEIGHT / 2)]
    layout.labels = [
        (end + 8, middle - 11, "start", "next batch"), (end + 8, middle + 12, "start", "load weights: down left"),
    ]  # fmt: skip
    return layout


def drawings() -> str:
    """Both drawings; the style sheet shows one of them."""
    return "".join(_drawing(layout) for layout in (wide(), narrow()))


def _drawing(layout: Layout) -> str:
    pieces = [
        svg.rect(*frame, color=GROUPS[group][1], fill=GROUPS[group][1], tint=0.07, radius=8, stroke=1)
        + svg.text(frame[0] + 8, frame[1] + 15, f"{group} {GROUPS[group][0]}", size=12.5, anchor="start", bold=True)
        for group, frame in layout.frames.items()
    ]
    for path, color in ((layout.next_batch, "red"), (layout.load_weights, "orange")):
        pieces.append(svg.arrow(path[0], path[-1], via=list(path[1:-1]), color=color))
    pieces += [svg.text(x, y, text, size=12, anchor=anchor, italic=True) for x, y, anchor, text in layout.labels]
    pieces += [_box(box, *layout.places[box.id], layout.box_width) for box in BOXES]
    return (
        f'<svg class="lab-svg map-drawing map-{layout.name}" viewBox="0 0 {layout.width:g} {layout.height:g}" '
        f'fill="currentColor" role="group" aria-label="{ALT}">{"".join(pieces)}</svg>'
    )


def _box(box: Box, x: float, y: float, width: float) -> str:
    color = GROUPS[box.group][1]
    lines = _wrapped(box.short, int(width / 9.8))
    label = html.escape(f"{box.id} {box.name}. {box.summary}")
    return (
        f'<a class="map-box" href="#{box.anchor}" data-box="{box.id}" aria-label="{label}">'
        + svg.rect(x, y, width, HEIGHT, color=color, fill="ground", radius=6)
        + svg.rect(x, y, 32, HEIGHT, color="none", fill=color, tint=0.2, radius=6)
        + svg.text(x + 16, y + HEIGHT / 2, box.id, size=13, bold=True)
        + svg.text(x + 38, y + HEIGHT / 2, "\n".join(lines), size=12.5, anchor="start")
        + "</a>"
    )


def _wrapped(text: str, length: int) -> list[str]:
    """The words on one or two lines of about ``length`` letters."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > length:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


# -- the list ---------------------------------------------------------------------------------


def _list() -> str:
    return '<div class="map-list">' + "".join(_group(group) for group in GROUPS) + "</div>"


def _group(group: int) -> str:
    items = "".join(_item(box) for box in BOXES if box.group == group)
    return f'<section class="map-group" data-group="{group}"><h3>{group}. {GROUPS[group][0]}</h3>{items}</section>'


def _item(box: Box) -> str:
    rows = "".join(f"<dt>{title}</dt><dd>{_escaped(getattr(box, name))}</dd>" for name, title in PARTS)
    return (
        f'<article class="map-item" id="{box.anchor}" data-box="{box.id}" data-group="{box.group}">'
        f'<h4><span class="map-id">{box.id}</span> {_escaped(box.name)}</h4>'
        f'<p class="map-summary">{_escaped(box.summary)}</p><dl>{rows}</dl>'
        f'<p class="map-links">{_links(box)}</p></article>'
    )


def _links(box: Box) -> str:
    read = ", ".join(
        f'<a href="{address(section)}">{"section" if i else "Section"} {section} '
        f"({CHAPTERS[int(section.split('.')[0])]})</a>"
        for i, section in enumerate(box.sections)
    )
    stage = f'<a href="{address(f"13.{box.stage}")}">Lab, stage {box.stage}: {STAGES[box.stage - 1]}</a>'
    return f"{read}. {stage}."


def address(section: str) -> str:
    """Where a section stands, seen from the map's page."""
    return f"../chapters/{PAGES[int(section.split('.')[0])]}.html#sec-{section.replace('.', '-')}"


def _escaped(text: str) -> str:
    """Text as HTML; a single letter with an index is set as one."""
    return re.sub(r"\b([A-Z])_([a-z])\b", r"\1<sub>\2</sub>", html.escape(text, quote=False))


# -- the page's part --------------------------------------------------------------------------


def training_map() -> Widget:
    """The map as a figure: both drawings and the list; a script adds choosing, filtering and keys."""
    config = {"groups": [{"id": group, "name": name} for group, (name, _) in GROUPS.items()]}
    return widget("training-map", config, drawings() + _list(), ALT, CAPTION)


def fragment() -> str:
    """The text of ``FRAGMENT``."""
    return training_map().html.replace("<section", "\n<section").replace("<article", "\n<article") + "\n"


if __name__ == "__main__":
    (BOOK / FRAGMENT).write_text(fragment(), encoding="utf-8", newline="\n")
    sys.stdout.write(f"{FRAGMENT.as_posix()} written: {len(BOXES)} boxes\n")
