"""What the model writes in one generation: the events of its ids, and the turn that is remembered of them."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent.events import ContentSampled, IdsGenerated, TokenLogprob
from gateway.agent.generate.generation_options import GenerationOptions, ToolChoice, hold_for
from gateway.agent.generate.model_output import EndHold, ModelOutput
from gateway.context.compose.conversation import Conversation
from gateway.context.memory import Call
from gateway.engine.interface import Generated, GenerationEnd, Sampling, Timings
from gateway.observe.trajectories import Sampled
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed, CallStarted, Content, Diagnostic, Reasoning
from leaf_sdk.testing import tiny_map

TINY = tiny_map()
END = TINY.special_tokens["<|im_end|>"]
OTHER_SPECIAL = TINY.special_tokens["<|im_start|>"]
QUESTION = [{"role": "user", "content": "What is it?"}]
PAINT = ToolSpec("paint", "Paint it", {"type": "object"})
OWN = '<tool_call>\n{"name": "paint", "arguments": {"colour": "red"}}\n</tool_call>'
SAY = '<tool_call>\n{"name": "up__say", "arguments": {}}\n</tool_call>'
HALF = '<tool_call>\n{"name": "up__say", "argum'
TIMINGS = Timings(1, 0, 1, 0.0, 0.0)
STOPPED = GenerationEnd("stop", END, TIMINGS)
CUT = GenerationEnd("length", None, TIMINGS)


def ids(text: str) -> list[int]:
    return TINY.encode(text, specials=True)


@given(st.lists(st.lists(st.sampled_from([1, 2, 8, 9]), min_size=1, max_size=4), max_size=5), st.booleans())
def test_end_of_turn_is_held_until_it_is_known_whether_it_is_one(chunks: list[list[int]], ends: bool):
    """8 and 9 could end a turn."""
    hold, sent, seen = EndHold({8, 9}), list[int](), list[int]()
    for chunk in chunks:
        seen += hold.feed(chunk)
        sent += chunk
        held = sent[-1] in (8, 9)
        assert seen == sent[: len(sent) - held]
    held = bool(sent) and sent[-1] in (8, 9)
    rest = hold.close(sent[-1] if ends and held else None)

    assert [*seen, *rest] == (sent[:-1] if ends and held else sent)
    # Nothing is left for a second end.
    assert [*hold.close(None)] == []


def test_what_is_held_can_be_forgotten():
    hold = EndHold({8})
    assert [*hold.feed([1, 8])] == [1]
    hold.drop()
    assert [*hold.feed([2])] == [2]
    assert [*hold.close(None)] == []


async def opened(stage: Any, **more: Any) -> Conversation:
    return await stage.agent.open(more.pop("messages", QUESTION), **{"client_tools": [PAINT], **more})


def output_of(conversation: Conversation, **options: Any) -> ModelOutput:
    return ModelOutput(conversation, GenerationOptions(1000, Sampling(), **options))


def fed(output: ModelOutput, text: str) -> list[Any]:
    """The events of a text that comes id by id, until no more is wanted."""
    events: list[Any] = []
    for token_id in ids(text):
        events += output.feed(Generated((token_id,)))
        if output.over:
            break
    return events


def ended(output: ModelOutput, end: GenerationEnd | None) -> list[Any]:
    told = [] if end is None else output.close(end.ended_by)
    output.remember(end)
    return told


def content_of(events: Sequence[Any]) -> str:
    return "".join(event.text for event in events if isinstance(event, Content))


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("text", "content", "reasoning", "calls"),
    [
        ("Well.", "Well.", "", 0),
        (OWN, "", "", 1),
        (f"Well. {OWN}\n{OWN}", "Well. ", "", 2),
        ("<think>\nHm.\n</think>\n\nWell.", "Well.", "Hm.", 0),
        (f"<think>\nHm.\n</think>\n\n{OWN}", "", "Hm.", 1),
    ],
)
async def test_turn_is_remembered_as_the_model_wrote_it_and_as_the_client_saw_it(
    open_stage, text, content, reasoning, calls
):
    async with open_stage() as stage:
        conversation = await opened(stage)
        prompt = len(conversation.ids)
        output = output_of(conversation)
        events = [*fed(output, f"{text}<|im_end|>"), *ended(output, STOPPED)]

    turn, lived = conversation.context.last, conversation.lived
    assert conversation.ids[prompt:] == output.ids == ids(text)
    assert (turn.content, turn.reasoning, turn.ended_by, turn.broken) == (bool(content), bool(reasoning), END, False)
    assert [call.name for call in turn.calls] == ["paint"] * calls
    assert len(turn.model_ids) == calls
    assert content_of(events).strip() == content.strip()
    assert "".join(event.text for event in events if isinstance(event, Reasoning)).strip() == reasoning
    assert lived.shown.content == content_of(events)
    assert lived.shown.reasoning.strip() == reasoning
    assert output.reasoned == (len(ids("<think>\nHm.")) if reasoning else 0)
    assert lived.shown.calls == tuple(Call(call.id, "paint", call.arguments) for call in output.calls)
    assert lived.whole
    assert lived.last is not None
    assert list(lived.last.ids) == output.ids
    assert lived.last.spans == ()
    assert lived.start == prompt
    assert len(output.indexes) == len([event for event in events if isinstance(event, CallStarted)]) == calls


@pytest.mark.anyio
@pytest.mark.parametrize("ended_by", [END, None])
async def test_id_that_may_end_the_turn_belongs_to_it_unless_it_did(open_stage, ended_by):
    async with open_stage() as stage:
        output = output_of(await opened(stage), ids=True)
        before = fed(output, "Well.<|im_end|>")
        after = output.close(ended_by)

    told = [token for event in (*before, *after) if isinstance(event, IdsGenerated) for token in event.ids]
    assert told == output.ids == ids("Well.") + ([] if ended_by else [END])
    assert all(event.ids for event in (*before, *after) if isinstance(event, IdsGenerated))


@pytest.mark.anyio
async def test_turn_that_a_client_has_begun_has_words_and_is_read_from_its_beginning(open_stage):
    marker, rest = OWN[: OWN.index("{")], OWN[OWN.index("{") :]
    required = ToolChoice("required")
    async with open_stage() as stage:
        begun = {"messages": [*QUESTION, {"role": "assistant", "content": marker}], "continues": True}
        conversation = await opened(stage, **begun, choice=required)
        output = output_of(conversation, hold=hold_for(conversation, required, parallel=None, always=False))
        events = [*fed(output, rest), *ended(output, CUT)]

    assert [event.name for event in events if isinstance(event, CallClosed)] == ["paint"]
    assert content_of(events) == ""
    assert conversation.context.last.content


@pytest.mark.anyio
async def test_turn_of_one_call_ends_with_the_call(open_stage):
    async with open_stage() as stage:
        conversation = await opened(stage)
        output = output_of(conversation, one_call=True, ids=True)
        events = fed(output, f"Well. {OWN}\n{OWN} twice")
        ended(output, None)

    assert output.over
    # The id behind a call tells that its last one did not end the turn.
    assert output.ids == ids(f"Well. {OWN}\n")
    assert [token for event in events if isinstance(event, IdsGenerated) for token in event.ids] == output.ids
    assert len(output.calls) == len([event for event in events if isinstance(event, CallClosed)]) == 1
    assert conversation.lived.whole
    assert conversation.lived.shown.content == "Well. "


@pytest.mark.anyio
async def test_everything_behind_a_stop_string_is_dropped(open_stage):
    async with open_stage() as stage:
        conversation = await opened(stage)
        output = output_of(conversation, stops=("STOP",))
        events = [*output.feed(Generated(tuple(ids(f"One STOP two {OWN}")))), *output.close(None)]
        ended(output, None)

    assert content_of(events) == "One "
    assert output.over
    assert output.stops.found == "STOP"
    assert [event for event in events if isinstance(event, CallStarted)] == []
    # It is remembered as far as its client saw it.
    assert conversation.lived.last is not None
    assert list(conversation.lived.last.ids) == ids("One ")


@pytest.mark.anyio
async def test_calls_have_the_indexes_of_the_response_and_those_that_are_not_told_have_none(open_stage):
    taken: list[tuple[str, int]] = []
    async with open_stage() as stage:
        conversation = await opened(stage)
        room = conversation.room
        hides = lambda name: name == "paint"  # noqa: E731
        output = output_of(
            conversation,
            first_index=3,
            tells=hides,
            shows=hides,
            on_call=lambda call, room: taken.append((call.name, room)),
        )
        events = fed(output, f"{OWN}\n{SAY}\n{OWN}<|im_end|>")

    assert [event.index for event in events if isinstance(event, CallStarted)] == [3, 4]
    assert [event.index for event in events if isinstance(event, CallClosed)] == [3, 4]
    ends = [len(ids(text)) for text in (f"{OWN}\n", f"{OWN}\n{SAY}\n", f"{OWN}\n{SAY}\n{OWN}")]
    assert taken == [(name, room - end) for name, end in zip(["paint", "up__say", "paint"], ends, strict=True)]
    started = [event.id for event in events if isinstance(event, CallStarted)]
    assert started == [call.id for call in output.calls if call.name == "paint"]
    assert len({call.id for call in output.calls}) == 3


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("shows", "asks", "sent"), [(True, True, True), (True, False, True), (False, True, True), (False, False, False)]
)
async def test_client_sends_back_the_calls_that_it_was_shown_and_those_that_it_approves(open_stage, shows, asks, sent):
    async with open_stage() as stage:
        conversation = await opened(stage)
        output = output_of(conversation, shows=lambda name: shows, asks=lambda call: asks)
        fed(output, f"{SAY}<|im_end|>")
        ended(output, STOPPED)

    (call,) = output.calls
    assert conversation.lived.shown.calls == ((Call(call.id, "up__say", "{}"),) if sent else ())


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("text", "known", "kept"),
    [
        # Of a turn that broke off in a call, the whole calls before it are remembered.
        (f"Well. {SAY}\n{HALF}", False, f"Well. {SAY}"),
        (f"{SAY}\n{SAY}\n{HALF}", False, f"{SAY}\n{SAY}"),
        # Nothing is where words follow them.
        (f"{SAY} And {HALF}", False, None),
        # A client that knows of the broken call may send back anything.
        (f"{SAY}\n{HALF}", True, None),
        (HALF, True, None),
        (HALF, False, HALF),
        (f"Well. {SAY}", True, f"Well. {SAY}"),
    ],
)
async def test_turn_that_broke_off_in_a_call_is_remembered_up_to_its_last_whole_one(open_stage, text, known, kept):
    async with open_stage() as stage:
        conversation = await opened(stage)
        output = output_of(conversation, shows=lambda name: known)
        events = [*fed(output, text), *ended(output, CUT)]

    lived, broken = conversation.lived, text.endswith(HALF)
    assert conversation.context.last.broken is broken
    assert ("truncated" in [event.kind for event in events if isinstance(event, Diagnostic)]) is broken
    assert output.ids == ids(text)
    assert lived.whole is (kept is not None)
    if kept is None:
        assert lived.last is None
        return
    assert lived.last is not None
    assert list(lived.last.ids) == ids(kept)
    assert lived.last.turn is not None
    assert lived.last.turn.broken is (broken and kept == text)
    assert lived.last.spans == ()


@pytest.mark.anyio
async def test_notes_of_a_call_that_is_not_told_belong_to_no_index(open_stage, caplog):
    async with open_stage() as stage:
        for tells, index in ((True, 0), (False, None)):
            output = output_of(await opened(stage), tells=lambda name, tells=tells: tells)
            events = [*fed(output, HALF), *output.close(None)]
            assert [(event.kind, event.index) for event in events if isinstance(event, Diagnostic)] == [
                ("truncated", index)
            ]

    # A fault of the model's is none of the parser's.
    assert "the parser of a tool-call format failed" not in caplog.text


@pytest.mark.anyio
async def test_content_of_ids_that_came_together_is_one_event(open_stage):
    async with open_stage() as stage:
        output = output_of(await opened(stage))

        assert output.feed(Generated(tuple(ids("zyx")))) == [Content("zyx")]


def weighed(token_id: int) -> Generated:
    return Generated((token_id,), logprobs=(-float(token_id),), tops=(((token_id, -float(token_id)),),))


@pytest.mark.anyio
async def test_probabilities_stand_before_the_content_that_their_ids_spell(open_stage):
    async with open_stage() as stage:
        output = output_of(await opened(stage), logprobs=1)
        events = [event for token in ids(f"One{OWN}zyx<|im_end|>") for event in output.feed(weighed(token))]
        events += output.close(END)
        unweighed = output_of(await opened(stage))
        plain = [event for token in ids("One") for event in unweighed.feed(weighed(token))]

    told = [(event, after) for event, after in pairwise(events) if isinstance(event, ContentSampled)]
    # Those of the call are nobody's.
    assert [token for event, _ in told for token in event.tokens] == [
        TokenLogprob(token, -float(token), ((token, -float(token)),)) for token in ids("Onezyx")
    ]
    assert all(isinstance(after, Content) for _, after in told)
    assert [TINY.decode(token.token_id for token in event.tokens) for event, _ in told] == [
        after.text for _, after in told
    ]
    assert [event for event in plain if isinstance(event, ContentSampled)] == []


@pytest.mark.anyio
async def test_probabilities_that_an_engine_leaves_out_are_reported_as_missing(open_stage):
    async with open_stage() as stage:
        output = output_of(await opened(stage), logprobs=1)
        a, b = ids("ab")
        events = output.feed(Generated((a, b), logprobs=(-1.0, None)))

    told = [token for event in events if isinstance(event, ContentSampled) for token in event.tokens]
    assert told == [TokenLogprob(a, -1.0, ()), TokenLogprob(b, None, ())]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("end", "missed", "guessed"), [(STOPPED, 0, False), (CUT, 0, False), (STOPPED, 1, True), (None, 0, False)]
)
async def test_record_of_a_turn_holds_the_probabilities_of_its_ids_and_of_its_end(open_stage, end, missed, guessed):
    async with open_stage() as stage:
        stage.agent.recall.watch(lambda: True)
        conversation = await opened(stage)
        prompt, written = len(conversation.ids), [*ids("One"), END]
        output = output_of(conversation)
        for token in (*written[:-1], OTHER_SPECIAL):
            output.feed(weighed(token))
        # It was sampled and not told: it is sampled again.
        output.rewind()
        output.feed(weighed(END))
        ended(output, end and replace(end, missed=missed))

    assert conversation.observer is not None
    whole = written if end is CUT else written[:-1]
    ended_by = END if end is not None and end.ended_by else None
    probable = whole if ended_by is None else written
    assert conversation.observer.sampled == [
        Sampled(prompt, len(whole), ended_by, guessed, tuple(-float(token) for token in probable))
    ]


@pytest.mark.anyio
@pytest.mark.parametrize("guessed", [True, False])
async def test_turn_with_a_guessed_id_counts_as_guessed(open_stage, guessed):
    async with open_stage() as stage:
        output = output_of(await opened(stage))
        for number, token in enumerate(ids("One")):
            output.feed(Generated((token,), guessed=guessed and number == 1))

    assert output.guessed is guessed


@pytest.mark.anyio
async def test_where_the_answer_has_to_be_words_nothing_is_a_call(open_stage):
    async with open_stage() as stage:
        output = output_of(await opened(stage), words=True)
        events = [*fed(output, OWN), *output.close(None)]

    assert content_of(events) == OWN
    assert output.calls == []
