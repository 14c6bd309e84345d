"""Which functions TVM compacts the buffers of."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import te
from tvm.script import tirx as T

from tvm_autodiff.codegen.passes.compaction import compacting_blocks


@T.prim_func(s_tir=True)
def loops(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")) -> None:
    room = T.alloc_buffer((8,), "float32")
    for i in range(8):
        room[0] = x[i] * T.float32(2)
        y[i] = room[0]


def scheduled():
    """A stage of eight elements that is computed where one of them is read."""
    x = te.placeholder((8,), name="x")
    twice = te.compute((8,), lambda i: x[i] * 2.0, name="twice")
    y = te.compute((8,), lambda i: twice[i] + 1.0, name="y")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([x, y]))
    schedule.compute_at(schedule.get_sblock("twice"), schedule.get_loops("y")[0])
    return schedule.mod["main"]


def sizes_after_compaction(func) -> list[int]:
    """The sizes of local buffers that the rest of the pipeline gets to see."""
    seen: list[int] = []

    @tvm.transform.module_pass(opt_level=0)
    def lower(module, context):
        module = tvm.s_tir.transform.PlanAndUpdateBufferAllocationLocation()(module)
        module = tvm.s_tir.transform.ConvertBlocksToOpaque()(module)
        sequence = tvm.transform.Sequential([tvm.s_tir.transform.CompactBufferAllocation()])
        module = sequence(module)
        buffers: list = []
        visitors = [
            (tvm.s_tir.SBlock, lambda block: buffers.extend(block.alloc_buffers)),
            (tvm.tirx.AllocBuffer, lambda node: buffers.append(node.buffer)),
        ]
        tvm_ffi.structural_walk(module["main"].body, visitors)
        seen.extend(int(buffer.shape[0]) for buffer in buffers)
        return module

    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    compacting_blocks(lower)(module)
    return seen


def test_blocks_are_compacted() -> None:
    assert sizes_after_compaction(scheduled()) == [1]


def test_functions_written_as_loops_are_left() -> None:
    """TVM's pass alone would make one element of eight."""
    assert sizes_after_compaction(loops) == [8]
