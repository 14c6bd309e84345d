"""Images, sequences and volumes: convolutions, pools, resizing, padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, topi

from ..suite.case import Case, Input


def convolution(
    x: tuple[int, ...],
    w: tuple[int, ...],
    stride: int = 1,
    padding: int = 0,
    groups: int = 1,
    transposed: bool = False,
) -> Case:
    """Both gradients of a convolution of any rank; filters as PyTorch has them."""
    rank = len(x) - 2
    out = tuple(
        (size - 1) * stride - 2 * padding + width
        if transposed
        else (size + 2 * padding - width) // stride + 1
        for size, width in zip(x[2:], w[2:], strict=True)
    )
    filters = w[1] * groups if transposed else w[0]

    def ours(data: Any, weight: Any) -> Any:
        if transposed:
            return topi.nn.conv2d_transpose_nchw(
                data, weight, (stride,) * 2, (padding,) * 2, "float32", (0, 0)
            )
        if groups > 1:
            return topi.nn.group_conv2d_nchw(data, weight, stride, padding, 1, groups)
        convolve = (topi.nn.conv1d_ncw, topi.nn.conv2d_nchw, topi.nn.conv3d_ncdhw)[rank - 1]
        if rank == 3:
            return convolve(data, weight, stride, padding, 1, 1)
        return convolve(data, weight, stride, padding, 1)

    def in_jax(jax: Any, data: Any, weight: Any) -> Any:
        letters = "DHW"[3 - rank :]
        layout = ("NC" + letters, ("IO" if transposed else "OI") + letters, "NC" + letters)
        if transposed:
            flipped = weight[..., ::-1, ::-1]
            ends = [(width - 1 - padding,) * 2 for width in w[2:]]
            return jax.lax.conv_general_dilated(
                data, flipped, (1,) * rank, ends, (stride,) * rank, dimension_numbers=layout
            )
        return jax.lax.conv_general_dilated(
            data,
            weight,
            (stride,) * rank,
            [(padding,) * 2] * rank,
            dimension_numbers=layout,
            feature_group_count=groups,
        )

    def eager(torch: Any, data: Any, weight: Any, head: Any) -> Any:
        return torch.ops.aten.convolution_backward(
            head,
            data,
            weight,
            None,
            [stride] * rank,
            [padding] * rank,
            [1] * rank,
            transposed,
            [0] * rank,
            groups,
            [True, True, False],
        )[:2]

    options = {"stride": stride, "padding": padding, "groups": groups}
    return Case(
        inputs={"x": Input(x), "w": Input(w)},
        wrt=("x", "w"),
        head=Input((x[0], filters, *out)),
        derivative="pullback",
        te=ours,
        torch=lambda torch, data, weight: getattr(
            torch.nn.functional, f"conv{'_transpose' if transposed else ''}{rank}d"
        )(data, weight, **options),
        jax=in_jax,
        eager=eager,
        channels_last=rank == 2,
        tolerance=2e-4,
    )


def pool(
    shape: tuple[int, ...], size: int, stride: int, padding: int, kind: str, rank: int = 2
) -> Case:
    """The gradient of a maximum or a mean over windows."""
    out = tuple((extent + 2 * padding - size) // stride + 1 for extent in shape[2:])

    def ours(x: Any) -> Any:
        function = (topi.nn.pool1d, topi.nn.pool2d, topi.nn.pool3d)[rank - 1]
        layout = ("NCW", "NCHW", "NCDHW")[rank - 1]
        many = (stride,) * rank
        ends = (padding,) * 2 * rank
        return function(x, (size,) * rank, many, (1,) * rank, ends, kind, False, layout, False)

    def in_torch(torch: Any, x: Any) -> Any:
        name = f"{kind}_pool{rank}d"
        return getattr(torch.nn.functional, name)(x, size, stride, padding,
                                                  **_counted(kind))  # fmt: skip

    def in_jax(jax: Any, x: Any) -> Any:
        window = (1, 1, *(size,) * rank), (1, 1, *(stride,) * rank)
        ends = ((0, 0), (0, 0), *((padding, padding),) * rank)
        if kind == "max":
            return jax.lax.reduce_window(x, -jax.numpy.inf, jax.lax.max, *window, ends)
        total = jax.lax.reduce_window(x, 0.0, jax.lax.add, *window, ends)
        counts = jax.lax.reduce_window(jax.numpy.ones_like(x), 0.0, jax.lax.add, *window, ends)
        return total / counts

    return Case(
        inputs={"x": Input(shape)},
        wrt=("x",),
        head=Input((*shape[:2], *out)),
        derivative="pullback",
        te=ours,
        torch=in_torch,
        jax=in_jax,
        channels_last=rank == 2,
    )


def _counted(kind: str) -> dict[str, bool]:
    return {} if kind == "max" else {"count_include_pad": False}


def simple(
    shape: tuple[int, ...], out: tuple[int, ...], ours: Any, torch: Any, jax: Any, **options: Any
) -> Case:
    """The gradient of a function of one tensor."""
    return Case(
        inputs={"x": Input(shape)},
        wrt=("x",),
        head=Input(out),
        derivative="pullback",
        te=ours,
        torch=torch,
        jax=jax,
        **options,
    )


def _depthwise() -> Case:
    case = convolution((4, 64, 28, 28), (64, 1, 3, 3), 1, 1, 64)
    # the operator's own form of filters: [channels, multiplier, height, width]
    return Case(
        **{
            **vars(case),
            "te": lambda x, w: topi.nn.depthwise_conv2d_nchw(x, w, (1, 1), (1, 1), (1, 1)),
        }
    )


def _nearest(x: Any) -> Any:
    n, c, h, w = (int(extent) for extent in x.shape)
    return te.compute((n, c, 2 * h, 2 * w), lambda n, c, i, j: x[n, c, i // 2, j // 2], name="up")


CASES: dict[str, Callable[[], Case]] = {
    "conv1x1-4x64x28x28-128": lambda: convolution((4, 64, 28, 28), (128, 64, 1, 1)),
    "conv1x1-1x128x14x14-17": lambda: convolution((1, 128, 14, 14), (17, 128, 1, 1)),
    "conv3x3-1x17x30x30-64": lambda: convolution((1, 17, 30, 30), (64, 17, 3, 3), 1, 1),
    "conv3x3-2x128x14x14-128": lambda: convolution((2, 128, 14, 14), (128, 128, 3, 3), 1, 1),
    "conv3x3-4x3x64x64-32": lambda: convolution((4, 3, 64, 64), (32, 3, 3, 3), 1, 1),
    "conv5x5-4x16x24x24-32": lambda: convolution((4, 16, 24, 24), (32, 16, 5, 5), 1, 2),
    "conv7x7-stride2-2x3x112x112-64": lambda: convolution((2, 3, 112, 112), (64, 3, 7, 7), 2, 3),
    "conv-grouped-4x64x28x28-4": lambda: convolution((4, 64, 28, 28), (64, 16, 3, 3), 1, 1, 4),
    "conv-depthwise-4x64x28x28": _depthwise,
    "conv1d-8x32x256-48-5": lambda: convolution((8, 32, 256), (48, 32, 5), 1, 2),
    "conv3d-2x8x12x12x12-16": lambda: convolution((2, 8, 12, 12, 12), (16, 8, 3, 3, 3), 1, 1),
    "conv-transposed-2x32x14x14-16": lambda: convolution(
        (2, 32, 14, 14), (32, 16, 4, 4), 2, 1, transposed=True
    ),
    "maxpool3-stride1-4x16x28x28": lambda: pool((4, 16, 28, 28), 3, 1, 1, "max"),
    "maxpool1d-8x32x512": lambda: pool((8, 32, 512), 4, 4, 0, "max", 1),
    "maxpool3d-2x8x16x16x16": lambda: pool((2, 8, 16, 16, 16), 2, 2, 0, "max", 3),
    "avgpool5-stride2-4x16x31x31": lambda: pool((4, 16, 31, 31), 5, 2, 2, "avg"),
    "avgpool-global-32x64x7x7": lambda: simple(
        (32, 64, 7, 7),
        (32, 64, 1, 1),
        lambda x: topi.nn.global_pool(x, "avg"),
        lambda torch, x: x.mean((2, 3), keepdim=True),
        lambda jax, x: x.mean((2, 3), keepdims=True),
    ),
    "maxpool-global-32x64x14x14": lambda: simple(
        (32, 64, 14, 14),
        (32, 64, 1, 1),
        lambda x: topi.nn.global_pool(x, "max"),
        lambda torch, x: torch.nn.functional.adaptive_max_pool2d(x, 1),
        lambda jax, x: x.max((2, 3), keepdims=True),
    ),
    "avgpool-adaptive-8x64x14x14-4": lambda: simple(
        (8, 64, 16, 16),
        (8, 64, 4, 4),
        lambda x: topi.nn.adaptive_pool(x, (4, 4), "avg"),
        lambda torch, x: torch.nn.functional.adaptive_avg_pool2d(x, 4),
        lambda jax, x: x.reshape(8, 64, 4, 4, 4, 4).mean((3, 5)),
    ),
    "upsample-nearest-4x32x28x28": lambda: simple(
        (4, 32, 28, 28),
        (4, 32, 56, 56),
        _nearest,
        lambda torch, x: torch.nn.functional.interpolate(x, scale_factor=2),
        lambda jax, x: jax.numpy.repeat(jax.numpy.repeat(x, 2, 2), 2, 3),
    ),
    "resize-bilinear-2x16x32x32": lambda: simple(
        (2, 16, 32, 32),
        (2, 16, 64, 64),
        lambda x: topi.image.resize2d(
            x, [0.0] * 4, (64, 64), "NCHW", "linear", "half_pixel", "round"
        ),
        lambda torch, x: torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear"),
        lambda jax, x: jax.image.resize(x, (2, 16, 64, 64), "bilinear"),
    ),
    "pad-8x16x60x60": lambda: simple(
        (8, 16, 60, 60),
        (8, 16, 66, 66),
        lambda x: topi.nn.pad(x, (0, 0, 3, 3), (0, 0, 3, 3)),
        lambda torch, x: torch.nn.functional.pad(x, (3, 3, 3, 3)),
        lambda jax, x: jax.numpy.pad(x, ((0, 0), (0, 0), (3, 3), (3, 3))),
    ),
}
