"""Access tokens for an MCP server, from our own credentials (OAuth 2.1, 4.2: client credentials).

Turns a client id and a secret into tokens that are everybody's. The token endpoint is configured, or found by what the
server says when it refuses us (MCP, "Authorization"). The secret goes to no server but its issuer, and neither it nor a
token is ever shown.
"""

from collections.abc import Mapping

from gateway.observe.escape import escape_text
from gateway.proxy.transport.interface import NoAnswer
from gateway.proxy.transport.oauth.discovery import find_resource
from gateway.proxy.transport.oauth.endpoint_tokens import EndpointTokens
from gateway.proxy.transport.oauth.metadata import AuthorizationServer, check_confidential, read_named_url
from gateway.proxy.transport.oauth.tokens import Refused


class ClientCredentialsGrant(EndpointTokens):
    """The tokens for one server, shared by all sessions with it."""

    def _form(self) -> dict[str, str]:
        return {"grant_type": "client_credentials", "resource": self._resource}

    def _way_out(self, error: Exception) -> str:
        return ": check `oauth` of this server" if isinstance(error, Refused) else ""

    async def _issuer(self, challenge: Mapping[str, str]) -> str:
        if self._registered.issuer is not None:
            return self._registered.issuer
        resource = await find_resource(self._fetcher, self._url, challenge)
        if resource is None or not resource.issuers:
            raise NoAnswer("it does not say which authorization server it trusts")
        self._resource = resource.name
        self._scope = self._scope or resource.scope
        issuer = resource.issuers[0]
        check_confidential(read_named_url(issuer), self._fetcher.listed)
        self._log.warning(
            "upstream chose the issuer that gets our client secret: set `oauth.issuer` if it is the right one",
            issuer=escape_text(issuer, 200),
        )
        return issuer

    async def _post(self, server: AuthorizationServer, form: Mapping[str, str]) -> tuple[int, dict[str, object]]:
        status, document = await super()._post(server, form)
        if status == 400 and document.get("error") in ("invalid_target", "invalid_request"):
            # Some servers don't know resource indicators (RFC 8707), and say so.
            rest = {key: value for key, value in form.items() if key != "resource"}
            status, document = await super()._post(server, rest)
        return status, document
