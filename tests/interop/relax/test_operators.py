"""docs/reference/relax_operators.md: operators of Relax with a gradient, found out by taking it.

Each example of `operator_cases` goes through `relax.transform.Gradient`, is compiled by TVM, and is
compared with differences of what TVM computes. The file is written by ``pytest
tests/interop/relax/test_operators.py --update-golden``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import tirx

import tvm_autodiff as ad
from tests.interop.relax.checks import (
    Arrays,
    check_adjoint,
    differentiated,
    variables,
    weighted_sum,
)
from tests.interop.relax.operator_cases import CASES, NO_FLOATS
from tvm_autodiff.interop.relax import register_gradients
from tvm_autodiff.interop.relax.gradients import (
    gradient_of,
    has_legaliser,
    is_derived,
    operators,
)

FILE = Path(__file__).parents[3] / "docs" / "reference" / "relax_operators.md"
BY_NAME = {f"relax.{case.name}": case for case in CASES}
ABSENT = {f"relax.{name}": why for why, names in NO_FLOATS.items() for name in names}
#: operators with a gradient of TVM's
OWN = frozenset(
    name for name in operators() if gradient_of(name) is not None and not is_derived(name)
)
register_gradients()

HEAD = """# Operators of Relax and their gradients

Written by `tests/interop/relax/test_operators.py`, which computes each derived gradient with
`relax.transform.Gradient` and compares it with finite differences of TVM's results.

*TVM*: `Gradient` has a rule in TVM {version}, which `register_gradients` keeps. *derived*: it has
none; `register_gradients` derives one from the operator's legaliser. *zero*: also derived, for a
function that is piecewise constant. *no*: there is no gradient, for the reason given.

Some of TVM's rules fail: those of `triu` and `split`, of `conv2d` with strides and dilations that
differ by axis, and of `take` with `mode="wrap"`, which writes outside of its result where an index
is out of range. `register_gradients(override=True)` derives these as well. The gradient of
`cumsum(exclusive=True)` is wrong in TVM, and cannot be derived.
"""

TAIL = """
## Without a legaliser

{names}
"""


def adjoint_of(name: str, arrays: Arrays) -> tvm.IRModule | str:
    """The example of an operator with its gradient, or why it has none."""
    case = BY_NAME[name]
    # the more general one, as compiling takes the time
    size = tirx.Var("n", "int64") if case.symbolic else None
    try:
        return differentiated(weighted_sum(case.make, variables(arrays, size)), arrays)
    except ad.NotDifferentiableError as error:
        return str(error).partition(" has no gradient: ")[2].partition(". Give one")[0]


def answer_of(adjoint: tvm.IRModule | str) -> tuple[str, str]:
    """Whether the gradient of an operator can be derived, and why not."""
    if isinstance(adjoint, str):
        return "no", adjoint
    added = {str(var.name_hint) for var in adjoint.functions} - {"main", "main_adjoint"}
    return ("derived", "") if added else ("zero", "it is piecewise constant")


def documented() -> dict[str, tuple[str, str]]:
    """The answer for each operator that the file lists."""
    rows = re.findall(r"^\| `(.*?)` \| (\w+) \| (.*?) ?\|$", FILE.read_text("utf-8"), re.MULTILINE)
    return {f"relax.{name}": (answer, why) for name, answer, why in rows}


def table(answer_for: Callable[[str], tuple[str, str]]) -> str:
    """The file, with what `answer_for` gives for the operators of `operator_cases`."""
    lines = [HEAD.format(version=".".join(tvm.__version__.split(".")[:2]))]
    lines += ["| operator | gradient | why not |", "|---|---|---|"]
    for name in operators():
        if not has_legaliser(name) and name not in OWN:
            continue
        answer, why = ("TVM", "") if name in OWN else ("no", ABSENT.get(name, ""))
        if name in BY_NAME:
            answer, why = answer_for(name)
        lines.append(f"| `{name.removeprefix('relax.')}` | {answer} | {why} |")
    others = [name for name in operators() if not has_legaliser(name) and name not in OWN]
    names = ", ".join(f"`{name.removeprefix('relax.')}`" for name in others)
    return "\n".join(lines) + "\n" + TAIL.format(names=names)


def test_the_table_lists_every_operator(request):
    """What it says of the examples is compared where each gradient is taken."""
    if request.config.getoption("--update-golden"):
        found = {name: answer_of(adjoint_of(name, BY_NAME[name].arrays())) for name in BY_NAME}
        FILE.write_text(table(found.__getitem__), encoding="utf-8")
    text = table(documented().__getitem__)
    assert FILE.read_text(encoding="utf-8").splitlines() == text.splitlines()
    assert text.count("| derived |") >= 70


def test_every_operator_is_listed():
    without = {name for name in operators() if has_legaliser(name)} - OWN
    assert without == BY_NAME.keys() | ABSENT.keys()
    assert not BY_NAME.keys() & ABSENT.keys()


@pytest.mark.parametrize("name", BY_NAME)
def test_derived_gradient(name):
    arrays = BY_NAME[name].arrays()
    adjoint = adjoint_of(name, arrays)
    assert documented()[name] == answer_of(adjoint)
    if isinstance(adjoint, str):
        return
    single = any(array.dtype == np.float32 for array in arrays)
    # the call is computed in float32 there, and the differences see how it rounds
    check_adjoint(adjoint, arrays, *((2e-3, 2e-2) if single else (1e-7, 1e-3)))
