"""What a leaf is told about the ids that are wanted: nothing unless configured, and only for who reads ids here."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.config.gateway_config import UpstreamConfig, WantedIds
from gateway.observe.logs import TokenNotices, get_logger
from gateway.observe.metrics import Metrics
from gateway.protocol.eras import MAP_KEY
from gateway.proxy.proxy import Proxy
from gateway.proxy.result_tokens import ResultTokens
from gateway.proxy.upstream.session.session import wanted_ids
from leaf_sdk import CODEC_META_KEY, load_map
from leaf_sdk.leaf.contract import MORE_KEY
from leaf_sdk.leaf.packing import PACKED_KEY, PACKING, PACKING_META_KEY
from leaf_sdk.testing import tiny_map, tiny_map_bytes
from tests.cases import each_of

pytestmark = pytest.mark.anyio

TINY = tiny_map()
OTHER_BYTES = json.dumps(json.loads(tiny_map_bytes()) | {"merges": []}).encode()
OTHER = load_map(OTHER_BYTES)


@pytest.fixture
def leaf(upstream: Callable[..., UpstreamConfig], tmp_path: Path) -> Callable[[WantedIds], UpstreamConfig]:
    """A leaf with ids of both maps, the tiny one first."""
    for name, data in (("tiny.json", tiny_map_bytes()), ("other.json", OTHER_BYTES)):
        (tmp_path / name).write_bytes(data)
    made = upstream("leaf_of_two_maps", str(tmp_path / "tiny.json"), str(tmp_path / "other.json"))
    return lambda ids: replace(made, ids=ids)


async def result_of(proxy: Proxy, reader: str | None) -> dict[str, Any]:
    return await proxy.call("up__say", {}, meta={MAP_KEY: reader} if reader else None)


def payload_of(result: dict[str, Any]) -> dict[str, Any]:
    return result["content"][0]["_meta"][CODEC_META_KEY]


async def test_by_default_a_leaf_is_told_nothing_and_sends_the_ids_of_all_its_maps(leaf, proxy_of):
    async with proxy_of(leaf("any")) as proxy:
        payload = payload_of(await result_of(proxy, OTHER.map_id))

    assert payload["map_id"] == TINY.map_id
    assert [each["map_id"] for each in payload[MORE_KEY]] == [OTHER.map_id]


async def test_leaf_that_is_told_the_readers_map_sends_the_ids_of_that_map_alone(leaf, proxy_of):
    async with proxy_of(leaf("map")) as proxy:
        payload = payload_of(await result_of(proxy, OTHER.map_id))

    assert payload == {"map_id": OTHER.map_id, "ids": OTHER.encode("hello world")}


async def test_packed_ids_are_asked_for_and_reach_an_engine_as_leaf_ids(leaf, proxy_of):
    metrics = Metrics()
    tokens = ResultTokens(
        {OTHER.map_id: OTHER}, level="verify", metrics=metrics, notices=TokenNotices(get_logger("test"))
    )
    async with proxy_of(leaf("packed")) as proxy:
        result = await result_of(proxy, OTHER.map_id)

    assert payload_of(result).keys() == {"map_id", PACKED_KEY}
    found = tokens.for_engine("up__say", result, OTHER)
    assert (found.source, list(found.ids)) == ("leaf", OTHER.encode("hello world"))


async def test_packed_ids_never_leave_for_a_client_which_may_not_know_them(leaf, proxy_of):
    tokens = ResultTokens(
        {OTHER.map_id: OTHER}, level="verify", metrics=Metrics(), notices=TokenNotices(get_logger("test"))
    )
    async with proxy_of(leaf("packed")) as proxy:
        named = tokens.for_client("up__say", await result_of(proxy, OTHER.map_id), OTHER)
        unnamed = await result_of(proxy, None)

    assert payload_of(named) == {"map_id": OTHER.map_id, "ids": OTHER.encode("hello world")}
    assert payload_of(unnamed)["ids"] == TINY.encode("hello world")


@each_of("policy", ["any", "map", "packed"])
@each_of("value", [None, 7, [TINY.map_id], {}])
def test_what_is_no_maps_name_is_never_passed_on(policy, value):
    assert wanted_ids({"_meta": {MAP_KEY: value}}, policy) == {}
    assert wanted_ids({"name": "say"}, policy) == {}


def test_each_policy_tells_no_more_than_it_says():
    params = {"_meta": {MAP_KEY: TINY.map_id, "com.example/k": 1}}
    assert wanted_ids(params, "any") == {}
    assert wanted_ids(params, "map") == {MAP_KEY: TINY.map_id}
    assert wanted_ids(params, "packed") == {MAP_KEY: TINY.map_id, PACKING_META_KEY: PACKING}
