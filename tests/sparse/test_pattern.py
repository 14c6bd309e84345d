"""Patterns: beside brute force in numpy, composed through graphs, as text and as pictures."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tvm import te

import tvm_autodiff as ad
from tests.function_calls import function_calls

jax.config.update("jax_enable_x64", True)
F64 = "float64"


def mask_of(pattern: ad.Pattern) -> np.ndarray:
    mask = np.zeros(pattern.shape, bool)
    mask[pattern.rows, pattern.columns] = True
    return mask


offsets = st.lists(st.integers(-3, 3), min_size=1, max_size=4, unique=True)
stencils = st.lists(offsets, min_size=1, max_size=3)


def stencil(tensor: te.Tensor, own: list[int], periodic: bool, name: str) -> te.Tensor:
    """``name[i] = Σ_d sin(tensor[i + d])``, on a ring or with nothing outside."""
    size, zero = int(tensor.shape[0]), te.const(0.0, F64)

    def body(i):
        total = zero
        for d in own:
            if periodic:
                total = total + te.sin(tensor[(i + d + size) % size])
            else:
                inside = te.all(i + d >= 0, i + d < size)
                total = total + te.if_then_else(inside, te.sin(tensor[i + d]), zero)
        return total

    return te.compute((size,), body, name=name)


@settings(max_examples=60, deadline=None)
@given(chain=stencils, size=st.integers(5, 12), periodic=st.booleans())
def test_chains_of_stencils_are_products_of_masks(chain, size, periodic) -> None:
    x = te.placeholder((size,), F64, name="x")
    tensor, wanted, i = x, np.eye(size, dtype=bool), np.arange(size)
    for number, own in enumerate(chain):
        tensor = stencil(tensor, own, periodic, f"stage{number}")
        mask = np.zeros((size, size), bool)
        for d in own:
            at = (i + d) % size if periodic else i + d
            inside = (at >= 0) & (at < size)
            mask[i[inside], at[inside]] = True
        wanted = mask @ wanted
    pattern = ad.sparsity(tensor, x)
    np.testing.assert_array_equal(mask_of(pattern), wanted)
    assert pattern.nnz == wanted.sum()
    order = pattern.rows * size + pattern.columns
    assert (np.diff(order) > 0).all()


def test_a_graph_with_two_paths() -> None:
    x = te.placeholder((4, 5), F64, name="x")
    k = te.reduce_axis((0, 5), "k")
    row = te.compute((4,), lambda i: te.sum(x[i, k] * x[i, k], axis=k), name="row")
    turned = te.compute((5, 4), lambda j, i: te.exp(x[3 - i, j]), name="turned")
    y = te.compute((4, 5), lambda i, j: row[i] * turned[j, i], name="y")

    def theirs(x):
        return (x**2).sum(1)[:, None] * jnp.exp(x[::-1])

    point = np.random.default_rng(0).standard_normal((4, 5))
    wanted = np.asarray(jax.jit(jax.jacobian(theirs))(point)).reshape(20, 20) != 0
    np.testing.assert_array_equal(mask_of(ad.sparsity(y, x)), wanted)


def test_the_output_itself_and_one_that_depends_on_nothing() -> None:
    x, w = te.placeholder((3,), F64, name="x"), te.placeholder((3,), F64, name="w")
    y = te.compute((3,), lambda i: w[i] * 2.0, name="y")
    np.testing.assert_array_equal(mask_of(ad.sparsity(x, x)), np.eye(3, dtype=bool))
    nothing = ad.sparsity(y, x)
    assert nothing.nnz == 0
    assert nothing.text() == "y does not depend on x"
    assert str(nothing).splitlines()[0] == "3 × 3, 0 nonzeros (0.0%)"


def test_an_intermediate_input() -> None:
    x = te.placeholder((3,), F64, name="x")
    z = te.compute((3,), lambda i: te.exp(x[2 - i]), name="z")
    y = te.compute((3,), lambda i: z[i] * x[i], name="y")
    np.testing.assert_array_equal(mask_of(ad.sparsity(y, z)), np.eye(3, dtype=bool))


def tridiagonal(size: int) -> ad.Pattern:
    x = te.placeholder((size,), F64, name="x")

    def body(i):
        left = te.if_then_else(i > 0, x[i - 1], te.const(0.0, F64))
        return left + x[i] + te.if_then_else(i < size - 1, x[i + 1], te.const(0.0, F64))

    return ad.sparsity(te.compute((size,), body, name="y"), x)


def test_text() -> None:
    assert tridiagonal(9).text() == (
        "y[i] reads x[i - 1] where i > 0\ny[i] reads x[i]\ny[i] reads x[i + 1] where i < 8"
    )


PICTURE = """\
⠻⣦⡀⠀⠀⠀⠀⠀
⠀⠈⠻⣦⡀⠀⠀⠀
⠀⠀⠀⠈⠻⣦⡀⠀
⠀⠀⠀⠀⠀⠈⠻⣦"""

SMALL = """\
⠻⣦⡀⠀
⠀⠈⠻⣦"""


def test_picture() -> None:
    pattern = tridiagonal(16)
    assert pattern.picture(width=80) == PICTURE
    assert pattern.picture(width=4) == SMALL
    assert pattern.picture(width=80, height=2) == SMALL
    assert str(pattern) == f"16 × 16, 46 nonzeros (18.0%)\n{PICTURE}"


def test_every_entry_of_a_large_pattern_is_in_the_picture() -> None:
    pattern = tridiagonal(10_000)
    lines = pattern.picture(width=30, height=10).splitlines()
    assert len(lines) <= 10
    assert max(map(len, lines)) <= 30
    dots = [(y, x) for y, line in enumerate(lines) for x, c in enumerate(line) if c != "⠀"]
    assert {(n, 2 * n) for n in range(len(lines))} <= set(dots)


def test_detection_does_not_grow_with_the_extents() -> None:
    """Nothing counts entries: the sites of 10⁹ elements are found like those of 10³."""

    tridiagonal(100)  # what is found out once
    few, many = (function_calls(lambda n=size: tridiagonal(n)) for size in (10**3, 10**9))
    assert 0 < many < 1.1 * few


@pytest.mark.parametrize("wrong", ["output", "input"])
def test_only_floats(wrong: str) -> None:
    x, label = te.placeholder((3,), F64, name="x"), te.placeholder((3,), "int32", name="label")
    pair = (label, x) if wrong == "output" else (x, label)
    with pytest.raises(ad.NotDifferentiableError, match="label has dtype int32"):
        ad.sparsity(*pair)
