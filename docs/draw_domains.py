"""Pictures of integer domains, before and after the solver: ``python docs/draw_domains.py``.

The points come from `tvm_autodiff.domain`. The SVG files are kept in the repository, and
tests/test_domain_pictures.py draws them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tvm import te

from tvm_autodiff.domain import Domain, simplify_domain

FOLDER = Path(__file__).parent / "explanation"
STEP, RADIUS, MARGIN = 22, 6, 46
INK, MUTED, COUNTED = "#1f2933", "#9aa5b1", "#0b7285"


@dataclass
class Picture:
    """Elements of an SVG file, and the size that holds them."""

    title: str
    parts: list[str] = field(default_factory=list)
    width: int = 0
    height: int = 0
    headed: bool = False

    def text(self, x: float, y: float, text: str, size: int = 13, anchor: str = "middle") -> None:
        """A line of text."""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}">{text}</text>'
        )

    def dot(self, x: float, y: float, counts: bool) -> None:
        """A point of the iteration space: filled if it contributes."""
        fill, stroke = (COUNTED, COUNTED) if counts else ("none", MUTED)
        self.parts.append(
            f'<circle cx="{x:g}" cy="{y:g}" r="{RADIUS}" fill="{fill}" stroke="{stroke}" '
            'stroke-width="1.5"/>'
        )

    def svg(self) -> str:
        """The file."""
        inner = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" role="img" font-family="sans-serif" fill="{INK}">\n'
            f"<title>{self.title}</title>\n"
            f'<rect width="{self.width}" height="{self.height}" fill="#ffffff"/>\n{inner}\n</svg>\n'
        )


def box_of(domain: Domain) -> list[range]:
    """The ranges of the variables."""
    return [range(low, low + size) for low, size in (domain.ranges[v] for v in domain.variables)]


def panel(
    picture: Picture, left: int, top: int, domain: Domain, at: Mapping[Any, int], *captions: str
) -> int:
    """Draw the box of a domain of one or two variables; the right edge of the panel.

    Points that fulfil the conditions are filled. The first variable runs to the right.
    """
    names = [str(variable) for variable in domain.variables]
    box = box_of(domain)
    columns, rows = box[0], box[1] if len(box) > 1 else range(1)
    points = set(domain.points(dict(at)))
    bottom = top + (len(rows) - 1) * STEP
    for column in columns:
        picture.text(left + (column - columns.start) * STEP, bottom + 24, str(column), 11)
        for row in rows:
            point = (column, row)[: len(box)]
            picture.dot(
                left + (column - columns.start) * STEP,
                bottom - (row - rows.start) * STEP,
                point in points,
            )
    right = left + (len(columns) - 1) * STEP
    picture.text(right + 20, bottom + 24, names[0], 12, "start")
    if len(box) > 1:
        for row in rows:
            picture.text(left - 18, bottom - (row - rows.start) * STEP + 4, str(row), 11)
        picture.text(left - 18, top - 20, names[1], 12)
    size = len(columns) * len(rows)
    below = bottom + 48
    for line in (*captions, f"{size} iterations, {len(points)} needed"):
        picture.text(left - 8, below, line, 14, "start")
        below += 19
    wide = max(right + 40, left + 7 * max(len(line) for line in (*captions, " " * 22)))
    picture.width, picture.height = max(picture.width, wide + 10), max(picture.height, below)
    return wide


def before_and_after(
    name: str, title: str, domain: Domain, cases: Iterable[tuple[Mapping[Any, int], str]]
) -> tuple[str, str]:
    """A row for each case of the parameters: the domain as written, and as it is solved."""
    solved = simplify_domain(domain)
    picture, top = Picture(title), MARGIN + 24
    for at, condition in cases:
        right = panel(picture, MARGIN, top, domain, at, condition)
        if not picture.headed:
            picture.headed = True
            picture.text(MARGIN - 24, 22, "as written", 14, "start")
            picture.text(right + 6, 22, "after the solver", 14, "start")
        solution = [
            f"{old} = {new}".replace(" // ", "//").replace(" * ", "*").replace(" % ", "%")
            for old, new in ((v, solved.old_to_new[v]) for v in domain.variables)
            if str(old) != str(new)
        ]
        panel(picture, right + 24, top, solved.new_domain, at, *solution or ["the smallest box"])
        top = picture.height + MARGIN
    return name, picture.svg()


def pictures() -> dict[str, str]:
    """Every picture by the name of its file."""
    i, j, k = te.var("i"), te.var("j"), te.var("k")
    strided = Domain((i, k), {i: (0, 8), k: (0, 3), j: (0, 17)}, ((2 * i + k).equal(j),))
    triangle = Domain((i, k), {i: (0, 9), k: (0, 9)}, (i + 2 * k <= 5,))
    return dict(
        [
            before_and_after(
                "domain_stride.svg",
                "The pairs (i, k) with 2i + k = j",
                strided,
                [({j: 6}, "2*i + k = 6"), ({j: 7}, "2*i + k = 7")],
            ),
            before_and_after(
                "domain_triangle.svg",
                "The pairs (i, k) with i + 2k at most 5",
                triangle,
                [({}, "i + 2*k ≤ 5")],
            ),
        ]
    )


def main() -> None:
    """Write the pictures beside the pages that show them."""
    for name, text in pictures().items():
        (FOLDER / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
