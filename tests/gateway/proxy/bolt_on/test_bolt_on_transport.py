"""Bolt-ons as a server of MCP: what is answered here, and what is said of tools that can't be reached or matched."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.config.gateway_config import UpstreamConfig
from gateway.observe.logs import get_logger
from gateway.observe.metrics import Metrics
from gateway.protocol.messages import INVALID_PARAMS, METHOD_NOT_FOUND
from gateway.proxy.bolt_on.bolt_on_tools import HeldMaps
from gateway.proxy.bolt_on.bolt_on_transport import open_bolt_on
from gateway.proxy.transport.http.client import open_http_client
from gateway.proxy.transport.transport_interface import LinkLost, PeerError, Transport
from leaf_sdk.leaf.bolt_on import CodecToolResult

from .conftest import ACCEPTED, HASH, OTHER_HASH, TINY, Accepted, manifest, serving

pytestmark = pytest.mark.anyio


class Listener:
    """Hears what the server tells of its own accord."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def notified(self, method: str, params: dict[str, Any]) -> None:
        self.heard.append(method)

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def opened(listener: Listener) -> Callable[..., Any]:
    """Opens the transport of bolt-ons; no call is sent."""

    @asynccontextmanager
    async def make(config: UpstreamConfig, maps: HeldMaps | None = None) -> AsyncGenerator[Transport]:
        async with (
            open_http_client() as client,
            open_bolt_on(
                config,
                listener,
                bound=60_000,
                log=get_logger("test"),
                client=client,
                maps=maps or HeldMaps(ACCEPTED),
                metrics=Metrics(),
                called=lambda form: None,
            ) as transport,
        ):
            yield transport

    return make


@pytest.fixture
def nowhere(tmp_path) -> str:
    """Where nobody listens."""
    return f"unix:{tmp_path}/nobody.sock"


async def test_list_has_each_tool_and_is_never_kept(opened, bolt_on, nowhere):
    plain = {"name": "plain", "endpoint": nowhere, "tokenizerHash": HASH}
    async with opened(bolt_on(manifest("tell"), plain, endpoint=nowhere)) as transport:
        listed = await transport.request("tools/list", {})

    schema = manifest()["argumentsSchema"]
    assert listed == {
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
        "tools": [
            {"name": "plain", "inputSchema": {"type": "object"}},
            {"name": "tell", "description": "Tell of a place", "inputSchema": schema},
        ],
    }


async def test_method_that_no_bolt_on_has_is_not_found(opened, bolt_on, nowhere):
    async with opened(bolt_on(manifest(), endpoint=nowhere)) as transport:
        with pytest.raises(PeerError) as refused:
            await transport.request("prompts/list", {})

    assert refused.value.error == {"code": METHOD_NOT_FOUND, "message": "Method not found", "data": "prompts/list"}


@pytest.mark.parametrize("name", ["other", 7, None])
async def test_tool_that_no_manifest_describes_is_an_error_of_the_request(opened, bolt_on, nowhere, name):
    async with opened(bolt_on(manifest(), endpoint=nowhere)) as transport:
        with pytest.raises(PeerError, match=f"no manifest describes a tool named '{name}'") as refused:
            await transport.request("tools/call", {"name": name})

    assert refused.value.error["code"] == INVALID_PARAMS


async def test_server_none_of_whose_tools_can_be_reached_is_down_and_was_sent_nothing(opened, bolt_on, nowhere):
    async with opened(bolt_on(manifest(), endpoint=nowhere)) as transport:
        with pytest.raises(LinkLost, match="can't connect to") as lost:
            await transport.request("server/discover", {})

    assert not lost.value.sent


async def test_server_some_of_whose_tools_can_be_reached_is_up_and_the_others_are_named(
    opened, bolt_on, nowhere, tmp_path, caplog
):
    async with serving(lambda call: b"", path=tmp_path / "tool.sock") as server:
        config = bolt_on(manifest("here", endpoint=server.endpoint), manifest("away", endpoint=nowhere))
        async with opened(config) as transport:
            described = await transport.request("server/discover", {})

    assert described["supportedVersions"] == ["2026-07-28"]
    assert described["capabilities"] == {"tools": {"listChanged": True}}
    (record,) = [each for each in caplog.records if "can't be reached" in each.getMessage()]
    assert record.levelname == "WARNING"
    assert "nobody.sock" in record.getMessage()


async def test_how_a_tool_is_called_is_logged_once_until_it_changes(opened, bolt_on, nowhere, caplog):
    caplog.set_level("INFO")
    maps = HeldMaps(known := Accepted({HASH: TINY}))
    config = bolt_on(manifest(), endpoint=nowhere)
    said: list[list[str]] = []
    for by_hash in ({HASH: TINY}, {HASH: TINY}, {}, {}):
        known.by_hash = by_hash
        caplog.clear()
        async with opened(config, maps):
            said.append([each.getMessage() for each in caplog.records if "bolt-on" in each.getMessage()])

    (with_ids,), again, (without,), without_again = said
    assert "called with ids" in with_ids
    assert "org/0" in with_ids
    assert TINY.map_id in with_ids
    assert "called with text" in without
    assert "this gateway accepts no map" in without
    assert again == without_again == []


async def test_change_of_maps_is_announced_only_where_it_changes_the_offer(opened, bolt_on, nowhere, listener):
    maps = HeldMaps(known := Accepted({HASH: TINY}))
    config = bolt_on(manifest("one"), manifest("two", hashes=(OTHER_HASH,)), endpoint=nowhere, require_match=True)
    async with opened(config, maps) as transport:
        offers = []
        for by_hash in ({HASH: TINY}, {}, {}, {OTHER_HASH: TINY}):
            known.by_hash = by_hash
            maps.changed()
            offers.append([tool["name"] for tool in (await transport.request("tools/list", {}))["tools"]])
    maps.changed()

    assert offers == [["one"], [], [], ["two"]]
    assert listener.heard == ["notifications/tools/list_changed"] * 2
    assert maps.statuses("bolt") == ()


async def test_each_call_has_a_number_of_its_own(opened, bolt_on, tmp_path):
    def said(call: Any) -> CodecToolResult:
        return CodecToolResult.said(call.call_id, "x")

    async with (
        serving(said, path=tmp_path / "tool.sock") as server,
        opened(bolt_on(manifest(), endpoint=server.endpoint)) as transport,
    ):
        for _ in range(2):
            result = await transport.request("tools/call", {"name": "tell"})
            assert result == {"resultType": "complete", "content": [{"type": "text", "text": "x"}]}

    assert [(call.name, call.call_id) for call in server.calls] == [("tell", 1), ("tell", 2)]
