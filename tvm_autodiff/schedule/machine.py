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
    """

    target: Any
    vector_bytes: int = 16
    vector_registers: int = 16
    threads: int = 1
    cache_bytes: int = 512 * 1024

    @property
    def kind(self) -> str:
        """``"llvm"``, ``"cuda"``..."""
        return str(self.target.kind.name)

    def lanes(self, dtype: str) -> int:
        """Elements of `dtype` in a vector register."""
        return max(1, self.vector_bytes * 8 // tvm.DataType(dtype).bits)


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
    if not isinstance(target, tvm.target.Target):
        try:
            target = tvm.target.Target(target)
        except (ValueError, TypeError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0]
            raise InvalidArgumentError(
                f"target {target!r} is not one that TVM knows ({reason}); "
                "use None for this host's CPU"
            ) from None
    if str(target.kind.name) not in ("llvm",):
        raise InvalidArgumentError(
            f"target kind {str(target.kind.name)!r} has no schedule rules yet; use an llvm target"
        )
    return target


def machine_of(target: Any, threads: int) -> Machine:
    """The machine behind a target."""
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


def _features(target: Any) -> set[str]:
    found = tvm.get_global_func("target.llvm_get_cpu_features", allow_missing=True)
    if found is None:
        return set()
    return {str(name) for name in found(target)}
