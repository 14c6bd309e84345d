from __future__ import annotations

import copy
import pickle

import pytest
from tvm import te

import tvm_autodiff as ad

x = te.placeholder((3,), name="x")


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
def test_compiled_functions_say_how_to_pass_them_on(copied):
    twice = ad.build(x, te.compute((3,), lambda i: x[i] * 2, name="y"), cache=False)
    with pytest.raises(ad.CallError, match=r"cannot be pickled or copied.*\.export\(path\)"):
        copied(twice)
