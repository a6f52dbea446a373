"""`codec-gateway doctor` on servers that do not come up, over either transport, and on an engine of another model."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench.processes import free_port
from gateway.cli import exit_codes
from gateway.cli.checkup import Checkup, ServerCheck, ToolCheck
from gateway.cli.doctor import print_checkup
from gateway.serve.admin.advice import Judgement
from leaf_sdk.vocab import map_digest

TESTS = Path(__file__).parents[2]
TINY_MAP = TESTS / "leaf_sdk" / "vectors" / "tiny_byte_level_map.json"
SERVERS = TESTS / "gateway" / "proxy" / "servers"
TEXT = {"content": [{"type": "text", "text": "It is sunny."}]}


@pytest.fixture
def http_server() -> Iterator[str]:
    """The address of a real mcp server over HTTP."""
    command = [sys.executable, str(SERVERS / "http_echo.py"), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/mcp"
        process.kill()


def own(file: Path, text: str) -> None:
    (file.parent / "codec-gateway.toml").write_text(text)


def checks_of(command, file: Path, *words: str, code: int = exit_codes.FAILED) -> dict[str, dict[str, Any]]:
    ran = command("doctor", "--json", "-c", file, *words)
    assert ran.code == code, ran
    return {server["name"]: server for server in json.loads(ran.out)["servers"]}


def test_every_way_not_to_come_up_is_told_by_server_and_cause(servers, tool, command) -> None:
    port = free_port()
    python = {"command": sys.executable}
    file = servers(
        missing={"command": "/no/such/program"},
        dies={**python, "args": [str(SERVERS / "dies_at_start.py")]},
        away={"url": f"http://127.0.0.1:{port}/mcp"},
        well={"tools": [tool()], "result": TEXT},
    )

    found = checks_of(command, file)

    causes = {name: " ".join(check["problems"]) for name, check in found.items()}
    assert "'/no/such/program' does not exist or is not on PATH" in causes["missing"]
    assert "exit code 3" in causes["dies"]
    assert f"127.0.0.1:{port}" in causes["away"]
    assert causes["well"] == ""
    assert [name for name, check in found.items() if check["reached"]] == ["well"]


def test_server_that_says_nothing_is_one_that_did_not_come_up_in_time(servers, command, tmp_path) -> None:
    script = str(SERVERS / "silent.py")
    file = servers(silent={"command": sys.executable, "args": [script], "env": {"NOTES": str(tmp_path / "notes")}})
    own(file, "[limits]\nstart_timeout = 0.5\n")

    (problem,) = checks_of(command, file)["silent"]["problems"]

    # On a busy machine the process itself is not there in half a second.
    assert problem.endswith(" within 0.5 s (limits.start_timeout)")


def test_words_of_a_server_that_dies_are_one_option_away(command, servers) -> None:
    file = servers(dies={"command": sys.executable, "args": [str(SERVERS / "dies_at_start.py")]})

    quiet = command("doctor", "-c", file)
    loud = command("doctor", "-c", file, "--log-level", "info")

    assert "--log-level info" in quiet.out
    assert "no licence" not in quiet.err
    assert "no licence" in loud.err
    assert "\x1b[31m" not in loud.err
    assert quiet.code == loud.code == exit_codes.FAILED


def test_server_over_http_is_tried_as_one_on_standard_streams_is(servers, command, http_server) -> None:
    found = checks_of(command, servers(far={"url": http_server}), code=exit_codes.OK)["far"]

    assert (found["transport"], found["reached"], found["protocol"]) == ("http", True, "2026-07-28")
    assert [tool["name"] for tool in found["tools"]] == ["echo", "die"]
    assert {tool["ids"]["word"] for tool in found["tools"]} == {"unknown"}


@pytest.mark.engine
def test_map_of_another_model_than_the_engines_is_a_problem_that_shows_both(servers, command, engine_url) -> None:
    file = servers()
    own(file, f'[engine]\nkind = "url"\nurl = "{engine_url}"\n[tokens]\nmap = "{TINY_MAP}"\n')

    ran = command("doctor", "--json", "-c", file)

    report = json.loads(ran.out)
    assert ran.code == exit_codes.FAILED
    assert report["ok"] is False
    (problem,) = report["problems"]
    assert f"({map_digest(TINY_MAP.read_bytes())}) does not fit the tokenizer of the engine's model" in problem
    assert "'<tool_call>' is [300] in the map and [44, " in problem
    assert report["engine"] == "down"


def test_configuration_that_is_wrong_starts_nothing_and_ends_with_three(servers, command, tmp_path) -> None:
    file = servers(up={"command": "x", "url": "http://y/"})

    ran = command("doctor", "-c", file)

    assert (ran.code, ran.out) == (exit_codes.CONFIG, "")
    assert "'up'" in ran.err


@pytest.mark.parametrize(("width", "complete"), [(60, False), (120, True)])
def test_page_of_servers_and_tools_says_where_a_terminal_is_too_narrow_for_it(width: int, complete: bool) -> None:
    tools = (
        ToolCheck("time__get_current_time", 120, False, Judgement("leaf", "its ids are of map sha256:abc")),
        ToolCheck("time__convert_time", 99, True, Judgement("unknown", "it needs arguments")),
    )
    up = ServerCheck("time", "stdio", True, 0.5, "2026-07-28", ("tools",), tools, warnings=("its tools are silent",))
    down = ServerCheck("gone", "stdio", False, 20.0, problems=("its process ended (exit code 3)",))
    console = Console(width=width, force_terminal=True, color_system=None)
    with console.capture() as capture:
        print_checkup(console, Checkup((up, down), "none", ("sha256:" + "a" * 64,)), tools=True)

    page = capture.get()
    lines = page.splitlines()
    rows = {line.split()[0]: line.split() for line in lines if line.strip()}
    assert max(map(len, lines)) <= width
    assert rows["time"][1] == "yes"
    assert rows["gone"][1] == "no"
    assert "leaf" in rows["time__get_current_time"]
    assert "✗ gone: its process ended (exit code 3)" in page
    assert "! time: its tools are silent" in page
    assert page.count("a wider terminal") == (0 if complete else 2)
    assert ("2026-07-28" in page) is complete
    assert lines[-1] == "something is wrong"
