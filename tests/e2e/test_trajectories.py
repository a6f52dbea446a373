"""Trajectories on the real engine: what is joined of a file is, id by id, what the engine was given and has sampled."""

import hashlib
import json
import stat
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.agent import AnswerOptions
from gateway.agent.events import AgentEvent
from gateway.agent.generate.generation_options import ToolChoice
from gateway.app.services import Services, open_services
from gateway.config import EngineConfig, GatewayConfig, TokensConfig, UpstreamConfig
from gateway.config.access import TrajectoriesConfig
from gateway.engine.embedded.packaged_model import packaged_model
from gateway.engine.interface import Generated, GenerateRequest, GenerationEnd, GenerationEvent, Sampling
from gateway.engine.wire.llama_cpp_client import LlamaCpp
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed, Content
from leaf_sdk.leaf.contract import CODEC_META_KEY
from leaf_sdk.trajectories import Sample, Trajectories, for_trl, for_verl, read_trajectories
from leaf_sdk.vocab import TokenMap

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

CITY = {"type": "string", "maxLength": 12}
WEATHER = ToolSpec("weather", "The weather of a city.", {"type": "object", "properties": {"city": CITY}})

OTHER_ENDS = ((0, -100.0), (4, -100.0))
"""Ids that end an answer besides the template's own: a trained model writes none of them, one of random weights may."""


class Overheard:
    """What an engine was given and what it sampled, as its own client saw it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs: list[tuple[GenerateRequest, list[int], list[int], GenerationEnd]] = []
        """Requests with their prompts as they were, ids, and the ends."""
        plain = LlamaCpp.generate

        @asynccontextmanager
        async def generate(
            engine: LlamaCpp, request: GenerateRequest
        ) -> AsyncGenerator[AsyncIterator[GenerationEvent]]:
            prompt, ids = list(request.prompt), list[int]()

            async def listened(events: AsyncIterator[GenerationEvent]) -> AsyncIterator[GenerationEvent]:
                async for event in events:
                    if isinstance(event, Generated):
                        ids.extend(event.ids)
                    else:
                        self.runs.append((request, prompt, ids, event))
                    yield event

            async with plain(engine, request) as events:
                yield listened(events)

        monkeypatch.setattr(LlamaCpp, "generate", generate)

    def held(self, run: int) -> list[int]:
        """What the engine held behind a generation."""
        _, prompt, ids, end = self.runs[run]
        return [*prompt, *(ids if end.ended_by is None else ids[:-1])]

    @property
    def sampled(self) -> list[list[int]]:
        return [ids for _, _, ids, _ in self.runs]


class Client:
    """Keeps a conversation as an application does."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def ask(
        self, messages: list[dict[str, Any]], choice: ToolChoice, seed: int | None = None
    ) -> list[dict[str, Any]]:
        """The conversation with an answer, and results of its calls, at its end; greedy without a seed."""
        told: list[AgentEvent] = []

        async def listen(event: AgentEvent) -> None:
            told.append(event)

        agent = self._services.agent
        conversation = await agent.open(messages, choice=choice, client_tools=[WEATHER])
        sampling = Sampling(temperature=0 if seed is None else 0.9, seed=seed, logit_bias=OTHER_ENDS)
        await agent.answer(conversation, AnswerOptions(choice, 80, sampling), listen)
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in told
            if isinstance(call, CallClosed)
        ]
        content = "".join(event.text for event in told if isinstance(event, Content))
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "Sunny, 20 °C 🌞"} for call in calls]
        answer = {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}
        return [*messages, answer, *results]


@asynccontextmanager
async def gateway(path: Path, model: Path, *servers: UpstreamConfig, logprobs: bool) -> AsyncGenerator[Client]:
    config = GatewayConfig(
        upstreams=servers,
        prefix="always",
        engine=EngineConfig(kind="embedded", model=model),
        tokens=TokensConfig(map=str(packaged_model())),
        trajectories=TrajectoriesConfig(path, logprobs),
    )
    async with open_services(config) as services:
        yield Client(services)


def clock(says: Any, token_map: TokenMap) -> UpstreamConfig:
    """A leaf whose tool takes no arguments: a model of random weights would end none of free text."""
    text = "It is half past twelve in 東京."
    ids = {"map_id": token_map.map_id, "ids": token_map.encode(text)}
    leaf = says({"type": "text", "text": text, "_meta": {CODEC_META_KEY: ids}})
    return UpstreamConfig("time", command=leaf["command"], args=tuple(leaf["args"]))


def read(path: Path) -> Trajectories:
    with path.open(encoding="ascii") as lines:
        return read_trajectories(lines)


def digest_of(model: Path) -> str:
    return f"sha256:{hashlib.sha256(model.read_bytes()).hexdigest()}"


def masked(sample: Sample) -> list[int]:
    return [i for i, bit in zip(sample.completion_ids, sample.mask, strict=True) if bit]


async def test_conversation_of_both_kinds_of_tools_with_a_branch_is_what_the_engine_held(
    tmp_path: Path, one_layer: Path, says: Any, monkeypatch: pytest.MonkeyPatch, model_map: TokenMap
) -> None:
    heard, path = Overheard(monkeypatch), tmp_path / "trajectories.jsonl"
    question = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Weather in Bern 日本 🎉? <|im_end|>"},
    ]
    async with gateway(path, one_layer, clock(says, model_map), logprobs=True) as client:
        told = await client.ask(question, ToolChoice.named("weather"), 1)
        told = await client.ask(told, ToolChoice("none"), 2)
        told = [*told, {"role": "user", "content": "What time is it in Paris?"}]
        one = await client.ask(told, ToolChoice.named("time__say"))
        runs = len(heard.runs)
        await client.ask([*one, {"role": "user", "content": "Thanks."}], ToolChoice("none"), 4)
        await client.ask([*one, {"role": "user", "content": "Really?"}], ToolChoice("none"), 5)
    found = read(path)
    thanks, really = found.samples()

    assert [thanks.ids, really.ids] == [heard.held(runs), heard.held(runs + 1)]
    assert masked(thanks) == [i for ids in heard.sampled[: runs + 1] for i in ids]
    assert masked(really) == [i for ids in (*heard.sampled[:runs], heard.sampled[runs + 1]) for i in ids]
    assert thanks.prompt_ids == heard.runs[0][1]
    assert sum(len(each.ids) for each in found.answers.values()) == len(thanks.ids) + len(really.answer.ids)
    assert [s.tool for s in thanks.spans if s.source == "shim"] == ["weather"]
    assert {(s.tool, s.server) for s in thanks.spans if s.source == "leaf"} == {("time__say", "time")}
    at = 0
    for span in thanks.spans:
        if span.source == "user" and at < len(thanks.prompt_ids):
            assert model_map.decode(thanks.ids[at : at + span.ids]) == "Weather in Bern 日本 🎉? <|im_end|>"
        at += span.ids
    assert at == len(thanks.ids)
    assert all(end.timings.cache_n >= 0.9 * len(prompt) for _, prompt, _, end in heard.runs[1:-1])


async def test_logprobs_are_of_the_ids_that_were_sampled_and_change_none(
    tmp_path: Path, one_layer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Overheard(monkeypatch)
    samples: list[Sample] = []
    for asked in (True, False):
        path = tmp_path / f"{asked}.jsonl"
        async with gateway(path, one_layer, logprobs=asked) as client:
            await client.ask([{"role": "user", "content": "Say hello."}], ToolChoice("none"), 7)
        samples += read(path).samples()
    told, silent = samples
    trl, verl = for_trl([told]), for_verl(told)

    assert told.ids == silent.ids
    assert [run[0].logprobs for run in heard.runs] == [True, False]
    assert silent.logprobs is None
    assert told.logprobs is not None
    assert len(told.logprobs) == len(told.completion_ids) == len(told.mask)
    assert all(p is not None and p <= 0 for p in told.logprobs)
    assert any(p is not None and p < -0.01 for p in told.logprobs)
    assert trl["logprobs"] == [verl["response_logprobs"]] == [told.logprobs]
    assert for_trl([silent])["logprobs"] is for_verl(silent)["response_logprobs"] is None


async def test_line_names_map_and_model_and_is_its_owner_s_alone(tmp_path: Path, one_layer: Path) -> None:
    path = tmp_path / "trajectories.jsonl"
    async with gateway(path, one_layer, logprobs=False) as client:
        await client.ask([{"role": "user", "content": "Hello."}], ToolChoice("none"), 1)
    line = json.loads(path.read_text())

    assert line["model_digest"] == digest_of(one_layer)
    assert line["map"].startswith("sha256:")
    assert line["principal"] == "anonymous"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
