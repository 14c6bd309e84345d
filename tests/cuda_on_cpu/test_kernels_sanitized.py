"""AddressSanitizer finds what kernels access outside of arrays, and nothing in right ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.cuda_on_cpu.checking import Case, check
from tests.cuda_on_cpu.compiler import WITH_ADDRESSES, missing
from tests.cuda_on_cpu.programs import Findings
from tests.cuda_on_cpu.sanitized import environment
from tests.cuda_on_cpu.test_wrong_kernels import TURNED, run
from tests.schedule import cases
from tests.schedule.test_rules import arrays_for

ROOT = Path(__file__).parents[2]
inside = pytest.mark.skipif(not os.environ.get(WITH_ADDRESSES), reason="no AddressSanitizer here")

#: four numbers that a thread keeps, and two of them read as one vector, at the place PLACE
KEPT = """
  alignas(64) float kept_ptr[4];
  for (int n = 0; n < 4; ++n) {
    kept_ptr[n] = x_ptr[n];
  }
  float2 pair = *(float2*)(kept_ptr + (PLACE * 2));
  y_ptr[((int)threadIdx.x)] = pair.x;
"""
RIGHT = {
    "shared memory": TURNED.replace("BARRIER", "__syncthreads();"),
    "registers": KEPT.replace("PLACE", "((int)threadIdx.x) % 2"),
}
WRONG = {
    "behind the end": "y_ptr[((int)threadIdx.x) + 1] = 0.0f;",
    "before the beginning": "y_ptr[((int)threadIdx.x)] = x_ptr[((int)threadIdx.x) - 1];",
    "shared memory": TURNED.replace("BARRIER", "__syncthreads();").replace(
        "tile_ptr[63 -", "(tile_ptr + 64)[0 *"
    ),
    "registers": KEPT.replace("PLACE", "((int)threadIdx.x) % 3"),
}


@inside
@pytest.mark.parametrize("name", RIGHT)
def test_right_addresses(name):
    assert np.isfinite(run(RIGHT[name])).all()


@inside
@pytest.mark.parametrize("name", WRONG)
def test_wrong_addresses(name):
    with pytest.raises(Findings, match="AddressSanitizer"):
        run(WRONG[name])


@inside
def test_a_program():
    """A product in tiles, by way of shared memory and registers."""
    inputs, output = cases.matmul(97, 101, 103, "tt")
    check({"matmul": Case(inputs, [output], [arrays_for(inputs, {})])})


@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
@pytest.mark.skipif(environment() is None, reason="gcc's libasan is not there")
def test_in_a_process_of_its_own():
    """The tests above."""
    if os.environ.get(WITH_ADDRESSES):
        pytest.skip("this is the process")
    command, started = [sys.executable, "-m", "pytest", "-q", __file__], environment()
    done = subprocess.run(
        command, cwd=ROOT, env=started, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert f"{len(RIGHT) + len(WRONG) + 1} passed" in done.stdout
