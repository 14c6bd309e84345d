"""What the order of rules costs: ``python benchmarks/rule_order.py --threads 1``.

Every kernel of the suite, of breadth, of the operators and of the generated set is compiled by the
rule that takes it, by the next rule that takes it when the first is refused, and so on; a fusion
group also kernel by kernel. Kernels that another rule runs in less time are printed with the times
of all. Kernels inside of loops over time are left out.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.breadth.__main__ import CASES as BREADTH
from benchmarks.generated.cases import programs
from benchmarks.operators.cases import CASES as OPERATORS
from benchmarks.suite.cases import ENTRIES
from benchmarks.suite.ours import tensors_of
from tvm_autodiff.codegen.deep import run_deep
from tvm_autodiff.compile.manifest import manifest_of
from tvm_autodiff.compile.pipeline import _plan
from tvm_autodiff.compile.request import request_of
from tvm_autodiff.errors import LoweringError
from tvm_autodiff.runtime.compiled import CompiledFunction
from tvm_autodiff.schedule.backends import rules_for
from tvm_autodiff.schedule.compilation import compiled
from tvm_autodiff.schedule.fusion.groups import FusionGroup
from tvm_autodiff.schedule.machine import Machine, as_target, machine_of
from tvm_autodiff.schedule.size_parts import Plans

SLOW = 2.0  #: seconds of a call beyond which no further rule is tried
ALTERNATIVES = 3  #: rules that are tried for a kernel
TURNS = 4  #: of which the best time counts


def cases() -> Iterator[tuple[str, Any]]:
    """Programs by name."""
    for name, entry in ENTRIES.items():
        yield f"suite {name}", entry.case
    for name, make in BREADTH.items():
        yield f"breadth {name}", make
    for name, make in OPERATORS.items():
        yield f"operators {name}", make
    for entry in programs(0, 40):
        yield f"generated {entry.name}", entry.case


def by_rules(case: Any, name: str, machine: Machine) -> Mapping[str, list[tuple[str, float]]]:
    """For each kernel or group, the rules that took it in turn, and its time by each."""
    inputs, outputs = tensors_of(case)
    request = request_of(inputs, outputs)
    plan = run_deep(_plan, request, machine, rules_for(machine), True)
    whole = {id(kernel): kernel for kernel in plan.kernels}
    of_part = {id(p): k for k in plan.kernels if isinstance(k, FusionGroup) for p in k.parts}
    arrays = case.arrays(name)
    made = []
    for _ in range(ALTERNATIVES):
        try:
            done = compiled(Plans(plan))
        except LoweringError:
            break
        if any(step.inner for step in done.program.steps):
            break
        manifest = manifest_of(request, done, Plans(plan))
        function = CompiledFunction(done.executable, manifest, machine.threads)
        kernels = list({id(step.kernel): step.kernel for step in done.program.steps}.values())
        begin = time.perf_counter()
        function(*arrays)
        function(*arrays)
        once = (time.perf_counter() - begin) / 2
        if once > SLOW:
            break
        keys = [id(of_part.get(id(kernel), kernel)) for kernel in kernels]
        made.append((function, keys, max(3, min(50, int(0.1 / once)))))
        left = [one for one in plan.scheduled if not one.plain and one.launches]
        if not left:
            break
        for one in left:
            plan.refuse(one, "another rule is measured")
    found: dict[int, list[tuple[str, float]]] = {}
    for _ in range(TURNS):
        for number, (function, keys, repeats) in enumerate(made):
            times = function.profile(*arrays, repeats=repeats)
            here: dict[int, tuple[list[str], float]] = {}
            for key, timed in zip(keys, times.kernels, strict=True):
                rules, spent = here.get(key, ([], 0.0))
                here[key] = [*rules, timed.rule], spent + timed.seconds
            for key, (rules, spent) in here.items():
                rows = found.setdefault(key, [])
                while len(rows) <= number:
                    rows.append(("-", math.inf))
                rows[number] = (" + ".join(rules), min(rows[number][1], spent))
    return {f"{whole[key].name} {key}": rows for key, rows in found.items() if key in whole}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs="+", default=[], help="parts of names")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--margin", type=float, default=1.15)
    parser.add_argument("--least", type=float, default=3.0, help="µs below which none is told")
    options = parser.parse_args()
    machine = machine_of(as_target(None), options.threads)
    for name, make in cases():
        if options.case and not any(part in name for part in options.case):
            continue
        case = make()
        if case.derivative == "csr":  # functions of their own
            continue
        found = by_rules(case, name, machine)
        first = sum(rows[0][1] for rows in found.values())
        best = sum(min(spent for _, spent in rows) for rows in found.values())
        ratio = first / best if best else 1.0
        print(f"{name:50s} {first * 1e6:10.1f} {best * 1e6:10.1f} {ratio:5.2f}", flush=True)
        for kernel, rows in found.items():
            least = min(spent for _, spent in rows)
            if rows[0][1] > options.margin * least and rows[0][1] * 1e6 > options.least:
                times = ", ".join(f"{rule} {spent * 1e6:.1f}" for rule, spent in rows)
                print(f"    {kernel[:60]}: {times}", flush=True)


if __name__ == "__main__":
    main()
