"""Gradients whose work is recorded beside the floor: one line per case, one table per family.

A case of `CASES` has the shapes of its inputs (an array is data), a function of te tensors, and
whether the head is the identity. `OPERATORS` are forward computations whose gradients are compared
with their own cost. `benchmarks/zero_elimination.py` measures both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx, topi
from tvm.topi import image, nn

Index = Callable[..., tuple[Any, ...]]


@dataclass(frozen=True)
class CostCase:
    """One line: a name, a shape or an array of integers for each input, and the computation."""

    name: str
    inputs: Sequence[Any]
    make: Callable[..., Any]
    identity: bool = False

    def tensors(self, dtype: str = "float32") -> tuple[list[Any], Any, dict[Any, np.ndarray]]:
        """The inputs to differentiate with respect to, the output, and the values of the others."""
        inputs, data = [], {}
        for number, given in enumerate(self.inputs):
            if isinstance(given, np.ndarray):
                inputs.append(te.placeholder(given.shape, str(given.dtype), name=f"I{number}"))
                data[inputs[-1]] = given
            else:
                inputs.append(te.placeholder(given, dtype, name="xwb"[number]))
        real = [x for x, given in zip(inputs, self.inputs, strict=True) if isinstance(given, tuple)]
        return real, self.make(*inputs), data


def reads(shape: Sequence[int], index: Index, reduce: Sequence[int] = ()) -> Callable[..., Any]:
    """``out[a] = Σ_k x[index(a, k)]`` for the shape of `out` and the extents of `k`."""
    return summed(shape, reduce, lambda x, *point: x(*index(*point)))


def summed(
    shape: Sequence[int],
    reduce: Sequence[int],
    source: Callable[..., Any],
    where: Callable[..., Any] | None = None,
    reducer: Callable[..., Any] = te.sum,
) -> Callable[..., Any]:
    """``out[a] = Σ_k [where(a, k)] source(inputs..., a, k)``."""

    def make(*tensors: Any) -> Any:
        axes = [te.reduce_axis((0, extent), f"k{n}") for n, extent in enumerate(reduce)]

        def body(*outer: Any) -> Any:
            point = (*outer, *(axis.var for axis in axes))
            value = source(*tensors, *point)
            if not axes:
                return value
            condition = {} if where is None else {"where": where(*point)}
            return reducer(value, axis=axes, **condition)

        return te.compute(tuple(shape), body, name="y")

    return make


low, high, choose = tirx.Max, tirx.Min, tirx.Select


def inside(value: Any, extent: int) -> Any:
    """The index clamped to an axis."""
    return low(high(value, extent - 1), 0)


def mirror(value: Any, extent: int, edge: int) -> Any:
    """The index reflected at both ends; `edge` is 1 if the end itself is repeated."""
    left = choose(value < 0, -value - edge, value)
    return choose(left >= extent, 2 * extent - 2 + edge - left, left)


CLAMPS = [
    CostCase("clamp below", [(10,)], reads((10,), lambda i: (low(i - 2, 0),))),
    CostCase("clamp above", [(10,)], reads((10,), lambda i: (high(i + 2, 9),))),
    CostCase("clamp both ends", [(10,)], reads((14,), lambda i: (inside(i - 2, 10),))),
    CostCase(
        "clamped window",
        [(10,), (3,)],
        summed((10,), (3,), lambda x, w, i, k: x[inside(i + k - 1, 10)] * w[k]),
    ),
    CostCase(
        "clamped window, dilation 2",
        [(10,), (3,)],
        summed((10,), (3,), lambda x, w, i, k: x[inside(i + 2 * k - 2, 10)] * w[k]),
    ),
    CostCase(
        "clamped window, 2-D",
        [(8, 8), (3, 3)],
        summed(
            (8, 8),
            (3, 3),
            lambda x, w, i, j, k, m: x[inside(i + k - 1, 8), inside(j + m - 1, 8)] * w[k, m],
        ),
    ),
    CostCase("clamp, stride 2", [(10,)], reads((7,), lambda i: (high(2 * i, 9),))),
    CostCase("clamp of a row", [(6, 8)], reads((10, 8), lambda i, j: (inside(i - 2, 6), j))),
    CostCase("clamp of one axis by another", [(6, 6)], reads((6, 6), lambda i, j: (high(i, j), j))),
    CostCase("smaller of two axes", [(8,)], reads((8, 8), lambda i, j: (high(i, j),))),
    CostCase("larger of two axes", [(8,)], reads((8, 8), lambda i, j: (low(i, j),))),
    CostCase("clamp of a quotient", [(6,)], reads((16,), lambda i: (high(i // 2, 5),))),
    CostCase("absolute difference", [(8,)], reads((8, 8), lambda i, j: (low(i - j, j - i),))),
]

SELECTS = [
    CostCase("fold in the middle", [(10,)], reads((10,), lambda i: (choose(i < 5, i, 9 - i),))),
    CostCase(
        "even first, then odd",
        [(10,)],
        reads((10,), lambda i: (choose(i < 5, 2 * i, 2 * (i - 5) + 1),)),
    ),
    CostCase(
        "deinterleave",
        [(10,)],
        reads((10,), lambda i: (choose(i % 2 == 0, i // 2, 5 + i // 2),)),
    ),
    CostCase(
        "one row for the first columns",
        [(5, 6)],
        reads((5, 6), lambda i, j: (choose(j < 3, i, 0), j)),
    ),
    CostCase(
        "swap two halves",
        [(12,)],
        reads((12,), lambda i: (te.if_then_else(i < 6, i + 6, i - 6),)),
    ),
    CostCase(
        "upper triangle mirrored",
        [(6, 6)],
        reads((6, 6), lambda i, j: (choose(i <= j, i, j), choose(i <= j, j, i))),
    ),
    CostCase(
        "select inside a window",
        [(10,), (3,)],
        summed((8,), (3,), lambda x, w, i, k: x[choose(k == 2, i, i + k)] * w[k]),
    ),
    CostCase(
        "corners and their weights",
        [(9,), (8,)],
        summed((8,), (2,), lambda x, w, i, u: choose(u == 0, 1 - w[i], w[i]) * x[i + u]),
    ),
    CostCase(
        "corners by data and their weights",
        [(9, 4), (8,), np.array([0, 3, 3, 7, 1, 2, 5, 6], "int32")],
        summed(
            (8, 4),
            (2,),
            lambda x, w, at, i, c, u: choose(u == 0, 1 - w[i], w[i]) * x[at[i] + u, c],
        ),
    ),
    CostCase(
        "but the first",
        [(8,), (8,)],
        summed((8,), (8,), lambda x, w, i, k: x[k] * w[i], lambda i, k: k != 0),
    ),
    CostCase(
        "but the diagonal of a triangle",
        [(8,), (8,)],
        summed((8,), (8,), lambda x, w, i, k: x[k] * w[i], lambda i, k: te.all(k <= i, k != i)),
    ),
]

PADDING = [
    CostCase("zero padding", [(8,)], lambda x: nn.pad(x, [2], [1])),
    CostCase("zero padding, 2-D", [(5, 6)], lambda x: nn.pad(x, [1, 2], [2, 0])),
    CostCase("reflected", [(8,)], lambda x: nn.mirror_pad(x, [2], [3], "REFLECT")),
    CostCase("symmetric", [(8,)], lambda x: nn.mirror_pad(x, [2], [3], "SYMMETRIC")),
    CostCase("reflected, 2-D", [(6, 7)], lambda x: nn.mirror_pad(x, [1, 2], [2, 1], "REFLECT")),
    CostCase("reflected, topi's", [(8,)], lambda x: nn.reflect_pad(x, [2], [2])),
    CostCase("replicated", [(8,)], lambda x: nn.replicate_pad(x, [3], [2])),
    CostCase("replicated, 2-D", [(5, 6)], lambda x: nn.replicate_pad(x, [2, 1], [1, 2])),
    CostCase("circular", [(8,)], lambda x: nn.circular_pad(x, [3], [2])),
    CostCase("circular, 2-D", [(5, 6)], lambda x: nn.circular_pad(x, [1, 2], [2, 1])),
    CostCase("reflected by hand", [(8,)], reads((14,), lambda i: (mirror(i - 3, 8, 0),))),
    CostCase("symmetric by hand", [(8,)], reads((14,), lambda i: (mirror(i - 3, 8, 1),))),
    CostCase(
        "reflected window",
        [(10,), (3,)],
        summed((10,), (3,), lambda x, w, i, k: x[mirror(i + k - 1, 10, 0)] * w[k]),
    ),
    CostCase(
        "circular window",
        [(10,), (3,)],
        summed((10,), (3,), lambda x, w, i, k: x[(i + k + 9) % 10] * w[k]),
    ),
    CostCase(
        "replicated, then a convolution",
        [(1, 2, 6, 6), (3, 2, 3, 3)],
        lambda x, w: nn.conv2d(nn.replicate_pad(x, [0, 0, 1, 1], [0, 0, 1, 1]), w, 1, 0, 1),
    ),
]


def ragged(x: Any) -> Any:
    """``out[i] = Σ_{k <= i} x[k]`` with a bound that depends on i."""

    def row(i: Any) -> Any:
        k = te.reduce_axis((0, i + 1), "k")
        return te.sum(x[k], axis=k)

    return te.compute(x.shape, row, name="y")


ADAPTIVE = [
    CostCase("average, 9 to 3", [(1, 2, 9)], lambda x: nn.adaptive_pool1d(x, [3], "avg", "NCW")),
    CostCase("average, 7 to 3", [(1, 2, 7)], lambda x: nn.adaptive_pool1d(x, [3], "avg", "NCW")),
    CostCase("average, 8 to 5", [(1, 2, 8)], lambda x: nn.adaptive_pool1d(x, [5], "avg", "NCW")),
    CostCase("average, 4 to 6", [(1, 2, 4)], lambda x: nn.adaptive_pool1d(x, [6], "avg", "NCW")),
    CostCase("average, 2-D", [(1, 2, 7, 8)], lambda x: nn.adaptive_pool(x, [3, 4], "avg")),
    CostCase("maximum, 2-D", [(1, 2, 7, 8)], lambda x: nn.adaptive_pool(x, [3, 4], "max")),
    CostCase("average of all", [(2, 3, 4, 5)], lambda x: nn.global_pool(x, "avg")),
    CostCase("a bound that is an axis", [(10,)], ragged),
]

DIAGONALS = [
    CostCase("x[i, i]", [(8, 8)], reads((8,), lambda i: (i, i))),
    CostCase("out[x, y] = in[y, y]", [(6, 6)], reads((6, 6), lambda i, j: (j, j))),
    CostCase("anti-diagonal", [(8, 8)], reads((8,), lambda i: (i, 7 - i))),
    CostCase("above the diagonal", [(8, 8)], reads((6,), lambda i: (i, i + 2))),
    CostCase("trace", [(8, 8)], reads((), lambda k: (k, k), (8,))),
    CostCase("diagonal of each matrix", [(3, 5, 5)], reads((3, 5), lambda n, i: (n, i, i))),
    CostCase("three equal indices", [(4, 4, 4)], reads((4,), lambda i: (i, i, i))),
    CostCase("first and last equal", [(4, 3, 4)], reads((4, 3), lambda i, j: (i, j, i))),
    CostCase("x[2i, 3i]", [(9, 13)], reads((5,), lambda i: (2 * i, 3 * i))),
    CostCase(
        "diagonal times matrix",
        [(6, 6)],
        summed((6, 6), (), lambda x, i, j: x[i, i] * x[i, j]),
    ),
    CostCase(
        "matrix from a diagonal",
        [(6,)],
        summed((6, 6), (), lambda x, i, j: te.if_then_else(i.equal(j), x[i], 0.0)),
    ),
]

SKEWED = [
    CostCase("x[2i + 3k]", [(24,)], reads((5,), lambda i, k: (2 * i + 3 * k,), (6,))),
    CostCase(
        "x[i + 3m, 2i + k]",
        [(16, 14)],
        reads((5, 4), lambda i, j, k, m: (i + 3 * m, 2 * i + k), (6, 4)),
    ),
    CostCase("x[(i + j) % n]", [(7,)], reads((7, 7), lambda i, j: ((i + j) % 7,))),
    CostCase("x[(i + j) % n], longer", [(7,)], reads((5, 9), lambda i, j: ((i + j) % 7,))),
    CostCase("x[(2i + k) % n]", [(8,)], reads((8,), lambda i, k: ((2 * i + k) % 8,), (3,))),
    CostCase("x[3i % n]", [(7,)], reads((7,), lambda i: (3 * i % 7,))),
    CostCase("x[(i - j) % n, j]", [(6, 6)], reads((6, 6), lambda i, j: ((i - j) % 6, j))),
    CostCase("x[i + j, i - j]", [(9, 9)], reads((5, 5), lambda i, j: (i + j, i - j + 4))),
    CostCase("x[i + j]", [(11,)], reads((6, 6), lambda i, j: (i + j,))),
    CostCase("x[i + j + k]", [(13,)], reads((5, 5), lambda i, j, k: (i + j + k,), (5,))),
    CostCase("x[2i + 4j]", [(27,)], reads((6, 5), lambda i, j: (2 * i + 4 * j,))),
    CostCase("x[3i + 5j]", [(41,)], reads((6, 6), lambda i, j: (3 * i + 5 * j,))),
    CostCase("x[6i + 4j + k]", [(34,)], reads((4, 4), lambda i, j, k: (6 * i + 4 * j + k,), (2,))),
    CostCase("x[i // 2 + j]", [(8,)], reads((8, 5), lambda i, j: (i // 2 + j,))),
    CostCase("x[i, i + j]", [(6, 11)], reads((6, 6), lambda i, j: (i, i + j))),
    CostCase("x[i + j, 2i + j]", [(9, 13)], reads((5, 5), lambda i, j: (i + j, 2 * i + j))),
    CostCase("x[i - k + 5]", [(12,)], reads((7,), lambda i, k: (i - k + 5,), (6,))),
    CostCase("x[(i * 4 + j) % 6]", [(6,)], reads((3, 4), lambda i, j: ((i * 4 + j) % 6,))),
    CostCase("x[i // 3, i % 4]", [(4, 4)], reads((12,), lambda i: (i // 3, i % 4))),
]

TRIANGLES = [
    CostCase("k <= i", [(8,)], summed((8,), (8,), lambda x, i, k: x[k], lambda i, k: k <= i)),
    CostCase("k >= i", [(8,)], summed((8,), (8,), lambda x, i, k: x[k], lambda i, k: k >= i)),
    CostCase(
        "k < i, k odd",
        [(8,)],
        summed((8,), (4,), lambda x, i, k: x[2 * k + 1], lambda i, k: 2 * k + 1 < i),
    ),
    CostCase(
        "triangular matrix product",
        [(6, 6), (6, 6)],
        summed((6, 6), (6,), lambda a, b, i, j, k: a[i, k] * b[k, j], lambda i, j, k: k <= i),
    ),
    CostCase(
        "both triangular",
        [(6, 6), (6, 6)],
        summed(
            (6, 6),
            (6,),
            lambda a, b, i, j, k: a[i, k] * b[k, j],
            lambda i, j, k: te.all(k <= i, k >= j),
        ),
    ),
    CostCase("lower triangle", [(7, 7)], lambda x: topi.trilu(x, tirx.const(0, "int32"), False)),
    CostCase(
        "band",
        [(8, 8)],
        summed((8,), (8,), lambda x, i, k: x[i, k], lambda i, k: te.all(k <= i + 1, k >= i - 1)),
    ),
    CostCase(
        "difference below a bound",
        [(12,)],
        summed((6,), (6,), lambda x, i, k: x[i + k], lambda i, k: i + k < 6),
    ),
    CostCase(
        "two triangles",
        [(6,)],
        summed((6,), (6, 6), lambda x, i, k, m: x[k], lambda i, k, m: te.all(k <= m, m <= i)),
    ),
]


def window(size: int, stride: int, dilation: int, padding: int, kernel: int) -> CostCase:
    """``out[i] = Σ_k x[stride·i + dilation·k - padding]·w[k]``, zero outside of x."""
    count = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1

    def source(x: Any, w: Any, i: Any, k: Any) -> Any:
        place = stride * i + dilation * k - padding
        read = x[place] * w[k]
        if not padding:
            return read
        return te.if_then_else(te.all(place >= 0, place < size), read, 0.0)

    name = f"{size}: stride {stride} dilation {dilation} padding {padding} kernel {kernel}"
    return CostCase(name, [(size,), (kernel,)], summed((count,), (kernel,), source))


def conv2d(size: int, stride: int, dilation: int, padding: int, kernel: int) -> CostCase:
    """topi's convolution of two channels to three."""
    return CostCase(
        f"{size}x{size}: stride {stride} dilation {dilation} padding {padding} kernel {kernel}",
        [(1, 2, size, size), (3, 2, kernel, kernel)],
        lambda x, w: nn.conv2d(x, w, stride, padding, dilation),
    )


WINDOWS = [
    # size, stride, dilation, padding, kernel
    window(20, 1, 1, 0, 3),
    window(20, 1, 1, 1, 3),
    window(20, 1, 1, 2, 5),
    window(20, 1, 2, 0, 3),
    window(20, 1, 3, 3, 3),
    window(20, 2, 1, 0, 2),
    window(20, 2, 1, 0, 3),
    window(20, 2, 1, 1, 3),
    window(20, 2, 1, 1, 4),
    window(20, 2, 1, 2, 5),
    window(20, 2, 2, 0, 3),
    window(20, 2, 3, 0, 3),
    window(20, 2, 3, 3, 4),
    window(20, 3, 1, 0, 2),
    window(20, 3, 1, 0, 3),
    window(20, 3, 1, 1, 4),
    window(20, 3, 1, 0, 5),
    window(20, 3, 2, 0, 4),
    window(20, 3, 2, 2, 5),
    window(20, 4, 1, 0, 3),
    window(20, 4, 2, 0, 3),
    window(24, 4, 6, 0, 4),
    window(24, 6, 4, 0, 5),
    window(20, 5, 1, 2, 7),
]
WINDOWS_2D = [
    conv2d(8, 1, 1, 0, 3),
    conv2d(8, 1, 1, 1, 3),
    conv2d(10, 1, 2, 2, 3),
    conv2d(10, 1, 1, 2, 5),
    conv2d(10, 2, 1, 0, 3),
    conv2d(10, 2, 1, 1, 3),
    conv2d(8, 2, 1, 1, 4),
    conv2d(11, 2, 2, 0, 3),
    conv2d(11, 3, 1, 1, 3),
    conv2d(12, 3, 2, 0, 3),
    conv2d(12, 3, 1, 0, 5),
    conv2d(12, 4, 3, 0, 3),
]

CONVOLUTIONS = [
    CostCase("1-D", [(2, 3, 10), (4, 3, 3)], lambda x, w: nn.conv1d_ncw(x, w, 2, 1, 1)),
    CostCase(
        "3-D",
        [(1, 2, 5, 5, 5), (2, 2, 3, 3, 3)],
        lambda x, w: nn.conv3d_ncdhw(x, w, 2, 1, 1, 1),
    ),
    CostCase(
        "channels last",
        [(1, 8, 8, 2), (3, 3, 2, 3)],
        lambda x, w: nn.conv2d_nhwc(x, w, 2, 1, 1, str(x.dtype)),
    ),
    CostCase(
        "grouped", [(1, 4, 8, 8), (6, 2, 3, 3)], lambda x, w: nn.group_conv2d_nchw(x, w, 1, 1, 1, 2)
    ),
    CostCase(
        "grouped, stride 2",
        [(1, 4, 9, 9), (4, 2, 3, 3)],
        lambda x, w: nn.group_conv2d_nchw(x, w, 2, 1, 1, 2),
    ),
    CostCase(
        "depthwise",
        [(1, 4, 8, 8), (4, 1, 3, 3)],
        lambda x, w: nn.depthwise_conv2d_nchw(x, w, 1, 1, 1),
    ),
    CostCase(
        "depthwise, multiplier 2, stride 2",
        [(1, 3, 9, 9), (3, 2, 3, 3)],
        lambda x, w: nn.depthwise_conv2d_nchw(x, w, 2, 1, 1),
    ),
    CostCase(
        "transposed",
        [(1, 2, 5, 5), (2, 3, 3, 3)],
        lambda x, w: nn.conv2d_transpose_nchw(x, w, (1, 1), (1, 1), str(x.dtype), (0, 0)),
    ),
    CostCase(
        "transposed, stride 2",
        [(1, 2, 5, 5), (2, 3, 4, 4)],
        lambda x, w: nn.conv2d_transpose_nchw(x, w, (2, 2), (1, 1), str(x.dtype), (0, 0)),
    ),
    CostCase(
        "transposed, stride 3",
        [(1, 2, 4, 4), (2, 3, 3, 3)],
        lambda x, w: nn.conv2d_transpose_nchw(x, w, (3, 3), (0, 0), str(x.dtype), (0, 0)),
    ),
    CostCase(
        "transposed, 1-D",
        [(1, 2, 6), (2, 3, 3)],
        lambda x, w: nn.conv1d_transpose_ncw(x, w, (2,), (1, 1), str(x.dtype), (0,)),
    ),
    CostCase(
        "two in a row",
        [(1, 2, 8, 8), (3, 2, 3, 3), (2, 3, 3, 3)],
        lambda x, w, b: nn.conv2d(nn.conv2d(x, w, 1, 1, 1), b, 2, 1, 1),
    ),
    CostCase(
        "with bias and relu",
        [(1, 2, 8, 8), (3, 2, 3, 3), (3, 1, 1)],
        lambda x, w, b: nn.relu(topi.add(nn.conv2d(x, w, 1, 1, 1), b)),
    ),
]

RESIZE = [
    CostCase("repeat rows twice", [(1, 2, 4, 4)], lambda x: topi.repeat(x, 2, 2)),
    CostCase(
        "nearest, 2x, 1-D",
        [(1, 2, 6)],
        lambda x: image.resize1d(
            x, [0.0] * 2, [12], "NCW", "nearest_neighbor", "asymmetric", "floor"
        ),
    ),
    CostCase(
        "nearest, 3x, 2-D",
        [(1, 2, 3, 4)],
        lambda x: image.resize2d(
            x, [0.0] * 4, [9, 12], "NCHW", "nearest_neighbor", "asymmetric", "floor"
        ),
    ),
    CostCase(
        "nearest, half",
        [(1, 2, 8, 8)],
        lambda x: image.resize2d(
            x, [0.0] * 4, [4, 4], "NCHW", "nearest_neighbor", "asymmetric", "floor"
        ),
    ),
    CostCase("nearest, 2x by hand", [(8,)], reads((16,), lambda i: (i // 2,))),
    CostCase("nearest, 3x by hand", [(4, 5)], reads((12, 15), lambda i, j: (i // 3, j // 3))),
    CostCase("every second", [(12, 12)], reads((6, 6), lambda i, j: (2 * i, 2 * j))),
    CostCase("middle of three", [(12,)], reads((4,), lambda i: (3 * i + 1,))),
    CostCase(
        "nearest, 2x, then a convolution",
        [(1, 2, 4, 4), (2, 2, 3, 3)],
        lambda x, w: nn.conv2d(
            te.compute((1, 2, 8, 8), lambda n, c, i, j: x[n, c, i // 2, j // 2]), w, 1, 1, 1
        ),
    ),
]


def ints(*values: int) -> np.ndarray:
    return np.array(values, "int32")


ROWS = ints(0, 1, 1, 4, 3, 4, 4, 2)
DATA = [
    CostCase("take rows, clip", [(5, 6), ROWS], lambda x, i: topi.take(x, i, 0, mode="clip")),
    CostCase("take rows, wrap", [(5, 6), ROWS], lambda x, i: topi.take(x, i, 0, mode="wrap")),
    CostCase("take columns", [(6, 5), ROWS], lambda x, i: topi.take(x, i, 1, mode="fast")),
    CostCase(
        "embedding",
        [(5, 4), ROWS, (4, 3)],
        lambda x, i, w: topi.matmul(topi.take(x, i, 0, mode="fast"), w),
    ),
    CostCase(
        "gather", [(5, 3), ROWS.reshape(8, 1) * ints(1, 1, 1)], lambda x, i: topi.gather(x, 0, i)
    ),
    CostCase("gather_nd", [(5, 5), np.stack([ROWS, ROWS])], lambda x, i: topi.gather_nd(x, i)),
    CostCase("adv_index", [(5, 5), ROWS, ROWS], lambda x, i, j: topi.adv_index(x, [i, j])),
    CostCase(
        "nll_loss",
        [(8, 5), ROWS, (5,)],
        lambda x, i, w: nn.nll_loss(x, i, w, "mean", -100),
    ),
    CostCase(
        "rows summed",
        [(5, 6), ROWS],
        summed((6,), (8,), lambda x, i, j, k: x[i[k], j]),
    ),
]

product = te.comm_reducer(lambda a, b: a * b, lambda t: tirx.const(1, t), name="product")
log_add = te.comm_reducer(
    lambda a, b: te.log(te.exp(a) + te.exp(b)), lambda t: tirx.const(-1e30, t), name="log_add"
)


def _maximum_and_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """(maximum, sum of exp relative to it)"""
    top = tirx.Max(a[0], b[0])
    return top, a[1] * te.exp(a[0] - top) + b[1] * te.exp(b[0] - top)


def _moments(a: Any, b: Any) -> tuple[Any, Any, Any]:
    """(number, mean, sum of squared distances from the mean)"""
    count, apart = a[0] + b[0], b[1] - a[1]
    share = b[0] / count
    return count, a[1] + apart * share, a[2] + b[2] + apart * apart * a[0] * share


def one_pass_softmax(x: Any) -> Any:
    """The logarithm of the sum of exp in each row."""
    reducer = te.comm_reducer(
        _maximum_and_sum, lambda s, t: (tirx.const(-1e30, s), tirx.const(0, t))
    )
    k = te.reduce_axis((0, x.shape[1]), "k")
    one = tirx.const(1, x.dtype)
    top, total = te.compute((x.shape[0],), lambda i: reducer((x[i, k], one), axis=k), name="pair")
    return te.compute((x.shape[0],), lambda i: top[i] + te.log(total[i]), name="out")


def one_pass_variance(x: Any) -> Any:
    """The variance of each row."""
    reducer = te.comm_reducer(_moments, lambda *types: tuple(tirx.const(0, t) for t in types))
    k = te.reduce_axis((0, x.shape[1]), "k")
    one, zero = tirx.const(1, x.dtype), tirx.const(0, x.dtype)
    count, _, squares = te.compute(
        (x.shape[0],), lambda i: reducer((one, x[i, k], zero), axis=k), name="moments"
    )
    return te.compute((x.shape[0],), lambda i: squares[i] / count[i], name="out")


REDUCERS = [
    CostCase("maximum of a row", [(6, 8)], lambda x: topi.max(x, axis=1)),
    CostCase("minimum of all", [(6, 8)], lambda x: topi.min(x, axis=(0, 1))),
    CostCase("maximum over two axes", [(4, 3, 5)], lambda x: topi.max(x, axis=(0, 2))),
    CostCase(
        "max pool, 2x2",
        [(1, 2, 8, 8)],
        lambda x: nn.pool2d(x, [2, 2], [2, 2], [1, 1], [0] * 4, "max"),
    ),
    CostCase(
        "max pool, 3x3 stride 2",
        [(1, 2, 9, 9)],
        lambda x: nn.pool2d(x, [3, 3], [2, 2], [1, 1], [0] * 4, "max"),
    ),
    CostCase(
        "max pool, 3x3 padding 1",
        [(1, 2, 8, 8)],
        lambda x: nn.pool2d(x, [3, 3], [1, 1], [1, 1], [1] * 4, "max"),
    ),
    CostCase(
        "average pool, 3x3 stride 2",
        [(1, 2, 9, 9)],
        lambda x: nn.pool2d(x, [3, 3], [2, 2], [1, 1], [0] * 4, "avg"),
    ),
    CostCase("product of a row", [(6, 8)], lambda x: topi.prod(x, axis=1)),
    CostCase(
        "product of sums",
        [(6, 6)],
        summed((6, 6), (6,), lambda x, i, j, k: x[i, k] + x[k, j], reducer=product),
    ),
    CostCase(
        "a reducer without a rule",
        [(5, 6)],
        summed((5,), (6,), lambda x, i, k: x[i, k], reducer=log_add),
    ),
    CostCase(
        "a reducer without a rule, of products",
        [(5, 6), (5, 6)],
        summed((5,), (6,), lambda x, w, i, k: x[i, k] * w[i, k], reducer=log_add),
    ),
    CostCase(
        "a reducer without a rule, two axes",
        [(4, 3, 5)],
        summed((3,), (4, 5), lambda x, i, k, m: x[k, i, m], reducer=log_add),
    ),
    CostCase("softmax in one pass", [(5, 6)], one_pass_softmax),
    CostCase("variance in one pass", [(5, 6)], one_pass_variance),
]

JACOBIANS = [
    CostCase("exp", [(4, 5)], lambda x: topi.exp(x), True),
    CostCase("tanh of a square", [(6,)], lambda x: topi.tanh(topi.multiply(x, x)), True),
    CostCase("matrix times vector", [(5, 4), (4, 1)], lambda x, w: topi.matmul(x, w), True),
    CostCase("row sums", [(4, 5)], lambda x: topi.sum(x, axis=1), True),
    CostCase("transpose", [(3, 4)], lambda x: topi.transpose(x), True),
    CostCase("convolution", [(9,), (3,)], window(9, 1, 1, 0, 3).make, True),
    CostCase("convolution, stride 2", [(9,), (3,)], window(9, 2, 1, 1, 3).make, True),
    CostCase("repeat", [(4,)], lambda x: topi.repeat(x, 3, 0), True),
    CostCase("softmax", [(6,)], lambda x: nn.softmax(x, 0), True),
    CostCase(
        "quadratic form, gradient",
        [(4, 4), (4,)],
        summed((4,), (4,), lambda a, x, i, k: (a[i, k] + a[k, i]) * x[k]),
        True,
    ),
]

CONTRACTIONS = [
    CostCase("matmul", [(5, 6), (6, 7)], lambda x, w: topi.matmul(x, w)),
    CostCase("matmul, both transposed", [(6, 5), (7, 6)], lambda x, w: topi.matmul(x, w, 1, 1)),
    CostCase("batch matmul", [(3, 4, 5), (3, 6, 5)], lambda x, w: nn.batch_matmul(x, w)),
    CostCase("dense with bias", [(4, 5), (6, 5), (6,)], lambda x, w, b: nn.dense(x, w, b)),
    CostCase(
        "tensordot", [(3, 4, 5), (5, 4, 6)], lambda x, w: topi.tensordot(x, w, [[1, 2], [1, 0]])
    ),
    CostCase("x xᵀ", [(5, 6)], lambda x: topi.matmul(x, x, False, True)),
    CostCase(
        "einsum bij,bjk", [(2, 3, 4), (2, 4, 5)], lambda x, w: topi.einsum("bij,bjk->bik", x, w)
    ),
    CostCase("einsum ii", [(5, 5)], lambda x: topi.einsum("ii->", x)),
    CostCase(
        "einsum ij,kj,k",
        [(4, 5), (6, 5), (6,)],
        lambda x, w, b: topi.einsum("ij,kj,k->ik", x, w, b),
    ),
    CostCase(
        "bilinear",
        [(4, 3), (5, 3, 2), (4, 2)],
        summed((4, 5), (3, 2), lambda x, w, b, n, o, i, j: x[n, i] * w[o, i, j] * b[n, j]),
    ),
    CostCase("outer product", [(5,), (6,)], summed((5, 6), (), lambda x, w, i, j: x[i] * w[j])),
]

SHAPES = [
    CostCase("slice", [(10, 8)], lambda x: topi.strided_slice(x, [2, 1], [8, 6])),
    CostCase("strided slice", [(12, 8)], lambda x: topi.strided_slice(x, [1, 0], [12, 8], [3, 2])),
    CostCase("backward slice", [(12,)], lambda x: topi.strided_slice(x, [10], [1], [-2])),
    CostCase(
        "slice of exp", [(10,)], lambda x: topi.exp(topi.strided_slice(topi.exp(x), [2], [8]))
    ),
    CostCase("concatenate", [(3, 4), (5, 4)], lambda x, w: topi.concatenate((x, w), 0)),
    CostCase("concatenate itself", [(3, 4)], lambda x: topi.concatenate((x, topi.exp(x), x), 1)),
    CostCase("stack", [(3, 4), (3, 4)], lambda x, w: topi.stack((x, w), 1)),
    CostCase(
        "split, then a product",
        [(4, 6)],
        lambda x: topi.multiply(*topi.split(x, 2, 1)),
    ),
    CostCase("tile", [(3, 4)], lambda x: topi.tile(x, (2, 3))),
    CostCase("repeat", [(3, 4)], lambda x: topi.repeat(x, 3, 1)),
    CostCase("reshape", [(4, 6)], lambda x: topi.reshape(x, (3, 8))),
    CostCase(
        "reshape and transpose",
        [(4, 6)],
        lambda x: topi.transpose(topi.reshape(x, (4, 2, 3)), (1, 0, 2)),
    ),
    CostCase("flatten", [(2, 3, 4)], lambda x: nn.flatten(x)),
    CostCase("flip", [(4, 5)], lambda x: topi.flip(x, 1)),
    CostCase("transpose", [(3, 4, 5)], lambda x: topi.transpose(x, (2, 0, 1))),
    CostCase("broadcast", [(3, 1, 4)], lambda x: topi.broadcast_to(x, (2, 3, 5, 4))),
    CostCase("broadcast sum", [(3, 4), (4,)], lambda x, w: topi.multiply(x, w)),
    CostCase("squeeze", [(3, 1, 4)], lambda x: topi.squeeze(x, 1)),
    CostCase(
        "channels packed", [(1, 4, 3, 3)], lambda x: topi.layout_transform(x, "NCHW", "NCHW2c")
    ),
    CostCase("space to depth", [(1, 2, 4, 6)], lambda x: nn.space_to_depth(x, 2)),
    CostCase("depth to space", [(1, 8, 2, 3)], lambda x: nn.depth_to_space(x, 2)),
    CostCase("sliding windows", [(3, 8)], lambda x: topi.sliding_window(x, 1, [3], [2])),
    CostCase(
        "overlapping patches", [(1, 2, 6, 6)], lambda x: topi.sliding_window(x, 2, [3, 3], [1, 1])
    ),
    CostCase("A[i, j] + A[j, i]", [(6, 6)], summed((6, 6), (), lambda x, i, j: x[i, j] + x[j, i])),
    CostCase("differences", [(10,)], summed((9,), (), lambda x, i: x[i + 1] - x[i])),
    CostCase(
        "five-point stencil",
        [(8, 8)],
        summed(
            (6, 6),
            (),
            lambda x, i, j: (
                x[i, j + 1]
                + x[i + 2, j + 1]
                + x[i + 1, j]
                + x[i + 1, j + 2]
                - 4.0 * x[i + 1, j + 1]
            ),
        ),
    ),
]


def normalised(x: Any, axes: tuple[int, ...]) -> Any:
    """``(x - mean) / sqrt(variance + ε)`` over 12 elements each: a batch normalisation."""
    centred = topi.subtract(x, topi.sum(x, axes, keepdims=True) / 12.0)
    variance = topi.sum(topi.multiply(centred, centred), axes, keepdims=True) / 12.0
    return topi.multiply(centred, topi.rsqrt(topi.add(variance, 1e-5)))


def attention(q: Any, k: Any, v: Any) -> Any:
    """softmax(q kᵀ / √d) v."""
    weights = nn.softmax(topi.multiply(nn.batch_matmul(q, k), 0.5), 2)
    return nn.batch_matmul(weights, topi.transpose(v, (0, 2, 1)))


NORMALISATION = [
    CostCase("sum over two axes", [(3, 4, 5)], lambda x: topi.sum(x, axis=(0, 2))),
    CostCase("sum of all", [(3, 4)], lambda x: topi.sum(x)),
    CostCase("sum of squares", [(3, 4)], lambda x: topi.sum(topi.multiply(x, x), axis=1)),
    CostCase("softmax", [(4, 6)], lambda x: nn.softmax(x)),
    CostCase("log_softmax", [(4, 6)], lambda x: nn.log_softmax(x)),
    CostCase("layer norm", [(4, 6), (6,), (6,)], lambda x, w, b: nn.layer_norm(x, w, b, [1])),
    CostCase("RMS norm", [(4, 6), (6,)], lambda x, w: nn.rms_norm(x, w, [1])),
    CostCase(
        "instance norm",
        [(2, 3, 4, 4), (3,), (3,)],
        lambda x, w, b: nn.instance_norm(x, w, b, 1, [2, 3]),
    ),
    CostCase(
        "group norm",
        [(2, 4, 3, 3), (4,), (4,)],
        lambda x, w, b: nn.group_norm(x, w, b, 2, 1, [2, 3]),
    ),
    CostCase("batch norm written out", [(2, 3, 2, 3)], lambda x: normalised(x, (0, 2, 3))),
    CostCase("local response", [(1, 6, 3, 3)], lambda x: nn.lrn(x, 3, 1, 1e-4, 0.75, 2.0)),
    CostCase("attention", [(2, 5, 4), (2, 6, 4), (2, 6, 4)], attention),
]

FAMILIES = {
    "clamp": CLAMPS,
    "select": SELECTS,
    "padding": PADDING,
    "adaptive": ADAPTIVE,
    "diagonal": DIAGONALS,
    "skewed": SKEWED,
    "triangle": TRIANGLES,
    "window": WINDOWS,
    "conv2d": WINDOWS_2D,
    "convolution": CONVOLUTIONS,
    "resize": RESIZE,
    "data": DATA,
    "reducer": REDUCERS,
    "jacobian": JACOBIANS,
    "contraction": CONTRACTIONS,
    "shape": SHAPES,
    "normalise": NORMALISATION,
}
CASES = {f"{family}: {case.name}": case for family, cases in FAMILIES.items() for case in cases}

#: computations whose gradient is held against three times their own cost
OPERATORS = [
    CostCase("flatten", [(4, 8, 6, 6)], nn.flatten),
    CostCase(
        "average pool, 2x2",
        [(2, 8, 16, 16)],
        lambda x: nn.pool2d(x, [2, 2], [2, 2], [1, 1], [0] * 4, "avg"),
    ),
    CostCase(
        "average pool, 3x3 stride 2",
        [(2, 8, 17, 17)],
        lambda x: nn.pool2d(x, [3, 3], [2, 2], [1, 1], [0] * 4, "avg"),
    ),
    CostCase(
        "max pool, 2x2",
        [(2, 8, 16, 16)],
        lambda x: nn.pool2d(x, [2, 2], [2, 2], [1, 1], [0] * 4, "max"),
    ),
    CostCase(
        "max pool, 3x3 stride 2",
        [(2, 8, 17, 17)],
        lambda x: nn.pool2d(x, [3, 3], [2, 2], [1, 1], [0] * 4, "max"),
    ),
    CostCase("softmax", [(16, 40)], nn.softmax),
    CostCase("log_softmax", [(16, 40)], nn.log_softmax),
    CostCase(
        "convolution",
        [(2, 8, 16, 16), (8, 8, 3, 3)],
        lambda x, w: nn.conv2d(x, w, 1, 1, 1),
    ),
    CostCase(
        "convolution, dilation 2",
        [(2, 8, 16, 16), (8, 8, 3, 3)],
        lambda x, w: nn.conv2d(x, w, 1, 2, 2),
    ),
    CostCase(
        "convolution, stride 2",
        [(2, 8, 16, 16), (8, 8, 3, 3)],
        lambda x, w: nn.conv2d(x, w, 2, 1, 1),
    ),
    CostCase(
        "convolution, stride 3 dilation 3",
        [(2, 8, 19, 19), (8, 8, 3, 3)],
        lambda x, w: nn.conv2d(x, w, 3, 0, 3),
    ),
    CostCase("layer norm", [(16, 40), (40,), (40,)], lambda x, w, b: nn.layer_norm(x, w, b, [1])),
    CostCase("attention", [(4, 12, 8), (4, 12, 8), (4, 12, 8)], attention),
]
