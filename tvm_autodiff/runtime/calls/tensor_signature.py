"""Makes the signature of te tensors, with a name for each symbol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import LoweringError
from ...expr.nodes import Tensor, const_value, dtype_of, node_id, op_name, operands
from ...expr.rewrite import variables_of
from ...graph.stage import shape_of
from .signature import DIM_OPERATORS, Dim, Signature, TensorSpec


def signature_of(inputs: Sequence[Tensor], outputs: Sequence[Tensor], single: bool) -> Signature:
    """The signature of a function between tensors; `single` as in `Signature`."""
    symbols: dict[int, Dim] = {}

    def spec(tensor: Tensor) -> TensorSpec:
        shape = tuple(dimension_of(dim, symbols) for dim in shape_of(tensor))
        return TensorSpec(str(tensor.op.name), shape, dtype_of(tensor))

    dims = [dim for tensor in (*inputs, *outputs) for dim in shape_of(tensor)]
    found = variables_of([dim for dim in dims if not isinstance(dim, int)])
    specs = tuple(map(spec, inputs)), tuple(map(spec, outputs))
    wide = [symbols[node_id(var)] for var in found if dtype_of(var) == "int64"]
    return Signature(*specs, single, tuple(wide))


def dimension_of(dim: Any, symbols: dict[int, Dim]) -> Dim:
    """A dimension in the form of a signature; `symbols` maps variables to names, by node."""
    if isinstance(dim, int):
        return dim
    value = const_value(dim)
    if value is not None:
        return int(value)
    name = op_name(dim)
    if name == "var":
        # two variables may share a name: the second one gets a number
        if node_id(dim) not in symbols:
            taken = [value for value in symbols.values() if isinstance(value, str)]
            candidate, number = dim.name, 1
            while candidate in taken:
                candidate, number = f"{dim.name}_{number}", number + 1
            symbols[node_id(dim)] = candidate
        return symbols[node_id(dim)]
    if name == "cast":
        return dimension_of(operands(dim)[0], symbols)
    if name in DIM_OPERATORS:
        left, right = operands(dim)
        return [name, dimension_of(left, symbols), dimension_of(right, symbols)]
    raise LoweringError(f"a dimension is {dim}: only + - * // % min max of sizes are supported")
