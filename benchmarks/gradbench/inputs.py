"""Inputs for times: the sizes that GradBench's evals ask for by default, or modest ones.

Values are drawn as the evals draw them, with other seeds; a hand is drawn at random with the sizes
of the suite's data, and cameras are near the suite's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Input = dict[str, Any]
Rng = np.random.Generator

#: bone → parent: a wrist, five fingers of four bones, a forearm
PARENTS = (-1, *(p for f in range(5) for p in (0, *range(4 * f + 1, 4 * f + 4))), 0)
#: cameras, points and observations of the suite's files
SCENES = (
    *((49, 7776, 31843), (21, 11315, 36455), (161, 48126, 182072), (372, 47423, 204472)),
    *((257, 65132, 225911), (539, 65220, 277273), (93, 61203, 287451), (88, 64298, 383937)),
    *((810, 88814, 393775), (1197, 126327, 563734), (1723, 156502, 678718)),
    *((253, 163691, 899155), (245, 198739, 1091386), (356, 226730, 1255268)),
)


def gmm(rng: Rng, d: int, k: int, n: int = 1000) -> Input:
    """A mixture of Gaussians."""
    return {
        **{"d": d, "k": k, "n": n, "m": 0, "gamma": 1.0},
        "x": rng.normal(size=(n, d)).tolist(),
        "alpha": rng.normal(size=k).tolist(),
        "mu": rng.uniform(size=(k, d)).tolist(),
        "q": rng.normal(size=(k, d)).tolist(),
        "l": rng.normal(size=(k, d * (d - 1) // 2)).tolist(),
    }


def kmeans(rng: Rng, k: int, n: int, d: int) -> Input:
    """Points, the last of which are the centroids."""
    points = rng.random((n, d)).tolist()
    return {"points": points, "centroids": points[-k:]}


def llsq(rng: Rng, n: int, m: int = 128) -> Input:
    """Coefficients."""
    return {"x": rng.random(m).tolist(), "n": n}


def lse(rng: Rng, n: int) -> Input:
    """A vector."""
    return {"x": rng.random(n).tolist()}


def ba(rng: Rng, n: int, m: int, p: int) -> Input:
    """One camera, point and feature, repeated."""
    turn, centre = -0.9 + 0.1 * rng.random(3), 40.0 + 10.0 * rng.random(3)
    return {
        **{"n": n, "m": m, "p": p, "w": 0.4},
        "cam": [*turn.tolist(), *centre.tolist(), 420.0, 5.9, -8.5, 0.088, 0.0027],
        "x": [7.2, 0.001, 3.0],
        "feat": [272.0, 834.0],
    }


def ht(rng: Rng, points: int, vertices: int = 10_000, triangles: int = 1084) -> Input:
    """A hand, and points that correspond to places in its triangles."""
    bones = len(PARENTS)

    def transforms() -> Any:
        affine = np.tile(np.eye(4), (bones, 1, 1))
        affine[:, :3] += 0.1 * rng.normal(size=(bones, 3, 4))
        return affine.tolist()

    model = {
        "bone_count": bones,
        "bone_names": [f"bone{number}" for number in range(bones)],
        "parents": list(PARENTS),
        "base_relatives": transforms(),
        "inverse_base_absolutes": transforms(),
        "base_positions": np.c_[rng.normal(size=(vertices, 3)), np.ones(vertices)].tolist(),
        "weights": (rng.random((vertices, bones)) * (rng.random((vertices, bones)) < 0.1)).tolist(),
        "triangles": rng.integers(0, vertices, (triangles, 3)).tolist(),
        "is_mirrored": False,
    }
    return {
        "theta": (0.3 * rng.normal(size=26)).tolist(),
        "us": rng.random((points, 2)).tolist(),
        "data": {
            "model": model,
            "correspondences": rng.integers(0, triangles, points).tolist(),
            "points": rng.normal(size=(points, 3)).tolist(),
        },
    }


def ode(rng: Rng, n: int, s: int) -> Input:
    """Coefficients."""
    return {"x": rng.random(n).tolist(), "s": s}


def lstm(rng: Rng, layers: int, characters: int, bits: int = 14) -> Input:
    """A network, and a text; the suite's text has characters of 14 bits."""
    return {
        "main_params": rng.random((2 * layers, 4 * bits)).tolist(),
        "extra_params": rng.random((3, bits)).tolist(),
        "state": rng.random((2 * layers, bits)).tolist(),
        "sequence": rng.integers(0, 2, (characters, bits)).astype("float64").tolist(),
    }


_DRAW: dict[str, Callable[..., Input]] = {
    **{"gmm": gmm, "kmeans": kmeans, "llsq": llsq, "lse": lse},
    **{"ba": ba, "ht": ht, "ode": ode, "lstm": lstm},
}

#: module → arguments of its inputs
FULL: dict[str, list[tuple[int, ...]]] = {
    "gmm": sorted(
        itertools.product((2, 10, 20, 32, 64), (5, 10, 25, 50, 100)), key=lambda s: s[0] * s[1]
    ),
    "kmeans": sorted(
        itertools.product((10, 100, 1000), (1000, 10_000), (8, 16)),
        key=lambda s: s[0] * s[1] * s[2],
    ),
    "llsq": [(n,) for n in (*(16 << i for i in range(9)), 8196, 16392)],
    "lse": [(2500 << i,) for i in range(10)],
    "ba": list(SCENES),
    "ht": [(n,) for n in (100, 192, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 51200, 100_000)],
    "ode": sorted(
        itertools.product((1000, 10_000, 100_000), (1, 10, 100)), key=lambda s: s[0] * s[1]
    ),
    "lstm": sorted(itertools.product((2, 4, 6), (1024, 4096, 8192)), key=lambda s: s[0] * s[1]),
}
#: a small and a large one of each
MODEST: dict[str, list[tuple[int, ...]]] = {
    "gmm": [(10, 10), (20, 50), (64, 25)],
    "kmeans": [(10, 1000, 8), (100, 10_000, 16)],
    "llsq": [(256,), (16392,)],
    "lse": [(10_000,), (640_000,)],
    "ba": [SCENES[0], SCENES[2]],
    "ht": [(200,), (12_800,)],
    "ode": [(1000, 100), (100_000, 10)],
    "lstm": [(2, 1024), (6, 1024)],
}


def draw(module: str, arguments: tuple[int, ...]) -> Input:
    """The input of a module for these arguments; the same in every process."""
    return _DRAW[module](np.random.default_rng([len(module), *arguments]), *arguments)


def workloads(
    sizes: dict[str, list[tuple[int, ...]]], modules: list[str]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Modules with their arguments, in order."""
    for module in modules:
        for arguments in sizes[module]:
            yield module, arguments
