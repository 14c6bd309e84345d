"""Checks whether this machine can run the code of a library.

Instructions that a CPU lacks would kill the process, so the check precedes loading.
"""

from __future__ import annotations

from ...codegen.targets import (
    Target,
    cpu_features,
    cpu_part,
    cpu_triple,
    host_features,
    host_triple,
)
from ...errors import LoweringError
from .manifest import Manifest

#: features whose instructions compilers emit only for intrinsics, which kernels do not use; LLVM
#: assigns them to a CPU's name even if a virtual machine hides them
ON_REQUEST = frozenset(
    (
        *("amx-avx512", "amx-bf16", "amx-complex", "amx-fp16", "amx-fp8", "amx-int8", "amx-movrs"),
        *("amx-tf32", "amx-tile", "cldemote", "clflushopt", "clwb", "clzero", "cmpccxadd"),
        *("enqcmd", "fsgsbase", "hreset", "invpcid", "kl", "lwp", "movdir64b", "movdiri"),
        *("mwaitx", "pconfig", "pku", "prefetchi", "prfchw", "ptwrite", "raoint", "rdpid"),
        *("rdpru", "rdrnd", "rdseed", "rtm", "serialize", "sgx", "shstk", "tsxldtrk", "uintr"),
        *("usermsr", "waitpkg", "wbnoinvd", "widekl", "xsave", "xsavec", "xsaveopt", "xsaves"),
    )
)
_SAME = {"amd64": "x86_64", "arm64": "aarch64"}  #: names of one architecture


def needs_of(target: Target) -> tuple[str, tuple[str, ...]]:
    """The architecture and the CPU features that code for a target needs."""
    host = cpu_part(target)
    if host is None or not host_features():
        return "", ()
    return _architecture(cpu_triple(host)), tuple(sorted(cpu_features(host) - ON_REQUEST))


def check_host(manifest: Manifest) -> None:
    """Raise a `LoweringError` if this machine cannot run the code of a library."""
    known = host_features()
    if not known or not manifest.architecture:
        return
    here = _architecture(host_triple())
    if manifest.architecture != here:
        raise LoweringError(
            f"the library was built for {manifest.architecture}, and this is {here}: build it "
            "here, or with the target of this machine"
        )
    # features that LLVM cannot query on a host concern speed, not instructions
    missing = [name for name in manifest.features if not known.get(name, True)]
    if missing:
        raise LoweringError(
            f"the library was built for {manifest.target} and uses instructions that this CPU does "
            f"not have ({', '.join(missing)}): build it here, or with a target that both have, "
            f"such as {COMMON_TARGET}"
        )


COMMON_TARGET = '{"kind": "llvm", "mcpu": "x86-64-v3"}'


def _architecture(triple: str) -> str:
    word = triple.partition("-")[0]
    return _SAME.get(word, word)
