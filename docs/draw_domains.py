"""Pictures of integer domains, before and after the solver: ``python docs/draw_domains.py``.

The SVG files are kept in the repository, and tests/test_domain_pictures.py draws them again.
"""

from __future__ import annotations

from pathlib import Path

from tvm import te

from tvm_autodiff import draw_domain
from tvm_autodiff.domain import Domain
from tvm_autodiff.drawing.svg import INK, MUTED, Canvas
from tvm_autodiff.expr.nodes import node_id
from tvm_autodiff.schedule.nest.index_set_splitting import pieces

FOLDER = Path(__file__).parent / "explanation"


def pictures() -> dict[str, str]:
    """Every picture by the name of its file."""
    i, j, k = te.var("i"), te.var("j"), te.var("k")
    strided = Domain((i, k), {i: (0, 8), k: (0, 3), j: (0, 17)}, ((2 * i + k).equal(j),))
    triangle = Domain((i, k), {i: (0, 9), k: (0, 9)}, (i + 2 * k <= 5,))
    return {
        "domain_stride.svg": draw_domain(strided, [{j: 6}, {j: 7}], solved=True).svg,
        "domain_triangle.svg": draw_domain(triangle, solved=True).svg,
        "domain_stencil.svg": stencil(6, 24, 8),
    }


def stencil(rows: int, columns: int, lanes: int) -> str:
    """The elements of a stencil of five points, by how many of its guards remain, and the vectors
    that compute the interior of a row; the last one overlaps the one before.
    """
    i, j = te.var("i"), te.var("j")
    inside = [i + 1 < rows, i >= 1, j + 1 < columns, j >= 1]
    guards = [te.if_then_else(condition, 1, 0) for condition in inside]
    ranges = {node_id(i): (0, rows - 1), node_id(j): (0, columns - 1)}
    cut = [pieces(guards, var, n, [i, j], ranges) for var, n in ((i, rows), (j, columns))]
    canvas, size = Canvas(), 20
    for top, bottom in cut[0]:
        for left, right in cut[1]:
            decided = (bottom < rows - 1) + (top > 0) + (right < columns - 1) + (left > 0)
            fill = {4: "#dbe7f3", 3: "#f3d9a4"}.get(decided, "#d9822b")
            for y in range(top, bottom + 1):
                for x in range(left, right + 1):
                    place = (20 + x * size, 20 + y * size, size - 2, size - 2)
                    canvas.box(*place, fill=fill, stroke=MUTED)
    low, high = next((a, b) for a, b in cut[1] if b > a)
    bases = [min(base, high - lanes + 1) for base in range(low, high + 1, lanes)]
    for number, base in enumerate(bases):
        y = 20 + rows * size + 8 + 9 * (number % 2)
        canvas.box(20 + base * size, y, lanes * size - 2, 4, fill=INK, stroke=INK, round_by=1)
    caption = "blue: no guards; yellow, orange: a neighbour is zero; lines: vectors of the interior"
    canvas.text(20, 20 + rows * size + 46, caption, 13, "start")
    return canvas.drawing("The elements of a guarded stencil").svg


def main() -> None:
    """Write the pictures beside the pages that show them."""
    for name, text in pictures().items():
        (FOLDER / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
