"""Tells calls that PyTorch's dispatcher would hand to the CPU kernel and to nothing else.

To go through the dispatcher takes several microseconds. It reads the keys of the tensors and of the
thread. Here functions ask for what keys other than those of ordinary CPU tensors stand for: a set
of keys is an object that PyTorch allocates, which costs ten times as much as an answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.autograd import forward_ad

_profiled = torch._C._autograd._profiler_enabled
_transformed = torch._C._are_functorch_transforms_active
_traced = torch._C._is_tracing
#: subclasses with a dispatch of their own, functional, batched and sparse tensors, those without
#: values, and any tensor under a mode
_is_like_a_subclass = torch._C._dispatch_isTensorSubclassLike
_STRIDED = torch.strided


def is_plain_call(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether an operator on these tensors is its CPU kernel, below autograd."""
    if forward_ad._current_level >= 0 or _transformed() or _profiled() or _traced():
        return False
    for tensor in tensors:
        if (
            not tensor.is_cpu
            or tensor.layout is not _STRIDED
            or _is_like_a_subclass(tensor)
            or tensor.is_neg()
            or tensor._is_zerotensor()
        ):
            return False
    return len(tensors) > 0
