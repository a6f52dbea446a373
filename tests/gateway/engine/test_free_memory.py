"""The memory that may be used: what is free, or the least limit of a control group above us."""

from pathlib import Path

import pytest

from gateway.engine.embedded.server import usable_mib

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
    ],
    ids=["no container", "container", "no limit", "limit of a slice", "first version", "unreadable"],
)
def test_least_limit_counts(tmp_path: Path, files: dict[str, str], mib: int) -> None:
    assert usable_mib(machine(tmp_path, {**MEMINFO, **files})) == mib


def test_something_is_assumed_where_the_kernel_says_nothing(tmp_path: Path) -> None:
    assert usable_mib(tmp_path) > 0
