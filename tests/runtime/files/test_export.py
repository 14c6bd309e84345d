"""Exported libraries in processes without TVM: docs/how-to/export.md, and what is refused."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import tvm_ffi
from tvm import te, topi

import tvm_autodiff as ad
from tests.processes import without_torch

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to" / "export.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PYTHON = [text for language, text in BLOCKS if language == "python"]
[CPP] = [text for language, text in BLOCKS if language == "cpp"]
PRINTED = [text for language, text in BLOCKS if language == "text"]

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the library of the page."""
    folder = tmp_path_factory.mktemp("export")
    before = Path.cwd()
    os.chdir(folder)
    try:
        exec(compile(PYTHON[0], "docs/how-to/export.md", "exec"), {})
    finally:
        os.chdir(before)
    return folder


def run(script: str, folder: Path) -> str:
    """What Python prints, without this library and without TVM."""
    script += "\nimport sys\nassert not {'tvm', 'tvm_autodiff'} & set(sys.modules)\n"
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, cwd=folder, env=without_torch(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_python_with_tvm_ffi_alone(folder: Path) -> None:
    assert run(PYTHON[1], folder) == PRINTED[0]


def test_a_program_in_cpp(folder: Path) -> None:
    (folder / "main.cc").write_text(CPP)
    config = Path(sys.executable).parent / "tvm-ffi-config"
    flags = [
        word
        for option in ("--cxxflags", "--ldflags", "--libs")
        for word in subprocess.run(
            [str(config), option], capture_output=True, text=True, check=True
        ).stdout.split()
    ]
    subprocess.run(["g++", "-std=c++17", "main.cc", *flags, "-o", "main"], cwd=folder, check=True)
    path = str(Path(tvm_ffi.libinfo.find_libtvm_ffi()).parent)
    environment = {**os.environ, "LD_LIBRARY_PATH": path}
    done = subprocess.run(
        ["./main"], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == PRINTED[1]


CALLS = """
import numpy as np, threading, tvm_ffi
run = tvm_ffi.load_module("./step.so")["run"]
x, y, w = np.full((64, 3), 0.2, "f4"), np.full((64, 1), 0.2, "f4"), np.zeros((3, 1), "f4")
loss = np.zeros((), "f4")
for arrays in ((x, y, w), (x, y[:3], w, loss), (x, y, w.astype("f8"), loss), (x, y, w, w)):
    try:
        run(*arrays)
    except ValueError as error:
        print(str(error)[:24])

def many():
    own = w.copy()
    for _ in range(100):
        run(x, y, own, loss.copy())
    found.append(own.ravel().round(3))

found = []
threads = [threading.Thread(target=many) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
for weights in found: print(weights)
"""


def test_wrong_arrays_and_several_threads(folder: Path) -> None:
    lines = run(CALLS, folder).splitlines()
    assert lines == ["the arrays do not fit (x"] * 4 + ["[0.333 0.333 0.333]"] * 3


def test_symbolic_sizes(tmp_path: Path) -> None:
    n = te.var("n")
    x = te.placeholder((n, 4), name="x")
    ad.build(x, topi.exp(x)).export(tmp_path / "exp.so")
    script = """
        import numpy as np, tvm_ffi
        run = tvm_ffi.load_module("./exp.so")["run"]
        for size in (3, 70000):
            x, y = np.ones((size, 4), "f4"), np.zeros((size, 4), "f4")
            run(x, y)
            print(np.allclose(y, np.e))
    """
    assert run(textwrap.dedent(script), tmp_path).split() == ["True", "True"]


def test_a_cpu_without_the_instructions_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library asks for what this CPU has; the name of one that it lacks is put in its place."""
    from tvm_autodiff.codegen.host import standalone

    source = standalone.standalone_source

    def lacking(*arguments: object) -> str:
        return source(*arguments).replace(
            "return 0;\n}\n\nstatic int refuse", 'return "sse9";\n}\n\nstatic int refuse'
        )

    monkeypatch.setattr("tvm_autodiff.runtime.files.export.standalone_source", lacking)
    x = te.placeholder((4,), name="x")
    ad.build(x, topi.exp(x)).export(tmp_path / "exp.so")
    script = """
        import numpy as np, tvm_ffi
        try:
            tvm_ffi.load_module("./exp.so")["run"](np.ones(4, "f4"), np.ones(4, "f4"))
        except RuntimeError as error:
            print(error)
    """
    assert "this CPU has no sse9" in run(textwrap.dedent(script), tmp_path)


def test_what_was_loaded_is_exported_as_it_is(folder: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.so"
    ad.load(folder / "step.so").export(again)
    assert again.read_bytes() == (folder / "step.so").read_bytes()
