"""`build`, `lower`, `load`: what they refuse, what calls refuse, and that results are right."""

from __future__ import annotations

import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import te, tirx, topi
from tvm.ir.prim import Let

from tests.processes import without_torch
from tvm_autodiff.compile import build, load, lower
from tvm_autodiff.errors import (
    CallError,
    InvalidArgumentError,
    LoweringError,
)


def placeholder(*shape, name="A", dtype="float32"):
    return te.placeholder(shape, dtype, name=name)


def plus_one(tensor, name="B"):
    one = tirx.const(1, str(tensor.dtype))
    return te.compute(tensor.shape, lambda *i: tensor(*i) + one, name=name)


def row_sum(tensor, **keywords):
    k = te.reduce_axis((0, tensor.shape[1]), "k")
    return te.compute(
        (tensor.shape[0],), lambda i: te.sum(tensor[i, k], axis=k, **keywords), name="R"
    )


class TestRefuses:
    """Bad input to `build`: the error names the tensor and says what to do."""

    A = placeholder(4, name="A")
    B = placeholder(4, name="B")
    C = plus_one(A, "C")

    CASES = (
        ([], C, LoweringError, "A is read by the outputs but is not among the inputs"),
        ([A, A], C, InvalidArgumentError, r"inputs\[1\] is tensor A again"),
        (A, [C, C], InvalidArgumentError, r"outputs\[1\] is tensor C again"),
        (A, A, InvalidArgumentError, "output A is a placeholder"),
        (C, plus_one(C), InvalidArgumentError, "input C is computed"),
        (A, 3, InvalidArgumentError, "outputs must be a te.Tensor"),
        (["A"], C, InvalidArgumentError, r"inputs\[0\] must be a te.Tensor.*got str"),
        (A, [], InvalidArgumentError, "outputs is empty"),
        (A, None, InvalidArgumentError, "outputs must be"),
    )

    @pytest.mark.parametrize(("inputs", "outputs", "error", "message"), CASES)
    def test_bad_arguments(self, inputs, outputs, error, message):
        with pytest.raises(error, match=message):
            build(inputs, outputs)

    def test_free_variable(self):
        A, s = placeholder(4), te.var("s", "float32")
        scaled = te.compute((4,), lambda i: A[i] * s, name="scaled")
        with pytest.raises(LoweringError, match="stage scaled uses the variable s"):
            build(A, scaled)

    def test_missing_c_function(self):
        A = placeholder(4)
        call = te.compute(
            (4,), lambda i: tirx.call_pure_extern("float32", "no_such_function", A[i]), name="call"
        )
        with pytest.raises(LoweringError, match="stage call calls the C function no_such_function"):
            build(A, call)

    def test_loaded_c_function(self):
        A = placeholder(4)
        call = te.compute((4,), lambda i: tirx.call_pure_extern("float32", "cbrtf", A[i]))
        np.testing.assert_allclose(build(A, call)(np.full(4, 27, "float32")), 3, rtol=1e-6)

    def test_scan(self):
        n = 4
        X = placeholder(n, 3, name="X")
        state = te.placeholder((n, 3), name="state")
        init = te.compute((1, 3), lambda _, i: X[0, i], name="init")
        update = te.compute((n, 3), lambda t, i: state[t - 1, i] + X[t, i], name="update")
        with pytest.raises(LoweringError, match=r"te\.scan"):
            build(X, te.scan(init, update, state, inputs=[X], name="scan"))

    @pytest.mark.parametrize("target", ["nonsense", {"kind": "llvm", "what": 1}])
    def test_target(self, target):
        with pytest.raises(InvalidArgumentError, match="target"):
            build(self.A, self.C, target)

    @pytest.mark.parametrize("count", [0, -1, "2"])
    def test_num_threads(self, count):
        with pytest.raises(InvalidArgumentError, match="num_threads"):
            build(self.A, self.C, num_threads=count)


class TestCalls:
    """Arrays of every kind in, arrays of the first one's kind out; bad ones are named."""

    def setup_method(self):
        self.A = placeholder(4, name="A")
        self.B = placeholder(4, name="B")
        self.sum = te.compute((4,), lambda i: self.A[i] + self.B[i], name="C")
        self.f = build([self.A, self.B], self.sum)
        self.x = np.arange(4, dtype="float32")

    BAD = (
        ((np.zeros(4, "float32"),), "expected 2 arrays .A, B., got 1"),
        ((np.zeros(4, "float32"), np.zeros(5, "float32")), r"argument 'B' must have shape \(4,\)"),
        (
            (np.zeros(4), np.zeros(4, "float32")),
            "argument 'A' must have dtype float32, got float64",
        ),
        ((np.zeros((4, 1), "float32"),) * 2, "argument 'A' must have rank 1"),
        ((np.zeros(8, "float32")[::2],) * 2, "argument 'A' must be contiguous.*ascontiguousarray"),
        ((np.zeros(4, ">f4"),) * 2, "argument 'A'.*byte order"),
        (([0.0] * 4,) * 2, "argument 'A' must be an array.*got list"),
        ((1.0, 2.0), "argument 'A' must be an array"),
        ((np.zeros(4, "int32"),) * 2, "argument 'A' must have dtype float32, got int32"),
    )

    @pytest.mark.parametrize(("arrays", "message"), BAD)
    def test_bad_arrays(self, arrays, message):
        with pytest.raises(CallError, match=message):
            self.f(*arrays)

    BAD_OUT = (
        (np.zeros(5, "float32"), "output 'C' must have shape"),
        (np.zeros(4, "float64"), "output 'C' must have dtype"),
        ([], "out= must contain 1 arrays, got 0"),
        ([1.0], "output 'C' must be an array that can be written"),
    )

    @pytest.mark.parametrize(("out", "message"), BAD_OUT)
    def test_bad_out(self, out, message):
        with pytest.raises(CallError, match=message):
            self.f(self.x, self.x, out=out)

    def test_out_must_be_writable(self):
        locked = np.zeros(4, "float32")
        locked.flags.writeable = False
        with pytest.raises(CallError, match="output 'C': an output array must be writable"):
            self.f(self.x, self.x, out=locked)

    def test_out_is_written_and_returned(self):
        out = np.zeros(4, "float32")
        assert self.f(self.x, self.x, out=[out]) is out
        assert (out == 2 * self.x).all()

    def test_read_only_input(self):
        locked = self.x.copy()
        locked.flags.writeable = False
        assert (self.f(locked, locked) == 2 * self.x).all()

    def test_kinds(self):
        import jax.numpy as jnp

        for make, kind in (
            (np.asarray, np.ndarray),
            (tvm.runtime.tensor, tvm.runtime.Tensor),
            (jnp.asarray, jnp.ndarray),
        ):
            result = self.f(make(self.x), self.x)
            assert isinstance(result, kind)
            back = result.numpy() if kind is tvm.runtime.Tensor else np.asarray(result)
            assert (back == 2 * self.x).all()

    def test_torch(self):
        torch = pytest.importorskip("torch")
        result = self.f(torch.arange(4.0), self.x)
        assert isinstance(result, torch.Tensor)
        assert (result.numpy() == 2 * self.x).all()
        with pytest.raises(CallError, match="argument 'A' must be contiguous"):
            self.f(torch.zeros(8)[::2], self.x)

    def test_unaligned_views(self):
        A = placeholder(1000)
        f = build(A, plus_one(A))
        memory = np.arange(1100, dtype="float32")
        for offset in range(20):
            view, out = memory[offset : offset + 1000], np.zeros(1020, "float32")[offset:][:1000]
            f(view, out=out)
            assert (out == view + 1).all()

    @pytest.mark.parametrize(
        "dtype", ["float16", "bfloat16", "float32", "float64", "int8", "int32", "int64", "uint8"]
    )
    def test_dtypes(self, dtype):
        A = placeholder(4, dtype=dtype)
        kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        x = np.arange(4).astype(kind)
        result = build(A, plus_one(A))(x)
        assert result.dtype == kind
        assert (result.astype("float64") == [1, 2, 3, 4]).all()

    def test_rank_zero(self):
        A = placeholder(name="A")
        B = te.compute((), lambda: A() * 2.0, name="B")
        f = build(A, B)
        for value in (3.0, np.float32(3), np.asarray(3, "float32")):
            result = f(value)
            assert result.shape == ()
            assert result == 6

    def test_threads_at_once(self):
        A = placeholder(64, 64)
        chain = plus_one(row_sum(A))
        f = build(A, [chain, plus_one(chain)])
        failures = []

        def work(seed):
            x = np.random.default_rng(seed).standard_normal((64, 64)).astype("float32")
            want = x.astype("float64").sum(1)
            for _ in range(50):
                first, second = f(x)
                if abs(first - want - 1).max() > 1e-4 or abs(second - want - 2).max() > 1e-4:
                    failures.append(seed)

        workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert failures == []


class TestSymbolic:
    """Sizes that the arguments tell."""

    def setup_method(self):
        n = te.var("n")
        X = te.placeholder((n, 3), name="X")
        Y = te.placeholder((n,), name="Y")
        doubled = te.compute((n * 2, 3), lambda i, j: X[i // 2, j] * Y[i // 2], name="D")
        k = te.reduce_axis((0, n), "k")
        total = te.compute((3,), lambda j: te.sum(X[k, j], axis=k), name="T")
        mean = te.compute((3,), lambda j: total[j] / n.astype("float32"), name="mean")
        self.f = build([X, Y], [doubled, mean])

    @pytest.mark.parametrize("n", [1, 5, 64])
    def test_values(self, n):
        x = np.random.default_rng(n).standard_normal((n, 3)).astype("float32")
        y = np.arange(n, dtype="float32")
        doubled, mean = self.f(x, y)
        np.testing.assert_array_equal(doubled, np.repeat(x * y[:, None], 2, axis=0))
        np.testing.assert_allclose(mean, x.mean(0), rtol=1e-5, atol=1e-6)

    def test_inconsistent(self):
        with pytest.raises(CallError, match="'Y' has n = 6 in dimension 0, but n = 5"):
            self.f(np.zeros((5, 3), "float32"), np.zeros(6, "float32"))


class TestMeaning:
    """What TVM's own lowering would drop or get wrong."""

    def setup_method(self):
        self.x = np.random.default_rng(0).standard_normal((5, 7)).astype("float32")

    def test_where(self):
        A = placeholder(5, 7)
        k = te.reduce_axis((0, 7), "k")
        R = te.compute((5,), lambda i: te.max(A[i, k], axis=k, where=k > i), name="R")
        got = build(A, R)(self.x)
        np.testing.assert_array_equal(got, [row[i + 1 :].max() for i, row in enumerate(self.x)])

    def test_init(self):
        A, S = placeholder(5, 7), placeholder(5, name="S")
        k = te.reduce_axis((0, 7), "k")
        R = te.compute((5,), lambda i: te.sum(A[i, k], axis=k, init=S[i]), name="R")
        start = np.arange(5, dtype="float32")
        got = build([A, S], R)(self.x, start)
        np.testing.assert_allclose(got, self.x.sum(1) + start, rtol=1e-5)

    def test_argmax_with_condition(self):
        A = placeholder(5, 7)
        k = te.reduce_axis((0, 7), "k")
        argmax = te.comm_reducer(
            lambda x, y: (
                te.if_then_else(x[1] >= y[1], x[0], y[0]),
                te.if_then_else(x[1] >= y[1], x[1], y[1]),
            ),
            lambda t0, t1: (tirx.const(-1, t0), te.min_value(t1)),
            name="argmax",
        )
        where, best = te.compute(
            (5,), lambda i: argmax((k, A[i, k]), axis=k, where=k < 4), name="R"
        )
        got_where, got_best = build(A, [where, best])(self.x)
        np.testing.assert_array_equal(got_where, self.x[:, :4].argmax(1))
        np.testing.assert_array_equal(got_best, self.x[:, :4].max(1))
        np.testing.assert_array_equal(build(A, where)(self.x), self.x[:, :4].argmax(1))

    @pytest.mark.parametrize(
        "index",
        [
            lambda j: (2 - j) % 3,
            lambda j: (-1 - j) // 3 + 2,
            lambda j: (-2 * j + 9) // 4,
            lambda j: (5 - 3 * j) % 7 % 5,
        ],
    )
    def test_negative_coefficients(self, index):
        A = placeholder(7)
        B = te.compute((4,), lambda j: A[index(j)], name="B")
        x = np.arange(7, dtype="float32")
        np.testing.assert_array_equal(build(A, B)(x), [x[index(j)] for j in range(4)])

    def test_extern_between_stages(self):
        A = placeholder(6)
        sums = topi.cumsum(plus_one(A))
        x = np.arange(6, dtype="float32")
        np.testing.assert_array_equal(build(A, plus_one(sums))(x), np.cumsum(x + 1) + 1)

    def test_equal_outputs(self):
        A = placeholder(6)
        x = np.arange(6, dtype="float32")
        first, second = build(A, [plus_one(A, "B"), plus_one(A, "C")])(x)
        assert (first == x + 1).all()
        assert (second == x + 1).all()

    def test_output_read_by_an_output(self):
        A = placeholder(5, 7)
        R = row_sum(A)
        got, after = build(A, [R, plus_one(R)])(self.x)
        np.testing.assert_allclose(got, self.x.sum(1), rtol=1e-5)
        np.testing.assert_array_equal(after, got + 1)

    def test_lets_read_at_two_places(self):
        A, v = placeholder(5, 5), tirx.Var("v", "float32")
        P = te.compute((5, 5), lambda i, j: Let(v, A[i, j] * 2.0, v * v + v), name="P")
        C = te.compute((5, 5), lambda i, j: P[i, j] * P[j, i], name="C")
        x = self.x[:, :5].copy()
        p = 4 * x * x + 2 * x
        np.testing.assert_allclose(build(A, C)(x), p * p.T, rtol=1e-5, atol=1e-6)

    def test_let_shared_in_a_body(self):
        A, v = placeholder(5, 7), tirx.Var("v", "float32")

        def body(i, j):
            value = Let(v, A[i, j] * 2.0, v * v + v)
            return value * value + value

        p = 4 * self.x * self.x + 2 * self.x
        got = build(A, te.compute((5, 7), body, name="P"))(self.x)
        np.testing.assert_allclose(got, p * p + p, rtol=1e-5, atol=1e-6)

    def test_one_variable_bound_to_two_values(self):
        A, v = placeholder(5, 5), tirx.Var("v", "float32")

        def square(value):
            return Let(v, value, v * v)

        S = te.compute((5, 5), lambda i, j: square(A[i, j]) + square(A[j, i] + 1.0), name="S")
        x = self.x[:, :5].copy()
        np.testing.assert_allclose(build(A, S)(x), x * x + (x.T + 1) ** 2, rtol=1e-5)

    @pytest.mark.slow
    def test_deep_chain(self):
        tensor = A = placeholder(3)
        for number in range(2000):
            tensor = plus_one(tensor, f"s{number % 7}")
        assert (build(A, tensor)(np.zeros(3, "float32")) == 2000).all()

    @pytest.mark.slow
    def test_deep_expression(self):
        A = placeholder(3)

        def body(i):
            value = A[i]
            for _ in range(1500):
                value = value + A[i]
            return value

        got = build(A, te.compute((3,), body, name="B"))(np.ones(3, "float32"))
        assert (got == 1501).all()


class TestFiles:
    def build(self):
        A = placeholder(5, 7)
        R = row_sum(A)
        return build(A, [R, plus_one(R)])

    def test_source(self):
        f = self.build()
        assert "define" in f.source()
        assert ".text" in f.source("asm")

    @pytest.mark.slow
    def test_load_in_a_fresh_process(self, tmp_path):
        path = tmp_path / "f.so"
        self.build().export(path)
        script = (
            "import numpy as np\n"
            "from tvm_autodiff.compile import load\n"
            "from tvm_autodiff.errors import CallError, LoweringError\n"
            f"f = load({str(path)!r})\n"
            "r, s = f(np.ones((5, 7), 'float32'))\n"
            "assert (r == 7).all() and (s == 8).all()\n"
            "for call, error in ((lambda: f(np.ones((5, 8), 'float32')), CallError),\n"
            "                    (f.source, LoweringError)):\n"
            "    try: call()\n"
            "    except error as e: print(e)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], env=without_torch(), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert "argument 'A' must have shape (5, 7)" in done.stdout
        assert "only machine code" in done.stdout

    def test_single_kernel(self, tmp_path):
        A = placeholder(4)
        path = tmp_path / "g.so"
        build(A, plus_one(A)).export(path)
        assert (load(path, num_threads=1)(np.zeros(4, "float32")) == 1).all()

    def test_refuses(self, tmp_path):
        with pytest.raises(InvalidArgumentError, match=r"must end in \.so"):
            self.build().export(tmp_path / "f.txt")
        with pytest.raises(InvalidArgumentError, match="no file"):
            load(tmp_path / "missing.so")
        (tmp_path / "other.so").write_bytes(b"something else")
        with pytest.raises(InvalidArgumentError, match="contains no signature"):
            load(tmp_path / "other.so")


def test_lower_gives_a_module_that_tvm_compiles():
    A = placeholder(5, 7)
    module = lower(A, row_sum(A))
    assert [var.name_hint for var in module.get_global_vars()] == ["main"]
    out = np.zeros(5, "float32")
    tvm.compile(module, target="llvm")["main"](np.ones((5, 7), "float32"), out)
    assert (out == 7).all()
