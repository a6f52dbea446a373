"""Answers of a token endpoint: which hold a token that is used, for how long, and what is said of the others."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any, cast

import pytest

from gateway.config.access import ExchangeConfig
from gateway.observe.logs import get_logger
from gateway.proxy.caller import CallerToken
from gateway.proxy.transport.oauth.discovery import DocumentFetcher
from gateway.proxy.transport.oauth.token_endpoint import AGAIN, NotIssued, Refused, TokenExchange, Tokens, read_tokens
from gateway.proxy.transport.transport_interface import NoAnswer
from tests.cases import each_of

LONGEST = 16 * 1024


@pytest.mark.parametrize("status", [200, 201])
def test_issued_token_is_read_with_what_is_said_about_it(status):
    document = {"access_token": "t", "token_type": "BEARER", "expires_in": 60, "refresh_token": "r", "scope": "a b"}

    assert read_tokens(status, document) == Tokens("t", 60.0, "r", "a b")
    assert read_tokens(status, {"access_token": "t"}) == Tokens("t", None, None, None)


@each_of(
    ("told", "life"),
    [
        (1, 1.0),
        (90.5, 90.5),
        ("3600", 3600.0),
        (10**9, 365 * 86_400.0),
        ("9" * 12, 365 * 86_400.0),
        ("9" * 13, None),
        ("-5", None),
        ("soon", None),
        (0, None),
        (0.5, None),
        (None, None),
        ([60], None),
    ],
)
def test_lifetime_is_a_number_of_seconds_of_at_most_a_year(told, life):
    assert read_tokens(200, {"access_token": "t", "expires_in": told}).life == life


@pytest.mark.parametrize(
    ("given", "kept"), [("x" * LONGEST, "x" * LONGEST), ("x" * (LONGEST + 1), None), (7, None), (["x"], None)]
)
def test_refresh_token_and_scope_that_are_too_long_or_no_text_are_left_out(given, kept):
    tokens = read_tokens(200, {"access_token": "t", "refresh_token": given, "scope": given})

    assert (tokens.refresh, tokens.scope) == (kept, kept)


def test_empty_refresh_token_is_none():
    assert read_tokens(200, {"access_token": "t", "refresh_token": ""}).refresh is None


def test_token_has_a_bound():
    assert read_tokens(200, {"access_token": "t" * LONGEST}).access == "t" * LONGEST
    with pytest.raises(NotIssued, match="HTTP 200 OK, without a token of at most 16 KiB"):
        read_tokens(200, {"access_token": "t" * (LONGEST + 1)})


@pytest.mark.parametrize("token", ["ü", "a b", "a\nb", "a\x7f"])
def test_token_that_no_header_can_carry_is_not_used(token):
    with pytest.raises(NoAnswer, match="not visible ASCII"):
        read_tokens(200, {"access_token": token})


@pytest.mark.parametrize("kind", ["mac", 7, None, "DPoP"])
def test_token_that_is_no_bearer_token_is_not_used(kind):
    with pytest.raises(NoAnswer, match=f"of type {kind!r}, not a bearer token"):
        read_tokens(200, {"access_token": "t", "token_type": kind})


@pytest.mark.parametrize(
    ("status", "document", "kind", "code", "words"),
    [
        (400, {"error": "invalid_grant"}, Refused, "invalid_grant", "HTTP 400 Bad Request (invalid_grant)"),
        (401, {"error": "invalid_client"}, Refused, "invalid_client", "HTTP 401 Unauthorized (invalid_client)"),
        (200, {"error": "bad_refresh_token"}, Refused, "bad_refresh_token", "HTTP 200 OK (bad_refresh_token)"),
        (499, {"error": "unauthorized_client"}, Refused, "unauthorized_client", "HTTP 499 (unauthorized_client)"),
        (500, {"error": "invalid_grant"}, NotIssued, "invalid_grant", "HTTP 500 Internal Server Error (invalid_grant)"),
        (400, {"error": "slow_down"}, NotIssued, "slow_down", "HTTP 400 Bad Request (slow_down)"),
        (
            400,
            {"error": "invalid_scope", "error_description": "no\nsuch"},
            NotIssued,
            "invalid_scope",
            r"HTTP 400 Bad Request (invalid_scope no\nsuch)",
        ),
        (400, {"error_description": "why"}, NotIssued, "", "HTTP 400 Bad Request (why)"),
        (400, {"error": 7}, NotIssued, "", "HTTP 400 Bad Request"),
        (202, {"access_token": "t"}, NotIssued, "", "HTTP 202 Accepted"),
        (200, {"access_token": ""}, NotIssued, "", "HTTP 200 OK, without a token of at most 16 KiB"),
        (201, {}, NotIssued, "", "HTTP 201 Created, without a token of at most 16 KiB"),
    ],
)
def test_answer_without_a_token_says_why_and_whether_asking_again_is_of_use(status, document, kind, code, words):
    with pytest.raises(NotIssued) as refused:
        read_tokens(status, document)

    assert type(refused.value) is kind
    assert refused.value.code == code
    assert str(refused.value) == f"its authorization server answered {words}"


def test_tokens_are_not_shown():
    shown = repr(Tokens("secret", 1.0, "secret"))

    assert "secret" not in shown


class Time:
    """The time that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Endpoint:
    """A token endpoint that answers as a test says."""

    def __init__(self) -> None:
        self.forms: list[dict[str, str]] = []
        self.answers: list[tuple[int, dict[str, Any]]] = []

    async def __call__(self, url: str, form: dict[str, str], headers: object) -> tuple[int, dict[str, Any]]:
        self.forms.append(form)
        return self.answers.pop(0)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


@pytest.fixture
def exchange_of(time: Time, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TokenExchange]:
    monkeypatch.setattr(DocumentFetcher, "post_form", lambda _, *args: endpoint(*args))

    def make(**settings: Any) -> TokenExchange:
        config = ExchangeConfig("gateway", "s", **{"token_url": "https://as.example/token", **settings})
        return TokenExchange(
            "https://tools.example/mcp", config, cast("Any", None), get_logger("test"), clock=time, now=time
        )

    return make


@pytest.fixture
def exchange(exchange_of: Callable[..., TokenExchange]) -> TokenExchange:
    return exchange_of(audience="tools")


def came_with(text: str, expires: float = 5000.0) -> CallerToken:
    return CallerToken("r", expires, ("https://as.example", "gateway"), text)


def signed(**claims: object) -> str:
    return f"h.{urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.s"


ISSUED: dict[str, Any] = {"access_token": "t", "issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}


@pytest.mark.anyio
class TestExchange:
    """One caller's tokens for one server."""

    async def test_callers_token_is_exchanged_once_for_the_server_and_anew_a_little_before_the_end(
        self, exchange, endpoint, time
    ):
        endpoint.answers = [(200, {**ISSUED, "access_token": each, "expires_in": 600}) for each in "ab"]
        exchange.offer(came_with("mine"))
        sent = []
        for now in (1000.0, 1569.0, 1570.0):
            time.now = now
            sent.append((await exchange.headers())["authorization"])

        assert sent == ["Bearer a", "Bearer a", "Bearer b"]
        form = endpoint.forms[0]
        assert form["subject_token"] == "mine"
        assert (form["audience"], form["resource"]) == ("tools", "https://tools.example/mcp")

    async def test_token_without_a_lifetime_is_used_for_an_hour_less_the_margin(self, exchange, endpoint, time):
        endpoint.answers = [(200, ISSUED), (200, {**ISSUED, "access_token": "u"})]
        exchange.offer(came_with("mine", 10**6))
        sent = []
        for now in (1000.0, 1000 + 3569.0, 1000 + 3570.0):
            time.now = now
            sent.append((await exchange.headers())["authorization"])

        assert sent == ["Bearer t", "Bearer t", "Bearer u"]

    async def test_short_lived_token_is_used_for_half_its_life(self, exchange, endpoint, time):
        endpoint.answers = [(200, {**ISSUED, "expires_in": 40})] * 2
        exchange.offer(came_with("mine"))
        for now in (1000.0, 1019.0, 1020.0):
            time.now = now
            await exchange.headers()

        assert len(endpoint.forms) == 2

    async def test_what_was_issued_does_not_outlive_the_callers_own(self, exchange, endpoint, time):
        endpoint.answers = [(200, {**ISSUED, "expires_in": 600})]
        exchange.offer(came_with("mine", 1100.0))
        await exchange.headers()
        time.now = 1099.0
        await exchange.headers()
        assert exchange.current() is not None
        time.now = 1100.0
        with pytest.raises(NoAnswer, match="the caller's own has expired: call again with a fresh one"):
            await exchange.headers()

        assert exchange.current() is None
        assert len(endpoint.forms) == 1

    async def test_nothing_is_exchanged_before_a_caller_came(self, exchange, endpoint):
        assert exchange.current() is None
        with pytest.raises(NoAnswer, match="call again with a fresh one"):
            await exchange.headers()

        assert endpoint.forms == []

    @pytest.mark.parametrize(
        ("issued", "words"),
        [
            ("mine", "the caller's own, which no other server may get"),
            (signed(iss="https://as.example", aud="gateway"), "one that this gateway would accept, too"),
            (signed(iss="https://as.example", aud=["x", "gateway"]), "one that this gateway would accept, too"),
        ],
    )
    async def test_token_that_the_server_could_use_here_is_not_given_to_it(self, exchange, endpoint, issued, words):
        endpoint.answers = [(200, {**ISSUED, "access_token": issued})]
        exchange.offer(came_with("mine"))
        with pytest.raises(NoAnswer, match=words):
            await exchange.headers()

    @pytest.mark.parametrize(
        "issued",
        [
            signed(iss="https://as.example", aud="tools"),
            signed(iss="https://as.example", aud=["tools"]),
            signed(iss="https://other.example", aud="gateway"),
            signed(iss="https://as.example"),
            "opaque",
            "a.!.b",
            "a.W10.b",
        ],
    )
    async def test_token_for_the_server_or_one_that_nobody_can_read_is_used(self, exchange, endpoint, issued):
        endpoint.answers = [(200, {**ISSUED, "access_token": issued})]
        exchange.offer(came_with("mine"))

        assert await exchange.headers() == {"authorization": f"Bearer {issued}"}

    @pytest.mark.parametrize("kind", ["urn:ietf:params:oauth:token-type:refresh_token", 7, None])
    async def test_token_of_another_kind_is_not_used(self, exchange, endpoint, kind):
        endpoint.answers = [(200, {**ISSUED, "issued_token_type": kind})]
        exchange.offer(came_with("mine"))
        with pytest.raises(NoAnswer, match="not an access token"):
            await exchange.headers()

    async def test_failure_is_kept_for_a_while_unless_a_newer_token_is_offered(self, exchange, endpoint, time):
        endpoint.answers = [(400, {"error": "invalid_grant"})] * 2 + [(200, ISSUED)]
        exchange.offer(came_with("mine"))
        before = exchange.current()
        for _ in range(2):
            with pytest.raises(NoAnswer, match="get a fresh one"):
                await exchange.headers()
        asked_within = len(endpoint.forms)
        time.now += AGAIN
        with pytest.raises(NoAnswer):
            await exchange.headers()
        exchange.offer(came_with("older", 4000.0))

        assert await exchange.headers() == {"authorization": "Bearer t"}
        assert asked_within == 1
        assert [form["subject_token"] for form in endpoint.forms] == ["mine", "mine", "older"]
        assert exchange.current() != before

    async def test_older_token_changes_nothing_while_the_newer_one_is_of_use(self, exchange, endpoint):
        endpoint.answers = [(200, ISSUED)]
        exchange.offer(came_with("newer", 5000.0))
        exchange.offer(came_with("older", 4000.0))
        before = exchange.current()
        await exchange.headers()

        assert endpoint.forms[0]["subject_token"] == "newer"
        assert exchange.current() == before
        assert endpoint.answers == []

    @pytest.mark.parametrize(
        ("error", "words"),
        [
            ("invalid_grant", "get a fresh one (sign in again in your client)"),
            ("invalid_token", "get a fresh one (sign in again in your client)"),
            ("invalid_request", "(sign in again in your client), or check `exchange` of this server"),
            ("invalid_client", "(invalid_client): check `exchange` of this server"),
            ("invalid_target", "(invalid_target): check `exchange` of this server"),
            (None, "HTTP 400 Bad Request"),
        ],
    )
    async def test_refusal_says_who_can_do_what(self, exchange, endpoint, error, words):
        endpoint.answers = [(400, {"error": error})]
        exchange.offer(came_with("mine"))
        with pytest.raises(NoAnswer) as refused:
            await exchange.headers()

        assert str(refused.value).startswith("no access token: its authorization server answered HTTP 400")
        assert str(refused.value).endswith(words)

    @pytest.mark.parametrize(
        ("had", "asked", "scope"),
        [
            (None, "a b", "a b"),
            ("a", "b a c", "a b c"),
            ("a", "a", None),
            ("a", "b" * 4094, "a " + "b" * 4094),
            ("a", "b" * 4095, None),
        ],
    )
    async def test_scopes_that_a_server_misses_are_asked_for_too(self, exchange_of, endpoint, time, had, asked, scope):
        endpoint.answers = [(200, ISSUED), (200, {**ISSUED, "access_token": "u"})]
        exchange = exchange_of(scope=had)
        exchange.offer(came_with("mine"))
        sent = await exchange.headers()
        time.now += AGAIN
        challenge = f'Bearer error="insufficient_scope", scope="{asked}"'

        assert await exchange.refused(403, challenge, sent) is (scope is not None)
        assert [form.get("scope") for form in endpoint.forms] == [had, *([] if scope is None else [scope])]

    @pytest.mark.parametrize(
        ("had", "asked", "scope"),
        [(None, "a", "a"), (None, "", None), ("b", "a", "b"), (None, "a" * 4096, "a" * 4096), (None, "a" * 4097, None)],
    )
    async def test_scope_of_a_refused_token_is_asked_for_where_there_is_none(
        self, exchange_of, endpoint, time, had, asked, scope
    ):
        endpoint.answers = [(200, ISSUED), (200, {**ISSUED, "access_token": "u"})]
        exchange = exchange_of(scope=had)
        exchange.offer(came_with("mine"))
        sent = await exchange.headers()
        time.now += AGAIN

        assert await exchange.refused(401, f'Bearer scope="{asked}"', sent)
        assert [form.get("scope") for form in endpoint.forms] == [had, scope]

    async def test_other_403_asks_for_nothing_more(self, exchange, endpoint, time):
        endpoint.answers = [(200, ISSUED)]
        exchange.offer(came_with("mine"))
        sent = await exchange.headers()
        time.now += AGAIN

        assert not await exchange.refused(403, 'Bearer error="invalid_token", scope="a"', sent)

    async def test_exchange_without_an_authorization_server_says_so_once_it_is_needed(self, exchange_of):
        exchange = exchange_of(token_url=None)
        exchange.offer(came_with("mine"))

        assert await exchange.headers() == {}
        with pytest.raises(NoAnswer, match="no authorization server is configured"):
            await exchange.refused(401, "", {})

    async def test_where_tokens_come_from_is_logged_without_them(self, exchange, endpoint, caplog):
        caplog.set_level("INFO")
        endpoint.answers = [(200, ISSUED)]
        exchange.offer(came_with("mine"))
        await exchange.headers()

        assert "'endpoint': 'https://as.example'" in caplog.text
        assert "mine" not in caplog.text

    async def test_refused_token_is_replaced_unless_another_has_come_meanwhile_or_it_was_just_issued(
        self, exchange, endpoint, time
    ):
        endpoint.answers = [(200, {**ISSUED, "access_token": each}) for each in "ab"]
        exchange.offer(came_with("mine"))
        sent = dict(await exchange.headers())
        outcomes = [await exchange.refused(401, "", {"authorization": "Bearer older"})]
        for seconds in (0.0, AGAIN - 1, 1.0):
            time.now += seconds
            outcomes.append(await exchange.refused(401, "", sent))

        assert outcomes == [True, False, False, True]
        assert await exchange.headers() == {"authorization": "Bearer b"}
        assert len(endpoint.forms) == 2
