"""One conversation while its answer is made: what it may call, what it holds, and what is spliced into it."""

import re
from array import array
from dataclasses import replace
from typing import Any

import pytest

from gateway.context.compose.conversation import (
    Asked,
    Context,
    Continuation,
    Conversation,
    Observer,
    SearchTool,
    Spliced,
    calls_of_turns,
    readable,
)
from gateway.context.compose.id_sources import SourceTrail
from gateway.context.memory import (
    ANSWER,
    ContextChange,
    History,
    KeptResult,
    LivedTurn,
    Remembered,
    Shown,
)
from gateway.engine.pool.pool import Stay
from gateway.engine.rendering.scaffold import Scaffold, TurnShape
from gateway.errors import RequestInvalid
from gateway.observe.trajectories import Span
from gateway.proxy.naming import ToolEntry
from gateway.toolcalls.schema.spec import ToolSpec
from tests.cases import each_of
from tests.gateway.context.compose.written_turns import END, HERMES, TINY, Renderer, call, make_ready, run, text, write


def spec(name: str) -> ToolSpec:
    return ToolSpec(name, "", {"type": "object"})


def entry(name: str) -> ToolEntry:
    return ToolEntry(name, "up", name, {})


def talk(asked: Asked | None = None, prompt: str = "", ready: Any = None, **more: Any) -> Conversation:
    given = Context(TINY.encode(prompt, specials=True))
    return Conversation(asked or Asked(HERMES), Stay(ready or make_ready()), more.pop("context", given), **more)


# What is asked.


def test_tool_of_the_client_belongs_to_no_server() -> None:
    asked = Asked(HERMES, client_tools=frozenset({"look"}), server_of=lambda name: f"of {name}")

    assert (asked.owner_of("look"), asked.owner_of("dig")) == (None, "of dig")
    assert Asked(HERMES).owner_of("dig") is None
    assert Asked(HERMES).may_call
    assert SearchTool(spec("search")).query == "query"


@each_of(
    ("name", "may"),
    [
        ("get_weather", True),
        ("get.weather", True),
        ("get-weather", True),
        ("get__2", True),
        ("getWeather", True),
        ("getWeatherNow", True),
        ("weather", True),
        ("look", False),
        ("GetWeather", False),
        ("_get", False),
        ("get weather", False),
        ("x_" * 63 + "yz", True),
        ("x_" * 63 + "xyz", False),
    ],
)
def test_name_of_several_words_or_the_last_part_of_a_deferred_tools_name_may_be_deferred(name: str, may: bool) -> None:
    deferred = {name: entry(name) for name in ("up__weather", "other")}

    assert Asked(HERMES, deferred=deferred).may_be_deferred(name) is may
    assert not Asked(HERMES).may_be_deferred(name)


# Results that can be read on.


def kept(handle: str = "r1", content: Any = array("I", [1])) -> KeptResult:  # noqa: B008
    return KeptResult(handle, "ann", "look", "map", 1, (), b"", "text", content)


def test_results_are_readable_while_they_are_kept_and_only_the_gateway_has_the_names_of_their_readers() -> None:
    results = (kept("r1"), kept("r2", None), kept("r3"))
    asked = Asked(HERMES, (spec("look"),), result_tools=(spec("read"), spec("find")))

    assert readable(results, asked) == (results[0], results[2])
    assert readable(results, replace(asked, result_tools=())) == ()
    assert readable(results, replace(asked, tools=(spec("find"),))) == ()
    assert readable(results, replace(asked, deferred={"read": entry("read")})) == ()
    assert talk(asked, results=results).readable_results == (results[0], results[2])


# The context.


def test_contents_are_spliced_between_the_pieces_of_a_scaffold() -> None:
    context = Context([1, 2], sources=SourceTrail(2))
    context.splice(
        Scaffold(((3,), (5, 6), ()), ()),
        [[4], [7, 8]],
        [[Span("leaf", 1, "look")], [Span("shim", 2, "dig")]],
    )

    assert context.ids == [1, 2, 3, 4, 5, 6, 7, 8]
    assert context.sources is not None
    assert context.sources.spans == [
        *(Span("template", 1), Span("leaf", 1, "look"), Span("template", 2), Span("shim", 2, "dig")),
    ]
    assert context.earlier == ()


def test_sources_are_not_read_where_nobody_asks_for_them() -> None:
    context = Context([1])
    context.splice(Scaffold(((2,), (4,)), ()), [[3]])
    context.write([5], LivedTurn())

    assert (context.ids, context.sources) == ([1, 2, 3, 4, 5], None)


def test_calls_of_a_turn_are_counted_once_something_follows_them() -> None:
    context = Context([])
    context.write([1], LivedTurn((call(0), call(1))))
    assert context.earlier == ()
    context.splice(Scaffold(((2,),), ()), [])
    assert context.earlier == (2,)
    context.write([3], LivedTurn())
    context.splice(Scaffold(((4,),), ()), [])
    assert context.earlier == (2,)
    context.write([3], LivedTurn((call(0),)))
    context.splice(Scaffold(((4,),), ()), [])
    assert context.earlier == (2, 1)


def test_turn_of_the_model_ends_what_the_client_began() -> None:
    context = Context([1], sources=SourceTrail(1))
    context.begin_turn([2, 3])
    assert (context.ids, context.begun, context.sources) == ([1, 2, 3], (2, 3), SourceTrail(1))

    turn = LivedTurn(content=False)
    context.write([4, 5], turn)
    assert (context.ids, context.begun, context.last) == ([1, 2, 3, 4, 5], (), turn)
    assert context.sources is not None
    assert context.sources.spans == [Span("model", 2)]


def test_question_is_noted() -> None:
    context = Context([])
    context.note_question(7)

    assert context.question == 7


def test_calls_of_turns_are_counted_where_there_are_any() -> None:
    turns = [{"tool_calls": [1, 2]}, {}, {"tool_calls": []}, {"tool_calls": None}, {"tool_calls": [1]}]

    assert calls_of_turns(turns) == (2, 1)
    assert calls_of_turns([]) == ()


def test_shape_of_the_last_turn_is_what_it_did() -> None:
    turn = LivedTurn((call(0), call(1, "dig")), content=False, reasoning=True, ended_by=END, model_ids=("m0", "m1"))
    written = TINY.encode("x" * 200 + "done")
    context = Context(written, (2, 1), turn, defines=True)

    shape, end = context.last_turn(make_ready())

    assert shape == TurnShape(("look", "dig"), content=False, reasoning=True, tools=True, earlier=(2, 1))
    assert (end.token, end.call_ids) == ("<|im_end|>", ("m0", "m1"))
    assert callable(end.written)
    assert TINY.decode(written).endswith(end.written())
    assert end.written().endswith("done")
    assert len(end.written()) < 100


def test_ids_that_the_map_does_not_have_are_no_text_at_the_end_of_a_turn() -> None:
    _, end = Context([*TINY.encode("done"), len(TINY) + 9]).last_turn(make_ready())

    assert callable(end.written)
    assert end.written() == "done"


def test_where_calls_are_text_for_the_template_they_are_content() -> None:
    ready = make_ready(preamble=True, calls_as_text=True)

    def shape_of(turn: LivedTurn) -> TurnShape:
        return Context([], last=turn, defines=True).last_turn(ready)[0]

    assert shape_of(LivedTurn((call(),), content=False)) == TurnShape(content=True)
    assert shape_of(LivedTurn(content=False)) == TurnShape(content=False)
    assert shape_of(LivedTurn(content=True)) == TurnShape(content=True)


@pytest.mark.parametrize(("defines", "preamble"), [(True, True), (False, False)])
def test_template_shows_tools_where_it_defines_them(defines: bool, preamble: bool) -> None:
    assert not Context([], defines=defines).last_turn(make_ready(preamble=preamble))[0].tools
    assert Context([], defines=True).last_turn(make_ready())[0].tools
    assert not Context([]).last_turn(make_ready())[0].tools


# The conversation.


def remembered(before: Remembered | None = None, answer_id: str = "") -> Remembered:
    return Remembered("ann", before, 1, Shown("yes"), (), 0, array("I"), 0, 0, 0, answer_id=answer_id)


def test_conversation_is_named_after_its_first_answer_that_is_remembered() -> None:
    first = remembered(answer_id="one")
    last = remembered(first, "two")
    new = talk()

    assert re.fullmatch("[0-9a-f]{24}", new.answer_id)
    assert new.answer_id != talk().answer_id
    assert new.first_answer_id == new.answer_id
    assert talk(continuation=Continuation(before=last)).first_answer_id == "one"


def test_history_without_answers_has_nothing_cached() -> None:
    asked = [{"role": "user", "content": "hi"}]

    assert not Continuation().has_answers
    assert not Continuation(History(b"", asked)).has_answers
    assert Continuation(History(b"", [*asked, {"role": "assistant", "content": "yes"}])).has_answers


def test_tools_are_those_of_the_request_whose_definitions_the_model_has_read() -> None:
    deferred = {name: entry(name) for name in ("a", "b")}
    asked = Asked(HERMES, (spec("x"), spec("y")), deferred, client_tools=frozenset({"y", "b", "z"}))
    new = talk(asked)
    assert [tool.name for tool in new.tools] == ["x", "y"]
    new.define([deferred["b"].spec, spec("gone")])
    new.define([])

    assert [tool.name for tool in new.tools] == ["x", "y", "b"]
    assert [name for name in "xyabz" if new.has(name)] == ["x", "y", "b"]
    assert not new.has("gone")
    assert [name for name in "xyabz" if new.is_clients(name)] == ["y", "b"]
    assert [(each.name, each.place, each.owned) for each in new.defined.entries] == [
        *(("b", ANSWER, True), ("gone", ANSWER, False))
    ]
    assert [tool.name for tool in talk(Asked(HERMES, (spec("x"),)), defined=new.defined).tools] == ["x"]


def test_readers_of_results_may_be_called_once_there_are_some() -> None:
    asked = Asked(HERMES, (spec("x"), spec("find")), result_tools=(spec("read"), spec("find")))

    assert [tool.name for tool in talk(asked).tools] == ["x", "find"]
    assert [tool.name for tool in talk(asked, results=(kept(),)).tools] == ["x", "find", "read"]


def test_room_is_what_is_left_of_the_context() -> None:
    new = talk(prompt="hello", ready=make_ready(context=100))

    assert new.room == 100 - len(TINY.encode("hello"))
    assert new.ids is new.context.ids


def test_prompts_tail_is_its_last_64_ids_without_what_the_client_began() -> None:
    new = talk(prompt="a" + "bc" * 40)
    ids = [*new.ids]
    assert new.prompt_tail == TINY.decode(ids[-64:])
    assert len(ids) > 64
    new.begin_turn("The answer")

    assert new.ids == [*ids, *TINY.encode("The answer")]
    assert new.context.begun == tuple(TINY.encode("The answer"))
    assert new.prompt_tail == TINY.decode(ids[-64:])


def test_turn_that_begins_with_reasoning_is_not_begun_with_an_answer() -> None:
    new = talk(prompt="<|im_start|>assistant\n<think>\n")
    before = [*new.ids]

    with pytest.raises(RequestInvalid, match="this model's turn begins with reasoning") as refused:
        new.begin_turn("The answer")
    assert refused.value.param == "continue_final_message"
    assert new.ids == before


def test_changes_add_up() -> None:
    new = talk()
    one, two, three = (ContextChange("cleared", tokens) for tokens in (1, 2, 3))
    new.note_changes(one, two)
    new.note_changes(three)

    assert new.changes == (one, two, three)


@pytest.mark.anyio
async def test_results_of_calls_are_spliced_behind_the_turn_and_counted() -> None:
    new = talk(prompt="<|im_start|>assistant\n")
    new.context.sources = SourceTrail(len(new.ids))
    before = text(new.ids)
    write(new, "", call(0), call(1, "dig"))
    await run(new, "sun", "rain")

    assert text(new.ids).removeprefix(before) == (
        '<tool_call>{"arguments":{},"name":"look"}</tool_call><tool_call>{"arguments":{},"name":"dig"}</tool_call>'
        "<|im_end|>\n<|im_start|>tool\nsun<|im_end|>\n<|im_start|>tool\nrain<|im_end|>\n<|im_start|>assistant\n"
    )
    assert new.context.sources is not None
    scaffold = sum(span.count for span in new.context.sources.spans if span.source == "template")
    assert new.spliced.scaffold == scaffold > 0
    assert 0 < new.spliced.seconds < 60
    assert new.context.earlier == (2,)


# Hints for the choice of a slot.


@pytest.mark.anyio
async def test_hints_say_what_other_conversations_share_and_what_this_one_continues() -> None:
    new = talk(
        context=Context([1, 2, 3], preamble=1, question=2), continuation=Continuation(before=remembered(None, "b"))
    )

    hints = await new.hints()
    assert (hints.preamble, hints.question, hints.answer, hints.before) == (1, 2, new.answer_id, "b")
    assert (await talk().hints()).before == ""


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("rewind", "reasoning", "question", "returns"),
    [
        ("checkpoints", True, 2, True),
        ("window", True, 2, True),
        ("anywhere", True, 2, False),
        ("checkpoints", False, 2, False),
        ("checkpoints", True, 3, False),
    ],
)
async def test_conversation_returns_to_its_question_where_reasoning_is_dropped_and_the_cache_can_not_be_cut(
    rewind: str, reasoning: bool, question: int, returns: bool
) -> None:
    context = Context([1, 2, 3], last=LivedTurn(reasoning=reasoning), question=question)

    # The template never shows reasoning.
    assert (await talk(context=context, ready=make_ready(rewind=rewind)).hints()).returns is returns


@pytest.mark.anyio
async def test_conversation_does_not_return_where_the_template_shows_reasoning() -> None:
    class Open(Renderer):
        def turn(self, message: Any) -> str:
            return super().turn({**message, "content": f"{message.get('reasoning_content')}{message['content']}"})

    context = Context([1, 2, 3], last=LivedTurn(reasoning=True), question=2)

    assert not (await talk(context=context, ready=make_ready(Open(), rewind="checkpoints")).hints()).returns


def test_nothing_is_spliced_at_first() -> None:
    assert talk().spliced == Spliced(leaf=0, shim=0, scaffold=0, prefilled=0, prefilled_seconds=0.0, seconds=0.0)


def test_nobody_looks_unless_somebody_does() -> None:
    assert (Observer().watched, Observer().logprobs, talk().observer, talk().guessed, talk().held) == (
        *(False, False, None, False, 0),
    )
