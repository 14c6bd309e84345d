"""A gradient compiler for Apache TVM's tensor expressions.

In: a computation written in `tvm.te`. Out: its derivatives, again as tensor expressions. Importing
the package loads TVM, numpy and sympy, and no other framework.
"""

from __future__ import annotations

from .errors import AutodiffError

__version__ = "0.1.0"

__all__ = ["AutodiffError", "__version__"]
