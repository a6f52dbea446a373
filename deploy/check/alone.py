"""The gateway's image by itself, under an unknown user with a read-only root: start to ready, and memory when idle.

Runs it in three ways: without engine and map, with a map, with the embedded engine; each several times. The median is
reported, and the best is judged, since other work can only lengthen a start. A start that is over its bar by the clock
passes only if others use the cores and its CPU time is within the bar, and the row says so.
"""

import os
import time
import urllib.request
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Final

from bench.processes import free_port
from codec_bench.processor import cpu_seconds
from deploy.check.outcome import PREFIX, Failed, need, note, run
from deploy.check.stack import SMALL_LIMITS, TOKEN, proportional_kb

_NAME: Final = "codec-deploy-check-alone"


@dataclass(frozen=True, slots=True)
class Bar:
    """One way to run the gateway, and what it may cost: seconds until ready, MB when idle (None: not judged)."""

    words: str
    image: str
    settings: tuple[str, ...]
    flags: tuple[str, ...]
    seconds: float
    megabytes: float | None


@dataclass(frozen=True, slots=True)
class Start:
    """What one start took, by the clock and in CPU time of its processes, and the memory two seconds later."""

    seconds: float
    cpu: float
    megabytes: float


_FEWEST: Final = 3
_TRIES: Final = 5
_MODEL: Final = "CODEC_GATEWAY_TOKENS__MAP"
BARS: Final = (
    Bar("no engine, no map", "gateway", (), (), 2.0, 80.0),
    Bar("with a map", "gateway-embedded", (_MODEL,), (), 2.0, 160.0),
    Bar("embedded engine", "gateway-embedded", (), ("--engine", "embedded"), 5.0, None),
)


def check_alone() -> str:
    """Compare each way to run with its bar; returns the numbers."""
    rows: list[str] = []
    faults: list[str] = []
    for bar in BARS:
        starts = _starts(bar)
        busy = os.getloadavg()[0] > (os.cpu_count() or 1)
        best, usual = min(starts, key=lambda start: start.seconds), _median(starts)
        note("starts", bar.words, {**asdict(usual), "best": best.seconds, "busy": busy})
        row = (
            f"{bar.words}: ready after {usual.seconds:.2f} s (at best {best.seconds:.2f}; {usual.cpu:.2f} s of CPU), "
            f"{usual.megabytes:.0f} MB"
        )
        late = best.seconds > bar.seconds
        if late and (not busy or best.cpu > bar.seconds):
            faults.append(f"{bar.words}: not ready within {bar.seconds:g} s")
        elif late:
            row += f"; over {bar.seconds:g} s while others use this machine, within them by CPU time"
        if bar.megabytes is not None and usual.megabytes > bar.megabytes:
            faults.append(f"{bar.words}: more than {bar.megabytes:g} MB when idle")
        rows.append(row)
    if faults:
        raise Failed("\n".join([*faults, *rows]))
    return "\n".join(["", *rows])


def _starts(bar: Bar) -> list[Start]:
    """Make three starts, and up to five if none was within the bar."""
    starts: list[Start] = []
    while len(starts) < _FEWEST or (len(starts) < _TRIES and all(start.seconds > bar.seconds for start in starts)):
        starts.append(_start(bar))
    return starts


def _median(starts: list[Start]) -> Start:
    columns = zip(*((start.seconds, start.cpu, start.megabytes) for start in starts), strict=True)
    return Start(*(round(median(column), 2) for column in columns))


def _start(bar: Bar) -> Start:
    podman, port = [need("podman", "podman"), "--runtime", "runc", "--log-level", "fatal"], free_port()
    command = [*podman, "run", "--detach", f"--name={_NAME}", "--read-only", "--user=12345:54321"]
    command += ["--tmpfs=/tmp:size=64m", "--cap-drop=ALL", *SMALL_LIMITS, f"--publish=127.0.0.1:{port}:8601"]
    command += [f"--env=CODEC_GATEWAY_TOKEN={TOKEN}", "--env=CODEC_GATEWAY_ENGINE__THREADS=1"]
    command += [f"--env={name}={_packaged_model(podman, bar.image)}" for name in bar.settings]
    run([*podman, "rm", "--force", "--ignore", _NAME])
    run([*command, f"{PREFIX}/{bar.image}", "serve", *bar.flags])
    try:
        _until_ready(f"http://127.0.0.1:{port}/healthz/ready")
        ready = datetime.now(UTC).timestamp()
        pids = run([*podman, "top", _NAME, "hpid"]).split()[1:]
        cpu = sum(cpu_seconds(int(pid)) for pid in pids)
        began = int(run([*podman, "inspect", _NAME, "--format", "{{.State.StartedAt.UnixMilli}}"])) / 1000
        time.sleep(2)
        megabytes = sum(map(proportional_kb, pids)) / 1000
        return Start(round(ready - began, 2), round(cpu, 2), round(megabytes, 1))
    finally:
        run([*podman, "rm", "--force", "--time=5", _NAME])


def _packaged_model(podman: list[str], image: str) -> str:
    words = "from gateway.engine.embedded.packaged_model import packaged_model; print(packaged_model())"
    return run([*podman, "run", "--rm", *SMALL_LIMITS, "--entrypoint=python", f"{PREFIX}/{image}", "-c", words]).strip()


def _until_ready(url: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(url, timeout=2) as response:
                if response.status == 200:
                    return
        except OSError:
            if time.monotonic() > deadline:
                raise Failed("the gateway did not become ready within 60 s") from None
            time.sleep(0.02)
