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
from .call_sizes import carriers, launches_of, table_for, with_sizes
from .results import QuickCall, quick_call
from .signature import Signature

_MOST_SIZES = 64  #: combinations of sizes that a thread remembers

#: how arrays are passed, and the raw function, which takes arrays only
Call: TypeAlias = tuple[QuickCall, Callable[..., Any]]


def values_of(signature: Signature, arrays: Sequence[Array]) -> dict[str, int]:
    """The symbols of a call whose arrays have been checked."""
    values: dict[str, int] = {}
    for _ in range(2):  # shapes like (2*n,) may precede n
        for array, spec in zip(arrays, signature.inputs, strict=True):
            if not spec.static and (kind := kind_of(array)) is not None:
                shape, dtype = kind.shape_dtype(array)
                signature.check_array("argument", spec, shape, dtype, values)
    return values


class _Own(threading.local):
    """What a thread keeps: the types and the shapes of its last call, and the call."""

    latest: tuple[Any, Any, Call | None] = (None, None, None)


class SizedCalls:
    """The calls of a program that each thread has made, and what those of other sizes take.

    Parameters
    ----------
    manifest : Manifest
        The program.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._own = _Own()
        found = carriers(manifest.signature) or ()
        self._shapes = [*found]
        self._first = found[0] if len(found) == 1 else None

    def remembered(self) -> dict[Any, Call]:
        """The calls of this thread by array types and shapes."""
        found: dict[Any, Call] | None = getattr(self._own, "calls", None)
        if found is None:
            found = self._own.calls = {}
        return found

    def known(self, types: tuple[type, ...], arrays: Sequence[Array]) -> Call | None:
        """The call for arrays of some types, if one of their shapes is remembered."""
        # on the way of every call: no loop in Python, and one look at what the thread keeps
        shapes = self._shapes_of(arrays) if self._first is None else arrays[self._first].shape
        last_types, last_shapes, call = self._own.latest
        if last_types is types and last_shapes == shapes:
            return call
        call = self.remembered().get((types, shapes))
        if call is not None:
            self._own.latest = types, shapes, call
        return call

    def _shapes_of(self, arrays: Sequence[Array]) -> Any:
        """The shapes that tell a call from others of the same types."""
        if self._first is not None:
            return arrays[self._first].shape
        return tuple([arrays[number].shape for number in self._shapes])

    def remember(
        self,
        types: tuple[type, ...],
        arrays: Sequence[Array],
        results: Sequence[Array],
        function: Any,
    ) -> None:
        """Keep a call that was made for the next one with such arrays, if kernels take them."""
        signature = self._manifest.signature
        values = values_of(signature, arrays)
        inputs = [with_sizes(spec, values) for spec in signature.inputs]
        outputs = [with_sizes(spec, values) for spec in signature.outputs]
        quick = quick_call([*arrays, *results], inputs, outputs, self._manifest.updated)
        if quick is None:
            return
        calls = self.remembered()
        if len(calls) >= _MOST_SIZES:
            calls.clear()
        calls[types, self._shapes_of(arrays)] = quick, function

    def function(self, main: Any, arrays: Sequence[Array]) -> Callable[..., Any]:
        """The program for the sizes of some arrays, which takes arrays of these sizes."""
        values = values_of(self._manifest.signature, arrays)
        last, function = getattr(self._own, "last", (None, None))
        if function is None or values != last:
            function = functools.partial(main, ALL_LAUNCHES, *self.in_front(arrays))
            self._own.last = values, function
        return function

    def launches(self, arrays: Sequence[Array]) -> range:
        """The numbers of the launches that run for arrays that have been checked."""
        return launches_of(self._manifest, values_of(self._manifest.signature, arrays))

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
            self._own.latest = None, None, None
            found = empty((max(size, 1),), "uint8")
            self._own.workspace = found, size
        return found
