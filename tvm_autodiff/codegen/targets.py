"""Targets that code is made for, and what TVM and LLVM know of them, of this host and of its GPU.

In: what a user calls a target, or a target. Out: a target, and plain facts: kind, features, limits.
Which target or which limits a program should have is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import tvm

from ..errors import InvalidArgumentError

Target: TypeAlias = Any  #: a TVM target



def host_target() -> Target:
    """The target of this host's CPU, with its features."""
    return tvm.target.Target.from_device("cpu")


def target_from(given: Any) -> Target:
    """A target from a name, a dictionary or a target.

    Raises
    ------
    InvalidArgumentError
        TVM does not know it.
    """
    if isinstance(given, tvm.target.Target):
        return given
    try:
        return tvm.target.Target(given)
    except (ValueError, TypeError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InvalidArgumentError(
            f"target {given!r} is not one that TVM knows ({reason}); use None for this host's CPU"
        ) from None


def target_kind(target: Target) -> str:
    """``"llvm"``, ``"cuda"``...

    Examples
    --------
    >>> target_kind(target_from("llvm"))
    'llvm'
    """
    return str(target.kind.name)


def target_attributes(target: Target) -> dict[str, Any]:
    """What a target says beside its kind: ``mcpu``, ``max_threads_per_block``..."""
    return dict(target.attrs)


def with_host(target: Target, host: Target) -> Target:
    """The target with a CPU that launches its kernels, unless it names one."""
    return target if target.host is not None else tvm.target.Target(target, host=host)


def with_cores(target: Target, cores: int) -> Target:
    """The target of a CPU, with the number of its cores, which meta-schedule wants."""
    return tvm.target.Target({**target.export(), "num-cores": cores})


def cpu_part(target: Target) -> Target | None:
    """The target of what runs on the CPU; None where a target says nothing of it."""
    return target if target_kind(target) == "llvm" else target.host


def cpu_features(target: Target) -> frozenset[str]:
    """The features that LLVM uses for the target of a CPU; none where TVM has no LLVM."""
    found = _function("target.llvm_get_cpu_features")
    return frozenset() if found is None else frozenset(map(str, found(target)))


def cpu_triple(target: Target) -> str:
    """The triple that the target of a CPU is compiled for: ``"x86_64-unknown-linux-gnu"``."""
    return str(target.attrs.get("mtriple", None) or host_triple())


def host_triple() -> str:
    """The triple of this host."""
    return str(_function("target.llvm_get_system_triple")())


def host_features() -> Mapping[str, bool]:
    """Whether this CPU has them, for all features that LLVM can ask it for."""
    found = _function("tvm.codegen.llvm.GetHostCPUFeatures")
    return {} if found is None else {str(name): bool(has) for name, has in found().items()}


def gpu_arch() -> str | None:
    """The architecture of the first GPU, as ``"sm_90"``; None where there is none."""
    device = tvm.cuda(0)
    return f"sm_{device.compute_version.replace('.', '')}" if device.exist else None


def gpu_multiprocessors() -> int | None:
    """How many groups of threads the first GPU runs at a time; None where there is none."""
    device = tvm.cuda(0)
    return int(device.multi_processor_count) if device.exist else None


def compiler_versions() -> tuple[str, str]:
    """The versions of TVM and of LLVM, which is empty where TVM has none."""
    llvm = _function("target.llvm_version_major")
    return tvm.__version__, "" if llvm is None else str(llvm())


def _function(name: str) -> Any:
    return tvm.get_global_func(name, allow_missing=True)
