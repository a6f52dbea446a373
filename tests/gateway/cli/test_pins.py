"""`codec-gateway pins`, on the file that the gateway writes."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import exit_codes
from gateway.proxy.upstream.items.tool_pins import PinFile, digest_of

FIRST, NOW = "ab" * 32, "cd" * 32


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PinFile:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return PinFile()


@pytest.fixture
def changed(file: PinFile) -> PinFile:
    tools = {name: {"pinned": FIRST, "seen": NOW} for name in ("look", "l\x1b[1mist")}
    file.write({"up 0123": {**tools, "same": {"pinned": FIRST, "seen": FIRST}}, "other 4567": {"look": tools["look"]}})
    return file


def test_nothing_pinned_says_how_to_pin(command) -> None:
    assert command("pins", "show") == (exit_codes.OK, 'nothing is pinned: set pin = "warn"\n', "")


def test_pins_that_all_hold_are_counted(command, file) -> None:
    file.write({"up 0123": {"look": {"pinned": FIRST, "seen": FIRST}}})

    assert command("pins", "show").out == "no tool has changed; 1 are pinned\n"


@pytest.mark.usefixtures("changed")
def test_changed_tools_are_listed_by_server_with_both_digests(command) -> None:
    lines = command("pins", "show").out.partition("\n\n")[0].splitlines()

    assert [line.split() for line in lines] == [
        ["server", "tool", "first", "seen", "now"],
        ["other", "look", FIRST[:12], NOW[:12]],
        ["up", "l\\x1b[1mist", FIRST[:12], NOW[:12]],
        ["up", "look", FIRST[:12], NOW[:12]],
    ]


def keep(file: PinFile, was: dict[str, Any], now: dict[str, Any], tool: str = "look") -> None:
    """One tool of the server `up` that said the first and says the second."""
    file.write({"up 0123": {tool: {"pinned": digest_of(was), "seen": digest_of(now)}}})
    file.keep({digest_of(each): each for each in (was, now)})


def test_changed_tool_is_shown_with_what_changed_and_the_command_that_takes_it(command, file) -> None:
    keep(file, {"description": "reads"}, {"description": "reads \x1b[31m\u202e"}, tool="look at it")

    assert command("pins", "show").out.partition("\n\n")[2].splitlines() == [
        "look at it of up",
        " {",
        '-  "description": "reads"',
        '+  "description": "reads \\u001b[31m\\u202e"',
        " }",
        "codec-gateway pins accept up 'look at it'",
    ]


@pytest.mark.usefixtures("changed")
def test_what_was_not_kept_is_told_for_each_tool(command) -> None:
    assert command("pins", "show").out.count("was not kept") == 3


def test_secrets_of_the_configuration_are_masked(command, file, tmp_path: Path) -> None:
    path = tmp_path / "codec-gateway.toml"
    path.write_text('[serve]\ntoken = "tok-1234-5678-abcd"\n')
    keep(file, {"description": "a"}, {"description": "Bearer abc.def and tok-1234-5678-abcd"})

    lines = command("pins", "show", "--config", str(path)).out.splitlines()

    assert '+  "description": "Bearer **** and ****"' in lines


def test_json_names_the_file_and_the_whole_digests(command, changed) -> None:
    report = json.loads(command("pins", "show", "--json").out)

    assert report["file"] == str(changed.path)
    assert report["changed"][0] == {"server": "other", "tool": "look", "pinned": FIRST, "seen": NOW}


def test_accepting_one_tool_leaves_the_others_changed(command, changed) -> None:
    ran = command("pins", "accept", "up", "look")

    assert (ran.code, ran.out) == (exit_codes.OK, "1 definition is pinned as it is now\n")
    assert [(each.server, each.tool) for each in changed.changes()] == [("other", "look"), ("up", "l\x1b[1mist")]


def test_accepting_a_server_takes_all_its_tools_and_no_other_servers(command, changed) -> None:
    assert command("pins", "accept", "up").out == "2 definitions are pinned as they are now\n"
    assert [each.server for each in changed.changes()] == ["other"]


@pytest.mark.usefixtures("changed")
@pytest.mark.parametrize("words", [["up", "same"], ["nobody"], ["up", "none"]])
def test_accepting_what_did_not_change_is_refused(command, words) -> None:
    ran = command("pins", "accept", *words)

    assert (ran.code, ran.out) == (exit_codes.CONFIG, "")
    assert "codec-gateway pins show lists those that do" in ran.err


@pytest.mark.parametrize("action", [["show"], ["accept", "up"]])
def test_broken_file_is_named_with_a_way_out(command, file, action) -> None:
    file.path.parent.mkdir(parents=True)
    file.path.write_text("{")
    os.chmod(file.path, stat.S_IRUSR)  # noqa: PTH101

    ran = command("pins", *action)

    assert ran.code == exit_codes.CONFIG
    assert str(file.path) in ran.err
    assert "remove the file" in ran.err
