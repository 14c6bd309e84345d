"""Elementary functions of float32: errors over the whole range, special values, where they are
used, and what LLVM makes of them.
"""

from __future__ import annotations

import math
import re

import mpmath
import numpy as np
import pytest
import tvm
from tvm import s_tir, te, tirx

from tests.as_lowered import compiled_as_lowered
from tests.float_errors import arguments, errors
from tvm_autodiff.compile import build, lower
from tvm_autodiff.expr.build import call
from tvm_autodiff.schedule.elementary import trigonometric
from tvm_autodiff.schedule.elementary.functions import FLOAT64, FUNCTIONS, with_own_functions
from tvm_autodiff.schedule.elementary.power import LITERAL_POWERS

LIMIT = 4.0  # units in the last place
PER_BINADE = 4096  # two million arguments

#: name → the truth in float64
TRUTH = {
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: np.power(10.0, x),
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "tanh": np.tanh,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "erf": np.vectorize(math.erf, otypes=[float]),
}

SPECIAL = [0.0, 1.0, 0.5, 2.0, 3.0, 1.5, 1e-45, 1.2e-38, 3.4e38, 1e10, 16777216.0, 16777215.0]
SPECIAL = np.array([*SPECIAL, 8388607.5, 0.9999999, 1.0000001, np.inf, np.nan], "float32")
SPECIAL = np.concatenate([SPECIAL, -SPECIAL])

HOST = tvm.target.Target.from_device("cpu")
GENERIC = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64"})


def truth(name, *args):
    with np.errstate(all="ignore"):
        return TRUTH[name](*(x.astype("float64") for x in args))


def true_power(x, y):
    # numpy takes square roots for a scalar exponent: -0 would give -0
    y = np.broadcast_to(np.asarray(y), x.shape).copy()
    with np.errstate(all="ignore"):
        return np.power(x.astype("float64"), y.astype("float64"))


def map_of(body, arity=1, size=None, dtype="float32"):
    """Placeholders, and a stage that applies a function to their elements."""
    n = te.var("n") if size is None else size
    inputs = [te.placeholder((n,), name="xy"[k], dtype=dtype) for k in range(arity)]
    return inputs, te.compute((n,), lambda i: body(*(x(i) for x in inputs)), name="out")


def values(name, *arrays, target=HOST):
    inputs, output = map_of(lambda *args: call(name, *args), len(arrays), len(arrays[0]))
    return compiled_as_lowered(inputs, output, target)(*arrays)


def vectorised(name, array, lanes):
    """The function in a loop that TVM vectorises, not LLVM."""
    inputs, output = map_of(lambda x: call(name, x), 1, len(array))
    schedule = s_tir.Schedule(te.create_prim_func([*inputs, output]))
    [loop] = schedule.get_loops(schedule.get_sblock("out"))
    schedule.vectorize(schedule.split(loop, [None, lanes])[1])
    executable = tvm.compile(with_own_functions(schedule.mod["main"]), target=HOST)
    out = tvm.runtime.empty(array.shape, "float32")
    executable["main"](tvm.runtime.tensor(array), out)
    return out.numpy()


def check(got, want):
    found = errors(got, want)
    worst = int(found.argmax())
    assert found[worst] <= LIMIT, (worst, got[worst], want[worst], found[worst])


@pytest.mark.parametrize("name", TRUTH)
class TestFunction:
    def test_error_over_the_whole_range(self, name):
        x = arguments(PER_BINADE)
        check(values(name, x), truth(name, x))

    def test_special_values(self, name):
        check(values(name, SPECIAL), truth(name, SPECIAL))

    def test_near_limits(self, name):
        # where exp overflows and vanishes, where log has its zero, between ranges of sin
        limits = [88.72284, 89.41599, 103.97208, 104.0, 127.99999, 128.0, 149.0, 150.0, 38.53184]
        limits += [45.15450, 1.0, 0.70710677, 1.4142135, 9.010913, 3.9192059, 0.785398, 1.570796]
        limits += [2.0**power for power in (23, 24, 25, 50, 77, 104)]
        near = np.array(limits, "float32").view("uint32")[:, None] + np.arange(-40, 41)
        x = near.astype("uint32").view("float32").reshape(-1)
        x = np.concatenate([x, -x])
        check(values(name, x), truth(name, x))

    def test_on_a_machine_without_fused_products(self, name):
        x = arguments(256, seed=1)
        check(values(name, x, target=GENERIC), truth(name, x))

    @pytest.mark.parametrize("lanes", [4, 16])
    def test_in_vectorised_loops(self, name, lanes):
        x = arguments(64, seed=2)
        check(vectorised(name, x, lanes), truth(name, x))


class TestPower:
    def pairs(self, count, seed):
        rng = np.random.default_rng(seed)
        x = np.resize(arguments(count // 512 + 1, seed), count)
        with np.errstate(all="ignore"):
            logs = np.abs(np.log2(np.abs(x.astype("float64"))))
            scale = np.where(np.isfinite(logs) & (logs > 0), 150.0 / logs, 1.0)
            y = (rng.uniform(-1.0, 1.0, count) * scale).astype("float32")
            y[::3] = np.rint(y[::3])
        return x, y

    def test_error_over_the_whole_range(self):
        x, y = self.pairs(3_000_000, 0)
        want = true_power(x, y)
        check(values("power", x, y), want)
        finite = np.isfinite(want) & (want != 0)
        assert finite.mean() > 0.4  # the pairs are no empty test

    def test_where_the_machine_has_no_fused_products(self):
        x, y = self.pairs(300_000, 1)
        check(values("power", x, y, target=GENERIC), true_power(x, y))

    def test_special_values(self):
        x, y = (part.reshape(-1) for part in np.meshgrid(SPECIAL, SPECIAL))
        check(values("power", x, y), true_power(x, y))

    def test_near_one(self):
        bits = np.float32(1.0).view("int32") + np.arange(-3000, 3000)
        x = bits.astype("int32").view("float32")
        y = np.resize(np.float32([1e7, -1e7, 3e8, 2.5, 16777215.0]), x.shape)
        check(values("power", x, y), true_power(x, y))

    @pytest.mark.parametrize("exponent", [*LITERAL_POWERS, 1.0, 0.0, 1.7, -3.5])
    def test_literal_exponents(self, exponent):
        x = np.concatenate([arguments(512, seed=3), SPECIAL])
        inputs, output = map_of(lambda v: te.power(v, tirx.const(exponent, "float32")), 1, len(x))
        check(compiled_as_lowered(inputs, output, HOST)(x), true_power(x, np.float32(exponent)))


class TestAngle:
    """atan2, of two operands."""

    name = "atan2"

    def pairs(self, count, seed):
        """Every second pair within a factor of a thousand of each other."""
        rng = np.random.default_rng(seed)
        y = np.resize(arguments(count // 512 + 1, seed), count)
        x = rng.permutation(y)
        with np.errstate(all="ignore"):
            near = y * 10.0 ** rng.uniform(-3, 3, count) * rng.choice([-1.0, 1.0], count)
            x[::2] = near[::2].astype("float32")
        return y, x

    def truth(self, y, x):
        with np.errstate(all="ignore"):
            return np.arctan2(y.astype("float64"), x.astype("float64"))

    def test_error_over_the_whole_range(self):
        y, x = self.pairs(2_000_000, 0)
        check(values(self.name, y, x), self.truth(y, x))

    def test_where_the_machine_has_no_fused_products(self):
        y, x = self.pairs(200_000, 1)
        check(values(self.name, y, x, target=GENERIC), self.truth(y, x))

    def test_special_values(self):
        y, x = (part.reshape(-1) for part in np.meshgrid(SPECIAL, SPECIAL))
        check(values(self.name, y, x), self.truth(y, x))

    def test_at_diagonals_and_where_the_quotient_changes(self):
        bits = np.float32(1.0).view("int32") + np.arange(-3000, 3000)
        y = bits.astype("int32").view("float32")
        for slope in (1.0, -1.0, math.tan(math.pi / 8), -math.tan(math.pi * 3 / 8)):
            x = np.float32(slope) * y[::-1]
            check(values(self.name, y, x), self.truth(y, x))


class TestHypotenuse(TestAngle):
    """hypot, of two operands."""

    name = "hypot"

    def truth(self, y, x):
        with np.errstate(all="ignore"):
            return np.hypot(y.astype("float64"), x.astype("float64"))


class TestUse:
    """Where the functions are used: by default, for narrow floats, on LLVM targets."""

    def script(self, body, dtype="float32", target=None, **options):
        inputs, output = map_of(body, 1, 64, dtype)
        return str(lower(inputs, output, target, **options)["main"].script())

    @pytest.mark.parametrize("name", [name for name in FUNCTIONS if name in TRUTH])
    def test_by_default(self, name):
        assert f"tvm_autodiff_{name}(" in self.script(lambda x: call(name, x))

    @pytest.mark.parametrize("name", [name for name in FUNCTIONS if name in TRUTH])
    def test_not_on_request(self, name):
        assert "tvm_autodiff_" not in self.script(lambda x: call(name, x), exact_math=True)

    @pytest.mark.parametrize("most", [1, 2])
    def test_not_where_a_function_has_many_calls(self, most, monkeypatch):
        monkeypatch.setattr("tvm_autodiff.schedule.backends.MAX_NODES", most)
        script = self.script(lambda x: te.exp(x) + te.tanh(x))
        assert ("tvm_autodiff_exp(" in script, '"tanhf"' in script) == (most > 1, most == 1)

    def test_exact_results_are_those_of_the_c_library(self):
        x = np.linspace(-80, 80, 4001, dtype="float32")
        inputs, output = map_of(te.exp, 1, len(x))
        got = np.asarray(build(inputs, output, exact_math=True)(x))
        source, result = map_of(lambda v: tirx.call_pure_extern("float32", "expf", v), 1, len(x))
        np.testing.assert_array_equal(got, np.asarray(build(source, result)(x)))

    @pytest.mark.parametrize("name", [name for name in FUNCTIONS if name in TRUTH])
    def test_float64_is_left_to_the_c_library_but_for_a_table(self, name):
        script = self.script(lambda x: call(name, x), "float64")
        assert ("tvm_autodiff_" in script) == (name in FLOAT64)
        exact = self.script(lambda x: call(name, x), "float64", exact_math=True)
        assert "tvm_autodiff_" not in exact

    @pytest.mark.parametrize("name", list(TRUTH))
    def test_exact_functions_are_those_of_a_good_library(self, name):
        x = arguments(256, seed=4)
        inputs, output = map_of(lambda v: call(name, v), 1, len(x))
        got = np.asarray(build(inputs, output, exact_math=True)(x))
        assert errors(got, truth(name, x)).max() <= 2.5  # glibc's tanhf is 2.03 units off

    @pytest.mark.parametrize("name", ["asinh", "atanh"])
    def test_float64_functions_of_small_numbers(self, name):
        x = np.array([1e-300, 1e-20, -1e-9, 1e-4, 0.1, -0.5, 0.99])
        inputs, output = map_of(lambda v: call(name, v), 1, len(x), "float64")
        np.testing.assert_allclose(np.asarray(build(inputs, output)(x)), TRUTH[name](x), rtol=1e-15)

    @pytest.mark.parametrize("name", ["tanh", "exp10"])
    def test_float64_functions_that_tvm_computes_less_exactly(self, name):
        x = np.array([1e-300, 1e-20, -1e-9, 0.1, 3.0, -2.5, 18.0, 150.0, -150.0])
        inputs, output = map_of(lambda v: call(name, v), 1, len(x), "float64")
        np.testing.assert_allclose(np.asarray(build(inputs, output)(x)), TRUTH[name](x), rtol=1e-15)

    def test_not_on_cuda(self):
        assert "tvm_autodiff_" not in self.script(te.exp, target="cuda")

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    def test_narrow_floats_go_through_float32(self, dtype):
        written = {
            "float16": 'T.Cast("float16", T.tvm_autodiff_exp(',
            "bfloat16": 'T.reinterpret("int32", T.tvm_autodiff_exp(',  # rounded by its bits
        }
        assert written[dtype] in self.script(te.exp, dtype)

    def test_float16_results_are_rounded_once(self):
        x = np.linspace(-9, 9, 2001).astype("float16")
        inputs, output = map_of(te.exp, 1, len(x), "float16")
        want = np.exp(x.astype("float64")).astype("float16")
        assert (np.asarray(build(inputs, output)(x)) == want).mean() > 0.999

    def test_symbolic_sizes(self):
        inputs, output = map_of(te.tanh)
        x = np.linspace(-5, 5, 1001, dtype="float32")
        check(np.asarray(build(inputs, output)(x)), truth("tanh", x))

    def test_several_kernels_with_the_same_function(self):
        x = te.placeholder((4, 64), name="x")
        k = te.reduce_axis((0, 64), name="k")
        rows = te.compute((4,), lambda i: te.sum(te.exp(x[i, k]), axis=k), name="rows")
        out = te.compute((4, 64), lambda i, j: te.exp(x[i, j]) / rows[i], name="out")
        given = np.random.default_rng(0).standard_normal((4, 64)).astype("float32")
        powers = np.exp(given.astype("float64"))
        got = np.asarray(build(x, out)(given))
        np.testing.assert_allclose(got, powers / powers.sum(1, keepdims=True), rtol=2e-6)

    def test_two_arguments_of_which_one_is_a_call(self):
        inputs, output = map_of(lambda x: te.power(te.exp(x), te.sin(x)), 1, 101)
        x = np.linspace(-3, 3, 101, dtype="float32")
        wide = x.astype("float64")
        np.testing.assert_allclose(
            np.asarray(build(inputs, output)(x)), np.exp(wide) ** np.sin(wide), rtol=2e-6
        )


def llvm_of(body, target, form="ll", size=4096):
    inputs, output = map_of(body, 1, size)
    target = tvm.target.Target(target)
    module = lower(inputs, output, target)
    return str(tvm.compile(module, target=target).mod.inspect_source(form))


class TestCode:
    TARGETS = {
        "AVX-512": ({"kind": "llvm", "mcpu": "znver4"}, "float>", "zmm"),
        "AVX2": ({"kind": "llvm", "mcpu": "x86-64-v3"}, "<8 x float>", "ymm"),
        "SSE2": ({"kind": "llvm", "mcpu": "x86-64"}, "<4 x float>", "xmm"),
        "NEON": (
            {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"},
            "<4 x float>",
            ".4s",
        ),
    }

    @pytest.mark.parametrize("target", TARGETS)
    @pytest.mark.parametrize("name", [name for name in FUNCTIONS if name in TRUTH])
    def test_vectorises(self, name, target):
        options, vectors, registers = self.TARGETS[target]
        text = llvm_of(lambda x: call(name, x), options)
        # inlined, but for arguments of many quarter turns
        called = re.findall(r"call [^@\n]*@(tvm_autodiff\w*)\(", text)
        assert all(one.endswith("_far") for one in called)
        assert vectors in text
        if name == "exp":
            assert registers in llvm_of(lambda x: call(name, x), options, "asm")

    @pytest.mark.parametrize("target", TARGETS)
    def test_powers_vectorise(self, target):
        options, vectors, _ = self.TARGETS[target]
        text = llvm_of(lambda x: te.power(x, tirx.const(1.7, "float32")), options)
        assert "tvm_autodiff" not in text
        assert vectors in text

    def test_nested_calls_cost_the_sum_of_their_code(self):
        def nested(depth):
            def body(x):
                for _ in range(depth):
                    x = te.tanh(te.sigmoid(x)) * x
                return x

            # a loop of three iterations, so that only the functions make the length
            return len(llvm_of(body, {"kind": "llvm", "mcpu": "x86-64"}, size=3).splitlines())

        assert nested(4) < 2.5 * nested(2)


def test_two_over_pi():
    with mpmath.workprec(300):
        exact = int(mpmath.floor(2 / mpmath.pi * 2**256))
    assert exact == trigonometric.TWO_OVER_PI
