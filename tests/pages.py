"""What a page shows to be typed, and a folder like a clone to type it in: for every test that follows a page.

A block under `<!-- not run: why -->` is not typed. Programs with a file's name before them are that file. What serves
goes on behind the commands that follow, as in another terminal; ports are replaced by free ones.
"""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.processes import free_ports
from gateway.engine.embedded.packaged_model import packaged_model
from tests.e2e.programs import PROGRAMS, loaded_programs

TYPED = ("", "sh", "python")
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<why>.+?) -->\n+)?( {0,3})```(?P<language>\w*)\n(?P<text>.*?)^\2```$", re.S | re.M
)
FILE = re.compile(r"`(\w+\.(?:py|toml))`")
PORTS = ("8600", "8601", "8080", "8300")
SERVER = """#!/usr/bin/env bash
# What serves goes on behind what is typed next, once it says that it is ready; another one in its place ends it.
serves={serves}
if [[ " $* " =~ $serves ]]; then
  log="{folder}/${{BASH_REMATCH[1]}}.log" pid="{folder}/${{BASH_REMATCH[1]}}.pid"
else
  exec {real} "$@"
fi
if [ -f "$pid" ]; then
  last=$(cat "$pid") && kill "$last" && tail -s 0.1 --pid="$last" -f /dev/null
fi
[[ $1 != engine ]] || set -- "$@" --port {engine}
: >"$log"  # Emptied before it starts: the one before it said that it was ready.
{real} "$@" </dev/null >>"$log" 2>&1 &
echo $! >"$pid"
grep -q -m1 -E "{ready}" <(tail -s 0.1 --pid=$! -n +1 -F "$log" 2>/dev/null) || {{ cat "$log" >&2; exit 1; }}
"""
_READY = r"\"event\": \"(engine ready\"|gateway ready\"(.*\"engine\": \"[^s]|.*\"workers\"))"
"""The gateway's line, unless its engine is still starting: then the engine's."""
SERVERS = {
    "codec-gateway": ("'^ (serve|engine) '", _READY),
    "codec-leaf": ("'^ (serve shop) '", "codec-leaf:"),
    "codec-time-leaf": ("'(--bolt-on)'", "bolt-on:"),
}
"""Programs that serve: the arguments with which they do, and what they say when they are ready."""
CURL = """#!{python}
import argparse, sys, urllib.request
read = argparse.ArgumentParser()
read.add_argument("-s", action="store_true")
read.add_argument("-H", action="append", default=[])
read.add_argument("-d")
read.add_argument("url")
given = read.parse_args()
data = None if given.d is None else given.d.encode()
request = urllib.request.Request(given.url, data, dict(line.split(": ", 1) for line in given.H))
with urllib.request.urlopen(request) as answer:
    sys.stdout.write(answer.read().decode())
"""


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    text: str
    why: str | None
    """Why it is not run."""
    file: str | None
    """What it is to be saved as."""


def blocks_of(page: Path) -> Iterator[Block]:
    text, last = page.read_text(encoding="utf-8"), 0
    for found in BLOCK.finditer(text):
        named = FILE.findall(text, last, found.start())
        last = found.end()
        body = re.sub(rf"^{found[2]}", "", found["text"], flags=re.M)
        is_file = found["language"] in ("python", "toml") and named
        yield Block(found["language"], body, found["why"], named[-1] if is_file else None)


class Clone:
    """A folder that looks like a clone after `make setup`, and what is typed there."""

    def __init__(self, folder: Path, model: Path | None = None) -> None:
        """`model`: what is model.gguf there, if not the packaged model."""
        self.folder = folder
        self.ports: dict[str, str] = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
        self._typed = 0
        programs, real = folder / ".venv" / "bin", Path(sys.prefix)
        programs.mkdir(parents=True)
        shutil.copy(real / "pyvenv.cfg", folder / ".venv")
        (folder / ".venv" / "lib").symlink_to(real / "lib")
        files = {each.name: each for each in (real / "bin").iterdir()}
        files |= {name: loaded_programs() / name for name in PROGRAMS}
        for name, program in files.items():
            (programs / name).symlink_to(program)
        for name, (serves, ready) in SERVERS.items():
            names = {"real": files[name], "folder": folder, "engine": self.ports["8080"]}
            self._program(name, SERVER.format(serves=serves, ready=ready, **names))
        self._program("curl", CURL.format(python=sys.executable))
        (folder / "model.gguf").symlink_to(model or packaged_model())
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("CODEC_", "XDG_S", "FORCE_"))},
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(folder),
            "CODEC_GATEWAY_SERVE__PORT": self.ports["8600"],
            "CODEC_GATEWAY_SERVE__ADMIN_PORT": self.ports["8601"],
            # An answer without a limit ends here at the latest.
            "CODEC_GATEWAY_ENGINE__CONTEXT": "2048",
        }

    def _program(self, name: str, text: str) -> None:
        path = self.folder / ".venv" / "bin" / name
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def here(self, text: str) -> str:
        """What a page says, with the ports and folders of this clone."""
        text = re.sub("|".join(PORTS), lambda port: self.ports[port[0]], text)
        return text.replace("/path/to/clone", str(self.folder)).replace("http://HOST:", "http://127.0.0.1:")

    def type(self, script: str) -> str:
        """Type a block; what it printed."""
        output = self.folder / "printed"
        with output.open("w") as sink:
            done = subprocess.run(
                ["bash", "-e", "-o", "pipefail", "-c", self.here(script)],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                timeout=600,
                check=False,
            )
        printed = output.read_text()
        assert done.returncode == 0, f"{script}\nended with {done.returncode} and said:\n{printed[-4000:]}"
        return printed

    def run(self, programs: list[str]) -> None:
        """Run the last of these programs, behind those of the page that stand before it."""
        self._typed += 1
        file = self.folder / f"page_{self._typed}.py"
        file.write_text(self.here("\n\n".join(programs)))
        self.type(f'python -c \'import runpy; runpy.run_path("{file.name}", run_name="page")\'')

    def close(self) -> None:
        for file in self.folder.glob("*.pid"):
            os.kill(int(file.read_text()), signal.SIGTERM)
