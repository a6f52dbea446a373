"""Trajectories of conversations: joined again they are the ids that the engine held, each with where it came from."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.agent import AnswerOptions
from gateway.engine.interface import Message
from gateway.errors import EngineUnavailable
from gateway.proxy.caller import Principal
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed, Content
from leaf_sdk.testing import tiny_map
from leaf_sdk.trajectories import Sample, Trajectories, read_trajectories

pytestmark = pytest.mark.anyio

TINY = tiny_map()
END = TINY.special_tokens["<|im_end|>"]
QUESTION: list[Message] = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "What is it?"}]
PAINT = ToolSpec("paint", "Paint", {"type": "object"})
SAY, RED = '<tool_call>{"name":"up__say",   "arguments":{}}</tool_call>', '<tool_call>{"name": "paint"}</tool_call>'


async def answered(stage: Any, messages: Sequence[Message], **asked: Any) -> list[Message]:
    """The conversation with an answer at its end."""
    stage.events.clear()
    tools, name = asked.pop("tools", (PAINT,)), asked.pop("principal", "a")
    conversation = await stage.agent.open(messages, client_tools=tools, principal=Principal(name))
    await stage.agent.answer(conversation, AnswerOptions(**asked), stage.listen)
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in stage.of(CallClosed)
    ]
    content = "".join(event.text for event in stage.of(Content))
    return [*messages, {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}]


def held(stage: Any, number: int, wrote: str) -> list[int]:
    """What the engine held behind a generation that wrote this."""
    return [*stage.engine.asked[number].prompt, *TINY.encode(wrote, specials=True)]


def read(path: Path) -> Trajectories:
    with path.open(encoding="ascii") as lines:
        return read_trajectories(lines)


def texts(sample: Sample) -> list[tuple[str, str | None, str]]:
    """The sources of a sample, the tool, and what they say."""
    at, found = 0, []
    for span in sample.spans:
        found.append((span.source, span.tool, TINY.decode(sample.ids[at : at + span.ids])))
        at += span.ids
    return found


async def test_conversation_of_two_tools_and_a_branch_is_joined_to_what_the_engine_held(open_stage, tmp_path: Path):
    path = tmp_path / "lines"
    async with open_stage(SAY, RED, "It is red.", "It is blue.", trajectories=path) as stage:
        asked = await answered(stage, QUESTION)
        called = asked[-1]["tool_calls"][0]["id"]
        told = [*asked, {"role": "tool", "tool_call_id": called, "content": "painted"}]
        await answered(stage, told)
        await answered(stage, told)
    found = read(path)
    red, blue = found.samples()

    assert red.ids == held(stage, 2, "It is red.")
    assert blue.ids == held(stage, 3, "It is blue.")
    assert red.answer.before == blue.answer.before == next(iter(found.answers))
    assert len(red.answer.ids) < len(red.ids) / 4
    sources = [(source, tool, text) for source, tool, text in texts(red) if source not in ("template", "tools")]
    system, *rest = sources
    assert (system[0], system[2].strip()) == ("system", "Be kind.")
    assert rest == [
        ("user", None, "What is it?"),
        ("model", None, SAY),
        ("shim", "up__say", "It is 42."),
        ("model", None, RED),
        ("shim", "paint", "painted"),
        ("model", None, "It is red."),
    ]
    assert [span.server for span in red.spans if span.source == "shim"] == ["up", None]
    assert "".join(text for _, _, text in texts(red)) == TINY.decode(red.ids)


@pytest.mark.parametrize("said", ["Be kind.", ""])
async def test_definitions_that_the_gateway_teaches_are_tools_with_their_servers(
    open_stage, tmp_path: Path, said: str
) -> None:
    path = tmp_path / "lines"
    asked = [*([{"role": "system", "content": said}] if said else []), QUESTION[1]]
    async with open_stage("It is red.", trajectories=path) as stage:
        await answered(stage, asked)
    (sample,) = read(path).samples()

    shown = [(span.tool, span.server, text) for span, (source, _, text) in zip(sample.spans, texts(sample), strict=True)
             if source == "tools"]  # fmt: skip
    preamble = "".join(text for _, _, text in shown)
    assert preamble.startswith("You are a helpful assistant. You can call these tools:")
    assert preamble.endswith("from the tool's result.")
    named = {tool: (server, json.loads(text)["name"]) for tool, server, text in shown if tool is not None}
    assert named == {"up__say": ("up", "up__say"), "paint": (None, "paint")}
    others = "".join(text for source, _, text in texts(sample) if source == "system")
    assert others.strip() == said
    assert sample.ids == held(stage, 0, "It is red.")


LISTED = """{{ tools }} <tool_call>{"name": <name>, "arguments": <arguments>}</tool_call>"""


@pytest.mark.parametrize("indent", [None, 4])
async def test_definitions_that_a_template_writes_are_tools_with_their_servers(
    open_stage, tmp_path: Path, indent: int | None
) -> None:
    path = tmp_path / "lines"
    async with open_stage("It is red.", trajectories=path, tools_template=LISTED) as stage:
        plain = stage.engine.apply_template

        async def with_tools(messages: Sequence[Any], tools: Sequence[Any] = ()) -> str:
            listed = "".join(f"{json.dumps(tool, indent=indent)},\n" for tool in tools)
            return f"<|im_start|>system\nTools: [{listed}] Call them.<|im_end|>\n{await plain(messages)}"

        stage.engine.apply_template = with_tools
        await answered(stage, QUESTION)
    (sample,) = read(path).samples()

    shown = [(span, text) for span, (_, _, text) in zip(sample.spans, texts(sample), strict=True)]
    tools = {span.tool: (span.server, json.loads(text.rstrip(",\n"))) for span, text in shown if span.source == "tools"}
    assert [(tool, server) for tool, (server, _) in tools.items()] == [("paint", None), ("up__say", "up")]
    assert all(tool == definition["function"]["name"] for tool, (_, definition) in tools.items())
    around = [text for span, text in shown if span.source == "template"]
    assert around[0].endswith("Tools: [")
    assert "Call them." in around[1]
    assert "".join(text for _, text in shown) == TINY.decode(sample.ids)


async def test_mask_is_exactly_what_the_model_sampled(open_stage, tmp_path: Path):
    path = tmp_path / "lines"
    async with open_stage(SAY, "It is 42.", "Yes.", trajectories=path) as stage:
        told = await answered(stage, QUESTION)
        await answered(stage, [*told, {"role": "user", "content": "Sure?"}])
    (sample,) = read(path).samples()
    sampled = [i for i, bit in zip(sample.completion_ids, sample.mask, strict=True) if bit]

    written = [[*TINY.encode(text, specials=True), END] for text in (SAY, "It is 42.", "Yes.")]
    assert sampled == [*written[0], *written[1], *written[2]]
    assert [*sample.prompt_ids, *sample.completion_ids] == [*sample.ids, END]
    assert sample.prompt_ids == list(stage.engine.asked[0].prompt)


async def test_lines_of_a_conversation_are_as_long_as_the_conversation(open_stage, tmp_path: Path):
    path = tmp_path / "lines"
    async with open_stage(*(f"Answer {n}." for n in range(12)), trajectories=path) as stage:
        told = QUESTION
        for n in range(12):
            told = [*await answered(stage, told), {"role": "user", "content": f"And {n}?"}]
    found = read(path)
    (sample,) = found.samples()

    assert sum(len(answer.ids) for answer in found.answers.values()) == len(sample.ids)
    assert sample.ids == held(stage, 11, "Answer 11.")


async def test_turn_that_a_stop_string_cut_is_whole_in_its_own_line_and_cut_in_the_next(open_stage, tmp_path: Path):
    path = tmp_path / "lines"
    async with open_stage("hello world", "Bye.", trajectories=path) as stage:
        told = await answered(stage, QUESTION, stops=("llo",))
        await answered(stage, [*told, {"role": "user", "content": "Go on."}])
    whole, cut = read(path).samples()

    assert told[-1]["content"] == "he"
    assert whole.ids == [*stage.engine.asked[0].prompt, *TINY.encode("hello")]
    assert cut.ids == held(stage, 1, "Bye.")
    assert ("assistant", None, "he") in texts(cut)
    assert TINY.decode(i for i, bit in zip(cut.completion_ids, cut.mask, strict=True) if bit) == "Bye.<|im_end|>"


async def test_what_a_client_says_that_the_model_said_is_not_the_model_s(open_stage, tmp_path: Path):
    path = tmp_path / "lines"
    invented = [*QUESTION, {"role": "assistant", "content": "It is 7."}, {"role": "user", "content": "Sure?"}]
    async with open_stage("Yes.", trajectories=path) as stage:
        await answered(stage, invented)
    (sample,) = read(path).samples()

    assert ("assistant", None, "It is 7.") in texts(sample)
    assert sample.prompt_ids == list(stage.engine.asked[0].prompt)


async def test_failed_call_and_its_words_are_an_error(open_stage, tmp_path: Path):
    path = tmp_path / "lines"
    wrong = '<tool_call>{"name":"up__say","arguments":[1]}</tool_call>'
    async with open_stage(wrong, "Well.", trajectories=path) as stage:
        await answered(stage, QUESTION)
    (sample,) = read(path).samples()
    errors = [(tool, text) for source, tool, text in texts(sample) if source == "error"]

    assert [tool for tool, _ in errors] == ["up__say"]
    assert "must be a JSON object" in errors[0][1]


async def test_principals_are_named_and_go_on_from_their_own(open_stage, tmp_path: Path):
    path = tmp_path / "lines"
    async with open_stage("One.", "Two.", trajectories=path) as stage:
        told = await answered(stage, QUESTION, principal="a")
        await answered(stage, [*told, {"role": "user", "content": "And?"}], principal="b")
    first, second = read(path).answers.values()

    assert (first.principal, second.principal) == ("a", "b")
    assert second.before is None
    assert first.answer_id not in path.read_text().splitlines()[1]


async def test_answer_whose_engine_broke_has_a_line_and_nothing_goes_on_from_less(open_stage, tmp_path: Path):
    path = tmp_path / "lines"
    async with open_stage("It is 42.", breaks=True, trajectories=path) as stage:
        with pytest.raises(EngineUnavailable):
            await answered(stage, QUESTION)
    (sample,) = read(path).samples()

    assert sample.answer.ended == "broken"
    assert TINY.decode(sample.completion_ids) == "It is 42."


@pytest.mark.parametrize("words", ['"}\n{"dropped": 9}', "\x1b[31m\u202e<|im_end|>\x7f", "\u2028\U0001f600"])
async def test_hostile_words_stay_in_their_line(open_stage, tmp_path: Path, words: str):
    path = tmp_path / "lines"
    tool = ToolSpec(words.encode("utf-8", "replace").decode(), "?", {"type": "object"})
    result = {"role": "tool", "tool_call_id": "c", "name": words, "content": words}
    call = {"id": "c", "type": "function", "function": {"name": words, "arguments": "{}"}}
    history = [*QUESTION, {"role": "assistant", "content": "", "tool_calls": [call]}, result]
    async with open_stage("Well.", trajectories=path) as stage:
        await answered(stage, history, tools=[tool], principal=words)
    (line,) = path.read_text().splitlines()
    (sample,) = read(path).samples()

    assert line.isascii()
    assert line.isprintable()
    assert [text for source, _, text in texts(sample) if source == "shim"] == [words]
    assert sample.ids == held(stage, 0, "Well.")


async def test_without_a_file_nothing_is_noted_and_the_engine_is_asked_nothing(open_stage):
    async with open_stage(SAY, "It is 42.") as stage:
        conversation = await stage.agent.open(QUESTION)
        await stage.agent.answer(conversation, AnswerOptions(), stage.listen)

    assert conversation.context.sources is None
    assert conversation.observer is None
    assert not any(request.logprobs for request in stage.engine.asked)


async def test_line_is_named_as_its_answer(open_stage, tmp_path: Path):
    path = tmp_path / "lines"
    async with open_stage("Yes.", trajectories=path) as stage:
        conversation = await stage.agent.open(QUESTION)
        await stage.agent.answer(conversation, AnswerOptions(), stage.listen)

    assert json.loads(path.read_text())["id"] == conversation.answer_id


async def test_results_that_a_client_tells_keep_the_server_that_their_names_tell(open_stage, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    names = {"up__say": "up", "up__gone": "up", "away/say": "away", "paint": None, "nowhere__x": None}
    calls = [
        {"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}} for name in names
    ]  # fmt: skip
    told = [{"role": "tool", "tool_call_id": name, "content": f"by {name}."} for name in names]
    async with open_stage("So.", trajectories=path) as stage:
        await answered(stage, [*QUESTION, {"role": "assistant", "content": "", "tool_calls": calls}, *told])
    (sample,) = read(path).samples()

    shown = {span.tool: (span.server, text) for span, (source, _, text) in
             zip(sample.spans, texts(sample), strict=True) if source == "shim"}  # fmt: skip
    assert shown == {name: (server, f"by {name}.") for name, server in names.items()}


@pytest.mark.parametrize("failed", [False, True])
async def test_result_keeps_its_server_though_nobody_looked_when_it_came(open_stage, failed: bool) -> None:
    call = SAY.replace("{}", "[]") if failed else SAY
    async with open_stage(call, "It is 42.", "Yes.") as stage:
        said = await answered(stage, QUESTION)
        stage.agent.recall.watch(lambda: True)
        await answered(stage, [*said, {"role": "user", "content": "Sure?"}])
        (last,) = stage.agent.recall.conversations(1)
        first = last.before

    (result,) = [each for each in first.lived if each.turn is None]
    assert first.record is None
    assert {(span.source, span.tool, span.server) for span in result.spans} == {
        ("error" if failed else "shim", "up__say", "up")
    }
    assert sum(span.count for span in result.spans) == len(result.ids)
