"""Programs of the size that is measured build for a GPU in the schedules that were chosen, and
CUDA's compiler takes the source.

Building needs no GPU. Of what runs on the CPU, `tests.cuda_on_cpu.checking` checks the same. Golden
files hold a few sources.
"""

from __future__ import annotations

import re
from unittest import mock

import pytest
import tvm

import tvm_autodiff as ad
from benchmarks.suite.cases import ENTRIES
from benchmarks.suite.ours import tensors_of
from tests.schedule import cases
from tests.schedule.cuda.nvcc import NVCC, body_of, compile_with_nvcc
from tests.schedule.cuda.programs import PROGRAMS, softmax, with_gradients
from tests.schedule.cuda.scheduled import SM_90
from tests.schedule.cuda.test_cuda_rules import RULES
from tvm_autodiff.codegen.passes.launches import launches_threads
from tvm_autodiff.compile import lower
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.schedule.plan import Plan

pytestmark = pytest.mark.slow


def source_of(inputs, outputs):
    """The CUDA source of a program, none of whose schedules is given up."""
    with mock.patch.object(Plan, "refuse") as given_up:
        source = ad.build(inputs, outputs, target=SM_90, cache=False).source()
    assert given_up.mock_calls == []
    assert "__global__" in source
    return source


@pytest.mark.parametrize("name", ["attention", "symbolic", "embedding"])
def test_all_kernels_are_launched(name):
    inputs, outputs = with_gradients(*PROGRAMS[name]())
    module = lower(inputs, outputs, SM_90)
    kernels = [f for _, f in module.functions_items() if isinstance(f, tvm.tirx.PrimFunc)]
    assert all(map(launches_threads, kernels))
    source = ad.build(inputs, outputs, target=SM_90).source()
    names = set(re.findall(r"__global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(", source))
    assert len(names) >= len(kernels)


@pytest.mark.skipif(not NVCC, reason="nvcc is not on the PATH")
def test_benchmark_suite():
    """Every second one: all of them are built at a small size, and rules at sizes of every kind."""
    sources = {}
    for name in list(ENTRIES)[::2]:
        case = ENTRIES[name].case()
        inputs, outputs = tensors_of(case)
        if case.derivative == "csr":
            [matrix] = outputs
            inputs, outputs = [*inputs, *matrix.placeholders], [matrix.values]
        graph = Graph(outputs)
        sources[name] = source_of([t for t in inputs if graph.contains(t)], outputs)
    compile_with_nvcc(sources)


GOLDEN = {
    "cuda_map": cases.broadcast(1024, 1024),
    "cuda_transpose": cases.transposed(300, 257),
    "cuda_matmul": cases.matmul(97, 101, 103, "nt"),
    "cuda_row_sums": cases.rows(70, 300),
    "cuda_scatter": RULES["scatter"][0],
    "cuda_softmax_gradient": with_gradients(*softmax()),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_source(name, golden):
    golden(f"{name}.cu", body_of(ad.build(*GOLDEN[name], target=SM_90).source()))


def test_targets():
    case = cases.rows(7, 33)
    for target in ("cuda", {"kind": "cuda"}, "nvidia/nvidia-a100", tvm.target.Target(SM_90)):
        assert "__global__" in ad.build(*case, target=target).source()
    with pytest.raises(ad.InvalidArgumentError, match="use an llvm or a cuda target"):
        ad.build(*case, target="opencl")
