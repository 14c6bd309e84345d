"""`differentiate` and its short forms: the derivative of one tensor.

This file checks the arguments, and `sweep` does the work. `vjp` handles several outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from ..errors import LargeIdentityWarning, UnrelatedInputWarning
from ..expr.nodes import Tensor, dtype_of
from ..graph.graph import Graph
from ..graph.out_of_bounds import refuse_reads_out_of_bounds
from ..graph.stage import shape_of
from ..keywords import checked_keywords
from ..warn import warn
from ..zero_elimination.sums.assemble import assemble
from ..zero_elimination.transposition.gather import Cotangent
from ..zero_elimination.transposition.transpose import target_of, transpose
from .arguments import (
    Manual,
    as_tensor,
    as_tensors,
    check_by_hand,
    prefix_of,
    require_float,
    require_function,
    require_read,
)
from .custom_rules.marks import marked
from .reports.explain import warn_of_dense_sums
from .result import DifferentiationResult
from .sweep import Sweep

#: the size of an identity cotangent above which a Jacobian is probably a mistake
_LARGE_IDENTITY = 1 << 24


@checked_keywords
def differentiate(
    output: Tensor,
    inputs: Tensor | Sequence[Tensor] | None = None,
    head: Tensor | None = None,
    *,
    manual: Mapping[tuple[Tensor, Tensor], Manual] | None = None,
    override: Mapping[Tensor, Any] | None = None,
    fdiff: Manual | None = None,
) -> DifferentiationResult:
    """Differentiate a tensor expression in reverse mode.

    Parameters
    ----------
    output : Tensor
        The tensor to differentiate, of a floating point dtype.
    inputs : Tensor, sequence of Tensor or None
        The tensors to differentiate with respect to: placeholders or intermediate tensors, of a
        floating point dtype. None requests the adjoints of all tensors, in the result's
        ``.adjoints``.
    head : Tensor or None
        The cotangent of the output, of shape ``prefix + output.shape`` and of the output's dtype.
        The adjoint of `t` has shape ``prefix + t.shape``. None means the identity, which gives the
        gradient of a scalar or the Jacobian of a tensor.
    manual : mapping from (out, inp) to callable, optional
        ``f(out, inp, head)`` returns the contribution of `out` to the adjoint of `inp`, and
        replaces the rule of this edge. ``head`` is the adjoint of `out`.
    override : mapping from out to (deps, callable), optional
        ``f(out, deps, head)`` returns the adjoints of `deps`, and replaces everything between `out`
        and `deps`, which `out` need not read directly.
    fdiff : callable, optional
        ``fdiff(out, inp, head)`` replaces the default rule of every edge; see `pullback`.

    Returns
    -------
    DifferentiationResult
        A sequence of the adjoints of `inputs`, with ``.adjoints``, ``.adjoint_summands`` and
        ``.explain()``. The adjoint of an input that the output does not depend on is zero.

    Raises
    ------
    NotDifferentiableError
        If a tensor is not floating point, or a stage is opaque or has no rule.
    InvalidArgumentError
        If an argument has the wrong form, shape or dtype.
    OutOfBoundsError
        If a stage certainly reads outside a tensor.

    Warns
    -----
    UnrelatedInputWarning
        If an input does not occur in the graph of the output.
    LargeIdentityWarning
        If there is no head, and the identity has more than 2²⁴ elements.
    DenseSumWarning
        If an equation could not be solved.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import differentiate, show
    >>> x = te.placeholder((3,), name="x")
    >>> k = te.reduce_axis((0, 3), name="k")
    >>> y = te.compute((), lambda: te.sum(x[k] * x[k], axis=k), name="y")
    >>> print(show(differentiate(y, [x])))
    inputs  x: float32[3]
    dx[i0] = 2.0*x[i0]  float32[3]

    References
    ----------
    apache/tvm issue 1996, "Automatic differentiation for tensor expressions".
    """
    output = require_float(as_tensor(output, "output"), "output")
    asked = None if inputs is None else as_tensors(inputs, "inputs")
    for tensor in asked or []:
        require_float(tensor, "inputs")
    prefix = shape_of(output) if head is None else prefix_of(as_tensor(head, "head"), output)
    graph = Graph([output])
    refuse_reads_out_of_bounds(graph.ops)
    by_hand = check_by_hand(graph, manual, override)
    require_function(fdiff, "fdiff")
    _warn_of_unrelated(asked or [], graph)
    if head is None:
        _warn_of_large_identity(output)
    marks = marked([output], asked or [], by_hand, fdiff)
    seeds = [(marks.outputs[0], Cotangent(head))]
    sweep = Sweep(marks.outputs, seeds, asked, prefix, marks)
    warn_of_dense_sums(sweep.sites)
    return sweep.result()


def _warn_of_unrelated(inputs: Sequence[Tensor], graph: Graph) -> None:
    """Warn of inputs that the output does not need: often another tensor was intended."""
    names = [tensor.op.name for tensor in inputs if not graph.contains(tensor)]
    if names:
        [output] = graph.outputs
        known = ", ".join(op.name for op in graph.ops if hash(op) != hash(output.op)) or "none"
        warn(
            f"{output.op.name} is not computed from {', '.join(names)}: the gradient is zero. It "
            f"is computed from {known}; a stage that was rebuilt is a different tensor",
            UnrelatedInputWarning,
        )


def _warn_of_large_identity(output: Tensor) -> None:
    """Warn of a large Jacobian, because the cotangent may have been omitted by mistake."""
    extents = shape_of(output)
    if all(isinstance(extent, int) for extent in extents) and prod(extents) ** 2 > _LARGE_IDENTITY:
        warn(
            f"the Jacobian of {output.op.name}, which has {prod(extents)} elements, was requested: "
            f"each of its rows is a gradient, and the identity alone has {prod(extents) ** 2} "
            "elements. Pass head= (a cotangent of the output's shape), or differentiate a scalar",
            LargeIdentityWarning,
        )


@checked_keywords
def gradient(
    output: Tensor, inputs: Tensor | Sequence[Tensor], head: Tensor | None = None
) -> list[Tensor]:
    """The gradients as a list: call-compatible with the ``te.gradient`` that TVM removed.

    Parameters
    ----------
    output, inputs, head
        As in `differentiate`.

    Returns
    -------
    list of Tensor
        One adjoint for each input, of shape ``prefix + input.shape``.

    Examples
    --------
    >>> from tvm import te
    >>> x = te.placeholder((3,), name="x")
    >>> y = te.compute((3,), lambda i: te.exp(x[i]), name="y")
    >>> [jacobian] = gradient(y, [x])
    >>> [int(extent) for extent in jacobian.shape]
    [3, 3]
    """
    return list(differentiate(output, as_tensors(inputs, "inputs"), head))


@checked_keywords
def pullback(output: Tensor, input: Tensor, head: Tensor) -> Tensor:
    """The default derivative rule of one stage, with respect to one tensor that it reads.

    Use it inside `manual` and `fdiff`. Unlike `differentiate`, it follows no other path.

    Parameters
    ----------
    output, input : Tensor
        A compute stage and a tensor that it reads.
    head : Tensor
        The cotangent of the output, of shape ``prefix + output.shape``.

    Returns
    -------
    Tensor
        The contribution to the adjoint of `input`, of shape ``prefix + input.shape``.

    Raises
    ------
    NotDifferentiableError
        If a tensor is not floating point, or the stage is opaque or has no rule.
    InvalidArgumentError
        If `output` does not read `input`, or the head has another shape or dtype.

    Examples
    --------
    >>> from tvm import te
    >>> x = te.placeholder((3,), name="x")
    >>> y = te.compute((3,), lambda i: x[2 - i], name="y")
    >>> pullback(y, x, te.placeholder((3,), name="h")).op.name
    'dx'
    """
    output = require_float(as_tensor(output, "output"), "output")
    input = require_float(as_tensor(input, "input"), "input")
    prefix = prefix_of(as_tensor(head, "head"), output)
    require_read(output, input)
    target = target_of(input, prefix)
    terms = transpose(
        output.op, {output.value_index: Cotangent(head)}, [input], lambda tensor: target
    )
    warn_of_dense_sums(terms)
    group = [site.sum for site in terms]
    return assemble(f"d{input.op.name}", target, [group], dtype=dtype_of(input))
