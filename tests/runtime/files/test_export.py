"""Exported libraries in processes without TVM: docs/how-to/export.md, and what is refused."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
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


@pytest.mark.slow
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


@pytest.mark.slow
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


n, r = te.var("n"), te.reduce_axis((0, te.var("m")), "r")
sized, fixed = te.placeholder((n, 3), name="x"), te.placeholder((8, 3), name="x")
long = te.placeholder((r.dom.extent, 3), name="x")


def column_sums(source: Callable[..., Any]) -> te.Tensor:
    return te.compute((3,), lambda i: te.sum(source(r, i), axis=r), name="sums")


#: name, input, results, and whether the library has a function `run`
PROGRAMS: list[tuple[str, te.Tensor, list[te.Tensor], bool]] = [
    ("a map", sized, [topi.exp(sized)], True),
    ("a chain of maps", sized, [topi.sin(topi.exp(sized))], True),
    ("a sum", long, [column_sums(lambda i, j: long[i, j] * 2.0)], True),
    ("several results", sized, [topi.exp(sized), topi.sin(sized)], False),
    ("a stored tensor", sized, [topi.nn.softmax(sized)], False),
    ("constant sizes", fixed, [topi.nn.softmax(fixed), topi.exp(topi.nn.softmax(fixed))], True),
]


@pytest.mark.parametrize(
    ("x", "outputs", "has_run"), [row[1:] for row in PROGRAMS], ids=[row[0] for row in PROGRAMS]
)
def test_which_programs_have_a_function_run(
    x: te.Tensor, outputs: list[te.Tensor], has_run: bool, tmp_path: Path
) -> None:
    built, given = ad.build(x, outputs), np.linspace(-1, 1, 24, dtype="float32").reshape(8, 3)
    built.export(tmp_path / "f.so")
    assert has_run == hasattr(tvm_ffi.load_module(str(tmp_path / "f.so")), "run")
    again = ad.load(tmp_path / "f.so")
    for a, b in zip(again(given), built(given), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_a_program_without_run_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(PYTHON[2], "docs/how-to/export.md", "exec"), {})
    assert capsys.readouterr().out == PRINTED[2]
    found = [hasattr(tvm_ffi.load_module(f"./softmax_{size}.so"), "run") for size in ("n", 8)]
    assert found == [False, True]


@pytest.mark.slow
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
