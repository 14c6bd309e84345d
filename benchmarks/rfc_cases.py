"""The gradients whose costs the RFC's branch recorded in data/rfc_costs.json, as te expressions.

`zero_elimination.py` and the tests of these costs build the inputs and output of each case here,
with te and topi.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm import te, tirx, topi

FIGURES = Path(__file__).parent / "data" / "rfc_costs.json"


@dataclass(frozen=True)
class Case:
    """One recorded gradient: the RFC's costs, and the pairs that are not structurally zero."""

    name: str
    inputs: list[Any]
    output: Any
    rfc: tuple[int, int, int]
    useful: int | None

    @property
    def wanted(self) -> list[Any]:
        """The inputs to differentiate with respect to."""
        return [tensor for tensor in self.inputs if str(tensor.dtype).startswith("float")]


def _reduce_axis(extent: int = 10) -> Any:
    return te.reduce_axis((0, extent), "k")


def _sum_plus_const(A: Any) -> Any:
    k = _reduce_axis()
    total = te.compute((10, 10), lambda i, j: te.sum(A[i, k] * A[k, i], axis=k), name="S")
    return te.compute((10, 10), lambda i, j: total[i, j] + 5.0, name="B")


def _product(A: Any) -> Any:
    product = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t), name="product")
    k = _reduce_axis()
    return te.compute((10, 10), lambda i, j: product(A[i, k] + A[k, i], axis=k), name="B")


def _conv(stride: int, padding: int, dilation: int) -> Callable[..., Any]:
    return lambda X, W: topi.nn.conv2d(X, W, stride, padding, dilation)


def _pool(kind: str) -> Callable[..., Any]:
    return lambda X: topi.nn.pool2d(X, [2, 2], [2, 2], [1, 1], [0, 0, 0, 0], kind)


def _residual(X: Any, W: Any) -> Any:
    inner = topi.add(X, topi.nn.conv2d(X, W, 1, 1, 1))
    outer = topi.add(X, topi.nn.conv2d(inner, W, 1, 1, 1))
    return topi.nn.log_softmax(topi.reshape(outer, (1, 50)))


def _take(X: Any, indices: Any) -> Any:
    flat = topi.reshape(X, (20,))
    return te.compute((100,), lambda n: flat[indices[n]], name="T")


BUILDERS: dict[str, Callable[..., Any]] = {
    "add_transpose": lambda A: te.compute((10, 10), lambda i, j: A[i, j] + A[j, i], name="B"),
    "tanh_cubic": lambda A: te.compute(
        (10, 10), lambda i, j: te.tanh(A[i, j] * A[i, j] * A[j, i]), name="B"
    ),
    "sum_plus_const": _sum_plus_const,
    "prod_reduce": _product,
    "conv_pad1": _conv(1, 1, 1),
    "avgpool22": _pool("avg"),
    "maxpool_k2_s2": _pool("max"),
    "residual_log_softmax": _residual,
    "conv_k1_s2_d1": _conv(2, 0, 1),
    "conv_k2_s2_d1": _conv(2, 0, 1),
    "conv_k3_s2_d1": _conv(2, 0, 1),
    "conv_k3_s1_d2": _conv(1, 0, 2),
    "conv_k3_s3_d3": _conv(3, 0, 3),
    "take_rows": _take,
}


def cases() -> list[Case]:
    """Every recorded case, in the order of the file."""
    result = []
    for entry in json.loads(FIGURES.read_text("utf-8"))["cases"]:
        inputs = [
            te.placeholder(tuple(shape), "int32" if name == "I" else "float32", name=name)
            for name, shape in entry["inputs"].items()
        ]
        output = BUILDERS[entry["name"]](*inputs)
        result.append(Case(entry["name"], inputs, output, tuple(entry["rfc"]), entry["useful"]))
    return result
