"""What every test shares: the profiles of hypothesis and the `golden` fixture.

`golden(name, text)` compares `text` with the file tests/golden/<name>; ``pytest --update-golden``
writes the files instead, to be read as a diff before they are committed. Builds are kept in
a folder of this run, so that no test sees what an earlier version built.
"""

from __future__ import annotations

import atexit
import difflib
import functools
import gc
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

GOLDEN = Path(__file__).parent / "golden"

# modules that only processes import which tests start
collect_ignore = ["without_torch"]

# what tests build is kept for the tests of this run only
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="tvm_autodiff-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

# TVM's threads spin for up to 0.2 s after each call, on the cores that other workers test on
os.environ["TVM_THREAD_POOL_SPIN_COUNT"] = "0"
os.environ["OMP_WAIT_POLICY"] = "passive"  # and so do PyTorch's

# JAX tells what is right, in few calls of each program: how fast it is does not matter
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"

# what imports and collection make lives as long as the tests: looking for garbage in it is in vain
gc.disable()

# the same examples in every run; `pytest --hypothesis-profile=explore` looks for new ones
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden/, compare nothing"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of every parametrised test all cases but the first are slow, too.

    Files with slow tests begin first, so that no worker waits for one at the end.
    """
    long = {item.path for item in items if item.get_closest_marker("slow")}
    seen: set[tuple[Path, str]] = set()
    for item in items:
        name = getattr(item, "originalname", None)
        key = (item.path, f"{getattr(item, 'cls', None)}.{name or item.name}")
        if key in seen:
            item.add_marker(pytest.mark.slow)
        seen.add(key)
    items.sort(key=lambda item: item.path not in long)


def pytest_collection_finish() -> None:
    """Look for garbage in what tests make, and seldom: few of them leave any in cycles."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 20)
    gc.enable()


@pytest.fixture(autouse=True)
def numbers_of_a_test_alone(request: pytest.FixtureRequest) -> None:
    """Seed the module's generator anew: what a test draws does not depend on other tests."""
    generator = getattr(request.module, "RNG", None)
    if generator is not None:
        generator.bit_generator.state = np.random.default_rng(0).bit_generator.state


#: what these tests check are numbers of programs, not kernels: LLVM takes a fifth of their time to
#: optimise what is called once. All others build as users do: those of the rules of a CPU, whose
#: code LLVM has to keep right, code generation, run time, files, benchmarks, accesses and compiled
#: random programs
UNOPTIMISED = (
    "benchmarks/gradbench",
    "benchmarks/test_suite_cases.py",
    "debug",
    "functions",
    "gradients",
    "graph",
    "interop",
    "operators",
    "partition",
    "rules",
    "schedule/cpu/recurrences",
    "schedule/cpu/test_elementwise_bodies.py",
    "schedule/cpu/test_interleaving.py",
    "schedule/cpu/test_prefix_reduction.py",
    "schedule/cpu/test_transposition.py",
    "schedule/cpu/test_tuple_reductions.py",
    "schedule/cpu/test_windows.py",
    "schedule/cpu/tiles/symbolic",
    "schedule/cuda",  # CUDA's compiler does the kernels: this is the code that launches them
    "schedule/emit",
    "schedule/fusion",
    "schedule/rewrites",
    "schedule/test_guarded_factors.py",
    "schedule/test_size_parts.py",
    "schedule/test_symbolic_sizes.py",
    "schedule/test_wide_shapes.py",
    "schedule/tiled",
    "test_check.py",
    "test_register.py",
    "transforms",
    "zero_elimination",
)
TESTS = Path(__file__).parent


@pytest.fixture(autouse=True)
def unoptimised_code(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds for this host are not optimised by LLVM, in the folders above."""
    if request.path.relative_to(TESTS).as_posix().startswith(UNOPTIMISED):
        monkeypatch.setattr("tvm_autodiff.schedule.machine.host_target", _unoptimised_host)


@functools.cache
def _unoptimised_host() -> Any:
    # not above: the process that hands out tests imports none of this
    from tvm.target import Target

    from tvm_autodiff.codegen.targets import host_target

    return Target({**host_target().export(), "opt-level": 0})


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with the one on file; a missing file is a failure, not a first recording."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        text = text.rstrip("\n") + "\n"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"no tests/golden/{name} yet: record it with pytest --update-golden")
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            difference = difflib.unified_diff(
                expected.splitlines(), text.splitlines(), f"golden/{name}", "now", lineterm=""
            )
            pytest.fail("\n".join(difference), pytrace=False)

    return check
