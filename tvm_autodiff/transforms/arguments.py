"""Checks the arguments of the public functions: tensors, heads and custom derivatives.

Errors name the argument, the tensor and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidArgumentError, NotDifferentiableError
from ..expr.nodes import Tensor, dtype_of, is_expr, is_float, is_tensor, tensor_key
from ..expr.printing.text import text
from ..expr.simplify import prove_equal
from ..graph.graph import Graph, tensors_read_by
from ..graph.kinds.custom import Rule
from ..graph.stage import Extent, shape_of

Manual = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class ByHand:
    """Custom derivatives, keyed by tensor keys."""

    manual: dict[tuple[tuple[int, int], tuple[int, int]], Manual]
    override: dict[tuple[int, int], tuple[Tensor, list[Tensor], Any]]


def as_tensor(value: Any, what: str) -> Tensor:
    """The argument, if it is a te tensor.

    Raises
    ------
    InvalidArgumentError
        For any other value.
    """
    if not is_tensor(value):
        hint = ": a number is a te.placeholder of shape ()" if is_expr(value) else ""
        raise InvalidArgumentError(
            f"{what} must be a te.Tensor (a placeholder or the result of te.compute), "
            f"got {type(value).__name__}{hint}"
        )
    return value


def listed(value: Any, what: str) -> list[Any]:
    """A tensor, None or a sequence of these, as a list.

    Raises
    ------
    InvalidArgumentError
        For any other value.
    """
    if value is None or is_tensor(value):
        return [value]
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        raise InvalidArgumentError(
            f"{what} must be a te.Tensor or a sequence of te.Tensors, got {type(value).__name__}"
        )
    return list(value)


def as_tensors(value: Any, what: str) -> list[Tensor]:
    """A tensor or a sequence of tensors, as a list without duplicates.

    Raises
    ------
    InvalidArgumentError
        If an element is not a tensor, or a tensor is repeated.
    """
    if value is None:
        raise InvalidArgumentError(f"{what} must be a te.Tensor or a sequence of them, got None")
    tensors = [as_tensor(item, f"{what}[{n}]") for n, item in enumerate(listed(value, what))]
    seen: dict[tuple[int, int], int] = {}
    for n, tensor in enumerate(tensors):
        first = seen.setdefault(tensor_key(tensor), n)
        if first != n:
            raise InvalidArgumentError(
                f"{what}[{n}] is tensor {tensor.op.name} again, which is already {what}[{first}]; "
                "pass each tensor once"
            )
    return tensors


def require_float(tensor: Tensor, what: str) -> Tensor:
    """The tensor, if it has a floating point dtype.

    Raises
    ------
    NotDifferentiableError
        If it has another dtype.
    """
    if not is_float(tensor):
        raise NotDifferentiableError(
            f"{what}: tensor {tensor.op.name} has dtype {dtype_of(tensor)}, and only floating "
            "point tensors have derivatives; cast it first, for instance "
            f"{tensor.op.name}.astype('float32')"
        )
    return tensor


def same_extents(left: Sequence[Extent], right: Sequence[Extent]) -> bool:
    """Whether two shapes agree; symbolic extents are compared as expressions."""
    return len(left) == len(right) and all(
        a == b if isinstance(a, int) and isinstance(b, int) else prove_equal(a, b)
        for a, b in zip(left, right, strict=True)
    )


def shape_text(shape: Sequence[Extent]) -> str:
    """A shape as text: ``(2, n)``."""
    inner = ", ".join(str(dim) if isinstance(dim, int) else text(dim) for dim in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"


def prefix_of(head: Tensor, output: Tensor, what: str = "head") -> tuple[Extent, ...]:
    """The leading extents of a cotangent, before the shape of the output; `what` names it.

    Raises
    ------
    InvalidArgumentError
        If the trailing extents differ from those of the output, or the dtypes differ.
    """
    shape, wanted = shape_of(head), shape_of(output)
    cut = len(shape) - len(wanted)
    if cut < 0 or not same_extents(shape[cut:], wanted):
        raise InvalidArgumentError(
            f"{what} {head.op.name} has shape {shape_text(shape)}, which does not end in the shape "
            f"{shape_text(wanted)} of the output {output.op.name}; pass one of shape prefix + "
            f"{shape_text(wanted)}"
        )
    if dtype_of(head) != dtype_of(output):
        raise InvalidArgumentError(
            f"{what} {head.op.name} has dtype {dtype_of(head)}, the output {output.op.name} has "
            f"{dtype_of(output)}; cast it to {dtype_of(output)}"
        )
    return shape[:cut]


def check_derivative(
    value: Any, tensor: Tensor, prefix: Sequence[Extent], who: str, what: str = "adjoint"
) -> Tensor:
    """The result of a custom rule, if it is an adjoint or a tangent of `tensor`.

    Raises
    ------
    InvalidArgumentError
        If it is not a tensor, or has another shape or dtype.
    """
    result = as_tensor(value, f"the result of {who}")
    wanted = (*prefix, *shape_of(tensor))
    if not same_extents(shape_of(result), wanted) or dtype_of(result) != dtype_of(tensor):
        raise InvalidArgumentError(
            f"{who} returned {result.op.name} of shape {shape_text(shape_of(result))} and dtype "
            f"{dtype_of(result)} as {what} of {tensor.op.name}; it must have shape "
            f"{shape_text(wanted)} and dtype {dtype_of(tensor)}"
        )
    return result


def require_like(value: Any, tensor: Tensor, what: str) -> Tensor:
    """The argument, if it is a tensor with the shape and dtype of `tensor`.

    Raises
    ------
    InvalidArgumentError
        If it is not a tensor, or has another shape or dtype.
    """
    given = as_tensor(value, what)
    if not same_extents(shape_of(given), shape_of(tensor)) or dtype_of(given) != dtype_of(tensor):
        raise InvalidArgumentError(
            f"{what} {given.op.name} has shape {shape_text(shape_of(given))} and dtype "
            f"{dtype_of(given)}; {tensor.op.name} has shape {shape_text(shape_of(tensor))} and "
            f"dtype {dtype_of(tensor)}, but they must agree"
        )
    return given


def check_by_hand(
    graph: Graph, manual: Mapping[Any, Any] | None, override: Mapping[Any, Any] | None
) -> ByHand:
    """Check the dictionaries `manual` and `override` of `differentiate` against the graph.

    Raises
    ------
    InvalidArgumentError
        If a key or value has the wrong form, or a tensor does not occur in the graph.
    """
    for name, given in (("manual", manual), ("override", override)):
        if given is not None and not isinstance(given, Mapping):
            raise InvalidArgumentError(f"{name} must be a dictionary, got {type(given).__name__}")
    edges: dict[tuple[tuple[int, int], tuple[int, int]], Manual] = {}
    for key, function in (manual or {}).items():
        if not isinstance(key, tuple) or len(key) != 2 or not callable(function):
            raise InvalidArgumentError(
                "manual maps pairs (out, inp) of tensors to functions f(out, inp, head) -> "
                "adjoint of inp"
            )
        out, inp = (as_tensor(t, "a key of manual") for t in key)
        _require_in_graph(graph, out, "manual")
        if tensor_key(inp) not in {tensor_key(t) for t in tensors_read_by(out.op)}:
            raise InvalidArgumentError(
                f"manual: {out.op.name} does not read {inp.op.name} directly; for tensors further "
                f"apart use override={{{out.op.name}: ([{inp.op.name}], f)}}"
            )
        edges[tensor_key(out), tensor_key(inp)] = function
    replaced: dict[tuple[int, int], tuple[Tensor, list[Tensor], Any]] = {}
    form = "a pair (deps, f) with f(out, deps, head) -> [adjoint of each dep]"
    for key, value in (override or {}).items():
        out = as_tensor(key, "a key of override")
        deps, function = checked_entry(graph, out, value, form)
        replaced[tensor_key(out)] = (out, deps, function)
    return ByHand(edges, replaced)


def checked_entry(
    graph: Graph, out: Tensor, value: Any, form: str
) -> tuple[list[Tensor], Any]:
    """``(deps, f)`` of an override of `out`; `form` describes the required form in messages.

    Raises
    ------
    InvalidArgumentError
        If it has another form, or a tensor does not occur where it should.
    """
    fits = isinstance(value, tuple) and len(value) == 2
    if not fits or not (callable(value[1]) or isinstance(value[1], Rule)):
        raise InvalidArgumentError(f"override[{out.op.name}] must be {form}")
    _require_in_graph(graph, out, "override")
    deps = as_tensors(value[0], f"the deps of override[{out.op.name}]")
    below = Graph([out])
    for dep in deps:
        if not below.contains(dep) or hash(dep.op) == hash(out.op):
            raise InvalidArgumentError(
                f"override[{out.op.name}]: {out.op.name} does not depend on {dep.op.name}"
            )
        require_float(dep, f"override[{out.op.name}]")
    return deps, value[1]


def require_function(function: Any, what: str) -> None:
    """Raise `InvalidArgumentError` unless a custom derivative is callable or None."""
    if function is not None and not callable(function):
        raise InvalidArgumentError(
            f"{what} must be a function f(out, inp, head) -> adjoint of inp, got "
            f"{type(function).__name__}"
        )


def require_read(out: Tensor, inp: Tensor) -> None:
    """Raise `InvalidArgumentError` unless a stage directly reads a tensor."""
    if not any(tensor_key(inp) == tensor_key(tensor) for tensor in tensors_read_by(out.op)):
        raise InvalidArgumentError(
            f"{out.op.name} does not read {inp.op.name} directly; differentiate() follows the "
            "stages in between"
        )


def _require_in_graph(graph: Graph, tensor: Tensor, what: str) -> None:
    if not graph.contains(tensor):
        raise InvalidArgumentError(
            f"{what}: tensor {tensor.op.name} does not occur in the graph of "
            f"{', '.join(t.op.name for t in graph.outputs)}"
        )
