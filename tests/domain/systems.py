"""Random domains for the property tests, and two oracles that know nothing of the solver.

`isl_bijection` compares a transformation as relations of isl, for all values of the parameters at
once; `bijection` enumerates all points in numpy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import islpy as isl
import numpy as np
from hypothesis import strategies as st
from tvm import te
from tvm.ir import Var

from tests.evaluate import evaluate
from tests.walks import address_of, name_of, parts_of
from tvm_autodiff.domain import Domain, DomainTransformation
from tvm_autodiff.expr import build
from tvm_autodiff.expr.nodes import Expr

COMPARISONS = ("eq", "eq", "le", "lt", "ge", "gt", "ne", "ne")
DIVISIONS = ("floordiv", "floordiv", "floormod", "floormod", "truncdiv", "truncmod")


@st.composite
def linear(draw, variables: list[Var], depth: int = 0, divisions: tuple = DIVISIONS) -> Expr:
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
        result = build.binary(draw(st.sampled_from(divisions)), result, divisor)
        if draw(st.booleans()):
            factor = draw(st.sampled_from((1, -1, 2)))
            result = result * factor + draw(linear(variables, depth + 1, divisions))
    return result


@st.composite
def domains(draw, truncating: bool = True) -> Domain:
    """Up to five variables and two parameters in small ranges, up to four conditions."""
    divisions = DIVISIONS if truncating else DIVISIONS[:4]  # isl has no other ones
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
        left = draw(linear([*variables, *parameters], 0, divisions))
        right = (
            draw(linear(parameters, 0, divisions))
            if draw(st.booleans())
            else build.const(0, "int32")
        )
        condition = build.compare(draw(st.sampled_from(COMPARISONS)), left, right)
        if draw(st.integers(0, 3)) == 0:  # or one on a variable alone
            number = build.const(draw(st.integers(-3, 3)), "int32")
            name, var = draw(st.sampled_from(COMPARISONS)), draw(st.sampled_from(variables))
            first = draw(st.sampled_from((condition, var < number - 1)))
            condition = build.any_of([first, build.compare(name, var, number)])
        conditions.append(condition)
    return Domain(tuple(variables), ranges, tuple(conditions))


def isl_points(domain: Domain, values: Mapping[Var, int]) -> set[tuple[int, ...]]:
    """The points of a domain by islpy, for given values of the parameters."""
    names = {address_of(var): f"v{n}" for n, var in enumerate(domain.variables)}
    names.update({address_of(var): str(value) for var, value in values.items()})
    parts = []
    for var in domain.variables:
        lo, extent = domain.ranges[var]
        name = names[address_of(var)]
        low = isl_text(lo, names) if not isinstance(lo, int) else str(lo)
        size = isl_text(extent, names) if not isinstance(extent, int) else str(extent)
        parts.append(f"({low}) <= {name} < ({low}) + ({size})")
    parts += [isl_text(condition, names) for condition in domain.conditions]
    head = ", ".join(names[address_of(var)] for var in domain.variables)
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


def isl_relation(
    domain: Domain, names: Mapping[int, str], to: Sequence[Expr], parameters: Sequence[Var]
) -> isl.Map:
    """The points of a domain, each with the values of some expressions."""
    parts = []
    for var in (*domain.variables, *(p for p in parameters if p in domain.ranges)):
        low, size = (
            str(bound) if isinstance(bound, int) else isl_text(bound, names)
            for bound in domain.ranges[var]
        )
        parts.append(f"({low}) <= {names[address_of(var)]} < ({low}) + ({size})")
    parts += [isl_text(condition, names) for condition in domain.conditions]
    head = ", ".join(names[address_of(var)] for var in domain.variables)
    values = ", ".join(isl_text(expr, names) for expr in to)
    outer = ", ".join(names[address_of(var)] for var in parameters)
    condition = " and ".join(parts or ["0 = 0"])
    return isl.Map(f"[{outer}] -> {{ [{head}] -> [{values}] : {condition} }}")


def isl_bijection(transformation: DomainTransformation) -> None:
    """Whether the two maps of a transformation are each other's inverse on the two domains.

    As relations between points: the map from the new domain is that to it, turned round.
    """
    old, new = transformation.old_domain, transformation.new_domain
    parameters = old.parameters
    names = {address_of(var): f"p{n}" for n, var in enumerate(parameters)}
    names |= {address_of(var): f"v{n}" for n, var in enumerate(old.variables)}
    names |= {address_of(var): f"t{n}" for n, var in enumerate(new.variables)}
    back = isl_relation(
        new, names, [transformation.old_to_new[var] for var in old.variables], parameters
    )
    forth = isl_relation(
        old, names, [transformation.new_to_old[var] for var in new.variables], parameters
    )
    assert back.domain().is_equal(forth.range()), "other points of the new domain"
    assert forth.domain().is_equal(back.range()), "other points of the old domain"
    assert back.is_equal(forth.reverse()), "the maps are not each other's inverse"


def points_of(domain: Domain, parameters: Mapping[Var, np.ndarray]) -> np.ndarray:
    """All points of a domain for given values of the parameters, in numpy: one a row, values of the
    parameters first.
    """
    known: dict[Var, Any] = {var: np.asarray(values) for var, values in parameters.items()}
    points = np.stack(list(known.values()), axis=1) if known else np.zeros((1, 0), np.int64)
    if domain.is_empty:
        return np.zeros((0, len(known) + len(domain.variables)), np.int64)
    order = list(known)
    for var in domain.variables:
        low, size = (
            np.broadcast_to(
                bound if isinstance(bound, int) else evaluate(bound, known), len(points)
            )
            for bound in domain.ranges[var]
        )
        counts = np.maximum(size, 0).astype(np.int64)
        first = np.repeat(np.cumsum(counts) - counts, counts)
        here = np.repeat(low, counts) + np.arange(counts.sum()) - first
        points = np.concatenate([np.repeat(points, counts, axis=0), here[:, None]], axis=1)
        order.append(var)
        known = {v: points[:, n] for n, v in enumerate(order)}
    inside = np.ones(len(points), bool)
    for condition in domain.conditions:
        inside &= evaluate(condition, known)
    return points[inside]


def bijection(transformation: DomainTransformation, values: Mapping[Var, int] | None = None) -> int:
    """Check point by point that a transformation is a bijection, for all values of the parameters
    or those given; returns the number of points for the values that have most.
    """
    old, new = transformation.old_domain, transformation.new_domain
    if values is None:
        rows = list(old.parameter_values())
        parameters = {var: np.array([row[var] for row in rows]) for var in old.parameters}
    else:
        parameters = {var: np.array([value]) for var, value in values.items()}
    outer = list(parameters)
    sides = [
        (old, new, transformation.new_to_old, transformation.old_to_new),
        (new, old, transformation.old_to_new, transformation.new_to_old),
    ]
    for here, there, forth, back in sides:
        points, others = points_of(here, parameters), points_of(there, parameters)
        images = _mapped(points, [*outer, *here.variables], [*outer, *there.variables], forth)
        assert set(map(tuple, images)) == set(map(tuple, others)), "not the other domain"
        again = _mapped(images, [*outer, *there.variables], [*outer, *here.variables], back)
        assert np.array_equal(again, points), "not back at the same point"
    points = points_of(old, parameters)
    most = np.unique(points[:, : len(outer)], axis=0, return_counts=True)[1] if len(points) else [0]
    return int(max(most))


def _mapped(
    points: np.ndarray, variables: Sequence[Var], onto: Sequence[Var], values: Mapping[Var, Expr]
) -> np.ndarray:
    known = {var: points[:, n] for n, var in enumerate(variables)}
    columns = [
        np.broadcast_to(known[var] if var in known else evaluate(values[var], known), len(points))
        for var in onto
    ]
    return np.stack(columns, axis=1) if columns else np.zeros((len(points), 0), np.int64)


_ISL_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "eq": "=",
    "le": "<=",
    "lt": "<",
    "ge": ">=",
    "gt": ">",
    "ne": "!=",
    "and": "and",
    "or": "or",
}


def isl_text(expr: Expr, names: Mapping[int, str]) -> str:
    """An expression in the notation of isl; truncating division is not part of it."""
    name = name_of(expr)
    if name == "const":
        value = expr.value
        return ("0 = 0" if value else "0 = 1") if str(expr.ty) == "bool" else str(value)
    if name == "var":
        return names[address_of(expr)]
    if name == "not":
        return f"(not {isl_text(parts_of(expr)[0], names)})"
    left, right = (isl_text(part, names) for part in parts_of(expr))
    if name in ("min", "max"):
        return f"{name}({left}, {right})"
    if name == "floordiv":
        return f"floor(({left})/{right})"
    if name == "floormod":
        return f"(({left}) mod {right})"
    if name == "shift_right":
        return f"floor(({left})/{2 ** int(right)})"
    if name == "bitwise_and":  # with one less than a power of two
        return f"(({left}) mod {int(right) + 1})"
    return f"({left} {_ISL_INFIX[name]} {right})"
