"""What every test shares: the profiles of hypothesis and the `golden` fixture.

`golden(name, text)` compares `text` with the file tests/golden/<name>; ``pytest --update-golden``
writes the files instead, to be read as a diff before they are committed. Builds are kept in
a folder of this run, so that no test sees what an earlier version built.
"""

from __future__ import annotations

import atexit
import difflib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

GOLDEN = Path(__file__).parent / "golden"

# what tests build is kept for the tests of this run only
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="tvm_autodiff-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

# the same examples in every run; `pytest --hypothesis-profile=explore` looks for new ones
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden/, compare nothing"
    )


#: files that `make quick` leaves out: whole programs, notebooks, long compilations
SLOW = (
    "test_notebooks.py",
    "test_tutorials.py",
    "test_deep_graphs.py",
    "test_determinism.py",
    "test_differentiation_growth.py",
    "test_cuda_audit.py",
    "test_suite_cases.py",
    "test_cuda_sources.py",
    "test_random_graphs.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow the files above, and of every parametrised test all cases but the first."""
    seen: set[tuple[Path, str]] = set()
    for item in items:
        name = getattr(item, "originalname", None)
        key = (item.path, f"{getattr(item, 'cls', None)}.{name or item.name}")
        if item.path.name in SLOW or key in seen:
            item.add_marker(pytest.mark.slow)
        seen.add(key)


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
