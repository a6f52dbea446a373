"""Tools that are not as they were first seen: what changed in them, and that nobody can accept it on a page."""

import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.model import UpstreamConfig
from gateway.serve.console.pins import difference

pytestmark = pytest.mark.anyio
HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e"
TABLES = st.dictionaries(st.sampled_from("abcdefghij"), st.integers(0, 2))
SERVER = """
import json, os, sys
told = json.loads(os.environ["TOLD"])
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result = {"tools": told} if asked["method"] == "tools/list" else {}
    if asked["method"] == "initialize":
        info = {"name": "s", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "codec-gateway"


def telling(description: str, name: str = "read", pin: str = "block") -> UpstreamConfig:
    """A server with one tool that says this."""
    tools = [{"name": name, "description": description, "inputSchema": {"type": "object"}}]
    return UpstreamConfig("up", command=sys.executable, args=("-c", SERVER), env={"TOLD": json.dumps(tools)}, pin=pin)


async def shown_after(run_console, settings_of, *configs: UpstreamConfig, path: str = "/console/pins"):
    """The page, once the server was started in each of these ways."""
    for config in configs[:-1]:
        async with run_console(settings_of(config)):
            pass
    async with run_console(settings_of(configs[-1])) as site:
        await site.browser.sign_in()
        return await site.browser.page(path)


@pytest.mark.parametrize("pin", ["warn", "block"])
async def test_changed_tool_is_shown_with_what_changed_and_the_command_that_takes_it(
    run_console, settings_of, pin: str
) -> None:
    page = await shown_after(run_console, settings_of, telling("reads", pin=pin), telling(f"reads {HOSTILE}", pin=pin))

    difference_ = page.one("pre", class_="difference")
    assert [each.text for each in difference_.all("del")] == ['-  "description": "reads",']
    assert difference_.one("ins").text == ('+  "description": "reads <script>alert(1)</script>\\u001b[31m\\u202e",')
    assert {each.tag for each in difference_.all()} == {"del", "ins"}
    assert "codec-gateway pins accept up read" in page.text
    assert [form.attributes["action"] for form in page.all("form")] == ["/console/sign-out"]


async def test_page_of_servers_says_that_something_changed(run_console, settings_of) -> None:
    page = await shown_after(run_console, settings_of, telling("a"), telling("b"), path="/console/servers")

    assert "1 tool is not as first seen" in page.one(class_="note").text
    assert page.one(class_="note").one("a").attributes["href"] == "/console/pins"


async def test_name_of_a_tool_is_one_word_of_the_command(run_console, settings_of) -> None:
    name = "x'; rm -rf ~; '\n"
    page = await shown_after(run_console, settings_of, telling("a", name), telling("b", name))

    (command,) = [each.text for each in page.all("code") if "accept" in each.text]
    assert command == "codec-gateway pins accept up 'x'\"'\"'; rm -rf ~; '\"'\"'\\n'"


async def test_without_pins_and_without_changes_that_is_said(run_console, settings_of) -> None:
    page = await shown_after(run_console, settings_of, telling("a"), telling("a"))

    assert "No tool has changed" in page.one(class_="empty").text


async def test_what_an_earlier_version_pinned_is_not_there_to_be_compared(run_console, settings_of, state) -> None:
    async with run_console(settings_of(telling("a"))):
        pass
    (state / "pinned-definitions.json").unlink()

    page = await shown_after(run_console, settings_of, telling("b"))

    assert "was not kept" in page.text


async def test_file_that_can_not_be_read_is_told(run_console, settings_of, state) -> None:
    async with run_console(settings_of(telling("a"))) as site:
        (state / "pins.json").write_text("{")
        await site.browser.sign_in()
        page = await site.browser.page("/console/pins")

    assert "can't be read" in page.one(class_="problem").text


@pytest.mark.parametrize("pad", ["word ", "".join(f"{n} " for n in range(1000))], ids=["repeated", "varied"])
def test_change_far_inside_a_long_text_is_seen_whatever_stands_around_it(pad: str) -> None:
    long = (pad * 60_000)[:60_000]
    was, now = {"description": long}, {"description": f"{long[:30_000]}EVIL {long[30_000:]}"}

    found = difference(was, now, frozenset())

    assert any("EVIL" in line.text for line in found if line.kind == "ins")
    assert any(line.kind == "del" for line in found)
    assert len(found) <= 301
    assert all(len(line.text) <= 161 for line in found)


def test_no_side_of_a_difference_hides_the_other() -> None:
    found = difference({str(n): 1 for n in range(10_000)}, {"description": "evil"}, frozenset())

    assert any("evil" in line.text for line in found if line.kind == "ins")
    assert any("more lines" in line.text for line in found if line.kind == "del")


def test_difference_is_cut_and_says_so() -> None:
    was = {f"{n:04}": n % 7 == 0 for n in range(400)}
    found = difference(was, dict.fromkeys(was, False), frozenset())

    assert len(found) == 301
    assert "more lines" in found[-1].text


@given(was=TABLES, now=TABLES)
def test_what_is_shown_is_what_differs(was: dict[str, int], now: dict[str, int]) -> None:
    found = difference(was, now, frozenset())

    lines = {kind: [line.text[1:] for line in found if line.kind == kind] for kind in ("ins", "del")}
    written = [json.dumps(each, indent=2, sort_keys=True).split("\n") for each in (was, now)]
    assert Counter(lines["del"]) - Counter(lines["ins"]) == Counter(written[0]) - Counter(written[1])
    assert Counter(lines["ins"]) - Counter(lines["del"]) == Counter(written[1]) - Counter(written[0])


def test_secrets_are_masked_in_both() -> None:
    found = difference({"a": "tok-1234-5678"}, {"a": "tok-1234-5678!"}, frozenset({"tok-1234-5678"}))

    assert [line.text for line in found if line.kind] == ['-  "a": "****"', '+  "a": "****!"']
