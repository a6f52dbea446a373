"""Keys of arguments come back as they were written, whatever stands in them that the format's own syntax has too."""

import json
import random

from gateway.toolcalls.formats.format import call_grammar
from gateway.toolcalls.formats.registry import format_named, format_names
from gateway.toolcalls.parser import parse, stream
from gateway.toolcalls.schema.spec import ToolSpec
from tests.cases import each_of
from tests.gateway.toolcalls.gbnf_oracle import Gbnf

KEYS = ("<x>", "$filter", "@type", "<a><b>", "a>b", "#", "x-y", "a.b", "é")


def tool(*keys: str) -> ToolSpec:
    properties = {key: {"type": "string", "enum": ["v"]} for key in keys}
    return ToolSpec("f", "", {"type": "object", "properties": properties, "required": list(keys)})


@each_of("name", format_names())
@each_of("key", KEYS)
def test_a_key_comes_back_as_it_was_written(name: str, key: str) -> None:
    tools = [tool(key, "x", "a")]
    text = Gbnf(call_grammar(format_named(name), tools, choice="required")).sample(random.Random(1))
    message = parse(name, text, tools, new_id=str)
    assert [json.loads(call.arguments) for call in message.tool_calls] == [{key: "v", "x": "v", "a": "v"}]
    assert message.diagnostics == ()
    assert stream(name, text, tools, new_id=str) == message


def test_what_only_begins_like_a_known_key_is_a_key_of_its_own() -> None:
    text = "<tool_call><function=f><parameter=<x>>v</parameter></function></tool_call>"
    for known, given in (("<x>", {"<x>": "v"}), ("<x>y", {"<x": ">v"}), ("z>", {"<x": ">v"})):
        (call,) = parse("qwen3_coder", text, [tool(known)]).tool_calls
        assert json.loads(call.arguments) == given


@each_of("end", range(17, 45))
def test_a_stream_that_ends_inside_a_key_tells_nothing_of_it(end: int) -> None:
    text = "<tool_call><function=f><parameter=<a><b>>v</parameter>"[:end]
    calls = parse("qwen3_coder", text, [tool("<a><b>")]).tool_calls
    assert all(call.arguments in ("", "{}", '{"<a><b>": "v', '{"<a><b>": "') for call in calls)


def test_a_key_longer_than_any_breaks_its_call() -> None:
    text = f"<tool_call><function=f><parameter={'k' * 300}>v</parameter></function></tool_call>"
    (problem,) = parse("qwen3_coder", text, ()).diagnostics
    assert problem.kind == "malformed"
