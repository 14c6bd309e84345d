"""A first gradient.

Three examples: a matrix product, a transpose and a convolution. Each starts with the definition of
the gradient, a sum that consists mostly of zeros, and compares it with what `differentiate`
returns: the expressions, their cost, and their values beside finite differences. Run it:
``python tutorials/first_gradient.py``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import te

import tvm_autodiff as ad


def say(text: str) -> None:
    """Print a paragraph of the lesson."""
    print(f"\n{text.strip()}\n")


def indented(text: str) -> str:
    """A block of text, indented by four spaces."""
    return "\n".join("    " + line for line in text.splitlines())


# Finite differences need only the forward function. They call it twice for each element of the
# input, which is too slow for training but useful for a check.


def finite_differences(
    function: Callable[[np.ndarray], np.ndarray], x: np.ndarray, head: np.ndarray, step: float
) -> np.ndarray:
    """The derivative of ``sum(head * function(x))`` with respect to each element of x."""
    gradient = np.empty_like(x)
    for place in np.ndindex(*x.shape):
        above, below = x.copy(), x.copy()
        above[place] += step
        below[place] -= step
        gradient[place] = np.sum(head * (function(above) - function(below))) / (2 * step)
    return gradient


def compare(
    output: te.Tensor, x: te.Tensor, others: list[te.Tensor], head: te.Tensor, before: te.Tensor
) -> None:
    """Print the gradient before and after zero elimination: its text, its cost and its values."""
    [after] = ad.differentiate(output, [x], head)

    print("before, the definition:\n")
    print(indented(ad.show(before)))
    print("\nafter, what differentiate returns:\n")
    print(indented(ad.show(after)))

    print("\n              iterations  multiplications  memory")
    for name, tensor in (("before", before), ("after", after)):
        cost = ad.estimate_cost(tensor)
        print(f"{name:<12}{cost.iterations:>12}{cost.multiplications:>17}{cost.memory:>8}")

    # The gradients read the other inputs and the head, but not x.
    random = np.random.default_rng(0)
    arrays = {
        tensor.op.name: random.normal(size=[int(extent) for extent in tensor.shape])
        for tensor in (x, *others, head)
    }
    reads = [*others, head]
    values = [arrays[tensor.op.name] for tensor in reads]
    forward = ad.build([x, *others], output)
    rest = [arrays[tensor.op.name] for tensor in others]
    numbers = {
        "before": ad.build(reads, before)(*values),
        "after": ad.build(reads, after)(*values),
        "differences": finite_differences(
            lambda array: forward(array, *rest), arrays[x.op.name], arrays[head.op.name], 1e-5
        ),
    }
    print(f"\nthe first values of d{x.op.name}:\n")
    for name, gradient in numbers.items():
        print(f"    {name:<12}", " ".join(f"{value:10.6f}" for value in gradient.flat[:5]))
    largest = max(np.abs(numbers["after"] - other).max() for other in numbers.values())
    print(f"\nlargest disagreement over all {numbers['after'].size} values: {largest:.0e}")
    if largest > 1e-8:
        raise SystemExit("the gradients disagree")


# The examples ------------------------------------------------------------------------------------


def matrix_product() -> None:
    """C = A B, differentiated with respect to A."""
    say(
        """
1. A matrix product

The forward computation is one stage. It defines each element of its output:"""
    )
    a = te.placeholder((40, 50), "float64", name="A")
    b = te.placeholder((50, 30), "float64", name="B")
    k = te.reduce_axis((0, 50), "k")
    c = te.compute((40, 30), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    print(indented(ad.show(c)))
    say(
        """
`head` is the derivative of some loss with respect to each element of C. What is the derivative with
respect to A[p, q]? The forward stage runs over all (i, j, k). Where it reads A[i, k] with
(i, k) = (p, q), the read contributes head[i, j] times the derivative of the product with respect to
A[i, k], which is B[k, j]. All other reads contribute nothing. This definition is a sum with a
condition:
"""
    )
    head = te.placeholder((40, 30), "float64", name="head")
    i, j, kk = (
        te.reduce_axis((0, 40), "i"),
        te.reduce_axis((0, 30), "j"),
        te.reduce_axis((0, 50), "k"),
    )
    before = te.compute(
        (40, 50),
        lambda p, q: te.sum(
            te.if_then_else(te.all(i == p, kk == q), head[i, j] * b[kk, j], 0.0), axis=[i, j, kk]
        ),
        name="dA",
    )
    compare(c, a, [b], head, before)
    say(
        """
Of the 60,000 terms for each element, 30 are not zero. The condition selects them: i = p and k = q
are two equations for the three unknowns i, j and k. They determine i and k, and leave j free. So
the sum over j remains; the other two sums, the condition and the zeros disappear. The result is the
product of head with the transpose of B, as in a textbook. The library derived it from the
indices."""
    )


def transpose() -> None:
    """T[i, j] = X[j, i], differentiated with respect to X."""
    say("2. A transpose\n\nThe forward stage has no sum, and one read with swapped indices:")
    x = te.placeholder((20, 30), "float64", name="X")
    t = te.compute((30, 20), lambda i, j: x[j, i], name="T")
    print(indented(ad.show(t)))
    say("Which (i, j) read X[p, q]? Those with j = p and i = q:")
    head = te.placeholder((30, 20), "float64", name="head")
    i, j = te.reduce_axis((0, 30), "i"), te.reduce_axis((0, 20), "j")
    before = te.compute(
        (20, 30),
        lambda p, q: te.sum(te.if_then_else(te.all(j == p, i == q), head[i, j], 0.0), axis=[i, j]),
        name="dX",
    )
    compare(t, x, [], head, before)
    say(
        """
Two equations for two unknowns have exactly one solution, so no sum is left. The gradient of a
transpose is a transpose. Reshapes, slices and concatenations work in the same way."""
    )


def convolution() -> None:
    """O[y, x] = Σ_{r,s} I[y + r, x + s] K[r, s], differentiated with respect to I."""
    say("3. A convolution\n\nEach index is now a sum of two axes:")
    image = te.placeholder((16, 16), "float64", name="I")
    kernel = te.placeholder((3, 3), "float64", name="K")
    r, s = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "s")
    output = te.compute(
        (14, 14), lambda y, x: te.sum(image[y + r, x + s] * kernel[r, s], axis=[r, s]), name="O"
    )
    print(indented(ad.show(output)))
    say("Which (y, x, r, s) read I[p, q]? Those with y + r = p and x + s = q:")
    head = te.placeholder((14, 14), "float64", name="head")
    y, x = te.reduce_axis((0, 14), "y"), te.reduce_axis((0, 14), "x")
    rr, ss = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "s")
    before = te.compute(
        (16, 16),
        lambda p, q: te.sum(
            te.if_then_else(te.all(y + rr == p, x + ss == q), head[y, x] * kernel[rr, ss], 0.0),
            axis=[y, x, rr, ss],
        ),
        name="dI",
    )
    compare(output, image, [kernel], head, before)
    say(
        """
Two equations for four unknowns leave r and s free: y = p - r and x = q - s. But y must lie between
0 and 13, and near the border of the image this is not true for every r. So the bounds of y and x
become a condition on r and s. The library keeps it as a guard, `if ... then ... else`, and not as a
factor: where the guard is false, head is not read, and a NaN in it has no effect.

All three examples follow the same steps. The library solves equations over the integers, drops the
axes that they determine, keeps the free axes as a sum, and turns the old bounds into conditions.
This is zero elimination. Strides, dilations and reshapes add remainders and divisions to the
equations; the steps are the same."""
    )


def main() -> None:
    """Run the three examples."""
    matrix_product()
    transpose()
    convolution()


if __name__ == "__main__":
    main()
