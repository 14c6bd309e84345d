"""The library's errors, known to TVM, whose passes raise them as they are.

TVM raises what a Python function in a pass raised once more, by the name of its class.
"""

from __future__ import annotations

import tvm_ffi

from ...errors import InvalidArgumentError, LoweringError, NotDifferentiableError, OutOfBoundsError

KINDS = (InvalidArgumentError, LoweringError, NotDifferentiableError, OutOfBoundsError)


def make_known() -> None:
    """Let errors of the library pass through TVM."""
    for kind in KINDS:
        tvm_ffi.register_error(kind.__name__, kind)
