"""Random domains for the property tests, and an independent count of their points by islpy."""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl
from hypothesis import strategies as st
from tvm import te
from tvm.ir import Var

from tvm_autodiff.domain import Domain
from tvm_autodiff.ir import build
from tvm_autodiff.ir.nodes import Expr, const_value, node_id, op_name, operands

COMPARISONS = ("eq", "eq", "le", "lt", "ge", "gt")
DIVISIONS = ("floordiv", "floordiv", "floormod", "floormod", "truncdiv", "truncmod")


@st.composite
def linear(draw, variables: list[Var], depth: int = 0) -> Expr:
    """A linear form with coefficients in -6..6, sometimes divided, sometimes with another one
    added.
    """
    result: Expr = build.const(draw(st.integers(-6, 6)), "int32")
    for var in variables:
        factor = draw(st.sampled_from((0, 0, 0, 1, 1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6)))
        if factor:
            result = result + var * factor
    if depth < 2 and draw(st.integers(0, 2)) == 0:
        divisor = build.const(draw(st.integers(2, 7)), "int32")
        result = build.binary(draw(st.sampled_from(DIVISIONS)), result, divisor)
        if draw(st.booleans()):
            factor = draw(st.sampled_from((1, -1, 2)))
            result = result * factor + draw(linear(variables, depth + 1))
    return result


@st.composite
def domains(draw, truncating: bool = True) -> Domain:
    """Up to five variables and two parameters in small ranges, up to four conditions."""
    count = draw(st.integers(1, 5))
    n_parameters = draw(st.integers(0, 2))
    variables = [te.var(name) for name in "xyzuv"[:count]]
    parameters = [te.var(name) for name in "bc"[:n_parameters]]
    longest = 6 if count < 4 else 3
    ranges: dict[Var, tuple[int, int]] = {}
    for var in variables:
        ranges[var] = (draw(st.integers(-3, 3)), draw(st.integers(1, longest)))
    for var in parameters:
        ranges[var] = (draw(st.integers(-3, 3)), draw(st.integers(1, 4)))
    conditions = []
    for _ in range(draw(st.integers(0, 4))):
        left = draw(linear([*variables, *parameters]))
        right = draw(linear(parameters)) if draw(st.booleans()) else build.const(0, "int32")
        conditions.append(build.compare(draw(st.sampled_from(COMPARISONS)), left, right))
    return Domain(tuple(variables), ranges, tuple(conditions))


def isl_points(domain: Domain, values: Mapping[Var, int]) -> set[tuple[int, ...]]:
    """The points of a domain by islpy, for given values of the parameters."""
    names = {node_id(var): f"v{n}" for n, var in enumerate(domain.variables)}
    names.update({node_id(var): str(value) for var, value in values.items()})
    parts = []
    for var in domain.variables:
        lo, extent = domain.ranges[var]
        name = names[node_id(var)]
        low = isl_text(lo, names) if not isinstance(lo, int) else str(lo)
        size = isl_text(extent, names) if not isinstance(extent, int) else str(extent)
        parts.append(f"({low}) <= {name} < ({low}) + ({size})")
    parts += [isl_text(condition, names) for condition in domain.conditions]
    head = ", ".join(names[node_id(var)] for var in domain.variables)
    found: set[tuple[int, ...]] = set()
    whole = isl.Set("{ [" + head + "] : " + " and ".join(parts or ["0 = 0"]) + " }")

    def collect(point: isl.Point) -> None:
        found.add(
            tuple(
                point.get_coordinate_val(isl.dim_type.set, n).to_python()
                for n in range(len(domain.variables))
            )
        )

    whole.foreach_point(collect)
    return found


_ISL_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "eq": "=",
    "le": "<=",
    "lt": "<",
    "ge": ">=",
    "gt": ">",
    "and": "and",
}


def isl_text(expr: Expr, names: Mapping[int, str]) -> str:
    """An expression in the notation of isl; truncating division is not part of it."""
    value = const_value(expr)
    name = op_name(expr)
    if value is not None:
        return ("0 = 0" if value else "0 = 1") if str(expr.ty) == "bool" else str(value)
    if name == "var":
        return names[node_id(expr)]
    left, right = (isl_text(part, names) for part in operands(expr))
    if name == "floordiv":
        return f"floor(({left})/{right})"
    if name == "floormod":
        return f"(({left}) mod {right})"
    return f"({left} {_ISL_INFIX[name]} {right})"
