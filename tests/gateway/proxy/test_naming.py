"""Public names lead to their owners and back, whatever the operator left out or called otherwise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.gateway_config import GatewayConfig, UpstreamConfig
from gateway.config.overrides import ToolOverride
from gateway.proxy.naming import Naming


def naming(*upstreams: UpstreamConfig, **settings: str) -> Naming:
    return Naming(GatewayConfig(upstreams=upstreams, **settings))


def server(name: str = "a", **settings: object) -> UpstreamConfig:
    return UpstreamConfig(name, command="x", **settings)


@pytest.mark.parametrize(
    ("prefix", "servers", "public"),
    [("auto", "a", "t"), ("auto", "ab", "a__t"), ("always", "a", "a__t"), ("never", "ab", "t")],
)
def test_names_carry_their_server_where_there_are_several_or_as_the_operator_says(prefix, servers, public):
    names = naming(*map(server, servers), prefix=prefix)

    assert names.tool("a", "t") == public
    assert names.prompt("a", "t") == public
    assert ("a", "t") in names.tool_owners(public)


def test_separator_is_the_operators():
    assert naming(server(), prefix="always", separator=".").tool("a", "t") == "a.t"


def test_server_part_is_made_of_characters_that_every_client_takes():
    assert naming(server("my server/ü.1"), prefix="always").prefix("my server/ü.1") == "my_server___1__"


def test_only_what_is_included_and_not_excluded_is_offered():
    names = naming(server(include=("get_*", "set_*"), exclude=("*_secret",)))

    assert [names.tool("a", own) for own in ("get_time", "set_secret", "drop")] == ["get_time", None, None]
    assert names.tool_owners("set_secret") == []
    assert (names.prompt("a", "drop"), names.prompt_owners("drop")) == (None, [])
    assert (names.shows("a", "get_x"), names.shows("a", "file:///x")) == (True, False)


def test_patterns_mean_upper_and_lower_case():
    assert naming(server(include=("Get*",))).tool("a", "get") is None


def test_renamed_tool_has_its_new_name_whole_and_the_old_one_leads_nowhere():
    names = naming(server(overrides={"search": ToolOverride("find")}), server("b"))

    assert names.tool("a", "search") == "find"
    assert names.tool_owners("find") == [("a", "search")]
    assert names.tool_owners("a__search") == []
    assert names.tool_owners("b__search") == [("b", "search")]


def test_tool_that_is_left_out_can_not_be_called_by_its_new_name_either():
    names = naming(server(overrides={"drop": ToolOverride("clean")}, exclude=("drop",)))

    assert names.tool_owners("clean") == []


def test_prompt_keeps_its_name_beside_a_tool_that_was_renamed_from_it_or_to_it():
    names = naming(server(overrides={"search": ToolOverride("find")}))

    assert names.prompt_owners("search") == [("a", "search")]
    assert names.prompt_owners("find") == [("a", "find")]


def test_description_is_the_operators_where_there_is_one_and_the_servers_definition_is_left_alone():
    definition = {"name": "t", "description": "theirs", "x-vendor": [1]}
    (entry,) = naming(server(overrides={"t": ToolOverride(description="ours")}), prefix="always").entries(
        "a", [definition]
    )

    assert entry.definition == {"name": "a__t", "description": "ours", "x-vendor": [1]}
    assert (entry.name, entry.server, entry.tool) == ("a__t", "a", "t")
    assert definition == {"name": "t", "description": "theirs", "x-vendor": [1]}


def test_entries_are_in_the_servers_order_without_what_is_left_out():
    names = naming(server(exclude=("b",)))

    assert [entry.name for entry in names.entries("a", [{"name": n} for n in "cba"])] == ["c", "a"]


@given(
    own=st.text(min_size=1),
    names=st.lists(st.sampled_from(["a", "a_", "ab", "a b", "b"]), min_size=1, unique=True),
    prefix=st.sampled_from(["auto", "always", "never"]),
)
def test_every_public_name_leads_back_to_its_owner(own, names, prefix):
    every = naming(*map(server, names), prefix=prefix)
    for name in names:
        assert (name, own) in every.tool_owners(every.tool(name, own))
        assert (name, own) in every.prompt_owners(every.prompt(name, own))
