"""Gradients of Relax functions beside differences of what TVM itself computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from tests.numeric import assert_close
from tests.without_assertions import without_assertions

Arrays = Sequence[np.ndarray]


def variables(arrays: Arrays, first: Any = None) -> list[relax.Var]:
    """A variable of the type of each array; `first` is the first dimension of those that have the
    size of the first array there.
    """
    size = arrays[0].shape[0] if arrays and arrays[0].ndim else None
    found = []
    for number, array in enumerate(arrays):
        shape = list(array.shape)
        if first is not None and shape and shape[0] == size:
            shape[0] = first
        found.append(relax.Var(f"x{number}", relax.TensorType(shape, str(array.dtype))))
    return found


def is_float_type(type_: Any) -> bool:
    return str(type_.dtype).startswith("float")


def fields_of(type_: Any) -> list[Any]:
    return list(type_.fields) if isinstance(type_, relax.TupleType) else [type_]


def weighted_sum(make: Callable[..., Any], params: Sequence[relax.Var]) -> tvm.IRModule:
    """A module with ``main``: a sum of all that a call computes, each element with a weight."""
    builder = relax.BlockBuilder()
    with builder.function("main", list(params)):
        with builder.dataflow():
            value = builder.emit(make(*params))
            total = relax.const(0.0, "float64")
            for number, type_ in enumerate(fields_of(value.ty)):
                if not is_float_type(type_):
                    continue
                whole = not isinstance(value.ty, relax.TupleType)
                part = value if whole else relax.TupleGetItem(value, number)
                part = builder.emit(relax.op.astype(builder.emit(part), "float64"))
                # y + y·sin(y): no two elements weigh the same
                product = builder.emit(relax.op.multiply(part, builder.emit(relax.op.sin(part))))
                product = builder.emit(relax.op.add(product, part))
                total = builder.emit(relax.op.add(total, builder.emit(relax.op.sum(product))))
            result = builder.emit_output(total)
        builder.emit_func_output(result)
    return builder.get()


def lowering() -> tuple[Any, ...]:
    """TVM's, and no checks of arguments."""
    lower, *finalise = tirx.get_default_tir_pipeline(TARGET)
    return (tvm.transform.Sequential([lower, without_assertions]), *finalise)


#: LLVM does not optimise: what is checked runs a few times
TARGET = tvm.target.Target({"kind": "llvm", "opt-level": 0})
WITHOUT_ASSERTIONS = "tests.without_assertions"
tirx.register_tir_pipeline(WITHOUT_ASSERTIONS, lowering)


def machine(module: tvm.IRModule, *, fuse: bool = False) -> relax.VirtualMachine:
    """The module compiled by TVM, with its own fusion of operators or without."""
    pipeline = relax.get_default_pipeline(TARGET) if fuse else "default"
    built = tvm.compile(module, TARGET, relax_pipeline=pipeline, tir_pipeline=WITHOUT_ASSERTIONS)
    return relax.VirtualMachine(built, tvm.cpu())


def called(vm: relax.VirtualMachine, name: str, arrays: Arrays) -> Any:
    return vm[name](*(tvm.runtime.tensor(np.asarray(array, order="C")) for array in arrays))


def check_gradient(
    module: tvm.IRModule,
    arrays: Arrays,
    rtol: float,
    step: float,
    finish: Callable[[tvm.IRModule], tvm.IRModule] = lambda module: module,
) -> None:
    """Compare ``main_adjoint`` of a module with differences of its ``main``, for each float;
    `finish` is a pass behind that of the gradient.
    """
    check_adjoint(finish(differentiated(module, arrays)), arrays, rtol, step)


def differentiated(module: tvm.IRModule, arrays: Arrays) -> tvm.IRModule:
    """The module with ``main_adjoint``: the gradients of ``main`` by all floats."""
    floats = [n for n, array in enumerate(arrays) if array.dtype.kind == "f"]
    params = [module["main"].params[n] for n in floats]
    return relax.transform.Gradient("main", require_grads=params)(module)


def check_adjoint(module: tvm.IRModule, arrays: Arrays, rtol: float, step: float) -> None:
    """Compare ``main_adjoint`` of a module that was differentiated with differences."""
    floats = [n for n, array in enumerate(arrays) if array.dtype.kind == "f"]
    vm = machine(module)
    gradients = [one.numpy() for one in called(vm, "main_adjoint", arrays)[1]]

    def loss(given: Arrays) -> float:
        return float(called(vm, "main", given).numpy())

    for n, gradient in zip(floats, gradients, strict=True):
        expected = differences(loss, arrays, n, step)
        assert_close(gradient, expected, f"gradient of input {n}", rtol, rtol)


def differences(
    function: Callable[[Arrays], float], arrays: Arrays, n: int, step: float
) -> np.ndarray:
    """Central differences of fourth order by the elements of one array."""
    given = [array.copy() for array in arrays]
    gradient = np.empty(given[n].shape)
    for place in np.ndindex(gradient.shape):
        centre, slope = given[n][place], 0.0
        for offset, weight in ((-2, 1), (-1, -8), (1, 8), (2, -1)):
            given[n][place] = centre + offset * step
            slope += weight * function(given)
        given[n][place] = centre
        gradient[place] = slope / (12 * step)
    return gradient
