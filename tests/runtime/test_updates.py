"""Inputs that take new values in place: every reader sees the old value, whatever the order."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, topi

from tvm_autodiff.compile import build
from tvm_autodiff.errors import CallError, InvalidArgumentError
from tvm_autodiff.transforms.differentiate import differentiate

N = 6


def vector(name):
    return te.placeholder((N,), name=name)


def mapped(rule, *tensors, name="new"):
    return te.compute(tensors[0].shape, lambda *i: rule(*(t(*i) for t in tensors)), name=name)


def matrix_product(a, b, name="C"):
    k = te.reduce_axis((0, a.shape[1]), "k")
    return te.compute(
        (a.shape[0], b.shape[1]), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name=name
    )


# Each program gives (inputs, outputs, updates); what it must compute is asked from the same program
# built with the new values as outputs.


def elementwise():
    a = vector("a")
    return [a], [], {a: mapped(lambda x: x * 2.0 + 1.0, a)}


def read_at_another_place():
    a = vector("a")
    return [a], [], {a: te.compute((N,), lambda i: a[N - 1 - i] * 2.0, name="new")}


def read_shifted_and_here():
    a = vector("a")
    shifted = te.compute((N,), lambda i: a[i] + te.if_then_else(i > 0, a[i - 1], 0.0), name="new")
    return [a], [], {a: shifted}


def prefix_sum():
    a = vector("a")
    k = te.reduce_axis((0, N), "k")
    body = lambda i: te.sum(te.if_then_else(k <= i, a[k], 0.0), axis=k)  # noqa: E731
    return [a], [], {a: te.compute((N,), body, name="new")}


def other_kernel_reads_the_old_value_later():
    a, b = vector("a"), vector("b")
    new = mapped(lambda x, y: x + y, a, b)
    k = te.reduce_axis((0, N), "k")
    total = te.compute((), lambda: te.sum(a[k] * new[N - 1 - k], axis=k), name="total")
    return [a, b], [total], {a: new}


def output_reads_old_and_new():
    a = vector("a")
    new = mapped(lambda x: x * x, a)
    return [a], [te.compute((N,), lambda i: new[i] - a[N - 1 - i], name="out")], {a: new}


def swapped():
    a, b = vector("a"), vector("b")
    return [a, b], [], {a: mapped(lambda x: x * 1.0, b), b: mapped(lambda x: x * 1.0, a)}


def swapped_placeholders():
    a, b = vector("a"), vector("b")
    return [a, b], [], {a: b, b: a}


def ring_of_three():
    a, b, c = vector("a"), vector("b"), vector("c")
    ahead = lambda t: te.compute((N,), lambda i: t[N - 1 - i] + 1.0, name="new")  # noqa: E731
    return [a, b, c], [], {a: ahead(b), b: ahead(c), c: ahead(a)}


def written_without_being_read():
    a, b = vector("a"), vector("b")
    return [a, b], [], {a: mapped(lambda x: x + 3.0, b)}


def new_value_is_an_output_too():
    a = vector("a")
    new = mapped(lambda x: x * 3.0, a)
    return [a], [new], {a: new}


def one_new_value_for_two():
    a, b = vector("a"), vector("b")
    new = mapped(lambda x, y: x * y, a, b)
    return [a, b], [], {a: new, b: new}


def accumulated():
    """The new value is a product that reads the old one in its epilogue."""
    w, x, y = (te.placeholder((33, 33), name=name) for name in "wxy")
    product = matrix_product(x, y)
    return [w, x, y], [], {w: mapped(lambda a, b: a - b, w, product)}


def power():
    """The new value is a product with the old one: no element may be written before all are read"""
    w = te.placeholder((40, 40), name="w")
    return [w], [], {w: matrix_product(w, w, "new")}


def momentum():
    x, w, v = te.placeholder((8, 5), name="x"), te.placeholder((3, 5), name="w"), None
    v = te.placeholder((3, 5), name="v")
    rate = te.placeholder((), name="rate")
    i, j = te.reduce_axis((0, 8), "i"), te.reduce_axis((0, 3), "j")
    h = topi.tanh(topi.nn.dense(x, w))
    loss = te.compute((), lambda: te.sum(h[i, j] * h[i, j], axis=[i, j]), name="loss")
    [dw] = differentiate(loss, [w])
    new_v = mapped(lambda v, g: v * 0.9 + g, v, dw, name="new_v")
    new_w = te.compute((3, 5), lambda i, j: w[i, j] - rate() * new_v[i, j], name="new_w")
    return [x, rate, w, v], [loss], {w: new_w, v: new_v}


def integers():
    a = te.placeholder((N,), "int32", name="a")
    return [a], [], {a: mapped(lambda x: x + 7, a)}


def rank_zero():
    step, a = te.placeholder((), name="step"), vector("a")
    scaled = te.compute((N,), lambda i: a[i] * step(), name="scaled")
    return [step, a], [scaled], {step: te.compute((), lambda: step() + 1.0, name="next")}


PROGRAMS = [
    *(elementwise, read_at_another_place, read_shifted_and_here, prefix_sum),
    *(other_kernel_reads_the_old_value_later, output_reads_old_and_new, swapped),
    *(swapped_placeholders, ring_of_three, written_without_being_read, new_value_is_an_output_too),
    *(one_new_value_for_two, accumulated, power, momentum, integers, rank_zero),
]


def arrays_of(tensors):
    """Small integers, which sum exactly in every order."""
    rng = np.random.default_rng(0)
    shapes = [[int(d) for d in tensor.shape] for tensor in tensors]
    return [
        np.asarray(rng.integers(-3, 4, shape), str(tensor.dtype))
        for tensor, shape in zip(tensors, shapes, strict=True)
    ]


@pytest.mark.parametrize("threads", [1, None])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_calls_equal_calls_that_return_the_new_values(program, threads):
    inputs, outputs, updates = program()
    step = build(inputs, outputs, updates=updates, num_threads=threads)
    # the new values as outputs; a tensor that is one already, or an input, is copied
    copies = [mapped(lambda x: x, updates[t], name="copy") for t in inputs if t in updates]
    touched = [mapped(lambda x: x, t, name="old") for t in updates]  # an input must be read
    reference = build(inputs, [*outputs, *copies, *touched], num_threads=threads)
    state = arrays_of(inputs)
    for _ in range(1 if program is power else 3):
        want = reference(*[array.copy() for array in state])
        new = iter(want[len(outputs) :])
        after = [
            next(new) if t in updates else a.copy() for t, a in zip(inputs, state, strict=True)
        ]
        got = step(*state)
        for mine, theirs in zip([*got, *state], [*want[: len(outputs)], *after], strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


KEPT = [
    (elementwise, 0),
    (accumulated, 0),
    (written_without_being_read, 0),
    (other_kernel_reads_the_old_value_later, 1),  # the total reads both
    (read_at_another_place, 1),
    (power, 1),
    (swapped, 1),
]


@pytest.mark.parametrize(("program", "count"), KEPT)
def test_only_what_must_be_is_copied(program, count):
    inputs, outputs, updates = program()
    memory = build(inputs, outputs, updates=updates).memory()
    assert memory.outputs == sum(4 * int(np.prod([int(d) for d in t.shape])) for t in outputs)
    temporaries = [buffer.tensors for buffer in memory.buffers if buffer.kind == "temporary"]
    assert sum("new" in names for names in temporaries) == count
    assert sum(buffer.kind == "updated input" for buffer in memory.buffers) == len(updates)


A, B = vector("a"), vector("b")
NEW = mapped(lambda x: x + 1.0, A)
DOUBLE = te.compute((N,), lambda i: A[i].astype("float64"), name="double")
BAD = [
    ({B: NEW}, "updates has a new value for b, which is not among the inputs"),
    ({A: DOUBLE}, "new value double of input a has dtype and shape float64"),
    ({A: A}, "input a is its own new value"),
    ([(A, NEW), (A, NEW)], "two new values for input a"),
    ({A: 1.0}, "updates maps Tensor to float"),
    ([A], "updates contains .*: pass pairs"),
    (3, "updates must be a mapping"),
    ("a", "updates must be a mapping"),
]


@pytest.mark.parametrize(("updates", "message"), BAD)
def test_bad_updates(updates, message):
    with pytest.raises(InvalidArgumentError, match=message):
        build(A, mapped(lambda x: x - 1.0, A, name="out"), updates=updates)


class TestArrays:
    """What a call refuses to write into."""

    def setup_method(self):
        a, b = vector("a"), vector("b")
        self.step = build([a, b], [], updates={a: mapped(lambda x, y: x + y, a, b)})

    def test_read_only(self):
        locked = np.zeros(N, "float32")
        locked.flags.writeable = False
        with pytest.raises(CallError, match="argument 'a' is updated: an output array must be"):
            self.step(locked, np.ones(N, "float32"))

    def test_the_same_array_twice(self):
        a = np.zeros(N, "float32")
        with pytest.raises(CallError, match="'a' and argument 'b' share memory.* a copy of one$"):
            self.step(a, a)

    def test_a_column(self):
        column = np.zeros((N, 2), "float32")[:, 0]
        with pytest.raises(CallError, match="ascontiguousarray, and copy what is written back"):
            self.step(column, np.ones(N, "float32"))
        with pytest.raises(CallError, match="ascontiguousarray$"):
            self.step(np.ones(N, "float32"), column)

    def test_views_of_one_array(self):
        whole = np.zeros(2 * N, "float32")
        with pytest.raises(CallError, match="share memory"):
            self.step(whole[1 : N + 1], whole[:N])
        self.step(whole[:N], whole[N:])

    def test_a_number(self):
        s, a = te.placeholder((), name="s"), vector("a")
        out = te.compute((N,), lambda i: a[i] * s(), name="out")
        step = build([s, a], out, updates={s: te.compute((), lambda: s() + 1.0, name="next")})
        with pytest.raises(CallError, match="'s' must be an array"):
            step(1.0, np.zeros(N, "float32"))

    def test_a_jax_array(self):
        jax = pytest.importorskip("jax")
        with pytest.raises(CallError, match="argument 'a' is updated: a JAX array cannot be"):
            self.step(jax.numpy.zeros(N, "float32"), np.ones(N, "float32"))

    def test_a_bfloat16_array(self):
        ml_dtypes = pytest.importorskip("ml_dtypes")
        a = te.placeholder((N,), "bfloat16", name="a")
        step = build(a, [], updates={a: mapped(lambda x: x + x, a)})
        state = np.ones(N, ml_dtypes.bfloat16)
        step(state)
        np.testing.assert_array_equal(state.astype("float32"), 2)


def test_symbolic_sizes():
    n = te.var("n")
    a, b = te.placeholder((n,), name="a"), te.placeholder((n,), name="b")
    k = te.reduce_axis((0, n), "k")
    total = te.compute((), lambda: te.sum(a[k] * b[k], axis=k), name="total")
    new = te.compute((n,), lambda i: a[i] + b[i], name="new")
    step = build([a, b], total, updates={a: new})
    for size in (1, 5, 40):
        x, y = np.arange(size, dtype="float32"), np.ones(size, "float32")
        assert float(step(x, y)) == size * (size - 1) / 2
        np.testing.assert_array_equal(x, np.arange(size) + 1)


def test_out_must_not_be_an_argument():
    a = vector("a")
    f = build(a, te.compute((N,), lambda i: a[N - 1 - i], name="out"))
    x = np.zeros(N, "float32")
    with pytest.raises(CallError, match="output 'out' and argument 'a' share memory.*updates="):
        f(x, out=x)
    with pytest.raises(CallError, match="ascontiguousarray, and copy what is written back"):
        f(x, out=np.zeros((N, 2), "float32")[:, 0])
