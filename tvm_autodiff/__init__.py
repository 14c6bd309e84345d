"""A gradient compiler for Apache TVM's tensor expressions.

It takes a computation written in `tvm.te`, returns its derivatives as tensor expressions, and
compiles both to fast kernels. Importing the package loads nothing: each name loads its module when
it is used, and none loads a framework other than TVM and numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import lazy_loader

# the names are in `__init__.pyi`, with the module that each is loaded from at its first use
_load, _, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "interop":
        return import_module(f"{__name__}.interop")
    if name in __all__:
        return _load(name)
    from .keywords import suggestion

    raise AttributeError(f"tvm_autodiff has no {name!r}{suggestion(name, __all__)}")


def __dir__() -> list[str]:
    return [*__all__, "interop"]


__version__ = "0.1.0"
