"""Strip-mines one loop into rounds of vectors, with a remainder.

A row of n elements becomes n // (U*L) rounds of U vectors of L lanes, then the remaining vectors,
then one narrower vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....codegen.loop_nest import (
    SERIAL,
    UNROLLED,
    VECTORIZED,
    Local,
    Statement,
    counter,
    loop,
    nested,
    sequence,
    store,
)
from ....expr.build import add, cast, const, like, mul, sub
from ....expr.nodes import Expr, binary, dtype_of, op_name
from ....expr.rewrite import contains
from ....graph.sizes.nonnegative import nonnegative
from ....graph.stage import Extent
from ...cost import LATENCY, MAX_NODES
from ...fusion.row_items import Item

#: statements at a position of the innermost loop, which is lane number so and so of a round
Body = Callable[[Expr, Expr], Sequence[Statement]]


def filled(target: Local, value: Expr, shape: Sequence[int], lanes: int) -> Statement:
    """``target[...] = value``."""
    outer = [counter("i", extent) for extent in shape[:-1]]

    def body(position: Expr, _: Expr) -> list[Statement]:
        return [store(target, value, [*outer, position])]

    if not shape:
        return store(target, value, [])
    inner = strips(
        shape[-1],
        lanes,
        1,
        "int32",
        lambda base, groups, width: vectors(base, groups, width, body, VECTORIZED),
    )
    return nested(list(zip(outer, shape[:-1], strict=True)), inner)


def strip_start(number: Expr, width: int, end: Extent, low: Expr | int = 0) -> Expr:
    """Where a strip of some width begins: the last one ends where the axis does, and overlaps the
    one before.
    """
    dtype = dtype_of(number)
    first = const(low, dtype) if isinstance(low, int) else low
    start = add(mul(number, const(width, dtype)), first)
    if isinstance(end, int):
        exact = isinstance(low, int) and (end - low) % width == 0
        return start if exact else binary("min", start, const(end - width, dtype))
    return binary("min", start, sub(end, const(width, dtype)))


def vectors_of_strip(extent: Extent, lanes: int, folds: int, nodes: int = 1) -> int:
    """The number of vectors in a round: enough to hide the latency of a sum, and a power of two.

    Halves of three vectors would be written as one and a half vectors and read as others. A large
    body, of so many nodes, hides the latency itself.
    """
    if not folds:
        return 1
    most = max(1, min(LATENCY // folds, MAX_NODES // max(1, nodes)))
    most = max(1, min(most, extent // lanes)) if isinstance(extent, int) else most
    return 1 << (most.bit_length() - 1)


def plain_loop(item: Item, begin: Extent, end: Extent, body: Body) -> Statement:
    """A loop that is left to the compiler, including its branches."""
    extent = _length(begin, end)
    var = counter(item.loops[-1].var.name, extent)
    place = add(var, _number(begin, dtype_of(var)))
    return loop(var, extent, sequence(body(place, const(0, "int32"))))


def vector_loop(
    items: Sequence[Item], begin: Extent, end: Extent, unroll: int, body: Body
) -> Statement:
    """A loop in vectors; the compiler vectorises it if conditions remain."""
    kind = SERIAL if any(item.guarded for item in items) else VECTORIZED
    item, extent = items[0], _length(begin, end)
    dtype = dtype_of(item.loops[-1].var)
    start = _number(begin, dtype)

    def group(base: Expr, groups: int, width: int) -> Statement:
        return vectors(add(base, start), groups, width, body, kind)

    if isinstance(extent, int):
        return strips(extent, item.lanes, unroll, dtype, group, halved=any(map(_chooses, items)))
    widths = [unroll * item.lanes, *(halves(item.lanes) if kind == VECTORIZED else [])]
    widths = [width for width in dict.fromkeys(widths) if width > 1]

    def one(place: Expr) -> Statement:
        return sequence(body(add(place, start), const(0, "int32")))

    return symbolic_strips(extent, dtype, widths, unroll, group, one)


def _length(begin: Extent, end: Extent) -> Extent:
    """What lies between; less than nothing where the end is before."""
    if isinstance(end, int) and isinstance(begin, int):
        return end - begin
    if isinstance(begin, int):
        return sub(end, like(end, begin))
    return sub(like(begin, end) if isinstance(end, int) else end, begin)


def _number(extent: Extent, dtype: str) -> Expr:
    return const(extent, dtype) if isinstance(extent, int) else cast(dtype, extent)


def halves(lanes: int) -> list[int]:
    """Vectors and narrower ones: what is left of a symbolic loop may be shorter than a register."""
    return [width for width in (lanes, lanes // 2, lanes // 4, lanes // 8) if width > 1]


def symbolic_strips(
    extent: Expr,
    dtype: str,
    widths: Sequence[int],
    unroll: int,
    group: Callable[[Expr, int, int], Statement],
    one: Callable[[Expr], Statement],
) -> Statement:
    """Strips of each width in turn, the first of which are rounds of several vectors, and then
    single elements.
    """
    extent = nonnegative(extent)  # of -2 elements, none are left after -1 rounds of 32
    statements, done = [], const(0, dtype)
    for number, width in enumerate(widths):
        left = sub(extent, done)
        trips = binary("floordiv", left, const(width, dtype))
        trip = counter("o", trips)
        position = add(done, mul(trip, const(width, dtype)))
        groups = unroll if number == 0 else 1
        statements.append(loop(trip, trips, group(position, groups, width // groups)))
        done = sub(extent, binary("floormod", extent, const(width, dtype)))
    rest = counter("rest", extent)
    return sequence([*statements, loop(rest, sub(extent, done), one(add(done, rest)))])


def strips(
    extent: int,
    lanes: int,
    unroll: int,
    dtype: str,
    group: Callable[[Expr, int, int], Statement],
    halved: bool = False,
) -> Statement:
    """Rounds of vectors, the remaining vectors, and their remainder, in vectors of powers of two if
    it is `halved`.
    """
    length = unroll * lanes
    trips, left = divmod(extent, length)
    groups, rest = divmod(left, lanes)
    statements: list[Statement] = []
    if trips:
        trip = counter("o", trips)
        statements.append(loop(trip, trips, group(mul(trip, const(length, dtype)), unroll, lanes)))
    if groups:
        statements.append(group(const(trips * length, dtype), groups, lanes))
    widths = [1 << bit for bit in reversed(range(rest.bit_length())) if rest >> bit & 1]
    for width in widths if halved else [rest] if rest else []:
        statements.append(group(const(extent - rest, dtype), 1, width))
        rest -= width
    return sequence(statements)


def _chooses(item: Item) -> bool:
    """Whether what reduces chooses by comparisons: LLVM 22 does not end on seven lanes of some."""
    found = [] if item.reduction is None else item.reduction.combiner.result
    return contains(found, lambda node: op_name(node) in ("select", "if_then_else"))


def vectors(base: Expr, groups: int, width: int, body: Body, kind: Any) -> Statement:
    """``groups`` vectors of ``width`` elements."""
    dtype = dtype_of(base)
    group, lane = counter("u", groups), counter("l", width)

    def at(number: Expr) -> Statement:
        start = mul(number, const(width, "int32"))
        inside = add(start, lane)
        position = add(base, inside if dtype == "int32" else inside.astype(dtype))
        return loop(lane, width, sequence(body(position, inside)), kind)

    if groups == 1:
        return at(const(0, "int32"))
    return loop(group, groups, at(group), UNROLLED)
