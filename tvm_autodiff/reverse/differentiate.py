"""`differentiate` and its short forms: what users call.

In: an output tensor, the tensors to differentiate by, a cotangent (`head`), and derivatives given
by hand. Out: a `DifferentiationResult` with the adjoints as te tensors, ready to be lowered or
differentiated again. Arguments are checked here; the work is `sweep`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.graph import Graph
from ..ir.nodes import Tensor, dtype_of
from ..ir.stage import (
    shape_of,
)
from ..zero_elimination.assemble import assemble
from ..zero_elimination.gather import Cotangent
from ..zero_elimination.transpose import target_of, transpose
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
from .explain import warn_of_dense_sums
from .result import DifferentiationResult
from .sweep import Sweep


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
        What is differentiated; floating point.
    inputs : Tensor, sequence of Tensor or None
        What to differentiate by: placeholders or intermediate tensors, floating point. None asks
        for the adjoints of all tensors, in the result's ``.adjoints``.
    head : Tensor or None
        Cotangent of shape ``prefix + output.shape`` and of the output's dtype; the adjoint of `t`
        then has shape ``prefix + t.shape``. None is the identity: the gradient of a scalar, the
        Jacobian of a tensor.
    manual : mapping from (out, inp) to callable, optional
        ``f(out, inp, head)`` gives the adjoint of `inp` by way of `out` in place of the rule of
        this edge; ``head`` is the adjoint of `out`.
    override : mapping from out to (deps, callable), optional
        ``f(out, deps, head)`` gives the adjoints of `deps`, which need not be read by `out`
        directly, in place of everything between.
    fdiff : callable, optional
        ``fdiff(out, inp, head)`` replaces the default rule on every edge; see `pullback`.

    Returns
    -------
    DifferentiationResult
        A sequence of the adjoints of `inputs`, with ``.adjoints`` and ``.adjoint_summands``. An
        input that the output does not depend on has zeros.

    Raises
    ------
    NotDifferentiableError
        A tensor is not floating point, or a stage on the way is opaque or has no rule.
    InvalidArgumentError
        An argument has the wrong form, shape or dtype.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import differentiate, show
    >>> x = te.placeholder((3,), name="x")
    >>> k = te.reduce_axis((0, 3), name="k")
    >>> y = te.compute((), lambda: te.sum(x[k] * x[k], axis=k), name="y")
    >>> [dx] = differentiate(y, [x])
    >>> len(dx.shape)
    1

    References
    ----------
    apache/tvm issue 1996, "Automatic differentiation for tensor expressions".
    """
    output = require_float(as_tensor(output, "output"), "output")
    asked = None if inputs is None else as_tensors(inputs, "inputs")
    for tensor in asked or []:
        require_float(tensor, "inputs")
    prefix = shape_of(output) if head is None else prefix_of(as_tensor(head, "head"), output)
    by_hand = check_by_hand(Graph([output]), manual, override)
    require_function(fdiff, "fdiff")
    sweep = Sweep(output, asked, Cotangent(head), prefix, by_hand, fdiff)
    warn_of_dense_sums(sweep.sites, stacklevel=2)
    return sweep.result()


def gradient(
    output: Tensor, inputs: Tensor | Sequence[Tensor], head: Tensor | None = None
) -> list[Tensor]:
    """The adjoints of `inputs` as a list: call-compatible with the ``te.gradient`` that TVM
    removed.

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


def pullback(output: Tensor, input: Tensor, head: Tensor) -> Tensor:
    """The adjoint of `input` by the reads of `output`'s own stage alone, with the default rule.

    The building block for `manual` and `fdiff`: unlike `differentiate` it follows no other path.

    Parameters
    ----------
    output, input : Tensor
        A compute stage and a tensor that it reads.
    head : Tensor
        Cotangent of shape ``prefix + output.shape``.

    Returns
    -------
    Tensor
        Of shape ``prefix + input.shape``.

    Raises
    ------
    NotDifferentiableError
        A tensor is not floating point, or the stage is opaque or has no rule.
    InvalidArgumentError
        `output` does not read `input`, or the head has another shape or dtype.

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
    warn_of_dense_sums(terms, stacklevel=2)
    group = [site.gathered for site in terms]
    return assemble(f"d{input.op.name}", target, [group], dtype=dtype_of(input))
