"""Links, loads and prepares compiled modules, and sets the threads that run them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.support import cc

_SHARE_ALL_CORES = -3  # TVM's affinity mode in which no worker is pinned to one core


def can_link() -> bool:
    """Whether there is a C compiler to link libraries."""
    return cc.get_cc() is not None


def load_module(path: str) -> Any:
    """The module of a shared library; errors of the dynamic loader pass through."""
    return tvm.runtime.load_module(path)


def modules_in(root: Any) -> list[Any]:
    """A module and all that it imports."""
    found, pending = [], [root]
    while pending:
        module = pending.pop(0)
        found.append(module)
        pending += list(module.imports)
    return found


def machine_on(executable: Any, device: Any) -> Any:
    """Relax's virtual machine for a program, which keeps the memory between kernels.

    The functions are looked up by name.
    """
    return relax.VirtualMachine(executable, device)


def size_thread_pool(count: int, cpus: Sequence[int]) -> None:
    """Let `count` threads of the calling thread's pool work on any of the given CPUs.

    The list of CPUs sets the size of a pool that does not exist yet, and the count sets how many of
    its threads work.
    """
    configure = tvm.get_global_func("runtime.config_threadpool")
    configure(_SHARE_ALL_CORES, count, [str(cpu) for cpu in cpus])
