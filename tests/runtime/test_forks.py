"""Functions called in forked processes, where the threads of the parent's pool are gone.

The parent is a process of its own: a test's process has threads of other libraries, too.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.processes import ROOT, without_torch


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_fork_after_a_call_with_threads() -> None:
    command = [sys.executable, "-m", "tests.runtime.forked_calls"]
    done = subprocess.run(
        command, cwd=ROOT, env=without_torch(), capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "[True, True, True]\n", done.stderr
