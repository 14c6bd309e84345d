"""What was built is kept on disk: found by other processes, never wrong, never in the way."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tvm import te

import tvm_autodiff as ad
from tests.processes import without_torch
from tvm_autodiff.compile import build, load
from tvm_autodiff.errors import InvalidArgumentError
from tvm_autodiff.runtime.files.build_cache import BuildCache, clear_cache, default_folder
from tvm_autodiff.runtime.modules import can_link

pytestmark = pytest.mark.skipif(not can_link(), reason="no C compiler to link with")

ROOT = Path(__file__).parents[3]
X = np.arange(12, dtype="float32").reshape(3, 4)


def program(scale=2.0, names=("A", "B"), rows=3, dtype="float32"):
    A = te.placeholder((rows, 4), dtype, name=names[0])
    k = te.reduce_axis((0, 4), "k")
    total = te.compute((rows,), lambda i: te.sum(A[i, k], axis=k), name=names[1])
    return A, te.compute((rows,), lambda i: total[rows - 1 - i] * scale, name="C")


def entries(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def test_an_equal_program_is_found(tmp_path):
    first = build(*program(), cache=tmp_path)
    [entry] = entries(tmp_path)
    written = (tmp_path / entry).stat().st_mtime_ns
    second = build(*program(), cache=tmp_path)
    assert entries(tmp_path) == [entry]
    assert (tmp_path / entry).stat().st_mtime_ns > written  # used, which keeps it
    np.testing.assert_array_equal(first(X), second(X))
    assert str(first.signature) == str(second.signature)
    assert first.memory() == second.memory()
    assert (first.from_cache, second.from_cache) == (False, True)


DIFFERENT = {
    "constant": (program(3.0), {}),
    "placeholder name": (program(names=("D", "B")), {}),
    "stage name": (program(names=("A", "D")), {}),
    "shape": (program(rows=5), {}),
    "dtype": (program(dtype="float64"), {}),
    "threads": (program(), {"num_threads": 1}),
    "target": (program(), {"target": {"kind": "llvm", "mcpu": "x86-64"}}),
    "math": (program(), {"exact_math": True}),
}


@pytest.mark.parametrize("change", DIFFERENT)
def test_a_different_program_is_not_found(tmp_path, change):
    if change == "target" and os.uname().machine != "x86_64":
        pytest.skip("another architecture")
    if change == "threads" and len(os.sched_getaffinity(0)) == 1:
        pytest.skip("one CPU")
    build(*program(), cache=tmp_path)
    tensors, keywords = DIFFERENT[change]
    build(*tensors, cache=tmp_path, **keywords)
    assert len(entries(tmp_path)) == 2


def test_one_output_and_a_list_of_it_differ(tmp_path):
    A, C = program()
    assert build(A, C, cache=tmp_path)(X).shape == (3,)
    [result] = build(A, [C], cache=tmp_path)(X)
    assert result.shape == (3,)


def test_updates_are_part_of_the_key(tmp_path):
    A, C = program()
    new = te.compute((3, 4), lambda i, j: A[i, j] + 1.0, name="new")
    build(A, [C, new], cache=tmp_path)
    x = X.copy()
    build(A, [C], updates={A: new}, cache=tmp_path)(x)
    np.testing.assert_array_equal(x, X + 1)
    x = X.copy()
    build(A, [C], updates={A: new}, cache=tmp_path)(x)
    np.testing.assert_array_equal(x, X + 1)


def damage(path, how):
    data = bytearray(path.read_bytes())
    if how == "empty":
        data = bytearray()
    elif how == "cut":
        data = data[: len(data) // 2]
    elif how == "a bit of the code":
        data[5000] ^= 1
    elif how == "a bit of the manifest":
        data[-200] ^= 1
    elif how == "a bit of the tail":
        data[-30] ^= 1
    elif how == "not a library":
        data = bytearray(b"x" * 10_000)
    path.write_bytes(data)


DAMAGES = ["empty", "cut", "a bit of the code", "a bit of the manifest", "a bit of the tail"]


@pytest.mark.parametrize("how", [*DAMAGES, "not a library"])
def test_a_damaged_entry_is_built_again(tmp_path, how):
    want = build(*program(), cache=tmp_path)(X)
    [entry] = entries(tmp_path)
    whole = (tmp_path / entry).stat().st_size
    damage(tmp_path / entry, how)
    np.testing.assert_array_equal(build(*program(), cache=tmp_path)(X), want)
    assert abs((tmp_path / entry).stat().st_size - whole) < 4096


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_export_is_refused(tmp_path, how):
    path = tmp_path / "f.so"
    build(*program(), cache=False).export(path)
    damage(path, how)
    with pytest.raises(InvalidArgumentError, match="cannot load"):
        load(path)


def test_source_and_export_of_a_found_program(tmp_path):
    build(*program(), cache=tmp_path)
    found = build(*program(), cache=tmp_path)
    assert "define" in found.source()
    found.export(tmp_path / "f.so")
    np.testing.assert_array_equal(load(tmp_path / "f.so")(X), found(X))


def test_a_module_outlives_another_of_the_same_file(tmp_path):
    first, second = (build(*program(), cache=tmp_path) for _ in range(2))
    want = second(X)
    del first
    np.testing.assert_array_equal(second(X), want)


def test_quick_builds_leave_no_file_unless_a_folder_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    build(*program())
    assert entries(default_folder()) == []
    build(*program(), cache=False)


def test_no_folder_is_touched_without_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    build(*program(), cache=False)
    assert entries(tmp_path) == []


def test_a_home_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert build(*program())(X).shape == (3,)


@pytest.mark.parametrize("cache", [1, None, 2.0, ""])
def test_bad_cache(cache):
    with pytest.raises(InvalidArgumentError, match="cache must be True, False or a folder"):
        build(*program(), cache=cache)


class TestFolder:
    """Permissions, size and clearing."""

    def test_is_private(self, tmp_path):
        folder = BuildCache(tmp_path / "a" / "b").folder
        assert folder.stat().st_mode & 0o777 == 0o700

    def test_others_must_not_write_into_it(self, tmp_path):
        tmp_path.chmod(0o777)
        with pytest.raises(InvalidArgumentError, match="other users can write"):
            build(*program(), cache=tmp_path)

    def test_least_recently_used_entries_go(self, tmp_path):
        cache = BuildCache(tmp_path, max_bytes=250)
        keys = [digit * 64 for digit in "abc"]
        for number, key in enumerate(keys[:2]):
            cache.put(key, b"x" * 100)
            os.utime(cache.path(key), ns=(number, number))
        os.utime(cache.path(keys[0]))  # a was used after b
        cache.put(keys[2], b"x" * 100)
        assert entries(tmp_path) == [f"{keys[0]}.so", f"{keys[2]}.so"]

    def test_an_entry_larger_than_the_folder_is_not_kept(self, tmp_path):
        BuildCache(tmp_path, max_bytes=50).put("a" * 64, b"x" * 100)
        assert entries(tmp_path) == []

    def test_old_leftovers_go_and_new_ones_stay(self, tmp_path):
        old, new = tmp_path / "writing-old.part", tmp_path / "writing-new.part"
        for path in (old, new):
            path.write_bytes(b"")
        os.utime(old, (time.time() - 7200,) * 2)
        BuildCache(tmp_path).put("a" * 64, b"x")
        assert entries(tmp_path) == ["a" * 64 + ".so", new.name]

    def test_clear_leaves_other_files(self, tmp_path):
        (tmp_path / "libc.so").write_bytes(b"")
        build(*program(), cache=tmp_path)
        assert len(entries(tmp_path)) == 2
        clear_cache(tmp_path)
        assert entries(tmp_path) == ["libc.so"]
        clear_cache(tmp_path / "nowhere")
        assert ad.clear_cache is clear_cache


SCRIPT = """
import sys
import numpy as np
from tests.runtime.files.test_build_cache import X, program
from tvm_autodiff.compile import pipeline
if sys.argv[2] == "found":
    def refuse(*arguments):
        raise SystemExit("compiled again")
    pipeline._compiled = refuse
print(pipeline.build(*program(), cache=sys.argv[1])(X).tolist())
"""


def start(folder, mode, seed):
    environment = without_torch(ROOT, PYTHONHASHSEED=str(seed))
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder), mode],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=ROOT,
        text=True,
    )


@pytest.mark.slow
def test_another_process_finds_it_and_does_not_compile(tmp_path):
    want = build(*program(), cache=tmp_path)(X).tolist()
    out, err = start(tmp_path, "found", 1).communicate()
    assert out.strip() == str(want), err


@pytest.mark.slow
def test_processes_and_threads_that_build_the_same_at_once(tmp_path):
    want = (X.sum(axis=1)[::-1] * 2).tolist()
    processes = [start(tmp_path, "build", seed) for seed in range(2)]
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(build(*program(), cache=tmp_path)(X)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.tolist() for result in results] == [want] * 3
    for process in processes:
        out, err = process.communicate()
        assert out.strip() == str(want), err
    assert len(entries(tmp_path)) == 1
