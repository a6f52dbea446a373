"""Messages of Anthropic's API in the agent's terms: what an echo means, and the place of what can't be read."""

import json
from typing import Any

import pytest

from gateway.context.history.client_messages import MOST_MESSAGES, RETOLD
from gateway.context.memory import FOUND_TOOLS
from gateway.errors import RequestInvalid
from gateway.serve.messages.input_messages import read_messages
from tests.cases import each_of

ASK = {"role": "user", "content": "hi"}
MARK = {"cache_control": {"type": "ephemeral"}}


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def result(content: Any, call: str = "c1", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": content, **more}


def read(*messages: Any, system: Any = None) -> list[dict[str, Any]]:
    return list(read_messages(system, list(messages))[0])


@each_of("system", ["Be brief.", [text("Be brief.")], [text("Be brief.", **MARK)]])
@each_of("content", ["hi", [text("hi")], [text("hi", **MARK)]])
def test_texts_and_lists_of_one_text_are_the_same(system: Any, content: Any) -> None:
    assert read({"role": "user", "content": content}, system=system) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
    ]


@pytest.mark.parametrize("system", [None, "", []])
def test_no_system_text_is_no_message(system: Any) -> None:
    assert read(ASK, system=system) == [ASK]


def test_system_messages_stay_where_they_are() -> None:
    late = {"role": "system", "content": [text("Later.")]}

    assert [m["content"] for m in read(ASK, late, ASK, {"role": "system", "content": "Last."})] == [
        "hi",
        "Later.",
        "hi",
        "Last.",
    ]


def test_answer_is_one_text_one_thought_and_its_calls() -> None:
    use = {"type": "tool_use", "id": "c1", "name": "look", "input": {"a": 1000, "b": 1000.0, "c": "é"}}
    ran = {"type": "mcp_tool_use", "id": "m", "name": "say", "server_name": "up", "input": {}}
    said = {"type": "mcp_tool_result", "tool_use_id": "m", "is_error": False, "content": [text("x")]}
    thought = {"type": "thinking", "thinking": " hm", "signature": "anything at all"}
    blocks = [thought, text("So "), ran, said, thought, {"type": "redacted_thinking", "data": "x"}, text("late."), use]

    _, message, answer = read(ASK, {"role": "assistant", "content": blocks}, user(result("42")))

    assert (message["content"], message["reasoning_content"]) == ("So late.", " hm hm")
    (call,) = message["tool_calls"]
    assert (call["id"], call["function"]["name"]) == ("c1", "look")
    assert call["function"]["arguments"] == '{"a": 1000, "b": 1000.0, "c": "é"}'
    assert answer == {"role": "tool", "tool_call_id": "c1", "content": "42"}
    told = [(each["role"], each["content"], [c["id"] for c in each.get("tool_calls", ())]) for each in message[RETOLD]]
    assert told == [("assistant", "So ", ["m"]), ("tool", "x", []), ("assistant", "late.", ["c1"])]


@each_of(
    ("content", "said"),
    [
        (result("42"), "42"),
        (result([text("4"), text("2")]), "4\n2"),
        (result([]), ""),
        ({"type": "tool_result", "tool_use_id": "c1"}, ""),
        (result("no such file", is_error=True), "Error: no such file"),
        (result("fine", is_error=False), "fine"),
        (result([{"type": "tool_reference", "tool_name": "look"}]), "look"),
        (result([{"type": "document", "source": {"type": "text", "data": "page"}}]), "page"),
        (result([{"type": "document", "source": {"type": "content", "content": [text("page")]}}]), "page"),
    ],
)
def test_result_is_one_text(content: dict[str, Any], said: str) -> None:
    (message,) = read(ASK, user(content))[1:]

    assert (message["role"], message["tool_call_id"], message["content"]) == ("tool", "c1", said)


def test_results_stand_before_the_words_beside_them() -> None:
    messages = read(user(text("and"), result("1"), text("so?", **MARK), result("2", "c2")))

    assert [(m["role"], m["content"]) for m in messages] == [("tool", "1"), ("tool", "2"), ("user", "and\nso?")]


def test_empty_text_beside_results_is_no_message() -> None:
    assert [m["role"] for m in read(user(result("1"), text("")))] == ["tool"]


def test_fields_that_nothing_reads_are_named_wherever_they_stand() -> None:
    inner = {"type": "tool_result", "tool_use_id": "c1", "content": [text("x", inner=1)], "outer": 2}

    _, unread = read_messages([text("Be brief.", shade=1)], [ASK, user(inner)])

    assert unread == ("text.shade", "tool_result.outer", "text.inner")


@pytest.mark.parametrize(("more", "taken"), [(0, True), (1, False)])
def test_messages_calls_and_results_are_bounded_together(more: int, taken: bool) -> None:
    calls = [{"type": "tool_use", "id": f"c{number}", "name": "look", "input": {}} for number in range(100)]
    history = [ASK, {"role": "assistant", "content": calls}, *[ASK] * (MOST_MESSAGES - 102 + more)]

    if taken:
        assert len(read(*history)) == MOST_MESSAGES - 100
    else:
        with pytest.raises(RequestInvalid, match="shorten the conversation"):
            read(*history)


def test_blocks_that_others_ran_are_left_out_and_named() -> None:
    blocks = [{"type": "server_tool_use", "id": "s"}, text("So."), {"type": "x\x1b" + "y" * 500}]

    messages, unread = read_messages(None, [ASK, {"role": "assistant", "content": blocks}, ASK])

    assert messages[1] == {"role": "assistant", "content": "So."}
    assert unread[0] == "server_tool_use"
    assert len(unread[1]) < 200
    assert unread[1].isprintable()


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}}


@each_of(
    ("messages", "place", "words"),
    [
        (None, "messages", "a list"),
        ([], "messages", "a list"),
        ([1], "messages[0]", "an object"),
        ([{"role": "wizard", "content": "x"}], "messages[0].role", "'wizard'"),
        ([{"role": "user", "content": 5}], "messages[0].content", "a string or a list of text parts"),
        ([user(IMAGE)], "messages[0].content[0]", "type 'image': this model reads only text: send the image as text"),
        ([user({"type": "document", "source": {"type": "base64"}})], "messages[0].content[0].source", "'base64'"),
        ([user({"type": "document"})], "messages[0].content[0].source", "an object"),
        ([user({"type": "text"})], "messages[0].content[0]", "'text' is not a string"),
        ([user({"type": "text", "text": 5})], "messages[0].content[0]", "'text' is not a string"),
        ([user({"type": "tool_result", "tool_use_id": 5})], "messages[0].content[0].tool_use_id", "a string"),
        ([user({})], "messages[0].content[0]", "type None"),
        (
            [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "input": {}}]}, ASK],
            "messages[0].content[0].name",
            "a string",
        ),
        ([ASK] * (MOST_MESSAGES + 1), "messages", "more than"),
        ([user(*[result("")] * (MOST_MESSAGES + 1))], "messages", "more than"),
    ],
)
def test_what_can_not_be_read_is_named_by_its_place(messages: Any, place: str, words: str) -> None:
    with pytest.raises(RequestInvalid) as refused:
        read_messages(None, messages)

    assert refused.value.param == place
    assert words in refused.value.message
    assert len(refused.value.message) < 400


def test_calls_count_as_messages() -> None:
    use = {"type": "tool_use", "id": "a", "name": "b", "input": json.loads("{}")}

    with pytest.raises(RequestInvalid, match="more than"):
        read(ASK, {"role": "assistant", "content": [use] * MOST_MESSAGES}, ASK)


def test_tool_that_a_summary_removes_is_not_added() -> None:
    changes = [
        {"type": f"tool_{change}", "tool": {"type": "tool_reference", "name": name}}
        for change, name in (("addition", "get_rain"), ("removal", "get_snow"))
    ]
    summary = {"type": "compaction", "content": "So far.", "tool_changes": changes}

    (message,) = read({"role": "assistant", "content": [summary]}, ASK)

    assert message[FOUND_TOOLS] == ("get_rain",)
