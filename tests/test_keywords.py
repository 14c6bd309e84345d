"""What every public function takes: integers of numpy for integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad

TWO, THREE = np.int64(2), np.int32(3)
X = te.placeholder((3, 2), "float32", name="x")
Y = te.compute((3, 2), lambda i, j: X[i, j] * X[i, j], name="y")
I = te.placeholder((3,), "int32", name="i")  # noqa: E741


def scanned() -> list[int]:
    last, _ = ad.scan(lambda carry, _: (carry, None), X, None, length=THREE)
    return list(last.shape)


CALLS: dict[str, tuple[Callable[[], object], object]] = {
    "an extent by itself": (lambda: list(ad.segment_sum(X, I, THREE).shape), [3, 2]),
    "extents in a tuple": (lambda: list(ad.scatter_add(X, [I], (THREE, TWO)).shape), [3, 2]),
    "extents in a list": (lambda: list(ad.scatter_add(X, [I], [THREE, 2]).shape), [3, 2]),
    "a number of steps": (scanned, [3, 2]),
    "threads": (lambda: ad.build([X], Y, num_threads=TWO, cache=False).num_threads, 2),
    "an order": (lambda: ad.check_grads(Y, [X], order=TWO), None),
}


@pytest.mark.parametrize("name", CALLS)
def test_integers_of_numpy(name: str) -> None:
    call, expected = CALLS[name]
    assert call() == expected


def test_no_integers_are_told_as_they_are() -> None:
    with pytest.raises(ad.InvalidArgumentError, match=r"num_threads .* got np.float64\(2.0\)"):
        ad.build([X], Y, num_threads=np.float64(2.0))
