"""Pictures of integer domains: the points of a box, and which of them satisfy the conditions.

A picture has a row for each case of the parameters, and optionally the solved domain beside the
one that was given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..domain import Domain, simplify_domain
from ..errors import InvalidArgumentError
from ..expr.build import const
from ..expr.integers.integer_functions import compile_integers
from ..expr.nodes import Expr, Var, dtype_of, node_id
from ..expr.printing.text import text
from ..expr.rewrite import substituter
from ..keywords import checked_keywords
from .svg import MUTED, Canvas, Drawing, width_of

STEP, RADIUS, MARGIN = 22, 6, 46
COUNTED = "#0b7285"
#: boxes with more points than this are no pictures
MOST = 4096


@checked_keywords
def draw_domain(
    domain: Domain,
    at: Mapping[Var, int] | Sequence[Mapping[Var, int]] = (),
    *,
    solved: bool = False,
) -> Drawing:
    """Draw the points of a domain of one or two variables.

    A point of the box that satisfies the conditions is filled; a point that does not is a circle.
    The first variable runs to the right, the second one upward.

    Parameters
    ----------
    domain : Domain
        A domain with one or two variables and finite ranges.
    at : mapping of Var to int, or sequence of these
        Values of the parameters. A sequence gives one row of points for each element.
    solved : bool
        Whether to draw the domain that `tvm_autodiff.domain.simplify_domain` makes of it on the
        right, with the old variables as functions of the new ones.

    Returns
    -------
    Drawing
        The picture, which a notebook displays.

    Raises
    ------
    InvalidArgumentError
        If the domain has more than two variables, a parameter has no value, or the box has more
        than 4,096 points.
    UnsolvableError
        If a range has no upper bound.

    Examples
    --------
    The pairs of outputs i and taps k of a strided convolution that read element 6:

    >>> from tvm import te
    >>> from tvm_autodiff.domain import Domain
    >>> i, k, j = te.var("i"), te.var("k"), te.var("j")
    >>> reads = Domain((i, k), {i: (0, 8), k: (0, 3), j: (0, 17)}, ((2 * i + k).equal(j),))
    >>> drawing = draw_domain(reads, {j: 6}, solved=True)
    >>> drawing.title
    'Points of (i, k)'
    >>> drawing.svg.count("<circle")  # 24 in the box as written, 2 after the solver
    26
    """
    cases = [at] if isinstance(at, Mapping) else list(at) or [{}]
    names = ", ".join(str(variable) for variable in domain.variables)
    title = f"Points of {names}" if len(domain.variables) == 1 else f"Points of ({names})"
    transformation = simplify_domain(domain) if solved else None
    canvas, top = Canvas(), MARGIN + (24 if solved else 0)
    for number, case in enumerate(cases):
        right = _panel(canvas, MARGIN, top, domain, case, _conditions(domain, case))
        if transformation is not None:
            if number == 0:
                canvas.text(MARGIN - 24, 22, "as written", 14, "start", bold=True)
                canvas.text(right + 6, 22, "after the solver", 14, "start", bold=True)
            solution = [
                f"{old} = {text(new)}"
                for old, new in ((v, transformation.old_to_new[v]) for v in domain.variables)
                if text(new) != str(old)
            ]
            new = transformation.new_domain
            _panel(canvas, right + 24, top, new, case, solution or ["the smallest box"])
        top = round(canvas.height) + MARGIN
    return canvas.drawing(title)


def _box(domain: Domain, at: Mapping[Var, int]) -> list[range]:
    """The ranges of the variables for given parameters."""
    if len(domain.variables) > 2:
        names = ", ".join(str(variable) for variable in domain.variables)
        raise InvalidArgumentError(
            f"draw_domain() draws one or two variables, not {names}: fix the others by conditions "
            "and leave them out, or draw pairs"
        )
    given = {node_id(variable) for variable in at}
    without = [str(p) for p in domain.parameters if node_id(p) not in given]
    if without:
        raise InvalidArgumentError(
            f"draw_domain() needs a value for {', '.join(without)}: pass at={{variable: value}}"
        )
    count = domain.volume(at)
    if count > MOST:
        raise InvalidArgumentError(
            f"a box of {count} points is too large to draw: use smaller sizes"
        )
    low_and_extent = [
        compile_integers(list(domain.ranges[v]), list(at))(*at.values()) for v in domain.variables
    ]
    return [range(low, low + extent) for low, extent in low_and_extent]


def _conditions(domain: Domain, at: Mapping[Var, int]) -> list[str]:
    """The conditions with the parameters replaced by their values."""
    replaced = substituter({var: const(value, dtype_of(var)) for var, value in at.items()})
    return [_plain(replaced(condition)) for condition in domain.conditions]


def _plain(condition: Expr) -> str:
    """A condition in the signs of mathematics."""
    return text(condition).replace("==", "=").replace("<=", "≤").replace(">=", "≥")


def _panel(
    canvas: Canvas,
    left: float,
    top: float,
    domain: Domain,
    at: Mapping[Var, int],
    captions: Sequence[str],
) -> float:
    """Draw one box with its captions; the right edge of the panel."""
    box = _box(domain, at)
    columns = box[0] if box else range(1)
    rows = box[1] if len(box) > 1 else range(1)
    points = set(domain.points(dict(at)))
    bottom = top + max(len(rows) - 1, 0) * STEP
    for column in columns:
        x = left + (column - columns.start) * STEP
        if box:
            canvas.text(x, bottom + 24, str(column), 11)
        for row in rows:
            counts = (column, row)[: len(box)] in points
            fill, stroke = (COUNTED, COUNTED) if counts else ("none", MUTED)
            canvas.dot(x, bottom - (row - rows.start) * STEP, RADIUS, fill, stroke)
    right = left + max(len(columns) - 1, 0) * STEP
    if box:
        canvas.text(right + 20, bottom + 24, str(domain.variables[0]), 12, "start")
    if len(box) > 1:
        for row in rows:
            canvas.text(left - 18, bottom - (row - rows.start) * STEP + 4, str(row), 11)
        canvas.text(left - 18, top - 20, str(domain.variables[1]), 12)
    size = len(columns) * len(rows)
    lines = [*captions, f"{size} iterations, {len(points)} needed"]
    for number, line in enumerate(lines):
        canvas.text(left - 8, bottom + 48 + 19 * number, line, 14, "start")
    return max(right + 40, left + max(width_of(line, 14) for line in lines))
