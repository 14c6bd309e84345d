"""Draws patterns in Braille characters of two by four dots."""

from __future__ import annotations

import shutil

import numpy as np

from .points import Array

#: bit of each dot of a character, by row and column
_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
_BLANK = 0x2800
_MOST_LINES = 24


def picture(
    shape: tuple[int, int], rows: Array, columns: Array, width: int | None, height: int | None
) -> str:
    """The entries of a matrix as dots; in a large matrix one dot is a block of entries.

    Examples
    --------
    >>> diagonal = np.arange(8)
    >>> print(picture((8, 8), diagonal, diagonal, 80, 24))
    ⠑⢄⠀⠀
    ⠀⠀⠑⢄
    """
    if width is None:
        width = shutil.get_terminal_size().columns
    across, down = 2 * max(1, width), 4 * max(1, _MOST_LINES if height is None else height)
    if 0 in shape:
        return ""
    # use the same scale for both, so that a diagonal stays a diagonal: `many` entries are `few`
    # dots
    many, few = max([(1, 1), (shape[0], down), (shape[1], across)], key=lambda s: s[0] / s[1])
    size = [-(-extent * few // many) for extent in shape]
    y, x = rows * few // many, columns * few // many
    dots = np.zeros((-(-size[0] // 4) * 4, -(-size[1] // 2) * 2), bool)
    dots[y, x] = True
    blocks = dots.reshape(dots.shape[0] // 4, 4, dots.shape[1] // 2, 2)
    codes = np.einsum("aibj,ij->ab", blocks, _DOTS) + _BLANK
    return "\n".join("".join(map(chr, line)) for line in codes)
