"""Calls TVM's recursive passes in a thread with a large stack, for deep programs.

TVM walks expressions and statements by C++ recursion, which overflows the 8 MiB stack of the main
thread for chains of thousands of stages. The library's own walks are iterative (see `rewrite`).
"""

from __future__ import annotations

import ctypes
import threading
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")

STACK_BYTES = 512 * 2**20  #: reserved, not touched: only the pages in use cost memory

_stack_size_lock = threading.Lock()
_inside = threading.local()


def run_deep(function: Callable[..., Result], *args: Any, **kwargs: Any) -> Result:
    """Call ``function(*args, **kwargs)`` with a stack of 512 MiB.

    Exceptions are re-raised in the caller, and an interrupt of the caller ends the call, once TVM
    returns to Python. A nested call is a plain call.

    Examples
    --------
    >>> run_deep(divmod, 7, 3)
    (2, 1)
    """
    if getattr(_inside, "deep", False):
        return function(*args, **kwargs)
    results: list[Result] = []
    failures: list[BaseException] = []

    def body() -> None:
        _inside.deep = True
        try:
            results.append(function(*args, **kwargs))
        except BaseException as error:
            failures.append(error)
        finally:
            done.set()

    done = threading.Event()
    with _stack_size_lock:  # the size is a setting of the process: restore it at once
        before = threading.stack_size(STACK_BYTES)
        try:
            thread = threading.Thread(target=body, name="deep-stack")
            thread.start()
        finally:
            threading.stack_size(before)
    try:
        done.wait()  # an interrupted `join` takes the thread for ended
    except BaseException:  # an interrupt, which Python raises in the main thread only
        _stop(thread)
        done.wait()
        raise
    finally:
        thread.join()
    if failures:
        raise failures[0]
    return results[0]


def raised_while_waiting(error: BaseException) -> bool:
    """Whether an exception is of the caller of `run_deep`, raised by a handler of a signal (a limit
    of time, say) while the call went on.
    """
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code is threading.Event.wait.__code__ for frame, _ in frames)


def _stop(thread: threading.Thread) -> None:
    """Raise an interrupt in a thread, at its next step in Python."""
    name = ctypes.c_ulong(thread.ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(name, ctypes.py_object(KeyboardInterrupt))
