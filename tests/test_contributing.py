"""The worked examples of CONTRIBUTING.md, applied to a copy of the package and tested there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import without_torch

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
#: a new file with its name above, or changes of files
BLOCK = re.compile(r"(?:`([^`\n]+)`:\n\n)?```(python|diff)\n(.*?)```", re.DOTALL)
EXAMPLES = {
    title: BLOCK.findall(text)
    for title, text in re.findall(r"^## Example: (.*?)\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.M)
}


def change(folder: Path, differences: str) -> None:
    """Replace the lines of each part that are not new by those that are not old."""
    for part in re.split(r"^--- ", differences, flags=re.M)[1:]:
        name, _, hunks = part.partition("\n")
        path = folder / name
        text = path.read_text("utf-8")
        for hunk in hunks.split("@@\n"):
            lines = hunk.splitlines(keepends=True)
            old = "".join(line[1:] for line in lines if line[0] != "+")
            new = "".join(line[1:] for line in lines if line[0] != "-")
            assert ("\n" + text).count("\n" + old) == 1, f"{name}: {old}"
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")


def write(folder: Path, name: str, code: str) -> None:
    path = folder / name
    assert not path.exists()
    path.parent.mkdir(exist_ok=True)
    path.write_text(code, encoding="utf-8")


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=without_torch(folder),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def stem(name: str) -> str:
    return Path(name).stem


def test_worked_examples(tmp_path):
    shutil.copytree(
        ROOT / "tvm_autodiff", tmp_path / "tvm_autodiff", ignore=shutil.ignore_patterns("*.pyc")
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "tests/rules", tmp_path / "tests/rules")
    for helper in ROOT.glob("tests/*.py"):
        if not helper.name.startswith(("test_", "conftest")):
            shutil.copy(helper, tmp_path / "tests")
    tests = []
    for blocks in EXAMPLES.values():
        for name, language, code in blocks:
            if language == "diff":
                change(tmp_path, code)
            else:
                write(tmp_path, name, code)
            tests += [name] if name.startswith("tests/") else []
    assert len(tests) == len(EXAMPLES) - 1 == 4
    # in one process: loading TVM takes as long as the tests
    wanted = " or ".join(["cbrt", "every_row", "differentiable_again", *map(stem, tests)])
    command = ("pytest", "-q", "-p", "no:cacheprovider", "-k", wanted, "tests/rules", *tests)
    assert "15 passed" in run(tmp_path, *command)
    run(tmp_path, "ruff", "check", ".")


@pytest.mark.parametrize("title", ["a scalar rule", "a step before scheduling", "a reducer"])
def test_each_is_short(title):
    assert lines_of(title) <= 60


def test_a_schedule_rule_is_short():
    assert lines_of("a schedule rule") <= 60


def lines_of(title):
    return sum(code.count("\n") for name, _, code in EXAMPLES[title] if "tests/" not in name)
