"""Programs of many kinds build for a GPU: every kernel is launched, no barrier stands in a branch,
and CUDA's compiler takes the source.

Building needs no GPU. `nvcc`, where there is one, compiles all kernels in one call for each test.
Golden files hold a few sources.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import warnings
from unittest import mock

import pytest
import tvm
from tvm import te, topi

import tvm_autodiff as ad
from benchmarks.suite.cases import ENTRIES
from benchmarks.suite.ours import tensors_of
from tests.schedule import cases
from tests.schedule.cuda.serial import SM_90, on_cpu
from tests.schedule.cuda.test_cuda_rules import RULES
from tests.topi_operators import GROUPS
from tvm_autodiff.codegen.passes.launches import launches_threads
from tvm_autodiff.compile import lower
from tvm_autodiff.expr.nodes import is_float, tensor_key
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.schedule.plan import Plan

KERNEL = 'extern "C" __global__'  #: what the first kernel of a source begins with


def placeholder(name, *shape, dtype="float32"):
    return te.placeholder(shape, dtype, name=name)


def perceptron():
    x, w, v = placeholder("x", 16, 20), placeholder("w", 24, 20), placeholder("v", 10, 24)
    hidden = topi.nn.relu(topi.nn.dense(x, w))
    logits = topi.nn.log_softmax(topi.nn.dense(hidden, v))
    return [x, w, v], topi.sum(logits)


def convolution(stride, dilation):
    def make():
        x, w = placeholder("x", 2, 4, 13, 13), placeholder("w", 8, 4, 3, 3)
        return [x, w], topi.nn.conv2d_nchw(x, w, stride, dilation, dilation)

    return make


def depthwise():
    x, w = placeholder("x", 2, 8, 12, 12), placeholder("w", 8, 1, 3, 3)
    return [x, w], topi.nn.depthwise_conv2d_nchw(x, w, 1, 1, 1)


def pool(kind, kernel, stride, edge):
    def make():
        x = placeholder("x", 2, 3, 13, 13)
        size, steps, pad = [kernel] * 2, [stride] * 2, [edge] * 4
        return [x], topi.nn.pool2d(x, size, steps, [1, 1], pad, kind)

    return make


def softmax():
    x = placeholder("x", 33, 70)
    return [x], topi.nn.softmax(x)


def layer_norm():
    x, g, b = placeholder("x", 16, 96), placeholder("g", 96), placeholder("b", 96)
    return [x, g, b], topi.nn.layer_norm(x, g, b, [1])


def attention():
    q, k, v = (placeholder(n, 2, 16, 8) for n in "qkv")
    scores = topi.nn.batch_matmul(q, k)
    return [q, k, v], topi.nn.batch_matmul(topi.nn.softmax(scores), topi.transpose(v, (0, 2, 1)))


def lstm_cell():
    x, h, c = placeholder("x", 8, 12), placeholder("h", 8, 16), placeholder("c", 8, 16)
    w, u = placeholder("w", 64, 12), placeholder("u", 64, 16)
    gates = topi.add(topi.nn.dense(x, w), topi.nn.dense(h, u))
    i, f, g, o = topi.split(gates, 4, 1)
    cell = topi.sigmoid(f) * c + topi.sigmoid(i) * topi.tanh(g)
    return [x, h, c, w, u], topi.sigmoid(o) * topi.tanh(cell)


def embedding():
    E, w = placeholder("E", 50, 8), placeholder("w", 5, 8)
    index = placeholder("index", 30, dtype="int32")
    return [E, w, index], topi.nn.dense(topi.take(E, index, 0), w)


def maximum():
    x = placeholder("x", 9, 40)
    return [x], topi.max(x, 1)


def cumulative():
    x = placeholder("x", 9, 40)
    k = te.reduce_axis((0, 40), "k")
    return [x], te.compute(
        (9, 40), lambda i, j: te.sum(x[i, k], axis=k, where=k <= j), name="running"
    )


def bilinear():
    x = placeholder("x", 1, 2, 6, 7)
    return [x], topi.image.resize2d(x, [0.0] * 4, (9, 5))


def symbolic():
    n = te.var("n")
    x, w = placeholder("x", n, 24), placeholder("w", 16, 24)
    return [x, w], topi.nn.softmax(topi.nn.dense(x, w))


PROGRAMS = {
    "perceptron": perceptron,
    "conv": convolution(1, 1),
    "conv, stride 2": convolution(2, 1),
    "conv, dilation 2": convolution(1, 2),
    "depthwise conv": depthwise,
    "max pool": pool("max", 2, 2, 0),
    "padded max pool": pool("max", 3, 2, 1),
    "average pool": pool("avg", 3, 2, 1),
    "softmax": softmax,
    "layer norm": layer_norm,
    "attention": attention,
    "lstm cell": lstm_cell,
    "embedding": embedding,
    "maximum": maximum,
    "cumulative sum": cumulative,
    "bilinear": bilinear,
    "symbolic": symbolic,
}


def with_gradients(inputs, output):
    """Placeholders, and the output with its gradients by all inputs of floats."""
    head = te.placeholder(output.shape, str(output.dtype), name="head")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ad.DenseSumWarning)
        gradients = ad.differentiate(output, [t for t in inputs if is_float(t)], head)
    outputs = [output, *gradients]
    return Graph(outputs).placeholders(), outputs


def source_of(inputs, outputs):
    """The CUDA source of a program, whose barriers all threads of a block meet and whose threads
    keep no more than registers hold.
    """
    # none of the schedules is given up when it is compiled
    with mock.patch.object(Plan, "refuse") as given_up:
        source = ad.build(inputs, outputs, target=SM_90, cache=False).source()
    assert given_up.mock_calls == []
    assert "__global__" in source
    assert barriers_in_branches(source) == []
    arrays = re.findall(r"^ *alignas\(64\) \w+ \w+\[(\d+)\];", source, re.MULTILINE)
    assert max(map(int, arrays), default=0) <= 64
    return source


def barriers_in_branches(source):
    """Barriers that only some threads of a block reach."""
    found, blocks = [], []
    for line in map(str.strip, source.splitlines()):
        if line.startswith("}") and blocks:
            blocks.pop()
        if "__syncthreads" in line:
            found += [block for block in blocks if "threadIdx" in block]
        if line.endswith("{"):
            blocks.append(line)
    return found


def test_barriers_in_branches_are_found():
    bad = "void f() {\n if (threadIdx.x < 3) {\n __syncthreads();\n }\n}"
    assert len(barriers_in_branches(bad)) == 1
    assert barriers_in_branches(bad.replace("threadIdx", "blockIdx")) == []


def body_of(source):
    """The kernels without what TVM writes in front of them."""
    return source[source.index(KERNEL) :]


def compile_with_nvcc(sources, folder, arch="sm_90"):
    """Compile the kernels of some programs to PTX in one call, their names made different."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not on the PATH")
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
    command = [nvcc, "-ptx", *fast, f"-arch={arch}", "-w", *out, str(path)]
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


def test_gradients_of_programs(tmp_path):
    sources = {name: source_of(*with_gradients(*make())) for name, make in PROGRAMS.items()}
    compile_with_nvcc(sources, tmp_path)


def test_kernels_of_every_rule(tmp_path):
    sources = {name: source_of(*case) for name, (case, _) in RULES.items()}
    compile_with_nvcc(sources, tmp_path)


#: every eleventh operator of topi's
OPERATORS = [case for group in GROUPS.values() for case in group][3::11]


def test_operators_of_topi(tmp_path):
    sources = {}
    for case in OPERATORS:
        inputs, output = case.tensors()
        if isinstance(output, (list, tuple)) or output.op.num_outputs > 1:
            continue
        try:
            tensors = with_gradients(inputs, output) if is_float(output) else (inputs, [output])
        except ad.NotDifferentiableError:
            tensors = inputs, [output]
        known = {tensor_key(t) for t in tensors[0]}
        sources[case.name] = source_of(
            [t for t in Graph(tensors[1]).placeholders() if tensor_key(t) in known], tensors[1]
        )
    assert len(sources) > 12
    compile_with_nvcc(sources, tmp_path)


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


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes(dtype, tmp_path):
    x = placeholder("x", 9, 300, dtype=dtype)
    images = placeholder("x", 2, 3, 13, 13, dtype=dtype)
    programs = {
        "softmax": ([x], topi.nn.softmax(x)),
        "pool": ([images], topi.nn.pool2d(images, [3] * 2, [2] * 2, [1] * 2, [1] * 4, "max")),
    }
    sources = {name: source_of(*with_gradients(*each)) for name, each in programs.items()}
    sources["matmul"] = source_of(*cases.matmul(64, 48, 64, "nt", dtype))
    compile_with_nvcc(sources, tmp_path)


def test_targets():
    case = cases.rows(7, 33)
    for target in ("cuda", {"kind": "cuda"}, "nvidia/nvidia-a100", tvm.target.Target(SM_90)):
        assert "__global__" in ad.build(*case, target=target).source()
    with pytest.raises(ad.InvalidArgumentError, match="use an llvm or a cuda target"):
        ad.build(*case, target="opencl")


def test_what_calls_the_kernels_runs_on_the_host():
    executable = on_cpu(*with_gradients(*attention()))
    assert isinstance(executable, tvm.relax.VMExecutable)
