"""Full derivatives as tensors: `jacobian`, `hessian`, and `hvp`, a product with a Hessian."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from ...cost import estimate_cost
from ...errors import InvalidArgumentError
from ...expr.nodes import Tensor, dtype_of, load
from ...graph.bounded_stage import elementwise_stage
from ...graph.graph import Graph
from ...graph.stage import is_compute, placeholder, placeholder_like, shape_of
from ...keywords import checked_keywords
from ...sparse import SparseMatrix
from ...zero_elimination import inline_tensors, simplify_reductions
from ..arguments import Manual, as_tensor, as_tensors, require_float, shape_text
from ..batch import batch_of_tensors
from ..custom_rules.marks import with_hand
from ..differentiate import differentiate
from ..jvp import jvp
from ..sweep import identity
from .linear_operator import require_small
from .sparse_jacobian import sparse_jacobian

_MODES = ("auto", "forward", "reverse")


@checked_keywords
def jacobian(
    output: Tensor,
    input: Tensor,
    *,
    mode: str = "auto",
    format: str = "dense",
    allow_large: bool = False,
    manual: Mapping[tuple[Tensor, Tensor], Manual] | None = None,
    override: Mapping[Tensor, Any] | None = None,
    fdiff: Manual | None = None,
) -> Tensor | SparseMatrix:
    """The derivative of a tensor with respect to another, as a dense tensor or a sparse matrix.

    Parameters
    ----------
    output, input : Tensor
        Floating point tensors. The input may be an intermediate tensor.
    mode : str
        ``"reverse"`` uses reverse mode and ``"forward"`` forward mode. ``"auto"`` takes the one
        with fewer iterations. Sparse formats choose the method themselves.
    format : {"dense", "csr", "csc", "coo"}
        Whether all entries are computed, or only those that may be non-zero.
    allow_large : bool
        Whether a dense result may have more than 2²⁹ elements (2 GiB of float32).
    manual, override, fdiff : optional
        Custom rules, as in `differentiate`. Both modes follow them.

    Returns
    -------
    Tensor or SparseMatrix
        A dense result has shape ``output.shape + input.shape``. A sparse result is a matrix with a
        row for each element of the output and a column for each element of the input, both in
        row-major order. `build` accepts it as an output, and the compiled function returns a
        scipy.sparse matrix.

    Raises
    ------
    NotDifferentiableError
        If a tensor is not floating point, or a stage is opaque or has no rule.
    InvalidArgumentError
        If the result is too large, or the mode or the format is unknown.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import jacobian, show
    >>> x, k = te.placeholder((5,), name="x"), te.reduce_axis((0, 3), "k")
    >>> y = te.compute((3,), lambda i: te.sum(x[i + k] * x[i + k], axis=k), name="y")
    >>> print(show(jacobian(y, x)))
    inputs  x: float32[5]
    dy_dx[p0, i0] = if p0 <= i0 and i0 <= p0 + 2 then 2.0*x[i0] else 0.0  float32[3, 5]
    """
    output = require_float(as_tensor(output, "output"), "output")
    input = require_float(as_tensor(input, "input"), "input")
    if mode not in _MODES:
        raise InvalidArgumentError(f"mode must be one of {', '.join(_MODES)}, got {mode!r}")
    [output] = with_hand([output], [input], manual, override, fdiff)
    if format != "dense":
        return sparse_jacobian(output, input, format)
    require_small((*shape_of(output), *shape_of(input)), output.op.name, allow_large)
    if mode == "reverse" or (mode == "auto" and not _forward_may_win(output, input)):
        return differentiate(output, [input])[0]
    forward = _forward(output, input)
    if mode == "forward":
        return forward
    reverse = differentiate(output, [input])[0]
    costs = [estimate_cost([tensor]).iterations for tensor in (reverse, forward)]
    if not all(isinstance(cost, int) for cost in costs):
        return reverse  # bounds are data
    return reverse if costs[0] <= costs[1] else forward


def _forward_may_win(output: Tensor, input: Tensor) -> bool:
    """Whether there are fewer columns than rows, with all numbers known."""
    shapes = (*shape_of(output), *shape_of(input))
    if not all(isinstance(extent, int) for extent in shapes):
        return False
    return prod(shape_of(input)) < prod(shape_of(output))


def _forward(output: Tensor, input: Tensor) -> Tensor:
    """The tangents along all units at once, without sums over the zeros of the units."""
    units = identity(input)
    tangent = placeholder_like(input, f"{input.op.name}_unit")
    [result] = jvp(output, input, tangent)
    rank = len(shape_of(input))
    for axis in reversed(range(rank)):
        batch = shape_of(units)[axis:]
        wider = units if axis == 0 else placeholder(batch, dtype_of(input), f"units{axis}")
        [result] = batch_of_tensors([result], [(tangent, wider)], batch[0])
        tangent = wider
    readers = Graph([result]).consumers(units)
    # an output without a derivative reads no unit, and a loop nest has no expression for one
    if readers and all(map(is_compute, readers)):
        [result] = inline_tensors([result], [units])
    [result] = simplify_reductions([result])
    extents = shape_of(result)
    order = [*range(rank, len(extents)), *range(rank)]
    moved = elementwise_stage(
        f"d{output.op.name}_d{input.op.name}",
        [extents[old] for old in order],
        lambda place: load(result, [place[order.index(n)] for n in range(len(order))]),
    )
    plain = is_compute(result.op) and result.op.num_outputs == 1
    return inline_tensors([moved], [result])[0] if plain else moved


@checked_keywords
def hessian(
    output: Tensor,
    input: Tensor,
    *,
    format: str = "dense",
    allow_large: bool = False,
    manual: Mapping[tuple[Tensor, Tensor], Manual] | None = None,
    override: Mapping[Tensor, Any] | None = None,
    fdiff: Manual | None = None,
) -> Tensor | SparseMatrix:
    """The second derivative of a scalar with respect to a tensor, as a dense tensor or a sparse
    matrix.

    Parameters
    ----------
    output : Tensor
        A scalar, of shape ``()``.
    input : Tensor
        The tensor to differentiate with respect to, twice.
    format, allow_large, manual, override, fdiff : optional
        As in `jacobian`. A sparse Hessian computes only the entries on one side of the diagonal if
        the pattern allows it.

    Returns
    -------
    Tensor or SparseMatrix
        A dense result of shape ``input.shape + input.shape``, or a sparse one as in `jacobian`.

    Raises
    ------
    NotDifferentiableError, InvalidArgumentError
        As in `jacobian`, and if the output is not a scalar.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import hessian, show
    >>> x, a = te.placeholder((3,), name="x"), te.placeholder((3, 3), name="A")
    >>> i, j = te.reduce_axis((0, 3), "i"), te.reduce_axis((0, 3), "j")
    >>> y = te.compute((), lambda: te.sum(x[i] * a[i, j] * x[j], axis=[i, j]), name="y")
    >>> print(show(hessian(y, x)))
    inputs  A: float32[3, 3]
    ddx_dx[p0, i0] = A[i0, p0] + A[p0, i0]  float32[3, 3]
    """
    output, input = _scalar(output), as_tensor(input, "input")
    [output] = with_hand([output], [input], manual, override, fdiff)
    gradient = differentiate(output, [input])[0]
    if format != "dense":
        return sparse_jacobian(gradient, input, format, symmetric=True)
    return jacobian(gradient, input, allow_large=allow_large)


@checked_keywords
def hvp(
    output: Tensor,
    inputs: Tensor | Sequence[Tensor],
    vectors: Tensor | Sequence[Tensor],
    *,
    manual: Mapping[tuple[Tensor, Tensor], Manual] | None = None,
    override: Mapping[Tensor, Any] | None = None,
    fdiff: Manual | None = None,
) -> list[Tensor]:
    """The Hessian of a scalar times vectors, computed forward over reverse without storing the
    Hessian.

    Parameters
    ----------
    output : Tensor
        A scalar, of shape ``()``.
    inputs : Tensor or sequence of Tensor
        The tensors to differentiate with respect to.
    vectors : Tensor or sequence of Tensor
        One vector for each input, of its shape and dtype.
    manual, override, fdiff : optional
        Custom rules, as in `differentiate`. Both modes follow them.

    Returns
    -------
    list of Tensor
        ``Σ_j (∂² output / ∂ inputs[i] ∂ inputs[j]) · vectors[j]`` for each input i.

    Raises
    ------
    NotDifferentiableError, InvalidArgumentError
        As in `jvp`, and if the output is not a scalar.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import hvp, show
    >>> x, k = te.placeholder((3,), name="x"), te.reduce_axis((0, 3), "k")
    >>> y = te.compute((), lambda: te.sum(te.exp(x[k]), axis=k), name="y")
    >>> print(show(hvp(y, x, te.placeholder((3,), name="v"))))
    inputs  v: float32[3], x: float32[3]
    dx[i0] = exp(x[i0])        float32[3]
    dx_dot[i0] = v[i0]*dx[i0]  float32[3]
    """
    asked = as_tensors(inputs, "inputs")
    [output] = with_hand([_scalar(output)], asked, manual, override, fdiff)
    return jvp(list(differentiate(output, asked)), asked, vectors)


def _scalar(output: Tensor) -> Tensor:
    output = require_float(as_tensor(output, "output"), "output")
    if len(shape_of(output)) != 0:
        raise InvalidArgumentError(
            f"output {output.op.name} has shape {shape_text(shape_of(output))}; a Hessian needs a "
            "scalar, of shape (): sum the tensor with suitable weights"
        )
    return output
