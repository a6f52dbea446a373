"""A stand-in for an MCP server at which each person has an account: what it lists and answers is that person's own.

It lets nobody in without a token, and notes every request whose session was opened with another person's token.
"""

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from gateway.config.access import ExchangeConfig
from gateway.config.gateway_config import SignInConfig, UpstreamConfig
from gateway.proxy.transport.oauth.user_sign_ins import UserSignIns
from tests.gateway.proxy.transport.over_http.raw_server import Asked, Reply, raw_server
from tests.gateway.proxy.transport.over_http.standin_authorization import StandInAuthorization

CALLBACK = "http://127.0.0.1:8600/sign-in/callback"


class Accounts(StandInAuthorization):
    def __init__(self) -> None:
        super().__init__()
        self.sessions: dict[str, str] = {}
        self.mixed: list[str] = []
        self.methods: list[str] = []
        """What it was asked, let in or not."""
        self.open_lists = False
        """Whether it lists what everybody may see without a token."""
        self.logs = False
        """Whether it sends log messages."""
        self.hints: dict[str, Any] = {}
        """By person: annotations of the tool that all have."""

    def config(self, name: str = "docs", **settings: Any) -> UpstreamConfig:
        auth = SignInConfig(redirect_url=CALLBACK, per_user=True)
        return UpstreamConfig(name, url=self.url, auth=auth, protocol="handshake", **settings)

    async def sign_in(self, owner: str, person: str, config: UpstreamConfig | None = None) -> None:
        """Sign a principal in as a person."""
        config, sign_ins = config or self.config(), UserSignIns()
        begun = await sign_ins.begin(config, owner)
        self.person = person
        query = self.approve(begun.address).partition("?")[2]
        await sign_ins.finish(query, {begun.cookie: begun.secret}, [config])

    async def _serve(self, asked: Asked, reply: Reply) -> None:
        token = asked.headers.get("authorization", "").removeprefix("Bearer ")
        person = self.whose.get(token, "") if token in self.valid else None
        method = asked.message.get("method") if asked.body else asked.method
        self.methods.append(method)
        if person is None and not (self.open_lists and method != "tools/call" and not token):
            await super()._serve(asked, reply)
        elif asked.method != "POST":
            self._note_mixed(asked, person or "nobody")
            await reply.whole(405)
        else:
            await self._answer(asked, reply, person or "nobody")

    async def _answer(self, asked: Asked, reply: Reply, person: str) -> None:
        if asked.message["method"] == "initialize":
            session = secrets.token_hex(8)
            self.sessions[session] = person
            said = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "docs", "version": "1"}}
            capabilities = {"tools": {"listChanged": True}, "resources": {}, **({"logging": {}} if self.logs else {})}
            await reply.result(asked, {**said, "capabilities": capabilities}, mcp_session_id=session)
            return
        self._note_mixed(asked, person)
        if "id" not in asked.message:
            await reply.whole(202)
        else:
            await reply.result(asked, self._result(asked, person))

    def _note_mixed(self, asked: Asked, person: str) -> None:
        session = asked.headers.get("mcp-session-id", "")
        if session and self.sessions.get(session) != person:
            self.mixed.append(f"a request of {person} in the session of {self.sessions.get(session)}")

    def _result(self, asked: Asked, person: str) -> dict[str, Any]:
        schema = {"type": "object"}
        match asked.message["method"]:
            case "tools/list":
                common = {"name": "who", "inputSchema": schema, "annotations": self.hints.get(person, {})}
                return {"tools": [common, {"name": f"of_{person}", "description": person, "inputSchema": schema}]}
            case "tools/call":
                params = asked.message["params"]
                return {"content": [{"type": "text", "text": f"{person} {params['arguments'].get('word', '')}"}]}
            case "resources/list":
                return {"resources": [{"uri": f"note:///{person}", "name": person}]}
            case "resources/read":
                return {"contents": [{"uri": asked.message["params"]["uri"], "text": f"read by {person}"}]}
            case "resources/templates/list":
                return {"resourceTemplates": []}
            case _:
                return {}


class ExchangeAccounts(Accounts):
    """The same, and its authorization server exchanges the token of a caller, `PERSON ...`, for one of that person."""

    def __init__(self) -> None:
        super().__init__()
        self.refusal: dict[str, Any] | None = None
        """Answers exchanges instead."""

    def config(self, name: str = "docs", **settings: Any) -> UpstreamConfig:
        exchange = ExchangeConfig("gateway", "gateway-secret", issuer=self.origin)
        return UpstreamConfig(name, url=self.url, exchange=exchange, protocol="handshake", **settings)

    @property
    def exchanged(self) -> list[str]:
        """The tokens that were exchanged."""
        return [form["subject_token"] for form in self.forms if "subject_token" in form]

    def _token(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if "subject_token" not in form:
            return super()._token(form)
        if self.refusal is not None:
            return 400, self.refusal
        access = f"access-{secrets.token_urlsafe(8)}"
        self.valid[access] = "read"
        self.whose[access] = form["subject_token"].partition(" ")[0]
        return 200, {"access_token": access, "token_type": "Bearer", "expires_in": self.life}


@asynccontextmanager
async def standin_exchange() -> AsyncGenerator[ExchangeAccounts]:
    made = ExchangeAccounts()
    async with raw_server(made.answer) as server:
        made.server = server
        yield made


@asynccontextmanager
async def standin_accounts() -> AsyncGenerator[Accounts]:
    made = Accounts()
    async with raw_server(made.answer) as server:
        made.server = server
        yield made
