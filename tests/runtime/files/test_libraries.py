"""Libraries that cannot be linked, loaded or run here, and folders that cannot be used."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import te

from tests.runtime.files.test_build_cache import X, entries, program
from tests.schedule import cases, group_cases
from tvm_autodiff.compile import build, load
from tvm_autodiff.errors import InvalidArgumentError, LoweringError
from tvm_autodiff.package import FOLDER
from tvm_autodiff.runtime import modules
from tvm_autodiff.runtime.files import build_key as build_keys, host, library
from tvm_autodiff.runtime.files.build_cache import clear_cache, default_folder
from tvm_autodiff.runtime.files.build_key import build_key
from tvm_autodiff.runtime.files.library import split_library, with_manifest
from tvm_autodiff.runtime.modules import can_link

pytestmark = pytest.mark.skipif(not can_link(), reason="no C compiler to link with")

WANT = X.sum(axis=1)[::-1] * 2


def runs(function):
    np.testing.assert_array_equal(function(X), WANT)


class TestNothingCanBeKept:
    """`build` needs neither a linker nor a folder to load from."""

    @pytest.fixture
    def noexec(self, monkeypatch):
        """The folder for temporary files is mounted so that nothing in it is run."""
        real = tvm.runtime.load_module
        place = tempfile.gettempdir()

        def refuse(path, *rest):
            if Path(path).parent == Path(place):
                raise RuntimeError(f"{path}: failed to map segment from shared object")
            return real(path, *rest)

        monkeypatch.setattr(modules, "load_module", refuse)

    def test_noexec(self, tmp_path, noexec):
        runs(build(*program(), cache=tmp_path))
        assert len(entries(tmp_path)) == 1
        runs(build(*program(), cache=tmp_path))  # loaded from the cache folder

    def test_noexec_everywhere(self, tmp_path, monkeypatch):
        def refuse(path, *rest):
            raise RuntimeError(f"{path}: failed to map segment from shared object")

        monkeypatch.setattr(modules, "load_module", refuse)
        for _ in range(2):
            runs(build(*program(), cache=tmp_path))
        assert all(name.endswith(".so") for name in entries(tmp_path))

    def test_a_library_beside_a_folder_that_does_not_do(self, tmp_path, noexec):
        path = tmp_path / "f.so"
        build(*program(), cache=False).export(path)
        runs(load(path))
        assert entries(tmp_path) == ["f.so"]

    def test_a_library_that_cannot_be_loaded(self, tmp_path, monkeypatch):
        path = tmp_path / "f.so"
        build(*program(), cache=False).export(path)
        code, manifest = split_library(path.read_bytes())
        path.write_bytes(with_manifest(code[:100], manifest))
        with pytest.raises(InvalidArgumentError, match="set TMPDIR"):
            load(path)

    @pytest.mark.parametrize("compiler", ["/bin/false", "/nowhere/cc"])
    def test_no_linker(self, tmp_path, monkeypatch, compiler):
        monkeypatch.setenv("CXX", compiler)
        function = build(*program(), cache=tmp_path)
        runs(function)
        assert entries(tmp_path) == []
        with pytest.raises(LoweringError, match="cannot link.*C compiler"):
            function.export(tmp_path / "f.so")

    def test_no_folder_for_temporary_files(self, tmp_path, monkeypatch):
        def refuse(*args, **kwargs):
            raise FileNotFoundError("No usable temporary directory found")

        monkeypatch.setattr(library.tempfile, "TemporaryDirectory", refuse)
        monkeypatch.setattr(library.tempfile, "mkstemp", refuse)
        runs(build(*program(), cache=tmp_path))

    def test_a_target_that_is_not_this_machine(self, tmp_path):
        other = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "generic"}
        function = build(*program(), target=other, cache=tmp_path)
        assert "aarch64" in function.source()
        with pytest.raises(LoweringError, match="built for aarch64"):
            function(X)


def a_file(folder):
    path = folder / "file"
    path.write_text("")
    return path


UNUSABLE = {
    "a file": a_file,
    "below a file": lambda folder: a_file(folder) / "cache",
    "a broken link": lambda folder: Path(os.symlink("/nowhere", folder / "l") or folder / "l"),
    "below /proc": lambda folder: "/proc/nowhere/cache",
    "a name that is too long": lambda folder: folder / ("x" * 300),
    "a null in its name": lambda folder: f"{folder}/a\0b",
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_cache_folder_that_cannot_be_used(tmp_path, name, monkeypatch):
    folder = UNUSABLE[name](tmp_path)
    with pytest.raises(InvalidArgumentError, match="cannot use the cache folder"):
        build(*program(), cache=folder)
    monkeypatch.setattr("tvm_autodiff.runtime.files.build_cache.default_folder", lambda: folder)
    runs(build(*program()))


def test_no_home(monkeypatch):
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *args, **kwargs: "~/.cache/x")
    with pytest.raises(FileNotFoundError, match="no home"):
        default_folder()
    runs(build(*program()))
    clear_cache()


@pytest.mark.parametrize("path", ["/nowhere/f.so", "/proc/f.so"])
def test_an_export_that_cannot_be_written(path):
    with pytest.raises(InvalidArgumentError, match="cannot write"):
        build(*program(), cache=False).export(path)


class TestTarget:
    """A library says what it needs, and is not run where that is missing."""

    @pytest.fixture
    def exported(self, tmp_path):
        path = tmp_path / "f.so"
        build(*program(), target={"kind": "llvm", "mcpu": "x86-64-v3"}, cache=False).export(path)
        return path

    def edited(self, path, **changes):
        code, manifest = split_library(path.read_bytes())
        path.write_bytes(with_manifest(code, replace(manifest, **changes)))
        return path

    def test_manifest(self, exported):
        _, manifest = split_library(exported.read_bytes())
        assert "x86-64-v3" in manifest.target
        assert manifest.architecture == "x86_64"
        assert {"avx2", "fma", "sse4.2"} <= set(manifest.features)
        assert "avx512f" not in manifest.features
        assert json.loads(json.dumps(manifest.to_json()))["features"] == list(manifest.features)
        runs(load(exported))

    def test_missing_features(self, exported, monkeypatch):
        known = {"avx512f": False, "avx512vl": False, "avx2": True}
        monkeypatch.setattr(host, "host_features", lambda: known)
        self.edited(exported, features=("avx2", "avx512f", "avx512vl", "fast-gather"))
        with pytest.raises(LoweringError, match=r"x86-64-v3.*\(avx512f, avx512vl\): build it here"):
            load(exported)

    def test_another_architecture(self, exported):
        with pytest.raises(LoweringError, match="built for riscv64, and this is"):
            load(self.edited(exported, architecture="riscv64"))

    def test_the_features_of_this_host_are_not_missing(self, tmp_path):
        path = tmp_path / "f.so"
        build(*program(), cache=False).export(path)
        runs(load(path))

    def test_a_cache_of_another_machine_is_built_anew(self, tmp_path, monkeypatch):
        build(*program(), cache=tmp_path)
        [entry] = entries(tmp_path)
        self.edited(tmp_path / entry, architecture="riscv64")
        runs(build(*program(), cache=tmp_path))
        _, manifest = split_library((tmp_path / entry).read_bytes())
        assert manifest.architecture != "riscv64"

    def test_a_function_for_another_cpu_is_not_run(self, monkeypatch):
        known = {**host.host_features(), "avx2": False}
        monkeypatch.setattr(host, "host_features", lambda: known)
        function = build(*program(), target={"kind": "llvm", "mcpu": "x86-64-v3"}, cache=False)
        for run in (function, function.profile):
            with pytest.raises(LoweringError, match="avx2"):
                run(X)


KEPT = ["TVM_NUM_THREADS", "TVM_BACKTRACE", "PATH_TO_NOWHERE"]
CHANGED = [
    *("TVM_CUDA_COMPILE_MODE", "TVM_CUDA_NVCC_NO_FAST_MATH", "TVM_CUDA_PTXAS_REG_LEVEL"),
    *("TVM_CUDA_PTXAS_EXTRA_OPTS", "TVM_KERNEL_DEBUG", "TVM_COMPILE_FORCE_FALLBACK"),
    *("CUDA_HOME", "NVCC_APPEND_FLAGS"),
]


@pytest.mark.parametrize(
    ("name", "same"), [*((n, True) for n in KEPT), *((n, False) for n in CHANGED)]
)
def test_settings_are_part_of_the_key(monkeypatch, name, same):
    A = te.placeholder((4,), name="A")
    before = build_key([[A]], {})
    monkeypatch.setenv(name, "0.5")
    assert (build_key([[A]], {}) == before) == same


@pytest.mark.parametrize("name", ["schedule/cost.py", "rules/copies.py", "__init__.py"])
def test_sources_of_the_whole_package_are_part_of_the_key(monkeypatch, tmp_path, name):
    changed = tmp_path / "changed"
    shutil.copytree(FOLDER, changed)
    A = te.placeholder((4,), name="A")
    before = build_key([[A]], {})
    with (changed / name).open("a") as file:
        file.write("#")
    monkeypatch.setattr(build_keys, "FOLDER", changed)
    assert build_key([[A]], {}) != before


def test_versions_are_part_of_the_key(monkeypatch):
    A = te.placeholder((4,), name="A")
    before = build_key([[A]], {})
    monkeypatch.setattr(tvm, "__version__", "0.0")
    assert build_key([[A]], {}) != before


STACK = {
    "sums over rows": lambda: group_cases.layer_norm(64, 4096),
    "wide sums over rows": lambda: group_cases.layer_norm(64, 16384),
    "narrow rows": lambda: group_cases.layer_norm(640, 100),
    "channels": lambda: group_cases.batch_norm(8, 16, 20),
    "long rows": lambda: group_cases.cross_entropy(30, 10_000),
    "symbolic rows": lambda: group_cases.layer_norm(te.var("n"), 1000),
    "contraction": lambda: cases.matmul(96, 96, 96),
    "columns": lambda: cases.columns(3000, 700),
}
MAX_FRAME = 32 * 1024  #: bytes that a function of a kernel takes of the stack


@pytest.mark.parametrize("name", STACK)
def test_calls_from_threads_with_a_small_stack(name):
    """Large temporaries of kernels lie in the heap, and code is made on a stack of our own."""
    function = build(*STACK[name](), num_threads=2, cache=False)
    frames = re.findall(r"sub\s*q?\s+\$(\d+), %rsp", function.source("asm"))
    assert all(int(size) <= MAX_FRAME for size in frames)
    arrays = [
        np.ones([dim if isinstance(dim, int) else 40 for dim in spec.shape], spec.dtype)
        for spec in function.signature.inputs
    ]
    results = []
    before = threading.stack_size(96 * 1024)
    try:
        thread = threading.Thread(target=lambda: results.append(function(*arrays)))
        thread.start()
        thread.join()  # it sets and restores the size of the process, too
    finally:
        threading.stack_size(before)
    found, wanted = results[0], function(*arrays)
    if not isinstance(found, list):
        found, wanted = [found], [wanted]
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got, want)
