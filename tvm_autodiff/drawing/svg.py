"""A picture as SVG text, and the shapes that it consists of.

A `Canvas` collects shapes and grows to hold them. It makes the `Drawing` that users get.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path

INK, MUTED, PAPER = "#1f2933", "#9aa5b1", "#ffffff"
#: the width of a character in a proportional font, as a share of the font's size
_CHARACTER = 0.6


@dataclass(frozen=True)
class Drawing:
    """A picture as SVG, which a notebook displays.

    Attributes
    ----------
    svg : str
        The text of an SVG file. Its root element has a width, a height and a title.
    title : str
        What the picture shows.
    width, height : int
        The size in pixels.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import draw_domain
    >>> from tvm_autodiff.domain import Domain
    >>> i = te.var("i")
    >>> drawing = draw_domain(Domain((i,), {i: (0, 4)}, (i < 3,)))
    >>> drawing
    <Drawing 'Points of i', 235 x 129 pixels>
    >>> drawing.svg.count("<circle")
    4
    """

    svg: str
    title: str
    width: int
    height: int

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<Drawing {self.title!r}, {self.width} x {self.height} pixels>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the SVG to a file.

        Parameters
        ----------
        path : str or path
            The file. An existing one is replaced.
        """
        Path(path).write_text(self.svg, "utf-8")


def width_of(text: str, size: float) -> float:
    """An estimate of the width of a text in pixels."""
    return _CHARACTER * size * len(text)


def shortened(text: str, most: int) -> str:
    """The text, or its beginning and an ellipsis if it has more than `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


@dataclass
class Canvas:
    """Shapes, and the size that holds them."""

    parts: list[str] = field(default_factory=list)
    width: float = 0.0
    height: float = 0.0

    def reach(self, x: float, y: float) -> None:
        """Grow so that a point is inside."""
        self.width, self.height = max(self.width, x), max(self.height, y)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 13,
        anchor: str = "middle",
        colour: str = INK,
        bold: bool = False,
    ) -> None:
        """One line of text; `anchor` is start, middle or end."""
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}" '
            f'fill="{colour}"{weight}>{escape(text)}</text>'
        )
        right = {"start": 1.0, "middle": 0.5, "end": 0.0}[anchor]
        self.reach(x + right * width_of(text, size), y + 0.3 * size)

    def dot(self, x: float, y: float, radius: float, fill: str, stroke: str) -> None:
        """A circle."""
        self.parts.append(
            f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{fill}" stroke="{stroke}" '
            'stroke-width="1.5"/>'
        )
        self.reach(x + radius, y + radius)

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str,
        stroke: str,
        round_by: float = 4,
    ) -> None:
        """A rectangle with round corners."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{round_by:g}" '
            f'fill="{fill}" stroke="{stroke}" stroke-width="1.2"/>'
        )
        self.reach(x + width, y + height)

    def curve(self, points: Sequence[tuple[float, float]], colour: str, dashes: str = "") -> None:
        """A line downward through points, vertical at each of them."""
        path = f"M{points[0][0]:g} {points[0][1]:g}"
        for (x, y), (to_x, to_y) in pairwise(points):
            middle = (y + to_y) / 2
            path += f" C{x:g} {middle:g} {to_x:g} {middle:g} {to_x:g} {to_y:g}"
        style = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.parts.append(
            f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.3"{style}/>'
        )
        for x, y in points:
            self.reach(x, y)

    def line(
        self, start: tuple[float, float], stop: tuple[float, float], colour: str, dashes: str = ""
    ) -> None:
        """A straight line."""
        style = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.parts.append(
            f'<path d="M{start[0]:g} {start[1]:g} L{stop[0]:g} {stop[1]:g}" stroke="{colour}" '
            f'stroke-width="1.3"{style}/>'
        )
        self.reach(*start)
        self.reach(*stop)

    def group(self, title: str, shapes: Sequence[str]) -> None:
        """Shapes that show a text while the pointer is over them."""
        inner = "\n".join(shapes)
        self.parts.append(f"<g>\n<title>{escape(title)}</title>\n{inner}\n</g>")

    def drawing(self, title: str, margin: int = 12) -> Drawing:
        """The shapes as a picture with a margin at the right and at the bottom."""
        width, height = round(self.width) + margin, round(self.height) + margin
        inner = "\n".join(self.parts)
        svg = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" font-family="sans-serif">\n'
            f"<title>{escape(title)}</title>\n"
            f'<rect width="{width}" height="{height}" fill="{PAPER}"/>\n{inner}\n</svg>\n'
        )
        return Drawing(svg, title, width, height)
