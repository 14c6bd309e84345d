"""Machines that do not depend on the one that the tests run on: what expected rules refer to."""

from __future__ import annotations

from typing import Any

from tvm_autodiff.schedule.machine import Machine, as_target, machine_of

#: names of vectors → the attributes of a target that has them
TARGETS = {
    "SSE": {"mcpu": "x86-64"},
    "AVX2": {"mcpu": "haswell"},
    "AVX-512": {"mcpu": "skylake-avx512"},
    "NEON": {"mtriple": "aarch64-linux-gnu"},
}
THREADS = (1, 2, 16, 64)


def synthetic(vectors: str, threads: int) -> Machine:
    """A CPU with the vectors of a name, and the usual caches."""
    return machine_of(as_target({"kind": "llvm", **TARGETS[vectors]}), threads)


def avx512(threads: int = 1, cache_bytes: int = 512 * 1024) -> Machine:
    """A CPU with 32 registers of 64 bytes."""
    target = as_target({"kind": "llvm", "mcpu": "skylake-avx512"})
    return Machine(target, 64, 32, threads, cache_bytes)


def with_usual_caches(target: Any, threads: int) -> Machine:
    """A CPU of a target, with 16 registers of 32 bytes and the usual caches whatever it has.

    In the place of `machine_of` it makes what is built for this host the same on every host, and
    still run on it: LLVM takes vectors of any width apart.
    """
    return Machine(target, 32, 16, threads)
