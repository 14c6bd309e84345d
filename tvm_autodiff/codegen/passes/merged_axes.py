"""Merges the split dimensions of a result into the dimensions of the wanted tensor.

No data moves: ``s[g, r]`` and ``out[g*R + r]`` are the same element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from ...expr.build import add, const, mul
from ...expr.nodes import Expr, dtype_of
from ...graph.stage import Extent
from ..stages.primfunc import PrimFunc


def with_merged_result(
    func: PrimFunc, shape: Sequence[Extent], groups: Sequence[tuple[int, ...]]
) -> PrimFunc:
    """The function whose last parameter has `shape`.

    Dimension n consists of the dimensions in ``groups[n]``: one, or two consecutive ones.
    """
    old = func.params[-1]
    inner = {dim for dims in groups for dim in dims[1:]}  # symbolic dimensions stay alone
    extents = {dim: int(old.shape[dim]) for dim in inner}
    new = tirx.decl_buffer(tuple(shape), str(old.dtype), old.name)

    def merged(indices: Sequence[Expr]) -> list[Expr]:
        found = []
        for dims in groups:
            value = indices[dims[0]]
            for dim in dims[1:]:
                value = add(mul(value, const(extents[dim], dtype_of(value))), indices[dim])
            found.append(value)
        return found

    def stored(node: Any) -> Any:
        if not node.buffer.same_as(old):
            return node
        return tirx.BufferStore(new, node.value, merged(list(node.indices)))

    def loaded(node: Any) -> Any:
        # a reduction that accumulates in its result reads it
        if not node.source.same_as(old):
            return node
        return tirx.BufferLoad(new, merged(list(node.indices)))

    def region(node: Any) -> Any:
        if not node.source.same_as(old):
            return node
        lows = merged([part.min for part in node.region])
        ends = merged([part.min + part.extent - 1 for part in node.region])
        ranges = [
            tvm.ir.Range.from_min_extent(low, end - low + 1)
            for low, end in zip(lows, ends, strict=True)
        ]
        return tirx.BufferRegion(new, ranges)

    kind = type(tirx.BufferRegion(new, [tvm.ir.Range(0, extent) for extent in shape]))
    changes = [(tirx.BufferStore, stored), (tvm.ir.TensorLoad, loaded), (kind, region)]
    body = tvm_ffi.structural_map(func.body, changes)
    return tirx.PrimFunc([*func.params[:-1], new], body, func.ret_type, func.attrs)
