"""Machines are those of their targets; caches of the host belong to targets of the host alone."""

from __future__ import annotations

from typing import Any

import pytest

from tvm_autodiff.codegen import targets
from tvm_autodiff.codegen.host.host_cpu import Cache
from tvm_autodiff.codegen.targets import host_target
from tvm_autodiff.schedule.machine import Machine, as_target, machine_of

#: target → bytes of a vector, and the number of registers
VECTORS: dict[str, tuple[dict[str, str], int, int]] = {
    "SSE": ({"mcpu": "x86-64"}, 16, 16),
    "AVX": ({"mcpu": "sandybridge"}, 32, 16),
    "AVX2": ({"mcpu": "haswell"}, 32, 16),
    "AVX-512": ({"mcpu": "skylake-avx512"}, 64, 32),
    "NEON": ({"mtriple": "aarch64-linux-gnu"}, 16, 32),
    "Neoverse": ({"mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"}, 16, 32),
}
CACHES = {1: Cache(1 << 16, 4, 128), 2: Cache(1 << 22, 8, 128)}


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_are_those_of_the_target(name: str) -> None:
    attributes, width, registers = VECTORS[name]
    machine = machine_of(as_target({"kind": "llvm", **attributes}), 3)
    assert (machine.vector_bytes, machine.vector_registers) == (width, registers)
    assert machine.threads == 3


@pytest.fixture
def other_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvm_autodiff.schedule.machine.host_caches", lambda: CACHES)


def caches_of(machine: Machine) -> tuple[Any, ...]:
    first = (machine.first_cache_bytes, machine.first_cache_ways, machine.line_bytes)
    return (*first, machine.cache_bytes, machine.last_cache_bytes)


@pytest.mark.usefixtures("other_caches")
def test_the_host_has_its_caches() -> None:
    assert caches_of(machine_of(as_target(None), 1)) == (1 << 16, 4, 128, 1 << 22, 1 << 22)


@pytest.mark.usefixtures("other_caches")
def test_other_targets_have_usual_caches() -> None:
    other = "haswell" if host_target().attrs["mcpu"] != "haswell" else "znver4"
    target = as_target({"kind": "llvm", "mcpu": other})
    assert caches_of(machine_of(target, 1)) == caches_of(Machine(target, 64))


def test_lines_a_way_apart_share_a_set() -> None:
    assert Machine(None, 64).way_bytes == 4096
    assert Machine(None, 64, first_cache_bytes=48 << 10, first_cache_ways=12).way_bytes == 4096


@pytest.mark.parametrize(("features", "wanted"), [({"amx-tile": True}, 128), ({}, 64)])
def test_a_host_whose_name_is_hidden_is_known_by_its_features(
    monkeypatch: pytest.MonkeyPatch, features: dict[str, bool], wanted: int
) -> None:
    """Virtual machines give other models: LLVM took a Sapphire Rapids for a Rocket Lake."""
    monkeypatch.setattr(targets, "host_features", lambda: features)
    monkeypatch.setattr(targets, "is_host", lambda target: True)
    guessed = targets.target_from({"kind": "llvm", "mcpu": "rocketlake"})
    assert targets.cpu_port_bytes(guessed) == wanted
    monkeypatch.setattr(targets, "is_host", lambda target: False)
    assert targets.cpu_port_bytes(guessed) == 64
