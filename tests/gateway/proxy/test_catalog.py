"""Who owns a public name or a URI, and what is told of two that want the same."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.model import GatewayConfig, UpstreamConfig
from gateway.proxy.caller import ANYBODY, Principal
from gateway.proxy.catalog import Catalog
from gateway.proxy.naming import Naming
from gateway.proxy.upstream.listing import Listed
from gateway.proxy.uris import UriClaims, fits


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


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ("notes://secret-{id}", "notes://{id}", True),
        ("notes://{id}", "notes://{id}/{part}", True),
        ("a:{x}b", "a:c{y}", True),
        ("notes://{id}", "files://{id}", False),
        ("notes://{id}.md", "notes://{id}.txt", False),
        ("a:b{x}", "a:c{x}", False),
    ],
)
def test_templates_of_two_servers_that_fit_the_same_uris_are_told(one, other, overlap):
    catalog = catalog_of(
        {"one": {"templates": listed("uriTemplate", one)}, "two": {"templates": listed("uriTemplate", other)}}
    )

    told = [str(clash) for clash in catalog.clashes]
    assert [clash.ends_start for clash in catalog.clashes] == [False] * overlap
    assert [f"resource templates '{one} and {other}' of the servers 'one' and 'two'" in each for each in told] == [
        True
    ] * overlap


def test_templates_of_one_server_may_fit_the_same_uris():
    assert catalog_of({"one": {"templates": listed("uriTemplate", "a:{x}", "a:b{x}")}}).clashes == ()


def test_server_that_lists_one_tool_twice_clashes_with_nobody():
    assert catalog_of({"one": {"tools": listed("name", "a", "a")}}).clashes == ()


def test_names_that_carry_their_server_do_not_clash():
    both = {name: {"tools": listed("name", "x"), "prompts": listed("name", "x")} for name in ("one", "two")}

    assert catalog_of(both, "auto").clashes == ()


def test_resource_of_two_servers_belongs_to_the_first_of_the_configuration_and_keeps_no_gateway_from_starting():
    lists = {name: {"resources": listed("uri", "x:1")} for name in ("one", "two")}
    catalog = catalog_of(lists)

    assert catalog.uris.owner("x:1", ANYBODY) == "one"
    assert [clash.ends_start for clash in catalog.clashes] == [False]


def test_same_template_of_two_servers_belongs_to_the_first_and_the_others_is_told():
    lists = {name: {"templates": listed("uriTemplate", "file:///{path}")} for name in ("one", "two")}
    catalog = catalog_of(lists)

    assert catalog.uris.owner("file:///x", ANYBODY) == catalog.uris.lister("file:///{path}", ANYBODY) == "one"
    assert [str(clash).partition(":")[0] for clash in catalog.clashes] == ["resource template 'file"]
    assert [(clash.kept, clash.hidden) for clash in catalog.clashes] == [("one", "two")]


def test_who_lists_a_resource_at_the_start_owns_it_before_whose_template_it_fits():
    lists = {
        "one": {"templates": listed("uriTemplate", "file:///{path}")},
        "two": {"resources": listed("uri", "file:///x")},
    }
    catalog = catalog_of(lists)

    assert catalog.uris.owner("file:///x", ANYBODY) == "two"
    assert catalog.uris.owner("file:///y", ANYBODY) == "one"
    assert catalog.clashes == ()


def test_template_of_the_configurations_first_server_keeps_its_uris_however_much_another_says_itself():
    lists = {
        "one": {"templates": listed("uriTemplate", "{any}")},
        "two": {"templates": listed("uriTemplate", "notes:///{id}")},
    }

    assert catalog_of(lists).uris.owner("notes:///7", ANYBODY) == "one"


@pytest.mark.parametrize("first", [True, False], ids=["later server first", "later server last"])
@pytest.mark.parametrize(
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

    assert catalog.uris.owner("file:///x", ANYBODY) == "early"


def test_what_its_owner_lists_no_longer_is_free_for_the_next():
    both = {name: {"resources": listed("uri", "x:1")} for name in ("one", "two")}
    catalog = catalog_of(both)
    catalog.uris.settle()
    catalog.rebuild({**both, "one": {"resources": listed("uri")}})
    owners = [catalog.uris.owner("x:1", ANYBODY)]
    catalog.rebuild(both)
    owners.append(catalog.uris.owner("x:1", ANYBODY))

    assert owners == ["two", "two"]


def test_template_itself_leads_to_its_owner_for_completion():
    lists = {"one": {"templates": listed("uriTemplate", "a:{x}")}, "two": {"templates": listed("uriTemplate", "b:{x}")}}

    assert catalog_of(lists).uris.owner("b:{x}", ANYBODY) == "two"


def test_what_a_client_may_not_see_owns_nothing_for_it():
    lists = {name: {"resources": listed("uri", f"{name}:x", "both:x")} for name in ("one", "two")}
    uris, two = catalog_of(lists).uris, Principal("p", servers=frozenset({"two"}))

    assert uris.owner("one:x", two) is None
    assert [uris.owner("both:x", each) for each in (two, ANYBODY)] == ["two", "one"]


def test_resource_that_is_left_out_has_no_owner():
    lists = {"one": {"resources": listed("uri", "x:1"), "templates": listed("uriTemplate", "x:{n}")}}

    assert catalog_of(lists, exclude=("x:*",)).uris.owner("x:1", ANYBODY) is None


NAMES = st.sampled_from(["a:1", "a:2", "b:1", "a:{x}", "{x}", "b:{x}"])
SERVERS = ("one", "two", "three")
LISTS = st.dictionaries(st.sampled_from(SERVERS), st.sets(NAMES))


@given(st.lists(LISTS, min_size=1, max_size=5))
def test_owner_keeps_a_uri_for_as_long_as_it_lists_it(steps):
    """Whatever the others list meanwhile, once the start is over."""
    uris, owner = UriClaims(), None
    before: dict[str, set[str]] = {}
    for lists in steps:
        fitting = {server: {each for each in lists.get(server, ()) if fits(each, "a:1")} for server in SERVERS}
        uris.replace((server, each, "{" in each) for server in SERVERS for each in sorted(lists.get(server, ())))
        now = uris.owner("a:1")
        assert fitting[now] if now is not None else not any(fitting.values())
        if owner is not None and before[owner] <= fitting[owner]:
            assert now == owner
        owner, before = now, fitting
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

    assert uris.owner("x:99/a") == "one"
    assert uris.owner("x:100/a") is None
    assert uris.owner("y:a") is None
    # They are shown as any other.
    assert uris.lister("x:100/{v}", ANYBODY) == "one"


def test_thousands_of_templates_and_of_uris_that_come_later_are_told_apart_in_this_life():
    templates = [("bad", "{v}" * 2000 + str(n), True) for n in range(2000)]
    uris = UriClaims()
    uris.replace(templates)
    uris.settle()
    # What holds every URI against every template would run into the time of a test.
    uris.replace([*templates, *(("good", f"x:{n}/", False) for n in range(2000))])

    assert uris.hidden() == []


def test_servers_that_clash_under_ever_new_names_do_not_fill_the_log(caplog):
    catalog = catalog_of({"one": {}, "two": {}})
    for turn in range(5):
        names = listed("uri", *(f"x:{turn}/{n}" for n in range(60)))
        catalog.rebuild({"one": {"resources": names}, "two": {"resources": names}})

    assert len(caplog.records) == 101
    assert "doctor" in caplog.records[-1].getMessage()
    assert len(catalog.clashes) == 60
