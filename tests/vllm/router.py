"""The real vllm-router, as `make vllm-install` brings it."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import sleep

import httpx2

FOLDER = Path(".tools/vllm")
PORT = 28201


@contextmanager
def router(*urls: str, policy: str, flags: Sequence[str] = ()) -> Iterator[str]:
    """The address of one in front of some servers. `flags`: more of its options."""
    place = ("--host", "127.0.0.1", "--port", str(PORT), "--prometheus-port", str(PORT + 1))
    command = [str(FOLDER / "router/bin/vllm-router"), *place, "--worker-urls", *urls, "--policy", policy, *flags]
    with (FOLDER / "router.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        routed = f"http://127.0.0.1:{PORT}"
        try:
            while not healthy(routed):
                if process.poll() is not None:
                    raise SystemExit(f"vllm-router ended at its start: see {log.name}")
                sleep(0.2)
            yield routed
        finally:
            process.terminate()


def healthy(url: str) -> bool:
    """Whether it answers."""
    try:
        return httpx2.get(f"{url}/health", timeout=2).status_code == 200
    except httpx2.HTTPError:
        return False
