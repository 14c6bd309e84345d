"""The same input gives the same printed gradient, and the same key in the cache of builds, in every
process, whatever the hash seed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROGRAM = """
import tvm_autodiff as ad
from benchmarks._residual_network import residual_network
from tvm_autodiff.runtime.build_key import build_key
from tvm_autodiff.show import show

loss, weights = residual_network(8, size=8)
gradients = list(ad.differentiate(loss, weights))
print(show([loss, *gradients]))
print(build_key([weights, [loss], gradients], {"threads": 2}))
"""


@pytest.fixture(scope="module")
def printed() -> list[tuple[bytes, bytes]]:
    """The printed gradients and the key of the build, under three hash seeds."""
    found = []
    for seed in (0, 1, 20231):
        environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}
        result = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            capture_output=True,
            check=True,
            cwd=ROOT,
            env=environment,
        )
        text, _, key = result.stdout.rstrip().rpartition(b"\n")
        found.append((text, key))
    return found


def test_printed_gradients_are_equal_byte_for_byte(printed: list[tuple[bytes, bytes]]) -> None:
    first, *others = (text for text, _ in printed)
    assert first.count(b"\n") > 150
    assert others == [first, first]


def test_keys_of_builds_are_equal(printed: list[tuple[bytes, bytes]]) -> None:
    first, *others = (key for _, key in printed)
    assert len(first) == 64
    assert others == [first, first]
