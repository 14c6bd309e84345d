"""Programs of many kinds build for a GPU in the schedules that were chosen, and CUDA's compiler
takes the source.

Building needs no GPU. `nvcc`, where there is one, compiles all kernels in one call for each test.
Golden files hold a few sources.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from unittest import mock

import pytest
import tvm

import tvm_autodiff as ad
from benchmarks.suite.cases import ENTRIES
from benchmarks.suite.ours import tensors_of
from tests.schedule import cases
from tests.schedule.cuda.programs import (
    OPERATORS,
    PROGRAMS,
    of_dtype,
    operator,
    softmax,
    with_gradients,
)
from tests.schedule.cuda.scheduled import SM_90
from tests.schedule.cuda.test_cuda_rules import RULES
from tvm_autodiff.codegen.passes.launches import launches_threads
from tvm_autodiff.compile import lower
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.schedule.plan import Plan

KERNEL = 'extern "C" __global__'  #: what the first kernel of a source begins with
NVCC = shutil.which("nvcc") or ""
needs_nvcc = pytest.mark.skipif(not NVCC, reason="nvcc is not on the PATH")


def source_of(inputs, outputs):
    """The CUDA source of a program, none of whose schedules is given up."""
    with mock.patch.object(Plan, "refuse") as given_up:
        source = ad.build(inputs, outputs, target=SM_90, cache=False).source()
    assert given_up.mock_calls == []
    assert "__global__" in source
    return source


def body_of(source):
    """The kernels without what TVM writes in front of them."""
    return source[source.index(KERNEL) :]


def compile_with_nvcc(sources, folder, arch="sm_90"):
    """Compile the kernels of some programs to PTX in one call, their names made different."""
    heads = [source[: source.index(KERNEL)] for source in sources.values()]
    includes = {line for head in heads for line in head.splitlines() if "#include" in line}
    text = [*sorted(includes), max(heads, key=len)]
    for number, source in enumerate(sources.values()):
        text.append(re.sub(r"\b(\w+_kernel(?:_\d+)?)\(", rf"p{number}_\1(", body_of(source)))
    path = folder / "kernels.cu"
    path.write_text("\n".join(text))
    # whether they compile does not depend on how well: that takes most of the time
    fast = ["-Xcicc", "-O0"]
    out = ["-o", str(folder / "kernels.ptx")]
    command = [NVCC, "-ptx", *fast, f"-arch={arch}", "-w", *out, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    compiled = (folder / "kernels.ptx").read_text()
    assert compiled.count(".visible .entry") == sum(
        source.count("__global__ void") // 2 for source in sources.values()
    )


@pytest.mark.parametrize("name", ["attention", "symbolic", "embedding"])
def test_all_kernels_are_launched(name):
    inputs, outputs = with_gradients(*PROGRAMS[name]())
    module = lower(inputs, outputs, SM_90)
    kernels = [f for _, f in module.functions_items() if isinstance(f, tvm.tirx.PrimFunc)]
    assert all(map(launches_threads, kernels))
    source = ad.build(inputs, outputs, target=SM_90).source()
    names = set(re.findall(r"__global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(", source))
    assert len(names) >= len(kernels)


@needs_nvcc
def test_benchmark_suite(tmp_path):
    sources = {}
    for name, entry in ENTRIES.items():
        inputs, outputs = tensors_of(entry.case())
        if entry.case().derivative == "csr":
            [matrix] = outputs
            inputs, outputs = [*inputs, *matrix.placeholders], [matrix.values]
        graph = Graph(outputs)
        sources[name] = source_of([t for t in inputs if graph.contains(t)], outputs)
    compile_with_nvcc(sources, tmp_path)


@needs_nvcc
def test_gradients_of_programs(tmp_path):
    sources = {name: source_of(*with_gradients(*make())) for name, make in PROGRAMS.items()}
    compile_with_nvcc(sources, tmp_path)


@needs_nvcc
def test_kernels_of_every_rule(tmp_path):
    sources = {name: source_of(*case) for name, (case, _) in RULES.items()}
    compile_with_nvcc(sources, tmp_path)


@needs_nvcc
def test_operators_of_topi(tmp_path):
    compile_with_nvcc({case.name: source_of(*operator(case)) for case in OPERATORS}, tmp_path)


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


@needs_nvcc
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes(dtype, tmp_path):
    sources = {name: source_of(*program) for name, program in of_dtype(dtype).items()}
    compile_with_nvcc(sources, tmp_path)


def test_targets():
    case = cases.rows(7, 33)
    for target in ("cuda", {"kind": "cuda"}, "nvidia/nvidia-a100", tvm.target.Target(SM_90)):
        assert "__global__" in ad.build(*case, target=target).source()
    with pytest.raises(ad.InvalidArgumentError, match="use an llvm or a cuda target"):
        ad.build(*case, target="opencl")
