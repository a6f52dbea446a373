"""How much memory a process on this machine may still use, within the limit of its container.

Turns what the kernel reports into mebibytes. It decides nothing and raises nothing: if nothing is reported, a machine
with little memory is assumed.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_MIB: Final = 1024 * 1024
_UNKNOWN: Final = 2048 * _MIB


def usable_mib(root: Path = Path("/")) -> int:
    """Mebibytes that are available on the machine, or the lowest limit of a control group if that is less.

    Args:
        root: the directory that contains `proc` and `sys`.
    """
    return min([_available(root / "proc/meminfo"), *_limits(root)]) // _MIB


def _available(meminfo: Path) -> int:
    for line in _read(meminfo).splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable" and (words := rest.split()) and words[0].isdigit():
            return int(words[0]) * 1024
    # Not Linux: half of the physical memory.
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (ValueError, OSError):
        return _UNKNOWN


def _limits(root: Path) -> Iterator[int]:
    """The memory limits of this process's control group and all its parents, for both versions of control groups."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers not in ("", "memory"):
            continue
        mount = root / ("sys/fs/cgroup/memory" if controllers else "sys/fs/cgroup")
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        group = mount / path.lstrip("/")
        for each in (group, *group.parents):
            if (said := _read(each / name).strip()).isdigit():
                yield int(said)
            if each == mount:
                break


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
