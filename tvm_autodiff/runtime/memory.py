"""Reports the memory that a call of a compiled function uses.

A `Memory` has one row for each input, output and block of temporaries, their sums, and prints as a
table. Memory on a kernel's stack or in registers is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..errors import InvalidArgumentError
from ..expr.dtypes import itemsize
from ..graph.loop_plans import LoopPlan
from .calls.call_sizes import planned
from .calls.signature import TensorSpec, dim_value
from .files.manifest import LoopBack, Manifest, Storage


@dataclass(frozen=True)
class Buffer:
    """A piece of memory.

    Attributes
    ----------
    kind : {"input", "updated input", "output", "temporary"}
    size : int
        Bytes.
    tensors : tuple of str
        The tensors in it. Temporaries that do not live at the same time share memory.
    """

    kind: str
    size: int
    tensors: tuple[str, ...]


@dataclass(frozen=True)
class Memory:
    """The memory of one call, in bytes.

    Attributes
    ----------
    buffers : tuple of Buffer
        Inputs, outputs, then temporaries.
    loops : tuple of LoopPlan
        What loops with checkpoints keep, which is part of the temporaries, and the steps that they
        recompute.
    """

    buffers: tuple[Buffer, ...]
    loops: tuple[LoopPlan, ...] = ()

    @property
    def inputs(self) -> int:
        """The bytes of the arguments, including those that are updated in place."""
        return self._sum("input", "updated input")

    @property
    def outputs(self) -> int:
        """Bytes of the results."""
        return self._sum("output")

    @property
    def temporaries(self) -> int:
        """The bytes of temporaries, which a call allocates and frees."""
        return self._sum("temporary")

    @property
    def total(self) -> int:
        """The peak number of bytes of a call."""
        return sum(buffer.size for buffer in self.buffers)

    def _sum(self, *kinds: str) -> int:
        return sum(buffer.size for buffer in self.buffers if buffer.kind in kinds)

    def __str__(self) -> str:
        width = max((len(f"{buffer.size:,}") for buffer in self.buffers), default=1)
        width = max(width, len(f"{self.total:,}"))
        rows = [
            f"{buffer.size:>{width},}  {buffer.kind:13}  {', '.join(buffer.tensors)}"
            for buffer in self.buffers
        ]
        parts = f"{self.inputs:,} in, {self.outputs:,} out, {self.temporaries:,} between"
        total = f"{self.total:>{width},}  bytes: {parts}"
        return "\n".join([*rows, total, *map(str, self.loops)])


def memory_of(manifest: Manifest, sizes: Mapping[str, int]) -> Memory:
    """The memory of a call for some values of the symbols."""
    known = dict(sizes)
    for name, size in known.items():
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0:
            raise InvalidArgumentError(
                f"memory: the size {name} must be a number of elements, got {size!r}"
            )

    def value(dim: object, place: str) -> int:
        found = dim_value(dim, known)
        if found is None:
            raise InvalidArgumentError(
                f"the size of {place} depends on symbols without a value: pass them by name, as in "
                "memory(n=32)"
            )
        return found

    def tensor(kind: str, spec: TensorSpec) -> Buffer:
        count = 1
        for dim in spec.shape:
            count *= value(dim, spec.name)
        return Buffer(kind, count * itemsize(spec.dtype), (spec.name,))

    buffers = [
        tensor("updated input" if number in manifest.updated else "input", spec)
        for number, spec in enumerate(manifest.signature.inputs)
    ]
    buffers += [tensor("output", spec) for spec in manifest.signature.outputs]
    storages = list(manifest.storages)
    if manifest.sizes is not None:
        for one in manifest.sizes.temporaries:
            value(one.size, one.name)  # raises where a symbol has no value
        plan = planned(manifest.sizes, known)
        storages = [Storage(int(one.size), tuple(one.tensors)) for one in plan.storages]
    buffers += [
        Buffer("temporary", value(storage.size, "a temporary"), storage.tensors)
        for storage in storages
    ]
    return Memory(tuple(buffers), tuple(_plan(loop, known) for loop in manifest.loops))


def _plan(loop: LoopBack, sizes: dict[str, int]) -> LoopPlan:
    length, state = (
        None if dim is None else dim_value(dim, sizes) for dim in (loop.length, loop.state_bytes)
    )
    return LoopPlan(loop.name, length, loop.states, state)
