"""The derivative of one compute stage as a list of terms, one or more for each read site.

The pushforward reads the terms directly, and the pullback transposes them. Values come from scalar
rules and reducers. Index maps are not analysed here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..errors import NotDifferentiableError
from ..expr.build import affirmed, variable
from ..expr.integers.bits import without_bits
from ..expr.integers.decided_divisions import with_decided_divisions
from ..expr.integers.intervals import range_intervals
from ..expr.nodes import (
    INDEX_DTYPES,
    Axis,
    Expr,
    Tensor,
    Var,
    dtype_of,
    is_float,
    is_load,
    load,
    load_tensor,
    operands,
    tensor_key,
)
from ..expr.rewrite import expand_lets, substituter
from ..expr.rounded_alike import with_decisions_alike
from ..expr.sharing.lets import merge_equal
from ..graph.graph import tensors_read_by
from ..graph.plain_reduction import split_init
from ..graph.stage import (
    Operation,
    Reduction,
    axis_range,
    axis_vars,
    bodies,
    is_compute,
    is_extern,
    loop_axes,
    reduction_of,
    rename_bounds,
)
from .parts.decided_parts import reads_computed
from .reductions.reducers import source_seeds
from .terms import Condition, Contribution, Term, pull_back


def linearize(op: Operation, tensors: Sequence[Tensor]) -> list[Term]:
    """The terms of a stage's derivative with respect to some of the tensors that it reads.

    Parameters
    ----------
    op : Operation
        A compute stage with one or several outputs.
    tensors : sequence of Tensor
        The tensors to differentiate with respect to. Reads of others are constants.

    Returns
    -------
    list of Term
        Terms in the order of the read sites in the body; empty if the stage does not depend
        smoothly on the tensors.

    Raises
    ------
    NotDifferentiableError
        If the stage is a `te.extern` or `te.scan`, uses an intrinsic without a rule, or reduces
        over an axis that is neither int32 nor int64.

    References
    ----------
    S. Urban, P. van der Smagt, "Automatic differentiation for tensor algebras", arXiv 1711.01348.
    """
    if not is_compute(op):
        kind = "te.extern" if is_extern(op) else "te.scan"
        names = ", ".join(tensor.op.name for tensor in tensors)
        raise NotDifferentiableError(
            f"stage {op.name} is an opaque {kind} stage that reads {names}: it has no expression "
            f"to differentiate. Pass override={{{op.name}: ([{names}], f)}} with "
            "f(out, deps, head) -> [adjoint of each], or attach a rule to the stage with with_rule"
        )
    wanted = {tensor_key(tensor) for tensor in tensors}
    reduction = reduction_of(op)
    if reduction is None:
        return _elementwise_terms(op, wanted)
    for axis in reduction.axes:
        if dtype_of(axis.var) not in INDEX_DTYPES:
            raise NotDifferentiableError(
                f"stage {op.name} reduces over {axis.var.name}, which is {dtype_of(axis.var)} as "
                'its range is: convert the ends of the range, such as lengths[i].astype("int32")'
            )
    return _reduction_terms(op, reduction, wanted)


def _reads(wanted: set[tuple[int, int]]) -> Callable[[Expr], bool]:
    return lambda node: is_load(node) and tensor_key(load_tensor(node)) in wanted


def _written_out(op: Operation, body: Expr) -> Expr:
    """The expression of a stage that is differentiated."""
    whole = expand_lets(body)
    plain = without_bits(whole)
    if plain is not whole:  # a mask of all bits that a loop has is a remainder that changes nothing
        ranges = {axis.var: axis_range(axis) for axis in loop_axes(op)}
        plain = with_decided_divisions(plain, range_intervals(ranges))
    return with_decisions_alike(plain, reads_computed)


def _elementwise_terms(op: Operation, wanted: set[tuple[int, int]]) -> list[Term]:
    terms: list[Term] = []
    for component, body in enumerate(bodies(op)):
        if not is_float(body):
            continue
        seed = variable("seed", dtype_of(body))
        [root] = merge_equal([_written_out(op, body)])
        forward = load(op.output(component), axis_vars(op))
        found = pull_back(
            [(root, [Contribution(seed)], forward)], _reads(wanted), f"stage {op.name}"
        )
        terms += _terms_at(found, component, seed, ())
    return terms


def _terms_at(
    found: Mapping[int, tuple[Expr, list[Contribution]]],
    component: int,
    seed: Var,
    reduce_axes: tuple[Axis, ...],
) -> list[Term]:
    return [
        Term(
            load_tensor(site),
            operands(site),
            component,
            seed,
            contribution.value,
            _split(contribution.conditions),
            reduce_axes,
        )
        for site, contributions in found.values()
        for contribution in contributions
    ]


def _split(conditions: Sequence[Condition]) -> tuple[Condition, ...]:
    """Split conjunctions into separate conditions: ``a and abs(b) < c → a, b < c, b > -c``."""
    return tuple(
        Condition(part, condition.guards)
        for condition in conditions
        for part in affirmed(condition.expr)
    )


def _reduction_terms(
    op: Operation, reduction: Reduction, wanted: set[tuple[int, int]]
) -> list[Term]:
    terms: list[Term] = []
    seeds = [variable("seed", dtype_of(source)) for source in reduction.sources]
    sources = merge_equal([_written_out(op, source) for source in reduction.sources])
    if reduction.init:
        return _terms_with_init(op, reduction, wanted)
    smooth = {component: seed for component, seed in enumerate(seeds) if is_float(seed)}
    for component, arriving in source_seeds(op, reduction, smooth).items():
        roots = []
        for place, source in enumerate(sources):
            contributions = [value for index, value in arriving if index == place]
            if contributions and is_float(source):
                roots.append((source, contributions, None))
        found = pull_back(roots, _reads(wanted), f"stage {op.name}")
        terms += _terms_at(found, component, seeds[component], reduction.axes)
    return terms


def _terms_with_init(
    op: Operation, reduction: Reduction, wanted: set[tuple[int, int]]
) -> list[Term]:
    """init ⊕ (⊕ source): the terms of the combination, with those through the plain reduction
    continued.
    """
    combination, plain = split_init(op)
    here = tensor_key(plain[0])
    inner = linearize(plain[0].op, _tensors_among(plain[0].op, wanted))
    through = {(here[0], place) for place in range(len(plain))}
    outer = linearize(combination[0].op, [*plain, *_tensors_among(combination[0].op, wanted)])
    terms: list[Term] = []
    for term in outer:
        key = tensor_key(term.tensor)
        if key not in through:
            terms.append(term)
            continue
        for part in inner:
            if part.component != key[1]:
                continue
            rename = substituter(dict(zip(axis_vars(plain[0].op), axis_vars(op), strict=True)))
            chain = substituter({part.seed: term.value})
            terms.append(
                Term(
                    part.tensor,
                    tuple(rename(index) for index in part.indices),
                    term.component,
                    term.seed,
                    chain(rename(part.value)),
                    (
                        *term.conditions,
                        *(Condition(rename(c.expr), c.guards) for c in part.conditions),
                    ),
                    tuple(rename_bounds(axis, rename) for axis in part.reduce_axes),
                )
            )
    return terms


def _tensors_among(op: Operation, wanted: set[tuple[int, int]]) -> list[Tensor]:
    return [tensor for tensor in tensors_read_by(op) if tensor_key(tensor) in wanted]
