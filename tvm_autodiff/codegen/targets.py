"""Targets for code generation, and what TVM and LLVM know about them, this host and its GPU.

Other files decide which target or limits a program should have.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import tvm
from tvm.target import codegen

from ..errors import InvalidArgumentError
from ..keywords import suggestion

Target: TypeAlias = Any  #: a TVM target

#: first parts of triples that name the same family of CPUs
_ARCHITECTURES = {"x86_64": "x86", "i386": "x86", "i686": "x86", "arm64": "aarch64"}

#: the feature of a target, or its architecture, from the widest on → bytes of a vector register,
#: and how many there are
_VECTORS = (("avx512f", 64, 32), ("avx", 32, 16), ("neon", 16, 32), ("aarch64", 16, 32))
_SSE = (16, 16)

#: names of CPUs that begin two operations on vectors of 64 bytes in a cycle; others begin one, or
#: two on halves (Intel, Optimization Reference Manual; AMD, Software Optimization Guide for Zen 5)
_TWO_OF_64_BYTES = frozenset(
    ("skylake-avx512", "cascadelake", "cooperlake", "icelake-server", "sapphirerapids")
    + ("emeraldrapids", "graniterapids", "graniterapids-d", "diamondrapids", "znver5")
)
#: what only cores have that do; a virtual machine may hide their names, and LLVM guesses another
_FEATURE_OF_TWO = "amx-tile"

#: the architecture of CUDA targets where there is no GPU: that of an H100. TVM's default, sm_50,
#: is no longer supported by the compilers of CUDA 13
DEFAULT_ARCH = "sm_90"


@functools.cache
def host_target() -> Target:
    """The target of this host's CPU, with its features."""
    return tvm.target.Target.from_device("cpu")


def target_from(given: Any) -> Target:
    """A target from a name, a dictionary or a target.

    Raises
    ------
    InvalidArgumentError
        If it is unknown to TVM, or its CPU to LLVM.
    """
    if isinstance(given, tvm.target.Target):
        return _with_known_cpu(given)
    try:
        found = tvm.target.Target(given)
    except (ValueError, TypeError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        hint = "'cuda' is a GPU of NVIDIA, None" if given == "gpu" else "None"
        raise InvalidArgumentError(
            f"target {given!r} is unknown to TVM ({reason}); {hint} is this host's CPU"
        ) from None
    return _with_known_cpu(found)


def _with_known_cpu(target: Target) -> Target:
    """The target, whose CPU LLVM knows: for others it writes code without any features."""
    cpu = target_attributes(target).get("mcpu")
    if target_kind(target) == "llvm" and cpu is not None:
        known = list(map(str, codegen.llvm_get_cpu_archlist(target)))
        if known and cpu not in known:
            raise InvalidArgumentError(
                f"the target's mcpu {str(cpu)!r} is unknown to LLVM{suggestion(str(cpu), known)}"
            )
    return target


def target_kind(target: Target) -> str:
    """``"llvm"``, ``"cuda"``...

    Examples
    --------
    >>> target_kind(target_from("llvm"))
    'llvm'
    """
    return str(target.kind.name)


def target_attributes(target: Target) -> dict[str, Any]:
    """The attributes of a target besides its kind: ``mcpu``, ``max_threads_per_block``..."""
    return dict(target.attrs)


def with_host(target: Target, host: Target) -> Target:
    """The target with a CPU that launches its kernels, unless it specifies one."""
    return target if target.host is not None else tvm.target.Target(target, host=host)


def with_cores(target: Target, cores: int) -> Target:
    """A CPU target with the number of its cores, which meta-schedule requires."""
    return tvm.target.Target({**target.export(), "num-cores": cores})


def with_llvm_options(target: Target, options: Sequence[str]) -> Target:
    """The target with further options of LLVM for the CPU, which hold for what it compiles only.

    Examples
    --------
    >>> list(with_llvm_options(target_from("llvm"), ["-vectorize-slp:bool=false"]).attrs["cl-opt"])
    ['-vectorize-slp:bool=false']
    """
    if target_kind(target) != "llvm":
        part = target.host
        if part is None:
            return target
        return tvm.target.Target(target, host=with_llvm_options(part, options))
    every = dict.fromkeys([*map(str, target.attrs.get("cl-opt", None) or ()), *options])
    return tvm.target.Target({**target.export(), "cl-opt": list(every)})


def cpu_part(target: Target) -> Target | None:
    """The target of the CPU part, or None if a target does not specify it."""
    return target if target_kind(target) == "llvm" else target.host


@functools.lru_cache(maxsize=16)  # each kernel asks, of the same target
def cpu_features(target: Target) -> frozenset[str]:
    """The LLVM features of a CPU target; empty if TVM has no LLVM."""
    found = _function("target.llvm_get_cpu_features")
    return frozenset() if found is None else frozenset(map(str, found(target)))


def cpu_triple(target: Target) -> str:
    """The triple that the target of a CPU is compiled for: ``"x86_64-unknown-linux-gnu"``."""
    return str(target.attrs.get("mtriple", None) or host_triple())


def cpu_architecture(target: Target) -> str:
    """The family of a CPU target: ``"x86"``, ``"aarch64"``, or the first part of its triple.

    Examples
    --------
    >>> cpu_architecture(target_from({"kind": "llvm", "mtriple": "arm64-apple-macos"}))
    'aarch64'
    """
    part = cpu_part(target)
    name = cpu_triple(target if part is None else part).partition("-")[0]
    return _ARCHITECTURES.get(name, name)


def cpu_vectors(target: Target) -> tuple[int, int]:
    """The bytes of a vector register of a CPU target, and the number of registers.

    Examples
    --------
    >>> cpu_vectors(target_from({"kind": "llvm", "mtriple": "aarch64-linux-gnu"}))
    (16, 32)
    """
    known = {*cpu_features(target), cpu_architecture(target)}
    rows = ((width, count) for name, width, count in _VECTORS if name in known)
    return next(rows, _SSE)


#: LLVM's names of instructions that compute float16, on x86 and on ARM
_FLOAT16 = frozenset(("avx512fp16", "fullfp16"))


def computes_float16(target: Target) -> bool:
    """Whether a CPU target has instructions that compute float16, beside those that convert it.

    Examples
    --------
    >>> computes_float16(target_from({"kind": "llvm", "mcpu": "sapphirerapids"}))
    True
    >>> computes_float16(target_from({"kind": "llvm", "mcpu": "znver4"}))
    False
    """
    return not _FLOAT16.isdisjoint(cpu_features(target))


#: the bytes of vectors that most cores multiply in a cycle
USUAL_PORT_BYTES = 64


def cpu_port_bytes(target: Target) -> int:
    """The bytes of vectors that a core of a CPU target multiplies, or loads, in a cycle.

    Examples
    --------
    >>> cpu_port_bytes(target_from({"kind": "llvm", "mcpu": "sapphirerapids"}))
    128
    """
    wide = target.attrs.get("mcpu", None) in _TWO_OF_64_BYTES
    wide = wide or (is_host(target) and host_features().get(_FEATURE_OF_TWO, False))
    return 2 * USUAL_PORT_BYTES if wide else USUAL_PORT_BYTES


def is_host(target: Target) -> bool:
    """Whether a target is the CPU of this host, as its name says."""
    host = host_target()
    same = target.attrs.get("mcpu", None) == host.attrs.get("mcpu", None)
    return same and cpu_architecture(target) == cpu_architecture(host)


def host_triple() -> str:
    """The triple of this host."""
    return str(_function("target.llvm_get_system_triple")())


@functools.cache
def host_features() -> Mapping[str, bool]:
    """All CPU features that LLVM can query, and whether this CPU has them."""
    found = _function("tvm.codegen.llvm.GetHostCPUFeatures")
    return {} if found is None else {str(name): bool(has) for name, has in found().items()}


def gpu_arch() -> str | None:
    """The architecture of the first GPU, such as ``"sm_90"``, or None without a GPU."""
    device = tvm.cuda(0)
    return f"sm_{device.compute_version.replace('.', '')}" if device.exist else None


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


@dataclass(frozen=True)
class Gpu:
    """What a kernel of a GPU finds: those of an H100, and what it may have without asking (CUDA C++
    Programming Guide, technical specifications).

    Attributes
    ----------
    multiprocessors : int
        The number of multiprocessors.
    block_threads, shared_bytes : int
        The maximum number of threads of a block, and its shared memory.
    local_bytes : int
        The memory of a thread.
    register_bytes : int
        The registers of a thread.
    read_bytes : int
        The bytes that a thread reads at a time at most.
    block_products, near_bytes, far_bytes : int
        What a multiprocessor does in a cycle: multiply-adds of float32, bytes that it reads from
        its first cache, and from the second one.
    launch_cycles : int
        The cycles that one more kernel takes.
    """

    multiprocessors: int = 132
    block_threads: int = 1024
    shared_bytes: int = 48 * 1024
    local_bytes: int = 512 * 1024
    register_bytes: int = 255 * 4
    read_bytes: int = 16
    block_products: int = 128
    near_bytes: int = 128
    far_bytes: int = 32
    launch_cycles: int = 6_000


def gpu_of(target: Target) -> Gpu:
    """The GPU that a CUDA target is for: this machine's, if it is one of that architecture."""
    usual, limits = Gpu(), target_attributes(target)
    device = tvm.cuda(0)
    own = device.exist and limits.get("arch") == gpu_arch()
    block = int(limits.get("max_threads_per_block", usual.block_threads))
    shared = int(limits.get("max_shared_memory_per_block", usual.shared_bytes))
    return replace(
        usual,
        multiprocessors=int(device.multi_processor_count) if own else usual.multiprocessors,
        block_threads=min(usual.block_threads, block),
        shared_bytes=min(usual.shared_bytes, shared),
    )


def compiler_versions() -> tuple[str, str]:
    """The versions of TVM and LLVM; the latter is empty if TVM has no LLVM."""
    llvm = _function("target.llvm_version_major")
    return tvm.__version__, "" if llvm is None else str(llvm())


def _function(name: str) -> Any:
    return tvm.get_global_func(name, allow_missing=True)
