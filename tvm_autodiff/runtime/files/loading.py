"""`load`: makes compiled functions from files.

The code in a file is executed, so read only files that you trust.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import InvalidArgumentError, LoweringError
from ...keywords import checked_keywords
from ..compiled import CompiledFunction
from ..device import DeviceFunction
from ..threads import check_threads
from .export import Standalone
from .host import check_host
from .library import DamagedLibraryError, UnloadableError, load_code, split_library


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
    standalone: Standalone | None = None,
    make: type[CompiledFunction] | None = None,
) -> CompiledFunction:
    """The function in the bytes of a library.

    Parameters
    ----------
    folder : Path, optional
        A folder to load from if the folder for temporary files cannot be used.

    Raises
    ------
    DamagedLibraryError, UnloadableError
        If the bytes are damaged, or no folder can be used.
    LoweringError
        If this machine cannot run the code.
    """
    code, manifest = split_library(data)
    check_host(manifest)
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
    executable = module if manifest.uses_vm else _LoadedLibrary(module)
    return make(
        executable, manifest, num_threads, code=data, recompile=recompile, standalone=standalone
    )


def _holds_kernels(module: Any) -> bool:
    return module.kind == "cuda" or any(map(_holds_kernels, module.imports))


@checked_keywords
def load(path: str | os.PathLike[str], *, num_threads: int | None = None) -> CompiledFunction:
    """Load a function that `CompiledFunction.export` wrote.

    The code in the file is executed, so load only files that you trust.

    Parameters
    ----------
    path : path
        The shared library.
    num_threads : int, optional
        The number of CPU threads, as for `build`.

    Returns
    -------
    CompiledFunction or DeviceFunction
        The function, for a CPU or a GPU.

    Raises
    ------
    InvalidArgumentError
        If the file does not exist, is damaged, was not written by `export`, or cannot be loaded
        from the folder for temporary files or its own folder.
    LoweringError
        If it was built for a GPU and there is none, for another architecture, or for a CPU with
        instructions that this one does not have.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from tvm import te
    >>> from tvm_autodiff import build, load
    >>> a = te.placeholder((2,), name="a")
    >>> double = build(a, te.compute((2,), lambda i: a[i] * 2.0, name="b"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     double.export(os.path.join(folder, "double.so"))
    ...     again = load(os.path.join(folder, "double.so"))
    >>> again(np.ones(2, "float32"))
    array([2., 2.], dtype=float32)
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidArgumentError(f"path must be that of a file, got {type(path).__name__}")
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
