"""Runs a parallel loop on the calling thread alone where the sizes of a call leave it little work.

To wake threads takes microseconds. For constant sizes the schedule decides; for symbolic ones the
code has the loop twice:

    ``for i in parallel(n): f(i)  →  if work(n) < least: for i in range(n): f(i)  else: as before``

The work is counted in the code, unless a rule has estimated it (`estimated`).
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import ir, tirx

from ...expr.build import add, cast, const
from ...expr.nodes import (
    INTEGER_DIVISIONS,
    Expr,
    binary,
    const_value,
    dtype_of,
    is_integer,
    node_id,
    op_name,
    operands,
)
from ...expr.rewrite import postorder, replace_outermost, rewrite, variables_of
from ..functions import with_body
from ..loop_nest import PARALLEL, SERIAL
from ..stages.primfunc import PrimFunc

#: cycles of one thread below which waking others costs more than it saves: it takes 1 to 5 µs; a
#: store, of a vector or of a number, takes about one
THREAD_CYCLES = 16_384
CALL = 24.0  #: operations that an expensive function such as exp counts as, in vectors
SYMBOLIC_SIZE = 64  #: what an extent counts as that only a call, or data, decide
LARGE_SIZE = 512  #: and what it counts as in the part of a program for large sizes
FUNCTIONS = frozenset(
    ("exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "power", "tanh", "sigmoid", "erf")
)


_ESTIMATE = "tvm_autodiff.cycles"  #: of a parallel loop, before it


def estimated(loop: Any, cycles: Expr) -> Any:
    """A parallel loop with the cycles of one thread that it takes, over sizes."""
    return tirx.AttrStmt(const(0, "int32"), _ESTIMATE, cast("float64", cycles), loop)


@tirx.transform.prim_func_pass(opt_level=0)
def without_small_launches(func: PrimFunc, _module: Any, _context: Any) -> PrimFunc:
    """Decide about threads at the call wherever the work of a parallel loop is symbolic."""
    changed = False

    def loop(node: Any) -> Any:
        nonlocal changed
        if node.kind != PARALLEL:
            return node
        # what is known where the loop begins: sizes, and what others are computed of
        sizes = {node_id(var) for var in tirx.analysis.undefined_vars(node, [])}
        work = _Work(sizes).of(node)
        if isinstance(work, float):
            return node
        changed = True
        alone = tirx.For(node.loop_var, node.min, node.extent, SERIAL, node.body)
        few = rewrite(work, _safely_divided) < const(float(THREAD_CYCLES), "float64")
        return tirx.IfThenElse(few, alone, node)

    def estimate(node: Any) -> Any:
        nonlocal changed
        if node.attr_key != _ESTIMATE:
            return node
        changed = True
        if not isinstance(node.body, tirx.IfThenElse):  # no size decides about its threads
            return node.body
        few = node.value < const(float(THREAD_CYCLES), "float64")
        return tirx.IfThenElse(few, node.body.then_case, node.body.else_case)

    visitors = [(tirx.For, loop), (tirx.AttrStmt, estimate)]
    body = tvm_ffi.structural_map(func.body, visitors, order="post")
    if not changed:
        return func
    made = with_body(func, body)
    return tirx.transform.ConvertSSA()(tvm.IRModule({"main": made}))["main"]


def _safely_divided(node: Expr) -> Expr | None:
    """``i // n → i // max(n, 1)``: in front of an empty loop a size may be zero."""
    if op_name(node) not in INTEGER_DIVISIONS or not is_integer(node):
        return None
    dividend, divisor = operands(node)
    if const_value(divisor) is not None:
        return None
    return binary(op_name(node), dividend, binary("max", divisor, const(1, dtype_of(divisor))))


class _Work:
    """Estimates the cycles of a statement, as a float or an expression of sizes."""

    def __init__(self, sizes: set[int]) -> None:
        self._sizes = sizes
        self._values: dict[int, Expr] = {}  # of variables inside: loops are half done

    def of(self, node: Any) -> float | Expr:
        """The cycles of a statement."""
        if isinstance(node, tirx.For):
            count = self._extent(node.extent)
            half = binary("floordiv", node.extent, const(2, dtype_of(node.extent)))
            self._values[node_id(node.loop_var)] = self._put(add(node.min, half))
            return _times(count, self.of(node.body))
        if isinstance(node, tirx.Bind):
            self._values[node_id(node.var)] = self._put(node.value)
            return 0.0
        if isinstance(node, tirx.SeqStmt):
            total: float | Expr = 0.0
            for part in node.seq:
                total = _plus(total, self.of(part))
            return total
        if isinstance(node, tirx.IfThenElse):
            if _calls_a_kernel(node.condition):
                return float(THREAD_CYCLES)  # the schedule has decided about threads
            # one of both runs; the first is the whole of a guard
            return self._if(node.condition, self.of(node.then_case))
        if isinstance(node, tirx.BufferStore):
            return 1.0 + CALL * sum(op_name(one) in FUNCTIONS for one in postorder([node.value]))
        body = getattr(node, "body", None)
        return 0.0 if body is None else self.of(body)

    def _if(self, condition: Expr, work: float | Expr) -> float | Expr:
        """The work of a branch, or nothing where sizes alone decide that it does not run."""
        found = variables_of([condition])
        decided = found and all(node_id(var) in self._sizes for var in found)
        if not decided or _reads(condition):
            return work
        return tirx.Select(condition, _number(work), const(0.0, "float64"))

    def _put(self, expr: Expr) -> Expr:
        """An expression of what is known where the parallel loop begins, as far as it is one."""
        return replace_outermost(expr, self._values) if is_integer(expr) else expr

    def _extent(self, extent: Expr) -> float | Expr:
        extent = self._put(extent)
        value = const_value(extent)
        if value is not None:
            return float(value)
        # data end the loop of a ragged row
        unknown = any(node_id(var) not in self._sizes for var in variables_of([extent]))
        if unknown or _reads(extent):
            return float(SYMBOLIC_SIZE)
        return cast("float64", extent)


def _reads(expr: Expr) -> bool:
    """Whether an expression reads memory, also that of local numbers."""
    found: list[Any] = []
    tvm_ffi.structural_walk(expr, [(ir.TensorLoad, found.append)])
    return bool(found)


def _calls_a_kernel(condition: Expr) -> bool:
    """Whether a condition is that a call of another function fails."""
    return any(isinstance(getattr(one, "op", None), ir.GlobalVar) for one in postorder([condition]))


def _times(left: float | Expr, right: float | Expr) -> float | Expr:
    if isinstance(left, float) and isinstance(right, float):
        return left * right
    return _number(left) * _number(right)


def _plus(left: float | Expr, right: float | Expr) -> float | Expr:
    if isinstance(left, float) and isinstance(right, float):
        return left + right
    return _number(left) + _number(right)


def _number(value: float | Expr) -> Expr:
    return const(value, "float64") if isinstance(value, float) else value
