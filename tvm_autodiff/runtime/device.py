"""Compiled functions whose kernels run on a GPU.

In: a module compiled for CUDA, and its signature. Out: a callable like `CompiledFunction`. Where
there is no GPU, everything works but the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm

from ..errors import CallError, LoweringError
from .arrays import Array
from .compiled import CompiledFunction


class DeviceFunction(CompiledFunction):
    """A tensor program compiled for CUDA, called with arrays."""

    def __call__(self, *arrays: Array, out: Sequence[Array] | Array | None = None) -> Any:
        if not tvm.cuda(0).exist:
            raise CallError(
                "this function was built for CUDA, and there is no GPU that TVM can use here: "
                "build it with target=None to run it on the CPU"
            )
        return super().__call__(*arrays, out=out)

    def source(self, language: str | None = None) -> str:
        """The generated code: CUDA C, or LLVM IR (``"ll"``) or assembler (``"asm"``) of the part
        that runs on the host.

        Raises
        ------
        LoweringError
            The function was loaded from a file, which holds machine code only.
        """
        if language is not None:
            return super().source(language)
        root = getattr(self._executable, "mod", self._executable)
        texts = [m.inspect_source() for m in modules_below(root) if m.kind == "cuda"]
        if not texts:
            raise LoweringError("a loaded function holds machine code only: ask the one built")
        return "\n".join(texts)


def modules_below(root: Any) -> list[Any]:
    """A module and all that it imports."""
    found, pending = [], [root]
    while pending:
        module = pending.pop(0)
        found.append(module)
        pending += list(module.imports)
    return found
