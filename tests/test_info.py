"""`python -m tvm_autodiff.info` tells what a bug report needs."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tests.processes import without_torch
from tvm_autodiff.rules.scalar_rules import RULES


@pytest.mark.slow
def test_command():
    done = subprocess.run(
        [sys.executable, "-m", "tvm_autodiff.info"],
        env=without_torch(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert np.__version__ in done.stdout
    for title in ("versions", "machine", "operators with a derivative"):
        assert title in done.stdout.splitlines()
    assert set(RULES) <= set(done.stdout.split())
