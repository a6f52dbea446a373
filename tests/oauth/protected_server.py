"""A real MCP server (fastmcp) that demands tokens of an authorization server: `protected_server.py PORT ISSUER`.

Runs in the environment that `make oauth-install` makes.
"""

import sys

from fastmcp import FastMCP
from fastmcp.server.auth import RemoteAuthProvider
from fastmcp.server.auth.providers.jwt import JWTVerifier
from fastmcp.server.dependencies import get_access_token
from pydantic import AnyHttpUrl

port, issuer = int(sys.argv[1]), sys.argv[2]
base = f"http://127.0.0.1:{port}"
verifier = JWTVerifier(jwks_uri=f"{issuer}/jwks", issuer=issuer, audience=f"{base}/mcp", required_scopes=["read"])
server = FastMCP(
    "protected",
    auth=RemoteAuthProvider(token_verifier=verifier, authorization_servers=[AnyHttpUrl(issuer)], base_url=base),
)


@server.tool
def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool
def who() -> str:
    """Return whose token this call came with."""
    token = get_access_token()
    return "nobody" if token is None else str(token.claims["sub"])


if __name__ == "__main__":
    server.run(transport="http", host="127.0.0.1", port=port, show_banner=False)
