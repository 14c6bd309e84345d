"""Registers the library's errors with TVM, so that its passes re-raise them unchanged.

TVM re-raises an error from a Python function in a pass by the name of its class.
"""

from __future__ import annotations

import tvm_ffi

from ...errors import InvalidArgumentError, LoweringError, NotDifferentiableError, OutOfBoundsError

KINDS = (InvalidArgumentError, LoweringError, NotDifferentiableError, OutOfBoundsError)


def make_known() -> None:
    """Register the errors of the library with TVM."""
    for kind in KINDS:
        tvm_ffi.register_error(kind.__name__, kind)
