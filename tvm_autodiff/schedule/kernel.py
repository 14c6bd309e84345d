"""A kernel: a stage that holds the work, and the stages fused with it; with estimates of its work.

`kernels` decides which stages make a kernel, and `groups` which kernels run as one, row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ..expr.nodes import (
    Axis,
    Expr,
    Tensor,
    dtype_of,
    is_load,
    load_tensor,
    operands,
    tensor_key,
)
from ..expr.rewrite import map_loads, postorder, substituter
from ..expr.sharing.weights import MAX_WEIGHT, weight
from ..graph.graph import retarget, tensors_read_by
from ..graph.stage import (
    Operation,
    axis_range,
    axis_vars,
    bodies,
    is_compute,
    loop_axes,
    outputs_of,
    reduction_bounds,
    reduction_of,
    sources_of,
)
from .cost import SYMBOLIC_SIZE
from .declined import Declined

Read = tuple[Tensor, tuple[Expr, ...]]  #: a tensor and the indices that it is read at


@dataclass(frozen=True)
class Repetition:
    """How a kernel inside a loop is repeated.

    Attributes
    ----------
    times : int
        The number of steps of the loop; a symbolic number counts as `SYMBOLIC_SIZE`.
    fixed : frozenset of (int, int)
        The keys of the tensors that hold the same values in every step. What reads only these is
        computed once, before the first step.
    """

    times: int = 1
    fixed: frozenset[tuple[int, int]] = frozenset()


ONCE = Repetition()


@dataclass(frozen=True)
class Kernel:
    """Stages that run as one function.

    Attributes
    ----------
    root : Operation
        The stage that holds the work: a reduction, an elementwise stage, or an opaque one.
    epilogue : Operation or None
        An elementwise stage that reads the root at its own axes, and is its only reader.
    repetition : Repetition
        How often it runs in a loop, and over which constants.
    """

    root: Operation
    epilogue: Operation | None = None
    repetition: Repetition = ONCE

    @property
    def ops(self) -> tuple[Operation, ...]:
        """All stages, producers first."""
        return (self.root,) if self.epilogue is None else (self.root, self.epilogue)

    @property
    def outputs(self) -> list[Tensor]:
        """The tensors that the kernel writes."""
        return outputs_of(self.ops[-1])

    @property
    def dtypes(self) -> list[str]:
        """The types of the values that the root computes, one for each component."""
        return [dtype_of(tensor) for tensor in outputs_of(self.root)]

    @property
    def name(self) -> str:
        """A name for the function."""
        return "_".join(op.name for op in self.ops)

    @cached_property
    def read_keys(self) -> set[tuple[int, int]]:
        """The keys of the tensors that its stages read, including its own."""
        return {tensor_key(tensor) for op in self.ops for tensor in tensors_read_by(op)}

    @cached_property
    def write_keys(self) -> set[tuple[int, int]]:
        """The keys of the tensors that its stages compute."""
        return {tensor_key(tensor) for op in self.ops for tensor in outputs_of(op)}

    @cached_property
    def reads(self) -> dict[int, list[Read]]:
        """For each stage, by hash, its reads in order: the tensor and the indices."""
        return {hash(op): list(_reads(op)) for op in self.ops}


def with_root(kernel: Kernel, outputs: Sequence[Tensor]) -> Kernel:
    """The kernel over another root, of which these are the results."""
    root = outputs[0].op
    if kernel.epilogue is None:
        return replace(kernel, root=root)
    old = outputs_of(kernel.root)
    table = {tensor_key(one): new for one, new in zip(old, outputs, strict=True)}
    ended = retarget(kernel.epilogue, lambda tensor: table.get(tensor_key(tensor)))
    return replace(kernel, root=root, epilogue=ended[0].op)


def results_of(
    kernel: Kernel,
    values: Sequence[Expr],
    indices: Sequence[Expr],
    epilogue: Sequence[Expr] | None = None,
) -> list[Expr]:
    """The element of each output at some indices, from those of the root and through the epilogue.

    Parameters
    ----------
    epilogue : sequence of Expr, optional
        The bodies of the epilogue in another form.
    """
    if kernel.epilogue is None:
        return list(values)
    root, [value] = tensor_key(kernel.root.output(0)), values

    def reduced(tensor: Tensor, _: Sequence[Expr]) -> Expr | None:
        return value if tensor_key(tensor) == root else None

    rename = substituter(dict(zip(axis_vars(kernel.epilogue), indices, strict=True)))
    found = bodies(kernel.epilogue) if epilogue is None else epilogue
    return [map_loads(rename(body), reduced) for body in found]


def _reads(op: Operation) -> Iterator[Read]:
    if not is_compute(op):
        return
    for node in postorder([*reduction_bounds(op), *sources_of(op)]):
        if is_load(node):
            yield load_tensor(node), operands(node)


def size_of(extents: Sequence[object], symbolic: int = SYMBOLIC_SIZE) -> int:
    """The product of extents; a symbolic one counts as `symbolic`."""
    total = 1
    for extent in extents:
        total *= extent if isinstance(extent, int) else symbolic
    return total


def iterations(op: Operation, symbolic: int = SYMBOLIC_SIZE) -> int:
    """How often the body of a compute stage is evaluated; a symbolic extent counts as `symbolic`.
    """
    return size_of([axis_range(axis)[1] for axis in loop_axes(op)], symbolic)


def constant_extent(axis: Axis) -> int:
    """The extent of an axis that begins at 0; 0 for any other axis, and for a symbolic extent."""
    low, extent = axis_range(axis)
    return extent if low == 0 and isinstance(extent, int) else 0


def too_large(kernel: Kernel, expanded: bool = False) -> Declined | None:
    """The reason why a kernel's expressions must not reach TVM; None for small ones.

    With `expanded`, reducers count with their operands in them, as TVM writes them. What this
    library writes names the operands.
    """
    for op in kernel.ops:
        if not is_compute(op):
            continue
        sources = sources_of(op)
        reduction = reduction_of(op)
        if reduction is not None and expanded:
            sources = list(reduction.combiner.apply(reduction.combiner.lhs, sources))
        for body in sources:
            if weight(body) > MAX_WEIGHT:
                return Declined(
                    f"the expression of {op.name} has more than {MAX_WEIGHT} nodes as TVM's "
                    "simplifier walks it; parts of it can be stages of their own"
                )
    return None
