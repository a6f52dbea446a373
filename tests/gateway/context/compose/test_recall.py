"""Which remembered conversation a request continues, and what is kept and counted of each answer."""

from array import array
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.context.compose.conversation import Asked, Conversation, Observer
from gateway.context.compose.id_sources import SourceTrail
from gateway.context.compose.recall import Recall, answer_of, record_of
from gateway.context.history.shortening import after_summary
from gateway.context.memory import (
    BEGINNING,
    CallRecord,
    ContextChange,
    GenerationRecord,
    History,
    KeptResult,
    Lived,
    Miss,
    RequestFigures,
    Shown,
)
from gateway.observe.trajectories import Sampled, Span
from gateway.proxy.caller import Principal
from gateway.toolcalls.schema.spec import ToolSpec
from tests.cases import each_of
from tests.gateway.context.compose.written_turns import (
    END,
    HERMES,
    TINY,
    Counts,
    Renderer,
    call,
    echo,
    make_ready,
    new_recall,
    run,
    said,
    text,
    write,
)

pytestmark = pytest.mark.anyio

LOOK = ToolSpec("look", "", {"type": "object"})
DIG = ToolSpec("dig", "", {"type": "object"})
ASKED = Asked(HERMES, (LOOK,), principal=Principal("ann"))
QUESTION = [said("user", "hi")]
FIGURES = RequestFigures(prompt=9, cached=4)


async def answered(
    recall: Recall,
    messages: Sequence[Any] = QUESTION,
    words: str = "Yes.",
    *calls: Any,
    asked: Asked = ASKED,
    ready: Any = None,
    figures: RequestFigures | None = FIGURES,
) -> tuple[Conversation, list[Any]]:
    """The conversation after an answer, and its messages with it."""
    conversation = await recall.begin(asked, ready or make_ready(), messages)
    write(conversation, words, *calls)
    recall.keep(conversation, "stop", figures)
    return conversation, [*messages, echo(conversation)]


# What is continued.


async def test_first_request_of_a_conversation_continues_nothing() -> None:
    conversation = await new_recall().begin(ASKED, ready := make_ready(), QUESTION)

    found = conversation.continuation
    assert (found.before, found.kept, found.miss, found.has_answers) == (None, 0, None, False)
    assert found.history is not None
    assert (conversation.held, conversation.results, conversation.observer) == (0, (), None)
    assert conversation.ready is ready
    assert [(each.name, each.place) for each in conversation.defined.entries] == [("look", BEGINNING)]


async def test_next_request_continues_the_ids_of_the_answer() -> None:
    recall, ready = new_recall(), make_ready()
    before, messages = await answered(recall, ready=ready)
    held = [*before.ids]
    await answered(recall, [*messages, said("user", "And?")], ready=ready)

    after = await recall.begin(ASKED, ready, [*messages, said("user", "More?")])
    assert after.ids[: len(held)] == held
    assert text(after.ids[len(held) :]) == "<|im_end|>\n<|im_start|>user\nMore?<|im_end|>\n<|im_start|>assistant\n"
    assert after.continuation.before is not None
    assert (after.continuation.before.answer_id, after.continuation.kept) == (before.answer_id, len(held))
    assert (after.held, after.continuation.miss, after.continuation.has_answers) == (len(held), None, True)
    assert after.first_answer_id == before.answer_id


async def test_request_that_is_not_to_be_remembered_continues_nothing_and_is_not_kept() -> None:
    counts = Counts()
    recall, ready = new_recall(metrics=counts), make_ready()
    _, messages = await answered(recall, ready=ready)
    counts.told.clear()

    told = [*messages, said("user", "And?")]
    conversation = await recall.begin(ASKED, ready, told, remembered=False)
    assert conversation.continuation.history is None
    assert not conversation.continuation.has_answers
    assert [each.name for each in conversation.defined.entries] == ["look"]
    write(conversation, "No.")
    changes = recall.changes
    assert recall.keep(conversation, "stop", FIGURES) is None
    assert (recall.changes, counts.told) == (changes, [(9, 4)])


async def test_request_that_is_not_to_be_remembered_defines_found_tools_behind_what_found_them() -> None:
    entry: Any = SimpleNamespace(spec=DIG)
    found = {**said("tool", "found"), "tool_call_id": "c", "found_tools": ["dig"]}
    asked = replace(ASKED, deferred={"dig": entry})

    conversation = await new_recall().begin(asked, make_ready(preamble=True), [*QUESTION, found], remembered=False)
    assert "found\n\nYou can call these tools now:\n" in text(conversation.ids)


@pytest.mark.parametrize(
    ("asked", "facts"),
    [
        (replace(ASKED, principal=Principal("bob")), {}),
        (ASKED, {"chat_template": "other"}),
        (ASKED, {"options": {"thinking": True}}),
    ],
)
async def test_other_principal_template_or_option_makes_another_conversation(asked: Asked, facts: Any) -> None:
    recall = new_recall()
    _, messages = await answered(recall)
    told = [*messages, said("user", "And?")]

    other = await recall.begin(asked, make_ready(**facts), told)
    assert other.continuation.before is None
    assert other.continuation.miss is not None
    assert (await recall.begin(ASKED, make_ready(), told)).continuation.before is not None


async def test_conversations_of_one_gateway_are_unknown_to_another() -> None:
    _, messages = await answered(new_recall())

    other = await new_recall().begin(ASKED, make_ready(), [*messages, said("user", "And?")])
    assert other.continuation.miss == Miss("not_seen_before")


async def test_changed_answer_is_a_miss_that_says_what_has_changed() -> None:
    recall = new_recall()
    first, messages = await answered(recall)
    second, messages = await answered(recall, [*messages, said("user", "And?")], "No.")

    changed = await recall.begin(ASKED, make_ready(), [messages[0], messages[1], said("user", "Or?"), messages[3]])
    found = changed.continuation
    assert found.before is not None
    assert found.before.answer_id == first.answer_id
    changed = await recall.begin(ASKED, make_ready(), [said("user", "ho"), *messages[1:]])
    assert changed.continuation.miss == Miss("client_changed", second.held, 0, 1, "hi", "ho")
    assert changed.held == 0


async def test_forgotten_answer_is_a_miss_for_want_of_memory() -> None:
    recall = new_recall(memory_bytes=6000)
    _, messages = await answered(recall)
    for number in range(9):
        await answered(recall, [said("user", f"other {number}")])

    again = await recall.begin(ASKED, make_ready(), [*messages, said("user", "And?")])
    assert again.continuation.miss == Miss("memory_full", results_lost=False)


async def test_memory_forgets_that_results_were_lost_with_an_answer() -> None:
    recall = new_recall(memory_bytes=6000)
    conversation = await recall.begin(ASKED, make_ready(), QUESTION)
    write(conversation, "", call(), shown=False)
    await run(conversation, "sun")
    write(conversation, "Yes.")
    recall.keep(conversation, "stop", None)
    messages = [*QUESTION, echo(conversation)]
    for number in range(9):
        await answered(recall, [said("user", f"other {number}")])

    again = await recall.begin(ASKED, make_ready(), [*messages, said("user", "And?")])
    assert again.continuation.miss == Miss("memory_full", results_lost=True)


async def test_conversation_without_tools_is_rendered_anew_once_it_has_some() -> None:
    recall = new_recall()
    before, messages = await answered(recall, asked=replace(ASKED, tools=()))

    after = await recall.begin(ASKED, make_ready(), [*messages, said("user", "And?")])
    assert after.continuation.before is None
    assert after.continuation.miss == Miss("tools_changed", before.held)
    assert [(each.name, each.place) for each in after.defined.entries] == [("look", BEGINNING)]


async def test_new_tool_is_defined_behind_the_first_new_message() -> None:
    recall = new_recall()
    before, messages = await answered(recall)

    after = await recall.begin(replace(ASKED, tools=(LOOK, DIG)), make_ready(), [*messages, said("user", "And?")])
    assert after.ids[: len(before.ids)] == before.ids
    shown = text(after.ids[len(before.ids) :])
    assert shown.startswith("<|im_end|>\n<|im_start|>user\nYou can call these tools now:\n")
    assert '"name": "dig"' in shown
    assert shown.endswith("\n\nAnd?<|im_end|>\n<|im_start|>assistant\n")
    assert [(each.name, each.place) for each in after.defined.entries] == [("look", BEGINNING), ("dig", 2)]


@pytest.mark.parametrize("lived", [True, False])
async def test_conversation_that_the_template_refuses_is_rendered_from_what_the_client_sends(
    lived: bool, caplog: pytest.LogCaptureFixture
) -> None:
    renderer = Renderer()
    recall, ready = new_recall(), make_ready(renderer)
    conversation = await recall.begin(ASKED, ready, QUESTION)
    if lived:
        write(conversation, "", call(), shown=False)
        await run(conversation, "sun")
    write(conversation, "Yes.", reasoning="" if lived else "A thought.")
    recall.keep(conversation, "stop", None)
    # What the model was shown besides, or what it wrote; the client's copy has neither.
    renderer.refuses = lambda messages: len(messages) > 3 if lived else "reasoning_content" in messages[-2]

    after = await recall.begin(ASKED, ready, [*QUESTION, echo(conversation), said("user", "And?")])
    assert after.continuation.before is None
    assert after.continuation.miss == Miss("template_rewrote", conversation.held, results_lost=lived)
    assert text(after.ids).endswith(
        "assistant\nYes.<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert "the template refuses a remembered conversation" in caplog.text


# What is kept.


async def test_answer_is_kept_with_all_that_continues_it() -> None:
    recall, ready = new_recall(), make_ready()
    first, messages = await answered(recall, ready=ready)
    told = [*messages, said("user", "And?")]
    conversation = await recall.begin(ASKED, ready, told)
    write(conversation, "Let me see.", call(7), shown=False)
    await run(conversation, "sun")
    ids = write(conversation, "It is.", reasoning="Hm.")
    miss, change = Miss("client_changed", was="secret"), ContextChange("cleared", 1)
    figures = RequestFigures(9, 4, recall_miss=miss, changes=(change,))
    began = monotonic()
    recall.keep(conversation, "stop", figures)

    (node,) = recall.conversations(5)
    assert (node.owner, node.place, node.answer_id) == ("ann", 3, conversation.answer_id)
    assert node.before is not None
    assert (node.before.answer_id, node.before.number) == (first.answer_id, node.number)
    assert node.shown == Shown("Let me see.It is.", "Hm.")
    assert node.kept == len(first.ids)
    assert node.ids() == conversation.ids
    assert list(node.added) == conversation.ids[len(first.ids) :]
    assert node.held == len(conversation.ids)
    assert node.original_ids == len(conversation.ids)
    assert (node.engine, node.engine_name) == (ready.number, "engine")
    assert (node.model, node.map_id) == ("model", TINY.map_id)
    assert node.made is not None
    assert began <= node.made <= monotonic()
    assert node.figures == replace(figures, recall_miss=None)
    assert (node.record, node.tools, node.results) == (None, conversation.defined, ())
    assert [each.message["role"] for each in node.lived] == ["assistant", "tool", "assistant"]
    last = node.lived[-1].turn
    assert last is not None
    assert last.form.startswith("<think>|</think>|")
    assert list(node.lived[-1].ids) == ids
    assert node.strangers == b""


async def test_answers_before_it_that_are_not_remembered_are_strangers() -> None:
    recall = new_recall()
    told = [*QUESTION, said("assistant", "Mine."), said("user", "And?")]
    _, messages = await answered(recall, told)
    (first,) = recall.conversations(5)
    await answered(recall, [*messages, said("user", "Or?")])
    (second,) = recall.conversations(5)

    assert first.strangers == History(b"", told).strangers(0, 3) != b""
    assert (second.strangers, second.number) == (b"", first.number)
    told = [*messages, said("assistant", "Mine."), said("user", "And?")]
    await answered(recall, told)
    (latest, _) = recall.conversations(5)
    assert latest.strangers == History(b"", told).strangers(4, 6) != b""


async def test_answer_with_which_a_history_begins_is_a_stranger() -> None:
    recall = new_recall()
    told = [said("assistant", "Mine."), said("user", "And?")]
    await answered(recall, told)

    assert recall.conversations(1)[0].strangers == History(b"", told).strangers(0, 2) != b""


async def test_each_new_conversation_has_a_number_of_its_own() -> None:
    recall = new_recall()
    await answered(recall)
    await answered(recall, [said("user", "other")])

    one, two = recall.conversations(5)
    assert one.number != two.number
    assert [node.shown for node in recall.branches(one.number)] == [one.shown]
    assert recall.branches(99) == []
    assert recall.conversations(1) == [one]


async def test_branches_of_a_conversation_have_its_number_the_latest_first() -> None:
    recall = new_recall()
    _, messages = await answered(recall)
    for words in ("And?", "Or?"):
        await answered(recall, [*messages, said("user", words)], words)

    latest, other = recall.branches(recall.conversations(1)[0].number)
    assert [latest.shown.content, other.shown.content] == ["Or?", "And?"]
    assert latest.before is other.before


async def test_ids_that_the_engine_has_not_processed_are_not_held() -> None:
    recall = new_recall()
    conversation = await recall.begin(ASKED, make_ready(), QUESTION)
    write(conversation, "Yes.")
    conversation.held = 5
    recall.keep(conversation, "stop", FIGURES)
    assert recall.conversations(1)[0].held == 5

    conversation.held = 9999
    recall.keep(conversation, "stop", FIGURES)
    assert recall.conversations(1)[0].held == len(conversation.ids)


async def test_last_turn_is_kept_as_its_client_saw_it() -> None:
    recall = new_recall()
    conversation = await recall.begin(ASKED, make_ready(), QUESTION)
    start = len(conversation.ids)
    write(conversation, "Yes and no.")
    last = conversation.lived.messages[-1]
    ids = array("I", TINY.encode("Yes!"))
    spans = (Span("model", 2), Span("assistant", len(ids) - 2))
    conversation.lived.messages[-1] = Lived(last.message, ids, last.turn, spans)
    recall.keep(conversation, "stop", FIGURES)

    (node,) = recall.conversations(1)
    assert node.ids() == [*conversation.ids[:start], *ids]
    assert (node.original_ids, node.held) == (start + 2, start + len(ids))


@pytest.mark.parametrize("why", ["a call broke off", "no turn"])
async def test_answer_that_its_client_can_not_continue_is_not_kept(why: str) -> None:
    counts = Counts()
    recall = new_recall(metrics=counts)
    conversation = await recall.begin(ASKED, make_ready(), QUESTION)
    if why != "no turn":
        write(conversation, "Yes.")
        conversation.lived.whole = False
    recall.keep(conversation, "stop", FIGURES)

    assert recall.conversations(5) == []
    assert recall.last_user_text(0) is None
    assert counts.told == [(9, 4)]


async def test_last_user_message_of_a_kept_conversation_can_be_read() -> None:
    recall = new_recall()
    asked = [said("user", "first"), said("assistant", "x"), said("user", "second"), said("system", "late")]
    await answered(recall, asked)

    assert recall.last_user_text(recall.conversations(1)[0].number) == "second"
    assert recall.last_user_text(99) is None


async def test_seven_eighths_of_the_memory_are_for_answers_and_one_for_the_words_of_messages() -> None:
    recall = new_recall()
    await answered(recall)
    size = recall.conversations(1)[0].size
    # Two messages of 300 bytes, and their texts.
    words = 2 * 300 + len("hiYes.")
    for memory, kept in ((-(-size * 8 // 7), 1), (size * 8 // 7 - 8, 0)):
        recall = new_recall(memory_bytes=memory)
        await answered(recall)
        assert len(recall.conversations(1)) == kept
    for memory, told in ((8 * words, "hi"), (8 * words - 1, None)):
        recall = new_recall(memory_bytes=memory)
        await answered(recall)
        assert recall.last_user_text(0) == told


# What is counted.


LOST = RequestFigures(20, 4, held=9, reused=3, recomputed=6, reason="client_changed")


async def test_requests_that_continue_a_conversation_are_listed_the_latest_first() -> None:
    counts = Counts()
    recall = new_recall(metrics=counts)
    began = datetime.now(UTC)
    _, messages = await answered(recall)
    assert recall.last() == []
    second, messages = await answered(recall, [*messages, said("user", "And?")], figures=LOST)
    third, _ = await answered(recall, [*messages, said("user", "Or?")])
    await answered(recall, [*messages, said("user", "Unknown?")], figures=None)

    latest, other = recall.last()
    number = recall.conversations(1)[0].number
    assert (latest.principal, latest.conversation, latest.answer_id, latest.figures) == (
        *("ann", number, third.answer_id, FIGURES),
    )
    assert (other.answer_id, other.figures, other.conversation) == (second.answer_id, LOST, number)
    assert began <= other.when <= latest.when <= datetime.now(UTC)
    assert counts.told == [(9, 4), (20, 4), ("client_changed", 6), (9, 4)]


async def test_last_64_requests_are_listed() -> None:
    recall = new_recall()
    _, messages = await answered(recall)
    conversation = await recall.begin(ASKED, make_ready(), [*messages, said("user", "And?")])
    for number in range(70):
        recall.keep(conversation, "stop", RequestFigures(number, 0))

    assert [each.figures.prompt for each in recall.last()] == list(range(69, 5, -1))


async def test_answer_that_is_not_kept_is_listed_with_the_conversation_that_it_continues() -> None:
    recall = new_recall()
    _, messages = await answered(recall)
    number = recall.conversations(1)[0].number
    continued = await recall.begin(ASKED, make_ready(), [*messages, said("user", "And?")])
    recall.keep(continued, "error", FIGURES)
    unknown = await recall.begin(ASKED, make_ready(), [said("user", "x"), said("assistant", "y"), said("user", "z")])
    recall.keep(unknown, "error", FIGURES)

    assert [each.conversation for each in recall.last()] == [None, number]


@pytest.mark.parametrize("miss", [None, Miss("client_changed", message=2, at=7, was="a secret", now="another")])
async def test_recomputed_tokens_are_logged_without_words(miss: Miss | None, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    recall = new_recall()
    _, messages = await answered(recall)
    assert "recomputed" not in caplog.text
    await answered(recall, [*messages, said("user", "And?")], figures=replace(LOST, recall_miss=miss))

    (line,) = [record.msg for record in caplog.records if "recomputed" in str(record.msg)]
    assert isinstance(line, dict)
    told = {key: line.get(key) for key in ("event", "reason", "tokens", "message", "at")}
    assert told == {
        "event": "cached tokens were recomputed",
        "reason": "client_changed",
        "tokens": 6,
        "message": None if miss is None else 2,
        "at": None if miss is None else 7,
    }
    assert ("message" in line) is (miss is not None)
    assert "secret" not in caplog.text


async def test_what_can_be_reported_changes_with_each_answer() -> None:
    recall = new_recall()
    begun = recall.changes
    assert begun == recall.changes
    assert begun[1] is None
    _, messages = await answered(recall)
    kept = recall.changes
    assert kept[0] != begun[0]
    continued = await recall.begin(ASKED, make_ready(), [*messages, said("user", "And?")])
    used = recall.changes
    assert used[0] != kept[0]
    recall.keep(continued, "error", FIGURES)
    assert recall.changes == (used[0], recall.last()[0].when)


# Results that are read on behind a summary.


READ = ToolSpec("read", "", {"type": "object"})
CAN_READ = replace(ASKED, result_tools=(READ,))
KEPT = KeptResult("r1", "ann", "look", TINY.map_id, 1, (), b"", "text", array("I", [1]))


async def summed_up(recall: Recall, asked: Asked = CAN_READ) -> list[Any]:
    """The messages behind a summary of a conversation with a kept result."""
    conversation = await recall.begin(asked, make_ready(), QUESTION)
    conversation.results = (KEPT,)
    write(conversation, "Yes.")
    recall.keep(conversation, "stop", None)
    (behind,) = after_summary([], "They talked.")
    recall.sum_up(conversation, behind["summary"])
    return [behind]


async def test_results_of_a_conversation_are_found_behind_its_summary() -> None:
    recall = new_recall()
    messages = await summed_up(recall)

    behind = await recall.begin(CAN_READ, make_ready(), messages)
    assert behind.results == (KEPT,)
    assert [(each.name, each.place) for each in behind.defined.entries] == [("look", BEGINNING), ("read", 0)]
    assert [tool.name for tool in behind.tools] == ["look", "read"]
    write(behind, "Yes.")
    recall.keep(behind, "stop", None)
    after = await recall.begin(CAN_READ, make_ready(), [*messages, echo(behind), said("user", "And?")])
    assert after.results == (KEPT,)
    assert after.continuation.before is not None


async def test_summary_of_another_principal_or_unknown_words_has_no_results() -> None:
    recall = new_recall()
    messages = await summed_up(recall)

    bobs = replace(CAN_READ, principal=Principal("bob"))
    assert (await recall.begin(bobs, make_ready(), messages)).results == ()
    assert (await recall.begin(ASKED, make_ready(), messages)).results == ()
    (other,) = after_summary([], "They sang.")
    assert (await recall.begin(CAN_READ, make_ready(), [other])).results == ()
    assert (await recall.begin(CAN_READ, make_ready(), QUESTION)).results == ()
    assert (await recall.begin(CAN_READ, make_ready(), [said("system", "x"), *messages])).results == (KEPT,)


async def test_conversation_without_kept_results_is_not_summed_up() -> None:
    recall = new_recall()
    conversation, _ = await answered(recall, asked=CAN_READ)
    changes = recall.changes
    (behind,) = after_summary([], "They talked.")
    recall.sum_up(conversation, behind["summary"])
    recall.sum_up(await recall.begin(CAN_READ, make_ready(), QUESTION, remembered=False), behind["summary"])

    found = await recall.begin(CAN_READ, make_ready(), [behind])
    assert (found.results, recall.changes) == ((), changes)


# Records.


async def test_nothing_is_recorded_while_nobody_is_watching() -> None:
    recall = new_recall()
    assert not recall.is_watched
    conversation, _ = await answered(recall)

    assert (conversation.observer, conversation.context.sources) == (None, None)
    assert recall.conversations(1)[0].record is None


async def test_record_says_how_an_answer_was_made_and_can_be_forgotten() -> None:
    recall, ready = new_recall(), make_ready()
    recall.watch(lambda: True)
    first, messages = await answered(recall, ready=ready)
    conversation = await recall.begin(ASKED, ready, [*messages, said("user", "And?")])
    assert conversation.observer == Observer(watched=True, logprobs=False)
    generation = GenerationRecord(1, 2, 0, 0, None, 0, 0.0, 0.0, None, None, guessed=False, logprobs=array("f"))
    made = CallRecord("c0", "look", None, 0.1, 1, 0, is_error=False)
    conversation.observer.generations.append(generation)
    conversation.observer.calls.append(made)
    written = write(conversation, "No.")
    miss = Miss("client_changed")
    recall.keep(conversation, "stop", replace(FIGURES, recall_miss=miss))

    (node,) = recall.conversations(1)
    record = node.record
    assert record is not None
    assert (record.ended, record.kept, record.recall_miss) == ("stop", len(first.ids), miss)
    assert (record.generations, record.calls) == ((generation,), (made,))
    sources = [(span.source, span.count) for span in record.spans]
    assert [source for source, _ in sources] == ["template", "user", "template", "model"]
    assert sources[-1] == ("model", len(written))
    assert sum(count for _, count in sources) == len(conversation.ids) - len(first.ids)

    recall.forget_records()
    assert recall.conversations(1)[0].record is None


async def test_record_is_kept_only_if_somebody_is_watching_at_the_beginning_and_at_the_end() -> None:
    recall, ready = new_recall(), make_ready()
    for watched in ((True, False), (False, True)):
        recall.watch(lambda: watched[0])  # noqa: B023
        conversation = await recall.begin(ASKED, ready, QUESTION)
        recall.watch(lambda: watched[1])  # noqa: B023
        write(conversation, "Yes.")
        recall.keep(conversation, "stop", FIGURES)
        assert recall.conversations(1)[0].record is None


def made(spans: Sequence[Span], *, kept: int = 0, watched: bool = True) -> Conversation:
    """An answer of eight ids, of which the model wrote the last three."""
    conversation = Conversation(ASKED, SimpleNamespace(ready=make_ready()), None)  # type: ignore[arg-type]
    conversation.context = SimpleNamespace(ids=list(range(5)), sources=SourceTrail(kept, list(spans)))  # type: ignore[assignment]
    conversation.observer = Observer(watched=watched)
    conversation.context.write = lambda ids, turn: conversation.ids.extend(ids)  # type: ignore[method-assign]
    write(conversation, "abc")
    return conversation


@each_of(
    ("kept", "spans", "before"),
    [
        (0, [Span("template", 2), Span("user", 3), Span("model", 9)], [Span("template", 2), Span("user", 3)]),
        (0, [Span("template", 2), Span("user", 9)], [Span("template", 2), Span("user", 3)]),
        (3, [Span("user", 9)], [Span("user", 2)]),
        (5, [Span("user", 9)], []),
        (6, [Span("user", 9)], []),
        (0, [Span("template", 2), Span("user", 3)], [Span("template", 2), Span("user", 3)]),
        (0, [Span("template", 2)], [Span("template", 2)]),
        (0, [], []),
    ],
)
def test_record_has_the_sources_before_the_last_turn_and_those_of_the_turn(
    kept: int, spans: list[Span], before: list[Span]
) -> None:
    conversation = made(spans, kept=kept)
    count = len(conversation.ids) - 5

    found = record_of(conversation, "stop", None)
    assert found is not None
    assert (list(found.spans), found.kept, found.recall_miss) == ([*before, Span("model", count)], kept, None)
    cut = (Span("model", 1), Span("assistant", 1))
    last = conversation.lived.messages[-1]
    conversation.lived.messages[-1] = replace(last, spans=cut)
    found = record_of(conversation, "stop", None)
    assert found is not None
    assert list(found.spans) == [*before, *cut]


def test_there_is_no_record_of_what_was_not_watched_or_has_no_turn() -> None:
    assert record_of(made([], watched=False), "stop", None) is None
    conversation = made([])
    conversation.lived.messages.clear()
    assert record_of(conversation, "stop", None) is None
    conversation = made([])
    conversation.observer = None
    assert record_of(conversation, "stop", None) is None
    conversation = made([])
    conversation.context.sources = None
    assert record_of(conversation, "stop", None) is None


# Trajectories.


class Lines:
    """A trajectory file."""

    def __init__(self, *, logprobs: bool = False) -> None:
        self.logprobs = logprobs
        self.answers: list[Any] = []

    def record(self, answer: Any) -> None:
        self.answers.append(answer)


async def test_trajectory_has_what_each_answer_adds() -> None:
    lines = Lines()
    recall, ready = new_recall(trajectories=lines), make_ready()
    first = await recall.begin(ASKED, ready, QUESTION)
    assert first.observer == Observer(watched=False, logprobs=False)
    written = write(first, "Yes.")
    sampled = Sampled(len(first.ids) - len(written), len(written), END, guessed=False)
    first.observer.sampled.append(sampled)
    recall.keep(first, "stop", None)
    second = await recall.begin(ASKED, ready, [*QUESTION, echo(first), said("user", "And?")])
    write(second, "No.")
    assert second.observer is not None
    second.observer.sampled.append(sampled)
    recall.keep(second, "length", None)

    one, two = lines.answers
    assert (one.answer_id, one.before, one.principal, one.ended, one.kept) == (first.answer_id, None, "ann", "stop", 0)
    assert (one.map_id, one.model, list(one.ids)) == (TINY.map_id, "model", first.ids)
    assert (two.before, two.ended, two.kept) == (first.answer_id, "length", len(first.ids))
    assert list(two.ids) == second.ids[len(first.ids) :]
    for answer in lines.answers:
        assert sum(span.count for span in answer.spans) == len(answer.ids)
        assert answer.sampled == [sampled]
    assert [span.source for span in one.spans] == ["template", "tools", "template", "user", "template", "model"]
    assert [span.source for span in two.spans] == ["template", "user", "template", "model"]


@pytest.mark.parametrize(("logprobs", "watched"), [(True, False), (False, True)])
async def test_engine_is_asked_for_logprobs_where_the_trajectory_wants_them(logprobs: bool, watched: bool) -> None:
    recall = new_recall(trajectories=Lines(logprobs=logprobs))
    recall.watch(lambda: watched)

    assert (await recall.begin(ASKED, make_ready(), QUESTION)).observer == Observer(watched, logprobs)


async def test_answer_without_a_turn_has_no_trajectory() -> None:
    lines = Lines()
    recall = new_recall(trajectories=lines)
    conversation = await recall.begin(ASKED, make_ready(), QUESTION)
    recall.keep(conversation, "error", None)
    conversation = await recall.begin(ASKED, make_ready(), QUESTION, remembered=False)
    write(conversation, "Yes.")
    recall.keep(conversation, "stop", None)

    assert lines.answers == []
    conversation.observer = Observer(sampled=[Sampled(0, 1, None, guessed=False)])
    assert answer_of(conversation, "stop") is None
    conversation.context.sources = SourceTrail()
    assert answer_of(conversation, "stop") is not None


# Other replicas.


class Shared:
    """What other replicas remember: here, one other memory."""

    def __init__(self, other: Recall | None = None) -> None:
        self.keys = [b"k" * 32, b"old" * 8]
        self.asked: list[tuple[str, list[bytes], int]] = []
        self.kept: list[Any] = []
        self.found: list[Any] = []

    async def recall(self, memory: Any, owner: str, histories: Any, behind: int, number: Any) -> bool:
        self.asked.append((owner, [each.root for each in histories], behind))
        for node in self.found:
            memory.remember(replace(node, number=number()), node.digest)
        return bool(self.found)

    async def keep(self, node: Any) -> None:
        self.kept.append(node)


async def test_other_replicas_are_asked_where_a_history_goes_further_than_what_is_remembered() -> None:
    shared = Shared()
    recall = new_recall(shared=shared)
    await recall.begin(ASKED, make_ready(), QUESTION)
    assert shared.asked == []
    conversation = await recall.begin(ASKED, make_ready(), QUESTION)
    write(conversation, "Yes.")
    done = recall.keep(conversation, "stop", None)
    assert done is not None
    await done
    told = [*QUESTION, echo(conversation), said("user", "And?")]
    await recall.begin(ASKED, make_ready(), told)
    assert shared.asked == []
    after = await recall.begin(ASKED, make_ready(), [*told, said("assistant", "No."), said("user", "Or?")])

    ((owner, roots, behind),) = shared.asked
    assert (owner, behind, len(set(roots))) == ("ann", 1, 2)
    assert after.continuation.before is not None
    await recall.begin(ASKED, make_ready(), [said("user", "x"), said("assistant", "y"), said("user", "z")])
    assert shared.asked[1][2] == -1


async def test_what_another_replica_remembers_is_continued() -> None:
    shared, other = Shared(), Shared()
    writer, reader = new_recall(shared=other), new_recall(shared=shared)
    conversation = await writer.begin(ASKED, make_ready(), QUESTION)
    write(conversation, "Yes.")
    done = writer.keep(conversation, "stop", FIGURES)
    assert done is not None
    await done
    assert [node.answer_id for node in other.kept] == [conversation.answer_id]
    shared.found = other.kept

    after = await reader.begin(ASKED, make_ready(), [*QUESTION, echo(conversation), said("user", "And?")])
    assert after.continuation.before is not None
    assert after.continuation.before.answer_id == conversation.answer_id
    assert after.continuation.kept == len(conversation.ids)


async def test_replicas_that_share_nothing_write_nothing() -> None:
    recall = new_recall()
    conversation = await recall.begin(ASKED, make_ready(), QUESTION)
    write(conversation, "Yes.")

    assert recall.keep(conversation, "stop", FIGURES) is None


# Alike answers.


async def test_of_alike_answers_the_one_with_the_tools_of_the_request_is_continued() -> None:
    recall, ready = new_recall(), make_ready()
    with_both = replace(ASKED, tools=(LOOK, DIG))
    first, messages = await answered(recall, asked=with_both, ready=ready)
    second, _ = await answered(recall, ready=ready)

    told = [*messages, said("user", "And?")]
    for asked, wanted in ((with_both, first), (ASKED, second)):
        before = (await recall.begin(asked, ready, told)).continuation.before
        assert before is not None
        assert before.answer_id == wanted.answer_id
