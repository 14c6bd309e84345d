"""The machine that kernels are scheduled for: target, vector width, registers, caches, threads.

Rules derive their tiles from a `Machine`. Nothing else in `schedule` queries the hardware. Vectors
and registers are those of the target. Caches are those of the host if the target is the host's CPU,
and otherwise the defaults: those of Zen 2 to 4, the least of today's server CPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..codegen.host.host_cpu import USUAL_CACHES, USUAL_PAGE, Cache, host_caches, page_bytes
from ..codegen.targets import (
    USUAL_PORT_BYTES,
    Target,
    cpu_port_bytes,
    cpu_vectors,
    gpu_of,
    host_target,
    is_host,
    is_plain_cuda,
    target_from,
    target_kind,
    with_arch,
    with_host,
)
from ..errors import InvalidArgumentError
from ..expr.dtypes import bits_of
from .cost import SYMBOLIC_SIZE, THREAD_CYCLES, is_even

_FIRST, _SECOND, _LAST = USUAL_CACHES


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
    first_cache_bytes, cache_bytes, last_cache_bytes : int
        The sizes of a core's first data cache, of its second cache, and of the one that all cores
        share.
    first_cache_ways : int
        The lines of the first cache that may be any multiple of `way_bytes` apart.
    line_bytes, page_bytes : int
        The sizes of a line of the caches and of a page of memory.
    port_bytes : int
        The bytes of vectors that a core multiplies, or loads, in a cycle.
    multiprocessors : int
        The number of multiprocessors of a GPU.
    block_threads : int
        The maximum number of threads of a block on a GPU.
    shared_bytes : int
        The shared memory of a block on a GPU.
    local_bytes, register_bytes : int
        The memory of a thread of a GPU, and its registers (CUDA C++ Programming Guide, technical
        specifications).
    block_products, near_bytes, far_bytes : int
        What a multiprocessor does in a cycle: multiply-adds of float32, bytes that it reads from
        its first cache, and from the second one.
    launch_cycles : int
        The cycles that one more kernel of a GPU takes.
    exact_math : bool
        Whether exp, log and similar functions are left to the C library.
    symbolic_size : int
        What a symbolic extent counts as.
    """

    target: Any
    vector_bytes: int
    vector_registers: int = 0
    threads: int = 1
    cache_bytes: int = _SECOND.size
    last_cache_bytes: int = _LAST.size
    first_cache_bytes: int = _FIRST.size
    first_cache_ways: int = _FIRST.ways
    line_bytes: int = _FIRST.line
    page_bytes: int = USUAL_PAGE
    port_bytes: int = USUAL_PORT_BYTES
    multiprocessors: int = 0
    block_threads: int = 0
    shared_bytes: int = 0
    local_bytes: int = 0
    register_bytes: int = 0
    block_products: int = 0
    near_bytes: int = 0
    far_bytes: int = 0
    launch_cycles: int = 0
    exact_math: bool = False
    symbolic_size: int = SYMBOLIC_SIZE

    @property
    def way_bytes(self) -> int:
        """The distance in memory of lines that fall into the same set of the first cache."""
        return self.first_cache_bytes // self.first_cache_ways

    @property
    def kind(self) -> str:
        """``"llvm"``, ``"cuda"``..."""
        return target_kind(self.target)

    @property
    def accumulators(self) -> int:
        """The vector registers for what a tile sums up; the others are for what it reads."""
        return self.vector_registers * 3 // 4

    def lanes(self, *dtypes: str) -> int:
        """Elements in a vector register, of the widest of some types."""
        return max(1, self.vector_bytes * 8 // max(map(bits_of, dtypes)))

    def vector_cycles(self, width: int) -> float:
        """The cycles of an operation on a vector of so many bytes, of which two begin in a cycle at
        most.
        """
        return max(0.5, width / self.port_bytes)

    def worth_threads(self, work: float) -> bool:
        """Whether `work` cycles of one thread should be shared by several; an evaluation of a body
        is at least a cycle, unless it is part of a vector.
        """
        return self.threads > 1 and work >= THREAD_CYCLES

    def is_even(self, count: int) -> bool:
        """Whether so many equal tasks keep all threads busy."""
        return is_even(count, self.threads)

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
    width, registers = cpu_vectors(target)
    machine = Machine(target, width, registers, threads, port_bytes=cpu_port_bytes(target))
    return _with_host_caches(machine) if is_host(target) else machine


def _with_host_caches(machine: Machine) -> Machine:
    """The machine with the caches of this host, as far as they are known."""
    caches = host_caches()
    usual = Cache(machine.first_cache_bytes, machine.first_cache_ways, machine.line_bytes)
    first = caches.get(1, usual)
    second = caches[2].size if 2 in caches else machine.cache_bytes
    last = caches[max(caches)].size if max(caches, default=0) > 1 else machine.last_cache_bytes
    return replace(
        machine,
        first_cache_bytes=first.size,
        first_cache_ways=first.ways or usual.ways,
        line_bytes=first.line,
        cache_bytes=second,
        last_cache_bytes=last,
        page_bytes=page_bytes(),
    )


def _gpu(target: Target, threads: int) -> Machine:
    gpu = gpu_of(target)
    return Machine(
        target,
        gpu.read_bytes,
        threads=threads,
        cache_bytes=0,
        multiprocessors=gpu.multiprocessors,
        block_threads=gpu.block_threads,
        shared_bytes=gpu.shared_bytes,
        local_bytes=gpu.local_bytes,
        register_bytes=gpu.register_bytes,
        block_products=gpu.block_products,
        near_bytes=gpu.near_bytes,
        far_bytes=gpu.far_bytes,
        launch_cycles=gpu.launch_cycles,
    )
