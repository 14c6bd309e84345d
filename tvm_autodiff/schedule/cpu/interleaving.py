"""Schedules elementwise kernels with short axes that choose between formulas; see
`loops.interleaved`.
"""

from __future__ import annotations

from ...codegen.stages.primfunc import StageFunction
from ..declined import Declined
from ..kernel import Kernel
from ..machine import Machine
from .loops.interleaved import interleaved


def interleaving(kernel: Kernel, machine: Machine) -> list[StageFunction] | Declined:
    """Schedule a kernel whose short axes choose what is computed."""
    launch = interleaved(kernel, machine)
    return launch if isinstance(launch, Declined) else [launch]
