"""Authorization servers as public reports of 2026 describe them: a sign-in works with each, or says what to do.

The reports: forcedotcom/mcp-hosted 24, punkpeye/mcp-remote 214, metatool-ai/metamcp 122, wso2/api-platform 2869,
punkpeye/fastmcp 237, danny-avila/LibreChat 13248, jitsucom/jitsu 1430, FlowFuse/flowfuse 8273, czlonkowski/n8n-mcp 604,
QwenLM/qwen-code 5355, GitHub's own way to refuse a refresh token, and those that the tests name.
"""

from dataclasses import replace

import pytest

from gateway.proxy.transport.oauth.code_flow import read_registration
from gateway.proxy.transport.oauth.token_endpoint import Refused, read_tokens
from gateway.proxy.transport.transport_interface import NoAnswer
from tests.cases import each_of

from .standin_authorization import METADATA, PROTECTED
from .test_sign_in import REDIRECT, ask, client, key_of, sign_in, signed_in_to, standin, store, upstream

__all__ = ["client", "standin", "store"]
pytestmark = pytest.mark.anyio


def saying(standin, target, change):
    """Have one document differ; `change` turns what is said into what is said instead, None: 404."""

    async def answer(asked, reply):
        if asked.target != target:
            return False
        said = change(standin)
        await (reply.whole(404) if said is None else reply.message(said))
        return True

    standin.before = answer


async def test_server_without_metadata_has_its_authorization_server_at_its_own_path(standin, client, store):
    """mcp-hosted 24: Salesforce publishes nothing at the root, and one authorization server for each MCP server."""
    standin.protected = None

    async def answer(asked, reply):
        if asked.target == METADATA:
            await reply.whole(404)
        elif asked.target == f"{METADATA}/mcp":
            await reply.message({**standin._says(), "issuer": standin.url})
        else:
            return False
        return True

    standin.before = answer
    grant = await sign_in(standin, upstream(standin.url), client, store, iss=standin.url)

    assert grant.issuer == standin.url


async def test_metadata_that_only_the_challenge_names_is_found(standin, client, store):
    """mcp-remote 214: nothing at the well-known addresses."""

    async def answer(asked, reply):
        if asked.target == PROTECTED:
            await reply.whole(404)
        elif asked.target == "/elsewhere":
            await reply.message({"resource": standin.url, "authorization_servers": [standin.origin]})
        elif asked.target == "/mcp":
            await reply.whole(401, www_authenticate=f'Bearer resource_metadata="{standin.origin}/elsewhere"')
        else:
            return False
        return True

    standin.before = answer
    assert (await sign_in(standin, upstream(standin.url), client, store)).issuer == standin.origin


@pytest.mark.parametrize("resource", ["{}", "{}/", "{}/mcp/"])
async def test_resource_may_differ_by_a_slash_or_be_above_the_url(standin, client, store, resource):
    """metamcp 122."""
    standin.protected = {"resource": resource.format(standin.origin)}
    assert (await sign_in(standin, upstream(standin.url), client, store)).access


async def test_empty_scopes_are_no_scopes(standin, client, store):
    """api-platform 2869: `scopes_supported: []`."""
    standin.protected, standin.metadata = {"scopes_supported": []}, {"scopes_supported": []}
    await sign_in(standin, upstream(standin.url), client, store)
    assert "scope" not in standin.forms[0]


@each_of("life", ["3600", 3600, "3600.0", "soon", None, 0, -1, True])
def test_lifetime_that_is_written_as_text_counts(life):
    """fastmcp 237 (SAP, Entra) and qwen-code 5355: what makes no sense is not known."""
    tokens = read_tokens(200, {"access_token": "a", "expires_in": life})
    assert tokens.life == (3600 if str(life) == "3600" else 1 if life is True else None)


async def test_token_whose_end_is_not_told_is_renewed_when_it_is_refused(standin, client, store):
    """LibreChat 13248: Salesforce leaves out `expires_in`."""
    standin.life = None
    config = upstream(standin.url)
    grant = await sign_in(standin, config, client, store)
    standin.expire()

    assert grant.expires is None
    assert await ask(standin, client, signed_in_to(config, client, store)) == 200


@pytest.mark.parametrize(
    ("more", "method"),
    [
        ({"client_secret": "s"}, "client_secret_basic"),
        (
            {"client_secret": None, "token_endpoint_auth_method": None, "redirect_uris": None, "client_uri": None},
            "none",
        ),
        ({"client_secret": "s", "token_endpoint_auth_method": None}, "client_secret_basic"),
        ({"client_secret": "", "client_secret_expires_at": 0}, "none"),
    ],
)
def test_registration_may_lack_fields_or_hold_nulls(more, method):
    """jitsu 1430, and serializers that write null for what is not there."""
    made = read_registration(201, {"client_id": "one", **more}, REDIRECT)
    assert (made.secret, made.method) == (more["client_secret"] or None, method)


async def test_refresh_that_brings_no_refresh_token_keeps_the_one_there_is(standin, client, store):
    """flowfuse 8273: within its grace period it issues only an access token."""
    config = upstream(standin.url)
    grant = await sign_in(standin, config, client, store)
    store.write(key_of(config), replace(grant, expires=0.0))
    saying(standin, "/token", lambda _: {"access_token": "fresh", "token_type": "bearer", "expires_in": 60})

    assert (await signed_in_to(config, client, store).headers()) == {"authorization": "Bearer fresh"}
    assert store.read(key_of(config)).refresh == grant.refresh


async def test_server_that_says_nothing_about_signing_in_is_an_error_with_a_way_out(standin, client, store):
    """n8n-mcp 604: 401 without a challenge, and no metadata anywhere."""
    standin.protected = standin.metadata = None

    async def answer(asked, reply):
        if asked.target == "/mcp":
            await reply.whole(401)
        return asked.target == "/mcp"

    standin.before = answer
    with pytest.raises(NoAnswer, match=r"publishes no metadata.*set `auth.issuer`"):
        await sign_in(standin, upstream(standin.url), client, store)


def test_refresh_token_that_is_refused_with_status_200_ends_the_sign_in():
    with pytest.raises(Refused, match="bad_refresh_token"):
        read_tokens(200, {"error": "bad_refresh_token", "error_description": "it is incorrect or expired"})
    with pytest.raises(NoAnswer) as passing:
        read_tokens(503, {"error": "invalid_grant"})
    assert not isinstance(passing.value, Refused)


@pytest.mark.parametrize("named", ["/elsewhere", "elsewhere", "//127.0.0.1:{port}/elsewhere"])
async def test_metadata_whose_address_is_relative_is_found(standin, client, store, named):
    """anthropics/claude-ai-mcp 136: `resource_metadata="/.well-known/..."`."""

    async def answer(asked, reply):
        if asked.target == PROTECTED:
            await reply.whole(404)
        elif asked.target == "/elsewhere":
            await reply.message({"resource": standin.url, "authorization_servers": [standin.origin]})
        elif asked.target == "/mcp":
            address = named.format(port=standin.server.port)
            await reply.whole(401, www_authenticate=f'Bearer resource_metadata="{address}"')
        else:
            return False
        return True

    standin.before = answer
    assert (await sign_in(standin, upstream(standin.url), client, store)).issuer == standin.origin


async def test_metadata_that_is_not_where_the_challenge_says_is_looked_for_at_its_usual_place(standin, client, store):
    """anthropics/claude-code 80731 and others: what names the address is a gateway in front of the server."""
    standin.protected = {"scopes_supported": ["of-the-server"]}

    async def answer(asked, reply):
        if asked.target == "/mcp":
            await reply.whole(401, www_authenticate=f'Bearer resource_metadata="{standin.origin}/gone"')
        return asked.target == "/mcp"

    standin.before = answer
    grant = await sign_in(standin, upstream(standin.url), client, store)
    assert "of-the-server" in grant.scope


async def test_registration_that_is_refused_without_scopes_names_them(standin, client, store):
    """openai/codex 20503: Fastmail answers `invalid_request no scope`."""

    async def answer(asked, reply):
        is_refused = asked.target == "/register" and "scope" not in asked.message
        if is_refused:
            await reply.message({"error": "invalid_request", "error_description": "no scope"}, 400)
        return is_refused

    standin.before = answer
    assert (await sign_in(standin, upstream(standin.url), client, store)).access
    assert [each.message.get("scope") for each in standin.targets("/register")] == [None, "read offline_access"]


FORGOTTEN = {
    "supabase/mcp 355, anthropics/claude-code 84614": (422, ""),
    "punkpeye/mcp-remote 36": (400, ""),
    "nicobailon/pi-mcp-adapter 90": (401, ""),
    "anthropics/claude-code 4760": (404, ""),
    "llun/activities.next 1218": (302, "/error?error=invalid_client&error_description=client_id+is+required"),
}


@pytest.mark.parametrize("report", FORGOTTEN)
async def test_client_that_the_authorization_server_forgot_is_registered_anew(standin, client, store, report):
    """It says so to the person only, who would see the same page at each sign-in from then on."""
    config = upstream(standin.url)
    first = await sign_in(standin, config, client, store)
    status, location = FORGOTTEN[report]

    async def answer(asked, reply):
        is_unknown = f"client_id={first.client.id}&" in asked.target
        if is_unknown:
            await reply.whole(status, b"Unrecognized client_id", **({"location": location} if location else {}))
        return is_unknown

    standin.before = answer
    second, third = [await sign_in(standin, config, client, store) for _ in range(2)]

    assert second.client.id == third.client.id != first.client.id
    assert len(standin.registered) == 2


@pytest.mark.parametrize("status", [200, 302, 303, 403, 405, 429, 500, 503])
async def test_client_is_used_again_where_the_page_says_anything_else(standin, client, store, status):
    config = upstream(standin.url)
    first = await sign_in(standin, config, client, store)

    async def answer(asked, reply):
        is_page = asked.target.startswith("/authorize?")
        if is_page:
            await reply.whole(status, location="/login?error=&next=invalid_client")
        return is_page

    standin.before = answer
    assert (await sign_in(standin, config, client, store)).client.id == first.client.id


async def test_client_of_the_settings_is_never_registered_anew(standin, client, store):
    """different-ai/openwork 4670."""
    config = upstream(standin.url, client_id="mine", issuer=standin.origin)
    saying(standin, "/authorize", lambda _: None)

    for _ in range(2):
        assert (await sign_in(standin, config, client, store)).client.id == "mine"
    assert standin.registered == {}


@pytest.mark.parametrize("code", ["invalid_request", "invalid_token", "access_denied", "refresh_token is invalid"])
async def test_refresh_that_is_refused_in_other_words_says_what_to_do(standin, client, store, code):
    """obot-platform/obot 7501: `invalid_request`, each time, for a refresh token that was rotated."""
    config = upstream(standin.url)
    grant = await sign_in(standin, config, client, store)
    store.write(key_of(config), replace(grant, expires=0.0))

    async def answer(asked, reply):
        if asked.target == "/token":
            await reply.message({"error": code, "error_description": "refresh_token is invalid"}, 400)
        return asked.target == "/token"

    standin.before = answer
    with pytest.raises(NoAnswer, match=r"can't be renewed.*if that lasts, run `codec-gateway login web`"):
        await signed_in_to(config, client, store).headers()


@pytest.mark.parametrize(("listed", "issuer"), [("/app-id", ""), ("", "/backend/oauthproxy")])
async def test_metadata_of_the_configured_issuer_may_be_where_the_server_says(standin, client, store, listed, issuer):
    """atlassian/atlassian-mcp-server 205, SmartBear/smartbear-mcp 682: it names an issuer with, or without, a path."""
    standin.protected = {"authorization_servers": [f"{standin.origin}{listed}"]}
    named = f"{standin.origin}{issuer}"

    async def answer(asked, reply):
        is_metadata = asked.target.startswith(METADATA)
        if asked.target == f"{METADATA}{listed}":
            await reply.message({**standin._says(), "issuer": named})
        elif is_metadata:
            await reply.whole(404)
        return is_metadata

    standin.before = answer
    with pytest.raises(NoAnswer, match=r"names another issuer.*set `auth.issuer`"):
        await sign_in(standin, upstream(standin.url), client, store)
    assert (await sign_in(standin, upstream(standin.url, issuer=named), client, store, iss=named)).issuer == named


async def test_metadata_of_the_configured_issuer_is_not_taken_from_another_origin(standin, client, store):
    standin.protected = {"authorization_servers": ["https://evil.example", "no url"]}
    standin.metadata = None

    with pytest.raises(NoAnswer, match="publishes no metadata"):
        await sign_in(standin, upstream(standin.url, issuer=standin.origin), client, store)
