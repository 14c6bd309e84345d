"""Sparse Jacobians of random programs: cotangents times them, beside the reference's gradients."""

from __future__ import annotations

import numpy as np
import pytest

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph, numpy_dtype
from tests.random_programs.cases import Call, random_case
from tests.random_programs.checking import Made, quietly
from tests.random_programs.interpreter import eps
from tests.random_programs.modes import PULLED
from tvm_autodiff.expr.nodes import const_value

FEATURES = ("basic", "symbolic")


def assembled(matrix: ad.SparseMatrix, made: Made, call: Call) -> np.ndarray:
    sizes = made.sizes(call)
    bound = matrix.at(sizes)
    hidden = list(zip(matrix.placeholders, bound.arrays, strict=True))
    scalars = dict(sizes)
    for tensor, array in hidden:
        pairs = zip(tensor.shape, array.shape, strict=True)
        scalars |= {dim: extent for dim, extent in pairs if const_value(dim) is None}
    arrays = [np.asarray(call.inputs[x.name]) for x in made.case.program.inputs]
    pairs = [*zip(made.inputs, arrays, strict=True), *hidden]
    [values] = evaluate_graph([matrix.values], pairs, scalars, strict=True)
    columns, starts = bound.indices
    found = np.zeros(bound.shape)
    found[np.repeat(np.arange(len(starts) - 1), np.diff(starts)), columns] = values.reshape(-1)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("feature", FEATURES)
def test_cotangents_times_jacobians(feature: str) -> None:
    checked = 0
    for seed in range(60):
        case = random_case(seed, (feature,))
        if case.mode not in PULLED:
            continue
        with quietly():
            made = Made(case)
            output = made.tensors[case.program.differentiable]
            for x in (x for x in case.program.inputs if x.is_float):
                try:
                    matrix = ad.jacobian(output, made.tensors[x.name], format="csr")
                except (ad.NotDifferentiableError, ad.InvalidArgumentError) as error:
                    assert "pattern of zeros" in str(error) or "symbolic shape" in str(error)  # noqa: PT017
                    continue
                for call in case.calls:
                    dense = assembled(matrix, made, call)
                    head = np.asarray(call.head).astype(numpy_dtype(str(output.dtype)))
                    head = head.astype(float).reshape(-1)
                    wanted = call.wanted[f"d/d{x.name}"]
                    rounding = 256 * max(eps(x.dtype), eps(str(output.dtype)))
                    size = (np.abs(head) @ np.abs(dense)).reshape(wanted.value.shape)
                    apart = np.abs((head @ dense).reshape(wanted.value.shape) - wanted.value)
                    assert (apart <= 4 * wanted.tolerance + rounding * size + 1e-12).all(), seed
                    checked += 1
    assert checked > 100
