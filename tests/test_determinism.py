"""The same input gives the same printed gradient in every process, whatever the hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROGRAM = """
import tvm_autodiff as ad
from benchmarks._residual_network import residual_network
from tvm_autodiff.show import show

loss, weights = residual_network(8, size=8)
print(show([loss, *ad.differentiate(loss, weights)]))
"""


def printed(seed: int) -> bytes:
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        check=True,
        cwd=ROOT,
        env=environment,
    )
    return result.stdout


def test_printed_gradients_are_equal_byte_for_byte_under_three_hash_seeds():
    first, *others = (printed(seed) for seed in (0, 1, 20231))
    assert first.count(b"\n") > 200
    assert others == [first, first]
