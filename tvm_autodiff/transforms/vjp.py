"""`vjp`: reverse mode for several outputs with a cotangent each, in one sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InvalidArgumentError, NotDifferentiableError
from ..expr.nodes import Tensor, dtype_of, is_float
from ..graph.graph import Graph
from ..graph.out_of_bounds import refuse_reads_out_of_bounds
from ..graph.stage import Extent
from ..keywords import checked_keywords
from ..zero_elimination.transposition.gather import Cotangent
from .arguments import (
    Manual,
    as_tensor,
    as_tensors,
    check_by_hand,
    listed,
    prefix_of,
    require_float,
    require_function,
    same_extents,
    shape_text,
)
from .custom_rules.marks import marked
from .reports.explain import warn_of_dense_sums
from .result import DifferentiationResult
from .sweep import Sweep


@checked_keywords
def vjp(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    cotangents: Tensor | Sequence[Tensor | None] | None,
    *,
    manual: Mapping[tuple[Tensor, Tensor], Manual] | None = None,
    override: Mapping[Tensor, Any] | None = None,
    fdiff: Manual | None = None,
) -> DifferentiationResult:
    """Reverse mode: pull the cotangents of several outputs back to inputs, in one sweep.

    ``d input = Σ_o (∂ outputs[o] / ∂ input)ᵀ · cotangents[o]``. Stages that outputs share are
    differentiated once.

    Parameters
    ----------
    outputs : Tensor or sequence of Tensor
        The tensors to differentiate. An output may be read by another one, be repeated, or be an
        input.
    inputs : Tensor or sequence of Tensor
        The tensors to differentiate with respect to: placeholders or intermediate tensors, of a
        floating point dtype.
    cotangents : Tensor, None or sequence of these
        One cotangent for each output, of shape ``prefix + output.shape`` with the same prefix for
        all, and of the output's dtype. None means zero, and is required for an output that is not
        floating point.
    manual, override, fdiff
        As in `differentiate`.

    Returns
    -------
    DifferentiationResult
        A sequence of the adjoints of `inputs`, each of shape ``prefix + input.shape``. The adjoint
        of an input that no output depends on is zero, without a warning.

    Raises
    ------
    NotDifferentiableError
        If an input, or an output with a cotangent, is not floating point, or a stage is opaque or
        has no rule.
    InvalidArgumentError
        If an argument has the wrong form, number, shape or dtype, or prefixes differ.
    OutOfBoundsError
        If a stage certainly reads outside a tensor.

    Warns
    -----
    DenseSumWarning
        If an equation could not be solved.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import show, vjp
    >>> x, w = te.placeholder((3,), name="x"), te.placeholder((3,), name="w")
    >>> y = te.compute((3,), lambda i: x[i] * w[i], name="y")
    >>> z = te.compute((3,), lambda i: y[2 - i] + x[i], name="z")
    >>> h, g = te.placeholder((3,), name="h"), te.placeholder((3,), name="g")
    >>> print(show(vjp([y, z], [x], [h, g])[0]))
    inputs  g: float32[3], h: float32[3], w: float32[3]
    dy[i] = h[i] + g[2 - i]        float32[3]
    dx[i0] = g[i0] + dy[i0]*w[i0]  float32[3]
    """
    wanted = [
        as_tensor(value, f"outputs[{n}]") for n, value in enumerate(listed(outputs, "outputs"))
    ]
    if not wanted:
        raise InvalidArgumentError("outputs is empty: pass at least one tensor to differentiate")
    asked = as_tensors(inputs, "inputs")
    for tensor in asked:
        require_float(tensor, "inputs")
    seeds, prefix = _seeds(wanted, listed(cotangents, "cotangents"))
    graph = Graph(wanted)
    refuse_reads_out_of_bounds(graph.ops)
    by_hand = check_by_hand(graph, manual, override)
    require_function(fdiff, "fdiff")
    marks = marked(wanted, asked, by_hand, fdiff)
    moved = zip(marks.outputs, seeds, strict=True)
    given = [(output, cotangent) for output, cotangent in moved if cotangent is not None]
    sweep = Sweep(marks.outputs, given, asked, prefix, marks)
    warn_of_dense_sums(sweep.sites)
    return sweep.result()


def _seeds(
    outputs: Sequence[Tensor], cotangents: Sequence[Any]
) -> tuple[list[Cotangent | None], tuple[Extent, ...]]:
    """The cotangent of each output, None where it has none, and the prefix of all."""
    if len(cotangents) != len(outputs):
        names = ", ".join(tensor.op.name for tensor in outputs)
        raise InvalidArgumentError(
            f"cotangents: there are {len(outputs)} outputs ({names}) and {len(cotangents)} "
            "cotangents; pass one for each output, None for zero"
        )
    seeds: list[Cotangent | None] = []
    first: tuple[str, tuple[Extent, ...]] | None = None
    for number, (output, value) in enumerate(zip(outputs, cotangents, strict=True)):
        if value is None:
            seeds.append(None)
            continue
        place = f"cotangents[{number}]"
        cotangent = as_tensor(value, place)
        if not is_float(output):
            raise NotDifferentiableError(
                f"outputs[{number}]: tensor {output.op.name} has dtype {dtype_of(output)}, and "
                f"only floating point tensors have derivatives; {place} must be None"
            )
        prefix = prefix_of(cotangent, output, place)
        if first is None:
            first = place, prefix
        elif not same_extents(first[1], prefix):
            raise InvalidArgumentError(
                f"{first[0]} has the prefix {shape_text(first[1])} in front of the shape of its "
                f"output, and {place} has {shape_text(prefix)}: all cotangents must have the same "
                "prefix"
            )
        seeds.append(Cotangent(cotangent))
    return seeds, () if first is None else first[1]
