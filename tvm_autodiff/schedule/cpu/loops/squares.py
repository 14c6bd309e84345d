"""Transposes square blocks of numbers in registers."""

from __future__ import annotations

from collections.abc import Sequence

from ....codegen.loop_nest import Local, Statement, local
from ....codegen.vectors import filled_with, whole
from ....expr.nodes import Expr
from ..transposition import exchanged


def turned(
    vectors: Sequence[Expr], buffers: list[Local], dtype: str
) -> tuple[list[Statement], list[Expr]]:
    """The columns of a square block whose rows are given vectors.

    Parameters
    ----------
    vectors : sequence of Expr
        The rows; their number equals the number of lanes, a power of two.
    buffers : list of Local
        The buffers of the statements are appended.
    dtype : str
        The dtype of the numbers.
    """
    statements: list[Statement] = []
    side, distance = len(vectors), 1
    while distance < side:
        kept = []
        for vector in exchanged(vectors, distance):
            kept.append(local(f"turned{len(buffers)}", [side], dtype))
            buffers.append(kept[-1])
            statements.append(filled_with(kept[-1], vector))
        vectors = [whole(place) for place in kept]
        distance *= 2
    return statements, list(vectors)
