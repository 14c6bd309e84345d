"""README and docs/internals/architecture.md: their python blocks run in order, and print what stands under
them.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

import tvm_autodiff

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks_of(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


BLOCKS = blocks_of(TEXT)


@pytest.mark.parametrize(("page", "least"), [("README.md", 4), ("docs/internals/architecture.md", 3)])
def test_blocks_print_what_the_page_says(page, least):
    namespace: dict[str, object] = {}
    blocks = blocks_of((ROOT / page).read_text(encoding="utf-8"))
    compared = 0
    for number, (language, block) in enumerate(blocks):
        if language != "python" or ("import torch\n" in block and not find_spec("torch")):
            continue
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(block, f"{page}, block {number}", "exec"), namespace)
        follows = blocks[number + 1] if number + 1 < len(blocks) else ("", "")
        assert out.getvalue() == (follows[1] if follows[0] == "text" else "")
        compared += follows[0] == "text"
    assert compared >= least


def test_the_first_example_has_about_ten_lines():
    lines = [line for line in BLOCKS[0][1].splitlines() if line and "import" not in line]
    assert len(lines) <= 10


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\((?!http)([^)#]+)", TEXT))))
def test_links_lead_to_files(link):
    assert (ROOT / link).exists()


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
