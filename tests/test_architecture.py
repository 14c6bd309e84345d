"""Rules that a machine can hold: layers, the packages that know TVM's nodes, light imports, small
files.

`LAYERS` is the table of docs/internals/architecture.md. Each package or single file is listed
there; a file imports only from lower layers or from its own package.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.sources import parsed

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "tvm_autodiff"
FILES = sorted(PACKAGE.rglob("*.py"))

LAYERS = {
    "errors": 0,
    "package": 0,
    "warn": 1,
    "garbage": 0,
    "keywords": 1,
    "containers": 1,
    "expr": 1,
    "graph": 2,
    "codegen": 3,
    "domain": 3,
    "rules": 4,
    "cost": 4,
    "zero_elimination": 5,
    "schedule": 5,
    "sparse": 5,
    "runtime": 5,
    "debug": 5,
    "stage_text": 5,
    "drawing": 5,
    "transforms": 6,
    "compile": 6,
    "differences": 6,
    "operators": 6,
    "check": 7,
    "partition": 7,
    "functions": 8,
    "register": 8,
    "info": 7,
    "interop": 9,
    "__init__": 9,
}

#: the layers inside of `schedule`: files and folders, the longest name that a path begins with
SCHEDULE_LAYERS = {
    "cost": 0,
    "declined": 0,
    "elementary": 0,
    "machine": 1,
    "kernel": 1,
    "primitives": 1,
    "nest": 2,
    "rewrites": 3,
    "fusion": 4,
    "work": 5,
    "rule": 5,
    "statement_loops": 5,
    "emit": 6,
    "loop_rows": 6,
    "slow_kernels": 6,
    "cpu/loops": 6,
    "cuda/blocks": 6,
    "cpu/tiles": 7,
    "cpu/lanes": 7,
    "arguments": 7,
    "tiled": 7,
    "cpu": 8,
    "cuda": 8,
    "backends": 9,
    "tuning": 10,
    "plan": 10,
    "size_parts": 11,
    "compilation": 12,
}

#: the packages that know TVM's classes
KNOW_TVM = ("expr", "graph", "codegen")
#: the files beside them that import TVM, each with the reason why it cannot be one of theirs
IMPORT_TVM = {
    "runtime/tensors.py": "arrays and devices of TVM, which calls take and return",
    "runtime/modules.py": "linking, loading and running compiled modules",
    "schedule/primitives.py": "TVM's schedule primitives and the rules that it brings along",
    "schedule/emit/program.py": "the Relax function that calls the kernels of a program",
    "schedule/emit/memory_plan.py": "reads Relax's memory plan while TVM compiles",
    "interop/relax/emit.py": "calls of functions in a Relax function",
    "interop/relax/emit_te.py": "calls of te functions in a Relax function",
    "interop/relax/te_gradient.py": "reads calls in a Relax function",
    "interop/relax/passes.py": "rewrites Relax functions",
    "interop/relax/kernels.py": "calls of kernels in a Relax function",
    "interop/relax/schedule.py": "rewrites Relax functions",
    "interop/relax/gradients.py": "operators of Relax, and where TVM keeps their gradients",
    "interop/relax/operator_call.py": "legalises a call of a Relax operator",
    "interop/relax/pullback.py": "takes fields of tuples of Relax",
    "interop/relax/size_arguments.py": "arguments of calls in a Relax function",
    "interop/relax/trace.py": "reads bindings of Relax functions",
    "schedule/tuning/search.py": "derives from the classes of meta-schedule",
    "schedule/tuning/measure.py": "derives from the classes of meta-schedule",
}
#: attributes of TVM's nodes that nothing else here has: what they hold is asked for by functions of
#: `expr` and `graph`. Tensors, stages and axes are handles: their names, shapes, axes and variables
#: are read everywhere
NODE_ATTRIBUTES = frozenset(
    ("a", "b", "attrs", "dom", "identity_element", "input_placeholders")
    + ("input_tensors", "iter_type", "iter_vars", "producer", "reduce_axis", "ret_type", "same_as")
    + ("struct_info", "ty")
)
#: attributes of stages that nothing else reads, by what a stage is called: ``op.body``
STAGE_ATTRIBUTES = frozenset(("body", "inputs", "reduce_axis", "output_placeholders"))
#: what tells the kind of a stage, which `kind_of` alone asks
DECODERS = frozenset(("scan_of", "scatter_of", "update_loops_of"))


def package_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def imports_of(path: Path, source: str) -> Iterator[tuple[str, str]]:
    """Pairs (local name, dotted name) of everything that a file imports, inside functions too."""
    package = ["tvm_autodiff", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(parsed(source)):
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


def schedule_part(parts: Sequence[str]) -> str | None:
    """The name in `SCHEDULE_LAYERS` of a file or module; None outside of `schedule`."""
    if parts[0] != "schedule" or len(parts) < 2:
        return None
    name = "/".join(parts[1:3])
    return name if name in SCHEDULE_LAYERS else parts[1]


def wrong_schedule_layers(path: Path, source: str) -> list[str]:
    """Imports that climb inside of `schedule`, or lead from one backend to the other, or from one
    rule to another.
    """
    own = schedule_part(path.relative_to(PACKAGE).with_suffix("").parts)
    if own is None:
        return []
    wrong = []
    for _, dotted in imports_of(path, source):
        part = schedule_part(dotted.split(".")[1:]) if dotted.startswith("tvm_autodiff.") else None
        if part is None:
            continue
        if part == own:
            bad = own in ("cpu", "cuda") and path.stem != "rules"
        else:
            backends = {own.partition("/")[0], part.partition("/")[0]} == {"cpu", "cuda"}
            bad = backends or SCHEDULE_LAYERS.get(part, 99) >= SCHEDULE_LAYERS.get(own, 0)
        if bad:
            wrong.append(f"{own} (layer {SCHEDULE_LAYERS.get(own)}) imports {dotted}")
    return wrong


def knows_tvm(path: Path) -> bool:
    return package_of(path) in KNOW_TVM or path.relative_to(PACKAGE).as_posix() in IMPORT_TVM


def tvm_imports(path: Path, source: str) -> list[str]:
    names = {dotted for _, dotted in imports_of(path, source)}
    found = sorted(name for name in names if name == "tvm" or name.startswith("tvm."))
    return [] if knows_tvm(path) else [f"imports {name}" for name in found]


def node_attributes(path: Path, source: str) -> list[str]:
    """Reads of attributes that only TVM's nodes have, and ``op.body`` and the like."""
    if knows_tvm(path):
        return []
    found = []
    for node in ast.walk(parsed(source)):
        if not isinstance(node, ast.Attribute):
            continue
        owner = node.value.attr if isinstance(node.value, ast.Attribute) else None
        owner = node.value.id if isinstance(node.value, ast.Name) else owner
        if node.attr in NODE_ATTRIBUTES or (owner == "op" and node.attr in STAGE_ATTRIBUTES):
            found.append(f"line {node.lineno} reads {ast.unparse(node)}")
    return found


def decoded_kinds(path: Path, source: str) -> list[str]:
    """Uses of what only `graph/kinds` decodes: other walks dispatch on the type of `kind_of`."""
    file = path.relative_to(PACKAGE).as_posix()
    if file.startswith("graph/kinds/"):
        return []
    return [f"asks {name}" for name, _ in imports_of(path, source) if name in DECODERS]


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
    return [] if ast.get_docstring(parsed(source)) else ["no docstring"]


def too_long(path: Path, source: str) -> list[str]:
    count = len(source.splitlines())
    return [f"{count} lines"] if count > 400 else []


def test_files_import_only_from_lower_layers() -> None:
    assert complaints_of(wrong_layers) == []


def test_parts_of_schedule_import_only_from_lower_layers() -> None:
    assert complaints_of(wrong_schedule_layers) == []


def test_every_part_of_schedule_is_on_a_layer() -> None:
    parts = {schedule_part(path.relative_to(PACKAGE).with_suffix("").parts) for path in FILES}
    assert parts - {None, "__init__"} == SCHEDULE_LAYERS.keys()


def test_files_leave_tvm_to_the_packages_that_know_it() -> None:
    assert complaints_of(tvm_imports) == []


def test_files_leave_the_attributes_of_nodes_to_the_packages_that_know_them() -> None:
    assert complaints_of(node_attributes) == []


def test_walks_dispatch_on_kinds() -> None:
    assert complaints_of(decoded_kinds) == []


def test_each_exception_is_one() -> None:
    for file in IMPORT_TVM:
        path = PACKAGE / file
        names = {dotted for _, dotted in imports_of(path, path.read_text(encoding="utf-8"))}
        assert any(name.partition(".")[0] == "tvm" for name in names), f"{file} needs no exception"


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
        ("domain/a.py", "from tvm import te", 1),
        ("domain/a.py", "import tvm.sym", 1),
        ("domain/a.py", "import tvm_ffi", 0),
        ("domain/a.py", "def f():\n    import tvm", 1),
        ("runtime/compiled.py", "from tvm import relax", 1),
        ("runtime/modules.py", "from tvm import relax", 0),
        ("schedule/primitives.py", "from tvm.s_tir import Schedule", 0),
        ("domain/a.py", "def f(node):\n    return node.a", 1),
        ("domain/a.py", "def f(axis):\n    return axis.dom.extent", 1),
        ("domain/a.py", "def f(site):\n    return site.op.body[0]", 1),
        ("domain/a.py", "def f(op):\n    return op.name, op.axis[0].var", 0),
        ("graph/a.py", "def f(axis):\n    return axis.dom.extent", 0),
        ("rules/a.py", "from ..graph.kinds.prefix_scan import Scan, scan_of", 1),
        ("rules/a.py", "from ..graph.kinds.kind import kind_of", 0),
        ("graph/kinds/kind.py", "from .prefix_scan import scan_of", 0),
        ("schedule/cuda/a.py", "from ..cpu.rules import CPU_RULES", 1),
        ("schedule/cuda/a.py", "from ..cpu.loops.strip_mining import strips", 1),
        ("schedule/cuda/a.py", "from .blocks.threads import bind_flat", 0),
        ("schedule/cuda/a.py", "from .reduction import reduction", 1),
        ("schedule/cuda/rules.py", "from .reduction import reduction", 0),
        ("schedule/nest/a.py", "from ..fusion.groups import FusionGroup", 1),
        ("schedule/nest/a.py", "from .access import Affine", 0),
        ("schedule/fusion/a.py", "from ..nest.access import Affine", 0),
    ],
)
def test_the_checks_see_what_they_should(file: str, source: str, complaints: int) -> None:
    path = PACKAGE / file
    checks = (wrong_layers, wrong_schedule_layers, tvm_imports, node_attributes, decoded_kinds)
    found = [complaint for check in checks for complaint in check(path, source)]
    assert bool(found) == bool(complaints)


def test_documented_table_is_true() -> None:
    page = (ROOT / "docs/internals/architecture.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d) \| `([\w/.]+)`", page, re.M)
    documented = {name.removesuffix("/").removesuffix(".py"): int(layer) for layer, name in rows}
    packages = {package_of(path) for path in FILES} - {"__init__"}
    assert documented == {package: LAYERS[package] for package in packages}
    rows = re.findall(r"^\| 5\.(\d+) \| (.*?) \|", page, re.M)
    inside = {
        name.removesuffix("/").removesuffix(".py"): int(layer)
        for layer, names in rows
        for name in re.findall(r"`([\w/.]+)`", names)
    }
    assert inside == SCHEDULE_LAYERS
