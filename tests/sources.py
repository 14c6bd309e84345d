"""Files of this repository as trees: several tests read all of them, each parsed once."""

from __future__ import annotations

import ast
import functools


@functools.cache
def parsed(source: str) -> ast.Module:
    """The tree of a file's text, which no one changes."""
    return ast.parse(source)
