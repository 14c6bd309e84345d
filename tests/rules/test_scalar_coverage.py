"""The table of scalar rules is complete: what TVM builds has a row, and every row a proof."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import tvm
from tvm import te, tirx, topi

from tests.rules.scalar_cases import CASES, SEED, X, Y, case_node, partials
from tvm_autodiff.expr.nodes import is_float, node_id, op_name, operands
from tvm_autodiff.expr.rewrite import postorder
from tvm_autodiff.graph.graph import topological
from tvm_autodiff.graph.stage import bodies, is_compute
from tvm_autodiff.rules.registry import called_name
from tvm_autodiff.rules.scalar_rules import NO_DERIVATIVE, RULES

#: rows whose operand TVM accepts as a condition only
CONDITIONS_ONLY = {"likely"}


def test_every_row_is_proved() -> None:
    """No row without a case above; what has none is constant by its nature or transparent."""
    proved = {called_name(case.build(X, Y)) for case in CASES} | {"cast"}
    assert set(RULES) - proved - NO_DERIVATIVE == CONDITIONS_ONLY
    assert all(rule.name == name and rule.formula for name, rule in RULES.items())


def test_derivatives_are_differentiable_again() -> None:
    """Every operator that an entry holds has a row itself."""
    leaves = {"var", "const", "load", "string"}
    for case in CASES:
        for expr in partials(case_node(case), SEED, (X, Y)):
            assert {called_name(node) for node in postorder(expr)} <= set(RULES) | leaves, case.id


#: intrinsics of a float that have no row, and why
WITHOUT_ROW = {
    "popcount": "counts the bits of an integer",
    "floormod": "of floats: no backend computes it",
}
LEAVES = {"var", "const", "load", "reduce"}


def active_operators(roots: list[Any]) -> set[str]:
    """Operators on a path of floats from a read or a variable to a root."""
    active: set[int] = set()
    found = set()
    for node in postorder(roots):
        leaf = op_name(node) in ("var", "load")
        if is_float(node) and (leaf or any(node_id(part) in active for part in operands(node))):
            active.add(node_id(node))
            found.add(op_name(node))
    return found - LEAVES


def functions_of(module: Any) -> list[str]:
    """Names of what may build an expression: plain functions that no backend owns."""
    private = ("_", "call_", "tvm_", "register_", "start_", "end_", "stmt_")
    return [
        name
        for name in dir(module)
        if not name.startswith(private)
        and callable(getattr(module, name))
        and not isinstance(getattr(module, name), type)
    ]


def built(function: Callable[..., Any], candidates: list[tuple[Any, ...]]) -> list[Any]:
    """Results of the calls that the function accepts."""
    results = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a tag of topi that a refused call leaves unused
        for arguments in candidates:
            with contextlib.suppress(Exception):  # most of TVM's functions want something else
                results.append(function(*arguments))
    return results


@pytest.mark.parametrize(("module", "least"), [(te, 38), (tirx, 49)], ids=["te", "tirx"])
def test_table_covers_what_te_builds(module: Any, least: int) -> None:
    """Whatever a function of TVM builds of floats has a row, or stands in the table above."""
    n = tirx.Var("n", "int32")
    candidates = [(X,), (X, Y), (X, n), (X, Y, X), (X < Y, X, Y), ("float32", X)]
    builders = set()
    for name in functions_of(module):
        for expr in built(getattr(module, name), candidates):
            if isinstance(expr, tvm.ir.Expr) and str(expr.ty) == "float64":
                builders.add(name)
                assert active_operators([expr]) <= set(RULES) | set(WITHOUT_ROW), name
    assert len(builders) >= least, sorted(builders)


def test_table_covers_what_topi_builds() -> None:
    """Every elementwise operator of topi: nothing on a path of floats without a row."""
    a, b = (te.placeholder((4,), "float32", name) for name in "ab")
    used: set[str] = set()
    for name in functions_of(topi):
        for result in built(getattr(topi, name), [(a,), (a, b), (a, 0.0, 1.0)]):
            outputs = [result] if isinstance(result, te.Tensor) else result
            if not isinstance(outputs, (list, tuple)):
                continue
            for op in topological([t for t in outputs if isinstance(t, te.Tensor)]):
                if is_compute(op):
                    found = active_operators(bodies(op))
                    assert found <= set(RULES), name
                    used |= found
    assert len(used) >= 34, sorted(used)
