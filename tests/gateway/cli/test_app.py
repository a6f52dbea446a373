"""The command line as a whole: what every command shares, and the page that lists them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gateway import __version__
from gateway.cli import exit_codes
from gateway.cli.app import build_app, run


def test_version_is_printed_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == exit_codes.OK
    assert capsys.readouterr().out == f"{__version__}\n"
    # No command is loaded for it: all of them together take seconds.
    assert not build_app("--version").registered_commands


def test_unknown_option_is_a_usage_error_that_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--prot", "1"]) == exit_codes.USAGE
    assert "--prot" in capsys.readouterr().err


def test_wrong_setting_is_one_line_on_stderr_and_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["serve", "--engine", "steam"])

    printed = capsys.readouterr()
    assert code == exit_codes.CONFIG
    assert printed.out == ""
    assert printed.err.splitlines()[-1].startswith("codec-gateway: --engine: expected 'embedded', 'none' or http://")


def test_mcp_servers_are_served_without_an_engine_and_without_a_map(tmp_path: Path) -> None:
    servers = {"mcpServers": {"time": {"command": sys.executable, "args": ["-m", "plain_time"]}}}
    (tmp_path / "servers.json").write_text(json.dumps(servers))
    command = [sys.executable, "-m", "gateway", "serve", "--config", "servers.json", "--port", "0", "--admin-port", "0"]

    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as gateway:
        assert gateway.stderr is not None
        events = (json.loads(line) for line in gateway.stderr)
        ready = next(event for event in events if event["event"] == "gateway ready")
        gateway.kill()

    assert ready["tools"] == 1


def test_command_of_an_extra_that_is_not_installed_is_refused_with_what_installs_it(
    command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.cli.app.entry_points", lambda group: ())  # pyright: ignore[reportUnknownLambdaType]

    ran = command("bench", "http://127.0.0.1:1")

    assert (ran.code, ran.out) == (3, "")
    assert ran.err == "codec-gateway: the command 'bench' is not installed: pip install 'codec-gateway[bench]'\n"
    assert "No such command 'banch'" in command("banch").err


def test_packages_beside_the_gateway_are_loaded_only_for_their_own_commands() -> None:
    code = "import sys; from gateway.cli.app import run; run(['{}', '--help']); print('codec_demo' in sys.modules)"

    def loads_demo(name: str) -> bool:
        command = [sys.executable, "-c", code.format(name)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
        return done.stdout.endswith("True\n")

    assert [loads_demo(name) for name in ("demo", "check", "bench")] == [True, False, False]
