"""Why a schedule rule does not take a kernel.

A rule returns a `Declined` where it does not apply; an exception in a rule is a fault of this
library and is never taken for one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal


class Cause(Enum):
    """What kind of reason it is."""

    OTHER_KIND = "other kind"  #: the rule is made for other kernels
    NO_GAIN = "no gain"  #: plain loops are as good: there is too little work, or nothing to reuse
    CANNOT = "cannot"  #: a kernel of the rule's kind, in a form that the rule has no code for
    REFUSED = "refused"  #: the rule's code is refused by TVM


@dataclass(frozen=True)
class Declined:
    """A rule does not apply; false, as no launches are.

    Attributes
    ----------
    reason : str
        The property of the kernel that is in the way, as a clause: ``"its first axis is empty"``.
    cause : Cause
    """

    reason: str
    cause: Cause = Cause.CANNOT

    def __bool__(self) -> Literal[False]:
        return False


def other_kind(reason: str) -> Declined:
    """The kernel is none that the rule is made for."""
    return Declined(reason, Cause.OTHER_KIND)


def no_gain(reason: str) -> Declined:
    """The rule could take the kernel, and plain loops are as fast."""
    return Declined(reason, Cause.NO_GAIN)


def refused(reason: str) -> Declined:
    """TVM makes no function, or no code, of the rule's schedule."""
    return Declined(f"TVM refuses its code: {reason}", Cause.REFUSED)


NOT_COMPUTED = other_kind("its stage is not a te.compute")
NO_REDUCTION = other_kind("it does not reduce")
REDUCES = other_kind("it reduces")
EMPTY = no_gain("its result is empty")
