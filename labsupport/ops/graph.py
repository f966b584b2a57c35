"""Draws the computation graph of a ``Value`` as a small SVG: inputs left, output right.

Layout is by depth, so that an edge always goes to the right; an edge over several columns keeps a row free in
each, so that a value used twice shows its fork. It must stay deterministic: same computation, same text.
"""

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from labsupport.ops.autodiff import Value

BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, MARGIN = 76, 52, 38, 18, 8

#: The straight end of an edge, over which its local derivative stands clear of the curve.
RUN_IN = 26

#: A box, or the place where an edge passes a column: (id of its start, id of its end, which parent it is).
Slot: TypeAlias = int | tuple[int, int, int]


def draw(output: "Value") -> str:
    """SVG text of the graph: a box shows operation or label, data and grad; an edge its local derivative."""
    nodes = output.graph()
    columns = _columns(nodes)
    rows = [{slot: row for row, slot in enumerate(slots)} for slots in columns]
    depth = {slot: column for column, slots in enumerate(columns) for slot in slots if isinstance(slot, int)}
    width = 2 * MARGIN + len(columns) * (BOX_WIDTH + GAP_X) - GAP_X
    height = 2 * MARGIN + max(map(len, columns)) * (BOX_HEIGHT + GAP_Y) - GAP_Y
    edges = [text for node in nodes for text in _edges(node, depth, rows)]
    boxes = [_box(node, *_corner(depth[id(node)], rows[depth[id(node)]][id(node)])) for node in nodes]
    alt = f"Computation graph of {len(nodes)} values; the output is {output.data:.6g}."
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(alt)}" style="max-width:{width}px;width:100%;color:inherit" '
        f'font-family="system-ui, sans-serif">{"".join(edges)}{"".join(boxes)}</svg>'
    )


def _corner(column: int, row: int) -> tuple[int, int]:
    return MARGIN + column * (BOX_WIDTH + GAP_X), MARGIN + row * (BOX_HEIGHT + GAP_Y)


def _columns(nodes: Sequence["Value"]) -> list[list[Slot]]:
    """Boxes and passing edges of each column, ordered by the mean row of what leads to them."""
    depth: dict[int, int] = {}
    for node in nodes:
        depth[id(node)] = 1 + max((depth[id(parent)] for parent in node.parents), default=-1)
    columns: list[list[Slot]] = [[] for _ in range(max(depth.values()) + 1)]
    sources: dict[tuple[int, Slot], list[Slot]] = {}
    for node in nodes:
        end = depth[id(node)]
        columns[end].append(id(node))
        for k, parent in enumerate(node.parents):
            passing: Slot = (id(parent), id(node), k)
            before: Slot = id(parent)
            for column in range(depth[id(parent)] + 1, end):
                columns[column].append(passing)
                sources[column, passing] = [before]
                before = passing
            sources.setdefault((end, id(node)), []).append(before)
    for column in range(1, len(columns)):
        rows = {slot: float(row) for row, slot in enumerate(columns[column - 1])}
        means = {
            slot: sum(rows[source] for source in leads) / len(leads)
            for slot in columns[column]
            if (leads := sources.get((column, slot)))
        }
        columns[column].sort(key=lambda slot: means.get(slot, 0.0))
    return columns


def _edges(node: "Value", depth: dict[int, int], rows: list[dict[Slot, int]]) -> list[str]:
    """The curves from a node's parents, each with the local derivative beside its head; they arrive in order."""
    end = depth[id(node)]
    end_x, end_y = _corner(end, rows[end][id(node)])

    def row(k: int, column: int) -> int:
        start = depth[id(node.parents[k])]
        return rows[column][id(node.parents[k]) if column == start else (id(node.parents[k]), id(node), k)]

    arrival = sorted(range(len(node.parents)), key=lambda k: row(k, end - 1))
    texts = []
    for position, k in enumerate(arrival, 1):
        start = depth[id(node.parents[k])]
        x, y = _corner(start, row(k, start))
        x, y = x + BOX_WIDTH, y + BOX_HEIGHT // 2
        path = f"M{x} {y}"
        for column in range(start + 1, end):  # straight through the row that is kept free
            left, top = _corner(column, row(k, column))
            path += _curve(x, y, left, top + BOX_HEIGHT // 2) + f"H{left + BOX_WIDTH}"
            x, y = left + BOX_WIDTH, top + BOX_HEIGHT // 2
        head = end_y + BOX_HEIGHT * position // (len(arrival) + 1)
        slope = f"{node.local[k]:.3g}".replace("-", "−")
        texts.append(
            f'<path d="{path}{_curve(x, y, end_x - RUN_IN, head)}L{end_x} {head}" fill="none" '
            f'stroke="currentColor" stroke-width="1.2" opacity="0.6"/><text x="{end_x - 4}" y="{head - 3}" '
            f'text-anchor="end" font-size="13" fill="currentColor"{_squeezed(slope, 4, GAP_X - 8)}>×{slope}</text>'
        )
    return texts


def _squeezed(text: str, most: int, width: int) -> str:
    """The attributes that make a text of more than so many characters exactly so wide; none for a shorter one."""
    return f' textLength="{width}" lengthAdjust="spacingAndGlyphs"' if len(text) > most else ""


def _curve(x0: int, y0: int, x1: int, y1: int) -> str:
    middle = (x0 + x1) // 2
    return f"C{middle} {y0} {middle} {y1} {x1} {y1}"


def _box(node: "Value", x: int, y: int) -> str:
    title = " ".join(part for part in (node.label, node.operation) if part) or "constant"
    lines = (title, f"data {node.data:.4g}", f"grad {node.grad:.4g}")
    texts = "".join(
        f'<text x="{x + BOX_WIDTH // 2}" y="{y + 15 + 15 * k}" text-anchor="middle" font-size="13" fill="currentColor"'
        f"{' font-weight=' + chr(34) + 'bold' + chr(34) if k == 0 else ''}"
        f"{_squeezed(line, 11, BOX_WIDTH - 8)}>{escape(line)}</text>"
        for k, line in enumerate(lines)
    )
    frame = (
        f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6" '
        'fill="none" stroke="currentColor" stroke-width="1.2"/>'
    )
    return frame + texts
