"""Runs the Python SDK's own everything-server, over HTTP or stdio: `python -m conformance.reference PORT|stdio`.

The suite is written for this server, and what it scores is what the gateway in front of it must score. Its code comes
from the SDK's source distribution, by PYTHONPATH. It adds one thing: uvicorn's slower HTTP parser, which takes the
blanks from the end of a header's value (RFC 9110, 5.5); the faster one keeps them, and a check is about them.
"""

import sys
from importlib import import_module
from typing import Any

from uvicorn.config import HTTP_PROTOCOLS

RETRY_MS = 100
"""What its event streams tell clients to wait before they come back; `main` of the example says the same."""


def main() -> None:
    """Serve on the port that is named, or on standard input and output for `stdio`."""
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
