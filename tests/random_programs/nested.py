"""Small programs whose indices are nested clamps, divisions, remainders and choices.

They compute little and were slow, or endless, to build: what matters is the time.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.random_programs.draw import Draw, compare, integer, variable
from tests.random_programs.interpreter import Unusable
from tests.random_programs.programs import Input, Node, Program, Stage

SHAPES = ((5,), (4,), (3, 2), (2, 3), (6,), (2, 2, 2))
DEPTHS = (1, 2, 3)  #: of operators that are no sums, in one index of a program


def nested_indices(draw: Draw) -> Program:
    """A few reductions that read each other, and the input, at nested indices."""
    A = Input("A", draw.pick(((4, 5), (7,), (3, 4), (2, 3, 3))), draw.dtype)
    draw.tensors["A"] = A.shape
    stages: list[Stage] = []
    depth = draw.pick(DEPTHS)
    for place in range(draw.between(2, 3)):
        axes = tuple(zip("ijl", draw.pick(SHAPES), strict=False))
        draw.spatial, draw.reduced = list(axes), []
        reducer = draw.pick((None, "sum", "sum", "max", "min", "prod"))
        if reducer is not None:
            draw.reduced = [(name, 0, draw.between(2, 3)) for name in "km"[: draw.between(1, 2)]]
        source = stages[-1].name if stages else "A"
        body = draw.smooth(_read(draw, source, depth), 1)
        for _ in range(draw.between(1, 2)):
            other = _read(draw, draw.tensor(), depth)
            if draw.chance(0.4):
                other = draw.smooth(other, 1)
            body = draw.node(draw.pick(("add", "mul", "mul", "max")), body, other)
        stage = Stage(f"S{place}", axes, (body,), draw.dtype, reducer, tuple(draw.reduced))
        stages.append(stage)
        draw.declare(stage)
    return draw.finished([A], stages)


def _read(draw: Draw, tensor: str, depth: int) -> Node:
    """A read at an index that is nested in one dimension, and perhaps in others."""
    draw.unread.discard(tensor)
    indices, guards = [], []
    for place, extent in enumerate(draw.tensors[tensor]):
        form = _form(draw, depth if place == 0 else draw.between(0, depth))
        way = draw.pick(("mod", "clamp", "clamp", "guard", "div"))
        index, conditions = draw.legal(form, [draw.range_of(form)], extent, way)
        indices.append(index)
        guards += conditions
    made = Node("load", tuple(indices), tensor, "float")
    for condition in guards:
        made = draw.node("if_then_else", condition, made, Node("const", value=0.0, dtype="float"))
    return made


def _form(draw: Draw, depth: int) -> Node:
    """An index with about `depth` operators that are no sums, one in the other."""
    if depth == 0:
        return draw.affine()
    form = draw.pick(WAYS)(draw, _form(draw, depth - 1))
    low, high = draw.range_of(form)
    if max(-low, high) > 1000:
        raise Unusable("an index that grows")
    return form


def _clamped(draw: Draw, form: Node) -> Node:
    low, high = draw.range_of(form)
    middle = (low + high) // 2
    bottom = draw.between(low, middle)
    upper = Node("min", (form, integer(draw.between(middle, high))))
    return Node("max", (upper, integer(bottom)))


def _divided(draw: Draw, form: Node) -> Node:
    return Node("floordiv", (form, integer(draw.between(2, 4))))


def _remainder(draw: Draw, form: Node) -> Node:
    return Node("floormod", (form, integer(draw.between(2, 6))))


def _chosen(draw: Draw, form: Node) -> Node:
    """One of two forms, by a condition on one of them."""
    low, high = draw.range_of(form)
    condition = compare(draw.pick(("lt", "ge", "eq")), form, integer(draw.between(low, high)))
    other = Node(draw.pick(("add", "sub")), (draw.affine(), form))
    return Node(draw.pick(("select", "if_then_else")), (condition, form, other))


def _scaled(draw: Draw, form: Node) -> Node:
    """``2*form - axis + 1`` and the like; the operator below becomes one of a sum."""
    factor = draw.pick((-2, -1, 2, 3))
    other = variable(draw.pick(draw.axes)[0])
    moved = Node(draw.pick(("add", "sub")), (Node("mul", (form, integer(factor))), other))
    inside = Node("add", (moved, integer(draw.between(-2, 2))))
    return draw.pick((_clamped, _remainder))(draw, inside)


WAYS: tuple[Callable[[Draw, Node], Node], ...] = (
    _clamped, _clamped, _divided, _remainder, _chosen, _scaled,
)  # fmt: skip
