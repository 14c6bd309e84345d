"""The reason why a schedule rule does not apply to a kernel.

A rule returns a `Declined` if it does not apply. An exception in a rule is a bug in this library,
and is never treated as a refusal.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal


class Cause(Enum):
    """The kind of reason."""

    OTHER_KIND = "other kind"  #: the rule is made for other kernels
    NO_GAIN = "no gain"  #: plain loops are as good: there is too little work, or nothing to reuse
    CANNOT = "cannot"  #: a kernel of the rule's kind, in a form that the rule has no code for
    REFUSED = "refused"  #: the rule's code is refused by TVM


@dataclass(frozen=True)
class Declined:
    """The result of a rule that does not apply. It is false, unlike launches.

    Attributes
    ----------
    reason : str
        The property of the kernel that prevents the rule, as a clause: ``"its first axis is
        empty"``.
    cause : Cause
        The kind of reason.
    """

    reason: str
    cause: Cause = Cause.CANNOT

    def __bool__(self) -> Literal[False]:
        return False


def other_kind(reason: str) -> Declined:
    """The rule is not made for this kind of kernel."""
    return Declined(reason, Cause.OTHER_KIND)


def no_gain(reason: str) -> Declined:
    """The rule could apply, but plain loops are as fast."""
    return Declined(reason, Cause.NO_GAIN)


def refused(reason: str) -> Declined:
    """TVM cannot make a function, or code, from the rule's schedule."""
    return Declined(f"TVM rejects its code: {reason}", Cause.REFUSED)


NOT_COMPUTED = other_kind("its stage is not a te.compute")
NO_REDUCTION = other_kind("it does not reduce")
REDUCES = other_kind("it reduces")
EMPTY = no_gain("its result is empty")
