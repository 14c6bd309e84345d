"""Functions of numpy on tensors are refused while a function of tensors is called."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, topi

import tvm_autodiff as ad
from tvm_autodiff.errors import InvalidArgumentError
from tvm_autodiff.graph.numpy_calls import without_numpy_calls

DATA = np.arange(12, dtype="float32").reshape(3, 4)

#: function of numpy → what the error names
REFUSED = {
    "max": (np.max, "topi.max"),
    "sum": (lambda x: np.sum(x, axis=1), "topi.sum"),
    "prod": (np.prod, "topi.prod"),
    "norm": (np.linalg.norm, "topi and"),
    "a list of tensors": (lambda x: np.stack([x, x]), "topi.stack"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_functions_of_numpy_are_refused(name: str) -> None:
    """``np.max(x)`` was x, without any error."""
    function, named = REFUSED[name]
    with pytest.raises(InvalidArgumentError, match=f"numpy.* has no rule .* x .*{named}"):
        ad.jit(lambda x: function(x))(DATA)


#: what works on tensors, and the same for arrays
KEPT = {
    "a number of numpy": (lambda x: np.float32(2) * x, lambda x: 2 * x),
    "a function of shapes": (lambda x: x * float(np.prod([int(n) for n in x.shape])), None),
    "topi": (lambda x: topi.max(x, axis=1), lambda x: x.max(1)),
}


@pytest.mark.parametrize("name", KEPT)
def test_others_are_not(name: str) -> None:
    function, same = KEPT[name]
    np.testing.assert_allclose(ad.jit(function)(DATA), (same or function)(DATA))


def test_numpy_is_as_before_afterwards() -> None:
    x = te.placeholder((3,), name="x")
    with without_numpy_calls():
        with without_numpy_calls():
            pass
        with pytest.raises(InvalidArgumentError):
            np.max(x)
    assert not hasattr(te.Tensor, "__array_function__")
