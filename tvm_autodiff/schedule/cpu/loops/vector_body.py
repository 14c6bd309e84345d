"""Writes the stores of a nest for one turn of a loop that runs in the lanes of vectors.

Whatever lies side by side in memory is read and written in whole vectors, whose elements are
shuffled into lanes: neighbours along the loop at a small distance, rows that copies of the stores
read along another loop, and what copies write between neighbours. Shuffles go through buffers of
one vector, which LLVM keeps in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....codegen.loop_nest import (
    VECTORIZED,
    Local,
    Places,
    Statement,
    allocated,
    bind,
    element,
    local,
    loop,
    sequence,
    store,
)
from ....codegen.vectors import filled_with, picked, whole, widened_read, widened_store
from ....expr.build import add, cast, const, like, mul, sub, variable
from ....expr.costly import EXPENSIVE
from ....expr.linear_terms import linear_terms
from ....expr.nodes import (
    BINARY_CLASSES,
    BITWISE_CLASSES,
    Expr,
    Tensor,
    dtype_of,
    is_load,
    load,
    load_tensor,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ....expr.rewrite import postorder, replace_outermost, substitute
from ....graph.stage import Extent, shape_of
from ...cost import MAX_STRIDE
from ...declined import Declined
from ...nest.access import Affine, AffineForms, combine, interval, scaled
from ...nest.nest import Loop, Nest, Store
from .squares import turned

#: operators that there are for vectors
VECTOR_OPS = EXPENSIVE | {
    *(*BINARY_CLASSES, *BITWISE_CLASSES, "bitwise_not", "isnan", "isinf", "isfinite"),
    *("load", "var", "const", "select", "cast", "sqrt", "rsqrt", "fma", "not", "itself"),
    *("abs", "floor", "ceil", "trunc", "round", "nearbyint"),
}
_SCALAR_OPS = frozenset(("floordiv", "floormod", "truncmod"))


@dataclass(frozen=True)
class _Run:
    """What neighbours along the loop read or write: every `stride`-th element of a part of a
    tensor, from `offset` on.

    Attributes
    ----------
    part : tuple
        What identifies the part: indices outside of it, and the terms of other loops.
    others : Affine
        These terms.
    size : int or Expr
        The number of elements behind the outer indices.
    """

    part: tuple[object, ...]
    others: Affine
    stride: int
    offset: int
    size: Extent


def vector_body(
    nest: Nest, lanes: Loop, places: Places, bound: Sequence[Expr], gathers: bool = False
) -> Statement | Declined:
    """One turn of a loop with lanes, from its variable on.

    Parameters
    ----------
    bound : sequence of Expr
        The reads and parts of the values that get a name.
    gathers : bool
        Whether elements that lie apart are read one by one: the rest of the body takes longer.
    """
    return _Body(nest, lanes, places, bound, gathers).statement()


class _Body:
    """The statements of one turn: `before`, `inside` and `after` the loop over lanes."""

    def __init__(
        self, nest: Nest, lanes: Loop, places: Places, bound: Sequence[Expr], gathers: bool
    ) -> None:
        self._nest, self._loop, self._places = nest, lanes, places
        self._var, self._lanes = lanes.var, lanes.lanes
        self._bound, self._gathers = bound, gathers
        self._lane = variable("lane", dtype_of(lanes.var))
        self._here = {lanes.var: add(lanes.var, self._lane)}
        self._ranges = {**nest.ranges}
        if lanes.range is not None:
            low, high = lanes.range
            self._ranges[node_id(lanes.var)] = (low, high + 1 - lanes.lanes)
        self._forms = AffineForms(nest.variables)
        self._along = _along(nest, lanes)
        self._buffers: list[Local] = []
        self._before: list[Statement] = []
        self._inside: list[Statement] = []
        self._after: list[Statement] = []
        self._names: dict[int, Expr] = {}
        self._chunks: dict[object, list[Expr]] = {}

    def statement(self) -> Statement | Declined:
        """The turn, or why it cannot be made of vectors."""
        declined = self._named(self._nest.values)
        if declined is not None:
            return declined
        groups: dict[object, list[tuple[int, Store, Local]]] = {}
        for one in self._nest.stores:
            run = self._run(one.tensor, one.indices)
            value = self._at(one.value)
            if run is None or run.stride < 1:
                return Declined("its loop writes no neighbours")
            if run.stride == 1:
                indices = [substitute(index, self._here) for index in one.indices]
                self._inside.append(self._places.write(one.tensor, value, indices))
                continue
            part = self._local(dtype_of(value))
            self._inside.append(store(part, value, [self._lane]))
            key = (tensor_key(one.tensor), run.part, run.stride)
            groups.setdefault(key, []).append((run.offset, one, part))
            if len(groups[key]) == run.stride:
                group = sorted(groups.pop(key), key=lambda each: each[0])
                if group[-1][0] - group[0][0] != run.stride - 1:
                    return Declined("it leaves gaps in what it writes")
                self._interleave(group[0][1], [part for *_, part in group])
        if groups:
            return Declined("it leaves gaps in what it writes")
        inner = loop(self._lane, self._lanes, sequence(self._inside), VECTORIZED)
        return allocated(self._buffers, sequence([*self._before, inner, *self._after]))

    def _at(self, value: Expr) -> Expr:
        return self._places.read(substitute(replace_outermost(value, self._names), self._here))

    def _local(self, dtype: str) -> Local:
        self._buffers.append(local(f"t{len(self._buffers)}", [self._lanes], dtype))
        return self._buffers[-1]

    def _named(self, values: Sequence[Expr]) -> Declined | None:
        """Give reads and shared parts a name in the turn."""
        certain = {node_id(node) for node in self._bound}
        for node in postorder(list(values)):
            if not self._varies(node):
                continue
            name = op_name(node)
            if name == "if_then_else" and not self._varies(operands(node)[0]):
                continue
            if name not in VECTOR_OPS or name in _SCALAR_OPS:
                return Declined(f"{name} depends on its lanes, and has no vector form")
            if is_load(node) and node_id(node) not in certain:
                run = self._run(load_tensor(node), operands(node))
                if run is None or run.stride > 1:
                    return Declined("a branch reads neighbours at places that lie apart")
        self._turn([node for node in self._bound if is_load(node)])
        for node in self._bound:
            if is_load(node):
                known = node_id(node) in self._names or self._read(node)
                if not known and not self._gathers:
                    return Declined("it reads neighbours at places that lie apart")
                if not known:
                    self._gather(node)
            elif dtype_of(node) != "bool":
                part = self._local(dtype_of(node))
                self._inside.append(store(part, self._at(node), [self._lane]))
                self._names[node_id(node)] = element(part, [self._lane])
        return None

    def _varies(self, node: Expr) -> bool:
        return node_id(node) in self._along

    def _run(self, tensor: Tensor, indices: Sequence[Expr]) -> _Run | None:
        """Where neighbours along the loop are; None if that is no matter of a distance."""
        first = next((n for n, i in enumerate(indices) if self._varies(i)), len(indices))
        total = Affine(())
        size: Extent = 1
        dims = shape_of(tensor)
        for index, dim in reversed(list(zip(indices[first:], dims[first:], strict=True))):
            form = self._forms.of(index)
            if form is None or not isinstance(size, int):
                return None
            total = combine(total, scaled(form, size), 1, self._forms.order)
            size = dim if size == 1 else dim * size
        stride = total.coefficient(node_id(self._var))
        terms = tuple(term for term in total.terms if term[0] != node_id(self._var))
        part = (*self._forms_or_ids(indices[:first]), terms)
        return _Run(part, Affine(terms), stride, total.constant, size)

    def _forms_or_ids(self, indices: Sequence[Expr]) -> list[object]:
        return [self._forms.of(index) or node_id(index) for index in indices]

    def _read(self, node: Expr) -> bool:
        """Name a read, if its neighbours are in one vector or in few."""
        run = self._run(load_tensor(node), operands(node)) if self._varies(node) else None
        if run is not None and 1 < run.stride <= MAX_STRIDE:
            return self._strided(node, run)
        if self._varies(node) and (run is None or run.stride not in (0, 1)):
            return False
        self._names[node_id(node)] = variable(f"v{len(self._inside)}", dtype_of(node))
        value = self._places.read(substitute(node, self._here))
        self._inside.append(bind(self._names[node_id(node)], value))
        return True

    def _strided(self, node: Expr, run: _Run) -> bool:
        """``x[s*i + o] → t[lane]``, picked from s whole vectors that are inside of x."""
        starts = range(run.offset, run.offset - run.stride, -1)
        inside = [start for start in starts if self._lie_inside(run, start)]
        if not inside:
            return False
        keys = {s: (tensor_key(load_tensor(node)), run.part, run.stride, s) for s in inside}
        start = next((s for s, key in keys.items() if key in self._chunks), inside[0])
        if keys[start] not in self._chunks:
            first = start - run.offset
            self._chunks[keys[start]] = [
                self._vector(node, first + number * self._lanes) for number in range(run.stride)
            ]
        vectors = self._chunks[keys[start]]
        numbers = [lane * run.stride + run.offset - start for lane in range(self._lanes)]
        part = self._local(dtype_of(node))
        self._before.append(filled_with(part, picked(vectors, numbers)))
        self._names[node_id(node)] = element(part, [self._lane])
        return True

    def _lie_inside(self, run: _Run, start: int) -> bool:
        """Whether whole vectors from a place on hold nothing that lies outside of the tensor."""
        others, lanes = interval(run.others, self._ranges), self._lanes
        if others is None:
            return False
        low, end = self._loop.low, self._loop.extent
        if isinstance(end, int):
            low, end = self._ranges[node_id(self._var)]
            end += lanes
        else:
            end = add(end, like(end, low))
        if run.stride * low + others[0] + start < 0:
            return False
        if isinstance(end, int):
            if not isinstance(run.size, int):
                return False  # it may be less at a call
            left = run.size - run.stride * end
        else:
            size = like(end, run.size) if isinstance(run.size, int) else run.size
            read = mul(cast(dtype_of(size), end), like(size, run.stride))
            terms, left = linear_terms(sub(size, read))
            if terms:
                return False
        return left >= others[1] + start

    def _gather(self, node: Expr) -> None:
        """``x[f(i)] → for lane: t[lane] = x[f(i + lane)]``"""
        part, lane = self._local(dtype_of(node)), variable("lane", dtype_of(self._var))
        value = self._places.read(substitute(node, {self._var: add(self._var, lane)}))
        self._before.append(loop(lane, self._lanes, store(part, value, [lane])))
        self._names[node_id(node)] = element(part, [self._lane])

    def _vector(self, node: Expr, offset: int, lane: int = 0) -> Expr:
        """Elements side by side from a read on, that of some lane."""
        here = {self._var: add(self._var, const(lane, dtype_of(self._var)))} if lane else {}
        *outer, last = (substitute(index, here) for index in operands(node))
        moved = load(load_tensor(node), [*outer, add(last, const(offset, dtype_of(last)))])
        return widened_read(self._places.read(moved), self._lanes)

    def _turn(self, loads: Sequence[Expr]) -> None:
        """``x[i, o], .., x[i, o + L - 1] → t0[lane], ..``: rows of lanes i, transposed."""
        rows: dict[object, dict[int, Expr]] = {}
        for node in loads:
            if not self._varies(node) or self._varies(operands(node)[-1]):
                continue
            *outer, last = operands(node)
            form = self._forms.of(last)
            if form is not None:
                key = (tensor_key(load_tensor(node)), *self._forms_or_ids(outer), form.terms)
                rows.setdefault(key, {})[form.constant] = node
        for reads in rows.values():
            first, last = min(reads), max(reads)
            if last - first + 1 != len(reads) or len(reads) < self._lanes:
                continue
            for begin in range(first, last + 1, self._lanes):
                start = min(begin, last + 1 - self._lanes)
                lines = [self._vector(reads[start], 0, lane) for lane in range(self._lanes)]
                self._before += turned(lines, self._buffers, dtype_of(reads[start]))[0]
                for number, column in enumerate(self._buffers[-self._lanes :]):
                    name = element(column, [self._lane])
                    self._names[node_id(reads[start + number])] = name

    def _interleave(self, first: Store, parts: Sequence[Local]) -> None:
        """``t0, t1 → x[2*base ..] = t0[0], t1[0], t0[1], ...``"""
        *outer, last = first.indices
        zero, count = const(0, dtype_of(first.tensor)), len(parts)
        for number in range(count):
            numbers = [
                place % count * self._lanes + place // count
                for place in range(number * self._lanes, (number + 1) * self._lanes)
            ]
            at = add(last, const(number * self._lanes, dtype_of(last)))
            plain = self._places.write(first.tensor, zero, [*outer, at])
            value = picked([whole(part) for part in parts], numbers)
            self._after.append(widened_store(plain, value, self._lanes))


def _along(nest: Nest, lanes: Loop) -> set[int]:
    """The nodes of a nest that depend on a loop, by id."""
    found = {node_id(lanes.var)}
    indices = [index for one in nest.stores for index in one.indices]
    for node in postorder([*nest.values, *indices]):
        if any(node_id(part) in found for part in operands(node)):
            found.add(node_id(node))
    return found
