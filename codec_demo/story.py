"""The demo's story: one conversation with two questions, told twice on the same engine.

The first question is answered through a leaf tool, the second through a plain one; the token path and the text path
take turns going first, each in a slot of its own. Everything here is real: the model, the MCP servers, the ids. It
collects what happened and prints nothing.
"""

import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from codec_demo.text_path import TextPath
from gateway.agent import AnswerOptions, Conversation, ToolChoice
from gateway.agent.events import AgentEvent, GenerationFinished, ToolFinished
from gateway.app.services import Services, open_services
from gateway.config import EngineConfig, GatewayConfig, TokensConfig, UpstreamConfig
from gateway.engine.embedded.packaged_model import packaged_model
from gateway.engine.interface import Message, Sampling
from gateway.errors import UpstreamUnavailable
from gateway.toolcalls.formats.format import call_grammar
from gateway.toolcalls.stream.output_events import Content
from leaf_sdk.fetch import map_bytes
from leaf_sdk.vocab import map_digest

_MAX_TOKENS = 96
_GREEDY = Sampling(temperature=0, seed=1)


@dataclass(frozen=True, slots=True)
class Question:
    """What a person asks, and the tool that the first reply must call."""

    text: str
    tool: str


QUESTIONS = (
    Question("What time is it in Paris?", "time_leaf__get_current_time"),
    Question("And what time is it in Tokyo?", "plain_time__get_time"),
)


@dataclass(slots=True)
class Answered:
    """One question, answered on both paths."""

    question: Question
    answer: str = ""
    call: ToolFinished | None = None
    ids: list[int] = field(default_factory=list[int])
    """The ids of the result, as the conversation holds them."""
    turns: list[GenerationFinished] = field(default_factory=list[GenerationFinished])
    text_answer: str = ""


@dataclass(slots=True)
class Story:
    """What happened."""

    model: str
    map_id: str
    answered: list[Answered]
    text: TextPath
    shim_metrics: dict[str, Any]

    @property
    def turns(self) -> list[GenerationFinished]:
        """Every generation of the token path, in order."""
        return [turn for one in self.answered for turn in one.turns]


async def tell(progress: Callable[[str], None]) -> Story:
    """Start everything, hold the conversation on both paths, end everything. `progress` is told what is being done.

    Raises the gateway's own errors when a part can't be started.
    """
    async with _running(progress) as services:
        ready = services.engines.ready()
        history: list[Message] = [{"role": "user", "content": QUESTIONS[0].text}]
        conversation = await services.agent.open(history)
        asked = conversation.asked
        text = TextPath(ready, services.proxy, asked.format, asked.tools, slot=ready.slots.reserve())
        answered = [Answered(question) for question in QUESTIONS]
        for n, one in enumerate(answered):
            question = one.question
            progress(f"asking: {question.text}")
            if n:
                said = {"role": "assistant", "content": conversation.lived.shown.content}
                history += [said, {"role": "user", "content": question.text}]
                conversation = await services.agent.open(history)
            before = len(conversation.ids)
            grammar = call_grammar(asked.format, asked.tools, choice=question.tool)
            if n % 2:
                one.text_answer = await text.ask(question.text, grammar, _MAX_TOKENS)
                await _answer(services, conversation, one)
            else:
                await _answer(services, conversation, one)
                one.text_answer = await text.ask(question.text, grammar, _MAX_TOKENS)
            if one.call is not None:
                one.ids = _find(ready.token_map.encode(one.call.text), conversation.ids[before:])
        return Story(
            ready.facts.model, ready.token_map.map_id, answered, text, dict(services.metrics.get_shim_metrics())
        )


async def _answer(services: Services, conversation: Conversation, one: Answered) -> None:
    """Answer on the token path: by the gateway's own agent, as `POST /v1/chat/completions` uses it."""
    words: list[str] = []

    async def listen(event: AgentEvent) -> None:
        match event:
            case Content(text):
                words.append(text)
            case ToolFinished():
                one.call = event
                words.clear()
            case GenerationFinished():
                one.turns.append(event)
            case _:
                pass

    choice = ToolChoice.named(one.question.tool)
    await services.agent.answer(conversation, AnswerOptions(choice, _MAX_TOKENS, _GREEDY), listen)
    one.answer = "".join(words).strip()


def _find(ids: list[int], within: list[int]) -> list[int]:
    """These ids, if they stand there one after the other; else none."""
    starts = range(len(within) - len(ids) + 1)
    return ids if any(within[start : start + len(ids)] == ids for start in starts) else []


@asynccontextmanager
async def _running(progress: Callable[[str], None]) -> AsyncGenerator[Services]:
    with TemporaryDirectory(prefix="codec-demo-") as folder:
        progress("reading the model's tokenizer into a token map")
        data = map_bytes(packaged_model())
        path = Path(folder) / "map.json"
        path.write_bytes(data)
        progress("starting llama.cpp with SmolLM2-135M and two MCP servers")
        async with open_services(_config(path, map_digest(data))) as services:
            for server in services.proxy.statuses():
                if server.state != "up":
                    why = server.last_error or "it is still starting"
                    message = f"the demo's server {server.name!r} did not start: {why}; try again"
                    raise UpstreamUnavailable(message, server=server.name)
            yield services


def _config(map_path: Path, map_id: str) -> GatewayConfig:
    leaf = _server("time_leaf", {"CODEC_MAP_PATH": str(map_path), "CODEC_MAP_HASH": map_id})
    return replace(
        GatewayConfig(),
        upstreams=(leaf, _server("plain_time", {})),
        # Each path has a slot of its own; a cache between them would make the comparison unfair.
        engine=EngineConfig(kind="embedded", cache_mib=0),
        tokens=TokensConfig(map=str(map_path)),
    )


def _server(name: str, env: Mapping[str, str]) -> UpstreamConfig:
    return UpstreamConfig(name=name, command=sys.executable, args=("-m", name), env=env)
