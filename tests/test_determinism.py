"""The same input gives the same printed gradient, and the same key in the cache of builds, in every
process, whatever the hash seed.
"""

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


KEY = """
import tvm_autodiff as ad
from benchmarks._residual_network import residual_network
from tvm_autodiff.runtime.build_key import build_key

loss, weights = residual_network(4, size=8)
print(build_key([weights, [loss], list(ad.differentiate(loss, weights))], {"threads": 2}))
"""


def printed(seed: int, program: str = PROGRAM) -> bytes:
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        check=True,
        cwd=ROOT,
        env=environment,
    )
    return result.stdout


def test_printed_gradients_are_equal_byte_for_byte_under_three_hash_seeds():
    first, *others = (printed(seed) for seed in (0, 1, 20231))
    assert first.count(b"\n") > 150
    assert others == [first, first]


def test_keys_of_builds_are_equal_under_two_hash_seeds():
    first, second = (printed(seed, KEY).strip() for seed in (0, 20231))
    assert len(first) == 64
    assert first == second
