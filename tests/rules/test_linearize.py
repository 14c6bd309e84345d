"""Terms of stages, read as a pushforward in numpy, against central differences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tvm import te, tirx, topi

from tests.evaluate import evaluate, evaluate_graph
from tvm_autodiff import NotDifferentiableError
from tvm_autodiff.expr.nodes import Tensor, load, op_name, tensor_key
from tvm_autodiff.expr.rewrite import loaded_tensors, substitute
from tvm_autodiff.graph.stage import axis_range, axis_vars, reduction_of, shape_of
from tvm_autodiff.rules.linearize import linearize
from tvm_autodiff.rules.reductions.reducers import classify
from tvm_autodiff.rules.terms import Term, guarded

D = "float64"
A = te.placeholder((4, 5), D, name="A")
B = te.placeholder((4,), D, name="B")


def stage(f, shape=(4,)):
    return te.compute(shape, f, name="out")


def reduced(make, extent=5, low=0, shape=(4,)):
    k = te.reduce_axis((low, low + extent), name="k")
    return te.compute(shape, lambda *i: make(*i, k), name="out")


PRODUCT = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t), name="product")
STAR = te.comm_reducer(lambda a, b: a * b + a + b, lambda t: tirx.const(0, t), name="star")
LEFT = te.comm_reducer(lambda a, b: a, lambda t: tirx.const(0, t), name="left")
WINNER = te.comm_reducer(
    lambda a, b: (
        tirx.Select(a[1] >= b[1], a[0], b[0]),
        tirx.Select(a[1] >= b[1], a[1], b[1]),
    ),
    lambda s, t: (tirx.const(-1, s), te.min_value(t)),
    name="winner",
)
MOMENTS = te.comm_reducer(
    lambda a, b: (a[0] + b[0], a[1] + b[1]),
    lambda s, t: (tirx.const(0, s), tirx.const(0, t)),
    name="moments",
)
SOFTMAX = te.comm_reducer(
    lambda a, b: (
        tirx.Max(a[0], b[0]),
        a[1] * te.exp(a[0] - tirx.Max(a[0], b[0])) + b[1] * te.exp(b[0] - tirx.Max(a[0], b[0])),
    ),
    lambda s, t: (te.min_value(s), tirx.const(0, t)),
    name="softmax_pair",
)
one = tirx.const(1.0, D)

STAGES = {
    "product of reads": lambda: stage(lambda i: A[i, 0] * A[i, 1] * B[i]),
    "nested functions": lambda: stage(lambda i: te.exp(te.sin(A[i, 2]) * B[3 - i])),
    "two branches": lambda: stage(lambda i: te.if_then_else(i > 1, A[i - 2, 0], A[i, 1] * 3.0)),
    "choice by data": lambda: stage(lambda i: tirx.Select(A[i, 0] > B[i], A[i, 1], B[i] * B[i])),
    "a masked update": lambda: stage(
        lambda i: te.if_then_else(i > 1, A[i, 0] - A[i, 1] * B[i], A[i, 0])
    ),
    "shared part on both sides": lambda: stage(
        lambda i: tirx.Max(te.exp(A[i, 0]), one) + te.if_then_else(i > 1, te.exp(A[i, 0]), one)
    ),
    "two outputs": lambda: te.compute((4,), lambda i: (A[i, 0] * B[i], te.tanh(B[i])), name="out"),
    "let": lambda: stage(
        lambda i: (lambda t: tirx.Let(t, te.exp(A[i, 0]), t * t))(tirx.Var("t", D))
    ),
    "sum": lambda: reduced(lambda i, k: te.sum(A[i, k] * A[i, k] * B[i], axis=k)),
    "sum where": lambda: reduced(lambda i, k: te.sum(A[i, k] * B[i], axis=k, where=k > i)),
    "sum with init": lambda: reduced(lambda i, k: te.sum(A[i, k], axis=k, init=B[i])),
    "sum from one": lambda: reduced(lambda i, k: te.sum(A[i, k] * A[i, 0], axis=k), 4, 1),
    "max": lambda: reduced(lambda i, k: te.max(A[i, k] * B[i], axis=k)),
    "min where": lambda: reduced(lambda i, k: te.min(A[i, k], axis=k, where=k != i)),
    "max with init": lambda: reduced(lambda i, k: te.max(A[i, k], axis=k, init=B[i])),
    "product": lambda: reduced(lambda i, k: PRODUCT(A[i, k] * B[i], axis=k)),
    "product where": lambda: reduced(lambda i, k: PRODUCT(A[i, k], axis=k, where=k > 1)),
    "product with init": lambda: reduced(lambda i, k: PRODUCT(A[i, k], axis=k, init=B[i])),
    "user reducer": lambda: reduced(lambda i, k: STAR(A[i, k], axis=k)),
    "user reducer where": lambda: reduced(lambda i, k: STAR(A[i, k] * B[i], axis=k, where=k > 1)),
    "argmax pair": lambda: reduced(lambda i, k: WINNER((k.var, A[i, k]), axis=k))[1],
    "tuple of sums": lambda: reduced(lambda i, k: MOMENTS((A[i, k], A[i, k] * A[i, k]), axis=k))[1],
    "max and sum of exp": lambda: reduced(lambda i, k: SOFTMAX((A[i, k], one), axis=k))[1],
}


def first(tensors):
    return tensors if isinstance(tensors, Tensor) else tensors[0]


def values_of(seed: int = 0):
    rng = np.random.default_rng(seed)
    return {A: rng.uniform(0.2, 1.2, (4, 5)), B: rng.uniform(0.2, 1.2, (4,))}


def pushed_forward(term: Term, out: Tensor, arrays, tangents) -> np.ndarray:
    """Σ_k [conditions] value(1) · tangent[indices], point by point."""
    expr = guarded(
        substitute(term.value, {term.seed: tirx.const(1.0, D)})
        * load(tangents[tensor_key(term.tensor)], term.indices),
        term.conditions,
    )
    result = np.zeros(shape_of(out))
    boxes = [range(*_bounds(axis)) for axis in term.reduce_axes]
    for place in np.ndindex(*result.shape):
        for inner in itertools.product(*boxes):
            point = dict(zip(axis_vars(out.op), place, strict=True))
            point.update(zip((axis.var for axis in term.reduce_axes), inner, strict=True))
            result[place] += evaluate(expr, point, arrays)
    return result


def _bounds(axis):
    low, extent = axis_range(axis)
    return low, low + extent


@pytest.mark.parametrize("name", STAGES)
def test_terms_are_the_derivative(name):
    made = STAGES[name]()
    out = first(made)
    reads = [A, B]
    tangent_of = {tensor_key(t): te.placeholder(t.shape, D, name=f"d{t.op.name}") for t in reads}
    rng = np.random.default_rng(1)
    at = values_of()
    step = {tensor_key(t): rng.standard_normal(at[t].shape) for t in reads}
    derivative = np.zeros(shape_of(out))
    for term in linearize(out.op, reads):
        if term.component != out.value_index:
            continue
        extra = [t for t in _loaded(term) if tensor_key(t) not in (tensor_key(A), tensor_key(B))]
        arrays = dict(at)
        arrays.update(zip(extra, evaluate_graph(extra, at), strict=True))
        arrays.update({tangent_of[key]: step[key] for key in tangent_of})
        derivative += pushed_forward(term, out, arrays, tangent_of)
    eps = 1e-6
    ends = [
        evaluate_graph([out], {t: at[t] + s * eps * step[tensor_key(t)] for t in reads})[0]
        for s in (1, -1)
    ]
    assert np.allclose(derivative, (ends[0] - ends[1]) / (2 * eps), atol=1e-7)


def _loaded(term: Term) -> list[Tensor]:
    found = {}
    for expr in (term.value, *(c.expr for c in term.conditions)):
        for tensor in loaded_tensors(expr):
            found.setdefault(tensor_key(tensor), tensor)
    return list(found.values())


COUNTS = [
    ("equal reads are one site", lambda: stage(lambda i: A[i, 0] * A[i, 0]), 1),
    ("different reads are two", lambda: stage(lambda i: A[i, 0] * A[0, i]), 2),
    (
        "a comparison has no derivative",
        lambda: stage(lambda i: tirx.Select(A[i, 0] > 0, one, one)),
        0,
    ),
    (
        "a branch that leaves the read as it is",
        lambda: stage(lambda i: te.if_then_else(i > 1, A[i, 0] - B[i], A[i, 0])),
        1,
    ),
    (
        "a branch in a branch",
        lambda: stage(
            lambda i: te.if_then_else(
                i > 1, te.if_then_else(B[i] > 0, A[i, 0] + B[i], A[i, 0]), A[i, 0]
            )
        ),
        1,
    ),
    (
        "paths that floats choose",
        lambda: stage(
            lambda i: A[i, 0] * B[i] + te.if_then_else(B[i] > 0, A[i, 0] * A[i, 0], te.sin(A[i, 0]))
        ),
        1,
    ),
    (
        "paths that an index chooses",
        lambda: stage(lambda i: A[i, 0] * B[i] + te.if_then_else(i > 1, A[i, 0] * 2.0, 0.0)),
        2,
    ),
    (
        "paths that floats and an index choose",
        lambda: stage(
            lambda i: te.if_then_else(
                te.all(i > 1, B[i - 2] > 0), A[i, 0] * 2.0, te.if_then_else(i > 1, A[i, 0], 0.0)
            )
        ),
        2,
    ),
    ("floor has none", lambda: stage(lambda i: te.floor(A[i, 0])), 0),
    ("an integer output has none", lambda: stage(lambda i: A[i, 0].astype("int32")), 0),
]


@pytest.mark.parametrize(("make", "count"), [c[1:] for c in COUNTS], ids=[c[0] for c in COUNTS])
def test_number_of_terms(make, count):
    assert len(linearize(make().op, [A])) == count


def test_path_conditions_stay_conditions():
    [term] = linearize(stage(lambda i: te.if_then_else(i > 1, A[i - 2, 0], 0.0)).op, [A])
    [condition] = term.conditions
    assert condition.guards
    assert op_name(term.value) == "var", "the value is the seed itself, not a guarded one"


KINDS = [
    ("sum", lambda: reduced(lambda i, k: te.sum(A[i, k], axis=k)), 0),
    ("max", lambda: reduced(lambda i, k: te.max(A[i, k], axis=k)), 0),
    ("min", lambda: reduced(lambda i, k: te.min(A[i, k], axis=k)), 0),
    ("product", lambda: topi.prod(A, axis=1), 0),
    ("selection", lambda: reduced(lambda i, k: WINNER((k.var, A[i, k]), axis=k)), 1),
    ("sum", lambda: reduced(lambda i, k: MOMENTS((A[i, k], A[i, k]), axis=k)), 1),
    ("max", lambda: reduced(lambda i, k: SOFTMAX((A[i, k], one), axis=k)), 0),
    ("rescaled", lambda: reduced(lambda i, k: SOFTMAX((A[i, k], one), axis=k)), 1),
    ("general", lambda: reduced(lambda i, k: STAR(A[i, k], axis=k)), 0),
    ("general", lambda: reduced(lambda i, k: LEFT(A[i, k], axis=k)), 0),
]


@pytest.mark.parametrize(("kind", "make", "component"), KINDS)
def test_kinds_of_reducers(kind, make, component):
    assert classify(reduction_of(first(make()).op).combiner, component) == kind


BAD = [
    (
        "opaque stage",
        lambda: te.extern(
            (4,), [B], lambda ins, outs: tirx.call_packed("f", ins[0], outs[0]), name="out"
        ),
        "override",
    ),
    (
        "bits of a float",
        lambda: stage(
            lambda i: tirx.reinterpret(D, tirx.reinterpret("int64", B[i]) + tirx.const(1, "int64"))
        ),
        "reinterpret",
    ),
]


@pytest.mark.parametrize(("make", "message"), [c[1:] for c in BAD], ids=[c[0] for c in BAD])
def test_what_has_no_derivative_says_so(make, message):
    with pytest.raises(NotDifferentiableError, match=message):
        linearize(make().op, [B])
