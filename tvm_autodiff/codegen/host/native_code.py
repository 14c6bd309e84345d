"""Compiles functions in LLVM IR to machine code in this process."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm import ir, tirx

from ...errors import LoweringError
from ..modules import compiled_module, module_of
from ..targets import host_target

_ADDRESS = """
define i32 @__tvm_ffi_address_{name}(ptr %self, ptr %args, i32 %count, ptr %result) {{
  store i64 1, ptr %result
  %place = getelementptr i8, ptr %result, i64 8
  store i64 ptrtoint (ptr @{name} to i64), ptr %place
  ret i32 0
}}
"""


def native_functions(names: Sequence[str], text: str) -> tuple[list[int], Any]:
    """The addresses of functions, and the object that owns their machine code.

    Parameters
    ----------
    names : sequence of str
        The names of the functions.
    text : str
        Their definitions in LLVM IR, with everything that they use.

    Raises
    ------
    LoweringError
        If no file can be written into the folder for temporary files.

    Examples
    --------
    >>> import ctypes
    >>> (address,), code = native_functions(["seven"], "define i64 @seven() { ret i64 7 }")
    >>> ctypes.CFUNCTYPE(ctypes.c_int64)(address)()
    7
    """
    # TVM turns functions in imported code into copies for inlining, without addresses; in a loaded
    # module they keep theirs
    addresses = "".join(_ADDRESS.format(name=name) for name in names)
    code = _head() + text + addresses
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "code.ll")
            path.write_text(code, encoding="utf-8")
            module = tvm.runtime.load_module(str(path))
    except OSError as error:
        raise LoweringError(
            f"no file can be written into the folder for temporary files, {tempfile.tempdir} "
            f"({error.strerror or error}): set TMPDIR to a folder with free space"
        ) from error
    return [int(module[f"address_{name}"]()) for name in names], module


@functools.cache
def _head() -> str:
    """The header with the target triple and data layout, which LLVM requires to be this host's."""
    empty = tirx.PrimFunc([], tirx.Evaluate(0), ir.PrimType("void"))
    empty = empty.with_attr("global_symbol", "main")
    module = compiled_module(module_of({"main": empty}), host_target())
    lines = module.mod.inspect_source("ll").splitlines()
    return "\n".join(line for line in lines if line.startswith("target ")) + "\n"
