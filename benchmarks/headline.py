"""Draws the headline of README.md from the recorded figures of docs/benchmarks.md.

``python -m benchmarks.headline`` writes docs/headline.svg: one bar for each case, sorted, with the
time of the fastest peer over ours, and the geometric mean. ``make bench`` does so, too.
"""

from __future__ import annotations

import math
import re
from html import escape
from pathlib import Path

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "docs" / "benchmarks.md"
PICTURE = ROOT / "docs" / "headline.svg"
THREADS = 2

WIDTH, LEFT, RIGHT, TOP, ROW = 760, 318, 44, 58, 15  # pixels
LEAST, MOST, TICKS = 0.9, 5.6, (1, 2, 5)
OURS, EVEN, TEXT, FAINT = "#1f77b4", "#9aa5b1", "#1f2933", "#cbd2d9"
MEAN = "#d64545"


def ratios(text: str, threads: int = THREADS) -> tuple[dict[str, float], float]:
    """The ratio of each case and their geometric mean, from the table for a number of threads.

    Raises
    ------
    ValueError
        If the page has no such table, or no mean.
    """
    found = re.search(rf"^## {threads} threads?\n\n(.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    if not found:
        raise ValueError(f"docs/benchmarks.md has no table for {threads} threads")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].split("\n")]
    cases = {row[0]: row[-1] for row in rows[2:] if re.fullmatch(r"[\d.]+", row[-1])}
    mean = float(cases.pop("geometric mean"))
    return {name: float(value) for name, value in cases.items()}, mean


def place(ratio: float) -> float:
    """The horizontal position of a ratio, on a logarithmic scale."""
    share = math.log(ratio / LEAST) / math.log(MOST / LEAST)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def picture(cases: dict[str, float], mean: float) -> str:
    """The SVG of some ratios."""
    order = sorted(cases.items(), key=lambda item: -item[1])
    bottom = TOP + ROW * len(order)
    title = f"Gradients {mean:.1f}× as fast as the fastest of PyTorch and JAX"
    note = f"geometric mean of {len(order)} cases on {THREADS} CPU cores; time of the fastest peer"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 8}" '
        f'width="{WIDTH}" font-family="system-ui, sans-serif" font-size="11" fill="{TEXT}" '
        f'role="img" aria-label="{escape(title)}">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="12" y="22" font-size="16" font-weight="600">{escape(title)}</text>',
        f'<text x="12" y="38">{note} (eager, torch.compile, torch.func, JAX jit) over ours</text>',
    ]
    for tick in TICKS:
        x = place(tick)
        parts.append(f'<path d="M{x:.1f} {TOP - 3}V{bottom}" stroke="{FAINT}"/>')
        parts.append(f'<text x="{x:.1f}" y="{TOP - 6}" text-anchor="middle">{tick}×</text>')
    x = place(mean)
    parts.append(f'<path d="M{x:.1f} {TOP - 3}V{bottom}" stroke="{MEAN}" stroke-dasharray="3 3"/>')
    for number, (name, ratio) in enumerate(order):
        y, start, end = TOP + ROW * number, place(1), place(max(ratio, LEAST))
        left, width = min(start, end), max(abs(end - start), 1)
        colour = OURS if ratio >= 1.05 else EVEN
        parts += [
            f'<text x="{LEFT - 12}" y="{y + 11}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{left:.1f}" y="{y + 2}" width="{width:.1f}" height="{ROW - 4}" '
            f'rx="1" fill="{colour}"/>',
            f'<text x="{max(start, end) + 5:.1f}" y="{y + 11}" '
            f'stroke="white" stroke-width="3" paint-order="stroke">{ratio:.2f}</text>',
        ]
    parts.append(
        f'<text x="{place(mean) + 6:.1f}" y="{bottom - 6}" fill="{MEAN}">'
        f"geometric mean {mean:.2f}×</text>"
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def write(folder: Path) -> None:
    """Draw the picture of a folder's benchmarks.md beside it."""
    found = ratios((folder / TABLE.name).read_text(encoding="utf-8"))
    (folder / PICTURE.name).write_text(picture(*found), encoding="utf-8")


if __name__ == "__main__":
    write(TABLE.parent)
