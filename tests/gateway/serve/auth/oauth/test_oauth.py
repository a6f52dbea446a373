"""Access tokens: which are good, whose they are, what they allow, and what the others are told over real HTTP."""

import base64
import hashlib
import hmac
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from gateway.app.process import guard_endpoints
from gateway.config.access import OAuthConfig
from gateway.config.gateway_config import GatewayConfig, ServeConfig
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import Principal
from gateway.serve.auth.api_keys import digest_of
from gateway.serve.auth.bearer import BearerAuth, Credentials
from gateway.serve.auth.identity import CredentialRefused, MustWait
from gateway.serve.auth.oauth import FRESH, IssuerKeys, TokenVerifier, scopes_of
from gateway.serve.auth.rate_limiter import FAILURES_AT_ONCE, SIGNATURES_A_SECOND, SIGNATURES_AT_ONCE, SignatureChecks

from .issuer import RESOURCE, Issuer, Server

pytestmark = pytest.mark.anyio


def config_of(issuer: Issuer, **more: Any) -> OAuthConfig:
    basic = {"jwks_url": f"{issuer.url}/keys", "scopes": ("mcp:server:*",)}
    return OAuthConfig(issuer.url, RESOURCE, RESOURCE, **{**basic, **more})


def verifier_of(issuer: Issuer, **more: Any) -> TokenVerifier:
    config = config_of(issuer, **more)
    return TokenVerifier(config, IssuerKeys(config))


async def principal_of(issuer: Issuer, token: str, **more: Any) -> Principal:
    return (await verifier_of(issuer, **more).verify(token, digest_of(token))).principal


async def refusal_of(issuer: Issuer, token: str, **more: Any) -> str:
    with pytest.raises(CredentialRefused) as caught:
        await verifier_of(issuer, **more).verify(token, digest_of(token))
    return caught.value.kind


def encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize("kid", ["rsa", "ec", "ed"])
async def test_token_of_the_issuer_for_us_is_good(issuer: Issuer, kid: str) -> None:
    assert await principal_of(issuer, issuer.token(kid)) == Principal("oauth:ada")


async def test_audience_may_be_one_of_several(issuer: Issuer) -> None:
    assert await principal_of(issuer, issuer.token(aud=["https://other.example", RESOURCE]))


@pytest.mark.parametrize(
    ("claims", "kind"),
    [
        ({"aud": "https://other.example/mcp"}, "audience"),
        ({"aud": RESOURCE + "/"}, "audience"),
        ({"aud": []}, "claims"),
        ({"aud": None}, "claims"),
        ({"iss": "https://other.example"}, "issuer"),
        ({"iss": None}, "claims"),
        ({"exp": 1_700_000_000}, "expired"),
        ({"exp": None}, "claims"),
        ({"nbf": 4_000_000_000}, "expired"),
        ({"iat": 4_000_000_000}, "expired"),
        ({"sub": None}, "claims"),
        ({"sub": "a\nb"}, "claims"),
        ({"sub": "a" * 300}, "claims"),
        ({"scope": None}, "scope"),
        ({"scope": "mcp:tool:x openid"}, "scope"),
        ({"scope": "mcp:server:"}, "scope"),
        ({"scope": "MCP:server:x"}, "scope"),
    ],
)
async def test_token_with_wrong_claims_is_refused(issuer: Issuer, claims: dict[str, Any], kind: str) -> None:
    assert await refusal_of(issuer, issuer.token(**claims)) == kind


async def test_clocks_may_differ_by_the_leeway(issuer: Issuer) -> None:
    just_over = issuer.token(exp=issuer.claims()["exp"] - 610)

    assert await principal_of(issuer, just_over, leeway=30.0)
    assert await refusal_of(issuer, just_over, leeway=0.0) == "expired"


async def test_unsigned_token_is_refused(issuer: Issuer) -> None:
    unsigned = jwt.encode(issuer.claims(), "", "none")

    assert await refusal_of(issuer, unsigned) == "algorithm"
    for word in ("None", "NONE", "nOnE"):
        forged = f"{encoded({'alg': word, 'typ': 'JWT'})}.{encoded(issuer.claims())}."
        assert await refusal_of(issuer, forged) == "algorithm"
    assert issuer.fetches == 0


async def test_public_key_used_as_a_shared_secret_signs_nothing(issuer: Issuer) -> None:
    public = issuer.keys["rsa"].public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    # By hand: the library that signs here refuses to make such a token.
    signed = f"{encoded({'alg': 'HS256', 'kid': 'rsa'})}.{encoded(issuer.claims())}"
    mac = base64.urlsafe_b64encode(hmac.digest(pem, signed.encode(), hashlib.sha256)).rstrip(b"=").decode()

    assert await refusal_of(issuer, f"{signed}.{mac}") == "algorithm"
    assert issuer.fetches == 0


async def test_signature_of_another_key_is_refused(issuer: Issuer) -> None:
    stranger = Issuer("stranger")
    stranger.url = issuer.url

    assert await refusal_of(issuer, stranger.token()) == "signature"


async def test_token_that_was_altered_is_refused(issuer: Issuer) -> None:
    head, _, signature = issuer.token().split(".")

    assert await refusal_of(issuer, f"{head}.{encoded(issuer.claims(sub='eve'))}.{signature}") == "signature"


async def test_keys_that_a_token_brings_along_are_not_used(issuer: Issuer) -> None:
    stranger = Issuer("stranger")
    stranger.url = issuer.url
    header = {"kid": "new", "jwk": stranger.jwk("rsa"), "jku": "http://127.0.0.1:9/keys", "x5u": "http://127.0.0.1:9"}

    assert await refusal_of(issuer, stranger.token(header=header)) == "key"


async def test_critical_header_that_nobody_knows_is_refused(issuer: Issuer) -> None:
    assert await refusal_of(issuer, issuer.token(header={"kid": "rsa", "crit": ["x"], "x": 1})) == "malformed"


async def test_algorithm_that_the_operator_left_out_is_refused(issuer: Issuer) -> None:
    assert await refusal_of(issuer, issuer.token("ec"), algorithms=("RS256",)) == "algorithm"


@pytest.mark.parametrize("token", ["a.b.c", "..", "e30.e30.", f"{encoded([])}.e30.x", f"{encoded({'alg': 1})}.e30.x"])
async def test_what_is_no_token_is_refused(issuer: Issuer, token: str) -> None:
    assert await refusal_of(issuer, token) in {"malformed", "algorithm"}


@given(st.lists(st.one_of(st.text(), st.binary().map(lambda b: base64.urlsafe_b64encode(b).decode())), max_size=4))
async def test_garbage_is_refused_and_nothing_else_happens(parts: list[str]) -> None:
    config = OAuthConfig("http://127.0.0.1:9", RESOURCE, RESOURCE, "http://127.0.0.1:9/keys")

    with suppress(CredentialRefused):
        await TokenVerifier(config, IssuerKeys(config)).verify(".".join(parts), b"")


@given(
    st.dictionaries(
        st.sampled_from(["exp", "nbf", "iat", "aud", "sub", "scope", "scp", "jti", "client_id", "iss"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
            lambda inner: st.lists(inner, max_size=3),
            max_leaves=4,
        ),
    )
)
async def test_strange_claims_under_a_good_signature_are_refused_or_good(claims: dict[str, Any]) -> None:
    issuer = _OFFLINE
    token = jwt.api_jws.encode(
        json.dumps({**issuer.claims(), **claims}).encode(), issuer.keys["ed"], "EdDSA", {"kid": "ed"}
    )
    config = OAuthConfig("issuer", RESOURCE, RESOURCE)
    verifier = TokenVerifier(config, _OfflineKeys(config))

    with suppress(CredentialRefused):
        await verifier.verify(token, b"digest")
        verifier.remembered(b"digest")


_OFFLINE = Issuer()
_OFFLINE.url = "issuer"


class _OfflineKeys(IssuerKeys):
    async def key(self, kid: str | None, algorithm: str) -> jwt.PyJWK:
        return jwt.PyJWK(_OFFLINE.jwk("ed"), "EdDSA")


@pytest.mark.parametrize(
    ("scope", "principal"),
    [
        ("mcp:server:a mcp:server:b", Principal("oauth:ada", frozenset({"a", "b"}))),
        ("mcp:server:* mcp:server:b", Principal("oauth:ada")),
        ("mcp:server:a mcp:tool:a__x mcp:tool:a__y", Principal("oauth:ada", frozenset({"a"}), ("a__x", "a__y"))),
        (["mcp:server:a", 7, "other"], Principal("oauth:ada", frozenset({"a"}))),
    ],
)
async def test_scopes_say_what_its_holder_sees(issuer: Issuer, scope: Any, principal: Principal) -> None:
    assert await principal_of(issuer, issuer.token(scope=scope)) == principal
    assert await principal_of(issuer, issuer.token(scope=None, scp=scope)) == principal


async def test_prefix_of_the_scopes_is_the_operator_s(issuer: Issuer) -> None:
    token = issuer.token(scope="api/mcp:server:a")

    assert (await principal_of(issuer, token, scope_prefix="api/mcp")).servers == {"a"}
    assert await refusal_of(issuer, token) == "scope"


def test_scopes_are_texts_however_they_are_sent() -> None:
    assert scopes_of({"scope": " a  b ", "scp": ["c", None, {}]}) == ("a", "b", "c")
    assert scopes_of({"scope": 5, "scp": {"d": 1}}) == ()


async def test_token_that_was_checked_is_known_again_without_a_second_check(issuer: Issuer) -> None:
    verifier, token = verifier_of(issuer, rate=5), issuer.token()
    assert verifier.remembered(digest_of(token)) is None

    identity = await verifier.verify(token, digest_of(token))

    assert verifier.remembered(digest_of(token)) is identity
    assert identity.allowance.rate == 5


async def test_token_is_not_remembered_beyond_its_end(issuer: Issuer) -> None:
    verifier, token = verifier_of(issuer), issuer.token(exp=issuer.claims()["exp"] - 610)

    await verifier.verify(token, digest_of(token))

    assert verifier.remembered(digest_of(token)) is None


class Gateway:
    """The guards of a gateway before an endpoint that says who came, behind a real port."""

    def __init__(self, issuer: Issuer, serve: ServeConfig) -> None:
        self.metrics = Metrics()
        app = Starlette(routes=[Route("/mcp", _say_who, methods=["GET", "POST"])])
        self.app = guard_endpoints(app, GatewayConfig(serve=serve), self.metrics.access)
        self.url = ""

    async def post(self, token: str | None) -> httpx2.Response:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(verify=False) as client:
            return await client.post(f"{self.url}/mcp", headers=headers)


async def _say_who(request: Request) -> JSONResponse:
    return JSONResponse(request.state.principal.name)


@pytest.fixture
async def gateway(issuer: Issuer) -> AsyncGenerator[Gateway]:
    gateway = Gateway(issuer, ServeConfig(oauth=config_of(issuer)))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with Server(gateway.app, listener).running() as url:
            gateway.url = url
            yield gateway


async def test_request_with_a_token_passes_over_real_http(gateway: Gateway, issuer: Issuer) -> None:
    assert (await gateway.post(issuer.token())).json() == "oauth:ada"


async def test_request_without_a_token_is_told_where_to_get_one(gateway: Gateway, issuer: Issuer) -> None:
    response = await gateway.post(None)

    assert response.status_code == 401
    assert response.headers["www-authenticate"] == (
        'Bearer realm="codec-gateway", '
        'resource_metadata="https://gateway.example/.well-known/oauth-protected-resource/mcp", '
        'scope="mcp:server:*"'
    )


async def test_metadata_names_the_issuer_and_asks_no_token(gateway: Gateway, issuer: Issuer) -> None:
    async with httpx2.AsyncClient(base_url=gateway.url) as client:
        # The last one is where a client of `/mcp/NAME` looks, whether or not there is such a view.
        for path in ("", "/mcp", "/mcp/notes"):
            response = await client.get(f"/.well-known/oauth-protected-resource{path}")
            assert response.status_code == 200
            assert response.json() == {
                "resource": RESOURCE,
                "authorization_servers": [issuer.url],
                "scopes_supported": ["mcp:server:*"],
                "bearer_methods_supported": ["header"],
                "resource_name": "codec-gateway",
            }
        for path in ("/other", "/mcp/notes/more", "/mcpnotes"):
            assert (await client.get(f"/.well-known/oauth-protected-resource{path}")).status_code == 401
        assert (await client.post("/.well-known/oauth-protected-resource")).status_code == 401


async def test_bad_token_is_401_and_says_why_in_words_of_ours(gateway: Gateway, issuer: Issuer) -> None:
    response = await gateway.post(issuer.token(aud="https://other.example"))

    assert response.status_code == 401
    assert 'error="invalid_token"' in response.headers["www-authenticate"]
    assert "not for this gateway" in response.headers["www-authenticate"]


async def test_token_without_our_scopes_is_403_and_is_told_which(gateway: Gateway, issuer: Issuer) -> None:
    response = await gateway.post(issuer.token(scope="openid"))

    assert response.status_code == 403
    assert 'error="insufficient_scope"' in response.headers["www-authenticate"]
    assert 'scope="mcp:server:*"' in response.headers["www-authenticate"]
    assert response.json()["error"]["code"] == "insufficient_scope"


async def test_issuer_that_is_away_is_503(gateway: Gateway, issuer: Issuer) -> None:
    issuer.status = 500

    response = await gateway.post(issuer.token())

    assert response.status_code == 503
    assert "retry-after" in response.headers


async def test_token_whose_header_is_nested_deep_is_refused_as_any_other(gateway: Gateway) -> None:
    for deep in ("[" * 9000, '{"alg":' * 1500, '{"alg":"RS256","kid":' + "[" * 9000, '{"alg":' + "9" * 9000 + "}"):
        header = base64.urlsafe_b64encode(deep.encode()).rstrip(b"=").decode()
        assert (await gateway.post(f"{header}.e30.AAAA")).status_code == 401


def test_only_what_begins_as_a_signed_token_is_no_guess(issuer: Issuer) -> None:
    verifier = verifier_of(issuer)

    assert verifier.reads(issuer.token())
    for guess in (
        "guess",
        "a.b.c",
        f"{encoded({'typ': 'JWT'})}.b.c",
        f"{issuer.token()}.d",
        issuer.token() + "x" * 2**14,
    ):
        assert not verifier.reads(guess)


async def test_bad_tokens_lock_out_nobody_who_shares_their_address(gateway: Gateway, issuer: Issuer) -> None:
    stranger = Issuer("stranger")
    stranger.url = issuer.url
    bad = [stranger.token(), issuer.token(exp=1_700_000_000), "eyJhbGciOiJSUzI1NiJ9.e30.AAAA", "a.b.c", "guess"]
    for token in bad:
        assert {(await gateway.post(token)).status_code for _ in range(FAILURES_AT_ONCE + 5)} <= {401, 429}

    assert (await gateway.post(issuer.token())).status_code == 200
    # Nobody finds a signature by trying: it is looked at each time. A guess is not.
    assert (await gateway.post(bad[0])).status_code == 401
    # On a slow machine a few more are looked at: never all of so many.
    assert 429 in {(await gateway.post("guess")).status_code for _ in range(FAILURES_AT_ONCE + 5)}


async def test_signatures_are_checked_so_often_a_second_and_known_tokens_pass_all_the_same(issuer: Issuer) -> None:
    now = 1000.0
    config = config_of(issuer)
    verifier = TokenVerifier(config, IssuerKeys(config), SignatureChecks(lambda: now))
    good = issuer.token("rsa")
    identity = await verifier.verify(good, digest_of(good))
    stranger = Issuer("stranger")
    stranger.url = issuer.url
    bad = stranger.token("rsa")
    for _ in range(SIGNATURES_AT_ONCE - 1):
        with pytest.raises(CredentialRefused, match="signature is wrong"):
            await verifier.verify(bad, digest_of(bad))

    with pytest.raises(MustWait) as waiting:
        await verifier.verify(bad, digest_of(bad))

    assert waiting.value.wait == pytest.approx(1 / SIGNATURES_A_SECOND)
    assert verifier.remembered(digest_of(good)) is identity
    now += waiting.value.wait
    other = issuer.token("ec")
    assert await verifier.verify(other, digest_of(other))


async def test_what_costs_no_check_of_a_signature_takes_none_of_their_share(issuer: Issuer) -> None:
    config = config_of(issuer)
    verifier = TokenVerifier(config, IssuerKeys(config), SignatureChecks(lambda: 1000.0))
    cheap = [issuer.token(header={"kid": "made up"}), jwt.encode(issuer.claims(), "", "none")]
    for _ in range(SIGNATURES_AT_ONCE):
        for token in cheap:
            with pytest.raises(CredentialRefused):
                await verifier.verify(token, digest_of(token))

    assert await verifier.verify(issuer.token(), b"")


async def test_gateway_that_checks_too_many_signatures_says_when_to_come_again(issuer: Issuer) -> None:
    config = config_of(issuer)
    verifier = TokenVerifier(config, IssuerKeys(config), SignatureChecks(lambda: 1000.0))
    app = BearerAuth(Starlette(), Credentials(oauth=verifier), Metrics().access)
    bad = issuer.token(aud="https://other.example")
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://localhost") as client:
        headers = {"Authorization": f"Bearer {bad}"}
        codes = [(await client.post("/mcp", headers=headers)).status_code for _ in range(SIGNATURES_AT_ONCE)]
        last = await client.post("/mcp", headers=headers)

    assert set(codes) == {401}
    assert (last.status_code, last.headers["retry-after"]) == (429, "1")
    assert "access tokens" in last.json()["error"]["message"]


async def test_token_whose_key_is_withdrawn_is_forgotten_when_the_keys_are_asked_for_anew(issuer: Issuer) -> None:
    now = 5000.0
    config = config_of(issuer)
    keys = IssuerKeys(config, lambda: now)
    verifier = TokenVerifier(config, keys)
    tokens = {kid: issuer.token(kid) for kid in ("rsa", "ec")}
    for token in tokens.values():
        await verifier.verify(token, digest_of(token))
    issuer.published = ["ec", "ed"]

    now += FRESH - 1
    assert verifier.remembered(digest_of(tokens["rsa"])) is not None
    now += 2
    # It is time to ask anew: one request does, and both tokens are judged by what it brings.
    assert verifier.remembered(digest_of(tokens["ec"])) is None
    await verifier.verify(tokens["ec"], digest_of(tokens["ec"]))
    assert verifier.remembered(digest_of(tokens["ec"])) is not None
    assert verifier.remembered(digest_of(tokens["rsa"])) is None
    assert issuer.fetches == 2


async def test_issuer_that_is_away_costs_known_tokens_no_check(issuer: Issuer) -> None:
    now = 5000.0
    config = config_of(issuer)
    verifier = TokenVerifier(config, IssuerKeys(config, lambda: now))
    token = issuer.token()
    await verifier.verify(token, digest_of(token))
    issuer.status = 500
    now += FRESH + 1

    assert verifier.remembered(digest_of(token)) is None
    await verifier.verify(token, digest_of(token))
    assert verifier.remembered(digest_of(token)) is not None
