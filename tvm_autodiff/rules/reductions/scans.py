"""The derivative of a scan: another scan, in the opposite direction.

For cotangents h of the outputs, the adjoint λ of the state after element k follows ``λ_{k-1} = h_k
+ λ_k · ∂step/∂state``, and the elements get ``x̄_k = λ_k · ∂step/∂x``. For any step this takes as
many steps as the scan itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...expr.build import add, const, variable
from ...expr.nodes import Axis, Expr, Tensor, Var, dtype_of, is_float, load, node_id, tensor_key
from ...expr.rewrite import expand_lets, substituter, variables_of
from ...expr.sharing.lets import bind_shared, merge_equal
from ...graph.bounded_stage import bounded_stage
from ...graph.kinds.kind import kind_of
from ...graph.kinds.prefix_scan import Recurrence, Scan, scan_stage
from ...graph.stage import Extent, Operation, data_axis, outputs_of, reduce_axis, sum_over
from ..terms import Contribution, guarded, pull_back
from .general_reducer import one_of


def scan_adjoints(
    op: Operation, heads: Mapping[int, Tensor], prefix: Sequence[Extent], wanted: Sequence[Tensor]
) -> list[tuple[Tensor, Tensor]]:
    """The contributions of a scan to the cotangents of the tensors it reads.

    Parameters
    ----------
    op : Operation
        A prefix scan.
    heads : mapping from int to Tensor
        The cotangents, of shape ``prefix + rows + scanned``, by output number.
    prefix : sequence of int or Expr
        The leading axes of the cotangents.
    wanted : sequence of Tensor
        The tensors to differentiate with respect to.

    Returns
    -------
    list of (Tensor, Tensor)
        A tensor that the scan reads and a contribution to its cotangent, of shape ``prefix + its
        shape``. A tensor may occur several times, and does not occur if the states do not depend on
        it.
    """
    scan = kind_of(op)
    assert isinstance(scan, Scan)
    asked = {tensor_key(tensor) for tensor in wanted}
    step = _AdjointStep(op, scan.recurrence, sorted(heads))
    states = dict(zip(scan.recurrence.state, outputs_of(op), strict=True))
    elements = dict(zip(scan.recurrence.element, scan.elements, strict=True))
    given = {var: heads[number] for number, var in step.heads.items()}
    rows = (*prefix, *scan.rows)
    read = {**states, **elements, **given}
    used = {node_id(var) for var in variables_of(step.next)}
    inputs = [var for var in read if node_id(var) in used]
    zero = tuple(const(0, dtype_of(var)) for var in step.adjoints)
    recurrence = Recurrence(tuple(step.adjoints), tuple(inputs), tuple(step.next), zero)
    backwards = Scan(
        recurrence, tuple(read[var] for var in inputs), rows, scan.scanned, not scan.backward
    )
    adjoints = scan_stage(f"{op.name}_adjoint", backwards)
    read.update(zip(step.adjoints, adjoints, strict=True))
    results = []
    for var, tensor in elements.items():
        value = step.arriving_at(var)
        if value is not None and tensor_key(tensor) in asked:
            name = f"{op.name}_d{tensor.op.name}"
            results.append((tensor, _over_elements(name, value, read, tensor, prefix, scan)))
    return results


class _AdjointStep:
    """``next = h + λ · ∂step/∂state``: one step of the adjoint, as expressions.

    Attributes
    ----------
    adjoints : list of Var
        λ of the state after an element, for each state that has a cotangent.
    heads : dict from int to Var
        h, by output number.
    next : list of Expr
        λ of the state before the element.
    """

    def __init__(self, op: Operation, recurrence: Recurrence, given: Sequence[int]) -> None:
        self._recurrence = recurrence
        self._where = f"stage {op.name} (a step of its scan)"
        self._steps = merge_equal([expand_lets(step) for step in recurrence.step])
        seeds = [variable(f"adjoint_{var.name}", dtype_of(var)) for var in recurrence.state]
        self.heads = {
            number: variable(f"head_{recurrence.state[number].name}", dtype_of(seeds[number]))
            for number in given
        }
        active = list(given)
        while True:  # a state that reaches one with a cotangent has one, too
            self._arriving = self._pull_back({number: seeds[number] for number in active})
            reached = [
                number
                for number, var in enumerate(recurrence.state)
                if is_float(var) and (number in active or node_id(var) in self._arriving)
            ]
            if reached == active:
                break
            active = reached
        self.adjoints = [seeds[number] for number in active]
        self.next = []
        for number in active:
            arrived = self.arriving_at(recurrence.state[number])
            head: Expr | None = self.heads.get(number)
            parts = [part for part in (head, arrived) if part is not None]
            value = parts[0] if parts else const(0, dtype_of(seeds[number]))
            self.next.append(add(value, parts[1]) if len(parts) > 1 else value)

    def arriving_at(self, var: Var) -> Expr | None:
        """``λ · ∂step/∂var``, or None if the step does not depend on the variable."""
        return self._arriving.get(node_id(var))

    def _pull_back(self, seeds: Mapping[int, Var]) -> dict[int, Expr]:
        roots = [
            (self._steps[number], [Contribution(seed)], None) for number, seed in seeds.items()
        ]
        variables = (*self._recurrence.state, *self._recurrence.element)
        found = pull_back(roots, one_of(variables), self._where)
        sums: dict[int, Expr] = {}
        for key, (_, contributions) in found.items():
            for contribution in contributions:
                value = guarded(contribution.value, contribution.conditions)
                sums[key] = add(sums[key], value) if key in sums else value
        return sums


def _over_elements(
    name: str,
    value: Expr,
    read: Mapping[Var, Tensor],
    tensor: Tensor,
    prefix: Sequence[Extent],
    scan: Scan,
) -> Tensor:
    """A value at every element as a stage, summed over the rows that share their elements."""
    shared = len(scan.rows) + len(scan.scanned) - len(tensor.shape)
    leading = [data_axis(f"p{n}", extent) for n, extent in enumerate(prefix)]
    summed = [reduce_axis(f"r{n}", extent) for n, extent in enumerate(scan.rows[:shared])]
    own = [
        data_axis(f"i{n}", extent) for n, extent in enumerate((*scan.rows[shared:], *scan.scanned))
    ]
    axes: list[Axis] = [*leading, *summed, *own]
    here = [axis.var for axis in axes]
    loads = {var: load(t, here[len(here) - len(t.shape) :]) for var, t in read.items()}
    body = substituter(loads)(value)
    return bounded_stage(name, [*leading, *own], [sum_over(bind_shared(body), summed)])[0]
