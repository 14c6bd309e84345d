"""The worked examples of CONTRIBUTING.md, applied to a copy of the package and tested there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: ``<!-- file -->`` or ``<!-- file, before: line -->``, and the code below
BLOCK = re.compile(r"<!-- ([^\s,]+)(?:, before: ([^\n]+))? -->\n```python\n(.*?)```", re.DOTALL)


def apply(folder: Path, name: str, anchor: str, code: str) -> None:
    path = folder / name
    if not anchor:
        assert not path.exists()
        path.parent.mkdir(exist_ok=True)
        path.write_text(code, encoding="utf-8")
        return
    lines = path.read_text("utf-8").splitlines(keepends=True)
    [place] = [number for number, line in enumerate(lines) if line.lstrip().startswith(anchor)]
    path.write_text("".join([*lines[:place], code, *lines[place:]]), encoding="utf-8")


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_worked_examples(tmp_path):
    shutil.copytree(
        ROOT / "tvm_autodiff", tmp_path / "tvm_autodiff", ignore=shutil.ignore_patterns("*.pyc")
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    blocks = BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text("utf-8"))
    for name, anchor, code in blocks:
        apply(tmp_path, name, anchor, code)
    tests = [name for name, _, _ in blocks if name.startswith("tests/")]
    assert len(tests) == 2
    assert "3 passed" in run(tmp_path, "pytest", "-q", "-p", "no:cacheprovider", *tests)
    run(tmp_path, "ruff", "check", "tvm_autodiff")


def test_each_is_short():
    blocks = BLOCK.findall((ROOT / "CONTRIBUTING.md").read_text("utf-8"))
    sources = [code for name, _, code in blocks if not name.startswith("tests/")]
    assert sum(code.count("\n") for code in sources) <= 60
