"""A uvicorn server for one application on one socket, with the gateway's own connection protocol."""

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from gateway.serve.http.client_connection import HttpProtocol
from gateway.serve.http.connections import Connections


class HttpServer(uvicorn.Server):
    """A uvicorn server that leaves signals to `app/signals.py`: a process has two servers, but stops once."""

    def __init__(self, config: uvicorn.Config) -> None:
        """Listen nowhere yet."""
        super().__init__(config)
        self.servers = []

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture none."""
        yield

    def send_clients_away(self) -> None:
        """Accept no more connections, and close each open one as soon as nothing runs on it."""
        for each in self.servers:
            each.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()


def http_server(app: ASGIApp, connections: Connections) -> HttpServer:
    """The server of an application; `connections` bounds its clients' connections."""
    settings = uvicorn.Config(
        app,
        interface="asgi3",
        loop="none",
        http=cast("Any", partial(HttpProtocol, connections=connections)),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )
    return HttpServer(settings)
