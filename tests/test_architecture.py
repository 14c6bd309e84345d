"""House rules a machine can hold: floors, one room for TVM's nodes, light imports, small files.

`FLOORS` is the table of docs/architecture.md. A room is a package or a file of the library; each
must be listed, a file imports only from rooms on lower floors or from its own, and the documented
table says the same.
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

FLOORS = {
    "errors": 1,
    "warn": 1,
    "keywords": 2,
    "ir": 2,
    "domain": 3,
    "calculus": 3,
    "cost": 3,
    "zero_elimination": 4,
    "schedule": 4,
    "runtime": 4,
    "show": 4,
    "forward": 4,
    "reverse": 5,
    "compile": 5,
    "operators": 6,
    "check": 7,
    "functions": 7,
    "info": 7,
    "interop": 8,
    "__init__": 9,
}

#: parts of TVM that only some rooms may touch
RESERVED = {
    "tvm.tirx": {"ir"},
    "tvm.ir.prim": {"ir"},
    "tvm.sym": {"ir"},
    "tvm.s_tir": {"ir", "schedule"},
    "tvm.relax": {"compile", "runtime", "schedule", "interop"},
}
FRAMEWORKS = ("torch", "jax", "sklearn", "scipy", "matplotlib", "tqdm", "IPython", "pytest")


def room_of(path: Path) -> str:
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


def wrong_floors(path: Path, source: str) -> list[str]:
    own = room_of(path)
    wrong = []
    for _, dotted in imports_of(path, source):
        first, _, rest = dotted.partition(".")
        if first == "tvm_autodiff" and rest:
            room = rest.partition(".")[0]
            if room != own and FLOORS.get(room, 99) >= FLOORS.get(own, 0):
                wrong.append(f"{own} (floor {FLOORS.get(own)}) imports {dotted}")
    return wrong


def reserved_names(path: Path, source: str) -> list[str]:
    own = room_of(path)
    return sorted(
        f"{own} uses {name}, reserved for {', '.join(sorted(rooms))}"
        for name in dotted_names(path, source)
        for prefix, rooms in RESERVED.items()
        if (name == prefix or name.startswith(prefix + ".")) and own not in rooms
    )


def test_every_room_is_on_a_floor() -> None:
    rooms = {room_of(path) for path in FILES}
    assert rooms <= FLOORS.keys(), f"put these into FLOORS: {sorted(rooms - FLOORS.keys())}"


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


def test_files_import_only_from_lower_floors() -> None:
    assert complaints_of(wrong_floors) == []


def test_files_leave_tvm_nodes_to_ir() -> None:
    assert complaints_of(reserved_names) == []


def test_files_open_with_a_docstring() -> None:
    assert complaints_of(without_docstring) == []


def test_files_have_at_most_400_lines() -> None:
    assert complaints_of(too_long) == []


@pytest.mark.parametrize(
    ("file", "source", "complaints"),
    [
        ("cost.py", "from .ir.nodes import op_name", 0),
        ("cost.py", "from . import errors, ir", 0),
        ("cost.py", "from .domain import Domain", 1),
        ("ir/graph.py", "from .nodes import op_name", 0),
        ("ir/graph.py", "from ..reverse import differentiate", 1),
        ("ir/graph.py", "from tvm import tirx\ntirx.Add", 0),
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
    assert bool(wrong_floors(path, source) + reserved_names(path, source)) == bool(complaints)


def test_documented_table_is_true() -> None:
    rows = re.findall(
        r"^\| (\d) \| `([\w/.]+)`", (ROOT / "docs/architecture.md").read_text("utf-8"), re.M
    )
    documented = {name.removesuffix("/").removesuffix(".py"): int(floor) for floor, name in rows}
    rooms = {room_of(path) for path in FILES} - {"__init__"}
    assert documented == {room: FLOORS[room] for room in rooms}


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
