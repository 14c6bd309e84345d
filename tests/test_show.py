"""Graphs as text: golden files, names, the same text in every process, and bad arguments."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tvm import te, tirx, topi

from tests.processes import without_torch
from tvm_autodiff import show
from tvm_autodiff.errors import InvalidArgumentError
from tvm_autodiff.expr.build import const, if_then_else

ROOT = Path(__file__).parent.parent


def matmul() -> list[te.Tensor]:
    A = te.placeholder((512, 256), name="A")
    B = te.placeholder((256, 128), name="B")
    k = te.reduce_axis((0, 256), "k")
    return [te.compute((512, 128), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")]


def network() -> list[te.Tensor]:
    """Convolution with padding, relu, max pooling, reshape, log softmax: all from topi."""
    image = te.placeholder((2, 3, 8, 8), name="image")
    weight = te.placeholder((4, 3, 3, 3), name="weight")
    hidden = topi.nn.relu(topi.nn.conv2d(image, weight, 1, 1, 1))
    pooled = topi.nn.pool2d(hidden, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max")
    return [topi.nn.log_softmax(topi.reshape(pooled, (2, 64)))]


def reducers() -> list[te.Tensor]:
    """Conditions, init, other first values, product, a reducer of one's own, tuples."""
    A = te.placeholder((4, 5), name="A")
    k, late = te.reduce_axis((0, 5), "k"), te.reduce_axis((1, 5), "k")
    product = te.comm_reducer(lambda x, y: x * y, lambda t: const(1, t))
    hypot = te.comm_reducer(
        lambda x, y: te.sqrt(x * x + y * y), lambda t: const(0, t), name="hypot"
    )
    winner = te.comm_reducer(
        lambda x, y: (if_then_else(x[1] >= y[1], x[0], y[0]), te.max(x[1], y[1])),
        lambda t0, t1: (const(-1, t0), te.min_value(t1)),
        name="winner",
    )
    rows = (4,)
    best = te.compute(rows, lambda i: winner((k.var, A[i, k]), axis=k), name="best")
    return [
        te.compute(rows, lambda i: te.sum(A[i, k], axis=k, where=k > i), name="masked"),
        te.compute(rows, lambda i: te.max(A[i, k], axis=k, init=0.5), name="started"),
        te.compute(rows, lambda i: te.min(A[i, late], axis=late), name="late"),
        te.compute(rows, lambda i: product(A[i, k], axis=k), name="product"),
        te.compute(rows, lambda i: hypot(A[i, k], axis=k), name="length"),
        te.compute(rows, lambda i: (best[1][i], best[0][i] * 2), name="pair")[0],
    ]


def symbolic() -> list[te.Tensor]:
    """Extents that are variables, two of one name, a free scalar, an axis whose name is taken."""
    n, other, alpha = te.var("n"), te.var("n"), te.var("alpha", "float32")
    A = te.placeholder((n, other), name="A")
    k = te.reduce_axis((1, n - 1), "k")
    return [te.compute((other,), lambda n: te.sum(A[k, n] * alpha, axis=k), name="A")]


def opaque() -> list[te.Tensor]:
    """A packed function and a scan, with stages of equal name around them."""
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i] + 1.0, name="B")
    two = te.extern(
        [(4,), (2, 2)],
        [B],
        lambda ins, outs: tirx.call_packed("f", ins[0], outs[0], outs[1]),
        name="two",
        dtype=["float32", "int32"],
    )
    again = te.compute((4,), lambda i: two[0][i] * B[i], name="B")
    state = te.placeholder((3, 4), name="state")
    start = te.compute((1, 4), lambda _, i: again[i], name="start")
    step = te.compute((3, 4), lambda t, i: state[t - 1, i] * again[i], name="step")
    sums = te.scan(start, step, state, name="sums", inputs=[again])
    return [te.compute((), lambda: sums[2, 0], name="last")]


def gradient() -> list[te.Tensor]:
    """Guards and remainders as the gradients of strided reads have them."""
    head = te.placeholder((4, 4), name="head")
    w = te.placeholder((3,), name="w")
    k = te.reduce_axis((0, 2), "k")
    return [
        te.compute(
            (4, 9),
            lambda i, j: te.sum(
                if_then_else(
                    te.all(j - k >= 1, (j - k) % 2 < 1, tirx.Not(i < k)),
                    head[i, (j - k) // 2] * (w[k] * -1.0),
                    const(0, "float32"),
                ),
                axis=k,
            ),
            name="dx",
        )
    ]


GRAPHS = [matmul, network, reducers, symbolic, opaque, gradient]


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.__name__)
def test_golden(graph: Callable[[], list[te.Tensor]], golden: Callable[[str, str], None]) -> None:
    golden(f"show_{graph.__name__}.txt", show(graph()))


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.__name__)
def test_golden_latex(
    graph: Callable[[], list[te.Tensor]], golden: Callable[[str, str], None]
) -> None:
    shown = show(graph())
    latex = shown._repr_latex_()
    assert latex is not None
    bare = latex.replace("\\{", "").replace("\\}", "")
    assert bare.count("{") == bare.count("}")
    assert bare.count("\\begin") == bare.count("\\end")
    assert bare.count("\\left") == bare.count("\\right")
    stages = [line for line in shown.splitlines() if not line.startswith(("inputs", " "))]
    assert len(shown.formulas) == len(stages)
    golden(f"latex_{graph.__name__}.tex", latex)


def test_inputs_alone_have_no_latex() -> None:
    assert show(te.placeholder((3,), name="A"))._repr_latex_() is None


def test_long_expressions_stay_text_in_notebooks() -> None:
    A = te.placeholder((3,), name="A")
    value: Any = A(0)
    for _ in range(300):
        value = te.exp(value)
    [formula] = show(te.compute((3,), lambda i: value + A[i], name="deep"), limit=50).formulas
    assert formula.startswith(r"&\mathtt{deep[i]\ =\ exp(exp(")


def test_one_tensor_several_and_inputs() -> None:
    [C] = matmul()
    A, B = C.op.input_tensors
    assert show(C) == show([C]) == show((C, A))
    assert show(A) == "inputs  A: float32[512, 256]"
    assert show([B, A]) == "inputs  B: float32[256, 128], A: float32[512, 256]"
    assert show([]) == ""


def test_inputs_wrap() -> None:
    weights = [te.placeholder((100, 100), name=f"weight_{n}") for n in range(7)]
    lines = show(weights).splitlines()
    assert len(lines) == 3
    assert all(len(line) <= 100 for line in lines)
    assert all("float32[100, 100]" in entry for entry in "".join(lines).split("weight_")[1:])


def test_long_stages_are_cut_off() -> None:
    A = te.placeholder((3,), name="A")
    value: Any = A(0)
    for _ in range(1500):
        value = te.exp(value)
    deep = te.compute((3,), lambda i: value + A[i], name="deep")
    [line] = show(deep, limit=50).splitlines()[1:]
    assert line == "deep[i] = " + ("exp(" * 13)[:50] + "…  float32[3]"
    assert len(show(deep, limit=None)) > 1500 * 5


@pytest.mark.slow
def test_long_chains_of_stages() -> None:
    stage = te.placeholder((2,), name="x")
    for _ in range(2000):
        stage = te.compute((2,), lambda i: stage[i] + 1.0, name="x")  # noqa: B023
    lines = show(stage).splitlines()
    assert len(lines) == 2001
    assert lines[-1].startswith("x_2000[i] = x_1999[i] + 1.0")


@pytest.mark.parametrize("bad", [3, "A", [None]])
def test_other_things_than_tensors(bad: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"te\.compute"):
        show(bad)


SCRIPT = """
from tests.test_show import GRAPHS
from tvm_autodiff import show
print("\\n\\n".join(show(graph()) for graph in GRAPHS))
"""


@pytest.mark.slow
def test_same_text_in_every_process() -> None:
    """Whatever the seed of hashes and the addresses of nodes: this process has others."""
    text = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        env=without_torch(PYTHONHASHSEED="1", PYTHONIOENCODING="utf-8"),
        capture_output=True,
        check=True,
    ).stdout.decode()
    assert text.strip() == "\n\n".join(show(graph()) for graph in GRAPHS)
