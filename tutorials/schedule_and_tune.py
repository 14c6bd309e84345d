"""Make a gradient faster.

The program sums functions of the distances between points and centres, and its first version is
slow. The script counts its work, explains its gradients, profiles its kernels, compares options
and searches for schedules. Run it: ``python tutorials/schedule_and_tune.py``.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from tvm import te

import tvm_autodiff as ad

POINTS, CENTRES, FEATURES, CLASSES = 512, 128, 32, 64

x = te.placeholder((POINTS, FEATURES), name="x")
centres = te.placeholder((CENTRES, FEATURES), name="centres")
weights = te.placeholder((CENTRES, CLASSES), name="weights")
head = te.placeholder((POINTS, CLASSES), name="head")
INPUTS = [x, centres, weights]


def summed_at_once() -> te.Tensor:
    """Distances and their weighted sum in one stage, which computes each distance 64 times."""
    c, f = te.reduce_axis((0, CENTRES), "c"), te.reduce_axis((0, FEATURES), "f")
    return te.compute(
        (POINTS, CLASSES),
        lambda i, j: te.sum(
            (x[i, f] - centres[c, f]) * (x[i, f] - centres[c, f]) * weights[c, j], axis=[c, f]
        ),
        name="scores",
    )


def in_two_stages() -> te.Tensor:
    """The same values: distances first, then a product of matrices."""
    f, c = te.reduce_axis((0, FEATURES), "f"), te.reduce_axis((0, CENTRES), "c")
    distance = te.compute(
        (POINTS, CENTRES),
        lambda i, c: te.sum((x[i, f] - centres[c, f]) * (x[i, f] - centres[c, f]), axis=f),
        name="distance",
    )
    return te.compute(
        (POINTS, CLASSES),
        lambda i, j: te.sum(distance[i, c] * weights[c, j], axis=c),
        name="scores",
    )


def milliseconds(
    function: Callable[..., list[np.ndarray]], arrays: Sequence[np.ndarray], rounds: int = 30
) -> float:
    """The median time of a call that writes into the same arrays."""
    out = [np.asarray(array) for array in function(*arrays)]
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        function(*arrays, out=out)
        times.append(time.perf_counter() - begin)
    return float(np.median(times)) * 1e3


def main() -> None:
    """Count, explain, profile, compare options, tune."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=8, help="schedules to try")
    trials = parser.parse_args().trials
    random = np.random.default_rng(0)
    arrays = [
        random.normal(size=[int(n) for n in tensor.shape]).astype("float32")
        for tensor in (*INPUTS, head)
    ]

    print("1. Count. A gradient repeats the work of its program: improve the program first.")
    programs = {"summed at once": summed_at_once(), "in two stages": in_two_stages()}
    for name, scores in programs.items():
        result = ad.differentiate(scores, INPUTS, head)
        cost = ad.estimate_cost([scores, *result])
        print(f"   {name:<16} {cost.iterations:>12,} iterations")

    print("\n2. Explain. No gradient sums over zeros: each is at its lower bound.")
    scores = programs["in two stages"]
    result = ad.differentiate(scores, INPUTS, head)
    lines = str(result.explain()).splitlines()
    print("\n".join(f"   {line.strip()}" for line in lines if "iterations" in line))

    print("\n3. Profile. The kernels of a call, with their schedule rules and rates:")
    step = ad.build([*INPUTS, head], [scores, *result])
    print("\n".join(f"   {line}" for line in str(step.profile(*arrays)).splitlines()))
    print(f"   plain loops: {step.notice or 'none'}")

    print("\n4. Options. Times with the default settings and with others:")
    variants = {"default": {}, "one thread": {"num_threads": 1}, "exact_math": {"exact_math": True}}
    for name, options in variants.items():
        function = ad.build([*INPUTS, head], [scores, *result], **options)
        print(f"   {name:<12} {milliseconds(function, arrays):7.3f} ms")
    at_once = programs["summed at once"]
    slow = ad.build([*INPUTS, head], [at_once, *ad.differentiate(at_once, INPUTS, head)])
    print(f"   {'at once':<12} {milliseconds(slow, arrays):7.3f} ms")

    print("\n5. Memory. The bytes of inputs, outputs and temporaries:")
    print(f"   {str(step.memory()).splitlines()[-1]}")

    print("\n6. Tune. Try other schedules, and keep those that are faster:")
    missing = [name for name in ("psutil", "cloudpickle") if not importlib.util.find_spec(name)]
    if missing:
        print(f"   needs {' and '.join(missing)}: pip install 'tvm_autodiff[tune]'")
        return
    with TemporaryDirectory() as folder:
        options = ad.Tuning(trials=trials, database=Path(folder), progress=False)
        tuned = ad.build([*INPUTS, head], [scores, *result], tune=options)
        found = [kernel.name for kernel in tuned.profile(*arrays).kernels if kernel.rule == "tuned"]
    same = all(
        np.allclose(ours, theirs, rtol=1e-3, atol=1e-3)
        for ours, theirs in zip(tuned(*arrays), step(*arrays), strict=True)
    )
    print(f"   {trials} trials, faster kernels: {', '.join(found) or 'none'}; same results: {same}")


if __name__ == "__main__":
    main()
