"""The pages at which users sign in to servers, where a server is configured so that each user does.

Turns the services into what wraps the endpoints in these pages. A gateway without such servers loads none of it, and
spends no time on it.
"""

from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp

from gateway.config import GatewayConfig
from gateway.observe.logs import get_logger
from gateway.proxy import Proxy
from gateway.serve.auth.sign_in_pages import Identify, SignInPages
from gateway.serve.auth.token import own_hosts

log = get_logger("serve")


def sign_in_pages(proxy: Proxy, config: GatewayConfig) -> Callable[[ASGIApp, Identify], ASGIApp] | None:
    """What wraps an application in the pages; None: no server needs them. `config`: the one at the start."""
    if not needs_pages(config):
        return None
    from gateway.proxy.transport.oauth.user_sign_ins import UserSignIns

    sign_ins, hosts = UserSignIns(proxy.grants), own_hosts(config.serve)
    return lambda app, identify: SignInPages(
        app, identify, sign_ins, lambda: proxy.config.upstreams, proxy.signed_in, hosts
    )


def reloading(proxy: Proxy, start: GatewayConfig) -> Callable[[GatewayConfig], Awaitable[None]]:
    """What has another configuration served. `start`: the one at the start, which decided whether there are pages."""

    async def reload(fresh: GatewayConfig) -> None:
        await proxy.reload(fresh)
        if needs_pages(fresh) and not needs_pages(start):
            log.warning("users can't sign in before a restart: the first server with `auth.per_user` is new")

    return reload


def needs_pages(config: GatewayConfig) -> bool:
    """Whether users sign in to a server for themselves."""
    return any(each.has_user_pages for each in config.upstreams)
