"""Operands that are read across their lines, large ones for the rule that takes any reduction and
small ones for sums along memory, are copied: which ones, in which order, and equal values.
"""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.machines import avx512
from tvm_autodiff.graph.stage import reduction_of
from tvm_autodiff.schedule.kernel import Kernel
from tvm_autodiff.schedule.rewrites.operands.far_operands import (
    over_copies_along,
    over_ordered_copies,
)

PRODUCT = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t), name="product")
FADING = te.comm_reducer(lambda a, b: a * 0.5 + b, lambda t: tirx.const(0, t), name="fading")
N, M, K = 40, 30, 64


def sum_of(body, reduce=te.sum, shapes=((N, M, K), (M, K, N)), extents=(K,)):
    """``y[i, j] = ⊕ body``, and the tensors it reads."""
    inputs = [te.placeholder(shape, name=name) for name, shape in zip("xh", shapes, strict=True)]
    axes = [te.reduce_axis((0, extent), f"k{n}") for n, extent in enumerate(extents)]
    source = lambda i, j: reduce(body(*inputs, i, j, *axes), axis=axes)  # noqa: E731
    return inputs, te.compute((N, M), source, name="y")


#: name → (the sum, the shapes of its copies, the result in numpy)
CASES = {
    "one operand": (
        sum_of(lambda x, h, i, j, k: x[i, j, k] * h[j, k, i]),
        [(N, M, K)],
        lambda x, h: np.einsum("ijk,jki->ij", x, h),
    ),
    "both": (
        sum_of(lambda x, h, i, j, k: x[j, k, i] * h[k, j, i], shapes=((M, K, N), (K, M, N))),
        [(N, M, K), (N, M, K)],
        lambda x, h: np.einsum("jki,kji->ij", x, h),
    ),
    "along the axis that copies less": (
        sum_of(
            lambda x, h, i, j, k, n: x[i, j, n, k] * h[n, k, j, i],
            shapes=((N, M, 9, 8), (9, 8, M, N)),
            extents=(8, 9),
        ),
        [(N, M, 9, 8)],
        lambda x, h: np.einsum("ijlk,lkji->ij", x, h),
    ),
    "a maximum": (
        sum_of(lambda x, h, i, j, k: x[i, j, k] + h[j, k, i], te.max),
        [(N, M, K)],
        lambda x, h: (x + np.transpose(h, (2, 0, 1))).max(2),
    ),
    "a product": (
        sum_of(lambda x, h, i, j, k: 1.0 + x[i, j, k] * h[j, k, i] * 0.01, PRODUCT),
        [(N, M, K)],
        lambda x, h: (1 + x * np.transpose(h, (2, 0, 1)) * 0.01).prod(2),
    ),
    "read in order": (
        sum_of(lambda x, h, i, j, k: x[i, j, k] * h[i, j, k], shapes=((N, M, K),) * 2),
        None,
        None,
    ),
    "in lines that stay": (
        sum_of(lambda x, h, i, j, k: x[i, j, k] * h[i, k, j], shapes=((N, M, K), (N, K, M))),
        None,
        None,
    ),
    "of overlapping windows": (
        sum_of(lambda x, h, i, j, k: x[i, j, k] * h[j, k + i], shapes=((N, M, K), (M, K + N))),
        None,
        None,
    ),
    "whose order counts": (
        sum_of(lambda x, h, i, j, k: x[i, j, k] + h[j, k, i], FADING),
        None,
        None,
    ),
    "of a few numbers": (
        sum_of(lambda x, h, i, j, k: x[i, j, k] * h[j, k, i], extents=(2,)),
        None,
        None,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_copies(name):
    (inputs, output), shapes, numpy = CASES[name]
    check_copies(inputs, output, over_ordered_copies(Kernel(output.op), avx512()), shapes, numpy)


#: of operands that are read many times
SMALL = {
    "one operand": (
        sum_of(lambda x, h, i, j, k: x[i, k] * h[k, j], shapes=((N, K), (K, M))),
        [(M, K)],
        lambda x, h: x @ h,
    ),
    "a maximum": (
        sum_of(lambda x, h, i, j, k: x[i, k] + h[k, j], te.max, shapes=((N, K), (K, M))),
        [(M, K)],
        lambda x, h: (x[:, None] + h.T).max(2),
    ),
    "of two axes": (
        sum_of(
            lambda x, h, i, j, k, n: x[i, n, k] * h[k, n, j],
            shapes=((N, 8, 9), (9, 8, M)),
            extents=(9, 8),
        ),
        [(M, 8, 9)],
        lambda x, h: np.einsum("ink,knj->ij", x, h),
    ),
    "read in order": (
        sum_of(lambda x, h, i, j, k: x[i, k] * h[j, k], shapes=((N, K), (M, K))),
        None,
        None,
    ),
    "read too seldom": (
        sum_of(lambda x, h, i, j, k: x[i, j, k] * h[k, i], shapes=((N, M, K), (K, N))),
        None,
        None,
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_copies_of_small_operands(name):
    (inputs, output), shapes, numpy = SMALL[name]
    check_copies(inputs, output, over_copies_along(Kernel(output.op)), shapes, numpy)


def check_copies(inputs, output, found, shapes, numpy):
    if shapes is None:
        assert found is None
        return
    copies, whole = found
    assert [tuple(map(int, copy.root.output(0).shape)) for copy in copies] == shapes
    assert reduction_of(whole.root) is not None
    rng = np.random.default_rng(0)
    arrays = [rng.random([int(n) for n in t.shape], "float32") for t in inputs]
    got = ad.build(inputs, output, cache=False)(*arrays)
    np.testing.assert_allclose(got, numpy(*(a.astype("float64") for a in arrays)), rtol=1e-5)

