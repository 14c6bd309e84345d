"""`vmap` of Python functions: turns a function of one batch member into a function of the whole
batch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..containers import flattened, paths, spread
from ..errors import InvalidArgumentError
from ..expr.nodes import Tensor, is_tensor
from ..graph.stage import Extent, placeholder, shape_of
from ..keywords import checked_keywords
from ..transforms.arguments import same_extents, shape_text
from ..transforms.batch import batch_of_tensors
from ..transforms.vmap import moved
from .array_function import ArrayFunction, derived
from .tracing import called, described, results_of


@checked_keywords
def vmap(f: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> ArrayFunction:
    """Vectorise a function over a batch axis.

    Parameters
    ----------
    f : callable
        A function from te tensors to te tensors, in containers.
    in_axes : int, None or tuple of these and of containers
        The batch axis of each argument: one number for all arguments, or a tuple with one entry for
        each. Entries may be containers that stop where all tensors below have the same axis. None
        marks an argument without a batch axis. Keyword arguments have the batch axis in front.
    out_axes : int or containers
        The batch axis of the results, in the same way.

    Returns
    -------
    ArrayFunction
        A function from batches to batches. What depends on no batch is computed once for all
        members.

    Raises
    ------
    InvalidArgumentError
        In the call: if axes do not fit the arguments, batch sizes differ, or nothing is batched.

    Examples
    --------
    >>> import numpy as np
    >>> from tvm import topi
    >>> from tvm_autodiff import grad
    >>> from tvm_autodiff.functions import vmap
    >>> loss = lambda w, x: topi.sum(w * w * x)
    >>> w, xs = np.float32([1, 2]), np.float32([[1, 1], [1, 0]])
    >>> vmap(grad(loss), in_axes=(None, 0))(w, xs)
    array([[2., 4.],
           [2., 0.]], dtype=float32)
    """
    made = partial(_batched, f, in_axes, out_axes)
    return derived(f, ("vmap", _key(in_axes), _key(out_axes)), made)


def _batched(
    f: Callable[..., Any], in_axes: Any, out_axes: Any, /, *args: Any, **kwargs: Any
) -> Any:
    leaves, form = flattened((args, kwargs))
    names = paths(form.parts[0], "argument") + paths(form.parts[1], "argument")
    if isinstance(in_axes, list):
        raise InvalidArgumentError("in_axes is a list: pass a tuple with one axis per argument")
    axes = spread(in_axes, form.parts[0], "in_axes") + [0] * form.parts[1].count
    size: tuple[str, Extent] | None = None
    pairs: list[tuple[Tensor, Tensor]] = []
    members = list(leaves)
    for number, (leaf, axis, name) in enumerate(zip(leaves, axes, names, strict=True)):
        if axis is None:
            continue
        place = _axis(leaf, axis, f"{name} of {described(f)}")
        shape = list(shape_of(leaf))
        count = shape.pop(place)
        if size is not None and not same_extents([size[1]], [count]):
            raise InvalidArgumentError(
                f"{size[0]} has {shape_text([size[1]])} members and {name} "
                f"{shape_text([count])}: all batches must have the same number"
            )
        size = size or (name, count)
        members[number] = placeholder(shape, str(leaf.dtype), leaf.op.name)
        pairs.append((members[number], moved(leaf, place, 0) if place else leaf))
    if size is None:
        raise InvalidArgumentError(
            f"in_axes is {in_axes!r}: at least one argument of {described(f)} must be a batch"
        )
    given, named = form.filled(members)
    outputs, around = results_of(f, called(f, *given, **named))
    places = spread(out_axes, around, "out_axes")
    results = [
        moved(result, 0, _place(place, len(result.shape))) if place else result
        for result, place in zip(batch_of_tensors(outputs, pairs, size[1]), places, strict=True)
    ]
    return around.filled(results)


def _key(axes: Any) -> Any:
    leaves, form = flattened(axes if axes is not None else "none")
    return (*leaves, str(form))


def _axis(leaf: Any, axis: Any, name: str) -> int:
    """The batch axis, counted from zero."""
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise InvalidArgumentError(f"in_axes has {axis!r} for {name}: pass a number or None")
    if not is_tensor(leaf):
        raise InvalidArgumentError(
            f"{name} is {type(leaf).__name__} and has no batch axis: pass None for it in in_axes"
        )
    rank = len(leaf.shape)
    if not -rank <= axis < rank:
        raise InvalidArgumentError(
            f"in_axes has {axis} for {name}, of shape {shape_text(shape_of(leaf))}: "
            + (f"pass one from {-rank} to {rank - 1}" if rank else "pass None, it has no axis")
        )
    return axis % rank


def _place(axis: Any, rank: int) -> int:
    if isinstance(axis, bool) or not isinstance(axis, int) or not -rank <= axis < rank:
        raise InvalidArgumentError(
            f"out_axes has {axis!r} for a result of {rank} axes, the members' among them: give one "
            f"from {-rank} to {rank - 1}"
        )
    return axis % rank
