"""Machines that do not depend on the one that the tests run on: what expected rules refer to."""

from __future__ import annotations

from tvm_autodiff.schedule.machine import Machine, as_target


def avx512(threads: int = 1, cache_bytes: int = 512 * 1024) -> Machine:
    """A CPU with 32 registers of 64 bytes."""
    target = as_target({"kind": "llvm", "mcpu": "skylake-avx512"})
    return Machine(target, 64, 32, threads, cache_bytes)
