"""Work of gradients beside what TVM's RFC needed, beside the floor, and beside the forward pass.

Run ``python benchmarks/zero_elimination.py``. The floor of a case is the number of pairs (gradient
element, summed read) that are not structurally zero, plus the elements of the gradients; of a graph
of several stages, the pairs of all stages on the path. Costs are counted from the expressions
(`estimate_cost`); nothing is compiled.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from sys import path
from typing import Any

from tvm import te

path.insert(0, str(Path(__file__).parent))
path.insert(0, str(Path(__file__).parent.parent))

from rfc_cases import Case, cases

import tvm_autodiff as ad
from tests.zero_elimination.cost_cases import CASES, OPERATORS, CostCase
from tests.zero_elimination.floor import floor_of
from tvm_autodiff.cost import stage_cost
from tvm_autodiff.graph.graph import topological
from tvm_autodiff.graph.stage import is_placeholder, shape_of


@dataclass(frozen=True)
class Row:
    """One case of the RFC measured.

    `made` is the memory without the differentiated output, where the gradient reads it: that of
    tanh is made of the forward pass's own values, which the RFC computed again.
    """

    name: str
    rfc: tuple[int, int, int]
    ours: ad.Cost
    made: int
    floor: int | None
    way: str


@dataclass(frozen=True)
class Work:
    """The work of a gradient, in iterations, and the floor of it.

    `forward` is what the forward stages cost that the gradient reads, `own` the rest of it;
    `output` is what the forward pass costs by itself.
    """

    name: str
    own: int
    forward: int
    output: int
    floor: int
    dense: bool

    @property
    def over_floor(self) -> float:
        return self.own / self.floor

    @property
    def over_output(self) -> float:
        return self.own / self.output


def gradients_of(output: Any, inputs: Sequence[Any], head: Any) -> tuple[list[Any], bool]:
    """The gradients, and whether a dense sum is left in any."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gradients = list(ad.differentiate(output, inputs, head))
    return gradients, any(issubclass(entry.category, ad.DenseSumWarning) for entry in caught)


def head_of(output: Any) -> Any:
    return te.placeholder(output.shape, str(output.dtype), name="head")


def measure(case: Case) -> Row:
    """Differentiate one case of the RFC and count."""
    gradients, dense = gradients_of(case.output, case.wanted, head_of(case.output))
    elements = sum(math.prod(shape_of(tensor)) for tensor in gradients)
    floor = None if case.useful is None else case.useful + elements
    cost = ad.estimate_cost(gradients)
    read = {hash(op) for op in topological(gradients)}
    given = stage_cost(case.output.op).memory if hash(case.output.op) in read else 0
    way = "dense sum" if dense else "gather"
    return Row(case.name, case.rfc, cost, cost.memory - given, floor, way)


def measure_work(name: str, case: CostCase) -> Work:
    """Differentiate one of our own cases and count, the floor by brute force."""
    inputs, output, data = case.tensors()
    head = None if case.identity else head_of(output)
    gradients, dense = gradients_of(output, inputs, head)
    in_forward = {hash(op) for op in topological([output])}
    forward = sum(
        stage_cost(op).iterations
        for op in topological(gradients)
        if hash(op) in in_forward and not is_placeholder(op)
    )
    return Work(
        name,
        ad.estimate_cost(gradients).iterations - forward,
        forward,
        ad.estimate_cost(output).iterations,
        floor_of(output, inputs, data, case.identity),
        dense,
    )


def table(rows: Sequence[Row]) -> str:
    """The RFC's figures as text, with geometric means."""
    lines = [
        f"{'case':22}{'iterations: RFC':>16}{'ours':>8}{'floor':>8}{'ours/floor':>12}"
        f"{'ours/RFC':>10}{'memory: RFC':>13}{'ours':>7}{'made':>7}  way"
    ]
    for row in rows:
        ratio = f"{row.ours.iterations / row.floor:.2f}" if row.floor else "-"
        lines.append(
            f"{row.name:22}{row.rfc[0]:>16}{row.ours.iterations:>8}{row.floor or '-':>8}{ratio:>12}"
            f"{row.ours.iterations / row.rfc[0]:>10.2f}{row.rfc[2]:>13}{row.ours.memory:>7}"
            f"{row.made:>7}  {row.way}"
        )
    with_floor = [row.ours.iterations / row.floor for row in rows if row.floor]
    lines.append(
        f"geometric mean: ours/floor {mean(with_floor):.2f}, "
        f"ours/RFC {mean([row.ours.iterations / row.rfc[0] for row in rows]):.2f}"
    )
    return "\n".join(lines)


def floor_table(works: Sequence[Work]) -> str:
    """Our own cases beside the floor as text."""
    lines = [f"{'case':64}{'forward':>8}{'ours':>8}{'floor':>8}{'ours/floor':>12}"]
    lines += [
        f"{work.name:64}{work.forward:>8}{work.own:>8}{work.floor:>8}{work.over_floor:>12.2f}"
        f"{'  dense sum' if work.dense else ''}"
        for work in works
    ]
    ratios = [work.over_floor for work in works]
    lines.append(
        f"{len(works)} cases, geometric mean of ours/floor {mean(ratios):.2f}, "
        f"most {max(ratios):.2f}"
    )
    return "\n".join(lines)


def forward_table(works: Sequence[Work]) -> str:
    """Gradients beside the forward pass as text."""
    lines = [f"{'case':34}{'forward':>9}{'gradient':>10}{'gradient/forward':>18}"]
    lines += [
        f"{work.name:34}{work.output:>9}{work.own:>10}{work.over_output:>18.2f}" for work in works
    ]
    return "\n".join(lines)


def mean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


def floor_works() -> list[Work]:
    """Every case of our own, measured."""
    return [measure_work(name, case) for name, case in CASES.items()]


def forward_works() -> list[Work]:
    """Every operator whose gradient is held against the forward pass, measured."""
    return [measure_work(case.name, case) for case in OPERATORS]


if __name__ == "__main__":
    print("Beside TVM's RFC\n")
    print(table([measure(case) for case in cases()]))
    print("\nBeside the floor (forward: stages of the forward pass that the gradient reads)\n")
    print(floor_table(floor_works()))
    print("\nBeside the forward pass\n")
    print(forward_table(forward_works()))
