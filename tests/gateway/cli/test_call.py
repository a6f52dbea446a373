"""`codec-gateway call`, as a shell sees it, on real servers."""

import io
import json
import sys

import pytest

from gateway.cli import exit_codes

NEVER = {"command": "/no/such/program"}
SCHEMA = {"type": "object", "properties": {"zip": {"type": "string"}, "days": {"type": "integer"}}}


def text(*texts: str, **more: object) -> dict[str, object]:
    return {"content": [{"type": "text", "text": each} for each in texts], **more}


def test_text_of_the_result_is_printed_as_it_is(servers, tool, command) -> None:
    file = servers(up={"tools": [tool()], "result": text("one\ttwo", "three")})

    assert command("call", "look", "-c", file) == (exit_codes.OK, "one\ttwo\nthree\n", "")


def test_only_the_server_that_owns_the_tool_is_started(servers, tool, command, tmp_path) -> None:
    started = tmp_path / "started"
    tells = {"command": "/bin/sh", "args": ["-c", f"touch {started}"]}
    file = servers(up={"tools": [tool()], "result": text("hi")}, other=tells)

    ran = command("call", "up__look", "-c", file)

    assert (ran.code, ran.out) == (exit_codes.OK, "hi\n")
    assert not started.exists()


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ([], {}),
        (['{"zip": "04109", "deep": {"n": [1]}}'], {"zip": "04109", "deep": {"n": [1]}}),
        (["zip=04109", "days=3"], {"zip": "04109", "days": 3}),
        (
            ["more=[1, 2]", "word=plain", "empty=", "eq=a=b"],
            {"more": [1, 2], "word": "plain", "empty": "", "eq": "a=b"},
        ),
    ],
)
def test_words_of_the_shell_become_the_arguments(servers, tool, command, words, arguments) -> None:
    file = servers(up={"tools": [tool(inputSchema=SCHEMA)], "result": "arguments"})

    assert json.loads(command("call", "look", *words, "-c", file).out) == arguments


def test_arguments_may_come_from_standard_input(servers, tool, command, monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO('{"zip": "Zürich"}'.encode())))
    file = servers(up={"tools": [tool()], "result": "arguments"})

    assert json.loads(command("call", "look", "-", "-c", file).out) == {"zip": "Zürich"}


@pytest.mark.parametrize("word", ["zip", "=1", "{", "[1]", '{"a": 1} x'])
def test_words_that_are_no_arguments_are_a_usage_error_and_start_nothing(servers, command, word) -> None:
    ran = command("call", "look", word, "-c", servers(up=NEVER))

    assert (ran.code, ran.out) == (exit_codes.USAGE, "")


def test_error_result_is_printed_and_is_a_failure(servers, tool, command) -> None:
    file = servers(up={"tools": [tool()], "result": text("no such city", isError=True)})

    assert command("call", "look", "-c", file) == (exit_codes.FAILED, "no such city\n", "")


def test_json_is_the_whole_result_with_fields_that_nobody_knows(servers, tool, command) -> None:
    result = text("hi", **{"x-vendor": None, "_meta": {"com.example/k": 1}})
    file = servers(up={"tools": [tool()], "result": result})

    assert json.loads(command("call", "look", "--json", "-c", file).out) == result


def test_what_is_no_text_is_a_line_that_says_what_it_is(servers, tool, command) -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "aGVsbG8="}
    file = servers(up={"tools": [tool()], "result": {"content": [image]}})

    assert command("call", "look", "-c", file).out == "[image/png, 5 bytes: this model reads text]\n"


def test_terminal_gets_no_command_of_a_tool(servers, tool, command, monkeypatch) -> None:
    monkeypatch.setattr("gateway.cli.call.is_terminal", lambda: True)
    file = servers(up={"tools": [tool()], "result": text("a\x1b]0;owned\x07\nb\tc")})

    assert command("call", "look", "-c", file).out == "a\\x1b]0;owned\\x07\nb    c\n"


def test_server_that_does_not_start_is_unreachable_and_says_why(servers, command) -> None:
    ran = command("call", "up__look", "-c", servers(up=NEVER, other=NEVER))

    assert (ran.code, ran.out) == (exit_codes.UNREACHABLE, "")
    assert ran.err == (
        "codec-gateway: server 'up' is not available: its command '/no/such/program' does not exist or is not on PATH: "
        "install it, or give its whole path\n"
    )


def test_unknown_tool_is_told_those_that_there_are(servers, tool, command) -> None:
    file = servers(up={"tools": [tool(), tool("list")], "result": text()}, other=NEVER)

    assert (
        command("call", "up__lock", "-c", file).err
        == "codec-gateway: no tool is called 'up__lock': there are up__look, up__list\n"
    )
    ran = command("call", "look", "-c", file)
    assert ran.code == exit_codes.FAILED
    assert ran.err == "codec-gateway: no server has a tool called 'look': names begin with up__..., other__...\n"


def test_error_of_the_server_is_a_line_and_a_failure(servers, tool, command) -> None:
    ran = command("call", "look", "-c", servers(up={"tools": [tool()], "error": "quota\x1b[31m"}))

    assert (ran.code, ran.out, ran.err) == (exit_codes.FAILED, "", "codec-gateway: quota\\x1b[31m\n")


def test_call_that_takes_too_long_ends_in_time(servers, tool, command) -> None:
    file = servers(up={"tools": [tool()], "result": "never"})

    ran = command("call", "look", "--timeout", "0.2", "-c", file)

    assert ran.code == exit_codes.FAILED
    assert "did not answer the call of tool 'look' within 0.2 s" in ran.out
