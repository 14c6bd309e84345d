"""The picture docs/benchmarks.svg, drawn from the tables of docs/benchmarks.md.

``python -m benchmarks.suite.picture`` draws it anew. A panel for each number of threads has a bar
from 1× to the fastest peer of each case, a mark for every peer, and the geometric mean.
"""

from __future__ import annotations

import math
import re
from html import escape
from pathlib import Path

PAGE, PICTURE = "benchmarks.md", "benchmarks.svg"
DOCS = Path(__file__).parents[2] / "docs"

NAMES, PANEL, GAP, TOP, ROW, BELOW = 362, 360, 30, 116, 19, 14  # pixels
LEAST, MOST, TICKS = 0.85, 110.0, (1, 2, 5, 10, 20, 50)
#: a colour and a shape for each peer, in the order of the tables
MARKS = (("#1864ab", "circle"), ("#e67700", "square"), ("#2b8a3e", "diamond"), ("#c92a2a", "up"))
BAR, TEXT, FAINT, MEAN = "#a5d8ff", "#1f2933", "#cbd2d9", "#d64545"


class Panel:
    """The table for one number of threads.

    Attributes
    ----------
    threads : int
    peers : list of str
        The libraries beside ours.
    cases : dict
        Case → time of each peer over ours; peers without a time are left out.
    mean : float
        The geometric mean of the fastest peers, as the table has it.
    """

    def __init__(self, threads: int, table: str) -> None:
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.split("\n")]
        # ours is compared with results in new arrays, as the peers', where the table has both
        ours = [number for number, title in enumerate(rows[0]) if title.startswith("ours")][-1]
        self.threads, self.peers = threads, rows[0][ours + 1 : -1]
        self.cases: dict[str, dict[str, float]] = {}
        self.mean = 1.0
        for name, *cells, ratio in rows[2:]:
            if name == "geometric mean":
                self.mean = float(ratio)
                continue
            times = dict(zip(self.peers, map(_milliseconds, cells[ours:]), strict=True))
            both = [_milliseconds(cell) for cell in reversed(cells[:ours])]
            mine = next((time for time in both if time), None)
            if mine:
                self.cases[name] = {peer: t / mine for peer, t in times.items() if t}

    def fastest(self, case: str) -> float:
        """The time of the fastest peer over ours; 0 where no peer has a time."""
        return min(self.cases.get(case, {}).values(), default=0.0)


def _milliseconds(cell: str) -> float | None:
    """The median in ``1.398 (1.378)``; None of ``-``, ``failed`` and of times with a note."""
    found = re.fullmatch(r"([\d.]+) \([\d.]+\)", cell)
    return float(found[1]) if found else None


def panels(page: str) -> list[Panel]:
    """The tables of times in a page, as they stand.

    Raises
    ------
    ValueError
        If there is none.
    """
    found = re.findall(r"^## (\d+) threads?\n\n(.*?)\n\n", page, re.MULTILINE | re.DOTALL)
    if not found:
        raise ValueError(f"docs/{PAGE} has no table of times")
    return [Panel(int(threads), table) for threads, table in found]


def place(ratio: float) -> float:
    """The distance of a ratio from the left side of its panel, on a logarithmic scale."""
    inside = min(max(ratio, LEAST), MOST)
    return math.log(inside / LEAST) / math.log(MOST / LEAST) * PANEL


def mark(x: float, y: float, style: tuple[str, str], kind: str = "mark") -> str:
    """The mark of a peer."""
    colour, shape = style
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y}" r="4" fill="{colour}" class="{kind}"/>'
    path = {
        "square": f"M{x - 3.5:.1f} {y - 3.5}h7v7h-7z",
        "diamond": f"M{x:.1f} {y - 5}l5 5l-5 5l-5 -5z",
        "up": f"M{x:.1f} {y - 5}l5 9h-10z",
    }[shape]
    return f'<path d="{path}" fill="{colour}" class="{kind}"/>'


def picture(page: str) -> str:
    """The SVG of a page's tables, the cases sorted by the ratio of the first one."""
    drawn = panels(page)
    order = sorted(drawn[0].cases, key=lambda case: -drawn[0].fastest(case))
    bottom, width = TOP + ROW * len(order), NAMES + (PANEL + GAP) * len(drawn)
    means = ", ".join(f"{p.mean:.2f}× on {_threads(p.threads)}" for p in drawn)
    title = f"Time of the fastest of PyTorch and JAX over ours: {means}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + BELOW}" '
        f'width="{width}" font-family="system-ui, sans-serif" font-size="12" fill="{TEXT}" '
        f'role="img" aria-label="{escape(title)}">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="12" y="24" font-size="17" font-weight="600">{escape(title)}</text>',
        '<text x="12" y="44">geometric mean (dashed line); '
        "a bar ends at the fastest peer of its case</text>",
    ]
    x = NAMES + place(1)
    for peer, style in zip(drawn[0].peers, MARKS, strict=False):
        parts.append(mark(x + 6, 62, style, "legend"))
        parts.append(f'<text x="{x + 16}" y="66">{escape(peer)}</text>')
        x += 36 + 7 * len(peer)
    for row, case in enumerate(order):
        y = TOP + ROW * row + 13
        parts.append(f'<text x="{NAMES - 12}" y="{y}" text-anchor="end">{escape(case)}</text>')
    for number, panel in enumerate(drawn):
        parts += _drawn(panel, order, NAMES + number * (PANEL + GAP), bottom)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _drawn(panel: Panel, order: list[str], left: float, bottom: float) -> list[str]:
    """Ticks, bars, marks and the mean of one panel."""
    x = left + place(1)
    parts = [f'<text x="{x:.1f}" y="{TOP - 22}" font-weight="600">{_threads(panel.threads)}</text>']
    for tick in TICKS:
        at = left + place(tick)
        parts.append(f'<path d="M{at:.1f} {TOP - 3}V{bottom}" stroke="{FAINT}"/>')
        parts.append(f'<text x="{at:.1f}" y="{TOP - 5}" text-anchor="middle">{tick}×</text>')
    for row, case in enumerate(order):
        y = TOP + ROW * row + 9
        fastest = panel.fastest(case)
        if not fastest:
            continue
        start, stop = sorted((place(1), place(fastest)))
        parts.append(
            f'<rect x="{left + start:.1f}" y="{y - 5}" width="{max(stop - start, 1):.1f}" '
            f'height="10" fill="{BAR}" class="bar"/>'
        )
        for peer, style in zip(panel.peers, MARKS, strict=False):
            if peer in panel.cases[case]:
                parts.append(mark(left + place(panel.cases[case][peer]), y, style))
    at = left + place(panel.mean)
    parts.append(
        f'<path d="M{at:.1f} {TOP - 3}V{bottom}" stroke="{MEAN}" stroke-dasharray="3 3"/>'
    )
    return parts


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count > 1)}"


def write(folder: Path) -> None:
    """Draw the picture of a folder's benchmarks.md beside it."""
    text = (folder / PAGE).read_text("utf-8")
    (folder / PICTURE).write_text(picture(text), "utf-8")


if __name__ == "__main__":
    write(DOCS)
