"""What gets the tokens for one upstream: our own credentials, or somebody's sign-in.

Turns the settings of an upstream into its `Authorizer`, one for all connections to it. It sends nothing.
"""

from structlog.typing import FilteringBoundLogger

from gateway.config.model import UpstreamConfig
from gateway.proxy.transport.http.authorizer import Authorizer
from gateway.proxy.transport.http.client import HttpClient
from gateway.proxy.transport.oauth.client_credentials import ClientCredentialsGrant
from gateway.proxy.transport.oauth.documents import fetcher_for
from gateway.proxy.transport.oauth.grant_store import OPERATOR, GrantStore
from gateway.proxy.transport.oauth.signed_in import SignedIn


def authorizer_for(
    config: UpstreamConfig, client: HttpClient, store: GrantStore, log: FilteringBoundLogger
) -> Authorizer | None:
    """Return what gets the upstream's tokens, the same for all connections; None: its headers have what it needs."""
    if config.url is None or (config.oauth is None and "authorization" in (name.lower() for name in config.headers)):
        return None
    key = (config.name, config.url, config.oauth, config.auth)
    if key not in client.authorizers:
        if config.oauth is not None:
            client.authorizers[key] = ClientCredentialsGrant(config.url, config.oauth, client, log)
        else:
            client.authorizers[key] = SignedIn(config, OPERATOR, fetcher_for(config, client), store, log)
    return client.authorizers[key]
