"""Conversations that come back: what the model lived stands in the next prompt, whatever the client makes of it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest

from gateway.agent import AnswerOptions
from gateway.agent.events import Finished
from gateway.agent.figures import reuse_of
from gateway.config import LimitsConfig
from gateway.context.memory import RequestFigures
from gateway.context.memory.remembered import NO_ENGINE
from gateway.engine.interface import Message
from gateway.errors import EngineUnavailable
from gateway.proxy.caller import Principal
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed, Content
from leaf_sdk.testing import tiny_map

pytestmark = pytest.mark.anyio

TINY = tiny_map()
QUESTION: list[Message] = [{"role": "user", "content": "What is it?"}]
SAY = '<tool_call>{"name":"up__say",   "arguments":{}}</tool_call>'
PAINT = ToolSpec("paint", "Paint", {"type": "object", "properties": {"size": {"type": "number", "default": 3}}})
RED = '<tool_call>{"name": "paint", "arguments": {"colour":"red",  "of": 20.0}}</tool_call>'


async def answered(stage: Any, messages: Sequence[Message], **asked: Any) -> Message:
    """The answer as a client gets it. `choice`, `stops` and the like are its options."""
    stage.events.clear()
    tools = asked.pop("tools", ())
    principal = asked.pop("principal", Principal("a"))
    conversation = await stage.agent.open(messages, client_tools=tools, principal=principal)
    await stage.agent.answer(conversation, AnswerOptions(**asked), stage.listen)
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in stage.of(CallClosed)
    ]
    content = "".join(event.text for event in stage.of(Content))
    return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}


def prompts(stage: Any) -> list[list[int]]:
    return [list(request.prompt) for request in stage.engine.asked]


def begins(longer: Sequence[int], shorter: Sequence[int]) -> bool:
    return list(longer[: len(shorter)]) == list(shorter)


async def test_request_that_comes_the_moment_an_answer_is_complete_finds_it(open_stage):
    found: list[bool] = []
    async with open_stage("It is 42.") as stage:

        async def listen(event: object) -> None:
            if isinstance(event, Finished):
                answer = {"role": "assistant", "content": "It is 42."}
                later = await stage.agent.open([*QUESTION, answer, *QUESTION], principal=Principal("a"))
                found.append(later.continuation.before is not None)

        conversation = await stage.agent.open(QUESTION, principal=Principal("a"))
        await stage.agent.answer(conversation, AnswerOptions(), listen)

    assert found == [True]


async def test_calls_of_the_gateway_are_not_told_and_come_back_with_their_results(open_stage):
    async with open_stage(SAY, "It is 42, I hear.", "Yes.") as stage:
        answer = await answered(stage, QUESTION)
        await answered(stage, [*QUESTION, answer, {"role": "user", "content": "Sure?"}])

    _, second, third = prompts(stage)
    assert answer == {"role": "assistant", "content": "It is 42, I hear."}
    assert begins(third, [*second, *TINY.encode("It is 42, I hear.")])
    assert SAY in TINY.decode(third)


def reordered(call: dict[str, Any]) -> dict[str, Any]:
    arguments = json.loads(call["function"]["arguments"])
    return {**call, "function": {**call["function"], "arguments": json.dumps(dict(reversed(arguments.items())))}}


def with_default_and_integer(call: dict[str, Any]) -> dict[str, Any]:
    arguments = {**json.loads(call["function"]["arguments"]), "of": 20, "size": 3}
    return {**call, "function": {**call["function"], "arguments": json.dumps(arguments)}}


def with_another_id(call: dict[str, Any]) -> dict[str, Any]:
    return {**reordered(call), "id": "chosen"}


@pytest.mark.parametrize("echo", [reordered, with_default_and_integer, with_another_id])
async def test_call_that_a_client_rewrites_keeps_the_models_ids(open_stage, echo: Callable[[Any], Any]):
    async with open_stage(RED, "Done.") as stage:
        answer = await answered(stage, QUESTION, tools=[PAINT])
        call = echo(answer["tool_calls"][0])
        result = {"role": "tool", "tool_call_id": call["id"], "content": "painted"}
        echoed = {"role": "assistant", "content": None, "tool_calls": [call]}
        await answered(stage, [*QUESTION, echoed | {"content": ""}, result], tools=[PAINT])

    first, second = prompts(stage)
    assert begins(second, [*first, *TINY.encode(RED, specials=True)])
    assert "painted" in TINY.decode(second[len(first) :])


@pytest.mark.parametrize(
    "arguments", ['{"colour": "blue", "of": 20.0}', '{"colour": "red"}', '{"colour": "red", "of": 20, "size": 4}']
)
async def test_call_that_a_client_edits_is_another_history(open_stage, arguments: str):
    async with open_stage(RED, "Done.") as stage:
        answer = await answered(stage, QUESTION, tools=[PAINT])
        call = answer["tool_calls"][0]
        edited = {**call, "function": {"name": "paint", "arguments": arguments}}
        result = {"role": "tool", "tool_call_id": call["id"], "content": "painted"}
        await answered(stage, [*QUESTION, {**answer, "tool_calls": [edited]}, result], tools=[PAINT])

    assert not begins(prompts(stage)[1], [*prompts(stage)[0], *TINY.encode(RED, specials=True)])
    (told,) = stage.of(RequestFigures)
    assert (told.reason, told.recall_miss.message) == ("client_changed", 1)


async def test_nobody_goes_on_from_the_conversation_of_another(open_stage):
    async with open_stage(SAY, "It is 42.", "Yes.") as stage:
        answer = await answered(stage, QUESTION, principal=Principal("a"))
        history = [*QUESTION, answer, {"role": "user", "content": "Sure?"}]
        await answered(stage, history, principal=Principal("b"))

    assert SAY not in TINY.decode(prompts(stage)[2])
    (told,) = stage.of(RequestFigures)
    assert (told.reason, told.held) == ("not_seen_before", 0)


async def test_answers_to_one_question_are_branches_and_the_client_chooses(open_stage):
    one, two = "It is <one>.", "It is <two>."
    async with open_stage(one, two, "Good.") as stage:
        answers = [await answered(stage, QUESTION) for _ in range(2)]
        await answered(stage, [*QUESTION, answers[0], {"role": "user", "content": "Sure?"}])

    assert begins(prompts(stage)[2], [*prompts(stage)[0], *TINY.encode(one)])


async def test_answer_that_a_stop_string_ended_goes_on_where_its_client_saw_it_end(open_stage):
    async with open_stage("One two END three", "Four.") as stage:
        answer = await answered(stage, QUESTION, stops=("END",))
        await answered(stage, [*QUESTION, answer, {"role": "user", "content": "And?"}])

    assert answer["content"] == "One two "
    first, second = prompts(stage)
    assert TINY.decode(second[len(first) :]).startswith("One two <|im_end|>")


async def test_ids_behind_a_stop_string_are_not_missed_in_the_cache(open_stage):
    async with open_stage("One two END three", "Four.") as stage:
        answer = await answered(stage, QUESTION, stops=("END",))
        history = [*QUESTION, answer, {"role": "user", "content": "And?"}]
        conversation = await stage.agent.open(history, principal=Principal("a"))
        told = reuse_of(conversation, conversation.continuation.kept, conversation.continuation.kept)

    assert (told.reason, told.held) == (None, conversation.continuation.kept)


async def test_conversation_under_an_option_of_the_template_continues_none_without_it(open_stage):
    async with open_stage("One.", tools_template="{{ enable_thinking }}") as stage:
        answer = await answered(stage, QUESTION)
        history = [*QUESTION, answer, {"role": "user", "content": "And?"}]
        apply = stage.engine.apply_template
        stage.engine.apply_template = lambda messages, tools=(), options=None: apply(messages, tools)
        plain = await stage.agent.open(history, principal=Principal("a"))
        other = await stage.agent.open(history, principal=Principal("a"), options={"enable_thinking": True})

    assert plain.continuation.before is not None
    assert other.continuation.before is None


async def test_answer_whose_stream_broke_goes_on_from_what_came(open_stage):
    async with open_stage("One two three", "Four.", breaks=True) as stage:
        with pytest.raises(EngineUnavailable):
            await answered(stage, QUESTION)
        came = "".join(event.text for event in stage.of(Content))
        history = [*QUESTION, {"role": "assistant", "content": came}, {"role": "user", "content": "And?"}]
        conversation = await stage.agent.open(history, principal=Principal("a"))

    assert came
    assert conversation.continuation.before is not None


@pytest.mark.parametrize("said", ["", "Let me see. "])
@pytest.mark.parametrize("wrong", ["", ":1}}"])
async def test_call_of_the_gateway_that_can_not_be_read_is_part_of_what_was_lived(open_stage, said, wrong):
    async with open_stage(f"{said}{SAY[:45]}{wrong}", "Four.", "Five.") as stage:
        answer = await answered(stage, QUESTION)
        await answered(stage, [*QUESTION, answer, {"role": "user", "content": "And?"}])

    first, second, third = prompts(stage)
    told = stage.of(RequestFigures)[-1]
    assert answer["content"].split() == f"{said}Four.".split()
    assert TINY.decode(second[len(first) :]).startswith(f"{said}{SAY[:45]}{wrong}<|im_end|>")
    assert told.held == len(second) + len(TINY.encode("Four."))
    assert TINY.decode(third[len(second) :]).startswith("Four.<|im_end|>")


async def test_call_that_a_client_knows_of_and_that_broke_off_is_not_remembered(open_stage):
    async with open_stage(RED[:-20], "Four.") as stage:
        await answered(stage, QUESTION, tools=[PAINT])
        history = [*QUESTION, {"role": "assistant", "content": ""}, {"role": "user", "content": "And?"}]
        conversation = await stage.agent.open(history, client_tools=[PAINT], principal=Principal("a"))

    assert conversation.continuation.before is None


async def test_what_the_client_changes_in_the_system_text_is_named(open_stage):
    def asked(day: str) -> list[Message]:
        return [{"role": "system", "content": f"Today is {day}. Be brief."}, *QUESTION]

    async with open_stage("One.", "Two.") as stage:
        answer = await answered(stage, asked("Monday"))
        await answered(stage, [*asked("Tuesday"), answer, {"role": "user", "content": "And?"}])

    (told,) = stage.of(RequestFigures)
    assert told.reason == "client_changed"
    assert told.recomputed == told.held > 0
    assert (told.recall_miss.message, told.recall_miss.at) == (0, len("Today is "))
    assert (told.recall_miss.was, told.recall_miss.now) == ("Today is Monday. Be brief.", "Today is Tuesday. Be brief.")


@pytest.mark.parametrize(
    ("engine", "name", "reason"),
    [
        (None, "engine", "slot_taken"),
        (1_000_000, "engine", "engine_restarted"),
        (1_000_000, "second", "engine_moved"),
        (NO_ENGINE, "", "replica_moved"),
    ],
)
async def test_ids_that_the_engine_does_not_have_are_told_by_who_gave_the_answer_before(
    open_stage, engine: int | None, name: str, reason: str
):
    async with open_stage("One.", "Two.") as stage:
        answer = await answered(stage, QUESTION)
        history = [*QUESTION, answer, {"role": "user", "content": "And?"}]
        conversation = await stage.agent.open(history, principal=Principal("a"))
        conversation.continuation.before.engine = conversation.ready.number if engine is None else engine
        conversation.continuation.before.engine_name = name
        told = reuse_of(conversation, 0, 0)

    assert (told.reason, told.held) == (reason, conversation.continuation.before.held)


@pytest.mark.parametrize(("short", "reason"), [(0, "engine_rewound"), (1, "engine_rewound"), (2, "slot_taken")])
async def test_engine_that_reuses_less_than_the_slot_holds_has_rewound(open_stage, short: int, reason: str):
    async with open_stage("One.", "Two.") as stage:
        answer = await answered(stage, QUESTION)
        conversation = await stage.agent.open(
            [*QUESTION, answer, {"role": "user", "content": "And?"}], principal=Principal("a")
        )
        held = conversation.continuation.before.held
        told = [reuse_of(conversation, cached, held - short) for cached in (held, held - 1, 0)]

    assert [each.reason for each in told] == [None, reason, reason]


async def test_slot_that_another_conversation_took_is_told_apart_from_an_engine_that_rewound(open_stage):
    history, told = [*QUESTION], []
    async with open_stage("One.", "Two.", "Three.", "Four.") as stage:
        # The scripted engine has one slot and reuses nothing.
        for asked in (history, history, [{"role": "user", "content": "Something else entirely?"}], history):
            answer = await answered(stage, asked)
            told += [each.reason for each in stage.of(RequestFigures)]
            history += [answer, {"role": "user", "content": "And?"}] if asked is history else []

    assert told == ["engine_rewound", "slot_taken"]


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ("<think>So.</think>One.", "Two.", "reasoning_dropped"),
        ("One.", "<think>So.</think>Two.", "reasoning_dropped"),
        ("One.", "Two.", "template_rewrote"),
    ],
)
async def test_template_that_shows_less_than_was_lived_is_told_by_whether_the_model_thought(
    open_stage, first: str, second: str, reason: str
):
    history = list(QUESTION)
    async with open_stage(first, second) as stage:
        for _ in range(2):
            history += [await answered(stage, history), {"role": "user", "content": "And?"}]
        conversation = await stage.agent.open(history, principal=Principal("a"))
        kept = conversation.continuation.before.held - 1
        conversation.continuation = replace(conversation.continuation, kept=kept)
        told = reuse_of(conversation, 0, 0)

    assert (told.reason, told.held) == (reason, conversation.continuation.before.held)


async def test_forgotten_conversation_says_that_results_of_its_calls_are_lost(open_stage):
    long = "word " * 400
    async with open_stage(SAY, "It is 42.", *[long] * 8, "Yes.", memory_bytes=20_000) as stage:
        answer = await answered(stage, QUESTION)
        for number in range(8):
            await answered(stage, [{"role": "user", "content": f"Question {number}"}])
        await answered(stage, [*QUESTION, answer, {"role": "user", "content": "Sure?"}])

    (told,) = stage.of(RequestFigures)
    assert told.reason == "memory_full"
    assert told.recall_miss.results_lost


async def test_two_requests_of_one_conversation_at_once_both_go_on_from_it(open_stage):
    async with open_stage("One.", "Two.", "Two.") as stage:
        answer = await answered(stage, QUESTION)
        history = [*QUESTION, answer]
        async with anyio.create_task_group() as tasks:
            for word in ("this", "that"):
                tasks.start_soon(answered, stage, [*history, {"role": "user", "content": word}])

    first, *others = prompts(stage)
    assert all(begins(each, [*first, *TINY.encode("One.")]) for each in others)


async def test_the_bound_of_the_memory_is_a_setting():
    assert LimitsConfig().memory_bytes == 64 * 1024 * 1024
