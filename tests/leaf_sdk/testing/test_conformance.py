"""Every rule of the contract is judged by its own name: a good tool passes all, a broken one fails exactly its own."""

import copy
import sys

import mcp.types as t
import pytest
from mcp.server import MCPServer, Server

from leaf_sdk import CODEC_META_KEY, MapPin, MetaTokenizer, make_meta_tokenizer, wrap_tool_call
from leaf_sdk.leaf.packing import pack
from leaf_sdk.serve import make_leaf
from leaf_sdk.testing import tiny_map, tiny_map_bytes, tiny_meta
from leaf_sdk.testing.conformance import judge_result
from leaf_sdk.testing.conformance.mcp_server import check_command, check_server
from leaf_sdk.vocab import map_digest
from tests.cases import each_of

TINY = tiny_map()
META = tiny_meta()
TEXT = "hello <|im_end|> world"
STRANGER = "sha256:" + "ab" * 32


def _leaf(text=TEXT):
    return wrap_tool_call({"content": [{"type": "text", "text": text}]}, META)


def _with_payload(payload, text=TEXT):
    return {"content": [{"type": "text", "text": text, "_meta": {CODEC_META_KEY: payload}}]}


def _ids(ids, text=TEXT, map_id=TINY.map_id):
    return _with_payload({"map_id": map_id, "ids": ids}, text)


def _outcomes(verdicts, outcome):
    return {verdict.check for verdict in verdicts if verdict.outcome == outcome}


def test_a_good_leaf_passes_every_rule():
    verdicts = judge_result("t", _leaf(), [TINY])
    assert _outcomes(verdicts, "pass") == {
        "payloads are well-formed",
        "every text carries ids",
        "map ids are hashes",
        "map is known",
        "ids are ids of the map",
        "no control tokens in ids",
        "ids decode to the text",
        "ids are those that the map gives",
        "a control token in text stays text",
        "wrapping is idempotent",
    }
    assert len(verdicts) == 10
    assert {verdict.tool for verdict in verdicts} == {"t"}


GOOD = TINY.encode(TEXT)
SPELLED = [TINY.encode(each)[0] for each in "hello"]
BROKEN = {
    "ids of other text": (_ids(TINY.encode("goodbye")), {"ids decode to the text"}),
    "a control token": (
        _ids([*TINY.encode("hello "), min(TINY.special_ids)]),
        {"no control tokens in ids", "a control token in text stays text"},
    ),
    "an id that is not there": (_ids([*GOOD, 10**6]), {"ids are ids of the map"}),
    "a boolean": (_ids([True, *GOOD]), {"ids are ids of the map"}),
    "a text for an id": (_ids(["1"]), {"ids are ids of the map"}),
    "no ids": (_with_payload({"map_id": TINY.map_id}), {"payloads are well-formed"}),
    "a map id that is a number": (_with_payload({"map_id": 7, "ids": GOOD}), {"payloads are well-formed"}),
    "a payload that is a list": (_with_payload(GOOD), {"payloads are well-formed"}),
    "packed ids that nobody asked for": (
        _with_payload({"map_id": TINY.map_id, "x_ids_leb128": pack(GOOD)}),
        {"payloads are well-formed"},
    ),
    "a hash without its prefix": (_ids(GOOD, map_id=TINY.map_id.removeprefix("sha256:")), {"map ids are hashes"}),
    "a name for a hash": (_ids(GOOD, map_id="qwen/qwen3"), {"map ids are hashes", "map is known"}),
    "a map that nobody gave": (_ids(GOOD, map_id=STRANGER), {"map is known"}),
    "content that is not a list": ({"content": "hello"}, {"result is valid MCP"}),
}


@each_of("what", BROKEN)
def test_a_broken_leaf_fails_exactly_the_rule_that_it_breaks(what):
    result, rules = BROKEN[what]
    before = copy.deepcopy(result)
    assert _outcomes(judge_result("t", result, [TINY]), "fail") == rules
    assert result == before


def test_ids_on_what_is_no_text_and_legacy_blocks_are_not_well_formed():
    image = {"type": "image", "data": "", "mimeType": "image/png", "_meta": {CODEC_META_KEY: {}}}
    legacy = {"type": "_codec_meta", "map_id": TINY.map_id, "ids": GOOD}
    for block in (image, legacy):
        verdicts = judge_result("t", {"content": [*_leaf()["content"], block]}, [TINY])
        assert _outcomes(verdicts, "fail") == {"payloads are well-formed"}


def test_ids_that_say_the_same_in_another_split_are_a_warning():
    ids = SPELLED
    assert TINY.decode(ids) == "hello"
    assert ids != TINY.encode("hello")
    verdicts = judge_result("t", _ids(ids, "hello"), [TINY])
    assert _outcomes(verdicts, "fail") == set()
    assert _outcomes(verdicts, "warn") == {"ids are those that the map gives"}


def test_a_text_without_ids_beside_one_with_is_a_warning():
    result = _leaf()
    result["content"].append({"type": "text", "text": "bare"})
    assert _outcomes(judge_result("t", result, [TINY]), "warn") == {"every text carries ids"}


def test_ids_of_further_maps_are_judged_too(golden_map, golden_map_path, tmp_path):
    (tmp_path / "tiny.json").write_bytes(tiny_map_bytes())
    pins = [
        MapPin(map_digest((tmp_path / "tiny.json").read_bytes()), path=tmp_path / "tiny.json"),
        MapPin(golden_map.map_id, path=golden_map_path),
    ]
    result = wrap_tool_call({"content": [{"type": "text", "text": "Hello"}]}, make_meta_tokenizer(maps=pins))
    assert not _outcomes(judge_result("t", result, [golden_map]), "fail")
    payload = result["content"][0]["_meta"][CODEC_META_KEY]
    payload["x_more"][0]["ids"] = [min(golden_map.special_ids)]
    assert "no control tokens in ids" in _outcomes(judge_result("t", result, [TINY, golden_map]), "fail")
    assert not _outcomes(judge_result("t", result, [TINY]), "fail")


def test_without_a_map_only_shapes_are_judged_and_the_map_is_named():
    verdicts = judge_result("t", _ids(GOOD, map_id=STRANGER), [])
    assert _outcomes(verdicts, "skip") == {"map is known"}
    assert STRANGER in next(each.detail for each in verdicts if each.outcome == "skip")
    assert not _outcomes(verdicts, "fail")


def test_a_plain_result_is_only_tried_with_wrapping():
    plain = {"content": [{"type": "text", "text": TEXT}], "structuredContent": {"a": 1}}
    assert judge_result("t", plain, []) == []
    assert _outcomes(judge_result("t", plain, [TINY]), "pass") == {"wrapping is idempotent"}


def test_a_control_token_in_text_is_asked_for_where_no_text_spells_one():
    (verdict,) = [v for v in judge_result("t", _leaf("hello"), [TINY]) if v.outcome == "skip"]
    assert verdict.check == "a control token in text stays text"
    assert "<|im_end|>" in verdict.detail


def test_what_a_tool_says_is_escaped_in_details():
    (verdict, *_) = judge_result("t", _with_payload("\x1b[2J\n"), [TINY])
    assert verdict.outcome == "fail"
    assert verdict.detail.isprintable()


class Hosted:
    """An MCP server in this process that remembers which tools were called with what."""

    def __init__(self, *tools, answer=None):
        self.called = []
        self.tools = tools
        self.answer = answer or (
            lambda name, arguments: t.CallToolResult(content=[t.TextContent(text=f"hello {name}")])
        )
        self.server = Server("hosted", version="1", on_list_tools=self._list, on_call_tool=self._call)

    async def _list(self, _context, _params):
        return t.ListToolsResult(tools=[*self.tools])

    async def _call(self, _context, params):
        if params.name not in {tool.name for tool in self.tools}:
            return t.CallToolResult(content=[t.TextContent(text=f"no tool {params.name}")], is_error=True)
        self.called.append((params.name, params.arguments or {}))
        return self.answer(params.name, params.arguments)


def _tool(name, *required, **hints):
    schema = {"type": "object", "properties": {each: {"type": "string"} for each in required}, "required": [*required]}
    return t.Tool(name=name, input_schema=schema, annotations=t.ToolAnnotations(**hints) if hints else None)


@pytest.mark.anyio
async def test_tools_are_called_only_where_that_is_safe_or_asked_for():
    hosted = Hosted(_tool("free"), _tool("wants", "x"), _tool("given", "x"), _tool("drop", destructive_hint=True))
    report = await check_server(hosted.server, [TINY], {"given": {"x": "y"}})
    assert hosted.called == [("free", {}), ("given", {"x": "y"})]
    skipped = {each.tool: each.detail for each in report.verdicts if each.outcome == "skip"}
    assert set(skipped) == {"wants", "drop"}
    assert "--call" in skipped["wants"]


@pytest.mark.anyio
async def test_a_plain_server_is_good_and_said_to_be_plain():
    report = await check_server(Hosted(_tool("free")).server, [TINY], {})
    assert report.good
    assert report.kind == "plain"
    assert report.summary.startswith("not a leaf: a plain MCP server; ")


@pytest.mark.anyio
async def test_a_server_of_which_nothing_was_called_is_not_said_to_be_plain():
    report = await check_server(Hosted(_tool("wants", "x")).server, [TINY], {})
    assert (report.kind, report.good) == ("uncalled", True)


@pytest.mark.anyio
async def test_a_leaf_server_is_good_and_its_errors_are_judged_too():
    server = MCPServer("leaf")

    @server.tool(structured_output=False)
    def greet(name: str = "world") -> str:
        """Greet."""
        return f"hello {name}"

    make_leaf(server, META)
    report = await check_server(server, [TINY], {"greet": {"name": "<|im_end|>"}})
    assert (report.kind, report.good) == ("leaf", True)
    assert {verdict.outcome for verdict in report.verdicts} == {"pass"}
    stays = [each.tool for each in report.verdicts if each.check == "a control token in text stays text"]
    assert stays == ["(unknown tool)", "greet"]


@pytest.mark.anyio
async def test_a_server_that_ships_control_ids_fails_by_that_rule():
    def answer(_name, _arguments):
        meta = {CODEC_META_KEY: {"map_id": TINY.map_id, "ids": [min(TINY.special_ids)]}}
        return t.CallToolResult(content=[t.TextContent(text="x", _meta=meta)])

    report = await check_server(Hosted(_tool("free"), answer=answer).server, [TINY], {})
    assert not report.good
    assert _outcomes(report.verdicts, "fail") == {"no control tokens in ids"}


@pytest.mark.anyio
async def test_arguments_for_a_tool_that_is_not_there_fail():
    report = await check_server(Hosted(_tool("free")).server, [], {"fre": {}})
    (failed,) = [each for each in report.verdicts if each.outcome == "fail"]
    assert (failed.tool, failed.check) == ("fre", "is called")
    assert "free" in failed.detail


@pytest.mark.anyio
async def test_a_server_that_carries_out_a_tool_that_is_not_there_fails():
    async def call(_context, _params):
        return t.CallToolResult(content=[t.TextContent(text="done")])

    async def listed(_context, _params):
        return t.ListToolsResult(tools=[])

    report = await check_server(Server("yes", on_list_tools=listed, on_call_tool=call), [], {})
    assert _outcomes(report.verdicts, "fail") == {"errors are well-formed"}


_RAW = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answers = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "raw", "version": "0"}},
        "tools/list": {"tools": [{"name": "free", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "_codec_meta", "map_id": "x", "ids": []}]},
    }
    answer = answers.get(asked["method"])
    reply = {"result": answer} if answer else {"error": {"code": -32601, "message": "no"}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **reply}), flush=True)
    if asked["method"] == "tools/call" and LEAVES:
        sys.exit(1)
"""


def _command(leaves):
    return [sys.executable, "-c", _RAW.replace("LEAVES", str(leaves))]


@pytest.mark.anyio
async def test_an_answer_that_is_none_of_mcp_is_named():
    report = await check_command(_command(False), [TINY], {}, environ={})
    (failed,) = [each for each in report.verdicts if each.tool == "free" and each.outcome == "fail"]
    assert (failed.check, report.kind) == ("is called", "uncalled")
    assert "content.0" in failed.detail


@pytest.mark.anyio
async def test_verdicts_outlive_a_server_that_dies():
    report = await check_command(_command(True), [TINY], {}, environ={})
    assert not report.good
    assert {"answers", "tools are listed"} <= _outcomes(report.verdicts, "pass")


@pytest.mark.anyio
async def test_the_last_words_of_a_server_that_does_not_start_are_shown():
    command = [sys.executable, "-c", "import sys; sys.exit('the map is gone')"]
    report = await check_command(command, [], {}, environ={})
    assert (report.kind, report.good) == ("unreachable", False)
    assert "the map is gone" in report.verdicts[-1].detail


@pytest.mark.anyio
async def test_a_server_that_says_nothing_is_given_up():
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    report = await check_command(command, [], {}, environ={}, timeout=0.5)
    assert (report.kind, report.good) == ("unreachable", False)


def test_a_wrapper_that_changes_text_would_be_noticed(monkeypatch):
    def spoiling(result, meta, **_):
        return {**result, "content": [{"type": "text", "text": "x", "_meta": {CODEC_META_KEY: meta.payload("x")}}]}

    monkeypatch.setattr("leaf_sdk.testing.conformance.results.wrap_tool_call", spoiling)
    assert isinstance(META, MetaTokenizer)
    assert _outcomes(judge_result("t", _leaf(), [TINY]), "fail") == {"wrapping is idempotent"}
