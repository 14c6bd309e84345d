"""Completes CUDA targets with an architecture.

If none is given, it is that of this machine's device, or `DEFAULT_ARCH`. TVM's default, sm_50, is
no longer supported by the compilers of CUDA 13.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...codegen.targets import gpu_arch

DEFAULT_ARCH = "sm_90"


def is_plain_cuda(target: Any) -> bool:
    """Whether a target is CUDA without an architecture: ``"cuda"``, ``{"kind": "cuda"}``."""
    if isinstance(target, Mapping):
        return target.get("kind") == "cuda" and "arch" not in target
    return isinstance(target, str) and target == "cuda"


def with_arch(target: Any) -> dict[str, Any]:
    """A plain CUDA target with the architecture of this machine's device, or the default one.

    Examples
    --------
    >>> with_arch({"kind": "cuda", "max_threads_per_block": 512})["max_threads_per_block"]
    512
    """
    named = dict(target) if isinstance(target, Mapping) else {"kind": target}
    return {**named, "arch": gpu_arch() or DEFAULT_ARCH}
