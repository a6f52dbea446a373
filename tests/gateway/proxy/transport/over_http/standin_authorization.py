"""A stand-in for an MCP server and its authorization server, as strict as OAuth 2.1 asks, or as false as a test wants.

It needs no download; `make oauth-check` does the same with real ones. Both servers are at one address, so that the
operator's `url` lists the authorization server too.
"""

import base64
import hashlib
import json
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from .raw_server import Asked, RawServer, Reply, raw_server

PROTECTED = "/.well-known/oauth-protected-resource/mcp"
METADATA = "/.well-known/oauth-authorization-server"


class StandInAuthorization:
    def __init__(self) -> None:
        self.server = RawServer()
        self.protected: dict[str, Any] | None = {}
        """Changes what the MCP server says about itself; None: it says nothing."""
        self.metadata: dict[str, Any] | None = {}
        self.registered: dict[str, list[str]] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self.refresh_tokens: dict[str, dict[str, str]] = {}
        self.spent: set[str] = set()
        self.valid: dict[str, str] = {}
        """Access tokens and their scopes."""
        self.person = ""
        """Who agrees from now on."""
        self.whose: dict[str, str] = {}
        """Access tokens and who agreed to them."""
        self.needed = ""
        """The scope that the MCP server wants."""
        self.life: float | None = 3600
        self.rotates = True
        """Whether each refresh token is good for one renewal."""
        self.token_status = 200
        self.issued = 200
        self.wants_scope = ""
        """The error for a refresh that names no scope; "": it need not."""
        self.before: Callable[[Asked, Reply], Any] | None = None
        """Answers a request instead if it returns something true."""

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    @property
    def forms(self) -> list[dict[str, str]]:
        return [dict(parse_qsl(each.body.decode())) for each in self.server.asked if each.target == "/token"]

    def targets(self, target: str) -> list[Asked]:
        return [each for each in self.server.asked if each.target == target]

    def approve(self, address: str, **changes: str | None) -> str:
        """The address at which the browser of somebody who agrees ends. `changes`: fields that are other than right."""
        assert address.startswith(f"{self.origin}/authorize?")
        asked = {key: values[0] for key, values in parse_qs(urlsplit(address).query).items()}
        code = secrets.token_urlsafe(8)
        self.codes[code] = {**asked, "person": self.person}
        fields = {"code": code, "state": asked["state"], "iss": self.origin} | changes
        given = {key: value for key, value in fields.items() if value is not None}
        return f"{asked['redirect_uri']}?{urlencode(given)}"

    def expire(self) -> None:
        """Forget every access token."""
        self.valid.clear()

    async def answer(self, asked: Asked, reply: Reply) -> None:
        if self.before is not None and await self.before(asked, reply):
            return
        if asked.target == PROTECTED and self.protected is not None:
            said = {"resource": self.url, "authorization_servers": [self.origin], "scopes_supported": ["read"]}
            await reply.message({**said, **self.protected})
        elif asked.target == METADATA and self.metadata is not None:
            await reply.message({**self._says(), **self.metadata})
        elif asked.target == "/register":
            client = f"client-{len(self.registered)}"
            self.registered[client] = asked.message["redirect_uris"]
            await reply.message({**asked.message, "client_id": client}, 201)
        elif asked.target == "/token":
            status, document = self._token(dict(parse_qsl(asked.body.decode())))
            await reply.message(document, status)
        elif asked.target == "/revoke":
            self.refresh_tokens.pop(dict(parse_qsl(asked.body.decode()))["token"], None)
            await reply.whole(200)
        elif asked.target == "/mcp":
            await self._serve(asked, reply)
        else:
            await reply.whole(200 if asked.target.startswith("/authorize?") else 404)

    def _says(self) -> dict[str, Any]:
        paths = {"authorization": "authorize", "token": "token", "registration": "register", "revocation": "revoke"}
        return {
            "issuer": self.origin,
            **{f"{name}_endpoint": f"{self.origin}/{path}" for name, path in paths.items()},
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            "scopes_supported": ["read", "offline_access"],
        }

    def _token(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if self.token_status != 200:
            return self.token_status, {}
        if form["grant_type"] == "refresh_token":
            return self._refresh(form)
        asked = self.codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if asked is None or any(form.get(key) != asked[key] for key in ("client_id", "redirect_uri")):
            return 400, {"error": "invalid_grant"}
        if (asked["code_challenge"], asked["code_challenge_method"]) != (challenge, "S256"):
            return 400, {"error": "invalid_grant"}
        return self._issue(asked)

    def _refresh(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if self.wants_scope and "scope" not in form:
            return 400, {"error": self.wants_scope}
        given = form["refresh_token"]
        if not self.rotates and given in self.refresh_tokens:
            status, document = self._issue(self.refresh_tokens[given])
            self.refresh_tokens.pop(document.pop("refresh_token"))
            return status, document
        asked = self.refresh_tokens.pop(given, None)
        if given in self.spent:
            # Reuse: as after a theft, the whole grant ends.
            self.refresh_tokens.clear()
        if asked is None or form.get("client_id") != asked["client_id"]:
            return 400, {"error": "invalid_grant", "error_description": "gone"}
        self.spent.add(given)
        return self._issue(asked)

    def _issue(self, asked: dict[str, str]) -> tuple[int, dict[str, Any]]:
        access, refresh = f"access-{secrets.token_urlsafe(8)}", f"refresh-{secrets.token_urlsafe(8)}"
        scope = asked.get("scope", "")
        self.valid[access] = scope
        self.whose[access] = asked.get("person", "")
        self.refresh_tokens[refresh] = asked
        document = {"access_token": access, "token_type": "Bearer", "refresh_token": refresh, "scope": scope}
        return self.issued, document | ({} if self.life is None else {"expires_in": self.life})

    async def _serve(self, asked: Asked, reply: Reply) -> None:
        token = asked.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self.valid:
            named = f'Bearer resource_metadata="{self.origin}{PROTECTED}"'
            await reply.whole(401, www_authenticate=named)
        elif self.needed not in self.valid[token].split() and self.needed:
            await reply.whole(403, www_authenticate=f'Bearer error="insufficient_scope", scope="{self.needed}"')
        else:
            await reply.result(asked, {"as": token})


@asynccontextmanager
async def standin_authorization() -> AsyncGenerator[StandInAuthorization]:
    made = StandInAuthorization()
    async with raw_server(made.answer) as server:
        made.server = server
        yield made


def body_of(asked: Asked) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(asked.body)
    return body
