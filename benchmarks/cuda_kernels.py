"""Gradients of the suite on a GPU, beside PyTorch's: ``python benchmarks/cuda_kernels.py [case]``.

Needs a GPU that TVM can use and, to compare, PyTorch built for CUDA; says so and stops where there
is none. Inputs lie on the GPU, a round is a few calls and a synchronisation, and rounds alternate
between the libraries. Every answer is compared with one that the CPU computed in float64.
``--build`` builds all cases for sm_90 instead, which needs no GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from suite import ours, pytorch
from suite.case import Case
from suite.cases import ENTRIES

from tvm_autodiff import build
from tvm_autodiff.graph.graph import Graph

ROUNDS = 15
MIN_SECONDS = 0.005  # of a round
SM_90 = {"kind": "cuda", "arch": "sm_90"}


def program(case: Case, dtype: str = "float32") -> tuple[list[Any], list[Any], list[int]]:
    """Placeholders that the answers depend on, the answers, and the places of the placeholders."""
    inputs, outputs = ours.tensors_of(case, dtype)
    graph = Graph(outputs)
    used = [place for place, tensor in enumerate(inputs) if graph.contains(tensor)]
    return [inputs[place] for place in used], outputs, used


def exact(case: Case, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The answers in float64, by the CPU."""
    inputs, outputs, used = program(case, "float64")
    values = [arrays[place] for place in used]
    wide = [a.astype("float64") if a.dtype == np.float32 else a for a in values]
    return list(build(inputs, outputs)(*wide))


def on_gpu(case: Case, arrays: Sequence[np.ndarray], torch: Any) -> Callable[[], Any]:
    """A call that computes the answers with tvm_autodiff, inputs and results on the GPU."""
    inputs, outputs, used = program(case)
    function = build(inputs, outputs, target="cuda")
    move = torch.tensor if torch is not None else (lambda a: tvm.runtime.tensor(a, tvm.cuda(0)))
    values = [move(arrays[place]) for place in used]
    results = list(function(*values))
    return lambda: function(*values, out=results)


def peers(case: Case, arrays: Sequence[np.ndarray], torch: Any) -> dict[str, Callable[[], Any]]:
    """The calls of PyTorch that work: eager, and compiled in both ways."""
    modes = ("eager", "autograd", "functional") if torch is not None else ()
    calls = {f"torch {mode}": _peer(case, arrays, mode) for mode in modes}
    return {name: call for name, call in calls.items() if call is not None}


def _peer(case: Case, arrays: Sequence[np.ndarray], mode: str) -> Callable[[], Any] | None:
    try:
        call = pytorch.prepare(case, arrays, 1, mode)
        call()
    except Exception as error:  # what PyTorch cannot do is no failure of the comparison
        print(f"  torch {mode}: {str(error).splitlines()[0][:80]}")
        return None
    return call


def as_arrays(results: Any) -> list[np.ndarray]:
    """What a call returned, on the host."""
    return [r.detach().cpu().numpy() if hasattr(r, "detach") else r.numpy() for r in results]


def wrong(case: Case, results: Any, truth: Sequence[np.ndarray]) -> float:
    """The largest error, as a part of the largest entry."""
    errors = [
        float(np.abs(got - want).max() / max(1e-30, np.abs(want).max()))
        for got, want in zip(as_arrays(results), truth, strict=True)
        if want.size
    ]
    return max(errors, default=0.0)


def measured(calls: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Microseconds of each call, a figure for each round; rounds alternate."""
    device = tvm.cuda(0)
    counts = {}
    for name, call in calls.items():
        for _ in range(5):
            call()
        device.sync()
        begin = time.perf_counter()
        call()
        device.sync()
        counts[name] = max(1, int(MIN_SECONDS / max(1e-6, time.perf_counter() - begin)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            begin = time.perf_counter()
            for _ in range(counts[name]):
                call()
            device.sync()
            times[name].append((time.perf_counter() - begin) / counts[name] * 1e6)
    return times


def compare(names: Sequence[str]) -> None:
    """Print a table of times, ours and PyTorch's."""
    torch = None
    if importlib.util.find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            torch.set_default_device("cuda")
        else:
            torch = None
    if torch is None:
        print("no PyTorch with CUDA here: our own times alone")
    print("| case | ours us, median (best) | PyTorch's fastest | ratio | largest error |")
    print("|---|---|---|---|---|")
    for name in names:
        case = ENTRIES[name].case()
        arrays = case.arrays(name)
        calls = {"ours": on_gpu(case, arrays, torch), **peers(case, arrays, torch)}
        error = wrong(case, calls["ours"](), exact(case, arrays))
        times = measured(calls)
        mine = times.pop("ours")
        medians = {peer: statistics.median(figures) for peer, figures in times.items()}
        fastest = min(medians, key=lambda peer: medians[peer], default=None)
        own = statistics.median(mine)
        beside = "" if fastest is None else f"{medians[fastest]:.1f} ({fastest})"
        ratio = "" if fastest is None else f"{medians[fastest] / own:.2f}"
        flag = "" if error <= 10 * case.tolerance else " WRONG"
        print(
            f"| {ENTRIES[name].title} | {own:.1f} ({min(mine):.1f}) | {beside} | {ratio} "
            f"| {error:.1e}{flag} |",
            flush=True,
        )


def build_all(names: Sequence[str]) -> None:
    """Build every case for sm_90, and say how long that takes and how many kernels it has."""
    for name in names:
        inputs, outputs, _ = program(ENTRIES[name].case())
        begin = time.perf_counter()
        source = build(inputs, outputs, target=SM_90, cache=False).source()
        kernels = source.count("__global__") // 2
        print(f"{name}: {kernels} kernels in {time.perf_counter() - begin:.2f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="gradients on a GPU, beside PyTorch's")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(ENTRIES)}")
    parser.add_argument("--build", action="store_true", help="build for sm_90 only")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in ENTRIES]
    if unknown:
        parser.error(f"no case {', '.join(unknown)}")
    # sparse matrices are made on CPUs
    dense = [name for name, entry in ENTRIES.items() if entry.case().derivative != "csr"]
    names = options.names or dense
    if options.build:
        build_all(names)
    elif not tvm.cuda(0).exist:
        print("no GPU that TVM can use here: nothing is measured (--build builds the kernels)")
    else:
        compare(names)


if __name__ == "__main__":
    main()
