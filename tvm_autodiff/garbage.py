"""Postpones Python's full garbage collections while a program is differentiated or built."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: collections of the middle generation before a full one: more than a build has
_MANY = 1 << 30


@contextmanager
def collected_later() -> Iterator[None]:
    """A context, or a decorator, in which objects that live long are not looked through.

    A build makes many objects and frees few. Whenever a quarter more of them live long, Python
    starts a full collection, which looks through all that the process has imported: with JAX
    loaded, a fifth of a build. Young garbage is collected as before.

    Examples
    --------
    >>> with collected_later():
    ...     gc.get_threshold()[2] > 1000
    True
    """
    first, second, third = gc.get_threshold()
    if third >= _MANY:
        yield
        return
    gc.set_threshold(first, second, _MANY)
    try:
        yield
    finally:
        gc.set_threshold(first, second, third)
