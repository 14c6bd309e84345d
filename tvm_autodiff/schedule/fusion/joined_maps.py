"""Decides which elementwise kernels over the same axes are computed in one pass, because they share
work: the updates of several columns of a gradient, which read the same elements by index.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...expr.costly import is_expensive
from ...expr.nodes import Expr, node_id, op_name, operands
from ...expr.rewrite import expand_lets, postorder, substituter
from ...expr.structural import StructuralKeys
from ...graph.sizes.equal_sizes import is_same
from ...graph.stage import axis_range, axis_vars, bodies, is_compute, reduction_of
from ..cost import CALL, MAX_NODES
from ..kernel import Kernel


@dataclass
class MapWork:
    """What elementwise kernels over the same axes compute.

    Attributes
    ----------
    kernels : list of Kernel
    operations : dict from int to int
        The keys of their different operations and reads, over the axes by position, and as how many
        operations each counts.
    """

    kernels: list[Kernel]
    operations: dict[int, int]

    def shared_with(self, other: MapWork) -> bool:
        """Whether another kernel computes what these do, and the pass of all is small enough.

        Examples
        --------
        ``u[e] = f(x[n[e]]), v[e] = g(f(x[n[e]]))`` share the work of f.
        """
        shared = self.operations.keys() & other.operations.keys()
        together = len(self.operations) + len(other.operations) - len(shared)
        # what is worth a stage of its own if it is read again
        if sum(self.operations[key] for key in shared) <= 2 * CALL or together > MAX_NODES:
            return False
        ours, theirs = self.kernels[0].root.axis, other.kernels[0].root.axis
        return len(ours) == len(theirs) and all(
            is_same(axis_range(a)[1], axis_range(b)[1]) for a, b in zip(ours, theirs, strict=True)
        )

    def joined(self, other: MapWork) -> MapWork:
        """The work of all kernels."""
        return MapWork(
            [*self.kernels, *other.kernels], {**self.operations, **other.operations}
        )


def map_work(kernel: Kernel, keys: StructuralKeys) -> MapWork | None:
    """The work of an elementwise kernel, or None for another one; `keys` are those of a program."""
    op = kernel.root
    if not is_compute(op) or reduction_of(op) is not None or kernel.epilogue is not None:
        return None
    if not len(op.axis) or any(axis_range(axis)[0] != 0 for axis in op.axis):
        return None
    places = {var: number for number, var in enumerate(axis_vars(op))}
    operations: dict[int, int] = {}
    for body in bodies(op):
        plain = expand_lets(body)
        found = keys.parts(plain, places)
        for node in postorder(plain):
            if operands(node) and op_name(node) != "cast":
                operations[found[node_id(node)]] = int(CALL) if is_expensive(node) else 1
    return MapWork([kernel], operations)


def values_over(first: Kernel, other: Kernel) -> list[Expr]:
    """The values of a map over the axes of another one."""
    rename = substituter(dict(zip(axis_vars(other.root), axis_vars(first.root), strict=True)))
    return [rename(expand_lets(body)) for body in bodies(other.root)]
