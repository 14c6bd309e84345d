"""Output axes that are read through a quotient become two; those that are no multiple are widened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tvm import te, topi

import tvm_autodiff as ad
from tests.evaluate import evaluate_graph
from tests.schedule.test_rules import check
from tvm_autodiff.expr.simplify import prove_equal
from tvm_autodiff.graph.stage import shape_of
from tvm_autodiff.schedule.kernel import Kernel
from tvm_autodiff.schedule.rewrites.normal_form import normal_form
from tvm_autodiff.schedule.rewrites.quotient_axes import split_at_quotients, widened_to_quotients

x, w = te.placeholder((60, 30), "float64", "x"), te.placeholder((30, 5), "float64", "w")
z, k = te.placeholder((58, 30), "float64", "z"), te.reduce_axis((0, 30), "k")


def grouped(n: int, c: int = 0, d: int | None = None) -> Any:
    """Rows of x in groups of five from -c on, each with its own column of w."""
    d = c if d is None else d
    return te.compute(
        (n,),
        lambda i: te.sum(x[(i + c) // 5, k] * w[k, (i + d) % 5], axis=k),
        name="grouped",
    )


def ending(n: int) -> Any:
    """A tensor that ends with the results is read at their own places."""
    return te.compute((n,), lambda i: te.sum(x[i // 5, k] * z[i, k], axis=k), name="ending")


def twice(n: int) -> Any:
    """Quotients by two literals."""
    return te.compute(
        (n,), lambda i: te.sum(x[i // 5, k] * w[k, i % 3], axis=k), name="twice"
    )


def few(n: int) -> Any:
    """A result of two steps."""
    pair = te.reduce_axis((0, 2), "p")
    return te.compute((n,), lambda i: te.sum(x[i // 5, pair] * w[pair, i % 5], axis=pair), "few")


#: name → the stage, its split extents, and the extents of the widened stage and of its split one
CASES: dict[str, tuple[Callable[[], Any], Any, Any, Any]] = {
    "a multiple": (lambda: grouped(60), (12, 5), None, None),
    "no multiple": (lambda: grouped(58), None, (60,), (12, 5)),
    "to the last row": (lambda: grouped(299), None, (300,), (60, 5)),
    "beyond the end of a tensor": (lambda: ending(58), None, (60,), (12, 5)),
    "two literals": (lambda: twice(58), None, None, None),
    "few steps": (lambda: few(58), None, (60,), (12, 5)),
    "from the middle of a group": (lambda: grouped(54, 3), None, (60,), (12, 5)),
    "a multiple, from the middle": (lambda: grouped(55, 3), None, (60,), (12, 5)),
    "from a later group": (lambda: grouped(50, 8), None, (55,), (11, 5)),
    "from the same place": (lambda: grouped(50, 8, 3), None, (55,), (11, 5)),
    "from two places": (lambda: grouped(50, 3, 4), None, None, None),
    "shorter than a group": (lambda: grouped(4), None, None, None),
}


def extents(kernel: Any) -> Any:
    return None if kernel is None else shape_of(kernel.root.output(0))


@pytest.mark.parametrize("name", CASES)
def test_extents_and_values(name: str) -> None:
    make, split, widened, split_of_it = CASES[name]
    kernel = Kernel(normal_form([make()])[0].op)
    found = split_at_quotients(kernel)
    assert extents(found and found.kernel) == split
    made = widened_to_quotients(kernel)
    assert (None if made is None else extents(made[0])) == widened
    if made is None:
        return
    again = split_at_quotients(made[0])
    assert again is not None
    assert extents(again.kernel) == split_of_it
    rng = np.random.default_rng(0)
    values = [(one, rng.normal(size=[int(n) for n in one.shape])) for one in (x, w, z)]
    want, got = evaluate_graph([kernel.outputs[0], made[1].outputs[0]], values, {})
    np.testing.assert_allclose(got, want, rtol=1e-13)


#: so many results as a call has, and the quotient of their number by that of a group, or None
SYMBOLIC: dict[str, tuple[Any, int, Any]] = {
    "groups": (lambda n: n * 5, 0, lambda n: n),
    "groups and one": (lambda n: n * 10 + 5, 0, lambda n: n * 2 + 1),
    "no whole groups": (lambda n: n, 0, None),
    "from the middle of a group": (lambda n: n * 5, 3, None),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_extents(name: str) -> None:
    size, shift, count = SYMBOLIC[name]
    n = te.var("n")
    long = te.placeholder((size(n) + 1, 30), "float64", "long")
    stage = te.compute(
        (size(n),),
        lambda i: te.sum(long[(i + shift) // 5, k] * w[k, (i + shift) % 5], axis=k),
        name="grouped",
    )
    kernel = Kernel(stage.op)
    found = split_at_quotients(kernel)
    assert widened_to_quotients(kernel) is None
    if count is None:
        assert found is None
        return
    outer, inner = extents(found.kernel)
    assert inner == 5
    assert prove_equal(outer, count(n))
    rng = np.random.default_rng(0)
    values = [(long, rng.normal(size=(int(size(4)) + 1, 30))), (w, rng.normal(size=(30, 5)))]
    want, got = evaluate_graph([kernel.outputs[0], found.kernel.outputs[0]], values, {n: 4})
    np.testing.assert_allclose(got.reshape(-1), want, rtol=1e-13)


@pytest.mark.parametrize("padding", [0, 1, 7])
@pytest.mark.parametrize("length", [8003, 1000, 977])
def test_the_gradient_of_a_strided_convolution(length: int, padding: int) -> None:
    """Kernels of twice the stride: as many terms for each remainder."""
    signal, taps = te.placeholder((1, 1, length), name="x"), te.placeholder((17, 1, 10), name="w")
    y = topi.nn.conv1d_ncw(signal, taps, 5, padding, 1)
    head = te.placeholder(y.shape, name="h")
    [gradient] = ad.differentiate(y, [signal], head)
    check(([taps, head], gradient))


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(4, 2, 1), (6, 3, 2), (2, 2, 0)])
def test_the_gradient_of_strided_images(kernel: int, stride: int, padding: int) -> None:
    image = te.placeholder((2, 5, 21, 19), name="x")
    weights = te.placeholder((7, 5, kernel, kernel), name="w")
    y = topi.nn.conv2d_nchw(image, weights, stride, padding, 1)
    head = te.placeholder(y.shape, name="h")
    [gradient] = ad.differentiate(y, [image], head)
    check(([weights, head], gradient))


def test_the_gradient_of_frames() -> None:
    """Frames that overlap, each in the place of a multiple of a hop."""
    signal, window = te.placeholder((2, 503), name="x"), te.placeholder((26,), name="w")
    y = te.compute((2, 48, 26), lambda b, f, j: signal[b, f * 10 + j] * window[j], name="y")
    head = te.placeholder(y.shape, name="h")
    [gradient] = ad.differentiate(y, [signal], head)
    check(([window, head], gradient))
