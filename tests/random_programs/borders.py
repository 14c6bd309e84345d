"""Stencils and windows over symbolic sizes, long ones among them: at the borders, places wrap, are
guarded or clamped.
"""

from __future__ import annotations

from tests.random_programs.draw import Draw, both, compare, integer, literal, read, variable
from tests.random_programs.programs import Input, Node, Program, Stage

#: values of two sizes, call by call: with vectors, shorter than borders, and empty
CALLS = ((37, 4), (3, 40), (6, 5), (2, 1), (0, 3))


def bordered_windows(draw: Draw) -> Program:
    """One or two stages over a row or an image, and perhaps channels."""
    sizes = [variable(name) for name in ("n", "h")[: draw.between(1, 2)]]
    channels = draw.pick((1, 1, 3))
    last = [channels] if channels > 1 else []
    inputs = [Input("A", (*sizes, *last), draw.dtype)]
    if len(sizes) == 1:  # so that calls tell the other size, too
        inputs.append(Input("C", (variable("h"),), draw.dtype))
    weights = draw.between(1, 4)
    inputs.append(Input("B", (weights,), draw.dtype))
    axes = tuple(zip("ijl", (*sizes, *last), strict=False))
    stages = []
    for number, name in enumerate("ST"[: draw.between(1, 2)]):
        source = "A" if number == 0 else "S"
        stages.append(_stage(draw, name, source, sizes, axes, weights if draw.chance(0.6) else 0))
    return draw.finished(inputs, stages)


def _stage(
    draw: Draw, name: str, source: str, sizes: list[Node], axes: tuple, weights: int
) -> Stage:
    """A window with weights, or else a function of some neighbours."""
    terms = []
    for _ in range(1 if weights else draw.between(2, 3)):
        places, guards = [], []
        for axis, size in zip("ij", sizes, strict=False):
            place, conditions = _place(draw, variable(axis), size, bool(weights))
            places.append(place)
            guards += conditions
        places += [variable(axis) for axis, _ in axes[len(sizes) :]]
        term = read(source, *places)
        if guards:
            term = Draw.node("if_then_else", both(guards), term, literal(0))
        terms.append(term)
    if weights:
        body = Draw.node("mul", terms[0], read("B", variable("k")))
        return Stage(name, axes, (body,), draw.dtype, "sum", (("k", 0, weights),))
    body = terms[0]
    for term in terms[1:]:
        body = Draw.node(draw.pick(("add", "mul", "sub")), body, term)
    return Stage(name, axes, (Draw.node("tanh", body) if draw.chance(0.3) else body,), draw.dtype)


def _place(draw: Draw, axis: Node, size: Node, window: bool) -> tuple[Node, list[Node]]:
    """A place near an axis, and the conditions on it."""
    steps: list[Node] = [integer(draw.between(-3, 3))]
    if window:
        steps.append(Node("mul", (variable("k"), integer(draw.pick((1, 1, 2, -1))))))
    backward = draw.chance(0.15)
    place = Node("sub", (Node("sub", (size, integer(1))), axis)) if backward else axis
    for step in steps:
        place = Node("add", (place, step))
    way = draw.pick(("wrapped", "wrapped", "guarded", "clamped", "itself"))
    if way == "wrapped":
        return Node("mod_if_any", (place, size)), []
    if way == "guarded":
        return place, [compare("ge", place, integer(0)), compare("lt", place, size)]
    if way == "clamped":
        top = Node("min", (place, Node("sub", (size, integer(1)))))
        return Node("max", (top, integer(0))), []
    return axis, []
