"""Rules that a machine can hold: layers, the packages that know TVM's nodes, light imports, small
files.

`LAYERS` is the table of docs/architecture.md. Each package, or file beside the packages, is listed
there; a file imports only from lower layers or from its own package.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "tvm_autodiff"
FILES = sorted(PACKAGE.rglob("*.py"))

LAYERS = {
    "errors": 0,
    "warn": 0,
    "keywords": 1,
    "expr": 1,
    "graph": 2,
    "codegen": 3,
    "domain": 3,
    "rules": 4,
    "cost": 4,
    "zero_elimination": 5,
    "schedule": 5,
    "runtime": 5,
    "show": 5,
    "transforms": 6,
    "compile": 6,
    "operators": 6,
    "check": 7,
    "functions": 8,
    "info": 7,
    "interop": 9,
    "__init__": 9,
}

#: parts of TVM that only some packages may touch
RESERVED = {
    "tvm.tirx": {"expr", "graph", "codegen"},
    "tvm.ir.prim": {"expr", "graph", "codegen"},
    "tvm.sym": {"expr", "graph", "codegen"},
    "tvm.s_tir": {"expr", "graph", "codegen", "schedule"},
    "tvm.relax": {"compile", "runtime", "schedule", "interop"},
}
FRAMEWORKS = ("torch", "jax", "sklearn", "scipy", "matplotlib", "tqdm", "IPython", "pytest")


def package_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports_of(path: Path, source: str) -> Iterator[tuple[str, str]]:
    """Pairs (local name, dotted name) of everything that a file imports, inside functions too."""
    package = ["tvm_autodiff", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                yield (alias.asname or first, alias.name if alias.asname else first)
                yield ("", alias.name)
        elif isinstance(node, ast.ImportFrom):
            prefix = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*prefix, *([node.module] if node.module else [])])
            for alias in node.names:
                yield (alias.asname or alias.name, f"{module}.{alias.name}")


def dotted_names(path: Path, source: str) -> set[str]:
    """Every dotted name that a file imports, or reaches through an import (``tvm.tirx.Add``)."""
    imported = list(imports_of(path, source))
    names = {local: dotted for local, dotted in imported if local}
    found = {dotted for _, dotted in imported}
    for node in ast.walk(ast.parse(source)):
        parts: list[str] = []
        current: ast.AST = node
        while isinstance(current, ast.Attribute):
            parts.append(current.attr)
            current = current.value
        if parts and isinstance(current, ast.Name) and current.id in names:
            found.add(".".join([names[current.id], *reversed(parts)]))
    return found


def wrong_layers(path: Path, source: str) -> list[str]:
    own = package_of(path)
    wrong = []
    for _, dotted in imports_of(path, source):
        first, _, rest = dotted.partition(".")
        if first == "tvm_autodiff" and rest:
            package = rest.partition(".")[0]
            if package != own and LAYERS.get(package, 99) >= LAYERS.get(own, 0):
                wrong.append(f"{own} (layer {LAYERS.get(own)}) imports {dotted}")
    return wrong


def reserved_names(path: Path, source: str) -> list[str]:
    own = package_of(path)
    return sorted(
        f"{own} uses {name}, reserved for {', '.join(sorted(packages))}"
        for name in dotted_names(path, source)
        for prefix, packages in RESERVED.items()
        if (name == prefix or name.startswith(prefix + ".")) and own not in packages
    )


def test_every_package_is_on_a_layer() -> None:
    packages = {package_of(path) for path in FILES}
    assert packages <= LAYERS.keys(), f"put these into LAYERS: {sorted(packages - LAYERS.keys())}"


def complaints_of(check: Callable[[Path, str], list[str]]) -> list[str]:
    return [
        f"{path.relative_to(PACKAGE)}: {complaint}"
        for path in FILES
        for complaint in check(path, path.read_text(encoding="utf-8"))
    ]


def without_docstring(path: Path, source: str) -> list[str]:
    return [] if ast.get_docstring(ast.parse(source)) else ["no docstring"]


def too_long(path: Path, source: str) -> list[str]:
    count = len(source.splitlines())
    return [f"{count} lines"] if count > 400 else []


def test_files_import_only_from_lower_layers() -> None:
    assert complaints_of(wrong_layers) == []


def test_files_leave_tvm_nodes_to_three_packages() -> None:
    assert complaints_of(reserved_names) == []


def test_files_open_with_a_docstring() -> None:
    assert complaints_of(without_docstring) == []


def test_files_have_at_most_400_lines() -> None:
    assert complaints_of(too_long) == []


@pytest.mark.parametrize(
    ("file", "source", "complaints"),
    [
        ("cost.py", "from .expr.nodes import op_name", 0),
        ("cost.py", "from . import errors, expr", 0),
        ("cost.py", "from .zero_elimination import inline_tensors", 1),
        ("graph/graph.py", "from .nodes import op_name", 0),
        ("graph/graph.py", "from ..transforms import differentiate", 1),
        ("graph/graph.py", "from tvm import tirx\ntirx.Add", 0),
        ("domain/a.py", "def f():\n    from tvm_autodiff.compile import build", 1),
        ("domain/a.py", "from tvm import te\nte.compute", 0),
        ("domain/a.py", "from tvm.ir import prim", 1),
        ("domain/a.py", "import tvm\ntvm.tirx.Add(1, 2)", 1),
        ("domain/a.py", "from tvm import ir as x\nx.prim", 1),
        ("domain/a.py", "import tvm.sym", 1),
        ("compile.py", "from tvm import relax, runtime", 0),
        ("compile.py", "from tvm.s_tir import Schedule", 1),
    ],
)
def test_the_checks_see_what_they_should(file: str, source: str, complaints: int) -> None:
    path = PACKAGE / file
    assert bool(wrong_layers(path, source) + reserved_names(path, source)) == bool(complaints)


def test_documented_table_is_true() -> None:
    rows = re.findall(
        r"^\| (\d) \| `([\w/.]+)`", (ROOT / "docs/architecture.md").read_text("utf-8"), re.M
    )
    documented = {name.removesuffix("/").removesuffix(".py"): int(layer) for layer, name in rows}
    packages = {package_of(path) for path in FILES} - {"__init__"}
    assert documented == {package: LAYERS[package] for package in packages}


def test_import_loads_no_framework() -> None:
    # tvm_ffi itself imports torch where torch is installed: count only what comes after TVM
    program = (
        "import sys, numpy, sympy, tvm; before = set(sys.modules); import tvm_autodiff;"
        "print(*sorted(name for name in sys.modules if name not in before))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = {name.partition(".")[0] for name in result.stdout.split()}
    assert "tvm_autodiff" in loaded
    assert loaded.isdisjoint(FRAMEWORKS)
