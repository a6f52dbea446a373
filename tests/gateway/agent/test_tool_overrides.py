"""Tools that the operator changed, as a model sees and calls them."""

import json

import pytest

from gateway.agent import AnswerOptions
from gateway.agent.events import ToolFinished
from gateway.config.overrides import ApprovalsConfig, ToolOverride
from gateway.proxy.caller import ANYBODY
from gateway.proxy.tool_search import SEARCH

pytestmark = pytest.mark.anyio
QUESTION = [{"role": "user", "content": "What is it?"}]
OVERRIDE = ToolOverride("speak", description="Speaks.", annotations={"readOnlyHint": True}, defaults={"loud": True})
CHANGED = {"overrides": {"say": OVERRIDE}}


def written(tool, **arguments):
    return f"<tool_call>\n{json.dumps({'name': tool, 'arguments': arguments})}\n</tool_call>"


async def test_model_is_given_the_operators_words_and_calls_by_the_new_name(open_stage):
    async with open_stage(written("speak"), "It is 42.", names=CHANGED) as stage:
        conversation = await stage.agent.open(QUESTION)
        await stage.agent.answer(conversation, AnswerOptions(), stage.listen)

    (tool,) = conversation.asked.tools
    (called,) = stage.of(ToolFinished)
    assert (tool.name, tool.description) == ("speak", "Speaks.")
    assert (called.name, called.text, called.is_error) == ("speak", "It is 42.", False)


async def test_former_name_is_no_tools(open_stage):
    async with open_stage(written("up__say"), "No.", names=CHANGED) as stage:
        await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(), stage.listen)

    (called,) = stage.of(ToolFinished)
    assert "there is no tool 'up__say'" in called.text


async def test_search_gives_the_new_name_and_takes_it(open_stage):
    found = written("speak")
    async with open_stage(
        written(SEARCH, query="speaks"), found, "It is 42.", tool_search=True, context=40_000, names=CHANGED
    ) as stage:
        await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(), stage.listen)

    search, called = stage.of(ToolFinished)
    assert "Speaks." in search.text
    assert (called.name, called.is_error) == ("speak", False)


@pytest.mark.parametrize(
    ("approvals", "runs"),
    [
        (ApprovalsConfig("writes"), True),
        (ApprovalsConfig("never", {"up__say": "always"}), False),
        (ApprovalsConfig("never", {"speak": "always"}), False),
    ],
)
async def test_approval_goes_by_both_names_and_by_the_operators_annotations(open_stage, approvals, runs):
    async with open_stage(written("speak"), "Well.", names={**CHANGED, "approvals": approvals}) as stage:
        await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(), stage.listen)
        offers = stage.agent.offers
        asks = [offers.approval_rule()(entry) for entry in offers.entries(ANYBODY)]

    (called,) = stage.of(ToolFinished)
    assert called.text.startswith("It is 42." if runs else "refused: the tool 'speak' of server 'up' was not called.")
    assert asks == [not runs]
