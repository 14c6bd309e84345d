"""Tables of constants in compiled code: one global array of bytes, in LLVM IR.

TVM 0.27 has no statement for constant arrays, and a table as a parameter would be one more thing
that a stored library needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

#: bytes: tables begin at multiples, as places in a workspace do
ALIGNMENT = 64
#: what a function that is named so returns: the address of the first table
SYMBOL = "constants"


@dataclass
class Constants:
    """The tables of a program; equal ones are kept once.

    Examples
    --------
    >>> tables = Constants()
    >>> tables.add(np.arange(3.0)), tables.add(np.ones(2)), tables.add(np.arange(3.0))
    (0, 64, 0)
    """

    pieces: list[bytes] = field(default_factory=list)
    places: dict[bytes, int] = field(default_factory=dict)

    def add(self, table: np.ndarray) -> int:
        """The offset of a table, in bytes."""
        data = table.tobytes()
        if data not in self.places:
            self.places[data] = sum(map(len, self.pieces))
            self.pieces.append(data + bytes(-len(data) % ALIGNMENT))
        return self.places[data]

    @property
    def code(self) -> str:
        """The definition of the tables, and of the function that tells where they are."""
        return constant_code(self.pieces) if self.pieces else ""


def constant_code(pieces: Sequence[bytes]) -> str:
    r"""LLVM IR of some bytes in a row.

    Examples
    --------
    >>> print(constant_code([b"ab", b"\x00"]))
    @tvm_autodiff_table = internal unnamed_addr constant [3 x i8] c"\61\62\00", align 64
    <BLANKLINE>
    define ptr @tvm_autodiff_constants() {
      ret ptr @tvm_autodiff_table
    }
    <BLANKLINE>
    """
    data = b"".join(pieces)
    digits = data.hex().upper()
    text = "".join(f"\\{digits[n : n + 2]}" for n in range(0, len(digits), 2))
    return (
        f"@tvm_autodiff_table = internal unnamed_addr constant [{len(data)} x i8] "
        f'c"{text}", align {ALIGNMENT}\n\n'
        f"define ptr @tvm_autodiff_{SYMBOL}() {{\n  ret ptr @tvm_autodiff_table\n}}\n"
    )
