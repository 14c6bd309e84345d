"""Products of tensors: matrices of odd, flat and tall shapes, batches, einsums, dense layers.

Each is an einsum, whose gradients for a given cotangent are asked for. PyTorch gets them as the
einsums that they are, which is its fastest idiom; JAX compiles its pullback.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te

from ..suite.case import Case, Input


def einsum(formula: str, **extents: int) -> Case:
    """All gradients of a sum of products; the formula names an axis by a letter."""
    left, result = formula.split("->")
    terms = left.split(",")
    names = [f"x{number}" for number in range(len(terms))]

    def ours(*tensors: Any) -> Any:
        summed = [letter for letter in extents if letter not in result]
        axes = {letter: te.reduce_axis((0, extents[letter]), letter) for letter in summed}

        def body(*places: Any) -> Any:
            here = {**axes, **dict(zip(result, places, strict=True))}
            value = None
            for term, tensor in zip(terms, tensors, strict=True):
                factor = tensor(*(here[letter] for letter in term))
                value = factor if value is None else value * factor
            return te.sum(value, axis=list(axes.values())) if axes else value

        return te.compute([extents[letter] for letter in result], body, name="product")

    def eager(torch: Any, *arrays: Any) -> Any:
        *operands, head = arrays
        gradients = []
        for number, term in enumerate(terms):
            others = [other for place, other in enumerate(terms) if place != number]
            values = [value for place, value in enumerate(operands) if place != number]
            gradients.append(torch.einsum(",".join([result, *others]) + "->" + term, head, *values))
        return tuple(gradients)

    shapes = [tuple(extents[letter] for letter in term) for term in terms]
    iterations = 1
    for extent in extents.values():
        iterations *= extent
    deviation = 1.0
    return Case(
        inputs={name: Input(shape, deviation) for name, shape in zip(names, shapes, strict=True)},
        wrt=tuple(names),
        head=Input(tuple(extents[letter] for letter in result)),
        derivative="pullback",
        te=ours,
        torch=lambda torch, *tensors: torch.einsum(formula, *tensors),
        jax=lambda jax, *tensors: jax.numpy.einsum(formula, *tensors, optimize="optimal"),
        eager=eager,
        flop=2 * len(terms) * iterations,
        tolerance=2e-4,
    )


def _matmul(m: int, k: int, n: int, formula: str = "mk,kn->mn") -> Callable[[], Case]:
    return lambda: einsum(formula, m=m, k=k, n=n)


CASES: dict[str, Callable[[], Case]] = {
    "matmul-7x1000x13": _matmul(7, 1000, 13),
    "matmul-2000x3x2000": _matmul(2000, 3, 2000),
    "matmul-1x4096x4096": _matmul(1, 4096, 4096),
    "matmul-64": _matmul(64, 64, 64),
    "matmul-31": _matmul(31, 31, 31),
    "matmul-1023": _matmul(1023, 1023, 1023),
    "matmul-257x129x65": _matmul(257, 129, 65),
    "matmul-4096x16x16": _matmul(4096, 16, 16),
    "matmul-tn-300x500x200": _matmul(300, 500, 200, "km,kn->mn"),
    "matmul-nt-128x768x3072": _matmul(128, 768, 3072, "mk,nk->mn"),
    "bmm-64-32x48x24": lambda: einsum("bmk,bkn->bmn", b=64, m=32, k=48, n=24),
    "bmm-1000-4x4x4": lambda: einsum("bmk,bkn->bmn", b=1000, m=4, k=4, n=4),
    "bmm-shared-16-50x70x90": lambda: einsum("bmk,kn->bmn", b=16, m=50, k=70, n=90),
    "matvec-1024x2048": lambda: einsum("mk,k->m", m=1024, k=2048),
    "vecmat-777x333": lambda: einsum("k,kn->n", k=777, n=333),
    "outer-1000x1200": lambda: einsum("m,n->mn", m=1000, n=1200),
    "batched-outer-256-40x50": lambda: einsum("bm,bn->bmn", b=256, m=40, n=50),
    "dot-1000000": lambda: einsum("k,k->", k=1_000_000),
    "scores-8x16x64x32": lambda: einsum("bhqd,bhkd->bhqk", b=8, h=16, q=64, k=64, d=32),
    "scores-2x3x100x40": lambda: einsum("bhqd,bhkd->bhqk", b=2, h=3, q=100, k=100, d=40),
    "ijk,jl,kl->il": lambda: einsum("ijk,jl,kl->il", i=60, j=50, k=40, l=20),
    "bilinear-128-30x40x20": lambda: einsum("bi,oij,bj->bo", b=128, i=30, j=40, o=20),
    "quadratic-512-64": lambda: einsum("bi,ij,bj->b", b=512, i=64, j=64),
    "heads-btd,hdk->bhtk": lambda: einsum("btd,hdk->bhtk", b=4, t=64, h=8, d=256, k=32),
    "chain-ij,jk,kl->il": lambda: einsum("ij,jk,kl->il", i=24, j=24, k=24, l=24),
}
