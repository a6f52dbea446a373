"""Compaction with the client of Anthropic's API: at a threshold, on demand, and what is sent back."""

import json
from typing import Any

import pytest

pytestmark = pytest.mark.anyio

BODY: dict[str, Any] = {"model": "any", "max_tokens": 500, "system": "You are short."}
LONG = ("word " * 500).strip()
TALK: list[dict[str, Any]] = [
    {"role": "user", "content": f"Remember this: {LONG}"},
    {"role": "assistant", "content": "I will."},
    {"role": "user", "content": "What was it?"},
]


def edit(tokens: int, **more: Any) -> dict[str, Any]:
    trigger = {"type": "input_tokens", "value": tokens}
    return {"edits": [{"type": "compact_20260112", "trigger": trigger, **more}]}


async def answered(site: Any, *, streams: bool = False, **asked: Any) -> Any:
    if not streams:
        return await site.client.beta.messages.create(**asked)
    async with site.client.beta.messages.stream(**asked) as stream:
        return await stream.get_final_message()


@pytest.mark.parametrize("streams", [False, True])
async def test_long_conversation_is_summed_up_behind_what_is_held_and_goes_on_from_the_summary(site, streams) -> None:
    asked = {**BODY, "messages": TALK[:1]}
    site.says("I will.")
    await answered(site, **asked)
    asked |= {"messages": TALK, "context_management": edit(1000)}
    site.says("A long word list.", "Words.")
    message = await answered(site, streams=streams, **asked)

    before, summing, after = site.engine.prompts
    assert summing.startswith(f"{before}I will.")
    assert [block.type for block in message.content] == ["compaction", "text"]
    summary, text = message.content
    assert "A long word list." in summary.content
    assert summary.content.endswith("What was it?")
    assert f"user\n{summary.content}<|im_end|>" in after
    assert after.startswith(before[: before.index("Remember")])
    assert LONG not in after
    assert (text.text, message.stop_reason) == ("Words.", "end_turn")
    assert [each.type for each in message.usage.iterations] == ["compaction", "message"]
    assert streams or message.codec["compaction"]["cached"] == 5

    echoed = [block.model_dump() for block in message.content]
    asked["messages"] = [*TALK, {"role": "assistant", "content": echoed}, {"role": "user", "content": "Thanks."}]
    site.says("Welcome.")
    again = await answered(site, **asked)

    assert [block.type for block in again.content] == ["text"]
    assert site.engine.prompts[-1].startswith(f"{after}Words.")


async def test_client_that_sends_only_what_follows_the_summary_goes_on_from_the_same_ids(site) -> None:
    asked = {**BODY, "messages": TALK, "context_management": edit(1000)}
    site.says("A long word list.", "Words.")
    message = await answered(site, **asked)
    echoed = [block.model_dump() for block in message.content]
    rest = [{"role": "assistant", "content": echoed}, {"role": "user", "content": "Thanks."}]
    site.says("Welcome.", "Welcome.")
    await answered(site, **{**asked, "messages": [*TALK, *rest]})
    await answered(site, **{**asked, "messages": rest})

    whole, short = site.engine.prompts[-2:]
    assert whole == short


async def test_pause_ends_with_the_summary_and_the_next_request_answers_what_was_asked(site) -> None:
    asked = {**BODY, "messages": TALK, "context_management": edit(1000, pause_after_compaction=True)}
    site.says("A long word list.")
    message = await answered(site, **asked)

    assert [block.type for block in message.content] == ["compaction"]
    assert message.stop_reason == "compaction"
    assert len(site.engine.prompts) == 1

    echoed = [block.model_dump() for block in message.content]
    site.says("Words.")
    answer = await answered(site, **{**asked, "messages": [*TALK, {"role": "assistant", "content": echoed}]})

    assert answer.content[0].text == "Words."
    assert site.engine.prompts[-1].endswith("What was it?<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize("streams", [False, True])
async def test_summary_on_demand_is_alone_and_stands_first_in_the_next_request(site, streams) -> None:
    asked = {**BODY, "messages": TALK[:2]}
    body = {"compaction": {"type": "summarize", "instructions": "Be terse."}}
    site.says("A list.")
    message = await answered(site, streams=streams, **asked, extra_body=body)

    assert "Be terse." in site.engine.prompts[-1]
    (summary,) = message.content
    assert (summary.type, message.stop_reason, message.usage.output_tokens) == ("compaction", "compaction", 0)
    assert [each.type for each in message.usage.iterations] == ["compaction"]

    site.says("Hello.")
    head = {"role": "assistant", "content": [summary.model_dump()]}
    await answered(site, **{**asked, "messages": [head, {"role": "user", "content": "And now?"}]})

    assert site.engine.prompts[-1].endswith("And now?<|im_end|>\n<|im_start|>assistant\n")
    assert site.engine.prompts[-1].count("<|im_start|>user") == 1


async def test_conversation_below_the_threshold_is_answered_as_it_is(site) -> None:
    site.says("Words.")
    message = await answered(site, **BODY, messages=TALK, context_management=edit(3000))

    assert [block.type for block in message.content] == ["text"]
    assert message.usage.iterations is None


async def test_threshold_above_the_context_means_a_context_that_is_nearly_full(small_site) -> None:
    async with small_site(context=2800) as site:
        site.says("A list.", "Words.")
        talk = [{"role": "user", "content": LONG * 2}, *TALK[1:]]
        message = await answered(site, **{**BODY, "max_tokens": 50}, messages=talk, context_management=edit(150_000))

    assert [block.type for block in message.content] == ["compaction", "text"]


async def test_question_that_does_not_fit_any_more_is_answered_behind_a_summary(small_site) -> None:
    async with small_site(context=2000) as site:
        talk = [*TALK[:2], {"role": "user", "content": "x" * 1000}]
        with pytest.raises(Exception, match="prompt is too long"):
            await answered(site, **{**BODY, "max_tokens": 50}, messages=talk)
        site.says("A list.", "Words.")
        message = await answered(site, **{**BODY, "max_tokens": 50}, messages=talk, context_management=edit(150_000))

    assert message.content[0].content.endswith("x" * 1000)
    assert message.content[1].text == "Words."


async def test_results_of_calls_are_summed_up_with_their_calls_and_the_question_is_kept(site) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": LONG}
    talk = [
        {"role": "user", "content": "Look for it."},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    tool = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}
    site.says("Looked: words.", "Found.")
    message = await answered(site, **BODY, messages=talk, tools=[tool], context_management=edit(1000))

    assert message.content[0].content.endswith("Looked: words.\n\nThe user's last message was:\n\nLook for it.")
    assert LONG in site.engine.prompts[0]
    assert LONG not in site.engine.prompts[1]


async def test_second_summary_quotes_the_question_and_not_the_first_summary(site) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": LONG}
    tool = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}
    asked = {**BODY, "tools": [tool], "context_management": edit(1000)}
    site.says("One.", "Yes.")
    first = await answered(site, **asked, messages=TALK)
    turn = [first.content[0].model_dump(), {"type": "text", "text": "Yes."}, call]
    site.says("Two.", "Done.")
    history = [{"role": "assistant", "content": turn}, {"role": "user", "content": [result]}]
    second = await answered(site, **asked, messages=[*TALK, *history])

    assert "One." not in second.content[0].content
    assert second.content[0].content.endswith("Two.\n\nThe user's last message was:\n\nWhat was it?")


async def test_model_that_writes_no_summary_loses_nothing(site) -> None:
    site.says("", "Words.")
    message = await answered(site, **BODY, messages=TALK, context_management=edit(1000))

    assert message.content[0].content is None
    assert message.content[1].text == "Words."
    assert LONG in site.engine.prompts[-1]

    echoed = [block.model_dump() for block in message.content]
    site.says("Again.")
    history = [*TALK, {"role": "assistant", "content": echoed}, {"role": "user", "content": "Thanks."}]
    await answered(site, **BODY, messages=history)
    assert LONG in site.engine.prompts[-1]


async def test_found_tools_are_defined_again_behind_the_summary(site) -> None:
    schema = {"type": "object", "properties": {}}
    rain = {"name": "get_rain", "description": "Tells of rain", "input_schema": schema, "defer_loading": True}
    look = {"name": "look_up", "description": "Looks for tools", "input_schema": schema}
    call = {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {}}
    found = [{"type": "tool_reference", "tool_name": "get_rain"}]
    talk = [
        {"role": "user", "content": f"Rain? {LONG}"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": found}]},
    ]
    asked = {**BODY, "tools": [look, rain], "context_management": edit(1000)}
    site.says("It was about rain.", "Let me see.")
    message = await answered(site, **asked, messages=talk)

    assert [each.tool.name for each in message.content[0].tool_changes] == ["get_rain"]
    assert site.engine.prompts[-1].count("Tells of rain") == 1

    echoed = [block.model_dump() for block in message.content]
    before = site.engine.prompts[-1]
    site.says("Yes.")
    await answered(
        site,
        **asked,
        messages=[*talk, {"role": "assistant", "content": echoed}, {"role": "user", "content": "So?"}],
    )
    assert site.engine.prompts[-1].startswith(f"{before}Let me see.")


@pytest.mark.parametrize("streams", [False, True])
async def test_call_in_place_of_a_summary_is_no_summary_and_is_not_made(site, streams) -> None:
    call = '<tool_call>\n{"name": "say", "arguments": {}}\n</tool_call>'
    site.says(call, "", "Words.")
    message = await answered(site, streams=streams, **BODY, messages=TALK, context_management=edit(1000))

    assert [block.type for block in message.content] == ["compaction", "text"]
    assert message.content[0].content is None
    assert "It is late." not in "".join(site.engine.prompts)
    assert LONG in site.engine.prompts[-1]


async def test_call_of_the_clients_tool_is_no_summary(site) -> None:
    tool = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}
    call = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
    site.says(f"Let me look. {call}", "Words.")
    message = await answered(site, **BODY, messages=TALK, tools=[tool], context_management=edit(1000))

    assert message.content[0].content is None
    assert message.content[1].text == "Words."


async def test_summary_that_its_limit_cuts_ends_with_a_sentence(small_site) -> None:
    async with small_site(context=4000) as site:
        site.says("First one. " * 300, "Words.")
        message = await answered(site, **BODY, messages=TALK, context_management=edit(1000))

    told = message.content[0].content.partition("\n\n")[2].partition("\n\n")[0]
    assert told.endswith("First one.")
    assert len(told) > 400


async def test_summary_that_the_context_cuts_is_none(small_site) -> None:
    async with small_site(context=1780) as site:
        site.says("First one. " * 100, "Words.")
        message = await answered(site, **{**BODY, "max_tokens": 20}, messages=TALK, context_management=edit(1000))

    assert message.content[0].content is None
    assert message.content[1].text == "Words."


async def test_context_without_room_for_the_instruction_is_answered_as_it_is(small_site) -> None:
    async with small_site(context=1450) as site:
        site.says("Words.")
        message = await answered(site, **{**BODY, "max_tokens": 20}, messages=TALK, context_management=edit(1000))

    assert [block.type for block in message.content] == ["text"]


async def test_all_that_is_said_behind_the_last_answer_is_answered(site) -> None:
    talk = [*TALK[:2], {"role": "user", "content": "One?"}, {"role": "system", "content": "Note."}]
    talk += [{"role": "user", "content": "Two?"}]
    site.says("A list.", "Words.")
    message = await answered(site, **BODY, messages=talk, context_management=edit(1000))

    assert message.content[0].content.endswith("One?\n\nTwo?")
    assert "Note." in site.engine.prompts[-1]


async def test_long_words_are_quoted_by_their_beginning(site) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    tool = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": LONG}
    beside = {"type": "text", "text": "<system-reminder>Be good.</system-reminder>"}
    talk = [
        {"role": "user", "content": f"Look for it. {LONG}"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result, beside]},
    ]
    site.says("Looked: words.", "Found.")
    message = await answered(site, **BODY, messages=talk, tools=[tool], context_management=edit(1000))

    quoted = message.content[0].content.partition("The user's last message was:\n\n")[2]
    assert quoted.startswith("Look for it. word")
    assert "[...]" in quoted
    assert quoted.endswith(beside["text"])


async def test_results_that_no_longer_fit_are_quoted_in_the_summary_and_stay_there(small_site) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": 1}}
    tool = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "y" * 1500}
    talk = [
        *TALK[:2],
        {"role": "user", "content": "Look for it."},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    async with small_site(context=3000) as site:
        asked = {**BODY, "max_tokens": 50, "tools": [tool], "context_management": edit(150_000)}
        site.says("A list.", "Found.", "Welcome.")
        message = await answered(site, **asked, messages=talk)
        echoed = [block.model_dump() for block in message.content]
        talk += [{"role": "assistant", "content": echoed}, {"role": "user", "content": "Thanks."}]
        await answered(site, **asked, messages=talk)

    assert "y" * 1500 in message.content[0].content
    assert site.engine.prompts[-1].startswith(f"{site.engine.prompts[-2]}Found.")


@pytest.mark.parametrize("content", ["", None])
async def test_summary_without_a_text_and_nothing_else_is_refused_by_name(site, content) -> None:
    block = {"type": "compaction", "content": content}
    answer = await site.post({**BODY, "system": "", "messages": [{"role": "assistant", "content": [block]}]})

    assert answer.status_code == 400
    assert "summary without a text" in answer.json()["error"]["message"]


async def test_summary_in_other_words_than_ours_is_joined_with_what_follows(site) -> None:
    head = {"role": "user", "content": [{"type": "compaction", "content": "They spoke of words."}]}
    site.says("Words.")
    await answered(site, **BODY, messages=[*TALK, head, {"role": "user", "content": "And now?"}])

    assert site.engine.prompts[-1].count("<|im_start|>user") == 1
    assert "They spoke of words." in site.engine.prompts[-1]


SCHEMA = {"type": "object", "properties": {}}
RAIN = {"name": "get_rain", "description": "Tells of rain", "input_schema": SCHEMA, "defer_loading": True}
LOOK = {"name": "look_up", "description": "Looks for tools", "input_schema": SCHEMA}
SEARCH = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}


def written(name: str, **arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


async def talk_with_found_tool(site: Any, way: str) -> tuple[list[Any], list[Any]]:
    """A conversation in which the model has read the definition of a tool, and the tools of its requests."""
    question = {"role": "user", "content": f"Rain? {LONG}"}
    tools: list[Any] = [LOOK, RAIN] if way in ("reference", "addition") else [SEARCH, RAIN]
    if way == "addition":
        block = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "get_rain"}}
        return [question, {"role": "system", "content": [block]}, TALK[1]], tools
    if way == "reference":
        call = {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {}}
        found = [{"type": "tool_reference", "tool_name": "get_rain"}]
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": found}
        talk = [question, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        return [*talk, TALK[1]], tools
    site.says(written(SEARCH["name"], query="rain") if way == "search" else written("get_rain"), "Found it.")
    message = await answered(site, **BODY, tools=tools, messages=[question])
    return [question, {"role": "assistant", "content": [block.model_dump() for block in message.content]}], tools


@pytest.mark.parametrize("way", ["search", "guess", "reference", "addition"])
async def test_tool_that_was_found_can_be_called_behind_a_summary_on_demand(site, way) -> None:
    talk, tools = await talk_with_found_tool(site, way)
    site.says("A list.")
    body = {"compaction": {"type": "summarize"}}
    summed = await answered(site, **BODY, tools=tools, messages=talk, extra_body=body)
    head = {"role": "assistant", "content": [summed.content[0].model_dump()]}
    site.says(written("get_rain"))
    message = await answered(site, **BODY, tools=tools, messages=[head, TALK[2]])

    assert site.engine.prompts[-1].count("Tells of rain") == 1
    assert [(block.type, block.name) for block in message.content] == [("tool_use", "get_rain")]


async def test_tool_that_a_result_found_which_no_longer_fits_is_defined_behind_the_summary(small_site) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {}}
    found = [{"type": "tool_reference", "tool_name": "get_rain"}, {"type": "text", "text": "z " * 900}]
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": found}
    talk = [
        *TALK[:2],
        {"role": "user", "content": "Will it rain?"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    async with small_site(context=3400) as site:
        asked = {**BODY, "max_tokens": 100, "tools": [LOOK, RAIN], "context_management": edit(150_000)}
        site.says("A list.", written("get_rain"))
        message = await answered(site, **asked, messages=talk)

    assert [block.type for block in message.content] == ["compaction", "tool_use"]
    assert [each.tool.name for each in message.content[0].tool_changes] == ["get_rain"]


async def test_summary_right_behind_a_search_continues_what_is_held(site) -> None:
    """The definitions that were just found do not change the prompt before them (coder/coder #29436)."""
    asked = {**BODY, "tools": [LOOK, RAIN], "context_management": edit(1000)}
    talk: list[Any] = [{"role": "user", "content": f"Rain? {LONG}"}]
    site.says(written("look_up"), "It was about rain.", written("get_rain"))
    first = await answered(site, **asked, messages=talk)
    found = [{"type": "tool_reference", "tool_name": "get_rain"}]
    result = {"type": "tool_result", "tool_use_id": first.content[0].id, "content": found}
    talk += [{"role": "assistant", "content": [first.content[0].model_dump()]}, {"role": "user", "content": [result]}]
    second = await answered(site, **asked, messages=talk)

    before, summing, after = site.engine.prompts
    assert summing.startswith(before)
    assert summing.count("Tells of rain") == after.count("Tells of rain") == 1
    assert [block.type for block in second.content] == ["compaction", "tool_use"]


@pytest.mark.parametrize("keeps", [True, False])
async def test_handle_of_a_large_result_can_be_read_behind_a_block(small_site, keeps) -> None:
    says = "\n".join(f"{n}: nothing" for n in range(2000))
    question: list[Any] = [{"role": "user", "content": "Look."}]
    async with small_site(context=60_000, says=says) as site:
        site.says(written("say"), "It is long.")
        first = await answered(site, **BODY, messages=question)
        (handle,) = [each["kept"]["handle"] for each in first.codec["tool_results"]]
        talk = [*question, {"role": "assistant", "content": first.content[0].text}]
        site.says("A list.")
        summed = await answered(site, **BODY, messages=talk, extra_body={"compaction": {"type": "summarize"}})
        head = {"role": "assistant", "content": [summed.content[0].model_dump()]}
        site.says(written("codec_read_result", handle=handle, lines="1501"), "So it is.")
        last = await answered(site, **BODY, messages=[*(talk if keeps else ()), head, TALK[2]])

    assert f"- {handle}: " in summed.content[0].content
    assert last.codec["tool_results"][0]["text"].startswith("1500: nothing")
