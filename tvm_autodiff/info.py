"""``python -m tvm_autodiff.info``: prints versions, target, threads and the operators that have a
derivative.

The text is for people and for bug reports.
"""

from __future__ import annotations

import platform
import textwrap
from importlib import metadata

from .codegen.targets import host_target, target_attributes
from .rules.scalar_rules import NO_DERIVATIVE, RULES
from .runtime.threads import available_cpus, resolve_threads
from .schedule.machine import Machine, machine_of

_PACKAGES = ("tvm_autodiff", "apache-tvm", "apache-tvm-ffi", "numpy", "torch", "jax")


def info() -> str:
    """The text that the command prints.

    Returns
    -------
    str
        Versions, target, number of threads, and the table of operators.

    Examples
    --------
    >>> "operators with a derivative" in info()
    True
    """
    sections = [
        ("versions", _versions()),
        ("machine", _machine()),
        ("operators with a derivative", _operators()),
        ("operators whose derivative is zero", _constant()),
    ]
    return "\n\n".join(f"{title}\n{textwrap.indent(body, '  ')}" for title, body in sections)


def _versions() -> str:
    rows = [("python", platform.python_version())]
    installed = {str(found.metadata["Name"]): found.version for found in metadata.distributions()}
    rows += [(package, installed.get(package, "not installed")) for package in _PACKAGES]
    return _table(rows)


def _machine() -> str:
    target = host_target()
    machine = machine_of(target, resolve_threads(None))
    attributes = target_attributes(target)
    return _table(
        [
            ("platform", platform.platform()),
            ("target", machine.kind),
            ("mcpu", str(attributes.get("mcpu", ""))),
            ("vectors", f"{machine.vector_registers} registers of {machine.vector_bytes} bytes"),
            ("caches", _caches(machine)),
            ("cpus", str(len(available_cpus()))),
            ("threads", f"{machine.threads} by default (num_threads= of build)"),
        ]
    )


def _caches(machine: Machine) -> str:
    sizes = (machine.first_cache_bytes, machine.cache_bytes, machine.last_cache_bytes)
    return " and ".join(f"{size // 1024} KB" for size in sizes)


def _operators() -> str:
    return textwrap.fill(" ".join(sorted(set(RULES) - NO_DERIVATIVE)), 90)


def _constant() -> str:
    return textwrap.fill(" ".join(sorted(NO_DERIVATIVE)), 90)


def _table(rows: list[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows) + 2
    return "\n".join(f"{name:{width}}{value}" for name, value in rows)


if __name__ == "__main__":
    print(info())
