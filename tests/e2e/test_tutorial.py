"""The tutorial "Graduate your MCP server in ten minutes", followed to the letter on a terminal of a hundred columns.

Each block of the page is what its language says: `python` and `toml` are the files named before them, `sh` is typed,
`text` is what the block before it prints, some lines of it. Numbers are not compared, ports are replaced by free ones.
What serves is left running until the end.
"""

import os
import pty
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.processes import free_ports
from tests.pages import CURL

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "graduate.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(python|toml|sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`(\w+\.(?:py|toml))`")
PORTS = ("8300", "8600", "8601")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
SECONDS = 240.0

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]


@dataclass
class Step:
    """One block that was typed, and what the page says it prints."""

    script: str
    expected: list[str]
    printed: str = ""
    status: int | None = None


class Terminal:
    """A shell of its own on a pseudo terminal, and what was printed there so far."""

    def __init__(self, script: str, folder: Path, environment: dict[str, str]) -> None:
        self._text = ""
        self._changed = threading.Condition()
        self._master, slave = pty.openpty()
        command = ["bash", "-e", "-o", "pipefail", "-c", script]
        # A session of its own: what serves is ended with everything that it started.
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        data = b""
        while True:
            try:
                more = os.read(self._master, 65536)
            except OSError:  # what a terminal says when the last writer is gone
                break
            data += more
            with self._changed:
                self._text = ESCAPE.sub("", data.decode("utf-8", "replace"))
                self._changed.notify_all()

    @property
    def text(self) -> str:
        with self._changed:
            return self._text

    def wait_for(self, words: str) -> str:
        with self._changed:
            assert self._changed.wait_for(lambda: words in self._text, SECONDS), f"no {words!r} in:\n{self._text}"
            return self._text

    def finished(self) -> tuple[str, int]:
        status = self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        return self.text, status

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        os.close(self._master)


def steps_of(page: str, folder: Path) -> Iterator[Step]:
    """The blocks to type, in their order; the files that stand before each are written by then."""
    pending: Step | None = None
    for found in BLOCK.finditer(page):
        language, body = found[1], found[2]
        if language == "text":
            assert pending is not None
            pending.expected = body.splitlines()
            continue
        if pending is not None:
            yield pending
            pending = None
        if language == "sh":
            pending = Step(body, [])
        else:
            (folder / FILE.findall(page, 0, found.start())[-1]).write_text(body, encoding="utf-8")
    if pending is not None:
        yield pending


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> list[Step]:
    """Every step of the page, done."""
    folder, programs = tmp_path_factory.mktemp("graduate"), tmp_path_factory.mktemp("programs")
    # A machine that can run the suite need not have curl.
    (programs / "curl").write_text(CURL.format(python=sys.executable))
    (programs / "curl").chmod(0o755)
    ports: dict[str, str] = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
    page = re.sub("|".join(PORTS), lambda port: ports[port[0]], PAGE)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("CODEC_", "FORCE_COLOR"))},
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "VIRTUAL_ENV": sys.prefix,
        "COLUMNS": "100",
        "TERM": "xterm",
        "NO_COLOR": "1",
        "CODEC_GATEWAY_SERVE__PORT": ports["8600"],
        "CODEC_GATEWAY_SERVE__ADMIN_PORT": ports["8601"],
    }
    done: list[Step] = []
    with ExitStack() as stack:
        for step in steps_of(page, folder):
            terminal = Terminal(step.script, folder, environment)
            stack.callback(terminal.close)
            if shlex.split(step.script)[1] == "serve":
                step.printed = terminal.wait_for(step.expected[-1])
            else:
                step.printed, step.status = terminal.finished()
            done.append(step)
    return done


def plain(text: str) -> str:
    """A text without its numbers, hashes and spacing."""
    return " ".join(re.sub(r"sha256:[0-9a-f]+|[0-9]+(\.[0-9]+)?", "0", text).split())


def test_every_command_of_the_tutorial_ends_well(steps: list[Step]) -> None:
    assert len(steps) == PAGE.count("```sh\n")
    assert {step.script: step.printed for step in steps if step.status not in (0, None)} == {}


def test_what_the_tutorial_shows_is_what_its_commands_print_in_that_order(steps: list[Step]) -> None:
    shown = [step for step in steps if step.expected]
    assert len(shown) == PAGE.count("```text\n")
    for step in shown:
        printed, at = plain(step.printed), 0
        for line in step.expected:
            found = printed.find(plain(line), at)
            assert found >= 0, f"{line!r} is not in\n{step.printed}"
            at = found + 1


def test_the_map_that_the_tutorial_builds_has_the_hash_that_it_shows(steps: list[Step]) -> None:
    (built,) = [step for step in steps if "map build" in step.script]
    assert built.expected[0] in built.printed


def test_the_gateway_of_the_tutorial_makes_no_ids_itself(steps: list[Step]) -> None:
    asked = steps[-1].printed
    assert asked.count("'source': 'leaf'") == 2
    assert "shim'" not in asked
    assert 'codec_bolt_on_calls_total{form="raw"} 1.0' in asked
    assert "codec_shim_tokenize_calls_total{" not in asked
    assert re.findall(r'codec_leaf_rejected_total\{reason="\w+"\} ([0-9.]+)', asked) == ["0.0"] * 6
