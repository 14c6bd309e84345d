"""Operands of products: their conditions and values, and at other places, in their dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tvm import te

from tvm_autodiff.expr.nodes import dtype_of, node_id
from tvm_autodiff.expr.printing.text import text
from tvm_autodiff.schedule.nest.in_range import loops_of
from tvm_autodiff.schedule.nest.reductions.operand_values import operand_value
from tvm_autodiff.schedule.nest.reductions.products import Product, atoms_of, product_of, rebased

i, k, p = te.var("i"), te.var("k"), te.var("p")

#: an expression over i and k, and the same with p for ``i + k``
REBASED: dict[str, tuple[Callable[[], Any], str]] = {
    "a guard": (lambda: i + k + 1 < 5, "p + 1 < 5"),
    "in int64": (
        lambda: (i + k + 1).astype("int64") * (i + k).astype("int64") < 5,
        "(int64(p) + 1)*int64(p) < 5",
    ),
    "a difference": (lambda: 3 - i - k < 5, "-p + 3 < 5"),
    "a multiple": (lambda: i * 2 + k * 2 + 1 < 5, "p*2 + 1 < 5"),
    "a multiple of a difference": (lambda: 3 - i * 4 - k * 4 < 5, "p*-4 + 3 < 5"),
    "a quotient": (lambda: (i * 5 + k * 5 + 8) // 12 < 5, "(p*5 + 8)//12 < 5"),
}


@pytest.mark.parametrize("name", REBASED)
def test_rebased(name: str) -> None:
    make, wanted = REBASED[name]
    old = make()
    new = rebased(old, [i, k], {((node_id(i), 1), (node_id(k), 1)): p})
    assert dtype_of(new) == dtype_of(old)
    assert text(new) == wanted


def test_atoms_have_no_common_factors() -> None:
    """A copy over ``5*i`` would have five times as many elements as values of i."""
    own, both = ((node_id(i), 1),), ((node_id(i), 2), (node_id(k), -1))
    assert atoms_of([(i * 5 + 8) // 12, i - 1, k * 3 - i * 6], [i, k]) == (own, both)


x, y = te.placeholder((4, 9), "float64", "x"), te.placeholder((9,), "float64", "y")
z = te.placeholder((9, 6), "float64", "z")
size = te.var("size")
diagonals = te.placeholder((30,), "float64", "diagonals")


def under_its_own_branch(i: Any, k: Any) -> Any:
    """A condition that compares an element, or zero outside of the tensor."""
    return te.if_then_else(k < 4, x[k, i], 0.0) < y[k]


INVERSE = 1.0 / size.astype("float64")


def test_linear_forms_that_others_add_up_to() -> None:
    i, j, k = (te.var(name) for name in "ijk")
    forms = atoms_of([(i + j) * (i - j) + i, i * j], [i, j, k])
    assert forms is not None
    assert [len(form) for form in forms] == [1, 1]
    assert [len(form) for form in atoms_of([(i - j) * k], [i, j, k]) or ()] == [2, 1]


def matrices(*names: str) -> Product:
    """``Σ_k`` of factors: a and c over i and k, b over k and j, w over k, s a number."""
    shapes = {"a": (6, 9), "c": (6, 9), "b": (9, 7), "w": (9,), "s": ()}
    reads = {name: te.placeholder(shape, "float64", name) for name, shape in shapes.items()}
    axis = te.reduce_axis((0, 9), "k")

    def body(i: Any, j: Any) -> Any:
        places = {"a": (i, axis), "c": (i, axis), "b": (axis, j), "w": (axis,), "s": ()}
        value = reads[names[0]](*places[names[0]])
        for name in names[1:]:
            value = value * reads[name](*places[name])
        return te.sum(value, axis=axis)

    product = product_of(te.compute((6, 7), body, name="y").op)
    assert product is not None
    return product


#: factors → their product in a tile of rows i with vectors along j, and the loops of its
#: multiplications
IN_A_TILE = {
    "abc": ("b[k, j]*(a[i, k]*c[i, k])", ["ik", "ijk"]),
    "ab": ("b[k, j]*a[i, k]", ["ijk"]),
    "awb": ("w[k]*b[k, j]*a[i, k]", ["ik", "ijk"]),
    "asb": ("s*b[k, j]*a[i, k]", ["ik", "ijk"]),
    "bab": ("b[k, j]*b[k, j]*a[i, k]", ["jk", "ijk"]),
}


@pytest.mark.parametrize("names", IN_A_TILE)
def test_factors_of_equal_loops_are_multiplied_first(names: str) -> None:
    written, loops = IN_A_TILE[names]
    product = matrices(*names)
    i, j = (node_id(axis.var) for axis in product.axes)
    [value] = product.over([operand.expr for operand in product.operands], [j, i])
    assert text(value) == written
    letters = {i: "i", j: "j", node_id(product.reduction.axes[0].var): "k"}
    found = ["".join(sorted(letters[key] for key in along)) for along, _ in product.steps]
    assert found == loops


#: the summed value over i < 6 and k < 9 → the conditions and values of its operands, and what is
#: multiplied with each element
OPERANDS: dict[str, tuple[Callable[[Any, Any], Any], list[tuple[list[str], str]], list[str]]] = {
    "a read beyond the end": (
        lambda i, k: x[k, i] * y[k],
        [(["k < 4"], "x[k, i]"), ([], "y[k]")],
        [],
    ),
    "a condition that reads beyond the end": (
        lambda i, k: te.if_then_else(x[k, i] > 0.0, x[k, i] * y[k], 0.0),
        [(["k < 4", "x[k, i] > 0.0"], "x[k, i]"), ([], "y[k]")],
        [],
    ),
    "a condition with a branch": (
        lambda i, k: te.if_then_else(under_its_own_branch(i, k), z[k, i] * y[k], 0.0),
        [
            (
                ["(if k < 4 then (if k < 4 then x[k, i] else 0.0) else 0.0) < y[k]"],
                "z[k, i]",
            ),
            ([], "y[k]"),
        ],
        [],
    ),
    "a condition of both": (
        lambda i, k: z[k, i] * te.if_then_else(y[i] > 0.0, y[i] * y[k], 0.0),
        [([], "z[k, i]"), (["y[i] > 0.0"], "y[i]"), ([], "y[k]")],
        [],
    ),
    "a condition of both and a size": (
        lambda i, k: te.if_then_else(i + 3 <= size + k, diagonals[i - k + 9] * z[k, i], 0.0),
        [
            (["i + (-k + 3) <= size"], "diagonals[i - k + 9]"),
            (["i + (-k + 3) <= size"], "z[k, i]"),
        ],
        [],
    ),
    "a condition of both in int64": (
        lambda i, k: te.if_then_else(
            i.astype("int64") <= k.astype("int64") + 2, diagonals[i - k + 9] * y[k], 0.0
        ),
        [(["int64(i) + (-int64(k) - 2) <= 0"], "diagonals[i - k + 9]"), ([], "y[k]")],
        [],
    ),
    "a condition of both and twice a size": (
        lambda i, k: te.if_then_else(2 * size - i > 1 - k, diagonals[i - k + 9] * y[k], 0.0),
        [(["-i + (k - 1) > size*-2"], "diagonals[i - k + 9]"), ([], "y[k]")],
        [],
    ),
    "a factor that may be infinite": (
        lambda i, k: y[k] * te.if_then_else(y[i] > 0.0, z[k, i] / y[i], 0.0),
        [([], "y[k]"), (["y[i] > 0.0"], "z[k, i]/y[i]")],
        [],
    ),
    "one that knows too few loops": (
        lambda i, k: te.if_then_else(z[k, i] > 0.0, z[k, i] * te.log(y[i]), 0.0),
        [(["z[k, i] > 0.0"], "z[k, i]*log(y[i])")],
        [],
    ),
    "one that joins two in turn": (
        lambda i, k: y[k]
        * z[k, i]
        * te.if_then_else(te.all(y[k] > 0.0, z[k, i] > 0.0), INVERSE, 0.0),
        [(["y[k] > 0.0", "z[k, i] > 0.0"], "z[k, i]*(y[k]*(1.0/float64(size)))")],
        [],
    ),
    "a quotient": (
        lambda i, k: y[i] * y[k] * INVERSE,
        [([], "y[i]"), ([], "y[k]")],
        ["1.0/float64(size)"],
    ),
    "a loop that cancels in a condition": (
        lambda i, k: te.if_then_else(i - k + 1 + k - 1 >= 2, y[i], 0.0) * y[k],
        [(["i >= 2"], "y[i]"), ([], "y[k]")],
        [],
    ),
    "a loop that cancels in a read": (
        lambda i, k: y[i - (k - i) + k - i] * y[k + i - i],
        [([], "y[i]"), ([], "y[k]")],
        [],
    ),
    "a quotient under a condition": (
        lambda i, k: te.if_then_else(size > 0, y[i] * y[k] * INVERSE * 2.0, 0.0),
        [(["size > 0"], "y[i]*(1.0/float64(size))"), (["size > 0"], "y[k]")],
        ["2.0"],
    ),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_conditions_and_values(name: str) -> None:
    body, operands, scale = OPERANDS[name]
    axis = te.reduce_axis((0, 9), "k")
    stage = te.compute((6,), lambda i: te.sum(body(i, axis.var), axis=axis), name="s").op
    product = product_of(stage)
    assert product is not None
    loops = loops_of([*stage.axis, *stage.reduce_axis])
    found = [operand_value(operand, loops) for operand in product.operands]
    assert [(list(map(text, conditions)), text(value)) for conditions, value in found] == operands
    assert list(map(text, product.scale)) == scale
