"""docs/relax_operators.md: which operators of Relax have a gradient, found out by taking it.

Each example of `operator_cases` goes through `relax.transform.Gradient`, is compiled by TVM, and is
compared with differences of what TVM computes. The file is written by ``pytest
tests/interop/relax/test_operators.py --update-golden``.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import tvm_autodiff as ad
from tests.interop.relax.checks import (
    check_gradient,
    variables,
    weighted_sum,
)
from tests.interop.relax.operator_cases import CASES, NO_FLOATS, OperatorCase
from tvm_autodiff.interop.relax import register_gradients
from tvm_autodiff.interop.relax.gradients import (
    gradient_of,
    has_legaliser,
    is_derived,
    operators,
)

FILE = Path(__file__).parents[3] / "docs" / "relax_operators.md"
BY_NAME = {f"relax.{case.name}": case for case in CASES}
ABSENT = {f"relax.{name}": why for why, names in NO_FLOATS.items() for name in names}
#: operators with a gradient of TVM's
OWN = frozenset(
    name for name in operators() if gradient_of(name) is not None and not is_derived(name)
)
register_gradients()

HEAD = """# Operators of Relax and their gradients

Written by `tests/interop/relax/test_operators.py`, which takes each derived gradient by
`relax.transform.Gradient` and compares it with differences of what TVM computes.

*TVM*: `Gradient` has a rule in TVM {version}, which `register_gradients` leaves alone. *derived*:
the operator has none there; `register_gradients` derives it from what the operator's legaliser
computes. *zero*: the same, for a function that is piecewise constant. *no*: there is none, and why.
"""

TAIL = """
## Without a legaliser

{names}
"""


@functools.cache
def answer_for(name: str) -> tuple[str, str]:
    """Whether the gradient of an operator can be derived, and why not."""
    case = BY_NAME[name]
    module = weighted_sum(case.make, variables(case.arrays()))
    try:
        adjoint = relax.transform.Gradient("main", float_params(module, case))(module)
    except ad.NotDifferentiableError as error:
        return "no", str(error).partition(" has no gradient: ")[2].partition(". Give one")[0]
    added = set(adjoint.functions) - set(module.functions)
    return ("derived", "") if len(added) > 1 else ("zero", "it is piecewise constant")


def float_params(module: tvm.IRModule, case: OperatorCase) -> list[relax.Var]:
    params = module["main"].params
    return [params[n] for n, one in enumerate(case.arrays()) if one.dtype.kind == "f"]


def table() -> str:
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


def test_documented_table_is_true(request):
    text = table()
    if request.config.getoption("--update-golden"):
        FILE.write_text(text, encoding="utf-8")
    assert FILE.read_text(encoding="utf-8").splitlines() == text.splitlines()
    assert text.count("| derived |") >= 70


def test_every_operator_is_listed():
    without = {name for name in operators() if has_legaliser(name)} - OWN
    assert without == BY_NAME.keys() | ABSENT.keys()
    assert not BY_NAME.keys() & ABSENT.keys()


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", BY_NAME)
def test_derived_gradient(name, symbolic):
    case = BY_NAME[name]
    if symbolic and not case.symbolic:
        pytest.skip("TVM's legaliser wants constant shapes, or a size is data")
    arrays = case.arrays()
    size = tirx.Var("n", "int64") if symbolic else None
    module = weighted_sum(case.make, variables(arrays, size))
    if answer_for(name)[0] == "no":
        with pytest.raises(ad.NotDifferentiableError, match=f"{name} has no gradient: "):
            relax.transform.Gradient("main", float_params(module, case))(module)
        return
    single = any(array.dtype == np.float32 for array in arrays)
    # the call is computed in float32 there, and the differences see how it rounds
    check_gradient(module, arrays, *((2e-3, 2e-2) if single else (1e-7, 1e-3)))
