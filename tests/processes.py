"""The environment of processes that tests start and that need no PyTorch, and their garbage.

TVM imports PyTorch where it is installed, which takes three times as long as TVM itself. The tests
of one process run beside it; those of other processes show that the library works without it.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path

ROOT = Path(__file__).parent.parent
WITHOUT_TORCH = Path(__file__).parent / "without_torch"  #: what such a process imports from first


def without_torch(*paths: Path | str, **variables: str) -> dict[str, str]:
    """The environment of a process that finds no PyTorch."""
    return with_paths(WITHOUT_TORCH, *paths, **variables)


def with_paths(*paths: Path | str, **variables: str) -> dict[str, str]:
    """This process's environment, some paths to import from first, and other variables."""
    every = [*map(str, paths), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(every), **variables}


def collected_seldom() -> None:
    """Look for garbage seldom, and not in what is imported by now, which lives as long as the
    process.
    """
    gc.freeze()
    gc.set_threshold(20_000, 10, 20)
    gc.enable()
