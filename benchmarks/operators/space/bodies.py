"""Particles, oscillators, meshes and chains of joints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, topi

from tvm_autodiff import segment_sum

from ...suite.case import Case, Input
from ..form import mapped, operator, reduced


def kuramoto(n: int) -> Case:
    """Coupled oscillators with a matrix of couplings that depend on distance."""

    def ours(theta: Any, omega: Any, amp: Any) -> Any:
        return mapped_kuramoto(theta, omega, amp)

    def mapped_kuramoto(theta: Any, omega: Any, amp: Any) -> Any:
        pull = reduced((n,), (n,), lambda i, j: te.sin(theta[j] - theta[i] - 0.3))
        return mapped((n,), lambda i: omega[i] + amp[i] / float(n) * pull[i])

    def array(numpy: Any, theta: Any, omega: Any, amp: Any) -> Any:
        return omega + amp / n * numpy.sin(theta[None, :] - theta[:, None] - 0.3).sum(1)

    return operator(
        {"theta": Input((n,), 2.0), "omega": Input((n,)), "amp": Input((n,))},
        (n,),
        ours,
        lambda torch, *a: array(torch, *a),
        lambda jax, *a: array(jax.numpy, *a),
    )


def sph(n: int) -> Case:
    """Smoothed-particle density and pressure energy with a kernel of compact support."""

    def ours(x: Any, m: Any) -> Any:
        r2 = mapped(
            (n, n),
            lambda i, j: (
                (x[i, 0] - x[j, 0]) * (x[i, 0] - x[j, 0])
                + (x[i, 1] - x[j, 1]) * (x[i, 1] - x[j, 1])
                + (x[i, 2] - x[j, 2]) * (x[i, 2] - x[j, 2])
            ),
        )
        rho = reduced(
            (n,),
            (n,),
            lambda i, j: te.if_then_else(
                r2[i, j] < 1.0, m[j] * (1.0 - r2[i, j]) * (1.0 - r2[i, j]) * (1.0 - r2[i, j]), 0.0
            ),
        )
        return reduced((), (n,), lambda i: te.power(rho[i], te.const(1.4, "float32")))

    def array(numpy: Any, x: Any, m: Any) -> Any:
        d = x[:, None] - x[None]
        r2 = (d * d).sum(-1)
        zero = numpy.zeros_like(r2)
        rho = (numpy.where(r2 < 1, (1 - r2) ** 3, zero) * m).sum(1)
        return (rho**1.4).sum()

    return operator(
        {"x": Input((n, 3), 1.2), "m": Input((n,), 0.1, 1.0)},
        (),
        ours,
        lambda torch, *a: array(torch, *a),
        lambda jax, *a: array(jax.numpy, *a),
        tolerance=1e-3,
    )


def elastic_triangles(vertices: int, elements: int) -> Case:
    """St. Venant-Kirchhoff energy of a mesh of triangles; positions are gathered by element."""

    def ours(index: Any, x: Any, rest: Any, young: Any) -> Any:
        # edges of the deformed triangle; rest[e] is the inverse of the rest edges, 2 x 2
        def edge(e: Any, k: Any, c: Any) -> Any:
            return x[index[e, k + 1], c] - x[index[e, 0], c]

        F = te.compute(
            (elements, 2, 2),
            lambda e, r, c: edge(e, 0, r) * rest[e, 0, c] + edge(e, 1, r) * rest[e, 1, c],
            name="F",
        )
        E = reduced((elements, 2, 2), (2,), lambda e, r, c, k: F[e, k, r] * F[e, k, c] * 0.5)
        G = mapped((elements, 2, 2), lambda e, r, c: E[e, r, c] - te.if_then_else(r == c, 0.5, 0.0))
        trace = mapped((elements,), lambda e: G[e, 0, 0] + G[e, 1, 1])
        square = reduced((elements,), (2, 2), lambda e, r, c: G[e, r, c] * G[e, r, c])
        return reduced(
            (), (elements,), lambda e: young[e] * (square[e] + 0.5 * trace[e] * trace[e])
        )

    def array(numpy: Any, index: Any, x: Any, rest: Any, young: Any) -> Any:
        p = x[index]
        d = numpy.stack([p[:, 1] - p[:, 0], p[:, 2] - p[:, 0]], -1)  # columns are edges
        F = numpy.einsum("erk,ekc->erc", d, rest)
        E = 0.5 * numpy.einsum("ekr,ekc->erc", F, F) - 0.5 * numpy.eye(2, dtype=x.dtype)
        trace = E[:, 0, 0] + E[:, 1, 1]
        return (young * ((E * E).sum((1, 2)) + 0.5 * trace * trace)).sum()

    return operator(
        {
            "index": Input((elements, 3), below=vertices),
            "x": Input((vertices, 2)),
            "rest": Input((elements, 2, 2)),
            "young": Input((elements,), 0.1, 1.0),
        },
        (),
        ours,
        lambda torch, *a: array(torch, *a),
        lambda jax, *a: array(jax.numpy, *a),
        fixed=("rest",),
        tolerance=1e-3,
    )


def vertex_normals(vertices: int, faces: int) -> Case:
    """Unit normals of vertices: sums of the cross products of the faces around them."""

    def ours(face: Any, x: Any) -> Any:
        def edge(f: Any, k: Any, c: Any) -> Any:
            return x[face[f, k], c] - x[face[f, 0], c]

        cross = mapped(
            (faces, 3),
            lambda f, c: (
                edge(f, 1, te.indexmod(c + 1, 3)) * edge(f, 2, te.indexmod(c + 2, 3))
                - edge(f, 1, te.indexmod(c + 2, 3)) * edge(f, 2, te.indexmod(c + 1, 3))
            ),
        )

        def around(k: int) -> Any:
            return segment_sum(cross, mapped((faces,), lambda f: face[f, k]), vertices)

        sums = [around(k) for k in range(3)]
        total = mapped((vertices, 3), lambda v, c: sums[0][v, c] + sums[1][v, c] + sums[2][v, c])
        square = reduced((vertices,), (3,), lambda v, c: total[v, c] * total[v, c])
        return mapped((vertices, 3), lambda v, c: total[v, c] * te.rsqrt(square[v] + 1e-3))

    def array(cross: Any, add: Any, face: Any, x: Any) -> Any:
        p = x[face]
        n = cross(p[:, 1] - p[:, 0], p[:, 2] - p[:, 0])
        total = add(n, face[:, 0]) + add(n, face[:, 1]) + add(n, face[:, 2])
        return total * ((total * total).sum(-1, keepdims=True) + 1e-3) ** -0.5

    return operator(
        {"face": Input((faces, 3), below=vertices), "x": Input((vertices, 3))},
        (vertices, 3),
        ours,
        lambda torch, *a: array(
            torch.linalg.cross,
            lambda v, i: torch.zeros((vertices, 3), dtype=v.dtype).index_add(0, i, v),
            *a,
        ),
        lambda jax, *a: array(
            jax.numpy.cross, lambda v, i: jax.ops.segment_sum(v, i, vertices), *a
        ),
        tolerance=5e-3,
    )


def kinematics(batch: int, joints: int) -> Case:
    """The position of a hand at the end of a chain of turning joints, in batches of angles."""

    def ours(angle: Any, length: Any, twist: Any) -> Any:
        # frame: rotation columns and position, carried along the chain
        def every(v):
            return mapped((batch,), lambda b: te.const(v, "float32"))

        r = [[every(float(i == j)) for j in range(3)] for i in range(3)]
        p = [every(0.0) for _ in range(3)]

        def moved_by(k: Any, r: Any, p: Any) -> Any:
            c, s = (
                mapped((batch,), lambda b: te.cos(angle[b, k])),
                mapped((batch,), lambda b: te.sin(angle[b, k])),
            )
            ca, sa = mapped((), lambda: te.cos(twist[k])), mapped((), lambda: te.sin(twist[k]))

            def row(x: Any, y: Any, z: Any, q: Any) -> Any:
                nx = mapped((batch,), lambda b: x[b] * c[b] + y[b] * s[b])
                ty = mapped((batch,), lambda b: y[b] * c[b] - x[b] * s[b])
                ny = mapped((batch,), lambda b: ty[b] * ca() + z[b] * sa())
                nz = mapped((batch,), lambda b: z[b] * ca() - ty[b] * sa())
                return [nx, ny, nz], mapped((batch,), lambda b: q[b] + length[k] * nx[b])

            rows = [row(*r[i], p[i]) for i in range(3)]
            return [one for one, _ in rows], [two for _, two in rows]

        for k in range(joints):
            r, p = moved_by(k, r, p)
        return topi.stack(p, axis=1)

    def array(numpy: Any, angle: Any, length: Any, twist: Any) -> Any:
        one = numpy.ones_like(angle[:, 0])
        zero = one * 0
        r = [[one if i == j else zero for j in range(3)] for i in range(3)]
        p = [zero] * 3
        for k in range(joints):
            c, s, ca, sa = (
                numpy.cos(angle[:, k]),
                numpy.sin(angle[:, k]),
                numpy.cos(twist[k]),
                numpy.sin(twist[k]),
            )
            new, moved = [], []
            for i in range(3):
                x, y, z = r[i]
                nx, ty = x * c + y * s, y * c - x * s
                moved.append(p[i] + length[k] * nx)
                new.append([nx, ty * ca + z * sa, z * ca - ty * sa])
            r, p = new, moved
        return numpy.stack(p, 1)

    return operator(
        {
            "angle": Input((batch, joints)),
            "length": Input((joints,), 0.2, 1.0),
            "twist": Input((joints,)),
        },
        (batch, 3),
        ours,
        lambda torch, *a: array(torch, *a),
        lambda jax, *a: array(jax.numpy, *a),
    )


CASES: dict[str, Callable[[], Case]] = {
    "kuramoto": lambda: kuramoto(1000),
    "sph": lambda: sph(800),
    "elastic-triangles": lambda: elastic_triangles(4225, 8192),
    "vertex-normals": lambda: vertex_normals(4000, 8000),
    "kinematics": lambda: kinematics(1024, 7),
}
