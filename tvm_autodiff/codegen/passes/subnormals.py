"""Lets a CPU compute with zero in place of subnormal numbers, and restores the caller's mode.

An operation with a subnormal operand or result takes over a hundred cycles on many CPUs. Each
thread has a mode of its own, so the code that enters and leaves it is in the body of a function,
and in what each thread of a parallel loop runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx

from ...expr.build import const
from ...expr.nodes import Expr, op_name
from ..functions import with_body
from ..loop_nest import PARALLEL, Statement, allocated, element, local, sequence, store
from ..stages.primfunc import PrimFunc
from ..targets import cpu_architecture

#: the mark of statements that run without subnormal numbers
FLUSHED = "tvm_autodiff.flushed"

#: bits of x86's MXCSR: results are flushed (bit 15), operands count as zero (bit 6). Intel 64 and
#: IA-32 Architectures Software Developer's Manual, volume 1, section 10.2.3
_MXCSR = 1 << 15 | 1 << 6
#: bit of AArch64's FPCR for both: Arm Architecture Reference Manual, FPCR.FZ
_FPCR = 1 << 24

@dataclass(frozen=True)
class Mode:
    """Statements around code that computes without subnormal numbers.

    Attributes
    ----------
    enter, leave : Statement
        `leave` restores what `enter` found; both are in the scope of `within`.
    within : callable
        Gives a statement the memory that `enter` and `leave` use.
    """

    enter: Statement
    leave: Statement
    within: Callable[[Statement], Statement]

    def around(self, body: Statement) -> Statement:
        """``body → enter; body; leave``."""
        return self.within(sequence([self.enter, body, self.leave]))


def _x86() -> Mode:
    word = local("mode", (2,), "int32")
    old, new = (
        tirx.call_intrin("handle", "tirx.address_of", element(word, [const(place, "int32")]))
        for place in (0, 1)
    )
    flushing = element(word, [const(0, "int32")]) | const(_MXCSR, "int32")
    enter = [
        _llvm("stmxcsr", old),
        store(word, flushing, [const(1, "int32")]),
        _llvm("ldmxcsr", new),
    ]
    return Mode(sequence(enter), _llvm("ldmxcsr", old), lambda body: allocated([word], body))


def _llvm(name: str, place: Expr) -> Statement:
    return tirx.Evaluate(tirx.call_llvm_intrin("void", f"llvm.x86.sse.{name}", place))


def _aarch64() -> Mode:
    word = local("mode", (1,), "int64")
    first = [const(0, "int32")]
    get = tirx.call_llvm_intrin("int64", "llvm.aarch64.get.fpcr")

    def put(value: Expr) -> Statement:
        return tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.aarch64.set.fpcr", value))

    old = element(word, first)
    enter = sequence([store(word, get, first), put(old | const(_FPCR, "int64"))])
    return Mode(enter, put(old), lambda body: allocated([word], body))


_MODES: Mapping[str, Callable[[], Mode]] = {"x86": _x86, "aarch64": _aarch64}


@tirx.transform.prim_func_pass(opt_level=0)
def without_subnormals(func: PrimFunc, _module: Any, _context: Any) -> PrimFunc:
    """``body → enter; body; leave`` for marked statements and the body of a function that is called
    from outside, ``for i in parallel(n): f(i) → on each thread: enter; its part of the loop;
    leave``.

    A return because of an error leaves the mode as well. Nothing changes on CPUs without such a
    mode.
    """
    made = _MODES.get(cpu_architecture(func.attrs["target"]))
    if made is None:
        return func

    def entered(node: Any) -> Any:
        if node.attr_key not in (FLUSHED, "compute_scope"):
            return node
        body = _around(made(), node.body)
        if node.attr_key == FLUSHED:
            return body
        return tirx.AttrStmt(node.node, node.attr_key, node.value, body)

    def on_threads(node: Any) -> Any:
        if node.kind != PARALLEL:
            return node
        zero, one = const(0, "int32"), const(1, "int32")
        return tirx.AttrStmt(zero, "pragma_parallel_launch_point", one, _around(made(), node))

    visitors = [(tirx.AttrStmt, entered), (tirx.For, on_threads)]
    body = tvm_ffi.structural_map(func.body, visitors, order="post")
    return with_body(func, body)


def _around(mode: Mode, body: Statement) -> Statement:
    def leaving(node: Any) -> Any:
        if op_name(node.value) != "tvm_throw_last_error":
            return node
        return sequence([mode.leave, node])

    return mode.around(tvm_ffi.structural_map(body, (tirx.Evaluate, leaving)))
