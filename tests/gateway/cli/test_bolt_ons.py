"""What `doctor` and `status` say of bolt-on tools, and the admin port's report of them."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
import uvicorn
from rich.console import Console

from gateway.app.reload import Reloader
from gateway.app.services import open_services
from gateway.cli import exit_codes
from gateway.cli.terminal import print_bolt_ons
from gateway.config.gateway_config import GatewayConfig
from gateway.config.load import load_config
from leaf_sdk import CodecTool, Fragments, Manifest, ModelBinding, fill, precache
from leaf_sdk.leaf.contract import CODEC_META_KEY
from leaf_sdk.serve.bolt_on import CallApp
from leaf_sdk.serve.run import bound_unix_socket
from leaf_sdk.testing import tiny_map, tiny_map_bytes

HASH = tiny_map().map_id.removeprefix("sha256:")
OTHER = "ab" * 32


@pytest.fixture
def listening() -> Iterator[str]:
    """Where somebody takes connections: nothing is called here."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def configured(tmp_path: Path, listening: str):
    """Writes a configuration with a map and two bolt-ons: one with ids for that map, one for another."""

    def write(**more: object) -> Path:
        folder = tmp_path / "tools"
        folder.mkdir()
        for name, digest in (("ours", HASH), ("theirs", OTHER)):
            manifest = {
                "schema": "1",
                "name": name,
                "version": "1",
                "description": "Do it\x1b[31m",
                "argumentsSchema": {"type": "object"},
                "models": [{"modelId": f"org/{name}\x1b[31m", "tokenizerHash": digest}],
            }
            (folder / f"{name}.json").write_text(json.dumps(manifest))
        (tmp_path / "map.json").write_bytes(tiny_map_bytes())
        settings = {"manifest": "tools", "endpoint": listening, **more}
        lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        file = tmp_path / "codec-gateway.toml"
        file.write_text("\n".join(["[tokens]", 'map = "map.json"', "[upstreams.bolt]", *lines, ""]))
        return file

    return write


def test_doctor_says_how_each_bolt_on_is_called_and_why_not_with_ids(command, configured) -> None:
    file = configured()
    ran = command("doctor", "--json", "-c", file)
    (server,) = json.loads(ran.out)["servers"]
    assert ran.code == exit_codes.OK
    assert [(each["tool"], each["mode"]) for each in server["bolt_ons"]] == [("ours", "ids"), ("theirs", "text")]
    assert [tool["ids"]["word"] for tool in server["tools"]] == ["leaf", "shim"]
    (warning,) = [each for each in server["warnings"] if "called with text" in each]
    assert OTHER[:12] in warning

    page = command("doctor", "-c", file).out
    (row,) = [line for line in page.splitlines() if line.startswith("ours ")]
    assert row.split()[1] == "ids"
    assert "\x1b" not in page


def test_doctor_finds_fault_with_a_bolt_on_that_is_refused(command, configured) -> None:
    ran = command("doctor", "--json", "-c", configured(require_match=True))
    (server,) = json.loads(ran.out)["servers"]
    assert ran.code == exit_codes.FAILED
    assert [tool["name"] for tool in server["tools"]] == ["ours"]
    assert "'theirs' is refused (require_match)" in server["problems"][0]


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[str]:
    """A real bolt-on: `ours`, which greets in ids of the tiny map, in a thread of its own."""
    tiny = tiny_map()
    manifest = Manifest("ours", "1", "", {"type": "object"}, (ModelBinding("org/ours\x1b[31m", HASH),))
    fragments = Fragments(tiny, precache({"greeting": "hello world"}, tiny))
    app = CallApp([CodecTool(manifest, lambda _: fill("greeting"), {"org/ours\x1b[31m": fragments})])
    with bound_unix_socket(tmp_path / "s") as listener:
        listener.listen()  # whoever connects before the thread is ready waits for it
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="error"))  # pyright: ignore[reportArgumentType]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield f"unix:{tmp_path / 's'}"
        server.should_exit = True
        thread.join(20)


@pytest.mark.parametrize("required", [False, True])
def test_one_call_from_a_shell_is_made_with_ids_and_shown_as_text(command, configured, answering, required) -> None:
    ran = command("call", "ours", "-c", configured(endpoint=answering, require_match=required))
    assert (ran.code, ran.out.strip()) == (exit_codes.OK, "hello world")


def test_client_of_standard_input_gets_ids_of_the_map_that_it_named(configured, answering, tmp_path) -> None:
    file = configured(endpoint=answering, require_match=True)
    asks = [
        {"method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}},
        {"method": "tools/call", "params": {"name": "ours", "arguments": {}}},
    ]
    lines = [json.dumps({"jsonrpc": "2.0", "id": n, **ask}) for n, ask in enumerate(asks)]
    command = [sys.executable, "-m", "gateway", "stdio", "--config", str(file), "--map", str(tmp_path / "map.json")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        answers = []
        for line in lines:
            child.stdin.write(f"{line}\n")
            child.stdin.flush()
            answers.append(json.loads(child.stdout.readline()))
        child.stdin.close()
    (block,) = answers[1]["result"]["content"]
    assert block["text"] == "hello world"
    assert block["_meta"][CODEC_META_KEY]["ids"] == tiny_map().encode("hello world")


@pytest.mark.anyio
async def test_report_of_a_running_gateway_holds_them_without_what_a_terminal_would_obey(configured, listening) -> None:
    async with open_services(load_config(configured())) as services:
        (server,) = (await services.status.make())["servers"]
    ours, theirs = server["bolt_ons"]
    assert server["transport"] == "bolt-on"
    assert (ours["tool"], ours["mode"], ours["endpoint"], ours["reason"]) == ("ours", "ids", listening, None)
    assert ours["model"].startswith("org/ours")
    assert (theirs["mode"], theirs["model"]) == ("text", None)
    assert "\x1b" not in json.dumps(server["bolt_ons"]).replace("\\u001b", "\x1b")


def test_table_is_only_printed_where_there_is_something_in_it(capsys) -> None:
    console = Console(width=200, markup=False)
    assert print_bolt_ons(console, []) is True
    assert capsys.readouterr().out == ""
    row = {"tool": "t", "mode": "refused", "model": None, "endpoint": "unix:/s", "reason": "because"}
    print_bolt_ons(console, [row])
    assert capsys.readouterr().out.split("\n")[2].split() == ["t", "not", "called", "-", "unix:/s", "because"]


@pytest.mark.anyio
async def test_manifest_that_is_put_into_the_folder_is_noticed_and_taken_over(configured, tmp_path) -> None:
    file = configured()
    config = load_config(file)
    async with open_services(config) as services:
        taken = anyio.Event()

        async def take(fresh: GatewayConfig) -> None:
            await services.proxy.reload(fresh)
            taken.set()

        reloader = Reloader(config, lambda: load_config(file))
        fields = json.loads((tmp_path / "tools" / "ours.json").read_text())
        (tmp_path / "tools" / "third.json").write_text(json.dumps({**fields, "name": "third"}))
        async with anyio.create_task_group() as following:
            following.start_soon(reloader.follow, take, {})
            with anyio.fail_after(20):
                await taken.wait()
            following.cancel_scope.cancel()
        (server,) = (await services.status.make())["servers"]
        assert [tool["name"] for tool in server["tools"]] == ["ours", "theirs", "third"]
        assert [each["mode"] for each in server["bolt_ons"]] == ["ids", "text", "ids"]
