"""Counts the functions that a computation calls: how work grows, whatever a machine does beside."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any


def function_calls(run: Callable[[], object]) -> int:
    """The calls of functions, built-in ones too, in this thread and in those that it starts."""
    count = 0

    def counting(frame: Any, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counting)
    threading.setprofile(counting)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return count
