"""Exact integer matrices: unimodular diagonalisation and small bases of a null space.

Matrices are lists of rows of Python integers, which cannot overflow. The result is ``U A V = D``
with unimodular `U` and `V` and diagonal `D` (without a divisibility chain, which solving does not
need), and the inverse of `V`. `equations` defines the meaning of rows and columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Matrix = list[list[int]]


@dataclass
class Diagonalization:
    """The result of `diagonalize`: ``left @ a @ right = diag(pivots) padded with zeros``.

    Attributes
    ----------
    left : list of rows, shape (m, m)
        Unimodular row transformation U.
    pivots : list of int, length r
        The nonzero diagonal; r is the rank. All are positive.
    right, right_inverse : list of rows, shape (n, n)
        Unimodular column transformation V and its inverse. Columns r, r + 1, ... of V are a basis
        of the integer null space, with small entries.
    """

    left: Matrix
    pivots: list[int]
    right: Matrix
    right_inverse: Matrix

    @property
    def rank(self) -> int:
        """Number of nonzero pivots."""
        return len(self.pivots)


def identity_matrix(n: int) -> Matrix:
    """The identity of size n."""
    return [[int(i == j) for j in range(n)] for i in range(n)]


def multiply(a: Matrix, b: Matrix) -> Matrix:
    """The product of two matrices.

    Examples
    --------
    >>> multiply([[1, 2]], [[3], [4]])
    [[11]]
    """
    columns = list(zip(*b, strict=True))
    return [[sum(x * y for x, y in zip(row, col, strict=True)) for col in columns] for row in a]


def diagonalize(a: Sequence[Sequence[int]], columns: int) -> Diagonalization:
    """Diagonalise an integer matrix by unimodular row and column operations.

    Parameters
    ----------
    a : sequence of rows, shape (m, columns)
    columns : int
        The number of columns, needed where there are no rows.

    Returns
    -------
    Diagonalization
        The diagonalisation, with small entries in the null space basis and the particular columns.

    Examples
    --------
    >>> d = diagonalize([[2, 3]], 2)
    >>> d.pivots, [row[1] for row in d.right]
    ([1], [3, -2])
    """
    d = [list(row) for row in a]
    m, n = len(d), columns
    left, right, inverse = identity_matrix(m), identity_matrix(n), identity_matrix(n)
    rank = 0
    while rank < m and rank < n:
        pivot = _smallest(d, rank)
        if pivot is None:
            break
        row, col = pivot
        if row != rank:
            d[row], d[rank] = d[rank], d[row]
            left[row], left[rank] = left[rank], left[row]
        if col != rank:
            for table in (d, right):
                for line in table:
                    line[col], line[rank] = line[rank], line[col]
            inverse[col], inverse[rank] = inverse[rank], inverse[col]
        value = d[rank][rank]
        clean = True
        for i in range(rank + 1, m):
            q = d[i][rank] // value
            if q:
                _add_row(d, i, rank, -q)
                _add_row(left, i, rank, -q)
            clean = clean and d[i][rank] == 0
        for j in range(rank + 1, n):
            q = d[rank][j] // value
            if q:
                _add_column(d, j, rank, -q)
                _add_column(right, j, rank, -q)
                _add_row(inverse, rank, j, q)
            clean = clean and d[rank][j] == 0
        if clean:
            if value < 0:
                d[rank] = [-x for x in d[rank]]
                left[rank] = [-x for x in left[rank]]
            rank += 1
    _reduce_basis(right, inverse, rank)
    return Diagonalization(left, [d[i][i] for i in range(rank)], right, inverse)


def _smallest(d: Matrix, start: int) -> tuple[int, int] | None:
    """The position of the non-zero entry of smallest absolute value, the first one on ties."""
    best: tuple[int, int] | None = None
    size = 0
    for i in range(start, len(d)):
        for j in range(start, len(d[i])):
            value = abs(d[i][j])
            if value and (best is None or value < size):
                best, size = (i, j), value
    return best


def _add_row(table: Matrix, target: int, source: int, factor: int) -> None:
    table[target] = [x + factor * y for x, y in zip(table[target], table[source], strict=True)]


def _add_column(table: Matrix, target: int, source: int, factor: int) -> None:
    for line in table:
        line[target] += factor * line[source]


def _reduce_basis(right: Matrix, inverse: Matrix, rank: int) -> None:
    """Shorten the null space columns by each other, then the particular columns by them.

    column i → column i - q * column j keeps V unimodular, and the norm decreases with each step, so
    the loop ends. The first non-zero entry of each null space column is made positive.
    """
    n = len(right)
    columns = [[line[j] for line in right] for j in range(n)]

    def shorten(i: int, j: int) -> bool:
        norm = sum(x * x for x in columns[j])
        dot = sum(x * y for x, y in zip(columns[i], columns[j], strict=True))
        q = (2 * dot + norm) // (2 * norm)
        if q == 0 or abs(2 * dot) <= norm:
            return False
        columns[i] = [x - q * y for x, y in zip(columns[i], columns[j], strict=True)]
        _add_row(inverse, j, i, q)
        return True

    changed = n - rank > 1
    while changed:
        changed = False
        for i in range(rank, n):
            for j in range(rank, n):
                if i != j and shorten(i, j):
                    changed = True
    for j in range(rank, n):
        if next(x for x in columns[j] if x) < 0:
            columns[j] = [-x for x in columns[j]]
            inverse[j] = [-x for x in inverse[j]]
    for i in range(rank):
        while any(shorten(i, j) for j in range(rank, n)):
            pass
    for j in range(n):
        for line, value in zip(right, columns[j], strict=True):
            line[j] = value


def determinant(a: Matrix) -> int:
    """The determinant, by elimination without fractions (Bareiss).

    Examples
    --------
    >>> determinant([[2, 1], [1, 3]])
    5
    """
    rows = [list(row) for row in a]
    sign, previous = 1, 1
    for k in range(len(rows) - 1):
        pivot = next((i for i in range(k, len(rows)) if rows[i][k]), None)
        if pivot is None:
            return 0
        if pivot != k:
            rows[k], rows[pivot] = rows[pivot], rows[k]
            sign = -sign
        head = rows[k]
        for i in range(k + 1, len(rows)):
            line = rows[i]
            rows[i] = [
                (head[k] * line[j] - line[k] * head[j]) // previous if j > k else 0
                for j in range(len(rows))
            ]
        previous = head[k]
    return sign * rows[-1][-1] if rows else 1


def inverse_unimodular(a: Matrix) -> Matrix | None:
    """The inverse of a square integer matrix whose determinant is 1 or -1, else None.

    Examples
    --------
    >>> inverse_unimodular([[1, 2], [0, 1]])
    [[1, -2], [0, 1]]
    >>> inverse_unimodular([[2]]) is None
    True
    """
    n = len(a)
    form = diagonalize(a, n)
    if form.rank < n or any(p != 1 for p in form.pivots):
        return None
    return multiply(form.right, form.left)
