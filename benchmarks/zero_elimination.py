"""Work of gradients beside what TVM's RFC needed, and beside the floor.

Run ``python benchmarks/zero_elimination.py``. The floor of a case is the number of pairs (gradient
element, summed read) that are not structurally zero, plus the elements of the gradients. Costs are
counted from the expressions (`estimate_cost`); nothing is compiled.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from sys import path

from tvm import te

path.insert(0, str(Path(__file__).parent))

from rfc_cases import Case, cases

import tvm_autodiff as ad


@dataclass(frozen=True)
class Row:
    """One case measured."""

    name: str
    rfc: tuple[int, int, int]
    ours: ad.Cost
    floor: int | None
    way: str


def measure(case: Case) -> Row:
    """Differentiate one case and count."""
    head = te.placeholder(case.output.shape, str(case.output.dtype), name="head")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gradients = list(ad.differentiate(case.output, case.wanted, head))
    dense = any(issubclass(entry.category, ad.DenseSumWarning) for entry in caught)
    elements = sum(math.prod(int(n) for n in tensor.shape) for tensor in gradients)
    floor = None if case.useful is None else case.useful + elements
    return Row(
        case.name, case.rfc, ad.estimate_cost(gradients), floor, "dense sum" if dense else "gather"
    )


def table(rows: Sequence[Row]) -> str:
    """The figures as text, with geometric means."""
    lines = [
        f"{'case':22}{'iterations: RFC':>16}{'ours':>8}{'floor':>8}{'ours/floor':>12}"
        f"{'ours/RFC':>10}{'memory: RFC':>13}{'ours':>7}  way"
    ]
    for row in rows:
        ratio = f"{row.ours.iterations / row.floor:.2f}" if row.floor else "-"
        lines.append(
            f"{row.name:22}{row.rfc[0]:>16}{row.ours.iterations:>8}{row.floor or '-':>8}{ratio:>12}"
            f"{row.ours.iterations / row.rfc[0]:>10.2f}{row.rfc[2]:>13}{row.ours.memory:>7}"
            f"  {row.way}"
        )
    with_floor = [row.ours.iterations / row.floor for row in rows if row.floor]
    lines.append(
        f"geometric mean: ours/floor {_mean(with_floor):.2f}, "
        f"ours/RFC {_mean([row.ours.iterations / row.rfc[0] for row in rows]):.2f}"
    )
    return "\n".join(lines)


def _mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


if __name__ == "__main__":
    print(table([measure(case) for case in cases()]))
