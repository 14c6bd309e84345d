"""docs/reference/operators.md: the gradient of each operator of topi, found out by taking it.

Each example of `tests.topi_operators` is differentiated; the table says whether that works or why
not, and which way the pullback takes. Where it works, the values are checked. The file is written
by ``pytest tests/test_operator_table.py --update-golden``.
"""

from __future__ import annotations

import functools
import inspect
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import tvm
from tvm import te, topi
from tvm.topi import image, nn, vision

import tvm_autodiff as ad
from tests.topi_operators import GROUPS, NOT_OPERATORS, NOT_USABLE
from tvm_autodiff.expr.nodes import const_value, dtype_of, is_float
from tvm_autodiff.graph.graph import topological
from tvm_autodiff.graph.kinds.custom import custom_of
from tvm_autodiff.graph.stage import bodies, is_compute, is_extern

FILE = Path(__file__).parent.parent / "docs" / "reference" / "operators.md"
CASES = {case.name: case for cases in GROUPS.values() for case in cases}

HEAD = """# Operators of topi and their gradients

Written by `tests/test_operator_table.py`, which computes each gradient and compares it with finite
differences.

*gather*: every element of the gradient sums only the elements that contribute to it. *dense sum*:
the solver leaves an equation as a guard, and each element of the gradient also sums zeros. This is
correct but slow; `differentiate` warns, and `manual=` replaces it. *scatter*: an index is data; one
pass over the reads adds to the elements that were read. *zero*: the operator is piecewise constant.
"""

TAIL = """
## Not in this table

Functions of topi that are no operators on tensors of floats, or that TVM {version} itself cannot
build or run:
"""


def way_of(case) -> tuple[str, str]:
    """Whether the operator of a case is differentiable, and how its pullback is computed."""
    placeholders, output = case.tensors()
    floats = [tensor for tensor in placeholders if is_float(tensor)]
    if not is_float(output):
        with pytest.raises(ad.NotDifferentiableError, match=f"dtype {dtype_of(output)}"):
            ad.differentiate(output, placeholders)
        return "no", f"its values are {dtype_of(output)}"
    if not floats:
        return "no", "its inputs are integers"
    head = te.placeholder(output.shape, dtype_of(output), name="head")
    ways: dict[str, list[str]] = {}
    for tensor in floats:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                [adjoint] = ad.differentiate(output, [tensor], head)
            except ad.NotDifferentiableError as error:
                return "no", reason_of(str(error))
        dense = any(issubclass(entry.category, ad.DenseSumWarning) for entry in caught)
        stages = topological([adjoint])
        scatter = any(is_extern(op) and custom_of(op) is None for op in stages)
        zero = is_compute(adjoint.op) and const_value(bodies(adjoint.op)[0]) == 0
        way = "dense sum" if dense else "scatter" if scatter else "zero" if zero else "gather"
        ways.setdefault(way, []).append(f"`{tensor.op.name}`")
    slow = {way: names for way, names in ways.items() if way in ("dense sum", "scatter")}
    if not slow:
        return "yes", "zero" if "gather" not in ways else "gather"
    if len(floats) == 1:
        return "yes", next(iter(slow))
    return "yes", "; ".join(f"{way} by " + ", ".join(names) for way, names in slow.items())


def reason_of(message: str) -> str:
    for kind in ("te.extern", "te.scan"):
        if f"an opaque {kind} stage" in message:
            return f"an opaque `{kind}`: give its derivative with `override=`"
    return message


@functools.cache
def documented() -> dict[str, tuple[str, str]]:
    """The answer for each operator that the file lists."""
    row = r"^\| `(.*?)`(.*?) \| (\w+) \| (.*) \|$"
    rows = re.findall(row, FILE.read_text("utf-8"), re.MULTILINE)
    return {name + variant: (answer, way) for name, variant, answer, way in rows}


def table(answer_for: Callable[[str], tuple[str, str]]) -> str:
    """The file, with what `answer_for` gives for the operators of `topi_operators`."""
    lines = [HEAD]
    for group, cases in GROUPS.items():
        lines += [f"## {group}", "", "| operator | differentiable | pullback |", "|---|---|---|"]
        for case in cases:
            name, _, variant = case.name.partition(", ")
            answer, way = answer_for(case.name)
            lines.append(f"| `{name}`{', ' + variant if variant else ''} | {answer} | {way} |")
        lines.append("")
    lines.append(TAIL.strip("\n").format(version=".".join(tvm.__version__.split(".")[:2])))
    lines.append("")
    for reason, names in [*NOT_OPERATORS.items(), *NOT_USABLE.items()]:
        lines.append(f"- {reason}: " + ", ".join(f"`{name}`" for name in names))
    return "\n".join(lines) + "\n"


def test_the_table_lists_every_operator(request):
    """What it says of each is compared where the gradient is taken."""
    if request.config.getoption("--update-golden"):
        FILE.write_text(table(lambda name: way_of(CASES[name])), encoding="utf-8")
    text = table(documented().__getitem__)
    assert documented().keys() == CASES.keys()
    assert FILE.read_text(encoding="utf-8").splitlines() == text.splitlines()


@pytest.mark.parametrize("name", CASES)
def test_gradient(name):
    case = CASES[name]
    answer, why = way_of(case)
    assert documented()[name] == (answer, why)
    if answer == "yes":
        case.check()
    elif "opaque" in why:
        with pytest.raises(ad.NotDifferentiableError, match="opaque te.*override="):
            case.check()
    else:
        assert why.startswith(("its values are", "its inputs are integers"))


def operators_of(module, prefix: str) -> set[str]:
    """Public functions that belong to a module of topi and not to one that it imports."""
    own = set()
    for name, value in vars(module).items():
        if name.startswith("_") or inspect.ismodule(value) or inspect.isclass(value):
            continue
        origin = getattr(value, "__module__", "") or ""
        if callable(value) and origin.startswith("tvm.topi"):
            own.add(prefix + name)
    return own


def test_every_function_of_topi_is_listed():
    listed = {name.partition(", ")[0] for name in CASES}
    listed |= {name for names in NOT_OPERATORS.values() for name in names}
    listed |= {name for names in NOT_USABLE.values() for name in names}
    found = operators_of(topi, "")
    for module, prefix in ((nn, "nn."), (image, "image."), (vision, "vision.")):
        own = operators_of(module, prefix)
        found |= {name for name in own if name.removeprefix(prefix) not in vars(topi)}
    assert sorted(found - listed) == []
