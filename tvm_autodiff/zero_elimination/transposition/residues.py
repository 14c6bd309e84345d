"""Gradients whose number of terms depends on a residue, one sum for each class.

In: a gathered term with a guard on a remainder of the gradient's axes: stride 2 gives even
elements other terms than odd ones, and one box holds them all only with a guard. Out: the same
gradient as stages over the residue classes, each with its own exact box, put together by one more
stage, where that is less work.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import prod

from ...expr.build import add, all_of, compare, const, if_then_else, mul, zero_like
from ...expr.nodes import Axis, Expr, Var, binary, const_value, dtype_of, load, op_name, operands
from ...expr.rewrite import depends_on, postorder
from ...graph.stage import Extent, axis_range, data_axis, renew_axis
from .assemble import assemble
from .gather import Gathered, Target

#: classes that may be made at most: each costs a solution and a stage
_MOST_CLASSES = 16
#: part of the work that must remain at most, for the noise of more stages to pay
_WORTHWHILE = 0.9


def split_by_residue(
    whole: Gathered, target: Target, gather_at: Callable[[Target], Gathered | None], name: str
) -> Gathered:
    """``Σ_{t<2} if 2t <= b%2 then f  →  b%2 == 0: Σ_{t<1} f, b%2 == 1: Σ_{t<2} f``.

    Parameters
    ----------
    whole : Gathered
        The term over all elements of the target.
    target : Target
        The axes of the gradient.
    gather_at : callable
        Gathers the same term at another target.
    name : str
        Prefix of the names of the classes' stages.

    Returns
    -------
    Gathered
        Reads of the classes' stages without an axis to sum over, or `whole` where that is cheaper.
    """
    moduli = _moduli(whole, target.axes)
    extents = [axis_range(axis)[1] for axis in target.axes]
    sums = [axis_range(axis)[1] for axis in whole.axes]
    if not sums or not 1 < prod(moduli) <= _MOST_CLASSES:
        return whole
    cut = [n for n, modulus in zip(extents, moduli, strict=True) if modulus > 1]
    if not all(isinstance(extent, int) for extent in cut):
        return whole
    classes: list[tuple[tuple[int, ...], Target, Gathered]] = []
    work = known_volume(extents)
    for residues in itertools.product(*(range(modulus) for modulus in moduli)):
        part = _class_target(target, moduli, residues)
        gathered = None if part is None else gather_at(part)
        if part is None or gathered is None:
            continue
        classes.append((residues, part, gathered))
        work += known_volume(axis_range(axis)[1] for axis in (*part.axes, *gathered.axes))
    if work > _WORTHWHILE * known_volume([*extents, *sums]):
        return whole
    return replace(whole, axes=(), source=_interleaved(whole, target, moduli, classes, name))


def known_volume(extents: Iterable[Extent]) -> int:
    """The product of the constant extents: symbolic ones are common to what is compared."""
    return prod(extent for extent in extents if isinstance(extent, int))


def _moduli(whole: Gathered, axes: Sequence[Axis]) -> list[int]:
    """For each axis the divisor that guards divide it by, or 1."""
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
    """The elements ``b = m*q + r`` as a target with axes q; None where there is none."""
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
    whole: Gathered,
    target: Target,
    moduli: Sequence[int],
    classes: Sequence[tuple[tuple[int, ...], Target, Gathered]],
    name: str,
) -> Expr:
    """One branch for each class, reading its stage; zero for classes without terms."""
    result: Expr = zero_like(whole.source)
    for residues, part, gathered in reversed(classes):
        label = "".join(
            str(residue) for residue, modulus in zip(residues, moduli, strict=True) if modulus > 1
        )
        stage = assemble(f"{name}_r{label}", part, [[gathered]], dtype=dtype_of(whole.source))
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
