"""Advice on servers that work, and what one result of a tool tells about its ids."""

from pathlib import Path
from typing import Any

import pytest

from gateway.config.gateway_config import UpstreamConfig
from gateway.proxy.naming import ToolEntry
from gateway.proxy.upstream.items.item_reader import MalformedField
from gateway.serve.admin.advice import Judgement, advice_for, advice_on_context, can_be_tried, judge
from leaf_sdk.leaf.contract import CODEC_META_KEY
from leaf_sdk.vocab import load_map
from tests.cases import each_of

MAP = load_map((Path(__file__).parents[3] / "leaf_sdk" / "vectors" / "tiny_byte_level_map.json").read_bytes())
HELD = {MAP.map_id: MAP}
UP = UpstreamConfig(name="up", command="up")
READS = {"annotations": {"readOnlyHint": True}, "inputSchema": {"type": "object"}}
NOT_READ_ONLY = "it was not called: it is not declared read-only (readOnlyHint)"


def text(words: str = "hello", payload: Any = None) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "text", "text": words}
    return block if payload is None else {**block, "_meta": {CODEC_META_KEY: payload}}


def leaf(words: str = "hello", map_id: str = MAP.map_id) -> dict[str, Any]:
    return text(words, {"map_id": map_id, "ids": list(MAP.encode(words))})


def tool(name: str = "look", description: str | None = "Looks.", schema: Any = None) -> ToolEntry:
    return ToolEntry(name, "up", name, {"name": name, "description": description, "inputSchema": schema})


def advice(*entries: ToolEntry, upstream: UpstreamConfig = UP, costs: int = 1, **more: Any) -> list[str]:
    found = {entry.name: (costs, Judgement("shim", "it sends no ids")) for entry in entries}
    return list(advice_for(upstream, entries, **{"found": found, "invalid": {}, **more}))


@each_of(
    ("definition", "why"),
    [
        (READS, None),
        ({**READS, "inputSchema": {"required": []}}, None),
        ({**READS, "inputSchema": {"required": ["a"]}}, "it was not called: it needs arguments"),
        ({**READS, "inputSchema": None}, "it was not called: it needs arguments"),
        ({**READS, "annotations": {"readOnlyHint": False}}, NOT_READ_ONLY),
        ({**READS, "annotations": {"readOnlyHint": 1}}, NOT_READ_ONLY),
        ({**READS, "annotations": {}}, NOT_READ_ONLY),
        ({**READS, "annotations": None}, NOT_READ_ONLY),
    ],
)
def test_only_tools_that_read_and_need_no_arguments_may_be_tried(definition: dict[str, Any], why: str | None) -> None:
    assert can_be_tried(definition) == why


@pytest.mark.parametrize(
    ("content", "word", "detail"),
    [
        ([], "unknown", "the call returned no text"),
        ([{"type": "image"}], "unknown", "the call returned no text"),
        ([text()], "shim", "it sends no ids; the gateway makes them"),
        ([leaf()], "leaf", f"its ids are valid for map {MAP.map_id[:19]}…"),
        ([leaf(map_id="sha256:ab")], "refused", "its ids belong to map sha256:ab, which this gateway does not accept"),
        ([text(payload={"ids": [1]})], "refused", "its tokenization lacks map_id or the list of ids"),
        (
            [text(payload={"map_id": MAP.map_id, "ids": []})],
            "refused",
            "the 0 ids do not spell the text of 5 characters",
        ),
    ],
)
def test_result_tells_who_makes_its_ids(content: list[Any], word: Any, detail: str) -> None:
    assert judge({"content": content}, HELD) == Judgement(word, detail)


def test_result_that_is_an_error_or_has_only_structured_content_tells_nothing() -> None:
    assert judge({"content": [leaf()], "isError": True}, HELD) == Judgement("unknown", "the call returned an error")
    assert judge({"structuredContent": {"a": 1}}, HELD) == Judgement("unknown", "the call returned no text")


def test_ids_are_not_checked_where_no_map_is_loaded() -> None:
    named = "m" * 81

    assert judge({"content": [leaf(map_id=named)]}, {}) == Judgement(
        "leaf", f"its ids belong to map {'m' * 80}; no map is loaded here to check them against"
    )


def test_worst_text_of_a_result_is_the_one_told() -> None:
    refused = text(payload={"ids": [1]})

    assert judge({"content": [leaf(), text(), refused]}, HELD).word == "refused"
    assert judge({"content": [leaf(), text()]}, HELD).word == "shim"
    assert judge({"content": [leaf(), leaf()]}, HELD).word == "leaf"


def test_server_without_a_flaw_gets_no_advice() -> None:
    assert advice(tool()) == []


@pytest.mark.parametrize(
    ("url", "headers", "told"),
    [
        ("http://far.example/mcp", {"x": "1"}, True),
        ("http://far.example/mcp", {}, False),
        ("https://far.example/mcp", {"x": "1"}, False),
        ("http://127.0.0.1/mcp", {"x": "1"}, False),
    ],
)
def test_credentials_that_cross_a_network_unencrypted_are_told(url: str, headers: dict[str, str], told: bool) -> None:
    upstream = UpstreamConfig(name="up", url=url, headers=headers)

    assert advice(tool(), upstream=upstream) == (
        ["its credentials are sent unencrypted: use its https address"] if told else []
    )


@pytest.mark.parametrize(
    ("count", "named"), [(1, "t0"), (5, "t0, t1, t2, t3, t4"), (6, "t0, t1, t2, t3, t4 and 1 more")]
)
def test_tools_without_a_description_are_named_up_to_five(count: int, named: str) -> None:
    assert advice(*(tool(f"t{n}", description=None) for n in range(count)), tool()) == [
        f"tools without a description: {named}; add one with `overrides.TOOL.description`"
    ]


@pytest.mark.parametrize(("costs", "told"), [(5000, 0), (5001, 1)])
def test_definitions_of_more_than_10000_tokens_are_told(costs: int, told: int) -> None:
    found = advice(tool("a"), tool("b"), costs=costs)

    assert len(found) == told
    assert all(f"take {2 * costs} tokens of every request" in each for each in found)


@pytest.mark.parametrize(
    ("aliases", "names", "way_out"),
    [
        (
            {"a.b": "a_b"},
            "a.b (alias a_b)",
            "models on /v1 get the aliases, and MCP clients too with `safe_names = true`",
        ),
        ({"a.b": None}, "a.b", 'use `overrides.TOOL.name`, or `safe_names = "auto"`'),
    ],
)
def test_names_that_model_apis_refuse_are_told_with_the_way_out(aliases: Any, names: str, way_out: str) -> None:
    (sentence,) = advice(tool(), aliases=aliases)

    assert sentence == (f"tool names that model APIs refuse (allowed: 1 to 64 of A-Z a-z 0-9 _ -): {names}; {way_out}")


def test_reference_that_leads_nowhere_tool_that_is_not_offered_and_ids_that_are_refused_are_told() -> None:
    dead = tool("dead", schema={"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}})
    found = {"dead": (1, Judgement("refused", "no such map"))}
    sentences = advice(dead, found=found, invalid={"gone": "its schema is a text"})

    assert len(sentences) == 3
    assert sentences[0].startswith("tool 'dead': nothing in its schema is what '#/nowhere' refers to")
    assert sentences[1:] == [
        "'gone' is not offered: its schema is a text",
        "the ids of 'dead' are not used: no such map",
    ]


def test_malformed_items_are_told_together_by_kind_of_flaw() -> None:
    def of(kind: Any, item: str, field: str = "title", reason: str = "not a text", out: bool = False) -> MalformedField:
        return MalformedField(kind, item, field, reason, out)

    malformed = [
        of("tools", "one"),
        of("prompts", "p", out=True),
        of("tools", "two"),
        of("tools", "gone", out=True),
        of("prompts", "q", field="", reason="not an object"),
    ]

    assert advice(tool(), malformed=malformed) == [
        "malformed in the list of tools: one, two: title: not a text",
        "malformed in the list of prompts: p: title: not a text (left out)",
        "malformed in the list of prompts: q: not an object",
    ]


def test_long_name_is_cut_where_it_is_shown() -> None:
    (sentence,) = advice(tool("x" * 101, description=None))

    assert "x" * 100 in sentence
    assert "x" * 101 not in sentence


@pytest.mark.parametrize(("count", "rest"), [(20, []), (22, ["2 more kinds of malformed fields in its lists"])])
def test_at_most_20_kinds_of_flaws_are_told(count: int, rest: list[str]) -> None:
    malformed = [MalformedField("tools", "t", f"f{n}", "wrong", left_out=False) for n in range(count)]
    found = advice(tool(), malformed=malformed)

    assert len(found[:20]) == 20
    assert found[20:] == rest


@pytest.mark.parametrize(
    ("tokens", "context", "search", "words"),
    [
        (25, 100, "auto", None),
        (26, None, "auto", None),
        (26, 100, "auto", "models on /v1 get a search tool instead (`tool_search`)"),
        (26, 100, True, "models on /v1 get a search tool instead (`tool_search`)"),
        (26, 100, False, 'offer fewer (`include`, `exclude`), or let models search for them (`tool_search = "auto"`)'),
    ],
)
def test_definitions_of_more_than_a_quarter_of_the_context_are_told(
    tokens: int, context: int | None, search: Any, words: str | None
) -> None:
    taken = "the definitions of all tools take about 26 tokens of a context of 100"

    assert advice_on_context(tokens, context, search) == (None if words is None else f"{taken}: {words}")
