"""The pages, typed: every command, request and program that a page shows, one after the other in a folder like a clone.

What can't be run here stands under `<!-- not run: why -->`. Programs with a file's name before them are that file.
`serve` and `engine` go on behind the commands that follow, as in another terminal; ports are replaced by free ones.
"""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.engine.packaged import packaged_model

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "leaf_sdk/*.md", "tools/*/*.md")
    for path in ROOT.glob(pattern)
    if ".venv" not in path.parts
)
TYPED = ("", "sh", "python")
ELSEWHERE = {
    "docs/graduate.md": "tests/e2e/test_tutorial.py",
    **{f"docs/clients/{name.name}": "tests/e2e/test_client_pages.py" for name in ROOT.glob("docs/clients/*.md")},
}
"""Pages that have a test of their own."""
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<why>.+?) -->\n+)?( {0,3})```(?P<language>\w*)\n(?P<text>.*?)^\2```$", re.S | re.M
)
FILE = re.compile(r"`(\w+\.(?:py|toml))`")
PORTS = ("8600", "8601", "8080", "8300")
MAP = "codec-leaf map build model.gguf -o map.json"
PREPARED = {
    "docs/cli.md": """
        mkdir -p .cursor && cp servers.json .cursor/mcp.json
        printf '[upstreams.time]\\ncommand = ".venv/bin/codec-plain-time"\\npin = "block"\\n' > pinned.toml
        echo '[]' > tools.json && echo hello > output.txt
        codec-gateway serve --config pinned.toml --engine embedded
        sed -i 's/"pinned": ".../"pinned": "000/' .local/state/codec-gateway/pins.json
    """,
    "docs/mcp-clients.md": MAP,
    "docs/openai-apps.md": "codec-gateway engine --model model.gguf",
    "leaf_sdk/README.md": "codec-gateway engine --model model.gguf",
    "tools/time_leaf/README.md": MAP,
}
"""What a page may take as given, besides the servers of the README."""
SERVER = """#!/usr/bin/env bash
# What serves goes on behind what is typed next, once it says that it is ready; another one in its place ends it.
serves={serves}
if [[ " $* " =~ $serves ]]; then
  log="{folder}/${{BASH_REMATCH[1]}}.log" pid="{folder}/${{BASH_REMATCH[1]}}.pid"
else
  exec {real} "$@"
fi
if [ -f "$pid" ]; then
  last=$(cat "$pid") && kill "$last" && tail --pid="$last" -f /dev/null
fi
[[ $1 != engine ]] || set -- "$@" --port {engine}
{real} "$@" </dev/null >"$log" 2>&1 &
echo $! >"$pid"
grep -q -m1 -E {ready} <(tail --pid=$! -n +1 -F "$log" 2>/dev/null) || {{ cat "$log" >&2; exit 1; }}
"""
SERVERS = {
    "codec-gateway": ("'^ (serve|engine) '", '\'"event": "(gateway|engine) ready"\''),
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


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


TO_RUN = [
    page
    for page in PAGES
    if name_of(page) not in ELSEWHERE and any(b.language in TYPED and b.why is None for b in blocks_of(page))
]


def free_ports() -> list[str]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in PORTS]
        return [str(probe.getsockname()[1]) for probe in probes]


def commands_of(entry: dict[str, Any]) -> list[str]:
    """What a client would start that has this configuration."""
    started = [each for each in entry.get("mcpServers", {}).values() if "command" in each]
    return [shlex.join([each["command"], *each.get("args", [])]) for each in started]


class Clone:
    """A folder that looks like a clone after `make setup`, and what is typed there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports: dict[str, str] = dict(zip(PORTS, free_ports(), strict=True))
        self._typed = 0
        programs, real = folder / ".venv" / "bin", Path(sys.prefix)
        programs.mkdir(parents=True)
        shutil.copy(real / "pyvenv.cfg", folder / ".venv")
        (folder / ".venv" / "lib").symlink_to(real / "lib")
        for program in (real / "bin").iterdir():
            (programs / program.name).symlink_to(program)
        for name, (serves, ready) in SERVERS.items():
            names = {"real": real / "bin" / name, "folder": folder, "engine": self.ports["8080"]}
            self._program(name, SERVER.format(serves=serves, ready=ready, **names))
        self._program("curl", CURL.format(python=sys.executable))
        (folder / "model.gguf").symlink_to(packaged_model())
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("CODEC_", "XDG_S", "FORCE_"))},
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(folder),
            "CODEC_GATEWAY_SERVE__PORT": self.ports["8600"],
            "CODEC_GATEWAY_SERVE__ADMIN_PORT": self.ports["8601"],
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
                timeout=120,
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


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Clone]:
    made = Clone(tmp_path)
    yield made
    made.close()


@pytest.mark.engine
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", TO_RUN, ids=map(name_of, TO_RUN))
def test_what_a_page_shows_can_be_typed(page: Path, clone: Clone) -> None:
    (servers,) = [block.text for block in blocks_of(ROOT / "README.md") if block.text.startswith("cat > servers.json")]
    clone.type(servers)
    clone.type(PREPARED.get(name_of(page), ""))
    programs: list[str] = []
    for block in blocks_of(page):
        if block.file is not None:
            (clone.folder / block.file).write_text(clone.here(block.text))
        elif block.why is None and block.language == "json":
            for command in commands_of(json.loads(clone.here(block.text))):
                clone.type(command)
        elif block.why is not None or block.language not in TYPED:
            continue
        elif block.language == "python":
            programs.append(block.text)
            clone.run(programs)
        else:
            clone.type(block.text)


@pytest.mark.parametrize("page", PAGES, ids=map(name_of, PAGES))
def test_what_is_not_run_says_why(page: Path) -> None:
    reasons = [block.why for block in blocks_of(page) if block.why is not None]

    assert [why for why in reasons if len(why.split()) < 3] == []
    assert len(re.findall(r"^<!-- not run", page.read_text(encoding="utf-8"), re.MULTILINE)) == len(reasons)
    named = [name for why in reasons for name in re.findall(r"(?:tests|deploy|bench)/[\w./-]+", why)]
    assert [name for name in named if not (ROOT / name).exists()] == []
    targets = [target for why in reasons for target in re.findall(r"make ([a-z-]+)", why)]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert [target for target in targets if f"\n{target}:" not in makefile] == []


def test_pages_with_a_test_of_their_own_are_named_there() -> None:
    assert [page for page, test in ELSEWHERE.items() if not (ROOT / test).exists() or not (ROOT / page).exists()] == []
