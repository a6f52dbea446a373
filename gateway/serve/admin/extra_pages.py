"""Pages that other packages bring to the admin port, and the parts of the running gateway that they may read."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.observe.logs import get_logger

if TYPE_CHECKING:
    from gateway.agent import Agent
    from gateway.config.gateway_config import GatewayConfig
    from gateway.engine.pool.pool import EnginePool
    from gateway.observe.audit import Audit
    from gateway.observe.logs import TokenNotices
    from gateway.observe.metrics import Metrics
    from gateway.proxy.costs import DefinitionCosts
    from gateway.proxy.proxy import Proxy
    from gateway.proxy.result_tokens import ResultTokens
    from gateway.serve.admin.status_report import StatusReport


@dataclass(frozen=True, slots=True)
class GatewayParts:
    """The parts of the gateway that pages read."""

    proxy: "Proxy"
    tokens: "ResultTokens"
    notices: "TokenNotices"
    costs: "DefinitionCosts"
    engines: "EnginePool"
    agent: "Agent"
    status: "StatusReport"
    metrics: "Metrics"
    audit: "Audit | None"

    @property
    def config(self) -> "GatewayConfig":
        """The current settings."""
        return self.proxy.config


# Entry points of `codec_gateway.admin_pages`: `console = "..."` answers `/console`. A package that can't be loaded is
# left out, and the log says why.

_GROUP: Final = "codec_gateway.admin_pages"

log = get_logger("serve")


class ExtraPages(Protocol):
    """The pages of one package, an ASGI application. They are made for each gateway that serves."""

    DESCRIPTION: ClassVar[str]
    """What the pages show, in a few words."""

    def __init__(self, parts: GatewayParts) -> None:
        """Keep what the pages read; nothing else is loaded or started here."""
        ...

    def start_url(self, admin: str) -> str | None:
        """The address for the operator to open at start; None: there is none. `admin`: the admin port's URL."""
        ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection to a path of these pages."""
        ...


def extra_page_paths() -> list[str]:
    """The first paths of the pages that installed packages bring, such as `/console`, without loading any."""
    return [f"/{each.name}" for each in _installed()]


def make_extra_pages(parts: GatewayParts) -> dict[str, ExtraPages]:
    """The pages that installed packages bring, by their first path, of one gateway."""
    made: dict[str, ExtraPages] = {}
    for each in _installed():
        try:
            made[f"/{each.name}"] = each.load()(parts)
        except Exception as error:  # noqa: BLE001 - another package's code: whatever fails there, the gateway serves
            log.warning("the pages of a package can't be loaded", pages=each.name, package=each.value, error=str(error))
    return made


def _installed() -> list[EntryPoint]:
    return sorted(entry_points(group=_GROUP), key=lambda each: each.name)


def page_of(path: str, pages: Iterable[str]) -> str | None:
    """Which of the pages a request's path belongs to, by their first paths."""
    return next((page for page in pages if path == page or path.startswith(f"{page}/")), None)


class WithExtraPages:
    """The admin port's application, with other packages' pages in front of its own."""

    def __init__(self, rest: ASGIApp, pages: Mapping[str, ASGIApp]) -> None:
        """`rest` answers every path that is not below one of the pages' paths."""
        self._rest = rest
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        page = page_of(scope["path"], self._pages) if scope["type"] == "http" else None
        await (self._rest if page is None else self._pages[page])(scope, receive, send)
