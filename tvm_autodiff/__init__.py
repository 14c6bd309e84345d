"""A gradient compiler for Apache TVM's tensor expressions.

It takes a computation written in `tvm.te`, returns its derivatives as tensor expressions, and
compiles both to fast kernels. Importing the package loads nothing: each name loads its module when
it is used, and none loads a framework other than TVM and numpy.
"""

from __future__ import annotations

import lazy_loader

# the names are in `__init__.pyi`, with the module that each is loaded from at its first use
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.1.0"
