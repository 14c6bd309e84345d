"""The machine that kernels are scheduled for: target, vector width, registers, caches, threads.

Rules derive their tiles from a `Machine`. Nothing else in `schedule` queries the hardware.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Any

from ..codegen.targets import (
    Target,
    cpu_features,
    gpu_multiprocessors,
    host_target,
    is_plain_cuda,
    target_attributes,
    target_from,
    target_kind,
    with_arch,
    with_host,
)
from ..errors import InvalidArgumentError
from ..expr.dtypes import bits_of

#: cycles of one thread below which starting others costs more than it saves: it takes 1 to 5 µs
THREAD_CYCLES = 16_384
_MULTIPROCESSORS = 132  #: of the default GPU if this machine has none: an H100


@dataclass(frozen=True)
class Machine:
    """The properties of the hardware that schedule rules need.

    Attributes
    ----------
    target : Target
    vector_bytes : int
        The width of a vector register.
    vector_registers : int
        The number of vector registers.
    threads : int
        The number of threads that kernels may use.
    cache_bytes : int
        The size of the cache private to one core.
    last_cache_bytes : int
        The size of the cache that all cores share.
    multiprocessors : int
        The number of multiprocessors of a GPU.
    block_threads : int
        The maximum number of threads of a block on a GPU.
    shared_bytes : int
        The shared memory of a block on a GPU.
    exact_math : bool
        Whether exp, log and similar functions are left to the C library.
    """

    target: Any
    vector_bytes: int = 16
    vector_registers: int = 16
    threads: int = 1
    cache_bytes: int = 512 * 1024
    last_cache_bytes: int = 16 * 1024 * 1024
    multiprocessors: int = 0
    block_threads: int = 0
    shared_bytes: int = 0
    exact_math: bool = False

    @property
    def kind(self) -> str:
        """``"llvm"``, ``"cuda"``..."""
        return target_kind(self.target)

    def lanes(self, dtype: str) -> int:
        """Elements of `dtype` in a vector register."""
        return max(1, self.vector_bytes * 8 // bits_of(dtype))

    def worth_threads(self, work: float) -> bool:
        """Whether `work` cycles of one thread should be shared by several; an evaluation of a body
        is at least a cycle, unless it is part of a vector.
        """
        return self.threads > 1 and work >= THREAD_CYCLES

    def threads_for(self, work: float) -> int:
        """The number of threads for `work` cycles of one."""
        return self.threads if self.worth_threads(work) else 1


def as_target(target: Any) -> Target:
    """A `Target` from None (this host), a name, a dictionary or a `Target`.

    Raises
    ------
    InvalidArgumentError
        If the target is unknown to TVM, or its kind is not supported.
    """
    if target is None or (isinstance(target, str) and target == "llvm"):
        return host_target()
    found = target_from(with_arch(target) if is_plain_cuda(target) else target)
    kind = target_kind(found)
    if kind not in ("llvm", "cuda"):
        raise InvalidArgumentError(
            f"target kind {kind!r} has no schedule rules: use an llvm or a cuda target"
        )
    return with_host(found, host_target()) if kind == "cuda" else found


def machine_of(target: Target, threads: int) -> Machine:
    """The machine behind a target."""
    if target_kind(target) == "cuda":
        return _gpu(target, threads)
    features = cpu_features(target)
    if "avx512f" in features:
        width, registers = 64, 32
    elif "avx2" in features or "avx" in features:
        width, registers = 32, 16
    elif platform.machine() in ("aarch64", "arm64"):
        width, registers = 16, 32
    else:
        width, registers = 16, 16
    return Machine(target, width, registers, threads)


def _gpu(target: Target, threads: int) -> Machine:
    count = gpu_multiprocessors() or _MULTIPROCESSORS
    # what a kernel may have without asking: a target's own attributes can only be lower
    limits = target_attributes(target)
    block = min(1024, int(limits.get("max_threads_per_block", 1024)))
    shared = min(48 * 1024, int(limits.get("max_shared_memory_per_block", 48 * 1024)))
    return Machine(
        target,
        16,
        0,
        threads,
        0,
        multiprocessors=count,
        block_threads=block,
        shared_bytes=shared,
    )
