"""The same input gives the same printed gradient, and the same key in the cache of builds, in every
process, whatever the hash seed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tvm_autodiff as ad
from benchmarks._residual_network import residual_network
from tests.processes import without_torch
from tvm_autodiff import show
from tvm_autodiff.runtime.files.build_key import build_key

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent


def printed() -> str:
    """The gradients of a network, and the key of their build below."""
    loss, weights = residual_network(8, size=8)
    gradients = list(ad.differentiate(loss, weights))
    key = build_key([weights, [loss], gradients], {"threads": 2})
    return f"{show([loss, *gradients])}\n{key}"


@pytest.fixture(scope="module")
def three() -> list[list[str]]:
    """Gradients and key of processes with three hash seeds: this one and two others."""
    found = [printed()]
    for seed in (0, 20231):
        result = subprocess.run(
            [sys.executable, "-c", "from tests import test_determinism as t; print(t.printed())"],
            capture_output=True,
            check=True,
            cwd=ROOT,
            env=without_torch(ROOT, PYTHONHASHSEED=str(seed), PYTHONIOENCODING="utf-8"),
        )
        found.append(result.stdout.decode().strip())
    return [text.strip().rsplit("\n", 1) for text in found]


def test_printed_gradients_are_equal_byte_for_byte(three: list[list[str]]) -> None:
    first, *others = (text for text, _ in three)
    assert first.count("\n") > 150
    assert others == [first, first]


def test_keys_of_builds_are_equal(three: list[list[str]]) -> None:
    first, *others = (key for _, key in three)
    assert len(first) == 64
    assert others == [first, first]
