"""Compiled functions: calls with arrays of any framework, source, export and load.

In: a compiled TVM module whose function ``main`` takes inputs and then outputs, and its signature.
Out: a callable that checks its arguments, allocates results of the caller's kind, and uses the
wanted number of threads. How tensors become that module is left to `compile`.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from ..errors import CallError, InvalidArgumentError, LoweringError
from .arrays import Array, ArrayKind, kind_of, numpy_dtype, numpy_kind
from .signature import Signature, TensorSpec, dim_value
from .threads import resolve_threads, use_threads

_MAGIC = b"tvm_autodiff.signature.1"


class CompiledFunction:
    """A compiled tensor program, called with arrays.

    Takes numpy arrays, TVM, PyTorch and JAX arrays and anything with DLPack, in any mix, without
    copying them, and returns new arrays of the kind of the first argument: a list, or one array
    when the function was built for a single tensor. ``out=`` gives the arrays to write into
    instead. Calls from several Python threads at once are safe.

    Attributes
    ----------
    signature : Signature
        Names, shapes and dtypes of arguments and results.
    num_threads : int
        The number of CPU threads that the kernels use.
    """

    def __init__(
        self,
        executable: Any,
        signature: Signature,
        num_threads: int,
        *,
        uses_vm: bool,
        parallel: bool = True,
    ) -> None:
        self.signature = signature
        self.num_threads = num_threads
        self._executable = executable
        self._uses_vm = uses_vm
        self._parallel = parallel  # whether any kernel was scheduled for more than one thread
        self._machines = threading.local()  # a virtual machine serves one call at a time
        self._shared: Callable[..., Any] | None = None if uses_vm else executable["main"]
        self._fast = [
            (spec.shape, numpy_dtype(spec.dtype), _is_foreign(spec)) for spec in signature.inputs
        ]
        plain = signature.static and not any(map(_is_foreign, signature.outputs))
        self._plain_results = (
            [(spec.shape, numpy_dtype(spec.dtype)) for spec in signature.outputs] if plain else None
        )

    def __call__(self, *arrays: Array, out: Sequence[Array] | Array | None = None) -> Any:
        """Run the program.

        Parameters
        ----------
        *arrays
            One array for each input, of its shape and dtype, contiguous; numbers for inputs of rank
            0.
        out : sequence of arrays or array, optional
            Arrays to write the results into, one for each output; they are returned.

        Raises
        ------
        CallError
            The number, rank, shape, dtype, layout or device of an array is not as the signature
            says.
        """
        signature = self.signature
        if len(arrays) != len(self._fast):
            signature.check_count(len(arrays))
        sizes: dict[str, int] = {}
        arguments: list[Any] = []
        first: ArrayKind | None = None
        for array, (shape, dtype, foreign), spec in zip(
            arrays, self._fast, signature.inputs, strict=True
        ):
            if (
                type(array) is np.ndarray
                and array.shape == shape
                and array.dtype is dtype
                and not foreign
                and (flags := array.flags).c_contiguous
                and flags.writeable
                and flags.aligned
            ):
                arguments.append(array)
                first = first or numpy_kind()
                continue
            kind, argument = self._argument(array, spec, sizes)
            arguments.append(argument)
            first = first or kind
        if not signature.static:
            self._check_symbols(arrays, sizes)
        follow = first or numpy_kind()
        results: list[Array]
        if out is None and follow is numpy_kind() and self._plain_results is not None:
            results = [np.empty(shape, dtype) for shape, dtype in self._plain_results]
            arguments += results
        elif out is None:
            results = [
                follow.empty(self._result_shape(spec, sizes), spec.dtype)
                for spec in signature.outputs
            ]
            arguments += [follow.borrow(result, True) for result in results]
        else:
            alone = signature.single and not isinstance(out, (list, tuple))
            results = [out] if alone else list(out)
            arguments += self._outputs(results, sizes)
        if self._parallel:
            use_threads(self.num_threads)
        self._function()(*arguments)
        if out is None:
            results = [follow.finish(result) for result in results]
        return results[0] if signature.single else results

    @staticmethod
    def _result_shape(spec: TensorSpec, sizes: dict[str, int]) -> Sequence[int]:
        if spec.static:
            return spec.shape
        return [value for dim in spec.shape if (value := dim_value(dim, sizes)) is not None]

    def _argument(
        self, array: Array, spec: TensorSpec, sizes: dict[str, int]
    ) -> tuple[ArrayKind | None, Any]:
        kind = kind_of(array)
        follow: ArrayKind | None = kind
        if kind is None and isinstance(array, (int, float)) and not spec.shape:
            array, kind, follow = np.asarray(array, numpy_dtype(spec.dtype)), numpy_kind(), None
        if kind is None:
            raise CallError(
                f"argument {spec.name!r} must be an array (numpy, TVM, torch, JAX or DLPack) of "
                f"{spec}, got {type(array).__name__}"
            )
        if isinstance(array, np.generic):
            array = np.asarray(array)
        self._check("argument", kind, array, spec, sizes)
        return follow, kind.borrow(array, False)

    def _outputs(self, arrays: Sequence[Array], sizes: dict[str, int]) -> list[Any]:
        outputs = self.signature.outputs
        if len(arrays) != len(outputs):
            raise CallError(f"out= must hold {len(outputs)} arrays, got {len(arrays)}")
        borrowed = []
        for array, spec in zip(arrays, outputs, strict=True):
            kind = kind_of(array)
            if kind is None or isinstance(array, np.generic):
                raise CallError(
                    f"output {spec.name!r} must be an array that can be written, "
                    f"got {type(array).__name__}"
                )
            self._check("output", kind, array, spec, sizes)
            try:
                borrowed.append(kind.borrow(array, True))
            except CallError as error:
                raise CallError(f"output {spec.name!r}: {error}") from None
        return borrowed

    def _check(
        self, place: str, kind: ArrayKind, array: Array, spec: TensorSpec, sizes: dict[str, int]
    ) -> None:
        shape, dtype = kind.shape_dtype(array)
        self.signature.check_array(place, spec, shape, dtype, sizes)
        problem = kind.problem(array)
        if problem is not None:
            raise CallError(
                f"{place} {spec.name!r} must be contiguous in CPU memory, but has {problem}"
            )

    def _check_symbols(self, arrays: Sequence[Array], sizes: dict[str, int]) -> None:
        # again, now that every symbol is known: shapes like (2*n,) before n was seen
        for array, spec in zip(arrays, self.signature.inputs, strict=True):
            if not spec.static and (kind := kind_of(array)) is not None:
                shape, dtype = kind.shape_dtype(array)
                self.signature.check_array("argument", spec, shape, dtype, sizes)

    def _function(self) -> Callable[..., Any]:
        if self._shared is not None:
            return self._shared
        function = getattr(self._machines, "main", None)
        if function is None:
            machine = relax.VirtualMachine(self._executable, tvm.cpu())
            function = self._machines.main = machine["main"]
        return function

    def source(self, language: str | None = None) -> str:
        """The generated code.

        Parameters
        ----------
        language : {"ll", "asm"}, optional
            LLVM IR (the default) or assembler.

        Raises
        ------
        LoweringError
            The function was loaded from a file, which holds machine code only.
        """
        texts: list[str] = []
        pending = [getattr(self._executable, "mod", self._executable)]
        while pending:
            module = pending.pop(0)
            pending += list(module.imports)
            if module.kind == "llvm":
                texts.append(module.inspect_source(language or "ll"))
            elif module.kind in ("cuda", "opencl", "metal", "vulkan", "rocm"):
                texts.append(module.inspect_source())
        if not texts:
            raise LoweringError(
                "a loaded function holds machine code only: ask the one that was built"
            )
        return "\n".join(texts)

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the function to a shared library that `load` reads, signature included.

        Parameters
        ----------
        path : path
            The file to write; it must end in ``.so`` (``.dylib``, ``.dll``).
        """
        target = Path(path)
        if target.suffix not in (".so", ".dylib", ".dll"):
            raise InvalidArgumentError(
                f"cannot export to {str(path)!r}: it is a shared library, end its name in .so"
            )
        if not hasattr(self._executable, "export_library"):
            raise LoweringError("a loaded function is exported already: copy its file")
        self._executable.export_library(str(target))
        record = {
            "signature": self.signature.to_json(),
            "uses_vm": self._uses_vm,
            "parallel": self._parallel,
        }
        data = json.dumps(record).encode()
        # loaders ignore what follows the sections of a library: the file stays one, and stays
        # loadable
        with open(target, "ab") as file:
            file.write(data + len(data).to_bytes(8, "little") + _MAGIC)

    def __repr__(self) -> str:
        return f"<CompiledFunction {self.signature}>"


def _is_foreign(spec: TensorSpec) -> bool:
    """Whether numpy cannot hand out arrays of it as they are: of a dtype not its own, or empty."""
    return numpy_dtype(spec.dtype).kind not in "fiub" or 0 in spec.shape


class _LoadedLibrary:
    """A library read from a file, with the interface of a compiled module."""

    def __init__(self, module: Any) -> None:
        self.mod = module

    def __getitem__(self, name: str) -> Any:
        return self.mod[name]


def load(path: str | os.PathLike[str], *, num_threads: int | None = None) -> CompiledFunction:
    """Load a function that `CompiledFunction.export` wrote.

    Parameters
    ----------
    path : path
        The shared library.
    num_threads : int, optional
        The number of CPU threads to use; all by default.

    Raises
    ------
    InvalidArgumentError
        The file does not exist, or was not written by `export`.
    """
    source = Path(path)
    if not source.is_file():
        raise InvalidArgumentError(f"no file {str(path)!r} to load")
    data = source.read_bytes()
    if not data.endswith(_MAGIC):
        raise InvalidArgumentError(
            f"{str(path)!r} holds no signature: CompiledFunction.export must have written it"
        )
    end = len(data) - len(_MAGIC) - 8
    size = int.from_bytes(data[end : end + 8], "little")
    record = json.loads(data[end - size : end])
    module = tvm.runtime.load_module(str(source.absolute()))
    uses_vm = record["uses_vm"]
    return CompiledFunction(
        module if uses_vm else _LoadedLibrary(module),
        Signature.from_json(record["signature"]),
        check_threads(num_threads),
        uses_vm=uses_vm,
        parallel=record["parallel"],
    )


def check_threads(num_threads: int | None) -> int:
    """The number of threads for a `num_threads` argument; `InvalidArgumentError` for a bad one."""
    if num_threads is not None and (not isinstance(num_threads, int) or num_threads < 1):
        raise InvalidArgumentError(
            f"num_threads must be a positive integer or None (all CPUs), got {num_threads!r}"
        )
    return resolve_threads(num_threads)
