"""Colourings by brute force: no two columns of one colour share a row, stars can be read back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tvm_autodiff.sparse.colouring import colour_columns, colour_symmetric, transposed
from tvm_autodiff.sparse.pattern import Entries


def entries_of(mask: np.ndarray) -> Entries:
    rows, columns = np.nonzero(mask)
    return Entries.of(mask.shape, [rows * mask.shape[1] + columns])


def is_valid(mask: np.ndarray, colours: np.ndarray) -> bool:
    """Whether each row has each colour at most once."""
    return all(
        mask[:, colours == colour].sum(axis=1).max(initial=0) <= 1 for colour in set(colours)
    )


def is_star(mask: np.ndarray, colours: np.ndarray) -> bool:
    """Whether adjacent vertices differ, and no path of four vertices has two colours."""
    near = [[int(v) for v in np.flatnonzero(row) if v != u] for u, row in enumerate(mask)]
    for a in range(len(mask)):
        for b in near[a]:
            if colours[a] == colours[b]:
                return False
            for c in near[b]:
                for d in near[c] if c != a else ():
                    if d not in (a, b) and colours[a] == colours[c] and colours[b] == colours[d]:
                        return False
    return True


def recovered(matrix: np.ndarray, colours: np.ndarray) -> np.ndarray:
    """A symmetric matrix from its products with the sums of the columns of each colour: each entry
    from a product in which nothing is added to it.
    """
    count = colours.max(initial=-1) + 1
    products = np.stack([matrix[:, colours == colour].sum(axis=1) for colour in range(count)])
    found = np.zeros_like(matrix)
    for row, column in zip(*np.nonzero(matrix), strict=True):
        same = (matrix[row] != 0) & (colours == colours[column])
        if same.sum() == 1:
            found[row, column] = products[colours[column], row]
        else:
            assert ((matrix[column] != 0) & (colours == colours[row])).sum() == 1
            found[row, column] = products[colours[row], column]
    return found


masks = st.tuples(
    st.integers(1, 12), st.integers(1, 12), st.integers(0, 2**32 - 1), st.sampled_from([0.1, 0.3])
).map(lambda t: np.random.default_rng(t[2]).random((t[0], t[1])) < t[3])


@settings(max_examples=200, deadline=None)
@given(mask=masks)
def test_columns_of_one_colour_share_no_row(mask: np.ndarray) -> None:
    entries = entries_of(mask)
    by_columns, by_rows = colour_columns(entries), colour_columns(transposed(entries))
    assert is_valid(mask, by_columns.colours)
    assert is_valid(mask.T, by_rows.colours)
    assert by_columns.count >= mask.sum(axis=1).max()


@settings(max_examples=200, deadline=None)
@given(mask=masks)
def test_stars_are_stars_and_can_be_read_back(mask: np.ndarray) -> None:
    size = min(mask.shape)
    mask = mask[:size, :size] | mask[:size, :size].T
    values = np.random.default_rng(0).integers(1, 100, mask.shape)
    matrix = np.where(mask, values + values.T, 0)
    colours = colour_symmetric(entries_of(mask)).colours
    assert is_star(mask, colours)
    np.testing.assert_array_equal(recovered(matrix, colours), matrix)


def banded(size: int, half: int) -> np.ndarray:
    i = np.arange(size)
    return abs(i[:, None] - i) <= half


def arrow(size: int) -> np.ndarray:
    mask = np.eye(size, dtype=bool)
    mask[-1] = mask[:, -1] = True
    return mask


@pytest.mark.parametrize(
    ("mask", "count"), [(banded(30, 1), 3), (banded(30, 4), 9), (np.eye(30, dtype=bool), 1)]
)
def test_bands_take_as_many_colours_as_they_are_wide(mask: np.ndarray, count: int) -> None:
    assert colour_columns(entries_of(mask)).count == count


def test_another_order_than_the_natural_one_helps() -> None:
    """An arrow: symmetric with two colours, where its columns take one each."""
    entries = entries_of(arrow(12))
    assert colour_columns(entries).count == 12
    star = colour_symmetric(entries)
    assert star.count == 2
    assert is_star(arrow(12), star.colours)


def test_orders_differ() -> None:
    """A crown, whose columns conflict with all but their partner: pairs in order take 2 colours
    where each vertex meets what the other side has; the natural order takes half of the vertices.
    """
    half = 8
    rows = [(a, half + b) for a in range(half) for b in range(half) if a != b]
    mask = np.zeros((len(rows), 2 * half), bool)
    for row, (a, b) in enumerate(rows):
        mask[row, a] = mask[row, b] = True
    order = [n for pair in zip(range(half), range(half, 2 * half), strict=True) for n in pair]
    found = colour_columns(entries_of(mask[:, order]))
    assert found.count == 2
    assert found.order != "natural"
