"""What a client's request brings along for servers: headers (`client_headers`), and its access token for an exchange.

An ASGI layer behind the guards: it adds to the request's principal what some server needs, and with the principal it
reaches every request that is made on the client's behalf. It knows no server; which of them gets which header is
decided where a server is asked (`proxy/upstream/dispatcher.py`), and no server gets the access token: it is exchanged
for one of the server's (`proxy/transport/oauth/exchange.py`).
"""

from collections.abc import Awaitable
from dataclasses import replace

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.proxy import Proxy
from gateway.serve.auth.bearer import credential_of
from gateway.serve.auth.identity import name_principal, principal_of
from gateway.serve.http.headers import headers_of


class ClientHeaders:
    """Wraps an app."""

    def __init__(self, app: ASGIApp, proxy: Proxy) -> None:
        self._app = app
        self._proxy = proxy

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Pass a request on. Without such a server it costs one look."""
        if self._proxy.exchanges_tokens and scope["type"] == "http":
            _add_token(scope)
        if self._proxy.client_headers and scope["type"] == "http":
            headers, is_api = headers_of(scope).values, scope["path"].startswith("/v1/")
            brought = {
                # So that the server gets the same bytes (`http1/lines.py`).
                name: headers[name].encode("latin-1").decode("utf-8", "surrogateescape")
                for name in self._proxy.client_headers
                # Under /v1 this one is a credential for the gateway.
                if name in headers and not (is_api and name == "x-api-key")
            }
            name_principal(scope, replace(principal_of(scope), headers=brought))
        return self._app(scope, receive, send)


def _add_token(scope: Scope) -> None:
    principal = principal_of(scope)
    if principal.token is not None:
        token = replace(principal.token, text=credential_of(scope).decode("latin-1"))
        name_principal(scope, replace(principal, token=token))
