"""Caches, cores and quotas are read from the files of Linux, and missing ones are no error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvm_autodiff.codegen.host.host_cpu import Cache, cpu_quota, default_threads, host_caches

CACHE = "sys/devices/system/cpu/cpu0/cache"


def files(root: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def cache_files(*rows: tuple[str, str, str, str, str]) -> dict[str, str]:
    names = ("level", "type", "size", "ways_of_associativity", "coherency_line_size")
    return {
        f"{CACHE}/index{number}/{name}": text
        for number, row in enumerate(rows)
        for name, text in zip(names, row, strict=True)
        if text
    }


CACHES = {
    "Zen 5": (
        cache_files(
            ("1", "Data", "48K", "12", "64"),
            ("1", "Instruction", "32K", "8", "64"),
            ("2", "Unified", "1024K", "16", "64"),
            ("3", "Unified", "32768K", "16", "64"),
        ),
        {1: Cache(48 << 10, 12, 64), 2: Cache(1 << 20, 16, 64), 3: Cache(32 << 20, 16, 64)},
    ),
    "no ways": (cache_files(("1", "Data", "64K", "", "64")), {1: Cache(64 << 10, 0, 64)}),
    "no size": (cache_files(("1", "Data", "", "4", "64")), {}),
    "nothing": ({}, {}),
}


@pytest.mark.parametrize("name", CACHES)
def test_caches(name: str, tmp_path: Path) -> None:
    given, expected = CACHES[name]
    assert host_caches(files(tmp_path, given)) == expected


GROUP = "sys/fs/cgroup"
#: the files of control groups → the quota
QUOTAS = {
    "none": ({}, None),
    "version 2": ({"proc/self/cgroup": "0::/a/b", f"{GROUP}/a/cpu.max": "150000 100000"}, 1.5),
    "the least": (
        {
            "proc/self/cgroup": "0::/a/b",
            f"{GROUP}/a/cpu.max": "400000 100000",
            f"{GROUP}/a/b/cpu.max": "300000 100000",
        },
        3.0,
    ),
    "no limit": ({"proc/self/cgroup": "0::/", f"{GROUP}/cpu.max": "max 100000"}, None),
    "version 1": (
        {
            "proc/self/cgroup": "9:name=systemd:/\n4:memory:/x\n1:cpu,cpuacct:/x",
            f"{GROUP}/cpu,cpuacct/cpu.cfs_quota_us": "250000",
            f"{GROUP}/cpu,cpuacct/cpu.cfs_period_us": "100000",
        },
        2.5,
    ),
    "version 1 without a limit": (
        {
            "proc/self/cgroup": "1:cpu:/",
            f"{GROUP}/cpu/cpu.cfs_quota_us": "-1",
            f"{GROUP}/cpu/cpu.cfs_period_us": "100000",
        },
        None,
    ),
}


@pytest.mark.parametrize("name", QUOTAS)
def test_quota(name: str, tmp_path: Path) -> None:
    given, expected = QUOTAS[name]
    assert cpu_quota(files(tmp_path, given)) == expected


def siblings(*groups: str) -> dict[str, str]:
    name = "sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    return {name.format(cpu): group for cpu, group in enumerate(groups)}


SMT = siblings("0,2", "1,3", "0,2", "1,3")


@pytest.mark.parametrize(
    ("given", "cpus", "threads"),
    [
        ({}, 4, 4),
        (siblings("0", "1", "2", "3"), 4, 4),
        (SMT, 4, 2),
        (SMT, 1, 1),
        (SMT | QUOTAS["version 2"][0], 4, 1),
        (siblings("0", "1", "2", "3") | QUOTAS["the least"][0], 4, 3),
        (QUOTAS["version 1"][0], 4, 2),
        ({"proc/self/cgroup": "0::/", f"{GROUP}/cpu.max": "20000 100000"}, 4, 1),
    ],
)
def test_default_threads(
    given: dict[str, str], cpus: int, threads: int, tmp_path: Path
) -> None:
    assert default_threads(range(cpus), files(tmp_path, given)) == threads
