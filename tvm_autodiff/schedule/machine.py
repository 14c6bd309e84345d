"""The machine that kernels are scheduled for: target, width of vectors, registers, caches, threads.

In: a TVM target, or None for this host. Out: a `Machine`, from which rules derive their tiles.
Nothing else in `schedule` asks what hardware there is.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Any

import tvm

from ..errors import InvalidArgumentError
from ..expr.dtypes import bits_of
from .cuda.target import is_plain_cuda, with_arch, with_host

_MULTIPROCESSORS = 132  #: of the GPU that kernels are made for where none is at hand: an H100


@dataclass(frozen=True)
class Machine:
    """What schedule rules need to know.

    Attributes
    ----------
    target : tvm.target.Target
    vector_bytes : int
        Width of a vector register.
    vector_registers : int
        How many of them there are.
    threads : int
        Threads that kernels may use.
    cache_bytes : int
        The cache that one core has for itself.
    multiprocessors : int
        Of a GPU: how many groups of threads run at a time.
    block_threads : int
        Of a GPU: the most threads that such a group can have.
    shared_bytes : int
        Of a GPU: the memory that the threads of a group share.
    exact_math : bool
        Whether exp, log and the like are left to the C library.
    """

    target: Any
    vector_bytes: int = 16
    vector_registers: int = 16
    threads: int = 1
    cache_bytes: int = 512 * 1024
    multiprocessors: int = 0
    block_threads: int = 0
    shared_bytes: int = 0
    exact_math: bool = False

    @property
    def kind(self) -> str:
        """``"llvm"``, ``"cuda"``..."""
        return str(self.target.kind.name)

    def lanes(self, dtype: str) -> int:
        """Elements of `dtype` in a vector register."""
        return max(1, self.vector_bytes * 8 // bits_of(dtype))


def host_target() -> Any:
    """The target of this host's CPU, with its features."""
    return tvm.target.Target.from_device("cpu")


def as_target(target: Any) -> Any:
    """A `Target` from None (this host), a name, a dictionary or a `Target`.

    Raises
    ------
    InvalidArgumentError
        TVM does not know the target, or its kind is not one that kernels are made for.
    """
    if target is None or (isinstance(target, str) and target == "llvm"):
        return host_target()
    if is_plain_cuda(target):
        target = with_arch(target)
    if not isinstance(target, tvm.target.Target):
        try:
            target = tvm.target.Target(target)
        except (ValueError, TypeError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0]
            raise InvalidArgumentError(
                f"target {target!r} is not one that TVM knows ({reason}); "
                "use None for this host's CPU"
            ) from None
    if str(target.kind.name) not in ("llvm", "cuda"):
        raise InvalidArgumentError(
            f"target kind {str(target.kind.name)!r} has no schedule rules: "
            "use an llvm or a cuda target"
        )
    return with_host(target, host_target()) if str(target.kind.name) == "cuda" else target


def machine_of(target: Any, threads: int) -> Machine:
    """The machine behind a target."""
    if str(target.kind.name) == "cuda":
        return _gpu(target, threads)
    features = _features(target)
    if "avx512f" in features:
        width, registers = 64, 32
    elif "avx2" in features or "avx" in features:
        width, registers = 32, 16
    elif platform.machine() in ("aarch64", "arm64"):
        width, registers = 16, 32
    else:
        width, registers = 16, 16
    return Machine(target, width, registers, threads)


def _gpu(target: Any, threads: int) -> Machine:
    device = tvm.cuda(0)
    count = int(device.multi_processor_count) if device.exist else _MULTIPROCESSORS
    # what a kernel may have without asking: a target's own attributes can only be lower
    block = min(1024, int(target.attrs.get("max_threads_per_block", 1024)))
    shared = min(48 * 1024, int(target.attrs.get("max_shared_memory_per_block", 48 * 1024)))
    return Machine(target, 16, 0, threads, 0, count, block, shared)


def _features(target: Any) -> set[str]:
    found = tvm.get_global_func("target.llvm_get_cpu_features", allow_missing=True)
    if found is None:
        return set()
    return {str(name) for name in found(target)}
