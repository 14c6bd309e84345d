"""Oracles share no code with what they check: what they import imports nothing of the library."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources import parsed

ROOT = Path(__file__).parent.parent

#: modules that tell what is right, without the library
ORACLES = (
    "tests.differences",
    "tests.evaluate",
    "tests.evaluate_functions",
    "tests.evaluate_scalars",
    "tests.evaluate_statements",
    "tests.evaluate_steps",
    "tests.exact_integers",
    "tests.gradients.checked_values",
    "tests.random_programs.cases",
    "tests.random_programs.draw",
    "tests.random_programs.features",
    "tests.random_programs.interpreter",
    "tests.random_programs.nested",
    "tests.random_programs.programs",
    "tests.to_sympy",
    "tests.walks",
    "tests.zero_elimination.floor",
)


def imported(source: str, module: str) -> Iterator[str]:
    """The modules that a module may import, inside of functions, too."""
    package = module.split(".")[:-1]
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*start, *filter(None, [node.module])])
            yield name
            yield from (f"{name}.{alias.name}" for alias in node.names)


def of_the_library(module: str) -> list[str]:
    """What a module and those of tests that it imports import of the library."""
    found, seen, pending = [], set(), [module]
    while pending:
        name = pending.pop()
        path = ROOT / f"{name.replace('.', '/')}.py"
        if name in seen or not path.exists():
            continue
        seen.add(name)
        for other in imported(path.read_text(encoding="utf-8"), name):
            if other.partition(".")[0] == "tvm_autodiff":
                found.append(f"{name} imports {other}")
            elif other.startswith("tests."):
                pending.append(other)
    return found


@pytest.mark.parametrize("module", ORACLES)
def test_oracles_import_nothing_of_the_library(module: str) -> None:
    assert (ROOT / f"{module.replace('.', '/')}.py").exists()
    assert of_the_library(module) == []


def test_the_check_sees_what_it_should() -> None:
    assert of_the_library("tests.gradient_case")
    assert of_the_library("tests.random_programs.tasks")  # by another module
    source = "def f():\n    from ..compile import build\n    import tvm_autodiff.expr as e"
    found = list(imported(source, "tvm_autodiff.rules.a"))
    assert found == ["tvm_autodiff.compile", "tvm_autodiff.compile.build", "tvm_autodiff.expr"]
