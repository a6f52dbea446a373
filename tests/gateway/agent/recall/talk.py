"""A conversation with a model that writes what a test says, over a chat template that the real engine renders.

The model writes each turn as the template shows it when it is the last one, in a JSON style and in ids of its own: the
vocabulary has one merge, which this model never uses, so that held ids are told from ids that were made anew.
"""

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from itertools import cycle, pairwise
from typing import Any

from gateway.agent import Agent, AnswerOptions
from gateway.agent.events import AgentEvent
from gateway.config import LimitsConfig
from gateway.context.compose.conversation import Conversation
from gateway.context.history.client_messages import checked_messages
from gateway.context.history.template_messages import tool_definitions, with_preamble
from gateway.context.shared_conversations import SharedMemory
from gateway.engine.interface import (
    EngineFacts,
    Generated,
    GenerateRequest,
    GenerationEnd,
    GenerationEvent,
    Message,
    Timings,
    shared_prefix,
)
from gateway.engine.pool.pool import EnginePool
from gateway.engine.rendering.template import ChatTemplate
from gateway.engine.rendering.template_forms import histories
from gateway.engine.slots.allocation import SlotTable
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.engine.wire.llama_cpp_client import LlamaCpp
from gateway.errors import EngineRefused
from gateway.observe.metrics import Metrics
from gateway.toolcalls.formats.registry import call_text, choose_format, system_preamble
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed, Content, Reasoning
from leaf_sdk.vocab import TokenMap

TOOLS = tuple(
    ToolSpec(
        name,
        f"Tells about {name}",
        {"type": "object", "properties": {"value": {"type": "string", "description": "What"}}},
    )
    for name in ("get_weather", "list_files")
)
ENDS = (
    *("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|call|>", "<|calls|>", "<|end|>", "<|eot|>", "<no_eos>"),
    *("<|END_OF_TURN_TOKEN|>", "<seed:eos>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "<|role_end|>", "[e~["),
    *("<|message_sep|>", "<end_of_sentence>", "<SPECIAL_12>", "<|observation|>", "<|end_of_msg|>", "<|ifm|im_end|>"),
    *("</assistant>", "<sep>", "<｜hy_eos:opensource｜>", "<|tool_response>", "<end_of_turn>", "<turn|>", "<|return|>"),
    *("<|assistant_end|>", "<|tools_suffix|>", "]```", "<|user|>", "</s>"),
)
"""What ends a turn in one of the templates."""


@dataclass(frozen=True)
class Step:
    """What the model does in a turn."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    """Names of tools and what they are asked for."""

    @property
    def words(self) -> list[str]:
        return [word for word in (self.reasoning, self.content, *(value for _, value in self.calls)) if word]


@dataclass(frozen=True)
class Wrote:
    """A turn as it was written."""

    shown: str
    """The template's own text of it."""
    text: str
    ids: list[int]
    words: str = ""
    """What the model says and calls in it, where it is taught to call by the gateway."""


class ScriptedModel:
    """The engine of a template server, whose model writes what it is told."""

    def __init__(self, engine: LlamaCpp) -> None:
        self._engine = engine
        self.renderings = 0
        self.asked: list[list[int]] = []
        self.writes: list[tuple[list[int], int]] = []

    async def apply_template(self, messages: Sequence[Message], tools: Sequence[Any] = ()) -> str:
        self.renderings += 1
        return await self._engine.apply_template(messages, tools)

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncGenerator[AsyncIterator[GenerationEvent]]:
        self.asked.append(list(request.prompt))
        yield self._events(len(request.prompt), request.max_tokens)

    async def _events(self, prompt: int, most: int) -> AsyncIterator[GenerationEvent]:
        ids, end = self.writes.pop(0)
        written = [*ids, end]
        for token_id in written[:most]:
            yield Generated((token_id,))
        stopped = len(written) <= most
        timings = Timings(prompt, 0, len(ids), 0, 0)
        yield GenerationEnd("stop" if stopped else "length", end if stopped else None, timings)


class NoTools:
    """A proxy with no server behind it."""

    @property
    def offers(self) -> "NoTools":
        return self

    def entries(self, _: Any) -> tuple[()]:
        return ()

    def divide(self, *_: Any) -> tuple[tuple[ToolSpec, ...], dict[str, Any]]:
        return (), {}

    def server_of(self, _: str) -> None:
        return None

    def reader_of(self, _: Any) -> None:
        return None

    @asynccontextmanager
    async def running(self, *_: Any, **__: Any) -> AsyncGenerator["NoTools"]:
        yield self

    def start(self, *_: Any) -> None:
        pass

    async def finished(self, *_: Any) -> list[Any]:
        return []


class Route:
    def __init__(self, ready: ReadyEngine) -> None:
        self._ready = ready

    def ready(self) -> ReadyEngine:
        return self._ready

    def report_loss(self) -> None:
        raise AssertionError


async def at_rest(number: int) -> bool:
    return True


def compact(text: str) -> str:
    """The text with no blanks in its JSON."""
    return re.sub(r'(["\]}0-9el])([:,]) +(?=["\[{0-9tfn])', r"\1\2", text)


def wide(text: str) -> str:
    """The text with blanks wherever its JSON may have them."""
    return re.sub(r'"([:,]) *(?=["\[{])', r'"\1  ', text)


class Talk:
    """One conversation of one client."""

    def __init__(
        self, engine: LlamaCpp, facts: EngineFacts, token_map: TokenMap, style: Callable[[str], str] = compact
    ) -> None:
        self.engine = engine
        self.map = token_map
        self.style = style
        self.model = ScriptedModel(engine)
        facts = replace(facts, context=200_000)
        self.format = choose_format(
            facts.chat_template, supports_tools=facts.supports_tools, supports_calls=facts.supports_calls
        )
        template = ChatTemplate(self.model, facts, token_map)  # pyright: ignore[reportArgumentType]
        self.ready = ReadyEngine(
            self.model,  # pyright: ignore[reportArgumentType]
            facts,
            token_map,
            template,
            SlotTable(1, at_rest=at_rest),
            self.format,
        )
        self.agent = self.new_agent()
        self.restart()

    def new_agent(self, shared: SharedMemory | None = None) -> Agent:
        """One more replica's, on the same engine."""
        pool = EnginePool({"engine": Route(self.ready)})
        return Agent(pool, NoTools(), LimitsConfig(), Metrics(), shared=shared)  # pyright: ignore[reportArgumentType]

    def restart(self) -> None:
        """Begin another conversation."""
        self.client: list[dict[str, Any]] = []
        self.lived: list[dict[str, Any]] = []
        self.wrote: dict[int, Wrote] = {}
        """By their places among the lived messages."""
        self.held: list[int] = []

    async def ask(self, *messages: dict[str, Any]) -> Conversation:
        """The client's next request, with these messages behind what it has."""
        self.client += messages
        self.lived += messages
        return await self.agent.open(checked_messages(self.client), client_tools=TOOLS)

    async def answer(self, conversation: Conversation, step: Step, *, lost: bool = False) -> list[dict[str, Any]]:
        """The model's turn; gives results for its calls. `lost`: the client does not keep its reasoning."""
        wrote, end = await self._written(conversation, step)
        self.model.writes.append((wrote.ids, end))
        told: list[AgentEvent] = []

        async def listen(event: AgentEvent) -> None:
            told.append(event)

        await self.agent.answer(conversation, AnswerOptions(), listen)
        self.held = conversation.ids[: len(conversation.ids)]
        calls = [event for event in told if isinstance(event, CallClosed)]
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(event.text for event in told if isinstance(event, Content)),
        }
        if reasoning := "".join(event.text for event in told if isinstance(event, Reasoning)):
            message["reasoning_content"] = reasoning
        if calls:
            message["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in calls
            ]
        self.wrote[len(self.lived)] = wrote
        self.lived.append(message)
        self.client.append({k: v for k, v in message.items() if k != "reasoning_content"} if lost else message)
        return [
            {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": f"It is the {n}th."}
            for n, call in enumerate(calls)
        ]

    async def rendering(self, messages: Sequence[Message]) -> str:
        """The engine's own rendering of messages; late system messages are the user's where it does not show them."""
        late = next((n for n, message in enumerate(messages) if n and message["role"] == "system"), None)
        if late is None:
            return await self._as_they_are(messages)
        with suppress(EngineRefused):
            text = await self._as_they_are(messages)
            places = [text.find(messages[n]["content"]) for n in (late - 2, late, late + 1)]
            if -1 not in places and places == sorted(places):
                return text
        # Each stands behind an answer here, so that there is no other message for its words to go to.
        assert all(a["role"] == "assistant" for a, b in pairwise(messages) if b["role"] == "system")
        return await self._as_they_are([{**m, "role": "user"} if m["role"] == "system" else m for m in messages])

    async def _as_they_are(self, messages: Sequence[Message]) -> str:
        """The engine's own rendering of messages as they are, in the first form that it takes."""
        definitions = tool_definitions(TOOLS)
        if self.format.preamble:
            as_text = self.format.calls_as_text
            texts = [
                {"role": "assistant", "content": self.wrote[n].words} if as_text and n in self.wrote else message
                for n, message in enumerate(messages)
            ]
            messages, definitions = with_preamble(texts, self.format.format, TOOLS, calls_as_text=as_text), []
        refusal: EngineRefused | None = None
        for history in histories(messages):
            try:
                text = await self.engine.apply_template([message for _, message in history], definitions)
            except EngineRefused as error:
                refusal = refusal or error
                continue
            if any(m["role"] == "tool" for m in messages) and "It is the " not in text:
                continue
            return text
        assert refusal is not None
        raise refusal

    async def _written(self, conversation: Conversation, step: Step) -> tuple[Wrote, int]:
        prompt, words = self.map.decode(conversation.ids), self._words(step)
        if self.format.calls_as_text:
            opened = f"{step.reasoning}\n</think>\n\n" if prompt.rstrip().endswith("<think>") else ""
            shown, end = opened + words, "<no_eos>"
        else:
            shown, end = await self._own(prompt, step, words)
        text = self.style(shown)
        foreign = [word for word in step.words if any(mark in word for mark in self.map.special_texts)]
        wrote = Wrote(shown, text, self.ids(text, foreign), self.style(words))
        return wrote, self.map.special_tokens.get(end, self.map.special_tokens["<no_eos>"])

    def _words(self, step: Step) -> str:
        calls = [call_text(self.format.format, n, json.dumps({"value": v})) for n, v in step.calls]
        return "\n".join(filter(None, [step.content, *calls]))

    async def _own(self, prompt: str, step: Step, plain: str) -> tuple[str, str]:
        """The turn as the template shows it as the last one, and the token that ends it."""
        message: dict[str, Any] = {"role": "assistant", "content": step.content}
        if step.reasoning:
            message["reasoning_content"] = step.reasoning
        if step.calls:
            message["tool_calls"] = [
                {
                    "type": "function",
                    "id": f"a{len(self.lived):04d}b{n:03d}",
                    "function": {"name": name, "arguments": json.dumps({"value": value})},
                }
                for n, (name, value) in enumerate(step.calls)
            ]
        whole = await self.rendering([*self.lived, message])
        before = prompt
        for wrote in self.wrote.values():
            before = before.replace(wrote.text, wrote.shown)
        words = [word for word in step.words if word in whole]
        if not words or (step.calls and step.calls[-1][1] not in words):
            # It shows no calls, or not so many: the model makes them all the same.
            return plain, "<no_eos>"
        first = min(whole.rindex(word) for word in words)
        last = max(whole.rindex(word) + len(word) for word in words)
        end, token = min(
            ((at, token) for token in ENDS if (at := whole.find(token, last)) >= 0), default=(-1, "<no_eos>")
        )
        opening = whole[len(whole) - shared_prefix(whole[::-1], before[::-1]) :]
        opening = "".join(re.findall(r"[<\[〈].*", opening, re.DOTALL)[:1])
        stop = min(end if end >= 0 else len(whole), len(whole) - len(opening))
        token = token if stop == end else "<no_eos>"
        if token in ("<|tools_suffix|>", "]```"):
            stop, token = stop + len(token), "<no_eos>"
        told = str(self.lived[-1]["content"])
        low = max(whole.rfind(told, 0, first), whole.rfind(json.dumps(told)[1:-1], 0, first), 0)
        if (start := _behind(whole, before, low, first)) is not None:
            return whole[start:stop], token
        opened = re.search(r"(<(\w+)>|\[(THINK)\]|<\|(START_THINKING)\|>)\s*$", before)
        start = _behind(whole, before[: opened.start()], low, first) if opened else None
        if opened is None or start is None:
            return plain, token
        # The template does not show what it had opened: the model closes it.
        closed = "<|END_THINKING|>" if opened[4] else f"</{opened[2]}>" if opened[2] else "[/THINK]"
        shown = whole[start:stop].lstrip().removeprefix(opened[1])
        return f"{step.reasoning}\n{closed}\n\n{shown.lstrip().removeprefix(closed).lstrip()}", token

    def ids(self, text: str, foreign: Sequence[str] = ()) -> list[int]:
        """The ids of a text as this model writes it; `foreign`: parts of it that it writes in ordinary ids."""
        merged, pair = self.map.encode("he"), [*self.map.encode("h"), *self.map.encode("e")]
        ids: list[int] = []
        for part in re.split(f"({'|'.join(map(re.escape, foreign))})", text) if foreign else [text]:
            for token_id in self.map.encode(part, specials=part not in foreign):
                ids += pair if token_id == merged[0] else [token_id]
        return ids

    def own_ids(self, text: str) -> list[int]:
        """The ids of the template's own text."""
        before, taught, after = text.partition(
            system_preamble(self.format.format, TOOLS) if self.format.preamble else text
        )
        return [
            *self.map.encode(before, specials=True),
            *self.map.encode(taught, specials=not self.format.preamble),
            *self.map.encode(after, specials=True),
        ]


def _behind(whole: str, before: str, low: int, first: int) -> int | None:
    """Where the model's turn begins: behind the longest end of its prompt that stands before its first word."""
    for size in range(min(len(before), 40), 6, -1):
        if (at := whole.rfind(before[-size:], low, first)) >= 0:
            return at + size
    return None


class TalkOfReplicas(Talk):
    """The same, each request to another replica than the one before."""

    _agents: Iterator[Agent]

    def share(self, *memories: SharedMemory | None) -> None:
        """Begin with these replicas, by what each shares."""
        self._agents = cycle([self.new_agent(each) for each in memories])
        self.restart()

    async def ask(self, *messages: dict[str, Any]) -> Conversation:
        """As said."""
        self.agent = next(self._agents)
        return await super().ask(*messages)
