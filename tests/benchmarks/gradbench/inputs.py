"""Inputs of the evals, small and drawn at random, in the form of the suite's messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Input = dict[str, Any]


def gmm(rng: np.random.Generator, n: int = 13, d: int = 4, k: int = 3, m: int = 2) -> Input:
    return {
        **{"d": d, "k": k, "n": n, "m": m, "gamma": 1.3},
        "x": rng.normal(size=(n, d)).tolist(),
        "alpha": rng.normal(size=k).tolist(),
        "mu": rng.uniform(size=(k, d)).tolist(),
        "q": rng.normal(size=(k, d)).tolist(),
        "l": rng.normal(size=(k, d * (d - 1) // 2)).tolist(),
    }


def kmeans(rng: np.random.Generator, n: int = 37, k: int = 5, d: int = 3) -> Input:
    points = rng.random((n, d))
    return {"points": points.tolist(), "centroids": points[-k:].tolist()}


def llsq(rng: np.random.Generator, n: int = 20, m: int = 11) -> Input:
    return {"x": rng.random(m).tolist(), "n": n}


def lse(rng: np.random.Generator, n: int = 29, scale: float = 40.0) -> Input:
    return {"x": (scale * rng.normal(size=n)).tolist()}


def ba(rng: np.random.Generator, n: int = 3, m: int = 4, p: int = 7, turn: float = 0.7) -> Input:
    camera = [*(turn * rng.normal(size=3)), 3.0, 4.0, 9.0, 40.0, 0.5, -0.8, 0.08, 0.002]
    return {
        **{"n": n, "m": m, "p": p, "w": 0.4},
        "cam": [float(value) for value in camera],
        "x": rng.normal(size=3).tolist(),
        "feat": rng.normal(size=2).tolist(),
    }


def ht(
    rng: np.random.Generator,
    points: int = 6,
    on_surface: bool = True,
    mirrored: bool = False,
    vertices: int = 9,
) -> Input:
    parents = [-1, *(parent for f in range(5) for parent in (0, *range(4 * f + 1, 4 * f + 4))), 0]
    bones = len(parents)
    triangles = [rng.choice(vertices, 3, replace=False).tolist() for _ in range(5)]

    def transforms() -> list[Any]:
        affine = np.tile(np.eye(4), (bones, 1, 1))
        affine[:, :3] += 0.3 * rng.normal(size=(bones, 3, 4))
        return affine.tolist()

    model = {
        "bone_count": bones,
        "bone_names": [f"bone{number}" for number in range(bones)],
        "parents": parents,
        "base_relatives": transforms(),
        "inverse_base_absolutes": transforms(),
        "base_positions": np.c_[rng.normal(size=(vertices, 3)), np.ones(vertices)].tolist(),
        "weights": rng.random((vertices, bones)).tolist(),
        "triangles": triangles,
        "is_mirrored": mirrored,
    }
    below = len(triangles) if on_surface else vertices
    return {
        "theta": rng.normal(size=26).tolist(),
        "us": rng.random((points, 2)).tolist() if on_surface else [],
        "data": {
            "model": model,
            "correspondences": rng.integers(0, below, points).tolist(),
            "points": rng.normal(size=(points, 3)).tolist(),
        },
    }


def ode(rng: np.random.Generator, n: int = 7, s: int = 3) -> Input:
    return {"x": rng.random(n).tolist(), "s": s}


def lstm(rng: np.random.Generator, layers: int = 2, characters: int = 6, bits: int = 3) -> Input:
    return {
        "main_params": rng.normal(size=(2 * layers, 4 * bits)).tolist(),
        "extra_params": rng.normal(size=(3, bits)).tolist(),
        "state": rng.normal(size=(2 * layers, bits)).tolist(),
        "sequence": rng.integers(0, 2, (characters, bits)).astype("float64").tolist(),
    }


#: module → how an input is drawn
INPUTS: dict[str, Callable[..., Input]] = {
    "gmm": gmm,
    "kmeans": kmeans,
    "llsq": llsq,
    "lse": lse,
    "ba": ba,
    "ht": ht,
    "ode": ode,
    "lstm": lstm,
}
