"""What a sign-in decides: which client it uses, where it sends the person, and which code it takes."""

from base64 import b64decode
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from gateway.config.gateway_config import SignInConfig
from gateway.proxy.transport.oauth.code_flow import (
    Client,
    CodeFlow,
    NotOurs,
    Registration,
    choose_client,
    joined_scope,
    read_registration,
    readable_scope,
    refresh_form,
    registration_document,
    wanted_scope,
)
from gateway.proxy.transport.oauth.discovery import AuthorizationServer
from gateway.proxy.transport.transport_interface import NoAnswer

BACK = "http://127.0.0.1:7777/callback"
SERVER = AuthorizationServer(
    "https://as.example",
    "https://as.example/token",
    authorization_endpoint="https://as.example/authorize?tenant=1",
    registration_endpoint="https://as.example/register",
    has_s256=True,
)


def flow(server: AuthorizationServer = SERVER, **fields: Any) -> CodeFlow:
    made = {"client": Client("me"), "redirect_uri": BACK, "resource": "https://tools.example/mcp", "scope": "a b"}
    return CodeFlow(server, **{**made, **fields})


class TestClient:
    @pytest.mark.parametrize(
        ("secret", "method", "fields"),
        [
            (None, "none", {"client_id": "me"}),
            (None, "client_secret_basic", {"client_id": "me"}),
            ("s", "none", {"client_id": "me"}),
            ("s", "client_secret_post", {"client_id": "me", "client_secret": "s"}),
        ],
    )
    def test_client_says_who_it_is_in_the_form_if_it_has_no_secret_or_sends_it_there(self, secret, method, fields):
        assert Client("me", secret, method).authentication() == ({}, fields)

    def test_id_and_secret_are_escaped_in_a_header(self):
        headers, fields = Client("m:e", "s t", "client_secret_basic").authentication()

        assert fields == {}
        assert b64decode(headers["authorization"].removeprefix("Basic ")) == b"m%3Ae:s+t"

    def test_secret_is_not_shown(self):
        assert "hidden" not in repr(Client("me", "hidden"))

    def test_configured_client_comes_before_its_document_and_that_before_a_registered_one(self):
        reads = replace(SERVER, reads_documents=True, method="client_secret_post")
        known = Client("known", redirect_uri=BACK)
        document = SignInConfig(client_metadata_url="https://me.example/client")

        assert choose_client(SignInConfig(client_id="me"), reads, BACK, known) == Client("me")
        assert choose_client(SignInConfig(client_id="me", client_secret="s"), reads, BACK, known) == Client(
            "me", "s", "client_secret_post"
        )
        assert choose_client(document, reads, BACK, known) == Client("https://me.example/client")
        assert choose_client(document, SERVER, BACK, known) is known
        assert choose_client(SignInConfig(), SERVER, BACK, known) is known

    @pytest.mark.parametrize("known", [None, Client("known", redirect_uri="http://127.0.0.1:1/callback")])
    def test_gateway_registers_where_its_client_is_of_another_address(self, known):
        chosen = choose_client(SignInConfig(), SERVER, BACK, known)

        assert chosen == Registration("https://as.example/register", BACK, registration_document(BACK))

    def test_server_that_registers_nobody_says_what_to_set(self):
        with pytest.raises(NoAnswer, match=r"registers no clients: register one there .*7777.* and set `auth\.issuer`"):
            choose_client(SignInConfig(), replace(SERVER, registration_endpoint=None), BACK, None)

    @pytest.mark.parametrize(("address", "kind"), [(BACK, "native"), ("https://gateway.example/back", "web")])
    def test_registration_asks_for_a_public_client_that_may_renew_its_tokens(self, address, kind):
        document = registration_document(address)

        assert document["redirect_uris"] == [address]
        assert document["grant_types"] == ["authorization_code", "refresh_token"]
        assert document["token_endpoint_auth_method"] == "none"
        assert document["application_type"] == kind


class TestRegistration:
    @pytest.mark.parametrize(
        ("document", "client"),
        [
            ({}, Client("me", None, "none", BACK)),
            ({"redirect_uris": ["x", BACK]}, Client("me", None, "none", BACK)),
            ({"client_secret": "s"}, Client("me", "s", "client_secret_basic", BACK)),
            ({"client_secret": ""}, Client("me", None, "none", BACK)),
            ({"client_secret": "s" * 4097}, Client("me", None, "none", BACK)),
            (
                {"client_secret": "s", "token_endpoint_auth_method": "client_secret_post"},
                Client("me", "s", "client_secret_post", BACK),
            ),
        ],
    )
    @pytest.mark.parametrize("status", [200, 201])
    def test_registered_client_authenticates_as_the_server_says(self, status, document, client):
        assert read_registration(status, {"client_id": "me", **document}, BACK) == client

    @pytest.mark.parametrize(
        ("document", "words"),
        [
            ({"redirect_uris": ["http://other.example"]}, "with another redirect address"),
            ({"token_endpoint_auth_method": "private_key_jwt"}, "authenticate by 'private_key_jwt', which it can't"),
            ({"token_endpoint_auth_method": 7}, "authenticate by 7, which it can't"),
            ({"token_endpoint_auth_method": "client_secret_post"}, "by 'client_secret_post', which it can't"),
        ],
    )
    def test_client_that_can_not_be_used_is_refused(self, document, words):
        with pytest.raises(NoAnswer, match=words):
            read_registration(201, {"client_id": "me", **document}, BACK)

    @pytest.mark.parametrize(
        ("status", "document", "words"),
        [
            (202, {"client_id": "me"}, "HTTP 202 Accepted; register a client"),
            (201, {"client_id": ""}, "HTTP 201 Created; "),
            (201, {"client_id": 7}, "HTTP 201 Created; "),
            (201, {"client_id": "m" * 4097}, "HTTP 201 Created; "),
            (400, {"error": "no", "error_description": "such"}, r"HTTP 400 Bad Request \(no such\); "),
            (400, {"error": 7, "error_description": "such"}, r"HTTP 400 Bad Request \(such\); "),
        ],
    )
    def test_refusal_says_what_came_and_what_to_do(self, status, document, words):
        with pytest.raises(NoAnswer, match=f"refused to register the gateway: {words}"):
            read_registration(status, document, BACK)

    def test_id_may_be_as_long_as_the_bound(self):
        assert read_registration(201, {"client_id": "m" * 4096}, BACK).id == "m" * 4096


class TestFlow:
    def test_person_is_sent_to_the_endpoint_with_a_challenge_and_everything_that_is_asked_for(self):
        made = flow()
        where = urlsplit(made.address())
        asked = {name: values[0] for name, values in parse_qs(where.query).items()}

        assert (where.scheme, where.netloc, where.path) == ("https", "as.example", "/authorize")
        assert asked.pop("code_challenge") not in ("", made.verifier)
        assert asked == {
            "tenant": "1",
            "response_type": "code",
            "client_id": "me",
            "redirect_uri": BACK,
            "scope": "a b",
            "state": made.state,
            "code_challenge_method": "S256",
            "resource": "https://tools.example/mcp",
        }

    def test_endpoint_on_this_machine_may_be_plain_and_consent_is_asked_for_where_it_must_be_given(self):
        local = replace(SERVER, authorization_endpoint="http://127.0.0.1:9/authorize")
        address = flow(local, scope="a offline_access", resource="").address()

        assert address.startswith("http://127.0.0.1:9/authorize?")
        assert parse_qs(urlsplit(address).query)["prompt"] == ["consent"]
        assert "resource=" not in address

    @pytest.mark.parametrize(
        ("lacks", "words"),
        [
            ({"authorization_endpoint": None}, "names no authorization endpoint"),
            ({"has_s256": False}, "PKCE with S256"),
        ],
    )
    def test_server_without_a_sign_in_or_without_challenges_is_not_used(self, lacks, words):
        with pytest.raises(NoAnswer, match=words):
            flow(replace(SERVER, **lacks)).address()

    @pytest.mark.parametrize("whole", [True, False])
    def test_code_is_read_from_the_address_or_its_query(self, whole):
        made = flow()
        query = urlencode({"state": made.state, "code": "c 1"})

        assert made.read_redirect(f"{BACK}?{query}" if whole else query) == "c 1"
        assert made.read_redirect(f"state={made.state}&code={'c' * 4096}") == "c" * 4096

    @pytest.mark.parametrize("given", ["", "state=other&code=c", "code=c", "a=1&" * 65, "http://["])
    def test_address_with_another_state_or_none_belongs_to_no_sign_in(self, given):
        with pytest.raises(NotOurs):
            flow().read_redirect(given)

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"code": "c" * 4097}, "no code that could be used"),
            ({"code": ""}, "refused the sign-in"),
            ({}, "refused the sign-in"),
            (
                {"error": "access_denied", "error_description": "no\nway"},
                r"refused the sign-in: access_denied no\\nway",
            ),
            ({"code": "c", "iss": "https://other.example"}, "from another authorization server"),
            ({"error": "access_denied", "iss": "https://other.example"}, "from another authorization server"),
        ],
    )
    def test_redirect_that_gives_no_usable_code_says_why(self, fields, words):
        made = flow()
        with pytest.raises(NoAnswer, match=words) as refused:
            made.read_redirect(urlencode({"state": made.state, **fields}))

        assert not isinstance(refused.value, NotOurs)

    @pytest.mark.parametrize("second", ["b", ""])
    def test_field_that_is_repeated_is_refused(self, second):
        made = flow()
        with pytest.raises(NoAnswer, match="repeats a field"):
            made.read_redirect(f"state={made.state}&code=a&code={second}")

    def test_server_that_names_itself_must_do_so_in_the_redirect(self):
        made = flow(replace(SERVER, names_itself=True))
        query = urlencode({"state": made.state, "code": "c"})
        with pytest.raises(NoAnswer, match="does not say which authorization server it comes from"):
            made.read_redirect(query)

        assert made.read_redirect(f"{query}&iss=https://as.example") == "c"

    def test_forms_for_tokens_name_the_resource_if_there_is_one(self):
        made = flow()

        assert made.code_form("c") == {
            "grant_type": "authorization_code",
            "code": "c",
            "redirect_uri": BACK,
            "code_verifier": made.verifier,
            "resource": "https://tools.example/mcp",
        }
        assert refresh_form("r", "", "a") == {"grant_type": "refresh_token", "refresh_token": "r", "scope": "a"}
        assert refresh_form("r", "x") == {"grant_type": "refresh_token", "refresh_token": "r", "resource": "x"}


class TestScope:
    @pytest.mark.parametrize(
        ("configured", "challenged", "supported", "scope"),
        [
            ("mine", "its", "all", "mine"),
            (None, "its", "all", "its offline_access"),
            (None, "it\\s", "all", "all offline_access"),
            (None, "its offline_access", "all", "its offline_access"),
            (None, "", "all", "all offline_access"),
            (None, "", None, None),
        ],
    )
    def test_configured_scope_comes_before_the_challenged_one_and_that_before_all(
        self, configured, challenged, supported, scope
    ):
        server = replace(SERVER, scopes=("offline_access",))

        assert wanted_scope(configured, {"scope": challenged}, supported, server) == scope
        assert wanted_scope(None, {"scope": "its"}, None, SERVER) == "its"

    @pytest.mark.parametrize(
        ("said", "read"),
        [(" a  b ", "a b"), ("", None), ('a"', None), ("a\\", None), ("ü", None), ("a\x01", None)],
    )
    def test_scope_that_is_none_is_not_repeated(self, said, read):
        assert readable_scope(said) == read

    def test_scope_has_a_bound(self):
        assert readable_scope("a" * 4096) == "a" * 4096
        assert readable_scope("a" * 4097) is None

    def test_scopes_are_joined_each_once(self):
        assert joined_scope("a b", None, "b c", "") == "a b c"
        assert joined_scope(None, "") is None
