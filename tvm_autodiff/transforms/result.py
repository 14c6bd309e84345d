"""The result of `differentiate`: the requested adjoints, all other adjoints, and their summands.

Tensors are made on demand. Nothing here differentiates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar, overload

from ..errors import InvalidArgumentError, UnknownTensorError
from ..expr.nodes import Tensor, tensor_key
from ..graph.stage import Operation
from ..zero_elimination.transposition.transpose import Transposed
from .reports.explain import explain
from .reports.report import Report

Value = TypeVar("Value")


class TensorMap(Mapping[Tensor, Value], Generic[Value]):
    """An ordered mapping keyed by te tensors, which as plain dictionary keys fail at rank 0.

    Values are computed on first access.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._keys: dict[tuple[int, int], Tensor] = {}
        self._makers: dict[tuple[int, int], Callable[[], Value]] = {}
        self._values: dict[tuple[int, int], Value] = {}

    def define(self, tensor: Tensor, make: Callable[[], Value]) -> None:
        """Set the value of a tensor to the later result of `make`."""
        self._keys[tensor_key(tensor)] = tensor
        self._makers[tensor_key(tensor)] = make

    def __getitem__(self, tensor: Tensor) -> Value:
        key = tensor_key(tensor)
        if key not in self._makers:
            known = ", ".join(t.op.name for t in self._keys.values()) or "none"
            raise UnknownTensorError(
                f"no {self._what} for tensor {tensor.op.name}; there is one for: {known}"
            )
        if key not in self._values:
            self._values[key] = self._makers[key]()
        return self._values[key]

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._keys.values())

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"<{self._what} of {', '.join(t.op.name for t in self._keys.values()) or 'nothing'}>"

    def __contains__(self, tensor: object) -> bool:
        return hasattr(tensor, "value_index") and tensor_key(tensor) in self._makers


class DifferentiationResult(Sequence[Tensor]):
    """The adjoints of `differentiate`, as a sequence in the order of `inputs`.

    Attributes
    ----------
    result : list of Tensor
        The adjoint of each requested input, of shape ``prefix + input.shape``; empty without
        inputs.
    adjoints : mapping from Tensor to Tensor
        The adjoint of every tensor between the output and the inputs.
    adjoint_summands : mapping from Tensor to mapping from Tensor to Tensor
        ``adjoint_summands[t][consumer]`` is the contribution of one consumer of `t` to the adjoint
        of `t`.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import differentiate
    >>> x = te.placeholder((3,), name="x")
    >>> y = te.compute((3,), lambda i: x[i] * x[i], name="y")
    >>> [dx] = differentiate(y, [x], te.placeholder((3,), name="h"))
    >>> dx.op.name
    'dx'
    """

    def __init__(
        self,
        result: list[Tensor] | None,
        adjoints: TensorMap[Tensor],
        adjoint_summands: TensorMap[TensorMap[Tensor]],
        sites: Sequence[Transposed] = (),
        scanned: Sequence[tuple[Operation, Tensor]] = (),
    ) -> None:
        self._asked = result is not None
        self.result: list[Tensor] = result or []
        self.adjoints = adjoints
        self.adjoint_summands = adjoint_summands
        self._sites = sites
        self._scanned = scanned

    def explain(self) -> Report:
        """Explain how each gradient is computed, for each read site.

        Returns
        -------
        Report
            A string, which a notebook displays as a table, the worst read first. For each read
            site: the system that was solved, the strategy (gather, residue classes, part of the
            box, equal elements, ragged loops, scatter-add, loop over updates, scan, dense sum),
            the summed axes, the remaining guards and the iterations; for a dense sum also the
            unsolved equations and what to override. For a loop with a checkpoint plan: the number
            of kept states, their bytes, and the recomputed steps.

        Examples
        --------
        >>> from tvm import te
        >>> from tvm_autodiff import differentiate
        >>> x = te.placeholder((6,), name="x")
        >>> y = te.compute((3,), lambda i: x[2 * i], name="y")
        >>> print(differentiate(y, x, te.placeholder((3,), name="h")).explain())
        dx from y
          reads x[2*i]
            system: 2*i = i0
            strategy: gather
            guards: i0%2 == 0
            iterations: 6 (lower bound: 6, the sum over zeros: 18)
        """
        return explain(self._sites, self._scanned, self.result)

    def _require_inputs(self) -> None:
        if not self._asked:
            names = ", ".join(tensor.op.name for tensor in self.adjoints)
            raise InvalidArgumentError(
                "differentiate was called without inputs, so its result is not a sequence of "
                f"adjoints; read .adjoints[tensor] (of: {names}) or pass the inputs"
            )

    def __len__(self) -> int:
        self._require_inputs()
        return len(self.result)

    def __iter__(self) -> Iterator[Tensor]:
        self._require_inputs()
        return iter(self.result)

    @overload
    def __getitem__(self, index: int) -> Tensor: ...

    @overload
    def __getitem__(self, index: slice) -> list[Tensor]: ...

    def __getitem__(self, index: int | slice) -> Tensor | list[Tensor]:
        self._require_inputs()
        return self.result[index]

    def __repr__(self) -> str:
        names = ", ".join(tensor.op.name for tensor in self.result)
        return f"DifferentiationResult([{names}])"
