"""One HTTP request and its answer, as records between two replicas.

Turns an ASGI scope into the data of a record, and back; bodies are separate records. Headers that belong to one
connection are left out. Pure.
"""

import json
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, Final

from gateway.replicas.replica import FORWARDED
from gateway.replicas.sealed_records import RecordFault

REQUEST: Final = b"R"
BODY: Final = b"B"
END: Final = b"E"
"""The last piece of a body."""
ALIVE: Final = b"A"
"""The answer is still being made."""
START: Final = b"S"
"""The answer's status and headers."""
GONE: Final = b"G"
"""What is asked for belonged to an earlier run of this process."""

PIECE: Final = 256 * 1024
"""Bytes of a body in one record."""
_OF_A_CONNECTION: Final = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"te", b"trailer"})

Headers = Iterable[tuple[bytes, bytes]]


def head_of(scope: Any, boot: bytes) -> bytes:
    """A request without its body. `boot`: the run of the owner that it is meant for."""
    client = scope.get("client")
    return json.dumps(
        {
            "boot": boot.hex(),
            "method": scope["method"],
            "scheme": scope.get("scheme", "http"),
            "path": scope["path"],
            "query": scope.get("query_string", b"").decode("latin-1"),
            "client": list(client) if client is not None else None,
            "headers": _shown(scope["headers"]),
        }
    ).encode()


def scope_of(head: bytes) -> tuple[dict[str, Any], bytes]:
    """The request as an ASGI scope, and the run that it is meant for. Raises `RecordFault`."""
    with _reading("a request"):
        return _scope_of(json.loads(head))


def _scope_of(read: Any) -> tuple[dict[str, Any], bytes]:
    client = read["client"]
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": read["method"],
        "scheme": read["scheme"],
        "path": read["path"],
        "raw_path": read["path"].encode("utf-8", "surrogateescape"),
        "root_path": "",
        "query_string": read["query"].encode("latin-1"),
        "headers": _read(read["headers"]),
        "client": None if client is None else (client[0], client[1]),
        "server": None,
        FORWARDED: True,
    }
    return scope, bytes.fromhex(read["boot"])


def start_of(message: Any) -> bytes:
    """The beginning of an answer (`http.response.start`)."""
    return json.dumps({"status": message["status"], "headers": _shown(message.get("headers", ()))}).encode()


def message_of(start: bytes) -> dict[str, Any]:
    """The beginning of an answer as an ASGI message. Raises `RecordFault`."""
    with _reading("an answer"):
        read = json.loads(start)
        return {"type": "http.response.start", "status": int(read["status"]), "headers": _read(read["headers"])}


def streams(headers: Headers) -> bool:
    """Whether an answer with these headers is streamed."""
    return any(name.lower() == b"content-type" and value.startswith(b"text/event-stream") for name, value in headers)


def pieces(body: bytes, *, more: bool) -> list[tuple[bytes, bytes]]:
    """A part of a body as records. `more`: whether other parts follow."""
    records = [(BODY, body[at : at + PIECE]) for at in range(0, len(body), PIECE)]
    if more:
        return records
    return [*records[:-1], (END, records[-1][1] if records else b"")]


def _shown(headers: Headers) -> list[list[str]]:
    kept = (pair for pair in headers if pair[0].lower() not in _OF_A_CONNECTION)
    return [[name.decode("latin-1"), value.decode("latin-1")] for name, value in kept]


def _read(headers: list[list[str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


@contextmanager
def _reading(what: str) -> Generator[None]:
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise RecordFault(f"{what} that can't be read") from error
