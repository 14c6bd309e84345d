"""Makes modules of functions, and compiles them with TVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import tvm
import tvm_ffi
from tvm import relax
from tvm.error import InternalError
from tvm.ir import GlobalVar

from ..expr.nodes import node_id
from .functions import with_body
from .stages.primfunc import PrimFunc
from .targets import with_llvm_options

Module: TypeAlias = tvm.IRModule
FunctionVar: TypeAlias = GlobalVar  #: what a call within a module names its function by


#: vectors of loops with fewer than 16 turns have a rest in place of masks: of a vector with a mask
#: of one lane, LLVM 22 stores that with the bits that it had before it was narrowed
_NO_MASKS = "-vectorizer-min-trip-count:uint=1"
#: no vectors of statements side by side: where LLVM 22 joins nine functions of bfloat16, it frees
#: memory twice
_NO_SUPERWORDS = "-vectorize-slp:bool=false"


def function_var(name: str) -> FunctionVar:
    """The variable of a function with a given name."""
    return GlobalVar(name)


def with_functions(func: PrimFunc, table: Sequence[tuple[FunctionVar, FunctionVar]]) -> PrimFunc:
    """A function with some of its calls replaced by calls of others."""
    news = {node_id(old): new for old, new in table}

    def new(var: FunctionVar) -> FunctionVar:
        return news.get(node_id(var), var)

    body = tvm_ffi.structural_map(func.body, (GlobalVar, new))
    return with_body(func, body)


def module_of(functions: Mapping[FunctionVar, Any] | Mapping[str, Any]) -> Module:
    """The module of some functions."""
    return tvm.IRModule(dict(functions))


def compiled_module(
    module: Module, target: Any, relax_pipeline: Any = "default", tir_pipeline: Any = "default"
) -> Any:
    """The result of compiling a module; exceptions of TVM's passes and code generators pass
    through.
    """
    target = with_llvm_options(tvm.target.Target(target), _options(module))
    return tvm.compile(
        module, target=target, relax_pipeline=relax_pipeline, tir_pipeline=tir_pipeline
    )


def _options(module: Module) -> list[str]:
    """The options of LLVM without which it writes wrong code, or ends the process."""
    params = (param for func in module.functions.values() for param in func.params)
    of_bits = any("bfloat16" in str(param.ty) for param in params)
    return [_NO_MASKS, _NO_SUPERWORDS] if of_bits else [_NO_MASKS]


def kernels_as_they_are() -> Any:
    """The passes that lower a Relax function and do not change the kernels that it calls.

    TVM's own CUDA pipeline would fuse and reschedule the kernels.
    """
    return tvm.transform.Sequential(
        [
            relax.transform.RewriteDataflowReshape(),
            relax.transform.ToNonDataflow(),
            relax.transform.RemovePurityChecking(),
            relax.transform.CallTIRRewrite(),
            relax.transform.StaticPlanBlockMemory(),
            relax.transform.LowerAllocTensor(),
            relax.transform.KillAfterLastUse(),
            relax.transform.LowerRuntimeBuiltin(),
            relax.transform.ComputePrimValue(),
            relax.transform.VMShapeLower(),
            relax.transform.AttachGlobalSymbol(),
        ]
    )


def only_reshapes(func: PrimFunc) -> bool:
    """Whether a function writes the elements that it reads, in the same order.

    TVM's check fails on transpositions of symbolic dimensions, which are left out, and on copies
    with a dimension like ``n + 2``.
    """
    shapes = [list(map(str, param.ty.shape)) for param in func.params if hasattr(param.ty, "shape")]
    symbolic = not all(size.isdigit() for shape in shapes for size in shape)
    if symbolic and len(shapes) == 2 and shapes[0] != shapes[1]:
        first, last = map(sorted, shapes)
        if first == last:
            return False
    try:
        return bool(relax.analysis.has_reshape_pattern(func))
    except InternalError:  # it cannot divide by the dimension
        return False


def function_hash(func: PrimFunc) -> int:
    """Equal for functions that differ only in the names of their variables."""
    return int(tvm_ffi.structural_hash(func))
