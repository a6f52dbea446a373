"""A gateway behind a gateway: what a server in the innermost asks reaches the client, whatever its era."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.conftest import running_gateway
from tests.e2e.test_replicas import says_yes

pytestmark = pytest.mark.anyio
OWN = "codec-gateway.toml"


@pytest.fixture
def outermost(tmp_path: Path, server: Callable[..., Any]) -> Iterator[str]:
    """The last of three gateways, each with the one before as its only server."""
    folders = [tmp_path / name for name in ("inner", "middle", "outer")]
    for folder in folders:
        folder.mkdir()
    with running_gateway(folders[0], {"asks": server("asks")}, "--engine", "none") as inner:
        (folders[1] / OWN).write_text(f"[upstreams.one]\nurl = '{inner.url}/mcp'\n")
        with running_gateway(folders[1], {}, "--engine", "none") as middle:
            (folders[2] / OWN).write_text(f"[upstreams.two]\nurl = '{middle.url}/mcp'\n")
            with running_gateway(folders[2], {}, "--engine", "none") as outer:
                yield outer.url


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_call_that_asks_is_answered_through_three_gateways(outermost: str, mode: str) -> None:
    with anyio.fail_after(90):
        async with Client(
            streamable_http_client(f"{outermost}/mcp"), mode=mode, elicitation_callback=says_yes
        ) as client:
            [tool] = (await client.list_tools()).tools
            answers = [await client.call_tool(tool.name, {"about": f"{n}"}) for n in range(3)]

    assert [each.content[0].text for each in answers] == [f"yes to {n}" for n in range(3)]
