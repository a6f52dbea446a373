"""Events of the agent as frames: the context in order, and nothing lost of it."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.agent.events import Finished, GenerationFinished, IdsGenerated, IdsSpliced, SplicedPart
from gateway.serve.codec.frames import FrameReply, Regions, watched_ids
from gateway.serve.generation.request_fields import WatchIds, WatchTexts
from gateway.toolcalls.stream.output_events import CallClosed, Content
from leaf_sdk.testing import tiny_map
from leaf_sdk.wire import Extras, Frame, Spliced, ToolCall, Usage

TINY = tiny_map()
START, END = 1000, 1001


def stats() -> GenerationFinished:
    return GenerationFinished(1, 1, 0, 0, 0, 0, None, 0.0, guessed=False)


def context_of(frames: list[Frame]) -> list[int]:
    return [token_id for frame in frames for token_id in frame.context_ids]


def test_answer_with_a_tool_gives_the_context_in_order_and_done_once():
    reply = FrameReply(prompt_ids=[1, 2])
    parts = (SplicedPart((10,), "scaffold"), SplicedPart((11, 12), "leaf", "call_1"), SplicedPart((13,), "scaffold"))
    call = CallClosed(0, "call_1", "say", '{"a": 1}', (3, 4))
    events = [
        IdsGenerated((3, 4)),
        call,
        stats(),
        IdsSpliced(parts),
        IdsGenerated((5,)),
        Content("five"),
        stats(),
        Finished("stop", 7, 2, 3),
    ]

    frames = [frame for event in events for frame in reply.feed(event)]

    assert context_of(frames) == [1, 2, 3, 4, 10, 11, 12, 13, 5]
    assert frames[0] == Frame((3, 4), extras=Extras(prompt_ids=(1, 2)))
    assert frames[1].tool_calls == (ToolCall('{"name":"say","arguments":{"a": 1}}', "say", "call_1"),)
    assert frames[2].extras.spliced[1] == Spliced((11, 12), "leaf", "call_1")
    assert frames[-1] == Frame(done=True, finish_reason="eos_token", extras=Extras(usage=Usage(7, 3, 2)))
    assert [frame.done for frame in frames] == [False] * (len(frames) - 1) + [True]


def test_stop_string_and_length_limit_are_told_apart():
    ends = (Finished("stop", 1, 0, 1, stop="."), Finished("stop", 1, 0, 1), Finished("length", 1, 0, 1))
    reasons = [FrameReply().feed(end)[0].finish_reason for end in ends]

    assert reasons == ["stop_sequence", "eos_token", "length"]


def test_failure_is_a_last_frame_that_says_why_without_line_breaks():
    (frame,) = FrameReply().fail("the engine\nleft")

    assert (frame.done, frame.finish_reason) == (True, "error")
    assert frame.extras.error is not None
    assert frame.extras.error.startswith("the engine")


def test_region_stands_apart_with_its_markers_and_names_its_call():
    body = TINY.encode(' {"name": "say", "arguments": {}} ')
    regions = Regions(WatchIds(START, END), TINY, name_calls=True)

    frames = regions.feed([7, START, *body[:3]]) + regions.feed([*body[3:], END, 8])

    (call,) = [call for frame in frames for call in frame.tool_calls]
    assert call == ToolCall('{"name": "say", "arguments": {}}', "say", "tc_00000001")
    assert context_of(frames) == [7, START, *body, END, 8]
    assert [token_id for frame in frames for token_id in frame.ids] == [7, 8]


def test_region_that_nobody_closes_comes_out_before_a_splice_and_names_no_call():
    reply = FrameReply(regions=Regions(WatchIds(START, END), TINY, name_calls=True))

    frames = [*reply.feed(IdsGenerated((5, START, 6))), *reply.feed(IdsSpliced((SplicedPart((9,), "shim"),)))]

    assert context_of(frames) == [5, START, 6, 9]
    assert not any(frame.tool_calls for frame in frames)


@given(st.lists(st.sampled_from([5, 6, START, END]), max_size=40), st.integers(1, 7))
def test_every_id_comes_out_once_and_in_order_however_they_came(ids, size):
    regions = Regions(WatchIds(START, END), TINY, name_calls=True)

    frames = [frame for at in range(0, len(ids), size) for frame in regions.feed(ids[at : at + size])]
    frames += regions.flush()

    assert context_of(frames) == ids


def test_watched_texts_that_are_one_token_each_are_found_and_others_are_not_watched():
    special = sorted(TINY.special_texts)[0]

    assert watched_ids(WatchTexts(special, special), TINY) == WatchIds(
        TINY.special_texts[special], TINY.special_texts[special]
    )
    assert watched_ids(WatchTexts("two words here", special), TINY) is None
