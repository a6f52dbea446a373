"""Edits of the context with the client of Anthropic's API: results of earlier calls, thinking, and unknown ones."""

from typing import Any

import pytest

from gateway.agent.compaction import Compaction
from gateway.context.history.shortening import CLEARED, Clearing
from gateway.context.memory import ContextChange
from gateway.errors import RequestInvalid
from gateway.serve.messages.context_edits import CompactNow, ContextEdits, ContextManagement
from tests.cases import each_of

pytestmark = pytest.mark.anyio

TOOL = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}
BODY: dict[str, Any] = {"model": "any", "max_tokens": 500, "tools": [TOOL]}
RESULT = "found " * 50


def looked(count: int) -> list[dict[str, Any]]:
    """A conversation with so many calls, each with its result."""
    told: list[dict[str, Any]] = [{"role": "user", "content": "Look."}]
    for number in range(count):
        use = {"type": "tool_use", "id": f"toolu_{number}", "name": "look", "input": {"at": number}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": f"{number} {RESULT}"}
        told += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return told


def clearing(**fields: Any) -> dict[str, Any]:
    return {"edits": [{"type": "clear_tool_uses_20250919", **fields}]}


USES = {"trigger": {"type": "tool_uses", "value": 4}, "keep": {"type": "tool_uses", "value": 2}}


async def test_old_results_are_taken_out_and_the_answer_says_how_many(site) -> None:
    site.says("Done.")
    message = await site.client.beta.messages.create(**BODY, messages=looked(5), context_management=clearing(**USES))
    (prompt,) = site.engine.prompts

    assert [f"{n} {RESULT}".strip() in prompt for n in range(5)] == [False, False, False, True, True]
    assert prompt.count(CLEARED) == 3
    (edit,) = message.context_management.applied_edits
    assert (edit.type, edit.cleared_tool_uses) == ("clear_tool_uses_20250919", 3)
    assert edit.cleared_input_tokens > 100


async def test_figures_of_the_request_say_what_was_taken_out(site) -> None:
    site.says("Done.")
    message = await site.client.beta.messages.create(**BODY, messages=looked(5), context_management=clearing(**USES))
    figures = site.agent.recall.conversations(1)[0].figures

    (edit,) = message.context_management.applied_edits
    assert figures.changes == (ContextChange("cleared", edit.cleared_input_tokens, edit.cleared_tool_uses),)


async def test_what_was_taken_out_stays_out_so_that_the_next_prompt_continues_this_one(site) -> None:
    talk = looked(5)
    asked = {**BODY, "context_management": clearing(**USES)}
    site.says("Done.", "Still.")
    message = await site.client.beta.messages.create(**asked, messages=talk)
    talk += [{"role": "assistant", "content": message.content[0].text}, {"role": "user", "content": "And?"}]
    await site.client.beta.messages.create(**asked, messages=talk)

    before, after = site.engine.prompts
    assert after.startswith(f"{before}Done.")


async def test_count_of_tokens_is_that_of_the_edited_prompt_beside_the_original(site) -> None:
    asked = {"model": "any", "tools": [TOOL], "messages": looked(5)}
    whole = await site.client.beta.messages.count_tokens(**asked)
    edited = await site.client.beta.messages.count_tokens(**asked, context_management=clearing(**USES))

    assert edited.input_tokens < whole.input_tokens
    assert edited.context_management.original_input_tokens == whole.input_tokens
    assert whole.context_management is None


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        ({"type": "clear_thinking_20251015", "keep": "all"}, False),
        ({"type": "clear_thinking_20251015", "keep": {"type": "all"}}, False),
        ({"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}, True),
        ({"type": "forget_20270101"}, True),
        ({}, True),
        ({"type": "clear_tool_uses_20250919", "trigger": None, "keep": None, "clear_tool_inputs": None}, False),
        ({"type": "compact_20260112", "trigger": None, "instructions": None, "pause_after_compaction": None}, False),
    ],
)
async def test_edit_without_effect_is_named_and_the_others_are_made(site, edit, named) -> None:
    site.says("Done.")
    edits = {"edits": [edit, *clearing(**USES)["edits"]]}
    message = await site.client.beta.messages.create(**BODY, messages=looked(5), context_management=edits)

    assert any("context_management" in each for each in message.codec.get("ignored", ())) is named
    assert [each.cleared_tool_uses for each in message.context_management.applied_edits] == [3]


@pytest.mark.parametrize("edit", [{"keep": {"value": -1}}, {"trigger": {"value": "many"}}, {"exclude_tools": 5}])
async def test_invalid_edit_is_named_by_its_place(site, edit) -> None:
    answer = await site.post({**BODY, "messages": looked(1), "context_management": clearing(**edit)})

    assert answer.status_code == 400
    assert "context_management.edits[0]" in answer.json()["error"]["message"]


def edits_of(*edits: dict[str, Any], now: CompactNow | None = None) -> ContextEdits:
    return ContextEdits(ContextManagement(edits=edits), now)


def amount(value: int | None, kind: str = "input_tokens") -> dict[str, Any]:
    return {"type": kind, "value": value}


async def test_request_without_edits_asks_for_nothing() -> None:
    nothing = ContextEdits(None, None)
    empty = ContextEdits(ContextManagement(), None)

    assert (nothing.compaction, nothing.clearing, nothing.unserved, nothing.asked) == (None, None, [], False)
    assert (empty.compaction, empty.clearing, empty.unserved, empty.asked) == (None, None, [], True)


@each_of(
    ("fields", "meant"),
    [
        ({}, Clearing()),
        ({"trigger": amount(500), "keep": amount(0, "tool_uses")}, Clearing(tokens=500, keep=0)),
        ({"trigger": amount(7, "tool_uses")}, Clearing(tokens=None, uses=7)),
        ({"trigger": amount(None, "tool_uses")}, Clearing(tokens=None, uses=0)),
        ({"trigger": amount(None)}, Clearing()),
        ({"clear_at_least": amount(9)}, Clearing(least=9)),
        ({"exclude_tools": ["look"]}, Clearing(excluded=frozenset({"look"}))),
        ({"clear_tool_inputs": True}, Clearing(inputs=True)),
        ({"clear_tool_inputs": False}, Clearing(inputs=False)),
        ({"clear_tool_inputs": ["look"]}, Clearing(inputs=frozenset({"look"}))),
    ],
)
async def test_clearing_of_results_in_the_agents_terms(fields: dict[str, Any], meant: Clearing) -> None:
    assert edits_of({"type": "clear_tool_uses_20250919", **fields}).clearing == meant


@pytest.mark.parametrize(
    ("fields", "meant"),
    [
        ({}, Compaction(150_000, "", False)),
        ({"trigger": amount(60_000)}, Compaction(60_000, "", False)),
        ({"instructions": "Be brief.", "pause_after_compaction": True}, Compaction(150_000, "Be brief.", True)),
    ],
)
async def test_summary_in_the_agents_terms(fields: dict[str, Any], meant: Compaction) -> None:
    assert edits_of({"type": "compact_20260112", **fields}).compaction == meant


@pytest.mark.parametrize("instructions", [None, "Be brief."])
async def test_summary_that_is_asked_for_now_is_all_of_the_answer(instructions: str | None) -> None:
    edits = edits_of({"type": "compact_20260112"}, now=CompactNow(instructions=instructions))

    assert edits.compaction == Compaction(instructions=instructions or "", ends=True)


async def test_16_edits_are_read_and_not_one_more() -> None:
    edit = {"type": "forget_20270101"}

    assert edits_of(*[edit] * 16).unserved == ["context_management: forget_20270101"] * 16
    with pytest.raises(ValueError, match="at most 16"):
        edits_of(*[edit] * 17)
    with pytest.raises(RequestInvalid, match=r"edits\[1\]"):
        edits_of(edit, {"type": "clear_tool_uses_20250919", "exclude_tools": ["t"] * 1025})
    assert edits_of({"type": "clear_tool_uses_20250919", "exclude_tools": ["t"] * 1024}).clearing is not None
