"""Compiles kernels, and the library that runs them, with the C++ compiler of the host.

Compiled libraries are kept in a folder under the hash of their sources. If the compiler cannot be
used, `missing` gives the reason, and the tests are skipped.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tvm
import tvm_ffi

HERE = Path(__file__).parent
RUNTIME = HERE / "runtime"
#: what was compiled, for the processes of one run of the tests and for the next run
CACHE = HERE.parents[1] / ".pytest_cache" / "cuda_on_cpu"
KEPT_SECONDS = 7 * 24 * 3600  #: that a library is kept after its last use
_UNDEFINED = "-fsanitize=bounds,alignment,signed-integer-overflow,integer-divide-by-zero,shift"
_FILLED = "-ftrivial-auto-var-init=pattern"
#: accesses are seen by the hooks of ThreadSanitizer, the rest by those of UBSan; the libraries of
#: both are not linked. What a thread does not initialise is no number that anyone expects
CHECKS = ("-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0", _UNDEFINED, _FILLED)
#: or, in a process that AddressSanitizer's library is loaded into, by that (`sanitized`)
ADDRESSES = ("-fsanitize=address", "-fsanitize-recover=address", _UNDEFINED, _FILLED)
WITH_ADDRESSES = "CUDA_ON_CPU_ADDRESSES"  #: the environment variable that tells of such a process
# kernels read a vector of numbers through pointers to its parts
PLAIN = ("-std=c++17", "-fPIC", "-w", "-g1", "-fno-strict-aliasing")


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
    # the compiler itself does not run with AddressSanitizer
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise AssertionError(f"{' '.join(command)}\n{done.stderr[:6000]}")


def _made(name: str, texts: list[str], make: Callable[[str], None], suffix: str = ".so") -> Path:
    """What `make` compiles of some texts to a file, in one process of those that want it."""
    digest = hashlib.sha256("\0".join([*texts, tvm.__version__, tvm_ffi.__version__]).encode())
    path = CACHE / f"{name}-{digest.hexdigest()[:20]}{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            path.touch()
            return path
        for old in CACHE.iterdir():
            if old.is_file() and time.time() - old.stat().st_mtime > KEPT_SECONDS:
                old.unlink()
        with tempfile.TemporaryDirectory() as folder:
            make(f"{folder}/made")
            shutil.copy(f"{folder}/made", path)
    return path


def _headers() -> list[str]:
    return [path.read_text() for path in sorted((*HERE.glob("*.h"), *RUNTIME.glob("*.h")))]


@functools.cache
def runtime() -> Path:
    """Load the library that runs kernels; from then on TVM has a CUDA device."""
    sources = sorted(RUNTIME.glob("*.cc"))

    def make(made: str) -> None:
        found = (
            str(Path(tvm.__file__).parent / "include"),
            tvm_ffi.libinfo.find_include_path(),
            tvm_ffi.libinfo.find_dlpack_include_path(),
        )
        system = [word for path in found for word in ("-isystem", path)]
        _run("g++", "-shared", "-O2", *PLAIN, *system, *map(str, sources), "-o", made, "-ldl")

    path = _made("runtime", [*(source.read_text() for source in sources), *_headers()], make)
    ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    return path


@functools.cache
def _header(checks: tuple[str, ...]) -> Path:
    """The folder where g++ finds the header of kernels as it was when parsed."""

    def make(made: str) -> None:
        header = str(HERE / "cuda_on_cpu.h")
        _run("g++", "-O1", *PLAIN, *checks, f"-I{HERE}", "-x", "c++-header", header, "-o", made)

    return _made("header", [*_headers(), *checks], make, "/cuda_on_cpu.h.gch").parent


@functools.cache
def load_kernels(text: str) -> None:
    """Compile a source of kernels and load it, so that the runtime finds them."""
    runtime()
    checks = ADDRESSES if os.environ.get(WITH_ADDRESSES) else CHECKS
    digest = hashlib.sha256(text.encode()).hexdigest()[:20]

    def make(made: str) -> None:
        # where findings look for the lines of a kernel
        source = CACHE / f"kernels-{digest}.cc"
        source.write_text(text)
        # linked apart: the compiler would bring the libraries of the checks along
        include = (f"-I{parsed}", f"-I{HERE}")
        _run("g++", "-c", "-O1", *PLAIN, *checks, *include, str(source), "-o", f"{made}.o")
        _run("g++", "-shared", f"{made}.o", "-o", made)

    parsed = _header(checks)
    path = _made("kernels", [text, *_headers(), *checks], make)
    ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
