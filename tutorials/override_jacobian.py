"""Custom derivatives with manual, override and fdiff.

`manual` replaces the derivative of one edge of the graph, `override` that of a whole path, and
`fdiff` that of every edge. The example is that of TVM's RFC on automatic differentiation
(apache/tvm issue 1996): the gradient through a flatten. The script checks that all variants give
the same values, and prints their costs. Run it: ``python tutorials/override_jacobian.py``.
"""

from __future__ import annotations

import numpy as np
from tvm import te, topi

import tvm_autodiff as ad

# 1. The graph ------------------------------------------------------------------------------------
#
#     image [4, 3, 10, 10] → convolution [4, 8, 8, 8] → flatten [4, 512] → dense [4, 10]

image = te.placeholder((4, 3, 10, 10), name="image")
filters = te.placeholder((8, 3, 3, 3), name="filters")
matrix = te.placeholder((10, 512), name="matrix")

convolved = topi.nn.conv2d(image, filters, strides=1, padding=0, dilation=1)
flat = topi.nn.flatten(convolved)
scores = topi.nn.dense(flat, matrix)

head = te.placeholder((4, 10), name="head")
inputs = [image, filters, matrix]

default = ad.differentiate(scores, inputs, head)


# 2. A custom derivative --------------------------------------------------------------------------
#
# A custom derivative is a function of tensors that returns a tensor. Its arguments are the output
# of a stage, a tensor that the stage reads, and `head`, the adjoint of the output. It returns the
# adjoint of the tensor that is read, with the shape of this tensor. Here
# flat[n, 64 c + 8 y + x] = convolved[n, c, y, x], and so:


def unflatten(out: te.Tensor, inp: te.Tensor, head: te.Tensor) -> te.Tensor:
    """The adjoint of a flatten's input: the values of `head` in the shape of the input."""
    _, _, height, width = inp.shape
    return te.compute(
        inp.shape,
        lambda n, c, y, x: head[n, (c * height + y) * width + x],
        name="unflattened",
    )


# `manual` replaces one edge of the graph, from a stage to a tensor that it reads.

manual = ad.differentiate(scores, inputs, head, manual={(flat, convolved): unflatten})


# `override` replaces everything between an output and the tensors in a list: here the flatten and
# the dense layer together, without an adjoint of `flat`. The function gets the list and returns a
# list of adjoints. It replaces all derivatives of `scores`: a tensor that is not in the list
# receives nothing from `scores`. Therefore the list must contain `matrix`.


def through_flatten_and_dense(
    out: te.Tensor, deps: list[te.Tensor], head: te.Tensor
) -> list[te.Tensor]:
    """The adjoints of the convolution's output and of the matrix, from that of the scores."""
    convolved, matrix = deps
    batch, _, height, width = convolved.shape
    k = te.reduce_axis((0, matrix.shape[0]), "k")
    n = te.reduce_axis((0, batch), "n")
    size = height * width
    return [
        te.compute(
            convolved.shape,
            lambda n, c, y, x: te.sum(head[n, k] * matrix[k, (c * height + y) * width + x], axis=k),
            name="dconvolved",
        ),
        te.compute(
            matrix.shape,
            lambda k, j: te.sum(
                head[n, k] * convolved[n, j // size, j % size // width, j % width], axis=n
            ),
            name="dmatrix",
        ),
    ]


override = ad.differentiate(
    scores, inputs, head, override={scores: ([convolved, matrix], through_flatten_and_dense)}
)


# `fdiff` replaces the default rule of all edges. `ad.pullback` is the default rule of one edge. A
# function around it can log edges, treat some stages differently, or clip or round adjoints.

edges: list[str] = []


def logged(out: te.Tensor, inp: te.Tensor, head: te.Tensor) -> te.Tensor:
    """Note the edge, and use the default rule except for the flatten."""
    edges.append(f"{out.op.name} → {inp.op.name}")
    if out == flat:
        return unflatten(out, inp, head)
    return ad.pullback(out, inp, head)


fdiff = ad.differentiate(scores, inputs, head, fdiff=logged)


# 3. When a custom derivative is faster ------------------------------------------------------------
#
# The default rule already derives the best gradient of a flatten. A custom derivative helps where
# you know a property that the rules of calculus do not see. Newton's iteration computes the root
# y = sqrt(a) of y*y = a. The default rules differentiate each of its steps, and the backward pass
# goes through all of them. But the root does not depend on the steps: y*y = a implies
# 2*y*dy = da (the implicit function theorem), which is one division for each element.

STEPS = 6


def newton_step(y: te.Tensor, a: te.Tensor) -> te.Tensor:
    """An estimate of the square root of `a` that is better than `y`."""
    return te.compute(a.shape, lambda n, j: 0.5 * (y[n, j] + a[n, j] / y[n, j]), name="guess")


values = te.placeholder((128, 10), name="values")
squared = te.compute(values.shape, lambda n, j: 1.0 + values[n, j] * values[n, j], name="squared")
root = squared
for _ in range(STEPS):
    root = newton_step(root, squared)
head_root = te.placeholder(values.shape, name="head")


def through_the_root(out: te.Tensor, deps: list[te.Tensor], head: te.Tensor) -> list[te.Tensor]:
    """The adjoint of `squared` from the adjoint of the root."""
    return [te.compute(out.shape, lambda n, j: head[n, j] / (2.0 * out[n, j]), name="dsquared")]


default_root = ad.differentiate(root, [values], head_root)
override_root = ad.differentiate(
    root, [values], head_root, override={root: ([squared], through_the_root)}
)


# 4. Values and costs -----------------------------------------------------------------------------


def compare(results: dict[str, ad.DifferentiationResult], arguments: list[te.Tensor]) -> None:
    """Print the cost of each variant, and the largest difference from the values of the first."""
    random = np.random.default_rng(0)
    arrays = [
        random.normal(size=[int(extent) for extent in tensor.shape]).astype("float32")
        for tensor in arguments
    ]
    print(f"{'':<10}{'iterations':>12}{'multiplications':>17}{'memory':>9}    largest difference")
    first = None
    for name, result in results.items():
        values = ad.build(arguments, list(result))(*arrays)
        first = first or values
        difference = max(
            float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(values, first, strict=True)
        )
        cost = ad.estimate_cost(list(result))
        print(
            f"{name:<10}{cost.iterations:>12}{cost.multiplications:>17}{cost.memory:>9}"
            f"    {difference:.0e}"
        )
        if difference > 1e-5:
            raise SystemExit(f"{name}: the gradients disagree")


def main() -> None:
    """Print the gradients, and compare."""
    print("The graph:\n")
    print(ad.show(scores))

    print("\nThe adjoint of the convolution's output, by the default rule:\n")
    print(ad.show(default.adjoints[convolved]))
    print("\nwith manual={(flat, convolved): unflatten}:\n")
    print(ad.show(manual.adjoints[convolved]))
    print("\nwith override={scores: ([convolved, matrix], through_flatten_and_dense)}:\n")
    print(ad.show(override.adjoints[convolved]))
    print("\nThe edges for which fdiff was called:\n")
    print("\n".join(f"  {edge}" for edge in edges))

    print("\nCost and agreement of the gradients of image, filters and matrix:\n")
    compare(
        {"default": default, "manual": manual, "override": override, "fdiff": fdiff},
        [*inputs, head],
    )

    print("\nThe gradient of a root that Newton's iteration computes, by the default rule:\n")
    print(ad.show(default_root[0], limit=200))
    print("\nand by a custom rule:\n")
    print(ad.show(override_root[0]))
    print("\nCost and agreement:\n")
    compare({"default": default_root, "override": override_root}, [values, head_root])


if __name__ == "__main__":
    main()
