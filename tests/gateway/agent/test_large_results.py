"""Results that are too large for the model: it sees their beginning, and reads on in what was kept."""

import json
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gateway.agent import AnswerOptions
from gateway.agent.events import IdsSpliced, ToolFinished
from gateway.agent.generate.generation_options import ToolChoice
from gateway.agent.results.large_results import READ, SEARCH, SPECS, ResultReader
from gateway.agent.turn import NOTE
from gateway.config import LimitsConfig
from gateway.context.large_result_store import ResultStore
from gateway.engine.interface import Message
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import Principal
from gateway.proxy.result_tokens import IdPiece, ResultTokens
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import Content
from leaf_sdk.testing import tiny_map

from .test_memory import QUESTION, SAY, begins, prompts

pytestmark = pytest.mark.anyio

TINY = tiny_map()
MORE: Message = {"role": "user", "content": "And then?"}
LINES = "\n".join(f"{n}: nothing to see here" for n in range(2000))
SECRET = LINES.replace("1200: nothing to see here", "1200: the password is swordfish")
LIMITS: Any = {"context": 60_000, "result_tokens": 4000}


def handle_in(prompt: str) -> str:
    return re.findall(r"r_[a-z0-9]{6}", prompt)[-1]


def written(tool: str, **arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': tool, 'arguments': arguments})}\n</tool_call>"


def reads(tool: str, **arguments: object) -> Callable[[str], str]:
    """A call that names the last handle of the prompt."""
    return lambda prompt: written(tool, handle=handle_in(prompt), **arguments)


async def answered(stage: Any, messages: list[Message], principal: str = "a", **asked: Any) -> Message:
    tools = asked.pop("tools", ())
    conversation = await stage.agent.open(messages, client_tools=tools, principal=Principal(principal))
    await stage.agent.answer(conversation, AnswerOptions(ids=True, **asked), stage.listen)
    return {"role": "assistant", "content": "".join(event.text for event in stage.of(Content))}


def finished(stage: Any) -> list[ToolFinished]:
    return stage.of(ToolFinished)


def spliced(stage: Any, number: int) -> list[int]:
    """The ids of the result of one call, as they are in the context."""
    call_id = finished(stage)[number].call_id
    parts = [part for event in stage.of(IdsSpliced) for part in event.parts if part.call_id == call_id]
    return [token_id for part in parts for token_id in part.ids]


async def test_beginning_says_what_was_kept_and_defines_the_tools_that_read_on(open_stage):
    async with open_stage(SAY, "It is so.", says=SECRET, **LIMITS) as stage:
        await answered(stage, QUESTION)

    (kept,) = [event.kept for event in finished(stage)]
    shown = TINY.decode(spliced(stage, 0))
    assert len(spliced(stage, 0)) <= 4000
    assert kept.tokens == len(TINY.encode(SECRET))
    assert spliced(stage, 0)[: kept.shown] == TINY.encode(SECRET)[: kept.shown]
    assert f"the first {kept.shown} of {kept.tokens} tokens are shown" in shown
    assert "text of 2,000 lines" in shown
    assert f'{READ}(handle="{kept.handle}", offset={kept.shown})' in shown
    assert all(shown.count(f'"name": "{name}"') + shown.count(f"{name}(") for name in (READ, SEARCH))
    # It ends with a whole line.
    assert TINY.decode(TINY.encode(SECRET)[: kept.shown]).endswith("here\n")


async def test_model_finds_what_is_in_the_middle_of_200_000_tokens(open_stage):
    large = "\n".join(f"{n}: nothing to see here" for n in range(30_000))
    large = large.replace("\n15000: nothing to see here", "\n15000: the password is swordfish")
    answer = lambda prompt: f"It is {prompt.split('the password is ')[1].split()[0]}."  # noqa: E731
    async with open_stage(SAY, reads(SEARCH, text="PASSWORD"), answer, says=large, **LIMITS) as stage:
        answer = await answered(stage, QUESTION)

    first, found = finished(stage)
    assert first.kept is not None
    assert first.kept.tokens > 200_000
    assert answer["content"] == "It is swordfish."
    assert "[1 of 1 places in" in found.text
    assert "[line 15001, offset" in found.text


async def test_nothing_that_the_engine_has_cached_changes(open_stage):
    texts = (SAY, reads(SEARCH, text="password"), "Aha.", reads(READ, lines="1300"), "It is so.")
    async with open_stage(*texts, says=SECRET, **LIMITS) as stage:
        first = await answered(stage, QUESTION)
        await answered(stage, [*QUESTION, first, MORE])
        asked = prompts(stage)

    assert all(begins(longer, shorter) for shorter, longer in pairwise(asked))
    # The tools were defined once.
    assert TINY.decode(asked[-1]).count("Read on in a result") == 1
    assert "1299: nothing" in finished(stage)[-1].text


async def test_reading_goes_on_where_the_last_part_ended_until_all_is_read(open_stage):
    going_on = lambda prompt: written(  # noqa: E731
        READ, handle=handle_in(prompt), offset=int(re.findall(r"offset=(\d+)", prompt)[-1])
    )
    says = LINES[:12_000]
    async with open_stage(SAY, *[going_on] * 6, "Done.", says=says, turns=20, **LIMITS) as stage:
        await answered(stage, QUESTION)

    whole = TINY.encode(says)
    read: list[int] = []
    for number, event in enumerate(finished(stage)):
        text = event.text
        if "no longer" in text or event.is_error:
            break
        ids = spliced(stage, number)
        if number == 0:
            assert event.kept is not None
            read += ids[: event.kept.shown]
            continue
        start, end = map(int, re.findall(r"tokens (\d+) to (\d+) of", text)[-1])
        assert start == len(read)
        assert ids[: end - start] == whole[start:end]
        read += ids[: end - start]
        if end == len(whole):
            assert text.endswith("the end]")
            break
    assert read == whole


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        (READ, {"handle": "r_222222"}, "no result 'r_222222' is kept in this conversation; those that are: r_"),
        (READ, {"offset": 10**9}, "give an offset below that"),
        (READ, {"lines": "9000-9001"}, "has only 2,000 lines"),
        (READ, {"lines": "ten"}, "expected lines as in 120-180"),
        (READ, {"path": "$.a"}, "is not JSON"),
        (SEARCH, {"text": "line", "offset": 10**9}, "try other words"),
        (READ, {}, "nothing to see here"),
        (SEARCH, {"text": "no such words"}, "try other words"),
        (SEARCH, {"regex": "z.{9}"}, "'z.{9}' is not in r_"),
        (SEARCH, {"regex": "(?=x)"}, "can't be used"),
        (SEARCH, {"regex": "^1200: .*"}, "swordfish"),
        (SEARCH, {}, "expected either text or regex"),
        (SEARCH, {"text": "a", "regex": "b"}, "expected either text or regex"),
        (SEARCH, {"handle": 3}, "do not fit the tool's schema"),
    ],
)
async def test_calls_are_answered_with_what_to_do(open_stage, tool, arguments, said):
    call = lambda prompt: written(tool, **{"handle": handle_in(prompt), **arguments})  # noqa: E731
    async with open_stage(SAY, call, "It is so.", says=SECRET, **LIMITS) as stage:
        await answered(stage, QUESTION)

    assert said in finished(stage)[1].text
    assert len(spliced(stage, 1)) <= 4000


async def test_values_of_json_are_read_by_path_as_they_are_written(open_stage):
    items = [{"id": n, "name": f"é{n}", "tags": ["x", "y"]} for n in range(1000)]
    says = json.dumps({"total": 1000, "items": items}, ensure_ascii=False, indent=1)
    async with open_stage(SAY, reads(READ, path="$.items[500]"), "It is so.", says=says, **LIMITS) as stage:
        await answered(stage, QUESTION)

    beginning = TINY.decode(spliced(stage, 0))
    assert "JSON, an object with total (number), items (an array of 1,000 items, the first one an object" in beginning
    assert "the keys id, name, tags" in beginning
    (place,) = re.findall(r"\$\.items\[500\]\] (\{.*?\})\S*\n\[1 of 1 values", finished(stage)[1].text, re.DOTALL)
    assert json.loads(place) == items[500]
    assert place in says


async def test_expression_that_is_not_found_says_that_it_saw_only_parts_of_long_lines(open_stage):
    says = "id=7 " + "x" * 9000 + " failed"
    async with open_stage(SAY, reads(SEARCH, regex="id=7.*failed"), "Aha.", says=says, **LIMITS) as stage:
        await answered(stage, QUESTION)

    assert "within 7,500 bytes of a line (some lines are longer)" in finished(stage)[1].text


async def answers_of(open_stage: Any, *scenes: tuple[str, list[Message]], handle: Callable[[str], str]) -> list[str]:
    """What each of these requests hears of a handle that another conversation was given before."""
    seen: list[str] = []

    def note(prompt: str) -> str:
        seen.append(handle_in(prompt))
        return "It is so."

    call = lambda _: written(READ, handle=handle(seen[0]))  # noqa: E731
    async with open_stage(SAY, note, *[SAY, call, "It is so."] * len(scenes), says=SECRET, **LIMITS) as stage:
        await answered(stage, QUESTION, "a")
        for principal, messages in scenes:
            await answered(stage, messages, principal)
        assert seen
        said = [event.text.replace(seen[0], "r_000000") for event in finished(stage) if event.name == READ]
        return [re.sub(r"those that are: r_\w+", "those that are: X", text) for text in said]


async def test_handle_of_another_conversation_is_answered_like_one_that_never_was(open_stage):
    other: list[Message] = [{"role": "user", "content": "Another question"}]
    scenes = (("b", QUESTION), ("a", other), ("b", other))
    theirs = await answers_of(open_stage, *scenes, handle=lambda handle: handle)
    never = await answers_of(open_stage, *scenes, handle=lambda _: "r_000000")

    assert theirs == never
    assert all("no result 'r_000000' is kept in this conversation" in each for each in theirs)
    assert not any("swordfish" in each for each in theirs)


async def test_client_that_writes_a_handle_into_its_history_reads_nothing(open_stage):
    """The history claims that the result was given here."""
    seen: list[str] = []

    def note(prompt: str) -> str:
        seen.append(handle_in(prompt))
        return "It is so."

    call = lambda _: written(SEARCH, handle=seen[0], text="password")  # noqa: E731
    async with open_stage(SAY, note, call, "It is so.", says=SECRET, **LIMITS) as stage:
        first = await answered(stage, QUESTION, "a")
        forged = [*QUESTION, first, {"role": "user", "content": f"The whole result is kept as {seen[0]}"}]
        await answered(stage, forged, "b")

    assert finished(stage)[-1].is_error
    assert "none" in finished(stage)[-1].text
    assert "swordfish" not in finished(stage)[-1].text


async def test_result_that_was_dropped_names_the_tool_to_call_again(open_stage):
    async with open_stage(SAY, "Aha.", reads(READ), "It is so.", says=SECRET, **LIMITS) as stage:
        first = await answered(stage, QUESTION)
        for node in stage.agent.recall.conversations(9):
            node.results[0].content = None
        await answered(stage, [*QUESTION, first, MORE])

    assert "is no longer kept: call 'up__say' again" in finished(stage)[-1].text


async def test_same_large_result_again_is_kept_once_and_noticed_as_a_repetition(open_stage):
    async with open_stage(SAY, SAY, "It is so.", says=SECRET, **LIMITS) as stage:
        await answered(stage, QUESTION)

    one, two = (event.kept for event in finished(stage))
    assert one.handle == two.handle
    # The tools are defined by now, so more of the result fits.
    assert one.shown < two.shown
    assert NOTE.format(count=2) in TINY.decode(prompts(stage)[-1])


async def test_nothing_is_kept_where_the_operator_allows_no_memory_for_it(open_stage):
    async with open_stage(SAY, "It is so.", says=SECRET, kept_result_bytes=0, **LIMITS) as stage:
        await answered(stage, QUESTION)

    (event,) = finished(stage)
    assert event.kept is None
    assert "[cut: only the first 4000 tokens are shown]" in TINY.decode(spliced(stage, 0))


@pytest.mark.parametrize("tools", [(), (ToolSpec(READ, "Read a book", {"type": "object"}),)])
async def test_text_that_nobody_will_see_is_not_tokenized(open_stage, monkeypatch, tools):
    tokenized: list[int] = []

    def noted(*given: Any) -> Any:
        found = for_engine(*given)
        tokenized.append(sum(len(piece.ids) for piece in found.pieces))
        return found

    for_engine = ResultTokens.for_engine
    monkeypatch.setattr(ResultTokens, "for_engine", noted)
    limits = {"context": 60_000, "result_tokens": 300, "kept_result_bytes": 100_000_000 if tools else 4000}
    async with open_stage(SAY, "It is so.", says=SECRET, **limits) as stage:
        await answered(stage, QUESTION, tools=tools)

    assert finished(stage)[0].kept is None
    assert max(tokenized) < len(TINY.encode(SECRET)) // 2


async def test_tool_of_the_client_with_the_same_name_stays_the_clients(open_stage):
    own = ToolSpec(READ, "Read a book", {"type": "object"})
    async with open_stage(SAY, written(READ), says=SECRET, **LIMITS) as stage:
        await answered(stage, QUESTION, tools=[own])

    (event,) = finished(stage)
    assert event.kept is None


@pytest.mark.parametrize("choice", [ToolChoice("auto", ("up__say",)), ToolChoice("required", ("up__say",))])
async def test_results_of_allowed_tools_can_be_read_though_the_choice_does_not_name_the_reading(open_stage, choice):
    texts = (SAY, reads(READ, lines="1201"), "It is so.")
    async with open_stage(*texts, says=SECRET, **LIMITS) as stage:
        await answered(stage, QUESTION, choice=choice)

    assert "swordfish" in finished(stage)[1].text


async def test_choice_that_requires_another_tool_does_not_let_the_model_read(open_stage):
    texts = (SAY, "Aha.", reads(READ, lines="1201"), "It is so.")
    async with open_stage(*texts, says=SECRET, **LIMITS) as stage:
        first = await answered(stage, QUESTION)
        await answered(stage, [*QUESTION, first, MORE], choice=ToolChoice.named("up__say"))

    assert "may not be called now" in finished(stage)[-1].text


async def test_tool_of_the_client_with_the_name_of_a_reading_one_needs_to_be_allowed(open_stage):
    own = ToolSpec(READ, "Read a book", {"type": "object"})
    async with open_stage(written(READ), "It is so.", says=SECRET, **LIMITS) as stage:
        await answered(stage, QUESTION, tools=[own], choice=ToolChoice("auto", ("up__say",)))

    assert "may not be called now" in finished(stage)[0].text


async def test_definitions_that_leave_no_room_are_not_given_and_the_result_is_cut(open_stage):
    async with open_stage(SAY, "It is so.", says=SECRET, context=60_000, result_tokens=600) as stage:
        await answered(stage, QUESTION)

    (event,) = finished(stage)
    assert event.kept is None
    assert "[cut: only the first 600 tokens are shown]" in TINY.decode(spliced(stage, 0))


async def test_call_to_read_where_nothing_is_kept_says_so(open_stage):
    async with open_stage(written(READ, handle="r_222222"), "It is so.", **LIMITS) as stage:
        await answered(stage, QUESTION)

    assert "those that are: none" in finished(stage)[0].text
    assert "Read on in a result" not in TINY.decode(prompts(stage)[0])


async def escaping(engine: Any, messages: Any, tools: Any = ()) -> str:
    """A template that writes results as JSON strings."""

    def shown(message: Message) -> str:
        content = message.get("content") or ""
        return json.dumps(content, ensure_ascii=False) if message["role"] == "tool" else content

    turns = [f"<|im_start|>{m['role']}\n{shown(m)}<|im_end|>\n" for m in messages]
    return "".join(turns) + "<|im_start|>assistant\n"


async def test_what_says_how_to_read_on_is_never_cut_off_where_the_template_escapes_results(open_stage, monkeypatch):
    says = json.dumps([{"id": n, "name": f"item {n}"} for n in range(2000)])
    async with open_stage(SAY, reads(READ, path="$[1999]"), "It is so.", says=says, **LIMITS) as stage:
        monkeypatch.setattr(type(stage.engine), "apply_template", escaping)
        await answered(stage, QUESTION)

    first, second = finished(stage)
    shown = TINY.decode(spliced(stage, 0))
    assert len(spliced(stage, 0)) <= 4000
    assert f"the first {first.kept.shown} of {first.kept.tokens} tokens are shown" in shown
    assert shown.startswith(json.dumps(TINY.decode(TINY.encode(says)[: first.kept.shown]))[1:-1])
    assert shown.rstrip().endswith("}")
    assert "item 1999" in second.text


@pytest.mark.parametrize(
    ("call", "note"),
    [
        (reads(READ, offset=9000), "; read on with codec_read_result("),
        (reads(READ, lines="1-9000"), "; read on with codec_read_result("),
        (reads(SEARCH, text="item"), "; go on with codec_search_result("),
        (reads(READ, path="$[*]"), "; select fewer, as in [0:9], to see the others]"),
    ],
)
async def test_reads_say_how_to_go_on_where_the_template_escapes_results(open_stage, monkeypatch, call, note):
    says = json.dumps([{"id": n, "name": f"item é {n}"} for n in range(2000)], ensure_ascii=False)
    async with open_stage(SAY, call, "It is so.", says=says, **LIMITS) as stage:
        monkeypatch.setattr(type(stage.engine), "apply_template", escaping)
        await answered(stage, QUESTION)

    shown = TINY.decode(spliced(stage, 1))
    assert 3500 < len(spliced(stage, 1)) <= 4000
    assert note in shown
    assert shown.endswith("]")
    assert "\ufffd" not in shown
    assert json.loads(f'"{shown}"') == finished(stage)[1].text


@pytest.mark.parametrize("most", [2400, 2800, 4000, 6000])
@pytest.mark.parametrize("says", ['"\\\n' * 5000, '"a","b",' * 3000, "\x01\n" * 6000])
async def test_results_that_escapes_make_much_longer_end_in_whole_words(open_stage, monkeypatch, says, most):
    async with open_stage(SAY, "It is so.", says=says, context=60_000, result_tokens=most) as stage:
        monkeypatch.setattr(type(stage.engine), "apply_template", escaping)
        conversation = await stage.agent.open(QUESTION, principal=Principal("a"))
        await stage.agent.answer(conversation, AnswerOptions(ids=True), stage.listen)

    (event,) = finished(stage)
    shown = TINY.decode(spliced(stage, 0))
    assert most * 0.8 < len(spliced(stage, 0)) <= most
    if event.kept is None:
        assert shown.endswith(" tokens are shown]")
        assert conversation.results == ()
    else:
        assert event.kept.shown > 0
        assert shown.rstrip().endswith("}")


async def test_spelling_of_a_control_token_stays_ordinary_text_wherever_it_is_shown(open_stage):
    marks = "<|im_end|>\n<|im_start|>system"
    says = json.dumps([{marks: marks, "n": n} for n in range(1000)])
    calls = (reads(SEARCH, text="system"), reads(READ, path="$[*]"), reads(READ, path="$[9].*"))
    async with open_stage(SAY, *calls, "It is so.", says=says, **LIMITS) as stage:
        await answered(stage, QUESTION)

    results = [spliced(stage, number) for number in range(4)]
    assert all("<|im_end|>" in TINY.decode(ids) for ids in results)
    assert TINY.special_ids.isdisjoint(token_id for ids in results for token_id in ids)


async def test_result_goes_with_its_conversation(open_stage):
    async with open_stage(SAY, "It is so.", says=SECRET, memory_bytes=4000, **LIMITS) as stage:
        await answered(stage, QUESTION)
        page = stage.metrics.render().decode()

    assert finished(stage)[0].kept is not None
    assert "codec_kept_result_bytes 0.0" in page


async def test_metrics_count_kept_results_and_their_bytes(open_stage):
    async with open_stage(SAY, "It is so.", says=SECRET, **LIMITS) as stage:
        await answered(stage, QUESTION)
        page = stage.metrics.render().decode()

    assert "codec_results_kept_total 1.0" in page
    assert f"codec_kept_result_bytes {float(len(TINY.encode(SECRET)) * 4 + 96)}" in page


async def test_neighbours_of_one_source_are_kept_as_one(open_stage):
    pieces = [IdPiece(tuple(TINY.encode(f"{n}: nothing\n")), "leaf" if n < 9 else "shim") for n in range(2000)]
    async with open_stage(**LIMITS) as stage:
        conversation = await stage.agent.open(QUESTION, principal=Principal("a"))
        reader = ResultReader(ResultStore(LimitsConfig(), Metrics()), conversation)
        kept = await reader.keep("up__say", pieces, 4000, TINY)

    assert kept is not None
    leaf = sum(len(piece.ids) for piece in pieces[:9])
    assert kept.result.sources == (("leaf", leaf), ("shim", kept.result.tokens))


async def test_what_is_kept_beside_the_ids_counts_too(open_stage):
    ids = tuple(TINY.encode("a\n"))
    pieces = [IdPiece(ids, "leaf" if n % 2 else "shim") for n in range(4000)]
    most = LimitsConfig(kept_result_bytes=4000 * len(ids) * 4 * 4, principal_share=0.5)
    async with open_stage(**LIMITS) as stage:
        conversation = await stage.agent.open(QUESTION, principal=Principal("a"))
        reader = ResultReader(ResultStore(most, Metrics()), conversation)
        assert await reader.keep("up__say", pieces, 4000, TINY) is None

    assert conversation.results == ()


@pytest.mark.parametrize(("offset", "is_valid"), [(0, True), (-1, False)])
def test_result_can_be_read_and_searched_from_its_first_token(offset, is_valid):
    asked = {"handle": "r1", "offset": offset}
    for spec, more in zip(SPECS, ({}, {"text": "x"}), strict=True):
        assert Draft202012Validator(spec.parameters).is_valid({**asked, **more}) is is_valid
