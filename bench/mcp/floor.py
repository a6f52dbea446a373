"""The floor of our HTTP side: `python -m bench.mcp.floor PORT`, an ASGI app of a few lines that answers by itself.

No gateway on this server can cost less, whatever it leaves out: uvicorn reads the request, starts a task and writes the
answer. `upstream.py` renders the answers.
"""

import sys
from typing import Any

import uvicorn

from bench.mcp.upstream import answer


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answer one POST whose body came in one piece."""
    message = await receive()
    body = answer(message["body"]) or b""
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def main() -> None:
    """Serve until terminated."""
    uvicorn.run(
        app,
        port=int(sys.argv.pop(1)),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )


if __name__ == "__main__":
    main()
