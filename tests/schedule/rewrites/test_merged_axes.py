"""Axes that are neighbours in memory become one, and launches keep the tensors' own shapes."""

from __future__ import annotations

import pytest
from tvm import te, tirx

from tests.schedule import cases
from tests.schedule.test_rules import check, rules_of
from tvm_autodiff.expr.simplify import prove_equal
from tvm_autodiff.graph.stage import shape_of
from tvm_autodiff.schedule.kernel import Kernel, Repetition
from tvm_autodiff.schedule.rewrites.merged_axes import merged_axes


def einsum(formula, relu=False, **extents):
    """A contraction whose axes are named by letters."""
    terms, result = formula.split("->")
    tensors = [
        cases.placeholder(f"x{number}", *(extents[letter] for letter in term))
        for number, term in enumerate(terms.split(","))
    ]
    axes = {c: cases.axis(extents[c]) for c in extents if c not in result}

    def body(*places):
        here = {**axes, **dict(zip(result, places, strict=True))}
        value = 1.0
        for tensor, term in zip(tensors, terms.split(","), strict=True):
            value = value * tensor(*(here[letter] for letter in term))
        return te.sum(value, axis=list(axes.values()))

    made = te.compute([extents[c] for c in result], body, name="y")
    if relu:
        bias = cases.placeholder("bias", *map(int, made.shape))
        zero = tirx.const(0, "float32")
        tensors.append(bias)
        made = te.compute(made.shape, lambda *i: te.max(made(*i) + bias(*i), zero), name="r")
    return tensors, made


def reads(body, shape, width=6):
    """``y[i, j] = Σ_k body(x, i, j, k)`` over x of a shape."""
    x, w, k = cases.placeholder("x", *shape), cases.placeholder("w", width), cases.axis(width)
    y = te.compute((4, 5), lambda i, j: te.sum(body(x, i, j, k) * w[k], axis=k), name="y")
    return [x, w], y


SIZES = {"a": 3, "b": 4, "c": 5, "d": 6, "e": 2, "f": 7}
#: contractions, and the extents of the merged output and reduce axes
MERGED = [
    ("abc,cd->abd", [12, 6], [5]),
    ("abcd,cdef->abef", [12, 14], [30]),
    ("abc,dc->dab", [6, 12], [5]),
    ("cab,cd->dab", [6, 12], [5]),
    ("abc,bcd->ad", [3, 6], [20]),
    ("acd,bcd->ab", [3, 4], [30]),
    ("eabc,abcd->ed", [2, 6], [60]),
    ("fabc,cd->fabd", [84, 6], [5]),
    ("abc,bca->", [], [3, 20]),
]
#: in which some tensor has other neighbours
ALONE = ["abc,cb->a", "abc,cad->bd", "ac,bc->ab", "abc,acd->abd"]


def kernel_of(output):
    [root] = [t for t in (output, *output.op.input_tensors) if getattr(t.op, "reduce_axis", ())]
    return Kernel(root.op, None if root.op.same_as(output.op) else output.op)


def extents(axes):
    return [int(axis.dom.extent) for axis in axes]


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(("formula", "spatial", "reduced"), MERGED)
def test_neighbours_in_memory_are_merged(formula, spatial, reduced, relu):
    sizes = {letter: size for letter, size in SIZES.items() if letter in formula}
    merged = merged_axes(kernel_of(einsum(formula, relu, **sizes)[1])).kernel
    assert extents(merged.root.axis) == spatial
    assert extents(merged.root.reduce_axis) == reduced
    assert all(extents(op.axis) == spatial for op in merged.ops)
    assert merged_axes(merged) is None


@pytest.mark.parametrize("formula", ALONE)
def test_what_one_tensor_has_apart_stays_apart(formula):
    sizes = {letter: size for letter, size in SIZES.items() if letter in formula}
    assert merged_axes(kernel_of(einsum(formula, **sizes)[1])) is None


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        (lambda x, i, j, k: x[i, j + 1, k], (4, 6, 6)),  # shifted
        (lambda x, i, j, k: x[i, j, k], (4, 7, 6)),  # rows that are longer than what is read
        (lambda x, i, j, k: x[j, i, k], (5, 4, 6)),  # the other way round
        (lambda x, i, j, k: x[i, i, k], (4, 4, 6)),  # a diagonal
        (lambda x, i, j, k: x[i, j, k], (te.var("n"), 5, 6)),  # of a symbolic number of rows
        (lambda x, i, j, k: te.if_then_else(j < 3, x[i, j, k], 0.0), (4, 5, 6)),  # a condition
        (lambda x, i, j, k: x[i, j, k] * (i + j), (4, 5, 6)),  # a value
        (lambda x, i, j, k: x[i, j, k] * x[0, 0, k], (4, 5, 6)),  # the same tensor elsewhere
    ],
)
def test_other_reads_keep_axes_apart(body, shape):
    assert merged_axes(kernel_of(reads(body, shape)[1])) is None


n, m = te.var("n"), te.var("m")


@pytest.mark.parametrize(
    ("body", "merges"),
    [
        (lambda x, w, o, i, j, k: x[k, i, j] * w[o, k], True),
        (lambda x, w, o, i, j, k: x[k, i, j] * w[o, k] * x[0, i, j], True),
        (lambda x, w, o, i, j, k: x[k, i, 0] * w[o, k], False),  # of one of both
        (lambda x, w, o, i, j, k: x[k, i, j] * w[o, k] * i, False),  # a value
    ],
)
def test_symbolic_neighbours(body, merges):
    x, w, k = cases.placeholder("x", 6, n, m), cases.placeholder("w", 5, 6), cases.axis(6)
    y = te.compute((5, n, m), lambda o, i, j: te.sum(body(x, w, o, i, j, k), axis=k), name="y")
    merged = merged_axes(Kernel(y.op))
    assert (merged is not None) is merges
    if merged is not None:
        [rows, places] = [axis.dom.extent for axis in merged.kernel.root.axis]
        assert int(rows) == 5
        assert prove_equal(places, n * m)


def test_a_literal_axis_stays_beside_a_symbolic_one():
    """Tiles fit it."""
    x, w, k = cases.placeholder("x", n, 16, 6), cases.placeholder("w", 5, 6), cases.axis(6)
    y = te.compute((n, 16, 5), lambda i, j, o: te.sum(x[i, j, k] * w[o, k], axis=k), name="y")
    assert merged_axes(Kernel(y.op)) is None


def test_an_axis_that_int32_does_not_count_is_not_made():
    """Three axes of which any two could be one."""
    sizes = {"a": 2**11, "b": 2**10, "c": 5, "d": 2**10}
    assert extents(merged_axes(kernel_of(einsum("abc,cd->abd", **sizes)[1])).kernel.root.axis)
    x, w = cases.placeholder("x", 2**11, 2**10, 2**10, 5), cases.placeholder("w", 5)
    k = cases.axis(5)
    y = te.compute(x.shape[:3], lambda a, b, c: te.sum(x[a, b, c, k] * w[k], axis=k), name="y")
    assert merged_axes(Kernel(y.op)) is None


def test_more_rows_than_are_read_are_no_matter():
    [x, _], y = reads(lambda x, i, j, k: x[i, j, k], (9, 5, 6))
    merged = merged_axes(kernel_of(y))
    assert extents(merged.kernel.root.axis) == [20]
    assert (45, 6) in [shape_of(t) for t in merged.kernel.root.input_tensors]
    assert next(iter(merged.views.values())).tensor.same_as(x)


def test_what_a_loop_does_not_change_stays_known():
    [x, w], y = einsum("abc,cd->abd", a=3, b=4, c=5, d=6)
    keys = frozenset((hash(t.op), 0) for t in (x, w))
    kernel = Kernel(y.op, repetition=Repetition(10, keys))
    merged = merged_axes(kernel).kernel
    inputs = {(hash(t.op), 0) for t in merged.root.input_tensors}
    assert inputs <= merged.repetition.fixed


LARGE = {"a": 6, "b": 21, "c": 10, "d": 40, "e": 5, "f": 17}


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("formula", [formula for formula, kept, _ in MERGED if kept])
def test_values(formula, relu):
    sizes = {letter: size for letter, size in LARGE.items() if letter in formula}
    case = einsum(formula, relu, **sizes)
    along_memory = formula == "acd,bcd->ab"
    assert ("rows" if along_memory else "contraction") in rules_of(case[1])
    check(case)


#: elementwise bodies over 6 x 4 x 3, and the extents of the merged axes
MAPS = {
    "all": (lambda x, w, i, j, k: te.sin(x[i, j, k]), [72]),
    "what a column changes": (lambda x, w, i, j, k: te.cos(x[i, j, k] + w[k]), [24, 3]),
    "what a row changes": (lambda x, w, i, j, k: te.tan(x[i, j, k] * w[i]), [6, 12]),
    "a place as a number": (lambda x, w, i, j, k: x[i, j, k] * k.astype("float32"), [24, 3]),
    "other places": (lambda x, w, i, j, k: te.sin(x[i, 3 - j, k]), None),
}


@pytest.mark.parametrize("name", MAPS)
def test_maps(name):
    body, extents = MAPS[name]
    x, w = cases.placeholder("x", 6, 4, 3), cases.placeholder("w", 6)
    y = te.compute((6, 4, 3), lambda *at: body(x, w, *at), name="y")
    merged = merged_axes(Kernel(y.op))
    found = None if merged is None else [int(n) for n in shape_of(merged.kernel.outputs[0])]
    assert found == extents
    check(([x, w] if "w" in name or "changes" in name else [x], y), tolerance=1e-5)
