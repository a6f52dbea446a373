"""Runs the Python SDK's own everything-server, over HTTP or stdio: `python -m conformance.reference PORT|stdio`.

The suite is written for this server, and the gateway in front of it must score what it scores. Its code comes from the
SDK's source distribution, through PYTHONPATH. This adds one thing: uvicorn's slower HTTP parser, which strips blanks
from the end of a header's value (RFC 9110, 5.5); the faster one keeps them, and one check is about them.
"""

import sys
from importlib import import_module
from typing import Any

from uvicorn.config import HTTP_PROTOCOLS

RETRY_MS = 100
"""Milliseconds that its event streams tell clients to wait before they reconnect, as in the example's `main`."""


def main() -> None:
    """Serve on the given port, or on standard input and output for `stdio`."""
    module: Any = import_module("mcp_everything_server.server")
    if sys.argv[1] == "stdio":
        module.mcp.run(transport="stdio")
        return
    HTTP_PROTOCOLS["auto"] = HTTP_PROTOCOLS["h11"]
    module.mcp.run(
        transport="streamable-http", port=int(sys.argv[1]), event_store=module.event_store, retry_interval=RETRY_MS
    )


if __name__ == "__main__":
    main()
