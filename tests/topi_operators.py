"""Every tensor operator of topi as a small example: the table behind docs/reference/operators.md.

`GROUPS` maps a heading to the cases of its operators, with inputs named as in topi. An operator has
more than one case if its options lead to different stages. `NOT_OPERATORS` lists what is not an
operator on tensors.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import te, topi
from tvm.topi import image, nn, vision

from tests.gradient_case import Case

REAL, UNIT = (-1.5, 1.5), (-0.9, 0.9)
POSITIVE = (0.25, 1.25)
V, M, IMAGE = (4,), (3, 4), (1, 2, 5, 6)


def ints(*values, dtype="int32"):
    return np.array(values, dtype)


def elementwise(*names, domain=POSITIVE):
    return [
        Case(name, [M], lambda x, name=name: getattr(topi, name)(x), domain=domain)
        for name in names
    ]


def binary(*names):
    # the second operand is broadcast
    return [
        Case(name, [M, V], lambda a, b, name=name: getattr(topi, name)(a, b), domain=REAL)
        for name in names
    ]


def integer(*names):
    whole = np.arange(1, 5, dtype="int32")
    return [
        Case(name, [whole, whole], lambda a, b, name=name: getattr(topi, name)(a, b))
        for name in names
    ]


def reduction(*names):
    return [
        Case(name, [(2, 3, 2)], lambda x, name=name: getattr(topi, name)(x, axis=(0, 2)))
        for name in names
    ]


def packed_convolution(data, kernel, convolution=nn.conv2d_NCHWc):
    with tvm.target.Target("llvm"):  # topi asks for the target's vectors
        return convolution(data, kernel, 1, 1, 1, "NCHW2c", "NCHW2c", "float64")


POOL = {"kernel": [2, 2], "stride": [2, 2], "dilation": [1, 1], "padding": [0, 0, 0, 0]}
ROIS = np.array([[0.0, 0.2, 0.3, 3.3, 2.9]])
THETA = np.array([[[0.7, 0.1, 0.05], [-0.2, 0.6, 0.1]]])
#: points of a sampling grid, away from the kinks of the interpolation and inside of the image
GRID = np.random.default_rng(1).uniform(-0.7, 0.7, (1, 2, 2, 3))
PERMUTED = np.random.default_rng(0).permutation(12).reshape(3, 4) * 0.25
SORTED = np.array([0.0, 1.0, 2.0, 3.0])

GROUPS: dict[str, list[Case]] = {
    "Elementwise": [
        *elementwise("exp", "log", "log2", "log10", "sqrt", "rsqrt", "sigmoid", "tanh"),
        *elementwise("erf", "sin", "cos", "sinh", "cosh", "atan", "asinh", "negative", "abs"),
        *elementwise("tan", "asin", "acos", "atanh", domain=UNIT),
        *elementwise("acosh", domain=(1.25, 2.25)),
        *elementwise("fast_exp", "fast_tanh"),
        *elementwise("sign", "floor", "ceil", "round", "trunc", domain=REAL),
        *elementwise("identity"),
        # kernels in float32 only
        Case(
            "fast_erf",
            [np.float32([[-1.2, -0.3, 0.4, 0.9]])],
            lambda x: topi.fast_erf(x),
        ),
        Case("clip", [M], lambda x: topi.clip(x, -0.5, 0.7), domain=REAL),
        Case("cast", [M], lambda x: topi.cast(topi.cast(x, "float64") * x, "float64")),
        Case("elemwise_sum", [M, M], lambda x, y: topi.elemwise_sum([x, y, x])),
        Case("full_like", [M], lambda x: topi.full_like(x, 2.0)),
        Case("isnan", [M], lambda x: topi.isnan(x)),
        Case("isinf", [M], lambda x: topi.isinf(x)),
        Case("isfinite", [M], lambda x: topi.isfinite(x)),
        Case("reinterpret", [M], lambda x: topi.reinterpret(x, "int64")),
        Case(
            "fixed_point_multiply",
            [np.ones(3, "int32")],
            lambda x: topi.fixed_point_multiply(x, 1 << 30, 0),
        ),
        Case("bitwise_not", [np.ones(3, "int32")], lambda x: topi.bitwise_not(x)),
        Case("logical_not", [np.ones(3, "bool")], lambda x: topi.logical_not(x)),
    ],
    "Broadcasting": [
        *binary("add", "subtract", "multiply", "maximum", "minimum", "log_add_exp"),
        Case("divide", [M, V], lambda a, b: topi.divide(a, b)),
        Case("power", [M, V], lambda a, b: topi.power(a, b)),
        Case("atan2", [M, M], lambda a, b: topi.atan2(a, b)),
        Case("mod", [M, V], lambda a, b: topi.mod(a, b), domain=(0.3, 2.0)),
        Case("floor_mod", [M, V], lambda a, b: topi.floor_mod(a, b), domain=(0.3, 2.0)),
        Case("floor_divide", [M, V], lambda a, b: topi.floor_divide(a, b)),
        *binary("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
        *integer("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"),
        Case(
            "logical_and",
            [np.ones(2, "bool"), np.ones(2, "bool")],
            lambda a, b: topi.logical_and(a, b),
        ),
        Case(
            "logical_or",
            [np.ones(2, "bool"), np.ones(2, "bool")],
            lambda a, b: topi.logical_or(a, b),
        ),
        Case(
            "logical_xor",
            [np.ones(2, "bool"), np.ones(2, "bool")],
            lambda a, b: topi.logical_xor(a, b),
        ),
        Case("where", [M, M], lambda x, y: topi.where(topi.greater(x, y), x, y)),
        Case("broadcast_to", [(3, 1)], lambda x: topi.broadcast_to(x, (2, 3, 4))),
        Case("expand_like", [V], lambda a: topi.expand_like(a, te.placeholder((4, 3)), [1])),
    ],
    "Reductions": [
        *reduction("sum", "max", "min", "prod"),
        Case("collapse_sum", [M], lambda data: topi.collapse_sum(data, (4,))),
        Case("argmax", [M], lambda data: topi.argmax(data, axis=1)),
        Case("argmin", [M], lambda data: topi.argmin(data, axis=1)),
        Case("all", [np.ones(3, "bool")], lambda data: topi.all(data)),
        Case("any", [np.ones(3, "bool")], lambda data: topi.any(data)),
    ],
    "Linear algebra": [
        Case("matmul", [(2, 3), (3, 4)], lambda a, b: topi.matmul(a, b)),
        Case("matmul, transposed", [(3, 2), (4, 3)], lambda a, b: topi.matmul(a, b, True, True)),
        Case(
            "tensordot", [(2, 3, 4), (4, 3, 2)], lambda a, b: topi.tensordot(a, b, [[1, 2], [1, 0]])
        ),
        Case("einsum", [(2, 3, 4), (2, 4, 2)], lambda a, b: topi.einsum("bij,bjk->bik", a, b)),
        Case("einsum, diagonal", [(3, 3)], lambda a: topi.einsum("ii->i", a)),
        Case("einsum, trace", [(3, 3)], lambda a: topi.einsum("ii->", a)),
        Case("einsum, outer", [(3,), (2,)], lambda a, b: topi.einsum("i,j->ji", a, b)),
        Case(
            "nn.dense",
            [(2, 3), (4, 3), (4,)],
            lambda data, weight, bias: nn.dense(data, weight, bias),
        ),
        Case("nn.batch_matmul", [(2, 2, 3), (2, 4, 3)], lambda a, b: nn.batch_matmul(a, b)),
    ],
    "Shapes": [
        Case("reshape", [(3, 4)], lambda x: topi.reshape(x, (2, 6))),
        Case("transpose", [(2, 3, 4)], lambda x: topi.transpose(x, (2, 0, 1))),
        Case("expand_dims", [M], lambda x: topi.expand_dims(x, 1, 2)),
        Case("squeeze", [(1, 3, 1)], lambda x: topi.squeeze(x)),
        Case("flip", [M], lambda x: topi.flip(x, 1)),
        Case("concatenate", [(2, 3), (2, 4)], lambda a, b: topi.concatenate([a, b], 1)),
        Case("stack", [V, V], lambda a, b: topi.stack([a, b], 1)),
        Case("split", [(2, 6)], lambda x: topi.split(x, [1, 4], 1)[1]),
        Case(
            "tile",
            [(2, 3)],
            lambda x: topi.tile(x, (2, 2)),
        ),
        Case("dyn_tile", [(2, 3)], lambda a: topi.dyn_tile(a, (4, 6), 2)),
        Case("repeat", [(2, 3)], lambda x: topi.repeat(x, 2, 1)),
        Case("strided_slice", [(6, 5)], lambda x: topi.strided_slice(x, [1, 0], [6, 4], [2, 3])),
        Case(
            "strided_slice, backwards",
            [(6, 5)],
            lambda x: topi.strided_slice(x, [5, 4], [0, 0], [-2, -1]),
        ),
        Case(
            "strided_set",
            [(6,), (2,), ints(1), ints(5), ints(2)],
            lambda a, v, begin, end, strides: topi.strided_set(a, v, begin, end, strides),
        ),
        Case(
            "layout_transform", [(1, 4, 2, 2)], lambda x: topi.layout_transform(x, "NCHW", "NCHW2c")
        ),
        Case("meshgrid", [(3,), (2,)], lambda a, b: topi.meshgrid([a, b], "ij")[0]),
        Case(
            "sliding_window",
            [(1, 6)],
            lambda data: topi.sliding_window(data, 1, [3], [2]),
        ),
        Case("trilu", [(4, 4)], lambda data: topi.trilu(data, te.const(0, "int32"), True)),
        Case(
            "matrix_set_diag",
            [(3, 4), (3,)],
            lambda data, diagonal: topi.matrix_set_diag(data, diagonal),
        ),
        Case(
            "sequence_mask",
            [(4, 3), ints(2, 4, 1)],
            lambda data, length: topi.sequence_mask(data, length, 0.0, 0),
        ),
        Case("one_hot", [ints(0, 2, 1)], lambda i: topi.one_hot(i, 1.0, 0.0, 3, -1, "float64")),
        Case("nn.flatten", [(2, 3, 2)], lambda data: nn.flatten(data)),
        Case("nn.pad", [(2, 3)], lambda data: nn.pad(data, [1, 0], [0, 2], 0.5)),
        Case(
            "nn.mirror_pad",
            [(3, 4)],
            lambda data: nn.mirror_pad(data, [1, 2], [1, 1], "SYMMETRIC"),
        ),
        Case(
            "nn.mirror_pad, reflect",
            [(4,)],
            lambda data: nn.mirror_pad(data, [2], [1], "REFLECT"),
        ),
        Case(
            "nn.reflect_pad",
            [(4,)],
            lambda data: nn.reflect_pad(data, [2], [1]),
        ),
        Case(
            "nn.replicate_pad",
            [(3, 2)],
            lambda data: nn.replicate_pad(data, [1, 2], [2, 0]),
        ),
        Case("nn.circular_pad", [(4,)], lambda data: nn.circular_pad(data, [2], [1])),
        Case("nn.dilate", [(2, 3)], lambda data: nn.dilate(data, [2, 3])),
        Case("nn.space_to_depth", [(1, 2, 4, 4)], lambda data: nn.space_to_depth(data, 2)),
        Case("nn.depth_to_space", [(1, 4, 2, 2)], lambda data: nn.depth_to_space(data, 2)),
        Case(
            "nn.depth_to_space, CRD",
            [(1, 4, 2, 2)],
            lambda data: nn.depth_to_space(data, 2, mode="CRD"),
        ),
        Case(
            "nn.space_to_batch_nd",
            [(1, 4, 4, 1)],
            lambda data: nn.space_to_batch_nd(data, [2, 2], [0, 1], [0, 1]),
        ),
        Case(
            "nn.fifo_buffer", [(2, 2), (2, 5)], lambda data, buffer: nn.fifo_buffer(data, buffer, 1)
        ),
        Case(
            "nn.unpack_NCHWc_to_nchw",
            [(1, 2, 2, 2, 3)],
            lambda packed: nn.unpack_NCHWc_to_nchw(packed, "float64"),
        ),
    ],
    "Convolutions": [
        Case(
            "nn.conv1d_ncw",
            [(1, 2, 6), (3, 2, 3)],
            lambda data, kernel: nn.conv1d_ncw(data, kernel, 1, 1, 1, "float64"),
        ),
        Case(
            "nn.conv1d_nwc",
            [(1, 6, 2), (3, 2, 3)],
            lambda data, kernel: nn.conv1d_nwc(data, kernel, 1, 1, 1, "float64"),
        ),
        Case(
            "nn.group_conv1d_ncw",
            [(1, 4, 6), (4, 2, 3)],
            lambda data, kernel: nn.group_conv1d_ncw(data, kernel, 1, 1, 1, 2, "float64"),
        ),
        Case(
            "nn.conv2d_nchw",
            [IMAGE, (3, 2, 3, 3)],
            lambda data, kernel: nn.conv2d_nchw(data, kernel, 1, 1, 1),
        ),
        Case(
            "nn.conv2d_nchw, stride 2",
            [IMAGE, (3, 2, 3, 3)],
            lambda data, kernel: nn.conv2d_nchw(data, kernel, 2, 1, 1),
        ),
        Case(
            "nn.conv2d_nchw, dilation 2",
            [IMAGE, (3, 2, 2, 2)],
            lambda data, kernel: nn.conv2d_nchw(data, kernel, 1, 1, 2),
        ),
        Case(
            "nn.conv2d_nchw, stride 2, dilation 3",
            [IMAGE, (2, 2, 2, 2)],
            lambda data, kernel: nn.conv2d_nchw(data, kernel, 2, (0, 1), 3),
        ),
        Case(
            "nn.conv2d_nhwc",
            [(1, 5, 6, 2), (3, 3, 2, 3)],
            lambda data, kernel: nn.conv2d_nhwc(data, kernel, 1, 1, 1, "float64"),
        ),
        Case(
            "nn.conv2d_hwcn",
            [(5, 6, 2, 1), (3, 3, 2, 3)],
            lambda data, kernel: nn.conv2d_hwcn(data, kernel, 1, 1, 1, "float64"),
        ),
        Case(
            "nn.conv2d_NCHWc",
            [(1, 1, 4, 4, 2), (1, 1, 3, 3, 2, 2)],
            lambda data, kernel: packed_convolution(data, kernel),
        ),
        Case(
            "nn.conv2d_winograd_nchw",
            [(1, 1, 4, 4), (1, 1, 3, 3)],
            lambda data, kernel: nn.conv2d_winograd_nchw(data, kernel, 1, 1, 1, "float64"),
        ),
        Case(
            "nn.conv2d_winograd_nhwc",
            [(1, 4, 4, 1), (3, 3, 1, 1)],
            lambda data, kernel: nn.conv2d_winograd_nhwc(data, kernel, 1, 1, 1, "float64"),
        ),
        Case(
            "nn.group_conv2d_nchw",
            [(1, 4, 4, 4), (4, 2, 3, 3)],
            lambda data, kernel: nn.group_conv2d_nchw(data, kernel, 1, 1, 1, 2),
        ),
        Case(
            "nn.group_conv2d_nhwc",
            [(1, 4, 4, 4), (3, 3, 2, 4)],
            lambda data, kernel: nn.group_conv2d_nhwc(data, kernel, 1, 1, 1, 2),
        ),
        Case(
            "nn.depthwise_conv2d_nchw",
            [(1, 2, 4, 4), (2, 2, 3, 3)],
            lambda data, kernel: nn.depthwise_conv2d_nchw(data, kernel, 1, 1, 1, "float64"),
        ),
        Case(
            "nn.depthwise_conv2d_nhwc",
            [(1, 4, 4, 2), (3, 3, 2, 2)],
            lambda data, kernel: nn.depthwise_conv2d_nhwc(data, kernel, 1, 1, 1, "HWOI", "float64"),
        ),
        Case(
            "nn.depthwise_conv2d_backward_input_nhwc",
            [(3, 3, 2, 1), (1, 4, 4, 2)],
            lambda kernel, out_grad: nn.depthwise_conv2d_backward_input_nhwc(
                kernel, out_grad, (1, 4, 4, 2), (1, 4, 4, 2), 1, [1, 1, 1, 1]
            ),
        ),
        Case(
            "nn.depthwise_conv2d_backward_weight_nhwc",
            [(1, 4, 4, 2), (1, 4, 4, 2)],
            lambda data, out_grad: nn.depthwise_conv2d_backward_weight_nhwc(
                data, out_grad, (1, 4, 4, 2), (3, 3, 2, 1), 1, [1, 1, 1, 1]
            ),
        ),
        Case(
            "nn.conv3d_ncdhw",
            [(1, 1, 3, 3, 4), (2, 1, 2, 2, 2)],
            lambda data, kernel: nn.conv3d_ncdhw(data, kernel, 1, 1, 1, 1),
        ),
        Case(
            "nn.conv3d_ndhwc",
            [(1, 3, 3, 4, 1), (2, 2, 2, 1, 2)],
            lambda data, kernel: nn.conv3d_ndhwc(data, kernel, 1, 0, 1, 1, "float64"),
        ),
        Case(
            "nn.conv1d_transpose_ncw",
            [(1, 2, 4), (2, 3, 3)],
            lambda data, kernel: nn.conv1d_transpose_ncw(
                data, kernel, (2,), (1, 1), "float64", (0,)
            ),
        ),
        Case(
            "nn.group_conv1d_transpose_ncw",
            [(1, 4, 4), (4, 1, 3)],
            lambda data, kernel: nn.group_conv1d_transpose_ncw(
                data, kernel, (2,), (1, 1), "float64", (0,), 2
            ),
        ),
        Case(
            "nn.conv2d_transpose_nchw",
            [(1, 2, 3, 3), (2, 2, 3, 3)],
            lambda data, kernel: nn.conv2d_transpose_nchw(
                data, kernel, (2, 2), (1, 1, 1, 1), "float64", (0, 0)
            ),
        ),
        Case(
            "nn.group_conv2d_transpose_nchw",
            [(1, 2, 3, 3), (2, 1, 3, 3)],
            lambda data, kernel: nn.group_conv2d_transpose_nchw(
                data, kernel, (2, 2), (1, 1, 1, 1), "float64", (0, 0), 2
            ),
        ),
        Case(
            "nn.conv3d_transpose_ncdhw",
            [(1, 1, 2, 2, 2), (1, 1, 2, 2, 2)],
            lambda data, kernel: nn.conv3d_transpose_ncdhw(
                data, kernel, (2, 2, 2), (0, 0, 0), "float64", (0, 0, 0)
            ),
        ),
        Case(
            "nn.conv1d",
            [(1, 2, 6), (3, 2, 3)],
            lambda data, kernel: nn.conv1d(data, kernel, 2, 1, 1, 1, "NCW", "", "float64"),
        ),
        Case(
            "nn.group_conv1d_nwc",
            [(1, 6, 4), (3, 2, 4)],
            lambda data, kernel: nn.group_conv1d_nwc(data, kernel, 1, 1, 1, 2, "float64"),
        ),
        Case(
            "nn.conv2d",
            [IMAGE, (3, 2, 3, 3)],
            lambda input, filter: nn.conv2d(input, filter, 1, 1, 1),
        ),
        Case(
            "nn.conv2d_NCHWc_OIHWo",
            [(1, 1, 4, 4, 2), (1, 2, 3, 3, 2)],
            lambda data, kernel: packed_convolution(data, kernel, nn.conv2d_NCHWc_OIHWo),
        ),
        Case(
            "nn.group_conv3d_transpose_ncdhw",
            [(1, 2, 2, 2, 2), (2, 1, 2, 2, 2)],
            lambda data, kernel: nn.group_conv3d_transpose_ncdhw(
                data, kernel, (2, 2, 2), (0, 0, 0), "float64", (0, 0, 0), 2
            ),
        ),
        Case(
            "nn.correlation_nchw",
            [(1, 2, 4, 4), (1, 2, 4, 4)],
            lambda data1, data2: nn.correlation_nchw(data1, data2, 1, 1, 1, 1, 1, True),
        ),
        Case(
            "image.dilation2d_nchw",
            [(1, 1, 4, 4), (1, 2, 2)],
            lambda data, filter: image.dilation2d_nchw(data, filter, 1, 0, (1, 1), "float64"),
        ),
        Case(
            "image.dilation2d_nhwc",
            [(1, 4, 4, 1), (2, 2, 1)],
            lambda data, filter: image.dilation2d_nhwc(data, filter, 1, 0, (1, 1), "float64"),
        ),
    ],
    "Pooling": [
        Case(
            "nn.pool1d, max",
            [(1, 1, 6)],
            lambda data: nn.pool1d(data, [2], [2], [1], [0, 0], "max"),
        ),
        Case(
            "nn.pool1d, avg",
            [(1, 1, 6)],
            lambda data: nn.pool1d(data, [3], [2], [1], [1, 1], "avg"),
        ),
        Case(
            "nn.pool2d, max", [(1, 1, 4, 4)], lambda data: nn.pool2d(data, **POOL, pool_type="max")
        ),
        Case(
            "nn.pool2d, max, overlapping and padded",
            [(1, 1, 5, 5)],
            lambda data: nn.pool2d(data, [3, 3], [2, 2], [1, 1], [1, 1, 1, 1], "max"),
        ),
        Case(
            "nn.pool2d, avg", [(1, 1, 4, 4)], lambda data: nn.pool2d(data, **POOL, pool_type="avg")
        ),
        Case(
            "nn.pool2d, avg, without padding in the count",
            [(1, 1, 5, 5)],
            lambda data: nn.pool2d(
                data, [3, 3], [2, 2], [1, 1], [1, 1, 1, 1], "avg", count_include_pad=False
            ),
        ),
        Case(
            "nn.pool3d, max",
            [(1, 1, 2, 4, 2)],
            lambda data: nn.pool3d(data, [2] * 3, [2] * 3, [1] * 3, [0] * 6, "max"),
        ),
        Case("nn.global_pool, max", [(1, 2, 3, 3)], lambda data: nn.global_pool(data, "max")),
        Case("nn.global_pool, avg", [(1, 2, 3, 3)], lambda data: nn.global_pool(data, "avg")),
        Case(
            "nn.adaptive_pool, avg",
            [(1, 1, 5, 5)],
            lambda data: nn.adaptive_pool(data, [2, 3], "avg"),
        ),
        Case(
            "nn.adaptive_pool, max",
            [(1, 1, 5, 5)],
            lambda data: nn.adaptive_pool(data, [2, 3], "max"),
        ),
        Case("nn.adaptive_pool1d", [(1, 1, 5)], lambda data: nn.adaptive_pool1d(data, [2], "avg")),
        Case(
            "nn.adaptive_pool3d",
            [(1, 1, 3, 3, 3)],
            lambda data: nn.adaptive_pool3d(data, [2, 1, 1], "avg"),
        ),
        Case(
            "nn.pool_grad, avg",
            [(1, 1, 2, 2), (1, 1, 4, 4)],
            lambda grads, data: nn.pool_grad(grads, data, [2, 2], [2, 2], [0] * 4, "avg"),
        ),
        Case(
            "nn.pool_grad, max",
            [(1, 1, 2, 2), (1, 1, 4, 4)],
            lambda grads, data: nn.pool_grad(grads, data, [2, 2], [2, 2], [0] * 4, "max"),
        ),
    ],
    "Activations, normalisation and losses": [
        Case("nn.relu", [M], lambda x: nn.relu(x), domain=REAL),
        Case("nn.leaky_relu", [M], lambda x: nn.leaky_relu(x, 0.1), domain=REAL),
        Case("nn.prelu", [M, (4,)], lambda x, slope: nn.prelu(x, slope), domain=REAL),
        Case("nn.softplus", [M], lambda x: nn.softplus(x), domain=REAL),
        Case("nn.softmax", [M], lambda x: nn.softmax(x), order=2),
        Case("nn.softmax, axis 0", [M], lambda x: nn.softmax(x, 0)),
        Case("nn.fast_softmax", [M], lambda x: nn.fast_softmax(x)),
        Case("nn.log_softmax", [M], lambda x: nn.log_softmax(x), order=2),
        Case(
            "nn.batch_norm, training",
            [(2, 2, 2, 3), (2,), (2,), (2,), (2,)],
            lambda data, gamma, beta, mean, var: nn.batch_norm(
                data, gamma, beta, mean, var, training=True
            )[0],
        ),
        Case(
            "nn.batch_norm, inference",
            [(2, 2, 2, 3), (2,), (2,), (2,), (2,)],
            lambda data, gamma, beta, mean, var: nn.batch_norm(data, gamma, beta, mean, var)[0],
        ),
        Case(
            "nn.layer_norm",
            [(3, 4), (4,), (4,)],
            lambda data, gamma, beta: nn.layer_norm(data, gamma, beta, [1]),
            dtype="float32",
        ),
        Case(
            "nn.rms_norm",
            [(3, 4), (4,)],
            lambda data, weight: nn.rms_norm(data, weight, [1]),
            dtype="float32",
        ),
        Case(
            "nn.instance_norm",
            [(1, 2, 3, 2), (2,), (2,)],
            lambda data, gamma, beta: nn.instance_norm(data, gamma, beta, 1, [2, 3]),
            dtype="float32",
        ),
        Case(
            "nn.group_norm",
            [(1, 4, 2, 2), (4,), (4,)],
            lambda data, gamma, beta: nn.group_norm(data, gamma, beta, 2, 1, [2, 3]),
            dtype="float32",
        ),
        Case("nn.lrn", [(1, 4, 2, 2)], lambda data: nn.lrn(data, 3, 1, 0.1, 0.75, 2.0)),
        Case(
            "nn.scale_shift_nchw",
            [(1, 2, 2, 2), (2,), (2,)],
            lambda data, scale, shift: nn.scale_shift_nchw(data, scale, shift),
        ),
        Case(
            "nn.scale_shift_nhwc",
            [(1, 2, 2, 2), (2,), (2,)],
            lambda data, scale, shift: nn.scale_shift_nhwc(data, scale, shift),
        ),
        Case(
            "nn.scale_shift_nchwc",
            [(1, 2, 2, 2, 3), (2, 3), (2, 3)],
            lambda data, scale, shift: nn.scale_shift_nchwc(data, scale, shift),
        ),
        Case(
            "nn.nll_loss",
            [(3, 4), ints(2, 0, 3), (4,)],
            lambda predictions, targets, weights: nn.nll_loss(
                predictions, targets, weights, "mean", -100
            ),
        ),
        Case(
            "nn.lstm",
            [(2, 1, 3), (8, 3), (8, 2)],
            lambda Xs, Wi, Wh: nn.lstm(Xs, Wi, Wh)[0],
            dtype="float32",
        ),
    ],
    "Resampling": [
        Case(
            "nn.upsampling, nearest",
            [(1, 1, 3, 3)],
            lambda data: nn.upsampling(data, 2, 2, "NCHW", "nearest_neighbor"),
            dtype="float32",
        ),
        Case(
            "nn.upsampling, bilinear",
            [(1, 1, 3, 3)],
            lambda data: nn.upsampling(data, 2, 2, "NCHW", "bilinear"),
            dtype="float32",
        ),
        Case(
            "nn.upsampling3d",
            [(1, 1, 2, 2, 2)],
            lambda data: nn.upsampling3d(data, 2, 2, 2, "NCDHW", "nearest_neighbor"),
            dtype="float32",
        ),
        Case(
            "image.resize1d, linear",
            [(1, 1, 4)],
            lambda data: image.resize1d(data, [0.0] * 2, [6], "NCW", "linear"),
            dtype="float32",
        ),
        Case(
            "image.resize2d, nearest",
            [(1, 1, 3, 3)],
            lambda data: image.resize2d(
                data,
                [0.0] * 4,
                [6, 6],
                "NCHW",
                "nearest_neighbor",
                "asymmetric",
                out_dtype="float64",
            ),
            dtype="float32",
        ),
        Case(
            "image.resize2d, linear",
            [(1, 1, 3, 3)],
            lambda data: image.resize2d(data, [0.0] * 4, [4, 5], "NCHW", "linear"),
            dtype="float32",
        ),
        Case(
            "image.resize2d, cubic",
            [(1, 1, 3, 3)],
            lambda data: image.resize2d(data, [0.0] * 4, [4, 4], "NCHW", "cubic"),
            dtype="float32",
        ),
        Case(
            "image.resize3d, linear",
            [(1, 1, 2, 2, 2)],
            lambda data: image.resize3d(data, [0.0] * 6, [3, 3, 3], "NCDHW", "linear"),
            dtype="float32",
        ),
        Case("image.affine_grid", [THETA], lambda data: image.affine_grid(data, (3, 3))),
        Case(
            "image.grid_sample",
            [(1, 1, 4, 4), GRID],
            lambda data, grid: image.grid_sample(data, grid, "bilinear"),
        ),
        Case(
            "image.crop_and_resize",
            [(1, 4, 4, 1), np.float32([[0.1, 0.15, 0.8, 0.9]]), ints(0)],
            lambda data, boxes, indices: image.crop_and_resize(
                data, boxes, indices, (3, 3), "NHWC", "bilinear", 0.0
            ),
            dtype="float32",
        ),
        Case(
            "nn.deformable_conv2d_nchw",
            [(1, 1, 4, 4), np.full((1, 8, 3, 3), 0.3), (1, 1, 2, 2)],
            lambda data, offset, kernel: nn.deformable_conv2d_nchw(
                data, offset, kernel, 1, 0, 1, 1, 1, "float64"
            ),
        ),
        Case(
            "nn.deformable_conv2d_nhwc",
            [(1, 4, 4, 1), np.full((1, 3, 3, 8), 0.3), (2, 2, 1, 1)],
            lambda data, offset, kernel: nn.deformable_conv2d_nhwc(
                data, offset, kernel, 1, 0, 1, 1, 1, "float64"
            ),
        ),
        Case(
            "vision.roi_align_nchw",
            [(1, 1, 4, 4), ROIS],
            lambda data, rois: vision.roi_align_nchw(data, rois, (1, 1), 1.0, 0, 2),
        ),
        Case(
            "vision.roi_align",
            [(1, 1, 4, 4), ROIS],
            lambda data, rois: vision.roi_align(data, rois, (1, 1), 1.0, "avg", 2),
        ),
        Case(
            "vision.roi_align_nhwc",
            [(1, 4, 4, 1), ROIS],
            lambda data, rois: vision.roi_align_nhwc(data, rois, (1, 1), 1.0, 0, 2),
        ),
        Case(
            "vision.roi_pool",
            [(1, 1, 4, 4), ROIS],
            lambda data, rois: vision.roi_pool(data, rois, (2, 2), 1.0),
        ),
        Case(
            "vision.roi_pool_nchw",
            [(1, 1, 4, 4), ROIS],
            lambda data, rois: vision.roi_pool_nchw(data, rois, (2, 2), 1.0),
        ),
    ],
    "Indexing by data": [
        Case(
            "take",
            [(4, 3), ints(1, 1, 3)],
            lambda a, indices: topi.take(a, indices, 0),
        ),
        Case(
            "take, clipped",
            [(4,), ints(1, 1, 7)],
            lambda a, indices: topi.take(a, indices, 0, mode="clip"),
        ),
        Case(
            "gather",
            [(3, 2), np.array([[0, 2], [1, 1]], "int32")],
            lambda data, indices: topi.gather(data, 0, indices),
        ),
        Case(
            "gather_nd",
            [(3, 4), np.array([[0, 2, 2], [1, 3, 3]], "int32")],
            lambda a, indices: topi.gather_nd(a, indices),
        ),
        Case(
            "adv_index",
            [(3, 4), ints(0, 2, 2), ints(1, 3, 3)],
            lambda data, i, j: topi.adv_index(data, [i, j]),
        ),
        Case(
            "index_tensor",
            [(3, 4), ints(0, 2, 2), ints(1, 3, 3)],
            lambda data, i, j: topi.index_tensor(data, [i, j]),
        ),
        Case(
            "reverse_sequence",
            [(4, 2), ints(3, 1)],
            lambda a, lengths: topi.reverse_sequence(a, lengths, 0, 1),
        ),
        Case(
            "dynamic_strided_slice",
            [(6,), ints(1, dtype="int64"), ints(5, dtype="int64"), ints(2, dtype="int64")],
            lambda a, begin, end, strides: topi.dynamic_strided_slice(a, begin, end, strides, [2]),
        ),
        Case(
            "slice_scatter",
            [(5,), (2,)],
            lambda data, src: topi.slice_scatter(data, src, 1, 5, 2, 0)[0],
        ),
        Case(
            "unravel_index", [ints(3, 5), ints(2, 4)], lambda i, shape: topi.unravel_index(i, shape)
        ),
    ],
    "Scans, sorting and scattering": [
        Case(
            "sparse_to_dense",
            [ints(1, 3), (2,)],
            lambda indices, values: topi.sparse_to_dense(
                indices, [4], values, te.const(0, "float64")
            ),
        ),
        Case(
            "stft",
            [(1, 8), (4,)],
            lambda data, window: topi.stft(data, 4, 2, 4, window, False, True, [1, 3, 3, 2]),
        ),
        Case("cumsum", [V], lambda data: topi.cumsum(data)),
        Case("cumprod", [V], lambda data: topi.cumprod(data)),
        Case("sort", [PERMUTED], lambda data: topi.sort(data)),
        Case("argsort", [PERMUTED], lambda data: topi.argsort(data, dtype="int32")),
        Case("topk", [PERMUTED], lambda data: topi.topk(data, 2)[0]),
        Case(
            "scatter_elements",
            [(4,), ints(1, 3), (2,)],
            lambda data, indices, updates: topi.scatter_elements(data, indices, updates),
        ),
        Case(
            "scatter_nd",
            [(4,), np.array([[1, 3]], "int32"), (2,)],
            lambda data, indices, updates: topi.scatter_nd(data, indices, updates, "add"),
        ),
        Case(
            "index_put",
            [(4,), ints(1, 3), (2,)],
            lambda data, indices, values: topi.index_put(data, [indices], values),
        ),
        Case(
            "searchsorted",
            [SORTED, np.array([0.5, 2.5])],
            lambda sequence, values: topi.searchsorted(sequence, values),
        ),
        Case("dft", [V, V], lambda re, im: topi.dft(re, im, False)[0]),
    ],
}

#: functions that are no operators on tensors of floats: reason → names
NOT_OPERATORS: dict[str, list[str]] = {
    "make a tensor out of numbers": ["arange", "eye", "full", "hamming_window"],
    "tell the shape of a tensor": ["shape", "tensor_size"],
    "meant for integers, or rounding to them": [
        *("nn.simulated_quantize", "nn.simulated_dequantize"),
        *("ceil_log2", "fixed_point_multiply_per_axis", "sparse_reshape", "nn.binarize_pack"),
        *("nn.binary_dense", "nn.bitpack", "nn.bitserial_conv2d_nchw", "nn.bitserial_conv2d_nhwc"),
        *("nn.bitserial_dense", "nn.conv2d_NCHWc_int8"),
    ],
    "choose boxes by comparing them, with opaque loops": [
        *("vision.all_class_non_max_suppression", "vision.collect_selected_indices"),
        *("vision.collect_selected_indices_and_scores", "vision.get_valid_counts"),
        *(
            "vision.multibox_transform_loc",
            "vision.non_max_suppression",
            "vision.run_all_class_nms",
        ),
    ],
    "parts of operators, or other names of them": [
        *(
            "binary_search",
            "const_vector",
            "div",
            "get_const_tuple",
            "make_idx",
            "scanop",
            "within_index",
        ),
        *("image.can_convert_multiply_to_intdiv", "image.get_1d_indices", "image.get_1d_pixel"),
        *("image.get_2d_indices", "image.get_2d_pixel", "image.get_3d_indices"),
        *("image.get_3d_pixel", "image.get_closest_index", "image.get_inx", "image.get_pad_tuple"),
        *("image.nchw_pack_layout", "image.nchw_xc_layout", "image.pad", "image.simplify"),
        *("nn.conv", "nn.conv2d_transpose_nchw_preprocess"),
        *("nn.conv2d_winograd_nchw_without_weight_transform",),
        *("nn.conv2d_winograd_nhwc_without_weight_transform",),
        *("nn.conv3d_transpose_ncdhw_preprocess", "nn.declaration_conv2d_transpose_impl"),
        *("nn.declaration_conv3d_transpose_impl", "nn.equal_const_int", "nn.get_const_int"),
        *("nn.get_pad_tuple", "nn.get_pad_tuple1d", "nn.get_pad_tuple3d"),
        *("nn.get_pad_tuple_generic", "nn.get_padded_shape", "nn.simplify", "nn.softmax_common"),
        *("nn.winograd_transform_matrices", "nn.conv2d_winograd_weight_transform"),
        "nn.conv3d_winograd_weight_transform",
    ],
}

#: operators that cannot be used with this TVM at all: reason → names
NOT_USABLE: dict[str, list[str]] = {
    "end the process when they are built": ["nn.batch_to_space_nd"],
    "raise a NameError when they are built": ["nn.dense_pack"],
    "need a schedule registered for their target": ["nn.depthwise_conv2d_NCHWc"],
}
