"""An authorization server that a test runs: it publishes keys over real HTTP, counts who asks, and signs tokens."""

import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import cache
from typing import Any

import anyio
import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

RESOURCE = "https://gateway.example/mcp"


class Server(uvicorn.Server):
    """A server that leaves the signals to the test runner, and says when it listens."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        settings = uvicorn.Config(app, interface="asgi3", log_config=None, lifespan="off", timeout_graceful_shutdown=1)
        super().__init__(settings)
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self._listener = listener

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[str]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._serve, [self._listener])
            yield self.url
            self.should_exit = True


@cache
def _keys_of(_who: str) -> dict[str, Any]:
    """Made once for each name: RSA keys take a while."""
    return {
        "rsa": rsa.generate_private_key(65537, 2048),
        "ec": ec.generate_private_key(ec.SECP256R1()),
        "ed": ed25519.Ed25519PrivateKey.generate(),
    }


class Issuer:
    """Keys `rsa`, `ec` and `ed`; `published` says which of them the world can see."""

    def __init__(self, who: str = "issuer") -> None:
        self.url = ""
        self._who = who
        self.reset()

    def reset(self) -> None:
        self.keys = dict(_keys_of(self._who))
        self.published = ["rsa", "ec", "ed"]
        self.extra: list[dict[str, Any]] = []
        self.fetches = 0
        self.gate = anyio.Event()
        self.gate.set()
        self.status = 200
        self.body: bytes | None = None
        self.metadata: dict[str, Any] | None = None

    def jwk(self, kid: str) -> dict[str, Any]:
        public = self.keys[kid].public_key()
        kinds: dict[str, tuple[Any, str]] = {
            "rsa": (jwt.algorithms.RSAAlgorithm, "RS256"),
            "ec": (jwt.algorithms.ECAlgorithm, "ES256"),
            "ed": (jwt.algorithms.OKPAlgorithm, "EdDSA"),
        }
        algorithm, name = kinds[kid]
        return {**algorithm.to_jwk(public, as_dict=True), "kid": kid, "use": "sig", "alg": name}

    def claims(self, **more: Any) -> dict[str, Any]:
        now = int(datetime.now(UTC).timestamp())
        basic = {"iss": self.url, "aud": RESOURCE, "sub": "ada", "exp": now + 600, "scope": "mcp:server:*"}
        return {key: value for key, value in {**basic, **more}.items() if value is not None}

    def token(self, kid: str = "rsa", header: dict[str, Any] | None = None, **claims: Any) -> str:
        names = {"rsa": "RS256", "ec": "ES256", "ed": "EdDSA"}
        headers = {"kid": kid} if header is None else header
        return jwt.encode(self.claims(**claims), self.keys[kid], names[kid], headers)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/keys", self._show_keys),
                Route("/.well-known/{name}", self._show_metadata),
            ]
        )

    async def _show_keys(self, _request: Request) -> Response:
        self.fetches += 1
        await self.gate.wait()
        body = json.dumps({"keys": [*self.extra, *map(self.jwk, self.published)]}).encode()
        return Response(self.body or body, self.status, media_type="application/json")

    async def _show_metadata(self, request: Request) -> Response:
        if self.metadata is None or request.path_params["name"] != "openid-configuration":
            return JSONResponse({}, 404)
        return JSONResponse(self.metadata)


@asynccontextmanager
async def running_issuer() -> AsyncGenerator[Issuer]:
    issuer = Issuer()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with Server(issuer.app(), listener).running() as url:
            issuer.url = url
            yield issuer
