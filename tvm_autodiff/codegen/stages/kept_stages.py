"""Stores stages as text in an attribute of a function whose blocks do not determine them.

Scatters and prefix scans have blocks like any loops, and reductions over pairs are spelled out, so
`recovered.py` cannot read either back from blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tvm import ir

from ...expr.nodes import Expr, Tensor, Var, is_tensor, op_name, tensor_key
from ...graph.graph import topological
from ...graph.kinds.kind import Compute, Input, kind_of
from ...graph.kinds.prefix_scan import Scan
from ...graph.kinds.scatter_add import ScatterAdd
from ...graph.kinds.update_loops import UpdateLoops
from ...graph.serialized import serialized
from .primfunc import StageFunction
from .sizes import moved_over

ATTRIBUTE = "tvm_autodiff.stages"
#: kinds whose attributes TVM serialises completely
_WRITTEN = (Input, Compute, Scan, ScatterAdd, UpdateLoops)


def keeping_stages(launch: StageFunction) -> StageFunction:
    """A function with its stages as text, or the function itself if TVM cannot serialise them."""
    if not all(isinstance(kind_of(op), _WRITTEN) for op in topological(launch.outputs)):
        return launch
    text = serialized([launch.inputs, launch.scalars, launch.outputs])
    return launch if text is None else replace(launch, func=launch.func.with_attr(ATTRIBUTE, text))


def sizes_matching(dims: Sequence[Expr], extents: Sequence[Expr]) -> dict[Var, Expr]:
    """``[n, 4], [3*m, 4] → {n: 3*m}``: the values of variables that are dimensions."""
    pairs = zip(dims, extents, strict=True)
    return {dim: extent for dim, extent in pairs if op_name(dim) == "var"}


def kept_stages(
    func: Any, arguments: Sequence[Any], shapes: Sequence[Sequence[Expr]] = ()
) -> list[Tensor] | None:
    """The stored stages of a function, over its arguments, or None if there are none.

    `shapes` are those of its results, if known.
    """
    if not func.attrs or ATTRIBUTE not in func.attrs:
        return None
    inputs, scalars, outputs = ir.load_json(str(func.attrs[ATTRIBUTE]))
    given = [one for one in arguments if is_tensor(one)]
    table: dict[Var, Expr] = dict(
        zip(scalars, (one for one in arguments if not is_tensor(one)), strict=True)
    )
    for tensor, argument in zip(inputs, given, strict=True):
        table = sizes_matching(tensor.shape, argument.shape) | table
    for tensor, shape in zip(outputs, shapes, strict=False):
        table = sizes_matching(tensor.shape, shape) | table
    news = dict(zip(map(tensor_key, inputs), given, strict=True))
    return moved_over(list(outputs), news, table)
