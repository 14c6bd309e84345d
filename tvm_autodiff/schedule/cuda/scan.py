"""Scans: a thread for each row.

In: a kernel that is a scan. Out: one function, whose threads run along their rows. The steps of one
row follow each other whatever the device, so a scan with few rows leaves it idle.
"""

from __future__ import annotations

from functools import partial

from ...ir.primfunc import StageFunction
from ...ir.scan_kernel import scan_function, scan_of
from ...ir.scatter_threads import each_thread
from ..kernels import Kernel
from ..machine import Machine


def scan(kernel: Kernel, machine: Machine) -> list[StageFunction] | None:
    """Schedule a scan; None for other kernels."""
    found = scan_of(kernel.root)
    if found is None:
        return None
    each_row = partial(each_thread, grid=16 * machine.multiprocessors)
    func = scan_function(kernel.root.name, found, each_row, s_tir=True)
    inputs = tuple(kernel.root.inputs)
    return [StageFunction(func.without_attr("global_symbol"), inputs, tuple(kernel.outputs))]
