"""The file format of compiled programs: a shared library followed by its manifest and a digest.

Loaders of libraries ignore what follows the last section, so one file is sufficient. The digest
prevents damaged files from being executed. Code is loaded unchecked: read only files that you
trust.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...codegen.stages.primfunc import first_line
from .. import modules
from .manifest import Manifest

SUFFIXES = (".so", ".dylib", ".dll")

_MAGIC = b"tvm_autodiff.library.6"
_DIGEST_BYTES = hashlib.sha256().digest_size
_TAIL_BYTES = 8 + _DIGEST_BYTES + len(_MAGIC)


class DamagedLibraryError(Exception):
    """A file is not in the format of `library_bytes`."""


class LinkError(Exception):
    """Compiled code cannot be linked into a library."""


class UnloadableError(Exception):
    """A library cannot be loaded from any folder that it was copied to."""


def library_bytes(
    executable: Any, manifest: Manifest, source: str | None = None, more: Sequence[Any] = ()
) -> bytes:
    """The file of a compiled module: library, manifest, length of the manifest, digest, magic.

    Parameters
    ----------
    executable, manifest
        The module and its manifest.
    source : str, optional
        Additional functions in C++.
    more : sequence of modules
        Additional machine code.

    Raises
    ------
    LinkError
        If there is no C compiler, it fails, or there is no folder for temporary files.
    """
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "library.so"
            addons = []
            if source is not None:
                addons.append(str(Path(folder) / "more.cc"))
                Path(addons[0]).write_text(source)
            for number, module in enumerate(more):
                addons.append(str(Path(folder) / f"more{number}.o"))
                module.write_to_file(addons[-1])
            executable.export_library(str(path), addons=addons)
            code = path.read_bytes()
    except Exception as error:  # of the linker, which TVM runs, and of the file system
        raise LinkError(first_line(error)) from error
    return with_manifest(code, manifest)


def with_manifest(code: bytes, manifest: Manifest) -> bytes:
    """A library followed by a manifest."""
    text = json.dumps(manifest.to_json()).encode()
    content = code + text
    digest = hashlib.sha256(content).digest()
    return content + len(text).to_bytes(8, "little") + digest + _MAGIC


def split_library(data: bytes) -> tuple[bytes, Manifest]:
    """The code and the manifest of a file; raises `DamagedLibraryError` if it is damaged."""
    if not data.endswith(_MAGIC):
        raise DamagedLibraryError("it contains no signature")
    content, tail = data[:-_TAIL_BYTES], data[-_TAIL_BYTES:]
    size = int.from_bytes(tail[:8], "little")
    if hashlib.sha256(content).digest() != tail[8 : 8 + _DIGEST_BYTES] or size > len(content):
        raise DamagedLibraryError("its digest does not match its content")
    code, text = content[: len(content) - size], content[len(content) - size :]
    return code, Manifest.from_json(json.loads(text))


def load_code(code: bytes, folder: Path | None = None) -> Any:
    """The module of a library, loaded from a separate copy.

    Two modules of one file would share its variables, and unloading one would break the other. If
    nothing can be executed from the folder for temporary files (it may be mounted that way), the
    copy is made in `folder`.

    Raises
    ------
    UnloadableError
        If the library cannot be loaded from either folder.
    """
    try:
        return _loaded_from(code, None)
    except UnloadableError:
        if folder is None:
            raise
    return _loaded_from(code, folder)


def _loaded_from(code: bytes, folder: Path | None) -> Any:
    try:
        handle, name = tempfile.mkstemp(suffix=".so", prefix="loading-", dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(code)
            return modules.load_module(name)
        finally:
            remove(Path(name))
    except (OSError, RuntimeError) as error:  # of the file system, of the dynamic loader
        raise UnloadableError(first_line(error)) from error


def write_whole(path: Path, data: bytes) -> None:
    """Write a file atomically, so that no reader sees a part of it."""
    handle, name = tempfile.mkstemp(suffix=".part", prefix="writing-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        remove(Path(name))
        raise


def remove(path: Path) -> None:
    """Delete a file if it still exists and is not in use."""
    try:
        path.unlink()
    except OSError:  # gone already, or a system that keeps loaded libraries
        return
