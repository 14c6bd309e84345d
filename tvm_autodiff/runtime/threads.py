"""Sets the number of CPU threads that kernels use.

TVM keeps one thread pool for each calling thread, gives it half of the machine's CPUs by default,
and pins the workers. Here a pool has all CPUs of the process, and its workers move freely. In a
forked process the threads of the pool are gone, and the thread that forked works alone.
"""

from __future__ import annotations

import os
import threading

from ..codegen.host.host_cpu import default_threads
from ..errors import InvalidArgumentError
from .modules import size_thread_pool

_configured = threading.local()


def available_cpus() -> list[int]:
    """The CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def resolve_threads(num_threads: int | None) -> int:
    """The number of threads: one a core for None, and never more than there are CPUs.

    The CPUs are those that this process may run on. SMT siblings share the units that kernels keep
    busy, and what exceeds the quota of a control group would be stopped in the middle of a kernel.
    """
    cpus = available_cpus()
    return default_threads(cpus) if num_threads is None else min(num_threads, len(cpus))


def check_threads(num_threads: int | None) -> int:
    """The checked number of threads for a `num_threads` argument.

    Raises
    ------
    InvalidArgumentError
        If it is not a positive integer or None.
    """
    whole = isinstance(num_threads, int) and not isinstance(num_threads, bool)
    if num_threads is not None and (not whole or num_threads < 1):
        raise InvalidArgumentError(
            f"num_threads must be a positive integer or None (one per core), got {num_threads!r}"
        )
    return resolve_threads(num_threads)


def use_threads(count: int) -> None:
    """Run kernels called from this Python thread on `count` threads; this costs nothing if
    unchanged.
    """
    if getattr(_configured, "count", None) == count or getattr(_configured, "forked", False):
        return
    cpus = available_cpus()
    size_thread_pool(count, cpus)
    if hasattr(os, "sched_setaffinity") and set(os.sched_getaffinity(0)) != set(cpus):
        os.sched_setaffinity(0, cpus)  # creating the pool can pin the calling thread
    _configured.count = count


def _work_alone() -> None:
    """After a fork: the pool of the thread that forked waits forever for workers of the parent.

    Other threads of the new process get pools of their own, as does this one if it had none.
    """
    if getattr(_configured, "count", None) is not None:
        use_threads(1)
        _configured.forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_work_alone)
