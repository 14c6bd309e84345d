"""Proofs that reads stay inside of their tensors, beside all small sizes, loops and data."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from tvm import te, tirx

from tests.evaluate import evaluate
from tests.walks import in_order, name_of, parts_of, read_of
from tvm_autodiff.expr.printing.text import text
from tvm_autodiff.schedule.nest.access import AffineForms
from tvm_autodiff.schedule.nest.in_range import (
    is_safe,
    loops_of,
    range_conditions,
    read_conditions,
)

n, m = te.var("n"), te.var("m")
LARGEST = 9  #: of the sizes that are tried


@dataclass(frozen=True)
class Reads:
    """An expression over loops; what holds of it, and what is to be proved.

    Attributes
    ----------
    extents : sequence
        Of the loops; one may be a function of the loops before it.
    make : callable
        The expression, from the variables of the loops.
    safe : bool
        Whether it may be evaluated everywhere, for all sizes and data.
    proved : bool
        Whether `is_safe` says so. It need not: reads that nothing proves keep their guards.
    given : callable
        Conditions that hold where it is evaluated.
    """

    extents: Sequence[Any]
    make: Callable[..., Any]
    safe: bool
    proved: bool
    given: Callable[..., list[Any]] | None = None
    thorough: bool = False


def x(*shape: Any) -> Any:
    return te.placeholder(shape, name="x")


def at(extent: Any, dtype: str = "int32") -> Any:
    return te.placeholder((extent,), dtype, name="at")


A, B, EIGHT = x(n), at(m), x(8)
BYTES, SIGNED = at(m, "uint8"), at(m, "int8")


@functools.cache
def place(i: Any) -> Any:
    """Data, as one node: what is given of a read is given of that node."""
    return B(i)


CASES = {
    "the whole axis": Reads([n], lambda i: A[i], True, True),
    "another size": Reads([m], lambda i: A[i], False, False),
    "all but the last": Reads([n - 1], lambda i: A[i], True, True),
    "one more than there are": Reads([n], lambda i: x(n - 1)[i], False, False),
    "one more loop": Reads([n + 1], lambda i: A[i], False, False),
    "the next one, of all but the last": Reads([n - 1], lambda i: A[i + 1], True, True),
    "the next one": Reads([n], lambda i: A[i + 1], False, False),
    "the one before": Reads([n], lambda i: A[i - 1], False, False),
    "backwards": Reads([n], lambda i: A[n - 1 - i], True, False),
    "backwards, one too far": Reads([n], lambda i: A[n - i], False, False),
    "backwards, of another size": Reads([m], lambda i: A[n - 1 - i], False, False),
    "half of it": Reads([n // 2], lambda i: A[i], True, False),
    "twice a half": Reads([n], lambda i: x(n // 2)[i], False, False),
    "every second": Reads([n // 2], lambda i: A[2 * i + 1], True, True),
    "every second, rounded up": Reads([(n + 1) // 2], lambda i: A[2 * i + 1], False, False),
    "whole blocks": Reads([n // 4 * 4], lambda i: A[i], True, True),
    "whole blocks, of more": Reads([n // 4 * 5], lambda i: A[i], False, False),
    "blocks, rounded up": Reads([(n + 3) // 4 * 4], lambda i: A[i], False, False),
    "behind whole blocks": Reads([n % 4], lambda i: A[n // 4 * 4 + i], True, False),
    "behind other blocks": Reads([n % 4], lambda i: A[n // 2 * 4 + i], False, False),
    "before whole blocks": Reads([n % 4], lambda i: A[n // 4 * 4 + i - 1], False, False),
    "behind another": Reads([m], lambda i: x(n + m)[n + i], True, True),
    "behind the wrong one": Reads([m], lambda i: x(n + m)[m + i], False, False),
    "in two parts": Reads([n, 4], lambda i, j: x(4 * n)[4 * i + j], True, True),
    "in two parts that overlap": Reads([n, 5], lambda i, j: x(4 * n)[4 * i + j], False, False),
    "windows": Reads([n, 3], lambda i, j: x(n + 2)[i + j], True, True),
    "windows, one too long": Reads([n, 4], lambda i, j: x(n + 2)[i + j], False, False),
    "a triangle": Reads([n, lambda i: i + 1], lambda i, k: A[k], True, False),
    "a triangle, one too wide": Reads([n, lambda i: i + 2], lambda i, k: A[k], False, False),
    "literal": Reads([8], lambda i: EIGHT[i], True, True),
    "literal, one too many": Reads([9], lambda i: EIGHT[i], False, False),
    "literal, from below": Reads([8], lambda i: EIGHT[i - 1], False, False),
    "a size over a literal": Reads([n], lambda i: EIGHT[i], False, False),
    "clamped": Reads([n], lambda i: EIGHT[te.max(te.min(i - 3, 7), 0)], True, True),
    "clamped from above": Reads([n], lambda i: EIGHT[te.min(i - 3, 7)], False, False),
    "clamped to a size": Reads([m], lambda i: A[te.min(i, n - 1)], False, False),
    "a remainder": Reads([n], lambda i: EIGHT[i % 8], True, True),
    "a remainder by more": Reads([n], lambda i: EIGHT[i % 9], False, False),
    "a remainder by a size": Reads([m], lambda i: A[i % n], False, False),
    "a guard does not count": Reads(
        [m], lambda i: te.if_then_else(i < n, A[i], 0.0), False, False
    ),
    # what is given
    "given its bound": Reads([m], lambda i: A[i], True, True, lambda i: [i < n], True),
    "given, and not to be used": Reads([m], lambda i: A[i], True, False, lambda i: [i < n]),
    "given too weak a bound": Reads([m], lambda i: A[i], False, False, lambda i: [i <= n], True),
    "given the bound of another": Reads(
        [n], lambda i: x(m)[i], False, False, lambda i: [i < n], True
    ),
    "given by two steps": Reads([m], lambda i: A[i], True, True, lambda i: [i < m, m <= n], True),
    "given the lower bound only": Reads(
        [m], lambda i: A[i - 1], False, False, lambda i: [i >= 1], True
    ),
    "given both": Reads([m], lambda i: A[i - 1], True, True, lambda i: [i >= 1, i <= n], True),
    "given that a size divides": Reads(
        [m], lambda i: A[i % n], True, True, lambda i: [n > 0], True
    ),
    # data
    "data": Reads([m], lambda i: A[B[i]], False, False),
    "data over a literal": Reads([m], lambda i: EIGHT[B[i]], False, False),
    "data of another size": Reads([n], lambda i: EIGHT[te.max(te.min(B[i], 7), 0)], False, False),
    "clamped data": Reads([m], lambda i: EIGHT[te.max(te.min(B[i], 7), 0)], True, True),
    "data, given both bounds": Reads(
        [m], lambda i: A[place(i)], True, True, lambda i: [place(i) >= 0, place(i) < n], True
    ),
    "data, given the upper bound": Reads(
        [m], lambda i: A[place(i)], False, False, lambda i: [place(i) < n], True
    ),
    "data, given the lower bound": Reads(
        [m], lambda i: A[place(i)], False, False, lambda i: [place(i) >= 0], True
    ),
    # narrow and unsigned types
    "bytes": Reads([m], lambda i: x(256)[BYTES[i]], True, True),
    "bytes, one too few": Reads([m], lambda i: x(255)[BYTES[i]], False, False),
    "bytes over a size": Reads([m], lambda i: A[BYTES[i]], False, False),
    "signed bytes": Reads([m], lambda i: x(128)[SIGNED[i]], False, False),
    "signed bytes from the middle": Reads(
        [m], lambda i: x(256)[SIGNED[i].astype("int32") + 128], True, True
    ),
    "unsigned, below zero": Reads(
        [n], lambda i: x(2**20)[i.astype("uint32") - tirx.const(1, "uint32")], False, False
    ),
    "bytes that wrap": Reads(
        [m], lambda i: x(260)[(BYTES[i] + tirx.const(4, "uint8")).astype("int32")], True, True
    ),
    # quotients
    "a quotient": Reads([8], lambda i: EIGHT[i // 2], True, True),
    "a quotient by data": Reads([m], lambda i: i // B[i], False, False),
    "a quotient by positive data": Reads([m], lambda i: i // te.max(B[i], 1), True, True),
    "a quotient by a size": Reads([m], lambda i: i // n, False, False),
}


def parts(case: Reads) -> tuple[list[Any], Any, list[Any]]:
    """The axes of the loops, the expression, and what is given."""
    axes: list[Any] = []
    for number, extent in enumerate(case.extents):
        variables = [axis.var for axis in axes]
        found = extent(*variables) if isinstance(extent, FunctionType) else extent
        axes.append(te.reduce_axis((0, found), "ijk"[number]))
    variables = [axis.var for axis in axes]
    roots = [case.make(*variables), *(case.given(*variables) if case.given else [])]
    expr, *given = (root.asobject() if hasattr(root, "asobject") else root for root in roots)
    return axes, expr, given


def data_of(dtype: str, size: int) -> list[int]:
    """Numbers that an index tensor may hold: the ends of its type, and about those of a tensor."""
    limits = np.iinfo(dtype)
    near = {limits.min, limits.max, -1, 0, 1, 7, 8, size - 1, size}
    return sorted(value for value in near if limits.min <= value <= limits.max)


@dataclass(frozen=True)
class Points:
    """All points of some loops, for some sizes, and index tensors of one number everywhere."""

    variables: dict[Any, Any]
    arrays: list[tuple[Any, np.ndarray]]

    def values(self, expr: Any) -> np.ndarray:
        """The values of an expression at all points."""
        return numbers(expr, self.variables, self.arrays)

    def are_legal(self, expr: Any, given: Sequence[Any]) -> bool:
        """Whether all reads are inside and no integer is divided by zero, where the given holds."""
        counted = legal = np.asarray(True)
        for condition in given:
            counted = counted & (self.values(condition) != 0)
        for node in in_order(expr):
            name, operands = name_of(node), parts_of(node)
            if name == "load":
                for index, extent in zip(operands, read_of(node).shape, strict=True):
                    place = self.values(index)
                    legal = legal & (place >= 0) & (place < self.values(extent))
            elif name in ("floordiv", "floormod"):
                legal = legal & (self.values(operands[1]) != 0)
        return bool(np.all(legal | ~counted))


def numbers(expr: Any, variables: dict[Any, Any], arrays: Any = ()) -> np.ndarray:
    found = expr if isinstance(expr, int) else evaluate(expr, variables, arrays)
    return np.asarray(found, np.int64)


def points(axes: Sequence[Any], roots: Sequence[Any]) -> Iterator[Points]:
    """The points of the loops, for all small sizes and the data that matters."""
    reads = [read_of(node) for node in in_order(roots) if name_of(node) == "load"]
    tensors = {hash(tensor.op): tensor for tensor in reads}
    index = [tensor for tensor in tensors.values() if "int" in str(tensor.dtype)]
    for sizes in itertools.product(range(LARGEST + 1), repeat=2):
        known = dict(zip((n, m), sizes, strict=True))
        if any(numbers(dim, known) < 0 for t in tensors.values() for dim in t.shape):
            continue
        rows = list(loops(axes, known))
        columns = {axis.var: np.array([row[axis.var] for row in rows], int) for axis in axes}
        # every length is enough: where an index tensor is read outside, its values do not count
        values = itertools.product(*(data_of(str(tensor.dtype), sizes[0]) for tensor in index))
        for data in values:
            arrays = [
                (tensor, np.full(2 * LARGEST, value, str(tensor.dtype)))
                for tensor, value in zip(index, data, strict=True)
            ]
            yield Points(known | columns, arrays)


def loops(axes: Sequence[Any], known: dict[Any, int]) -> Iterator[dict[Any, int]]:
    """The values of the variables of some loops, each at the others."""
    if not axes:
        yield {}
        return
    for value in range(int(numbers(axes[0].dom.extent, known))):
        here = {axes[0].var: value}
        for rest in loops(axes[1:], known | here):
            yield here | rest


@pytest.mark.parametrize("name", CASES)
def test_is_safe(name: str) -> None:
    case = CASES[name]
    axes, expr, given = parts(case)
    proved = is_safe([expr], loops_of(axes), given=given, thorough=case.thorough)
    assert proved == case.proved


@pytest.mark.parametrize("name", CASES)
def test_all_small_sizes_say_the_same(name: str) -> None:
    case = CASES[name]
    assert case.safe or not case.proved
    axes, expr, given = parts(case)
    assert all(p.are_legal(expr, given) for p in points(axes, [expr, *given])) == case.safe


@pytest.mark.parametrize("name", CASES)
def test_reads_are_inside_where_their_conditions_hold(name: str) -> None:
    axes, expr, _ = parts(CASES[name])
    loops = loops_of(axes)
    conditions, forms = range_conditions([expr], loops), AffineForms(loops.variables)
    reads = [node for node in in_order(expr) if name_of(node) == "load"]
    single = [c for read in reads for c in read_conditions(read, loops, forms)]
    assert list(map(text, conditions)) == list(map(text, single))
    for one in points(axes, [expr, *conditions]):
        for read in reads:
            assert one.are_legal(read, conditions) or divides_by_zero(expr, one)


def divides_by_zero(expr: Any, here: Points) -> bool:
    divisors = [n for n in in_order(expr) if name_of(n) in ("floordiv", "floormod")]
    return any((here.values(parts_of(node)[1]) == 0).any() for node in divisors)


#: name → the conditions that are left
LEFT = {
    "the whole axis": [],
    "another size": ["i < n"],
    "the one before": ["i - 1 >= 0"],
    "backwards, of another size": ["n - 1 - i >= 0"],
    "literal, one too many": ["i < 8"],
    "clamped from above": ["min(i - 3, 7) >= 0"],
    "data over a literal": ["at[i] >= 0", "at[i] < 8"],
    "data of another size": ["i < m"],
    "bytes over a size": ["int64(at[i]) < int64(n)"],
}


@pytest.mark.parametrize("name", LEFT)
def test_conditions_that_are_left(name: str) -> None:
    axes, expr, _ = parts(CASES[name])
    assert [text(condition) for condition in range_conditions([expr], loops_of(axes))] == LEFT[name]
