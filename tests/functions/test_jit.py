"""`jit`: one compilation for each signature, options, kinds of arrays, and what is refused."""

from __future__ import annotations

import functools
import gc
import pickle
import sys
import threading
import weakref
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import tvm
from tvm import te, topi

import tvm_autodiff as ad
from tvm_autodiff.errors import (
    CallError,
    InvalidArgumentError,
    NotDifferentiableError,
    OutOfBoundsError,
    UnknownKeywordError,
)

F = np.float32
X = F([1, 2, 3])


class Counted:
    """A function, and how often it was traced."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.count = 0
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        return self.function(*args, **kwargs)


def total(x: te.Tensor) -> te.Tensor:
    return topi.sum(x * x)


def zeros(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.zeros(shape, dtype)


SIGNATURES = {
    "equal": ([zeros(3), zeros(3)], 1),
    "shapes": ([zeros(3), zeros(4), zeros(3), zeros(3, 1)], 3),
    "dtypes": ([zeros(3), zeros(3, dtype="float64"), zeros(3)], 2),
    "frameworks": ([zeros(3), tvm.runtime.tensor(zeros(3)), jnp.zeros(3, "float32")], 1),
    "numbers": ([1.0, 2.0, np.float32(2), np.array(1, "float32")], 1),
    "kinds of numbers": ([1.0, 1, True], 3),
    "containers": ([(X, X), [X, X], (X, (X,)), {"a": X, "b": X}, {"b": X, "a": X}, (X, X)], 5),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_one_trace_for_each_signature(name: str) -> None:
    def first(x: Any) -> Any:
        while isinstance(x, (tuple, list, dict)):
            x = next(iter(x.values())) if isinstance(x, dict) else x[0]
        return x

    arguments, wanted = SIGNATURES[name]
    counted = Counted(first)
    function = ad.jit(counted)
    for argument in [*arguments, *arguments]:
        function(argument)
    assert counted.count == wanted


def test_programs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvm_autodiff.functions.array_function.KEPT_PROGRAMS", 3)
    traced: list[int] = []

    def note(x: te.Tensor, n: int) -> te.Tensor:
        traced.append(n)
        return x

    function = ad.jit(note, static_argnums=1)
    for number in (0, 1, 2, 3, 3, 1, 0):
        function(X, number)
    assert traced == [0, 1, 2, 3, 0]


def test_derived_functions_are_kept_with_their_function() -> None:
    counted = Counted(total)

    def loss(x: te.Tensor) -> te.Tensor:
        return counted(x)

    for _ in range(3):
        np.testing.assert_allclose(ad.grad(loss)(X), 2 * X)
        ad.jvp(loss, (X,), (X,))
        ad.vjp(loss, X)
        ad.hvp(loss, (X,), (X,))
        ad.vmap(loss, in_axes=0)(zeros(2, 3))
    assert counted.count == 5
    alive = weakref.ref(loss)
    del loss
    gc.collect()
    assert alive() is None


def test_static_arguments() -> None:
    def power(x: te.Tensor, n: int, how: str) -> te.Tensor:
        result = x
        for _ in range(n - 1):
            result = result * x
        return topi.sum(result) if how == "sum" else result

    function = ad.jit(power, static_argnums=(1, 2))
    np.testing.assert_allclose(function(X, 3, "all"), X**3)
    np.testing.assert_allclose(function(X, 2, "sum"), 14)
    np.testing.assert_allclose(ad.grad(function)(X, 3, "sum"), 3 * X**2)
    assert function(X, True, "all").tolist() == X.tolist()  # not the program of 1


def test_donated_arrays_are_written() -> None:
    def step(weights: dict[str, Any], x: te.Tensor) -> Any:
        new = {name: w - 0.5 * x for name, w in weights.items()}
        return topi.sum(weights["a"]), new

    weights = {"a": X.copy(), "b": 2 * X}
    loss, new = ad.jit(step, donate_argnums=0)(weights, X)
    assert new["a"] is weights["a"]
    assert new["b"] is weights["b"]
    np.testing.assert_allclose(loss, 6)
    np.testing.assert_allclose(weights["b"], 1.5 * X)


@pytest.mark.parametrize(
    "given", [np.broadcast_to(F(4), (3,)), jnp.full(3, 4, "float32")], ids=["read-only", "jax"]
)
def test_arrays_that_cannot_be_written_stay(given: Any) -> None:
    found = ad.jit(lambda w: w * 2.0, donate_argnums=0)(given)
    np.testing.assert_allclose(found, 8)
    np.testing.assert_allclose(given, 4)


def test_symbolic_sizes_compile_once() -> None:
    counted = Counted(lambda x, y: topi.sum(x * y))
    function = ad.jit(lambda x, y: counted(x, y), dynamic={"x": (0,), "y": (0,)})
    for size in (3, 5, 0, 1, 7):
        a = np.arange(size, dtype="float32")
        np.testing.assert_allclose(function(a, a), (a * a).sum())
    assert counted.count == 1


@pytest.mark.slow
def test_symbolic_sizes_that_differ_are_symbols_of_their_own() -> None:
    function = ad.jit(topi.matmul, dynamic={"a": (0, 1), "b": (-2, -1)})
    for n, k, m in ((2, 3, 4), (3, 3, 3), (5, 2, 2), (2, 4, 5)):
        a, b = np.random.rand(n, k).astype("float32"), np.random.rand(k, m).astype("float32")
        np.testing.assert_allclose(function(a, b), a @ b, rtol=1e-5)


def test_symbolic_gradients_of_a_batch() -> None:
    loss = ad.jit(lambda w, x: topi.sum(topi.tanh(topi.matmul(x, w))), dynamic={"x": (0,)})
    gradient, w = ad.grad(loss), np.random.rand(3, 2).astype("float32")
    for size in (4, 6):
        x = np.random.rand(size, 3).astype("float32")
        np.testing.assert_allclose(gradient(w, x), x.T @ (1 - np.tanh(x @ w) ** 2), rtol=1e-5)


Pair = namedtuple("Pair", "a b")


@dataclass
class Weights:
    a: Any
    b: Any = None
    c: Any = field(default=None, init=False)


@dataclass(frozen=True)
class Frozen:
    a: Any


CONTAINERS = {
    "named tuple": Pair(X, 2 * X),
    "dataclass": Weights(X, [2 * X]),
    "frozen": Frozen((X,)),
    "ordered": OrderedDict(b=X, a=2 * X),
    "none": (None, X, {}),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_gradients_have_the_form_of_the_argument(name: str) -> None:
    def leaves(value: Any) -> list[Any]:
        return ad.containers.flattened(value)[0]

    def loss(value: Any) -> Any:
        result = topi.sum(leaves(value)[0] * 0.0)
        for leaf in leaves(value):
            result = result + topi.sum(leaf * leaf)
        return result

    given = CONTAINERS[name]
    found = ad.grad(loss)(given)
    assert type(found) is type(given)
    for one, two in zip(leaves(found), leaves(given), strict=True):
        np.testing.assert_allclose(one, 2 * two)


KINDS = {
    "numpy": (X, np.ndarray),
    "scalar": (np.float32(2), np.ndarray),
    "jax": (jnp.asarray(X), jnp.ndarray),
    "tvm": (tvm.runtime.tensor(X), tvm.runtime.Tensor),
    "transposed": (np.ones((3, 2), "float32").T, np.ndarray),
    "every other": (np.arange(6, dtype="float32")[::2], np.ndarray),
    "bytes swapped": (X.astype(">f4"), np.ndarray),
}


@pytest.mark.parametrize("name", KINDS)
def test_results_are_of_the_callers_kind(name: str) -> None:
    given, kind = KINDS[name]
    found = ad.jit(lambda x: x * 2.0)(given)
    assert isinstance(found, kind)
    as_numpy = given.numpy() if name == "tvm" else np.asarray(given)
    np.testing.assert_allclose(found.numpy() if name == "tvm" else found, 2 * as_numpy)


def test_numbers_have_the_dtype_of_the_arrays() -> None:
    scale = ad.jit(lambda x, s: x * s)
    assert scale(X, 0.5).dtype == "float32"
    assert scale(X.astype("float64"), 0.1)[0] == 0.1
    assert scale(X, 2).tolist() == [2, 4, 6]
    assert ad.jit(lambda a, b: a * b)(1.5, 2.0) == 3


def test_named_arguments() -> None:
    function = ad.jit(lambda x, *, scale: x * scale["s"])
    np.testing.assert_allclose(function(X, scale={"s": 2.0}), 2 * X)
    np.testing.assert_allclose(
        ad.grad(lambda x, scale: topi.sum(x * scale))(X, scale=3.0), [3, 3, 3]
    )


def test_results_may_be_arguments_and_occur_twice() -> None:
    a, (b, c) = ad.jit(lambda x, y: (x, (y * x, x)))(X, X)
    assert a is not X
    np.testing.assert_allclose(a, X)
    np.testing.assert_allclose(c, X)
    np.testing.assert_allclose(b, X * X)


def test_several_threads() -> None:
    function = ad.jit(lambda x: x * 2.0)
    wrong: list[int] = []

    def work(number: int) -> None:
        for size in (2, 3, 4, 5):
            x = np.full(size, number, "float32")
            if function(x).tolist() != (2 * x).tolist():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_pickling() -> None:
    again = pickle.loads(pickle.dumps(ad.jit(total)))
    assert again(X) == 14
    again = pickle.loads(pickle.dumps(ad.jit(ad.grad(total), donate_argnums=())))
    assert again(X).tolist() == [2, 4, 6]


def test_methods() -> None:
    class Model:
        scale = 2.0

        def loss(self, x: te.Tensor) -> te.Tensor:
            return topi.sum(x * x * self.scale)

    one, two = Model(), Model()
    two.scale = 3.0
    assert ad.grad(one.loss)(X).tolist() == [4, 8, 12]
    assert ad.grad(two.loss)(X).tolist() == [6, 12, 18]
    assert ad.jvp(two.loss, (X,), (X,))[1] == 84


def test_decorated_methods() -> None:
    class Model:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        @functools.partial(ad.jit, static_argnums=0)
        def scaled(self, x: te.Tensor) -> te.Tensor:
            return x * self.scale

    assert Model(2.0).scaled(X).tolist() == [2, 4, 6]
    assert Model(3.0).scaled(X).tolist() == [3, 6, 9]


def test_arrays_on_two_devices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    places = iter([None, 0])
    monkeypatch.setattr("tvm_autodiff.functions.leaves.gpu_of", lambda array: next(places))
    with pytest.raises(CallError, match="a is on the CPU and b on GPU 0"):
        ad.jit(lambda a, b: a * b)(X, X)


def test_transforms_of_tensors_and_of_functions_share_names() -> None:
    x = te.placeholder((3,), name="x")
    y = te.compute((3,), lambda i: x[i] * x[i], name="y")
    [tangent] = ad.jvp(y, [x], [te.placeholder((3,), name="t")])
    assert isinstance(tangent, te.Tensor)
    assert ad.vmap(total)(zeros(2, 3)).tolist() == [0, 0]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="errors have notes since Python 3.11")
@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda x: te.compute((3,), lambda i: x[i] * X[i], name="y"), IndexError),
        (lambda x: np.exp(x), TypeError),
        (lambda x: x**2, TypeError),
    ],
)
def test_errors_about_operands_say_what_tensors_are(
    function: Callable[..., Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind) as caught:
        ad.jit(function)(X)
    assert any("arrays are arguments of the function" in note for note in caught.value.__notes__)


BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no tensor": (lambda: ad.jit(lambda x: 3.0)(X), InvalidArgumentError, "returned float as res"),
    "nothing": (lambda: ad.jit(lambda x: None)(X), InvalidArgumentError, "at least one te.Tensor"),
    "array": (lambda: ad.jit(lambda x: {"a": X})(X), InvalidArgumentError, r"result\['a'\]"),
    "text": (lambda: ad.jit(lambda x, how: x)(X, "sum"), InvalidArgumentError, "static_argnums"),
    "no function": (lambda: ad.jit(3), InvalidArgumentError, "function of tensors, got int"),
    "complex": (lambda: ad.jit(total)(np.ones(2, "complex64")), InvalidArgumentError, "complex64"),
    "objects": (lambda: ad.jit(total)(np.array([None])), InvalidArgumentError, "dtype object"),
    "long": (lambda: ad.jit(lambda x, n: x)(X, 2**40), InvalidArgumentError, "array of int64"),
    "shapes": (
        lambda: ad.jit(lambda x, y: x + y)(X, zeros(4)),
        InvalidArgumentError,
        r"(?s)test_jit.py:\d+: .*Incompatible broadcast dims.*for x: float32\[3\], y: float32\[4\]",
    ),
    "branch": (
        lambda: ad.jit(lambda x: x if topi.sum(x)() > 0 else -x)(X),
        InvalidArgumentError,
        "no values",
    ),
    "own error": (lambda: ad.jit(lambda x: x * int("two"))(X), ValueError, "invalid literal"),
    "bounds": (
        lambda: ad.jit(lambda x: te.compute((3,), lambda i: x[i + 2], name="y"))(X),
        OutOfBoundsError,
        "(?s)stage y reads.*while compiling",
    ),
    "array inside": (
        lambda: ad.jit(lambda y: ad.grad(lambda a, b: topi.sum(a * b))(y, X))(X),
        InvalidArgumentError,
        "outermost function",
    ),
    "integer gradient": (
        lambda: ad.grad(total)(np.arange(3)),
        NotDifferentiableError,
        "argument 0 of total .* int64",
    ),
    "integer value": (
        lambda: ad.grad(lambda x: topi.sum(x).astype("int32"))(X),
        NotDifferentiableError,
        "dtype int32",
    ),
    "vector value": (lambda: ad.grad(lambda x: x * x)(X), InvalidArgumentError, r"shape \(3,\)"),
    "pair without aux": (
        lambda: ad.grad(lambda x: (total(x), x))(X),
        InvalidArgumentError,
        "has_aux=True",
    ),
    "aux without pair": (
        lambda: ad.grad(total, has_aux=True)(X),
        InvalidArgumentError,
        r"a pair \(value, aux\)",
    ),
    "number of an argument": (
        lambda: ad.grad(total, 2)(X),
        InvalidArgumentError,
        "with 1 positional",
    ),
    "an argument twice": (
        lambda: ad.grad(lambda x, y: x * y, (0, -2))(1.0, 2.0),
        InvalidArgumentError,
        "twice",
    ),
    "nothing to differentiate": (
        lambda: ad.grad(total)(None),
        InvalidArgumentError,
        r"argument 0 of total .* holds no tensor",
    ),
    "keyword": (lambda: ad.grad(total, argnum=1), UnknownKeywordError, "did you mean 'argnums'"),
    "jacobian of integers": (
        lambda: ad.jacrev(lambda x: x.astype("int32"))(X),
        NotDifferentiableError,
        "int32",
    ),
    "no members": (lambda: ad.vmap(total)(2.0), InvalidArgumentError, "it has no axis"),
    "numbers of members": (
        lambda: ad.vmap(lambda x, y: x * y)(zeros(2, 3), zeros(3, 3)),
        InvalidArgumentError,
        "same number",
    ),
    "nothing batched": (
        lambda: ad.vmap(total, in_axes=None)(X),
        InvalidArgumentError,
        "at least one",
    ),
    "axes": (
        lambda: ad.vmap(lambda x, y: x, in_axes=(0,))(X, X),
        InvalidArgumentError,
        "does not fit",
    ),
    "list of axes": (lambda: ad.vmap(total, in_axes=[0])(X), InvalidArgumentError, "a tuple"),
    "axis": (lambda: ad.vmap(total, in_axes=1)(X), InvalidArgumentError, "from -1 to 0"),
    "out axis": (lambda: ad.vmap(total, out_axes=1)(zeros(2, 3)), InvalidArgumentError, "out_ax"),
    "cotangent": (
        lambda: ad.vjp(lambda x: x * x, X)[1](zeros(2)),
        CallError,
        r"cotangent.* shape \(3,\)",
    ),
    "form of a cotangent": (
        lambda: ad.vjp(lambda x: (x, x), X)[1](X),
        InvalidArgumentError,
        r"must have the form \(\*, \*\)",
    ),
    "pullback of integers": (
        lambda: ad.vjp(lambda i: i, np.arange(3)),
        NotDifferentiableError,
        "no result",
    ),
    "tangent": (
        lambda: ad.jvp(total, (X,), (zeros(2),)),
        InvalidArgumentError,
        r"tangents\[0\] is float32 of shape \(2,\)",
    ),
    "tangents": (lambda: ad.jvp(total, (X,), ()), InvalidArgumentError, "1 primals and 0"),
    "primals": (lambda: ad.jvp(total, X, X), InvalidArgumentError, "list or tuple"),
    "unhashable": (
        lambda: ad.jit(lambda x, n: x, static_argnums=1)(X, [1]),
        InvalidArgumentError,
        "is not hashable",
    ),
    "static and donated": (
        lambda: ad.jit(total, static_argnums=0, donate_argnums=0),
        InvalidArgumentError,
        "static and donated",
    ),
    "negative number": (
        lambda: ad.jit(total, static_argnums=-1),
        InvalidArgumentError,
        "starting from 0",
    ),
    "static beyond": (
        lambda: ad.jit(total, static_argnums=5),
        InvalidArgumentError,
        "static_argnums contains 5, but .* takes 1 positional",
    ),
    "donated beyond": (
        lambda: ad.jit(lambda x, *, y: x, donate_argnums=1),
        InvalidArgumentError,
        "donate_argnums contains 1, but .* takes 1 positional",
    ),
    "given up and read": (
        lambda: ad.jit(lambda w, g: w - g, donate_argnums=0)(X, X),
        CallError,
        "share memory",
    ),
    "dynamic name": (lambda: ad.jit(total, dynamic={"y": 0}), InvalidArgumentError, "it has x"),
    "dynamic axis": (
        lambda: ad.jit(total, dynamic={"x": (1,)})(X),
        InvalidArgumentError,
        "it has 1 axes",
    ),
    "dynamic list": (lambda: ad.jit(total, dynamic=["x"]), InvalidArgumentError, "dictionary"),
    "sizes that disagree": (
        lambda: ad.jit(lambda x, y: x * y, dynamic={"x": 0, "y": 0})(X, zeros(2)),
        InvalidArgumentError,
        "Incompatible broadcast dims",
    ),
    "sizes that are read too far": (
        lambda: ad.jit(
            lambda x, y: te.compute(x.shape, lambda i: x[i] * y[i], name="z"),
            dynamic={"x": 0, "y": 0},
        )(X, zeros(2)),
        OutOfBoundsError,
        "reads y",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(name: str) -> None:
    call, kind, message = BAD[name]
    with pytest.raises(kind, match=message):
        call()
