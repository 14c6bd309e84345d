"""Transposes square blocks of numbers in registers."""

from __future__ import annotations

from collections.abc import Sequence

from ....codegen.loop_nest import Local, Statement, local
from ....codegen.vectors import filled_with, picked, whole
from ....expr.nodes import Expr


def turned(
    vectors: Sequence[Expr], buffers: list[Local], dtype: str
) -> tuple[list[Statement], list[Expr]]:
    """The columns of a square block whose rows are given vectors.

    Parameters
    ----------
    vectors : sequence of Expr
        The rows; their number equals the number of lanes, a power of two.
    buffers : list of Local
        The buffers of the statements are appended; the last ones hold the columns.
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


def exchanged(vectors: Sequence[Expr], distance: int) -> list[Expr]:
    """``v[i][j + d] ↔ v[i + d][j]`` wherever bit d of i and j is zero.

    After the distances 1, 2, 4, .. the vectors are the columns of what they were the rows of
    (J. O. Eklundh, A fast computer method for matrix transposing, 1972).
    """
    side = len(vectors)
    result: list[Expr] = []
    for number in range(side):
        low, high = vectors[number & ~distance], vectors[number | distance]
        upper = number & distance
        # elements are counted through both vectors
        places = [
            lane & ~distance | upper if not lane & distance else side + (lane & ~distance | upper)
            for lane in range(side)
        ]
        result.append(picked([low, high], places))
    return result
