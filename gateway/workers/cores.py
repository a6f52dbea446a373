"""The number of workers: as many as are set, or one for each core that this process may use."""

import math
import os
from pathlib import Path
from typing import Final, Literal

from gateway.config.tables import MOST_WORKERS

_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")
"""A container's CPU limit: microseconds of CPU time, and the period in microseconds."""


def count_of(workers: int | Literal["auto"]) -> int:
    """The number of workers that a setting stands for on this machine."""
    if workers != "auto":
        return workers
    try:
        quota = _QUOTA.read_text()
    except OSError:
        quota = "max"
    return cores(len(os.sched_getaffinity(0)), quota)


def cores(usable: int, quota: str) -> int:
    """The number of cores that are worth a process each. `quota`: the text of a control group's `cpu.max`."""
    allowed, _, period = quota.strip().partition(" ")
    if allowed.isdecimal() and period.isdecimal() and int(period):
        usable = min(usable, math.ceil(int(allowed) / int(period)))
    return max(1, min(usable, MOST_WORKERS))
