"""Compiled functions from files.

In: a shared library with a record behind it. Out: the function that it was made from, source and
temporaries' plan aside as they were. What lies in the file is run: read only what you trust.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import InvalidArgumentError, LoweringError
from .compiled import CompiledFunction
from .device import DeviceFunction
from .host import check_host
from .library import DamagedLibraryError, UnloadableError, load_code, split_library
from .threads import check_threads


class _LoadedLibrary:
    """A library read from a file, with the interface of a compiled module."""

    def __init__(self, module: Any) -> None:
        self.mod = module

    def __getitem__(self, name: str) -> Any:
        return self.mod[name]


def loaded(
    data: bytes,
    num_threads: int,
    *,
    folder: Path | None = None,
    recompile: Callable[[], Any] | None = None,
    make: type[CompiledFunction] | None = None,
) -> CompiledFunction:
    """The function in the bytes of a library.

    Parameters
    ----------
    folder : Path, optional
        One to load from where the folder for temporary files does not do.

    Raises
    ------
    DamagedLibraryError, UnloadableError
        The bytes are not whole; no folder does.
    LoweringError
        This machine cannot run the code.
    """
    code, record = split_library(data)
    check_host(record)
    try:
        module = load_code(code, folder)
    except UnloadableError as error:
        if "cuda" not in str(error):
            raise
        raise LoweringError(
            "this library was built for CUDA, and there is no GPU that TVM can use here: "
            "build it with target=None to run it on the CPU"
        ) from None
    if make is None:
        make = DeviceFunction if _holds_kernels(module) else CompiledFunction
    executable = module if record.uses_vm else _LoadedLibrary(module)
    return make(executable, record, num_threads, code=data, recompile=recompile)


def _holds_kernels(module: Any) -> bool:
    return module.kind == "cuda" or any(map(_holds_kernels, module.imports))


def load(path: str | os.PathLike[str], *, num_threads: int | None = None) -> CompiledFunction:
    """Load a function that `CompiledFunction.export` wrote. Its code is run: trust the file.

    Parameters
    ----------
    path : path
        The shared library.
    num_threads : int, optional
        The number of CPU threads to use; all by default.

    Raises
    ------
    InvalidArgumentError
        The file does not exist, is damaged, was not written by `export`, or cannot be loaded from
        the folder for temporary files nor from its own.
    LoweringError
        It was built for a GPU, and there is none; for another architecture, or for a CPU with
        instructions that this one does not have.
    """
    source = Path(path)
    if not source.is_file():
        raise InvalidArgumentError(f"no file {str(path)!r} to load")
    try:
        return loaded(source.read_bytes(), check_threads(num_threads), folder=source.parent)
    except UnloadableError as error:
        raise InvalidArgumentError(
            f"cannot load {str(path)!r} ({error}): set TMPDIR to a folder from which code may run"
        ) from error
    except OSError as error:
        raise InvalidArgumentError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except (DamagedLibraryError, ValueError, KeyError, TypeError) as error:
        raise InvalidArgumentError(
            f"cannot load {str(path)!r}, {error}: CompiledFunction.export must have written it"
        ) from None
