"""The manifest of a program: what its calls check, allocate and run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..codegen.host.workspace import PlannedStorage, Temporary
from ..expr.nodes import Tensor, node_id, op_name, tensor_key
from ..expr.rewrite import variables_of
from ..graph.graph import Graph
from ..graph.kinds.rewind import Rewind
from ..graph.loop_plans import loops_back, size_of_state
from ..graph.size_limits import size_limits
from ..graph.stage import Extent, Operation, shape_of
from ..runtime.calls.signature import Dim, Signature
from ..runtime.calls.tensor_signature import dimension_of
from ..runtime.files.host import needs_of
from ..runtime.files.manifest import (
    Launch,
    Limit,
    LoopBack,
    Manifest,
    SizePart,
    Sizes,
    Storage,
)
from ..schedule.compilation import Compiled
from ..schedule.emit.direct import CallSizes
from ..schedule.size_parts import Plans
from ..schedule.slow_kernels import notice_of
from ..schedule.work import operations, traffic
from .request import Request


def manifest_of(request: Request, done: Compiled, plans: Plans) -> Manifest:
    """The manifest of a request, for the finished module and its plans."""
    plan = plans.usual
    signature, program = request.signature, done.program
    symbols: dict[int, Dim] = {}
    for spec, shape in zip((*signature.inputs, *signature.outputs), done.shapes, strict=False):
        for dim, expr in zip(spec.shape, shape, strict=True):
            if not isinstance(dim, int) and op_name(expr) == "var":
                symbols.setdefault(node_id(expr), dim)

    def size_of(storage: PlannedStorage) -> Dim:
        size = storage.size
        return size if isinstance(size, int) else dimension_of(size, symbols)

    places = {tensor_key(tensor): number for number, tensor in enumerate(request.inputs)}
    rows = [
        (one, name if one is step else one.kernel.name)
        for step, name in zip(program.steps, program.names, strict=True)
        # a virtual machine cannot see the calls inside a loop
        for one in ((step,) if program.uses_vm or not step.inner else step.inner)
    ]
    kernels = {id(step.kernel): step.kernel for step, _ in rows}
    numbers = {key: number for number, key in enumerate(kernels)}
    return Manifest(
        signature,
        tuple(places[tensor_key(old)] for old, _ in request.updates),
        tuple(
            Launch(
                name,
                step.kernel.name,
                numbers[id(step.kernel)],
                step.rule,
                operations(step.kernel),
                traffic(step.launch),
                step.reasons,
                step.calls,
            )
            for step, name in rows
        ),
        tuple(Storage(size_of(storage), tuple(storage.tensors)) for storage in done.storages),
        program.uses_vm,
        plan.machine.threads > 1,
        None if program.workspace is None else program.workspace.size,
        notice_of(plan.scheduled, plan.machine),
        str(plan.machine.target),
        *needs_of(plan.machine.target),
        tuple(_loop_back(request, *found) for found in loops_back(plan.results)),
        None if program.sizes is None else _sizes_of(signature, plan.inputs, program.sizes),
        _limits_of(request),
    )


def _sizes_of(signature: Signature, inputs: Sequence[Tensor], sizes: CallSizes) -> Sizes:
    """What the table of a call holds, in the symbols of the signature."""
    symbols = {
        node_id(expr): dim
        for spec, tensor in zip(signature.inputs, inputs, strict=True)
        for dim, expr in zip(spec.shape, shape_of(tensor), strict=True)
        if not isinstance(expr, int) and op_name(expr) == "var"
    }
    temporaries = tuple(
        Temporary(one.name, dimension_of(one.size, symbols), one.first, one.last)
        for one in sizes.temporaries
    )
    parts = tuple(
        SizePart(0, 0, 1, one.launches, one.temporaries)
        if one.when is None
        else SizePart(
            dimension_of(one.when.size, symbols),
            one.when.low,
            one.when.high,
            one.launches,
            one.temporaries,
        )
        for one in sizes.parts
    )
    values = tuple(symbols[node_id(var)] for var in sizes.variables)
    return Sizes(values, temporaries, parts)


def _limits_of(request: Request) -> tuple[Limit, ...]:
    """What the sizes of a call have to satisfy, in the symbols of the signature."""
    wanted = [*request.outputs, *(new for _, new in request.updates)]
    told = _told_by(request)
    found = []
    for one in size_limits(Graph(wanted).ops):
        least, most, dim = (told(end) for end in (one.least, one.most, one.dim))
        loops = tuple(loop for loop in map(told, one.loops) if loop is not None)
        if least is None or most is None or dim is None or len(loops) < len(one.loops):
            continue
        found.append(Limit(one.stage, one.tensor, most, dim, loops, least))
    return tuple(found)


def _loop_back(request: Request, op: Operation, rewind: Rewind) -> LoopBack:
    """The plan of a reverse loop, in the symbols of the signature."""
    told, length, state = _told_by(request), rewind.ahead.length, size_of_state(rewind)
    return LoopBack(str(op.name), told(length), rewind.slots, told(state))


def _told_by(request: Request) -> Callable[[Extent], Dim | None]:
    """Extents in the symbols of the signature; None for those with others."""
    specs = (*request.signature.inputs, *request.signature.outputs)
    symbols = {
        node_id(expr): dim
        for spec, tensor in zip(specs, (*request.inputs, *request.outputs), strict=True)
        for dim, expr in zip(spec.shape, shape_of(tensor), strict=True)
        if not isinstance(expr, int) and op_name(expr) == "var"
    }

    def told(extent: Extent) -> Dim | None:
        symbolic = [] if isinstance(extent, int) else variables_of([extent])
        known = all(node_id(var) in symbols for var in symbolic)
        return dimension_of(extent, dict(symbols)) if known else None

    return told
