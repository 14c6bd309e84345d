"""Kernels that a change reschedules: ``python benchmarks/schedule_digest.py new.json old.json``.

Plans every program of the suite, of breadth, of the operators, of the generated set and with
symbolic sizes, for machines with and without AVX-512 and for CUDA, without compiling anything: two
minutes on one core.
The first file gets the rule and a digest of the code of each kernel; kernels that differ from those
in the second one are printed.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tvm import te

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import dynamic_sizes
from benchmarks.breadth.__main__ import CASES
from benchmarks.generated.cases import programs
from benchmarks.operators.cases import CASES as OPERATORS
from benchmarks.suite.cases import ENTRIES
from benchmarks.suite.ours import tensors_of
from tvm_autodiff.codegen.deep import run_deep
from tvm_autodiff.graph.graph import Graph
from tvm_autodiff.schedule.backends import rules_for
from tvm_autodiff.schedule.machine import as_target, machine_of
from tvm_autodiff.schedule.plan import Plan

#: name → target and threads
MACHINES = {
    "avx512, 2 threads": ({"kind": "llvm", "mcpu": "skylake-avx512"}, 2),
    "avx2, 1 thread": ({"kind": "llvm", "mcpu": "haswell"}, 1),
    "cuda": ({"kind": "cuda", "arch": "sm_90"}, 1),
}
Kernels = list[list[str]]  #: rule, name and digest of each


def cases() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Programs by name."""
    for name, entry in ENTRIES.items():
        yield f"suite {name}", lambda entry=entry: tensors_of(entry.case())
    for name, make in CASES.items():
        yield f"breadth {name}", lambda make=make: tensors_of(make())
    for name, make in OPERATORS.items():
        yield f"operators {name}", lambda make=make: tensors_of(make())
    for entry in programs(0, 40):
        yield f"generated {entry.name}", lambda entry=entry: tensors_of(entry.case())
    for name, symbolic in dynamic_sizes.PROGRAMS.items():
        yield f"symbolic {name}", lambda symbolic=symbolic: symbolic(te.var("n"))


def kernels_of(outputs: list[Any], target: Any, threads: int) -> Kernels:
    """The kernels of a program."""
    machine = machine_of(as_target(target), threads)
    inputs = Graph(outputs).placeholders()
    plan = run_deep(Plan, inputs, outputs, (), machine, rules_for(machine))
    return [
        [step.rule, step.kernel.name, _digest(step.launch.func)] for step in run_deep(plan.steps)
    ]


def _digest(func: Any) -> str:
    return hashlib.sha256(func.script().encode()).hexdigest()[:12]


def main() -> None:
    """Write the digests, and print what differs."""
    path, *before = map(Path, sys.argv[1:])
    found: dict[str, Kernels] = {}
    for name, make in cases():
        outputs = [getattr(output, "values", output) for output in make()[1]]
        for machine, (target, threads) in MACHINES.items():
            found[f"{name}, {machine}"] = kernels_of(outputs, target, threads)
    path.write_text(json.dumps(found, indent=0), "utf-8")
    old = json.loads(before[0].read_text("utf-8")) if before else found
    for name, kernels in found.items():
        earlier = old.get(name, [])
        lines = [f"  - {rule}: {kernel}" for rule, kernel, _ in _only(earlier, kernels)]
        lines += [f"  + {rule}: {kernel}" for rule, kernel, _ in _only(kernels, earlier)]
        if lines:
            print(name, *lines, sep="\n")


def _only(kernels: Kernels, others: Kernels) -> Kernels:
    return [kernel for kernel in kernels if kernel not in others]


if __name__ == "__main__":
    main()
