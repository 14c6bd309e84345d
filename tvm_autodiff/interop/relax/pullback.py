"""Emits the cotangents of te inputs as calls in a Relax function.

Each input gets an expression for its cotangent, or None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax

from ...expr.nodes import Tensor, const_value, is_float, tensor_key
from ...graph.graph import rebuild
from ...graph.stage import bodies, is_compute, is_placeholder, placeholder_like
from ...transforms.vjp import vjp
from .emit import emit_tensors
from .sizes import Sizes

Input = tuple[Tensor, Any]  #: a placeholder and its Relax expression


def pull_back(
    builder: Any,
    inputs: Sequence[Input],
    results: Sequence[Tensor],
    value: Any,
    cotangent: Any,
    name: str,
    sizes: Sizes,
) -> list[Any | None]:
    """The cotangents of `inputs`.

    Parameters
    ----------
    builder : BlockBuilder
        A builder inside a function.
    inputs : sequence of (Tensor, Expr)
        All placeholders that the results read. Those that are not floating point, or whose
        cotangent is zero for all data, get None.
    results : sequence of Tensor
        The computed tensors.
    value, cotangent : Expr
        The results in the function, which are not recomputed, and their cotangent; tuples if there
        are several.
    name : str
        The name of the functions that are added.
    sizes : Sizes
        The sizes of the function, and the variables of the tensors.
    """
    single = not isinstance(value.ty, relax.TupleType)

    def part(whole: Any, n: int) -> Any:
        return whole if single else relax.TupleGetItem(whole, n)

    wanted = [tensor for tensor, _ in inputs if is_float(tensor)]
    seeds = [placeholder_like(one, f"d{one.op.name}") if is_float(one) else None for one in results]
    if not wanted or all(seed is None for seed in seeds):
        return [None for _ in inputs]
    given = {tensor_key(tensor): expr for tensor, expr in inputs}
    known: dict[tuple[int, int], Tensor] = {}
    for n, (result, seed) in enumerate(zip(results, seeds, strict=True)):
        if seed is not None:
            given[tensor_key(seed)] = part(cotangent, n)
        if not is_placeholder(result.op):
            known[tensor_key(result)] = placeholder_like(result)
            given[tensor_key(known[tensor_key(result)])] = part(value, n)
    adjoints = rebuild(
        list(vjp(results, wanted, seeds)), lambda tensor: known.get(tensor_key(tensor))
    )
    live = [one for one in adjoints if not _is_zero(one)]
    emitted = iter(emit_tensors(builder, live, given, name, sizes))
    found = {
        tensor_key(tensor): None if _is_zero(one) else next(emitted)
        for tensor, one in zip(wanted, adjoints, strict=True)
    }
    return [found.get(tensor_key(tensor)) for tensor, _ in inputs]


def _is_zero(tensor: Tensor) -> bool:
    """Whether a tensor is zero everywhere, like that of an input that no result depends on."""
    return is_compute(tensor.op) and const_value(bodies(tensor.op)[0]) == 0
