"""A real loop with a bolt-on: the model's ids go out, the tool's ids come back, and the gateway's tokenizer rests.

The engine is llama.cpp with SmolLM2, the tool is `codec-time-leaf --bolt-on` in a process of its own.
"""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gateway.agent import AnswerOptions, ToolChoice
from gateway.agent.events import AgentEvent, GenerationFinished, ToolFinished
from gateway.app.services import open_services
from gateway.config.gateway_config import EngineConfig, GatewayConfig, UpstreamConfig
from gateway.engine.embedded.packaged_model import packaged_model
from gateway.engine.interface import Sampling
from gateway.toolcalls.stream.output_events import CallClosed
from leaf_sdk.vocab import TokenMap
from time_leaf.bolt_on import FOLDER

pytestmark = pytest.mark.anyio

COMMAND = Path(sys.executable).parent / "codec-time-leaf"
QUESTION = [{"role": "user", "content": "What time is it in Paris?"}]
OTHER_QUESTION = [{"role": "user", "content": "And in Tokyo, what time would you say it is now?"}]
SHORT = AnswerOptions(ToolChoice("none"), 4, Sampling(temperature=0, seed=1))


@pytest.fixture(scope="module")
def endpoint(model_map_bytes: bytes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the time leaf takes calls."""
    map_file = tmp_path_factory.mktemp("map") / "map.json"
    map_file.write_bytes(model_map_bytes)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    environment = {**os.environ, "CODEC_MAP_PATH": str(map_file)}
    command = [str(COMMAND), "--bolt-on", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as child:
        assert child.stderr is not None
        assert b"bolt-on: get_current_time" in child.stderr.readline()
        yield f"http://127.0.0.1:{port}"
        child.kill()


@dataclass
class Counted:
    """What the gateway asked its tokenizer, and what happened meanwhile, in one order."""

    log: list[object] = field(default_factory=list)

    async def listen(self, event: AgentEvent) -> None:
        self.log.append(event)

    def of(self, kind):
        return [each for each in self.log if isinstance(each, kind)]

    def between(self) -> list[object]:
        """From the moment the call was whole to the end of the generation that reads its result."""
        start = next(n for n, each in enumerate(self.log) if isinstance(each, CallClosed))
        ends = [n for n, each in enumerate(self.log) if isinstance(each, GenerationFinished)]
        return self.log[start : ends[1]]


@pytest.fixture
def counted(monkeypatch) -> Counted:
    """Notes every encode and every decode of every token map in this process."""
    seen = Counted()
    for name in ("encode", "decode", "decode_bytes"):
        real = getattr(TokenMap, name)

        def spy(self, what, *, _real=real, _name=name, **settings):
            what = what if isinstance(what, str) else tuple(what)
            seen.log.append((_name, what))
            return _real(self, what, **settings)

        monkeypatch.setattr(TokenMap, name, spy)
    return seen


def config_of(engine_url: str, *upstreams: UpstreamConfig) -> GatewayConfig:
    engine = EngineConfig(kind="url", url=engine_url, model=packaged_model())
    return GatewayConfig(upstreams=upstreams, engine=engine)


def time_tools(endpoint: str, name: str = "time") -> UpstreamConfig:
    return UpstreamConfig(name=name, manifest=str(FOLDER), endpoint=endpoint, protocol="modern", require_match=True)


@pytest.mark.parametrize("prefix", ["never", "always"])
async def test_nothing_is_encoded_or_decoded_between_a_call_and_the_splice_of_its_result(
    trained_engine_url, endpoint, counted, prefix
):
    tool = "get_current_time" if prefix == "never" else "time__get_current_time"
    options = AnswerOptions(ToolChoice.named(tool), 64, Sampling(temperature=0, seed=1), tell_calls=True)
    config = config_of(trained_engine_url, time_tools(endpoint))
    async with open_services(
        GatewayConfig(upstreams=config.upstreams, engine=config.engine, prefix=prefix)
    ) as services:
        # The template's own pieces around a result are tokenized once in an engine's life.
        await services.agent.answer(await services.agent.open(OTHER_QUESTION), options, counted.listen)
        counted.log.clear()
        before = services.metrics.get_shim_metrics()
        conversation = await services.agent.open(QUESTION)
        await services.agent.answer(conversation, options, counted.listen)
        after = services.metrics.get_shim_metrics()
        forms = {
            form: services.metrics.registry.get_sample_value("codec_bolt_on_calls_total", {"form": form})
            for form in ("raw", "encoded", "text", "refused")
        }
        token_map = services.engines.ready().token_map

        first, second = counted.of(GenerationFinished)[:2]
        (finished,) = counted.of(ToolFinished)
        asked = [each for each in counted.between() if isinstance(each, tuple)]
        # What is left: whether the template opened a reasoning block is read off the last 64 ids of the prompt.
        tail = tuple(conversation.ids[: second.prompt][-64:])
        assert asked == [("decode", tail), ("decode_bytes", tail)]
        assert forms == {"raw": 2, "encoded": 0, "text": 0, "refused": 0}
        assert {key: after[key] - before[key] for key in ("tokenize_calls", "detokenize_calls", "leaf_bypasses")} == {
            "tokenize_calls": 0,
            "detokenize_calls": 0,
            "leaf_bypasses": 1,
        }
        assert (finished.source, finished.is_error, finished.shim_ids) == ("leaf", False, 0)
        assert re.fullmatch(r"The time in \S+ is \d\d:\d\d on \w+, \S+ \(UTC[+-]\d\d:\d\d\)\.", finished.text)
        ids = token_map.encode(finished.text)
        assert finished.leaf_ids == len(ids)

        # The engine holds what the model wrote, and then the tool's ids: nothing before them was processed again.
        spliced = conversation.ids[first.prompt + first.generated : second.prompt]
        assert any(spliced[at : at + len(ids)] == ids for at in range(len(spliced)))
        assert second.timings is not None
        assert second.timings.cache_n == first.prompt + first.generated == second.held
        history = [*QUESTION, conversation.lived.shown.message, {"role": "user", "content": "Thank you."}]
        await services.agent.answer(await services.agent.open(history), SHORT, counted.listen)
        third = counted.of(GenerationFinished)[-1]
        assert third.timings is not None
        assert third.timings.cache_n == third.held >= second.prompt


async def test_the_same_tools_answer_a_client_of_mcp_in_text(engine_url, endpoint):
    async with open_services(config_of(engine_url, time_tools(endpoint))) as services:
        result = await services.proxy.call("get_current_time", {"timezone": "Asia/Tokyo"})
        token_map = services.engines.ready().token_map
    (block,) = result["content"]
    assert block["text"].startswith("The time in Asia/Tokyo is ")
    assert block["_meta"]["ai.codec/leaf-tokenization"] == {
        "map_id": token_map.map_id,
        "ids": token_map.encode(block["text"]),
    }
