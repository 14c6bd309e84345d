"""Whole programs for a GPU, with gradients, run on the CPU and give what numpy gives.

Small ones of many kinds, those of the benchmarks, operators of topi, dtypes, and programs whose
reads are safe behind a condition only.
"""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, tirx

import tvm_autodiff as ad
from benchmarks.suite.cases import ENTRIES
from benchmarks.suite.ours import tensors_of
from tests.cuda_on_cpu.checking import Case, check, groups
from tests.cuda_on_cpu.compiler import missing
from tests.cuda_on_cpu.programs import Program, compile_together
from tests.schedule import guarded_programs
from tests.schedule.cuda.programs import (
    OPERATORS,
    PROGRAMS,
    drawn,
    of_dtype,
    operator,
    with_gradients,
)
from tests.schedule.cuda.test_cuda_sources import source_of
from tests.schedule.guard_pages import arrays_for
from tvm_autodiff.expr.nodes import is_float
from tvm_autodiff.graph.graph import Graph

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("names", groups(PROGRAMS, 9))
def test_programs_with_gradients(names):
    found = {}
    for name in names:
        inputs, outputs = with_gradients(*PROGRAMS[name]())
        calls = [drawn(inputs, {"n": n}) for n in ((1, 37) if name == "symbolic" else (1,))]
        found[name] = Case(inputs, outputs, calls, 2e-4)
    check(found, sources=True)


def of_suite(name):
    """A case of the benchmarks at its small size."""
    case = ENTRIES[name].case(small=True)
    inputs, outputs = tensors_of(case)
    arrays = case.arrays(name)
    if case.derivative == "csr":
        [matrix] = outputs
        inputs = [*inputs, *(place for place, _ in matrix.constants)]
        arrays = [*arrays, *(contents for _, contents in matrix.constants)]
        outputs = [matrix.values]
    graph = Graph(outputs)
    used = [place for place, tensor in enumerate(inputs) if graph.contains(tensor)]
    calls = [[arrays[place] for place in used]]
    return Case([inputs[place] for place in used], outputs, calls, case.tolerance)


@pytest.mark.parametrize("names", groups(ENTRIES, 8))
def test_programs_of_the_benchmarks(names):
    check({name: of_suite(name) for name in names}, sources=True)


#: how far results may be from those of numpy in float64
DTYPES = {"float16": 4e-3, "bfloat16": 3e-2, "float64": 1e-12}


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype):
    check(
        {
            name: Case(inputs, outputs, [drawn(inputs)], DTYPES[dtype], wide=True)
            for name, (inputs, outputs) in of_dtype(dtype).items()
        },
        sources=True,
    )


def scaled(dtype):
    """``exp(a) * b + c[j]``, all of one dtype."""
    a, b = (te.placeholder((1100, 1024), dtype, name=name) for name in "ab")
    c = te.placeholder((1024,), dtype, name="c")
    return [a, b, c], te.compute(a.shape, lambda i, j: te.exp(a[i, j]) * b[i, j] + c[j], "scaled")


def halved(dtype):
    """``a / 2 + 1 / 2``, computed in float32."""
    a, half = te.placeholder((1100, 1024), dtype, name="a"), tirx.const(0.5, "float32")
    body = lambda i, j: (a[i, j].astype("float32") * half + half).astype(dtype)  # noqa: E731
    return [a], te.compute(a.shape, body, "halved")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_vectors_of_16_bits(dtype):
    """Eight numbers are one access; four where they are computed in float32."""
    vector = {"float16": "half4", "bfloat16": "nv_bfloat164"}[dtype]
    found = {}
    for program, access in ((scaled, "*(uint4*)(p_a_ptr +"), (halved, f"*({vector}*)(p_a_ptr +")):
        inputs, output = program(dtype)
        assert access in source_of(inputs, [output])
        tolerance = 3 * DTYPES[dtype]  # three roundings
        found[program.__name__] = Case(inputs, [output], [drawn(inputs)], tolerance, wide=True)
    check(found)


def of_operator(case):
    """An operator of topi with its gradients; heads are drawn."""
    inputs, outputs = operator(case)
    given = dict(zip(case.names(), case.arrays(), strict=True))
    arrays = [given.get(t.op.name, a) for t, a in zip(inputs, drawn(inputs), strict=True)]
    wide = all(str(t.dtype) == "float64" for t in inputs if is_float(t))
    return Case(inputs, outputs, [arrays], 1e-9 if wide else 1e-4)


def test_operators_of_topi():
    check({case.name: of_operator(case) for case in OPERATORS}, sources=True)


def of_guarded(name):
    """A program with guards, called with each of its sizes."""
    program = guarded_programs.PROGRAMS[name]()
    calls = [arrays_for(program, sizes) for sizes in program.calls]
    return Case(program.inputs, program.outputs, calls, 1e-4)


@pytest.mark.parametrize("names", groups(guarded_programs.DIFFERENT, 14))
def test_guarded_programs(names):
    check({name: of_guarded(name) for name in names})


def test_updates_are_in_place():
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    w, g = te.placeholder((300,), name="w"), te.placeholder((300,), name="g")
    k = te.reduce_axis((0, 300), "k")
    loss = te.compute((), lambda: te.sum(w[k] * g[k], axis=k), name="loss")
    new = te.compute((300,), lambda i: w[i] - loss() * g[i], name="new")
    step = Program([w, g], [loss], updates={w: new})
    compile_together([step.source])
    state, rate = np.arange(300, dtype="float32"), np.ones(300, "float32") / 1024
    want = ad.build([w, g], [loss], updates={w: new})
    same = state.copy()
    for _ in range(3):
        np.testing.assert_allclose(step(state, rate)[0], want(same, rate)[0], rtol=1e-5)
        np.testing.assert_allclose(state, same, rtol=1e-5)
