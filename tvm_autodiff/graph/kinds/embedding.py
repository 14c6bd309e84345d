"""Externs that embed the kinds of stages that te does not have, and objects in their attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import te

from ...expr.nodes import Tensor
from ..stage import outputs_of


def visits_nothing(visitor: Any, held: Any) -> None:
    """What TVM's walks do at an object that they leave alone (its `__s_visit__`)."""


def kept(mutator: Any, held: Any) -> Any:
    """What TVM's rewritings make of an object that they leave alone (its `__s_mutate__`)."""
    return held


def extern_stage(
    name: str,
    read: Sequence[Tensor],
    sources: Sequence[Any],
    results: Sequence[Any],
    body: Any,
    attrs: Mapping[str, Any],
) -> list[Tensor]:
    """The outputs of an extern: `body` reads tensors as the buffers `sources` and writes `results`.

    Not by `te.extern_primfunc`: it finds no access to a buffer without dimensions.
    """
    made = te.extern(
        [result.ty.shape for result in results],
        list(read),
        lambda ins, outs: body,
        name=name,
        in_buffers=list(sources),
        out_buffers=list(results),
        attrs=dict(attrs),
    )
    return outputs_of((made if len(results) == 1 else made[0]).op)
