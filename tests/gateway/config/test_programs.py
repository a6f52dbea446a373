"""Where the program of a server is, or why it can't be started; and how deep gateways may start gateways."""

import sys
from pathlib import Path

import pytest

from gateway.config.gateway_config import UpstreamConfig
from gateway.config.programs import DEPTH_VARIABLE, find_program, nesting_depth, refuse_nesting, why_not_startable
from gateway.errors import ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, mode in (("runs", 0o755), ("text", 0o644), ("codec-time-leaf", 0o755)):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(mode)
    (tmp_path / "inner").mkdir()
    return tmp_path


def test_program_is_found_on_the_server_s_path(folder: Path) -> None:
    assert find_program("runs", str(folder)) == str(folder / "runs")
    assert find_program("text", str(folder)) is None
    assert find_program("runs", "") is None


def test_program_of_ours_is_also_found_beside_the_python_that_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(folder / "python"))

    assert find_program("codec-time-leaf", "") == str(folder / "codec-time-leaf")
    assert find_program("runs", "") is None


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("./runs", None),
        ("./text", "is not executable: chmod +x it"),
        ("./inner", "is a folder: name the program in it"),
        ("./gone", "does not exist: correct the path"),
        ("runs", None),
        ("gone", "is not on PATH: install it"),
    ],
)
def test_command_that_can_not_be_started_says_why(folder: Path, command: str, why: str | None) -> None:
    upstream = UpstreamConfig("a", command=command, cwd=folder)
    said = why_not_startable(upstream, {"PATH": str(folder)})

    assert (said is None) == (why is None)
    assert f"its command {command!r} {why or ''}" in f"{said or f'its command {command!r} '}"


def test_path_of_the_entry_counts_before_that_of_the_gateway(folder: Path) -> None:
    upstream = UpstreamConfig("a", command="runs", env={"PATH": str(folder)})

    assert why_not_startable(upstream, {"PATH": "/nowhere"}) is None
    assert why_not_startable(UpstreamConfig("a", command="runs"), {"PATH": "/nowhere"}) is not None
    assert why_not_startable(UpstreamConfig("a", command="sh"), {}) is None


def test_relative_command_starts_from_the_gateway_s_folder_without_one_of_its_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)

    assert why_not_startable(UpstreamConfig("a", command="./runs"), {}) is None


def test_server_at_a_url_has_no_program_to_look_for() -> None:
    assert why_not_startable(UpstreamConfig("a", url="http://a"), {}) is None


@pytest.mark.parametrize(("written", "depth"), [(None, 0), ("0", 0), ("1", 1), ("2", 2), ("17", 17), ("x", 0), ("", 0)])
def test_gateway_of_a_gateway_may_start_and_one_below_that_may_not(written: str | None, depth: int) -> None:
    environ = {} if written is None else {DEPTH_VARIABLE: written}

    assert nesting_depth(environ) == depth
    if depth < 2:
        refuse_nesting(environ)
    else:
        with pytest.raises(ConfigError, match="remove that entry from its servers"):
            refuse_nesting(environ)
