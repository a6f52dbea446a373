"""Conversations over Anthropic's API that come back: its package against the real engine, echoes as agents write them.

Each request after the first finds all that the engine holds, and the usage of its answer says so.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import anthropic
import pytest

pytestmark = pytest.mark.engine

WEATHER = {
    "name": "weather",
    "description": "The weather of a city.",
    "input_schema": {
        "type": "object",
        # So few that no call is cut off.
        "properties": {"city": {"enum": ["Bern", "Rome"]}, "days": {"enum": [1, 2.0], "default": 1}},
        "required": ["city"],
    },
}
CALL, TALK = {"type": "tool", "name": "weather"}, {"type": "none"}
CHOICES = (CALL, TALK, CALL, CALL, TALK, TALK)
MARK = {"cache_control": {"type": "ephemeral"}}
Blocks = list[dict[str, Any]]


class Style:
    """How a client writes a conversation down: as it came."""

    streams = False
    fields: ClassVar[dict[str, Any]] = {}

    def answer(self, blocks: Blocks) -> Any:
        """An answer sent back."""
        return blocks

    def results(self, blocks: Blocks) -> Blocks:
        """Results of the calls of one answer."""
        return blocks

    def question(self, text: str) -> Any:
        return text

    def later(self, number: int) -> list[dict[str, Any]]:
        """What the client itself puts behind results."""
        return []

    def sent(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The conversation as it is in one request."""
        return messages


class ClaudeCode(Style):
    """Thinking comes back signed, keys in another order; marks move; system messages stand in between."""

    streams = True
    fields: ClassVar[dict[str, Any]] = {
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197.f00; cc_entrypoint=sdk-cli;"},
            {"type": "text", "text": "You are a coding agent.", **MARK},
        ],
        "thinking": {"type": "adaptive"},
        "extra_body": {
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "output_config": {"effort": "high"},
        },
    }

    def answer(self, blocks: Blocks) -> Any:
        return [_with_input(block, dict(sorted(block.get("input", {}).items(), reverse=True))) for block in blocks]

    def question(self, text: str) -> Any:
        return [{"type": "text", "text": "<system-reminder>Monday</system-reminder>"}, {"type": "text", "text": text}]

    def later(self, number: int) -> list[dict[str, Any]]:
        return [{"role": "system", "content": f"The task tools haven't been used ({number})."}] if number % 2 else []

    def sent(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        last = messages[-1]
        if last["role"] != "user":
            return messages
        blocks = [{"type": "text", "text": last["content"]}] if isinstance(last["content"], str) else last["content"]
        return [*messages[:-1], {**last, "content": [*blocks[:-1], {**blocks[-1], **MARK}]}]


class LangChain(Style):
    """No thinking; a list of one text becomes a string."""

    def answer(self, blocks: Blocks) -> Any:
        kept = [block for block in blocks if block["type"] != "thinking"]
        return kept[0]["text"] if [block["type"] for block in kept] == ["text"] else kept


class PydanticAi(Style):
    """Blocks without anything that is not asked for."""

    streams = True

    def answer(self, blocks: Blocks) -> Any:
        keys = {"type", "text", "id", "name", "input"}
        return [{key: value for key, value in block.items() if key in keys} for block in blocks]

    def results(self, blocks: Blocks) -> Blocks:
        return [{**block, "is_error": False, "content": block["content"][0]["text"]} for block in blocks]


class AiSdk(Style):
    """Arguments in the schema's order, with its defaults."""

    fields: ClassVar[dict[str, Any]] = {"system": [{"type": "text", "text": "Be brief."}]}

    def answer(self, blocks: Blocks) -> Any:
        properties = WEATHER["input_schema"]["properties"]
        defaults = {key: each["default"] for key, each in properties.items() if "default" in each}
        return [
            _with_input(block, {key: {**defaults, **block["input"]}[key] for key in properties})
            if block["type"] == "tool_use"
            else block
            for block in blocks
        ]


def _with_input(block: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    return {**block, "input": arguments} if block["type"] == "tool_use" else block


@contextmanager
def client_of(site: Any) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=site.url, auth_token="none", api_key=None, max_retries=0, timeout=240) as client:
        yield client


@pytest.fixture(scope="module")
def client(site: Any) -> Iterator[anthropic.Anthropic]:
    with client_of(site) as client:
        yield client


@pytest.fixture(scope="module")
def trained(trained_site: Any) -> Iterator[anthropic.Anthropic]:
    """For what needs a call whose text ends soon."""
    with client_of(trained_site) as client:
        yield client


def asked(client: anthropic.Anthropic, style: Style, **fields: Any) -> Any:
    given = {"model": "claude-any", "max_tokens": 40, "tools": [WEATHER], **style.fields, **fields}
    extra = {"temperature": 0.8, **given.pop("extra_body", {})}
    if not style.streams:
        return client.messages.create(**given, extra_body=extra)
    codec: Any = None
    with client.messages.stream(**given, extra_body=extra) as stream:
        for event in stream:
            codec = getattr(event, "codec", codec)
        message = stream.get_final_message()
    return message.model_copy(update={"codec": codec})


@pytest.mark.parametrize("make", [Style, ClaudeCode, LangChain, PydanticAi, AiSdk])
def test_next_request_finds_all_that_the_engine_holds(client: anthropic.Anthropic, make: Callable[[], Style]) -> None:
    style = make()
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": style.question(f"The weather in Bern and Rome, please ({make.__name__}).")}
    ]
    held: list[tuple[int, int, int]] = []
    for number, choice in enumerate(CHOICES):
        most = 12 if choice == TALK else 600
        message = asked(client, style, messages=style.sent(messages), tool_choice=choice, max_tokens=most)
        turns = message.codec["turns"]
        found = sum(turn["cache_n"] for turn in turns) - turns[0]["cache_n"]
        held.append((turns[0]["held"], turns[0]["cache_n"], message.usage.cache_read_input_tokens - found))
        blocks = [block.model_dump(exclude_none=True) for block in message.content]
        messages.append({"role": "assistant", "content": style.answer(blocks)})
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": [{"type": "text", "text": f"{n} °C"}]}
            for n, block in enumerate(blocks)
            if block["type"] == "tool_use"
        ]
        if results:
            messages.append({"role": "user", "content": style.results(results)})
        else:
            messages.append({"role": "user", "content": style.question(f"And tomorrow? ({number})")})
        messages += style.later(number)

    assert all(before for before, _, _ in held[1:])
    assert [found for _, found, _ in held[1:]] == [before for before, _, _ in held[1:]]
    assert [read for _, _, read in held[1:]] == [found for _, found, _ in held[1:]]


def test_what_the_gateway_ran_may_be_sent_back_or_left_out(trained: anthropic.Anthropic) -> None:
    for shown in (True, False):
        betas = ["mcp-client-2025-11-20"] if shown else []
        question = [{"role": "user", "content": f"The time in Tokyo, please ({shown})."}]
        # The likeliest city is a short one; others may be as long as the answer.
        given: dict[str, Any] = {"model": "any", "max_tokens": 120, "betas": betas, "extra_body": {"temperature": 0}}
        first = trained.beta.messages.create(
            **given,
            messages=question,
            tool_choice={"type": "tool", "name": "plain_time__get_time", "disable_parallel_tool_use": True},
            # So that it writes no words behind a call, which no template shows so.
            output_config={"format": {"type": "json_schema", "schema": {"enum": ["It is noon.", "It is late."]}}},
        )
        blocks = [block.model_dump(exclude_none=True) for block in first.content]
        echo = [*question, {"role": "assistant", "content": blocks}, {"role": "user", "content": "And now?"}]
        given["max_tokens"] = 8
        told = trained.beta.messages.create(**given, messages=echo, tool_choice={"type": "none"}).codec

        assert ("mcp_tool_use" in [block["type"] for block in blocks]) == shown
        # More where ids behind the last call were processed while it ran, and no answer came behind them.
        assert told["turns"][0]["cache_n"] >= told["turns"][0]["held"] > 0
        assert told["prompt"]["lost"] == 0


def test_sessions_share_all_behind_a_line_that_is_another_in_each(client: anthropic.Anthropic) -> None:
    def system(session: str) -> list[dict[str, Any]]:
        header = f"x-anthropic-billing-header: cc_version=2.1.197.{session}; cc_entrypoint=sdk-cli;"
        return [{"type": "text", "text": header}, {"type": "text", "text": "You are a coding agent of the best sort."}]

    question = [{"role": "user", "content": "Say something."}]

    def counted(session: str) -> int:
        given = {"model": "any", "system": system(session), "messages": question}
        return client.messages.count_tokens(**given).input_tokens

    first = client.messages.create(model="any", max_tokens=4, system=system("abc"), messages=question)
    second = client.messages.create(model="any", max_tokens=4, system=system("x" * 40), messages=question)

    assert counted("abc") == counted("x" * 40)
    # All but the last id, which the engine processes anew each time.
    assert second.usage.cache_read_input_tokens == second.usage.input_tokens + second.usage.cache_read_input_tokens - 1
    assert first.usage.input_tokens > 1


def test_every_later_request_counts_what_it_processes_as_cached_where_that_is_asked_for(
    client: anthropic.Anthropic,
) -> None:
    text = {"type": "text", "text": f"Say a word. {json.dumps(list(range(20)))}", **MARK}
    message = client.messages.create(model="any", max_tokens=4, messages=[{"role": "user", "content": [text]}])
    turn = message.codec["turns"][0]

    assert message.usage.cache_creation_input_tokens == turn["prompt_n"] > 0
    assert message.usage.input_tokens == 0


def test_answer_is_held_to_the_schema_that_a_title_is_asked_for_with(client: anthropic.Anthropic) -> None:
    schema = {
        "type": "object",
        "properties": {"title": {"enum": ["A walk", "A talk"]}},
        "required": ["title"],
        "additionalProperties": False,
    }
    message = client.messages.create(
        model="any",
        max_tokens=60,
        messages=[{"role": "user", "content": "A title, please."}],
        thinking={"type": "disabled"},
        # The gateway's own tools are there for every request: where one may be called, that may come first.
        tool_choice={"type": "none"},
        output_config={"format": {"type": "json_schema", "schema": schema}},
    )

    assert json.loads(message.content[0].text)["title"] in ("A walk", "A talk")
