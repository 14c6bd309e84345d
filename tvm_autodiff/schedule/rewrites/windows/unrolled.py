"""Unrolls reductions over a few terms: ``Σ_{t<2} f(t) → f(0) + f(1)``.

Gradients assembled from residue classes become one stage. The rules decide about the loops over it.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from math import prod

from ....expr.build import conjuncts, const
from ....expr.costly import is_expensive
from ....expr.fold import fold
from ....expr.nodes import (
    BRANCHES,
    Axis,
    Expr,
    Tensor,
    Var,
    const_value,
    dtype_of,
    is_const,
    is_load,
    load_tensor,
    node_id,
    op_name,
    operands,
    tensor_key,
)
from ....expr.rewrite import (
    contains,
    expand_lets,
    map_loads,
    postorder,
    substituter,
    tree_size,
    variables_of,
)
from ....graph.graph import Graph, retarget
from ....graph.stage import (
    Operation,
    axis_range,
    axis_vars,
    bodies,
    is_compute,
    is_placeholder,
    make_stage,
    outputs_of,
    reduction_of,
    reduction_stage,
    shape_of,
)
from ...cost import LATENCY, MAX_COPIES, MAX_NODES, MAX_PIECES, MAX_STRIDE
from ...kernel import size_of
from ...nest.access import stride_of
from ...nest.decided import decided
from ...nest.inside import within_symbolic
from ...nest.residues import in_classes, moduli_of

Key = tuple[int, int]


def unrolled_bodies(op: Operation) -> list[Expr] | None:
    """The expressions of a reducing stage for an element, with each term unrolled.

    Returns
    -------
    list of Expr or None
        One expression for each output; None for a stage that reduces nothing, or too much.
    """
    found = reduction_of(op)
    if found is None:
        return None
    ranges = [axis_range(axis) for axis in found.axes]
    if not all(isinstance(bound, int) for bounds in ranges for bound in bounds):
        return None
    sources = [expand_lets(source) for source in found.sources]
    terms = prod(extent for _, extent in ranges)
    nodes = len(postorder([*sources, *found.combiner.result]))
    if not 1 <= terms <= MAX_COPIES or terms * nodes > MAX_PIECES * MAX_NODES:
        return None
    left = MAX_NODES - terms * sum(map(tree_size, found.combiner.result))
    values: Sequence[Expr] = found.combiner.identity
    for point in itertools.product(*(range(low, low + extent) for low, extent in ranges)):
        table: dict[Var, Expr] = {
            axis.var: const(place, dtype_of(axis.var))
            for axis, place in zip(found.axes, point, strict=True)
        }
        rename = substituter(table)
        # what the place decides, such as a choice among components, is gone
        here = decided(list(map(rename, sources)), [], {})
        left -= sum(map(tree_size, here))
        if left < 0:
            return None
        values = found.combiner.apply(values, here)
    return [fold(value) for value in values]


def window_of(op: Operation) -> list[Expr] | None:
    """The unrolled values of a stage that reduces a window.

    Along its last axis, in one residue class and between two cuts, vectors can be read, and one of
    the reads follows every output axis but short ones around it that choose: then no other order of
    the loops reads less.
    """
    values = unrolled_bodies(op) if len(op.axis) else None
    middle = [] if values is None else within_symbolic(values, list(op.axis))
    moduli = None if values is None else moduli_of(middle, list(op.axis))
    if values is None or moduli is None or prod(moduli) > MAX_COPIES:
        return None
    classes = in_classes(middle, list(op.axis), moduli)
    last = classes.quotients[-1]
    axes = zip(op.axis, classes.quotients, strict=True)
    spatial = {node_id(one) for axis, one in axes if one is last or not _chooses(axis, middle)}
    # what a residue adds to a place is the same for all elements of its class
    first = substituter({residue: const(0, dtype_of(residue)) for residue in classes.residues})
    one = decided(list(map(first, classes.values)), classes.quotients, classes.ranges)
    inside = replace(classes, values=one).inside(last)
    loads = [node for node in postorder(inside) if is_load(node)]
    strides = [stride_of(node, node_id(last), classes.quotients) for node in loads]
    if any(stride is None or not 0 <= stride <= MAX_STRIDE for stride in strides):
        return None
    whole = any(
        spatial <= {node_id(part) for part in postorder(list(operands(node)))}
        for node in postorder(classes.values)
        if is_load(node)
    )
    return values if whole else None


def _chooses(axis: Axis, values: Sequence[Expr]) -> bool:
    """Whether a loop over an axis is cut at all places, each of which chooses by itself."""
    extent = axis_range(axis)[1]
    if not isinstance(extent, int) or extent > MAX_PIECES:
        return False
    conditions = [operands(n)[0] for n in postorder(list(values)) if op_name(n) in BRANCHES]
    return any(list(map(node_id, variables_of(one))) == [node_id(axis.var)] for one in conditions)


def with_inlined_borders(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``P[i] = if i >= 1 then x[i - 1] else c, W[i] = max_{k<3} P[i + k] → W[i] = max_{k<3} if i +
    k >= 1 then x[i + k - 1] else c`` if all readers of P are windows.
    """
    graph = Graph(outputs)
    wanted = {tensor_key(tensor) for tensor in outputs}
    table: dict[Key, Operation] = {}
    borders: set[int] = set()
    for op in graph.ops:
        if is_compute(op) and op.num_outputs == 1 and _is_border(op):
            tensor = op.output(0)
            readers = graph.consumers(tensor)
            if tensor_key(tensor) not in wanted and all(map(_is_small_window, readers)):
                table[tensor_key(tensor)] = op
                borders.add(hash(op))

    if not table:
        return [*outputs]

    def expand(tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
        op = table.get(tensor_key(tensor))
        if op is None:
            return None
        return substituter(dict(zip(axis_vars(op), indices, strict=True)))(bodies(op)[0])

    replaced: dict[Key, Tensor] = {}
    for op in graph.ops:
        current = retarget(op, lambda tensor: replaced.get(tensor_key(tensor)))
        found = reduction_of(current[0].op) if is_compute(op) else None
        if found is not None and any(tensor_key(tensor) in table for tensor in graph.reads(op)):
            sources = tuple(map_loads(source, expand) for source in found.sources)
            current = reduction_stage(op.name, list(op.axis), replace(found, sources=sources))
        elif tensor_key(current[0]) != tensor_key(op.output(0)) and hash(op) in borders:
            table[tensor_key(current[0])] = current[0].op
        for old, new in zip(outputs_of(op), current, strict=True):
            if tensor_key(old) != tensor_key(new):
                replaced[tensor_key(old)] = new
    return [replaced.get(tensor_key(tensor), tensor) for tensor in outputs]


def _is_border(op: Operation) -> bool:
    """``if condition then x[...] else constant``, without divisions."""
    if reduction_of(op) is not None or op_name(body := bodies(op)[0]) != "if_then_else":
        return False
    names = [op_name(node) for node in postorder(body)]
    plain = not {"floordiv", "floormod", "let"} & set(names)
    return plain and names.count("load") == 1 and is_const(operands(body)[2])


def _is_small_window(op: Operation) -> bool:
    return is_compute(op) and window_of(op) is not None


def with_written_classes(outputs: Sequence[Tensor]) -> list[Tensor]:
    """``out[i] = if i%2 == 0 then A[i//2] else B[i//2], A[j] = Σ_{t<2} f(j, t) → out[i] = if i%2 ==
    0 then f(i//2, 0) + f(i//2, 1) else ...`` for stages without other readers.
    """
    graph = Graph(outputs)
    wanted = {tensor_key(tensor) for tensor in outputs}
    replaced: dict[tuple[int, int], Tensor] = {}
    for op in graph.ops:
        if is_placeholder(op):
            continue
        current = retarget(op, lambda tensor: replaced.get(tensor_key(tensor)))
        if is_compute(op) and op.num_outputs == 1 and reduction_of(op) is None:
            parts = _parts(op, graph, wanted)
            current = _with_parts(current[0].op, parts, replaced) if parts else current
        for old, new in zip(outputs_of(op), current, strict=True):
            if tensor_key(old) != tensor_key(new):
                replaced[tensor_key(old)] = new
    return [replaced.get(tensor_key(tensor), tensor) for tensor in outputs]


def _parts(op: Operation, graph: Graph, wanted: Container[Key]) -> list[Tensor]:
    """The tensors that a stage reads once in each of their elements, each in a separate class."""
    found: list[Tensor] = []
    elements = size_of(shape_of(op.output(0)))
    body = bodies(op)[0]
    sites = [tensor_key(load_tensor(node)) for node in postorder(body) if is_load(node)]
    while op_name(body) == "if_then_else":
        condition, then, body = operands(body)
        classes = _classes(condition)
        if classes is None or not is_load(then):
            return []
        tensor = load_tensor(then)
        key = tensor_key(tensor)
        alone = len(graph.consumers(tensor)) == 1 and sites.count(key) == 1
        fits = size_of(shape_of(tensor)) * classes <= elements + elements // 2
        if alone and fits and key not in wanted and is_compute(tensor.op):
            found.append(tensor)
    return found


def _classes(condition: Expr) -> int | None:
    """The number of residue classes among which a condition selects, or None."""
    count = 1
    for part in conjuncts(condition):
        if op_name(part) != "eq" or op_name(operands(part)[0]) != "floormod":
            return None
        modulus = const_value(operands(operands(part)[0])[1])
        if not isinstance(modulus, int):
            return None
        count *= modulus
    return count


def _with_parts(
    op: Operation, parts: Sequence[Tensor], replaced: Mapping[Key, Tensor]
) -> list[Tensor]:
    values: dict[Key, tuple[Operation, Expr]] = {}
    size = 0
    for part in parts:
        tensor = replaced.get(tensor_key(part), part)
        if tensor.op.num_outputs != 1:
            continue
        plain = bodies(tensor.op) if reduction_of(tensor.op) is None else unrolled_bodies(tensor.op)
        if plain is None:
            continue
        value = expand_lets(plain[0])
        size += tree_size(value)
        # classes are written out: there are no vectors of functions in them
        if size <= MAX_NODES // LATENCY and not contains(value, is_expensive):
            values[tensor_key(tensor)] = tensor.op, value

    def expand(tensor: Tensor, indices: Sequence[Expr]) -> Expr | None:
        if tensor_key(tensor) not in values:
            return None
        part, value = values[tensor_key(tensor)]
        return substituter(dict(zip(axis_vars(part), indices, strict=True)))(value)

    if not values:
        return outputs_of(op)
    return make_stage(op.name, list(op.axis), [map_loads(bodies(op)[0], expand)], op.tag)
