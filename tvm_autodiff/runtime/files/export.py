"""Exports compiled functions as shared libraries for processes with or without this library."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ...codegen.host.call_check import call_table
from ...codegen.host.direct_calls import check_module
from ...codegen.host.standalone import standalone_source
from ...codegen.targets import target_from
from ...errors import InvalidArgumentError, LoweringError
from .library import SUFFIXES, LinkError, library_bytes, write_whole
from .manifest import Manifest

#: gives the module and the manifest of a program that takes arrays only
Standalone: TypeAlias = Callable[[], tuple[Any, Manifest]]


def table_of(manifest: Manifest) -> np.ndarray:
    """The array table of a direct program."""
    specs = (*manifest.signature.inputs, *manifest.signature.outputs)
    results = range(len(manifest.signature.inputs), len(specs))
    return call_table([(spec.dtype, spec.shape) for spec in specs], {*manifest.updated, *results})


def exportable_path(path: str | os.PathLike[str]) -> Path:
    """The checked path of a library.

    Raises
    ------
    InvalidArgumentError
        If it does not end like the name of a library.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidArgumentError(f"path must be that of a file, got {type(path).__name__}")
    target = Path(path)
    if target.suffix not in SUFFIXES:
        raise InvalidArgumentError(
            f"cannot export to {str(path)!r}: the name of a shared library must end in .so"
        )
    return target


def for_arrays_alone(
    executable: Any, manifest: Manifest, standalone: Standalone | None
) -> tuple[Any, Manifest]:
    """The module to export, with its manifest.

    A kernel that is called with a table of its symbolic sizes is compiled again without one: the
    function `run` takes only arrays.
    """
    if manifest.sizes is None or standalone is None:
        return executable, manifest
    parts = manifest.sizes.parts
    if (parts[-1].launches if parts else len(manifest.launches)) > 1:
        return executable, manifest
    found = standalone()
    return (executable, manifest) if found[1].uses_vm else found


def linked(executable: Any, manifest: Manifest, threads: int, path: Path) -> bytes:
    """The bytes of a library with a function `run` that takes only the arrays.

    Raises
    ------
    LoweringError
        If there is no C compiler to link with.
    """
    source: str | None = None
    more: list[Any] = []
    alone = not manifest.uses_vm and manifest.sizes is None
    if alone and manifest.target.find("cuda") < 0:  # the others need TVM in any case
        direct = manifest.workspace is not None
        source = standalone_source(
            str(manifest.signature),
            manifest.target,
            manifest.features,
            threads if manifest.parallel else 1,
            table_of(manifest) if direct else None,
            manifest.workspace or 0,
        )
        if direct:
            more.append(check_module(target_from(manifest.target)))
    try:
        return library_bytes(executable, manifest, source, more)
    except LinkError as error:
        raise LoweringError(
            f"cannot link {str(path)!r} ({error}): install a C compiler, or set CXX to one"
        ) from error


def write(path: Path, data: bytes) -> None:
    """Write a library.

    Raises
    ------
    InvalidArgumentError
        If the file cannot be written.
    """
    try:
        write_whole(path, data)
    except OSError as error:
        raise InvalidArgumentError(
            f"cannot write {str(path)!r}: {error.strerror or error}"
        ) from error
