"""Plans the memory that a loop needs in addition to its arguments, as one array of bytes.

Each piece has a size, which may be symbolic, and is needed between two launches. The array is a
tensor of the program, so its memory is planned and reported like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...codegen.host.direct_calls import ALIGNMENT
from ...codegen.host.workspace import Temporary, plan_workspace
from ...expr.build import cast, const
from ...expr.dtypes import itemsize
from ...expr.nodes import Expr, Tensor, dtype_of
from ...graph.stage import Extent, shape_of

Size = Expr | int


@dataclass(frozen=True)
class Piece:
    """A piece of memory; the launches are those of one step."""

    name: str
    size: Size
    unit: int  #: bytes of an element
    first: int
    last: int


def size_in_bytes(tensor: Tensor) -> Size:
    """The bytes of a tensor."""
    return _bytes(tensor, shape_of(tensor))


def row_in_bytes(tensor: Tensor) -> Size:
    """The bytes of one element of a sequence."""
    return _bytes(tensor, shape_of(tensor)[1:])


def _bytes(tensor: Tensor, shape: Sequence[Extent]) -> Size:
    count: Size = itemsize(dtype_of(tensor))
    for extent in shape:
        factor = extent if isinstance(extent, int) else cast("int64", extent)
        count = factor * count
    return count


def piece_of(tensor: Tensor, first: int, last: int) -> Piece:
    """The memory of a tensor that is needed between two launches."""
    name, size = str(tensor.op.name), size_in_bytes(tensor)
    return Piece(name, size, itemsize(dtype_of(tensor)), first, last)


def planned(pieces: Sequence[Piece]) -> tuple[Size, list[Size]]:
    """The size of all pieces and the offset of each; those of literal sizes share memory.

    Examples
    --------
    >>> a, b = Piece("a", 8, 4, 0, 1), Piece("b", 8, 4, 2, 3)
    >>> planned([a, b])[1]
    [0, 0]
    """
    literal = [n for n, piece in enumerate(pieces) if isinstance(piece.size, int)]
    temporaries = [
        Temporary(pieces[n].name, int(pieces[n].size), pieces[n].first, pieces[n].last)
        for n in literal
    ]
    plan = plan_workspace(temporaries, ALIGNMENT)
    offsets: dict[int, Size] = dict(zip(literal, plan.offsets, strict=True))
    position: Size = plan.size
    # the widest elements first, so that each piece is aligned to its elements
    rest = sorted(set(range(len(pieces))) - set(literal), key=lambda n: (-pieces[n].unit, n))
    for number in rest:
        offsets[number] = position
        position = position + pieces[number].size + const(ALIGNMENT, "int64")
    return position, [offsets[number] for number in range(len(pieces))]
