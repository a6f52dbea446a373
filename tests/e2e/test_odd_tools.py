"""An MCP server's tool that a real chat template fails on: the others work, and its operator learns of it."""

import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from gateway.app.services import open_services
from gateway.cli.checkup import check_up
from gateway.config import EngineConfig, GatewayConfig, TokensConfig, UpstreamConfig
from leaf_sdk.vocab import TokenMap

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

SERVER = Path(__file__).parent / "servers" / "odd_tools.py"
QUESTION = [{"role": "user", "content": "hello"}]


@pytest.fixture
def config(serve_template: Callable[[str], str], markers_model: Path) -> GatewayConfig:
    engine = EngineConfig(kind="url", url=serve_template("openai-gpt-oss-120b"))
    upstream = UpstreamConfig(name="files", command=sys.executable, args=(str(SERVER),))
    return GatewayConfig(upstreams=(upstream,), engine=engine, tokens=TokensConfig(map=str(markers_model)))


async def test_conversation_opens_with_every_tool_and_status_names_the_odd_one(
    config: GatewayConfig, markers_map: TokenMap
) -> None:
    with anyio.fail_after(60):
        async with open_services(config) as services:
            conversation = await services.agent.open(QUESTION)
            report = await services.status.make()

    prompt = markers_map.decode(conversation.ids)
    assert "type odd = (_: {" in prompt
    assert "type plain = (_: {" in prompt
    (fault,) = report["tool_faults"]
    assert (fault["engine"], fault["server"], fault["tool"]) == ("engine", "files", "odd")
    assert fault["reason"].startswith("the engine can't render its definition")


async def test_doctor_names_it_too(config: GatewayConfig) -> None:
    with anyio.fail_after(60):
        found = await check_up(config, may_call=False)

    (warning,) = [each for each in found.warnings if "render" in each]
    assert warning.startswith("tool 'odd' of server 'files': ")
    assert found.is_well
