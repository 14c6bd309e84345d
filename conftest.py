"""Which files doctests are looked for in: those of a bridge where its framework is installed."""

from importlib import import_module
from importlib.util import find_spec

import pytest

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
