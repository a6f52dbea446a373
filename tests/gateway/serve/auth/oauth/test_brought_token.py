"""A caller's access token reaches the proxy where a server gets tokens in exchange for it, and else does not."""

import json
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from gateway.app.process import guard_endpoints
from gateway.config.gateway_config import GatewayConfig, ServeConfig
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import CallerToken, Principal
from gateway.serve.auth import oauth
from gateway.serve.auth.bearer import ClientHeaders
from gateway.serve.auth.oauth import rights_of
from gateway.serve.http.request_parts import principal_of

from .issuer import RESOURCE, Issuer
from .test_oauth import config_of, refusal_of

pytestmark = pytest.mark.anyio
OWN = "g" * 43


class Gateway:
    """The guards of a gateway, and who came through them."""

    def __init__(self, issuer: Issuer, *, exchanges: bool = True) -> None:
        self.seen: list[Principal] = []
        proxy: Any = SimpleNamespace(client_headers=frozenset({"x-api-key"}), exchanges_tokens=exchanges)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            self.seen.append(principal_of(scope))
            await JSONResponse({})(scope, receive, send)

        config = GatewayConfig(serve=ServeConfig(token=OWN, oauth=config_of(issuer)))
        self._app = guard_endpoints(ClientHeaders(app, proxy), config, Metrics().access)

    async def token(self, headers: dict[str, str], path: str = "/mcp") -> CallerToken | None:
        transport = httpx2.ASGITransport(self._app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            assert (await http.post(path, headers=headers)).status_code == 200
        return self.seen[-1].token


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def test_access_token_comes_along_where_it_is_exchanged(issuer: Issuer) -> None:
    gateway, claims = Gateway(issuer), issuer.claims()
    sent = issuer.token(exp=claims["exp"])
    brought = await gateway.token(bearer(sent))
    assert brought == CallerToken(rights_of(claims), claims["exp"] + 30.0, (issuer.url, RESOURCE), sent)
    assert sent not in repr(gateway.seen)


async def test_each_request_brings_its_own(issuer: Issuer) -> None:
    gateway = Gateway(issuer)
    sent = [issuer.token(sub=name) for name in ("ann", "bob", "ann")]
    brought = [await gateway.token(bearer(each)) for each in sent]
    assert [each.text for each in brought if each is not None] == sent


async def test_it_comes_along_as_the_key_of_anthropic_s_api_too(issuer: Issuer) -> None:
    gateway, sent = Gateway(issuer), issuer.token()
    brought = await gateway.token({"x-api-key": sent}, "/v1/messages")
    assert brought is not None
    assert brought.text == sent
    assert gateway.seen[-1].headers == {}


async def test_it_stays_outside_where_no_server_needs_it(issuer: Issuer) -> None:
    brought = await Gateway(issuer, exchanges=False).token(bearer(issuer.token()))
    assert brought is not None
    assert brought.text == ""


async def test_gateway_s_own_token_is_nobody_s_access_token(issuer: Issuer) -> None:
    assert await Gateway(issuer).token(bearer(OWN)) is None


@pytest.mark.parametrize("claim", ["exp", "iat", "nbf", "jti"])
def test_tokens_that_renew_each_other_have_the_same_rights(issuer: Issuer, claim: str) -> None:
    assert rights_of(issuer.claims(**{claim: 5})) == rights_of(issuer.claims(**{claim: 7}))


@pytest.mark.parametrize(
    "claims", [{"scope": "mcp:server:x"}, {"azp": "other"}, {"sub": "bob"}, {"act": {"sub": "bot"}}, {"roles": ["a"]}]
)
def test_tokens_that_say_anything_else_have_others(issuer: Issuer, claims: dict[str, Any]) -> None:
    assert rights_of(issuer.claims(**claims)) != rights_of(issuer.claims())


def test_rights_do_not_depend_on_the_order_in_which_a_token_says_them(issuer: Issuer) -> None:
    claims = issuer.claims(roles={"a": 1, "b": 2})
    turned = json.loads(json.dumps(dict(reversed(claims.items())))) | {"roles": {"b": 2, "a": 1}}
    assert rights_of(turned) == rights_of(claims)


async def test_claims_too_deep_to_read_again_are_refused(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(claims: object) -> str:
        raise RecursionError

    monkeypatch.setattr(oauth, "rights_of", too_deep)
    assert await refusal_of(issuer, issuer.token()) == "claims"
