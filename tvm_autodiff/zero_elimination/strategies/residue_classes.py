"""Splits sums whose number of points depends on a residue of the element: one sum for each class.

With stride 2, even and odd elements of a gradient have different terms, and a single box holds both
only with a guard. The stage of each residue class has an exact box, and one more stage interleaves
them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod

from ...expr.build import add, all_of, compare, const, if_then_else, mul
from ...expr.nodes import Axis, Expr, Var, binary, const_value, dtype_of, load, op_name, operands
from ...expr.rewrite import depends_on, postorder
from ...graph.stage import axis_range, data_axis, renew_axis
from ..sums.assemble import assemble
from ..sums.iterations import sum_iterations
from ..sums.sum import Sum, Target
from ..sums.windows import is_jagged

#: the maximum number of classes: each needs a solution and a stage
_MOST_CLASSES = 16


def residue_classes(whole: Sum) -> Sum | None:
    """``Σ_{t<2} if 2t <= b%2 then f  →  b%2 == 0: Σ_{t<1} f, b%2 == 1: Σ_{t<2} f``.

    The result reads the stages of the classes and has no axis to sum over. None without guards on
    residues, for too many classes, or if a class cannot be solved.
    """
    target, name = whole.target, whole.definition.name
    moduli = _moduli(whole, target.axes)
    if whole.unsolved or not whole.axes or not 1 < prod(moduli) <= _MOST_CLASSES:
        return None
    cut = [a for a, modulus in zip(target.axes, moduli, strict=True) if modulus > 1]
    if not all(isinstance(axis_range(axis)[1], int) for axis in cut):
        return None
    if any(map(is_jagged, whole.axes)):
        return None
    classes: list[tuple[tuple[int, ...], Sum]] = []
    for residues in itertools.product(*(range(modulus) for modulus in moduli)):
        part = _class_target(target, moduli, residues)
        solved = None if part is None else whole.definition.at(part)
        if solved is None:
            continue
        if solved.unsolved:
            return None
        classes.append((residues, solved))
    made = tuple(partial(sum_iterations, solved) for _, solved in classes)
    source = _interleaved(whole, moduli, classes, name)
    return replace(whole, axes=(), source=source, made=made)


def _moduli(whole: Sum, axes: Sequence[Axis]) -> list[int]:
    """The divisor of each axis in guards, or 1."""
    found: dict[int, int] = {}
    for node in postorder(list(whole.guards)):
        if op_name(node) not in ("floormod", "floordiv"):
            continue
        numerator, divisor = operands(node)
        value = const_value(divisor)
        for place, axis in enumerate(axes):
            if value is not None and depends_on(numerator, [axis.var]):
                found[place] = max(found.get(place, 1), int(value))
    return [found.get(place, 1) for place in range(len(axes))]


def _class_target(target: Target, moduli: Sequence[int], residues: Sequence[int]) -> Target | None:
    """The elements ``b = m*q + r`` as a target with axes q, or None if there are none."""
    axes: list[Axis] = []
    places: list[Expr] = []
    for axis, modulus, residue in zip(target.axes, moduli, residues, strict=True):
        dtype = dtype_of(axis.var)
        if modulus == 1:
            whole_axis = renew_axis(axis)
            axes.append(whole_axis)
            places.append(whole_axis.var)
            continue
        count = -(-(axis_range(axis)[1] - residue) // modulus)
        if count <= 0:
            return None
        quotient = data_axis(axis.var.name, count, dtype)
        axes.append(quotient)
        places.append(add(mul(quotient.var, const(modulus, dtype)), const(residue, dtype)))
    return Target(target.prefix, tuple(axes), tuple(places))


def _interleaved(
    whole: Sum,
    moduli: Sequence[int],
    classes: Sequence[tuple[tuple[int, ...], Sum]],
    name: str,
) -> Expr:
    """One branch for each class, reading its stage; a constant for classes without points."""
    target = whole.target
    result: Expr = whole.otherwise
    for residues, solved in reversed(classes):
        label = "".join(
            str(residue) for residue, modulus in zip(residues, moduli, strict=True) if modulus > 1
        )
        dtype = dtype_of(whole.source)
        stage = assemble(f"{name}_r{label}", solved.target, [[solved]], dtype=dtype)
        belongs, quotients = [], []
        for axis, modulus, residue in zip(target.axes, moduli, residues, strict=True):
            belongs += _equation(axis.var, modulus, residue)
            quotients.append(_quotient(axis.var, modulus))
        read = load(stage, [*(axis.var for axis in target.prefix), *quotients])
        result = if_then_else(all_of(belongs), read, result)
    return result


def _equation(var: Var, modulus: int, residue: int) -> list[Expr]:
    if modulus == 1:
        return []
    dtype = dtype_of(var)
    remainder = binary("floormod", var, const(modulus, dtype))
    return [compare("eq", remainder, const(residue, dtype))]


def _quotient(var: Var, modulus: int) -> Expr:
    return var if modulus == 1 else binary("floordiv", var, const(modulus, dtype_of(var)))
