"""The plans of a program of symbolic sizes: one for all calls, and others for some of them.

Rules estimate a symbolic extent by a number. What is best for it may be slow for a call of another
size, so the program is planned for other sizes, too, and each call runs the part of its sizes.
Functions that do not differ are in the module once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ..codegen.stages.primfunc import Callee, StageFunction, same_function
from ..codegen.stages.sizes import moved_over
from ..expr.build import cast, const, mul
from ..expr.nodes import Expr, Tensor, Var, const_value, dtype_of, tensor_key
from ..expr.rewrite import substituter, variables_of
from ..expr.simplify import simplify
from ..graph.graph import topological
from ..graph.stage import (
    Extent,
    Operation,
    axis_range,
    is_compute,
    loop_axes,
    outputs_of,
    placeholder,
    shape_of,
)
from .cost import LARGE_SIZE, MAX_SYMBOLS, SYMBOLIC_SIZE
from .emit.direct import Part, SizeRange
from .emit.program import Program, assemble_parts, is_direct
from .machine import Machine
from .plan import Compiler, Plan
from .rewrites.single_steps import without_single_steps
from .rule import Scheduled


@dataclass
class Plans:
    """The plans of a program.

    Attributes
    ----------
    usual : Plan
        The plan for all calls that no other one is for.
    others : list of (SizeRange, Plan)
        Plans for some calls.
    """

    usual: Plan
    others: list[tuple[SizeRange, Plan]] = field(default_factory=list)

    @property
    def machine(self) -> Machine:
        """The machine."""
        return self.usual.machine

    @property
    def outputs(self) -> Sequence[Tensor]:
        """The outputs of the program."""
        return self.usual.outputs

    @property
    def scheduled(self) -> list[Scheduled]:
        """The kernels of the last `program`."""
        return [one for plan in self._plans for one in plan.scheduled]

    @property
    def _plans(self) -> list[Plan]:
        return [*(plan for _, plan in self.others), self.usual]

    def program(self, compiled: Compiler | None) -> Program:
        """See `Plan.program`."""
        if compiled is None or not self.others:
            return self.usual.program(compiled)
        usual = self.usual.part(True)
        if not is_direct(usual):
            self.others = []
            return self.usual.program(compiled)
        parts = [(when, plan, plan.part(True, when)) for when, plan in self.others]
        differing = [one for one in parts if not _same(one[2], usual)]
        self.others = [(when, plan) for when, plan, _ in differing]
        made = [plan.with_constants(part, compiled) for _, plan, part in differing]
        return assemble_parts([*made, self.usual.with_constants(usual, compiled)])

    def refuse(self, scheduled: Scheduled, reason: str) -> None:
        """Prevent the next `program` from scheduling a kernel by the same rule."""
        for plan in self._plans:
            plan.refuse(scheduled, reason)


def _same(left: Part, right: Part) -> bool:
    """Whether two parts call the same functions."""
    return _same_functions([s.launch for s in left.steps], [s.launch for s in right.steps])


def _same_functions(
    left: Sequence[StageFunction | Callee], right: Sequence[StageFunction | Callee]
) -> bool:
    return len(left) == len(right) and all(
        same_function(a.func, b.func) and _same_functions(a.callees, b.callees)
        for a, b in zip(left, right, strict=True)
    )


@dataclass(frozen=True)
class SizedProgram:
    """A program as some of its calls see it.

    Attributes
    ----------
    when : SizeRange
        The calls.
    inputs, tensors : list of Tensor
        Its inputs, and what it computes.
    machine : Machine
        The machine, which estimates symbolic extents for these calls.
    """

    when: SizeRange
    inputs: list[Tensor]
    tensors: list[Tensor]
    machine: Machine


def sized_programs(
    inputs: Sequence[Tensor],
    tensors: Sequence[Tensor],
    ones: Sequence[tuple[Var, int]],
    machine: Machine,
) -> list[SizedProgram]:
    """The calls of a program that have plans of their own: those where a symbol is 1, whose axes
    vanish, and those of large sizes.

    Parameters
    ----------
    inputs, tensors : sequence of Tensor
    ones : sequence of (Var, int)
        The sizes with the value of each where a symbol of the caller is 1: ``d = 3`` for ``n + 2``.
    machine : Machine
    """
    dims = [dim for tensor in inputs for dim in shape_of(tensor) if not isinstance(dim, int)]
    symbols = variables_of(dims)
    if not symbols or len(symbols) > MAX_SYMBOLS:
        return []
    each = (_of_one(symbol, value, inputs, tensors, machine) for symbol, value in ones)
    found = [one for one in each if one is not None]
    size: Expr = const(1, "int64")
    for symbol in symbols:
        size = mul(size, cast("int64", symbol))
    # half-way between both estimates, in steps of equal ratio
    least = round((LARGE_SIZE * SYMBOLIC_SIZE) ** (len(symbols) / 2))
    many = replace(machine, symbolic_size=LARGE_SIZE)
    found.append(SizedProgram(SizeRange(size, least, 1 << 62), list(inputs), list(tensors), many))
    return found


def _of_one(
    symbol: Var,
    size: int,
    inputs: Sequence[Tensor],
    tensors: Sequence[Tensor],
    machine: Machine,
) -> SizedProgram | None:
    """``x: (n, m) → x: (1, m)`` for the calls with ``n = 1``; None if there is no such call, or
    a stage is empty in it.
    """
    table: dict[Var, Expr] = {symbol: const(size, dtype_of(symbol))}
    rename = substituter(table)

    moved = [
        placeholder([_plain(dim, rename) for dim in shape_of(one)], dtype_of(one), str(one.op.name))
        for one in inputs
    ]
    news = dict(zip(map(tensor_key, inputs), moved, strict=True))
    results = without_single_steps(moved_over(tensors, news, table))
    extents = [_plain(dim) for op in topological(results) for dim in _extents(op)]
    if any(isinstance(dim, int) and dim < 1 for dim in extents):
        return None
    return SizedProgram(SizeRange(symbol, size, size + 1), moved, results, machine)


def _plain(dim: Extent, rename: Callable[[Expr], Expr] = lambda dim: dim) -> Extent:
    """``n // 2 → 0`` where `rename` makes `n` 1."""
    moved = dim if isinstance(dim, int) else simplify(rename(dim))
    value = None if isinstance(moved, int) else const_value(moved)
    return moved if value is None else int(value)


def _extents(op: Operation) -> list[Extent]:
    axes = loop_axes(op) if is_compute(op) else ()
    found = [axis_range(axis)[1] for axis in axes]
    return [*found, *(dim for tensor in outputs_of(op) for dim in shape_of(tensor))]
