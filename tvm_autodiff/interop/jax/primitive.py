"""The JAX primitive for a program, and its rules.

Evaluation is a call of XLA's foreign function interface. Both modes, transposition and batching
make new programs of te tensors.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
from jax._src import core, dispatch
from jax._src.interpreters import ad as linearization
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import PartitionSpec

from ...errors import InvalidArgumentError
from ...runtime.arrays import numpy_dtype
from .foreign_call import handler_of
from .program import Program, Spec

program_p = Primitive("tvm_autodiff")
program_p.multiple_results = True
program_p.def_impl(partial(dispatch.apply_primitive, program_p))

#: owns the machine code of programs that XLA knows by name, because XLA never forgets one
_handlers: dict[str, Any] = {}


def bind(*operands: Any, program: Program) -> list[Any]:
    """The outputs of a program; inside `shard_map`, operands vary over the union of their axes."""
    axes = [jax.typeof(operand).manual_axis_type.varying for operand in operands]
    every = frozenset[Any]().union(*axes)
    given = [
        jax.lax.pcast(operand, tuple(sorted(every - own)), to="varying")
        if own != every
        else operand
        for operand, own in zip(operands, axes, strict=True)
    ]
    return program_p.bind(*given, program=program)


def _abstract(*avals: Any, program: Program) -> list[Any]:
    found = [(tuple(aval.shape), str(aval.dtype)) for aval in avals]
    if tuple(found) != program.specs:
        raise InvalidArgumentError(
            f"a program for {_text(program.specs)} is applied to {_text(found)}"
        )
    core.standard_vma_rule("tvm_autodiff", *avals)
    return [_result(shape, numpy_dtype(dtype), avals) for shape, dtype in program.results]


def _result(shape: tuple[int, ...], dtype: Any, avals: Sequence[Any]) -> Any:
    """A result that varies over the same mesh axes as the operands."""
    if not avals or avals[0].manual_axis_type.empty:
        return core.ShapedArray(shape, dtype)
    whole = PartitionSpec(*[None] * len(shape))
    sharding = avals[0].sharding.update(spec=whole)
    manual = avals[0].manual_axis_type
    return core.ShapedArray(shape, dtype, sharding=sharding, manual_axis_type=manual)


def _text(specs: Sequence[Spec]) -> str:
    return ", ".join(f"{dtype}{list(shape)}" for shape, dtype in specs)


def _lowering(context: Any, *operands: Any, program: Program) -> Any:
    name, call = program.name, program.call
    if name not in _handlers:
        address, code = handler_of(call, repr(program))
        jax.ffi.register_ffi_target(name, _capsule(address), platform="cpu")
        _handlers[name] = code
    results = list(context.avals_out)
    if call.workspace:  # of XLA's memory, which it uses again for what follows
        results.append(core.ShapedArray((call.workspace,), numpy_dtype("uint8")))
    found = jax.ffi.ffi_lowering(name)(context.replace(avals_out=results), *operands)
    return found[: len(context.avals_out)]


def _capsule(address: int) -> Any:
    """An address in the form that JAX requires for a handler."""
    return jax.ffi.pycapsule(ctypes.c_void_p(address))


def _no_lowering(context: Any, *operands: Any, program: Program) -> Any:
    raise InvalidArgumentError(
        "tvm_autodiff.interop.jax compiles for CPUs: put the arrays there, with "
        "jax.device_put(x, jax.devices('cpu')[0])"
    )


def _zero(tangent: Any) -> bool:
    return type(tangent) is ad.Zero or tangent.dtype == jax.dtypes.float0


def _zeros_like(output: Any) -> Any:
    return ad.Zero(jax.typeof(output).to_tangent_aval())


def _fill(results: Sequence[Any], specs: Sequence[Spec], outputs: Sequence[Any]) -> list[Any]:
    """Tangents of all outputs, from those of the floating point ones."""
    found = iter(results)
    return [
        next(found) if _is_float(spec) else _zeros_like(output)
        for spec, output in zip(specs, outputs, strict=True)
    ]


def _is_float(spec: Spec) -> bool:
    return "float" in spec[1]


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, program: Program) -> Any:
    moving = tuple(not _zero(tangent) for tangent in tangents)
    outputs = bind(*primals, program=program)
    given = [tangent for tangent, moves in zip(tangents, moving, strict=True) if moves]
    if not any(moving) or not any(map(_is_float, program.results)):
        return outputs, [_zeros_like(output) for output in outputs]
    found = bind(*primals, *given, program=program.pushforward(moving))
    return outputs, _fill(found, program.results, outputs)


def _linearized(
    reverse: bool, moving: Sequence[bool], *primals: Any, program: Program
) -> tuple[Any, ...]:
    """The outputs, which of them have tangents, residuals, and the derivative as a function of
    these.
    """
    moves = tuple(m and _is_float(s) for m, s in zip(moving, program.specs, strict=True))
    floats = [_is_float(spec) for spec in program.results]
    if not any(moves) or not any(floats):
        outputs = bind(*primals, program=program)
        zeros = [_zeros_like(output) for output in outputs]
        return outputs, [False] * len(outputs), [], lambda residuals, *tangents: zeros
    parts = program.split(moves, reverse)
    results = bind(*primals, program=parts.first)
    outputs = results[: len(program.results)]
    residuals = [*(primals[n] for n in parts.passed), *(results[n] for n in parts.kept)]

    def derivative(residuals: Sequence[Any], *tangents: Any) -> list[Any]:
        given = [
            ad.instantiate_zeros(tangent) for tangent, m in zip(tangents, moves, strict=True) if m
        ]
        found = bind(*residuals, *given, program=parts.linear)
        return _fill(found, program.results, outputs)

    return outputs, floats, residuals, derivative


def _transpose(cotangents: Sequence[Any], *operands: Any, program: Program) -> list[Any]:
    unknown = tuple(map(ad.is_undefined_primal, operands))
    given = tuple(type(cotangent) is not ad.Zero for cotangent in cotangents)
    if not any(given):
        return [ad.Zero(x.aval) if u else None for x, u in zip(operands, unknown, strict=True)]
    known = [operand for operand, u in zip(operands, unknown, strict=True) if not u]
    heads = [cotangent for cotangent, g in zip(cotangents, given, strict=True) if g]
    found = iter(bind(*known, *heads, program=program.transposed(unknown, given)))
    return [next(found) if u else None for u in unknown]


def _batch(
    operands: Sequence[Any], axes: Sequence[Any], *, program: Program
) -> tuple[Any, list[int]]:
    mapped = tuple(axis is not None for axis in axes)
    size = next(
        operand.shape[axis] for operand, axis, m in zip(operands, axes, mapped, strict=True) if m
    )
    given = [
        jax.numpy.moveaxis(operand, axis, 0) if m else operand
        for operand, axis, m in zip(operands, axes, mapped, strict=True)
    ]
    outputs = bind(*given, program=program.batched(mapped, size))
    return outputs, [0] * len(outputs)


program_p.def_abstract_eval(_abstract)
mlir.register_lowering(program_p, _lowering, platform="cpu")
mlir.register_lowering(program_p, _no_lowering)
ad.primitive_jvps[program_p] = _jvp
ad.primitive_transposes[program_p] = _transpose
linearization.primitive_linearizations[program_p] = _linearized
batching.primitive_batchers[program_p] = _batch
