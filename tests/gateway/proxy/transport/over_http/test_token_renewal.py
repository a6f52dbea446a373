"""Somebody's sign-in, request by request: when its tokens are renewed, and what is said where they can't be."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from gateway.config.access import ExchangeConfig
from gateway.config.gateway_config import ClientCredentials, SignInConfig, UpstreamConfig
from gateway.errors import ConfigError
from gateway.proxy.transport.oauth import token_renewal
from gateway.proxy.transport.oauth.code_flow import Client
from gateway.proxy.transport.oauth.grants import OPERATOR, Grant, GrantKey, GrantStore
from gateway.proxy.transport.oauth.token_endpoint import ClientCredentialsGrant
from gateway.proxy.transport.oauth.token_renewal import OneSignIn, SignedIn, authorizer_for
from gateway.proxy.transport.transport_interface import NoAnswer, SignInReplaced
from tests.gateway.proxy.transport.kept_log import KeptLog

pytestmark = pytest.mark.anyio
URL = "https://tools.example/mcp"
CONFIG = UpstreamConfig("web", url=URL, auth=SignInConfig())
GRANT = Grant(
    *("https://as.example", "https://as.example/t", None, Client("me", redirect_uri="http://127.0.0.1:7/back")),
    *("https://tools.example", "read"),
    access="old",
    refresh="r0",
    expires=1600.0,
    sign_in="one",
    version=1,
)
LOGIN = "run `codec-gateway login web`"


class Time:
    """The time that a test sets; both clocks tell it."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Endpoint:
    """A token endpoint that answers as a test says."""

    listed = frozenset[Any]()

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, Any]] | Exception] = []
        self.forms: list[Mapping[str, str]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def post_form(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> Any:
        assert url == GRANT.token_endpoint
        self.forms.append(form)
        await self.may_answer.wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def issued(token: str, **more: Any) -> tuple[int, dict[str, Any]]:
    return 200, {"access_token": token, "expires_in": 600, **more}


def refusal(error: str, status: int = 400) -> tuple[int, dict[str, Any]]:
    return status, {"error": error}


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr(token_renewal, "monotonic", time)
    return time


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


@pytest.fixture
def store(tmp_path: Path) -> GrantStore:
    return GrantStore(tmp_path / "sign-ins")


@pytest.fixture
def make(time: Time, endpoint: Endpoint, store: GrantStore, log: KeptLog) -> Callable[..., SignedIn]:
    """Makes what uses a sign-in, after keeping it."""

    def make(grant: Grant | None = GRANT, config: UpstreamConfig = CONFIG, owner: str = OPERATOR) -> SignedIn:
        if grant is not None:
            store.write(GrantKey(owner, config.name, config.url or ""), grant)
        return SignedIn(config, owner, cast("Any", endpoint), store, cast("Any", log), time)

    return make


KEY = GrantKey(OPERATOR, "web", URL)


async def sent(signed_in: SignedIn) -> str | None:
    return (await signed_in.headers()).get("authorization")


class TestReading:
    async def test_sign_in_and_sign_out_are_noticed_after_a_second(self, make, store, time):
        signed_in = make(None)
        seen = [await sent(signed_in)]
        store.write(KEY, GRANT)
        for seconds in (0.9, 0.1):
            time.now += seconds
            seen.append(await sent(signed_in))
        store.delete(KEY)
        for seconds in (0.9, 0.1):
            time.now += seconds
            seen.append(await sent(signed_in))

        assert seen == [None, None, "Bearer old", "Bearer old", None]

    async def test_which_sign_in_there_is_differs_and_one_that_has_ended_is_none(self, make, store, time):
        signed_in = make()
        first = signed_in.current()
        store.write(KEY, replace(GRANT, sign_in="two", version=2))
        time.now += 1
        second = signed_in.current()
        store.write(KEY, GRANT.ended(client_too=False))
        time.now += 1

        assert (first, second, signed_in.current()) == ("one", "two", None)
        assert await sent(signed_in) is None

    @pytest.mark.parametrize(
        ("issuer", "is_used"),
        [("https://as.example", True), ("https://as.example/", True), ("https://other.example", False), (None, True)],
    )
    async def test_tokens_of_another_issuer_than_the_configured_one_are_not_sent(self, make, issuer, is_used):
        signed_in = make(config=replace(CONFIG, auth=SignInConfig(issuer=issuer)))

        assert (await sent(signed_in) is not None) is is_used

    async def test_sign_in_that_can_not_be_read_is_a_sentence(self, make, store):
        signed_in = make()
        (store.folder / "key").chmod(0o644)
        unreadable = SignedIn(
            CONFIG, OPERATOR, cast("Any", None), GrantStore(store.folder), cast("Any", None), lambda: 0
        )
        with pytest.raises(NoAnswer, match=r"its sign-in can't be read: .*chmod 600"):
            await unreadable.headers()

        assert await sent(signed_in) == "Bearer old"

    async def test_store_of_the_replicas_that_does_not_answer_is_asked_again_as_often_as_wanted(
        self, store, make, monkeypatch
    ):
        asked: list[int] = []

        class Away:
            async def newest(self, *_: object) -> bytes | None:
                asked.append(1)
                return None if len(asked) < 3 else b""

        pauses: list[float] = []

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)

        monkeypatch.setattr(token_renewal.anyio, "sleep", sleep)
        store.shared = cast("Any", Away())
        found = await make().look_up(tries=5)

        assert found == GRANT
        assert (len(asked), pauses) == (3, [0.5, 0.5])
        asked.clear()
        pauses.clear()
        await make().look_up()
        assert (len(asked), pauses) == (1, [])

    async def test_sign_in_of_a_replica_that_can_not_be_kept_here_is_used_and_that_is_logged(
        self, store, make, log, monkeypatch
    ):
        class Replica:
            async def newest(self, *_: object) -> bytes:
                return GRANT.to_bytes()

        def refuse(*_: object) -> None:
            raise ConfigError("disk full")

        store.shared = cast("Any", Replica())
        monkeypatch.setattr(store, "write", refuse)

        assert await make(None).look_up() == GRANT
        assert log.entries == [
            {"event": "sign-in to upstream can't be kept: it lasts as long as this process", "cause": "disk full"}
        ]


class TestRenewal:
    @pytest.mark.parametrize(
        ("left", "seconds", "renewed"),
        [(600, 569, False), (600, 570, True), (40, 19, False), (40, 20, True), (60, 30, True), (0, 0, True)],
    )
    async def test_tokens_are_renewed_shortly_before_their_end_or_after_half_a_short_life(
        self, make, endpoint, time, left, seconds, renewed
    ):
        endpoint.answers = [issued("new")]
        signed_in = make(replace(GRANT, expires=1000.0 + left))
        await signed_in.refresh()
        time.now += seconds

        assert await sent(signed_in) == ("Bearer new" if renewed else "Bearer old")

    @pytest.mark.parametrize("grant", [replace(GRANT, expires=None), replace(GRANT, refresh=None, expires=1.0)])
    async def test_tokens_without_an_end_or_a_way_to_renew_them_are_used_until_they_are_refused(
        self, make, endpoint, time, grant
    ):
        signed_in = make(grant)
        time.now += 10**6

        assert await sent(signed_in) == "Bearer old"
        assert endpoint.forms == []

    async def test_renewed_tokens_are_kept_for_every_process_and_live_from_when_they_were_asked_for(
        self, make, endpoint, store, time, log
    ):
        endpoint.answers = [issued("new", refresh_token="r1", scope="read write")]
        signed_in = make(replace(GRANT, expires=0.0))
        await signed_in.headers()
        kept = store.read(KEY)

        assert kept is not None
        assert (kept.access, kept.refresh, kept.expires, kept.scope) == ("new", "r1", 1600.0, "read write")
        (form,) = endpoint.forms
        assert form == {
            "grant_type": "refresh_token",
            "refresh_token": "r0",
            "resource": "https://tools.example",
            "client_id": "me",
        }
        assert log.entries == [{"event": "sign-in to upstream renewed", "issuer": "https://as.example"}]

    async def test_tokens_that_another_process_has_renewed_are_used_without_another_request(
        self, make, endpoint, store
    ):
        signed_in = make(replace(GRANT, expires=0.0))
        await signed_in.refresh()
        store.write(KEY, replace(GRANT, access="theirs", version=2))

        assert await sent(signed_in) == "Bearer theirs"
        assert endpoint.forms == []

    async def test_sign_in_that_was_ended_meanwhile_is_not_renewed(self, make, endpoint, store):
        signed_in = make(replace(GRANT, expires=0.0))
        await signed_in.refresh()
        store.delete(KEY)

        assert await sent(signed_in) is None
        assert endpoint.forms == []

    async def test_valid_token_is_used_while_it_can_not_be_renewed_and_an_expired_one_is_an_error(
        self, make, endpoint, time
    ):
        endpoint.answers = [refusal("slow_down", 503)] * 4
        signed_in = make(replace(GRANT, expires=1010.0))
        await signed_in.refresh()
        outcomes = []
        for now in (1005.0, 1009.9, 1010.0, 1014.9, 1015.0):
            time.now = now
            try:
                outcomes.append((await sent(signed_in), len(endpoint.forms)))
            except NoAnswer as error:
                outcomes.append((str(error), len(endpoint.forms)))

        words = (
            "its sign-in can't be renewed: its authorization server answered HTTP 503 Service Unavailable (slow_down); "
            f"if that lasts, {LOGIN}"
        )
        assert outcomes == [("Bearer old", 1), ("Bearer old", 1), (words, 2), (words, 2), (words, 3)]

    async def test_authorization_server_that_says_nothing_of_a_reason_may_come_back_by_itself(self, make, endpoint):
        endpoint.answers = [(503, {})]
        with pytest.raises(NoAnswer) as failed:
            await make(replace(GRANT, expires=0.0)).headers()

        assert str(failed.value).endswith("HTTP 503 Service Unavailable")

    async def test_authorization_server_that_does_not_answer_is_given_up(self, make, endpoint, monkeypatch):
        monkeypatch.setattr(token_renewal, "FETCH_TIME", 0.01)
        endpoint.may_answer.clear()
        with pytest.raises(NoAnswer, match=r"can't be renewed: its authorization server did not answer within 0\.01 s"):
            await make(replace(GRANT, expires=0.0)).headers()

    @pytest.mark.parametrize(
        ("error", "address"), [("invalid_grant", "http://127.0.0.1:7/back"), ("invalid_client", "")]
    )
    async def test_sign_in_that_the_authorization_server_ended_says_so_once_in_the_log(
        self, make, endpoint, store, log, error, address
    ):
        endpoint.answers = [refusal(error)]
        signed_in = make(replace(GRANT, expires=0.0))
        for asking in (signed_in.headers(), signed_in.refused(401, "", {})):
            with pytest.raises(NoAnswer, match=rf"its sign-in has ended.*: {LOGIN}"):
                await asking
        kept = store.read(KEY)

        assert kept is not None
        assert (kept.access, kept.refresh, kept.client.redirect_uri) == (None, None, address)
        assert log.entries == [
            {"event": "sign-in to upstream has ended", "issuer": "https://as.example", "way_out": LOGIN}
        ]
        assert await sent(signed_in) is None

    @pytest.mark.parametrize(
        ("error", "scope", "asked"),
        [
            ("invalid_scope", "read", [None, "read"]),
            ("invalid_request", "read", [None, "read"]),
            ("invalid_scope", None, [None]),
            ("slow_down", "read", [None]),
        ],
    )
    async def test_scope_is_named_only_where_a_request_without_one_is_refused(
        self, make, endpoint, error, scope, asked
    ):
        endpoint.answers = [refusal(error), issued("new")]
        signed_in = make(replace(GRANT, expires=0.0, scope=scope))
        if len(asked) == 2:
            assert await sent(signed_in) == "Bearer new"
        else:
            with pytest.raises(NoAnswer, match=error):
                await signed_in.headers()

        assert [form.get("scope") for form in endpoint.forms] == asked

    async def test_all_who_wait_get_the_tokens_of_one_renewal_even_if_the_first_leaves(self, make, endpoint):
        endpoint.answers = [issued("new")]
        endpoint.may_answer.clear()
        signed_in = make(replace(GRANT, expires=0.0))
        asking = [asyncio.create_task(signed_in.headers()) for _ in range(3)]
        await anyio.wait_all_tasks_blocked()
        asking[0].cancel()
        await anyio.wait_all_tasks_blocked()
        endpoint.may_answer.set()

        assert [await each for each in asking[1:]] == [{"authorization": "Bearer new"}] * 2
        assert len(endpoint.forms) == 1

    async def test_tokens_that_can_not_be_kept_are_used_and_kept_as_soon_as_that_is_possible(
        self, make, endpoint, store, time, log, monkeypatch
    ):
        endpoint.answers = [issued("new"), issued("newer")]
        signed_in = make(replace(GRANT, expires=0.0))
        with monkeypatch.context() as full:

            def refuse(*_: object) -> None:
                raise ConfigError("disk full")

            full.setattr(store, "write", refuse)
            seen = [await sent(signed_in)]
            time.now += 600
            seen.append(await sent(signed_in))
            stale = store.read(KEY)
        time.now += 1
        seen.append(await sent(signed_in))
        kept = store.read(KEY)

        assert seen == ["Bearer new", "Bearer newer", "Bearer newer"]
        assert stale is not None
        assert kept is not None
        assert (stale.access, kept.access) == ("old", "newer")
        assert [each["event"] for each in log.entries].count(
            "sign-in to upstream can't be kept: it lasts as long as this process"
        ) == 1


SENT = {"authorization": "Bearer old"}


class TestRefusal:
    async def test_server_that_wants_no_sign_in_of_ours_is_not_signed_in_to(self, make):
        other = make(None, replace(CONFIG, auth=None))

        assert not await other.refused(401, 'Basic realm="x"', {})
        with pytest.raises(NoAnswer, match=f"nobody has signed in to it: {LOGIN}"):
            await other.refused(401, 'Bearer resource_metadata="x"', {})
        with pytest.raises(NoAnswer, match=f"nobody has signed in to it: {LOGIN}"):
            await make(None).refused(401, "", {})

    async def test_sign_in_that_has_ended_says_what_to_do(self, make):
        with pytest.raises(NoAnswer, match=f"its sign-in has ended: {LOGIN}"):
            await make(GRANT.ended(client_too=False)).refused(401, "", {})

    async def test_request_with_older_tokens_is_sent_again(self, make, endpoint):
        assert await make().refused(401, "", {"authorization": "Bearer older"})
        assert endpoint.forms == []

    async def test_token_that_can_not_be_renewed_and_is_refused_says_what_to_do(self, make):
        with pytest.raises(NoAnswer, match=f"it refuses the token of its sign-in, which can't be renewed: {LOGIN}"):
            await make(replace(GRANT, refresh=None)).refused(401, "", SENT)

    async def test_refused_token_is_renewed_but_not_one_that_was_just_renewed(self, make, endpoint, time):
        endpoint.answers = [issued("new"), issued("newer")]
        signed_in = make()
        renewed = await signed_in.refused(401, "", SENT)
        again = await signed_in.headers()
        for seconds in (0.0, 4.9):
            time.now += seconds
            with pytest.raises(NoAnswer, match=f"it refuses even a token that was just renewed: {LOGIN}"):
                await signed_in.refused(401, "", again)
        time.now += 0.1

        assert (renewed, again) == (True, {"authorization": "Bearer new"})
        assert await signed_in.refused(401, "", again)
        assert await sent(signed_in) == "Bearer newer"

    async def test_new_sign_in_is_renewed_at_once_where_it_is_refused(self, make, endpoint, store):
        endpoint.answers = [issued("new"), issued("newer")]
        signed_in = make()
        await signed_in.refused(401, "", SENT)
        store.write(KEY, replace(GRANT, access="next", version=10**15))

        assert await signed_in.refused(401, "", {"authorization": "Bearer next"})
        assert await sent(signed_in) == "Bearer newer"

    async def test_token_that_is_refused_while_a_replica_renews_the_one_before_is_renewed_too(
        self, make, endpoint, store, monkeypatch
    ):
        endpoint.answers = [issued("new")]
        leases, is_over = list[bool](), asyncio.Event()

        @asynccontextmanager
        async def lease(*_: object) -> AsyncGenerator[bool]:
            leases.append(len(leases) > 0)
            await is_over.wait()
            yield leases[-1]

        monkeypatch.setattr(store, "lease", lease)
        signed_in = make(replace(GRANT, expires=1010.0))
        await signed_in.refresh()
        signed_in._due = 0.0
        first = asyncio.create_task(signed_in.headers())
        await anyio.wait_all_tasks_blocked()
        store.write(KEY, replace(GRANT, access="theirs", refresh="r1", expires=1001.0, version=2))
        second = asyncio.create_task(signed_in.refused(401, "", {"authorization": "Bearer theirs"}))
        await anyio.wait_all_tasks_blocked()
        is_over.set()

        assert (await first, await second) == ({"authorization": "Bearer theirs"}, True)
        assert [form["refresh_token"] for form in endpoint.forms] == ["r1"]
        assert await sent(signed_in) == "Bearer new"

    async def test_short_lived_token_that_ended_on_its_way_is_renewed_though_it_was_just_issued(
        self, make, endpoint, time
    ):
        endpoint.answers = [issued("new", expires_in=4), issued("newer")]
        signed_in = make()
        await signed_in.refused(401, "", SENT)
        time.now += 2

        assert await signed_in.refused(401, "", {"authorization": "Bearer new"})
        assert await sent(signed_in) == "Bearer newer"

    @pytest.mark.parametrize(
        ("challenge", "had", "missing"),
        [
            ('Bearer error="insufficient_scope", scope="write read"', None, "write read"),
            ('Bearer error="insufficient_scope", scope="write"', "admin", "admin write"),
            ('Bearer error="insufficient_scope", scope="admin"', "admin", "admin"),
            ('Bearer error="insufficient_scope"', None, None),
            (f'Bearer error="insufficient_scope", scope="{"w" * 4096}"', None, "w" * 4096),
            (f'Bearer error="insufficient_scope", scope="{"w" * 4096}"', "a", "a"),
        ],
    )
    async def test_missing_scopes_are_kept_for_the_next_sign_in(self, make, store, challenge, had, missing):
        signed_in = make(replace(GRANT, missing=had))
        with pytest.raises(NoAnswer, match=f"lacks scopes that it asks for: {LOGIN}, which asks for them, too"):
            await signed_in.refused(403, challenge, SENT)
        kept = store.read(KEY)

        assert kept is not None
        assert kept == replace(GRANT, missing=missing, version=1 if missing == had else 2)

    async def test_other_403_is_an_answer_like_any_other(self, make):
        assert not await make().refused(403, 'Bearer error="invalid_token"', SENT)
        assert not await make(None, replace(CONFIG, name="x")).refused(
            403, 'Bearer error="insufficient_scope", scope="w"', {}
        )

    @pytest.mark.parametrize(
        ("owner", "more", "words"),
        [
            (OPERATOR, {}, f"signed in to it: {LOGIN}$"),
            (
                "key:ann",
                {"auth": SignInConfig(redirect_url="https://gate.example/signin/back", per_user=True)},
                r"signed in to it: open https://gate\.example/signin\?server=web$",
            ),
            (
                OPERATOR,
                {"auth": None, "exchange": ExchangeConfig("gateway")},
                f"callers with access tokens need not; for the others {LOGIN}, or set `oauth` of this server$",
            ),
            ("key:ann", {"auth": None}, f"signed in to it: {LOGIN}$"),
        ],
    )
    async def test_way_out_is_that_of_whoever_has_to_sign_in(self, make, owner, more, words):
        signed_in = make(None, replace(CONFIG, **more), owner)
        with pytest.raises(NoAnswer, match=words):
            await signed_in.refused(401, 'Bearer resource_metadata="x"', {})


class TestOneOfSeveral:
    async def test_session_is_sent_the_tokens_of_its_own_sign_in_alone(self, make, endpoint, store, time):
        signed_in = make()
        one = OneSignIn(signed_in, "one")
        before = await one.headers()
        store.write(KEY, replace(GRANT, sign_in="two", access="other", version=2))
        time.now += 1
        with pytest.raises(SignInReplaced):
            await one.headers()
        with pytest.raises(SignInReplaced):
            await one.refused(401, "", SENT)

        assert before == SENT
        assert not await one.refused(403, 'Bearer error="insufficient_scope"', SENT)
        assert endpoint.forms == []

    async def test_sign_in_that_ended_is_refused_as_for_everybody(self, make, endpoint, store, time):
        endpoint.answers = [issued("new")]
        one = OneSignIn(make(), "one")
        renewed = await one.refused(401, "", SENT)
        store.write(KEY, GRANT.ended(client_too=False))
        time.now += 1

        assert renewed
        assert await one.headers() == {}
        with pytest.raises(NoAnswer, match="its sign-in has ended") as ended:
            await one.refused(401, "", SENT)
        assert not isinstance(ended.value, SignInReplaced)


class Connections:
    """What connections to all servers share."""

    def __init__(self) -> None:
        self.authorizers: dict[Any, Any] = {}


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (CONFIG, SignedIn),
        (UpstreamConfig("web", url=URL), SignedIn),
        (UpstreamConfig("web", url=URL, oauth=ClientCredentials("me", "s")), ClientCredentialsGrant),
        (UpstreamConfig("web", url=URL, headers={"Authorization": "x"}), None),
        (
            UpstreamConfig("web", url=URL, headers={"Authorization": "x"}, oauth=ClientCredentials("me", "s")),
            ClientCredentialsGrant,
        ),
        (UpstreamConfig("web", command="c"), None),
    ],
)
async def test_tokens_of_a_server_are_the_same_for_all_connections_to_it(store, config, kind):
    client = cast("Any", Connections())
    one, two = (authorizer_for(config, client, store, cast("Any", None)) for _ in range(2))
    moved = authorizer_for(replace(config, url="https://moved.example"), client, store, cast("Any", None))

    assert one is two
    assert isinstance(one, kind) if kind else one is None
    assert moved is not one or one is None or config.url is None
