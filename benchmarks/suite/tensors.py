"""Cases of tensor contractions: abcd,cdef->abef, and the product of a tensor with two factors."""

from __future__ import annotations

from tvm import te

from .case import Case, Entry, Input


def contraction(n: int) -> Case:
    """Both gradients of abcd,cdef->abef with every extent `n`."""

    def ours(x, y):
        c, d = te.reduce_axis((0, n), "c"), te.reduce_axis((0, n), "d")
        return te.compute(
            (n,) * 4,
            lambda a, b, e, f: te.sum(x[a, b, c, d] * y[c, d, e, f], axis=[c, d]),
            name="contracted",
        )

    def expert(torch, x, y, head):
        x, y, head = (tensor.view(n * n, n * n) for tensor in (x, y, head))
        return (head @ y.T).view((n,) * 4), (x.T @ head).view((n,) * 4)

    return Case(
        inputs={"x": Input((n,) * 4), "y": Input((n,) * 4)},
        wrt=("x", "y"),
        head=Input((n,) * 4),
        derivative="pullback",
        te=ours,
        torch=lambda torch, x, y: torch.einsum("abcd,cdef->abef", x, y),
        jax=lambda jax, x, y: jax.numpy.einsum("abcd,cdef->abef", x, y),
        eager=expert,
        flop=4 * n**6,
    )


def mttkrp(i: int, j: int, k: int, rank: int) -> Case:
    """M[i, r] = Σ X[i, j, k] B[j, r] C[k, r] (matricised tensor times Khatri-Rao product): the
    gradients of the tensor and of both factors.
    """

    def ours(x, b, c):
        jj, kk = te.reduce_axis((0, j), "j"), te.reduce_axis((0, k), "k")
        return te.compute(
            (i, rank),
            lambda ii, r: te.sum(x[ii, jj, kk] * b[jj, r] * c[kk, r], axis=[jj, kk]),
            name="mttkrp",
        )

    def expert(torch, x, b, c, head):
        # the sum over k, a matrix product, serves the gradient of b; that over j, the one of c
        over_k = (x.view(i * j, k) @ c).view(i, j, rank)
        both = head[:, None, :] * b[None, :, :]
        return (
            (both.view(i * j, rank) @ c.T).view(i, j, k),
            (over_k * head[:, None, :]).sum(0),
            x.view(i * j, k).T @ both.view(i * j, rank),
        )

    return Case(
        inputs={"x": Input((i, j, k)), "b": Input((j, rank)), "c": Input((k, rank))},
        wrt=("x", "b", "c"),
        head=Input((i, rank)),
        derivative="pullback",
        te=ours,
        torch=lambda torch, x, b, c: torch.einsum("ijk,jr,kr->ir", x, b, c),
        jax=lambda jax, x, b, c: jax.numpy.einsum("ijk,jr,kr->ir", x, b, c, optimize="optimal"),
        eager=expert,
        flop=3 * 2 * i * j * k * rank,
    )


ENTRIES = [
    Entry("contraction", "abcd,cdef->abef, 16 each", contraction, {"n": 16}, {"n": 3}, "sgemm"),
    Entry(
        "mttkrp",
        "MTTKRP 128x128x128, rank 32",
        mttkrp,
        {"i": 128, "j": 128, "k": 128, "rank": 32},
        {"i": 5, "j": 7, "k": 11, "rank": 3},
    ),
]
