"""Random programs as two passes, for several budgets, beside the reference's gradients."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_autodiff as ad
from tests.evaluate import numpy_dtype
from tests.random_programs.cases import random_case
from tests.random_programs.checking import furthest, quietly
from tests.random_programs.modes import PULLED


@pytest.mark.slow
@pytest.mark.parametrize("feature", ["basic", "symbolic"])
@pytest.mark.parametrize("seed", range(3))
def test_backward_passes(seed: int, feature: str) -> None:
    assert complaints(seed, feature) == []


def complaints(seed: int, feature: str) -> list[str]:
    """What is wrong with the two passes of a random program."""
    case = random_case(seed, (feature,))
    program = case.program
    if case.mode not in PULLED:
        return []
    tensors = program.tensors()
    floats = [x.name for x in program.inputs if x.is_float]
    wrong = []
    sizes = dict(case.calls[0].sizes)
    inputs = [tensors[x.name] for x in program.inputs]
    options = {"wrt": [tensors[name] for name in floats], "sizes": sizes, "cache": False}
    output = tensors[program.differentiable]
    with quietly():
        full = ad.build_vjp(inputs, [output], memory_budget=10**9, **options)
    most = full.residuals.kept_bytes
    for budget in (None, 0, most // 2):
        with quietly():
            functions = ad.build_vjp(inputs, [output], memory_budget=budget, **options)
        for call in case.calls:
            arrays = [
                np.array(call.inputs[x.name], numpy_dtype(x.dtype), order="C")
                for x in program.inputs
            ]
            head = np.asarray(call.head).astype(numpy_dtype(str(output.dtype)))
            _, residuals = functions.forward(*arrays)
            kept = sum(r.nbytes for r in residuals if not any(r is a for a in arrays))
            if budget is not None and call is case.calls[0] and kept > budget:
                wrong.append(f"seed {seed}: {kept} bytes are kept, the budget is {budget}")
            adjoints = functions.backward(residuals, head)
            for name, found in zip(floats, adjoints, strict=True):
                off = furthest(np.asarray(found), call.wanted[f"d/d{name}"])
                if off:
                    wrong.append(f"seed {seed}, d/d{name}, budget {budget}: {off}")
    return wrong
