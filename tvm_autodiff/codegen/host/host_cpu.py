"""What the operating system knows about this host's CPU: caches, cores, and this process's share.

Linux answers by files below /sys and /proc. What it does not answer is None or missing.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True)
class Cache:
    """A data cache: its size in bytes, its ways (0 if unknown), and the bytes of a line."""

    size: int
    ways: int
    line: int


#: the caches where they are not known, from the first one: those of Zen 2 to 4, the least of
#: today's server CPUs
USUAL_CACHES = (
    Cache(32 * 1024, 8, 64),
    Cache(512 * 1024, 8, 64),
    Cache(16 * 1024 * 1024, 16, 64),
)
USUAL_PAGE = 4096  #: bytes


@functools.cache
def host_caches(root: Path = _ROOT) -> dict[int, Cache]:
    """The data caches of the first CPU by level, from 1; levels that are not known are missing."""
    found = {}
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        if _text(index / "type") not in ("Data", "Unified"):
            continue
        level, size = _number(index / "level"), _text(index / "size")
        line = _number(index / "coherency_line_size")
        if level is None or line is None or not size[:-1].isdigit() or size[-1] not in _UNITS:
            continue
        ways = _number(index / "ways_of_associativity") or 0
        found[level] = Cache(int(size[:-1]) * _UNITS[size[-1]], ways, line)
    return found


def page_bytes() -> int:
    """The bytes of a page of memory."""
    return int(os.sysconf("SC_PAGE_SIZE")) if hasattr(os, "sysconf") else USUAL_PAGE


def cores_of(cpus: Iterable[int], root: Path = _ROOT) -> int:
    """The number of cores that CPUs belong to: SMT siblings are one."""
    folder = root / "sys/devices/system/cpu"
    return len({_text(folder / f"cpu{cpu}/topology/thread_siblings_list") or cpu for cpu in cpus})


def cpu_quota(root: Path = _ROOT) -> float | None:
    """The number of CPUs whose time the control groups of this process may use; None without a
    limit.

    It is the least of a group and those above it, in version 2 (cpu.max) and version 1
    (cpu.cfs_quota_us).
    """
    limits = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / controllers
        group = top / path.lstrip("/")
        for folder in (group, *group.parents):
            limits.append(_limit(folder))
            if folder == top:
                break
    return min((limit for limit in limits if limit is not None), default=None)


def default_threads(cpus: Iterable[int], root: Path = _ROOT) -> int:
    """The number of threads that keep CPUs busy: one a core, within the quota."""
    quota = cpu_quota(root)
    cores = cores_of(cpus, root)
    return max(1, cores if quota is None else min(cores, math.floor(quota)))


def _limit(folder: Path) -> float | None:
    quota, _, period = _text(folder / "cpu.max").partition(" ")
    if not quota:
        quota = _text(folder / "cpu.cfs_quota_us")
        period = _text(folder / "cpu.cfs_period_us")
    known = quota.isdigit() and period.isdigit() and int(period) > 0
    return int(quota) / int(period) if known else None


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdigit() else None
