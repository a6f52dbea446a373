"""Programs that are forked from loaded code do what the installed ones do."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.programs import loaded_programs

INSTALLED = Path(sys.prefix) / "bin"
ASKED = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'


@contextmanager
def serving(env: dict[str, str]) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """A server that has answered, and where it ends its output."""
    reader, writer = os.pipe()
    with subprocess.Popen([loaded_programs() / "codec-plain-time"], stdin=-1, stdout=writer, env=env) as program:
        os.close(writer)
        assert program.stdin is not None
        program.stdin.write(ASKED)
        program.stdin.flush()
        assert b'"id":1' in os.read(reader, 65536)
        yield program, reader
    os.close(reader)


def test_forked_program_prints_and_ends_as_the_installed_one(tmp_path: Path) -> None:
    (tmp_path / "servers.json").write_text('{"mcpServers": {"x": {"command": "none"}}}')
    env = {**os.environ, "COLUMNS": "90", "HOME": str(tmp_path)}

    def ran(folder: Path, *words: str) -> tuple[int, bytes, bytes]:
        done = subprocess.run([folder / words[0], *words[1:]], cwd=tmp_path, env=env, capture_output=True, check=False)
        return done.returncode, done.stdout, done.stderr.replace(str(folder).encode(), b"")

    for words in (("codec-gateway", "check", "--config", "servers.json"), ("codec-gateway", "nonsense")):
        forked = ran(loaded_programs(), *words)
        assert forked == ran(INSTALLED, *words)
        assert any(forked)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_forked_program_ends_by_a_signal_to_its_file(number: signal.Signals) -> None:
    with serving(dict(os.environ)) as (program, output):
        program.send_signal(number)
        # At its end once nobody can write any more.
        assert os.read(output, 1) == b""
        assert program.wait(60) == -number
