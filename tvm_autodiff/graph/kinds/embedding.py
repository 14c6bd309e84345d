"""Embeds kinds of stages that te lacks as externs, with Python objects in their attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import te

from ...expr.nodes import Tensor
from ..stage import outputs_of


def visits_nothing(visitor: Any, held: Any) -> None:
    """The visit method (`__s_visit__`) of an object that TVM's visitors ignore."""


def kept(mutator: Any, held: Any) -> Any:
    """The mutation method (`__s_mutate__`) of an object that TVM's mutators leave unchanged."""
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

    `te.extern_primfunc` cannot be used, because it overlooks accesses to buffers without
    dimensions.
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
