"""Random histories: what is recalled means what the client sent, is nobody else's, and is counted to the byte.

A model answers, clients write their histories down in their own ways or change them, and answers are forgotten at any
point. The ids of an answer name it, so that every id says whose it is. What "means the same" is said here anew.
"""

import json
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.context.memory import (
    Call,
    ConversationMemory,
    History,
    Lived,
    LivedTurn,
    Recalled,
    Remembered,
    Shown,
    root_digest,
)
from gateway.engine.interface import Message

SCHEMAS = {"paint": {"properties": {"of": {"type": "number"}, "days": {"type": "integer", "default": 1}}}}
OWNERS, TOOLS = ("alice", "bob"), ("tools", "other tools")
PER_ANSWER = 1000
"""Ids of an answer are its number, times this, and a counter."""


@dataclass
class Told:
    """A conversation as a client keeps it, and what it stands for."""

    owner: str
    tools: str
    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


def called(call_id: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "paint", "arguments": arguments}}


def rewritten(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[list[dict[str, Any]]], None]:
    """A client that parses the arguments of its calls and writes them anew."""

    def rewrite(messages: list[dict[str, Any]]) -> None:
        for message in messages:
            for call in message.get("tool_calls") or ():
                value = change(json.loads(call["function"]["arguments"]))
                call["function"] = {**call["function"], "arguments": json.dumps(value, separators=(",", ":"))}

    return rewrite


def own_ids(messages: list[dict[str, Any]]) -> None:
    names: dict[str, str] = {}
    for message in messages:
        for call in message.get("tool_calls") or ():
            call["id"] = names.setdefault(call["id"], f"own{len(names)}")
        if message["role"] == "tool":
            message["tool_call_id"] = names.get(message["tool_call_id"], message["tool_call_id"])


def no_reasoning(messages: list[dict[str, Any]]) -> None:
    for message in messages:
        message.pop("reasoning_content", None)


def empty_reasoning(messages: list[dict[str, Any]]) -> None:
    for message in messages:
        if message["role"] == "assistant":
            message["reasoning_content"] = ""


def stripped(messages: list[dict[str, Any]]) -> None:
    for message in messages:
        if message["role"] == "assistant":
            message["content"] = (message["content"] or "").strip() or None


def results_reversed(messages: list[dict[str, Any]]) -> None:
    """Parallel results come in the order in which they were ready."""
    place = 0
    while place < len(messages):
        stop = place
        while stop < len(messages) and messages[stop]["role"] == "tool":
            stop += 1
        messages[place:stop] = messages[place:stop][::-1]
        place = max(stop, place) + 1


SAME = {
    "as it came": lambda messages: None,
    "keys reordered": rewritten(lambda value: dict(reversed(value.items()))),
    "whole numbers": rewritten(
        lambda v: {k: int(x) if isinstance(x, float) and x == int(x) else x for k, x in v.items()}
    ),
    "defaults": rewritten(lambda value: {"days": 1, **value}),
    "own ids": own_ids,
    "no reasoning": no_reasoning,
    "empty reasoning": empty_reasoning,
    "stripped": stripped,
    "results reversed": results_reversed,
    "unknown fields": lambda messages: [
        m.update(annotations=[], refusal=None) for m in messages if m["role"] == "assistant"
    ],
}
"""Ways to write a history down that change nothing of it."""


def text_changed(messages: list[dict[str, Any]], place: int) -> None:
    messages[place]["content"] = f"{messages[place].get('content') or ''}!"


def deleted(messages: list[dict[str, Any]], place: int) -> None:
    del messages[place]


def inserted(messages: list[dict[str, Any]], place: int) -> None:
    messages.insert(place, {"role": "system", "content": "Be brief."})


def value_changed(messages: list[dict[str, Any]], place: int) -> None:
    calls = messages[place].get("tool_calls") or ()
    for call in calls:
        call["function"] = {**call["function"], "arguments": json.dumps({"of": 21})}
    if not calls:
        text_changed(messages, place)


def reasoning_changed(messages: list[dict[str, Any]], place: int) -> None:
    if messages[place].get("reasoning_content"):
        messages[place]["reasoning_content"] += " not"
    else:
        text_changed(messages, place)


def call_id_taken(messages: list[dict[str, Any]], place: int) -> None:
    """All calls of a turn have one id, which another turn's call had."""
    ids = [call["id"] for m in messages for call in m.get("tool_calls") or ()]
    for call in messages[place].get("tool_calls") or ():
        call["id"] = ids[0]


EDITS = (text_changed, deleted, inserted, value_changed, reasoning_changed, call_id_taken)


def meaning(message: Message) -> object:
    """What a message says, without what clients may change. Ids of calls are places, given by the caller."""
    calls = [
        (c["function"]["name"], {"days": 1, **json.loads(c["function"]["arguments"])})
        for c in message.get("tool_calls") or ()
    ]
    content = message.get("content") or ""
    return (message["role"], content.strip() if message["role"] == "assistant" else content, calls)


def results_of(messages: Sequence[Message]) -> list[object]:
    """The results of calls by the places of their calls, whatever their order."""
    found: list[object] = []
    calls: dict[str, int] = {}
    here: list[tuple[int, str]] = []
    for message in [*messages, {"role": "end"}]:
        if message["role"] == "tool":
            here.append((calls.get(message["tool_call_id"], -1), message["content"]))
            continue
        found += [sorted(here, key=lambda each: each[0])] if here else []
        here = []
        if message["role"] == "assistant":
            calls = {call["id"]: n for n, call in enumerate(message.get("tool_calls") or ())}
    return found


class World:
    """A memory, its clients, and what really happened."""

    def __init__(self, most: int) -> None:
        self.memory = ConversationMemory(most, 0.6)
        self.most = most
        self.told: list[Told] = []
        self.answers: dict[int, tuple[str, str, list[dict[str, Any]]]] = {}
        """By number: whose they are, under which tools, and the conversation up to them as it was told."""
        self.open: list[tuple[Told, History, Recalled | None, int]] = []

    def history(self, told: Told, messages: list[dict[str, Any]]) -> History:
        return History(root_digest(b"key", told.owner, told.tools), messages)

    def ask(self, told: Told, messages: list[dict[str, Any]]) -> Recalled | None:
        history = self.history(told, messages)
        recalled = self.memory.recall(told.owner, history, SCHEMAS)
        if recalled is not None:
            self.check(told, messages, recalled)
        self.open.append((told, history, recalled, len(self.answers) + len(self.open)))
        return recalled

    def check(self, told: Told, messages: list[dict[str, Any]], recalled: Recalled) -> None:
        ids = recalled.last.ids()
        for number in {each // PER_ANSWER for each in ids}:
            assert self.answers[number][:2] == (told.owner, told.tools)
        last = max(each // PER_ANSWER for each in recalled.last.added)
        was = self.answers[last][2]
        now = messages[: len(was)]
        spoken = [meaning(message) for message in was if message["role"] != "tool"]
        assert spoken == [meaning(message) for message in now if message["role"] != "tool"]
        assert results_of(was) == results_of(now)
        for node in recalled.last.chain():
            assert (messages[node.place].get("reasoning_content") or "") in ("", node.shown.reasoning)
        # What stands behind is told as the client tells it.
        behind = [turn.message for turn in recalled.new if turn.lived is None]
        assert sorted(map(repr, behind)) == sorted(map(repr, messages[len(was) :]))

    def answer(self, place: int, shown: Shown) -> None:
        told, history, recalled, number = self.open.pop(place)
        before = recalled.last if recalled is not None else None
        message: dict[str, Any] = {"role": "assistant", "content": shown.content}
        if shown.reasoning:
            message["reasoning_content"] = shown.reasoning
        if shown.calls:
            message["tool_calls"] = [called(call.id, call.arguments) for call in shown.calls]
        held = before.ids() if before is not None else []
        added = array("I", range(number * PER_ANSWER, number * PER_ANSWER + 7))
        lived = (Lived(message, added, LivedTurn(reasoning=bool(shown.reasoning))),)
        strangers = history.strangers(before.place + 1 if before is not None else 0, len(history.messages))
        node = Remembered(
            told.owner, before, len(history.messages), shown, lived, len(held), added, 0, 0, 0, strangers=strangers
        )
        self.memory.remember(node, history.with_answer(shown))
        conversation = [*json.loads(json.dumps(history.messages)), message]
        self.answers[number] = (told.owner, told.tools, conversation)
        self.told.append(Told(told.owner, told.tools, json.loads(json.dumps(conversation))))
        self.count()

    def count(self) -> None:
        assert self.memory.size == sum(each.size for found in self.memory._found.values() for each in found)
        assert self.memory.size <= self.most

    def forget(self) -> None:
        """All of it goes."""
        self.memory._most = 0
        self.memory._make_room(OWNERS[0])
        assert (self.memory.size, self.memory._found, self.memory._last) == (0, {}, {})


words = st.sampled_from(("What is it?", "And?", "So."))
arguments = st.sampled_from(('{"of": 20.0}', '{"of":20, "colour": "red"}', "{}", '{"of": [1, {"a": 2.0}], "days": 1}'))


@st.composite
def answers(draw: st.DrawFn) -> Shown:
    ids = st.integers(0, 10**9).map(lambda n: f"call_{n}")
    calls = draw(st.lists(st.builds(Call, ids, st.just("paint"), arguments), max_size=2, unique_by=lambda c: c.id))
    return Shown(draw(st.sampled_from((" It is. ", "No", ""))), draw(st.sampled_from(("", "Hm"))), tuple(calls))


def go_on(draw: st.DrawFn, told: Told) -> list[dict[str, Any]]:
    """What a client sends behind an answer: results, or a question."""
    messages: list[dict[str, Any]] = json.loads(json.dumps(told.messages))
    calls = messages[-1].get("tool_calls") or () if messages else ()
    results = [{"role": "tool", "tool_call_id": c["id"], "content": f"R{n}"} for n, c in enumerate(calls)]
    return [*messages, *(results or [{"role": "user", "content": draw(words)}])]


@given(st.data(), st.sampled_from((6_000, 20_000, 10**6)))
@settings(max_examples=80)
def test_what_is_recalled_means_what_was_sent_whatever_was_forgotten(data: st.DataObject, most: int) -> None:
    world = World(most)
    for _ in range(data.draw(st.integers(1, 16))):
        if world.open and data.draw(st.booleans()):
            world.answer(data.draw(st.integers(0, len(world.open) - 1)), data.draw(answers()))
            continue
        told = Told(data.draw(st.sampled_from(OWNERS)), data.draw(st.sampled_from(TOOLS)))
        if world.told and data.draw(st.integers(0, 4)):
            told = world.told[data.draw(st.integers(0, len(world.told) - 1))]
        messages = go_on(data.draw, told)
        edit = data.draw(st.none() | st.sampled_from(EDITS))
        if edit is not None:
            edit(messages, data.draw(st.integers(0, len(messages) - 1)))
        # A history that somebody else sends is somebody else's.
        owner = data.draw(st.sampled_from((told.owner, *OWNERS)))
        SAME[data.draw(st.sampled_from(sorted(SAME)))](messages)
        world.ask(Told(owner, told.tools), messages)
    world.forget()


@given(st.data())
@settings(max_examples=50)
def test_history_that_a_client_writes_in_its_own_way_is_recalled_to_its_end(data: st.DataObject) -> None:
    world = World(10**7)
    told = Told("alice", "tools")
    for _ in range(data.draw(st.integers(1, 6))):
        told.messages = go_on(data.draw, told)
        sent: list[dict[str, Any]] = json.loads(json.dumps(told.messages))
        SAME[data.draw(st.sampled_from(sorted(SAME)))](sent)
        recalled = world.ask(told, sent)
        assert (recalled.last.place if recalled is not None else -1) == max(
            (n for n, message in enumerate(told.messages) if message["role"] == "assistant"), default=-1
        )
        world.answer(0, data.draw(answers()))
        told.messages.append(world.told[-1].messages[-1])


def edited_chain(size: int) -> tuple[World, list[dict[str, Any]]]:
    world, told = World(10**9), Told("alice", "tools")
    for _ in range(size):
        messages = [*told.messages, {"role": "user", "content": "And?"}]
        world.ask(told, messages)
        world.answer(0, Shown("", "", (Call("c", "paint", '{"of": 1}'),)))
        told = world.told[-1]
    return world, told.messages


def test_answers_are_looked_at_once_each_however_many_are_like_the_clients(monkeypatch: Any) -> None:
    world, messages = edited_chain(60)
    value_changed(messages, 61)
    looked: list[Shown] = []
    whole = Shown.is_echoed_by

    def counted(self: Shown, other: Shown, schemas: Any) -> bool:
        looked.append(other)
        return whole(self, other, schemas)

    monkeypatch.setattr(Shown, "is_echoed_by", counted)
    recalled = world.memory.recall("alice", world.history(Told("alice", "tools"), messages), SCHEMAS)

    assert recalled is not None
    assert recalled.last.place == 59
    assert len(looked) <= 60
