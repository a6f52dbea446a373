"""Two servers with the same URIs: wherever a URI is shown, it leads to the server that showed it."""

import pytest

from gateway.errors import RpcError

pytestmark = pytest.mark.anyio
PAGE = "ui://widget/main.html"
META = {"ui": {"resourceUri": PAGE, "csp": {}}, "ui/resourceUri": PAGE, "openai/outputTemplate": PAGE, "other": PAGE}
SUBSCRIBED = {"capabilities": {"resources": {"subscribe": True}, "completions": {}}}


def offer(name, **more):
    return {
        "resources": [PAGE, "data://same"],
        "templates": ["user://{id}"],
        "reads": name,
        "definition": {"_meta": META},
        **SUBSCRIBED,
        **more,
    }


@pytest.fixture
def two(obeying, proxy_of):
    """Makes a proxy of two servers with the same resources."""
    return lambda **more: proxy_of(obeying("bank", offer("bank", **more)), obeying("notes", offer("notes", **more)))


async def read(proxy, one, uri):
    return (await proxy.handle("resources/read", {"uri": uri}, one))["contents"][0]


def pages_of(meta):
    assert meta["other"] == PAGE
    return {meta["ui"]["resourceUri"], meta["ui/resourceUri"], meta["openai/outputTemplate"]}


@pytest.mark.parametrize("modern", [False, True])
async def test_page_that_a_tool_names_is_its_own_servers(two, client, modern):
    async with two() as proxy:
        one = client(modern=modern)
        tools = {tool["name"]: tool for tool in (await proxy.handle("tools/list", {}, one))["tools"]}
        for server in ("bank", "notes"):
            (page,) = pages_of(tools[f"{server}__do"]["_meta"])
            assert await read(proxy, one, page) == {"uri": page, "text": server}
            called = {"name": f"{server}__do", "arguments": {"result": {"_meta": META}}}
            assert pages_of((await proxy.handle("tools/call", called, one))["_meta"]) == {page}
        with pytest.raises(RpcError, match="no server has the resource"):
            await read(proxy, one, PAGE)


async def test_listed_resources_and_templates_of_both_can_be_read(two, client):
    async with two() as proxy:
        listed = (await proxy.handle("resources/list", {}, client()))["resources"]
        templates = (await proxy.handle("resources/templates/list", {}, client()))["resourceTemplates"]
        texts = [(await read(proxy, client(), each["uri"]))["text"] for each in listed]
        made = [await read(proxy, client(), each["uriTemplate"].replace("{id}", "7")) for each in templates]

    assert texts == ["bank", "bank", "notes", "notes"]
    assert made == [{"uri": f"{name}+user://7", "text": name} for name in ("bank", "notes")]


LINK = {"type": "resource_link", "uri": "data://same", "name": "it"}
EMBEDDED = {"type": "resource", "resource": {"uri": "data://same", "text": "it"}}


@pytest.mark.parametrize(
    ("result", "path"),
    [
        ({"content": [{"type": "text", "text": "see"}, LINK]}, ("content", 1, "uri")),
        ({"content": [EMBEDDED]}, ("content", 0, "resource", "uri")),
        ({"messages": [{"role": "user", "content": LINK}]}, ("messages", 0, "content", "uri")),
        ({"messages": [{"role": "user", "content": [EMBEDDED]}]}, ("messages", 0, "content", 0, "resource", "uri")),
        ({"result": {"content": [LINK]}}, ("result", "content", 0, "uri")),
    ],
    ids=["link", "embedded", "prompt", "prompt with a list", "task"],
)
@pytest.mark.parametrize("uri", ["data://same", "data://unlisted", PAGE])
async def test_uri_in_an_answer_leads_to_the_server_that_gave_it(two, client, result, path, uri):
    result = eval(repr(result).replace("data://same", uri))
    async with two() as proxy:
        for server in ("notes", "bank"):
            called = {"name": f"{server}__do", "arguments": {"result": result}}
            given = await proxy.handle("tools/call", called, client())
            for step in path:
                given = given[step]
            assert await read(proxy, client(), given) == {"uri": given, "text": server}


async def test_resource_is_answered_under_the_uri_that_was_asked_for(obeying, proxy_of, client):
    async with proxy_of(obeying("bank", offer("bank")), obeying("notes", {"resources": []})) as proxy:
        for uri in ("data://same", "bank+data://same", "BANK+data://same", "user://7", "bank+user://7"):
            assert await read(proxy, client(), uri) == {"uri": uri, "text": "bank"}


async def test_changes_are_told_under_the_uri_that_was_subscribed_to(two, client, until_noted):
    async with two() as proxy:
        one = client()
        for server in ("bank", "notes"):
            await proxy.handle("resources/subscribe", {"uri": f"{server}+data://same"}, one)
        await until_noted("resources/subscribe data://same", 2)
        pushed = [["notifications/resources/updated", {"uri": "data://same"}]]
        await proxy.call("notes__do", {"push": pushed})
        await one.until(lambda: one.heard)
        await proxy.handle("resources/unsubscribe", {"uri": "notes+data://same"}, one)
        await until_noted("resources/unsubscribe data://same")

    assert one.heard == [("notifications/resources/updated", {"uri": "notes+data://same"})]


async def test_changes_on_a_client_s_own_session_are_told_under_the_listed_uri(two, client, call):
    async with two() as proxy:
        one = client(elicitation={})
        await call(proxy, one, "notes__do")
        await proxy.handle("resources/subscribe", {"uri": "notes+data://same"}, one)
        await call(proxy, one, "notes__do", push=[["notifications/resources/updated", {"uri": "data://same"}]])
        await one.until(lambda: one.heard)

    assert one.heard == [("notifications/resources/updated", {"uri": "notes+data://same"})]


async def test_completion_for_a_template_goes_to_its_server_under_the_servers_own_uri(two, client):
    async with two() as proxy:
        ref = {"type": "ref/resource", "uri": "notes+user://{id}"}
        answer = await proxy.handle("completion/complete", {"ref": ref, "argument": {}}, client())

    assert answer["completion"]["values"] == ['{"type": "ref/resource", "uri": "user://{id}"}']


async def test_uris_of_a_single_server_stay_as_they_are(obeying, proxy_of, client):
    async with proxy_of(obeying("bank", offer("bank"))) as proxy:
        listed = (await proxy.handle("resources/list", {}, client()))["resources"]
        tools = (await proxy.handle("tools/list", {}, client()))["tools"]
        page = await read(proxy, client(), PAGE)

    assert [each["uri"] for each in listed] == [PAGE, "data://same"]
    assert tools[0]["_meta"] == META
    assert page == {"uri": PAGE, "text": "bank"}
