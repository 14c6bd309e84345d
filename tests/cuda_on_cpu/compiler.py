"""The C++ compiler of the host: what runs kernels, and the kernels, as libraries.

In: sources. Out: loaded libraries, kept in a folder under the hash of what they were made of. A
compiler that cannot be used is a reason to skip the tests, and `missing` gives it.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import tvm
import tvm_ffi

HERE = Path(__file__).parent
RUNTIME = HERE / "runtime"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or tempfile.gettempdir()) / "cuda_on_cpu"
#: accesses are seen by the hooks of ThreadSanitizer, the rest by those of UBSan; the libraries of
#: both are not linked. What a thread does not initialise is no number that anyone expects
CHECKS = (
    "-fsanitize=thread",
    "--param=tsan-instrument-func-entry-exit=0",
    "-fsanitize=bounds,alignment,signed-integer-overflow,integer-divide-by-zero,shift",
    "-ftrivial-auto-var-init=pattern",
)
PLAIN = ("-std=c++17", "-fPIC", "-w", "-g1")


@functools.cache
def missing() -> str | None:
    """Why no kernel can be run here, or None."""
    compiler = shutil.which("g++")
    if sys.platform != "linux" or compiler is None:
        return "needs g++ on Linux"
    command = [compiler, *PLAIN, *CHECKS, "-x", "c++", "-fsyntax-only", os.devnull]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        return "g++ has not the checks that kernels are compiled with: it must be of version 12"
    known = tvm.get_global_func("device_api.cuda", allow_missing=True)
    ours = tvm.get_global_func("cuda_on_cpu.findings", allow_missing=True)
    if known is not None and ours is None:
        return "TVM has a GPU here, which the tests of tests/schedule/cuda/test_cuda_device.py use"
    return None


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(command)}\n{done.stderr[:6000]}")


def _kept(name: str, texts: list[str]) -> Path:
    digest = hashlib.sha256("\0".join([*texts, tvm.__version__, tvm_ffi.__version__]).encode())
    return CACHE / f"{name}-{digest.hexdigest()[:20]}.so"


def _headers() -> list[str]:
    return [path.read_text() for path in sorted((*HERE.glob("*.h"), *RUNTIME.glob("*.h")))]


@functools.cache
def runtime() -> Path:
    """The library that runs kernels, loaded: from then on TVM has a CUDA device."""
    sources = sorted(RUNTIME.glob("*.cc"))
    path = _kept("runtime", [*(source.read_text() for source in sources), *_headers()])
    if not path.exists():
        include = Path(tvm.__file__).parent / "include"
        found = (include, tvm_ffi.libinfo.find_include_path(), tvm_ffi.libinfo.find_dlpack_include_path())
        system = [word for folder in found for word in ("-isystem", str(folder))]
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            library = f"{folder}/runtime.so"
            _run("g++", "-shared", "-O2", *PLAIN, *system, *map(str, sources), "-o", library, "-ldl")
            os.replace(library, path)
    ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    return path


def load_kernels(text: str) -> Path:
    """Compile a source of kernels, and load it where kernels are looked for."""
    runtime()
    path = _kept("kernels", [text, *_headers(), *CHECKS])
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            source, compiled = f"{path.with_suffix('.cc')}", f"{folder}/kernels.o"
            Path(source).write_text(text)
            # linked apart: the compiler would bring the libraries of the checks along
            _run("g++", "-c", "-O1", *PLAIN, *CHECKS, f"-I{HERE}", source, "-o", compiled)
            _run("g++", "-shared", compiled, "-o", f"{folder}/kernels.so")
            os.replace(f"{folder}/kernels.so", path)
    ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    return path
