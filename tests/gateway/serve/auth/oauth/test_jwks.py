"""The issuer's keys, fetched over real HTTP."""

import base64
import json

import anyio
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from gateway.config.access import OAuthConfig
from gateway.serve.auth.identity import CannotTell, CredentialRefused
from gateway.serve.auth.oauth import FLOOR, FRESH, OLDEST, RETRY, FetchFailed, IssuerKeys, metadata_urls, read_keys

from .issuer import RESOURCE, Issuer

pytestmark = pytest.mark.anyio


class Clock:
    now = 5000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def keys_of(issuer: Issuer, clock: Clock, *, discover: bool = False) -> IssuerKeys:
    url = None if discover else f"{issuer.url}/keys"
    return IssuerKeys(OAuthConfig(issuer.url, RESOURCE, RESOURCE, url), clock)


async def refusal_of(keys: IssuerKeys, kid: str | None, algorithm: str = "RS256") -> str:
    with pytest.raises(CredentialRefused) as caught:
        await keys.key(kid, algorithm)
    return caught.value.kind


async def test_keys_are_fetched_once_for_many_tokens(issuer: Issuer, clock: Clock) -> None:
    keys = keys_of(issuer, clock)
    assert issuer.fetches == 0

    for kid, algorithm in [("rsa", "RS256"), ("ec", "ES256"), ("ed", "EdDSA"), ("rsa", "RS256")]:
        assert (await keys.key(kid, algorithm)).key_id == kid

    assert issuer.fetches == 1


async def test_key_serves_the_algorithm_that_it_was_made_for_only(issuer: Issuer, clock: Clock) -> None:
    keys = keys_of(issuer, clock)

    assert await refusal_of(keys, "rsa", "PS256") == "key"
    assert await refusal_of(keys, "rsa", "ES256") == "key"
    assert await refusal_of(keys, "ec", "RS256") == "key"


async def test_token_without_a_key_id_gets_the_only_key_of_its_algorithm(issuer: Issuer, clock: Clock) -> None:
    keys = keys_of(issuer, clock)

    assert (await keys.key(None, "RS256")).key_id == "rsa"
    issuer.keys["rsa2"] = issuer.keys["rsa"]
    issuer.extra = [{**issuer.jwk("rsa"), "kid": "rsa2"}]
    clock.now += FRESH

    assert await refusal_of(keys, None) == "key"
    assert (await keys.key("rsa2", "RS256")).key_id == "rsa2"


async def test_storm_of_unknown_key_ids_is_one_fetch(issuer: Issuer, clock: Clock) -> None:
    keys = keys_of(issuer, clock)
    await keys.key("rsa", "RS256")
    clock.now += FLOOR
    refused: list[str] = []

    async def ask(n: int) -> None:
        refused.append(await refusal_of(keys, f"made up {n}"))

    async with anyio.create_task_group() as tasks:
        for n in range(100):
            tasks.start_soon(ask, n)

    assert refused == ["key"] * 100
    assert issuer.fetches == 2


async def test_unknown_key_ids_ask_again_after_the_floor_only(issuer: Issuer, clock: Clock) -> None:
    keys = keys_of(issuer, clock)
    await keys.key("rsa", "RS256")

    for n in range(10):
        assert await refusal_of(keys, f"made up {n}") == "key"
        clock.now += FLOOR / 10 - 0.01
    assert issuer.fetches == 1

    clock.now += 1.0
    assert await refusal_of(keys, "made up") == "key"
    assert issuer.fetches == 2


async def test_new_key_is_found_when_a_token_names_it(issuer: Issuer, clock: Clock) -> None:
    issuer.published = ["ec"]
    keys = keys_of(issuer, clock)
    assert await refusal_of(keys, "rsa") == "key"
    issuer.published = ["rsa"]
    clock.now += FLOOR

    assert (await keys.key("rsa", "RS256")).key_id == "rsa"
    assert await refusal_of(keys, "ec", "ES256") == "key"


async def test_withdrawn_key_is_forgotten_when_the_keys_are_old(issuer: Issuer, clock: Clock) -> None:
    keys = keys_of(issuer, clock)
    await keys.key("rsa", "RS256")
    issuer.published = ["ec"]
    clock.now += FRESH - 1
    await keys.key("rsa", "RS256")
    clock.now += 1

    assert await refusal_of(keys, "rsa") == "key"


async def test_requests_with_known_keys_do_not_wait_while_the_keys_are_fetched_anew(
    issuer: Issuer, clock: Clock
) -> None:
    keys = keys_of(issuer, clock)
    await keys.key("rsa", "RS256")
    clock.now += FRESH
    issuer.gate = anyio.Event()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keys.key, "rsa", "RS256")
        with anyio.fail_after(20):
            while issuer.fetches < 2:
                await anyio.lowlevel.checkpoint()
            assert (await keys.key("ec", "ES256")).key_id == "ec"
        issuer.gate.set()


async def test_client_that_leaves_does_not_end_the_fetch_of_the_others(issuer: Issuer, clock: Clock) -> None:
    keys = keys_of(issuer, clock)
    issuer.gate = anyio.Event()
    found: list[str | None] = []

    async def ask() -> None:
        found.append((await keys.key("rsa", "RS256")).key_id)

    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as first:
            async with anyio.create_task_group() as leaving:
                leaving.start_soon(keys.key, "rsa", "RS256")
                with anyio.fail_after(20):
                    while not issuer.fetches:
                        await anyio.lowlevel.checkpoint()
                tasks.start_soon(ask)
                first.cancel()
                issuer.gate.set()

    assert found == ["rsa"]
    assert issuer.fetches == 1


async def test_issuer_that_is_away_is_no_fault_of_the_token(issuer: Issuer, clock: Clock) -> None:
    keys = keys_of(issuer, clock)
    issuer.status = 500

    with pytest.raises(CannotTell):
        await keys.key("rsa", "RS256")
    with pytest.raises(CannotTell):
        await keys.key("rsa", "RS256")
    assert issuer.fetches == 1

    issuer.status = 200
    clock.now += RETRY
    assert (await keys.key("rsa", "RS256")).key_id == "rsa"


async def test_issuer_is_asked_again_after_15_minutes(issuer: Issuer, clock: Clock) -> None:
    keys = keys_of(issuer, clock)
    await keys.key("rsa", "RS256")
    fetched = issuer.fetches
    clock.now += 15 * 60 - 1
    await keys.key("rsa", "RS256")
    assert issuer.fetches == fetched
    clock.now += 1
    await keys.key("rsa", "RS256")
    assert issuer.fetches == fetched + 1


async def test_keys_of_an_issuer_that_is_away_are_used_for_24_hours(issuer: Issuer, clock: Clock) -> None:
    keys = keys_of(issuer, clock)
    await keys.key("rsa", "RS256")
    issuer.status = 503
    clock.now += 24 * 3600 - 1
    assert (await keys.key("rsa", "RS256")).key_id == "rsa"
    clock.now += 1

    with pytest.raises(CannotTell):
        await keys.key("rsa", "RS256")


async def test_known_keys_bridge_an_issuer_that_is_away_for_a_day_and_no_longer(issuer: Issuer, clock: Clock) -> None:
    keys = keys_of(issuer, clock)
    await keys.key("rsa", "RS256")
    issuer.status = 503
    clock.now += OLDEST - 1
    assert (await keys.key("rsa", "RS256")).key_id == "rsa"
    clock.now += RETRY

    with pytest.raises(CannotTell):
        await keys.key("rsa", "RS256")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"keys": 1}', b"x" * 600_000, b"\xff"])
async def test_what_is_no_key_set_is_no_answer(issuer: Issuer, clock: Clock, body: bytes) -> None:
    issuer.body = body or b" "

    with pytest.raises(CannotTell):
        await keys_of(issuer, clock).key("rsa", "RS256")


async def test_redirect_is_not_followed(issuer: Issuer, clock: Clock) -> None:
    issuer.status = 302

    with pytest.raises(CannotTell):
        await keys_of(issuer, clock).key("rsa", "RS256")


async def test_keys_are_found_through_the_issuer_s_metadata(issuer: Issuer, clock: Clock) -> None:
    issuer.metadata = {"issuer": issuer.url, "jwks_uri": f"{issuer.url}/keys"}

    assert (await keys_of(issuer, clock, discover=True).key("rsa", "RS256")).key_id == "rsa"


@pytest.mark.parametrize(
    "wrong", [{"issuer": "https://other.example"}, {"jwks_uri": "http://keys.example/"}, {"jwks_uri": 1}]
)
async def test_metadata_of_another_or_to_nowhere_is_not_believed(
    issuer: Issuer, clock: Clock, wrong: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    issuer.metadata = {"issuer": issuer.url, "jwks_uri": f"{issuer.url}/keys", **wrong}

    with pytest.raises(CannotTell):
        await keys_of(issuer, clock, discover=True).key("rsa", "RS256")

    assert issuer.fetches == 0
    assert ("it names another issuer" if "issuer" in wrong else "no usable jwks_uri") in caplog.text
    assert "can't be fetched" in caplog.text


def test_metadata_is_looked_for_in_the_three_places_of_the_standard() -> None:
    assert metadata_urls("https://a.example/t/1/") == (
        "https://a.example/.well-known/oauth-authorization-server/t/1",
        "https://a.example/.well-known/openid-configuration/t/1",
        "https://a.example/t/1/.well-known/openid-configuration",
    )
    assert metadata_urls("https://a.example") == (
        "https://a.example/.well-known/oauth-authorization-server",
        "https://a.example/.well-known/openid-configuration",
    )


def test_only_public_keys_that_check_signatures_count() -> None:
    issuer = Issuer()
    good = issuer.jwk("rsa")
    secret = {"kty": "oct", "kid": "s", "k": base64.urlsafe_b64encode(b"x" * 64).decode()}
    bad = [
        secret,
        {**secret, "alg": "RS256"},
        {**good, "kid": "enc", "use": "enc"},
        {**good, "kid": "private", "d": "AQAB"},
        {**good, "kid": "broken", "n": "!"},
        {**good, "kid": "short", "n": "AQAB"},
        {"kty": "new", "kid": "n"},
        "text",
        None,
    ]

    known = read_keys({"keys": [*bad, good]}, ["RS256", "ES256"])

    assert set(known) == {("rsa", "RS256"), (None, "RS256")}


@pytest.mark.parametrize(
    ("private", "algorithm"),
    [
        (RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 2048)), "RS256"),
        (ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1())), "ES256"),
        (OKPAlgorithm.to_jwk(ed25519.Ed25519PrivateKey.generate()), "EdDSA"),
    ],
)
def test_private_key_that_anybody_can_sign_with_once_it_is_published_is_not_used(private: str, algorithm: str) -> None:
    jwk = {**json.loads(private), "kid": "leaked"}
    public = {name: value for name, value in jwk.items() if name in {"kty", "kid", "n", "e", "crv", "x", "y"}}

    assert read_keys({"keys": [jwk]}, [algorithm]) == {}
    assert ("leaked", algorithm) in read_keys({"keys": [public]}, [algorithm])


def test_key_without_an_algorithm_serves_all_of_its_kind() -> None:
    jwk = {key: value for key, value in Issuer().jwk("rsa").items() if key not in {"alg", "use"}}

    assert set(read_keys({"keys": [jwk]}, ["RS256", "PS512", "ES256"])) == {
        ("rsa", "RS256"),
        ("rsa", "PS512"),
        (None, "RS256"),
        (None, "PS512"),
    }


def test_curve_serves_its_own_algorithm_only() -> None:
    jwk = json.loads(ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP384R1()).public_key()))

    assert set(read_keys({"keys": [{**jwk, "kid": "a"}]}, ["ES256", "ES384", "ES512"])) == {
        ("a", "ES384"),
        (None, "ES384"),
    }


def test_document_without_keys_is_refused() -> None:
    with pytest.raises(FetchFailed):
        read_keys({"keys": {}}, ["RS256"])
