"""Which files doctests are looked for in: those of a bridge where its framework is installed."""

from collections.abc import Generator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule

collect_ignore = [] if find_spec("torch") else ["tvm_autodiff/interop/torch"]


def pytest_configure(config: pytest.Config) -> None:
    """Load the modules in order: pytest imports a single file as an attribute of its package, where
    it would replace the function of the same name. The process that hands tests to others needs
    none.
    """
    if config.getoption("dist", "no") == "no":
        package = import_module("tvm_autodiff")
        for name in package.__all__:
            getattr(package, name)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path,
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for examples only in files that have any: every worker imports and searches the others
    in vain.
    """
    found = yield
    if found and b">>> " not in file_path.read_bytes():
        return [one for one in found if not isinstance(one, DoctestModule)]
    return found
