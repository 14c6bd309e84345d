"""Analyses what a scheduled GPU function launches: whether threads do all writes, and how many
threads.

The analysis runs after TVM's own lowering of blocks and thread loops, so shared buffers have their
final size. The schedule decides about limits.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from ...expr.build import const
from ...expr.nodes import const_value, node_id
from ...expr.rewrite import variables_of
from ..functions import with_body
from ..stages.primfunc import RefusedStageError, first_line


def lowered(func: Any) -> Any:
    """The function with blocks as loops and thread loops as launches.

    Raises
    ------
    RefusedStageError
        If a pass of TVM fails, for example for a reducer that TVM does not have.
    """
    passes = [
        s_tir.transform.LowerCrossThreadReduction(),
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.LiftThreadBinding(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.UnifyThreadBinding(),
        s_tir.transform.LowerOpaqueBlock(),
    ]
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    lower = tvm.transform.Sequential(passes)
    try:
        return lower(module)["main"]
    except Exception as error:  # of TVM: there is no telling what it refuses and what it asserts
        raise RefusedStageError(f"TVM cannot lower its blocks: {first_line(error)}") from error


def without_blocks(func: Any) -> Any:
    """The function `lowered`, as a schedule that Relax takes: in one block."""
    made = lowered(func).without_attr("global_symbol")
    root = s_tir.SBlock([], [], [], "root", made.body)
    body = s_tir.SBlockRealize([], const(1, "bool"), root)
    return tirx.PrimFunc(made.params, body, made.ret_type, made.attrs)


def leaves_threads_apart(func: Any) -> bool:
    """Whether threads each reduce a part that TVM does not combine.

    TVM combines them only if it can solve the bindings of the block, and is silent otherwise: each
    thread then writes its own part. It cannot solve ``i // (n + 4)`` over a symbolic size.
    """
    threads: set[int] = set()
    shared = combined = 0

    def loop(node: Any) -> None:
        if node.thread_binding is not None:
            threads.add(node_id(node.loop_var))

    def realize(node: Any) -> None:
        nonlocal shared
        pairs = zip(node.block.iter_vars, node.iter_values, strict=True)
        reduced = [value for axis, value in pairs if axis.iter_type == tirx.IterVar.CommReduce]
        shared += any(node_id(var) in threads for var in variables_of(reduced))

    def attribute(node: Any) -> None:
        nonlocal combined
        combined += node.attr_key == "reduce_scope"

    tvm_ffi.structural_walk(func.body, [(tirx.For, loop)])
    tvm_ffi.structural_walk(func.body, [(s_tir.SBlockRealize, realize)])
    if not shared:
        return False
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    body = s_tir.transform.LowerCrossThreadReduction()(module)["main"].body
    tvm_ffi.structural_walk(body, [(tirx.AttrStmt, attribute)])
    return combined < shared


def has_unbound_write(func: Any) -> bool:
    """Whether a lowered function writes outside every launch, so that the host would do it."""
    found = False

    def attribute(node: Any) -> Any:
        launches = node.attr_key == "thread_extent"
        return tvm_ffi.WalkResult.SKIP if launches else tvm_ffi.WalkResult.ADVANCE

    def write(node: Any) -> None:
        nonlocal found
        found = True

    visitors = [(tirx.AttrStmt, attribute), (tirx.BufferStore, write)]
    tvm_ffi.structural_walk(func.body, visitors, order="pre")
    return found


def launches_threads(func: Any) -> bool:
    """Whether a function binds a loop to threads, or launches them itself."""
    found = False

    def attribute(node: Any) -> None:
        nonlocal found
        found |= node.attr_key == "thread_extent"

    def loop(node: Any) -> None:
        nonlocal found
        found |= node.thread_binding is not None

    tvm_ffi.structural_walk(func.body, [(tirx.AttrStmt, attribute), (tirx.For, loop)])
    return found


def fits_device(func: Any, block_threads: int, shared_bytes: int) -> bool:
    """Whether every launch of a lowered function respects the limits of a block of threads."""

    def launch(node: Any) -> Any:
        # TVM's check only handles numbers; a grid, which may be symbolic, has no relevant limit
        if node.attr_key != "thread_extent" or const_value(node.value) is not None:
            return node
        return tirx.AttrStmt(node.node, node.attr_key, const(1, "int32"), node.body)

    body = tvm_ffi.structural_map(func.body, (tirx.AttrStmt, launch))
    func = with_body(func, body)
    limits = {"max_threads_per_block": block_threads, "max_shared_memory_per_block": shared_bytes}
    return bool(s_tir.analysis.verify_gpu_code(func, limits))
