"""What a compiled program is known by besides its code, in a form that JSON holds.

In: a signature, which inputs are updated in place, one row for each launch of a kernel, the plan of
the temporaries. Out: the same as text and back, so that a library read from a file can be called,
and tells its memory and its kernels, as well as one just built.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from .signature import Dim, Signature


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel, or those of all steps of a loop.

    Attributes
    ----------
    name : str
        The function that is called.
    kernel : str
        The stages that it computes, or computes a part of.
    number : int
        Which kernel of the program that is: launches of one share it.
    rule : str
        The schedule rule that made it.
    operations : int or None
        Floating point operations of one call of the kernel; None where sizes are symbols.
    traffic : int or None
        Bytes of the tensors that a call reads and writes, each once.
    reasons : tuple of str
        Why no faster schedule rule took the kernel; empty where one did.
    calls : int or None
        How often it is called: more than once in a loop, None where that is symbolic.
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
        What lies there, in order.
    """

    size: Dim
    tensors: tuple[str, ...]


@dataclass(frozen=True)
class LoopBack:
    """A loop back that keeps some of the states of a loop.

    Attributes
    ----------
    name : str
        Of the stage.
    length : Dim or None
        The number of steps; None where no symbol of the signature tells it.
    states : int
        The states that are kept at a time.
    state_bytes : Dim or None
        Bytes of one of them.
    """

    name: str
    length: Dim | None
    states: int
    state_bytes: Dim | None


@dataclass(frozen=True)
class Record:
    """A compiled program without its code.

    Attributes
    ----------
    updated : tuple of int
        Numbers of the inputs that a call writes their new values into.
    uses_vm : bool
        Whether ``main`` is a function of Relax's virtual machine.
    workspace : int or None
        Bytes of the memory for temporaries that ``main`` takes together with a launch's number and
        the table of the arrays; None where it takes arrays alone.
    parallel : bool
        Whether kernels were scheduled for more than one thread.
    notice : str or None
        What a warning says about kernels that are slower than they could be.
    target : str
        What the code was built for.
    architecture : str
        Of the CPU that it needs; empty where that is not known.
    features : tuple of str
        Of the CPU, as LLVM names them, that it may use.
    loops : tuple of LoopBack
        The loops that keep some of their states.
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
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Record:
        """The inverse of `to_json`."""
        return Record(
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
        )
