"""Windows over arrays that are stored flat, in rows of another length, or by several digits: places
are computed as in C, and are taken apart where the array has dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tests.random_programs.draw import Draw, both, compare, integer, literal, read, variable
from tests.random_programs.programs import Input, Node, Program, Stage


def flat_arrays(draw: Draw) -> Program:
    """A sum of products over windows of one or two dimensions, and perhaps a stage that reads it
    flat.
    """
    dims = [draw.between(2, 6) for _ in range(draw.between(2, 3))]
    sizes = [draw.pick((1, 2, 3)) for _ in dims]
    padded = [size > 1 and draw.chance(0.4) for size in sizes]
    sizes = [min(size, dim) for size, dim in zip(sizes, dims, strict=True)]
    counts = [
        dim if pad else dim - size + 1
        for dim, size, pad in zip(dims, sizes, padded, strict=True)
    ]
    outer = [variable(name) for name in "ijl"[: len(dims)]]
    inner = [variable(name) for name in "kmp"[: len(dims)]]
    places, guards = [], []
    for i, k, dim, size, pad in zip(outer, inner, dims, sizes, padded, strict=True):
        place = i if size == 1 else Node("add", (i, k))
        if pad:
            place = Node("sub", (place, integer(1)))
            guards += [compare("ge", place, integer(0)), compare("lt", place, integer(dim))]
        places.append(place)
    A = Input("A", _storage(draw, dims), draw.dtype)
    windows = [(name, 0, size) for name, size in zip("kmp", sizes, strict=False) if size > 1]
    term = _read(draw, "A", A.shape, places, dims)
    inputs = [A]
    if windows and draw.chance(0.7):
        W = Input("B", _storage(draw, [size for _, _, size in windows]), draw.dtype)
        inputs.append(W)
        weight = [variable(name) for name, _, _ in windows]
        by = _read(draw, "B", W.shape, weight, [size for _, _, size in windows])
        term = Draw.node("mul", term, by)
    elif draw.chance(0.5):
        term = Draw.node("tanh", term)
    if guards:
        term = Draw.node("if_then_else", both(guards), term, literal(0))
    axes = tuple(zip("ijl", counts, strict=False))
    stages = [_stage(draw, "S", axes, term, windows)]
    if draw.chance(0.4):
        total = prod(counts)
        digits = _digits(variable("q"), counts)
        body = Draw.node("mul", read("S", *digits), read("S", *_digits(variable("q"), counts)))
        stages.append(_stage(draw, "T", (("q", total),), body, []))
    return draw.finished(inputs, stages)


def _stage(
    draw: Draw, name: str, axes: tuple[tuple[str, int], ...], term: Node, windows: Sequence
) -> Stage:
    if not windows:
        return Stage(name, axes, (term,), draw.dtype)
    reducer = draw.pick(("sum", "sum", "sum", "max"))
    return Stage(name, axes, (term,), draw.dtype, reducer, tuple(windows))


def _storage(draw: Draw, dims: Sequence[int]) -> tuple[int, ...]:
    """The shape of an array of as many elements, in one dimension or some."""
    total = prod(dims)
    columns = draw.pick([n for n in range(1, total + 1) if total % n == 0])
    shapes = [(total,), (total,), (total // columns, columns), tuple(dims)]
    shapes.append((*dims[:-2], prod(dims[-2:])))
    return tuple(shapes[draw.between(0, len(shapes) - 1)])


def _read(
    draw: Draw, name: str, shape: Sequence[int], places: Sequence[Node], dims: Sequence[int]
) -> Node:
    if tuple(shape) == tuple(dims) and draw.chance(0.5):
        return read(name, *places)
    flat = places[0]
    for place, dim in zip(places[1:], dims[1:], strict=True):
        flat = Node("add", (Node("mul", (flat, integer(dim))), place))
    return read(name, *_digits(flat, shape))


def _digits(place: Node, shape: Sequence[int]) -> list[Node]:
    """``q → q//20, q//4%5, q%4`` for a shape of 3, 5, 4."""
    found = []
    for number in range(len(shape)):
        stride = prod(shape[number + 1 :])
        digit = Node("floordiv", (place, integer(stride))) if stride > 1 else place
        found.append(Node("floormod", (digit, integer(shape[number]))) if number else digit)
    return found
