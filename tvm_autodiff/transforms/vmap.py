"""`vmap`: tensors for a whole batch of inputs, with one more axis in each stage that depends on
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import InvalidArgumentError, UnrelatedInputWarning
from ..expr.nodes import Tensor, dtype_of, load
from ..graph.bounded_stage import elementwise_stage
from ..graph.stage import Extent, is_placeholder, shape_of
from ..keywords import checked_keywords
from ..warn import warn
from .arguments import as_tensor, listed, same_extents, shape_text
from .batch import batch_graph, batch_of_tensors


@checked_keywords
def vmap(
    outputs: Tensor | Sequence[Tensor],
    batches: Mapping[Tensor, Tensor],
    in_axes: int | Mapping[Tensor, int] = 0,
    out_axes: int = 0,
) -> list[Tensor]:
    """Vectorise tensors over a batch of some of their inputs.

    Parameters
    ----------
    outputs : Tensor or sequence of Tensor
        The tensors to batch, computed by stages of any kind.
    batches : mapping from Tensor to Tensor
        For each input that differs between members, a tensor with one more axis and the input's
        dtype. The batch size may be symbolic. Inputs may be intermediate tensors. All other tensors
        are the same for all members.
    in_axes : int or mapping from Tensor to int
        The batch axis of the inputs. Negative numbers count from the end.
    out_axes : int
        The batch axis of the results. Negative numbers count from the end.

    Returns
    -------
    list of Tensor
        One tensor for each output, with a batch axis. Stages that depend on no batched input are
        computed once.

    Raises
    ------
    InvalidArgumentError
        If a batch has the wrong shape or dtype, batch sizes differ, an axis is out of range, or
        none of the inputs occurs in the graph of the outputs.
    NotDifferentiableError
        If an opaque stage depends on a batched input.

    Warns
    -----
    UnrelatedInputWarning
        If some of the inputs do not occur there, as one that a derivative does not depend on.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import show, vmap
    >>> x, w = te.placeholder((3,), name="x"), te.placeholder((3,), name="w")
    >>> k = te.reduce_axis((0, 3), "k")
    >>> y = te.compute((), lambda: te.sum(x[k] * w[k], axis=k), name="y")
    >>> xs = te.placeholder((8, 3), name="xs")
    >>> print(show(vmap(y, {x: xs})))
    inputs  xs: float32[8, 3], w: float32[3]
    y[b] = Σ_{k<3} xs[b, k]*w[k]  float32[8]
    """
    wanted = [
        as_tensor(value, f"outputs[{n}]") for n, value in enumerate(listed(outputs, "outputs"))
    ]
    if not isinstance(batches, Mapping) or not batches:
        raise InvalidArgumentError("batches must be a non-empty dictionary {input: batch of it}")
    graph = batch_graph(wanted)
    size: tuple[str, Extent] | None = None
    batched: list[tuple[Tensor, Tensor]] = []
    for key, value in batches.items():
        x = as_tensor(key, "a key of batches")
        batch = as_tensor(value, f"batches[{x.op.name}]")
        axis = in_axes.get(x, 0) if isinstance(in_axes, Mapping) else in_axes
        members = _checked(x, batch, _axis_of(axis, len(batch.shape), f"in_axes of {x.op.name}"))
        if size is not None and not same_extents([size[1]], [members[1]]):
            raise InvalidArgumentError(
                f"{size[0]} has {shape_text([size[1]])} members and {batch.op.name} "
                f"{shape_text([members[1]])}: all batches must have the same number"
            )
        size = size or (batch.op.name, members[1])
        batched.append((x, members[0]))
    assert size is not None

    unrelated = [x.op.name for x, _ in batched if not graph.contains(x)]
    if unrelated:
        inputs = f"{', '.join(unrelated)} {'is' if len(unrelated) == 1 else 'are'}"
        outside = f"{inputs} not in the graph of {', '.join(one.op.name for one in wanted)}"
        if len(unrelated) == len(batched):
            raise InvalidArgumentError(f"batches: {outside}")
        warn(f"vmap: {outside}, which is the same for all of them", UnrelatedInputWarning)
    related = [(x, batch) for x, batch in batched if graph.contains(x)]
    results = []
    for result in batch_of_tensors(wanted, related, size[1]):
        place = _axis_of(out_axes, len(result.shape), "out_axes")
        results.append(moved(result, 0, place) if place or is_placeholder(result.op) else result)
    return results


def _axis_of(axis: int, rank: int, what: str) -> int:
    """An axis counted from zero.

    Raises
    ------
    InvalidArgumentError
        If there is no such axis.
    """
    if isinstance(axis, bool) or not isinstance(axis, int) or not -rank <= axis < rank:
        raise InvalidArgumentError(
            f"{what} is {axis!r}, and the tensor with the members' axis has {rank} axes: give one "
            f"from {-rank} to {rank - 1}"
            if rank
            else f"{what}: the batch has no axis at all"
        )
    return axis % rank


def _checked(x: Tensor, batch: Tensor, axis: int) -> tuple[Tensor, Extent]:
    """A batch with the batch axis in front, and its size."""
    shape = list(shape_of(batch))
    members = shape.pop(axis)
    if not same_extents(shape, shape_of(x)) or dtype_of(batch) != dtype_of(x):
        wanted = ", ".join(shape_text(shape_of(x)).strip("()").rstrip(",").split(", "))
        raise InvalidArgumentError(
            f"batches[{x.op.name}]: {batch.op.name} has shape {shape_text(shape_of(batch))} and "
            f"dtype {dtype_of(batch)}; it must be ({wanted}) with one more axis, at {axis}, and "
            f"dtype {dtype_of(x)}"
        )
    return (batch if axis == 0 else moved(batch, axis, 0)), members


def moved(tensor: Tensor, source: int, target: int) -> Tensor:
    """The tensor with one axis moved, always as a new stage."""
    order = list(range(len(tensor.shape)))
    order.insert(target, order.pop(source))
    extents = shape_of(tensor)
    return elementwise_stage(
        f"{tensor.op.name}_moved",
        [extents[old] for old in order],
        lambda place: load(tensor, [place[order.index(n)] for n in range(len(order))]),
    )
