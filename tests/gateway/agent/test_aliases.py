"""A tool whose name model APIs refuse: the model knows it by an alias, in definitions, calls, choices and histories."""

import json

import pytest

from gateway.agent import AnswerOptions, ToolScope
from gateway.agent.events import ToolFinished
from gateway.agent.generate.generation_options import ToolChoice
from gateway.config.overrides import ToolOverride
from gateway.errors import RequestInvalid
from gateway.observe.audit import Audit
from gateway.observe.metrics import Metrics
from gateway.proxy.naming import Aliases
from gateway.proxy.tool_search import SEARCH
from gateway.toolcalls.schema.spec import ToolSpec

pytestmark = pytest.mark.anyio
PUBLIC = "say.it"
ALIAS = Aliases().alias_of(PUBLIC)
ODD = {"overrides": {"say": ToolOverride(PUBLIC)}}
QUESTION = [{"role": "user", "content": "What is it?"}]


def written(tool, **arguments):
    return f"<tool_call>\n{json.dumps({'name': tool, 'arguments': arguments})}\n</tool_call>"


def names(conversation):
    return [tool.name for tool in conversation.asked.tools]


async def test_model_calls_a_tool_by_its_alias_and_the_audit_has_the_public_name(open_stage, tmp_path):
    with Audit(tmp_path / "audit", Metrics().access) as audit:
        async with open_stage(written(ALIAS), "It is 42.", names=ODD, audit=audit) as stage:
            conversation = await stage.agent.open(QUESTION)
            await stage.agent.answer(conversation, AnswerOptions(), stage.listen)

    (called,) = stage.of(ToolFinished)
    (line,) = map(json.loads, (tmp_path / "audit").read_text().splitlines())
    assert names(conversation) == [ALIAS]
    assert (called.name, called.text, called.is_error) == (ALIAS, "It is 42.", False)
    assert (line["tool"], line["server"]) == (PUBLIC, "up")


async def test_names_are_left_alone_if_the_operator_says_so(open_stage):
    async with open_stage(names={**ODD, "safe_names": False}) as stage:
        assert names(await stage.agent.open(QUESTION)) == [PUBLIC]


@pytest.mark.parametrize("name", [PUBLIC, ALIAS])
async def test_choice_may_name_the_tool_either_way(open_stage, name):
    async with open_stage(written(ALIAS), "It is 42.", names=ODD) as stage:
        conversation = await stage.agent.open(QUESTION, choice=ToolChoice.named(name))
        assert names(conversation) == [ALIAS]
        with pytest.raises(RequestInvalid, match="names 'other'"):
            await stage.agent.open(QUESTION, choice=ToolChoice.named("other"))


@pytest.mark.parametrize("asked", [PUBLIC, ALIAS, "say"])
async def test_scope_may_name_the_tool_either_way(open_stage, asked):
    async with open_stage(names=ODD) as stage:
        scope = ToolScope({"up": frozenset({asked})})
        assert names(await stage.agent.open(QUESTION, gateway_tools=scope)) == [ALIAS]


async def test_tool_of_the_client_keeps_its_name(open_stage):
    async with open_stage(names=ODD) as stage:
        theirs = ToolSpec(PUBLIC, "Mine.", {"type": "object"})
        conversation = await stage.agent.open(QUESTION, client_tools=[theirs], choice=ToolChoice.named(PUBLIC))

    assert set(names(conversation)) == {PUBLIC, ALIAS}


async def test_history_with_the_public_name_is_told_with_the_alias(open_stage):
    def history(name):
        call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": "{}"}}
        called = {"role": "assistant", "content": None, "tool_calls": [call]}
        return [*QUESTION, called, {"role": "tool", "tool_call_id": "c1", "name": name, "content": "It is 42."}]

    async with open_stage(names=ODD) as stage:
        prompts = [(await stage.agent.open(history(name))).ids for name in (PUBLIC, ALIAS)]

    assert prompts[0] == prompts[1]


async def test_search_gives_the_alias_and_takes_it(open_stage):
    found = written(ALIAS)
    async with open_stage(
        written(SEARCH, query="say"), found, "It is 42.", tool_search=True, context=40_000, names=ODD
    ) as stage:
        await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(), stage.listen)

    search, called = stage.of(ToolFinished)
    assert search.found == (ALIAS,)
    assert (called.name, called.is_error) == (ALIAS, False)
