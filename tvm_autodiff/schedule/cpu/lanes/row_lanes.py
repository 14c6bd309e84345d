"""Writes a row program as statements for as many rows as a vector has lanes.

Loads, arithmetic and stores cover all lanes. Data stored component by component is transposed in
registers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ....codegen.loop_nest import (
    VECTORIZED,
    Buffer,
    Local,
    Statement,
    bind,
    element,
    local,
    loop,
    sequence,
    store,
)
from ....codegen.vectors import filled_with, picked, whole, widened_read, widened_store
from ....expr.build import add, const, variable
from ....expr.nodes import (
    Expr,
    Tensor,
    Var,
    dtype_of,
    is_load,
    load_tensor,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ....expr.rewrite import Rewriter, postorder, tree_size
from ....graph.stage import shape_of
from ...cost import CALL
from ...nest.recurrences.row_program import RowProgram, components_of, index_key
from ..loops.squares import turned

Key = tuple[int, int]
#: from a lane and a value to the statement that keeps it
Write = Callable[[Expr, Expr], Statement]


@dataclass(frozen=True)
class Lanes:
    """The rows and times of the lanes of a vector.

    Attributes
    ----------
    count : int
    rows : callable
        Maps a lane to the indices of its row.
    time : callable
        Maps a lane to its time.
    neighbours : bool
        Whether the lanes are neighbouring rows at the same time.
    """

    count: int
    rows: Callable[[Expr], Sequence[Expr]]
    time: Callable[[Expr], Expr]
    neighbours: bool = True


@dataclass(frozen=True)
class Stack:
    """A tensor in a buffer, possibly with a leading time index and a trailing lane."""

    tensor: Tensor
    buffer: Buffer | Local
    timed: bool
    by_lane: bool = False


def stacks_in(
    buffers: Mapping[Key, Buffer], inside: Sequence[Tensor], outside: Sequence[Tensor], timed: bool
) -> list[Stack]:
    """The tensors of a step, in the buffers of the tensors outside of the loop."""
    return [
        Stack(one, buffers[tensor_key(many)], timed)
        for one, many in zip(inside, outside, strict=True)
    ]


@dataclass
class RowLanes:
    """Writes steps of a program.

    Attributes
    ----------
    program : RowProgram
    sources : mapping from tensor key to Stack
        The buffers of what the step reads.
    buffers : list of Local
        The buffers of the statements: a vector for each stored value.
    """

    program: RowProgram
    sources: Mapping[Key, Stack]
    buffers: list[Local] = field(default_factory=list)

    def step(
        self,
        lanes: Lanes,
        states: Sequence[Callable[[Expr], Expr]],
        results: Sequence[tuple[Expr, Write]],
        stacks: Sequence[tuple[Sequence[Expr], Stack]],
    ) -> list[Statement]:
        """The statements of one step.

        Parameters
        ----------
        lanes : Lanes
        states
            For each variable of the state, its value in a lane.
        results
            Values over the program's variables, with the statements that store them after all
            reads.
        stacks
            The components of stacked results, and where they are stored.
        """
        lane = variable("lane", "int32")
        writes, after = list(results), []
        for values, stack in stacks:
            vectors = self._vectors(stack, lanes)
            writes += [
                (value, self._written(stack, lanes, vectors, place))
                for value, place in zip(values, self._places(stack), strict=True)
            ]
            after += self._together(stack, lanes, list(vectors.values()))
        before, apart = self._taken_apart(lanes)
        inside: list[Statement] = []
        table = dict(zip(map(node_id, self.program.rows), lanes.rows(lane), strict=True))
        for var, state in zip((v for vs in self.program.states for v in vs), states, strict=True):
            table[node_id(var)] = _bound(var, state(lane), inside)
        self._bind_values(lanes, lane, [value for value, _ in writes], apart, table, inside)
        renamed = Rewriter(lambda n: table.get(node_id(n)) if op_name(n) == "var" else None)
        inside += [write(lane, renamed(value)) for value, write in writes]
        return [*before, loop(lane, lanes.count, sequence(inside), VECTORIZED), *after]

    def moved(
        self, lanes: Lanes, stack: Stack, places: Sequence[Local], first: Sequence[Expr], out: bool
    ) -> Statement:
        """``place[first, lane] = stack[row, c]`` for each component, or with `out` the other way
        round.
        """
        lane = variable("lane", "int32")
        here = [*first, lane]
        vectors = self._vectors(stack, lanes)
        pairs = zip(places, self._places(stack), strict=True)
        statements = []
        for place, component in pairs:
            vector = vectors.get(component)
            if out:
                write = self._written(stack, lanes, vectors, component)
                statements.append(write(lane, element(place, here)))
            elif vector is not None:
                statements.append(store(place, element(vector, [lane]), here))
            else:
                index = _index(stack, lanes, lane, component)
                statements.append(store(place, element(stack.buffer, index), here))
        turns = loop(lane, lanes.count, sequence(statements), VECTORIZED)
        found = list(vectors.values())
        if out:
            return sequence([turns, *self._together(stack, lanes, found)])
        return sequence([*(self._apart(stack, lanes, found) if found else []), turns])

    def _places(self, stack: Stack) -> list[tuple[int, ...]]:
        return components_of(stack.tensor, len(self.program.rows))

    def _local(self, name: str, dtype: str, lanes: Lanes) -> Local:
        self.buffers.append(local(f"{name}{len(self.buffers)}", [lanes.count], dtype))
        return self.buffers[-1]

    def _vectors(self, stack: Stack, lanes: Lanes) -> dict[tuple[int, ...], Local]:
        """A vector for each component, where they are interleaved."""
        places = self._places(stack)
        if len(places) < 2 or lanes.count < 2 or not lanes.neighbours:
            return {}
        dtype = dtype_of(stack.tensor)
        return {place: self._local("part", dtype, lanes) for place in places}

    def _written(
        self,
        stack: Stack,
        lanes: Lanes,
        vectors: Mapping[tuple[int, ...], Local],
        place: tuple[int, ...],
    ) -> Write:
        if place in vectors:
            return lambda lane, value: store(vectors[place], value, [lane])
        return lambda lane, value: store(stack.buffer, value, _index(stack, lanes, lane, place))

    def _taken_apart(
        self, lanes: Lanes
    ) -> tuple[list[Statement], dict[Key, dict[tuple[int, ...], Local]]]:
        """``part_c[:] = x[row .. row + lanes, c]`` for all components of what is read by rows."""
        rows = [index_key(row) for row in self.program.rows]
        found: dict[Key, dict[tuple[int, ...], Local]] = {}
        statements: list[Statement] = []
        for _, value in self.program.bindings:
            if not is_load(value) or tensor_key(load_tensor(value)) in found:
                continue
            stack = self.sources[tensor_key(load_tensor(value))]
            own = [index_key(index) for index in operands(value)[: len(rows)]] == rows
            shape = shape_of(stack.tensor)
            if not own or shape[: len(rows)] != self.program.extents:
                continue
            if not all(isinstance(dim, int) for dim in shape[len(rows) :]):
                continue  # it is no row of few components
            vectors = self._vectors(stack, lanes)
            if not vectors:
                continue
            found[tensor_key(stack.tensor)] = vectors
            statements += self._apart(stack, lanes, list(vectors.values()))
        return statements, found

    def _apart(self, stack: Stack, lanes: Lanes, vectors: Sequence[Local]) -> list[Statement]:
        """``vectors[c][:] = x[row .. row + lanes, c]``."""
        statements: list[Statement] = []
        zeros = self._places(stack)[0]
        if len(vectors) > lanes.count:
            for first in _squares(len(vectors), lanes.count):
                rows = []
                for lane in range(lanes.count):
                    start = _index(stack, lanes, const(lane, "int32"), zeros)
                    read = element(stack.buffer, _further(start, first))
                    rows.append(widened_read(read, lanes.count))
                more, columns = turned(rows, self.buffers, dtype_of(stack.tensor))
                here = vectors[first : first + lanes.count]
                statements += more
                statements += [filled_with(v, c) for v, c in zip(here, columns, strict=True)]
            return statements
        start, taken = _index(stack, lanes, const(0, "int32"), zeros), []
        for part in range(len(vectors)):
            taken.append(self._local("taken", dtype_of(stack.tensor), lanes))
            read = element(stack.buffer, _further(start, part * lanes.count))
            statements.append(filled_with(taken[-1], widened_read(read, lanes.count)))
        for number, vector in enumerate(vectors):
            order = [number + lane * len(vectors) for lane in range(lanes.count)]
            statements.append(filled_with(vector, picked([*map(whole, taken)], order)))
        return statements

    def _together(self, stack: Stack, lanes: Lanes, vectors: Sequence[Local]) -> list[Statement]:
        """``y[row .. row + lanes, c] = vectors[c][:]``."""
        if not vectors:
            return []
        statements: list[Statement] = []
        zeros, count = self._places(stack)[0], len(vectors)
        if count > lanes.count:
            for first in _squares(count, lanes.count):
                here = [whole(vector) for vector in vectors[first : first + lanes.count]]
                more, rows = turned(here, self.buffers, dtype_of(stack.tensor))
                statements += more
                for lane, row in enumerate(rows):
                    start = _index(stack, lanes, const(lane, "int32"), zeros)
                    statements.append(_stored(stack, _further(start, first), vectors, row, lanes))
            return statements
        start = _index(stack, lanes, const(0, "int32"), zeros)
        for part in range(count):
            first = part * lanes.count
            order = [
                place % count * lanes.count + place // count
                for place in range(first, first + lanes.count)
            ]
            value = picked([*map(whole, vectors)], order)
            statements.append(_stored(stack, _further(start, first), vectors, value, lanes))
        return statements

    def _bind_values(
        self,
        lanes: Lanes,
        lane: Expr,
        results: Sequence[Expr],
        apart: Mapping[Key, Mapping[tuple[int, ...], Local]],
        table: dict[int, Expr],
        inside: list[Statement],
    ) -> None:
        """Put what the variables of the program are into `table`, and the statements into `inside`.

        TVM inlines a variable's value into each of its uses unless it is a read, so a value that is
        used twice is stored in a separate vector, which LLVM keeps in a register.
        """
        values = {node_id(var): value for var, value in self.program.bindings}
        uses = _uses(values, results)
        for var, value in self.program.bindings:
            key = node_id(var)
            if not uses[key]:
                continue
            if is_load(value):
                read = self._read(value, lanes, lane, apart, table)
                table[key] = _bound(var, read, inside)
                continue
            placed = Rewriter(lambda n: table.get(node_id(n)) if op_name(n) == "var" else None)
            new = placed(value)
            if dtype_of(var) == "bool" or (uses[key] == 1 and tree_size(new) < CALL):
                table[key] = new
                continue
            kept = self._local(str(var.name), dtype_of(var), lanes)
            inside.append(store(kept, new, [lane]))
            table[key] = _bound(var, element(kept, [lane]), inside)

    def _read(
        self,
        value: Expr,
        lanes: Lanes,
        lane: Expr,
        apart: Mapping[Key, Mapping[tuple[int, ...], Local]],
        table: Mapping[int, Expr],
    ) -> Expr:
        stack = self.sources[tensor_key(load_tensor(value))]
        count = len(self.program.rows)
        vectors = apart.get(tensor_key(stack.tensor), {})
        rows = [*map(index_key, self.program.rows)]
        own = [index_key(index) for index in operands(value)[:count]] == rows
        component = tuple(map(index_key, operands(value)[count:]))
        found = next((v for c, v in vectors.items() if _numbers(c) == component), None)
        if own and found is not None:
            return element(found, [lane])
        placed = Rewriter(lambda n: table.get(node_id(n)) if op_name(n) == "var" else None)
        index = [placed(part) for part in operands(value)]
        time = [lanes.time(lane)] if stack.timed else []
        return element(stack.buffer, [*time, *index, *([lane] if stack.by_lane else [])])


def _numbers(component: Sequence[int]) -> tuple[tuple[str, int], ...]:
    """The keys of the indices of a component."""
    return tuple(("at", n) for n in component)


def tensors_read(program: RowProgram, results: Sequence[Expr]) -> set[Key]:
    """The keys of the tensors that values of a program need."""
    values = {node_id(var): value for var, value in program.bindings}
    uses = _uses(values, results)
    needed = [value for var, value in program.bindings if uses[node_id(var)]]
    return {tensor_key(load_tensor(value)) for value in needed if is_load(value)}


def _index(stack: Stack, lanes: Lanes, lane: Expr, component: Sequence[int]) -> list[Expr]:
    """The index of a component in memory."""
    time = [lanes.time(lane)] if stack.timed else []
    place = [*time, *lanes.rows(lane), *(const(n, "int32") for n in component)]
    return [*place, lane] if stack.by_lane else place


def _further(index: Sequence[Expr], count: int) -> list[Expr]:
    *outer, last = index
    return [*outer, add(last, const(count, dtype_of(last)))]


def _bound(var: Var, value: Expr, inside: list[Statement]) -> Var:
    """A read under a name."""
    fresh = variable(str(var.name), dtype_of(var))
    inside.append(bind(fresh, value))
    return fresh


def _uses(values: Mapping[int, Expr], results: Sequence[Expr]) -> Counter[int]:
    """The number of occurrences of each variable in what the results need."""
    uses: Counter[int] = Counter()
    pending = list(results)
    while pending:
        for node in _occurrences(pending.pop()):
            uses[node_id(node)] += 1
            if uses[node_id(node)] == 1 and node_id(node) in values:
                pending.append(values[node_id(node)])
    return uses


def _occurrences(root: Expr) -> list[Expr]:
    """The variables of an expression, as often as they occur."""
    order = postorder(root)
    parts = [part for node in order for part in operands(node)]
    return [node for node in [*parts, root] if op_name(node) == "var"]


def _squares(count: int, side: int) -> list[int]:
    """The starts of square blocks of components; the last may overlap the previous one."""
    return [min(first, count - side) for first in range(0, count, side)]


def _stored(
    stack: Stack, index: Sequence[Expr], like: Sequence[Local], value: Expr, lanes: Lanes
) -> Statement:
    one = store(stack.buffer, element(like[0], [const(0, "int32")]), index)
    return widened_store(one, value, lanes.count)
