"""`/mcp/NAME` serves one server or one view of the configuration, and nothing else."""

import json
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from gateway.config.gateway_config import GatewayConfig, UpstreamConfig, ViewConfig
from gateway.config.load import load_config
from gateway.config.overrides import ToolOverride
from gateway.config.show import show_config
from gateway.errors import ConfigError
from gateway.observe.audit import Audit
from gateway.observe.metrics import Metrics
from gateway.protocol.eras import CAPABILITIES_KEY, MODERN_VERSIONS, VERSION_KEY
from gateway.protocol.headers import VERSION_HEADER, routing_headers
from gateway.proxy.caller import Principal
from gateway.proxy.proxy import Proxy
from gateway.serve.http.request_parts import PRINCIPAL
from gateway.serve.mcp import McpEndpoint

pytestmark = pytest.mark.anyio
OBEYS = Path(__file__).parents[2] / "proxy" / "servers" / "obeys.py"
VIEWS = {
    "reading": ViewConfig(tools=("*__read",)),
    "mixed": ViewConfig(("one", "two"), ("one__*", "two__read")),
    "gone": ViewConfig(("gone",)),
}
EVERYTHING = ["one__read", "one__write", "two__read", "two__write", "three__read", "three__write"]
ENVELOPE = {VERSION_KEY: MODERN_VERSIONS[0], CAPABILITIES_KEY: {}}
HEAD = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


def config_of(tmp_path, views=VIEWS):
    offer = json.dumps({"tools": ["read", "write"], "resources": ["x:1"], "reads": "here"})
    env = {"NOTES": str(tmp_path / "notes")}
    upstreams = [UpstreamConfig(name, sys.executable, (str(OBEYS), offer), env) for name in ("one", "two", "three")]
    return GatewayConfig(upstreams=tuple(upstreams), views=views)


class Client:
    def __init__(self, http):
        self.http = http

    async def post(self, path, method, params=None, **headers):
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
        return await self.http.post(path, json=body, headers={**HEAD, **headers})

    async def open(self, path):
        """The headers of a new session."""
        greeting = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        answer = await self.post(path, "initialize", greeting)
        assert answer.status_code == 200, answer.text
        return {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}

    async def tools(self, path):
        answer = await self.post(path, "tools/list", **await self.open(path))
        return [tool["name"] for tool in answer.json()["result"]["tools"]]


@asynccontextmanager
async def opened(config, principal=None, audit=None):
    async with Proxy(config, Metrics()) as proxy:
        endpoint = McpEndpoint(proxy, config, tokens=None, maps={}, audit=audit)

        async def app(scope, receive, send):
            await endpoint({**scope, "state": {} if principal is None else {PRINCIPAL: principal}}, receive, send)

        transport = httpx2.ASGITransport(app)
        async with endpoint.running(), httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            yield proxy, Client(http)


async def test_each_path_lists_its_own_tools(tmp_path):
    async with opened(config_of(tmp_path)) as (_, client):
        listed = {
            path: await client.tools(path) for path in ("/mcp", "/mcp/", "/mcp/two", "/mcp/reading", "/mcp/mixed")
        }

    assert listed == {
        "/mcp": EVERYTHING,
        "/mcp/": EVERYTHING,
        "/mcp/two": ["two__read", "two__write"],
        "/mcp/reading": ["one__read", "two__read", "three__read"],
        "/mcp/mixed": ["one__read", "one__write", "two__read"],
    }


async def test_view_named_as_a_transport_s_path_is_served_as_any_other(tmp_path):
    views = {"sse": ViewConfig(("one",)), "mcp": ViewConfig(("two",))}
    async with opened(config_of(tmp_path, views)) as (_, client):
        listed = {path: await client.tools(path) for path in ("/mcp/sse", "/mcp/mcp", "/mcp/sse/")}
        codes = [(await client.post(path, "initialize")).status_code for path in ("/mcp/sse/one", "/mcp/sseone")]

    assert listed == {
        "/mcp/sse": ["one__read", "one__write"],
        "/mcp/mcp": ["two__read", "two__write"],
        "/mcp/sse/": ["one__read", "one__write"],
    }
    assert codes == [404, 404]


async def test_nothing_else_can_be_called_or_read_through_a_path(tmp_path):
    async with opened(config_of(tmp_path)) as (_, client):
        session = await client.open("/mcp/mixed")
        answers = [
            (await client.post("/mcp/mixed", "tools/call", {"name": name}, **session)).json()
            for name in ("two__read", "two__write", "three__read")
        ]
        uris = [
            (await client.post("/mcp/mixed", "resources/read", {"uri": uri}, **session)).json()
            for uri in ("two+x:1", "three+x:1")
        ]

    assert ["result" in answer for answer in answers] == [True, False, False]
    assert ["result" in answer for answer in uris] == [True, False]


async def test_one_server_s_uris_stay_as_they_are_at_its_path(tmp_path):
    async with opened(config_of(tmp_path)) as (_, client):
        session = await client.open("/mcp/two")
        listed = (await client.post("/mcp/two", "resources/list", **session)).json()["result"]["resources"]
        read = (await client.post("/mcp/two", "resources/read", {"uri": "x:1"}, **session)).json()["result"]

    assert [each["uri"] for each in listed] == ["x:1"]
    assert read["contents"] == [{"uri": "x:1", "text": "here"}]


@pytest.mark.parametrize("path", ["/mcp/nothing", "/mcp/gone", "/mcp/one/two", "/mcp/one__read", "/mcp/%0a"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_other_path_is_404_and_says_what_there_is(tmp_path, path, method):
    async with opened(config_of(tmp_path)) as (_, client):
        answer = await client.http.request(method, path, headers=HEAD, content="{}")

    assert answer.status_code == 404
    assert "/mcp/NAME one server or view" in answer.json()["error"]["message"]
    assert "\n" not in answer.json()["error"]["message"]


async def test_session_of_one_path_does_not_exist_at_another(tmp_path):
    async with opened(config_of(tmp_path)) as (_, client):
        session = await client.open("/mcp/mixed")
        codes = [
            (await client.post(path, "tools/list", **session)).status_code
            for path in ("/mcp/mixed", "/mcp", "/mcp/one")
        ]

    assert codes == [200, 404, 404]


async def test_view_gives_nobody_more_than_its_key(tmp_path):
    ann = Principal("ann", servers=frozenset({"one", "three"}), tools=("*__write", "one__*"))
    async with opened(config_of(tmp_path), ann) as (_, client):
        listed = {path: await client.tools(path) for path in ("/mcp", "/mcp/reading", "/mcp/mixed", "/mcp/three")}
        hidden = (await client.post("/mcp/two", "initialize")).status_code

    assert listed == {
        "/mcp": ["one__read", "one__write", "three__write"],
        "/mcp/reading": ["one__read"],
        "/mcp/mixed": ["one__read", "one__write"],
        "/mcp/three": ["three__write"],
    }
    assert hidden == 404


async def test_reload_changes_what_a_path_serves(tmp_path):
    config = config_of(tmp_path)
    async with opened(config) as (proxy, client):
        session = await client.open("/mcp/reading")
        await proxy.reload(config_of(tmp_path, {"reading": ViewConfig(("three",))}))
        before = (await client.post("/mcp/reading", "tools/list", **session)).status_code
        listed = await client.tools("/mcp/reading")
        removed = (await client.post("/mcp/mixed", "initialize")).status_code

    assert (before, listed, removed) == (404, ["three__read", "three__write"], 404)


@pytest.mark.parametrize("era", ["handshake", "modern"])
async def test_overrides_of_a_view_hold_at_its_path_alone(tmp_path, era):
    override = ToolOverride("look", "Look", annotations={"readOnlyHint": True}, defaults={"path": "/"})
    views = {"mixed": ViewConfig(("one", "two"), ("one__*", "two__read"), {"one__read": override})}

    async def ask(path, method, **params):
        if era == "handshake":
            answer = await client.post(path, method, params, **await client.open(path))
        else:
            sent = {**params, "_meta": ENVELOPE}
            answer = await client.post(
                path, method, sent, **{VERSION_HEADER: MODERN_VERSIONS[0]}, **routing_headers(method, sent)
            )
        return answer.json()

    with Audit(tmp_path / "audit", Metrics().access) as audit:
        async with opened(config_of(tmp_path, views), audit=audit) as (_, client):
            listed = [(await ask(path, "tools/list"))["result"]["tools"] for path in ("/mcp/mixed", "/mcp")]
            called = await ask("/mcp/mixed", "tools/call", name="look", arguments={})
            former = await ask("/mcp/mixed", "tools/call", name="one__read")
            elsewhere = await ask("/mcp", "tools/call", name="look")

    lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert [[tool["name"] for tool in tools] for tools in listed] == [["look", "one__write", "two__read"], EVERYTHING]
    assert (listed[0][0]["title"], listed[0][0]["annotations"]) == ("Look", {"readOnlyHint": True})
    sent = called["result"]["structuredContent"]["params"]
    assert (sent["name"], sent["arguments"]) == ("read", {"path": "/"})
    assert ["unknown tool" in each["error"]["message"] for each in (former, elsewhere)] == [True, True]
    assert [(line["tool"], line["server"]) for line in lines if line["method"] == "tools/call"] == [
        ("look", "one"),
        ("one__read", None),
        ("look", None),
    ]


async def test_session_of_a_view_outlives_a_change_of_its_overrides(tmp_path):
    def views(**override):
        return {"reading": ViewConfig(tools=("*__read",), overrides={"two__read": ToolOverride(**override)})}

    async with opened(config_of(tmp_path, views(name="look"))) as (proxy, client):
        session = await client.open("/mcp/reading")
        await proxy.reload(config_of(tmp_path, views(name="see")))
        listed = (await client.post("/mcp/reading", "tools/list", **session)).json()["result"]["tools"]

    assert [tool["name"] for tool in listed] == ["one__read", "see", "three__read"]


def load(tmp_path, text, environ=None):
    path = tmp_path / "codec-gateway.toml"
    path.write_text(f'[upstreams.one]\ncommand = "x"\n{text}')
    return load_config(path, environ=environ or {}, cwd=tmp_path)


def test_views_are_read_and_shown(tmp_path):
    config = load(tmp_path, '[views.reading]\nservers = ["one"]\ntools = ["*__read"]\n[views.all]\n')

    assert config.views == {"reading": ViewConfig(("one",), ("*__read",)), "all": ViewConfig()}
    assert show_config(config)["views"]["reading"] == {"servers": ["one"], "tools": ["*__read"], "overrides": {}}
    assert not any("views" in warning for warning in config.warnings)


def test_view_of_a_server_that_is_not_there_or_under_a_server_s_name_is_warned_of(tmp_path):
    config = load(tmp_path, '[views.a]\nservers = ["one", "gone"]\n[views.one]\ntools = ["*"]\n')

    assert "views.a.servers: there is no server 'gone'" in config.warnings
    assert "views.one: /mcp/one serves this view, and not the server of that name" in config.warnings


@pytest.mark.parametrize(
    ("text", "environ", "words"),
    [
        ('[views."a/b"]\n', {}, "views.a/b: a view's name must have 1 to 64 letters"),
        ("[views.a]\nserver = []\n", {}, "unknown key 'views.a.server': did you mean 'servers'"),
        ("", {"CODEC_GATEWAY_VIEWS__A__TOOLS": "x"}, "views can be set only in a file"),
    ],
)
def test_wrong_view_is_refused(tmp_path, text, environ, words):
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, text, environ)

    assert words in raised.value.message
