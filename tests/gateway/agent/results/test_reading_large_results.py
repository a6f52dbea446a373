"""What is kept of a large result, and what a call of the tools that read it selects."""

import json
import re
import secrets
from array import array
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from gateway.agent.results.id_slices import SpelledPart
from gateway.agent.results.large_results import READ, SEARCH, Kept, ResultReader, Selection
from gateway.config import LimitsConfig
from gateway.context.compose.conversation import Conversation
from gateway.context.large_result_store import ResultStore
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import Principal
from gateway.proxy.result_tokens import IdPiece
from gateway.toolcalls.schema.spec import ToolSpec
from leaf_sdk.testing import tiny_map
from tests.gateway.agent.test_memory import QUESTION

pytestmark = pytest.mark.anyio

TINY = tiny_map()
TEXT = "".join(f"{n:03}: aaaa\n" for n in range(1, 401))
"""400 lines of 10 characters, each of which is a token."""
MOST = 3000


def pieces(text: str, source: Any = "shim") -> list[IdPiece]:
    return [IdPiece(tuple(TINY.encode(text)), source)]


@pytest.fixture
async def conversation(open_stage: Any) -> AsyncGenerator[Conversation]:
    async with open_stage(context=60_000, result_tokens=4000) as stage:
        yield await stage.agent.open(QUESTION, principal=Principal("ann"))


@pytest.fixture
def reader(conversation: Conversation) -> ResultReader:
    return ResultReader(ResultStore(LimitsConfig(), Metrics()), conversation)


async def keep(reader: ResultReader, text: str = TEXT, tool: str = "up__say", most: int = MOST) -> Kept:
    kept = await reader.keep(tool, pieces(text), most, TINY)
    assert kept is not None
    return kept


async def read(reader: ResultReader, of: str = TEXT, name: str = READ, **arguments: Any) -> Selection:
    kept = await keep(reader, of)
    return await reader.select(name, {"handle": kept.result.handle, **arguments})


def ends(selected: Selection) -> list[tuple[int, int]]:
    return [(part.first, part.last) for part in selected.parts]


async def test_kept_result_knows_whose_it_is_and_what_it_is(reader: ResultReader, conversation: Conversation) -> None:
    begins, middle, ends = TEXT[:10], TEXT[10:30], TEXT[30:]
    parts = [*pieces(begins, "leaf"), *pieces("", "shim"), *pieces(middle, "leaf"), *pieces(ends)]
    kept = await reader.keep("up__say", parts, MOST, TINY)

    assert kept is not None
    result = kept.result
    assert re.fullmatch("r_[23456789abcdefghjkmnpqrstuvwxyz]{6}", result.handle)
    assert (result.owner, result.tool, result.map_id, result.tokens) == ("ann", "up__say", TINY.map_id, 4000)
    assert (result.sources, result.shape) == ((("leaf", 30), ("shim", 4000)), "text of 400 lines")
    assert result.content == array("I", TINY.encode(TEXT))
    assert conversation.results == (result,)
    assert kept.own == (IdPiece(tuple(TINY.encode(TEXT[:30])), "leaf"), *pieces(TEXT[30:MOST]))
    assert sum(len(piece.ids) for piece in kept.pieces) <= MOST
    assert TINY.decode([each for piece in kept.pieces for each in piece.ids])[: kept.shown] == TEXT[: kept.shown]


async def test_kept_result_is_shown_again_in_fewer_ids(reader: ResultReader) -> None:
    kept = await keep(reader)
    cut = kept.cut(2500, TINY)

    assert (cut.result, cut.own) == (kept.result, kept.own)
    assert kept.shown - cut.shown == 500
    assert sum(len(piece.ids) for piece in cut.pieces) <= 2500


async def test_same_result_is_kept_once_and_another_beside_it(reader: ResultReader, conversation: Conversation) -> None:
    first, again = await keep(reader), await keep(reader, tool="other")
    second = await keep(reader, TEXT + "more")

    assert again.result is first.result
    assert conversation.results == (first.result, second.result)
    assert [each.result.tokens for each in (first, second)] == [4000, 4003]
    # The tools that read on are defined once, which leaves more room.
    assert first.shown < again.shown == second.shown
    assert first.beginning.definitions
    assert not again.beginning.definitions


async def test_no_two_results_of_a_conversation_have_one_handle(
    reader: ResultReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = iter("aaaaaaaaaaaabbbbbb")
    monkeypatch.setattr(secrets, "choice", lambda _: next(letters))

    kept = [await keep(reader), await keep(reader, TEXT + "more")]
    assert [each.result.handle for each in kept] == ["r_aaaaaa", "r_bbbbbb"]


async def test_result_that_leaves_too_little_room_for_itself_is_not_kept(
    reader: ResultReader, conversation: Conversation
) -> None:
    assert await reader.keep("up__say", pieces(TEXT), 300, TINY) is None
    assert conversation.results == ()


@pytest.mark.parametrize(("size", "fits"), [(4 * 4000 + 96, True), (4 * 4000 + 95, False)])
async def test_result_is_kept_where_its_ids_and_what_stands_beside_them_have_room(
    conversation: Conversation, size: int, fits: bool
) -> None:
    limits = LimitsConfig(kept_result_bytes=size, principal_share=1.0)
    reader = ResultReader(ResultStore(limits, Metrics()), conversation)

    assert (reader.can_keep(4000), reader.can_keep(4000, 96), reader.can_keep(4025)) == (True, fits, False)
    assert (await reader.keep("up__say", pieces(TEXT), MOST, TINY) is not None) is fits
    assert await reader.keep("up__say", pieces(TEXT + TEXT[:250]), MOST, TINY) is None


@pytest.mark.parametrize(("own", "names"), [(READ, (SEARCH,)), ("other", (READ, SEARCH))])
async def test_tools_of_a_request_hide_those_that_read(open_stage: Any, own: str, names: tuple[str, ...]) -> None:
    tool = ToolSpec(own, "Read a book", {"type": "object"})
    async with open_stage(context=60_000, result_tokens=4000) as stage:
        conversation = await stage.agent.open(QUESTION, client_tools=[tool], principal=Principal("ann"))
    reader = ResultReader(ResultStore(LimitsConfig(), Metrics()), conversation)

    assert reader.names == names
    assert reader.can_keep(10) is (len(names) == 2)


@pytest.mark.parametrize(
    ("arguments", "by", "ends_at"),
    [
        ({}, "offset", (0, 4000)),
        ({"offset": None}, "offset", (0, 4000)),
        ({"offset": 15}, "offset", (15, 4000)),
        ({"offset": 3999}, "offset", (3999, 4000)),
        ({"lines": "2"}, "lines", (10, 19)),
        ({"lines": "2-3"}, "lines", (10, 29)),
        ({"lines": " 2 - 3 "}, "lines", (10, 29)),
        ({"lines": "3-2"}, "lines", (20, 29)),
        ({"lines": "0"}, "lines", (0, 9)),
        ({"lines": "400"}, "lines", (3990, 3999)),
        ({"lines": f"2-{'9' * 22}"}, "lines", (10, 4000)),
    ],
)
async def test_result_is_read_from_an_offset_or_by_lines(
    reader: ResultReader, arguments: dict[str, Any], by: str, ends_at: tuple[int, int]
) -> None:
    selected = await read(reader, **arguments)

    (part,) = selected.parts
    assert (part.first, part.last) == ends_at
    assert part.line == 1 + part.first // 10
    assert (selected.by, selected.count, selected.is_whole) == (by, 1, True)
    assert selected.ids == array("I", TINY.encode(TEXT))


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        (READ, {"offset": 4000}, "the result R has only 4000 tokens: give an offset below that"),
        (READ, {"lines": "401"}, "the result R has only 400 lines"),
        (READ, {"lines": "ten"}, "expected lines as in 120-180; got 'ten'"),
        (READ, {"lines": "2-b"}, "expected lines as in 120-180; got '2-b'"),
        (READ, {"lines": "-2"}, "expected lines as in 120-180; got '-2'"),
        (READ, {"lines": f"2-{'9' * 23}"}, f"expected lines as in 120-180; got '2-{'9' * 23}'"),
        (READ, {"lines": "x" * 50}, f"expected lines as in 120-180; got '{'x' * 40}'"),
        (SEARCH, {}, "expected either text or regex: what to look for"),
        (SEARCH, {"text": "a", "regex": "b"}, "expected either text or regex: what to look for"),
    ],
)
async def test_call_that_selects_nothing_is_told_what_to_do(
    reader: ResultReader, name: str, arguments: dict[str, Any], said: str
) -> None:
    kept = await keep(reader)
    with pytest.raises(ValueError, match=said.replace("R", r"r_\w{6}")) as raised:
        await reader.select(name, {"handle": kept.result.handle, **arguments})

    assert str(raised.value) == said.replace("R", kept.result.handle)


@pytest.mark.parametrize(
    ("name", "arguments", "missing"),
    [
        (SEARCH, {"text": "b"}, "['b' is not in R; try other words]"),
        (SEARCH, {"regex": "b" * 90}, f"['{'b' * 80}' is not in R; try other words]"),
        (SEARCH, {"text": "001", "offset": 3}, "['001' is not in R from token 3 on; try other words]"),
        (SEARCH, {"text": "001", "offset": 9999}, "['001' is not in R from token 4000 on; try other words]"),
    ],
)
async def test_search_that_finds_nothing_says_what_it_looked_for(
    reader: ResultReader, name: str, arguments: dict[str, Any], missing: str
) -> None:
    selected = await read(reader, name=name, **arguments)

    assert (selected.parts, selected.count, selected.by) == ((), 0, "search")
    assert selected.missing == missing.replace("R", selected.result.handle)


async def test_expression_says_that_it_saw_only_parts_of_long_lines(reader: ResultReader) -> None:
    selected = await read(reader, "a" * 9000, SEARCH, regex="b")

    assert selected.missing == (
        f"['b' is not in {selected.result.handle} within 7,500 bytes of a line (some lines are longer); "
        "try other words]"
    )
    assert "within" not in (await read(reader, "a" * 9000, SEARCH, text="b")).missing


@pytest.mark.parametrize(
    ("what", "found"),
    [
        ({"text": "AAAA", "offset": 3975}, [(3970, 3979), (3980, 3989), (3990, 3999)]),
        ({"regex": "^00[0-9]: a", "offset": 75}, [(80, 89)]),
    ],
)
async def test_search_selects_the_lines_that_have_it(
    reader: ResultReader, what: dict[str, Any], found: list[tuple[int, int]]
) -> None:
    selected = await read(reader, name=SEARCH, **what)

    assert ends(selected) == found
    assert (selected.by, selected.count, selected.is_whole) == ("search", len(found), True)


async def test_search_says_whether_all_places_were_counted(reader: ResultReader) -> None:
    selected = await read(reader, "a\n" * 1500, SEARCH, text="a")

    assert (len(selected.parts), selected.count, selected.is_whole) == (100, 1000, False)


async def test_path_selects_values_with_their_own_paths(reader: ResultReader) -> None:
    text = json.dumps([{"é": "ü", "number": n} for n in range(100)], ensure_ascii=False)
    selected = await read(reader, text, path="$[97:].é")

    places = [text[: match.start()].encode() for match in re.finditer('"ü"', text)][97:]
    assert selected.parts == tuple(
        SpelledPart(len(before), len(before) + 4, 1, f"$[{97 + n}].é") for n, before in enumerate(places)
    )
    assert (selected.by, selected.count, selected.is_whole) == ("path", 3, True)


async def test_path_that_selects_nothing_says_what_the_result_is(reader: ResultReader) -> None:
    selected = await read(reader, json.dumps(["x" * 4000]), path=f"$.{'a' * 90}")

    assert (selected.parts, selected.count) == ((), 0)
    assert selected.missing == (
        f"[path '$.{'a' * 78}' selects nothing in {selected.result.handle}: "
        "JSON, an array of 1 item, the first one string]"
    )


async def test_path_wins_over_lines_and_lines_over_an_offset(reader: ResultReader) -> None:
    text = json.dumps(["x" * 4000])

    assert (await read(reader, text, path="$[0]", lines="1", offset=3)).by == "path"
    assert (await read(reader, text, lines="1", offset=3)).by == "lines"


@pytest.mark.parametrize("around", ["{}", " {} ", '"{}"', "'{}'", "`{}`", "[{}]", "<{}>"])
async def test_handle_may_be_copied_with_what_stands_around_it(reader: ResultReader, around: str) -> None:
    kept = [await keep(reader), await keep(reader, TEXT + "more")]
    for each in kept:
        selected = await reader.select(READ, {"handle": around.format(each.result.handle)})
        assert selected.result is each.result


async def test_unknown_handle_is_answered_with_those_that_are_known(reader: ResultReader) -> None:
    async def said() -> str:
        with pytest.raises(ValueError, match="no result") as raised:
            await reader.select(READ, {"handle": "r" * 50})
        return str(raised.value)

    whole = (
        f"no result '{'r' * 40}' is kept in this conversation; those that are: {{}}. "
        "To see another one, call the tool that returned it again"
    )
    assert await said() == whole.format("none")
    first, second = await keep(reader), await keep(reader, TEXT + "more", "up__other")
    listed = f"{first.result.handle} (of up__say), {second.result.handle} (of up__other)"
    assert await said() == whole.format(listed)


@pytest.mark.parametrize("change", ["dropped", "of another map"])
async def test_result_that_is_no_longer_kept_names_its_tool(
    reader: ResultReader, conversation: Conversation, change: str
) -> None:
    result = (await keep(reader)).result
    if change == "dropped":
        result.content = None
    else:
        result.map_id = "sha256:0"

    with pytest.raises(ValueError, match="no longer") as raised:
        await reader.select(READ, {"handle": result.handle})
    assert str(raised.value) == f"the result {result.handle} is no longer kept: call 'up__say' again"
