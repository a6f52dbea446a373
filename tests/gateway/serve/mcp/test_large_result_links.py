"""Large results for MCP clients that say how much they take: a beginning, and a resource with the whole."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import GatewayConfig, LimitsConfig
from gateway.context.large_result_store import ResultStore
from gateway.errors import OwnerGone, rpc_error
from gateway.observe.logs import TokenNotices, get_logger
from gateway.observe.metrics import Metrics
from gateway.protocol.messages import INTERNAL_ERROR
from gateway.proxy.caller import Principal
from gateway.proxy.result_tokens import ResultTokens
from gateway.replicas import Replica
from gateway.replicas.replica_interface import ALONE
from gateway.serve.mcp import large_result_links
from leaf_sdk.leaf.contract import LEGACY_BLOCK_TYPE
from leaf_sdk.vocab import load_map

pytestmark = pytest.mark.anyio

HEADER = {"x-codec-result-limit": "2000"}
KEY = "ai.codec/result-limit"
VECTOR = Path(__file__).parents[3] / "leaf_sdk" / "vectors" / "tiny_byte_level_map.json"
LOG = "".join(f"line {number}: {'the needle' if number == 700 else 'hay'}\n" for number in range(1, 2001))


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


def store(**limits: Any) -> ResultStore:
    return ResultStore(LimitsConfig(**limits), Metrics())


@pytest.fixture
def site(servers, site_of):
    """An endpoint with a tool `log`, whose result is `servers.result`."""
    servers.result = {"content": [text(LOG)]}

    async def log(_: dict[str, Any], __: object) -> dict[str, Any]:
        return servers.result

    servers.tool(log)
    return lambda **more: site_of(servers, endpoint_with={"results": store(), **more})


async def read(client: Any, uri: str) -> str:
    answer = (await client.post("resources/read", {"uri": uri})).json()
    assert "result" in answer, answer
    (content,) = answer["result"]["contents"]
    assert content["uri"] == uri
    return content["text"]


async def link_of(client: Any) -> str:
    return (await client.call("log", **HEADER)).json()["result"]["content"][-1]["uri"]


async def test_client_that_names_no_limit_gets_the_whole(site):
    async with site() as there:
        client = await there.session()
        result = (await client.call("log")).json()["result"]

    assert result == {"content": [text(LOG)]}


async def test_client_gets_a_beginning_and_a_link_that_gives_the_whole(site):
    async with site() as there:
        client = await there.session()
        beginning, notice, link = (await client.call("log", **HEADER)).json()["result"]["content"]

        assert LOG.startswith(beginning["text"])
        assert beginning["text"].endswith("\n")
        assert 1000 < len(beginning["text"]) <= 2000
        assert f"{len(LOG):,} characters, text of 2,000 lines" in notice["text"]
        assert link["uri"] in notice["text"]
        assert link == {
            "type": "resource_link",
            "uri": link["uri"],
            "name": "result of log",
            "mimeType": "text/plain",
            "size": len(LOG),
        }
        assert await read(client, link["uri"]) == LOG


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("lines=3-4", "line 3: hay\nline 4: hay"),
        ("lines=2", "line 2: hay"),
        ("lines=1999-", "line 1999: hay\nline 2000: hay\n"),
        ("lines=9999", "[there are 2,001 lines]"),
        ("characters=1-6", "line 1"),
        ("characters=%201%20-%206", "line 1"),
        ("text=NEEDLE", "700: line 700: the needle"),
        ("text=no such thing", "['no such thing' is not in the result; try other words]"),
    ],
)
async def test_query_behind_the_link_selects_a_part(site, query, expected):
    async with site() as there:
        client = await there.session()
        assert await read(client, f"{await link_of(client)}?{query}") == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("lines=2", ""),
        ("lines=1-2", "C++, a b and a+c\n"),
        ("lines=3-9007199254740991", "\u0130\u03a3\u03a3\r\n" + "x\n" * 4000),
        ("lines=3-2", "[there are 4,004 lines]"),
        ("lines=+1+-+1", "C++, a b and a+c"),
        ("text=c++", "1: C++, a b and a+c"),
        ("text=c%2B%2B", "1: C++, a b and a+c"),
        ("text=a+b", "1: C++, a b and a+c"),
        ("text=b+and+a+c", "['b+and+a+c' is not in the result; try other words]"),
        ("text=\u03c3\u03c2", "3: \u0130\u03a3\u03a3\r"),
        ("text=i\u03c3", "3: \u0130\u03a3\u03a3\r"),
    ],
)
async def test_empty_lines_pluses_and_letters_of_other_length_are_found(servers, site, query, expected):
    servers.result = {"content": [text("C++, a b and a+c\n\n\u0130\u03a3\u03a3\r\n" + "x\n" * 4000)]}
    async with site() as there:
        client = await there.session()
        assert await read(client, f"{await link_of(client)}?{query}") == expected


@pytest.mark.parametrize("step", [1, 2, 7, 65_536])
@given(st.text("aB\n", max_size=30), st.text("abB\n", min_size=1, max_size=3), st.integers(1, 9), st.integers(0, 9))
def test_parts_are_the_same_whatever_is_looked_at_in_one_step(step, whole, words, first, last):
    lines = whole.split("\n")
    shown = "\n".join(lines[first - 1 : last]) if first <= min(last, len(lines)) else f"[there are {len(lines)} lines]"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(large_result_links, "_STEP", step)
        assert large_result_links._selected(whole.encode(), f"lines={first}-{last}") == shown
        places = [*large_result_links._places(whole, words)]

    assert places == [found.start() for found in re.finditer(re.escape(words), whole, re.IGNORECASE)]


def test_search_for_one_letter_many_times_looks_at_each_part_of_a_long_line_once():
    """A regular expression began again at each letter, for half a minute, and let nothing else run."""
    found = large_result_links._selected(b"a" * 2**22 + b"\n" + b"a" * 199 + b"B", "text=" + "a" * 199 + "b")

    assert found == "2: " + "a" * 199 + "B"


@pytest.mark.parametrize("query", ["lines=x", "lines=-5", "characters=", "page=2", "&" * 5000])
async def test_query_that_is_none_is_answered_with_those_that_are(site, query):
    async with site() as there:
        client = await there.session()
        answer = (await client.post("resources/read", {"uri": f"{await link_of(client)}?{query}"})).json()

    assert "?lines=120-180" in answer["error"]["message"]


async def test_search_shows_what_is_around_each_place_in_one_long_line_and_not_all_places(servers, site):
    servers.result = {"content": [text("".join(f"{number:6}" + "." * 994 for number in range(300)))]}
    async with site() as there:
        client = await there.session()
        uri = await link_of(client)
        near, many = await read(client, f"{uri}?text=   299"), await read(client, f"{uri}?text=.....")

    assert "   299" in near
    assert len(near) < 500
    assert many.count("\n1: ") == 99
    assert many.endswith("only the first 100 are shown]")


async def test_limit_is_named_in_the_request_the_greeting_or_the_settings(servers, lines_of, site):
    limits = LimitsConfig(mcp_result_characters=3000)
    async with site() as there:
        client = await there.session()
        asked = await client.post("tools/call", {"name": "log", "_meta": {KEY: 1500}})
        modern = await there.modern("tools/call", {"name": "log"}, meta={KEY: 1500})
    for answer in (asked, modern):
        assert 750 < len(answer.json()["result"]["content"][0]["text"]) <= 1500

    config = GatewayConfig(limits=limits)
    for meta, expected in (
        ({}, 3000),
        ({KEY: 1200}, 1200),
        ({KEY: "1200"}, 1200),
        ({KEY: 1.2e3}, 1200),
        ({KEY: 1}, 1000),
        ({KEY: 0}, 10**9),
    ):
        async with lines_of(servers, config=config, results=store()) as lines:
            lines.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "_meta": meta}, 0)
            assert (await lines.line())["result"]["capabilities"].get("resources") is not None
            lines.ask("tools/call", {"name": "log"}, 1)
            shown = (await lines.line())["result"]["content"][0]["text"]
            assert min(expected, len(LOG)) // 2 < len(shown) <= expected
            lines.leave()


@pytest.mark.parametrize("limit", ["many", "-1", "1.5", True, {}, [1], "9" * 40, 1.5])
async def test_limit_that_is_no_number_is_refused_by_name(site, limit):
    async with site() as there:
        client = await there.session()
        answer = (await client.post("tools/call", {"name": "log", "_meta": {KEY: limit}})).json()

    assert "is no limit of results" in answer["error"]["message"]


async def test_other_principal_can_not_read_a_result(site):
    async with site() as there:
        there.principal = Principal("ada")
        uri = await link_of(await there.session())
        there.principal = Principal("bob")
        answer = (await (await there.session()).post("resources/read", {"uri": uri})).json()

    assert "no result is kept" in answer["error"]["message"]


async def test_result_that_is_no_longer_kept_says_what_to_do(servers, site):
    async with site(results=store(kept_result_bytes=40_000, principal_share=1.0)) as there:
        client = await there.session()
        uri = await link_of(client)
        servers.result = {"content": [text(LOG + "again")]}
        await link_of(client)
        answer = (await client.post("resources/read", {"uri": uri})).json()

    assert "call its tool again" in answer["error"]["message"]


async def test_result_from_before_a_restart_says_what_to_do(site):
    async with site() as there:
        client = await there.session()
        for uri in ("codec-result:before", "codec-result:before?lines=1"):
            answer = (await client.post("resources/read", {"uri": uri})).json()
            modern = (await there.modern("resources/read", {"uri": uri})).json()

            assert "call its tool again" in answer["error"]["message"]
            assert "call its tool again" in modern["error"]["message"]


async def test_servers_own_resource_of_that_kind_is_read_there(servers, site, monkeypatch):
    """It may be another gateway."""
    theirs = {"contents": [{"uri": "codec-result:theirs", "text": "whole"}]}
    asked: list[Any] = [theirs, rpc_error(INTERNAL_ERROR, "server 'up' is away")]

    async def handle(method: str, params: dict[str, Any], _: object) -> dict[str, Any]:
        assert (method, params["uri"]) == ("resources/read", "codec-result:theirs")
        given = asked.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    async with site() as there:
        client = await there.session()
        monkeypatch.setattr(servers, "handle", handle)
        assert await read(client, "codec-result:theirs") == "whole"
        answer = (await client.post("resources/read", {"uri": "codec-result:theirs"})).json()

    assert answer["error"]["message"] == "server 'up' is away"


async def test_result_that_can_not_be_kept_stays_whole(site):
    async with site(results=store(kept_result_bytes=1000)) as there:
        client = await there.session()
        assert (await client.call("log", **HEADER)).json()["result"] == {"content": [text(LOG)]}


async def test_names_are_forgotten_with_their_results_and_seldom_looked_through(servers, site, monkeypatch):
    read = 0

    class Counted(large_result_links.KeptText):
        def __getattribute__(self, name: str) -> Any:
            nonlocal read
            read += name == "content"
            return super().__getattribute__(name)

    monkeypatch.setattr(large_result_links, "KeptText", Counted)
    monkeypatch.setattr(large_result_links, "_MOST_NAMES", 4)
    servers.result = {"content": [text("x" * 3000)]}
    async with site(results=store(principal_share=1.0)) as there:
        client = await there.session()
        first = await link_of(client)
        for _ in range(99):
            await link_of(client)
        assert len(there.endpoint._core._links._kept) == 100
        assert (
            len((await client.post("resources/read", {"uri": first})).json()["result"]["contents"][0]["text"]) == 3000
        )
    assert read < 600

    async with site(results=store(kept_result_bytes=50_000, principal_share=1.0)) as there:
        client = await there.session()
        for _ in range(99):
            await link_of(client)
        assert len(there.endpoint._core._links._kept) <= 24


async def test_client_that_named_no_limit_gets_the_address_in_the_text_alone(servers, lines_of, site):
    """Kiro and Cline refuse whole results for a block of a kind that they don't know."""
    config = GatewayConfig(limits=LimitsConfig(mcp_result_characters=3000))
    async with lines_of(servers, config=config, results=store()) as lines:
        await lines.greet()
        lines.ask("tools/call", {"name": "log"}, 1)
        content = (await lines.line())["result"]["content"]
        lines.leave()

    assert [block["type"] for block in content] == ["text", "text"]
    assert "codec-result:" in content[1]["text"]


async def test_client_from_before_links_gets_the_address_in_the_text_alone(site):
    async with site() as there:
        client = await there.session("2025-03-26")
        content = (await client.call("log", **HEADER)).json()["result"]["content"]

        assert [block["type"] for block in content] == ["text", "text"]
        assert content[1]["text"].count("codec-result:") == 1


async def test_other_blocks_and_what_is_structured_stay(servers, site):
    picture = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    servers.result = {
        "content": [text("first"), picture, text("y" * 9000), text("z" * 5000)],
        "structuredContent": {"a": 1},
        "isError": True,
    }
    async with site() as there:
        client = await there.session()
        result = (await client.call("log", **HEADER)).json()["result"]
        whole = await read(client, result["content"][-1]["uri"])

    assert result["content"][:3] == [text("first"), picture, text("y" * 1995)]
    assert result["structuredContent"] == {"a": 1}
    assert result["isError"] is True
    assert whole == "\n".join(("first", "y" * 9000, "z" * 5000))


async def test_text_of_an_embedded_resource_is_shortened_as_any_other(servers, site):
    """Where servers of repositories put a file that was asked for."""
    page = {"uri": "repo://log", "mimeType": "text/x-log"}
    picture = {"type": "resource", "resource": {"uri": "repo://picture", "blob": "A" * 9000}}
    file = {"type": "resource", "resource": {**page, "text": LOG}, "annotations": {"priority": 1}}
    servers.result = {"content": [text("Downloaded."), picture, file, file]}
    async with site() as there:
        client = await there.session()
        content = (await client.call("log", **HEADER)).json()["result"]["content"]
        whole = await read(client, content[-1]["uri"])

    beginning = content[2]["resource"].pop("text")
    assert LOG.startswith(beginning)
    assert 900 < len(beginning) < 2000
    assert content[:2] == [text("Downloaded."), picture]
    assert content[2] == {"type": "resource", "resource": page, "annotations": {"priority": 1}}
    assert [block["type"] for block in content[3:]] == ["text", "resource_link"]
    assert whole == f"Downloaded.\n{LOG}\n{LOG}"


async def test_ids_beside_a_shortened_text_are_not_left_without_it(servers, site):
    """The older form of a payload is a block of its own."""
    first, second = ({"type": LEGACY_BLOCK_TYPE, "map_id": "m", "ids": [*range(9000)]} for _ in range(2))
    servers.result = {"content": [text("first"), first, text("y" * 9000), second, text("z" * 9000), second]}
    async with site() as there:
        client = await there.session()
        content = (await client.call("log", **HEADER)).json()["result"]["content"]

    assert content[:3] == [text("first"), first, text("y" * 1995)]
    assert [block["type"] for block in content[3:]] == ["text", "resource_link"]


async def test_ids_of_a_shortened_text_spell_what_is_shown(servers, site):
    token_map = load_map(VECTOR.read_bytes())
    maps = {token_map.map_id: token_map}
    tokens = ResultTokens(maps, level="verify", metrics=Metrics(), notices=TokenNotices(get_logger("test")))
    payload = {"map_id": token_map.map_id, "ids": token_map.encode(LOG)}
    servers.result = {"content": [text(LOG, _meta={"ai.codec/leaf-tokenization": payload, "x": 1})]}
    async with site(tokens=tokens, maps=maps) as there:
        client = await there.session()
        answer = await client.call("log", **HEADER, **{"x-codec-map": token_map.map_id})

    block = answer.json()["result"]["content"][0]
    assert token_map.decode(block["_meta"]["ai.codec/leaf-tokenization"]["ids"]) == block["text"]
    assert block["_meta"]["x"] == 1


async def test_client_that_gets_links_is_told_that_there_are_resources(servers, site):
    servers.offered = {"tools": {}}
    async with site() as there:
        plain = (await there.modern("server/discover")).json()["result"]
        named = (await there.modern("server/discover", x_codec_result_limit="2000")).json()["result"]
        wrong = (await there.modern("server/discover", x_codec_result_limit="many")).json()
    async with site(results=None) as there:
        client = await there.session()
        whole = (await there.modern("server/discover", x_codec_result_limit="2000")).json()["result"]
        assert (await client.call("log", **HEADER)).json()["result"] == servers.result

    assert plain["capabilities"] == whole["capabilities"] == {"tools": {}}
    assert named["capabilities"] == {"tools": {}, "resources": {}}
    assert "is no limit of results" in wrong["error"]["message"]


async def test_modern_client_reads_with_the_fields_of_its_era(site):
    async with site() as there:
        called = await there.modern("tools/call", {"name": "log"}, x_codec_result_limit="2000")
        uri = called.json()["result"]["content"][-1]["uri"]
        answer = (await there.modern("resources/read", {"uri": uri})).json()["result"]

    assert answer["contents"][0]["text"] == LOG
    assert answer["resultType"] == "complete"
    assert answer["cacheScope"] == "private"


async def test_result_of_a_replica_that_is_gone_says_what_to_do(site):
    class Gone(type(ALONE)):
        def owner(self, purpose, name, principal, scope):
            return Replica("other:1", b"") if purpose == "result" else None

        async def forward(self, owner, scope, receive, send, broken=None):
            raise OwnerGone("the replica that held it was restarted or has stopped")

    async with site(replicas=Gone()) as there:
        answer = (await there.modern("resources/read", {"uri": "codec-result:sealed?lines=1"})).json()

    assert "call its tool again" in answer["error"]["message"]
    assert "requestState" not in answer["error"]["message"]


async def test_modern_request_for_a_result_goes_to_the_replica_that_keeps_it(site):
    class Elsewhere(type(ALONE)):
        forwarded = ""

        def owner(self, purpose, name, principal, scope):
            return Replica("other:1", b"") if (purpose, name) == ("result", "sealed") else None

        async def forward(self, owner, scope, receive, send, broken=None):
            self.forwarded = owner.address
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"{}"})

    replicas = Elsewhere()
    async with site(replicas=replicas) as there:
        answer = await there.modern("resources/read", {"uri": "codec-result:sealed?lines=1"})

    assert answer.json() == {}
    assert replicas.forwarded == "other:1"
