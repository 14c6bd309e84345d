"""Reductions under conditions that hold in several separate parts of a range: disjunctions,
distances, wrapped differences, choices, differences of bits.
"""

from __future__ import annotations

from tests.random_programs.draw import Draw, both, compare, integer, literal, read, variable
from tests.random_programs.programs import Extent, Input, Node, Program, Stage


def separate_parts(draw: Draw) -> Program:
    """``S[j] = ⊕_k if c(k, j) then f(k) else identity``, for rows or none."""
    symbolic = draw.options.assignments is not None
    count = draw.between(5, 40)
    extent: Extent = variable("n") if symbolic else count
    places: Extent = extent if draw.chance(0.7) else draw.between(3, 30)
    rows = draw.pick(((), (), (3,)))
    conditions = _Conditions(draw, extent, 12 if symbolic else count)
    A = Input("A", (*rows, extent), draw.dtype)
    B = Input("B", (extent,), draw.dtype)
    k, j = variable("k"), variable("j")
    value = read("A", *(variable("i") for _ in rows), k)
    if draw.chance(0.4):
        value = Draw.node("mul", value, read("B", k))
    if draw.chance(0.2):
        value = Draw.node("tanh", value)
    if draw.chance(0.15) and places == extent:
        value = Draw.node(draw.pick(("mul", "add")), value, read("B", j))
    reducer = draw.pick(("sum", "sum", "sum", "max", "prod"))
    other = literal(0)
    if reducer == "max":
        other = literal(-1000)
    elif reducer == "prod":
        other = literal(1)
    elif draw.chance(0.1):
        other = Draw.node("mul", literal(-1), value) if draw.chance(0.5) else literal(0.5)
    body = Draw.node("if_then_else", conditions.draw(2), value, other)
    axes = (*(("i", row) for row in rows), ("j", places))
    stage = Stage("S", axes, (body,), draw.dtype, reducer, (("k", 0, extent),))
    return draw.finished([A, B], [stage])


class _Conditions:
    """Conditions on k and j, of which several may be joined."""

    def __init__(self, draw: Draw, extent: Extent, about: int) -> None:
        self._draw, self._about = draw, about
        self._extent = integer(extent) if isinstance(extent, int) else extent

    def draw(self, depth: int) -> Node:
        pick = self._draw.pick
        kind = pick(("or", "and", "not", "one"), (0.4, 0.15, 0.1, 0.35)) if depth else "one"
        if kind == "not":
            return Node("not", (self.draw(depth - 1),), dtype="bool")
        if kind == "and":
            return both([self.draw(depth - 1), self.draw(depth - 1)])
        if kind == "or":
            return Node("or", (self.draw(depth - 1), self.draw(depth - 1)), dtype="bool")
        return self._one()

    def _one(self) -> Node:
        draw, pick = self._draw, self._draw.pick
        k, j = variable("k"), variable("j")
        small = integer(draw.between(0, 5))
        near = integer(draw.between(-6, 6))
        kind = pick(("line", "line", "distance", "circle", "clamp", "bits", "window", "quotient"))
        order = pick(("lt", "le", "gt", "ge", "eq", "ne"))
        if kind == "line":
            return compare(order, k, Node("add", (pick((j, integer(self._about // 2))), near)))
        if kind == "distance":
            apart = Node("sub", (k, j))
            return compare(order, Node("abs", (apart,)), small)
        if kind == "circle":
            apart = Node("sub", pick(((k, j), (j, k))))
            if draw.chance(0.5):
                apart = Node("add", (apart, self._extent))
            modulus = integer(self._about) if draw.chance(0.2) else self._extent
            return compare(order, Node("mod_if_any", (apart, modulus)), small)
        if kind == "clamp":
            ends = Node(pick(("min", "max")), (k, pick((j, integer(self._about // 2)))))
            return compare(order, ends, Node("add", (pick((j, integer(3))), near)))
        if kind == "bits":
            return compare("eq", Node("bitwise_xor", pick(((k, j), (j, k)))), small)
        if kind == "quotient":
            width = integer(draw.between(2, 7))
            return compare(order, *(Node("floordiv", (at, width)) for at in (k, j)))
        start = Node("add", (j, near))
        end = Node("add", (start, integer(draw.between(1, 4))))
        return both([compare("ge", k, start), compare("lt", k, end)])
