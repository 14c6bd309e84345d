"""Structural keys hold every field of every class of nodes that decides about a value.

The fields are those of TVM's own reflection, so that a new class or field needs a line here.
"""

from __future__ import annotations

import numpy as np
import pytest
from tvm import ir, te, tirx
from tvm.ir import prim

import tvm_autodiff as ad
from tvm_autodiff.domain.affine import Atoms
from tvm_autodiff.expr import nodes
from tvm_autodiff.expr.sharing.lets import merge_equal
from tvm_autodiff.graph.structural import EqualStages, StageKeys

x, y = (te.var(name, "float32") for name in "xy")
i, j = te.var("i"), te.var("j")
p, q = te.var("p", "bool"), te.var("q", "bool")
A, B = (te.placeholder((4, 4), name=name) for name in "AB")
CONST = tirx.const

#: class → fields beside dtype and span → two values; the first ones make the node itself
_BINARY = {"a": (i, j), "b": (j, i)}
_LOGICAL = {"a": (p, q), "b": (q, p)}
FIELDS = {
    **dict.fromkeys(nodes.BINARY_CLASSES.values(), _BINARY),
    **dict.fromkeys(nodes.BITWISE_CLASSES.values(), _BINARY),
    prim.And: _LOGICAL,
    prim.Or: _LOGICAL,
    prim.Not: {"a": (p, q)},
    prim.BitwiseNot: {"a": (i, j)},
    prim.Select: {"condition": (p, q), "true_value": (x, y), "false_value": (y, x)},
    prim.Cast: {"value": (i, j)},
    prim.Let: {"var": (x, y), "value": (CONST(1.0), CONST(2.0)), "body": (x * y, x + y)},
    prim.IntImm: {"value": (3, 4)},
    prim.FloatImm: {"value": (0.0, -0.0)},
    ir.StringImm: {"value": ("sinf", "cosf")},
    ir.Var: {"name": ("a", "b")},
    ir.Call: {
        "op": (ir.Op.get("tirx.exp"), ir.Op.get("tirx.log")),
        "args": ([x], [y]),
        "attrs": (None, ir.make_node("ir.DictAttrs", key=1)),
        "ty_args": ([], [ir.PrimType("int32")]),
    },
}
#: how a class is made of its fields, where that is not its constructor
_MAKE = {
    prim.Cast: lambda value: prim.Cast("float32", value),
    prim.IntImm: lambda value: prim.IntImm("int32", value),
    prim.FloatImm: lambda value: prim.FloatImm("float32", value),
    ir.Var: lambda name: te.var(name),
    ir.Call: lambda op, args, attrs, ty_args: ir.Call(
        op, args, attrs, ty_args or None, ret_ty=ir.PrimType("float32")
    ),
}


def made(cls, values):
    return _MAKE.get(cls, cls)(*values)


def test_every_class_of_the_vocabulary_and_every_field_is_listed():
    # a reduction is no part of another expression: `STAGES` changes its fields
    assert set(FIELDS) | {tirx.Reduce} == {*nodes._NAME_OF_CLASS, ir.Call}
    for cls, fields in FIELDS.items():
        assert [field.name for field in cls.__tvm_ffi_type_info__.fields] == list(fields), cls


@pytest.mark.parametrize(
    ("cls", "field"),
    [(cls, field) for cls, fields in FIELDS.items() for field in fields],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_field_that_changes_makes_another_key(cls, field):
    fields = FIELDS[cls]
    first = [pair[0] for pair in fields.values()]
    node, again = made(cls, first), made(cls, first)
    other = made(cls, [pair[name == field] for name, pair in fields.items()])
    assert_told_apart(node, other)
    if cls not in (ir.Var, ir.Call):
        assert StageKeys().expr(node) == StageKeys().expr(again)


def assert_told_apart(left, right):
    keys = StageKeys()
    assert keys.expr(left) != keys.expr(right)
    first, second = merge_equal([left, right])
    assert not nodes.same_node(first, second)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (tirx.Cast("float32", i), tirx.Cast("float64", i)),
        (CONST(1, "int32"), CONST(1, "int64")),
        (CONST(1, "int32"), CONST(True, "bool")),
        (tirx.call_pure_extern("float32", "sinf", x), tirx.call_pure_extern("float32", "cosf", x)),
        (tirx.call_pure_extern("float32", "f", x), tirx.call_extern("float32", "f", x)),
        (tirx.call_pure_extern("float32", "f", x), tirx.call_pure_extern("float32", "f", x, y)),
        (A(i, j), B(i, j)),
        (A(i, j), A(j, i)),
        (te.ceil(x), te.floor(x)),
        (prim.Ramp(i, CONST(1), 4), prim.Ramp(i, CONST(2), 4)),
        (prim.Broadcast(i, 4), prim.Broadcast(j, 4)),
        (prim.Broadcast(i, 4), prim.Broadcast(i, 8)),
        (prim.Shuffle([x, y], [0]), prim.Shuffle([x, y], [1])),
    ],
)
def test_expressions_of_equal_operands_are_told_apart(left, right):
    assert_told_apart(left, right)


def test_the_solver_tells_opaque_indices_apart():
    """Calls of two functions, and casts of what wraps in another width, are different atoms."""
    atoms = Atoms()
    f, g = (tirx.call_pure_extern("int32", name, i) for name in "fg")
    assert atoms.form(f) == atoms.form(tirx.call_pure_extern("int32", "f", i))
    assert atoms.form(f) != atoms.form(g)


ARGMAX = te.comm_reducer(
    lambda a, b: (tirx.Select(a[0] > b[0], a[0], b[0]), tirx.Select(a[0] > b[0], a[1], b[1])),
    lambda s, t: (te.min_value(s), CONST(-1, t)),
)


def reducer(result=lambda a, b: a + b, identity=0.0):
    return te.comm_reducer(result, lambda t: CONST(identity, t))


def reduced(combine=None, source=lambda i, k: A[i, k], dom=(0, 4), rows=4, **options):
    k = te.reduce_axis(dom, "k")
    combine = combine or reducer()
    return te.compute((rows,), lambda i: combine(source(i, k), axis=k, **options), name="s")


def pair(first=lambda i, k: A[i, k], second=lambda i, k: k):
    k = te.reduce_axis((0, 4), "k")
    return te.compute((4,), lambda i: ARGMAX((first(i, k), second(i, k)), axis=k), name="s")[0]


def component(index):
    k = te.reduce_axis((0, 4), "k")
    return te.compute((4,), lambda i: ARGMAX((A[i, k], A[k, i]), axis=k)[index], name="s")


def plain(rows=4, attrs=None, body=lambda i: A[i, 0]):
    return te.compute((rows,), body, name="s", attrs=attrs)


#: what changes → (two stages)
STAGES = {
    "extent": (plain(4), plain(3)),
    "components": (
        te.compute((4,), lambda i: (A[i, 0], A[i, 1]), name="s")[0],
        te.compute((4,), lambda i: (A[i, 0], A[i, 1], A[i, 1]), name="s")[0],
    ),
    "reduced or not": (reduced(), plain()),
    "result of a combiner": (reduced(), reduced(reducer(lambda a, b: a - b))),
    "operands of a combiner": (
        reduced(reducer(lambda a, b: a - b)),
        reduced(reducer(lambda a, b: b - a)),
    ),
    "identity": (reduced(), reduced(reducer(identity=1.0))),
    "source": (reduced(), reduced(source=lambda i, k: A[k, i])),
    "minimum of an axis": (reduced(dom=(0, 3)), reduced(dom=(1, 4))),
    "extent of an axis": (reduced(dom=(0, 3)), reduced(dom=(0, 4))),
    "condition": (reduced(where=i > 0), reduced(where=i > 1)),
    "init": (reduced(init=A[i, i]), reduced(init=B[i, i])),
    "with init or not": (reduced(init=A[i, i]), reduced()),
    "which component": (component(0), component(1)),
    "first source": (pair(), pair(first=lambda i, k: A[k, i])),
    "second source": (pair(), pair(second=lambda i, k: k + 1)),
}


@pytest.mark.parametrize("name", STAGES)
def test_stages_that_compute_something_else_are_two(name):
    left, right = STAGES[name]
    keys = StageKeys()
    assert keys.stage(left.op) != keys.stage(right.op)
    stages = EqualStages()
    assert not stages.first(left.op).same_as(stages.first(right.op))


def test_names_and_tags_of_others_do_not_matter():
    keys = StageKeys()
    made = te.compute((4,), lambda row: A[row, 0], name="other", tag="t", attrs={"theirs": 1})
    assert keys.stage(plain().op) == keys.stage(made.op)


def test_two_functions_of_the_c_library_in_one_build():
    a = te.placeholder((5,), name="a")

    def called(name):
        return te.compute((5,), lambda i: tirx.call_pure_extern("float32", name, a[i]), name=name)

    outputs = [called(name) for name in ("sinf", "cosf", "atanf")]
    values = np.linspace(-1, 1, 5, dtype="float32")
    got = ad.build([a], outputs, cache=False)(values)
    for array, function in zip(got, (np.sin, np.cos, np.arctan), strict=True):
        np.testing.assert_allclose(array, function(values), rtol=1e-6)


def test_a_bitwise_not_reads_its_operand():
    index = te.placeholder((4,), "int32", name="index")
    a = te.placeholder((4,), "float64", name="a")
    read = te.compute((4,), lambda i: a[~index[i] + 4] * a[3 - i], name="read")
    [da] = ad.differentiate(read, [a], te.compute((4,), lambda i: CONST(1.0, "float64"), name="h"))
    places, values = np.array([0, 3, 3, 1], "int32"), np.array([1.0, 2.0, 4.0, 8.0])
    got, adjoint = ad.build([index, a], [read, da], cache=False)(places, values)
    want = np.zeros(4)
    for n, place in enumerate(3 - places):
        want[place] += values[3 - n]
        want[3 - n] += values[place]
    np.testing.assert_array_equal(got, values[3 - places] * values[::-1])
    np.testing.assert_array_equal(adjoint, want)
