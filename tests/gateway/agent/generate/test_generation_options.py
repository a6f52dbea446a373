"""What a generation is held to: the grammar for each choice, and which choices a request may make."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from gateway.agent.generate.generation import form_refused, looseness, lost_grammar
from gateway.agent.generate.generation_options import (
    FREE,
    GenerationOptions,
    Hold,
    ToolChoice,
    check_choice,
    hold_for,
    listed,
)
from gateway.engine.interface import Sampling
from gateway.errors import EngineUnavailable, RequestInvalid
from gateway.toolcalls.formats.format import call_grammar, call_triggers
from gateway.toolcalls.formats.structured_output import AnswerForm, answer_grammar
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed, Diagnostic
from tests.cases import each_of

QUESTION = [{"role": "user", "content": "What is it?"}]
PAINT, DRAW = (
    ToolSpec(name, f"To {name}", {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]})
    for name, key in (("paint", "colour"), ("draw", "pen"))
)
REQUIRED = ToolChoice("required")
FORM = AnswerForm.of_schema({"const": "the answer"}, "form")


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "none"), (2, "t0, t1"), (20, ", ".join(f"t{n}" for n in range(20)))],
)
def test_all_names_are_listed_up_to_twenty(count: int, text: str) -> None:
    assert listed([f"t{n}" for n in range(count)]) == text


def test_of_more_names_the_first_twenty_are_listed_and_the_others_counted() -> None:
    assert listed([f"t{n}" for n in range(21)]) == f"{listed([f't{n}' for n in range(20)])} and 1 more"


NO_TOOL_TO_CALL = "tool_choice is 'required', but there is no tool to call"
NONE_ALLOWED = "tool_choice allows no tool; name one, or say 'none'"


@each_of(
    ("choice", "tools", "wrong"),
    [
        (FREE, [], None),
        (REQUIRED, [PAINT], None),
        (REQUIRED, [], NO_TOOL_TO_CALL),
        (ToolChoice("none", ()), [], None),
        (ToolChoice("none", ("nope",)), [PAINT], None),
        (ToolChoice("auto", ()), [PAINT], NONE_ALLOWED),
        (ToolChoice("required", ()), [], NONE_ALLOWED),
        (ToolChoice("auto", ("draw", "paint")), [PAINT, DRAW], None),
        (ToolChoice("auto", ("paint", "nope", "no")), [PAINT, DRAW], "names 'nope', but the tools are paint, draw"),
        (ToolChoice.named("nope"), [], "tool_choice names 'nope', but the tools are none"),
    ],
)
def test_choice_has_to_name_tools_of_the_request(
    choice: ToolChoice, tools: Sequence[ToolSpec], wrong: str | None
) -> None:
    if wrong is None:
        check_choice(choice, tools)
        return
    with pytest.raises(RequestInvalid) as refused:
        check_choice(choice, tools)
    assert refused.value.message.endswith(wrong)
    assert refused.value.param == "tool_choice"


def test_choice_defaults_to_all_tools_for_the_whole_answer() -> None:
    assert (FREE.mode, FREE.names, FREE.lasts) == ("auto", None, True)
    assert ToolChoice.named("paint") == ToolChoice("required", ("paint",), lasts=False)
    assert ToolChoice("none", ("a",), lasts=False).after_first() == ToolChoice("none", ("a",), lasts=False)
    assert ToolChoice("required", ("a",), lasts=False).after_first() == FREE


def test_options_leave_everything_to_the_model_and_show_all_of_it() -> None:
    options = GenerationOptions(5, Sampling())
    call = CallClosed(0, "c", "paint", "{}", ())

    assert (options.hold, options.stops, options.logprobs, options.first_index) == (None, (), None, 0)
    assert (options.one_call, options.ids, options.words) == (False, False, False)
    assert (options.tells("paint"), options.shows("paint"), options.asks(call)) == (True, True, False)
    assert options.on_call(call, 5) is None


async def held(open_stage: Any, choice: ToolChoice, tools: Sequence[ToolSpec] = (PAINT, DRAW), **how: Any) -> Any:
    """The hold, and what writes the grammar of calls and of answers for its conversation."""
    async with open_stage(hold_calls=how.get("always", False)) as stage:
        conversation = await stage.agent.open(QUESTION, client_tools=tools)
        ready, fmt = conversation.ready, conversation.asked.format
        hold = hold_for(conversation, choice, **{"parallel": None, "always": False, **how})
        common = {"vocabulary": ready.token_map}
        whole = {**common, "prompt_tail": conversation.prompt_tail, "template": ready.facts.chat_template}
        free = partial(call_grammar, fmt, choice="required", **common)
        calls, answers = partial(call_grammar, fmt, choice="required", **whole), partial(answer_grammar, fmt, **whole)
        return hold, conversation, free, calls, answers, call_triggers(fmt, ready.token_map)


@pytest.mark.anyio
@pytest.mark.parametrize(("parallel", "several"), [(None, False), (True, True), (False, False)])
async def test_required_call_is_alone_unless_the_client_wants_several(open_stage, parallel, several):
    choice = ToolChoice("required", ("paint",))
    for form in (None, FORM):
        hold, _, _, calls, _, _ = await held(open_stage, choice, parallel=parallel, form=form)
        assert [tool.name for tool in hold.tools] == ["paint"]
        assert hold.grammar == calls(hold.tools, parallel=several) != calls(hold.tools, parallel=not several)
        assert (hold.triggers, hold.loose, hold.formed) == ((), frozenset(), False)


@pytest.mark.anyio
@pytest.mark.parametrize(("parallel", "several"), [(None, True), (True, True), (False, False)])
async def test_calls_that_the_model_decides_on_are_held_from_their_token(open_stage, parallel, several):
    hold, _, free, _, _, triggers = await held(open_stage, FREE, parallel=parallel, always=True)

    assert [tool.name for tool in hold.tools] == ["paint", "draw", "up__say"]
    assert hold.grammar == free(hold.tools, parallel=several) != free(hold.tools, parallel=not several)
    assert (hold.triggers, hold.formed) == (triggers, False)
    assert triggers


@pytest.mark.anyio
@pytest.mark.parametrize(("parallel", "several"), [(None, True), (True, True), (False, False)])
@pytest.mark.parametrize(("mode", "names"), [("auto", ["paint", "draw", "up__say"]), ("none", [])])
async def test_answer_of_a_form_is_held_beside_calls(open_stage, parallel, several, mode, names):
    hold, _, _, _, answers, _ = await held(open_stage, ToolChoice(mode), parallel=parallel, form=FORM)

    assert [tool.name for tool in hold.tools] == names
    assert hold.grammar == answers(FORM, hold.tools, parallel=several)
    assert (hold.triggers, hold.formed) == ((), True)


@pytest.mark.anyio
@pytest.mark.parametrize("choice", [FREE, ToolChoice("none")])
async def test_nothing_is_held_where_the_model_decides_and_nobody_asks_for_more(open_stage, choice):
    always = choice != FREE
    hold, *_ = await held(open_stage, choice, always=always)

    assert hold is None


@pytest.mark.anyio
async def test_tool_that_is_too_much_for_the_engine_is_loose_in_every_hold(open_stage):
    async with open_stage(hold_calls=True) as stage:
        conversation = await stage.agent.open(QUESTION, client_tools=[PAINT, DRAW])
        conversation.ready.loose.note(PAINT)
        holds = [
            hold_for(conversation, REQUIRED, parallel=None, always=False),
            hold_for(conversation, FREE, parallel=None, always=True),
            hold_for(conversation, FREE, parallel=None, always=False, form=FORM),
        ]
        conversation.ready.loose.note_lazy()
        assert hold_for(conversation, FREE, parallel=None, always=True) is None

    for hold in holds:
        assert hold is not None
        assert hold.loose == {"paint"}
        assert [tool.parameters for tool in hold.tools][:2] == [{"type": "object"}, DRAW.parameters]


def test_hold_stays_loose_for_what_it_was_loose_for() -> None:
    hold = Hold((PAINT, DRAW), lambda tools: ",".join(tool.name for tool in tools), loose=frozenset({"draw"}))
    looser = hold.loosening(lambda tool: tool == PAINT)

    assert hold.grammar == "paint,draw"
    assert looser.loose == {"paint", "draw"}
    assert looser.tools == (ToolSpec("paint", PAINT.description, {"type": "object"}), DRAW)
    assert looser.loosening(lambda tool: False) == looser


def test_client_is_told_once_which_tools_calls_are_held_loosely() -> None:
    hold = Hold((), lambda tools: "", loose=frozenset({"paint", "draw"}))

    told = looseness(hold)
    assert told == Diagnostic("loose", told.message)
    assert told.message.startswith("no grammar holds the arguments of 'draw', 'paint': ")


def test_errors_of_grammars_say_what_to_do_next() -> None:
    assert form_refused().message.endswith("send a simpler or smaller schema")
    lost = lost_grammar(EngineUnavailable("the engine broke off"))
    assert lost.message.endswith("keep the part that has arrived, or ask again (the engine broke off)")
