"""The memory that may be used: what is free, or the least limit of a control group above us."""

import os
from pathlib import Path

import pytest

from gateway.engine.embedded.engine_process import usable_mib

MIB = 1024 * 1024


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = {"proc/meminfo": "MemTotal: 9999999 kB\nMemAvailable:    8388608 kB\n"}


@pytest.mark.parametrize(
    ("files", "mib"),
    [
        ({}, 8192),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{512 * MIB}\n"}, 512),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 8192),
        (
            {
                "proc/self/cgroup": "0::/a.slice/b.service\n",
                "sys/fs/cgroup/a.slice/memory.max": f"{300 * MIB}",
                "sys/fs/cgroup/a.slice/b.service/memory.max": f"{400 * MIB}",
            },
            300,
        ),
        (
            {
                "proc/self/cgroup": "12:cpu:/x\n4:memory:/docker/1\n",
                "sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes": f"{200 * MIB}",
            },
            200,
        ),
        ({"proc/self/cgroup": "12:memory:/gone\nnonsense\n"}, 8192),
        (
            {
                "proc/self/cgroup": "12:cpu:/x\n",
                "sys/fs/cgroup/memory/x/memory.limit_in_bytes": f"{200 * MIB}",
                "sys/fs/memory.max": f"{100 * MIB}",
            },
            8192,
        ),
        (
            {
                "proc/self/cgroup": "0::/x\n",
                "sys/fs/cgroup/x/memory.max": f"{200 * MIB}",
                "sys/fs/memory.max": f"{100 * MIB}",
            },
            200,
        ),
    ],
    ids=[
        "no container",
        "container",
        "no limit",
        "limit of a slice",
        "first version",
        "unreadable",
        "not of memory",
        "not of a group",
    ],
)
def test_least_limit_counts(tmp_path: Path, files: dict[str, str], mib: int) -> None:
    assert usable_mib(machine(tmp_path, {**MEMINFO, **files})) == mib


@pytest.mark.parametrize("meminfo", ["", "MemAvailable:\n", "MemAvailable: lots kB\n"])
def test_half_of_the_memory_is_assumed_where_the_kernel_says_nothing(tmp_path, monkeypatch, meminfo: str) -> None:
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 1024, "SC_PAGE_SIZE": 8 * MIB}.__getitem__)

    assert usable_mib(machine(tmp_path, {"proc/meminfo": meminfo})) == 4096


def test_little_memory_is_assumed_where_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_name: str) -> int:
        raise ValueError

    monkeypatch.setattr(os, "sysconf", refuse)
    assert usable_mib(tmp_path) == 2048
