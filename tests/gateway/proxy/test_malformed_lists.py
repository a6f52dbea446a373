"""One malformed item of one server costs nobody else, and odd pages end a list, not the server."""

import json

import pytest

from gateway.errors import RpcError
from gateway.proxy.upstream.items.item_reader import ItemReader, MalformedField

pytestmark = pytest.mark.anyio
MALFORMED = "a listed field is malformed"
FINE = {"name": "fine", "inputSchema": {"type": "object"}}


@pytest.fixture
def listing(upstream):
    """Makes the configuration of a server that lists this."""

    def make(name="up", **says):
        return upstream("lists", json.dumps({key.replace("_", "/"): value for key, value in says.items()}), name=name)

    return make


@pytest.fixture
def warned(caplog):
    """What was logged of malformed fields."""
    return lambda: [
        record.msg for record in caplog.records if isinstance(record.msg, dict) and record.msg["event"] == MALFORMED
    ]


def tools(*items):
    return [{"tools": list(items)}]


async def test_malformed_tool_is_mended_or_left_out_and_no_other_is_touched(listing, obeying, proxy_of, client):
    bad = listing(
        "bad",
        tools_list=tools(
            FINE,
            {"name": "null", "inputSchema": None, "description": None},
            {"name": "words", "inputSchema": "object"},
            "no tool",
        ),
    )
    async with proxy_of(bad, obeying("good")) as proxy:
        listed = await proxy.handle("tools/list", {}, client())
        status = proxy.statuses()[0]
        called = await proxy.handle("tools/call", {"name": "bad__null", "arguments": {}}, client())
        with pytest.raises(RpcError) as refused:
            await proxy.handle("tools/call", {"name": "bad__words", "arguments": {}}, client())

    assert listed["tools"] == [
        {**FINE, "name": "bad__fine"},
        {"name": "bad__null", "inputSchema": {"type": "object"}},
        {"name": "good__do", "inputSchema": {"type": "object"}},
    ]
    assert called["content"][0]["text"] == "null"
    assert "tool 'words' of server 'bad' is not offered, because its definition is malformed: inputSchema" in str(
        refused.value
    )
    assert status.tools == 2
    assert status.invalid_tools["words"] == "inputSchema: expected an object, got 'object'"
    assert {(each.item, each.field, each.left_out) for each in status.malformed} == {
        ("null", "description", False),
        ("null", "inputSchema", False),
        ("words", "inputSchema", True),
        ("number 4 in the list", "", True),
    }


def test_each_malformed_field_is_logged_once_however_often_it_is_listed(warned):
    reader = ItemReader("up")
    items = [{**FINE, "title": None, "icons": [{}]}, {**FINE, "name": "b", "_meta": []}]
    for _ in range(3):
        reader.read("tools", items, modern=False)

    assert sorted((each["server"], each["item"], each["field"], each["left_out"]) for each in warned()) == [
        ("up", "b", "_meta", False),
        ("up", "fine", "icons[0]", False),
        ("up", "fine", "title", False),
    ]


@pytest.mark.parametrize(
    ("kind", "method", "field", "bad", "left"),
    [
        ("prompts", "prompts/list", "prompts", [{"name": "p", "arguments": None}, {"name": 3}], [{"name": "up__p"}]),
        ("resources", "resources/list", "resources", [{"uri": "x:1"}, {"name": "x"}], [{"uri": "x:1", "name": "x:1"}]),
        (
            "templates",
            "resources/templates/list",
            "resourceTemplates",
            [{"uriTemplate": "x:{a}", "name": "t", "mimeType": None}, []],
            [{"uriTemplate": "x:{a}", "name": "t"}],
        ),
    ],
)
async def test_other_lists_are_read_the_same_way(listing, proxy_of, client, kind, method, field, bad, left):
    server = listing(tools_list=tools(FINE), **{method.replace("/", "_"): [{field: bad, "_meta": None}]})
    async with proxy_of(server) as proxy:
        listed = await proxy.handle(method, {}, client())
        malformed = proxy.statuses()[0].malformed

    assert listed == {field: left}
    assert {each.kind for each in malformed} == {kind}
    assert any(each.left_out for each in malformed)


def test_what_was_malformed_in_past_lists_is_bounded():
    reader = ItemReader("up")
    for first in range(0, 5000, 500):
        reader.read("tools", [{"name": f"{number}{'x' * 1000}"} for number in range(first, first + 500)], modern=False)

    assert len(reader.malformed) <= 1000
    assert max(len(each.item) for each in reader.malformed) < 200


def test_item_that_is_listed_rightly_again_is_no_longer_reported():
    reader = ItemReader("up")
    reader.read("tools", [{**FINE, "title": None}, {"name": "other", "inputSchema": 3}, 7], modern=False)
    assert [each.item for each in reader.malformed] == ["fine", "other", "number 3 in the list"]
    assert reader.why_left_out("tools") == {
        "other": "inputSchema: expected an object, got 3",
        "number 3 in the list": "the item: expected an object, got 7",
    }

    reader.read("tools", [FINE, {**FINE, "name": "third"}, {**FINE, "name": "fourth"}], modern=False)
    assert reader.malformed == (
        MalformedField("tools", "other", "inputSchema", "expected an object, got 3", left_out=True),
    )


@pytest.mark.parametrize(
    "pages",
    [
        [{"tools": [FINE], "nextCursor": ""}],
        [{"tools": [FINE], "nextCursor": False}],
        [{"tools": [FINE], "nextCursor": 7}],
        [{"tools": [FINE], "nextCursor": {}}],
        [{"tools": [FINE], "nextCursor": []}],
        [{"tools": [FINE], "nextCursor": "same"}],
        [{"tools": [FINE], "nextCursor": None}],
    ],
)
async def test_cursor_that_leads_nowhere_ends_the_list_and_keeps_what_came(
    listing, proxy_of, client, noted, warned, pages
):
    async with proxy_of(listing(tools_list=pages)) as proxy:
        listed = await proxy.handle("tools/list", {}, client())
        assert proxy.statuses()[0].state == "up"

    assert listed["tools"] == [{**FINE, "name": "up__fine"}]
    told = [each for each in warned() if each["field"] == "nextCursor"]
    assert len(told) == (0 if pages[0]["nextCursor"] is None else 1)
    assert len([line for line in noted() if line.startswith("tools/list")]) == (
        2 if pages[0]["nextCursor"] == "same" else 1
    )


@pytest.mark.parametrize("method", ["prompts/list", "resources/list", "resources/templates/list"])
async def test_odd_cursor_ends_every_kind_of_list(listing, proxy_of, client, method):
    key = {"prompts/list": "name", "resources/list": "uri"}.get(method, "uriTemplate")
    field = {"prompts/list": "prompts", "resources/list": "resources"}.get(method, "resourceTemplates")
    item = {"name": "x", key: "x:1"}
    pages = [{field: [item], "nextCursor": "b"}, {field: [{**item, key: "x:2"}], "nextCursor": ""}]
    server = listing(tools_list=tools(FINE), cursors={"b": 1}, **{method.replace("/", "_"): pages})
    async with proxy_of(server) as proxy:
        listed = await proxy.handle(method, {}, client())

    assert [each[key].removeprefix("up__") for each in listed[field]] == ["x:1", "x:2"]


async def test_cursors_that_go_round_end_the_list(listing, proxy_of, client):
    second = {**FINE, "name": "second"}
    pages = [
        {"tools": [FINE], "nextCursor": "b"},
        {"tools": [second], "nextCursor": "c"},
        {"tools": [], "nextCursor": "b"},
    ]
    async with proxy_of(listing(tools_list=pages, cursors={"b": 1, "c": 2})) as proxy:
        listed = await proxy.handle("tools/list", {}, client())

    assert [each["name"] for each in listed["tools"]] == ["up__fine", "up__second"]


@pytest.mark.parametrize("value", [None, {}, "x"])
async def test_list_that_is_no_list_is_empty_with_a_warning(listing, proxy_of, client, warned, value):
    async with proxy_of(listing(tools_list=[{"tools": value}])) as proxy:
        listed = await proxy.handle("tools/list", {}, client())

    assert listed["tools"] == []
    assert [each["reason"] for each in warned() if each["field"] == "tools"] == [
        f"expected a list, got {json.dumps(value) if value != 'x' else repr(value)}; it is read as an empty one"
    ]


PROMPTS = {"prompts": [{"name": "p"}]}


@pytest.mark.parametrize("told", [{"tools": {}, "prompts": {}}, {"tools": {"listChanged": True}, "prompts": {}}])
async def test_server_that_promises_tools_and_knows_no_such_list_has_none_and_keeps_the_rest(
    listing, proxy_of, client, warned, told
):
    """objectstack-ai/objectstack 8034: its tools were gone, its other lists were fine."""
    other = listing("other", tools_list=tools(FINE))
    async with proxy_of(listing(capabilities=told, prompts_list=[PROMPTS]), other) as proxy:
        listed = await proxy.handle("tools/list", {}, client())
        prompts = await proxy.handle("prompts/list", {}, client())
        status = proxy.statuses()[0]

    assert [each["name"] for each in listed["tools"]] == ["other__fine"]
    assert [each["name"] for each in prompts["prompts"]] == ["up__p"]
    assert (status.state, status.restarts) == ("up", 0)
    assert [each["reason"] for each in warned() if each["server"] == "up"] == [
        "it promises this list, and refuses tools/list as an unknown method; it is read as an empty one"
    ]


NOTHING_TOLD = (
    *("none", None, {}, [], True, False, 0, "tools", ["tools", "prompts"]),
    *(
        {"tools": None},
        {"logging": {}},
        {"tools": "yes"},
        {"tools": False, "prompts": None},
        {"tools": ["listChanged"]},
        {"experimental": {"x": {}}},
    ),
)


@pytest.mark.parametrize("told", NOTHING_TOLD, ids=repr)
async def test_server_that_declares_no_lists_is_asked_for_each_of_them_once(listing, proxy_of, client, caplog, told):
    server = listing(capabilities=told, tools_list=tools(FINE), prompts_list=[PROMPTS])
    async with proxy_of(server) as proxy:
        listed = await proxy.handle("tools/list", {}, client())
        prompts = await proxy.handle("prompts/list", {}, client())
        resources = await proxy.handle("resources/list", {}, client())
        called = await proxy.handle("tools/call", {"name": "up__fine", "arguments": {}}, client())
        offered = proxy.capabilities()

    assert listed["tools"] == [{**FINE, "name": "up__fine"}]
    assert prompts["prompts"] == [{"name": "up__p"}]
    assert resources["resources"] == []
    assert called["content"][0]["text"] == "fine"
    assert {"tools": offered["tools"], "prompts": offered["prompts"]} == {
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
    }
    assert "resources" not in offered
    (warning,) = [
        record.msg
        for record in caplog.records
        if isinstance(record.msg, dict) and record.msg["event"].startswith("upstream declares no tools")
    ]
    assert (warning["server"], warning["found"]) == ("up", ["tools", "prompts"])


async def test_server_that_has_nothing_and_declares_nothing_is_up(listing, proxy_of, client):
    async with proxy_of(listing(capabilities={})) as proxy:
        assert (await proxy.handle("tools/list", {}, client()))["tools"] == []
        assert proxy.statuses()[0].state == "up"


ODD_CAPABILITIES = ([], True, {}, *({"listChanged": odd} for odd in ("yes", "", None, 0, 1, False, [], {"x": True})))


@pytest.mark.parametrize("tools_offered", ODD_CAPABILITIES, ids=repr)
async def test_odd_capability_is_read_as_an_object_and_never_passed_on(listing, proxy_of, client, tools_offered):
    odd = {"tools": tools_offered, "prompts": None, "logging": [], "experimental": {"x": True, "y": 3}, "vendor": None}
    async with proxy_of(listing(capabilities=odd, tools_list=tools(FINE), prompts_list=[PROMPTS])) as proxy:
        listed = await proxy.handle("tools/list", {}, client())
        offered = proxy.capabilities()

    assert [each["name"] for each in listed["tools"]] == ["up__fine"]
    assert offered == {
        "tools": {"listChanged": True},
        "logging": {},
        "experimental": {"x": {}},
        "vendor": None,
    }
