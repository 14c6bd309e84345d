"""Products and reductions over extents that are affine in a symbolic size, with gradients, for a
GPU.

Every extent is `extent(n)` of a size `n` that another input has. The generated CUDA C runs on the
CPU, where two threads that write one element are found.
"""

from __future__ import annotations

import numpy as np
import pytest
from tvm import te, topi

from tests.cuda_on_cpu.checking import Case, check, groups
from tests.schedule.cuda.programs import with_gradients
from tests.schedule.cuda.scheduled import gpu
from tvm_autodiff.codegen.stages.primfunc import stage_function
from tvm_autodiff.expr.nodes import is_float
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.schedule.cuda.verify import problem_of
from tvm_autodiff.schedule.primitives import schedule_of

pytestmark = pytest.mark.slow

N = te.var("n")
EXTENTS = {
    "n": lambda n: n,
    "n+4": lambda n: n + 4,
    "2n": lambda n: 2 * n,
    "n//2": lambda n: n // 2,
    "(n+3)//4": lambda n: (n + 3) // 4,
    "n*n": lambda n: n * n,
}


def tensor(name, *shape):
    return te.placeholder(shape, name=name)


def reduced(extent, name="k"):
    return te.reduce_axis((0, extent), name)


def product(m):
    x, w, k = tensor("x", m, 40), tensor("w", 16, 40), reduced(40)
    return te.compute((m, 16), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), name="y")


def transposed_product(m):
    x, w, k = tensor("x", 40, m), tensor("w", 40, 16), reduced(40)
    return te.compute((16, m), lambda j, i: te.sum(x[k, i] * w[k, j], axis=k), name="y")


def product_along(m):
    x, w, k = tensor("x", 24, m), tensor("w", 16, m), reduced(m)
    return te.compute((16, 24), lambda j, i: te.sum(x[i, k] * w[j, k], axis=k), name="y")


def batch(m):
    x, w, k = tensor("x", m, 12, 24), tensor("w", m, 10, 24), reduced(24)
    shape = (m, 12, 10)
    return te.compute(shape, lambda b, i, j: te.sum(x[b, i, k] * w[b, j, k], axis=k), name="y")


def window(step):
    def make(m):
        x, w = tensor("x", 8, step * m + 4), tensor("w", 16, 8, 5)
        k, r = reduced(8), reduced(5, "r")
        body = lambda f, t: te.sum(x[k, step * t + r] * w[f, k, r], axis=[k, r])  # noqa: E731
        return te.compute((16, m), body, name="y")

    return make


def grouped_convolution(m):
    x, w = tensor("x", m, 8, 6, 6), tensor("w", 16, 4, 3, 3)
    return topi.nn.group_conv2d_nchw(x, w, 1, 1, 1, 2)


def rows(m):
    x, k = tensor("x", 9, m), reduced(m)
    return te.compute((9,), lambda i: te.sum(x[i, k] * x[i, k], axis=k), name="y")


def column_maxima(m):
    x, k = tensor("x", 7, 60, m), reduced(60)
    return te.compute((7, m), lambda b, i: te.max(x[b, k, i], axis=k), name="y")


def softmax(m):
    return topi.nn.softmax(tensor("x", m, 70))


def place_of_maximum(m):
    return topi.argmax(tensor("x", m, 70), 1)


#: name, program, and the extents that it is tried with
PROGRAMS = [
    ("product", product, ("n+4", "n*n")),
    ("transposed product", transposed_product, ("n//2",)),
    ("product along", product_along, ("(n+3)//4",)),
    ("batch", batch, ("n+4",)),
    ("window", window(1), ("2n",)),
    ("strided window", window(2), ("n//2",)),
    ("grouped convolution", grouped_convolution, ("n",)),
    ("rows", rows, ("(n+3)//4",)),
    ("column maxima", column_maxima, ("n", "n+4")),
    ("softmax", softmax, ("(n+3)//4",)),
    ("place of maximum", place_of_maximum, ("(n+3)//4",)),
]
CASES = {f"{name} {extent}": (make, extent) for name, make, all_ in PROGRAMS for extent in all_}


def program(make, extent, size):
    """Inputs, and a program with its gradients; the last output reads the size from an input."""
    output, sizes = make(EXTENTS[extent](size)), tensor("sizes", size)
    outputs = [output]
    if is_float(output):
        _, outputs = with_gradients(Graph([output]).placeholders(), output)
    outputs = [*outputs, te.compute((size,), lambda i: sizes[i], name="same")]
    return Graph(outputs).placeholders(), outputs


def case_of(name):
    """A program called with two sizes; integers make every order of summation give the same."""
    rng = np.random.default_rng(0)
    calls = []
    for size in (3, 37):
        shapes = [[int(n) for n in t.shape] for t in program(*CASES[name], size)[0]]
        calls.append([rng.integers(-3, 4, shape).astype("float32") for shape in shapes])
    return Case(*program(*CASES[name], N), calls, 2e-6)


@pytest.mark.parametrize("names", groups(CASES, 6))
def test_affine_extents(names):
    check({name: case_of(name) for name in names})


def by_threads(width):
    """Column sums of rows of a width, 16 threads for each, by TVM's primitives."""
    A, r = tensor("A", 60, 8, width), reduced(60)
    out = te.compute((8, width), lambda i, j: te.sum(A[r, i, j], axis=r), name="out")
    schedule, [block] = schedule_of(stage_function([out.op], [out]))
    copy = schedule.cache_write(block, 0, "local")
    i, j, k = schedule.get_loops(block)
    again, grid, thread = schedule.split(schedule.fuse(i, j), [None, 528, 32])
    schedule.reorder(grid, thread, again)
    serial, together = schedule.split(k, [None, 16])
    schedule.reorder(together, serial)
    for loop, tag in ((grid, "blockIdx.x"), (thread, "threadIdx.x"), (together, "threadIdx.y")):
        schedule.bind(loop, tag)
    schedule.reverse_compute_at(copy, again)
    return schedule.mod["main"]


def test_parts_that_tvm_leaves_apart_are_found():
    assert problem_of(by_threads(N), gpu()) is None
    assert problem_of(by_threads(N + 4), gpu()) == "parts of a reduction that TVM does not combine"
