"""Accesses of flat memory by scheduled functions, after TVM's lowering: nothing is compiled or run.

Positions are evaluated in exact integers, in the first and in the last iteration of their loops.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tvm
from tvm import te, tirx

from tests.evaluate import stages_of
from tests.exact_integers import exact_values
from tests.walks import address_of, dtype_of, in_order, name_of, parts_of
from tests.without_assertions import without_assertions
from tvm_autodiff.codegen.deep import run_deep
from tvm_autodiff.codegen.host.direct_calls import PIPELINE
from tvm_autodiff.schedule.backends import rules_for
from tvm_autodiff.schedule.emit.program import function_alone
from tvm_autodiff.schedule.machine import Machine
from tvm_autodiff.schedule.plan import Plan


class Accesses:
    """What a lowered function accesses in the first and in the last iteration of its loops.

    Every integer of a position must fit the type that it is computed in.

    Parameters
    ----------
    func : PrimFunc
    given : mapping from name to int
        The sizes.
    data : int
        What is read of index tensors.

    Attributes
    ----------
    furthest : int
        The largest position.
    stores : mapping from buffer to int
        How often its elements are written, by loops and in lanes; of buffers that are parameters.
    """

    def __init__(self, func: Any, given: Mapping[str, int], data: int) -> None:
        self.given, self.data, self.furthest = given, data, 0
        self.stores: dict[str, int] = {}
        self.local: set[str] = set()
        self.sizes: set[int] = set()
        self.in_loops = False  #: behind what unpacks arguments
        self.ends: list[dict[Any, int]] = [{}, {}]
        self.visit(func.body, 1)

    def numbers(self, expr: Any) -> list[int]:
        """The value of an integer in the first and in the last iteration."""
        read = lambda node, indices: self.data  # noqa: E731
        return [exact_values(expr, known, checked=True, read=read)[-1] for known in self.ends]

    def visit(self, node: Any, points: int) -> None:
        """Visit a statement that runs so many times."""
        if isinstance(node, tirx.SeqStmt):
            for part in node.seq:
                self.visit(part, points)
        elif isinstance(node, tirx.For):
            self.loop(node, points)
        elif isinstance(node, tirx.IfThenElse):
            self.branch(node, points)
        elif isinstance(node, tirx.AllocBuffer):
            self.local.add(node.buffer.name)
        elif isinstance(node, tirx.Bind):
            self.named(node)
        elif isinstance(node, tirx.BufferStore):
            self.reads(node.value)
            self.access(node.indices)
            lanes = int(dtype_of(node.value).partition("x")[2] or 1)
            if node.buffer.name not in self.local:
                known = self.stores.get(node.buffer.name, 0)
                self.stores[node.buffer.name] = known + points * lanes
        elif hasattr(node, "body"):
            self.in_loops |= getattr(node, "attr_key", None) == "compute_scope"
            self.visit(node.body, points)

    def loop(self, node: Any, points: int) -> None:
        first, extents = self.numbers(node.min), self.numbers(node.extent)
        if max(extents) > 0:
            self.bind(node.loop_var, [first[0], first[1] + max(extents[1], 1) - 1])
            self.visit(node.body, points * max(extents))

    def branch(self, node: Any, points: int) -> None:
        """Both sides, unless sizes alone decide."""
        variables = {address_of(n) for n in in_order(node.condition) if name_of(n) == "var"}
        decided = variables <= self.sizes
        holds = decided and self.numbers(node.condition)[0]
        if not decided or holds:
            self.visit(node.then_case, points)
        if node.else_case is not None and not holds:
            self.visit(node.else_case, points)

    def named(self, node: Any) -> None:
        if node.var.name in self.given:  # from the shape of an array
            self.sizes.add(address_of(node.var))
            self.bind(node.var, [self.given[node.var.name]] * 2)
        elif self.in_loops:
            self.reads(node.value)
            if dtype_of(node.value) in ("int32", "int64"):
                self.bind(node.var, self.numbers(node.value))

    def bind(self, var: Any, values: list[int]) -> None:
        for known, value in zip(self.ends, values, strict=True):
            known[var] = value

    def reads(self, expr: Any) -> None:
        for node in in_order(expr):
            if name_of(node) == "load":
                self.access(parts_of(node))

    def access(self, indices: Any) -> None:
        [position] = indices
        self.furthest = max(self.furthest, *self.numbers(position))


def lowered(output: Any, machine: Machine) -> list[Any]:
    """The functions of a program after TVM's lowering, in order."""
    stages = stages_of([output])
    inputs = [op.output(0) for op in stages if isinstance(op, te.PlaceholderOp)]
    plan = run_deep(Plan, inputs, [output], (), machine, rules_for(machine))
    lower, *_ = tirx.get_tir_pipeline(PIPELINE)
    target = tvm.target.Target(machine.target, machine.target)
    modules = [
        lower(tvm.IRModule({"main": function_alone(step.launch).with_attr("target", target)}))
        for step in run_deep(plan.steps)
    ]
    return [func for module in modules for _, func in without_assertions(module).functions_items()]
