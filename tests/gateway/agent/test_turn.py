"""The turn, with a model that writes what the test says: calls run, limits end it, ids only ever grow."""

import json
import time
from dataclasses import replace

import pytest

from gateway.agent import AnswerOptions, ToolChoice
from gateway.agent.events import Finished, GenerationFinished, IdsGenerated, ToolFinished
from gateway.agent.figures import changes_of, reused_share
from gateway.agent.generate.generation_options import hold_for
from gateway.engine.interface import Generated, GenerationEnd, Timings
from gateway.errors import ContextExceeded, EngineUnavailable, RequestInvalid
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallArguments, CallClosed, CallStarted, Content, Diagnostic
from leaf_sdk.testing import tiny_map

pytestmark = pytest.mark.anyio

TINY = tiny_map()
NO_CALL, REQUIRED = ToolChoice("none"), ToolChoice("required")
QUESTION = [{"role": "user", "content": "What is it?"}]
SAY = '<tool_call>\n{"name": "up__say", "arguments": {}}\n</tool_call>'
OWN = '<tool_call>\n{"name": "paint", "arguments": {"colour": "red"}}\n</tool_call>'
PAINT = ToolSpec("paint", "Paint it", {"type": "object", "properties": {"colour": {"type": "string"}}})


def text_of(events) -> str:
    return "".join(event.text for event in events if isinstance(event, Content))


async def test_result_is_spliced_behind_the_ids_that_the_model_wrote(open_stage):
    async with open_stage(SAY, "It is 42.") as stage:
        conversation = await stage.agent.open(QUESTION)
        prompt = list(conversation.ids)
        finished = await stage.agent.answer(conversation, AnswerOptions(), stage.listen)

    between = "<|im_end|>\n<|im_start|>tool\n", "<|im_end|>\n<|im_start|>assistant\n"
    before, after = (TINY.encode(text, specials=True) for text in between)
    wrote = TINY.encode(SAY, specials=True)
    first, second = stage.engine.asked
    assert list(second.prompt)[: len(prompt) + len(wrote)] == prompt + wrote
    assert list(second.prompt)[len(prompt) + len(wrote) :] == before + TINY.encode("It is 42.") + after
    assert conversation.ids == [*second.prompt, *TINY.encode("It is 42.")]
    assert first.slot == second.slot
    assert text_of(stage.events) == "It is 42."
    assert finished.reason == "stop"
    assert stage.events[-1] is finished


async def test_numbers_of_each_generation_say_what_was_spliced_before_it(open_stage):
    async with open_stage(SAY, "Done.") as stage:
        await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(), stage.listen)

    first, second = stage.of(GenerationFinished)
    (finished,) = stage.of(Finished)
    assert (first.held, first.reinjected_shim, first.scaffold) == (0, 0, 0)
    assert second.held == first.prompt + first.generated
    assert second.reinjected_shim == len(TINY.encode("It is 42."))
    assert second.prompt == second.held + second.reinjected_shim + second.scaffold
    assert finished.prompt_ids == first.prompt + second.prompt
    assert finished.completion_ids == first.generated + second.generated


async def test_calls_of_all_generations_are_counted_through(open_stage):
    async with open_stage(f"{SAY}\n{SAY}", SAY, "Done.") as stage:
        await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(show_calls=True), stage.listen)

    assert [event.index for event in stage.of(CallStarted)] == [0, 1, 2]
    assert [event.index for event in stage.of(CallClosed)] == [0, 1, 2]
    assert {event.index for event in stage.of(CallArguments)} == {0, 1, 2}
    assert [event.call_id for event in stage.of(ToolFinished)] == [event.id for event in stage.of(CallClosed)]
    result = len(TINY.encode("It is 42."))
    assert [turn.reinjected_shim for turn in stage.of(GenerationFinished)] == [0, 2 * result, result]


async def test_call_of_the_clients_tool_ends_the_answer_unrun(open_stage):
    async with open_stage(OWN) as stage:
        conversation = await stage.agent.open(QUESTION, client_tools=[PAINT])
        finished = await stage.agent.answer(conversation, AnswerOptions(), stage.listen)

    assert finished.reason == "tool_calls"
    assert stage.of(ToolFinished) == []
    assert len(stage.engine.asked) == 1


async def test_clients_tool_hides_one_of_ours_of_the_same_name(open_stage):
    async with open_stage(SAY) as stage:
        conversation = await stage.agent.open(QUESTION, client_tools=[ToolSpec("up__say", "Mine", {})])
        finished = await stage.agent.answer(conversation, AnswerOptions(), stage.listen)

    assert [tool.description for tool in conversation.asked.tools] == ["Mine"]
    assert finished.reason == "tool_calls"


async def test_turn_limit_ends_a_model_that_never_stops_calling(open_stage):
    async with open_stage(SAY, SAY, SAY, turns=3) as stage:
        finished = await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(), stage.listen)

    assert finished.reason == "length"
    assert len(stage.engine.asked) == 3
    assert len(stage.of(ToolFinished)) == 2


async def test_call_repeated_with_the_same_result_is_noted_and_then_ends_in_words(open_stage):
    async with open_stage(SAY, SAY, SAY, f"It is 42. {SAY}", "Never asked for.") as stage:
        conversation = await stage.agent.open(QUESTION)
        finished = await stage.agent.answer(conversation, AnswerOptions(), stage.listen)

    first, second, third, fourth = (TINY.decode(asked.prompt) for asked in stage.engine.asked)
    assert "with the same result" not in first + second
    assert third.endswith("Another one will not help: answer with what you have.]<|im_end|>\n<|im_start|>assistant\n")
    assert "this call 3 times with the same result. No more calls can be made: answer in words, now.]" in fourth
    assert [call.name for call in stage.of(ToolFinished)] == ["up__say"] * 3
    assert text_of(stage.events) == f"It is 42. {SAY}"
    assert finished.reason == "stop"
    *_, told, last = stage.of(GenerationFinished)
    assert last.prompt == last.held + last.reinjected_shim + last.scaffold
    assert told.reinjected_shim > 0


async def test_repeated_calls_are_not_counted_where_anything_changes_or_nobody_wants_it(open_stage):
    other = SAY.replace("{}", '{"a": 1}')
    async with open_stage(SAY, other, SAY, other, SAY, "Done.") as stage:
        await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(), stage.listen)
        assert "with the same result" not in TINY.decode(stage.engine.asked[-1].prompt)

    async with open_stage(*[SAY] * 5, "Done.", repeated_calls=0) as stage:
        await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(), stage.listen)
        assert "with the same result" not in TINY.decode(stage.engine.asked[-1].prompt)
        assert len(stage.of(ToolFinished)) == 5


async def test_token_limit_counts_over_all_generations(open_stage):
    wrote = len(TINY.encode(SAY, specials=True))
    async with open_stage(SAY, "a" * 100) as stage:
        options = AnswerOptions(max_tokens=wrote + 8)
        finished = await stage.agent.answer(await stage.agent.open(QUESTION), options, stage.listen)

    assert [request.max_tokens for request in stage.engine.asked] == [wrote + 8, 8]
    assert finished.reason == "length"
    assert finished.completion_ids == wrote + 8
    assert text_of(stage.events) == "a" * 8


@pytest.mark.parametrize("choice", [REQUIRED, ToolChoice.named("paint"), ToolChoice()])
async def test_call_whose_argument_babbles_without_end_is_told_as_far_as_it_came_and_ends_in_length(open_stage, choice):
    babbled = f"{OWN.partition('red')[0]}{'red ' * 200}"
    async with open_stage(babbled) as stage:
        conversation = await stage.agent.open(QUESTION, choice=choice, client_tools=[PAINT])
        prompt = list(conversation.ids)
        options = AnswerOptions(choice, max_tokens=len(TINY.encode(babbled, specials=True)))
        finished = await stage.agent.answer(conversation, options, stage.listen)

    assert (finished.reason, finished.completion_ids) == ("length", options.max_tokens)
    assert [(call.name, call.index) for call in stage.of(CallStarted)] == [("paint", 0)]
    assert "".join(part.fragment for part in stage.of(CallArguments)) == '{"colour": "' + "red " * 200
    assert [(said.kind, said.index) for said in stage.of(Diagnostic)] == [("truncated", 0)]
    assert stage.of(CallClosed) == stage.of(ToolFinished) == []
    assert conversation.ids == [*prompt, *TINY.encode(babbled, specials=True)]


async def test_limit_of_the_configuration_counts_when_the_client_names_none(open_stage):
    async with open_stage("a" * 100, completion_tokens=5) as stage:
        finished = await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(), stage.listen)

    assert (finished.reason, finished.completion_ids) == ("length", 5)


async def test_call_for_whose_result_there_is_no_room_is_not_run(open_stage):
    async with open_stage(SAY, context=4000) as stage:
        used = len((await stage.agent.open(QUESTION)).ids) + len(TINY.encode(SAY, specials=True))
    async with open_stage(SAY, context=used + 40) as stage:
        finished = await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(), stage.listen)

    assert finished.reason == "length"
    assert stage.of(ToolFinished) == []


async def test_conversation_longer_than_the_context_is_refused_with_both_lengths(open_stage):
    async with open_stage(context=20) as stage:
        with pytest.raises(RequestInvalid, match="context holds 20") as refused:
            await stage.agent.open(QUESTION)

    assert refused.value.param == "messages"


@pytest.mark.parametrize("choice", [ToolChoice.named("nope"), ToolChoice.named("up__say2")])
async def test_choice_of_an_unknown_tool_is_refused_with_the_tools_there_are(open_stage, choice):
    async with open_stage() as stage:
        with pytest.raises(RequestInvalid, match="up__say") as refused:
            await stage.agent.open(QUESTION, choice=choice)

    assert refused.value.param == "tool_choice"


async def test_definitions_stand_in_the_prompt_under_every_choice(open_stage):
    async with open_stage() as stage:
        prompts = [
            (await stage.agent.open(QUESTION, choice=choice)).ids for choice in (ToolChoice(), NO_CALL, REQUIRED)
        ]

    assert "up__say" in TINY.decode(prompts[0])
    assert prompts[0] == prompts[1] == prompts[2]


@pytest.mark.parametrize(
    ("choice", "constrained"), [(ToolChoice(), False), (REQUIRED, True), (ToolChoice.named("up__say"), True)]
)
async def test_only_the_first_generation_is_held_to_the_choice(open_stage, choice, constrained):
    async with open_stage(SAY, "Done.") as stage:
        conversation = await stage.agent.open(QUESTION, choice=choice)
        await stage.agent.answer(conversation, AnswerOptions(choice=choice), stage.listen)

    first, second = stage.engine.asked
    assert (first.grammar is not None) == constrained
    assert second.grammar is None
    # The marker is one id, as the template writes it, and no other spelling is allowed.
    assert not constrained or f"<[{TINY.special_tokens['<tool_call>']}]>" in first.grammar


@pytest.mark.parametrize(("choice", "waits"), [(ToolChoice(), [True, True]), (REQUIRED, [False, True])])
async def test_calls_that_the_model_decides_on_are_held_from_their_token_where_that_is_wished(
    open_stage, choice, waits
):
    async with open_stage(SAY, "Done.", hold_calls=True) as stage:
        conversation = await stage.agent.open(QUESTION, choice=choice)
        await stage.agent.answer(conversation, AnswerOptions(choice=choice), stage.listen)
        free = await stage.agent.open(QUESTION, choice=NO_CALL)

    token = TINY.special_tokens["<tool_call>"]
    for request, waiting in zip(stage.engine.asked, waits, strict=True):
        assert [trigger.token_id for trigger in request.triggers] == [token] * waiting
        assert f"<[{token}]>" in request.grammar
        assert "up__say" in request.grammar
    assert stage.of(ToolFinished)[0].name == "up__say"
    assert hold_for(free, NO_CALL, parallel=False, always=True) is None


async def test_stop_string_ends_the_answer_without_being_shown(open_stage):
    async with open_stage("one two three") as stage:
        options = AnswerOptions(stops=("three",))
        finished = await stage.agent.answer(await stage.agent.open(QUESTION), options, stage.listen)

    (generation,) = stage.of(GenerationFinished)
    assert text_of(stage.events) == "one two "
    assert finished.reason == "stop"
    assert finished.prompt_ids == len(stage.engine.asked[0].prompt)
    assert generation.timings is None
    assert reused_share(generation) is None


@pytest.mark.parametrize("choice", [ToolChoice(), REQUIRED])
async def test_a_turn_that_may_hold_one_call_ends_behind_it(open_stage, choice):
    async with open_stage(f"Sure.{SAY}\n{SAY} twice", "Done.") as stage:
        conversation = await stage.agent.open(QUESTION, choice=choice)
        options = AnswerOptions(show_calls=True, choice=choice, parallel=False)
        finished = await stage.agent.answer(conversation, options, stage.listen)

    assert text_of(stage.events) == "Sure.Done."
    assert [event.index for event in stage.of(CallStarted)] == [0]
    assert len(stage.of(CallClosed)) == len(stage.of(ToolFinished)) == 1
    wrote = TINY.encode(f"Sure.{SAY}", specials=True)
    second = list(stage.engine.asked[1].prompt)[len(stage.engine.asked[0].prompt) :]
    assert second[: len(wrote)] == wrote
    assert finished.reason == "stop"


async def test_a_turn_that_holds_one_call_anyway_keeps_the_engines_account(open_stage):
    async with open_stage(SAY, "Done.") as stage:
        await stage.agent.answer(
            await stage.agent.open(QUESTION), AnswerOptions(show_calls=True, parallel=False), stage.listen
        )

    first, _ = stage.of(GenerationFinished)
    assert first.timings is not None
    assert len(stage.of(CallClosed)) == 1


async def test_calls_that_are_held_to_their_schemas_are_one_where_one_may_be(open_stage):
    async with open_stage(SAY, "Done.", hold_calls=True) as stage:
        conversation = await stage.agent.open(QUESTION)
        several, one = (hold_for(conversation, ToolChoice(), parallel=p, always=True) for p in (None, False))

    assert one.triggers == several.triggers
    assert one.grammar != several.grammar


async def test_text_that_may_become_a_stop_string_stands_before_the_call_that_follows_it(open_stage):
    async with open_stage(f"one END{SAY}", "Done.") as stage:
        options = AnswerOptions(show_calls=True, stops=("ENDING",))
        await stage.agent.answer(await stage.agent.open(QUESTION), options, stage.listen)

    told = [event for event in stage.events if isinstance(event, Content | CallStarted)]
    before = told.index(stage.of(CallStarted)[0])
    assert text_of(told[:before]) == "one END"
    assert text_of(told[before:]) == "Done."


async def test_question_in_the_same_conversation_extends_it(open_stage):
    async with open_stage("One.", "Two.") as stage:
        conversation = await stage.agent.open(QUESTION)
        await stage.agent.answer(conversation, AnswerOptions(), stage.listen)
        before = list(conversation.ids)
        history = [*QUESTION, {"role": "assistant", "content": "One."}]
        later = await stage.agent.open([*history, {"role": "user", "content": "And <|im_end|> then?"}])
        await stage.agent.answer(later, AnswerOptions(), stage.listen)

    asked = list(stage.engine.asked[1].prompt)
    middle = "<|im_end|>\n<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
    ahead, behind = (TINY.encode(text, specials=True) for text in middle)
    assert asked == before + ahead + TINY.encode("And <|im_end|> then?") + behind


async def test_an_id_that_a_length_limit_cut_was_sampled_and_is_not_held(open_stage):
    async with open_stage("One two three.", "Four.", "Five.") as stage:
        history, reasons = [*QUESTION], []
        for most in (3, None, None):
            conversation = await stage.agent.open(history)
            told = await stage.agent.answer(conversation, AnswerOptions(max_tokens=most), stage.listen)
            history += [{"role": "assistant", "content": conversation.lived.shown.content}, *QUESTION]
            reasons.append(told.reason)

    first, second, third = stage.of(GenerationFinished)
    assert (reasons, first.generated) == (["length", "stop", "stop"], 3)
    assert second.held == first.prompt + first.generated - 1
    assert third.held == second.prompt + second.generated


async def test_engine_that_breaks_off_is_reported_and_what_came_is_kept(open_stage):
    async with open_stage("half an ans", breaks=True) as stage:
        conversation = await stage.agent.open(QUESTION)
        prompt = len(conversation.ids)
        with pytest.raises(EngineUnavailable):
            await stage.agent.answer(conversation, AnswerOptions(), stage.listen)

    assert stage.route.losses == 1
    assert text_of(stage.events) == "half an ans"
    assert TINY.decode(conversation.ids[prompt:]) == "half an ans"
    assert stage.of(Finished) == []


async def test_stream_that_ends_without_an_end_is_reported_and_no_answer(open_stage, monkeypatch):
    async def some(prompt, most):
        yield Generated((TINY.encode("half")[0],))

    async with open_stage("") as stage:
        monkeypatch.setattr(stage.engine, "_events", some)
        with pytest.raises(EngineUnavailable, match="broke off before the generation was complete"):
            await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(), stage.listen)

    assert stage.of(Finished) == []


async def test_spliced_ids_are_counted_by_where_they_came_from(open_stage):
    async with open_stage(SAY, "Done.") as stage:
        await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(), stage.listen)
        page = stage.metrics.render().decode()

    (generation,) = [g for g in stage.of(GenerationFinished) if g.scaffold]
    assert f'codec_spliced_ids_total{{source="shim"}} {float(generation.reinjected_shim)}' in page
    assert f'codec_spliced_ids_total{{source="scaffold"}} {float(generation.scaffold)}' in page
    assert 'codec_spliced_ids_total{source="leaf"} 0.0' in page


async def test_turn_that_calls_both_kinds_runs_ours_and_hands_the_other_to_the_client(open_stage):
    async with open_stage(f"{SAY}\n{OWN}", "Done.") as stage:
        conversation = await stage.agent.open(QUESTION, client_tools=[PAINT])
        finished = await stage.agent.answer(conversation, AnswerOptions(show_calls=True), stage.listen)
        calls = [{"id": c.id, "function": {"name": c.name, "arguments": c.arguments}} for c in stage.of(CallClosed)]
        theirs = {"role": "tool", "tool_call_id": calls[1]["id"], "content": "painted"}
        history = [*QUESTION, {"role": "assistant", "content": "", "tool_calls": calls}, theirs]
        again = await stage.agent.open(history, client_tools=[PAINT])

    assert finished.reason == "tool_calls"
    assert [event.name for event in stage.of(ToolFinished)] == ["up__say"]
    assert len(stage.engine.asked) == 1
    text = TINY.decode(again.ids)
    assert text.index("It is 42.") < text.index("painted")


async def test_nothing_is_called_when_the_client_wants_no_tools(open_stage):
    async with open_stage(SAY) as stage:
        conversation = await stage.agent.open(QUESTION, choice=NO_CALL)
        finished = await stage.agent.answer(conversation, AnswerOptions(choice=NO_CALL), stage.listen)

    assert finished.reason == "stop"
    assert stage.of(ToolFinished) == []
    assert "up__say" in text_of(stage.events)


async def test_tool_that_the_request_does_not_offer_is_not_called(open_stage):
    async with open_stage(OWN, "Sorry.") as stage:
        await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(), stage.listen)

    (call,) = stage.of(ToolFinished)
    assert call.source == "gateway"
    assert call.is_error
    assert "paint" in call.text


async def test_call_that_breaks_off_keeps_its_index_to_itself(open_stage):
    broken = '<tool_call>\n{"name": "up__say", "arguments": {"a": oops}}\n</tool_call>'
    async with open_stage(f"{broken}\n{SAY}", SAY, "Done.") as stage:
        await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(), stage.listen)

    started = [event.index for event in stage.of(CallStarted)]
    assert started == sorted(set(started))
    assert {event.index for event in stage.of(CallClosed)} <= set(started)


BROKEN = '<tool_call>\n{"name": "up__say", "arguments": {"a": [oops}}\n</tool_call>'


@pytest.mark.parametrize("show_calls", [True, False])
async def test_call_of_ours_that_can_not_be_read_is_answered_with_an_error_and_made_again(open_stage, show_calls):
    async with open_stage(f"Well. {BROKEN}", SAY, "It is 42.") as stage:
        conversation = await stage.agent.open(QUESTION)
        finished = await stage.agent.answer(conversation, AnswerOptions(show_calls=show_calls), stage.listen)

    told, made = stage.of(ToolFinished)
    assert told.is_error
    assert "can't be read" in told.text
    assert "call again, with valid JSON" in told.text
    assert not made.is_error
    assert told.text in TINY.decode(stage.engine.asked[1].prompt)
    assert finished.reason == "stop"
    assert text_of(stage.events) == "Well. It is 42."
    assert [problem.kind for problem in stage.of(Diagnostic)] == ["malformed"]
    for call in stage.of(CallClosed):
        json.loads(call.arguments)


async def test_call_of_the_clients_that_can_not_be_read_is_its_whole_text(open_stage):
    broken = OWN.replace('"red"', "[oops")
    async with open_stage(f"Well. {broken}") as stage:
        conversation = await stage.agent.open(QUESTION, client_tools=[PAINT])
        finished = await stage.agent.answer(conversation, AnswerOptions(), stage.listen)

    assert finished.reason == "stop"
    assert text_of(stage.events) == f"Well. {broken}"
    assert stage.of(CallClosed) == []


async def test_call_of_the_clients_with_a_flaw_is_handed_out_repaired(open_stage):
    broken = OWN.replace('"red"', '"red\nor blue",')
    async with open_stage(broken) as stage:
        conversation = await stage.agent.open(QUESTION, client_tools=[PAINT])
        finished = await stage.agent.answer(conversation, AnswerOptions(), stage.listen)

    (call,) = stage.of(CallClosed)
    assert json.loads(call.arguments) == {"colour": "red\nor blue"}
    assert finished.reason == "tool_calls"
    assert [problem.kind for problem in stage.of(Diagnostic)] == ["repaired"]


async def test_tools_are_taught_where_the_template_renders_them_in_a_form_that_nobody_knows(open_stage):
    async with open_stage(SAY, "Done.", tools_template="{{ tools }} and no word on calls") as stage:
        await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(show_calls=True), stage.listen)

    assert [call.name for call in stage.of(CallClosed)] == ["up__say"]
    assert "To call a tool, write" in TINY.decode(stage.engine.asked[0].prompt)


async def test_call_in_the_form_that_the_templates_text_teaches_is_run(open_stage):
    template = 'Use {{ tools }}: write {"name": the name, "parameters": what it takes}.'
    async with open_stage('{"name": "up__say", "parameters": {}}', "Done.", tools_template=template) as stage:
        await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(), stage.listen)

    assert [call.name for call in stage.of(ToolFinished)] == ["up__say"]
    assert "To call a tool, write" not in TINY.decode(stage.engine.asked[0].prompt)


async def test_fault_of_the_parser_costs_the_call_and_not_the_answer(open_stage, monkeypatch, caplog):
    def fault(*_: object, **__: object) -> int:
        raise IndexError("a fault in a node")

    async with open_stage(f"Well. {SAY} Done.") as stage:
        monkeypatch.setattr("gateway.toolcalls.values.json_scanner.JsonScanner.scan", fault)
        finished = await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(), stage.listen)

    assert finished.reason == "stop"
    assert [problem.kind for problem in stage.of(Diagnostic)] == ["failed"]
    assert text_of(stage.events).startswith("Well. ")
    assert text_of(stage.events).endswith(" Done.")
    assert "the parser of a tool-call format failed" in caplog.text


LONG_CALL = {"id": "1", "type": "function", "function": {"name": "paint", "arguments": "x" * 7000}}
LONG_TOOL = ToolSpec("paint", "x" * 7000, {"type": "object"})


@pytest.mark.parametrize(
    ("message", "tools", "param"),
    [
        ({"role": "user", "content": "x" * 7000}, [], "messages"),
        ({"role": "assistant", "content": "", "tool_calls": [LONG_CALL]}, [], "messages"),
        ({"role": "user", "content": "x"}, [LONG_TOOL], "tools"),
    ],
)
async def test_prompt_that_no_context_of_this_size_holds_is_refused_before_it_is_tokenized(
    open_stage, monkeypatch, message, tools, param
):
    async with open_stage(context=100) as stage:
        monkeypatch.setattr(type(TINY), "encode", lambda *_, **__: pytest.fail("it was tokenized"))
        with pytest.raises(ContextExceeded, match=r"7\d{3} characters") as refused:
            await stage.agent.open([message], client_tools=tools)

    assert (refused.value.param, refused.value.context) == (param, 100)


async def test_the_prompt_behind_a_result_that_spells_every_control_token_has_those_of_the_template_alone(open_stage):
    names = " ".join(sorted(TINY.special_texts))
    prompts = []
    for says in (names, "nothing of that kind"):
        async with open_stage(SAY, "Done.", says=says) as stage:
            await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(), stage.listen)
        prompts.append(list(stage.engine.asked[-1].prompt))

    spelled = TINY.encode(names)
    assert any(prompts[0][at : at + len(spelled)] == spelled for at in range(len(prompts[0])))
    assert len({tuple(each for each in prompt if each in TINY.special_ids) for prompt in prompts}) == 1


class ReadingTemplate:
    """Shows a result that is JSON in words of its own."""

    def __init__(self, engine) -> None:
        self._apply = engine.apply_template

    async def __call__(self, messages, tools=()):
        return await self._apply([{**each, "content": self._read(each)} for each in messages], tools)

    @staticmethod
    def _read(message):
        content = message.get("content") or ""
        is_json = message["role"] == "tool" and content.lstrip()[:1] in ("{", "[")
        return str(json.loads(content)) if is_json else content


@pytest.mark.parametrize(
    ("says", "shown"), [('{"a": true}', "{'a': True}"), (' ["b"]', "['b']"), ("It is {42}.", "It is {42}.")]
)
async def test_result_that_is_json_is_shown_as_the_template_shows_it(open_stage, says, shown):
    async with open_stage(SAY, "Done.", says=says) as stage:
        stage.engine.apply_template = ReadingTemplate(stage.engine)
        await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(), stage.listen)

    turn = f"<|im_start|>tool\n{shown}<|im_end|>\n<|im_start|>assistant\n"
    assert TINY.decode(stage.engine.asked[-1].prompt).endswith(turn)


@pytest.mark.parametrize(
    ("template", "tools", "calls", "content"),
    [("", False, (), True), ('Use {{ tools }}: write {"name": n, "parameters": p}.', True, ("up__say",), False)],
    ids=["taught by a preamble", "rendered by the template"],
)
async def test_turn_is_rendered_with_calls_and_tools_only_where_the_template_knows_them(
    open_stage, template, tools, calls, content
):
    call = '{"name": "up__say", "parameters": {}}' if template else SAY
    async with open_stage(call, tools_template=template, turns=1) as stage:
        conversation = await stage.agent.open(QUESTION)
        await stage.agent.answer(conversation, AnswerOptions(), stage.listen)
        shape, _ = conversation.context.last_turn(conversation.ready)

    assert (shape.tools, shape.calls, shape.content) == (tools, calls, content)


async def test_a_special_id_at_the_very_end_of_the_room_is_the_models_and_told(open_stage):
    wrote = TINY.encode(SAY, specials=True)
    assert wrote[-1] in TINY.special_ids
    async with open_stage(SAY) as stage:
        conversation = await stage.agent.open(QUESTION)
        prompt = list(conversation.ids)
        options = AnswerOptions(max_tokens=len(wrote), ids=True)
        finished = await stage.agent.answer(conversation, options, stage.listen)

    assert finished.reason == "length"
    assert [i for event in stage.of(IdsGenerated) for i in event.ids] == wrote
    assert conversation.ids[: len(prompt) + len(wrote)] == prompt + wrote


async def test_ids_are_told_where_that_is_asked(open_stage):
    for ids, told in ((True, TINY.encode("It is 42.")), (False, [])):
        async with open_stage("It is 42.") as stage:
            await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(ids=ids), stage.listen)
        assert [i for event in stage.of(IdsGenerated) for i in event.ids] == told


@pytest.mark.parametrize(("missing", "judged"), [(0, "right"), (1, "wrong")])
async def test_turn_of_guessed_ids_is_judged_by_what_the_cache_held_of_it(open_stage, missing, judged):
    async with open_stage(SAY, "Done.") as stage:
        conversation = await stage.agent.open(QUESTION)

        async def guess(prompt, most):
            for token_id in TINY.encode("Done." if conversation.held else SAY, specials=True):
                yield Generated((token_id,), guessed=not conversation.held)
            timings = Timings(len(prompt), max(conversation.held - missing, 0), 1, 0.0, 0.0)
            yield GenerationEnd("stop", None, timings)

        stage.engine._events = guess
        await stage.agent.answer(conversation, AnswerOptions(), stage.listen)

    judgements = [line for line in stage.metrics.render().decode().splitlines() if "codec_guessed_turns_total{" in line]
    assert {line.partition('"')[2].partition('"')[0]: line.split()[-1] for line in judgements}[judged] == "1.0"
    assert sum(float(line.split()[-1]) for line in judgements) == 1


async def test_time_to_the_first_id_of_a_later_turn_is_that_since_its_results(open_stage):
    began = time.perf_counter()
    async with open_stage(SAY, "Done.") as stage:
        await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(), stage.listen)
        took = time.perf_counter() - began

    first, second = stage.of(GenerationFinished)
    assert 0 < first.ttft < took
    assert 0 < second.ttft < took


@pytest.mark.parametrize(
    ("ended_by", "spelled"), [(TINY.special_tokens["<|im_end|>"], "<|im_end|>"), (10**8, ""), (None, "")]
)
async def test_turn_that_an_id_of_another_vocabulary_ended_is_rendered_without_it(open_stage, ended_by, spelled):
    async with open_stage("It is 42.") as stage:
        conversation = await stage.agent.open(QUESTION)
        await stage.agent.answer(conversation, AnswerOptions(), stage.listen)
        conversation.context.last = replace(conversation.context.last, ended_by=ended_by)
        _, end = conversation.context.last_turn(conversation.ready)

    assert end.token == spelled


async def test_what_an_answer_that_a_stop_string_ended_left_in_the_cache_is_told_of_the_next(open_stage):
    async def know(prompt, most):
        yield Generated((5,))
        yield GenerationEnd("length", None, Timings(1, len(prompt) - 1, 1, 0.0, 0.0))

    async with open_stage("STOP") as stage:
        await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(stops=("STOP",)), stage.listen)
        stage.engine._events = know
        finished = await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(), stage.listen)

    assert finished.cached_ids == finished.prompt_ids - 1


@pytest.mark.parametrize(
    ("wrote", "counted"),
    [
        ("Four.", ""),
        ("<think>\nTwo and two.\n</think>\n\nFour.", "<think>\nTwo and two."),
        ("<think>On and on", "<think>On and on"),
    ],
)
async def test_ids_of_reasoning_are_counted_up_to_its_last_word(open_stage, wrote, counted):
    async with open_stage(wrote) as stage:
        finished = await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(), stage.listen)

    assert finished.reasoning_ids == len(TINY.encode(counted, specials=True))


@pytest.mark.parametrize(("asked", "sent"), [(None, (False, 0)), (0, (True, 0)), (3, (True, 3))])
async def test_engine_is_asked_for_as_many_probabilities_as_the_client_wants(open_stage, asked, sent):
    async with open_stage("It is 42.") as stage:
        conversation = await stage.agent.open(QUESTION)
        await stage.agent.answer(conversation, AnswerOptions(logprobs=asked), stage.listen)

    assert [(request.logprobs, request.top_logprobs) for request in stage.engine.asked] == [sent]


async def test_result_that_has_room_is_spliced_whole(open_stage):
    says = "forty two, " * 20
    async with open_stage(SAY, "Done.", says=says) as stage:
        await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(), stage.listen)

    assert says.strip() in TINY.decode(stage.engine.asked[-1].prompt)


async def test_answer_for_which_nothing_was_deferred_reports_no_change(open_stage):
    async with open_stage("It is 42.") as stage:
        conversation = await stage.agent.open(QUESTION)
        await stage.agent.answer(conversation, AnswerOptions(), stage.listen)

    assert changes_of(conversation) == ()
