"""The search for tools finds what it found when it was measured, and the queries are what they are said to be."""

import json

import pytest

from bench.record import RESULTS
from bench.tool_search.definitions import as_client, as_gateway, definitions, queries
from bench.tool_search.hits import by_words, hits
from gateway.proxy.naming import ToolEntry
from gateway.proxy.tool_search import rank

MEASURED = json.loads((RESULTS / "tool_search.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("side", "tools"), [("gateway", as_gateway()), ("client", as_client())])
def test_search_finds_what_was_measured_and_95_of_100_plain_queries_among_the_first_three(side, tools) -> None:
    found = hits(queries(), by_words(tools))

    assert found == MEASURED["words"][side]
    assert found["plain"]["3"] >= 95


def test_first_prompt_of_120_deferred_tools_was_measured_below_1500_tokens() -> None:
    assert all(each["deferred"] <= 1500 for each in MEASURED["first_prompt"].values())


def test_queries_mean_a_hundred_tools_of_120_and_paraphrases_share_no_word_with_theirs() -> None:
    tools = definitions()
    counted = [name for number, name in enumerate(tools) if number % 6 != 3]

    assert len(tools) == 120
    assert sorted(query.tool for query in queries()) == sorted(counted)
    for query in queries():
        tool = tools[query.tool]
        # Parameters do not count.
        entry = ToolEntry(tool["name"], "", tool["name"], {"description": tool.get("description")})
        assert not rank([entry], query.paraphrase), query
        assert rank([entry], query.plain), query
