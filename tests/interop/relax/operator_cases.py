"""Every operator of Relax as a small example: the table behind docs/reference/relax_operators.md.

`CASES` has a call of each operator that has a legaliser but no gradient in TVM, and the range of
its inputs. `NO_FLOATS` lists the operators that are not functions of float tensors, with the
reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, tirx

R = relax.op
POSITIVE, REAL, UNIT = (0.25, 1.25), (-1.5, 1.5), (-0.9, 0.9)


@dataclass(frozen=True)
class OperatorCase:
    """One call of an operator.

    Attributes
    ----------
    name : str
        Name of the operator, without ``relax.``.
    inputs : sequence of tuples or arrays
        A shape stands for random floats in `domain`, an array for itself.
    make : callable
        Makes the call from one Relax variable per input.
    domain : (float, float)
    dtype : str
        Dtype of the random inputs; some legalisers are written for float32 only.
    symbolic : bool
        Whether TVM's legaliser takes a symbolic first dimension.
    """

    name: str
    inputs: Sequence[Any]
    make: Callable[..., Any]
    domain: tuple[float, float] = REAL
    dtype: str = "float64"
    symbolic: bool = True

    def arrays(self) -> list[np.ndarray]:
        """The inputs, spaced so that no maximum of a small window is close to a tie."""
        rng = np.random.default_rng(0)
        low, high = self.domain
        found = []
        for one in self.inputs:
            if isinstance(one, np.ndarray):
                found.append(one)
                continue
            count = int(np.prod(one, dtype=int))
            places = rng.permutation(count) + rng.uniform(0.3, 0.7, count)
            values = low + (high - low) * places / count
            found.append(values.reshape(one).astype(self.dtype))
        return found


def ints(values: Any, dtype: str = "int64") -> np.ndarray:
    return np.array(values, dtype)


def unary(*names: str, domain: tuple[float, float] = REAL) -> list[OperatorCase]:
    return [
        OperatorCase(name, [(3, 4)], lambda x, name=name: getattr(R, name)(x), domain)
        for name in names
    ]


def binary(*names: str, domain: tuple[float, float] = POSITIVE) -> list[OperatorCase]:
    return [
        OperatorCase(name, [(3, 4), (4,)], lambda x, y, name=name: getattr(R, name)(x, y), domain)
        for name in names
    ]


def reduction(*names: str) -> list[OperatorCase]:
    return [
        OperatorCase(name, [(2, 3, 4)], lambda x, name=name: getattr(R, name)(x, [1, 2]), POSITIVE)
        for name in names
    ]


THETA = np.array([[[0.7, 0.1, 0.05], [-0.2, 0.6, 0.1]]])
#: points inside of the image and away from its pixels, where interpolation has kinks
GRID = np.array(
    [[[[-0.6, 0.05, 0.3], [-0.3, 0.62, -0.05]], [[-0.6, -0.2, 0.2], [0.55, -0.55, 0.1]]]]
)
ROIS = np.array([[0.0, 0.2, 0.3, 3.3, 2.9]], "float32")
IMAGE = (1, 2, 5, 6)

CASES: list[OperatorCase] = [
    *unary("asin", "acos", "atanh", "tan", domain=UNIT),
    *unary("asinh", "atan", "cosh", "sinh", "erf", "square"),
    *unary("ceil", "floor", "round", "sign", "trunc"),
    *unary("rsqrt", domain=POSITIVE),
    *unary("acosh", domain=(1.25, 2.25)),
    OperatorCase(
        "clip",
        [(3, 4)],
        lambda x: R.clip(x, tirx.const(-0.5, "float64"), tirx.const(0.7, "float64")),
    ),
    *binary("atan2", "log_add_exp", "floor_divide", "floor_mod", "mod"),
    *reduction("max", "min", "prod", "std"),
    OperatorCase("median", [(3, 5)], lambda x: R.median(x, [1])),
    OperatorCase("collapse_sum_like", [(3, 4), (4,)], R.collapse_sum_like),
    OperatorCase("collapse_sum_to", [(3, 4)], lambda x: R.collapse_sum_to(x, (4,))),
    OperatorCase("einsum", [(3, 4), (4, 5)], lambda x, y: R.einsum((x, y), "ij,jk->ik")),
    OperatorCase("outer", [(3,), (4,)], R.outer),
    OperatorCase("flatten", [(2, 3, 2)], R.flatten),
    OperatorCase("flip", [(3, 4)], lambda x: R.flip(x, 1)),
    OperatorCase("repeat", [(2, 3)], lambda x: R.repeat(x, 2, 1)),
    OperatorCase("tile", [(2, 3)], lambda x: R.tile(x, (2, 2))),
    OperatorCase("tril", [(3, 4)], lambda x: R.tril(x, 1)),
    OperatorCase("squeeze", [(3, 1, 4)], lambda x: R.squeeze(x, [1])),
    OperatorCase("stack", [(3, 4), (3, 4)], lambda x, y: R.stack([x, y], 1)),
    OperatorCase("meshgrid", [(3,), (4,)], lambda x, y: R.meshgrid([x, y]), symbolic=False),
    OperatorCase("strided_slice", [(3, 7)], lambda x: R.strided_slice(x, [1], [1], [6], [2])),
    OperatorCase(
        "slice_scatter",
        [(6, 4), (2, 4)],
        lambda x, y: R.slice_scatter(x, y, 1, 5, 2),
        symbolic=False,
    ),
    OperatorCase(
        "layout_transform",
        [(4, 6)],
        lambda x: R.layout_transform(x, lambda i, j: (j // 2, i, j % 2)),
        symbolic=False,
    ),
    OperatorCase(
        "gather_elements",
        [(3, 4), ints([[0, 3, 3], [1, 1, 2], [2, 0, 1]])],
        lambda x, i: R.gather_elements(x, i, 1),
        symbolic=False,
    ),
    OperatorCase(
        "gather_nd", [(3, 4), ints([[0, 3], [2, 1], [0, 3]])], R.gather_nd, symbolic=False
    ),
    OperatorCase(
        "index_tensor",
        [(3, 4), ints([0, 2, 2])],
        lambda x, i: R.index_tensor(x, [i]),
        symbolic=False,
    ),
    OperatorCase(
        "index_put",
        [(5,), ints([0, 2]), (2,)],
        lambda x, i, v: R.index_put(x, (i,), v),
        symbolic=False,
    ),
    OperatorCase(
        "scatter_elements",
        [(3, 4), ints([[0, 1, 2, 0]]), (1, 4)],
        R.scatter_elements,
        symbolic=False,
    ),
    OperatorCase("scatter_nd", [(5,), ints([[0], [2]]), (2,)], R.scatter_nd, symbolic=False),
    OperatorCase("reverse_sequence", [(3, 4), ints([2, 4, 3])], R.reverse_sequence, symbolic=False),
    OperatorCase(
        "dequantize",
        [ints([[1, 2, 3], [4, 5, 6]], "int8"), (3,), ints([0, 1, 2], "int8")],
        R.dequantize,
        dtype="float32",
    ),
    *[
        OperatorCase(f"nn.{name}", [(3, 4)], lambda x, name=name: getattr(R.nn, name)(x))
        for name in ("gelu", "gelu_tanh", "selu", "leakyrelu", "softplus", "dropout")
    ],
    OperatorCase("nn.prelu", [(2, 3, 2), (3,)], R.nn.prelu),
    OperatorCase("nn.batch_flatten", [(2, 3, 2)], R.nn.batch_flatten),
    OperatorCase("nn.pad", [(2, 3)], lambda x: R.nn.pad(x, [0, 0, 1, 2])),
    OperatorCase(
        "nn.layer_norm",
        [(3, 5), (5,), (5,)],
        lambda x, g, b: R.nn.layer_norm(x, g, b, [-1]),
        dtype="float32",
    ),
    OperatorCase(
        "nn.rms_norm", [(3, 5), (5,)], lambda x, g: R.nn.rms_norm(x, g, [-1]), dtype="float32"
    ),
    OperatorCase(
        "nn.group_norm",
        [(2, 4, 3), (4,), (4,)],
        lambda x, g, b: R.nn.group_norm(x, g, b, 2, 1, [2]),
        dtype="float32",
    ),
    OperatorCase(
        "nn.instance_norm",
        [(2, 3, 4), (3,), (3,)],
        lambda x, g, b: R.nn.instance_norm(x, g, b, 1, [2]),
        dtype="float32",
    ),
    OperatorCase(
        "nn.batch_norm",
        [(3, 2, 4), (2,), (2,), (2,), (2,)],
        lambda x, g, b, m, v: R.nn.batch_norm(x, g, b, m, v, 1),
        POSITIVE,
    ),
    OperatorCase(
        "nn.attention",
        [(1, 3, 2, 4), (1, 5, 2, 4), (1, 5, 2, 3)],
        lambda q, k, v: R.nn.attention(q, k, v),
    ),
    OperatorCase(
        "nn.attention_bias",
        [(1, 3, 2, 4), (1, 3, 2, 4), (1, 3, 2, 4), (1, 2, 3, 3)],
        lambda q, k, v, b: R.nn.attention(q, k, v, b, causal_mask="TopLeft"),
    ),
    OperatorCase("nn.conv1d", [(2, 2, 7), (3, 2, 3)], lambda x, w: R.nn.conv1d(x, w, 2, 1)),
    OperatorCase(
        "nn.conv3d", [(1, 2, 4, 3, 5), (2, 2, 2, 2, 3)], lambda x, w: R.nn.conv3d(x, w, padding=1)
    ),
    OperatorCase(
        "nn.conv1d_transpose",
        [(2, 2, 4), (2, 3, 3)],
        lambda x, w: R.nn.conv1d_transpose(x, w, 2, 1),
    ),
    OperatorCase(
        "nn.conv2d_transpose",
        [(1, 2, 3, 4), (2, 3, 2, 3)],
        lambda x, w: R.nn.conv2d_transpose(x, w, (2, 1)),
    ),
    OperatorCase(
        "nn.conv3d_transpose",
        [(1, 2, 2, 3, 2), (2, 2, 2, 2, 2)],
        lambda x, w: R.nn.conv3d_transpose(x, w, (2, 1, 1)),
    ),
    OperatorCase("nn.max_pool1d", [(2, 2, 8)], lambda x: R.nn.max_pool1d(x, 3, 2, 1)),
    OperatorCase("nn.max_pool3d", [(1, 1, 4, 4, 4)], lambda x: R.nn.max_pool3d(x, 2, 2)),
    OperatorCase("nn.avg_pool1d", [(2, 2, 8)], lambda x: R.nn.avg_pool1d(x, 3, 2, 1)),
    OperatorCase("nn.avg_pool3d", [(1, 1, 4, 4, 4)], lambda x: R.nn.avg_pool3d(x, 2, 2)),
    OperatorCase("nn.adaptive_avg_pool1d", [(1, 2, 7)], lambda x: R.nn.adaptive_avg_pool1d(x, 3)),
    OperatorCase("nn.adaptive_avg_pool2d", [IMAGE], lambda x: R.nn.adaptive_avg_pool2d(x, (2, 4))),
    OperatorCase(
        "nn.adaptive_avg_pool3d", [(1, 1, 3, 4, 5)], lambda x: R.nn.adaptive_avg_pool3d(x, 2)
    ),
    OperatorCase("image.resize2d", [IMAGE], lambda x: R.image.resize2d(x, (3, 8)), dtype="float32"),
    OperatorCase(
        "image.resize3d",
        [(1, 1, 3, 4, 2)],
        lambda x: R.image.resize3d(x, (4, 3, 3)),
        dtype="float32",
        symbolic=False,
    ),
    OperatorCase("image.grid_sample", [IMAGE, GRID], R.image.grid_sample, symbolic=False),
    OperatorCase(
        "image.affine_grid", [THETA], lambda x: R.image.affine_grid(x, (3, 4)), symbolic=False
    ),
    OperatorCase(
        "vision.roi_align",
        [IMAGE, ROIS],
        lambda x, r: R.vision.roi_align(x, r, (2, 2), 1.0, 2),
        dtype="float32",
        symbolic=False,
    ),
    OperatorCase(
        "vision.roi_pool",
        [IMAGE, ROIS],
        lambda x, r: R.vision.roi_pool(x, r, (2, 2), 1.0),
        dtype="float32",
        symbolic=False,
    ),
    OperatorCase(
        "vision.multibox_transform_loc",
        [(1, 3, 4), (1, 16), (1, 4, 4)],
        R.vision.multibox_transform_loc,
        dtype="float32",
        symbolic=False,
    ),
    OperatorCase(
        "vision.get_valid_counts",
        [(1, 3, 6)],
        R.vision.get_valid_counts,
        dtype="float32",
        symbolic=False,
    ),
    OperatorCase(
        "vision.non_max_suppression",
        [(1, 3, 6), ints([3], "int32"), ints([[0, 1, 2]], "int32")],
        lambda *args: R.vision.non_max_suppression(*args, return_indices=False),
        dtype="float32",
        symbolic=False,
    ),
    OperatorCase(
        "grad.avg_pool2d_backward",
        [(1, 1, 2, 3), (1, 1, 4, 6)],
        lambda g, x: R.grad.avg_pool2d_backward(g, x, (2, 2), (2, 2)),
    ),
    OperatorCase(
        "grad.max_pool2d_backward",
        [(1, 1, 2, 3), (1, 1, 4, 6)],
        lambda g, x: R.grad.max_pool2d_backward(g, x, (2, 2), (2, 2)),
    ),
    OperatorCase(
        "grad.nll_loss_backward",
        [(), (3, 4), ints([1, 0, 3]), (4,)],
        R.grad.nll_loss_backward,
        symbolic=False,
    ),
    OperatorCase(
        "grad.take_backward",
        [(3, 2), (3, 4), ints([1, 3])],
        lambda g, x, i: R.grad.take_backward(g, x, i, 1),
        symbolic=False,
    ),
]

#: operators with no derivative, whatever they are called with → why
NO_FLOATS: dict[str, Sequence[str]] = {
    "its results are integers or conditions": (
        *("argmax", "argmin", "bucketize", "isfinite", "isinf", "isnan", "quantize", "size"),
        *("shape_to_tensor", "vision.all_class_non_max_suppression"),
    ),
    "its inputs are integers or conditions": (
        *("bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"),
        *("logical_and", "logical_not", "logical_or", "logical_xor", "one_hot"),
    ),
    "it reads no tensor": ("arange", "eye", "eye_like", "hamming_window"),
    "it reads the header of an array": (
        *("inspect.tensor_byte_offset", "inspect.tensor_dtype_bits", "inspect.tensor_dtype_code"),
        *("inspect.tensor_dtype_lanes", "inspect.tensor_elem_offset", "inspect.tensor_ndim"),
        *("inspect.tensor_shape_i", "inspect.tensor_stride_i"),
    ),
    "it communicates between devices": (
        *("ccl.allgather", "ccl.allreduce", "ccl.broadcast_from_worker0"),
        *("ccl.scatter_from_worker0", "dist.redistribute_replica_to_shard"),
    ),
    "TVM's legaliser refuses every call of it": ("nn.attention_var_len", "nn.pixel_shuffle"),
    "the shape of its result is data": ("dynamic_strided_slice",),
    "a mark that `Gradient` itself reads": (
        *("grad.no_grad", "grad.start_checkpoint", "grad.end_checkpoint"),
    ),
}
