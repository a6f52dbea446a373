"""One call and its answer: what is reported of it, what room it has, and who answers which calls."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gateway.agent import Deferral
from gateway.agent.calls.runner import Answered, CallRunner, FinishedCall
from gateway.agent.calls.tool_finder import OURS, FoundTools, ToolFinder
from gateway.agent.events import ToolFinished
from gateway.agent.results.large_results import READ, SEARCH
from gateway.config import LimitsConfig
from gateway.context.compose.prompt import definition_texts
from gateway.errors import UnknownTool
from gateway.observe.audit import Audit
from gateway.observe.logs import TokenNotices, get_logger
from gateway.observe.metrics import Metrics
from gateway.observe.tracing import Tracing
from gateway.protocol.eras import MAP_KEY, PROGRESS_KEY
from gateway.proxy.caller import ANYBODY, Principal
from gateway.proxy.result_tokens import IdPiece, ResultTokens
from gateway.proxy.results import CallOutcome, WrittenIds
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed
from leaf_sdk.testing import tiny_map
from tests.cases import each_of

pytestmark = pytest.mark.anyio

TINY = tiny_map()
SAY = ToolSpec("up__say", "", {})
OTHER = ToolSpec("other", "", {})
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def call(name: str = "up__say", arguments: str = "{}", index: int = 0) -> CallClosed:
    return CallClosed(index, f"call_{index}", name, arguments, ())


def result(*texts: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text} for text in texts], **more}


def shim(text: str) -> tuple[IdPiece, ...]:
    return (IdPiece(tuple(TINY.encode(text)), "shim"),)


async def finished(runner: CallRunner, outcome: Any, most: int = 1000, found: FoundTools | None = None) -> FinishedCall:
    return await runner.finish(Answered(call(arguments='{"a": 1}'), outcome, 0.5, found), TINY, most)


def told(said: str, **more: Any) -> dict[str, Any]:
    """What is told of a call, without its source."""
    fields = {"leaf_ids": 0, "is_error": False, "found": (), "kept": None, "saved": 0, **more}
    return {"call_id": "call_0", "name": "up__say", "arguments": '{"a": 1}', "text": said, "seconds": 0.5, **fields}


def fields(event: ToolFinished) -> dict[str, Any]:
    names = ("call_id", "name", "arguments", "text", "seconds", "leaf_ids", "is_error", "found", "kept", "saved")
    return {name: getattr(event, name) for name in names}


async def test_finished_result_tells_its_call_its_server_and_its_time(open_runner):
    async with open_runner(LimitsConfig()) as (runner, _):
        began = time.perf_counter()
        one = await finished(runner, CallOutcome(result("one", "two"), "ok", "up"))
        took = time.perf_counter() - began
        nowhere = await finished(runner, CallOutcome(result("one"), "ok"))
        failed = await finished(runner, CallOutcome(result("one", isError=True), "tool_error", "up"))

    assert fields(one.finished) == told("one\ntwo")
    assert one.pieces == (*shim("one"), *shim("\n"), *shim("two"))
    assert (one.finished.source, one.finished.shim_ids) == ("shim", len(TINY.encode("one\ntwo")))
    assert 0 < one.ids_seconds <= took
    assert (one.server, nowhere.server, failed.server) == ("up", None, "up")
    assert (one.kept, one.selection, one.defined) == (None, None, ())
    assert fields(failed.finished) == told("one", is_error=True)


async def test_gateways_own_words_are_an_error_of_the_tools_server(open_runner):
    async with open_runner(LimitsConfig()) as (runner, _):
        one = await finished(runner, "error: no")
        cut = await finished(runner, "error: " + "no " * 100, 60)

    assert fields(one.finished) == told("error: no", is_error=True)
    assert (one.pieces, one.server, one.finished.source) == (shim("error: no"), "up", "gateway")
    assert one.finished.shim_ids == len(TINY.encode("error: no"))
    assert len(cut.ids) == 60
    assert TINY.decode(cut.ids).endswith("only the first 60 tokens are shown]")


@pytest.mark.parametrize("outcome", ["what fits", CallOutcome(result("what fits"), "ok")])
@pytest.mark.parametrize(("most", "defined"), [(9, (OTHER,)), (8, ())])
async def test_definitions_count_as_read_only_where_all_of_them_are_shown(open_runner, outcome, most, defined):
    found = FoundTools("what fits", ("other", "more"), (OTHER,))
    async with open_runner(LimitsConfig()) as (runner, _):
        one = await finished(runner, outcome, most, found)

    assert one.defined == defined
    assert one.finished.found == ("other", "more")


@pytest.mark.parametrize(
    ("form", "failed", "most", "saved"),
    [
        ("minified", False, 1000, True),
        ("as_sent", False, 1000, False),
        ("minified", True, 1000, False),
        # It is not worth while where hardly any of it would be seen.
        ("minified", False, 20, True),
        ("minified", False, 19, False),
    ],
)
async def test_result_is_made_compact_where_the_operator_wants_it(open_runner, form, failed, most, saved):
    # 20 tokens at least, and a few once it is compact.
    text = f"[1,{' ' * (20 * 32)}2]"
    async with open_runner(LimitsConfig(), results=form) as (runner, _):
        one = await finished(runner, CallOutcome(result(text, isError=failed), "ok", "up"), most)
        elsewhere = await finished(runner, CallOutcome(result(text), "ok"), most)

    assert one.finished.saved == (20 * 32 if saved else 0)
    assert one.finished.text == ("[1,2]" if saved else text)
    assert elsewhere.finished.saved == 0


@pytest.mark.parametrize(
    ("room", "calls", "defines", "share"),
    [
        (1000, 1, False, 300),
        (1000, 4, False, 250),
        (1000, 3, False, 300),
        (1000, 1, True, 1000),
        (1000, 4, True, 250),
        (7, 2, False, 3),
    ],
)
async def test_results_share_the_room_and_only_definitions_may_take_more_than_a_result(
    open_runner, room, calls, defines, share
):
    async with open_runner(LimitsConfig(result_tokens=300)) as (runner, _):
        assert runner.share(room, calls, defines=defines) == share


@given(st.integers(0, 10_000), st.integers(1, 20), st.integers(1, 10_000))
def test_shares_together_never_exceed_the_room(room: int, calls: int, most: int):
    nobody: Any = None
    runner = CallRunner(nobody, nobody, LimitsConfig(result_tokens=most))
    whole = runner.share(room, calls, defines=True)

    assert runner.share(room, calls) == min(most, whole)
    assert calls * whole <= room < calls * (whole + 1)


@pytest.mark.parametrize(
    ("outcome", "found", "ended", "defines"),
    [
        ("error: no", None, "refused", False),
        (CallOutcome({}, "timeout"), None, "timeout", False),
        (CallOutcome({}, "ok"), FoundTools("", ("a",), ()), "ok", False),
        ("a", FoundTools("", ("other",), (OTHER,)), "refused", True),
    ],
)
def test_answer_says_how_it_ended_and_whether_it_defines_tools(outcome, found, ended, defines):
    answered = Answered(call(), outcome, 0.0, found)

    assert (answered.ended, answered.defines) == (ended, defines)


async def answer(runner: CallRunner, one: CallClosed, *offered: ToolSpec, **how: Any) -> Answered:
    rights = {"principal": ANYBODY, "map_id": "", "allows": lambda name: True, "finder": None, "reader": None, **how}
    began = time.perf_counter()
    answered = await runner.call(one, {tool.name: tool for tool in offered}, **{"approved": False, **rights})
    assert 0 <= answered.seconds <= time.perf_counter() - began
    assert answered.call is one
    return answered


class Heard:
    """A proxy that notes what it is asked, and whose tool may read ids."""

    def __init__(self, *, takes_ids: bool) -> None:
        self.asked: list[Any] = []
        self.takes_ids = lambda name: takes_ids

    async def call_tool(self, params: Any, caller: Any, *, written: Any, approved: bool) -> CallOutcome:
        self.asked.append((params, caller.principal, caller.modern, written, approved))
        return CallOutcome({}, "ok")


ARGUMENTS = TINY.encode('{"n": 1}')
WHOLE = TINY.encode('{"name": "up__say", "arguments": {"n": 1}}')


@each_of(
    ("region", "map_id", "takes_ids", "written"),
    [
        (WHOLE, TINY.map_id, True, WrittenIds(tuple(WHOLE), "up__say")),
        (ARGUMENTS, TINY.map_id, True, WrittenIds(tuple(ARGUMENTS), None)),
        (TINY.encode("n=1"), TINY.map_id, True, WrittenIds(None, None)),
        (WHOLE, TINY.map_id, False, None),
        (WHOLE, "unknown", True, None),
        (WHOLE, "", True, None),
    ],
)
@each_of("approved", [True, False])
async def test_server_is_told_the_engines_map_and_the_ids_that_the_model_wrote(
    region, map_id, takes_ids, written, approved
):
    notices = TokenNotices(get_logger("test.tokens"))
    tokens = ResultTokens({TINY.map_id: TINY}, level="verify", metrics=Metrics(), notices=notices)
    heard: Any = Heard(takes_ids=takes_ids)
    one = CallClosed(0, "call_1", "up__say", '{"n": 1}', tuple(region))
    runner = CallRunner(heard, tokens, LimitsConfig())
    ada = Principal("ada")
    answered = await answer(runner, one, SAY, map_id=map_id, principal=ada, approved=approved)

    meta = {PROGRESS_KEY: "call_1", **({MAP_KEY: map_id} if map_id == TINY.map_id else {})}
    params = {"name": "up__say", "arguments": {"n": 1}, "_meta": meta}
    assert heard.asked == [(params, ada, False, written, approved)]
    assert answered.outcome == CallOutcome({}, "ok")


@pytest.mark.parametrize(("kept", "made"), [(10_000_000, 100_000), (10_000, 10 * 32)])
async def test_result_that_can_not_be_kept_is_cut_before_it_becomes_ids(open_stage, open_runner, kept, made):
    """As much of it is tokenized as may be shown, unless all of it is kept."""
    limits = LimitsConfig(kept_result_bytes=kept)
    text = "9" * 100_000
    async with open_stage(context=9000) as stage, open_runner(limits) as (runner, metrics):
        reader = runner.reader_of(await stage.agent.open(QUESTION))
        outcome = CallOutcome(result(text), "ok", "up")
        told = await runner.finish(Answered(call(), outcome, 0.5), TINY, 10 if kept == 10_000 else 4000, reader)
        (counted,) = [v for k, v in metrics.get_shim_metrics()["by_map"][TINY.map_id].items() if "ids" in k and v > 0]

    assert counted == made
    assert (told.kept is not None) is (made == 100_000)
    assert (told.finished.kept is not None) is (made == 100_000)
    assert told.finished.text == text
    if told.kept is not None:
        figures = told.finished.kept
        assert (figures.handle, figures.tokens, figures.shown) == (told.kept.result.handle, 100_000, told.kept.shown)
        assert told.ids[: figures.shown] == tuple(TINY.encode(text))[: figures.shown]


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("nope", "{}", "there is no tool 'nope'; the tools that may be called are up__say"),
        ("other", "{}", "the tool 'other' may not be called now; the tools that may be called are up__say"),
        ("up__say", "[1]", "the arguments must be a JSON object, not '[1]'; call again with a JSON object"),
        ("up__say", json.dumps("x" * 90), f"the arguments must be a JSON object, not '\"{'x' * 79}'; call again"),
        ("up__say", "{", "the arguments are not JSON (Expecting property name"),
        ("up__say", '{"n": "x"}', "the arguments do not fit the tool's schema (arguments.n: 'x' is not of type"),
    ],
)
async def test_call_that_is_not_made_says_why_and_what_may_be_called(open_runner, name, arguments, said):
    tool = ToolSpec("up__say", "", SCHEMA)
    async with open_runner(LimitsConfig()) as (runner, _):
        allows = lambda name: name != "other"  # noqa: E731
        answered = await answer(runner, call(name, arguments), tool, OTHER, allows=allows)
        none = await answer(runner, call("nope"))

    assert isinstance(answered.outcome, str)
    assert answered.outcome.startswith(f"error: {said}")
    assert answered.found is None
    assert none.outcome == "error: there is no tool 'nope'; the tools that may be called are none"


async def test_call_that_is_made_gives_the_servers_result(open_runner):
    async with open_runner(LimitsConfig(), "hello") as (runner, _):
        answered = await answer(runner, call(), SAY)
        refused = await answer(runner, call(), SAY, principal=Principal("eve", frozenset({"elsewhere"})))

    assert isinstance(answered.outcome, CallOutcome)
    assert (answered.outcome.server, answered.outcome.ended) == ("up", "ok")
    assert answered.outcome.result["content"][0]["text"] == "hello"
    assert refused.ended == "refused"


QUESTION = [{"role": "user", "content": "Hello."}]


@pytest.mark.parametrize("name", ["paint", "paint_wall", "codec_search_tools", READ, SEARCH])
async def test_what_answers_for_tools_that_are_not_defined_yet_answers_only_allowed_calls(
    open_stage, open_runner, name
):
    paint = ToolSpec("paint", "Paint a wall", {"type": "object"})
    async with open_stage(context=9000, suggested_tools=0) as stage, open_runner(LimitsConfig()) as (runner, _):
        conversation = await stage.agent.open(QUESTION, client_tools=[paint], deferral=Deferral({"paint"}, OURS))
        offered = conversation.tools
        how = {"finder": ToolFinder(conversation, 1000), "reader": runner.reader_of(conversation)}
        arguments = '{"query": "wall"}' if name == "codec_search_tools" else '{"handle": "r_none", "text": "wall"}'
        answered = await answer(runner, call(name, arguments), *offered, **how)
        how["finder"].begin()
        refused = await answer(runner, call(name, arguments), *offered, **how, allows=lambda name: False)
        (definition,) = await definition_texts([paint], conversation.ready)

    if name in (READ, SEARCH):
        assert "is kept in this conversation; those that are: none" in answered.outcome
        assert answered.found is None
    else:
        assert answered.found is not None
        assert answered.found.names == ("paint",)
        text = answered.outcome if isinstance(answered.outcome, str) else answered.outcome.result["content"][0]["text"]
        assert text == answered.found.text
        words = {"paint": "'paint' was not loaded yet", "paint_wall": "there is no tool 'paint_wall'"}
        assert text.startswith(words.get(name, "You can call"))
        assert definition in text
        assert answered.ended == ("ok" if name == "codec_search_tools" else "refused")
    assert isinstance(refused.outcome, str)
    assert ("may not be called now" in refused.outcome) is (name == "codec_search_tools")
    assert f"tool {name!r}" in refused.outcome
    assert refused.found is None


async def test_calls_that_are_refused_are_over_at_once_and_keep_their_order(open_runner):
    async with open_runner(LimitsConfig(), "hello") as (runner, _):
        async with runner.running((SAY,)) as running:
            began = time.perf_counter()
            running.refuse(call(index=0), "not now")
            assert began <= running.ended <= time.perf_counter()
            assert running.closing().is_set()
            running.start(call(index=1))
            over = running.closing()
            assert not over.is_set()
            await over.wait()
            assert began <= running.ended <= time.perf_counter()
        first, second = await running.finished(TINY, 1000)

    assert (first.finished.call_id, first.finished.text, first.finished.seconds) == ("call_0", "error: not now", 0.0)
    assert (second.finished.call_id, second.finished.text) == ("call_1", "hello")


async def test_no_call_is_over_without_calls(open_runner):
    async with open_runner(LimitsConfig()) as (runner, _):
        async with runner.running(()) as running:
            assert running.closing().is_set()
        assert await running.finished(TINY, 1000) == []
        assert running.wanted


async def test_error_of_whoever_started_calls_is_raised_as_it_is(open_runner):
    failure = UnknownTool("mine")
    async with open_runner(LimitsConfig()) as (runner, _):
        with pytest.raises(UnknownTool) as raised:
            async with runner.running((SAY,)) as running:
                raise failure

    assert raised.value is failure
    assert not running.wanted


async def break_off(runner: CallRunner, refused: CallClosed) -> None:
    async with runner.running((SAY,)) as running:
        running.refuse(refused, "no")
        raise OSError("broke")


async def test_only_calls_whose_outcome_nobody_gets_are_written_down_as_cancelled(open_runner, tmp_path):
    path = tmp_path / "audit"
    with Audit(path, Metrics().access, arguments=True) as audit:
        async with open_runner(LimitsConfig(), "hello", audit=audit) as (runner, _):
            async with runner.running((SAY,)) as running:
                running.start(call())
            assert not path.read_text()
            with pytest.raises(OSError, match="broke"):
                await break_off(runner, call("nope", "[1]", 3))

    (line,) = map(json.loads, path.read_text().splitlines())
    assert line.pop("time")
    assert line == {
        "principal": ANYBODY.name,
        "face": "v1",
        "method": "tools/call",
        "server": None,
        "tool": "nope",
        "map": None,
        "source": "none",
        "bytes_in": 3,
        "bytes_out": 0,
        "ids": 0,
        "duration_ms": 0.0,
        "outcome": "cancelled",
        "request_id": "call_3",
        "arguments": {"text": "[1]"},
    }


async def test_span_of_a_call_says_how_it_failed(open_runner):
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with open_runner(LimitsConfig(), "hello") as (runner, _):
        runner.tracing = Tracing(provider)
        async with runner.running((SAY,)) as running:
            running.start(call())
            running.start(call("nope", index=1))

    errors = {
        str((span.attributes or {}).get("gen_ai.tool.call.id")): (span.attributes or {}).get("error.type")
        for span in exporter.get_finished_spans()
    }
    assert errors == {"call_0": None, "call_1": "refused"}
