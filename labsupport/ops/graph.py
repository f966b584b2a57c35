"""Draws the computation graph of a ``Value`` as a small SVG: inputs left, output right.

Layout is by depth, so that an edge always goes to the right and a value used twice shows its
fork. It must stay deterministic: same computation, same text.
"""

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labsupport.ops.autodiff import Value

BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y, MARGIN = 104, 52, 46, 18, 8


def draw(output: "Value") -> str:
    """SVG text of the graph: each box shows operation or label, data and grad."""
    nodes = output.graph()
    depth: dict[int, int] = {}
    for node in nodes:
        depth[id(node)] = 1 + max((depth[id(parent)] for parent in node.parents), default=-1)
    rows = [0] * (max(depth.values()) + 1)
    place: dict[int, tuple[int, int]] = {}
    for node in nodes:
        column = depth[id(node)]
        x = MARGIN + column * (BOX_WIDTH + GAP_X)
        place[id(node)] = (x, MARGIN + rows[column] * (BOX_HEIGHT + GAP_Y))
        rows[column] += 1
    width = 2 * MARGIN + len(rows) * (BOX_WIDTH + GAP_X) - GAP_X
    height = 2 * MARGIN + max(rows) * (BOX_HEIGHT + GAP_Y) - GAP_Y
    edges = [_edge(place[id(parent)], place[id(node)]) for node in nodes for parent in node.parents]
    boxes = [_box(node, *place[id(node)]) for node in nodes]
    alt = f"Computation graph of {len(nodes)} values; the output is {output.data:.6g}."
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(alt)}" style="max-width:{width}px;width:100%;color:inherit" '
        f'font-family="system-ui, sans-serif" font-size="13">{"".join(edges)}{"".join(boxes)}</svg>'
    )


def _edge(start: tuple[int, int], end: tuple[int, int]) -> str:
    x0, y0 = start[0] + BOX_WIDTH, start[1] + BOX_HEIGHT // 2
    x1, y1 = end[0], end[1] + BOX_HEIGHT // 2
    middle = (x0 + x1) // 2
    path = f"M{x0} {y0}C{middle} {y0} {middle} {y1} {x1} {y1}"
    return f'<path d="{path}" fill="none" stroke="currentColor" stroke-width="1.2" opacity="0.6"/>'


def _box(node: "Value", x: int, y: int) -> str:
    title = " ".join(part for part in (node.label, node.operation) if part) or "constant"
    lines = (title, f"data {node.data:.4g}", f"grad {node.grad:.4g}")
    texts = "".join(
        f'<text x="{x + BOX_WIDTH // 2}" y="{y + 15 + 15 * k}" text-anchor="middle" fill="currentColor"'
        f"{' font-weight=' + chr(34) + 'bold' + chr(34) if k == 0 else ''}>{escape(line)}</text>"
        for k, line in enumerate(lines)
    )
    frame = (
        f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6" '
        'fill="none" stroke="currentColor" stroke-width="1.2"/>'
    )
    return frame + texts
