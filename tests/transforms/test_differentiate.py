"""`differentiate` and `gradient`: heads, results, dtypes, symbolic sizes, custom derivatives.

Whether derivatives of operators are right is asked in tests/gradients; here is what surrounds
them.
"""

from __future__ import annotations

import ml_dtypes  # noqa: F401  (numpy learns bfloat16)
import numpy as np
import pytest
from tvm import te, tirx, topi
from tvm.topi import nn

import tvm_autodiff as ad
from tests.gradient_case import derivatives, evaluate
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.graph.stage import is_extern


def tensor(*shape, name="x", dtype="float64"):
    return te.placeholder(shape, dtype, name=name)


def shape(value):
    return tuple(int(extent) for extent in value.shape)


def square(x, name="square"):
    return te.compute(x.shape, lambda *i: x(*i) * x(*i), name=name)


def total(x, name="total"):
    axes = [te.reduce_axis((0, extent), f"k{n}") for n, extent in enumerate(x.shape)]
    return te.compute((), lambda: te.sum(x(*axes), axis=axes), name=name)


def array(*shape, seed=0):
    return np.random.default_rng(seed).uniform(0.25, 1.25, shape)


class TestHeads:
    def test_none_on_a_scalar_is_the_gradient(self):
        x = tensor(3)
        [dx] = ad.differentiate(total(square(x)), [x])
        at = array(3)
        assert shape(dx) == (3,)
        np.testing.assert_allclose(evaluate([dx], [(x, at)])[0], 2 * at)

    def test_none_on_a_tensor_is_the_jacobian(self):
        x, w = tensor(3), tensor(2, 3, name="w")
        y = topi.matmul(w, topi.reshape(square(x), (3, 1)))
        jacobian = ad.differentiate(y, [x]).result[0]
        at = [array(3), array(2, 3, seed=1)]
        assert shape(jacobian) == (2, 1, 3)
        [got] = evaluate([jacobian], [(x, at[0]), (w, at[1])])
        np.testing.assert_allclose(got[:, 0], at[1] * 2 * at[0])

    def test_prefix(self):
        x, head = tensor(4), tensor(3, 4, name="head")
        [dx] = ad.differentiate(square(x), [x], head)
        at, weights = array(4), array(3, 4, seed=1)
        assert shape(dx) == (3, 4)
        np.testing.assert_allclose(evaluate([dx], [(x, at), (head, weights)])[0], weights * 2 * at)

    def test_prefix_of_two_axes_through_a_reduction(self):
        x, head = tensor(4), tensor(2, 3, name="head")
        [dx] = ad.differentiate(total(square(x)), [x], head)
        at, weights = array(4), array(2, 3, seed=1)
        np.testing.assert_allclose(
            evaluate([dx], [(x, at), (head, weights)])[0], weights[..., None] * 2 * at
        )

    @pytest.mark.slow
    def test_prefix_is_a_stack_of_gradients(self):
        x, w = tensor(1, 2, 5, 5), tensor(3, 2, 3, 3, name="w")
        y = nn.conv2d_nchw(x, w, 2, 1, 1)
        stacked, single = tensor(2, *shape(y), name="heads"), tensor(*shape(y), name="head")
        values = [(x, array(1, 2, 5, 5)), (w, array(3, 2, 3, 3, seed=1))]
        heads = array(2, *shape(y), seed=2)
        together = evaluate(ad.gradient(y, [x, w], stacked), [*values, (stacked, heads)])
        for row in range(2):
            alone = evaluate(ad.gradient(y, [x, w], single), [*values, (single, heads[row])])
            for one, many in zip(alone, together, strict=True):
                np.testing.assert_allclose(many[row], one, rtol=1e-12)

    def test_a_computed_head(self):
        x, z = tensor(3), tensor(3, name="z")
        [dx] = ad.differentiate(square(x), [x], square(z, "head"))
        at, weights = array(3), array(3, seed=1)
        np.testing.assert_allclose(evaluate([dx], [(x, at), (z, weights)])[0], weights**2 * 2 * at)


class TestResults:
    def test_it_is_a_sequence(self):
        x, y = tensor(3), tensor(3, name="y")
        result = ad.differentiate(topi.multiply(x, y), [x, y], tensor(3, name="h"))
        first, second = result
        assert len(result) == 2
        assert result[0] is first
        assert result.result == [first, second]
        assert result.adjoints[x].same_as(first)

    def test_one_input_needs_no_list(self):
        x = tensor(3)
        assert len(ad.differentiate(total(square(x)), x)) == 1

    def test_gradient_is_a_list(self):
        x, y = tensor(3), tensor(3, name="y")
        out = total(topi.multiply(x, y))
        assert isinstance(ad.gradient(out, [x, y]), list)
        assert [shape(d) for d in ad.gradient(out, [x, y])] == [(3,), (3,)]
        assert [shape(d) for d in ad.gradient(topi.exp(x), x)] == [(3, 3)]

    def test_no_inputs_gives_all_adjoints(self):
        x = tensor(3)
        y = square(x, "y")
        out = total(y)
        result = ad.differentiate(out)
        at = array(3)
        [dx, dy] = evaluate([result.adjoints[x], result.adjoints[y]], [(x, at)])
        np.testing.assert_allclose(dx, 2 * at)
        np.testing.assert_array_equal(dy, np.ones(3))
        with pytest.raises(ad.InvalidArgumentError, match="inputs"):
            [_] = result

    def test_summands_add_up(self):
        x = tensor(4)
        a, b = square(x, "a"), te.compute((4,), lambda i: te.sin(x[i]), name="b")
        c = te.compute((2,), lambda i: x[2 * i], name="c")
        out = te.compute((4,), lambda i: a[i] * b[i] * c[i // 2] * x[i], name="out")
        result = ad.differentiate(out, [x], tensor(4, name="h"))
        summands = result.adjoint_summands[x]
        assert {consumer.op.name for consumer in summands} == {"a", "b", "c", "out"}
        head = [t for t in result.result[0].op.input_tensors if t.op.name == "h"]
        h = head[0] if head else _find(result.result[0], "h")
        pairs = [(x, array(4)), (h, array(4, seed=1))]
        whole = evaluate([result.result[0]], pairs)[0]
        parts = [evaluate([part], pairs)[0] for part in summands.values()]
        np.testing.assert_allclose(sum(parts), whole, rtol=1e-13)

    def test_adjoints_can_be_built_together(self):
        """Equal adjoints, and one that is the head itself, are tensors of their own."""
        x, y, head = tensor(3), tensor(3, name="y"), tensor(3, name="h")
        adjoints = ad.gradient(topi.add(x, y), [x, y], head)
        got = ad.build([head], adjoints)(np.arange(3.0))
        for value in got:
            np.testing.assert_array_equal(value, np.arange(3.0))

    def test_the_output_itself(self):
        x, head = tensor(3), tensor(3, name="h")
        y = square(x)
        [dy] = ad.gradient(y, [y], head)
        np.testing.assert_array_equal(ad.build([head], dy)(np.arange(3.0)), np.arange(3.0))
        [identity] = ad.gradient(y, [y])
        np.testing.assert_array_equal(evaluate([identity], [])[0], np.eye(3))


def _find(tensor, name):
    pending = [tensor]
    while pending:
        current = pending.pop()
        if current.op.name == name:
            return current
        pending += list(current.op.input_tensors)
    raise AssertionError(f"no tensor {name}")


class TestGraphs:
    def test_an_intermediate_tensor(self):
        x = tensor(3)
        y = square(x, "y")
        out = te.compute((3,), lambda i: te.exp(y[i]) * x[i], name="out")
        # by y alone: the direct read of x does not count
        [dy] = derivatives_at(out, [y], [(x, at := array(3))])
        np.testing.assert_allclose(dy, np.exp(at**2) * at)

    def test_an_intermediate_and_what_is_below_it(self):
        x = tensor(3)
        y = square(x, "y")
        out = te.compute((3,), lambda i: y[i] * y[i], name="out")
        dy, dx = derivatives_at(out, [y, x], [(x, at := array(3))])
        np.testing.assert_allclose(dy, 2 * at**2)
        np.testing.assert_allclose(dx, 4 * at**3)

    def test_an_input_without_influence(self):
        x, z = tensor(3), tensor(2, 5, name="z")
        with pytest.warns(ad.UnrelatedInputWarning, match="square is not computed from z"):
            _, dz = derivatives_at(square(x), [x, z], [(x, array(3))])
        assert dz.shape == (2, 5)
        assert not dz.any()

    def test_influence_through_integers_is_none(self):
        x = tensor(4)
        places = te.compute((4,), lambda i: x[i].astype("int32"), name="places")
        out = te.compute((4,), lambda i: x[i] * places[i].astype("float64"), name="out")
        at = np.array([1.5, 2.5, 0.5, 3.5])
        [dx] = derivatives_at(out, [x], [(x, at)])
        np.testing.assert_array_equal(dx, np.floor(at))

    def test_several_consumers_and_sites(self):
        x = tensor(4)
        a = te.compute((4,), lambda i: x[i] * x[3 - i], name="a")
        b = te.compute((4,), lambda i: a[i] + x[i] * a[3 - i], name="b")
        ad.check_grads(b, x, order=2)

    def test_a_tuple_stage_read_by_both_outputs(self):
        x = tensor(4)
        first, second = te.compute((4,), lambda i: (te.sin(x[i]), x[i] * x[i]), name="pair")
        out = te.compute((4,), lambda i: first[i] * second[3 - i], name="out")
        ad.check_grads(out, x, order=2)
        ad.check_grads(second, x)

    def test_one_component_by_the_other_input(self):
        x = tensor(4)
        first, second = te.compute((4,), lambda i: (te.sin(x[i]), x[i] * x[i]), name="pair")
        out = te.compute((4,), lambda i: first[i] * second[i], name="out")
        d_first, d_second = derivatives_at(out, [first, second], [(x, at := array(4))])
        np.testing.assert_allclose(d_first, at**2)
        np.testing.assert_allclose(d_second, np.sin(at))

    def test_scalars(self):
        a, b = tensor(name="a"), tensor(name="b")
        out = te.compute((), lambda: te.exp(a()) * b(), name="out")
        da, db = ad.differentiate(out, [a, b])
        got = evaluate([da, db], [(a, np.array(0.5)), (b, np.array(3.0))])
        np.testing.assert_allclose(got, [3 * np.exp(0.5), np.exp(0.5)])

    def test_scalar_spread_over_a_tensor(self):
        a, x = tensor(name="a"), tensor(3)
        out = te.compute((3,), lambda i: a() * x[i] + a() * a(), name="out")
        ad.check_grads(out, [a, x], order=2)

    def test_extents_of_one(self):
        x, y = tensor(1, 3), tensor(4, 1, name="y")
        ad.check_grads(topi.multiply(x, y), [x, y], order=2)

    @pytest.mark.slow
    def test_third_order(self):
        x = tensor(3)
        ad.check_grads(te.compute((3,), lambda i: te.exp(x[i]) * x[2 - i], name="y"), x, order=3)

    def test_same_text_every_time(self):
        def once():
            x, w = tensor(1, 2, 4, 4), tensor(2, 2, 3, 3, name="w")
            y = nn.softmax(nn.flatten(nn.conv2d_nchw(x, w, 1, 1, 1)))
            return ad.show(ad.gradient(y, [x, w], tensor(1, 32, name="h")))

        assert once() == once()


def derivatives_at(output, inputs, pairs):
    """Gradients for a head of ones, where the inputs need not be placeholders."""
    head = te.placeholder(output.shape, str(output.dtype), name="head")
    adjoints = ad.gradient(output, inputs, head)
    return evaluate(adjoints, [*pairs, (head, np.ones(shape(output)))])


def network(x, w):
    hidden = te.compute(x.shape, lambda i, j: te.tanh(x[i, j]), name="hidden")
    k = te.reduce_axis((0, x.shape[1]), "k")
    return te.compute(
        (x.shape[0], w.shape[1]),
        lambda i, j: te.sum(hidden[i, k] * te.exp(w[k, j]), axis=k),
        name="out",
    )


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [("float16", 2e-2), ("bfloat16", 1e-1), ("float32", 1e-5)],
)
def test_dtypes(dtype, tolerance):
    at = [array(3, 4), array(4, 2, seed=1)]
    x, w = tensor(3, 4), tensor(4, 2, name="w")
    expected = derivatives(network(x, w), [x, w], at)
    x, w = tensor(3, 4, dtype=dtype), tensor(4, 2, name="w", dtype=dtype)
    adjoints = ad.gradient(network(x, w), [x, w], tensor(3, 2, name="h", dtype=dtype))
    assert [str(t.dtype) for t in adjoints] == [dtype, dtype]
    got = derivatives(network(x, w), [x, w], [value.astype(dtype) for value in at])
    for ours, exact in zip(got, expected, strict=True):
        assert str(ours.dtype) == dtype
        np.testing.assert_allclose(ours.astype("float64"), exact, rtol=tolerance)


def test_mixed_dtypes():
    """Each adjoint has the dtype of its own tensor, the sum runs in that of its consumer."""
    x, w = tensor(3, dtype="float16"), tensor(3, name="w", dtype="float32")
    out = te.compute((3,), lambda i: (x[i].astype("float32") * w[i]).astype("float64"), name="out")
    at = [array(3).astype("float16"), array(3, seed=1).astype("float32")]
    dx, dw = derivatives(out, [x, w], at)
    assert (dx.dtype, dw.dtype) == (np.float16, np.float32)
    np.testing.assert_allclose(dx, at[1], rtol=1e-3)
    np.testing.assert_allclose(dw, at[0], rtol=1e-6)


class TestSymbolicSizes:
    """A gradient built once for a symbolic n is that of every constant n."""

    CASES = {
        "elementwise": lambda x: square(x),
        "sum": lambda x: total(square(x)),
        "matmul": lambda x: topi.matmul(x, x, False, True),
        "transpose": lambda x: topi.transpose(square(x)),
        "reversed": lambda x: te.compute(
            x.shape, lambda i, j: x[x.shape[0] - 1 - i, j] * x[i, j], name="out"
        ),
        "flatten": lambda x: topi.reshape(square(x), (x.shape[0] * x.shape[1],)),
        "flatten three": lambda x: topi.reshape(
            topi.reshape(square(x), (x.shape[0], 3, 1)), (3 * x.shape[0],)
        ),
        "concatenate": lambda x: topi.concatenate([x, square(x)], 0),
        "softmax": lambda x: nn.softmax(x),
        "pad": lambda x: nn.pad(square(x), [1, 0], [2, 1], 0.0),
        "slice": lambda x: te.compute((x.shape[0] - 1, 2), lambda i, j: x[i + 1, j] * x[i, j]),
        "prefix": lambda x: _prefix(x),
    }

    @pytest.mark.parametrize("name", CASES)
    def test_gradient(self, name):
        make = self.CASES[name]
        x = te.placeholder((te.var("n"), 3), "float64", name="x")
        y = make(x)
        head = te.placeholder(y.shape, "float64", name="head")
        [dx] = ad.gradient(y, [x], head)
        assert not any(is_extern(op) for op in Graph([dx]).ops)
        for n in (2, 5):
            fixed = te.placeholder((n, 3), "float64", name="x")
            z = make(fixed)
            at, weights = array(n, 3), array(*shape(z), seed=1)
            [expected] = derivatives(z, [fixed], [at], weights)
            [got] = evaluate([dx], [(x, at), (head, weights)])
            np.testing.assert_allclose(got, expected, rtol=1e-12)


def _prefix(x):
    k = te.reduce_axis((0, x.shape[0]), "k")
    return te.compute(
        x.shape,
        lambda i, j: te.sum(
            te.if_then_else(k <= i, te.sin(x[k, j]), tirx.const(0.0, "float64")), axis=k
        ),
        name="prefix",
    )


class TestByHand:
    """`manual`, `override` and `fdiff` replace what they say, and nothing else."""

    def setup_method(self):
        self.x = tensor(4)
        self.y = te.compute((4,), lambda i: te.sin(self.x[i]), name="y")
        self.z = te.compute((4,), lambda i: self.y[i] * self.x[i], name="z")
        self.at = array(4)
        self.by_y, self.by_x = self.at * np.cos(self.at), np.sin(self.at)

    def grad(self, **by_hand):
        head = tensor(4, name="h")
        [dx] = ad.differentiate(self.z, [self.x], head, **by_hand)
        return evaluate([dx], [(self.x, self.at), (head, np.ones(4))])[0]

    @staticmethod
    def twice(out, inp, head):
        right = ad.pullback(out, inp, head)
        return te.compute(
            right.shape, lambda *i: right(*i) * tirx.const(2.0, "float64"), name="wrong"
        )

    def test_nothing_by_hand(self):
        np.testing.assert_allclose(self.grad(), self.by_y + self.by_x)

    def test_a_wrong_edge_shows_on_its_path_only(self):
        got = self.grad(manual={(self.z, self.y): self.twice})
        np.testing.assert_allclose(got, 2 * self.by_y + self.by_x)
        got = self.grad(manual={(self.y, self.x): self.twice})
        np.testing.assert_allclose(got, 2 * self.by_y + self.by_x)
        got = self.grad(manual={(self.z, self.x): self.twice})
        np.testing.assert_allclose(got, self.by_y + 2 * self.by_x)

    def test_a_right_edge_changes_nothing(self):
        got = self.grad(manual={(self.z, self.y): ad.pullback})
        np.testing.assert_allclose(got, self.by_y + self.by_x)

    def test_fdiff_takes_every_edge(self):
        edges = []

        def record(out, inp, head):
            edges.append((out.op.name, inp.op.name))
            return ad.pullback(out, inp, head)

        np.testing.assert_allclose(self.grad(fdiff=record), self.by_y + self.by_x)
        assert sorted(edges) == [("y", "x"), ("z", "x"), ("z", "y")]
        np.testing.assert_allclose(self.grad(fdiff=self.twice), 4 * self.by_y + 2 * self.by_x)

    def test_manual_goes_before_fdiff(self):
        got = self.grad(fdiff=self.twice, manual={(self.z, self.y): ad.pullback})
        np.testing.assert_allclose(got, 2 * self.by_y + 2 * self.by_x)

    def test_differentiate_inside(self):
        def inner(out, inp, head):
            return ad.differentiate(out, [inp], head)[0]

        # z by x with everything between: the path over y is counted here and again by its own edge
        got = self.grad(manual={(self.z, self.x): inner})
        np.testing.assert_allclose(got, 2 * self.by_y + self.by_x)

    def test_override_between_tensors_that_are_not_neighbours(self):
        x = self.x
        a = te.compute((4,), lambda i: te.exp(x[i]), name="a")
        b = te.compute((4,), lambda i: a[i] * a[i], name="b")
        c = te.compute((4,), lambda i: b[i] + x[i], name="c")
        seen = []

        def by_hand(out, deps, head):
            seen.append((out.op.name, [dep.op.name for dep in deps]))
            # of b = exp(2x): three times as much as it should be
            return [
                te.compute((4,), lambda i: head[i] * out[i] * tirx.const(6.0, "float64"), name="d")
            ]

        head = tensor(4, name="h")
        [dx] = ad.differentiate(c, [x], head, override={b: ([x], by_hand)})
        [got] = evaluate([dx], [(x, self.at), (head, np.ones(4))])
        np.testing.assert_allclose(got, 6 * np.exp(2 * self.at) + 1)
        assert seen == [("b", ["x"])]

    def test_override_replaces_all_paths(self):
        def by_hand(out, deps, head):
            return ad.gradient(out, deps, head)

        got = self.grad(override={self.z: ([self.x], by_hand)})
        np.testing.assert_allclose(got, self.by_y + self.by_x)

        def nothing(out, deps, head):
            return [te.compute((4,), lambda i: tirx.const(0.0, "float64"), name="none")]

        assert not self.grad(override={self.z: ([self.x], nothing)}).any()

    def test_override_of_an_opaque_stage(self):
        x = tensor(5)
        scan = topi.cumsum(square(x))
        out = square(scan, "out")

        def by_hand(out, deps, head):
            # transposed prefix sums: suffix sums
            k = te.reduce_axis((0, 5), "k")
            zero = tirx.const(0.0, "float64")
            return [
                te.compute(
                    (5,), lambda i: te.sum(te.if_then_else(k >= i, head[k], zero), axis=k), name="s"
                )
            ]

        head = tensor(5, name="h")
        inner = scan.op.input_tensors[0]
        [dx] = ad.differentiate(out, [x], head, override={scan: ([inner], by_hand)})
        at = array(5)
        [got] = evaluate([dx], [(x, at), (head, np.ones(5))])
        sums = np.cumsum(at**2)
        np.testing.assert_allclose(got, np.cumsum((2 * sums)[::-1])[::-1] * 2 * at)

    def test_heads_with_prefix_reach_the_functions(self):
        shapes = []

        def record(out, inp, head):
            shapes.append(shape(head))
            return ad.pullback(out, inp, head)

        ad.differentiate(self.z, [self.x], tensor(3, 4, name="h"), fdiff=record)
        assert set(shapes) == {(3, 4)}
        shapes.clear()
        ad.differentiate(self.z, [self.x], fdiff=record)
        assert set(shapes) == {(4, 4)}
