"""Who owns a public name or a URI, and what is told of two that want the same."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.gateway_config import GatewayConfig, UpstreamConfig
from gateway.config.overrides import ToolOverride
from gateway.proxy.caller import ANYBODY, Principal
from gateway.proxy.catalog import Catalog
from gateway.proxy.naming import Naming
from gateway.proxy.upstream.supervision.listing import Listed
from gateway.proxy.uris import UriClaims, fits
from tests.cases import each_of


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
    [("tools", "tool", "name"), ("prompts", "prompt", "name")],
)
def test_two_servers_with_one_public_name_are_told_both_with_a_way_out(kind, what, key):
    (clash,) = catalog_of({"one": {kind: listed(key, "x")}, "two": {kind: listed(key, "x", "y")}}).clashes

    assert str(clash).startswith(f"{what} 'x' is offered by server 'one' and by server 'two': ")
    assert "exclude" in str(clash) or "rename" in str(clash)


def test_first_of_two_stays_and_the_other_is_hidden():
    catalog = catalog_of({"one": {"tools": listed("name", "x")}, "two": {"tools": listed("name", "x", "y")}})

    assert [(e.name, e.server) for e in catalog.tools.values()] == [("x", "one"), ("y", "two")]


def test_tool_that_is_renamed_to_another_ones_name_clashes_with_it():
    catalog = catalog_of({"one": {"tools": listed("name", "a", "b")}}, overrides={"a": ToolOverride("b")})

    assert list(map(str, catalog.clashes)) == [
        "upstreams.one.overrides.a.name: tool 'b' is offered by server 'one' twice: choose another"
    ]


@pytest.mark.parametrize(("order", "shown"), [("one two", ["safe", "y", "z"]), ("two one", ["z", "safe", "y"])])
def test_name_that_the_operator_gave_a_tool_goes_to_no_other_server(order, shown):
    lists = {"one": {"tools": listed("name", "rm", "y")}, "two": {"tools": listed("name", "safe", "z")}}
    overrides = {"one": {"rm": ToolOverride("safe")}, "two": {}}
    upstreams = tuple(UpstreamConfig(name, command="x", overrides=overrides[name]) for name in order.split())
    catalog = Catalog(Naming(GatewayConfig(upstreams=upstreams, prefix="never")))
    catalog.rebuild({name: lists[name] for name in order.split()})

    assert (catalog.tools["safe"].server, catalog.tools["safe"].tool) == ("one", "rm")
    assert list(catalog.tools) == shown
    assert list(map(str, catalog.clashes)) == [
        "upstreams.one.overrides.rm.name: tool 'safe' is offered by server 'one' and by server 'two': choose another"
    ]


def test_server_that_lists_one_tool_twice_clashes_with_nobody():
    assert catalog_of({"one": {"tools": listed("name", "a", "a")}}).clashes == ()


def test_names_that_carry_their_server_do_not_clash():
    both = {name: {"tools": listed("name", "x"), "prompts": listed("name", "x")} for name in ("one", "two")}

    assert catalog_of(both, "auto").clashes == ()


@pytest.mark.parametrize(
    ("kind", "key", "pattern", "uri"),
    [("resources", "uri", "x:1", "x:1"), ("templates", "uriTemplate", "file:///{path}", "file:///x")],
)
def test_resource_that_two_servers_have_from_the_start_is_owned_by_both_and_no_clash(kind, key, pattern, uri):
    catalog = catalog_of({name: {kind: listed(key, pattern)} for name in ("one", "two")})

    assert catalog.uris.owners(uri, ANYBODY) == {"one", "two"}
    assert catalog.clashes == ()


def test_who_lists_a_resource_at_the_start_owns_it_before_whose_template_it_fits():
    lists = {
        "one": {"templates": listed("uriTemplate", "file:///{path}")},
        "two": {"resources": listed("uri", "file:///x")},
    }
    catalog = catalog_of(lists)

    assert catalog.uris.owners("file:///x", ANYBODY) == {"two"}
    assert catalog.uris.owners("file:///y", ANYBODY) == {"one"}


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
def test_of_two_templates_from_the_start_the_one_that_says_more_itself_comes_first_in_any_order(order):
    lists = {
        "one": {"templates": listed("uriTemplate", "{any}")},
        "two": {"templates": listed("uriTemplate", "notes:///{id}")},
    }

    assert catalog_of({name: lists[name] for name in order}).uris.owners("notes:///7", ANYBODY) == {"two"}


@each_of("first", [True, False])
@each_of(
    ("had", "takes"),
    [
        ({"resources": listed("uri", "file:///x")}, {"resources": listed("uri", "file:///x")}),
        ({"resources": listed("uri", "file:///x")}, {"templates": listed("uriTemplate", "file:///{path}")}),
        ({"templates": listed("uriTemplate", "file:///{path}")}, {"resources": listed("uri", "file:///x")}),
        ({"templates": listed("uriTemplate", "{any}")}, {"templates": listed("uriTemplate", "file:///{path}")}),
    ],
)
def test_what_is_listed_later_takes_nothing_from_who_had_it(first, had, takes):
    names = ("late", "early") if first else ("early", "late")
    empty = {"resources": listed("uri")}
    catalog = catalog_of({name: had if name == "early" else empty for name in names})
    catalog.uris.settle()
    for _ in range(2):
        catalog.rebuild({name: had if name == "early" else takes for name in names})

    assert catalog.uris.owners("file:///x", ANYBODY) == {"early"}


def test_what_its_owner_lists_no_longer_is_free_for_the_next():
    both = {name: {"resources": listed("uri", "x:1")} for name in ("one", "two")}
    catalog = catalog_of(both)
    catalog.uris.settle()
    catalog.rebuild({**both, "one": {"resources": listed("uri")}})
    owners = [catalog.uris.owners("x:1", ANYBODY)]
    catalog.rebuild(both)
    owners.append(catalog.uris.owners("x:1", ANYBODY))

    assert owners == [{"two"}, {"two"}]


def test_template_itself_leads_to_its_owner_for_completion():
    lists = {"one": {"templates": listed("uriTemplate", "a:{x}")}, "two": {"templates": listed("uriTemplate", "b:{x}")}}

    assert catalog_of(lists).uris.owners("b:{x}", ANYBODY) == {"two"}


def test_what_a_client_may_not_see_owns_nothing_for_it():
    lists = {name: {"resources": listed("uri", f"{name}:x", "both:x")} for name in ("one", "two")}
    uris, two = catalog_of(lists).uris, Principal("p", servers=frozenset({"two"}))

    assert uris.owners("one:x", two) == set()
    assert [uris.owners("both:x", each) for each in (two, ANYBODY)] == [{"two"}, {"one", "two"}]


def test_resource_that_is_left_out_has_no_owner():
    lists = {"one": {"resources": listed("uri", "x:1"), "templates": listed("uriTemplate", "x:{n}")}}

    assert catalog_of(lists, exclude=("x:*",)).uris.owners("x:1", ANYBODY) == set()


NAMES = st.sampled_from(["a:1", "a:2", "b:1", "a:{x}", "{x}", "b:{x}"])
SERVERS = ("one", "two", "three")
LISTS = st.dictionaries(st.sampled_from(SERVERS), st.sets(NAMES))


@given(st.lists(LISTS, min_size=1, max_size=5))
def test_owner_keeps_a_uri_for_as_long_as_it_lists_it(steps):
    """Whatever the others list meanwhile, once the start is over."""
    uris, owners = UriClaims(), frozenset()
    before: dict[str, set[str]] = {}
    for lists in steps:
        fitting = {server: {each for each in lists.get(server, ()) if fits(each, "a:1")} for server in SERVERS}
        uris.replace((server, each, "{" in each) for server in SERVERS for each in sorted(lists.get(server, ())))
        now = uris.owners("a:1", ANYBODY)
        assert all(fitting[each] for each in now)
        assert bool(now) == any(fitting.values())
        assert {each for each in owners if before[each] <= fitting[each]} <= now
        if owners and all(before[each] <= fitting[each] for each in owners):
            assert now == owners
        owners, before = now, fitting
        uris.settle()


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


def test_templates_that_are_too_many_or_too_long_make_no_uri_their_server_s():
    uris = UriClaims()
    uris.replace([("one", f"x:{n}/{{v}}", True) for n in range(101)] + [("two", "y:" + "{v}" * 17, True)])

    assert uris.owners("x:99/a", ANYBODY) == {"one"}
    assert uris.owners("x:100/a", ANYBODY) == set()
    assert uris.owners("y:a", ANYBODY) == set()
    # They are known as any other.
    assert uris.listers("x:100/{v}", ANYBODY) == {"one"}


def test_thousands_of_templates_and_of_uris_that_come_later_are_told_apart_in_this_life():
    templates = [("bad", "{v}" * 2000 + str(n), True) for n in range(2000)]
    uris = UriClaims()
    uris.replace(templates)
    uris.settle()
    # What holds every URI against every template would run into the time of a test.
    uris.replace([*templates, *(("good", f"x:{n}/", False) for n in range(2000))])

    assert all(uris.owners(f"x:{n}/", ANYBODY) == {"good"} for n in range(2000))


def test_servers_that_clash_under_ever_new_names_do_not_fill_the_log(caplog):
    catalog = catalog_of({"one": {}, "two": {}})
    for turn in range(5):
        names = listed("name", *(f"x:{turn}/{n}" for n in range(60)))
        catalog.rebuild({"one": {"tools": names}, "two": {"tools": names}})

    assert len(caplog.records) == 101
    assert "doctor" in caplog.records[-1].getMessage()
    assert len(catalog.clashes) == 60
