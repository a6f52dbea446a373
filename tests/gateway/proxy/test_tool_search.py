"""Two tools in place of all: what is found, and in which order."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.proxy.naming import ToolEntry
from gateway.proxy.tool_search import rank, search
from tests.cases import each_of


def tool(name: str, description: str = "", *parameters: str) -> ToolEntry:
    schema = {"type": "object", "properties": {each: {} for each in parameters}}
    return ToolEntry(name, "s", name, {"name": name, "description": description, "inputSchema": schema})


TOOLS = [
    tool("list_files", "List the files of a folder", "path"),
    tool("readFile", "Give the content of a file", "path", "encoding"),
    tool("send_mail", "Send a message to a person", "recipient"),
    tool("weather", "Tell the weather of a place", "city"),
]


def names(query: str) -> list[str]:
    return [entry.name for entry in rank(TOOLS, query)]


def test_word_of_a_name_counts_more_than_one_of_a_description():
    assert rank([tool("a", "about weather"), tool("weather")], "weather")[0].name == "weather"


def test_word_of_a_description_counts_more_than_the_name_of_a_parameter():
    assert rank([tool("a", "", "city"), tool("b", "of a city")], "city")[0].name == "b"


def test_rare_word_counts_more_than_a_common_one():
    assert names("give me the weather in this place")[0] == "weather"


@pytest.mark.parametrize("query", ["read file", "READ FILES", "file-reading: read it", "readFile"])
def test_names_are_split_into_words_and_plurals_count(query):
    assert names(query)[0] == "readFile"


@each_of(
    ("query", "name", "same"),
    [
        *((query, "create", True) for query in ("creates", "created", "creating")),
        ("trying", "try", True),
        ("asked", "ask", True),
        ("flies", "fly", True),
        ("cities", "city", True),
        ("maps", "map", True),
        ("making", "make", True),
        ("class", "clas", False),
        ("bring", "br", False),
        ("used", "us", False),
        ("dies", "dy", False),
        ("gas", "ga", False),
        ("use", "us", False),
    ],
)
def test_plurals_and_forms_of_verbs_are_one_word_and_short_words_keep_their_endings(query, name, same):
    assert bool(rank([tool(name)], query)) is same


def test_words_are_counted_that_a_tool_has_to_share_with_a_query():
    assert [bool(rank(TOOLS, "send file", least)) for least in (1, 2, 3)] == [True, False, False]
    assert names("list a folder") == ["list_files"]
    assert [entry.name for entry in rank(TOOLS, "list files of a folder", 3)] == ["list_files"]


@pytest.mark.parametrize("query", ["do", "do it", "for all"])
def test_query_of_words_that_say_nothing_finds_the_tools_that_are_named_so(query):
    named = tool("do" if "do" in query else "for_all", "Starts what was prepared")

    assert rank([*TOOLS, named], query) == [named]


def test_tools_of_the_same_worth_stay_in_their_own_order():
    same = [tool(f"x_{n}", "the same") for n in range(5)]

    assert rank(same, "same") == same


class Looked(dict):
    """A definition that notes how often it is looked into."""

    looks = 0

    def get(self, *key):
        self.looks += 1
        return super().get(*key)


def test_definition_is_split_into_words_by_the_first_search_only():
    entry = ToolEntry("get", "s", "get", definition := Looked(name="get", description="the weather"))
    first = search([entry], {"query": "weather"})
    looked = definition.looks

    assert search([entry, *TOOLS], {"query": "weather"})["structuredContent"]["tools"][1:] == [definition]
    assert looked > 0
    assert definition.looks == looked
    assert first["structuredContent"]["tools"] == [definition]


def test_query_that_shares_no_word_finds_nothing_and_says_how_many_there_are():
    result = search(TOOLS, {"query": "zebra"})

    assert result["structuredContent"] == {"tools": []}
    assert "none of the 4 tools matches" in result["content"][0]["text"]


def test_found_definitions_come_whole_as_text_and_as_structure():
    result = search(TOOLS, {"query": "mail"})

    assert result["structuredContent"]["tools"] == [TOOLS[2].definition]
    assert json.loads(result["content"][0]["text"]) == TOOLS[2].definition


@pytest.mark.parametrize(("limit", "count"), [(1, 1), (3, 3), (0, 8), (-1, 8), ("5", 8), (None, 8), (1000, 50)])
def test_as_many_as_asked_for_within_bounds(limit, count):
    many = [tool(f"x_{n}", "same") for n in range(60)]

    assert len(search(many, {"query": "same", "limit": limit})["structuredContent"]["tools"]) == count


@given(st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_definitions_and_queries_of_any_shape_are_ranked(junk):
    entry = ToolEntry("n", "s", "n", {"name": "n", "description": junk, "inputSchema": {"properties": junk}})

    assert search([entry], {"query": junk, "limit": junk})["content"][0]["type"] == "text"


@given(st.text(), st.text())
def test_what_is_found_is_some_of_what_there_is_each_once(query, description):
    tools = [*TOOLS, tool("other", description)]
    found = rank(tools, query)

    assert all(entry in tools for entry in found)
    assert len({entry.name for entry in found}) == len(found)
