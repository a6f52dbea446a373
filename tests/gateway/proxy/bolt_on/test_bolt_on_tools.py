"""Manifests: which are read, where their tools may be, what happens to bad ones and to changed ones."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gateway.config.gateway_config import GatewayConfig, LimitsConfig
from gateway.config.programs import state_of_manifest
from gateway.proxy.bolt_on.bolt_on_tools import MapMiss, NoMaps, Tools, match, read_tools
from gateway.proxy.transport.http.client import open_http_client
from gateway.proxy.transport.transport_interface import LinkLost
from leaf_sdk.leaf.bolt_on import CALL_PATH, CodecToolResult, parse_manifest

from .conftest import ACCEPTED, HASH, manifest, serving

pytestmark = pytest.mark.anyio


def said(call):
    return CodecToolResult.said(call.call_id, f"{call.name} said so")


def names(proxy):
    return [entry.name for entry in proxy.tools()]


async def test_one_bad_manifest_of_a_folder_is_named_and_takes_no_other_down(bolt_on, proxy_of, tmp_path, caplog):
    async with serving(said) as server:
        config = bolt_on(manifest("one"), manifest("two"), endpoint=server.endpoint)
        (tmp_path / "bolt" / "bad.json").write_text("{")
        (tmp_path / "secret.json").write_text(json.dumps(manifest("stolen")))
        (tmp_path / "bolt" / "link.json").symlink_to(tmp_path / "secret.json")
        async with proxy_of(config) as proxy:
            assert names(proxy) == ["bolt__one", "bolt__two"]
    left_out = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    assert len(left_out) == 2
    assert "bad.json" in left_out[0]
    assert "link.json" in left_out[1]


@pytest.fixture
def read(bolt_on) -> Callable[..., Any]:
    """Reads manifests as a server does that starts; nothing is connected to."""

    async def tools_of(*manifests: dict[str, Any], **settings: Any) -> Tools:
        async with open_http_client() as client:
            return await read_tools(replace(bolt_on(*manifests), **settings), client)

    return tools_of


async def test_one_manifest_may_be_named_as_a_file(read, tmp_path):
    (tmp_path / "bolt").mkdir()
    path = tmp_path / "bolt" / "one.json"
    path.write_text(json.dumps(manifest("one", endpoint="unix:/tmp/x")))
    tools = await read(manifest("two", endpoint="unix:/tmp/x"), manifest=str(path))

    assert [*tools.by_name] == ["one"]
    assert tools.faults == ()


async def test_file_that_is_no_manifest_and_folder_without_one_are_named(read, tmp_path):
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(LinkLost, match=r"bad\.json") as lost:
        await read(manifest=str(tmp_path / "bad.json"))
    with pytest.raises(LinkLost, match="/bolt' contains no manifest") as empty:
        await read()

    assert not lost.value.sent
    assert not empty.value.sent


async def test_tool_of_a_long_name_or_of_a_name_that_is_taken_is_left_out_and_named(read, tmp_path):
    (tmp_path / "bolt").mkdir()
    (tmp_path / "bolt" / "zzz.json").write_text(json.dumps(manifest("a" * 128, endpoint="unix:/tmp/y")))
    tools = await read(*(manifest("a" * length, endpoint="unix:/tmp/x") for length in (128, 129)))

    assert [(name, tool.address.origin.host) for name, tool in tools.by_name.items()] == [("a" * 128, "/tmp/x")]
    assert sorted(tools.faults) == [
        f"tool {'a' * 128!r} is left out: another manifest describes a tool of this name",
        f"tool {'a' * 128!r} is left out: its name has more than 128 characters",
    ]


@pytest.mark.parametrize(
    ("endpoint", "path"),
    [("http://127.0.0.1:8", CALL_PATH), ("http://127.0.0.1:8/my/tool", "/my/tool"), ("unix:/tmp/x", CALL_PATH)],
)
@pytest.mark.parametrize("configured", [True, False])
async def test_calls_are_posted_to_the_standard_path_unless_the_address_has_one(read, endpoint, path, configured):
    named = {"endpoint": endpoint}
    tools = await (read(manifest(), **named) if configured else read(manifest(**named)))

    tool = tools.by_name["tell"]
    assert tool.address.path == path
    assert not tool.address.origin.secure
    assert tool.ours is configured


@pytest.mark.parametrize("count", [1, 7])
def test_miss_names_what_the_tool_has_and_what_is_accepted(count):
    hashes = tuple(f"{n:x}" * 64 for n in range(1, count + 1))
    described = parse_manifest(json.dumps(manifest(hashes=hashes)).encode(), source="x")
    missed, nothing = match(described, ACCEPTED), match(described, NoMaps())

    has = ", ".join(f"org/{n} ({each[:12]}…)" for n, each in enumerate(hashes[:5]))
    assert missed == MapMiss(f"it has ids for {has}, and this gateway accepts only {HASH[:12]}…")
    assert nothing == MapMiss(f"it has ids for {has}, and this gateway accepts no map")


async def test_a_manifest_that_can_not_be_used_is_what_the_server_is_down_for(bolt_on, proxy_of, tmp_path):
    config = bolt_on()
    (tmp_path / "bolt" / "bad.json").write_text('{"schema": "7"}')
    async with proxy_of(config) as proxy:
        (status,) = proxy.statuses()
    assert status.state != "up"
    assert "bad.json" in (status.last_error or "")
    assert "schema" in (status.last_error or "")


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        ("http://192.0.2.7:80", "registry.allowed_hosts"),
        ("https://tools.example", "registry.allowed_hosts"),
        ("unix:relative.sock", "registry.allowed_hosts"),
        ("file:///etc/passwd", "registry.allowed_hosts"),
        (None, "names no endpoint"),
    ],
)
async def test_a_manifest_names_no_place_beyond_this_machine_that_nobody_listed(bolt_on, proxy_of, endpoint, words):
    more = {} if endpoint is None else {"endpoint": endpoint}
    async with proxy_of(bolt_on(manifest(**more))) as proxy:
        (status,) = proxy.statuses()
        assert names(proxy) == []
    assert words in (status.last_error or "")


async def test_a_listed_host_may_be_named_and_is_dialled(bolt_on, proxy_of):
    config = bolt_on(manifest(endpoint="http://192.0.2.7:9"), manifest_hosts=("192.0.2.7:9",), timeout=0.1)
    async with serving(said) as server:
        port = server.endpoint.rpartition(":")[2]
        local = bolt_on(manifest(endpoint=f"http://127.0.0.1:{port}"), name="near")
        async with proxy_of(local) as proxy:
            assert names(proxy) == ["near__tell"]
        async with proxy_of(config, start_timeout=0.5) as proxy:
            (status,) = proxy.statuses()
    assert "allowed_hosts" not in (status.last_error or "")


async def test_a_manifest_is_fetched_from_a_listed_url_and_names_a_place_on_its_own_origin(bolt_on, proxy_of, http_of):
    body: dict[str, object] = {}
    async with http_of(lambda: json.dumps(body).encode()) as origin:
        body.update(manifest(endpoint=origin))
        config = replace(bolt_on(), manifest=f"{origin}/manifest.json", manifest_hosts=())
        async with proxy_of(config) as proxy:
            assert names(proxy) == ["bolt__tell"]
        body.update(manifest(endpoint="http://127.0.0.1:9"))
        async with proxy_of(config) as proxy:
            assert names(proxy) == []
            assert "which is not allowed" in (proxy.statuses()[0].last_error or "")


async def test_a_manifest_behind_a_url_has_a_bound(bolt_on, proxy_of, http_of):
    async with http_of(lambda: b" " * (2**20 + 1)) as origin:
        config = replace(bolt_on(), manifest=f"{origin}/manifest.json")
        async with proxy_of(config) as proxy:
            assert "over the limit" in (proxy.statuses()[0].last_error or "")


async def test_a_changed_manifest_is_taken_over_by_a_reload(bolt_on, proxy_of):
    async with serving(said) as server:
        before = bolt_on(manifest("one"), endpoint=server.endpoint)
        before = replace(before, manifest_state=state_of_manifest(str(before.manifest)))
        proxy = proxy_of(before, maps=ACCEPTED)
        async with proxy:
            assert names(proxy) == ["bolt__one"]
            after = bolt_on(manifest("two"), endpoint=server.endpoint)
            after = replace(after, manifest_state=state_of_manifest(str(after.manifest)))
            assert after != before
            await proxy.reload(GatewayConfig(upstreams=(after,), prefix="always", limits=LimitsConfig()))
            assert names(proxy) == ["bolt__one", "bolt__two"]
            result = await proxy.call("bolt__two", {})
            assert result["content"][0]["text"] == "two said so"
            assert [each.tool for each in proxy.statuses()[0].bolt_ons] == ["one", "two"]
