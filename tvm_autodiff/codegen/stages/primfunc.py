"""Makes one TVM function (PrimFunc) from a few stages, ready to be scheduled.

Its parameters are the tensors that the stages read, followed by those they pass on, in buffers of
any alignment. `schedule` decides which stages belong together, and how their loops run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import te, tirx

from ...errors import LoweringError
from ...expr.dtypes import integer_range
from ...expr.nodes import Expr, Tensor, Var, const_value, node_id, op_name, operands, tensor_key
from ...expr.rewrite import expand_lets, postorder, rewrite, variables_of
from ...expr.sharing.lets import bind_shared
from ...graph.free_variables import free_variables
from ...graph.graph import retarget, tensors_read_by
from ...graph.sizes.narrowed import plain_shape, small_placeholder
from ...graph.sizes.never_empty import never_empty
from ...graph.stage import (
    Operation,
    bodies,
    is_compute,
    outputs_of,
    placeholder_like,
    reduction_of,
    reduction_stage,
    shape_of,
    sources_of,
    with_bodies,
)
from ..functions import with_body
from ..passes.indices.function_widths import bounded_function

_EXTERNAL_CALLS = ("call_extern", "call_pure_extern")

PrimFunc = Any  #: a TVM function of loops and buffers


@dataclass(frozen=True)
class Callee:
    """A function that another one calls by the addresses of its arrays.

    Attributes
    ----------
    var : GlobalVar
        The variable in the calls; the module that includes it has its own.
    name : str
    func : PrimFunc
        A function over buffers and sizes; `direct_calls.by_address` makes the function that is
        called.
    only : Var, optional
        As in `StageFunction`.
    callees : tuple of Callee
        The functions that it calls.
    """

    var: Any
    name: str
    func: PrimFunc
    only: Var | None = None
    callees: tuple[Callee, ...] = ()


@dataclass(frozen=True)
class StageFunction:
    """A PrimFunc and the meaning of its parameters, in order: inputs, scalars, outputs.

    Scalars are shape variables that no parameter's shape defines. A function that calls others
    (`callees`) has a free variable, `only`: the number of the one to run, or -1 for all of them.
    `reuses` has pairs of an output and an input whose memory the output may reuse if nothing reads
    the input later.
    """

    func: PrimFunc
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    scalars: tuple[Var, ...] = ()
    callees: tuple[Callee, ...] = ()
    only: Var | None = None
    reuses: tuple[tuple[Tensor, Tensor], ...] = ()


def external_reads(ops: Sequence[Operation]) -> list[Tensor]:
    """The tensors that stages read but none of them computes, in order of first occurrence."""
    own = {hash(op) for op in ops}
    found: dict[tuple[int, int], Tensor] = {}
    for op in ops:
        for tensor in tensors_read_by(op):
            if hash(tensor.op) not in own:
                found.setdefault(tensor_key(tensor), tensor)
    return list(found.values())


class RefusedStageError(LoweringError):
    """TVM cannot make a function of stages."""


def first_line(error: BaseException) -> str:
    """The line of a TVM error that contains its message."""
    lines = [line.strip() for line in str(error).strip().splitlines()]
    told = [line for line in lines if line and not line.startswith(("#", "File ", "Traceback"))]
    chosen = next((line for line in told if "rror" in line), told[-1] if told else "")
    return chosen[:200] or type(error).__name__


def stage_function(
    ops: Sequence[Operation], outputs: Sequence[Tensor], *, wide: bool = False
) -> StageFunction:
    """The unscheduled PrimFunc of some stages, in topological order, which returns `outputs`.

    Every block is named after its stage; names are made unique in order. With `wide`, shapes and
    indices are int64, as in Relax; indices also if a tensor has too many elements for int32.
    """
    inputs = external_reads(ops)
    table: dict[tuple[int, int], Tensor] = {}
    used: set[str] = set()
    for tensor in inputs:
        name = _unique(f"p_{_identifier(tensor.op.name)}", used)
        make = placeholder_like if wide else small_placeholder
        table[tensor_key(tensor)] = make(tensor, name)
    parameters = [table[tensor_key(tensor)] for tensor in inputs]
    for op in ops:
        local = retarget(op, lambda tensor: table.get(tensor_key(tensor)))
        local = never_empty(_lets_once(_not_root(local)))
        for old, new in zip(outputs_of(op), local, strict=True):
            table[tensor_key(old)] = new
    results = [table[tensor_key(tensor)] for tensor in outputs]
    # a schedule may make one loop of all loops over a tensor
    wide = wide or any(map(_is_large, table.values()))
    scalars = _unbound_shape_variables([*parameters, *results], [t.op for t in table.values()])
    try:
        func = te.create_prim_func([*parameters, *scalars, *results], "int64" if wide else None)
    except Exception as error:  # of TVM: there is no telling what it refuses and what it asserts
        names = ", ".join(op.name for op in ops)
        reason = first_line(error)
        raise RefusedStageError(f"TVM cannot lower the stages {names}: {reason}") from error
    # schedules simplify indices, and TVM fails on numbers that do not fit int32
    func = func.without_attr("global_symbol")
    func = func if wide else bounded_function(func)
    return StageFunction(func, tuple(inputs), tuple(outputs), tuple(scalars))


def _is_large(tensor: Tensor) -> bool:
    """Whether a tensor has more elements than int32 counts; symbolic extents count as one."""
    extents = [extent for extent in shape_of(tensor) if isinstance(extent, int)]
    return prod(extents) > integer_range("int32")[1]


def _not_root(tensors: list[Tensor]) -> list[Tensor]:
    """The stage under another name if it is named like TVM's outermost block."""
    op = tensors[0].op
    if op.name != "root" or not is_compute(op):
        return tensors
    return with_bodies(op, bodies(op), name="root_")


def _lets_once(tensors: list[Tensor]) -> list[Tensor]:
    """The stage with every let bound once: TVM rejects a variable that is bound twice.

    A let occurs twice if the node that contains it is shared. It is expanded, and parts that are
    then shared too often are bound anew. What a combiner uses repeatedly has no lets: TVM writes it
    once for each use.
    """
    op = tensors[0].op
    if not is_compute(op):
        return tensors
    reduction = reduction_of(op)
    roots = sources_of(op)
    if not any(op_name(node) == "let" for node in postorder(roots)):
        return tensors
    plain = [expand_lets(root) for root in roots]
    if reduction is None:
        return with_bodies(op, [bind_shared(root) for root in plain])
    fresh = tuple(
        bind_shared(root) if _uses(reduction.combiner.result, var) < 2 else root
        for root, var in zip(plain, reduction.combiner.rhs, strict=True)
    )
    return reduction_stage(op.name, list(op.axis), replace(reduction, sources=fresh))


def _uses(roots: Sequence[Expr], var: Var) -> int:
    """How often a variable occurs in expressions written as trees."""
    uses: dict[int, int] = {node_id(var): 1}
    for node in postorder(list(roots)):
        if node_id(node) not in uses:
            uses[node_id(node)] = sum(uses[node_id(part)] for part in operands(node))
    return sum(uses[node_id(root)] for root in roots)


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name) or "t"


def _unique(name: str, used: set[str]) -> str:
    candidate, number = name, 1
    while candidate in used:
        candidate, number = f"{name}_{number}", number + 1
    used.add(candidate)
    return candidate


def external_symbols(op: Operation) -> list[str]:
    """The C functions that the bodies of a compute stage call by name."""
    if not is_compute(op):
        return []
    calls = (node for node in postorder(bodies(op)) if op_name(node) in _EXTERNAL_CALLS)
    return [str(operands(node)[0].value) for node in calls]


def _unbound_shape_variables(parameters: Sequence[Tensor], ops: Sequence[Operation]) -> list[Var]:
    known = {
        node_id(dim)
        for tensor in parameters
        for dim in shape_of(tensor)
        if not isinstance(dim, int) and op_name(dim) == "var"
    }
    found: dict[int, Var] = {}
    for op in ops:
        for var in free_variables(op):
            if node_id(var) not in known:
                found.setdefault(node_id(var), var)
    return list(found.values())


def relax_alignment(func: PrimFunc) -> PrimFunc:
    """The same function for buffers that are aligned to their elements only.

    TVM assumes 64 bytes. numpy arrays and views do not guarantee that, and the kernel would crash
    the process.
    """
    new: dict[Any, Any] = {}
    parameters = []
    for param in func.params:
        ty = param.ty
        if not hasattr(ty, "shape"):
            parameters.append(param)
            continue
        bits = tvm.DataType(str(ty.dtype)).bits
        buffer = tirx.decl_buffer(
            ty.shape,
            ty.dtype,
            param.name,
            data_alignment=max(1, bits // 8),
            elem_offset=ty.elem_offset,
            layout=ty.layout,
        )
        new[param] = buffer
        parameters.append(buffer)
    body = tvm_ffi.structural_map(func.body, (tirx.Var, lambda var: new.get(var, var)))
    return tirx.PrimFunc(parameters, body, func.ret_type, func.attrs)


def launch_of(
    func: PrimFunc, op: Operation, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> StageFunction:
    """A function ``(*inputs, *outputs)`` that computes a stage.

    Sizes that are not a dimension of these tensors become scalars in between: ``f(x: [n - 1], y: [n
    - 1]) → f(x, n, y)``.
    """
    stages = [*(tensor.op for tensor in inputs), op]
    scalars = _unbound_shape_variables([*inputs, *outputs], stages)
    params = list(func.params)
    whole = [*params[: len(inputs)], *scalars, *params[len(inputs) :]]
    func = with_parameters(func, whole).without_attr("global_symbol")
    return StageFunction(func, tuple(inputs), tuple(outputs), tuple(scalars))


def same_function(left: PrimFunc, right: PrimFunc) -> bool:
    """Whether two functions differ only in the names of their variables."""
    return bool(tvm_ffi.structural_equal(left, right))


def with_parameters(func: PrimFunc, params: Sequence[Any]) -> PrimFunc:
    """The same function with its parameters in another order."""
    return tirx.PrimFunc(list(params), func.body, func.ret_type, func.attrs)


def with_value(func: PrimFunc, var: Var, value: int) -> PrimFunc:
    """A function with a free variable replaced by a number."""
    number, known = tirx.const(value, str(var.ty.dtype)), node_id(var)

    def new(node: Var) -> Expr:
        return number if node_id(node) == known else node

    body = tvm_ffi.structural_map(func.body, (tirx.Var, new))
    return with_body(func, body)


def with_scalars(launch: StageFunction, ops: Sequence[Operation]) -> StageFunction:
    """``f(x: (3*n,)) → f(x, n)``: adds sizes that a function uses and that no parameter has as a
    dimension.

    Loop nests that are written directly may use any sizes.
    """
    if launch.scalars:
        return launch
    dims = [dim for param in launch.func.params for dim in getattr(param.ty, "shape", ())]
    known = {node_id(dim) for dim in dims if op_name(dim) == "var"}
    used = [*variables_of(dims), *tirx.analysis.undefined_vars(launch.func.body, [])]
    sizes = {node_id(var) for var in variables_of(dims)}
    sizes |= {node_id(var) for op in ops for var in free_variables(op)}
    missing = {node_id(var): var for var in used if node_id(var) in sizes - known}
    if not missing:
        return launch
    scalars, first = tuple(missing.values()), len(launch.inputs)
    params = list(launch.func.params)
    func = with_parameters(launch.func, [*params[:first], *scalars, *params[first:]])
    return replace(launch, func=func, scalars=scalars)


def buffer_of(tensor: Tensor, name: str) -> Any:
    """A parameter of the shape and dtype of a tensor, over the variables of its shape."""
    return tirx.decl_buffer(plain_shape(tensor), str(tensor.dtype), name)


def with_sizes_from_shapes(launch: StageFunction, tensors: Sequence[Tensor]) -> StageFunction:
    """``f(x, m, y) → f(x, b, y)``: a tensor b of shape (m, ...) replaces a scalar m.

    A shape may be int32 while Relax passes scalars as int64, and TVM checks that shapes agree.
    """
    if not launch.scalars:
        return launch
    given = {tensor_key(tensor) for tensor in (*launch.inputs, *launch.outputs)}
    carriers: list[Tensor] = []
    known: set[int] = set()
    wanted = list(launch.scalars)
    while wanted:
        var = wanted.pop()
        if node_id(var) in known:
            continue
        carrier = next(
            tensor
            for tensor in tensors
            if any(node_id(dim) == node_id(var) for dim in shape_of(tensor))
        )
        dims = [dim for dim in shape_of(carrier) if not isinstance(dim, int)]
        known |= {node_id(dim) for dim in dims if op_name(dim) == "var"}
        wanted += [other for dim in dims for other in variables_of(dim)]
        if tensor_key(carrier) not in given:
            given.add(tensor_key(carrier))
            carriers.append(carrier)
    first, last = len(launch.inputs), len(launch.func.params) - len(launch.outputs)
    params = list(launch.func.params)
    sizes = [buffer_of(tensor, f"sizes{number}") for number, tensor in enumerate(carriers)]
    func = with_parameters(launch.func, [*params[:first], *sizes, *params[last:]])
    inputs = (*launch.inputs, *carriers)
    return replace(launch, func=func, inputs=inputs, scalars=())


def wide_dimension(dim: Any, symbols: dict[int, Var]) -> Any:
    """A dimension over int64 variables, as Relax requires; `symbols` holds the variables made so
    far.
    """
    if isinstance(dim, int):
        return dim

    def visit(node: Expr) -> Expr | None:
        value = const_value(node)
        if value is not None:
            return tirx.const(int(value), "int64")
        name = op_name(node)
        if name == "var":
            return symbols.setdefault(node_id(node), tirx.Var(node.name, "int64"))
        return operands(node)[0] if name == "cast" else None

    return rewrite(dim, visit)
