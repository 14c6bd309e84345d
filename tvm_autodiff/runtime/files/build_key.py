"""Keys of builds: equal exactly if the same program would be built, in any process.

A key is made from the tensors and from all named options that affect the code, and has 64
hexadecimal digits.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm_ffi

from ...codegen.targets import compiler_versions
from ...expr.nodes import Tensor
from ...graph.serialized import serialized
from ...package import FOLDER

#: TVM's settings of calls, messages and downloads; all others may affect the code
_AT_A_CALL = frozenset(
    (
        *("TVM_NUM_THREADS", "TVM_BIND_THREADS", "TVM_EXCLUDE_WORKER0", "TVM_CACHE_DIR"),
        *("TVM_THREAD_POOL_SPIN_COUNT", "TVM_BACKTRACE", "TVM_LOG_DEBUG", "TVM_BLACK_FORMAT"),
    )
)
_COMPILERS = frozenset(("CUDA_HOME", "CUDA_PATH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"))


def build_key(groups: Sequence[Sequence[Tensor]], options: Mapping[str, Any]) -> str | None:
    """The key of a build, or None for tensors that TVM cannot serialise.

    Parameters
    ----------
    groups : sequence of sequence of Tensor
        Inputs, outputs...
    options : mapping of str to object
        Everything else that affects the code, with a complete `repr`.
    """
    graph = serialized(groups)
    if graph is None:
        return None
    facts = {name: repr(value) for name, value in options.items()}
    sources = source_digest(FOLDER)
    text = json.dumps([graph, facts, _versions(), _settings(), sources], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _versions() -> list[str]:
    return [
        *compiler_versions(),
        tvm_ffi.__version__,
        platform.system(),
        platform.machine(),
    ]


def _settings() -> dict[str, str]:
    """The environment variables that TVM and its compilers read."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _COMPILERS or (name.startswith("TVM_") and name not in _AT_A_CALL)
    }


@functools.cache
def source_digest(folder: Path) -> str:
    """A digest of all sources of a package: other rules generate other code, whatever the version.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
