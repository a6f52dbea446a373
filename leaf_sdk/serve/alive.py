"""Whether a leaf server answers: for containers, which ask every few seconds.

`python -m leaf_sdk.serve.alive HOST:PORT` exits with 0 if the server there speaks HTTP and does not report an error of
its own: an MCP server answers a request that is not MCP with some 4xx, and that is proof enough. Imports only the
standard library, and uses no tool and no session: a probe that called a tool would put load on it.
"""

import http.client
import sys
from collections.abc import Sequence
from typing import Final

TIMEOUT: Final = 3.0


def answers(host: str, port: int, timeout: float = TIMEOUT) -> str | None:
    """Ask once; return what is wrong, or None if the answer has a status below 500."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", "/")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"nothing answers at {host}:{port}: {error or type(error).__name__}"
    finally:
        connection.close()
    return None if status < 500 else f"{host}:{port} answers with status {status}"


def main(arguments: Sequence[str]) -> int:
    """Ask at the one address in the arguments. Exit codes: 0 alive, 1 not alive, 2 no address."""
    host, _, port = (arguments[0] if len(arguments) == 1 else "").rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        sys.stderr.write("expected one address: python -m leaf_sdk.serve.alive 127.0.0.1:8300\n")
        return 2
    problem = answers(host.strip("[]"), int(port))
    if problem is not None:
        sys.stderr.write(f"{ascii(problem)[1:-1]}\n")
    return 0 if problem is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
