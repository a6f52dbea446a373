"""URIs as clients see them: unique for each server, the same in any order, and always the way back to their server."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.proxy.caller import ANYBODY, Principal
from gateway.proxy.uris import Located, PublicUris, UriClaims, fits, mark_of
from tests.cases import each_of

LISTED = st.sampled_from(
    ["data://same", "x:1", "ui://w/a", "ui://one/a", "ui:a", "one+x:1", "one+ui://w/a", "https://h/a", "file:///a"]
)
TEMPLATES = st.sampled_from(["user://{id}", "data://{id}", "{+any}", "ui://{w}/a", "one+{+any}", "x:{n}"])
SERVERS = ("one", "Two_2", "3")


def claims_of(lists, order=SERVERS):
    claims = UriClaims()
    claims.replace((server, each, "{" in each) for server in order for each in sorted(lists.get(server, ())))
    return claims


def public_of(lists, servers=SERVERS):
    return PublicUris(servers, claims_of(lists, servers))


def found_by(uris, claims, uri, principal=ANYBODY):
    """Where a client's request leads, by the rules of `Resolver.locate` for what is listed."""
    if (located := uris.located(uri, principal)) is not None:
        return located
    owners = set() if uris.needs_mark(uri, principal) else claims.owners(uri, principal)
    return Located(*owners, uri) if len(owners) == 1 else None


@given(st.dictionaries(st.sampled_from(SERVERS), st.sets(LISTED | TEMPLATES)))
def test_public_uri_of_what_a_server_lists_leads_back_to_it(lists):
    claims = claims_of(lists)
    uris = PublicUris(SERVERS, claims)
    for server, listed in lists.items():
        for own in listed:
            template = "{" in own
            public = uris.public(server, own, ANYBODY, is_template=template)
            if not template:
                assert found_by(uris, claims, public) == (server, own)
            elif uris.located(public, ANYBODY) is not None:
                assert uris.located(public, ANYBODY) == (server, own)


@given(st.dictionaries(st.sampled_from(SERVERS), st.sets(LISTED)), st.dictionaries(st.sampled_from(SERVERS), TEMPLATES))
def test_uri_made_from_a_public_template_leads_to_the_template_s_server_and_never_to_another(lists, templates):
    both = {
        server: {*lists.get(server, ()), *([templates[server]] if server in templates else [])} for server in SERVERS
    }
    claims = claims_of(both)
    uris = PublicUris(SERVERS, claims)
    for server, template in templates.items():
        made = uris.public(server, template, ANYBODY, is_template=True)
        for value in ("same", "x:1", "ui://w/a", "w"):
            expanded = made.partition("{")[0] + value + made.rpartition("}")[2]
            found = found_by(uris, claims, expanded)
            assert found is None or found.server == server
            assert found is None or fits(template, found.uri)


@given(st.dictionaries(st.sampled_from(SERVERS), st.sets(LISTED | TEMPLATES)), st.permutations(SERVERS))
def test_public_uris_are_unique_and_do_not_depend_on_the_order_of_servers(lists, order):
    def all_of(names):
        uris = public_of(lists, names)
        return {
            (server, own): uris.public(server, own, ANYBODY, is_template="{" in own)
            for server in lists
            for own in lists[server]
        }

    assert all_of(SERVERS) == all_of(order)
    assert len(set(all_of(SERVERS).values())) == sum(map(len, lists.values()))


@given(st.sets(LISTED | TEMPLATES))
def test_uris_of_the_only_server_that_a_client_sees_stay_as_they_are(listed):
    alone = public_of({"one": listed}, ("one",))
    beside = public_of(dict.fromkeys(SERVERS, listed))
    for own in listed:
        assert alone.public("one", own, ANYBODY, is_template="{" in own) == own
        assert beside.public("one", own, Principal("p", servers=frozenset({"one"})), is_template="{" in own) == own


@each_of(
    ("own", "public"),
    [
        ("ui://w/a.html", "ui://one/w/a.html"),
        ("UI://w/a.html", "ui://one/w/a.html"),
        ("data://mine", "data://mine"),
        ("data://same", "one+data://same"),
        ("data://of-nobody", "one+data://of-nobody"),
        ("https://h/of-nobody", "https://h/of-nobody"),
        ("https://h/same", "one+https://h/same"),
        ("urn:x:1", "one+urn:x:1"),
    ],
)
def test_uri_carries_its_server_where_it_would_not_be_the_server_s_own(own, public):
    same = {"data://same", "https://h/same"}

    assert public_of({"one": {"data://mine", *same}, "3": same}).public("one", own, ANYBODY) == public


def test_uri_that_looks_like_another_server_s_carries_its_own_server():
    """However a server names its resources, it gets none of another's requests."""
    lists = {"one": {"x:1"}, "3": {"one+x:1", "ui://one/a", "ONE+x:1"}}
    claims = claims_of(lists)
    uris = PublicUris(SERVERS, claims)
    seen = [uris.public("3", own, ANYBODY) for own in sorted(lists["3"])]

    assert seen == [f"{mark_of('3')}+ONE+x:1", f"{mark_of('3')}+one+x:1", f"ui://{mark_of('3')}/one/a"]
    assert [found_by(uris, claims, each) for each in ("one+x:1", "ONE+x:1")] == [("one", "x:1")] * 2
    assert found_by(uris, claims, "ui://one/a") == ("one", "ui://a")


def test_page_that_carries_no_server_is_nobody_s_although_one_lists_it():
    claims = claims_of({"one": {"ui://w/a"}})
    uris = PublicUris(SERVERS, claims)

    assert found_by(uris, claims, "ui://w/a") is None


def test_servers_that_a_client_does_not_see_change_no_uri_and_are_not_reached():
    lists = {"one": {"x:1"}, "3": {"x:1"}, "Two_2": set[str]()}
    uris, two = public_of(lists), Principal("p", servers=frozenset({"one", "Two_2"}))

    assert uris.public("one", "x:1", two) == "x:1"
    assert uris.located(f"{mark_of('3')}+x:1", two) is None


@given(st.sets(st.text("aA_-1b", min_size=1, max_size=4), min_size=2))
def test_servers_have_marks_of_their_own_that_survive_lower_case(names):
    marks = {mark_of(name) for name in names}

    assert len(marks) == len(names)
    assert {mark.lower() for mark in marks} == marks
