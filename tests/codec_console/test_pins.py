"""Tools that are not as they were first seen: what changed in them, and that nobody can accept it on a page."""

import json
import sys
from pathlib import Path

import pytest

from gateway.config.gateway_config import UpstreamConfig

pytestmark = pytest.mark.anyio
HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e"
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
    assert [form.attributes["action"] for form in page.all("form")] == ["/console/sign-out", "/console/texts"]


async def test_page_of_servers_says_that_something_changed(run_console, settings_of) -> None:
    page = await shown_after(run_console, settings_of, telling("a"), telling("b"), path="/console/servers")

    assert "1 tool is different from when first seen" in page.one(class_="note").text
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
