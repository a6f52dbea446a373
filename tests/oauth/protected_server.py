"""A real MCP server (fastmcp) that demands tokens of an authorization server.

`protected_server.py PORT ISSUER [KEYS AUDIENCE SCOPE]`: the URL of the issuer's keys, and what the tokens must have.
Runs in the environment that `make oauth-install` makes.
"""

import sys

from fastmcp import Context, FastMCP
from fastmcp.server.auth import RemoteAuthProvider
from fastmcp.server.auth.providers.jwt import JWTVerifier
from fastmcp.server.dependencies import get_access_token
from pydantic import AnyHttpUrl

port, issuer = int(sys.argv[1]), sys.argv[2]
base = f"http://127.0.0.1:{port}"
keys, audience, scope = sys.argv[3:6] if len(sys.argv) > 3 else (f"{issuer}/jwks", f"{base}/mcp", "read")
verifier = JWTVerifier(jwks_uri=keys, issuer=issuer, audience=audience, required_scopes=[scope])
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


@server.tool
def session(ctx: Context) -> str:
    """Return which session this call came in."""
    return ctx.session_id


if __name__ == "__main__":
    server.run(transport="http", host="127.0.0.1", port=port, show_banner=False)
