"""The benchmark's kernels are scheduled for CPUs of any vectors and number of threads.

Every pair of case, threads, vectors and dtype occurs. What this host can run is run.
"""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from benchmarks.suite.cases import ENTRIES
from benchmarks.suite.ours import tensors_of
from tests.evaluate import evaluate_graph
from tests.machines import TARGETS, THREADS, synthetic
from tvm_autodiff import build
from tvm_autodiff.codegen.deep import run_deep
from tvm_autodiff.codegen.targets import cpu_features, host_target
from tvm_autodiff.schedule.backends import rules_for
from tvm_autodiff.schedule.plan import Plan
from tvm_autodiff.schedule.slow_kernels import notice_of

VECTORS = tuple(TARGETS)
DTYPES = ("float32", "float64")

#: threads, vectors and dtype, four of each case
COMBINATIONS = {
    name: [
        (THREADS[n], VECTORS[(n + number) % 4], DTYPES[(n // 2 + n + number // 4) % 2])
        for n in range(4)
    ]
    for number, name in enumerate(ENTRIES)
}


def test_every_pair_occurs() -> None:
    rows = [(name, *rest) for name, found in COMBINATIONS.items() for rest in found]
    for left, right in combinations(range(4), 2):
        pairs = {(row[left], row[right]) for row in rows}
        assert len(pairs) == len({p for p, _ in pairs}) * len({p for _, p in pairs})


def program(name: str, dtype: str) -> tuple[list[Any], list[Any]]:
    """Placeholders and outputs of a case at its small size; matrices as their values."""
    inputs, outputs = tensors_of(ENTRIES[name].case(small=True), dtype)
    return inputs, [getattr(output, "values", output) for output in outputs]


@pytest.mark.parametrize("name", ENTRIES)
def test_no_kernel_is_slow(name: str) -> None:
    programs: dict[str, Any] = {}
    for threads, vectors, dtype in COMBINATIONS[name]:
        inputs, outputs = programs.get(dtype) or programs.setdefault(dtype, program(name, dtype))
        machine = synthetic(vectors, threads)
        plan = run_deep(Plan, inputs, outputs, (), machine, rules_for(machine))
        assert run_deep(plan.steps)
        assert notice_of(plan.scheduled, machine) is None, (threads, vectors, dtype)


FEATURES = {"SSE": "sse2", "AVX2": "avx2"}  #: what a host needs to run code with vectors of a name
#: cases of few and small kernels, each on other threads and vectors, in both dtypes
RUN = list(
    zip(
        ("matmul", "conv", "layer-norm", "max-pool-3x3", "attention", "mlp", "mttkrp", "embedding"),
        product(THREADS, FEATURES),
        (*DTYPES, *reversed(DTYPES)) * 2,
        strict=True,
    )
)


@pytest.mark.parametrize(("name", "machine", "dtype"), RUN)
def test_values(
    name: str, machine: tuple[int, str], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, vectors = machine
    made = synthetic(vectors, threads)
    if FEATURES[vectors] not in cpu_features(host_target()):
        pytest.skip(f"this host has no {vectors}")
    monkeypatch.setattr("tvm_autodiff.compile.pipeline.machine_of", lambda *given: made)
    inputs, outputs = program(name, dtype)
    case = ENTRIES[name].case(small=True)
    arrays = [
        array.astype(dtype if array.dtype.kind == "f" else array.dtype) for array in case.arrays()
    ]
    function = build(inputs, outputs, made.target, cache=False)
    known = dict(zip(inputs, arrays, strict=True))
    tolerance = 2e-4 if dtype == "float32" else 1e-10
    for got, want in zip(function(*arrays), evaluate_graph(outputs, known), strict=True):
        np.testing.assert_allclose(got, want, tolerance, tolerance)
