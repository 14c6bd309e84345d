"""The manifest of a compiled program: everything about it except its code, in a form for JSON.

It holds the signature, the inputs that are updated in place, one row for each launch, and the plan
of the temporaries, so a library read from a file can be called and inspected like one just built.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ...codegen.host.workspace import Temporary
from ..calls.signature import Dim, Signature


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel, or those of all steps of a loop.

    Attributes
    ----------
    name : str
        The called function; empty where a result is another view of what is there.
    kernel : str
        The stages that it computes completely or partly.
    number : int
        The number of the kernel, which its launches share.
    rule : str
        The schedule rule that made it.
    operations : int or None
        Floating point operations of one call of the kernel; None if sizes are symbolic.
    traffic : int or None
        The bytes of the tensors that a call reads and writes, each counted once.
    reasons : tuple of str
        Why no faster schedule rule applies to the kernel; empty if one does.
    calls : int or None
        The number of calls: more than one in a loop, None if it is symbolic.
    """

    name: str
    kernel: str
    number: int
    rule: str
    operations: int | None = None
    traffic: int | None = None
    reasons: tuple[str, ...] = ()
    calls: int | None = 1


@dataclass(frozen=True)
class Storage:
    """Memory for temporaries, which share it one after the other.

    Attributes
    ----------
    size : Dim
        Bytes: an int, or a dimension over the symbols of the signature.
    tensors : tuple of str
        The tensors that use it, in order.
    """

    size: Dim
    tensors: tuple[str, ...]


@dataclass(frozen=True)
class SizePart:
    """The launches of a program for the calls with ``low <= size < high``.

    Attributes
    ----------
    size : Dim
    low, high : int
    launches, temporaries : int
        How many of the launches and temporaries of the program are its own, in their order.
    """

    size: Dim
    low: int
    high: int
    launches: int
    temporaries: int


@dataclass(frozen=True)
class Sizes:
    """What ``main`` of a program of symbolic sizes finds in its array table after the arrays.

    Attributes
    ----------
    values : tuple of Dim
        The sizes that it reads.
    temporaries : tuple of Temporary
        The temporaries whose offsets in the workspace it reads.
    parts : tuple of SizePart
        The parts of the program, of which a call runs the first that it fits; the number of this
        part is in front of the sizes. Empty if there is one.
    """

    values: tuple[Dim, ...]
    temporaries: tuple[Temporary[Dim], ...]
    parts: tuple[SizePart, ...] = ()


@dataclass(frozen=True)
class LoopBack:
    """A reverse loop that keeps some of the states of a loop.

    Attributes
    ----------
    name : str
        The name of the stage.
    length : Dim or None
        The number of steps, or None if no symbol of the signature defines it.
    states : int
        The states that are kept at a time.
    state_bytes : Dim or None
        The bytes of one state.
    """

    name: str
    length: Dim | None
    states: int
    state_bytes: Dim | None


@dataclass(frozen=True)
class Limit:
    """A stage reads the places from `least` to `most` of a dimension of a tensor, which has `dim`
    elements, if its `loops` have steps.
    """

    stage: str
    tensor: str
    most: Dim
    dim: Dim
    loops: tuple[Dim, ...] = ()
    least: Dim = 0


@dataclass(frozen=True)
class Manifest:
    """A compiled program without its code.

    Attributes
    ----------
    updated : tuple of int
        The numbers of the inputs that a call updates in place.
    uses_vm : bool
        Whether ``main`` is a function of Relax's virtual machine.
    workspace : int or None
        The bytes of temporaries that ``main`` takes together with a launch number and the array
        table; None if it takes only arrays, or if this depends on symbolic sizes.
    sizes : Sizes or None
        What determines table and workspace at a call; None for all other programs.
    parallel : bool
        Whether kernels were scheduled for more than one thread.
    notice : str or None
        The text of a warning about slow kernels.
    target : str
        The target that the code was built for.
    architecture : str
        The CPU architecture that it needs; empty if unknown.
    features : tuple of str
        The CPU features that it may use, by their LLVM names.
    loops : tuple of LoopBack
        The loops that keep some of their states.
    limits : tuple of Limit
        What the sizes of a call have to satisfy.
    """

    signature: Signature
    updated: tuple[int, ...] = ()
    launches: tuple[Launch, ...] = ()
    storages: tuple[Storage, ...] = ()
    uses_vm: bool = False
    parallel: bool = True
    workspace: int | None = None
    notice: str | None = None
    target: str = ""
    architecture: str = ""
    features: tuple[str, ...] = ()
    loops: tuple[LoopBack, ...] = ()
    sizes: Sizes | None = None
    limits: tuple[Limit, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """A form that JSON can hold."""
        return {
            "signature": self.signature.to_json(),
            "updated": list(self.updated),
            "launches": [asdict(launch) for launch in self.launches],
            "storages": [[storage.size, list(storage.tensors)] for storage in self.storages],
            "uses_vm": self.uses_vm,
            "parallel": self.parallel,
            "workspace": self.workspace,
            "notice": self.notice,
            "target": self.target,
            "architecture": self.architecture,
            "features": list(self.features),
            "loops": [asdict(loop) for loop in self.loops],
            "sizes": None if self.sizes is None else asdict(self.sizes),
            "limits": [asdict(limit) for limit in self.limits],
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Manifest:
        """The inverse of `to_json`."""
        return Manifest(
            Signature.from_json(data["signature"]),
            tuple(data["updated"]),
            tuple(Launch(**{**row, "reasons": tuple(row["reasons"])}) for row in data["launches"]),
            tuple(Storage(size, tuple(tensors)) for size, tensors in data["storages"]),
            data["uses_vm"],
            data["parallel"],
            data["workspace"],
            data["notice"],
            data["target"],
            data["architecture"],
            tuple(data["features"]),
            tuple(LoopBack(**row) for row in data["loops"]),
            _sizes_from(data.get("sizes")),
            tuple(Limit(**row) for row in data.get("limits", ())),
        )


def _sizes_from(data: dict[str, Any] | None) -> Sizes | None:
    if data is None:
        return None
    rows = tuple(Temporary(**row) for row in data["temporaries"])
    parts = tuple(SizePart(**row) for row in data["parts"])
    return Sizes(tuple(data["values"]), rows, parts)
