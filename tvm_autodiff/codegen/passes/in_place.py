"""Decides whether a scheduled function may write its result over one of its inputs, and makes that
function.

The decision uses only the accesses of its blocks, not the rule that scheduled it.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, s_tir, tirx

from ...expr.nodes import Var, const_value, node_id

_SPATIAL = 0
#: attribute of functions that store each element of a result at most once
WRITES_ONCE = "tvm_autodiff.writes_once"


def may_share(func: Any, read: Var, written: Var) -> bool:
    """Whether each element of `written` only depends on the element of `read` at the same index.

    True if every block that touches one of the two runs once for each point of its axes, writes one
    element of `written` and reads at most that element of `read`.
    """
    if func.attrs is not None and WRITES_ONCE in func.attrs:
        return _reads_where_it_writes(func, read, written)
    blocks: list[Any] = []
    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, blocks.append))
    inside = 0
    for block in blocks:
        if block.name_hint == "root":
            continue
        reads = [region for region in block.reads if _is(region, read)]
        writes = [region for region in block.writes if _is(region, written)]
        if not reads and not writes:
            if any(_is(r, written) for r in block.reads):
                return False
            continue
        if len(block.writes) != 1 or len(writes) != 1 or block.init is not None:
            return False
        if any(int(axis.iter_type) != _SPATIAL for axis in block.iter_vars):
            return False
        if any(_is(region, written) for region in block.reads):
            return False
        if not all(_same_point(region, writes[0]) for region in reads):
            return False
        inside += _occurrences(block, read, written)
    # such blocks do not describe reads and writes outside of them
    return inside == _occurrences(func.body, read, written) > 0


def _reads_where_it_writes(func: Any, read: Var, written: Var) -> bool:
    """Whether `read` is only read in stores to `written`, at the stored element.

    This is for functions that store each element of a result once, whose loops need not be blocks.
    """
    bad: list[Any] = []

    def loads(root: Any) -> list[Any]:
        found: list[Any] = []
        tvm_ffi.structural_walk(root, (ir.TensorLoad, found.append))
        return [load for load in found if node_id(load.source) == node_id(read)]

    inside: set[int] = set()

    def check(node: Any) -> None:
        place = list(node.indices)
        here = node_id(node.buffer) == node_id(written)
        for load in loads(node.value):
            inside.add(node_id(load))
            if not here or not all(map(_equal, load.indices, place)):
                bad.append(load)

    tvm_ffi.structural_walk(func.body, (tirx.BufferStore, check))
    # a read elsewhere, in an index or a bound, is not at the stored element
    return not bad and {node_id(load) for load in loads(func.body)} <= inside


def _equal(left: Any, right: Any) -> bool:
    return bool(tvm_ffi.structural_equal(left, right, map_free_vars=False))


def shared(func: Any, read: Var, written: Var) -> Any:
    """``f(.., read, .., written, ..) → f(.., read, ..)``, which overwrites its input."""
    body = tvm_ffi.structural_map(
        func.body, (tirx.Var, lambda var: read if node_id(var) == node_id(written) else var)
    )
    params = [param for param in func.params if node_id(param) != node_id(written)]
    return tirx.PrimFunc(params, body, func.ret_type, func.attrs)


def _occurrences(node: Any, *variables: Var) -> int:
    wanted = {node_id(var) for var in variables}
    found: list[Var] = []
    tvm_ffi.structural_walk(node, (tirx.Var, found.append))
    return sum(node_id(var) in wanted for var in found)


def _is(region: Any, buffer: Var) -> bool:
    return node_id(region.source) == node_id(buffer)


def _same_point(left: Any, right: Any) -> bool:
    if len(left.region) != len(right.region):
        return False
    return all(
        const_value(a.extent) == 1
        and const_value(b.extent) == 1
        and tvm_ffi.structural_equal(a.min, b.min, map_free_vars=False)
        for a, b in zip(left.region, right.region, strict=True)
    )
