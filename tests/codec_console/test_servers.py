"""Servers and tools as the console shows them: real servers, hostile ones among them, and a call by hand."""

import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from urllib.parse import quote

import anyio
import pytest

from gateway.config.access import AuditConfig, ConsoleConfig
from gateway.config.gateway_config import ServeConfig, SignInConfig, TokensConfig, UpstreamConfig

pytestmark = pytest.mark.anyio
SECRET = "t0ken-t0ken-t0ken"
TELLS_TIME = str(Path(__file__).parents[1] / "e2e" / "servers" / "tells_time.py")
HOSTILE = str(Path(__file__).parent / "servers" / "hostile.py")


def clock(**more) -> UpstreamConfig:
    return UpstreamConfig(name="time", command=sys.executable, args=(TELLS_TIME,), **more)


def hostile() -> UpstreamConfig:
    return UpstreamConfig(name="hostile", command=sys.executable, args=(HOSTILE,))


@pytest.fixture
async def place(run_console, settings_of, map_path) -> AsyncGenerator:
    """A gateway of an honest server and a hostile one; somebody is signed in."""
    config = settings_of(
        clock(),
        hostile(),
        tokens=TokensConfig(map=str(map_path)),
        serve=ServeConfig(token=SECRET),
        console=ConsoleConfig(token="x" * 40),
    )
    async with run_console(config) as site:
        await site.browser.sign_in()
        yield site


def address(name: str, path: str = "/console/tool") -> str:
    return f"{path}?name={quote(name, safe='')}"


def hostile_name(site) -> str:
    return next(each.name for each in site.services.proxy.tools() if "say" in each.name)


def assert_harmless(page, text: str) -> None:
    """Nothing of the markup that servers sent is markup of the page, and nothing of it reorders or colours what is
    read."""
    assert {script.attributes.get("src") for script in page.all("script")} <= {"/console/static/live.js"}
    assert page.all("img") == []
    assert len(page.all("title")) - len([each for each in page.all("svg") for _ in each.all("title")]) == 1
    for element in page.all():
        assert not [name for name in element.attributes if name.startswith("on") or name == "style"]
    assert not any(character in text for character in "\x1b\x00\u202e\u2066")
    assert "49" not in page.one("h1").text
    assert len(text) < 400_000


async def test_servers_are_listed_with_their_figures(place, page_of) -> None:
    page = await place.browser.page("/console/servers")

    rows = {row.all("td")[0].text: [cell.text for cell in row.all("td")] for row in page.all("tr")[1:]}
    assert list(rows) == ["time", "hostile"]
    assert rows["time"][1:3] == ["up", "1"]
    assert rows["hostile"][2] == "4"
    assert [a.attributes["aria-current"] for a in page.all("a") if "aria-current" in a.attributes] == ["page"]


async def test_page_of_a_server_shows_its_tools_its_calls_and_how_long_they_took(place) -> None:
    before = await place.browser.page("/console/server?name=time")
    assert "No call yet" in before.one(id="latency").text
    await place.services.proxy.call("time__get_time", {"city": "Tokyo"})

    page = await place.browser.page("/console/server?name=time")

    (row,) = page.one(id="calls").all("tbody")[0].all("tr")
    assert [cell.text for cell in row.all("td")][1:4] == ["get_time", "anonymous", "ok"]
    assert page.one("svg").attributes["aria-label"] == "1 calls by how long they took"
    assert len(page.one("svg").all("rect")) == 1
    assert "1 call" in page.one("svg").one("title").text
    assert "time__get_time" in page.text


@pytest.mark.parametrize("path", ["/console/servers", "/console/server?name=time"])
async def test_page_of_servers_is_made_anew_only_where_something_came(place, path: str) -> None:
    page = await place.browser.get(path)
    same = await place.browser.get(path, **{"if-none-match": page.headers["etag"]})
    await place.services.proxy.call("time__get_time", {"city": "Tokyo"})
    await place.browser.send(address("time__get_time"), {"a0": "Tokyo"})
    later = await place.browser.get(path, **{"if-none-match": page.headers["etag"]})

    assert (page.status_code, same.status_code, same.content) == (200, 304, b"")
    assert (later.status_code, later.text == page.text) == (200, False)


async def test_page_of_a_server_with_calls_is_not_made_anew_while_nothing_comes(place) -> None:
    await place.services.proxy.call("time__get_time", {"city": "Tokyo"})
    path = "/console/server?name=time"
    tag = (await place.browser.get(path)).headers["etag"]

    again = [await place.browser.get(path, **{"if-none-match": tag}) for _ in range(20)]

    assert [each.status_code for each in again] == [304] * 20


async def test_page_of_a_tool_shows_what_its_results_ids_were(place) -> None:
    for _ in range(2):
        assert (await place.browser.send(address("time__get_time"), {"a0": "Tokyo"})).status_code == 200

    tool = await place.browser.page(address("time__get_time"))
    server = await place.browser.page("/console/server?name=time")

    assert "2 shim" in tool.text
    assert "2 shim" in server.text
    assert len(tool.all("tbody")[0].all("tr")) == 2


async def test_call_by_hand_is_a_call_of_the_operator_and_stands_in_the_audit_log(
    run_console, settings_of, page_of, map_path, tmp_path
) -> None:
    file = tmp_path / "audit.jsonl"
    audit = AuditConfig(path=file, arguments=True)
    async with run_console(settings_of(clock(), tokens=TokensConfig(map=str(map_path)), audit=audit)) as site:
        await site.browser.sign_in()
        answer = await site.browser.send(address("time__get_time"), {"a0": "Tokyo"})
        assert site.services.proxy.last_calls.of("time")[0].principal == "operator"

    result = page_of(answer.text).one(id="result")
    assert result.one("span", class_="badge good").text == "ok"
    assert "0 ids from the tool" in result.text
    assert "Tokyo" in result.one("pre").text
    (line,) = map(json.loads, file.read_text().splitlines())
    assert (line["principal"], line["face"], line["method"]) == ("operator", "console", "tools/call")
    assert (line["server"], line["tool"], line["outcome"]) == ("time", "time__get_time", "ok")
    assert (line["arguments"], line["source"]) == ({"city": "Tokyo"}, "shim")
    assert line["ids"] > 0


async def test_call_by_hand_has_the_time_of_its_server(run_console, settings_of, page_of) -> None:
    # No server answers so soon.
    async with run_console(settings_of(clock(timeout=1e-6))) as site:
        await site.browser.sign_in()
        answer = await site.browser.send(address("time__get_time"), {"a0": "Tokyo"})

    assert "did not answer the call of tool 'get_time' within 1e-06 s" in page_of(answer.text).one(id="result").text


async def test_call_needs_the_sessions_word_and_our_own_origin(place) -> None:
    path = address("time__get_time")
    csrf = await place.browser.csrf()
    refused = [
        await place.browser.post(path, {"a0": "Tokyo"}),
        await place.browser.post(path, {"csrf": csrf}, origin="http://127.0.0.1:9999"),
        await place.browser.post(path, {"csrf": csrf}, origin="", **{"sec-fetch-site": ""}),
    ]
    place.browser.http.cookies.clear()
    refused.append(await place.browser.post(path, {"csrf": csrf}))

    assert [each.status_code for each in refused] == [403, 403, 403, 401]
    assert place.services.proxy.last_calls.of("time") == []


async def test_every_word_of_a_hostile_server_is_text(place, page_of) -> None:
    name = hostile_name(place)
    paths = ["/console/servers", "/console/server?name=hostile", address(name), address("hostile__odd")]
    for path in [*paths, "/console/server?name=hostile&q=%3Cscript%3E&page=0"]:
        answer = await place.browser.get(path)
        assert answer.status_code == 200
        assert_harmless(page_of(answer.text), answer.text)


async def test_tool_whose_name_no_address_can_hold_is_told_without_one(place) -> None:
    page = await place.browser.page("/console/server?name=hostile")

    (row,) = (row for row in page.all("tr") if any("WWW" in cell.text for cell in row.all("td", class_="name")))
    assert row.all("a") == []
    assert "more characters" in row.all("td")[0].text


async def test_every_word_of_a_hostile_result_is_text(place, page_of) -> None:
    name = hostile_name(place)
    answer = await place.browser.send(address(name), {"a0": "</textarea><script>", "a1": "7", "a2": "1", "a4": "x"})

    page = page_of(answer.text)
    assert answer.status_code == 200
    assert_harmless(page, answer.text)
    shown = [each.text for each in page.one(id="result").all("pre")]
    told = json.loads(shown[0].splitlines()[1])
    assert [told["text"], told["one"], told["csrf"]] == ["</textarea><script>", 1, "x"]
    assert 7 in told.values()
    assert shown[0].splitlines()[2] == "secret: ****"
    assert "more characters)" in shown[1]
    assert "iVBORw0KGgo=" in shown[2]
    assert "14 more blocks" in page.one(id="result").text
    # What was typed stands in the form again, as it was.
    assert page.one("textarea", name="a0").text.strip() == "</textarea><script>"


async def test_call_that_fails_says_how(place, page_of) -> None:
    failed = page_of((await place.browser.send(address("hostile__fail"), {})).text).one(id="result")
    assert failed.one("span", class_="badge bad").text == "tool_error"
    assert place.services.proxy.last_calls.of("hostile")[0].ended == "tool_error"


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"arguments": "{"}, "valid JSON"),
        ({"arguments": "[1]"}, "must be a JSON object"),
        ({"arguments": "[" * 100_000}, "valid JSON"),
        ({"arguments": '{"a": NaN}'}, "NaN"),
    ],
)
async def test_form_that_makes_no_arguments_says_why_and_calls_nothing(place, page_of, form, words) -> None:
    answer = await place.browser.send(address("time__get_time"), form)

    assert words in page_of(answer.text).one("p", role="alert").text
    assert place.services.proxy.last_calls.of("time") == []


@pytest.mark.parametrize("path", ["/console/server?name=", "/console/tool?name=%00", "/console/server?name=%3Cb%3E"])
async def test_what_is_not_there_is_not_found(place, path: str) -> None:
    assert (await place.browser.get(path)).status_code == 404


async def test_tables_are_in_pages_and_can_be_filtered(place) -> None:
    found = await place.browser.page("/console/server?name=hostile&q=ODD")
    assert len([a for a in found.all("a") if (a.attributes.get("href") or "").startswith("/console/tool")]) == 1

    for number in ("9999", "-1", "x", "999999999999"):
        assert (await place.browser.get(f"/console/server?name=hostile&page={number}")).status_code == 200


async def test_calls_by_hand_are_bounded(place, page_of, monkeypatch) -> None:
    began, go = anyio.Event(), anyio.Event()

    async def wait(*_args, **_more):
        began.set()
        await go.wait()
        raise AssertionError

    monkeypatch.setattr(place.services.proxy, "call_tool", wait)
    csrf = await place.browser.csrf()
    async with anyio.create_task_group() as calls:
        for _ in range(4):
            calls.start_soon(place.browser.post, address("time__get_time"), {"csrf": csrf})
        await began.wait()
        await anyio.wait_all_tasks_blocked()
        fifth = await place.browser.post(address("time__get_time"), {"csrf": csrf})
        calls.cancel_scope.cancel()

    assert "wait until one has finished" in page_of(fifth.text).one("p", role="alert").text


async def test_page_of_a_server_at_which_users_sign_in_shows_where(run_console, settings_of, map_path):
    auth = SignInConfig(per_user=True, redirect_url="https://gw.example/sign-in/callback")
    docs = UpstreamConfig("docs", url="http://127.0.0.1:9/mcp", auth=auth)
    config = settings_of(docs, tokens=TokensConfig(map=str(map_path)), console=ConsoleConfig(token="x" * 40))
    async with run_console(config) as site:
        await site.browser.sign_in()
        page = await site.browser.page(address("docs", "/console/server"))

    assert "https://gw.example/sign-in?server=docs" in [each.attributes.get("href") for each in page.all("a")]
