"""The stages between an input and an output that derivatives pass through.

A stage whose custom rule has another form to differentiate, such as a product of the other factors,
leads only to that form. Scatters are not followed, because their indices are data.
"""

from __future__ import annotations

from ..expr.nodes import Tensor, tensor_key
from ..graph.graph import Graph, tensors_read_by
from ..graph.kinds.custom import custom_of
from ..graph.stage import Operation, is_placeholder
from ..rules.equal_forms import equal_forms


class Paths:
    """The stages through which an output depends on an input.

    Attributes
    ----------
    ops : list of Operation
        The stages in topological order, without the input's.
    """

    def __init__(self, output: Tensor, input: Tensor) -> None:
        self._equal: dict[int, Tensor | None] = {}
        self._graph = Graph([output], self._reads)
        self._moving = (
            self._graph.depends_on([input]) if self._graph.contains(input) else set[int]()
        )
        self.ops = [
            op
            for op in self._graph.ops
            if hash(op) in self._moving and not is_placeholder(op) and hash(op) != hash(input.op)
        ]
        self._input = tensor_key(input)

    def equal(self, op: Operation) -> Tensor | None:
        """The equal tensor that is differentiated instead of a stage, if any."""
        key = hash(op)
        if key not in self._equal:
            forms = equal_forms(op) if custom_of(op) else None
            self._equal[key] = forms[0] if forms is not None and len(forms) == 1 else None
        return self._equal[key]

    def reads(self, op: Operation) -> list[Tensor]:
        """The tensors that a stage reads and that depend on the input."""
        return [
            tensor
            for tensor in self._graph.reads(op)
            if hash(tensor.op) in self._moving
            and (not is_placeholder(tensor.op) or tensor_key(tensor) == self._input)
        ]

    def _reads(self, op: Operation) -> list[Tensor]:
        equal = self.equal(op)
        return tensors_read_by(op) if equal is None else [equal]
