"""The step of a loop as statements over buffers: one plain loop nest for each of its stages.

Every stage has one buffer. Stacked results are written directly into the stack, and the next
carries are copied over the carries after all stages of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import tvm_ffi
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from ...errors import LoweringError
from ...expr.build import add, cast, variable
from ...expr.nodes import (
    Axis,
    Expr,
    Tensor,
    Var,
    always,
    dtype_of,
    is_load,
    load_tensor,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ...expr.rewrite import Rewriter, expand_lets
from ...expr.sharing.lets import bind_shared
from ..graph import topological
from ..marks.value_marks import unmarked
from ..stage import (
    Operation,
    Reduction,
    bodies,
    bounds_of,
    is_compute,
    is_extern,
    is_placeholder,
    outputs_of,
    reduction_of,
    shape_of,
)
from .custom import without_rules

if TYPE_CHECKING:
    from .loop import Step

Key = tuple[int, int]
Place = tuple[Expr, ...]  #: the leading indices of a tensor in its buffer


class StepNest:
    """A step over buffers, which can be written any number of times.

    Parameters
    ----------
    step : Step
        The step.
    carries : sequence of buffers
        Buffers of the state, which hold the next state afterwards.
    sequences : sequence of (buffer, bool)
        What the step reads for ``step.xs``: the row of a buffer at the current time, or all of it.
    consts, stacks : sequence of buffers
        What the step reads for ``step.consts``, and the buffers for the rows of its results.
    """

    def __init__(
        self,
        step: Step,
        carries: Sequence[Any],
        sequences: Sequence[tuple[Any, bool]],
        consts: Sequence[Any],
        stacks: Sequence[Any],
    ) -> None:
        self._step, self._carries = step, carries
        self._sequences, self._stacks = sequences, stacks
        outputs = without_rules(step.outputs)
        self._news, self._ys = outputs[: len(carries)], outputs[len(carries) :]
        self._stages = [op for op in topological(outputs) if not is_placeholder(op)]
        self._nest = nest = _Nest()
        for carry, buffer in zip(step.carries, carries, strict=True):
            nest.placed(carry, buffer)
        for inside, buffer in zip(step.consts, consts, strict=True):
            nest.placed(inside, buffer)
        # a nested loop nest takes whole buffers, not rows
        whole = {tensor_key(y) for y in _read_by_externs(self._stages, self._ys)}
        self._stacked = {tensor_key(y) for y in self._ys if is_compute(y.op)} - whole
        for op in self._stages:
            for tensor in outputs_of(op):
                if tensor_key(tensor) not in self._stacked:
                    nest.allocated(tensor)
        rows = [x for x, (_, timed) in zip(step.xs, sequences, strict=True) if timed]
        self._slices = {
            tensor_key(x): nest.slice_of(x) for x in _read_by_externs(self._stages, rows)
        }

    def write(self, time: Expr) -> None:
        """The statements of the step at a given time."""
        nest = self._nest
        for x, (source, timed) in zip(self._step.xs, self._sequences, strict=True):
            nest.placed(x, source, (time,) if timed else ())
            if tensor_key(x) in self._slices:
                copied(self._slices[tensor_key(x)], (), source, (time,), shape_of(x))
        for y, stack in zip(self._ys, self._stacks, strict=True):
            if tensor_key(y) in self._stacked:
                nest.placed(y, stack, (time,))
        for op in self._stages:
            nest.stage(op, self._slices)
        for y, stack in zip(self._ys, self._stacks, strict=True):
            if tensor_key(y) not in self._stacked:
                copied(stack, (time,), nest.buffer(y), (), shape_of(y))
        for new, carry in zip(self._news, self._carries, strict=True):
            copied(carry, (), nest.buffer(new), (), shape_of(new))


def _read_by_externs(stages: Sequence[Operation], tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors that loop nests read."""
    read = {tensor_key(tensor) for op in stages if is_extern(op) for tensor in op.inputs}
    return [tensor for tensor in tensors if tensor_key(tensor) in read]


def copied(target: Any, there: Place, source: Any, here: Place, shape: Sequence[Any]) -> None:
    """``target[there, i] = source[here, i]``."""
    with ExitStack() as loops:
        index = [loops.enter_context(T.serial(0, extent)) for extent in shape]
        place = (*here, *index)
        T.buffer_store(target, source[place], [*there, *index])


class _Nest:
    """The location of each tensor of a step, and the statements that compute it."""

    def __init__(self) -> None:
        self._buffers: dict[Key, tuple[Any, Place]] = {}

    def placed(self, tensor: Tensor, buffer: Any, place: Place = ()) -> None:
        """Record that ``tensor[i]`` is ``buffer[place, i]``."""
        self._buffers[tensor_key(tensor)] = buffer, place

    def allocated(self, tensor: Tensor) -> None:
        """Allocate a buffer for a tensor."""
        self.placed(tensor, self.slice_of(tensor))

    @staticmethod
    def slice_of(tensor: Tensor) -> Any:
        """A buffer of the shape of a tensor."""
        return T.alloc_buffer(shape_of(tensor), dtype_of(tensor))

    def buffer(self, tensor: Tensor) -> Any:
        """The buffer of a tensor that occupies a whole buffer."""
        buffer, place = self._buffers[tensor_key(tensor)]
        assert not place
        return buffer

    def stage(self, op: Operation, slices: dict[Key, Any]) -> None:
        """The statements of one stage."""
        if is_compute(op):
            self._compute(op)
        elif is_extern(op):
            self._extern(op, slices)
        else:
            raise LoweringError(
                f"stage {op.name} of a loop is a te.scan, which TVM cannot lower: write it with "
                "tvm_autodiff.scan"
            )

    def _extern(self, op: Operation, slices: dict[Key, Any]) -> None:
        """``f(p) → f(buffer)``: the statements of a loop nest over the buffers of its tensors."""
        pairs = [*zip(op.input_placeholders, op.inputs, strict=True)]
        pairs += zip(op.output_placeholders, outputs_of(op), strict=True)
        table: dict[int, Any] = {}
        for own, tensor in pairs:
            found = slices.get(tensor_key(tensor))
            table[node_id(own)] = self.buffer(tensor) if found is None else found
        body = tvm_ffi.structural_map(op.body, (tirx.Var, lambda var: table.get(node_id(var), var)))
        T.add_to_parent(body)

    def _compute(self, op: Operation) -> None:
        table: dict[int, Expr] = {}

        def visit(node: Expr) -> Expr | None:
            if is_load(node):
                buffer, place = self._buffers[tensor_key(load_tensor(node))]
                whole = (*place, *operands(node))
                return buffer[whole]
            if op_name(node) == "var":
                return table.get(node_id(node))
            return unmarked(node)

        def moved(expr: Expr) -> Expr:
            return bind_shared(Rewriter(visit)(expand_lets(expr)))

        targets = [self._buffers[tensor_key(tensor)] for tensor in outputs_of(op)]
        with ExitStack() as loops:
            index = [_entered(axis, moved, table, loops) for axis in op.axis]

            def store(values: Sequence[Expr]) -> None:
                names = [_bound(f"v{n}", value) for n, value in enumerate(values)]
                for (buffer, place), value in zip(targets, names, strict=True):
                    T.buffer_store(buffer, value, [*place, *index])

            reduction = reduction_of(op)
            if reduction is None:
                store([moved(body) for body in bodies(op)])
                return
            # a stage may use only some of the components, in another order
            own = [int(body.value_index) for body in bodies(op)]
            if own != list(range(len(reduction.sources))):
                raise LoweringError(
                    f"stage {op.name} of a loop uses only some components of its reduction: use "
                    "all of them"
                )
            store([moved(e) for e in reduction.init or reduction.combiner.identity])
            for axis in reduction.axes:
                _entered(axis, moved, table, loops)
            self._combined(reduction, targets, index, moved, store, loops)

    def _combined(
        self,
        reduction: Reduction,
        targets: Sequence[tuple[Any, Place]],
        index: Sequence[Expr],
        moved: Callable[[Expr], Expr],
        store: Callable[[Sequence[Expr]], None],
        loops: ExitStack,
    ) -> None:
        """``target = combine(target, source)`` where the condition holds."""
        if not always(reduction.condition):
            loops.enter_context(T.If(moved(reduction.condition)))
            loops.enter_context(T.Then())
        old = []
        for n, (buffer, place) in enumerate(targets):
            whole = (*place, *index)
            old.append(_bound(f"a{n}", buffer[whole]))
        new = [_bound(f"b{n}", moved(source)) for n, source in enumerate(reduction.sources)]
        store([bind_shared(e) for e in reduction.combiner.apply(old, new)])


def _entered(
    axis: Axis, moved: Callable[[Expr], Expr], table: dict[int, Expr], loops: ExitStack
) -> Expr:
    """The counter of a loop over an axis, in the dtype of the axis."""
    low, extent = map(moved, bounds_of(axis))
    counter = loops.enter_context(T.serial(low, add(low, extent)))
    table[node_id(axis.var)] = index = cast(dtype_of(axis.var), counter)
    return index


def _bound(name: str, value: Expr) -> Var:
    """A value bound to a name, evaluated once."""
    return T.bind(value, var=variable(name, dtype_of(value)))
