"""Writes what a block of threads does with the rows of a fusion group, phase by phase.

Every nest is a phase of all threads, with neighbouring threads at neighbouring elements, which then
combine what they have reduced. Results that later nests read are in shared memory, or in global
memory if a thread reads only what it wrote.
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
    local,
    loop,
    nested,
    parameter,
    sequence,
    store,
    when,
)
from ....codegen.thread_loops import REGISTERS, SHARED, barrier, bound, buffer_in
from ....expr.build import add, cast, compare, const, mul, sub
from ....expr.dtypes import itemsize
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
from ....graph.stage import Combiner, Extent, axis_range, outputs_of
from ...fusion.row_items import FOLD, MAP, Item, Nest, nests_of
from ...kernel import size_of
from ...machine import Machine
from ...statement_loops import accumulated
from .thread_tree import combined_by_threads, shared_places

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
        for item in items:
            if item.kind == FOLD:
                dtypes = [dtype_of(tensor) for tensor in outputs_of(item.op)]
                places = self.together * shared_places(dtypes, self.threads, in_warps=True)
                self.budget -= places * sum(map(_bytes, dtypes))
        self.shared: list[Local] = []
        self.values: dict[Key, _Value] = {}
        self.memory = Places()
        self.possible = True
        #: whether the next phase is the first one of a launch
        self.begins = all(isinstance(extent, int) for extent in extents)
        self._place(items)

    @property
    def fits(self) -> bool:
        """Whether every result has memory."""
        return self.possible and self.budget >= 0

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
                place = [node_id(operands(node)[dim]) for dim in source.dims]
                same = place == here and _extents(source.loops) == _extents(item.loops)
                if source.kind == FOLD or number[id(source)] != number[id(item)] or not same:
                    own = same and source.kind != FOLD
                    later[key] = later.get(key, True) and own
        for item in items:
            for tensor in outputs_of(item.op):
                self.values[tensor_key(tensor)] = _Value(item, item.dims)
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
            body = sequence([self._nest(nest, block) for nest in self.nests])
            return bound(block, rows // self.together, "blockIdx.x", allocated(self.shared, body))
        block, again = counter("block", self.grid), counter("again", self.grid)
        total: Expr = const(rows, "int32")
        for symbol in symbols:
            total = mul(total, symbol)
        grid = const(self.grid, "int32")
        row = add(mul(again, grid), block)
        body = sequence([self._nest(nest, row) for nest in self.nests])
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
        table: dict[Var, Expr] = {var: cast(dtype_of(var), index) for var, index in pairs}
        return table | {var: const(0, dtype_of(var)) for var in item.still}

    def _nest(self, nest: Nest, block: Expr) -> Statement:
        items = nest.items
        length = items_size(items[0].loops)
        folds = nest.folds

        def work(x: Var, y: Var) -> Statement:
            registers: list[Local] = []
            kept: dict[Key, Local] = {}
            totals = {id(item): self._registers("total", item, registers) for item in folds}
            rounds = -(-length // self.threads)
            again = counter("again", rounds)
            place = x if rounds == 1 else add(mul(again, const(self.threads, "int32")), x)
            body = sequence(
                [self._step(item, block, y, place, kept, totals, registers) for item in items]
            )
            if length % self.threads:
                body = when(compare("lt", place, const(length, "int32")), body)
            begin = [
                store(total, value, [])
                for item in folds
                for total, value in zip(totals[id(item)], combiner_of(item).identity, strict=True)
            ]
            end = [
                part
                for item in folds
                for part in self._combined(item, totals[id(item)], block, x, y)
            ]
            return allocated(registers, sequence([*begin, loop(again, rounds, body), *end]))

        return self._phase(work)

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
        fresh = {axis.var: counter("k", _int(axis_range(axis)[1])) for axis in item.reduced}
        if item.kind != FOLD:
            table |= {var: cast(dtype_of(var), inner) for var, inner in fresh.items()}
        rename = substituter(table)
        here = [node_id(table[axis.var]) for axis in item.loops]
        values = [self._read(rename(expand_lets(source)), here, y, kept) for source in item.sources]
        if item.kind == FOLD:
            return self._accumulated(item, totals[id(item)], values)
        mine = self._registers("value", item, registers)
        if item.kind == MAP:
            statements = [store(mine[0], self.memory.read(values[0]), [])]
        else:
            identities = combiner_of(item).identity
            loops = [(fresh[axis.var], axis_range(axis)[1]) for axis in item.reduced]
            body = nested(loops, self._accumulated(item, mine, values))
            begin = [store(one, start, []) for one, start in zip(mine, identities, strict=True)]
            statements = [*begin, body]
        for tensor, one in zip(outputs_of(item.op), mine, strict=True):
            kept[tensor_key(tensor)] = one
            statements += self._stored(item, tensor, element(one, []), table, y)
        return sequence(statements)

    def _accumulated(
        self, item: Item, totals: Sequence[Local], values: Sequence[Expr]
    ) -> Statement:
        return accumulated(combiner_of(item), totals, values, self.memory, REGISTERS)

    def _registers(self, name: str, item: Item, found: list[Local]) -> list[Local]:
        """A register for each component of an item's result."""
        mine = [
            local(f"{name}_{len(found) + n}", [], dtype_of(tensor), REGISTERS)
            for n, tensor in enumerate(outputs_of(item.op))
        ]
        found += mine
        return mine

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
        """The expression with reads replaced by those of registers and shared memory."""

        def place(tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
            value = self.values.get(tensor_key(tensor))
            if value is None:
                return None
            inner = [indices[dim] for dim in value.dims]
            mine = kept.get(tensor_key(tensor))
            if mine is not None and [node_id(index) for index in inner] == list(here):
                return element(mine, [])
            return None if value.shared is None else element(value.shared, [y, *inner])

        return map_loads(expr, place)

    def _combined(
        self, item: Item, totals: Sequence[Local], block: Expr, x: Var, y: Var
    ) -> list[Statement]:
        """The result of a row from the totals of its threads."""
        threads = (x, self.threads), (y, self.together)
        # nests begin with a barrier, and each has shared memory of its own
        shared, combined = combined_by_threads(
            combiner_of(item), totals, *threads, in_warps=True, again=False
        )
        self.shared += shared
        table = self._row(item, block, y)
        stored = [
            part
            for tensor, total in zip(outputs_of(item.op), totals, strict=True)
            for part in self._stored(item, tensor, element(total, []), table, y)
        ]
        return [combined, when(compare("eq", x, const(0, "int32")), sequence(stored))]


def combiner_of(item: Item) -> Combiner:
    """The reducer of an item that reduces."""
    assert item.reduction is not None
    return item.reduction.combiner


def _bytes(dtype: str) -> int:
    return max(2, itemsize(dtype))
