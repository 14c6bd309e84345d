"""Writes what a block of threads does with the rows of a fusion group, phase by phase.

Every nest is a phase of all threads, with neighbouring threads at neighbouring elements. Values
that one thread reduces are combined in shared memory, 16 at a time. Results that later nests read
are in shared memory, or in global memory if a thread reads only what it wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from ....codegen.flat_axes import indices_at, unflattened
from ....codegen.loop_nest import (
    Local,
    Places,
    Statement,
    allocated,
    counter,
    element,
    function,
    loop,
    parameter,
    sequence,
    store,
    when,
)
from ....codegen.thread_loops import REGISTERS, SHARED, barrier, bound, buffer_in
from ....expr.build import add, cast, compare, const, mul, sub
from ....expr.nodes import (
    Axis,
    Expr,
    Tensor,
    Var,
    binary,
    dtype_of,
    is_load,
    load_tensor,
    node_id,
    operands,
    tensor_key,
)
from ....expr.rewrite import expand_lets, map_loads, postorder, substituter
from ....graph.stage import Extent, axis_range, outputs_of
from ...fusion.row_items import FOLD, MAP, Item, Nest, nests_of
from ...kernel import size_of
from ...machine import Machine
from .registers import accumulated, combiner_of, registers_of
from .threads import WARP

Key = tuple[int, int]


def _int(extent: object) -> int:
    assert isinstance(extent, int)
    return extent


def items_size(axes: Sequence[Axis]) -> int:
    """The iterations of some loops."""
    return size_of([axis_range(axis)[1] for axis in axes])


def _extents(axes: Sequence[Axis]) -> list[int]:
    return [_int(axis_range(axis)[1]) for axis in axes]


@dataclass
class _Value:
    """The location of the elements of a row of a tensor: a buffer of the block, or memory."""

    item: Item
    dims: list[int]  #: dimensions of the tensor within a row
    shared: Local | None = None


class RowWriter:
    """Writes the phases of a fusion group."""

    def __init__(
        self,
        items: Sequence[Item],
        wanted: dict[Key, Tensor],
        extents: tuple[Extent, ...],
        block: tuple[int, int],
        machine: Machine,
    ) -> None:
        self.nests = nests_of(items)
        self.extents = extents
        self.threads, self.together = block
        self.grid = 4 * machine.multiprocessors  # blocks, where the number of rows is symbolic
        self.outputs = dict(wanted)
        self.budget = machine.shared_bytes
        self.shared: list[Local] = []
        self.values: dict[Key, _Value] = {}
        self.memory = Places()
        self.possible = True
        #: whether the next phase is the first one of a launch
        self.begins = all(isinstance(extent, int) for extent in extents)
        self.parts = self._parts()
        self._place(items)

    @property
    def fits(self) -> bool:
        """Whether every result has memory."""
        return self.possible and self.budget >= 0

    def _parts(self) -> dict[int, list[tuple[Local, Local]]]:
        """The partial results of each thread and the buffers for their combination, by reduction.

        Consecutive nests share both.
        """
        pool: dict[tuple[int, str], tuple[Local, Local]] = {}
        found: dict[int, list[tuple[Local, Local]]] = {}
        for nest in self.nests:
            slots = 0
            for item in nest.folds:
                found[id(item)] = []
                for tensor in outputs_of(item.op):
                    key = slots, dtype_of(tensor)
                    if key not in pool:
                        pool[key] = (
                            self._share("part", [self.together, self.threads], key[1]),
                            self._share("few", [self.together, 2 * self.threads // WARP], key[1]),
                        )
                    found[id(item)].append(pool[key])
                    slots += 1
        return found

    def _share(self, name: str, shape: Sequence[int], dtype: str) -> Local:
        buffer = buffer_in(SHARED, f"{name}_{len(self.shared)}", shape, dtype)
        self.budget -= prod(shape) * _bytes(dtype)
        self.shared.append(buffer)
        return buffer

    def _place(self, items: Sequence[Item]) -> None:
        """Assign a buffer to every result that a later nest reads, small ones first."""
        number = {id(item): n for n, nest in enumerate(self.nests) for item in nest.items}
        made = {tensor_key(t): item for item in items for t in outputs_of(item.op)}
        later: dict[Key, bool] = {}  # whether a thread reads only what it wrote
        for item in items:
            here = [node_id(axis.var) for axis in item.loops]
            for node in postorder(list(item.sources)):
                key = tensor_key(load_tensor(node)) if is_load(node) else None
                source = made.get(key) if key is not None else None
                if key is None or source is None:
                    continue
                place = [node_id(operands(node)[dim]) for dim in _dims(source)]
                same = place == here and _extents(source.loops) == _extents(item.loops)
                if source.kind == FOLD or number[id(source)] != number[id(item)] or not same:
                    own = same and source.kind != FOLD
                    later[key] = later.get(key, True) and own
        for item in items:
            for tensor in outputs_of(item.op):
                self.values[tensor_key(tensor)] = _Value(item, _dims(item))
        sizes = {key: prod(_extents(self.values[key].item.spatial)) for key in later}
        for key in sorted(later, key=lambda key: sizes[key]):
            item = self.values[key].item
            tensor = next(t for t in outputs_of(item.op) if tensor_key(t) == key)
            dtype = dtype_of(tensor)
            need = self.together * sizes[key] * _bytes(dtype)
            if need <= self.budget:
                shape = [self.together, *_extents(item.spatial)]
                self.values[key].shared = self._share("row", shape, dtype)
            elif later[key]:
                self.outputs.setdefault(key, tensor)
            else:
                self.possible = False

    def function(self, inputs: Sequence[Tensor]) -> object:
        """The function over inputs and outputs."""
        parameters = []
        for letter, tensors in (("p", list(inputs)), ("r", list(self.outputs.values()))):
            for number, tensor in enumerate(tensors):
                parameters.append(parameter(tensor, f"{letter}{number}"))
                self.memory.put(tensor, parameters[-1])
        return function(parameters, self._over_rows())

    def _over_rows(self) -> Statement:
        """A block for each row or a few; for symbolic sizes, every so many rows for each block."""
        rows = prod(extent for extent in self.extents if isinstance(extent, int))
        symbols = [cast("int32", extent) for extent in self.extents if not isinstance(extent, int)]
        if not symbols:
            block = counter("block", rows)
            body = sequence([part for nest in self.nests for part in self._nest(nest, block)])
            return bound(block, rows // self.together, "blockIdx.x", allocated(self.shared, body))
        block, again = counter("block", self.grid), counter("again", self.grid)
        total: Expr = const(rows, "int32")
        for symbol in symbols:
            total = mul(total, symbol)
        grid = const(self.grid, "int32")
        row = add(mul(again, grid), block)
        body = sequence([part for nest in self.nests for part in self._nest(nest, row)])
        left = sub(add(total, const(self.grid - 1, "int32")), block)
        body = loop(again, binary("floordiv", left, grid), body)
        return bound(block, self.grid, "blockIdx.x", allocated(self.shared, body))

    def _phase(self, make: Callable[[Var, Var], Statement]) -> Statement:
        x, y = counter("x", self.threads), counter("y", self.together)
        # TVM's own barriers leave out one where thread (x, y) reads what (0, y) has written
        before = [] if self.begins else [barrier()]
        self.begins = False
        inner = bound(x, self.threads, "threadIdx.x", sequence([*before, make(x, y)]))
        return bound(y, self.together, "threadIdx.y", inner)

    def _row(self, item: Item, block: Expr, y: Var) -> dict[Var, Expr]:
        """Indices of the row that a thread works on."""
        indices = unflattened(add(mul(block, const(self.together, "int32")), y), self.extents)
        pairs = zip(item.rows, indices, strict=True)
        return {var: cast(dtype_of(var), index) for var, index in pairs}

    def _nest(self, nest: Nest, block: Expr) -> list[Statement]:
        items = nest.items
        length = items_size(items[0].loops)
        folds = nest.folds

        def work(x: Var, y: Var) -> Statement:
            registers: list[Local] = []
            kept: dict[Key, Local] = {}
            totals = {id(item): registers_of("total", item, registers) for item in folds}
            rounds = -(-length // self.threads)
            again = counter("again", rounds)
            place = x if rounds == 1 else add(mul(again, const(self.threads, "int32")), x)
            body = sequence(
                [self._step(item, block, y, place, kept, totals, registers) for item in items]
            )
            if length % self.threads:
                body = when(compare("lt", place, const(length, "int32")), body)
            begin = [
                store(total, value, [const(0, "int32")])
                for item in folds
                for total, value in zip(totals[id(item)], combiner_of(item).identity, strict=True)
            ]
            end = [
                store(part, element(total, [const(0, "int32")]), [y, x])
                for item in folds
                for (part, _), total in zip(self.parts[id(item)], totals[id(item)], strict=True)
            ]
            return allocated(registers, sequence([*begin, loop(again, rounds, body), *end]))

        found = [self._phase(work)]
        source, width = 0, self.threads
        while folds and width > 1:
            narrow = max(1, 2 * width // WARP)
            found.append(self._combined(folds, source, width, narrow, block))
            source, width = 1 - source, narrow
        return found

    def _step(
        self,
        item: Item,
        block: Expr,
        y: Var,
        place: Expr,
        kept: dict[Key, Local],
        totals: dict[int, list[Local]],
        registers: list[Local],
    ) -> Statement:
        """The work of an item at one index of the row."""
        table = self._row(item, block, y)
        table |= indices_at(item.loops, place)
        rename = substituter(table)
        here = [node_id(table[axis.var]) for axis in item.loops]

        def read(expr: Expr) -> Expr:
            return self._read(rename(expand_lets(expr)), here, y, kept)

        zero = const(0, "int32")
        if item.kind == FOLD:
            values = [read(source) for source in item.sources]
            if len(values) == 1:
                return accumulated(item, totals[id(item)], values, registers)
            once = registers_of("new", item, registers)
            known = [element(new, [zero]) for new in once]
            return sequence(
                [
                    *(store(new, value, [zero]) for new, value in zip(once, values, strict=True)),
                    accumulated(item, totals[id(item)], known, registers),
                ]
            )
        [tensor] = outputs_of(item.op)
        mine = buffer_in(REGISTERS, f"value_{len(registers)}", [1], dtype_of(tensor))
        registers.append(mine)
        if item.kind == MAP:
            statements = [store(mine, read(item.sources[0]), [zero])]
        else:
            combiner = combiner_of(item)
            fresh = {axis.var: counter("k", _int(axis_range(axis)[1])) for axis in item.reduced}
            table |= {var: cast(dtype_of(var), inner) for var, inner in fresh.items()}
            rename = substituter(table)
            body = accumulated(item, [mine], [read(item.sources[0])], registers)
            for axis in reversed(item.reduced):
                body = loop(fresh[axis.var], _int(axis_range(axis)[1]), body)
            statements = [store(mine, combiner.identity[0], [zero]), body]
        kept[tensor_key(tensor)] = mine
        return sequence([*statements, *self._stored(item, tensor, element(mine, [zero]), table, y)])

    def _stored(
        self, item: Item, tensor: Tensor, value: Expr, table: dict[Var, Expr], y: Var
    ) -> list[Statement]:
        """Store an element where others read it."""
        found = []
        shared = self.values[tensor_key(tensor)].shared
        if shared is not None:
            found.append(store(shared, value, [y, *(table[axis.var] for axis in item.spatial)]))
        if tensor_key(tensor) in self.outputs:
            places = [table[axis.var] for axis in item.op.axis]
            found.append(self.memory.write(tensor, value, places))
        return found

    def _read(self, expr: Expr, here: Sequence[int], y: Var, kept: dict[Key, Local]) -> Expr:
        """The expression with reads replaced by reads of registers, shared memory or memory."""

        def place(tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
            value = self.values.get(tensor_key(tensor))
            if value is None:
                return None
            inner = [indices[dim] for dim in value.dims]
            mine = kept.get(tensor_key(tensor))
            if mine is not None and [node_id(index) for index in inner] == list(here):
                return element(mine, [const(0, "int32")])
            return None if value.shared is None else element(value.shared, [y, *inner])

        return self.memory.read(map_loads(expr, place))

    def _combined(
        self, folds: Sequence[Item], source: int, width: int, narrow: int, block: Var
    ) -> Statement:
        """``other[x] = ⊕_n part[n * narrow + x]`` for ``x < narrow``; a single one is the result.

        Buffers alternate: threads that read one do not write it, and need no barrier in a branch.
        """

        def work(x: Var, y: Var) -> Statement:
            registers: list[Local] = []
            statements: list[Statement] = []
            zero = const(0, "int32")
            for item in folds:
                mine = registers_of("sum", item, registers)
                parts = [pair[source] for pair in self.parts[id(item)]]
                others = [pair[1 - source] for pair in self.parts[id(item)]]
                statements += [
                    store(total, element(part, [y, x]), [zero])
                    for total, part in zip(mine, parts, strict=True)
                ]
                n = counter("n", width // narrow)
                place = add(mul(n, const(narrow, "int32")), x)
                values = [element(part, [y, place]) for part in parts]
                step = accumulated(item, mine, values, registers)
                statements.append(loop(n, width // narrow - 1, step, low=1))
                if narrow > 1:
                    statements += [
                        store(other, element(total, [zero]), [y, x])
                        for total, other in zip(mine, others, strict=True)
                    ]
                    continue
                table = self._row(item, block, y)
                for tensor, total in zip(outputs_of(item.op), mine, strict=True):
                    statements += self._stored(item, tensor, element(total, [zero]), table, y)
            body = when(compare("lt", x, const(narrow, "int32")), sequence(statements))
            return allocated(registers, body)

        return self._phase(work)


def _dims(item: Item) -> list[int]:
    own = {node_id(var) for var in item.rows}
    return [n for n, axis in enumerate(item.op.axis) if node_id(axis.var) not in own]


def _bytes(dtype: str) -> int:
    return {"float64": 8, "int64": 8, "float16": 2, "bfloat16": 2}.get(dtype, 4)
