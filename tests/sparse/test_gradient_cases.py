"""Sparse Jacobians of every case of index maps and reducers, beside dense ones; no compiler.

The pattern is held to the dense Jacobian: no entry outside of it is other than zero, and for index
maps, whose values are generic, each entry inside of it is. Both ways to the values are taken.
"""

from __future__ import annotations

import numpy as np
import pytest

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.gradient_case import Case
from tests.gradients import (
    test_guarded_branches,
    test_index_maps,
    test_integer_types,
    test_many_paths,
    test_products,
    test_ragged_reductions,
    test_reducers,
)
from tvm_autodiff.expr.nodes import is_float
from tvm_autodiff.transforms.linear.sparse_jacobian import _compressed

MODULES = (
    test_guarded_branches,
    test_index_maps,
    test_integer_types,
    test_many_paths,
    test_products,
    test_ragged_reductions,
    test_reducers,
)
LISTED = [case for module in MODULES for case in getattr(module, "CASES", ())]
CASES = [case for case in LISTED if isinstance(case, Case)]


def assembled(matrix: ad.SparseMatrix, pairs) -> np.ndarray:
    """The dense matrix of a sparse one, evaluated in numpy."""
    [values] = evaluate_graph([matrix.values], [*pairs, *matrix.constants])
    first, second = matrix.indices()
    found = np.zeros(matrix.shape, matrix.dtype)
    if matrix.format == "coo":
        rows, columns = first, second
    else:
        lines = np.repeat(np.arange(len(second) - 1), np.diff(second))
        rows, columns = (lines, first) if matrix.format == "csr" else (first, lines)
    np.add.at(found, (rows, columns), values.reshape(-1))
    return found


def sparse(output, x, way: str) -> ad.SparseMatrix:
    """The Jacobian by colours, or as the library chooses."""
    matrix = ad.jacobian(output, x, format="csr")
    if way == "colours" and matrix.nnz:
        pattern = matrix.pattern
        planned = _compressed(pattern, False, pattern.entries, None)
        matrix = ad.SparseMatrix(pattern, "csc", matrix.dtype, lambda entries: planned)
        assert "colours" in matrix.method
    return matrix


#: cases that read at places that are data
REFUSED = {
    "repeated-indices",
    "embedding",
    "permutation",
    "shift-by-data",
    "nested-data",
    "index-of-reduction",
}


#: index maps with conditions on data: entries may be zero for some data
DATA_DECIDES = {"guard-on-data", "sum-where-data"}


@pytest.mark.filterwarnings("ignore::tvm_autodiff.DenseSumWarning")  # numbers, not speed
@pytest.mark.parametrize("way", ["chosen", "colours"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_sparse_is_dense(case: Case, way: str) -> None:
    placeholders, output = case.tensors()
    pairs = list(zip(placeholders, case.arrays(), strict=True))
    x = next(tensor for tensor in placeholders if is_float(tensor))
    if case.name in REFUSED:
        with pytest.raises(ad.NotDifferentiableError, match="pattern of zeros is not known"):
            ad.jacobian(output, x, format="csr")
        return
    [dense] = evaluate_graph([ad.jacobian(output, x)], pairs)
    matrix = sparse(output, x, way)
    dense = dense.reshape(matrix.shape)
    scale = 1e-12 * (1 + np.abs(dense).max(initial=0))
    np.testing.assert_allclose(assembled(matrix, pairs), dense, rtol=1e-10, atol=scale)
    inside = np.zeros(matrix.shape, bool)
    inside[matrix.pattern.rows, matrix.pattern.columns] = True
    assert not (dense[~inside] != 0).any()
    if case in test_index_maps.CASES and case.name not in DATA_DECIDES:
        assert (dense[inside] != 0).all()
