"""Issues warnings that point at the caller's code, from any depth in the library."""

from __future__ import annotations

import os
import sys
import warnings

from .package import FOLDER

_INSIDE = str(FOLDER) + os.sep


def warn(message: str, category: type[Warning]) -> None:
    """Issue a warning at the innermost line outside this package.

    Parameters
    ----------
    message : str
        What happened, and what to do.
    category : type of Warning
        A class of `errors`.
    """
    frame, depth = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INSIDE):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(message, category, stacklevel=depth)
