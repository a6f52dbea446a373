"""`codec-leaf serve` on real sockets: it says that it listens once it does, and nothing where it may or can not."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from bench.processes import free_port
from leaf_sdk import ModelMap, build_tool, write_build
from leaf_sdk.cli.targets import tools_of
from leaf_sdk.testing import tiny_map, tiny_map_bytes
from tests.leaf_sdk.cli.conftest import COMMAND

PACKAGE = """
from pathlib import Path

from leaf_sdk import ToolSource, fill

TOOLS = [
    ToolSource(
        name="greet",
        version="1.0.0",
        description="Greet somebody",
        arguments_schema={"type": "object"},
        texts={"greeting": "hello {name}."},
        function=lambda arguments: fill("greeting", name=arguments.get("name", "world")),
        folder=Path(__file__).parent / "built",
    )
]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package with one tool, built for the tiny map, and the map."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "greeter_to_serve.py").write_text(PACKAGE)
    (folder / "map.json").write_bytes(tiny_map_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        (tool,) = tools_of("greeter_to_serve")
    token_map = tiny_map()
    model = ModelMap("org/tiny", token_map, token_map.map_id.removeprefix("sha256:"))
    write_build(build_tool(tool.manifest(), tool.texts, [model]), tool.folder)
    return folder


def command_of(*flags: str) -> list[str]:
    return [str(COMMAND), "serve", "greeter_to_serve", "--map", "map.json", *flags]


def refused(folder: Path, *flags: str) -> str:
    """What it says on standard error before it gives up."""
    done = subprocess.run(command_of(*flags), cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    return done.stderr


@contextmanager
def serving(folder: Path, *flags: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """The running command, and the line that it said."""
    with subprocess.Popen(command_of(*flags), cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield process, process.stderr.readline()
        finally:
            process.kill()


def test_an_address_beyond_this_machine_is_refused_without_a_word_that_it_listens(folder):
    said = refused(folder, "--http", "0.0.0.0:8300")

    assert said.startswith("codec-leaf: host '0.0.0.0' can be reached from other machines; give a token")
    assert " on http" not in said


def test_an_address_that_is_taken_is_named(folder):
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        said = refused(folder, "--http", address)

    assert said.startswith(f"codec-leaf: can't listen on {address} (")
    assert said.count("\n") == 1


def test_a_unix_socket_where_somebody_answers_is_refused_in_one_line(folder, tmp_path):
    path = tmp_path / "tool.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        said = refused(folder, "--unix", str(path))

    assert said == f"codec-leaf: a server already answers at {str(path)!r}; stop it, or choose another path\n"


def test_what_is_said_to_listen_can_be_connected_to(folder):
    port = free_port()
    with serving(folder, "--http", f"127.0.0.1:{port}") as (process, line):
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            refused_call = client.post("/codec/tool/v1/call")
        process.send_signal(signal.SIGINT)
        code = process.wait(60)
        assert process.stderr is not None
        last_words = process.stderr.read()

    assert refused_call.status_code >= 400
    assert (code, last_words) == (0, "")
    assert line == f"codec-leaf: serving greet for org/tiny on http://127.0.0.1:{port}\n"


def test_a_unix_socket_can_be_connected_to_once_it_is_named_and_goes_with_its_server(folder, tmp_path):
    path = tmp_path / "tool.sock"
    with serving(folder, "--unix", str(path)) as (process, line):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(os.fspath(path))
        process.send_signal(signal.SIGINT)
        process.wait(60)

    assert line == f"codec-leaf: serving greet for org/tiny on unix:{path}\n"
    assert not path.exists()
