"""The README: its python blocks run in order, and print what stands under them."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

import tvm_autodiff

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_blocks_print_what_the_readme_says():
    namespace: dict[str, object] = {}
    compared = 0
    for number, (language, block) in enumerate(BLOCKS):
        if language != "python":
            continue
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(block, f"README.md, block {number}", "exec"), namespace)
        follows = BLOCKS[number + 1] if number + 1 < len(BLOCKS) else ("", "")
        assert out.getvalue() == (follows[1] if follows[0] == "text" else "")
        compared += follows[0] == "text"
    assert compared >= 4


def test_the_first_example_has_about_ten_lines():
    lines = [line for line in BLOCKS[0][1].splitlines() if line and "import" not in line]
    assert len(lines) <= 10


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\((?!http)([^)#]+)", TEXT))))
def test_links_lead_to_files(link):
    assert (ROOT / link).exists()


def test_named_functions_exist():
    table = re.search(r"^\| name \|.*?\n\n", TEXT, re.MULTILINE | re.DOTALL)
    assert table is not None
    names = set(re.findall(r"^\| `(\w+)|, `(\w+)\(", table[0], re.MULTILINE))
    found = {name for pair in names for name in pair if name}
    assert {"differentiate", "build", "load", "show"} <= found
    assert found <= set(tvm_autodiff.__all__)
