"""The admin port: metrics for Prometheus, liveness, readiness, and a full status report.

Turns what the packages last reported (`Readiness.set`) into HTTP answers. A request asks nobody else: a probe that
queried the engine would make a busy engine look dead, and load it further. The port asks for no key, which is why it
listens on loopback unless configured otherwise; the page that reveals most (`/status`) answers this machine only, in
any case. `app/process.py` runs it beside the endpoints.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from gateway.config.address import is_loopback
from gateway.escape import escape_text
from gateway.observe.metrics import Metrics
from gateway.serve.http.error_answers import error_response

_REASON_LENGTH = 500
FRESH: Final[Mapping[str, str]] = {"Cache-Control": "no-store"}


class Readiness:
    """What each part of the gateway last reported. Ready: at least one has, all are well, no drain has begun."""

    def __init__(self) -> None:
        self._reasons: dict[str, str | None] = {}
        self._details: dict[str, Callable[[], Any]] = {}
        self._draining = False

    def set(self, component: str, ok: bool, reason: str = "") -> None:
        """Record whether a part is well, and if not, why. `component`: the part's name (`engine`, `upstream:time`)."""
        self._reasons[component] = None if ok else escape_text(reason or "not ready", _REASON_LENGTH)

    def inform(self, name: str, details: Callable[[], Any]) -> None:
        """Show what `details` returns (JSON values, without delay) under `name` in every report.

        It has no effect on readiness.
        """
        self._details[name] = details

    def drain(self) -> None:
        """Refuse new work from now on: the gateway is stopping. There is no way back."""
        self._draining = True

    @property
    def ready(self) -> bool:
        """Whether the gateway accepts new requests."""
        return not self._draining and bool(self._reasons) and all(r is None for r in self._reasons.values())

    def report(self) -> dict[str, Any]:
        """As JSON values: `ready`, `draining`, `components` by name, `reasons` for not being ready, and the details."""
        reasons = [f"{name}: {reason}" for name, reason in self._reasons.items() if reason is not None]
        if self._draining:
            reasons.insert(0, "draining: the gateway is stopping")
        elif not self._reasons:
            reasons.append("starting: no part has reported yet")
        return {
            "ready": self.ready,
            "draining": self._draining,
            "components": {name: reason is None for name, reason in self._reasons.items()},
            "reasons": reasons,
            **{name: details() for name, details in self._details.items()},
        }


Status = Callable[[], Awaitable[dict[str, Any]]]


def admin_app(
    metrics: Metrics,
    readiness: Readiness,
    status: Status | None = None,
    *,
    first_page: str = "/status",
    private: bool = False,
) -> Starlette:
    """`/metrics`, `/healthz/live` (200 while the process runs), `/healthz/ready` (200, or 503 with reasons), `/status`.

    Args:
        status: makes the full report; None: there is no such page.
        first_page: the path to which `/` leads a person.
        private: whether only the gateway itself can reach this port.
    """

    async def show_metrics(_request: Request) -> Response:
        return Response(metrics.render(), media_type=metrics.content_type)

    async def show_live(_request: Request) -> Response:
        return JSONResponse({"live": True}, headers=FRESH)

    async def show_ready(_request: Request) -> Response:
        return JSONResponse(readiness.report(), status_code=200 if readiness.ready else 503, headers=FRESH)

    async def show_status(request: Request) -> Response:
        if status is None or not (private or is_local(request)):
            return not_local()
        return JSONResponse(await status(), headers=FRESH)

    return Starlette(
        routes=[
            lead_to(first_page),
            Route("/metrics", show_metrics),
            Route("/healthz/live", show_live),
            Route("/healthz/ready", show_ready),
            *([] if status is None else [Route("/status", show_status)]),
        ],
        exception_handlers={404: _not_here},
    )


async def _not_here(request: Request, _error: Exception) -> Response:
    where = "is not served on the admin port; /mcp and /v1 are on the gateway's own (serve.port)"
    return error_response(404, f"{request.method} {request.url.path} {where}", code="not_found")


def lead_to(path: str) -> Route:
    """The route that leads whoever opens the bare address of the admin port to this path."""

    async def redirect(_request: Request) -> Response:
        return RedirectResponse(path, 303)

    return Route("/", redirect)


def is_local(request: Request) -> bool:
    """Whether the request comes from this machine and is addressed to a loopback name."""
    # Both are needed: a page in a browser on this machine comes from loopback too, but uses a host name of its own.
    here = request.client is not None and is_loopback(request.client.host)
    return here and is_loopback(request.url.hostname or "")


def not_local() -> Response:
    """The answer to a request for `/status` from elsewhere."""
    return error_response(403, "/status is for this machine only: request it there, at 127.0.0.1", code="not_local")
