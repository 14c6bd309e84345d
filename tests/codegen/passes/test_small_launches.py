"""Parallel loops of symbolic length: on one thread where sizes leave them little work."""

from __future__ import annotations

import pytest
import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.ir import prim

from tests.evaluate import evaluate
from tvm_autodiff.codegen.host.direct_calls import called, chosen
from tvm_autodiff.codegen.loop_nest import PARALLEL, loop, sequence, when
from tvm_autodiff.codegen.passes.small_launches import (
    THREAD_CYCLES,
    estimated,
    without_small_launches,
)
from tvm_autodiff.expr.rewrite import postorder


def function(extent_of):
    """``for i in parallel(extent): for j < 8: y[i, j] = 1``, guarded as `extent_of` gives."""
    n = tirx.Var("n", "int32")
    y = tirx.decl_buffer((n, 8), "float32", "y")
    i, j = tirx.Var("i", "int32"), tirx.Var("j", "int32")
    store = tirx.BufferStore(y, tirx.const(1.0, "float32"), [i, j])
    extent, inside = extent_of(n, loop(j, 8, store))
    body = sequence([loop(i, extent, inside, PARALLEL)])
    return n, tirx.PrimFunc([n, y], body)


def rewritten(func):
    return without_small_launches(tvm.IRModule({"main": func}))["main"]


def branches(func):
    found = []
    tvm_ffi.structural_walk(func.body, [(tirx.IfThenElse, found.append)])
    return [node for node in found if node.else_case is not None]


def test_a_constant_loop_stays():
    _, func = function(lambda n, body: (16, body))
    assert not branches(rewritten(func))


@pytest.mark.parametrize("size", [0, 1, THREAD_CYCLES // 8 - 1, THREAD_CYCLES // 8, THREAD_CYCLES])
def test_the_work_decides(size):
    _, func = function(lambda n, body: (n, body))
    made = rewritten(func)
    [branch] = branches(made)
    [param] = [p for p in made.params if not hasattr(p.ty, "shape")]
    assert branch.then_case.kind == tirx.ForKind.SERIAL
    assert branch.else_case.kind == PARALLEL
    assert bool(evaluate(branch.condition, {param: size})) == (size * 8 < THREAD_CYCLES)


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101])
def test_an_estimate_decides_in_place_of_the_code(size):
    n, func = function(lambda n, body: (n, body))
    cycles = n.astype("float64") * float(THREAD_CYCLES / 100)
    made = rewritten(tirx.PrimFunc(func.params, estimated(func.body, cycles)))
    [param] = [p for p in made.params if not hasattr(p.ty, "shape")]
    [branch] = branches(made)
    assert bool(evaluate(branch.condition, {param: size})) == (size < 100)


def test_an_estimate_of_a_constant_loop_goes():
    _, func = function(lambda n, body: (16, body))
    func = tirx.PrimFunc(func.params, estimated(func.body, tirx.const(1.0, "float64")))
    found = []
    tvm_ffi.structural_walk(rewritten(func).body, [(tirx.AttrStmt, found.append)])
    assert not found


@pytest.mark.parametrize(("launch", "few"), [(-1, False), (0, False), (1, True)])
def test_calls_of_kernels_are_worth_threads(launch, few):
    only, i = tirx.Var("only", "int32"), tirx.Var("i", "int32")
    call = called(ir.GlobalVar("kernel"), [i])
    body = loop(i, 2, sequence([when(chosen(only, 0), call)]), PARALLEL)
    [branch, *_] = branches(rewritten(tirx.PrimFunc([only], sequence([body]))))
    assert branch.then_case.kind == tirx.ForKind.SERIAL
    assert bool(evaluate(branch.condition, {only: launch})) == few


@pytest.mark.parametrize("size", [5, 1000, 5000])
def test_a_branch_that_sizes_rule_out_is_no_work(size):
    _, func = function(lambda n, body: (n, when(n > 2000, body)))
    made = rewritten(func)
    [param] = [p for p in made.params if not hasattr(p.ty, "shape")]
    [branch] = branches(made)
    assert bool(evaluate(branch.condition, {param: size})) == (size <= 2000)


def test_sizes_of_zero_divide_nothing():
    """The work of a triangle is that of its middle row, ``n // 2 % m``."""
    n, m = tirx.Var("n", "int32"), tirx.Var("m", "int32")
    y = tirx.decl_buffer((n, m), "float32", "y")
    i, j = tirx.Var("i", "int32"), tirx.Var("j", "int32")
    store = tirx.BufferStore(y, tirx.const(1.0, "float32"), [i // m, j])
    func = tirx.PrimFunc([n, m, y], loop(i, n, loop(j, i % m, store), PARALLEL))
    [branch] = branches(rewritten(func))
    for node in postorder(branch.condition):
        if isinstance(node, (prim.FloorMod, prim.FloorDiv)):
            assert isinstance(node.b, (prim.IntImm, prim.Max)), node


def test_a_branch_by_what_is_in_memory_is_no_matter_of_sizes():
    """A local number does not exist in front of the loop."""
    flag = tirx.decl_buffer((1,), "int32", "flag")

    def guarded(n, body):
        return n, when(tirx.LT(flag[0], n), body)

    _, func = function(guarded)
    [branch] = branches(rewritten(func))
    reads = []
    tvm_ffi.structural_walk(branch.condition, [(ir.TensorLoad, reads.append)])
    assert not reads
