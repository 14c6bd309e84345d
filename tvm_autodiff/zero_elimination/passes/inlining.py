"""Inlines elementwise stages into the stages that read them.

A reduction cannot be part of another expression in te, so it is inlined only into a reader that
copies it entirely.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import InvalidArgumentError
from ...expr.nodes import Expr, Tensor, is_load, load, load_tensor, tensor_key
from ...expr.rewrite import expand_lets, loaded_tensors, map_loads, substituter, tree_size
from ...expr.sharing.lets import bind_shared, merge_equal
from ...graph.bounded_stage import bounded_stage
from ...graph.counting import multiplications_in
from ...graph.graph import Graph, retarget
from ...graph.kinds.custom import custom_of
from ...graph.stage import (
    Operation,
    bodies,
    is_compute,
    is_placeholder,
    outputs_of,
    reduce_expr,
    reduction_of,
    renewed_reduction,
    shape_of,
)
from ...keywords import checked_keywords
from ..sums.iterations import element_count, sample_size, stage_iterations
from ..transposition.copying import is_shifted_copy
from ..walk import tensor_list

#: the maximum number of nodes of an expression that is inlined without request
_LARGEST_BODY = 100

_Key = tuple[int, int]


@checked_keywords
def inline_tensors(
    outputs: Tensor | Sequence[Tensor], tensors: Tensor | Sequence[Tensor] | None = None
) -> list[Tensor]:
    """Inline elementwise stages into the stages that read them.

    ``T[i] = A[i] + 1, y[i, j] = T[j]*B[i]  →  y[i, j] = (A[j] + 1)*B[i]``,
    ``S[i] = Σ_k A[i, k], y[i, j] = S[j]  →  y[i, j] = Σ_k A[j, k]`` if this is not more work.

    Parameters
    ----------
    outputs : Tensor or sequence of Tensor
        The tensors to compute. Outputs stay stages, even if they are inlined into other stages.
    tensors : Tensor, sequence of Tensor or None
        The tensors to inline: outputs of elementwise stages, or reductions that are only copied.
        None selects those that can be inlined at no cost: copies with shifted or permuted indices,
        and tensors with a single read site that does not evaluate them more often than the stage,
        or that consist of one read without multiplications (a guard, a cast, a sign).

    Returns
    -------
    list of Tensor
        Tensors of the same shapes and values.

    Raises
    ------
    InvalidArgumentError
        If a tensor is an input, opaque, not needed by the outputs, or a reduction that a stage does
        not merely copy.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import show
    >>> x = te.placeholder((8,), name="x")
    >>> T = te.compute((10,), lambda i: te.if_then_else(i < 8, x[i], 0.0), name="T")
    >>> y = te.compute((10,), lambda i: T[9 - i] * 2.0, name="y")
    >>> print(show(inline_tensors(y)))
    inputs  x: float32[8]
    y[i] = (if 9 - i < 8 then x[9 - i] else 0.0)*2.0  float32[10]
    """
    listed = tensor_list(outputs, "outputs")
    graph = Graph(listed)
    asked = None if tensors is None else tensor_list(tensors)
    return _Inliner(graph, asked).run()


class _Inliner:
    """One walk over the stages, producers first: each stage is rewritten over those before it."""

    def __init__(self, graph: Graph, asked: Sequence[Tensor] | None) -> None:
        self._graph = graph
        self._outputs = {tensor_key(tensor) for tensor in graph.outputs}
        self._asked = None if asked is None else {tensor_key(tensor) for tensor in asked}
        self._sites = _sites_of(graph)
        self._new: dict[_Key, Tensor] = {}
        for tensor in asked or []:
            self._check(tensor)

    def run(self) -> list[Tensor]:
        for op in self._graph.ops:
            for old, new in zip(outputs_of(op), self._rewritten(op), strict=True):
                self._new[tensor_key(old)] = new
        return [self._new[tensor_key(tensor)] for tensor in self._graph.outputs]

    def _check(self, tensor: Tensor) -> None:
        """Raise if a requested tensor cannot be inlined."""
        name = tensor.op.name
        if not self._graph.contains(tensor):
            raise InvalidArgumentError(f"tensor {name} is not needed by the outputs: omit it")
        if custom_of(tensor.op):
            raise InvalidArgumentError(
                f"tensor {name} carries a custom rule and must stay a stage: omit it"
            )
        if not is_compute(tensor.op):
            kind = "an input" if is_placeholder(tensor.op) else "an opaque stage"
            raise InvalidArgumentError(f"tensor {name} is {kind} and has no expression to inline")
        for reader in self._graph.consumers(tensor):
            if not is_compute(reader):
                raise InvalidArgumentError(
                    f"tensor {name} is read by the opaque stage {reader.name}: it must stay a stage"
                )
            if _is_start(reader, tensor) and not is_load(bodies(tensor.op)[tensor.value_index]):
                raise InvalidArgumentError(
                    f"tensor {name} is the initial value of the reduction {reader.name}, which TVM "
                    "only takes from a tensor: omit it"
                )
            is_sum = reduction_of(tensor.op) is not None
            if is_sum and tensor.op.num_outputs > 1:
                raise InvalidArgumentError(
                    f"tensor {name} is one of several outputs of a reduction: omit it"
                )
            if is_sum and not _copies(reader, tensor):
                raise InvalidArgumentError(
                    f"tensor {name} is a reduction, and stage {reader.name} does more than copy "
                    "it: a reduction cannot be part of another expression, omit it"
                )

    def _rewritten(self, op: Operation) -> list[Tensor]:
        """A stage over the new stages, with inlined expressions instead of reads."""
        inlined = [t for t in self._graph.reads(op) if is_compute(op) and self._goes_into(t, op)]
        if not inlined:
            return retarget(op, self._replacement)
        keys = {tensor_key(tensor) for tensor in inlined}
        plain = {
            key: expand_lets(bodies(self._new[key].op)[self._new[key].value_index]) for key in keys
        }

        def replaced(tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
            key = tensor_key(tensor)
            new = self._new[key]
            if key not in keys:
                return None if tensor_key(new) == key else load(new, indices)
            if reduction_of(new.op) is not None:
                return _moved_reduction(new, indices)
            axes = (axis.var for axis in new.op.axis)
            return substituter(dict(zip(axes, indices, strict=True)))(plain[key])

        new = [bind_shared(map_loads(expand_lets(body), replaced)) for body in bodies(op)]
        return bounded_stage(op.name, list(op.axis), new, op.tag)

    def _replacement(self, tensor: Tensor) -> Tensor | None:
        """The new tensor for one of the old graph, or None if it is unchanged."""
        new = self._new.get(tensor_key(tensor))
        return None if new is None or tensor_key(new) == tensor_key(tensor) else new

    def _goes_into(self, tensor: Tensor, reader: Operation) -> bool:
        """Whether a tensor is inlined into one of its readers."""
        key = tensor_key(tensor)
        new = self._new[key]
        if not is_compute(new.op):
            return False
        body = bodies(new.op)[new.value_index]
        if _is_start(reader, tensor) and not is_load(body):
            return False
        is_sum = reduction_of(new.op) is not None
        if is_sum and not (_copies(reader, tensor) and new.op.num_outputs == 1):
            return False
        if self._asked is not None:
            return key in self._asked
        if is_shifted_copy(new):
            return True
        if key in self._outputs or self._sites.get(key, 0) != 1:
            return False
        if tree_size(body) > _LARGEST_BODY:
            return False
        is_cheap = not is_sum and not multiplications_in(body) and len(loaded_tensors(body)) <= 1
        shape = shape_of(tensor)
        size = sample_size(shape)
        return is_cheap or stage_iterations(reader, size) <= element_count(shape, size)


def _sites_of(graph: Graph) -> dict[_Key, int]:
    """The number of distinct elements of each tensor that the stages read, as written."""
    sites: dict[_Key, int] = {}
    for op in graph.ops:
        if is_compute(op):
            merged = merge_equal([expand_lets(body) for body in bodies(op)])
            for tensor in loaded_tensors(merged):
                key = tensor_key(tensor)
                sites[key] = sites.get(key, 0) + 1
        else:
            for tensor in graph.reads(op):
                sites[tensor_key(tensor)] = 2  # an opaque stage reads it as a whole
    return sites


def _is_start(reader: Operation, tensor: Tensor) -> bool:
    """Whether a stage is a reduction whose initial value is an element of the tensor."""
    reduction = reduction_of(reader)
    found = [] if reduction is None else loaded_tensors(list(reduction.init))
    return tensor_key(tensor) in map(tensor_key, found)


def _copies(reader: Operation, tensor: Tensor) -> bool:
    """Whether a stage consists of a read of the tensor."""
    if reader.num_outputs != 1:
        return False
    [body] = bodies(reader)
    return is_load(body) and tensor_key(load_tensor(body)) == tensor_key(tensor)


def _moved_reduction(tensor: Tensor, indices: Sequence[Expr]) -> Expr:
    """The reduction of a tensor's element at some indices, over new axes."""
    reduction = reduction_of(tensor.op)
    assert reduction is not None
    table = {axis.var: index for axis, index in zip(tensor.op.axis, indices, strict=True)}
    return reduce_expr(renewed_reduction(reduction, table))
