"""Derivatives as linear maps: `linearize`, `linear_transpose`, and `LinearOperator`.

A map is a pair of programs, one for each direction. A matrix exists only after `to_dense`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ...cost import estimate_cost
from ...errors import InvalidArgumentError, NotDifferentiableError
from ...expr.build import add, const, mul
from ...expr.nodes import Tensor, dtype_of, is_tensor, load, tensor_key
from ...graph.bounded_stage import elementwise_stage
from ...graph.graph import Graph
from ...graph.kinds.custom import without_rules
from ...graph.stage import Extent, is_placeholder, outputs_of, placeholder, shape_of
from ...keywords import checked_keywords
from ..arguments import (
    Manual,
    as_tensor,
    as_tensors,
    listed,
    require_float,
    same_extents,
    shape_text,
)
from ..custom_rules.marks import with_hand
from ..differentiate import differentiate
from ..jvp import jvp
from ..vjp import vjp

Program = Callable[[list[Tensor]], list[Tensor]]

#: the maximum size of a dense matrix without allow_large: 2 GiB of float32
MOST_DENSE = 2**29


@dataclass(frozen=True)
class Space:
    """The domain or codomain of a linear map: names, shapes and dtypes of its tensors."""

    names: tuple[str, ...]
    shapes: tuple[tuple[Extent, ...], ...]
    dtypes: tuple[str, ...]

    @staticmethod
    def of(tensors: Sequence[Tensor]) -> Space:
        """The space of some tensors."""
        return Space(
            tuple(tensor.op.name for tensor in tensors),
            tuple(shape_of(tensor) for tensor in tensors),
            tuple(dtype_of(tensor) for tensor in tensors),
        )

    def placeholders(self, suffix: str) -> list[Tensor]:
        """New placeholders in the space."""
        parts = zip(self.names, self.shapes, self.dtypes, strict=True)
        return [placeholder(shape, dtype, name + suffix) for name, shape, dtype in parts]

    def text(self) -> str:
        """Names with dtypes and shapes."""
        parts = zip(self.names, self.shapes, self.dtypes, strict=True)
        return ", ".join(f"{name}: {dtype}{shape_text(shape)}" for name, shape, dtype in parts)

    def fits(self, other: Space) -> bool:
        """Whether the spaces are equal up to names."""
        return (
            self.dtypes == other.dtypes
            and len(self.shapes) == len(other.shapes)
            and all(map(same_extents, self.shapes, other.shapes))
        )


@dataclass(frozen=True)
class Residual:
    """A tensor of the forward pass that the backward pass reads.

    Attributes
    ----------
    tensor : Tensor
        The tensor.
    bytes : int or None
        The memory to keep it, or None for a symbolic shape.
    iterations : int or None
        The iterations to recompute it from the inputs, or None if they are symbolic.
    """

    tensor: Tensor
    bytes: int | None
    iterations: int | None


class LinearOperator:
    """A linear map between tensors, as a program for it and one for its transpose.

    ``J @ v`` applies it to a tensor (or to a list of tensors if it takes several) and returns
    tensors. ``J.T`` is the transpose and ``A @ B`` the composition; ``A + B``, ``A - B``, ``-A``
    and ``2 * A`` are operators as well. Nothing is stored: each application is a new program. Make
    instances with `linearize` and `linear_transpose`.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import linearize, show
    >>> x = te.placeholder((3,), name="x")
    >>> y = te.compute((3,), lambda i: te.exp(x[2 - i]), name="y")
    >>> J = linearize(y, x)
    >>> print(J)
    LinearOperator(x: float32(3,) → y: float32(3,))
    >>> print(show(J.T @ te.placeholder((3,), name="u")))
    inputs  u: float32[3], x: float32[3]
    y[i] = exp(x[2 - i])      float32[3]
    dx[i0] = u[2 - i0]*y[2 - i0]  float32[3]
    """

    def __init__(
        self, domain: Space, codomain: Space, forward: Program, transposed: Program
    ) -> None:
        self.domain = domain
        self.codomain = codomain
        self._forward = forward
        self._transposed = transposed

    def __repr__(self) -> str:
        return f"LinearOperator({self.domain.text()} → {self.codomain.text()})"

    @property
    def shape(self) -> tuple[tuple[tuple[Extent, ...], ...], tuple[tuple[Extent, ...], ...]]:
        """The shapes of the codomain and of the domain."""
        return self.codomain.shapes, self.domain.shapes

    @property
    def T(self) -> LinearOperator:
        """The transpose."""
        return LinearOperator(self.codomain, self.domain, self._transposed, self._forward)

    def __call__(self, *vectors: Tensor) -> list[Tensor]:
        """The image of a member of the domain, as a list.

        Raises
        ------
        InvalidArgumentError
            If the tensors are not in the domain.
        """
        given = [as_tensor(vector, f"operand {n}") for n, vector in enumerate(vectors)]
        if not self.domain.fits(Space.of(given)):
            raise InvalidArgumentError(
                f"the operator takes {self.domain.text()}, but was applied to "
                f"{Space.of(given).text() or 'nothing'}"
            )
        return self._forward(given)

    def __matmul__(self, other: Any) -> Any:
        """The composition with an operator, or the image of tensors.

        The image is one tensor or a list, depending on the codomain.
        """
        if isinstance(other, LinearOperator):
            if not self.domain.fits(other.codomain):
                raise InvalidArgumentError(
                    f"cannot compose: the left operator takes {self.domain.text()}, but the right "
                    f"one returns {other.codomain.text()}"
                )
            return LinearOperator(
                other.domain,
                self.codomain,
                lambda vectors: self._forward(other._forward(vectors)),
                lambda vectors: other._transposed(self._transposed(vectors)),
            )
        found = self(*([other] if is_tensor(other) else listed(other, "the operand of @")))
        return found[0] if len(found) == 1 else found

    def __add__(self, other: LinearOperator) -> LinearOperator:
        if not isinstance(other, LinearOperator):
            return NotImplemented
        if not (self.domain.fits(other.domain) and self.codomain.fits(other.codomain)):
            raise InvalidArgumentError(f"cannot add {self!r} and {other!r}: the spaces differ")
        return LinearOperator(
            self.domain,
            self.codomain,
            lambda v: list(map(_sum, self._forward(v), other._forward(v))),
            lambda v: list(map(_sum, self._transposed(v), other._transposed(v))),
        )

    def __mul__(self, factor: float) -> LinearOperator:
        if isinstance(factor, bool) or not isinstance(factor, (int, float)):
            return NotImplemented
        return LinearOperator(
            self.domain,
            self.codomain,
            lambda v: [_scaled(t, factor) for t in self._forward(v)],
            lambda v: [_scaled(t, factor) for t in self._transposed(v)],
        )

    __rmul__ = __mul__

    def __neg__(self) -> LinearOperator:
        return self * -1.0

    def __sub__(self, other: LinearOperator) -> LinearOperator:
        return self + -other if isinstance(other, LinearOperator) else NotImplemented

    def to_dense(self, *, allow_large: bool = False) -> Any:
        """The matrix of the map, of shape ``codomain shape + domain shape``.

        It is a tensor for a map of one tensor to one. Otherwise it is a list of rows, one for each
        tensor of the codomain, of such tensors.

        Parameters
        ----------
        allow_large : bool
            Whether a tensor may have more than 2²⁹ elements (2 GiB of float32).

        Raises
        ------
        InvalidArgumentError
            If a tensor is larger than that.
        """
        vectors = self.domain.placeholders("_unit")
        images = self._forward(vectors)
        for image, name in zip(images, self.codomain.names, strict=True):
            for vector in vectors:
                require_small((*shape_of(image), *shape_of(vector)), name, allow_large)
        # the product is linear in `vectors`: its derivative is the matrix, and does not read them
        rows = [list(differentiate(image, vectors)) for image in images]
        return rows[0][0] if len(rows) == len(vectors) == 1 else rows

    def residuals(self) -> list[Residual]:
        """The tensors that a forward pass must keep or recompute for the transpose.

        These are the tensors that do not depend on the cotangents but are read by stages that do.

        Returns
        -------
        list of Residual
            In the order in which the forward pass computes them, without inputs.
        """
        cotangents = self.codomain.placeholders("_bar")
        graph = Graph(without_rules(self._transposed(cotangents)))
        moving = graph.depends_on(cotangents)
        found: dict[tuple[int, int], Tensor] = {}
        for op in graph.ops:
            for tensor in graph.reads(op) if hash(op) in moving else ():
                if hash(tensor.op) not in moving and not is_placeholder(tensor.op):
                    found.setdefault(tensor_key(tensor), tensor)
        order = [tensor_key(tensor) for op in graph.ops for tensor in outputs_of(op)]
        return [_residual(found[key]) for key in order if key in found]


def require_small(shape: Sequence[Extent], name: str, allowed: bool) -> None:
    """Raise `InvalidArgumentError` for a dense matrix that is probably larger than intended."""
    if allowed or not all(isinstance(extent, int) for extent in shape):
        return
    count = prod(int(extent) for extent in shape)
    if count > MOST_DENSE:
        raise InvalidArgumentError(
            f"the dense derivative of {name} has {count} elements, shape {shape_text(shape)}: "
            'store only its non-zeros with jacobian(..., format="csr"), apply linearize(...) to '
            "vectors, J @ v or J.T @ u, which stores nothing, or pass allow_large=True"
        )


def _residual(tensor: Tensor) -> Residual:
    shape = shape_of(tensor)
    if not all(isinstance(extent, int) for extent in shape):
        return Residual(tensor, None, None)
    size = 2 if dtype_of(tensor) == "bfloat16" else np.dtype(dtype_of(tensor)).itemsize
    count = estimate_cost([tensor]).iterations
    return Residual(tensor, prod(shape) * size, count if isinstance(count, int) else None)


def _sum(left: Tensor, right: Tensor) -> Tensor:
    name, shape = f"{left.op.name}_sum", shape_of(left)
    return elementwise_stage(name, shape, lambda at: add(load(left, at), load(right, at)))


def _scaled(tensor: Tensor, factor: float) -> Tensor:
    scale = const(factor, dtype_of(tensor))
    return elementwise_stage(
        f"{tensor.op.name}_scaled", shape_of(tensor), lambda place: mul(scale, load(tensor, place))
    )


@checked_keywords
def linearize(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    *,
    manual: Mapping[tuple[Tensor, Tensor], Manual] | None = None,
    override: Mapping[Tensor, Any] | None = None,
    fdiff: Manual | None = None,
) -> LinearOperator:
    """The derivative of outputs with respect to inputs, as a linear map.

    Parameters
    ----------
    outputs, inputs : Tensor or sequence of Tensor
        As in `jvp`.
    manual, override, fdiff : optional
        Custom rules, as in `differentiate`; both modes follow them.

    Returns
    -------
    LinearOperator
        The derivative. ``J @ tangents`` is `jvp` and ``J.T @ cotangents`` is `vjp`; both share the
        outputs' stages.

    Raises
    ------
    NotDifferentiableError
        If an input or output is not floating point. A stage without a rule raises when the operator
        is applied.
    InvalidArgumentError
        If an argument is not a tensor, or there is no output.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import linearize, show
    >>> x = te.placeholder((3,), name="x")
    >>> y = te.compute((3,), lambda i: x[i] * x[2 - i], name="y")
    >>> print(show(linearize(y, x) @ te.placeholder((3,), name="v")))
    inputs  v: float32[3], x: float32[3]
    y_dot[i] = v[i]*x[2 - i] + v[2 - i]*x[i]  float32[3]
    """
    results = [
        require_float(as_tensor(value, f"outputs[{n}]"), "outputs")
        for n, value in enumerate(listed(outputs, "outputs"))
    ]
    if not results:
        raise InvalidArgumentError("outputs is empty: pass at least one tensor to differentiate")
    asked = [require_float(tensor, "inputs") for tensor in as_tensors(inputs, "inputs")]
    results = with_hand(results, asked, manual, override, fdiff)
    return LinearOperator(
        Space.of(asked),
        Space.of(results),
        lambda tangents: jvp(results, asked, tangents),
        lambda cotangents: list(vjp(results, asked, cotangents)),
    )


@checked_keywords
def linear_transpose(
    outputs: Tensor | Sequence[Tensor], inputs: Tensor | Sequence[Tensor]
) -> LinearOperator:
    """The transpose of a program that is linear in some inputs.

    Parameters
    ----------
    outputs, inputs : Tensor or sequence of Tensor
        As in `linearize`. The program must be linear in `inputs` up to a constant. It may depend on
        other tensors in any way.

    Returns
    -------
    LinearOperator
        A map from cotangents of the outputs to those of the inputs. It does not read the inputs.

    Raises
    ------
    NotDifferentiableError
        If the program is not linear in the inputs. The message names the non-linear stages.

    Examples
    --------
    >>> from tvm import te
    >>> from tvm_autodiff import linear_transpose, show
    >>> x, k = te.placeholder((5,), name="x"), te.reduce_axis((0, 3), "k")
    >>> y = te.compute((3,), lambda i: te.sum(x[i + k], axis=k), name="y")
    >>> transposed = linear_transpose(y, x)
    >>> transposed
    LinearOperator(y: float32(3,) → x: float32(5,))
    """
    operator = linearize(outputs, inputs).T
    asked = as_tensors(inputs, "inputs")
    graph = Graph(operator(*operator.domain.placeholders("_bar")))
    nonlinear = graph.depends_on([tensor for tensor in asked if graph.contains(tensor)])
    if nonlinear:
        readers = [op for op in graph.ops if hash(op) in nonlinear]
        first = next(op for op in readers if hash(op) not in {hash(t.op) for t in asked})
        read = next(tensor for tensor in graph.reads(first) if hash(tensor.op) in nonlinear)
        names = ", ".join(tensor.op.name for tensor in asked)
        raise NotDifferentiableError(
            f"the program is not linear in {names}: its derivative reads {read.op.name}, in the "
            f"stage {first.name}. Use linearize(outputs, inputs).T for the transpose of the "
            "derivative at a point"
        )
    return operator
