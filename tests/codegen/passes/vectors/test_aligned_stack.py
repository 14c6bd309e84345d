"""Functions with vectors align their stack; those without, and on other processors, do not."""

from __future__ import annotations

import re

import pytest
import tvm
from tvm import tirx

from tvm_autodiff.codegen.host.direct_calls import PIPELINE
from tvm_autodiff.codegen.loop_nest import function, sequence
from tvm_autodiff.codegen.passes.vectors.aligned_stack import with_aligned_stack


def doubled(lanes: int, target: str):
    x, y = (tirx.decl_buffer((64,), "float32", name) for name in "xy")
    place = tirx.Ramp(0, 1, lanes) if lanes > 1 else tirx.const(0, "int32")
    body = tirx.BufferStore(y, tirx.BufferLoad(x, [place]), [place])
    return function([x, y], body).with_attr("target", tvm.target.Target(target))


@pytest.mark.parametrize(
    ("lanes", "triple", "aligned"),
    [(16, "x86_64-linux-gnu", True), (1, "x86_64-linux-gnu", False), (4, "aarch64-linux", False)],
)
def test_which_functions(lanes, triple, aligned):
    func = doubled(lanes, {"kind": "llvm", "mtriple": triple})
    assert ("tvm_autodiff_aligned_stack" in with_aligned_stack(func).script()) == aligned


def test_the_stacks_of_threads():
    x, y = (tirx.decl_buffer((1024,), "float32", name) for name in "xy")
    i = tirx.Var("i", "int32")
    place = tirx.Ramp(i * 16, 1, 16)
    body = tirx.BufferStore(y, tirx.BufferLoad(x, [place]), [place])
    loop = tirx.For(i, 0, 64, tirx.ForKind.PARALLEL, body)
    target = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu"})
    text = with_aligned_stack(function([x, y], loop).with_attr("target", target)).script()
    assert text.count('call_extern("int32", "tvm_autodiff_aligned_stack")') == 2


@pytest.mark.parametrize("aligned", [False, True])
def test_vectors_on_the_stack_lie_on_lines_of_memory(aligned):
    """More sums of vectors than there are registers."""
    lanes, count = 16, 40
    x, y = (tirx.decl_buffer((lanes * count,), "float32", name) for name in "xy")
    sums = [tirx.decl_buffer((lanes,), "float32", f"s{n}", scope="local") for n in range(count)]
    every, zero = tirx.Ramp(0, 1, lanes), tirx.Broadcast(tirx.const(0.0, "float32"), lanes)
    k, statements, ends = tirx.Var("k", "int32"), [], []
    for n, one in enumerate(sums):
        more = tirx.BufferLoad(x, [tirx.Ramp(k * n % 99, 1, lanes)])
        half = tirx.Broadcast(tirx.const(0.5, "float32"), lanes)
        value = tirx.BufferLoad(one, [every]) * half + more
        statements.append(tirx.BufferStore(one, value, [every]))
        end = tirx.BufferLoad(one, [every])
        ends.append(tirx.BufferStore(y, end, [tirx.Ramp(n * lanes, 1, lanes)]))
    begin = [*map(tirx.AllocBuffer, sums), *(tirx.BufferStore(s, zero, [every]) for s in sums)]
    loop = tirx.For(k, 0, 100, tirx.ForKind.SERIAL, sequence(statements))
    target = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "mcpu": "znver4"})
    func = function([x, y], sequence([*begin, loop, *ends])).with_attr("target", target)
    func = with_aligned_stack(func) if aligned else func
    module = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    text = tvm.compile(module, target=target, tir_pipeline=PIPELINE).mod.inspect_source("asm")
    spilled = re.findall(r"(vmov[au]ps)\s+%zmm\d+, \d*\(%rsp\)", text)
    assert set(spilled) == {"vmovaps" if aligned else "vmovups"}
