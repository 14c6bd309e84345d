"""Places that are affine over a box: each box enumerates the places in their order."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_autodiff.sparse.regular import affine_numbers, affine_places


def places(shape, *axes):
    """The positions in a tensor of a shape with its axes in another order."""
    return np.arange(np.prod(shape)).reshape(shape).transpose(axes).ravel()


#: positions, shape of the tensor → whether there is a box
CASES = {
    "all": (np.arange(24), (2, 3, 4), True),
    "transposed": (places((5, 7), 1, 0), (5, 7), True),
    "three axes": (places((2, 3, 4), 2, 0, 1), (2, 3, 4), True),
    "a run through two axes": (places((3, 20), 1, 0), (3, 10, 2), True),
    "every second": (np.arange(0, 24, 2), (4, 6), True),
    "backwards": (np.arange(24)[::-1], (4, 6), True),
    "a block": (np.arange(24).reshape(4, 6)[1:3, 2:5].ravel(), (4, 6), True),
    "rows repeated": (np.repeat(np.arange(6), 3), (6,), True),
    "one": (np.array([5]), (6,), True),
    "a step that carries over": (np.arange(0, 24, 5), (4, 6), False),
    "one exchanged": (np.array([0, 1, 3, 2, 4, 5]), (6,), False),
    "no whole number of runs": (np.array([0, 1, 2, 0, 1]), (6,), False),
    "squares": (np.arange(5) ** 2, (17,), False),
}


@pytest.mark.parametrize("name", CASES)
def test_places(name):
    positions, shape, regular = CASES[name]
    found = affine_places(positions, shape)
    assert (found is not None) == regular
    if found is not None:
        got = [
            np.ravel_multi_index(
                np.array(found.base)
                + sum(n * np.array(s) for n, s in zip(index, found.steps, strict=True)),
                shape,
            )
            for index in np.ndindex(*found.extents)
        ]
        assert got == positions.tolist()


def test_random_places():
    random = np.random.default_rng(0)
    taken = 0
    for _ in range(300):
        shape = tuple(random.integers(1, 5, random.integers(1, 4)))
        order = random.permutation(len(shape))
        tensor = np.arange(np.prod(shape)).reshape(shape).transpose(order)
        for axis in range(tensor.ndim):
            if random.random() < 0.3:
                tensor = np.flip(tensor, axis)
        positions = tensor.ravel().copy()
        if random.random() < 0.3 and positions.size > 2:
            positions[random.integers(positions.size)] = 0
        found = affine_places(positions, shape)
        if found is None or not found.extents:
            continue
        taken += 1
        indices = np.indices(found.extents).reshape(len(found.extents), -1).T
        steps = np.array(found.steps).reshape(len(found.extents), len(shape))
        coordinates = np.array(found.base) + indices @ steps
        np.testing.assert_array_equal(np.ravel_multi_index(coordinates.T, shape), positions)
    assert taken > 150


#: numbers → the coefficients
NUMBERS = {
    "columns": (np.tile(np.arange(3), (5, 1)), ([0, 1], 0)),
    "both": (2 * np.arange(4)[:, None] - np.arange(3) + 7, ([2, -1], 7)),
    "the same": (np.full((2, 2), 4), ([0, 0], 4)),
    "one": (np.full((1, 1), 4), ([0, 0], 4)),
    "cyclic": (np.arange(6) % 3, None),
    "none": (np.zeros((0, 3)), None),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name):
    numbers, wanted = NUMBERS[name]
    assert affine_numbers(numbers.astype("int32")) == wanted
