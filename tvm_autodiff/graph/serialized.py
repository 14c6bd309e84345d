"""Tensors as text, by TVM's own serialisation.

It holds names and sharing, visits tensors in the order in which they refer to each other, and
holds no address: equal programs have equal texts, in whatever process.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import ir

from ..expr.nodes import Tensor


def serialized(groups: Sequence[Sequence[Tensor]]) -> str | None:
    """The text of groups of tensors; None for tensors that TVM cannot write down.

    Examples
    --------
    >>> from tvm import te
    >>> x, z = te.placeholder((3,), name="x"), te.placeholder((3,), name="z")
    >>> serialized([[x]]) == serialized([[x]]), serialized([[x]]) == serialized([[z]])
    (True, False)
    """
    try:
        return str(ir.save_json([list(group) for group in groups]))
    except (TypeError, ValueError, RuntimeError):
        return None
