"""What the figures were measured with: processor, operating system, versions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

_PACKAGES = ("apache-tvm", "torch", "jax", "numpy")


def describe() -> dict[str, str]:
    """Names and values, in the order to show them."""
    versions = {package: _version(package) for package in _PACKAGES}
    return {"processor": _processor(), "python": platform.python_version(), **versions}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


#: a flag of /proc/cpuinfo, and the vectors that it stands for, widest first
_VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2", "sse2": "SSE2"}


def _processor() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    name = platform.processor() or platform.machine()
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        first = facts.read_text("utf-8").split("\n\n", 1)[0].splitlines()
        told = dict(map(str.strip, line.split(":", 1)) for line in first if ":" in line)
        family = f"family {told['cpu family']}" if "cpu family" in told else ""
        flags = told.get("flags", "").split()
        vector = next((shown for flag, shown in _VECTORS.items() if flag in flags), "")
        name = ", ".join(filter(None, [told.get("model name"), family, vector])) or name
    return f"{cores} cores of {name}"


def busy_seconds() -> float | None:
    """CPU seconds that all programs of the machine have used; None where Linux does not tell."""
    facts = Path("/proc/stat")
    if not facts.exists():
        return None
    user, nice, system = map(int, facts.read_text("utf-8").split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")
