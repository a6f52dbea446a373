"""The pages docs/clients/*.md, followed: files written, commands run, gateways started as each client starts them."""

import json
import re
import shlex
import subprocess
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from gateway.config.gateway_config import ServeConfig
from tests.e2e.programs import loaded_programs

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "clients").glob("*.md"))
every_page = pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.anyio


def blocks_of(page: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == language]


@pytest.fixture
def here(tmp_path: Path) -> Callable[[str], str]:
    """What a page says, with the folders of this machine."""
    programs = str(loaded_programs())

    def place(text: str) -> str:
        text = text.replace("/path/to/clone/.venv/bin", programs)
        return text.replace("/path/to/servers.json", str(tmp_path / "servers.json"))

    return place


@pytest.fixture
def files(here: Callable[[str], str], tmp_path: Path) -> Callable[[Path], list[dict[str, Any]]]:
    """Writes the page's first file, the servers, and gives the entries of those that name the gateway."""

    def write(page: Path) -> list[dict[str, Any]]:
        servers, *clients = [json.loads(here(text)) for text in blocks_of(page, "json")]
        (tmp_path / "servers.json").write_text(json.dumps(servers))
        return [(each.get("mcpServers") or each["servers"])["codec"] for each in clients]

    return write


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder that is not where the files of the page are."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


@asynccontextmanager
async def started(entry: dict[str, Any], folder: Path) -> AsyncGenerator[Client]:
    """The gateway as a client starts it that has this entry, in a folder of the client's own."""
    server = StdioServerParameters(command=entry["command"], args=entry["args"], cwd=folder)
    async with Client(server) as client:
        yield client


def test_there_is_a_page_for_each_client() -> None:
    assert {page.stem for page in PAGES} == {"claude-desktop", "vscode", "cursor", "claude-code"}


@every_page
async def test_entry_of_the_page_starts_the_gateway_with_the_tools_of_the_servers(page, files, elsewhere):
    (entry,) = [each for each in files(page) if "command" in each]

    with anyio.fail_after(60):
        async with started(entry, elsewhere) as client:
            # A call waits for a server that starts, a list not long.
            told = await client.call_tool("get_time", {"city": "Tokyo"})
            names = [tool.name for tool in (await client.list_tools()).tools]

    assert names == ["get_time"]
    assert told.content[0].text.startswith("The time in Tokyo is ")


@every_page
def test_commands_before_it_say_that_all_is_well(page, files, here, tmp_path):
    files(page)
    typed = [line for text in blocks_of(page, "") for line in here(text).splitlines()]
    first = [shlex.split(line) for line in typed if " check " in line or " doctor " in line]

    run = partial(subprocess.run, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=True)
    ended = [run(each) for each in first]

    assert len(ended) == 2
    assert "codec-plain-time" in ended[0].stdout
    assert "time" in ended[1].stdout


@every_page
def test_address_of_the_page_is_where_its_command_serves(
    page: Path, files: Callable[[Path], list[dict[str, Any]]]
) -> None:
    addresses = [each["url"] for each in files(page) if each.get("url", "").startswith("http://127.")]
    serving = [line for text in blocks_of(page, "") for line in text.splitlines() if " serve " in line]
    default = ServeConfig()

    assert addresses == [f"http://{default.host}:{default.port}/mcp"] * len(serving)
    assert all(shlex.split(line)[1:] == ["serve", "--config", "servers.json"] for line in serving)
    assert len(serving) == (page.stem != "claude-desktop")
