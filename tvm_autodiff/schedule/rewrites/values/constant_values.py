"""Tables for functions of loops alone, as stages of their own.

Angles that a transform computes from its loops are the same in every call, and so are the weights
of a resampling. As stages they are constants, which a program computes when it is built
(`constant_stages`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from ....expr.costly import EXPONENTIALS, is_expensive
from ....expr.nodes import (
    Axis,
    Expr,
    Tensor,
    dtype_of,
    is_float,
    is_load,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ....expr.rewrite import contains, expand_lets, loaded_tensors, postorder, replace_outermost
from ....graph.graph import each_stage, tensors_read_by
from ....graph.stage import (
    Operation,
    axis_range,
    is_compute,
    loop_axes,
    reduction_of,
    shape_of,
    sources_of,
)
from ...cost import CALL, LAUNCH_CYCLES
from ...kernel import size_of
from ...nest.decided import decided
from .constant_stages import is_kept
from .dependence import (
    FEW_OPERATIONS,
    Dependence,
    bends,
    costs_of,
    dependences,
    operations_of,
    outermost,
)
from .digits import Digits, ValueStages, digits_of, ranges_of, with_sources


def with_constant_values(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``y[b, k] = Σ_n x[b, n]*cos(n*k) → c[n, k] = cos(n*k), y[b, k] = Σ_n x[b, n]*c[n, k]``, where
    a table of the values is small enough to be kept: no call computes what reads nothing.

    Functions of sums and products of loops are tables of fewer axes. Exponentials of several loops
    stay: scans and windows take them apart.
    """
    return each_stage(outputs, partial(_taken_out, ValueStages()))


def _taken_out(stages: ValueStages, op: Operation) -> list[Tensor] | None:
    """The stage with its functions of loops alone taken out."""
    if not is_compute(op) or not tensors_read_by(op):
        return None
    axes = loop_axes(op)
    ranges = ranges_of(axes)
    plain = [expand_lets(source) for source in sources_of(op)]
    if ranges is None or not any(_costs(op, plain).values()):
        return None
    variables = [axis.var for axis in axes]
    sources = decided(plain, variables, ranges)
    costs = _costs(op, sources)
    facts = dependences(sources, {node_id(var): number for number, var in enumerate(variables)})
    reads = _reading(sources)
    given = {tensor_key(tensor): tensor for src in sources for tensor in loaded_tensors(src)}
    memory = sum(size_of(shape_of(tensor)) for tensor in (op.output(0), *given.values()))

    def table(node: Expr) -> Expr | None:
        if node_id(node) in reads or _splits(node, facts, costs):
            return None
        digits = digits_of(node, axes, ranges, stages.keys)
        if digits is None or not _is_kept(node, digits, axes, costs[node_id(node)]):
            return None
        cheap = not contains(node, is_expensive)
        if cheap and (digits.points > memory or not _bends(node, facts)):
            return None
        return _read(stages, op.name, node, digits)

    memo = outermost(sources, costs, table)
    if not memo:
        return None
    return with_sources(op, [replace_outermost(source, memo) for source in sources])


def _costs(op: Operation, sources: Sequence[Expr]) -> dict[int, float]:
    """The cycles of the functions in each node, by id; under a sum those of other operations, too,
    where they take longer than to read a number. Places and conditions stay what they are: from
    tables they would be data.
    """
    functions = {key: CALL * count for key, count in costs_of(sources).items()}
    if reduction_of(op) is None:
        return functions
    reads, counts = _reading(sources), operations_of(sources)
    found: dict[int, float] = {}
    for node in postorder(list(sources)):
        key, cost = node_id(node), 0.0
        if is_float(node) and not is_load(node):
            cost = max((found[node_id(part)] for part in operands(node)), default=0)
            if key not in reads and counts[key] >= FEW_OPERATIONS:
                cost = max(cost, counts[key])
        found[key] = max(functions[key], cost)
    return found


def _read(stages: ValueStages, name: str, node: Expr, digits: Digits) -> Expr | None:
    """The read of a table of a node's values; None if not all of them can be computed."""
    key = stages.key(node, digits)
    if key not in stages.made:
        made = stages.stage(name, node, digits)
        if made is None:
            return None
        stages.made[key] = made
    return stages.read(key, digits)


def _reading(sources: Sequence[Expr]) -> set[int]:
    """The ids of the nodes that depend on what a tensor holds."""
    found: set[int] = set()
    for node in postorder(list(sources)):
        if is_load(node) or any(node_id(part) in found for part in operands(node)):
            found.add(node_id(node))
    return found


def _splits(node: Expr, facts: Mapping[int, Dependence], costs: Mapping[int, float]) -> bool:
    """Whether a sum or a product has an expensive operand of fewer loops than itself."""
    if op_name(node) not in ("add", "sub", "mul", "div"):
        return False
    loops = facts[node_id(node)].loops
    parts = [part for part in operands(node) if costs[node_id(part)]]
    return any(facts[node_id(part)].loops != loops for part in parts)


def _bends(node: Expr, facts: Mapping[int, Dependence]) -> bool:
    """Whether a function is no polynomial: sums over these are taken apart."""
    loops = facts[node_id(node)].loops
    return any(bends(part) and facts[node_id(part)].loops == loops for part in postorder(node))


def _is_kept(node: Expr, digits: Digits, axes: Sequence[Axis], cost: float) -> bool:
    """Whether the values of a node are kept as constants: what a call computes takes longer than a
    launch, and a table of them is small.
    """
    names = {op_name(part) for part in postorder(node) if is_expensive(part)}
    if not digits.nodes or (len(digits.nodes) > 1 and names and names <= EXPONENTIALS):
        return False
    points = size_of([axis_range(axis)[1] for axis in axes[: digits.depth]])
    shape = digits.literal
    return shape is not None and is_kept(shape, dtype_of(node)) and points * cost >= LAUNCH_CYCLES
