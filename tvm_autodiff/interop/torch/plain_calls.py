"""Tells calls that PyTorch's dispatcher would hand to the CPU kernel and to nothing else.

To go through the dispatcher takes several microseconds. It reads the keys of the tensors and of the
thread, and so does this test: other keys stand for other devices, subclasses, modes, tracers, fake
or functional tensors, and views that are negated lazily.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch


def _keys(*names: str) -> int:
    sets = (torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name)) for name in names)
    return reduce(lambda left, right: left | right, sets).raw_repr()


#: of a tensor on the CPU
_OF_TENSORS = {_keys("CPU", "ADInplaceOrView", "AutogradCPU", "AutocastCPU")}
#: of a thread outside of all modes
_OF_THREAD = _keys("BackendSelect", "ADInplaceOrView")


def is_plain_call(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether an operator on these tensors is its CPU kernel, below autograd."""
    keys, thread = torch._C._dispatch_keys, torch._C._dispatch_tls_local_include_set
    return (
        thread().raw_repr() == _OF_THREAD
        and not torch._C._autograd._profiler_enabled()
        and {keys(tensor).raw_repr() for tensor in tensors} == _OF_TENSORS
    )
