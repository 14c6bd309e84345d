"""Calls by name: in any order, beside arguments in order, with errors that suggest."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te

from tvm_autodiff import CallError, build, load

X, W, B = (np.arange(4, dtype="float32") + shift for shift in (1, 5, 9))


def tensor(*shape, name, dtype="float32"):
    return te.placeholder(shape, dtype, name=name)


def program(*names):
    x, w, b = (tensor(4, name=name) for name in names or ("x", "weight", "b"))
    y = te.compute((4,), lambda i: x[i] * w[i] - b[i], name="y")
    return [x, w, b], y


@pytest.fixture(scope="module")
def function():
    return build(*program())


GOOD = {
    "all in order": lambda f: f(X, W, B),
    "all by name": lambda f: f(x=X, weight=W, b=B),
    "another order": lambda f: f(b=B, x=X, weight=W),
    "the last by name": lambda f: f(X, W, b=B),
    "two by name": lambda f: f(X, b=B, weight=W),
    "with out": lambda f: f(X, b=B, weight=W, out=np.empty(4, "float32")),
    "from a mapping": lambda f: f(**{"x": X, "weight": W, "b": B}),
}


@pytest.mark.parametrize("name", GOOD)
def test_it_is_the_call_in_order(function, name):
    np.testing.assert_array_equal(GOOD[name](function), X * W - B)


def test_profile_takes_names(function):
    assert function.profile(X, b=B, weight=W, repeats=2).kernels


def test_loaded_functions_keep_the_names(function, tmp_path):
    function.export(tmp_path / "f.so")
    np.testing.assert_array_equal(load(tmp_path / "f.so")(b=B, x=X, weight=W), X * W - B)


def test_updates_by_name():
    [x, w, b], y = program()
    step = build([x, w, b], [], updates={w: y})
    state = W.copy()
    assert step(b=B, weight=state, x=X) == []
    np.testing.assert_array_equal(state, X * W - B)


def test_numbers_and_symbols_by_name():
    n = te.var("n")
    x, scale = tensor(n, name="x"), tensor(name="scale")
    f = build([x, scale], te.compute((n,), lambda i: x[i] * scale(), name="y"))
    np.testing.assert_array_equal(f(scale=2.0, x=X), 2 * X)
    np.testing.assert_array_equal(f(X[:2], scale=2.0), 2 * X[:2])


BAD = {
    "unknown": (lambda f: f(X, W, c=B), "no argument 'c'. There are x, weight, b"),
    "misspelt": (lambda f: f(X, wieght=W, b=B), "no argument 'wieght'; did you mean 'weight'"),
    "twice": (lambda f: f(X, W, B, x=X), "argument 'x' is passed twice: by position and by name"),
    "missing": (lambda f: f(x=X, b=B), r"expected 3 arrays \(x, weight, b\), got 2: weight miss"),
    "too many": (lambda f: f(X, W, B, X, b=B), "passed twice"),
    "wrong shape": (lambda f: f(X, b=B[:3], weight=W), r"argument 'b' must have shape \(4,\)"),
    "wrong dtype": (lambda f: f(X, b=B, weight=W.astype(int)), "'weight' must have dtype float32"),
    "result by name": (lambda f: f(X, W, B, y=B), "no argument 'y'"),
}


@pytest.mark.parametrize("name", BAD)
def test_mistakes(function, name):
    call, message = BAD[name]
    with pytest.raises(CallError, match=message):
        call(function)
    np.testing.assert_array_equal(function(X, W, B), X * W - B)


def test_a_name_that_several_inputs_have():
    function = build(*program("x", "p", "p"))
    np.testing.assert_array_equal(function(X, W, B), X * W - B)
    with pytest.raises(CallError, match="2 arguments are named 'p' .*pass them in order"):
        function(X, W, p=B)


def test_an_input_named_out_is_passed_in_order():
    function = build(*program("x", "out", "b"))
    np.testing.assert_array_equal(function(X, W, b=B), X * W - B)
    result = np.empty(4, "float32")
    assert function(X, W, b=B, out=result) is result


def test_an_input_may_be_named_self():
    function = build(*program("self", "a b", "b"))
    np.testing.assert_array_equal(function(b=B, self=X, **{"a b": W}), X * W - B)


def test_a_function_for_a_gpu_knows_its_names():
    function = build(*program(), "cuda")
    with pytest.raises(CallError, match="did you mean 'weight'"):
        function(X, wieght=W, b=B)
