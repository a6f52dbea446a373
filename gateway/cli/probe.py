"""Asks whether a gateway is ready, as cheaply as a process can: for containers, which ask every few seconds.

`python -m gateway.cli.probe [URL]` does what `codec-gateway health` does, in a twentieth of the time, because it
imports only the standard library. It reads no configuration file: the address is an argument, or comes from the
environment variables of the admin port. `health.py` is the same for people.
"""

import http.client
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

READY_PATH: Final = "/healthz/ready"
TIMEOUT: Final = 3.0
_LARGEST: Final = 65_536
_OK, _FAILED, _CONFIG, _UNREACHABLE = 0, 1, 3, 4
"""The same as in `exit_codes.py`; a test compares them."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The outcome: an exit code, and a line for whoever reads the container's log."""

    code: int
    words: str


def admin_url(environ: Mapping[str, str]) -> str:
    """The admin port's address as CODEC_GATEWAY_SERVE__ADMIN_HOST and __ADMIN_PORT set it, seen from this machine."""
    host = environ.get("CODEC_GATEWAY_SERVE__ADMIN_HOST") or "127.0.0.1"
    return url_of(host, environ.get("CODEC_GATEWAY_SERVE__ADMIN_PORT") or "8601")


def url_of(host: str, port: object) -> str:
    """The URL of a port that listens on `host`. If it listens on all addresses, the URL names the loopback one."""
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - only asked
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def ask(url: str, timeout: float = TIMEOUT) -> ProbeResult:
    """Ask `url` (http only; `/healthz/ready` unless it names a path) once: 200 is yes, anything else is no."""
    address = _parse(url)
    if address is None:
        return ProbeResult(
            _CONFIG, f"{url!r} is not a valid address: expected http://HOST:PORT, such as http://127.0.0.1:8601"
        )
    host, port, path = address
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", path.rstrip("/") or READY_PATH)
        response = connection.getresponse()
        body = response.read(_LARGEST)
    except (OSError, http.client.HTTPException) as error:
        return ProbeResult(_UNREACHABLE, f"nothing answers at {url!r}: {str(error) or type(error).__name__}")
    finally:
        connection.close()
    reasons = _reasons(body) if (path.rstrip("/") or READY_PATH) == READY_PATH else []
    if reasons is None:
        return ProbeResult(
            _UNREACHABLE, f"what answers at {url!r} (HTTP status {response.status}) is no gateway's admin port"
        )
    if response.status == 200:
        return ProbeResult(_OK, "ready")
    return ProbeResult(_FAILED, f"not ready: {'; '.join(reasons) or f'status {response.status}'}")


def _parse(url: str) -> tuple[str, int | None, str] | None:
    """Host, port and path of an `http` address; None if it is not one."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    return (host, port, parts.path) if host and parts.scheme == "http" else None


def _reasons(body: bytes) -> list[str] | None:
    """Why the gateway is not ready, in the words of its report; None if this is no such report."""
    try:
        return [str(reason) for reason in json.loads(body)["reasons"]]
    except (ValueError, TypeError, KeyError):
        return None


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Ask the address given as an argument, or else the admin port; prints the outcome and returns the exit code."""
    answer = ask(arguments[0] if arguments else admin_url(environ))
    (sys.stderr if answer.code else sys.stdout).write(f"{ascii(answer.words)[1:-1]}\n")
    return answer.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
