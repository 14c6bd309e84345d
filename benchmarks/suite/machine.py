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


def _processor() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    name = platform.processor() or platform.machine()
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        lines = facts.read_text("utf-8").splitlines()
        models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        vector = "AVX-512" if any(" avx512f " in f"{line} " for line in lines) else ""
        name = ", ".join(filter(None, [*models[:1], vector])) or name
    return f"{cores} cores of {name}"


def busy_seconds() -> float | None:
    """CPU seconds that all programs of the machine have used; None where Linux does not tell."""
    facts = Path("/proc/stat")
    if not facts.exists():
        return None
    user, nice, system = map(int, facts.read_text("utf-8").split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")
