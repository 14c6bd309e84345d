"""The rules for CUDA, in the order in which they are tried."""

from __future__ import annotations

from ..declined import Declined
from ..fusion.chains import Chain
from ..machine import Machine
from ..rule import ChainRule, Launches, Rule, apply_rules
from .any_reducer import any_reducer
from .contraction import contraction
from .elementwise import elementwise
from .fallback import fallback
from .library_chain import library_chain
from .library_matmul import library_matmul
from .loops import loops
from .reduction import reduction
from .row_chain import rows_of_chain
from .scatter import scatter
from .transposition import transposition
from .verify import verified
from .window_sums import window_sums

_RULES: tuple[Rule, ...] = (
    transposition,
    elementwise,
    contraction,
    library_matmul,
    window_sums,
    reduction,
    any_reducer,
    scatter,
)

_KERNEL_RULES: tuple[Rule, ...] = (*map(verified, _RULES), loops, fallback)


def row_chain(chain: Chain, machine: Machine) -> Launches | Declined:
    """The rows of a fusion group as one function, and its sums over the rows as separate kernels.
    """
    found = rows_of_chain(chain, machine)
    if isinstance(found, Declined):
        return found
    sums = [one for kernel in found.left for one in apply_rules(kernel, machine, _KERNEL_RULES)]
    return [found.launch, *(launch for one in sums for launch in one.launches)]


CUDA_RULES: tuple[Rule, ...] = (
    ChainRule(verified(library_chain)),
    ChainRule(verified(row_chain)),
    *_KERNEL_RULES,
)
