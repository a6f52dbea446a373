"""Ids beside the texts of a tool's result, and whose they are."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.proxy.results import CallOutcome
from gateway.serve.mcp.result_ids import ClientIds
from leaf_sdk.leaf.contract import CODEC_META_KEY

pytestmark = pytest.mark.anyio
MAP: Any = SimpleNamespace(map_id="sha256:ab")


def block(text: str, ids: Any = None) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "text", "text": text}
    return found if ids is None else {**found, "_meta": {CODEC_META_KEY: {"map_id": MAP.map_id, "ids": ids}}}


def result(*blocks: Any) -> dict[str, Any]:
    return {"content": list(blocks)}


class Tokens:
    """Gives every text that has no ids the ids 1 and 2, and notes what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.threads: set[str] = set()

    def for_client(self, tool: str, given: Any, token_map: Any, *, min_text_length: int) -> dict[str, Any]:
        self.asked.append((tool, token_map.map_id, min_text_length))
        self.threads.add(threading.current_thread().name)
        return {
            **given,
            "content": [each if "_meta" in each else block(each["text"], [1, 2]) for each in given["content"]],
        }


@pytest.fixture
def tokens() -> Tokens:
    return Tokens()


async def add(tokens: Any, given: dict[str, Any], *, token_map: Any = MAP, sourced: bool = True) -> CallOutcome:
    return await ClientIds(tokens, 7, sourced=sourced).add("up__say", CallOutcome(given, "ok"), token_map)


async def test_texts_get_ids_of_the_map_that_the_client_named(tokens: Tokens) -> None:
    outcome = await add(tokens, result(block("a"), block("b")))

    assert outcome.result == result(block("a", [1, 2]), block("b", [1, 2]))
    assert tokens.asked == [("up__say", MAP.map_id, 7)]
    assert (outcome.map_id, outcome.source, outcome.ids) == (MAP.map_id, "shim", 4)


@pytest.mark.parametrize(
    ("blocks", "source", "ids"),
    [
        ([], "none", 0),
        ([block("a", [5, 6, 7])], "leaf", 3),
        ([block("a", [5, 6, 7]), block("b")], "mixed", 5),
        ([block("a"), block("b")], "shim", 4),
    ],
)
async def test_outcome_says_who_made_the_ids_that_leave(
    tokens: Tokens, blocks: list[Any], source: str, ids: int
) -> None:
    outcome = await add(tokens, result(*blocks))

    assert (outcome.source, outcome.ids) == (source, ids)


async def test_outcome_does_not_say_whose_ids_they_are_where_nobody_records_it(tokens: Tokens) -> None:
    outcome = await add(tokens, result(block("a")), sourced=False)

    assert (outcome.map_id, outcome.source, outcome.ids) == (MAP.map_id, "none", 0)


async def test_client_that_named_no_map_gets_the_result_as_it_came_with_the_ids_in_it_counted(tokens: Tokens) -> None:
    given = result(block("a", [5, 6, 7]), block("b"), "no block", {**block("c"), "_meta": {CODEC_META_KEY: 5}})
    outcome = await add(tokens, given, token_map=None)

    assert outcome.result is given
    assert tokens.asked == []
    assert (outcome.map_id, outcome.source, outcome.ids) == (None, "leaf", 3)


@pytest.mark.parametrize("given", [{"task": {"id": "t"}}, {"resultType": "input_required"}])
async def test_result_without_content_stays_as_it_is(tokens: Tokens, given: dict[str, Any]) -> None:
    assert (await add(tokens, given)).result is given
    assert tokens.asked == []


async def test_result_stays_as_it_is_where_nothing_makes_ids() -> None:
    given = result(block("a"))

    assert (await add(None, given)).result is given


@pytest.mark.parametrize(("lengths", "beside"), [((65_535,), False), ((65_536,), True), ((40_000, 25_536), True)])
async def test_long_texts_get_their_ids_in_a_thread(tokens: Tokens, lengths: tuple[int, ...], beside: bool) -> None:
    await add(tokens, result(*(block("x" * length) for length in lengths)))

    assert (tokens.threads != {threading.current_thread().name}) == beside
