"""Stores compiled programs on disk, so that other processes need not build them again.

The key contains everything that a build depends on. The folder must belong to one user, because its
files are executed. Entries are written atomically, read with a digest, and deleted if damaged; the
least recently used ones are deleted if the folder becomes too large. Several processes may use a
folder at once.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

import platformdirs

from ...errors import InvalidArgumentError
from ...keywords import checked_keywords
from .library import DamagedLibraryError, remove, split_library, write_whole

MAX_BYTES = 2**30  #: what a folder holds at most
_ENTRY = re.compile(r"[0-9a-f]{64}\.so")
_LEFTOVER_SECONDS = 3600  #: after which an unfinished file belongs to no living process


def default_folder() -> Path:
    """The cache folder of this user (below XDG_CACHE_HOME on Linux).

    Raises
    ------
    FileNotFoundError
        If this user has no home.

    Examples
    --------
    >>> default_folder().name
    'tvm_autodiff'
    """
    folder = Path(platformdirs.user_cache_dir("tvm_autodiff", appauthor=False))
    if not folder.is_absolute():  # a "~" that cannot be expanded
        raise FileNotFoundError("this user has no home")
    return folder


class BuildCache:
    """A folder of compiled programs; other files in it are ignored.

    Parameters
    ----------
    folder : path
        The folder. It is created for this user only if it does not exist.
    max_bytes : int
        Beyond this size, the least recently used entries are deleted.

    Raises
    ------
    InvalidArgumentError
        If the folder cannot be created or read, or other users own it or can write into it.
    """

    def __init__(self, folder: str | os.PathLike[str], max_bytes: int = MAX_BYTES) -> None:
        self.folder = Path(folder)
        self.max_bytes = max_bytes
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            state = self.folder.stat()
            next(self.folder.iterdir(), None)
        except (OSError, ValueError) as error:  # a ValueError for a name with a null in it
            raise InvalidArgumentError(
                f"cannot use the cache folder {str(folder)!r} ({error}): use one that can be "
                "created and read, or disable the cache with cache=False"
            ) from error
        if hasattr(os, "getuid") and (state.st_uid != os.getuid() or state.st_mode & 0o022):
            raise InvalidArgumentError(
                f"other users can write into the cache folder {str(folder)!r}, and its content is "
                "executed as code: chmod go-w it, or use your own folder"
            )

    def path(self, key: str) -> Path:
        """The file of an entry."""
        return self.folder / f"{key}.so"

    def get(self, key: str) -> bytes | None:
        """The bytes of an entry, or None if there is none or it is damaged."""
        path = self.path(key)
        try:
            entry = path.read_bytes()
            split_library(entry)
        except FileNotFoundError:
            return None
        except (OSError, DamagedLibraryError, ValueError, KeyError, TypeError):
            remove(path)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # used now: the last one to go
        return entry

    def put(self, key: str, data: bytes) -> None:
        """Store an entry, the bytes of a library with its manifest; old entries are deleted if
        necessary.
        """
        if len(data) > self.max_bytes:
            return
        write_whole(self.path(key), data)
        self._shrink()

    def drop(self, key: str) -> None:
        """Delete an entry."""
        remove(self.path(key))

    def clear(self) -> None:
        """Delete every entry."""
        for path in self.folder.iterdir():
            if _ENTRY.fullmatch(path.name):
                remove(path)

    def _shrink(self) -> None:
        entries = []
        for path in self.folder.iterdir():
            try:
                state = path.stat()
            except OSError:
                continue  # another process was faster
            if path.name.startswith(("loading-", "writing-")):
                if time.time() - state.st_mtime > _LEFTOVER_SECONDS:
                    remove(path)
            elif _ENTRY.fullmatch(path.name):
                entries.append((state.st_mtime_ns, path.name, state.st_size))
        total = sum(size for _, _, size in entries)
        for _, name, size in sorted(entries):
            if total <= self.max_bytes:
                return
            remove(self.folder / name)
            total -= size


def cache_of(cache: bool | str | os.PathLike[str]) -> BuildCache | None:
    """The cache for the `cache` argument of a build, or None without a usable cache."""
    if isinstance(cache, (str, os.PathLike)) and os.fspath(cache):  # "" is the current folder
        return BuildCache(cache)
    if not isinstance(cache, bool):
        raise InvalidArgumentError(f"cache must be True, False or a folder, got {cache!r}")
    try:
        return BuildCache(default_folder()) if cache else None
    except (OSError, InvalidArgumentError):  # no home, or a home that others write to
        return None


@checked_keywords
def clear_cache(folder: str | os.PathLike[str] | None = None) -> None:
    """Delete the compiled programs that `build` has stored on disk.

    Parameters
    ----------
    folder : path, optional
        The folder passed to ``build(..., cache=folder)``. By default, the user's cache folder.

    Raises
    ------
    InvalidArgumentError
        If the folder cannot be read, or other users can write into it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     clear_cache(folder)
    """
    try:
        place = default_folder() if folder is None else Path(folder)
    except FileNotFoundError:  # no home, and so nothing that was kept
        return
    if place.is_dir():
        BuildCache(place).clear()
