"""What servers say about themselves: where it is looked for, what is believed, and how it is fetched."""

import json
from typing import Any, cast

import pytest

from gateway.config.address import Origin, read_url
from gateway.config.gateway_config import SignInConfig, UpstreamConfig
from gateway.proxy.transport.oauth.discovery import (
    AuthorizationServer,
    DocumentFetcher,
    Resource,
    check_confidential,
    fetcher_for,
    find_resource,
    find_server,
    has_same_origin,
    is_same_issuer,
    issuer_urls,
    read_resource,
    read_server,
    resource_urls,
)
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer

PROTECTED = "/.well-known/oauth-protected-resource"
SERVER = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"
AS = "https://as.example"
MCP = "https://tools.example/mcp"


@pytest.mark.parametrize(
    ("url", "places"),
    [
        ("https://a.example/mcp/?x=1", [f"https://a.example{PROTECTED}/mcp", f"https://a.example{PROTECTED}"]),
        ("http://a.example:81", [f"http://a.example:81{PROTECTED}"]),
    ],
)
def test_metadata_of_a_server_is_looked_for_at_its_path_and_then_at_its_root(url, places):
    assert resource_urls(url) == places


@pytest.mark.parametrize(
    ("issuer", "places"),
    [
        (f"{AS}/t/?x=1", [f"{AS}{SERVER}/t", f"{AS}{OPENID}/t", f"{AS}/t{OPENID}"]),
        (AS, [f"{AS}{SERVER}", f"{AS}{OPENID}"]),
    ],
)
def test_metadata_of_an_issuer_is_looked_for_by_either_standard(issuer, places):
    assert issuer_urls(issuer) == places


def test_issuer_that_is_no_url_is_quoted():
    with pytest.raises(NoAnswer, match=r"it names 'ftp://as\\x1b', which is not an http\(s\) URL"):
        issuer_urls("ftp://as\x1b")


@pytest.mark.parametrize(
    "named",
    [MCP, f"{MCP}/", "https://tools.example", "https://tools.example/", "https://tools.example:443/mcp"],
)
def test_server_may_name_itself_by_its_url_or_by_what_is_above_it(named):
    document = {"resource": named, "authorization_servers": [AS, 7], "scopes_supported": ["a", "b"]}

    assert read_resource(document, MCP) == Resource(named, (AS,), "a b")
    assert read_resource({"resource": named}, MCP) == Resource(named, (), None)


@pytest.mark.parametrize(
    "named",
    [None, 7, "tools.example", "https://other.example/mcp", "http://tools.example/mcp", f"{MCP}/x", f"{MCP[:-1]}"],
)
def test_metadata_about_another_server_is_not_believed(named):
    with pytest.raises(NoAnswer, match=r"its metadata describes .*, not its own URL"):
        read_resource({"resource": named}, MCP)


def test_authorization_server_is_read_with_all_that_it_can_do():
    document = {
        "issuer": AS,
        **{f"{name}_endpoint": f"{AS}/{name}" for name in ("token", "authorization", "registration", "revocation")},
        "scopes_supported": ["a", "b"],
        "code_challenge_methods_supported": ["plain", "S256"],
        "authorization_response_iss_parameter_supported": True,
        "client_id_metadata_document_supported": True,
    }

    assert read_server(document, AS) == AuthorizationServer(
        *(AS, f"{AS}/token", "client_secret_basic"),
        *(f"{AS}/authorization", f"{AS}/registration", f"{AS}/revocation"),
        *(("a", "b"), True, True, True),
    )


def test_authorization_server_that_says_little_is_believed_to_do_little():
    document = {
        "issuer": AS,
        "token_endpoint": f"{AS}/t",
        "authorization_endpoint": "javascript:alert(1)",
        "registration_endpoint": 7,
        "code_challenge_methods_supported": "S256",
        "authorization_response_iss_parameter_supported": "true",
        "client_id_metadata_document_supported": 1,
    }

    assert read_server(document, AS) == AuthorizationServer(AS, f"{AS}/t")


@pytest.mark.parametrize(
    ("methods", "method"),
    [
        (["client_secret_post"], "client_secret_post"),
        (["private_key_jwt", "client_secret_post"], "client_secret_post"),
        (["client_secret_post", "client_secret_basic"], "client_secret_basic"),
        (["private_key_jwt"], "client_secret_basic"),
        ([], "client_secret_basic"),
        (None, "client_secret_basic"),
    ],
)
def test_secret_goes_into_the_form_only_where_a_header_is_not_taken(methods, method):
    document = {"issuer": AS, "token_endpoint": f"{AS}/t", "token_endpoint_auth_methods_supported": methods}

    assert read_server(document, AS).method == method


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"issuer": "https://other.example"}, "'https://as.example' names another issuer, 'https://other.example'"),
        ({"issuer": 7}, "names another issuer, 7"),
        ({"token_endpoint": None}, "'https://as.example' names no token endpoint"),
        ({"token_endpoint": "file:///t"}, "'https://as.example' names no token endpoint"),
    ],
)
def test_document_of_another_issuer_or_without_a_token_endpoint_is_refused(document, words):
    with pytest.raises(NoAnswer, match=words):
        read_server({"issuer": AS, "token_endpoint": f"{AS}/t", **document}, AS)


@pytest.mark.parametrize(
    ("scope", "count", "kept"), [("a" * 2048, 64, 64), ("a" * 2048, 65, 64), ("a" * 2049, 1, 0), (7, 1, 0)]
)
def test_lists_and_their_texts_have_bounds(scope, count, kept):
    document = {"issuer": AS, "token_endpoint": f"{AS}/t", "scopes_supported": [scope] * count}

    assert len(read_server(document, AS).scopes) == kept


@pytest.mark.parametrize(
    ("named", "same"),
    [(AS, True), (f"{AS}/", True), (f"{AS}/t", False), (f"{AS}/t/", False), ("https://AS.example", False)],
)
def test_issuers_are_compared_character_for_character_but_for_the_slash_of_an_empty_path(named, same):
    assert is_same_issuer(named, AS) is same
    assert is_same_issuer(AS, named) is same
    assert is_same_issuer(f"{AS}/t/", f"{AS}/t") is False


def test_origins_are_compared_where_there_are_any():
    assert has_same_origin("https://a.example/x", "https://a.example:443/y")
    assert not has_same_origin("https://a.example", "http://a.example")
    assert not has_same_origin("https://a.example", "a")


def test_secret_goes_unencrypted_only_to_an_origin_that_the_operator_named():
    plain = read_url("http://a.example/t")
    check_confidential(read_url("https://a.example/t"), frozenset())
    check_confidential(plain, frozenset({plain.origin}))

    with pytest.raises(NoAnswer, match=r"'http://a\.example' would receive our secret unencrypted: expected https"):
        check_confidential(plain, frozenset({Origin(False, "a.example", 81)}))


class Answering:
    """A connection whose answer is known beforehand."""

    def __init__(self, status: int, body: object = b"", location: str = "") -> None:
        self.status = status
        self.asked: tuple[str, str, dict[str, str], bytes] = ("", "", {}, b"")
        self.decoded = False
        self.breaks = False
        self._body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._location = location

    def send(self, method: str, path: str, lines: bytes, body: bytes) -> None:
        self.asked = (method, path, dict(line.split(": ", 1) for line in lines.decode().splitlines()), body)

    async def head(self) -> None:
        if self.breaks:
            raise LinkLost("it broke")

    def header(self, name: str) -> str:
        return self._location if name == "location" else ""

    def decode(self) -> None:
        self.decoded = True

    async def read(self, bound: int) -> bytes | None:
        return None if len(self._body) > bound else self._body


class Network:
    """Gives one connection, and takes it back."""

    def __init__(self, connection: Answering) -> None:
        self.connection = connection
        self.taken: list[tuple[str, frozenset[str]]] = []
        self.back: list[Answering] = []

    async def take(self, origin: Origin, listed: frozenset[Origin]) -> Answering:
        self.taken.append((str(origin), frozenset(map(str, listed))))
        return self.connection

    def give(self, connection: Answering) -> None:
        self.back.append(connection)


def fetching(*answer: Any, listed: tuple[str | None, ...] = ()) -> tuple[DocumentFetcher, Network]:
    network = Network(Answering(*answer))
    return DocumentFetcher(cast("Any", network), *listed), network


@pytest.mark.anyio
class TestFetching:
    async def test_document_is_asked_for_as_json_on_behalf_of_somebody_else(self):
        fetcher, network = fetching(200, {"a": 1}, listed=("https://mine.example/mcp", None))

        assert await fetcher.get("https://as.example/doc?x=1") == {"a": 1}
        method, path, lines, body = network.connection.asked
        assert (method, path, body) == ("GET", "/doc?x=1", b"")
        assert (lines["accept"], lines["host"]) == ("application/json", "as.example")
        assert network.taken == [("https://as.example", frozenset({"https://mine.example"}))]
        assert network.back == [network.connection]
        assert network.connection.decoded

    @pytest.mark.parametrize(
        ("status", "body"),
        [(404, {"a": 1}), (201, {"a": 1}), (200, {}), (200, [1]), (200, b"no"), (200, b""), (200, {"a": "x" * 65_536})],
    )
    async def test_what_is_no_document_is_none(self, status, body):
        fetcher, _ = fetching(status, body)

        assert await fetcher.get(AS) is None

    async def test_document_may_be_as_long_as_the_bound(self):
        fetcher, _ = fetching(200, {"a": "x" * (64 * 1024 - len('{"a": ""}'))})

        assert await fetcher.get(AS) is not None

    async def test_connection_that_breaks_is_given_back(self):
        fetcher, network = fetching(200)
        network.connection.breaks = True
        for asking in (fetcher.get, fetcher.look):
            with pytest.raises(LinkLost):
                await asking(AS)

        assert network.back == [network.connection] * 2

    async def test_look_follows_nothing(self):
        fetcher, network = fetching(302, b"", "https://elsewhere.example")

        assert await fetcher.look(f"{AS}/authorize?x=1") == (302, "https://elsewhere.example")
        method, path, lines, _ = network.connection.asked
        assert (method, path, lines["host"]) == ("GET", "/authorize?x=1", "as.example")
        assert network.back == [network.connection]

    async def test_form_and_object_are_posted_in_their_types(self):
        fetcher, network = fetching(400, {"error": "no"})
        outcome = await fetcher.post_form(f"{AS}/t", {"a": "1 2", "b": "&"}, {"authorization": "Basic x"})
        form = network.connection.asked
        await fetcher.post_json(f"{AS}/t", {"a": [1]})
        document = network.connection.asked

        assert outcome == (400, {"error": "no"})
        assert (form[0], form[1], form[3]) == ("POST", "/t", b"a=1+2&b=%26")
        assert (form[2]["content-type"], form[2]["authorization"]) == ("application/x-www-form-urlencoded", "Basic x")
        assert (document[2]["content-type"], json.loads(document[3])) == ("application/json", {"a": [1]})

    async def test_nothing_is_posted_unencrypted_unless_the_operator_named_the_server(self):
        fetcher, network = fetching(200, {"a": 1}, listed=("http://mine.example",))

        assert await fetcher.post_form("http://mine.example/t", {}) == (200, {"a": 1})
        for asking in (fetcher.post_form, fetcher.post_json):
            with pytest.raises(NoAnswer, match="unencrypted"):
                await asking("http://other.example/t", {})
        assert len(network.taken) == 1

    def test_operator_names_the_server_and_the_issuer_in_the_settings(self):
        config = UpstreamConfig("web", url="http://a.example/mcp")
        named = UpstreamConfig("web", url="http://a.example/mcp", auth=SignInConfig(issuer="http://as.example/x"))

        assert [str(each) for each in fetcher_for(config, cast("Any", None)).listed] == ["http://a.example"]
        assert {str(each) for each in fetcher_for(named, cast("Any", None)).listed} == {
            "http://a.example",
            "http://as.example",
        }


class Documents:
    """The documents of the whole world."""

    def __init__(self, documents: dict[str, Any]) -> None:
        self._documents = documents
        self.asked: list[str] = []

    async def get(self, place: str) -> Any:
        self.asked.append(place)
        return self._documents.get(place)


@pytest.mark.anyio
class TestFinding:
    @pytest.mark.parametrize(
        ("named", "places"),
        [
            (None, [f"https://tools.example{PROTECTED}/mcp", f"https://tools.example{PROTECTED}"]),
            (
                "/here",
                [
                    "https://tools.example/here",
                    f"https://tools.example{PROTECTED}/mcp",
                    f"https://tools.example{PROTECTED}",
                ],
            ),
            (
                f"https://tools.example{PROTECTED}",
                [f"https://tools.example{PROTECTED}", f"https://tools.example{PROTECTED}/mcp"],
            ),
        ],
    )
    async def test_server_is_asked_where_the_challenge_says_and_then_at_the_usual_places(self, named, places):
        nowhere = Documents({})
        challenge = {} if named is None else {"resource_metadata": named}

        assert await find_resource(cast("Any", nowhere), MCP, challenge) is None
        assert nowhere.asked == places
        for place in places:
            there = Documents({place: {"resource": MCP}})
            assert await find_resource(cast("Any", there), MCP, challenge) == Resource(MCP, (), None)
            assert there.asked[-1] == place

    async def test_first_issuer_that_says_something_counts(self):
        said = {"issuer": f"{AS}/2", "token_endpoint": f"{AS}/t"}
        documents = Documents({f"{AS}{OPENID}/2": said, f"{AS}{SERVER}/3": said})

        found = await find_server(cast("Any", documents), f"{AS}/1", f"{AS}/2", f"{AS}/3")
        assert found == AuthorizationServer(f"{AS}/2", f"{AS}/t")
        assert documents.asked[-1] == f"{AS}{OPENID}/2"

    async def test_issuer_may_publish_its_metadata_elsewhere_if_the_operator_named_it(self):
        documents = Documents({f"{AS}{SERVER}": {"issuer": "https://named.example", "token_endpoint": f"{AS}/t"}})

        assert await find_server(cast("Any", documents), AS, named="https://named.example")
        with pytest.raises(NoAnswer, match="names another issuer"):
            await find_server(cast("Any", documents), AS)

    async def test_issuers_that_say_nothing_are_told_by_the_first(self):
        with pytest.raises(NoAnswer, match=f"its authorization server '{AS}/1' publishes no metadata"):
            await find_server(cast("Any", Documents({})), f"{AS}/1", f"{AS}/2")
