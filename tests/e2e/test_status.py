"""`codec-gateway status` and `call`, beside a gateway that runs; pins across its life."""

import json
import os
import socket
import sys
import threading
from pathlib import Path

import httpx2
import pytest

from gateway.cli import exit_codes
from gateway.cli.app import run
from tests.e2e.conftest import ran


@pytest.fixture
def command(capsys):
    def go(*words: str) -> tuple[int, str, str]:
        code = run(list(words))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return go


def test_status_shows_every_server_and_why_one_is_away(start_gateway, tells_time, command) -> None:
    gateway = start_gateway({"time": tells_time, "gone": {"command": "/no/such/program"}})

    code, out, _ = command("status", "--admin", gateway.admin, "--tools")

    rows = {line.split()[0]: line.split() for line in out.splitlines() if line}
    assert code == exit_codes.OK
    assert rows["time"][1] == "up"
    assert rows["gone"][1] == "restarting"
    assert (
        "! gone: its command '/no/such/program' does not exist or is not on PATH: install it, or give its whole path"
        in out
    )
    assert rows["time__get_time"][1].startswith("~")
    assert " ready," in out


def test_json_of_the_status_is_the_report_of_the_admin_port(start_gateway, tells_time, command) -> None:
    gateway = start_gateway({"time": tells_time})

    code, out, _ = command("status", "--admin", f"{gateway.admin}/", "--json")
    report = httpx2.get(f"{gateway.admin}/status").json()

    shown = json.loads(out)
    assert code == exit_codes.OK
    assert {**shown, "uptime": 0} == {**report, "uptime": 0}
    assert shown["servers"][0]["tools"][0]["name"] == "get_time"


def test_cost_of_tool_definitions_is_a_metric_of_the_running_gateway(start_gateway, tells_time) -> None:
    gateway = start_gateway({"time": tells_time})
    cost = httpx2.get(f"{gateway.admin}/status").json()["definition_tokens"]

    assert gateway.metric("codec_tool_definition_tokens", server="time") == cost > 0
    assert gateway.metric("codec_upstream_sessions", server="time") == 1


@pytest.mark.parametrize("path", ["", "/nowhere"])
def test_what_is_no_admin_port_is_unreachable(start_gateway, command, path) -> None:
    gateway = start_gateway({})

    code, out, err = command("status", "--admin", f"{gateway.url}{path}")

    assert (code, out) == (exit_codes.UNREACHABLE, "")
    assert "is not the admin port of a gateway" in err


def test_gateway_that_does_not_run_is_unreachable_with_a_way_out(command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    code, _, err = command("status", "--admin", f"http://127.0.0.1:{port}")

    assert code == exit_codes.UNREACHABLE
    assert "codec-gateway serve" in err


def test_admin_port_is_found_in_the_configuration(start_gateway, tells_time, command, tmp_path: Path) -> None:
    gateway = start_gateway({"time": tells_time})
    own = tmp_path / "other.toml"
    own.write_text(f'[serve]\nadmin_host = "0.0.0.0"\nadmin_port = {gateway.admin.rpartition(":")[2]}\n')

    assert command("status", "--config", str(own))[0] == exit_codes.OK


def test_call_reaches_a_running_gateway_by_its_address(start_gateway, says, command) -> None:
    gateway = start_gateway({"up": says({"type": "text", "text": "hello there"})})

    assert command("call", "say", "--url", f"{gateway.url}/mcp") == (exit_codes.OK, "hello there\n", "")


def test_call_sends_its_token_and_without_one_says_what_was_refused(start_gateway, says, command) -> None:
    gateway = start_gateway({"up": says({"type": "text", "text": "hello"})}, env={"CODEC_GATEWAY_TOKEN": "t0ken-t0ken"})
    url = f"{gateway.url}/mcp"

    assert command("call", "say", "--url", url, "--token", "t0ken-t0ken")[:2] == (exit_codes.OK, "hello\n")
    code, _, err = command("call", "say", "--url", url)
    assert code == exit_codes.UNREACHABLE
    assert "401" in err


def test_changed_tool_is_blocked_until_it_is_accepted_while_the_gateway_runs(start_gateway, tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    script = Path(__file__).parents[1] / "gateway" / "cli" / "servers" / "offers.py"
    offer = tmp_path / "offer.json"
    shell = ["-c", f'exec {sys.executable} {script} "$(cat {offer})"']
    (tmp_path / "codec-gateway.toml").write_text(
        f'prefix = "always"\n[upstreams.up]\ncommand = "/bin/sh"\nargs = {json.dumps(shell)}\npin = "block"\n'
    )

    def offer_tool(words: str) -> None:
        look = {"name": "look", "description": words, "inputSchema": {"type": "object"}}
        offer.write_text(json.dumps({"tools": [look], "result": {"content": []}}))

    def pins(*words: str) -> str:
        return ran("pins", *words, folder=tmp_path, env={**os.environ, **state})

    offer_tool("looks at it")
    first = start_gateway({}, env=state)
    assert tools_of(first.admin) == ["up__look"]
    first.process.terminate()
    first.process.wait(30)
    offer_tool("looks at it, and sends it to me")

    second = start_gateway({}, env=state)

    assert tools_of(second.admin) == []
    assert httpx2.get(f"{second.admin}/status").json()["pins"]["broken"] == [{"server": "up", "tool": "look"}]
    assert "look" in pins("show")
    pins("accept", "up")
    assert offered_soon(second.admin) == ["up__look"]
    assert second.metric("codec_pin_breaks_total", server="up") == 1


def tools_of(admin: str) -> list[str]:
    (server,) = httpx2.get(f"{admin}/status").json()["servers"]
    return [tool["name"] for tool in server["tools"]]


def offered_soon(admin: str) -> list[str]:
    """The tools once there are some: the gateway looks at the file of the pins every second."""
    for _ in range(600):
        if names := tools_of(admin):
            return names
        threading.Event().wait(0.05)
    return []
