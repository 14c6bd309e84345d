"""Computes an expensive function once for several reductions that would each compute it.

The gradients of a sum of exponentials over pairs are sums of the same exponentials, each along
another axis, or along further ones, so that one pass does not give all of them. The values are read
again where that takes less time than to compute them again, and where the shared cache holds them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

from .....expr.build import neg, negation_of, sum_of
from .....expr.costly import is_expensive, is_slow
from .....expr.dtypes import itemsize
from .....expr.nodes import (
    BRANCHES,
    Axis,
    Expr,
    Tensor,
    dtype_of,
    is_float,
    is_load,
    load,
    node_id,
    op_name,
    operands,
    with_operands,
)
from .....expr.rewrite import (
    contains,
    depends_on,
    expand_lets,
    postorder,
    preorder,
    replace_outermost,
    rewrite,
    substituter,
)
from .....expr.sharing.lets import bind_shared
from .....expr.structural import StructuralKeys
from .....graph.graph import Graph, Replacement, each_original_stage, retarget
from .....graph.sizes.equal_sizes import is_same
from .....graph.sizes.loop_sizes import is_size
from .....graph.stage import (
    Operation,
    Reduction,
    axis_range,
    data_axis,
    is_compute,
    loop_axes,
    make_stage,
    reduction_of,
    reduction_stage,
    renewed,
)
from ....cost import CALL, DIVISION, MARGIN, MAX_SEARCHED, MEMORY_BYTE
from ....kernel import size_of
from ....machine import Machine
from ....nest.access import strides_along
from ....nest.in_range import is_safe, loops_of
from ....nest.reductions.products import is_sum
from ...contractions.terms import signed_terms_of
from .common_functions import aligned, runs_in_rows


def with_stored_functions(outputs: Sequence[Tensor], machine: Machine) -> list[Tensor]:
    """``s[i, j] = Σ_k exp(a(i, j, k)), t[i, k] = Σ_j w[i, j]*exp(a(i, j, k)) → e[i, j, k] =
    exp(a(i, j, k)), s[i, j] = Σ_k e[i, j, k], t[i, k] = Σ_j w[i, j]*e[i, j, k]``.
    """
    graph = Graph(outputs)
    uses = _uses(graph, machine)
    if not uses:
        return list(outputs)

    def change(op: Operation, replacement: Replacement) -> list[Tensor]:
        current = retarget(op, replacement)
        return _reading(current[0].op, uses[hash(op)]) if hash(op) in uses else current

    return each_original_stage(outputs, change)


@dataclass
class _Group:
    """A function that is stored.

    Attributes
    ----------
    order : list of int
        The axes of the stored values, as numbers of the loops of the function.
    tensor : Tensor or None
        The stored values, once the first reduction is reached.
    """

    order: list[int] = field(default_factory=list)
    tensor: Tensor | None = None


@dataclass(frozen=True)
class _Use:
    """A function in a reduction.

    Attributes
    ----------
    op : Operation
    node : Expr
    number : int
        The number of the node among all functions of the reduction.
    loops : list of int
        The loops that the function depends on, in the order of those of the first use of it.
    work : float
        The operations of what only this function needs in the reduction.
    """

    op: Operation
    node: Expr
    number: int
    loops: Sequence[int]
    work: float


def _uses(graph: Graph, machine: Machine) -> dict[int, list[tuple[_Use, _Group]]]:
    """What reductions read, by their hashes."""
    keys = StructuralKeys()
    found = [(op, *_functions(op)) for op in graph.ops]
    alike: dict[Hashable, int] = Counter()  # by what they are if all loops are one
    shapes: dict[int, Hashable] = {}
    for op, _, nodes in found:
        one = {axis.var: 0 for axis in loop_axes(op)} if nodes else {}
        for node in nodes:
            shapes[node_id(node)] = keys.expr(node, one)
            alike[shapes[node_id(node)]] += 1
    known: dict[Hashable, list[_Use]] = {}
    for op, sources, nodes in found:
        for number, node in enumerate(nodes):
            if alike[shapes[node_id(node)]] > 1:
                use, key = _same(op, sources, number, node, keys, known)
                known.setdefault(key, []).append(use)
    stored: dict[int, list[tuple[_Use, _Group]]] = {}
    paying = [uses for uses in known.values() if _pays(uses, machine)]
    shared = {node_id(use.node): len(uses) for uses in paying for use in uses}
    for uses in paying:
        if max(shared.get(node_id(node), 0) for node in postorder(uses[0].node)) > len(uses):
            continue  # a part of it is needed more often
        group = _Group(_order(uses[0]))
        for use in uses:
            stored.setdefault(hash(use.op), []).append((use, group))
    return stored


def _functions(op: Operation) -> tuple[list[Expr], list[Expr]]:
    """The sources of a reduction, and what it computes with expensive functions of several of its
    loops, or with quotients and roots of all of them, inner ones first.

    Operands of products are quotients of some loops: they are computed before the loops.
    """
    reduction = reduction_of(op) if is_compute(op) else None
    if reduction is None or reduction.init or not contains(reduction.sources, is_slow):
        return [], []
    axes = loop_axes(op)
    ranges = map(axis_range, axes)
    if len(axes) > MAX_SEARCHED or any(low != 0 or not is_size(n, axes) for low, n in ranges):
        return [], []
    sources = [_with_outer_signs(expand_lets(source)) for source in reduction.sources]
    least = min(2, len(axes))
    needed: dict[int, int] = {}  # by what calls a slow function: how many loops it has to depend on
    nodes = []
    for node in postorder(sources):
        inside = [needed[node_id(part)] for part in operands(node) if node_id(part) in needed]
        if is_slow(node):
            inside.append(least if is_expensive(node) else len(axes))
        if inside:
            needed[node_id(node)] = min(inside)
            signed = negation_of(node) is not None or op_name(node) in _APART
            if is_float(node) and not signed and len(_loops_of(node, op)) >= min(inside):
                nodes.append(node)
    return sources, nodes


#: what is stored is a term of a sum, and a side of a choice
_APART = ("add", "sub", *BRANCHES)


def _with_outer_signs(expr: Expr) -> Expr:
    """``-a*b → -(a*b)``, ``-a/b → -(a/b)``: products that differ by their signs are one."""

    def visit(node: Expr) -> Expr | None:
        if op_name(node) not in ("mul", "div") or negation_of(node) is not None:
            return None
        parts = operands(node)
        inner = [negation_of(part) for part in parts]
        if not is_float(node) or inner == [None, None]:
            return None
        plain = [part if own is None else own for part, own in zip(parts, inner, strict=True)]
        whole = with_operands(node, plain)
        return whole if None not in inner else neg(whole)

    return rewrite(expr, visit)


def _loops_of(node: Expr, op: Operation) -> list[int]:
    """The numbers of the loops of a reduction that change a function."""
    return [n for n, axis in enumerate(loop_axes(op)) if depends_on(node, [axis.var])]


def _same(
    op: Operation,
    sources: Sequence[Expr],
    number: int,
    node: Expr,
    keys: StructuralKeys,
    known: Mapping[Hashable, Sequence[_Use]],
) -> tuple[_Use, Hashable]:
    """A function as a use of one that is known, or as a new one."""
    axes = loop_axes(op)
    extents = keys.extents([axis_range(axis)[1] for axis in axes])

    def key_of(loops: Sequence[int]) -> Hashable:
        places = {axes[loop].var: place for place, loop in enumerate(loops)}
        return tuple(extents[loop] for loop in loops), keys.expr(node, places)

    same = node_id(node)
    beside = preorder(sources, lambda one: () if node_id(one) == same else operands(one))
    needed = {node_id(one) for one in beside if node_id(one) != same}
    work = _work([one for one in postorder(node) if node_id(one) not in needed])
    here = _loops_of(node, op)
    for loops in permutations(here):
        key = key_of(loops)
        if key in known:
            return _Use(op, node, number, loops, work), key
    return _Use(op, node, number, here, work), key_of(here)


def _work(nodes: Sequence[Expr]) -> float:
    """The operations of the slow functions among some nodes."""
    return sum(CALL if is_expensive(node) else DIVISION for node in nodes if is_slow(node))


def _pays(uses: Sequence[_Use], machine: Machine) -> bool:
    """Whether to store the values and to read them takes less time than to compute them again."""
    first, passes = uses[0], _passes(uses)
    axes = [loop_axes(first.op)[loop] for loop in first.loops]
    if len(passes) < 2 or not is_safe([first.node], loops_of(axes), thorough=True):
        return False
    dtype = dtype_of(first.node)
    size = itemsize(dtype) * size_of([axis_range(a)[1] for a in axes], machine.symbolic_size)
    if 2 * size > machine.last_cache_bytes:
        return False
    near = size <= machine.threads * machine.cache_bytes
    # all cores reach for the shared cache
    byte = 1 / machine.port_bytes + (0.0 if near else MEMORY_BYTE)
    # what a function is of is computed for its values, and the readers may need it, too
    below = postorder(first.node)
    plain = [one for one in below if is_float(one) and operands(one) and not is_load(one)]
    arguments = sum(not is_slow(one) for one in plain) / machine.lanes(dtype)
    stored = (1 + len(passes)) * itemsize(dtype) * byte + arguments
    saved = (sum(use.work for use in passes) - _work(below)) / machine.lanes(dtype)
    return MARGIN * stored < saved


def _passes(uses: Sequence[_Use]) -> list[_Use]:
    """One use for each pass.

    Reductions that are computed in one pass compute a function once: sums that are joined, and
    those whose loops have the same order, which run row by row.
    """
    passes: list[_Use] = []
    for use in uses:
        if not any(_in_one_pass(use, other) for other in passes):
            passes.append(use)
    return passes


def _in_one_pass(use: _Use, other: _Use) -> bool:
    if hash(use.op) == hash(other.op) or _kept(use) != _kept(other):
        return list(use.loops) == list(other.loops)
    loops = [[axis_range(axis)[1] for axis in loop_axes(one.op)] for one in (use, other)]
    in_order = list(use.loops) == list(other.loops) and len(loops[0]) == len(loops[1])
    in_order = in_order and all(map(is_same, *loops))
    return (in_order and _in_rows(use.op)) or aligned(use.op, other.op) is not None


def _kept(use: _Use) -> list[int]:
    """The axes of the result that are loops of the function, by the place of the loop."""
    return [loop if loop < len(use.op.axis) else -1 for loop in use.loops]


def _in_rows(op: Operation) -> bool:
    reduction = reduction_of(op)
    return reduction is not None and runs_in_rows(op, reduction)


def _order(use: _Use) -> list[int]:
    """The loops as axes of the values, by their numbers among those of the function: last the one
    along which most of what they read is in order.
    """
    axes = [loop_axes(use.op)[loop] for loop in use.loops]
    variables = [axis.var for axis in axes]

    def apart(number: int) -> int:
        strides = strides_along([use.node], variables[number], variables)
        return len(axes) if strides is None else sum(stride > 1 for stride in strides)

    order = list(range(len(axes)))
    last = min(reversed(order), key=apart)
    return [*(number for number in order if number != last), last]


def _reading(op: Operation, uses: Sequence[tuple[_Use, _Group]]) -> list[Tensor]:
    """A reduction that reads the values of its functions.

    A sum of terms that read them with the loops in other orders is a sum for each order:
    ``Σ_k (e[i, k] - e[k, i])  →  Σ_k e[i, k] - Σ_k e[k, i]``
    """
    reduction = reduction_of(op)
    assert reduction is not None
    sources, nodes = _functions(op)
    axes = loop_axes(op)
    reads: dict[int, Expr] = {}
    orders: dict[int, tuple[int, ...]] = {}
    for use, group in uses:
        own = [axes[use.loops[number]] for number in group.order]
        if group.tensor is None:
            group.tensor = _values(op.name, nodes[use.number], own)
        indices = [axis.var for axis in own]
        reads[node_id(nodes[use.number])] = load(group.tensor, indices)
        orders[node_id(nodes[use.number])] = tuple(use.loops)
    if len(set(orders.values())) > 1 and is_sum(reduction):
        return _apart(op, reduction, sources[0], reads, orders)
    changed = tuple(bind_shared(replace_outermost(source, reads)) for source in sources)
    return reduction_stage(op.name, list(op.axis), replace(reduction, sources=changed))


def _apart(
    op: Operation,
    reduction: Reduction,
    source: Expr,
    reads: Mapping[int, Expr],
    orders: Mapping[int, tuple[int, ...]],
) -> list[Tensor]:
    """The sum of the sums of the terms of each order."""
    terms: dict[tuple[tuple[int, ...], ...], list[Expr]] = {}
    for term in signed_terms_of(source):
        found = {orders[node_id(node)] for node in postorder(term) if node_id(node) in orders}
        terms.setdefault(tuple(sorted(found)), []).append(replace_outermost(term, reads))
    parts = []
    for number, group in enumerate(terms.values()):
        axes, table = renewed([*op.axis, *reduction.axes])
        body = bind_shared(substituter(table)(sum_of(group)))
        own = replace(
            reduction,
            sources=(body,),
            axes=tuple(axes[len(op.axis) :]),
            condition=substituter(table)(reduction.condition),
        )
        parts += reduction_stage(f"{op.name}_order{number}", axes[: len(op.axis)], own)
    axes, _ = renewed(op.axis)
    return make_stage(op.name, axes, [sum_of([load(one, [a.var for a in axes]) for one in parts])])


def _values(name: str, node: Expr, axes: Sequence[Axis]) -> Tensor:
    fresh = [data_axis(a.var.name, axis_range(a)[1], dtype_of(a.var)) for a in axes]
    move = substituter({old.var: new.var for old, new in zip(axes, fresh, strict=True)})
    return make_stage(f"{name}_values", fresh, [bind_shared(move(node))])[0]
