"""Nothing is silently slow: kernels fall back alone, with a reason, in a warning and a profile."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from tests.machines import avx512, with_usual_caches
from tests.schedule import cases, group_cases
from tvm_autodiff.codegen.loop_nest import function, parameter, store
from tvm_autodiff.codegen.stages.primfunc import StageFunction, external_reads, stage_function
from tvm_autodiff.compile import build
from tvm_autodiff.errors import LoweringError, PlainScheduleWarning
from tvm_autodiff.schedule.cpu.rules import CPU_RULES
from tvm_autodiff.schedule.declined import Cause, Declined, no_gain, other_kind
from tvm_autodiff.schedule.fusion.kernels import cut
from tvm_autodiff.schedule.kernel import Kernel
from tvm_autodiff.schedule.rewrites.normal_form import normal_form
from tvm_autodiff.schedule.rule import GroupRule, Refusals, apply_rules
from tvm_autodiff.schedule.slow_kernels import notice_of, slow_kernels
from tvm_autodiff.schedule.work import estimated_work

MACHINE = avx512()
fallback = CPU_RULES[-1]


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules do not depend on this host."""
    monkeypatch.setattr("tvm_autodiff.compile.pipeline.machine_of", with_usual_caches)


def stage(name="B", n=8):
    A = te.placeholder((n,), name=f"A{name}")
    return A, te.compute((n,), lambda i: A[i] * 2.0, name=name)


WARP = tirx.call_intrin("float32", "tirx.tvm_warp_shuffle", 0, 0.0, 0, 32, 32)


def broken(kernel, machine):
    """Code that TVM cannot compile for a CPU: it calls what only GPUs have."""
    if not kernel.name.startswith("bad"):
        return other_kind("its name is not bad")
    axes = kernel.root.axis
    made = te.compute([axis.dom.extent for axis in axes], lambda *i: WARP, name=kernel.name)
    func = stage_function([made.op], [made])
    reads = stage_function(kernel.ops, kernel.outputs)
    return [replace(func, outputs=reads.outputs)]


def fails(error):
    def rule(kernel, machine):
        raise error

    return rule


@pytest.mark.parametrize("error", [TypeError, ValueError, RuntimeError, AssertionError])
def test_an_error_in_a_rule_is_no_reason(error, monkeypatch):
    A, B = stage()
    rules = (fails(error("a fault")), fallback)
    with pytest.raises(LoweringError, match=rf"rule .* stage B with {error.__name__}: a fault"):
        apply_rules(Kernel(B.op), MACHINE, rules)
    monkeypatch.setattr("tvm_autodiff.compile.pipeline.rules_for", lambda machine: rules)
    with pytest.raises(LoweringError, match="please report"):
        build([A], B, cache=False)


@pytest.mark.parametrize("error", [TypeError, ValueError, RuntimeError])
def test_an_error_in_a_pass_is_no_refusal_of_tvm(error, monkeypatch):
    def pass_fails(*_):
        raise error("a fault")

    A, k = te.placeholder((100,), name="A"), te.reduce_axis((0, 100), "k")
    B = te.compute((100,), lambda i: te.sum(te.exp(A[i] * A[k]), axis=k), name="B")
    monkeypatch.setattr("tvm_autodiff.codegen.passes.vectors.scalar_turns._binds", pass_fails)
    with pytest.raises(LoweringError, match=rf"scalar_turns.*{error.__name__}: .*a fault.*report"):
        build([A], B, cache=False)


def test_an_error_in_the_lowering_of_tvm_is_a_refusal(monkeypatch):
    """TVM makes an integer of a bound float's type where it bounds what these hats divide by, if
    it sees that.
    """
    monkeypatch.setattr("tvm_autodiff.schedule.backends.hide_conversions", lambda func: func)
    c, h = te.placeholder((22,), name="c"), te.placeholder((20, 129), name="h")

    def hat(m, k):
        place = k.astype("float32")
        up = (place - c[m]) / (c[m + 1] - c[m])
        down = (c[m + 2] - place) / (c[m + 2] - c[m + 1])
        return te.max(te.min(up, down), 0.0)

    hats = te.compute((20, 129), hat, name="hats")
    [dc] = ad.differentiate(hats, [c], h)
    with pytest.warns(PlainScheduleWarning, match="rows: TVM rejects its code: .*IntImm"):
        function = ad.build([c, h], dc, cache=False)
    knots = np.linspace(3.3, 119.6, 22, dtype="float32")  # none at a sample
    head = np.ones((20, 129), "float32")
    slopes = np.zeros(22)
    for number in range(22):
        for sign in (1, -1):
            moved = knots.astype("float64")
            moved[number] += sign * 1e-4
            place, left, middle, right = np.arange(129.0), moved[:-2], moved[1:-1], moved[2:]
            up = (place - left[:, None]) / (middle - left)[:, None]
            down = (right[:, None] - place) / (right - middle)[:, None]
            slopes[number] += sign * np.maximum(np.minimum(up, down), 0).sum() / 2e-4
    np.testing.assert_allclose(function(knots, head), slopes, rtol=1e-3, atol=1e-3)


def test_reasons_are_kept():
    rules = [*CPU_RULES[:-1], fallback]
    one = cases.rows(70, 300)[1]
    [found] = apply_rules(Kernel(one.op), MACHINE, rules)
    assert found.rule == "rows"
    assert not found.plain
    assert [name for name, _ in found.declined] == [
        *("prefix_reduction", "split_rows", "interleaving", "windows", "stored_part"),
        *("transposition", "elementwise", "masked_reduction", "contraction"),
    ]
    assert all(declined.reason for _, declined in found.declined)


def test_a_refused_rule_is_not_tried_again():
    kernel = Kernel(stage()[1].op)
    refusals = Refusals()
    refusals.add(kernel, "elementwise", "no")
    [found] = apply_rules(kernel, MACHINE, CPU_RULES, refusals)
    assert found.rule == "fallback"
    assert found.declined[-1][0] != "elementwise"
    assert ("elementwise", Cause.REFUSED) in [(n, d.cause) for n, d in found.declined]


class TestRefused:
    """A kernel that TVM does not compile falls back alone."""

    def program(self, names=("bad", "good", "bad_too")):
        made = [stage(name, 8 + n) for n, name in enumerate(names)]
        return [A for A, _ in made], [B for _, B in made]

    @pytest.fixture(autouse=True)
    def rules(self, monkeypatch):
        rules = (broken, *CPU_RULES)
        monkeypatch.setattr("tvm_autodiff.compile.pipeline.rules_for", lambda machine: rules)

    def run(self, function):
        arrays = [np.arange(8 + n, dtype="float32") for n in range(3)]
        for array, out in zip(arrays, function(*arrays), strict=True):
            np.testing.assert_array_equal(out, 2 * array)

    def test_alone(self):
        with pytest.warns(PlainScheduleWarning, match="bad_too.*TVM rejects.*warp_shuffle") as told:
            function = build(*self.program(), cache=False)
        assert len(told) == 1
        assert "stages bad_too, bad by" in str(told[0].message)
        assert "good" not in str(told[0].message)
        self.run(function)
        launches = function._manifest.launches
        assert {launch.rule for launch in launches} == {"elementwise"}
        assert [bool(launch.reasons) for launch in launches] == [True, False, True]

    def test_from_the_cache_and_in_the_profile(self, tmp_path):
        for _ in range(2):
            with pytest.warns(PlainScheduleWarning, match="warp_shuffle"):
                function = build(*self.program(), cache=tmp_path)
            self.run(function)
        arrays = [np.arange(8 + n, dtype="float32") for n in range(3)]
        text = str(function.profile(*arrays, repeats=1))
        assert "elementwise of bad, as no faster rule applies:" in text
        assert "broken: TVM rejects its code" in text

    def test_a_chain_comes_apart(self, monkeypatch):
        def broken_chain(group, machine):
            tensors = [*external_reads(group.ops), *group.outputs]
            buffers = [parameter(tensor, f"p{n}") for n, tensor in enumerate(tensors)]
            func = function(buffers, store(buffers[-1], WARP, [0, 0]))
            count = len(tensors) - len(group.outputs)
            return [StageFunction(func, tuple(tensors[:count]), tuple(tensors[count:]))]

        rules = (GroupRule(broken_chain), *CPU_RULES[1:])
        monkeypatch.setattr("tvm_autodiff.compile.pipeline.rules_for", lambda machine: rules)
        with pytest.warns(PlainScheduleWarning, match="broken_chain: TVM rejects") as told:
            softmax = build(*group_cases.softmax(40, 50), cache=False)
        assert len(told) == 1
        rules = {launch.rule for launch in softmax._manifest.launches}
        assert "fallback" not in rules
        assert len(rules) > 1
        a = np.random.default_rng(0).random((40, 50), "float32")
        [values, *_] = softmax(a, a)
        np.testing.assert_allclose(values, np.exp(a) / np.exp(a).sum(1, keepdims=True), rtol=1e-5)

    def test_symbolic(self):
        n = te.var("n")
        A = te.placeholder((n,), name="A")
        bad = te.compute((n,), lambda i: A[i] * 2.0, name="bad")
        k = te.reduce_axis((0, n), "k")
        good = te.compute((), lambda: te.sum(A[k], axis=k), name="good")
        with pytest.warns(PlainScheduleWarning, match="stage bad by rule elementwise"):
            function = build([A], [bad, good], cache=False)
        doubled, total = function(np.arange(5, dtype="float32"))
        np.testing.assert_array_equal(doubled, 2 * np.arange(5))
        assert total == 10

    def test_plain_loops_are_refused(self, monkeypatch):
        monkeypatch.setattr("tvm_autodiff.compile.pipeline.rules_for", lambda machine: (broken,))
        with pytest.raises(LoweringError, match="cannot compile stage bad for llvm.*warp_shuffle"):
            build(*stage("bad"), cache=False)


ODD = (("rule", Declined("it is odd")),)


def heavy(name="H", n=64, declined=ODD, m=64):
    """A kernel in plain loops."""
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name=name)
    [found] = apply_rules(Kernel(B.op), MACHINE, (fallback,))
    return replace(found, declined=tuple(declined))


def pooled(size, results):
    """Windows that divide rows; their ends by themselves tell a longer extent."""
    A = te.placeholder((64, size), name="A")
    ends = lambda i: (i * size // results, ((i + 1) * size + results - 1) // results)  # noqa: E731

    def largest(b, i):
        first, last = ends(i)
        k = te.reduce_axis((0, last - first), "k")
        return te.max(A[b, first + k], axis=k)

    B = te.compute((64, results), largest, name="H")
    [found] = apply_rules(Kernel(B.op), MACHINE, (fallback,))
    return replace(found, declined=ODD)


FAST = replace(heavy("fast", 8192, m=4096), plain=False)  # an operation for each of 16 lanes


def welford(n, m):
    """Means and variances in plain loops, which read one number for fifteen operations."""
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    zero, one = (tirx.const(value, "float32") for value in (0, 1))

    def both(a, b):
        count, apart = a[0] + b[0], b[1] - a[1]
        share = b[0] / tirx.Max(count, one)
        return count, a[1] + apart * share, a[2] + b[2] + apart * apart * a[0] * share

    reduce = te.comm_reducer(both, lambda *dtypes: (zero, zero, zero))
    made = te.compute((n,), lambda i: reduce((one, A[i, k], zero), axis=k), name="H")
    [found] = apply_rules(Kernel(made[0].op), MACHINE, (fallback,))
    return replace(found, declined=ODD)


WARNED = {
    "large": ([heavy(n=256, m=256)], ["H"]),
    "small": ([heavy(n=8)], []),
    "below a twentieth": ([heavy(n=128, m=512), FAST], []),
    "together above a twentieth": (
        [*(heavy(name, n=128, m=512) for name in "abcdefgh"), FAST],
        [*"abcdefgh"],
    ),
    "above a twentieth": ([heavy(n=1024, m=512), FAST], ["H"]),
    "a combination counts": ([welford(128, 512), FAST], ["H"]),
    "no gain": ([heavy(n=256, m=256, declined=[("r", no_gain("short"))])], []),
    "refused": ([replace(heavy(n=8, declined=[("r", Declined("x", Cause.REFUSED))]))], ["H"]),
    "refused, then fast": (
        [replace(heavy(n=8, declined=[("r", Declined("x", Cause.REFUSED))]), plain=False)],
        ["H"],
    ),
    "not plain": ([replace(heavy(n=256, m=256), plain=False)], []),
    "most work first": ([heavy("a", 256, m=256), heavy("b", 512, m=512)], ["b", "a"]),
}


def test_extents_that_vary_count_as_they_are_at_most():
    """Whatever the windows, each element is read once: with its place, by five operations."""
    assert [estimated_work(pooled(600, n).kernel) for n in (60, 6)] == [5 * 64 * 600] * 2


@pytest.mark.parametrize("name", WARNED)
def test_what_is_warned_of(name):
    scheduled, expected = WARNED[name]
    assert [one.kernel.name for one in slow_kernels(scheduled, avx512())] == expected
    notice = notice_of(scheduled, avx512())
    assert (notice is None) == (not expected)
    assert all(stage in str(notice) for stage in expected)


def test_a_reason_that_several_share_is_told_once():
    other = [("rule", Declined("it is even"))]
    kernels = [*(heavy(name, 256, m=256) for name in ("a", "a", "b")), heavy("c", 256, other, 256)]
    notice = notice_of(kernels, avx512())
    assert "stages a, b by plain loops, 75% of the estimated work (rule: it is odd)" in notice
    assert "stage c by plain loops, 25% of the estimated work (rule: it is even)" in notice


def test_stages_of_the_user_are_not_warned_of():
    A = te.placeholder((256, 256), name="A")
    E = te.extern((256, 256), [A], lambda ins, outs: copied(ins[0], outs[0]), name="E")
    kernels, _ = cut(normal_form([E]))
    scheduled = [one for kernel in kernels for one in apply_rules(kernel, MACHINE, CPU_RULES)]
    assert [one.plain for one in scheduled] == [True]
    assert notice_of(scheduled, avx512()) is None


def copied(read, written):
    from tvm.script.ir_builder import IRBuilder, tirx as T

    with IRBuilder() as builder, T.grid(256, 256) as (i, j):
        T.buffer_store(written, read[i, j], [i, j])
    return builder.get()


def test_nothing_is_told_of_a_ragged_reduction_that_has_a_rule():
    A = te.placeholder((300, 300), name="A")

    def row(i):
        inner = te.reduce_axis((0, i + 1), "k")
        return te.sum(A[i, inner], axis=inner)

    L = te.compute((300,), row, name="L")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        function = build([A], L, cache=False)
    a = np.random.default_rng(0).random((300, 300), "float32")
    np.testing.assert_allclose(function(a), np.tril(a).sum(1), rtol=1e-5)


def test_nothing_is_told_of_fast_programs():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        function = build(*cases.matmul(64, 64, 64), cache=False)
    assert function.notice is None
