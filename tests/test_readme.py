"""README: its python blocks run in order and print what stands under them; what it names exists."""

from __future__ import annotations

import importlib
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

import tvm_autodiff
from tests.pages import blocks_of, outputs_of

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = blocks_of(TEXT)


@pytest.mark.slow
def test_blocks_print_what_the_page_says():
    found = outputs_of(TEXT, "README.md")
    for example, printed in found:
        assert printed == (example.printed or ""), f"README.md, line {example.line}"
    assert sum(example.printed is not None for example, _ in found) >= 4


def test_the_first_example_has_about_ten_lines():
    lines = [line for line in BLOCKS[0][1].splitlines() if line and "import" not in line]
    assert len(lines) <= 10


def test_named_functions_exist():
    table = re.search(r"^\| name \|.*?\n\n", TEXT, re.MULTILINE | re.DOTALL)
    assert table is not None
    names = set(re.findall(r"^\| `(\w[\w.]+\w)|, `(\w[\w.]+\w)\(", table[0], re.MULTILINE))
    found = {name for pair in names for name in pair if name}
    assert {"differentiate", "build", "load", "show"} <= found
    bridged = {name for name in found if "." in name}
    assert found - bridged <= set(tvm_autodiff.__all__)
    if not find_spec("torch"):
        bridged -= {"interop.torch.function"}
    for module, _, name in (name.rpartition(".") for name in sorted(bridged)):
        assert hasattr(importlib.import_module(f"tvm_autodiff.{module}"), name)


def test_files_that_the_architecture_names_exist():
    text = (ROOT / "docs/internals/architecture.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`([\w/]+\.py)`", text))
    files = {str(path.relative_to(ROOT)) for path in ROOT.glob("t*/**/*.py")}
    assert len(names) > 60
    assert [n for n in sorted(names) if not any(f"/{f}".endswith("/" + n) for f in files)] == []


def test_every_tutorial_and_notebook_is_linked():
    linked = set(re.findall(r"\]\(((?:tutorials|notebooks)/[\w.]+)\)", TEXT))
    kept = {*ROOT.glob("tutorials/*.py"), *ROOT.glob("notebooks/*.ipynb")}
    assert linked == {str(path.relative_to(ROOT)) for path in kept}
