"""What a gradient of a tensor expression is, and how its sum over zeros goes away.

A lesson in three examples (a matrix product, a transpose, a convolution), each from the
definition, which is slow, to what `differentiate` returns; with the cost of both, and their
numbers beside finite differences. Run it: ``python tutorials/first_gradient.py``.
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
    """A block as it stands, four spaces to the right."""
    return "\n".join("    " + line for line in text.splitlines())


# Finite differences know nothing of all this: they run the forward function twice for each number
# of the input. Too slow to train with, and just right to check with.


def finite_differences(
    function: Callable[[np.ndarray], np.ndarray], x: np.ndarray, head: np.ndarray, step: float
) -> np.ndarray:
    """The derivative of ``sum(head * function(x))`` by each element of x."""
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
    """Print the gradient before and after zero elimination: the text, the cost, the numbers."""
    [after] = ad.differentiate(output, [x], head)

    print("before, the definition:\n")
    print(indented(ad.show(before)))
    print("\nafter, what differentiate returns:\n")
    print(indented(ad.show(after)))

    print("\n              iterations  multiplications  memory")
    for name, tensor in (("before", before), ("after", after)):
        cost = ad.estimate_cost(tensor)
        print(f"{name:<12}{cost.iterations:>12}{cost.multiplications:>17}{cost.memory:>8}")

    # A gradient needs the inputs that it still reads, and `build` asks for exactly those.
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
    print(f"\nthe first numbers of d{x.op.name}:\n")
    for name, gradient in numbers.items():
        print(f"    {name:<12}", " ".join(f"{value:10.6f}" for value in gradient.flat[:5]))
    largest = max(np.abs(numbers["after"] - other).max() for other in numbers.values())
    print(f"\nlargest disagreement over all {numbers['after'].size} numbers: {largest:.0e}")
    if largest > 1e-8:
        raise SystemExit("the gradients disagree")


# The lesson --------------------------------------------------------------------------------------


def matrix_product() -> None:
    """C = A B, differentiated by A."""
    say(
        """
1. A matrix product

Forward, a stage says what each element of its output is:"""
    )
    a = te.placeholder((40, 50), "float64", name="A")
    b = te.placeholder((50, 30), "float64", name="B")
    k = te.reduce_axis((0, 50), "k")
    c = te.compute((40, 30), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    print(indented(ad.show(c)))
    say(
        """
Something downstream tells us how much it minds each element of C: that is `head`, as large as C.
How much does it mind A[p, q]? Walk over all (i, j, k) that the forward stage walked over. Wherever
it read A[i, k] with (i, k) = (p, q), that read contributes head[i, j] times the derivative of the
product by A, which is B[k, j]. Everywhere else it contributes nothing. Written down as it was said:
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
Of the 60,000 terms for each element, 30 are not zero. The condition says which: i = p and k = q are
two equations for the three unknowns i, j, k. Solved, they fix i and k, and leave j free. So the sum
over j stays, and the other two sums, the condition, and the zeros are gone. This is the matrix
product of head with the transpose of B that a textbook gives, and nobody told the library so."""
    )


def transpose() -> None:
    """T[i, j] = X[j, i], differentiated by X."""
    say("2. A transpose\n\nNo sum forward, and one read, at swapped places:")
    x = te.placeholder((20, 30), "float64", name="X")
    t = te.compute((30, 20), lambda i, j: x[j, i], name="T")
    print(indented(ad.show(t)))
    say("The same rule: which (i, j) read X[p, q]? Those with j = p and i = q.")
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
Two equations, two unknowns, exactly one solution: no sum is left at all. The gradient of a
transpose is a transpose; that of a reshape, a slice or a concatenation comes out the same way."""
    )


def convolution() -> None:
    """O[y, x] = the sum over r, s of I[y + r, x + s] K[r, s], differentiated by I."""
    say("3. A convolution\n\nNow two axes meet in one index:")
    image = te.placeholder((16, 16), "float64", name="I")
    kernel = te.placeholder((3, 3), "float64", name="K")
    r, s = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 3), "s")
    output = te.compute(
        (14, 14), lambda y, x: te.sum(image[y + r, x + s] * kernel[r, s], axis=[r, s]), name="O"
    )
    print(indented(ad.show(output)))
    say("Which (y, x, r, s) read I[p, q]? Those with y + r = p and x + s = q.")
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
Two equations, four unknowns: r and s stay free and y = p - r, x = q - s follow. But y has to lie in
0 to 13, and near the border of the image it does not for every r: the limits that the axes had
return as a condition on the ones that are left. The library keeps it as a guard, `if ... then ...
else`, which is not a factor: where it is false, head is not read, and a NaN could not leak out.

What has happened is the same three times. Equations over the integers were solved, the axes that
they fix were dropped, the axes that they leave free stayed as a sum, and the old limits became
conditions. That is all of zero elimination; strides, dilations and reshapes bring remainders and
divisions into the equations, and nothing else is new."""
    )


def main() -> None:
    """The lesson from beginning to end."""
    matrix_product()
    transpose()
    convolution()


if __name__ == "__main__":
    main()
