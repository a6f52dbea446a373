"""The guards in front of every endpoint, made from the settings: who may call, how much, and under which host names.

Turns the endpoints' application into one that is safe to expose.
"""

from collections.abc import Callable, Mapping

from starlette.types import ASGIApp

from gateway.config.model import GatewayConfig
from gateway.observe.client_metrics import AccessMetrics
from gateway.serve.auth.api_keys import KeyRing
from gateway.serve.auth.bearer import AccessTokens, BearerAuth, Credentials, ProtectedResource
from gateway.serve.auth.gateway_token import HostGuard, own_hosts
from gateway.serve.auth.sign_in_pages import Identify
from gateway.serve.http.plain_pages import NO_PAGES, Home
from gateway.serve.http.request_parts import Cors
from gateway.shared import Shared


def guard_endpoints(
    app: ASGIApp,
    config: GatewayConfig,
    metrics: AccessMetrics,
    shared: Shared | None = None,
    sign_in_pages: Callable[[ASGIApp, Identify], ASGIApp] | None = None,
    admin_pages: Mapping[str, str] = NO_PAGES,
) -> ASGIApp:
    """Wrap the application in the host check, that in the credential check, both in what lets named web pages read the
    answers, and all in the pages at `/` and `/docs`.

    `shared`: counts callers' requests for all replicas; None: each replica counts for itself. `sign_in_pages`: wraps an
    application in the pages at which users sign in to servers; None: there are none. `admin_pages`: what other
    packages' pages on the admin port show, by their paths.

    Raises:
        ConfigError: the key file can't be used.
    """
    serve = config.serve
    credentials = Credentials(serve.token, KeyRing(serve.keys) if serve.keys else None, _access_tokens(config))
    resource = None if serve.oauth is None else ProtectedResource(serve.oauth)
    checked = HostGuard(app, own_hosts(serve), serve.cors_origins)
    auth = BearerAuth(checked, credentials, metrics, resource=resource, shared=shared)
    guarded = auth if sign_in_pages is None else sign_in_pages(auth, auth.identify)
    return Home(Cors(guarded, serve.cors_origins) if serve.cors_origins else guarded, serve, admin_pages)


def _access_tokens(config: GatewayConfig) -> AccessTokens | None:
    if config.serve.oauth is None:
        return None
    # Cryptography and an HTTP client take 20 MB of memory: load them only where an issuer is configured.
    from gateway.serve.auth.oauth import IssuerKeys, TokenVerifier

    return TokenVerifier(config.serve.oauth, IssuerKeys(config.serve.oauth))
