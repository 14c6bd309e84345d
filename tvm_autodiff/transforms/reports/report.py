"""The report on a gradient: text when printed, a table when a notebook displays it.

The table has a row for each read, the one furthest above its lower bound first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_HEADINGS = ("gradient", "read", "strategy", "iterations", "lower bound", "ratio")
#: what a fallback looks like: a colour, and words for readers who do not see it
_MARK = 'style="background:#fff3bf" title="the equations were not solved"'
_LEFT, _RIGHT = 'style="text-align:left"', 'style="text-align:right"'


@dataclass(frozen=True)
class Row:
    """One read of one stage: its strategy and iterations; None where sizes are symbolic."""

    gradient: str
    read: str
    strategy: str
    iterations: int | None
    bound: int | None
    fallback: bool

    @property
    def ratio(self) -> float:
        """Iterations for each iteration of the lower bound; 0 where it is unknown."""
        return self.iterations / self.bound if self.iterations and self.bound else 0.0

    def html(self) -> str:
        """The row of a table."""
        strategy = f"{self.strategy} (fallback)" if self.fallback else self.strategy
        words = (self.gradient, self.read, strategy)
        counts = ["symbolic" if n is None else f"{n:,}" for n in (self.iterations, self.bound)]
        counts.append(f"{self.ratio:.2f}" if self.ratio else "")
        cells = [f"<td {_LEFT}>{escape(word)}</td>" for word in words]
        cells += [f"<td {_RIGHT}>{count}</td>" for count in counts]
        return (
            f"<tr {_MARK}>{''.join(cells)}</tr>" if self.fallback else f"<tr>{''.join(cells)}</tr>"
        )


class Report(str):
    """The text of `explain()`, which a notebook displays as a table.

    Attributes
    ----------
    rows : sequence of Row
        One for each read site. Fallbacks are first, then the largest ratio.
    """

    rows: Sequence[Row] = ()

    def _repr_html_(self) -> str | None:
        if not self.rows:
            return None
        head = "".join(f"<th>{heading}</th>" for heading in _HEADINGS)
        body = "\n".join(row.html() for row in self.rows)
        return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def report(text: str, rows: Sequence[Row]) -> Report:
    """A report with its rows sorted, the worst first."""
    made = Report(text)
    made.rows = sorted(rows, key=lambda row: (not row.fallback, -row.ratio))
    return made
