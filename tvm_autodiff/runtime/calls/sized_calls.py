"""Calls of programs of symbolic sizes, remembered by their sizes.

A table and a workspace serve one call at a time, so each thread has its own.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ...codegen.host.direct_calls import ALL_LAUNCHES
from ..arrays import Array, kind_of
from ..files.export import table_of
from ..files.manifest import Manifest
from ..tensors import copied, empty
from .call_sizes import table_for, with_sizes
from .results import makers_of
from .signature import Signature

_MOST_SIZES = 64  #: combinations of sizes that a thread remembers

#: makers of the results, and the raw function, which takes arrays only
Call: TypeAlias = tuple[list[Callable[[], Array]], Callable[..., Any]]


def values_of(signature: Signature, arrays: Sequence[Array]) -> dict[str, int]:
    """The symbols of a call whose arrays have been checked."""
    values: dict[str, int] = {}
    for _ in range(2):  # shapes like (2*n,) may precede n
        for array, spec in zip(arrays, signature.inputs, strict=True):
            if not spec.static and (kind := kind_of(array)) is not None:
                shape, dtype = kind.shape_dtype(array)
                signature.check_array("argument", spec, shape, dtype, values)
    return values


class SizedCalls:
    """The calls of a program that each thread has made, and what those of other sizes take.

    Parameters
    ----------
    manifest : Manifest
        The program.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._own = threading.local()

    def remembered(self) -> dict[Any, Call]:
        """The calls of this thread by array types and shapes."""
        found: dict[Any, Call] | None = getattr(self._own, "calls", None)
        if found is None:
            found = self._own.calls = {}
        return found

    def remember(
        self, key: Any, arrays: Sequence[Array], results: Sequence[Array], function: Any
    ) -> None:
        """Keep a call that was made for the next one with such arrays, if kernels take them."""
        signature = self._manifest.signature
        values = values_of(signature, arrays)
        inputs = [with_sizes(spec, values) for spec in signature.inputs]
        outputs = [with_sizes(spec, values) for spec in signature.outputs]
        makers = makers_of([*arrays, *results], inputs, outputs, self._manifest.updated)
        if makers is None:
            return
        calls = self.remembered()
        if len(calls) >= _MOST_SIZES:
            calls.clear()
        calls[key] = makers, function

    def function(self, main: Any, arrays: Sequence[Array]) -> Callable[..., Any]:
        """The program for the sizes of some arrays, which takes arrays of these sizes."""
        values = values_of(self._manifest.signature, arrays)
        last, function = getattr(self._own, "last", (None, None))
        if function is None or values != last:
            function = functools.partial(main, ALL_LAUNCHES, *self.in_front(arrays))
            self._own.last = values, function
        return function

    def in_front(self, arrays: Sequence[Array]) -> tuple[Any, Any]:
        """The additional arguments of a call with arrays of some sizes: the table and the
        workspace.
        """
        if self._manifest.sizes is None:
            memory = empty((self._manifest.workspace or 1,), "uint8")
            return copied(table_of(self._manifest)), memory
        table, size = table_for(self._manifest, values_of(self._manifest.signature, arrays))
        return copied(table), self._workspace(size)

    def _workspace(self, size: int) -> Any:
        """Memory of at least some bytes, which the calls of a thread share."""
        found, available = getattr(self._own, "workspace", (None, 0))
        if found is None or size > available:
            self.remembered().clear()  # calls that hold the smaller one
            self._own.last = None, None
            found = empty((max(size, 1),), "uint8")
            self._own.workspace = found, size
        return found
