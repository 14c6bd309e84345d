"""Seconds until a program can be called: ``python benchmarks/build_time.py``.

A LeNet training step (batch 64: forward, backward, new weights) and the gradient of one
convolution, each built by three processes in turn: without a cache, filling one, and finding the
program there. Shown beside the total: differentiation, and what remains at the first call.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
from tvm import te, topi

import tvm_autodiff as ad

LENET = {
    "w1": (6, 1, 5, 5),
    "b1": (6,),
    "w2": (16, 6, 5, 5),
    "b2": (16,),
    "w3": (120, 400),
    "b3": (120,),
    "w4": (84, 120),
    "b4": (84,),
    "w5": (10, 84),
    "b5": (10,),
}


def lenet(batch: int = 64) -> dict[str, Any]:
    """The arguments of `build` for a step of gradient descent."""
    images = te.placeholder((batch, 1, 28, 28), name="images")
    labels = te.placeholder((batch,), "int32", name="labels")
    weights = {name: te.placeholder(shape, name=name) for name, shape in LENET.items()}
    w1, b1, w2, b2, w3, b3, w4, b4, w5, b5 = weights.values()

    def layer(x: te.Tensor, weight: te.Tensor, bias: te.Tensor, padding: int) -> te.Tensor:
        y = topi.nn.conv2d(x, weight, strides=1, padding=padding, dilation=1)
        y = topi.nn.relu(te.compute(y.shape, lambda n, f, i, j: y[n, f, i, j] + bias[f]))
        return topi.nn.pool2d(y, [2, 2], [2, 2], [1, 1], [0, 0, 0, 0], "max")

    hidden = topi.nn.flatten(layer(layer(images, w1, b1, 2), w2, b2, 0))
    hidden = topi.nn.relu(topi.nn.dense(hidden, w3, b3))
    hidden = topi.nn.relu(topi.nn.dense(hidden, w4, b4))
    logs = topi.nn.log_softmax(topi.nn.dense(hidden, w5, b5))
    n, k = te.reduce_axis((0, batch), "n"), te.reduce_axis((0, 10), "k")
    loss = te.compute(
        (),
        lambda: te.sum(te.if_then_else(labels[n] == k, -logs[n, k] / batch, 0.0), axis=[n, k]),
        name="loss",
    )
    gradients = ad.differentiate(loss, list(weights.values()))
    updates = {
        weight: topi.subtract(weight, topi.multiply(gradient, te_constant(0.05)))
        for weight, gradient in zip(weights.values(), gradients, strict=True)
    }
    return {
        "inputs": [images, labels, *weights.values()],
        "outputs": loss,
        "updates": updates,
    }


def te_constant(value: float) -> te.Tensor:
    """A tensor of rank 0 that holds a number."""
    from tvm import tirx

    return te.compute((), lambda: tirx.const(value, "float32"), name="constant")


def convolution() -> dict[str, Any]:
    """The arguments of `build` for both gradients of a convolution."""
    x, w = te.placeholder((8, 32, 32, 32), name="x"), te.placeholder((32, 32, 3, 3), name="w")
    y = topi.nn.conv2d(x, w, strides=1, padding=1, dilation=1)
    head = te.placeholder(y.shape, name="head")
    return {"inputs": [x, w, head], "outputs": list(ad.differentiate(y, [x, w], head))}


PROGRAMS = {"LeNet step": lenet, "gradients of a convolution": convolution}


def measure(name: str, cache: str, threads: int) -> dict[str, float]:
    """The seconds that this process needs; `cache` is a folder, or empty for none."""
    ad.build(te_constant(1.0).op.input_tensors, te_constant(1.0), cache=False)  # start TVM
    begin = time.perf_counter()
    program = PROGRAMS[name]()
    differentiated = time.perf_counter()
    function = ad.build(**program, cache=cache or False, num_threads=threads)
    built = time.perf_counter()
    rng = np.random.default_rng(0)
    arrays = [
        np.asarray(rng.integers(0, 2, spec.shape), spec.dtype) for spec in function.signature.inputs
    ]
    function(*arrays)
    called = time.perf_counter()
    return {
        "differentiate": differentiated - begin,
        "build": built - differentiated,
        "first call": called - built,
    }


def main() -> None:
    """Run the processes and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of the kernels")
    parser.add_argument("--program", help="measure one, in this process, and print JSON")
    parser.add_argument("--cache", default="", help="the folder of that one")
    options = parser.parse_args()
    if options.program:
        print(json.dumps(measure(options.program, options.cache, options.threads)))
        return
    print(f"seconds; kernels for {options.threads} thread(s)")
    print(f"{'program':28} {'process':16} {'differentiate':>13} {'build':>8} {'first call':>10}")
    for name in PROGRAMS:
        with tempfile.TemporaryDirectory() as folder:
            for process, cache in (("no cache", ""), ("first", folder), ("second", folder)):
                command = [sys.executable, __file__, "--program", name, "--cache", cache]
                command += ["--threads", str(options.threads)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                spent = json.loads(done.stdout.splitlines()[-1])
                print(
                    f"{name:28} {process:16} {spent['differentiate']:13.2f} {spent['build']:8.2f} "
                    f"{spent['first call']:10.3f}"
                )


if __name__ == "__main__":
    main()
