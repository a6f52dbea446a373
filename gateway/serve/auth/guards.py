"""The guards before every endpoint, made from the settings: who may call, how much, and by which of our names.

Turns the endpoints' application into one that is safe to listen with.
"""

from starlette.types import ASGIApp

from gateway.config.model import GatewayConfig
from gateway.observe.access_metrics import AccessMetrics
from gateway.serve.auth.bearer import BearerAuth
from gateway.serve.auth.credentials import AccessTokens, Credentials
from gateway.serve.auth.key_file import KeyRing
from gateway.serve.auth.resource import ProtectedResource
from gateway.serve.auth.token import HostGuard, own_hosts
from gateway.serve.http.home import Home
from gateway.shared import Shared


def guard_endpoints(
    app: ASGIApp, config: GatewayConfig, metrics: AccessMetrics, shared: Shared | None = None
) -> ASGIApp:
    """The application behind the credential check, and behind it the host check; before both the page at `/`.

    `shared`: counts what callers ask for all replicas; None: each counts for itself.

    Raises:
        ConfigError: the key file can't be used.
    """
    serve = config.serve
    credentials = Credentials(serve.token, KeyRing(serve.keys) if serve.keys else None, _access_tokens(config))
    resource = None if serve.oauth is None else ProtectedResource(serve.oauth)
    guarded = BearerAuth(HostGuard(app, own_hosts(serve)), credentials, metrics, resource=resource, shared=shared)
    return Home(guarded)


def _access_tokens(config: GatewayConfig) -> AccessTokens | None:
    if config.serve.oauth is None:
        return None
    # Cryptography and an HTTP client weigh 20 MB; who has no issuer does not carry them.
    from gateway.serve.auth.jwks import IssuerKeys
    from gateway.serve.auth.oauth import TokenVerifier

    return TokenVerifier(config.serve.oauth, IssuerKeys(config.serve.oauth))
