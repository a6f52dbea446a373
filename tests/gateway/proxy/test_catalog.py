"""Who owns a public name or a URI, and what is told of two that want the same."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.model import GatewayConfig, UpstreamConfig
from gateway.proxy.caller import ANYBODY, Principal
from gateway.proxy.catalog import Catalog, fits
from gateway.proxy.naming import Naming
from gateway.proxy.upstreams.listing import Listed


def listed(key: str, *values: str) -> Listed:
    return Listed(tuple({key: value} for value in values), {})


def catalog_of(lists: dict[str, dict[str, Listed]], prefix: str = "never", **settings: object) -> Catalog:
    upstreams = tuple(UpstreamConfig(name, command="x", **settings) for name in lists)
    catalog = Catalog(Naming(GatewayConfig(upstreams=upstreams, prefix=prefix)))
    catalog.rebuild(lists)
    return catalog


def test_tools_are_in_the_configurations_order_and_then_in_each_servers_own():
    catalog = catalog_of({"z": {"tools": listed("name", "b", "a")}, "a": {"tools": listed("name", "c")}}, "always")

    assert list(catalog.tools) == ["z__b", "z__a", "a__c"]


@pytest.mark.parametrize(
    ("kind", "what", "key"),
    [("tools", "tool", "name"), ("prompts", "prompt", "name"), ("resources", "resource", "uri")],
)
def test_two_servers_with_one_public_name_are_told_both_with_a_way_out(kind, what, key):
    (clash,) = catalog_of({"one": {kind: listed(key, "x")}, "two": {kind: listed(key, "x", "y")}}).clashes

    assert str(clash).startswith(f"{what} 'x' is offered by server 'one' and by server 'two': ")
    assert "exclude" in str(clash) or "rename" in str(clash)


def test_first_of_two_stays_and_the_other_is_hidden():
    catalog = catalog_of({"one": {"tools": listed("name", "x")}, "two": {"tools": listed("name", "x", "y")}})

    assert [(e.name, e.server) for e in catalog.tools.values()] == [("x", "one"), ("y", "two")]


def test_tool_that_is_renamed_to_another_ones_name_clashes_with_it():
    catalog = catalog_of({"one": {"tools": listed("name", "a", "b")}}, rename={"a": "b"})

    assert [str(clash).partition(":")[0] for clash in catalog.clashes] == ["tool 'b' is offered by server 'one' twice"]


def test_server_that_lists_one_tool_twice_clashes_with_nobody():
    assert catalog_of({"one": {"tools": listed("name", "a", "a")}}).clashes == ()


def test_names_that_carry_their_server_do_not_clash():
    both = {name: {"tools": listed("name", "x"), "prompts": listed("name", "x")} for name in ("one", "two")}

    assert catalog_of(both, "auto").clashes == ()


def test_same_template_of_two_servers_is_no_clash_and_both_may_own_its_uris():
    lists = {name: {"templates": listed("uriTemplate", "file:///{path}")} for name in ("one", "two")}
    catalog = catalog_of(lists)

    assert catalog.clashes == ()
    assert catalog.resource_owners("file:///x", ANYBODY) == ["one", "two"]


def test_who_lists_a_resource_owns_it_before_whose_template_it_fits():
    lists = {
        "one": {"templates": listed("uriTemplate", "file:///{path}")},
        "two": {"resources": listed("uri", "file:///x")},
    }

    assert catalog_of(lists).resource_owners("file:///x", ANYBODY) == ["two"]


def test_template_that_says_most_itself_comes_first():
    lists = {
        "one": {"templates": listed("uriTemplate", "{any}")},
        "two": {"templates": listed("uriTemplate", "notes:///{id}")},
    }

    assert catalog_of(lists).resource_owners("notes:///7", ANYBODY) == ["two", "one"]


def test_template_itself_leads_to_its_owner_for_completion():
    lists = {"one": {"templates": listed("uriTemplate", "a:{x}")}, "two": {"templates": listed("uriTemplate", "b:{x}")}}

    assert catalog_of(lists).resource_owners("b:{x}", ANYBODY) == ["two"]


def test_what_a_client_may_not_see_owns_nothing_for_it():
    lists = {name: {"resources": listed("uri", f"{name}:x")} for name in ("one", "two")}

    assert catalog_of(lists).resource_owners("one:x", Principal("p", servers=frozenset({"two"}))) == []


def test_resource_that_is_left_out_has_no_owner():
    lists = {"one": {"resources": listed("uri", "x:1"), "templates": listed("uriTemplate", "x:{n}")}}

    assert catalog_of(lists, exclude=("x:*",)).resource_owners("x:1", ANYBODY) == []


@given(
    template=st.lists(st.sampled_from(["a", "b", "ab", "{v}", "{", "}", "{}"]), max_size=6).map("".join),
    uri=st.text("ab{}", max_size=8),
)
def test_template_fits_what_the_same_pattern_fits(template, uri):
    pattern = "(.*)".join(map(re.escape, re.split(r"\{[^{}]*\}", template)))

    assert fits(template, uri) == (re.fullmatch(pattern, uri, re.DOTALL) is not None)


def test_template_made_to_try_every_way_of_fitting_ends_in_this_life():
    # What keeps trying would run into the time of a test.
    assert not fits("a" + "{x}a" * 2000 + "b", "a" * 200_000)
    assert not fits("{x}" * 2000 + "b", "a" * 200_000)
