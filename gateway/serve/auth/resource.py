"""What this gateway publishes about itself as an OAuth 2.1 resource: where its metadata is, and where to get tokens.

RFC 9728: the document at `/.well-known/oauth-protected-resource`, also with the resource's path appended (§3.1), and
the parts of a challenge that point there (§5.1). It checks no tokens.
"""

from typing import Any, Final
from urllib.parse import urlsplit

from starlette.responses import JSONResponse
from starlette.types import Scope

from gateway.config.access import OAuthConfig

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"


class ProtectedResource:
    """The gateway as a protected resource of the configured authorization server."""

    def __init__(self, config: OAuthConfig) -> None:
        self._config = config
        parts = urlsplit(config.resource)
        self._path = parts.path.rstrip("/")
        self._metadata_url = f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{self._path}"
        self._scope = " ".join(config.scopes)

    def document(self, scope: Scope) -> JSONResponse | None:
        """The answer to a request for the metadata; None for any other request."""
        path: str = scope.get("path", "")
        if not path.startswith(WELL_KNOWN) or scope.get("method") not in {"GET", "HEAD"}:
            return None
        place = path.removeprefix(WELL_KNOWN).rstrip("/")
        endpoints = {"/mcp", self._path} - {""}
        # A server or view of its own (`/mcp/NAME`) is a part of the one resource, for which its tokens are.
        if place and place not in endpoints and place.rpartition("/")[0] not in endpoints:
            return None
        # Public, and read by clients in browsers too.
        headers = {"Access-Control-Allow-Origin": "*", "Cache-Control": "max-age=3600"}
        return JSONResponse(self.metadata(), headers=headers)

    def metadata(self) -> dict[str, Any]:
        """The document (RFC 9728 §2)."""
        return {
            "resource": self._config.resource,
            "authorization_servers": [self._config.issuer],
            "scopes_supported": list(self._config.scopes),
            "bearer_methods_supported": ["header"],
            "resource_name": "codec-gateway",
        }

    def challenge(self) -> list[str]:
        """Parts of `WWW-Authenticate`: where the metadata is, and which scopes to ask for."""
        return [f'resource_metadata="{self._metadata_url}"', f'scope="{self._scope}"']
