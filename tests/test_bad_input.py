"""Bad input: every mistake gets an error of the library's own that names the tensor and a way out.

A line a case: what is done, the class of the error, and what its message says. Nothing ends in an
error of TVM.
"""

from __future__ import annotations

import importlib
import inspect
import warnings

import numpy as np
import pytest
from tvm import te, tirx, topi

import tvm_autodiff as ad
from tvm_autodiff import CallError, InvalidArgumentError, LoweringError, NotDifferentiableError
from tvm_autodiff.expr.nodes import call_node


def tensor(*shape, name="x", dtype="float32"):
    return te.placeholder(shape, dtype, name=name)


def stage(function, name="y", shape=(4,)):
    return te.compute(shape, function, name=name)


x, w, n = tensor(4), tensor(4, name="w"), tensor(4, name="n", dtype="int32")
y = stage(lambda i: x[i] * w[i])
z = stage(lambda i: y[i] * y[i], "z")
whole = stage(lambda i: n[i] * 2, "whole")
flags = stage(lambda i: x[i] > 0.0, "flags")
other = tensor(4, name="other")
head = tensor(4, name="head")
sized = te.placeholder((te.var("n"),), name="sized")
doubled = te.compute(sized.shape, lambda i: sized[i] * 2.0, name="doubled")
scalar = te.compute((), lambda: x[0] * 2.0, name="scalar")


def extern():
    """out = 2 * opaque(y)."""
    opaque = topi.cumsum(y)
    return stage(lambda i: opaque[i] * 2.0, "out")


def scan():
    table = tensor(4, 3, name="table")
    state = te.placeholder((4, 3), name="state")
    init = te.compute((1, 3), lambda _, i: table[0, i], name="init")
    update = te.compute((4, 3), lambda t, i: state[t - 1, i] + table[t, i], name="update")
    return table, te.scan(init, update, state, inputs=[table], name="scan")


def reinterpreted(name="bits"):
    """A float read as a float of its bits: no rule, on the path."""
    return stage(lambda i: call_node("reinterpret", (x(i),), "float32"), name)


def counted():
    """popcount of the bits of x: integers have no derivative, so this is zero, not an error."""
    bits = lambda i: call_node("reinterpret", (x(i),), "int32")  # noqa: E731
    return stage(lambda i: x[i] * call_node("popcount", (bits(i),), "int32").astype("float32"))


def unknown(name="z"):
    """An intrinsic that TVM may have, and the table has not."""
    return stage(lambda i: call_node("clz", (x(i),), "float32"), name)


def free():
    s = te.var("s", "float32")
    return stage(lambda i: x[i] * s, "scaled")


def give(*values):
    return lambda out, deps, head: list(values)


TABLE, SCAN = scan()

DIFFERENTIATE = {
    "integer output": (
        lambda: ad.differentiate(whole, [n]),
        NotDifferentiableError,
        "output: tensor whole has dtype int32.*cast",
    ),
    "boolean output": (
        lambda: ad.differentiate(flags, [x]),
        NotDifferentiableError,
        "output: tensor flags has dtype bool",
    ),
    "integer input": (
        lambda: ad.differentiate(y, [n]),
        NotDifferentiableError,
        "inputs.*tensor n has dtype int32",
    ),
    "one integer input of several": (
        lambda: ad.differentiate(y, [x, n]),
        NotDifferentiableError,
        "tensor n has dtype int32",
    ),
    "output is no tensor": (
        lambda: ad.differentiate(3.0, [x]),
        InvalidArgumentError,
        "output must be a te.Tensor.*got float",
    ),
    "output is a list": (
        lambda: ad.differentiate([y], [x]),
        InvalidArgumentError,
        "output must be a te.Tensor.*got list",
    ),
    "output is an array": (
        lambda: ad.differentiate(np.zeros(4), [x]),
        InvalidArgumentError,
        "output must be a te.Tensor.*got ndarray",
    ),
    "input is a string": (
        lambda: ad.differentiate(y, "x"),
        InvalidArgumentError,
        "inputs must be a te.Tensor.*got str",
    ),
    "input is a number": (
        lambda: ad.differentiate(y, [x, 1]),
        InvalidArgumentError,
        r"inputs\[1\] must be a te.Tensor.*got int",
    ),
    "input is an array": (
        lambda: ad.differentiate(y, [np.zeros(4)]),
        InvalidArgumentError,
        r"inputs\[0\] must be a te.Tensor.*got ndarray",
    ),
    "input is a variable": (
        lambda: ad.differentiate(y, [te.var("rate", "float32")]),
        InvalidArgumentError,
        r"inputs\[0\] must be a te.Tensor.*got Var: a number is a te.placeholder of shape \(\)",
    ),
    "built for a variable": (
        lambda: ad.build([x, te.var("rate", "float32")], y),
        InvalidArgumentError,
        r"inputs\[1\] must be a te.Tensor.*got Var: a number is a te.placeholder of shape \(\)",
    ),
    "input is an element": (
        lambda: ad.differentiate(y, [x[0]]),
        InvalidArgumentError,
        r"inputs\[0\] must be a te.Tensor",
    ),
    "input twice": (
        lambda: ad.differentiate(y, [x, w, x]),
        InvalidArgumentError,
        r"inputs\[2\] is tensor x again.*inputs\[0\]",
    ),
    "gradient, input twice": (
        lambda: ad.gradient(y, [x, x]),
        InvalidArgumentError,
        "is tensor x again",
    ),
    "unpacked without inputs": (
        lambda: list(ad.differentiate(y)),
        InvalidArgumentError,
        "inputs",
    ),
    "head too short": (
        lambda: ad.differentiate(y, [x], tensor(3, name="head")),
        InvalidArgumentError,
        r"head head has shape \(3,\).*\(4,\) of the output y",
    ),
    "head of smaller rank": (
        lambda: ad.differentiate(y, [x], tensor(name="head")),
        InvalidArgumentError,
        r"head head has shape \(\)",
    ),
    "head with the prefix behind": (
        lambda: ad.differentiate(y, [x], tensor(4, 3, name="head")),
        InvalidArgumentError,
        r"head head has shape \(4, 3\)",
    ),
    "head of another dtype": (
        lambda: ad.differentiate(y, [x], tensor(4, name="head", dtype="float64")),
        InvalidArgumentError,
        "head head has dtype float64, the output y has float32; cast",
    ),
    "head of integers": (
        lambda: ad.differentiate(y, [x], tensor(4, name="head", dtype="int32")),
        InvalidArgumentError,
        "head head has dtype int32",
    ),
    "head is an array": (
        lambda: ad.differentiate(y, [x], np.ones(4, "float32")),
        InvalidArgumentError,
        "head must be a te.Tensor.*got ndarray",
    ),
    "te.extern on the path": (
        lambda: ad.differentiate(extern(), [x]),
        NotDifferentiableError,
        r"stage cumsum.* is an opaque te.extern stage that reads y.*override=",
    ),
    "te.scan on the path": (
        lambda: ad.differentiate(SCAN, [TABLE]),
        NotDifferentiableError,
        "stage scan is an opaque te.scan stage.*override=",
    ),
    "no rule": (
        lambda: ad.differentiate(reinterpreted(), [x]),
        NotDifferentiableError,
        r"stage bits: no derivative rule for reinterpret in .*x\[.*override= or manual=",
    ),
    "no rule for an intrinsic": (
        lambda: ad.differentiate(unknown(), [x]),
        NotDifferentiableError,
        "stage z: no derivative rule for clz",
    ),
    "manual is no mapping": (
        lambda: ad.differentiate(y, [x], manual=[(y, x)]),
        InvalidArgumentError,
        "manual must be a dictionary, got list",
    ),
    "manual with one tensor as key": (
        lambda: ad.differentiate(y, [x], manual={y: give(x)}),
        InvalidArgumentError,
        "manual maps pairs",
    ),
    "manual that ignores the prefix of a Jacobian": (
        lambda: ad.jacobian(
            y, x, mode="reverse",
            manual={(y, x): lambda out, inp, head: te.compute(inp.shape, lambda i: head[i])},
        ),
        ad.InvalidArgumentError,
        r"custom derivative of y with respect to x failed with: .*index the head with all of its",
    ),
    "manual without a function": (
        lambda: ad.differentiate(y, [x], manual={(y, x): 3}),
        InvalidArgumentError,
        "manual maps pairs.*functions",
    ),
    "manual for a tensor that does not occur": (
        lambda: ad.differentiate(y, [x], manual={(other, x): give(x)}),
        InvalidArgumentError,
        "manual: tensor other does not occur in the graph of y",
    ),
    "manual for tensors that are not neighbours": (
        lambda: ad.differentiate(z, [x], manual={(z, x): give(x)}),
        InvalidArgumentError,
        "manual: z does not read x directly.*override",
    ),
    "manual returns an array": (
        lambda: ad.differentiate(y, [x], manual={(y, x): lambda *a: np.zeros(4)}),
        InvalidArgumentError,
        "of y with respect to x must be a te.Tensor.*got ndarray",
    ),
    "manual returns another shape": (
        lambda: ad.differentiate(y, [x], head, manual={(y, x): lambda *a: tensor(3, name="bad")}),
        InvalidArgumentError,
        r"bad of shape \(3,\).*as adjoint of x.*\(4,\)",
    ),
    "manual returns another dtype": (
        lambda: ad.differentiate(
            y, [x], head, manual={(y, x): lambda *a: tensor(4, name="bad", dtype="float64")}
        ),
        InvalidArgumentError,
        "bad of shape.*dtype float64 as adjoint of x.*float32",
    ),
    "manual forgets the prefix": (
        lambda: ad.differentiate(y, [x], manual={(y, x): lambda *a: tensor(4, name="bad")}),
        InvalidArgumentError,
        r"bad of shape \(4,\).*\(4, 4\)",
    ),
    "fdiff returns nothing": (
        lambda: ad.differentiate(y, [x], fdiff=lambda *a: None),
        InvalidArgumentError,
        "of y with respect to x must be a te.Tensor.*got NoneType",
    ),
    "fdiff is no function": (
        lambda: ad.differentiate(y, [x], fdiff=3),
        InvalidArgumentError,
        "fdiff must be a function.*got int",
    ),
    "override is no mapping": (
        lambda: ad.differentiate(z, [x], override=[z]),
        InvalidArgumentError,
        "override must be a dictionary, got list",
    ),
    "override without deps": (
        lambda: ad.differentiate(z, [x], override={z: give(x)}),
        InvalidArgumentError,
        r"override\[z\] must be a pair \(deps, f\)",
    ),
    "override of a tensor that does not occur": (
        lambda: ad.differentiate(z, [x], override={other: ([x], give(x))}),
        InvalidArgumentError,
        "override: tensor other does not occur in the graph of z",
    ),
    "override by a tensor that it does not depend on": (
        lambda: ad.differentiate(z, [x], override={z: ([other], give(x))}),
        InvalidArgumentError,
        r"override\[z\]: z does not depend on other",
    ),
    "override by itself": (
        lambda: ad.differentiate(z, [x], override={z: ([z], give(x))}),
        InvalidArgumentError,
        r"override\[z\]",
    ),
    "override with a dep twice": (
        lambda: ad.differentiate(z, [x], override={z: ([x, x], give(x, x))}),
        InvalidArgumentError,
        r"deps of override\[z\]\[1\] is tensor x again",
    ),
    "override returns too few": (
        lambda: ad.differentiate(z, [x], head, override={z: ([x, w], give(x))}),
        InvalidArgumentError,
        r"override\[z\] must return a list of 2 adjoints.*x, w",
    ),
    "override returns a tensor": (
        lambda: ad.differentiate(z, [x], head, override={z: ([x], lambda *a: x)}),
        InvalidArgumentError,
        r"override\[z\] must return a list of 1 adjoints",
    ),
    "override returns another shape": (
        lambda: ad.differentiate(z, [x], head, override={z: ([x], give(tensor(5, name="bad")))}),
        InvalidArgumentError,
        r"override\[z\] returned bad of shape \(5,\)",
    ),
    "pullback of a tensor that is not read": (
        lambda: ad.pullback(z, x, head),
        InvalidArgumentError,
        "z does not read x",
    ),
    "pullback of a placeholder": (
        lambda: ad.pullback(x, w, head),
        (InvalidArgumentError, NotDifferentiableError),
        "x",
    ),
    "pullback of integers": (
        lambda: ad.pullback(whole, n, tensor(4, name="head", dtype="int32")),
        NotDifferentiableError,
        "int32",
    ),
    "pullback with a head of another shape": (
        lambda: ad.pullback(y, x, tensor(5, name="head")),
        InvalidArgumentError,
        r"head head has shape \(5,\)",
    ),
}

CHECK_AND_SHOW = {
    "check_grads, wrong mode": (
        lambda: ad.check_grads(y, [x], modes=("backward",)),
        InvalidArgumentError,
        "modes: 'backward'",
    ),
    "check_grads, order zero": (
        lambda: ad.check_grads(y, [x], order=0),
        InvalidArgumentError,
        "order must be a positive int",
    ),
    "check_grads, no step": (
        lambda: ad.check_grads(y, [x], step=0),
        InvalidArgumentError,
        "step must be > 0",
    ),
    "check_grads, negative tolerance": (
        lambda: ad.check_grads(y, [x], rtol=-1.0),
        InvalidArgumentError,
        "rtol must be >= 0",
    ),
    "check_grads, seed": (
        lambda: ad.check_grads(y, [x], seed="a"),
        InvalidArgumentError,
        "seed must be an int",
    ),
    "check_grads, NaN": (
        lambda: ad.check_grads(y, [x], values={x: np.full(4, np.nan)}),
        InvalidArgumentError,
        "values: x is not finite",
    ),
    "check_grads, intermediate tensor": (
        lambda: ad.check_grads(z, [y]),
        InvalidArgumentError,
        "y is an intermediate tensor",
    ),
    "check_grads, symbolic shape": (
        lambda: ad.check_grads(topi.exp(v := te.placeholder((te.var("m"),), name="v")), [v]),
        InvalidArgumentError,
        "v has a symbolic shape",
    ),
    "check_grads, wrong value": (
        lambda: ad.check_grads(y, [x], values={x: np.zeros(3)}),
        InvalidArgumentError,
        r"values\[x\] has shape \(3,\)",
    ),
    "check_grads, half precision": (
        lambda: ad.check_grads(topi.exp(v := tensor(2, name="v", dtype="float16")), [v]),
        InvalidArgumentError,
        "is computed in float16",
    ),
    "show of a number": (lambda: ad.show([3]), InvalidArgumentError, "show.*not int"),
    "show of a string": (lambda: ad.show("x"), InvalidArgumentError, "show.*not str"),
    "show of a number alone": (lambda: ad.show(3), InvalidArgumentError, "show"),
    "cost of a number": (
        lambda: ad.estimate_cost(3),
        InvalidArgumentError,
        r"estimate_cost\(\) takes te tensors, got int",
    ),
}

def packed(name):
    """A stage that calls a packed function."""

    def call(ins, outs):
        return tirx.call_packed(name, ins[0], outs[0])

    return te.extern(x.shape, [x], call, name="e")


def heavy():
    """A product that is worth a search."""
    a, k = te.placeholder((64, 64), name="a"), te.reduce_axis((0, 64), "k")
    return a, te.compute((64, 64), lambda i, j: te.sum(a[i, k] * a[k, j], axis=k), name="heavy")


BUILD = {
    "missing input": (
        lambda: ad.build([x], y),
        LoweringError,
        "w is read by the outputs but is not among the inputs",
    ),
    "size that no input tells": (
        lambda: ad.build([x, w, tensor(te.var("m") // 2, name="even")], y),
        LoweringError,
        "even uses the variable m, which is neither an axis nor a dimension",
    ),
    "a function of real numbers of an integer": (
        lambda: ad.build([n], stage(lambda i: te.tanh(n[i]), "bent")),
        LoweringError,
        r"tanh\(n\[i\]\) has the dtype of its first operand, int32: convert that with astype",
    ),
    "a packed function that nobody registered": (
        lambda: ad.build([x], packed("nobody")),
        InvalidArgumentError,
        "stage e calls the packed function 'nobody', which is not registered",
    ),
    "a target by another name": (
        lambda: ad.build([x, w], y, target="gpu"),
        InvalidArgumentError,
        "'cuda' is a GPU of NVIDIA",
    ),
    "a folder that cannot be made": (
        lambda: ad.build(*heavy(), tune=ad.Tuning(trials=1, database="/proc/none/here")),
        InvalidArgumentError,
        "cannot make the database folder '/proc/none/here'",
    ),
    "input twice": (lambda: ad.build([x, w, x], y), InvalidArgumentError, "is tensor x again"),
    "output twice": (lambda: ad.build([x, w], [y, y]), InvalidArgumentError, "is tensor y again"),
    "output is a placeholder": (
        lambda: ad.build([x], x),
        InvalidArgumentError,
        "output x is a placeholder",
    ),
    "input is computed": (
        lambda: ad.build([x, w, y], z),
        InvalidArgumentError,
        "input y is computed",
    ),
    "no outputs": (lambda: ad.build([x], []), InvalidArgumentError, "outputs is empty"),
    "outputs is None": (lambda: ad.build([x], None), InvalidArgumentError, "outputs must be"),
    "input is an array": (
        lambda: ad.build([np.zeros(4), w], y),
        InvalidArgumentError,
        r"inputs\[0\] must be a te.Tensor.*got ndarray",
    ),
    "output is an element": (
        lambda: ad.build([x, w], [y[0]]),
        InvalidArgumentError,
        r"outputs\[0\] must be a te.Tensor",
    ),
    "free variable": (
        lambda: ad.build([x], free()),
        LoweringError,
        "stage scaled uses the variable s.*input tensor",
    ),
    "te.scan": (lambda: ad.build([TABLE], SCAN), LoweringError, "stage scan is a te.scan"),
    "unknown target": (lambda: ad.build([x, w], y, "nonsense"), InvalidArgumentError, "target"),
    "unknown CPU": (
        lambda: ad.build([x, w], y, {"kind": "llvm", "mcpu": "haswel"}),
        InvalidArgumentError,
        r"mcpu 'haswel' is unknown to LLVM; did you mean 'haswell'\?",
    ),
    "no threads": (lambda: ad.build([x, w], y, num_threads=0), InvalidArgumentError, "num_threads"),
    "text of threads": (
        lambda: ad.build([x, w], y, num_threads="2"),
        InvalidArgumentError,
        "num_threads",
    ),
    "true threads": (
        lambda: ad.build([x, w], y, num_threads=True),
        InvalidArgumentError,
        "num_threads",
    ),
    "number as a cache": (
        lambda: ad.build([x, w], y, cache=3),
        InvalidArgumentError,
        "cache must be True, False or a folder, got 3",
    ),
    "text as a flag": (
        lambda: ad.build([x, w], y, exact_math="yes"),
        InvalidArgumentError,
        "exact_math must be True or False, got 'yes'",
    ),
    "intrinsic without code": (
        lambda: ad.build([x], unknown("bits")),
        LoweringError,
        "bits",
    ),
    "lower, missing input": (lambda: ad.lower([x], y), LoweringError, "w is read"),
    "export to nothing": (
        lambda: ad.build([x, w], y).export(None),
        InvalidArgumentError,
        "path must be that of a file, got NoneType",
    ),
    "memory of a negative size": (
        lambda: ad.build([sized], doubled).memory(n=-3),
        InvalidArgumentError,
        "memory: the size n must be a number of elements, got -3",
    ),
    "memory of a size that is text": (
        lambda: ad.build([sized], doubled).memory(n="3"),
        InvalidArgumentError,
        "the size n must be a number of elements, got '3'",
    ),
    "name that is no text": (
        lambda: ad.scatter_add(x, n, (3,), name=3),
        InvalidArgumentError,
        "name must be a str, got 3",
    ),
    "extent beyond int64": (
        lambda: ad.scatter_add(x, n, (2**63,)),
        InvalidArgumentError,
        r"shape\[0\] must be .* fits int64, got 9223372036854775808",
    ),
    "steps beyond int64": (
        lambda: ad.scan(lambda c, _: (c, None), x, length=2**63),
        InvalidArgumentError,
        "length is 9223372036854775808, which no int64 holds",
    ),
    "load of nothing": (
        lambda: ad.load("missing.so"),
        InvalidArgumentError,
        "no file.*missing.so",
    ),
}


KEYWORDS = {
    "heads": (lambda: ad.differentiate(y, [x], heads=head), "no parameter 'heads'.*'head'"),
    "wrt": (lambda: ad.differentiate(y, wrt=[x]), "no parameter 'wrt'; did you mean 'inputs'"),
    "limits": (lambda: ad.show(y, limits=9), "did you mean 'limit'"),
    "cotangent": (lambda: ad.gradient(y, [x], cotangent=head), "did you mean 'head'"),
    "input": (lambda: ad.gradient(y, input=[x]), r"gradient\(\).*did you mean 'inputs'"),
    "vjp": (lambda: ad.vjp([y], [x], heads=[head]), "no parameter 'heads'.*outputs, inputs"),
    "vjp, head": (lambda: ad.vjp([y], [x], head=[head]), "did you mean 'cotangents'"),
    "pullback": (lambda: ad.pullback(y, wrt=x, head=head), "did you mean 'input'"),
    "targets": (lambda: ad.build([x, w], y, targets="llvm"), "did you mean 'target'"),
    "threads": (lambda: ad.build([x, w], y, threads=2), "did you mean 'num_threads'"),
    "update": (lambda: ad.build([x, w], y, update={}), "did you mean 'updates'"),
    "device": (lambda: ad.lower([x, w], y, device="cuda"), "did you mean 'target'"),
    "no idea": (
        lambda: ad.build([x, w], y, colour="red"),
        r"build\(\) has no parameter 'colour'. It has inputs, outputs, target",
    ),
    "check_grads": (lambda: ad.check_grads(y, [x], tolerance=1), "check_grads.*It has output"),
}


@pytest.mark.parametrize("module", ["", ".interop.relax", ".interop.torch", ".interop.jax"])
def test_all_flags_are_checked(module):
    """Every public function with a flag is wrapped by what checks flags."""
    public = importlib.import_module(f"tvm_autodiff{module}")
    for name in public.__all__:
        function = getattr(public, name)
        if not inspect.isroutine(function):
            continue
        for one in inspect.signature(function).parameters.values():
            if one.annotation in (bool, "bool"):
                with pytest.raises(InvalidArgumentError, match=f"{one.name} must be True or"):
                    function(**{one.name: "no"})


@pytest.mark.parametrize("name", KEYWORDS)
def test_keywords(name):
    action, message = KEYWORDS[name]
    with pytest.raises(TypeError, match=message) as caught:
        action()
    assert isinstance(caught.value, InvalidArgumentError)


def large(size, name="large"):
    return stage(lambda *i: sum(map(te.const, (1.0,))) * x[0], name, size)


#: what is right and perhaps not what was meant: the action, the warning, and what it says
WARNINGS = {
    "input of another graph": (
        lambda: ad.differentiate(y, [x, other]),
        ad.UnrelatedInputWarning,
        "y is not computed from other: the gradient is zero. It is computed from x, w;",
    ),
    "gradient, stage that was rebuilt": (
        lambda: ad.gradient(z, [x, stage(lambda i: x[i] * w[i])]),
        ad.UnrelatedInputWarning,
        "z is not computed from y",
    ),
    "stage that reads the output": (
        lambda: ad.differentiate(y, [z]),
        ad.UnrelatedInputWarning,
        "y is not computed from z",
    ),
    "large Jacobian": (
        lambda: ad.differentiate(large((4097,)), [x]),
        ad.LargeIdentityWarning,
        "Jacobian of large, which has 4097 elements.*identity alone has 16785409.*head=",
    ),
    "large Jacobian of a matrix": (
        lambda: ad.gradient(large((64, 65)), [x]),
        ad.LargeIdentityWarning,
        "4160 elements",
    ),
}


@pytest.mark.parametrize("name", WARNINGS)
def test_warnings(name):
    action, category, message = WARNINGS[name]
    with pytest.warns(category, match=message) as caught:
        action()
    [warning] = caught
    assert warning.filename == __file__
    assert issubclass(category, ad.AutodiffWarning)


@pytest.mark.parametrize(
    "action",
    [
        lambda: ad.differentiate(large((4096,)), [x]),
        lambda: ad.differentiate(large((5000,)), [x], tensor(5000, name="head")),
        lambda: ad.differentiate(large((te.var("m"),)), [x]),
        lambda: ad.differentiate(y, [y, x]),
        lambda: ad.differentiate(stage(lambda i: n[i] * x[i].astype("int32") * 1.0), [x], head),
        lambda: ad.vjp(y, [x, other], head),
    ],
)
def test_no_warning(action):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        action()


def total(value):
    k = te.reduce_axis((0, value.shape[0]), "k")
    return te.compute((), lambda: te.sum(value[k], axis=k), name="total")


@pytest.mark.parametrize("name", DIFFERENTIATE)
def test_differentiate(name):
    check(*DIFFERENTIATE[name])


@pytest.mark.parametrize("name", CHECK_AND_SHOW)
def test_check_and_show(name):
    check(*CHECK_AND_SHOW[name])


@pytest.mark.parametrize("name", BUILD)
def test_build(name):
    check(*BUILD[name])


def check(action, error, message):
    with pytest.raises(error, match=r"(?s)" + message) as caught:
        action()
    assert isinstance(caught.value, ad.AutodiffError)


GOOD = np.arange(4, dtype="float32")

CALLS = {
    "too few": ((GOOD,), r"expected 2 arrays \(x, w\), got 1"),
    "too many": ((GOOD,) * 4, r"expected 2 arrays \(x, w\), got 4$"),
    "results in order": ((GOOD,) * 3, "expected 2 arrays.*got 3: pass arrays for results as out="),
    "shape": ((GOOD, np.zeros(5, "float32")), r"argument 'w' must have shape \(4,\)"),
    "rank": ((np.zeros((4, 1), "float32"), GOOD), "argument 'x' must have rank 1"),
    "scalar": ((np.float32(1), GOOD), "argument 'x' must have rank 1"),
    "dtype": ((GOOD.astype("float64"), GOOD), "argument 'x' must have dtype float32, got float64"),
    "integers": ((GOOD.astype("int32"), GOOD), "argument 'x' must have dtype float32, got int32"),
    "booleans": ((GOOD > 1, GOOD), "argument 'x' must have dtype float32, got bool"),
    "objects": ((np.array([None] * 4), GOOD), "argument 'x' must have dtype"),
    "text": ((np.array(["a"] * 4), GOOD), "argument 'x' must have dtype"),
    "not contiguous": (
        (np.zeros(8, "float32")[::2], GOOD),
        "argument 'x' must be contiguous.*ascontiguousarray",
    ),
    "reversed": ((GOOD[::-1], GOOD), "argument 'x' must be contiguous"),
    "broadcast": ((np.broadcast_to(np.float32(1), 4), GOOD), "argument 'x' must be contiguous"),
    "byte order": ((GOOD.astype(">f4"), GOOD), "argument 'x'.*byte order"),
    "list": (([0.0] * 4, GOOD), "argument 'x' must be an array.*got list"),
    "mask": ((np.ma.masked_less(GOOD, 0), GOOD), "got MaskedArray: pass array.filled"),
    "number": ((1.0, GOOD), "argument 'x' must be an array"),
    "None": ((None, GOOD), "argument 'x' must be an array.*got NoneType"),
    "tensor expression": ((x, GOOD), "argument 'x' must be an array.*got Tensor"),
    "class": ((np.ndarray, GOOD), "argument 'x' must be an array.*got type"),
}


class TestCalls:
    function = None

    @pytest.mark.parametrize("name", CALLS)
    def test_arrays(self, name):
        if TestCalls.function is None:
            TestCalls.function = ad.build([x, w], y)
        arrays, message = CALLS[name]
        with pytest.raises(CallError, match=message):
            TestCalls.function(*arrays)


def test_arrays_whose_memory_is_not_their_values():
    """Negated views and sparse tensors of PyTorch; traced and deleted arrays of JAX."""
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    function = ad.build([x, w], y)
    plain, deleted = torch.ones(4), jax.numpy.ones(4, "float32")
    function(plain, plain)
    deleted.delete()
    for array, message in (
        (torch._neg_view(plain), "resolve_neg"),
        (plain.to_sparse(), "to_dense"),
        (deleted, "was deleted"),
    ):
        with pytest.raises(CallError, match=message):
            function(array, plain)
    with pytest.raises(CallError, match="resolve_neg"):
        function(plain, plain, out=torch._neg_view(torch.ones(4)))
    with pytest.raises(CallError, match="interop.jax.function"):
        jax.jit(function)(plain.numpy(), plain.numpy())


def test_what_is_right_beside_what_is_wrong():
    """Opaque stages and missing rules are errors only where a derivative has to pass them."""
    at = np.array([1.0, 2.0, 3.0, 4.0], "float32")
    assert len(ad.vjp(extern(), [other], head)) == 1
    [dx] = ad.gradient(total(counted()), [x])
    counts = [bin(int(bits)).count("1") for bits in at.view("int32")]
    np.testing.assert_array_equal(ad.build([x], dx)(at), counts)
    factor = tensor(4, name="factor")
    scaled = te.compute((4,), lambda i: reinterpreted()[i] * factor[i], name="scaled")
    assert [t.op.name for t in ad.gradient(scaled, [factor], head)] == ["dfactor"]


def test_the_expression_is_shown_in_plain_notation():
    bits = stage(lambda i: te.exp(call_node("reinterpret", (x(i) * w(i),), "float32")), "bits")
    with pytest.raises(NotDifferentiableError, match=r"reinterpret.*x\[i\]\*w\[i\]"):
        ad.differentiate(bits, [x])


def test_free_variables_are_differentiated_around():
    """`differentiate` leaves a free variable to `build`, which asks for a tensor in its place."""
    [dx] = ad.gradient(free(), [x], head)
    with pytest.raises(LoweringError, match="uses the variable s"):
        ad.build([head], dx)


FUNCTIONS = [name for name in ad.__all__ if inspect.isfunction(getattr(ad, name))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_unknown_keywords(name):
    with pytest.raises(ad.UnknownKeywordError, match="has no parameter 'colour'"):
        getattr(ad, name)(colour=1)
