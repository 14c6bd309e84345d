"""Cases of one convolution: both gradients, with stride, with dilation."""

from __future__ import annotations

from tvm import topi

from .case import Case, Entry, Input


def convolution(
    batch: int, channels: int, size: int, filters: int, stride: int = 1, dilation: int = 1
) -> Case:
    """Both gradients of a 3x3 convolution whose padding equals its dilation."""
    out = (size - 1) // stride + 1
    options = {"stride": stride, "padding": dilation, "dilation": dilation}

    def in_jax(jax, x, w):
        return jax.lax.conv_general_dilated(
            x, w, (stride,) * 2, [(dilation,) * 2] * 2, rhs_dilation=(dilation,) * 2
        )

    def expert(torch, x, w, head):
        return torch.ops.aten.convolution_backward(
            head,
            x,
            w,
            None,
            [stride] * 2,
            [dilation] * 2,
            [dilation] * 2,
            False,
            [0, 0],
            1,
            [True, True, False],
        )[:2]

    return Case(
        inputs={
            "x": Input((batch, channels, size, size)),
            "w": Input((filters, channels, 3, 3)),
        },
        wrt=("x", "w"),
        head=Input((batch, filters, out, out)),
        derivative="pullback",
        te=lambda x, w: topi.nn.conv2d_nchw(x, w, stride, dilation, dilation),
        torch=lambda torch, x, w: torch.nn.functional.conv2d(x, w, **options),
        jax=in_jax,
        eager=expert,
        flop=4 * batch * channels * filters * 9 * out * out,
        channels_last=True,
    )


_FULL = {"batch": 8, "channels": 32, "size": 32, "filters": 32}
_SMALL = {"batch": 2, "channels": 3, "size": 11, "filters": 5}

ENTRIES = [
    Entry("conv", "conv 8x32x32x32, 32 of 3x3", convolution, _FULL, _SMALL, "sgemm"),
    Entry(
        "conv-stride2",
        "conv 8x32x32x32, 32 of 3x3, stride 2",
        convolution,
        {**_FULL, "stride": 2},
        {**_SMALL, "stride": 2},
        "sgemm",
    ),
    Entry(
        "conv-dilation2",
        "conv 8x32x32x32, 32 of 3x3, dilation 2",
        convolution,
        {**_FULL, "dilation": 2},
        {**_SMALL, "dilation": 2},
        "sgemm",
    ),
]
