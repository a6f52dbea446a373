"""`codec-gateway parse`, as a person or a script runs it: text in, message, deltas or grammar out."""

import io
import json
from pathlib import Path

import pytest

from gateway.cli import exit_codes
from gateway.cli.app import run
from gateway.toolcalls.formats.format import call_grammar
from gateway.toolcalls.formats.registry import format_named
from gateway.toolcalls.schema.spec import ToolSpec

CALL = '<tool_call>\n{"name": "get_time", "arguments": {"tz": "Zürich"}}\n</tool_call>'
TOOL = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}
MCP_TOOL = {"name": "get_time", "inputSchema": {"type": "object"}}


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run `parse` on an output; gives exit code, stdout and stderr."""

    def parse(output: str | bytes, *arguments: str) -> tuple[int, str, str]:
        data = output.encode() if isinstance(output, str) else output
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        code = run(["parse", *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return parse


def test_message_is_printed_as_openai_s_json(say) -> None:
    code, out, err = say(f"<think>hm</think>Hi\n{CALL}", "--format", "hermes")

    message = json.loads(out)
    (call,) = message["tool_calls"]
    assert (code, err) == (exit_codes.OK, "")
    assert (message["content"], message["reasoning_content"]) == ("Hi", "hm")
    assert call["function"] == {"name": "get_time", "arguments": '{"tz": "Zürich"}'}
    assert out.isascii()


def test_deltas_are_printed_one_a_line_and_join_to_the_message(say) -> None:
    code, out, _ = say(f"Hi there\n{CALL}", "--format", "hermes", "--stream")

    deltas = [json.loads(line) for line in out.splitlines()]
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert code == exit_codes.OK
    assert len([delta for delta in deltas if "content" in delta]) > 1
    assert "".join(delta.get("content", "") for delta in deltas) == "Hi there"
    assert calls[0]["function"] == {"name": "get_time", "arguments": ""}
    assert [sorted(call) for call in calls[1:]] == [["function", "index"]] * (len(calls) - 1)
    assert "".join(call["function"]["arguments"] for call in calls) == '{"tz": "Zürich"}'


def test_what_broke_off_is_said_on_stderr_and_the_rest_is_printed(say) -> None:
    code, out, err = say(CALL[:60], "--format", "hermes")

    assert code == exit_codes.OK
    assert json.loads(out)["tool_calls"][0]["function"]["name"] == "get_time"
    assert err.startswith("codec-gateway: truncated: the stream ended inside a tool call")


def test_format_is_known_by_the_template(say, tmp_path: Path) -> None:
    template = tmp_path / "template.jinja"
    template.write_text("{{ '[TOOL_CALLS]' + name + '[ARGS]' }}")
    code, out, err = say('[TOOL_CALLS]get_time[ARGS]{"tz": "CET"}', "--template", str(template))

    assert (code, err) == (exit_codes.OK, "")
    assert json.loads(out)["tool_calls"][0]["function"]["arguments"] == '{"tz": "CET"}'


def test_without_a_template_auto_says_what_it_takes(say) -> None:
    code, out, err = say(CALL)

    assert (code, len(json.loads(out)["tool_calls"])) == (exit_codes.OK, 1)
    assert "auto means 'generic'" in err


@pytest.mark.parametrize("shape", [[TOOL], {"tools": [TOOL]}, [MCP_TOOL], {"tools": [MCP_TOOL]}])
def test_grammar_of_the_tools_is_printed_and_no_output_is_read(say, tmp_path: Path, shape: object) -> None:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps(shape))
    code, out, _ = say("", "--format", "hermes", "--tools", str(path), "--grammar")

    spec = ToolSpec("get_time", "", {"type": "object"})
    assert (code, out) == (exit_codes.OK, call_grammar(format_named("hermes"), [spec], choice="required"))


def test_reasoning_that_the_prompt_opened_is_reasoning(say) -> None:
    _, out, _ = say("hm</think>Hi", "--format", "hermes", "--prompt-tail", "<think>\n")

    assert json.loads(out) == {"role": "assistant", "content": "Hi", "reasoning_content": "hm"}


def test_bytes_that_are_no_text_are_shown_as_replaced(say) -> None:
    _, out, _ = say(b"a\xff", "--format", "hermes")

    assert json.loads(out)["content"] == "a\ufffd"


@pytest.mark.parametrize(
    ("arguments", "content", "code", "words"),
    [
        (["--format", "nope"], "[]", exit_codes.CONFIG, "no tool-call format is named 'nope'"),
        (["--format", "hermes", "--tools", "{file}"], "{", exit_codes.CONFIG, "is not JSON"),
        (["--format", "hermes", "--tools", "{file}"], "{}", exit_codes.CONFIG, "holds no list of tools"),
        (["--format", "hermes", "--tools", "{file}"], "[{}]", exit_codes.FAILED, "tools[0] has no name"),
        (["--format", "hermes", "--tools", "{file}.no"], "", exit_codes.CONFIG, "can't be read"),
        (["--template", "{file}.no"], "", exit_codes.CONFIG, "--template"),
        (["--format", "hermes", "--grammar"], "", exit_codes.FAILED, "names no tool"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(say, tmp_path: Path, arguments, content, code, words) -> None:
    path = tmp_path / "file.json"
    path.write_text(content)
    ended, out, err = say(CALL, *[argument.replace("{file}", str(path)) for argument in arguments])

    assert (ended, out) == (code, "")
    assert words in err
    assert len(err.splitlines()) == 1


def test_output_beyond_the_bound_is_refused(say, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.cli.parse._LONGEST", 10)
    code, out, err = say("x" * 11, "--format", "hermes")

    assert (code, out) == (exit_codes.CONFIG, "")
    assert "longer than 10 bytes" in err
