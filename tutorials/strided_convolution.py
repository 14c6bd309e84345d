"""The gradient of a strided convolution as a gather.

Each step prints the integer points that a sum visits: ``●`` contributes, ``·`` is a zero.
Run it: ``python tutorials/strided_convolution.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tvm import te

import tvm_autodiff as ad
from tvm_autodiff.domain import Domain, simplify_domain

STRIDE, TAPS, OUTPUTS = 2, 4, 5
INPUTS = STRIDE * (OUTPUTS - 1) + TAPS


def drawn(domain: Domain, at: Mapping[Any, int]) -> tuple[str, int, int]:
    """The box of a domain of one or two variables as text, its size, and its number of points."""
    boxes = [range(low, low + size) for low, size in (domain.ranges[v] for v in domain.variables)]
    points = set(domain.points(dict(at)))
    rows = boxes[1] if len(boxes) > 1 else range(1)
    lines = [
        "    " + " ".join("●" if (x, y)[: len(boxes)] in points else "·" for x in boxes[0])
        for y in reversed(rows)
    ]
    return "\n".join(lines), len(boxes[0]) * len(rows), len(points)


def main() -> None:
    """The convolution, the equation, the domain before and after, and the gather."""
    x = te.placeholder((INPUTS,), "float64", name="x")
    w = te.placeholder((TAPS,), "float64", name="w")
    tap = te.reduce_axis((0, TAPS), "k")
    y = te.compute((OUTPUTS,), lambda i: te.sum(x[STRIDE * i + tap] * w[tap], axis=tap), name="y")
    print("1. The convolution\n")
    print(ad.show(y))

    print(
        "\n2. The equation\n\nOutput i reads x[2*i + k]. The gradient with respect to x[j] "
        "sums head[i]*w[k]\nover all pairs (i, k) with 2*i + k = j. Few pairs satisfy it:\n"
    )
    i, k, j = te.var("i"), te.var("k"), te.var("j")
    ranges = {i: (0, OUTPUTS), k: (0, TAPS), j: (0, INPUTS)}
    before = Domain((i, k), ranges, ((STRIDE * i + k).equal(j),))
    after = simplify_domain(before)
    for place in (4, 5):
        picture, visited, counted = drawn(before, {j: place})
        print(f"  j = {place}, i to the right, k upward: {visited} iterations, {counted} needed")
        print(picture)

    print("\n3. The solution\n\nSolved over the integers, the equation leaves one free variable:\n")
    for old in before.variables:
        print(f"    {old} = {after.old_to_new[old]}")
    print("\nThe same points in the new variable:\n")
    for place in (4, 5):
        picture, visited, counted = drawn(after.new_domain, {j: place})
        print(f"  j = {place}: {visited} iterations, {counted} needed")
        print(picture)

    head = te.placeholder((OUTPUTS,), "float64", name="head")
    result = ad.differentiate(y, [x], head)
    print("\n4. The gather\n\ndifferentiate does this for every read of every stage:\n")
    print(ad.show(result[0]))
    print()
    print(result.explain())

    random = np.random.default_rng(0)
    heads, weights = random.normal(size=OUTPUTS), random.normal(size=TAPS)
    expected = np.zeros(INPUTS)
    for output in range(OUTPUTS):
        expected[STRIDE * output : STRIDE * output + TAPS] += heads[output] * weights
    found = ad.build([head, w], result[0])(heads, weights)
    print(
        f"\n5. The values\n\nlargest difference from the loop that scatters: "
        f"{np.abs(np.asarray(found) - expected).max():.0e}"
    )


if __name__ == "__main__":
    main()
